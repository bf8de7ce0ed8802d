//! Latches and barriers in a list.

use serde_json::{Value, json};

use crate::locks::looking::list;
use crate::support::backends::on_every_backend;
use crate::support::dlock::Dlock;
use crate::support::rendezvous::eventually;
use crate::support::service::Service;

on_every_backend! {
    latches_and_barriers_in_use_are_named
}

/// `dlock WORDS… --key KEY` on `service`.
fn at<S: Service>(service: &S, key: &str, words: &[&str]) -> Dlock {
    let dlock = service.scratch().dlock().args(words).args(["--key", key]);
    dlock.backend(service.url()).args(service.options())
}

/// The keys of these latches or barriers, each of which has a place.
#[track_caller]
fn keys(listed: &Value) -> Vec<&str> {
    let listed = listed.as_array().unwrap_or_else(|| panic!("no array: {listed}"));
    assert!(listed.iter().all(|one| one["place"].as_str().is_some_and(|place| !place.is_empty())), "{listed:?}");
    listed.iter().map(|one| one["key"].as_str().unwrap()).collect()
}

fn latches_and_barriers_in_use_are_named<S: Service>(service: &S) {
    let has_barriers = S::KIND != "redlock";
    let none = if has_barriers { json!([]) } else { Value::Null };
    let empty = list(service, &[]);
    assert_eq!((&empty["latches"], &empty["barriers"]), (&json!([]), &none));
    at(service, "nightly/short", &["latch", "done", "--as", "x", "--keep", "2s"]).output().success();
    for key in ["nightly/a", "nightly b", "other"] {
        at(service, key, &["latch", "done", "--as", "x"]).output().success();
    }
    at(service, "nightly-failed", &["latch", "fail", "--reason", "red"]).output().success();
    at(service, "nightly/gone", &["latch", "done", "--as", "x"]).output().success();
    at(service, "nightly/gone", &["latch", "forget"]).output().success();
    // Of another namespace, which begins as this one does.
    if S::KIND != "file" {
        at(service, "b", &["latch", "done", "--as", "x", "--namespace", "dlock/a"]).output().success();
    }
    let party = |name: &str| at(service, "nightly/meet", &["barrier", "--parties", "2", "--as", name, "-q"]).spawn();
    let first = has_barriers.then(|| party("a"));
    eventually("the end of a name and a party", || {
        let seen = list(service, &["nightly"]);
        let barriers = if has_barriers { keys(&seen["barriers"]) } else { vec!["nightly/meet"] };
        let is_there = keys(&seen["latches"]) == ["nightly b", "nightly-failed", "nightly/a"];
        (is_there && barriers == ["nightly/meet"]).then_some(())
    });
    let all = list(service, &["--limit", "1"]);
    assert_eq!(keys(&all["latches"]), ["nightly b", "nightly-failed", "nightly/a", "other"]);
    assert_eq!(all["locks"], json!([]));
    let other = list(service, &["other"]);
    assert_eq!((keys(&other["latches"]), &other["barriers"]), (vec!["other"], &none));
    if let Some(first) = first {
        party("b").wait().success();
        first.wait().success();
        assert_eq!(list(service, &[])["barriers"], json!([]));
    }
}
