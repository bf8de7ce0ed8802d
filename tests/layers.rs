//! Which part of the source may know which: read from the files, so that a wrong `use` fails here and not in somebody's
//! understanding.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What a file may use of dlock's own modules: (place in `src`, allowed modules). The longest matching place decides. A
/// file may always use what lies below it.
const MAY_USE: &[(&str, &[&str])] = &[
    (
        "main.rs",
        &[
            "backend",
            "clock",
            "cli",
            "command",
            "exit",
            "holder",
            "key",
            "lease",
            "lock",
            "output",
            "printable",
            "readable",
            "report",
            "settings",
            "supervise",
            "variables",
        ],
    ),
    ("cli", &["cli", "backend::registry", "backend::url", "exit", "output", "report::event"]),
    ("settings", &["backend", "cli", "exit", "key", "lease::timing", "report", "settings", "variables"]),
    ("report", &[]),
    ("report/event.rs", &["holder", "key", "lease::waiting", "lease::renewal", "supervise::protocol"]),
    ("report/line.rs", &["lease::waiting", "lease::renewal", "report::event", "supervise::protocol"]),
    ("report/terminal.rs", &["printable"]),
    ("output.rs", &["exit", "report::event"]),
    ("exit.rs", &["report::event"]),
    ("holder.rs", &["printable"]),
    ("key.rs", &[]),
    ("printable.rs", &[]),
    ("readable.rs", &[]),
    ("variables.rs", &[]),
    ("clock.rs", &["readable"]),
    ("command/generate", &["backend::registry", "cli", "exit", "output", "report::event", "variables"]),
    ("command/mod.rs", &[]),
    (
        "command/run",
        &[
            "backend",
            "cli",
            "clock",
            "command::run",
            "exit",
            "holder",
            "key",
            "lease",
            "readable",
            "report",
            "settings",
            "supervise",
            "variables",
        ],
    ),
    ("lease", &["backend", "clock", "lease"]),
    ("backend", &["backend", "clock", "holder", "key", "lock", "printable"]),
    ("backend/error.rs", &[]),
    ("backend/net", &["backend::error", "backend::net", "clock", "variables"]),
    // What is decided there is decided from data alone, and can be tested without a service.
    ("backend/file/errors.rs", &["backend::error"]),
    ("backend/redis/errors.rs", &["backend::error", "backend::net::wire::Address", "printable"]),
    ("backend/redlock/errors.rs", &["backend::error", "backend::redlock::quorum"]),
    ("backend/redlock/quorum.rs", &[]),
    ("backend/etcd/errors.rs", &["backend::error", "backend::net::tls", "backend::net::wire::Address", "printable"]),
    ("backend/zookeeper/errors.rs", &["backend::error", "backend::net::tls", "printable"]),
    ("backend/zookeeper/frames.rs", &[]),
    ("backend/zookeeper/names.rs", &["backend::Claim", "holder", "lock"]),
    ("backend/zookeeper/timeline.rs", &["clock"]),
    ("lock", &["lock"]),
    ("supervise", &["clock", "readable", "supervise"]),
    ("supervise/forwards.rs", &["clock"]),
    ("supervise/priority.rs", &[]),
    ("supervise/process.rs", &[]),
    ("supervise/protocol.rs", &["clock"]),
    ("supervise/stop.rs", &["clock", "supervise::protocol"]),
    ("supervise/surroundings.rs", &[]),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source file, read as far as its uses of other files go.
struct Source {
    /// Its place in `src`.
    place: String,
    /// Its module, from the root.
    module: Vec<String>,
    /// Its text without comments and without what exists only for tests.
    code: String,
    /// What its `use` items name of dlock's own.
    imports: Vec<Import>,
    /// What else it names of dlock's own, by paths from the root.
    paths: Vec<Vec<String>>,
}

struct Import {
    /// What it is called here.
    name: String,
    /// From the root.
    path: Vec<String>,
    /// Whether it is passed on.
    is_public: bool,
}

/// All files of dlock, without those that exist only for tests.
fn read_sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let place = |file: &PathBuf| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let sources = from_texts(files.iter().map(|file| (place(file), fs::read_to_string(file).unwrap())));
    assert!(sources.len() > 100, "{}", sources.len());
    sources
}

