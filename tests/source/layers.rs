//! Which part of the source may use which, and how long its parts may be. Read from the files, so that a wrong `use`
//! fails here.

mod checks;
mod graph;
mod handles;
mod lengths;

use std::fs;
use std::path::Path;

use self::checks::CHECKS;
use self::graph::{circle, from_texts, read_sources};
use self::handles::HANDLES;

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
            "handle",
            "here",
            "holder",
            "key",
            "lease",
            "lock",
            "meeting",
            "output",
            "printable",
            "readable",
            "report",
            "schema",
            "settings",
            "supervise",
            "variables",
        ],
    ),
    (
        "cli",
        &[
            "cli",
            "backend::registry",
            "backend::url",
            "exit",
            "lock",
            "output",
            "printable",
            "report::event",
            "variables",
        ],
    ),
    (
        "settings",
        &[
            "backend",
            "cli",
            "clock",
            "exit",
            "handle",
            "here",
            "key",
            "lease::timing",
            "lock",
            "printable",
            "report",
            "settings",
            "variables",
        ],
    ),
    ("report", &[]),
    ("report/mod.rs", &["lease::waiting", "report", "schema::events"]),
    ("report/journal", &["clock", "schema::events"]),
    ("report/journal/entries.rs", &["holder", "report::event", "report::line", "report::words", "schema::events"]),
    ("report/journal/opening.rs", &["report::journal::reaching"]),
    ("report/journal/reaching.rs", &[]),
    ("report/event.rs", &["holder", "key", "lease::waiting", "lease::renewal", "lock", "supervise::protocol"]),
    ("report/event/breaking.rs", &["holder", "key", "report::level"]),
    ("report/event/look.rs", &["report::level"]),
    ("report/level.rs", &[]),
    ("report/words.rs", &["key", "lease::renewal", "lease::waiting"]),
    ("report/line.rs", &["holder", "key", "lock", "printable", "report::event", "report::level", "report::words"]),
    ("report/event/lack.rs", &["supervise::protocol"]),
    (
        "report/event/meeting.rs",
        &["backend::meeting", "key", "lease::waiting", "printable", "report::level", "report::words"],
    ),
    ("report/picture/latch.rs", &["backend::meeting", "report::picture"]),
    ("report/picture.rs", &["backend::survey", "holder", "lock", "printable", "report::picture"]),
    ("report/picture/columns.rs", &["backend::survey", "holder", "printable", "report::picture"]),
    ("report/terminal.rs", &["printable"]),
    ("schema/events.rs", &["schema"]),
    ("schema/events/entry.rs", &["backend::survey", "holder", "key", "schema"]),
    ("schema/events/course.rs", &["schema::events::entry"]),
    ("schema/events/fields.rs", &[]),
    ("schema/listing.rs", &["backend::survey", "schema"]),
    ("schema/latch.rs", &["backend::meeting", "schema"]),
    ("schema/settings.rs", &["schema"]),
    ("schema.rs", &["backend::survey", "holder", "lock", "printable", "schema"]),
    ("schema/fields.rs", &[]),
    ("output.rs", &["exit", "report::event", "supervise::surroundings"]),
    ("exit.rs", &["report::event"]),
    ("here.rs", &[]),
    ("holder.rs", &["lock", "printable"]),
    ("holder/ask.rs", &["holder"]),
    ("holder/done.rs", &["holder", "lock", "printable"]),
    ("key.rs", &["printable"]),
    ("printable.rs", &[]),
    ("readable.rs", &[]),
    ("variables.rs", &[]),
    ("clock.rs", &["readable"]),
    (
        "command/flock",
        &["cli", "clock", "command::run", "exit", "output", "report", "settings", "supervise::surroundings"],
    ),
    ("command/config.rs", &["exit", "output", "report", "schema", "settings"]),
    ("command/generate", &["backend::registry", "backend::url", "cli", "exit", "output", "report::event", "variables"]),
    ("command/generate/manual.rs", &["backend::registry", "cli", "exit", "report::event", "schema"]),
    ("command/mod.rs", &[]),
    ("command/pace.rs", &["clock", "report"]),
    ("command/progress.rs", &["backend::meeting", "command::pace", "lease::waiting", "report"]),
    ("command/session.rs", &["backend", "exit", "holder", "printable", "report", "settings", "supervise"]),
    ("command/journal.rs", &["exit", "here", "holder", "key", "report", "schema::events", "settings"]),
    (
        "command/latch",
        &[
            "backend",
            "clock",
            "command::progress",
            "command::session",
            "exit",
            "lease",
            "meeting",
            "output",
            "report",
            "schema",
            "settings",
        ],
    ),
    ("command/barrier", MEETINGS),
    (
        "command/list.rs",
        &[
            "backend::survey",
            "clock",
            "command::looking",
            "command::watch",
            "exit",
            "key",
            "output",
            "report",
            "schema",
            "settings",
        ],
    ),
    ("command/held.rs", &["backend::survey", "command::looking", "command::run::nested", "exit", "key", "settings"]),
    (
        "command/breaking",
        &[
            "backend",
            "clock",
            "command::breaking",
            "command::looking",
            "command::session",
            "exit",
            "here",
            "holder",
            "key",
            "printable",
            "report",
            "settings",
        ],
    ),
    // What is found decides what is done, and is known before anything is asked.
    ("command/breaking/found.rs", &["backend::survey", "holder", "report::event"]),
    (
        "command/looking.rs",
        &["backend", "clock", "command::session", "exit", "here", "holder", "key", "report", "schema", "settings"],
    ),
    (
        "command/status.rs",
        &["backend::survey", "command::looking", "command::watch", "exit", "output", "report", "schema", "settings"],
    ),
    (
        "command/watch.rs",
        &["clock", "command::looking", "exit", "key", "output", "printable", "report", "schema", "settings"],
    ),
    ("lease", &["backend", "clock", "holder", "key", "lease"]),
    ("meeting", &["backend", "clock", "lease::waiting", "meeting"]),
    ("backend", &["backend", "clock", "here", "holder", "key", "lock", "printable"]),
    ("backend/mod.rs", &[]),
    ("backend/error.rs", &[]),
    ("backend/contract/contender.rs", &["backend::contract::claim", "backend::error", "clock", "holder"]),
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
    ("backend/redis/damage.rs", &["backend::contract::contender", "printable"]),
    ("backend/redis/rights.rs", &["backend::contract::claim", "key"]),
    ("backend/redlock/errors.rs", &["backend::error", "backend::redlock::quorum"]),
    ("backend/redlock/quorum.rs", &[]),
    ("backend/etcd/errors.rs", &["backend::error", "backend::net::tls", "backend::net::wire::Address", "printable"]),
    ("backend/etcd/names.rs", &["backend::contract::claim", "lock"]),
    ("backend/etcd/standing.rs", &["backend::etcd::names", "holder::Published", "lock::admission"]),
    ("backend/postgres/errors.rs", &["backend::error", "backend::sql::link", "printable"]),
    ("backend/mysql/errors.rs", &["backend::error", "backend::sql::link", "printable"]),
    ("backend/sql", &["backend", "clock", "here", "holder", "key", "lock", "printable"]),
    ("backend/sql/answers.rs", &["backend", "holder", "lock"]),
    ("backend/sql/crowd.rs", &["clock"]),
    ("backend/sql/template.rs", &[]),
    ("backend/sql/turn.rs", &["backend::sql", "lock"]),
    ("backend/zookeeper/errors.rs", &["backend::error", "backend::net::tls", "printable"]),
    ("backend/zookeeper/frames.rs", &[]),
    ("backend/zookeeper/hold.rs", &["clock", "holder", "lock"]),
    ("backend/zookeeper/line.rs", &["backend::zookeeper::hold", "backend::zookeeper::names", "clock", "lock"]),
    ("backend/zookeeper/names.rs", &["backend::contract::claim", "holder", "key", "lock"]),
    ("backend/zookeeper/texts.rs", &["backend::contract::claim", "holder"]),
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
        let rule = MAY_USE
            .iter()
            .chain(HANDLES)
            .chain(CHECKS)
            .filter(|(prefix, _)| place.starts_with(prefix))
            .max_by_key(|(prefix, _)| prefix.len());
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
    let folders = folders.filter(|path| path.join("driver.rs").exists() && !path.ends_with("contract"));
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

/// The place of `file` below `root`.
fn place(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}
