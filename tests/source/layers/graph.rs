//! dlock's source files and what they use of each other, parsed the way the compiler resolves it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// All files of Rust below `directory`.
pub(super) fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source file, parsed as far as its uses of other files go.
pub(super) struct Source {
    /// Its place in `src`.
    pub(super) place: String,
    /// Its module path, from the root.
    pub(super) module: Vec<String>,
    /// Its text without comments and without test code.
    pub(super) code: String,
    /// What its `use` items import from dlock's own modules.
    pub(super) imports: Vec<Import>,
    /// What else it names of dlock's own modules, by paths from the root.
    pub(super) paths: Vec<Vec<String>>,
}

pub(super) struct Import {
    /// The name it has here.
    pub(super) name: String,
    /// The path from the root.
    pub(super) path: Vec<String>,
    /// Whether it is re-exported.
    pub(super) is_public: bool,
}

/// All source files of dlock, except those that exist only for tests.
pub(super) fn read_sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let place = |file: &PathBuf| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let sources = from_texts(files.iter().map(|file| (place(file), fs::read_to_string(file).unwrap())));
    assert!(sources.len() > 100, "{}", sources.len());
    sources
}

/// These files, as (place, text), except those that exist only for tests.
pub(super) fn from_texts(texts: impl Iterator<Item = (String, String)>) -> Vec<Source> {
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

/// A file's text without comments and without test code, and the names of the modules below it that exist only for
/// tests.
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

/// The `use` items of a file that name another file of dlock's, and the other paths that do.
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
        for (path, name) in leaves(&tree.split_whitespace().collect::<Vec<_>>().join(" ")) {
            if let Some(path) = from_the_root(module, modules, &path) {
                assert!(name != "*", "use {tree}: say what of it");
                found.push(Import { name, path, is_public });
            }
        }
        rest = after;
    }
    let paths = paths(module, modules, &found, &others);
    (found, paths)
}

/// The paths from the root in this code, which has no `use` items.
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

/// Each path of a use tree, with the name that it is imported as.
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

/// A path from dlock's root, or none if it leads outside dlock.
fn from_the_root(module: &[String], modules: &[Vec<String>], path: &[String]) -> Option<Vec<String>> {
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some(below(module, &path[1..])),
        child => modules.contains(&below(module, &[child.to_owned()])).then(|| below(module, path)),
    }
}

impl Source {
    /// What the file names of other files, without re-exports.
    pub(super) fn uses(&self) -> Vec<Vec<String>> {
        let imports = self.imports.iter().filter(|import| !import.is_public).map(|import| import.path.clone());
        imports.chain(self.paths.clone()).collect()
    }
}

/// The file that defines `path`: a name that is only re-exported there is looked up where it comes from.
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

/// The first circle in the graph of which file uses which, as a list of places, if there is one.
pub(super) fn circle(sources: &[Source]) -> Option<Vec<String>> {
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let used = source.uses().into_iter().map(|path| definition(sources, &path).place.as_str());
        graph.insert(&source.place, used.filter(|place| *place != source.place).collect());
    }
    // A file that uses nothing, or only such files, is in no circle.
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
