//! Which part of the source may use which, and how long its parts may be. Read from the files, so that a wrong `use`
//! fails here.

mod graph;

use std::fs;
use std::path::{Path, PathBuf};

use self::graph::{circle, from_texts, read_sources, sources};

/// What a file may use of dlock's own modules: (place in `src`, allowed modules). The longest matching place decides. A
/// file may always use what is below it.
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
            "meeting",
            "output",
            "printable",
            "readable",
            "report",
            "settings",
            "supervise",
            "variables",
        ],
    ),
    ("cli", &["cli", "backend::registry", "backend::url", "exit", "lock", "output", "report::event", "variables"]),
    ("settings", &["backend", "cli", "exit", "key", "lease::timing", "lock", "report", "settings", "variables"]),
    ("report", &[]),
    ("report/event.rs", &["holder", "key", "lease::waiting", "lease::renewal", "lock", "supervise::protocol"]),
    ("report/level.rs", &["report::event"]),
    (
        "report/line.rs",
        &["holder", "key", "lease::waiting", "lease::renewal", "lock", "report::event", "supervise::protocol"],
    ),
    ("report/event/lack.rs", &["supervise::protocol"]),
    ("report/event/meeting.rs", &["key", "lease::waiting", "meeting::news"]),
    ("report/line/lack.rs", &["report::event", "supervise::protocol"]),
    ("report/line/meeting.rs", &["lease::waiting", "meeting::news", "report::event"]),
    ("report/terminal.rs", &["printable"]),
    ("output.rs", &["exit", "report::event"]),
    ("exit.rs", &["report::event"]),
    ("holder.rs", &["lock", "printable"]),
    ("holder/done.rs", &["holder", "lock", "printable"]),
    ("key.rs", &[]),
    ("printable.rs", &[]),
    ("readable.rs", &[]),
    ("variables.rs", &[]),
    ("clock.rs", &["readable"]),
    ("command/generate", &["backend::registry", "cli", "exit", "output", "report::event", "variables"]),
    ("command/mod.rs", &[]),
    ("command/progress.rs", &["clock", "meeting", "report"]),
    ("command/session.rs", &["backend", "exit", "holder", "report", "settings", "supervise"]),
    ("command/latch", MEETINGS),
    ("command/barrier", MEETINGS),
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
            "lock",
            "readable",
            "report",
            "settings",
            "supervise",
            "variables",
        ],
    ),
    ("lease", &["backend", "clock", "holder", "key", "lease"]),
    ("meeting", &["backend", "clock", "lease::waiting", "meeting"]),
    ("backend", &["backend", "clock", "holder", "key", "lock", "printable"]),
    ("backend/error.rs", &[]),
    ("backend/net", &["backend::error", "backend::net", "clock", "variables"]),
    // Decisions here follow from data alone, and can be tested without a service.
    ("backend/file/errors.rs", &["backend::error"]),
    ("backend/file/seats.rs", &["backend::file::ranges", "clock", "lock"]),
    ("backend/file/watch.rs", &["clock", "readable"]),
    ("backend/meeting.rs", &["backend::error", "holder", "key"]),
    ("backend/meeting/rule.rs", &["backend::meeting"]),
    (
        "backend/redis/errors.rs",
        &["backend::error", "backend::net::wire::Address", "backend::redis::rights::Rights", "printable"],
    ),
    ("backend/redis/damage.rs", &["backend::TOKEN_LIMIT", "printable"]),
    ("backend/redis/rights.rs", &["backend::Claim"]),
    ("backend/redlock/errors.rs", &["backend::error", "backend::redlock::quorum"]),
    ("backend/redlock/quorum.rs", &[]),
    ("backend/etcd/errors.rs", &["backend::error", "backend::net::tls", "backend::net::wire::Address", "printable"]),
    ("backend/etcd/names.rs", &["backend::Claim", "lock"]),
    ("backend/etcd/standing.rs", &["backend::etcd::names", "holder::Published", "lock::admission"]),
    ("backend/zookeeper/errors.rs", &["backend::error", "backend::net::tls", "printable"]),
    ("backend/zookeeper/frames.rs", &[]),
    ("backend/zookeeper/hold.rs", &["clock", "holder", "lock"]),
    ("backend/zookeeper/line.rs", &["backend::zookeeper::hold", "backend::zookeeper::names", "clock", "lock"]),
    ("backend/zookeeper/names.rs", &["backend::Claim", "holder", "lock"]),
    ("backend/zookeeper/texts.rs", &["backend::Claim", "backend::claim", "holder"]),
    ("backend/zookeeper/timeline.rs", &["clock"]),
    ("lock", &["lock"]),
    ("supervise", &["clock", "readable", "supervise"]),
    ("supervise/forwards.rs", &["clock"]),
    ("supervise/priority.rs", &[]),
    ("supervise/process.rs", &[]),
    ("supervise/protocol.rs", &["clock", "supervise::tokens"]),
    ("supervise/stop.rs", &["clock", "supervise::protocol"]),
    ("supervise/surroundings.rs", &[]),
    ("supervise/tokens.rs", &[]),
];