/// These files, (place, text), without those that exist only for tests.
fn from_texts(texts: impl Iterator<Item = (String, String)>) -> Vec<Source> {
    let mut for_tests: Vec<Vec<String>> = Vec::new();
    let mut read: Vec<(String, Vec<String>, String)> = Vec::new();
    for (place, text) in texts {
        let module = module_of(&place);
        let (code, below_it) = code(&text);
        for_tests.extend(below_it.into_iter().map(|name| below(&module, &[name])));
        read.push((place, module, code));
    }
    read.retain(|(_, module, _)| !for_tests.iter().any(|outer| module.starts_with(outer)));
    let modules: Vec<Vec<String>> = read.iter().map(|(_, module, _)| module.clone()).collect();
    let import = |(place, module, code): (String, Vec<String>, String)| {
        let (imports, paths) = imports(&module, &modules, &code);
        Source { place, module, code, imports, paths }
    };
    read.into_iter().map(import).collect()
}

fn module_of(place: &str) -> Vec<String> {
    let mut module: Vec<String> = place.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || module == ["main"]) {
        module.pop();
    }
    module
}

fn below(module: &[String], names: &[String]) -> Vec<String> {
    module.iter().chain(names).cloned().collect()
}

/// A file's text without comments and without what exists only for tests, and the names of the files below it that do.
fn code(text: &str) -> (String, Vec<String>) {
    let text = text.strip_prefix("/*!").and_then(|head| head.split_once("*/")).map_or(text, |(_, rest)| rest);
    let (mut code, mut files) = (String::new(), Vec::new());
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            code.extend([line, "\n"]);
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let item = lines.find(|line| !line.trim_start().starts_with("#[")).unwrap();
        if let Some(file) = item.trim().strip_suffix(';').and_then(|item| item.split_once("mod ")) {
            files.push(file.1.to_owned());
        }
        if !item.ends_with(';') {
            assert!(lines.any(|line| line == format!("{indent}}}")), "{item}: where does it end?");
        }
    }
    (code, files)
}

/// The `use` items of a file that name another one of dlock's, and what else does.
fn imports(module: &[String], modules: &[Vec<String>], code: &str) -> (Vec<Import>, Vec<Vec<String>>) {
    let (mut found, mut others) = (Vec::new(), String::new());
    let mut rest = code;
    while let Some((line, after)) = rest.split_once('\n') {
        let (visibility, begins) = match line.find("use ") {
            Some(place) => (line[..place].trim(), place + "use ".len()),
            None => ("none", 0),
        };
        let is_public = visibility == "pub" || visibility.starts_with("pub(") && visibility.ends_with(')');
        let item = rest[begins..].split_once(';').filter(|(tree, _)| !tree.contains('"'));
        let Some((tree, after)) = item.filter(|_| is_public || visibility.is_empty()) else {
            others.extend([line, "\n"]);
            rest = after;
            continue;
        };
        assert!(!tree.contains('*') || !tree.contains("crate"), "use {tree}: say what of it");
        for (path, name) in leaves(&tree.split_whitespace().collect::<Vec<_>>().join(" ")) {
            if let Some(path) = from_the_root(module, modules, &path) {
                found.push(Import { name, path, is_public });
            }
        }
        rest = after;
    }
    let paths = paths(module, modules, &found, &others);
    (found, paths)
}

/// The paths from the root that stand in this code, which has no `use` items.
fn paths(module: &[String], modules: &[Vec<String>], imports: &[Import], code: &str) -> Vec<Vec<String>> {
    let is_of_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let code = code.replace("pub(in crate", "");
    let words = code.split(|character| !is_of_path(character)).filter(|word| word.contains("::"));
    let resolve = |word: &str| {
        let path: Vec<String> = word.trim_end_matches(':').split("::").map(str::to_owned).collect();
        match imports.iter().find(|import| import.name == path[0]) {
            Some(import) => Some(below(&import.path, &path[1..])),
            None => from_the_root(module, modules, &path),
        }
    };
    words.filter_map(resolve).collect()
}

