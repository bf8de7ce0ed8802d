//! Which part of the source may know which: read from the files, so that a wrong `use` fails here and not in somebody's
//! understanding.

use std::fs;
use std::path::{Path, PathBuf};

/// What a file may use of dlock's own modules: (place in `src`, allowed modules). The longest matching place decides.
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
    ("cli", &["backend::registry", "backend::url", "exit", "output", "report::event"]),
    ("settings", &["backend", "cli", "exit", "key", "lease::timing", "report", "variables"]),
    ("report", &[]),
    ("report/event.rs", &["holder", "key", "lease::waiting", "lease::renewal", "supervise::protocol"]),
    ("report/line.rs", &["lease::waiting", "lease::renewal", "supervise::protocol"]),
    ("report/line/tests.rs", &["holder", "key"]),
    ("report/terminal.rs", &["printable"]),
    ("output.rs", &["exit", "report::event"]),
    ("exit.rs", &["report::event"]),
    ("holder.rs", &["printable"]),
    ("key.rs", &[]),
    ("property.rs", &[]),
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
    ("lease", &["backend", "clock"]),
    ("backend", &["backend", "clock", "holder", "key", "lock"]),
    ("backend/error.rs", &[]),
    ("backend/net", &["backend::error", "backend::net", "clock"]),
    ("lock", &["lock"]),
    ("supervise", &["clock", "readable", "supervise"]),
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

/// What exists only for tests, so that all may use it.
const FOR_TESTS: &str = "property";

/// What a file names after `crate::`, its tests left out.
fn uses(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let name =
        |part: &str| part.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().unwrap().to_owned();
    text.split("crate::").skip(1).map(name).collect()
}

#[test]
fn nobody_knows_more_than_he_should() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20);
    for file in files {
        let place = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let rule =
            MAY_USE.iter().filter(|(prefix, _)| place.starts_with(prefix)).max_by_key(|(prefix, _)| prefix.len());
        let (_, allowed) = rule.unwrap_or_else(|| panic!("no rule for src/{place}: say what it may use"));
        for used in uses(&fs::read_to_string(&file).unwrap()) {
            let known = allowed
                .iter()
                .chain([&FOR_TESTS])
                .any(|module| used == *module || used.starts_with(&format!("{module}::")));
            assert!(known, "src/{place} uses {used}: it may use {allowed:?}");
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
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let place = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        for used in uses(&fs::read_to_string(&file).unwrap()) {
            let Some(named) = backends.iter().find(|name| used.starts_with(&format!("backend::{name}::"))) else {
                continue;
            };
            // Redlock is spoken to the same servers.
            let may = place.starts_with(&format!("backend/{named}/"))
                || place.starts_with("backend/redlock/") && named == "redis"
                || place == "backend/url/properties.rs";
            assert!(may, "src/{place} uses {used}");
        }
    }
}

/// Nobody reads steps upwards, and neither does [`uses`].
#[test]
fn paths_begin_at_the_root() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("super::super"), "{}: write crate::…", file.display());
    }
}

#[test]
fn the_reader_of_uses_sees_them() {
    assert_eq!(
        uses("use crate::clock::Instant;\nfn f() { crate::holder::shown(b\"\"); }\n"),
        ["clock::Instant;".trim_end_matches(';'), "holder::shown"]
    );
}

/// The files of dlock, with their place in `src`, in which `word` stands outside of tests.
fn with(word: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let text = |file: &PathBuf| fs::read_to_string(file).unwrap();
    files.retain(|file| text(file).split("#[cfg(test)]\nmod tests").next().unwrap().contains(word));
    files.iter().map(|file| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn one_file_writes_to_each_of_the_standard_streams_and_the_words_know_of_neither() {
    assert_eq!(with("io::stdout()"), ["output.rs"]);
    assert_eq!(with("io::stderr()"), ["report/terminal.rs"]);
    for word in ["std::io", "std::fs", "std::env", "print!", "nix::unistd"] {
        assert!(!with(word).contains(&"report/line.rs".to_owned()), "report/line.rs uses {word}");
    }
}