/// What the subcommands for latches and barriers may use.
const MEETINGS: &[&str] =
    &["backend", "clock", "command::progress", "command::session", "exit", "lease", "meeting", "report", "settings"];

/// A reader can start with what a file uses, and so on down to files that use nothing.
///
/// A file uses another one when its code, tests left out, names something that is defined there, by a `use` or by a
/// path. Declaring a module or re-exporting a name (`pub use`) in a `mod.rs` does not count: a user of that name uses
/// the file that defines it. No name escapes this, because paths begin at the root, with `self` or with a child, and
/// nothing of dlock's own is imported by `*`; both are asserted. Method calls are not seen: a type's methods may be in
/// a file of their own, which uses that of the type, while their callers name only the type.
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
fn a_file_uses_only_what_its_place_allows() {
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

/// Adding or changing a backend concerns no other module: backends are reached through the registry alone.
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
            // Redlock uses the redis client.
            let may = place.starts_with(&format!("backend/{named}/"))
                || place.starts_with("backend/redlock/") && named == "redis"
                || place == "backend/registry.rs";
            assert!(may, "src/{place} uses {}", used.join("::"));
        }
    }
}

/// Relative paths upwards are hard to read, and `graph::paths` does not read them. What exists only for tests may use
/// one.
#[test]
fn paths_begin_at_the_root() {
    for source in read_sources() {
        let code = source.code.replace("pub(super)", "");
        assert!(!code.contains("super::"), "src/{}: write crate::…", source.place);
    }
}

/// The places in `src` of the files that contain `word` outside of tests.
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

/// The longest that a source file may be, in lines: one idea needs no more.
const LONGEST_FILE: usize = 400;
/// The longest that a function may be, in lines.
const LONGEST_FUNCTION: usize = 60;

/// The functions in a text formatted by rustfmt, each with its number of lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let (before, _) = line.split_once("fn ")?;
        let is_known = |word: &str| {
            ["const", "async", "unsafe", "extern", "\"C\""].contains(&word)
                || word.starts_with("pub")
                || word.ends_with(')')
        };
        before.split_whitespace().all(is_known).then(|| line.len() - line.trim_start().len())
    };
    let length = |first: usize, indent: usize| {
        let ends = |line: &str| {
            let (before, rest) = line.split_at_checked(indent).unwrap_or(("", ""));
            before.trim().is_empty() && (rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let is_one_line = lines[first].ends_with(['}', ';']);
        if is_one_line { 1 } else { lines[first..].iter().position(|line| ends(line)).unwrap() + 1 }
    };
    let function = |(first, line): (usize, &&'_ str)| Some((lines[first], length(first, begins(line)?)));
    lines.iter().enumerate().filter_map(function).collect()
}

#[test]
fn no_file_and_no_function_is_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut counted) = (Vec::new(), 0);
    sources(&root, &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines: which ideas are in it?", file.display());
        for (function, lines) in functions(&text) {
            assert!(lines <= LONGEST_FUNCTION, "{}: {} has {lines} lines", file.display(), function.trim());
            counted += 1;
        }
    }
    assert!(counted > 1000, "{counted}");
}

/// The files in `tests` that are longer than [`LONGEST_FILE`] as yet.
const LONG_TESTS: &[&str] = &["input/mod.rs", "redlock.rs", "surroundings.rs", "terminal.rs", "tls.rs", "waiting.rs"];

#[test]
fn no_other_file_of_the_tests_is_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let is_long = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count() > LONGEST_FILE;
    let mut long: Vec<String> = files.into_iter().filter(is_long).map(|file| place(&root, &file)).collect();
    long.sort();
    assert_eq!(long, LONG_TESTS, "which ideas are in a new one? One that is short now leaves the list");
}

/// The place of `file` below `root`.
fn place(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn functions_are_counted_from_their_first_line_to_their_last() {
    let text = "\
/// fn no
fn f() {}
impl A {
    pub(in crate::a) async fn g(
        a: u8,
    ) -> u8 {
        if a {
        }
        a
    }
}
trait T {
    fn h(&self);
    fn i(
        a: u8,
    ) -> u8;
}
";
    let found: Vec<usize> = functions(text).into_iter().map(|(_, lines)| lines).collect();
    assert_eq!(found, [1, 7, 1, 3]);
}