/// Each path of a tree of uses, with the name that it is imported by.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let Some((before, inner)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        let name = if name.is_empty() { path.last().unwrap() } else { name };
        return vec![(path.clone(), name.to_owned())];
    };
    let inner = inner.trim_end().strip_suffix('}').unwrap();
    let before: Vec<String> = before.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for character in inner.chars() {
        depth += i32::from(character == '{') - i32::from(character == '}');
        if character == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(character);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    let leaf = |(path, name): (Vec<String>, String)| match path.as_slice() {
        [this] if this == "self" => (before.clone(), before.last().unwrap().clone()),
        path => (below(&before, path), name),
    };
    parts.flat_map(leaves).map(leaf).collect()
}

/// A path from dlock's root, unless it leads elsewhere.
fn from_the_root(module: &[String], modules: &[Vec<String>], path: &[String]) -> Option<Vec<String>> {
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some(below(module, &path[1..])),
        child => modules.contains(&below(module, &[child.to_owned()])).then(|| below(module, path)),
    }
}

impl Source {
    /// What it names of other files, re-exports left out.
    fn uses(&self) -> Vec<Vec<String>> {
        let imports = self.imports.iter().filter(|import| !import.is_public).map(|import| import.path.clone());
        imports.chain(self.paths.clone()).collect()
    }
}

/// The file in which `path` is defined: a name that is only passed on there is looked for where it comes from.
fn definition<'a>(sources: &'a [Source], path: &[String]) -> &'a Source {
    let mut path = path.to_vec();
    for _ in 0..10 {
        let within = (0..=path.len()).rev().find_map(|length| {
            let source = sources.iter().find(|source| source.module == path[..length])?;
            Some((source, length))
        });
        let (source, length) = within.unwrap();
        let name = path.get(length);
        let Some(import) = source.imports.iter().find(|import| Some(&import.name) == name) else { return source };
        path = below(&import.path, &path[length + 1..]);
    }
    panic!("{path:?} is passed on in a circle")
}

/// Who uses whom, by places: the first way round a circle, if there is one.
fn circle(sources: &[Source]) -> Option<Vec<String>> {
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let used = source.uses().into_iter().map(|path| definition(sources, &path).place.as_str());
        graph.insert(&source.place, used.filter(|place| *place != source.place).collect());
    }
    // Who uses nobody, or only such, is in no circle.
    while let Some(done) = graph.iter().find(|(_, used)| used.is_empty()).map(|(place, _)| *place) {
        graph.remove(done);
        for used in graph.values_mut() {
            used.remove(done);
        }
    }
    let mut way = vec![*graph.keys().next()?];
    loop {
        let next = *graph[way.last()?].first()?;
        if let Some(begins) = way.iter().position(|place| *place == next) {
            return Some(way[begins..].iter().chain([&next]).map(|place| (*place).to_owned()).collect());
        }
        way.push(next);
    }
}

/// Whoever wants to understand a file can read what it uses first, down to files that use nothing.
///
/// A file uses another one when its code, tests left out, names something that is defined there: by a `use`, or by a
/// path. That a folder's `mod.rs` declares a file or passes a name on (`pub use`) is no use of it: whoever uses that name
/// uses the file where it is defined. Nothing escapes this, because paths begin at the root or with `self`, and nothing is
/// imported by `*`; a method that is called needs a type or trait that was named somewhere, and who defines it and
/// where its other methods are makes no difference to the caller.
#[test]
fn the_graph_of_files_has_no_circle() {
    assert_eq!(circle(&read_sources()), None);
}

