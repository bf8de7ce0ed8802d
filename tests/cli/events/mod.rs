//! `--events`: the lines that are written, in their order, for everything that can happen to a run; and readers that do not
//! read, disks that are full, and descriptors that nobody else may have.

mod endings;
mod places;
mod readers;
mod sequences;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::rendezvous::eventually;
use crate::support::service::Service;

/// The file of this name in which a run of `service` keeps its journal.
pub fn journal<S: Service>(service: &S, name: &str) -> PathBuf {
    service.scratch().path(name)
}

/// The lines so far, each of which must be whole, and of one run.
#[track_caller]
pub fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = read(&text);
    for field in ["owner", "key", "pid", "backend", "namespace"] {
        assert!(lines.iter().all(|line| line[field] == lines[0][field]), "{field}: {text}");
    }
    lines
}

/// The lines of this text, each of which must be whole.
#[track_caller]
fn read(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "half a line: {text}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| {
            assert!(line.len() < 4096 && line.starts_with(r#"{"v":1,"event":""#), "{line}");
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        })
        .collect();
    let times = lines.iter().map(|line| line["boot_ms"].as_u64().expect("a number"));
    assert!(times.is_sorted(), "{text}");
    lines
}

/// What has happened, in its order, without the renewals, of which nobody knows how many there are.
pub fn happened(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event"].as_str().expect("a word")).filter(|event| *event != "renewed").collect()
}

/// The line about the only `event` of this kind.
#[track_caller]
pub fn only<'a>(lines: &'a [Value], event: &str) -> &'a Value {
    let mut those = lines.iter().filter(|line| line["event"] == event);
    match (those.next(), those.next()) {
        (Some(line), None) => line,
        _ => panic!("not one {event}: {lines:#?}"),
    }
}

/// The last line, by which a run says how it has ended: with this code.
#[track_caller]
fn ended(lines: &[Value], exit: u8) -> &Value {
    let end = lines.last().expect("a line");
    assert_eq!((&end["event"], &end["exit"], &end["dropped"]), (&"end".into(), &exit.into(), &0.into()), "{lines:#?}");
    only(lines, "end")
}

/// Waits until this has happened.
#[track_caller]
fn wait_for(path: &Path, event: &str) -> Value {
    eventually(event, || lines_so_far(path).into_iter().find(|line| line["event"] == event))
}

/// The whole lines so far of a run that goes on.
fn lines_so_far(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    read(whole)
}