#[test]
fn a_circle_is_found_and_what_is_only_declared_or_passed_on_is_none() {
    let circle = |texts: &[(&str, &str)]| {
        circle(&from_texts(texts.iter().map(|&(place, text)| (place.to_owned(), text.to_owned()))))
    };
    let main = ("main.rs", "mod a;\nuse a::b::B;\n");
    let inner = ("a/mod.rs", "pub mod b;\nmod c;\npub(crate) use self::c::C;\n");
    let c = ("a/c.rs", "use std::fs;\nstruct C;\n");
    assert_eq!(circle(&[main, inner, c, ("a/b.rs", "use crate::a::{C, c};\nstruct B;\n")]), None);
    let found = |text: &str| circle(&[main, inner, ("a/c.rs", text), ("a/b.rs", "use crate::a::C;\nstruct B;\n")]);
    let expected = Some(["a/b.rs", "a/c.rs", "a/b.rs"].map(str::to_owned).to_vec());
    assert_eq!(found("pub(crate) use crate::clock;\n\nuse crate::{a::{\n    b::B,\n}};\n"), expected);
    assert_eq!(found("fn f() { crate::a::b::f(); }\n"), expected);
    assert_eq!(found("use crate::a;\nfn f() { a::b::f(); }\n"), expected);
    assert_eq!(found("fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::b::B;\n}\n"), None);
    assert_eq!(found("/*!\nSee [crate::a::b::B].\n*/\n// crate::a::b::B\n"), None);
    let own = ("a/mod.rs", "pub mod b;\nmod c;\npub(crate) use self::c::C;\npub(crate) const N: u8 = b::M;\n");
    let back = ("a/b.rs", "use crate::a::N;\nstruct B;\n");
    assert_eq!(circle(&[main, own, c, back]), Some(["a/b.rs", "a/mod.rs", "a/b.rs"].map(str::to_owned).to_vec()));
}

#[test]
fn nobody_knows_more_than_he_should() {
    let sources = read_sources();
    for source in &sources {
        let place = &source.place;
        let rule =
            MAY_USE.iter().filter(|(prefix, _)| place.starts_with(prefix)).max_by_key(|(prefix, _)| prefix.len());
        let (_, allowed) = rule.unwrap_or_else(|| panic!("no rule for src/{place}: say what it may use"));
        let passed_on = source.imports.iter().filter(|import| import.is_public).map(|import| import.path.clone());
        for used in source.uses().into_iter().chain(passed_on) {
            let name = used.join("::");
            let known = used.starts_with(&source.module)
                || allowed.iter().any(|module| name == *module || name.starts_with(&format!("{module}::")));
            assert!(known, "src/{place} uses {name}: it may use {allowed:?}");
        }
    }
}

/// The folders of the backends.
fn backends(root: &Path) -> Vec<String> {
    let folders = fs::read_dir(root.join("backend")).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.join("driver.rs").exists());
    folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Adding or changing a backend concerns nobody else: they are reached through the registry alone.
#[test]
fn a_backend_is_named_in_its_folder_and_in_the_registry_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let backends = backends(&root);
    assert!(backends.len() >= 5, "{backends:?}");
    let sources = read_sources();
    for source in &sources {
        let place = &source.place;
        for used in source.uses() {
            let Some(named) = backends.iter().find(|name| used.len() > 2 && used[0] == "backend" && used[1] == **name)
            else {
                continue;
            };
            // Redlock is spoken to the same servers.
            let may = place.starts_with(&format!("backend/{named}/"))
                || place.starts_with("backend/redlock/") && named == "redis"
                || place == "backend/registry.rs";
            assert!(may, "src/{place} uses {}", used.join("::"));
        }
    }
}

/// Nobody reads steps upwards, and neither does [`paths`]. What exists only for tests may take one.
#[test]
fn paths_begin_at_the_root() {
    for source in read_sources() {
        let code = source.code.replace("pub(super)", "");
        assert!(!code.contains("super::"), "src/{}: write crate::…", source.place);
    }
}

/// The files of dlock, with their place in `src`, in which `word` stands outside of tests.
fn with(word: &str) -> Vec<String> {
    let mut sources = read_sources();
    sources.retain(|source| source.code.contains(word));
    let mut places: Vec<String> = sources.into_iter().map(|source| source.place).collect();
    places.sort();
    places
}

#[test]
fn one_file_writes_to_each_of_the_standard_streams_and_the_words_know_of_neither() {
    assert_eq!(with("io::stdout()"), ["output.rs"]);
    assert_eq!(with("io::stderr()"), ["report/terminal.rs"]);
    for word in ["std::io", "std::fs", "std::env", "print!", "nix::unistd"] {
        assert!(!with(word).contains(&"report/line.rs".to_owned()), "report/line.rs uses {word}");
    }
}
