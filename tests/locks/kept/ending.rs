//! The lock is lost, or is to be given back: the process that counts on it is stopped first.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::locks::kept::{Ward, acquire, by, kept, status, taken};
use crate::support::backends::{on_every_backend, on_file_and_redis};
use crate::support::dlock::DLOCK;
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{RedisService, Service};

on_every_backend! {
    ;
    a_holder_that_is_asked_stops_its_process_before_the_next_one_gets_the_lock
}

on_file_and_redis! {
    a_process_that_does_not_end_is_killed_and_the_lock_is_held_until_then
    a_holder_that_is_to_ignore_it_goes_on
    a_release_by_a_process_that_is_being_stopped_does_not_wait_for_it
}

/// `dlock break` of whoever holds the lock.
#[track_caller]
pub(super) fn break_it<S: Service>(service: &S, options: &[&str], code: i32) {
    let id = status(service)["holder"]["id"].as_str().unwrap().to_owned();
    let dlock = service.scratch().dlock().args(["break", "--key", "job", "--owner", &id]).args(options);
    let outcome = dlock.backend(service.url()).args(service.options()).output();
    let said = outcome.stderr();
    assert_eq!(outcome.status().code(), Some(code), "{said}");
}

/// What happened, by the names of the events in this file.
fn events(path: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned();
    text.lines().map(event).filter(|event| event != "renewed").collect()
}

fn a_holder_that_is_asked_stops_its_process_before_the_next_one_gets_the_lock<S: Service>(service: &S) {
    let stopped = service.scratch().path("stopped");
    let script = format!("trap 'sleep 0.5; echo >{}; exit 3' TERM; while :; do sleep 0.05; done", stopped.display());
    let (ward, journal) = (Ward::shell(&script), service.scratch().path("events"));
    let log = std::fs::File::create(service.scratch().path("log")).unwrap();
    let options = ["--json", "--kill-after", "1s", "--events", journal.to_str().unwrap()];
    let kept = kept(&acquire(service, ward.pid()).args(options).stderr(log).output());
    let next = service.run("job").arg("-q").shell(format!("test -e {}", stopped.display())).spawn();
    break_it(service, &["--reason", "restore first"], 0);
    next.wait().success();
    assert_eq!(ward.wait().code(), Some(3));
    process::wait_gone(kept.keeper);
    let log = std::fs::read_to_string(service.scratch().path("log")).unwrap();
    assert!(
        log.starts_with("dlock: lost 'job' at ") && log.contains(" asked it to stop: restore first; stopping sh\n"),
        "{log}"
    );
    assert_eq!(events(&journal), ["acquired", "asked", "stopping", "released", "end"]);
    let text = std::fs::read_to_string(&journal).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["exit"], &last["outcome"], &last["command"]), (&79.into(), &"asked".into(), &"sh".into()));
    assert_eq!(last["pid"], kept.keeper);
}

fn a_process_that_does_not_end_is_killed_and_the_lock_is_held_until_then<S: Service>(service: &S) {
    let ward = Ward::shell("trap '' TERM; while :; do sleep 0.05; done");
    let kept = taken(service, &ward, &["--kill-after", "1s"]);
    let pid = ward.pid();
    let next = service.run("job").arg("-q").shell(format!("! kill -0 {pid} || grep -q 'State:.Z' /proc/{pid}/status"));
    let next = next.spawn();
    break_it(service, &[], 0);
    next.wait().success();
    assert_eq!(ward.wait().signal(), Some(Signal::SIGKILL as i32));
    process::wait_gone(kept.keeper);
    // At once, where that is wanted.
    let ward = Ward::shell("trap 'exit 3' TERM; while :; do sleep 0.05; done");
    taken(service, &ward, &["--on-lost", "kill"]);
    break_it(service, &[], 0);
    assert_eq!(ward.wait().signal(), Some(Signal::SIGKILL as i32));
}

fn a_holder_that_is_to_ignore_it_goes_on<S: Service>(service: &S) {
    let (mut ward, journal) = (Ward::idle(), service.scratch().path("events"));
    let kept = taken(service, &ward, &["--on-lost", "ignore", "--events", journal.to_str().unwrap()]);
    break_it(service, &["-w", "5s"], 75);
    assert!(ward.is_running());
    service.assert_held("job");
    by(service, "release", &kept.handle).output().success();
    assert_eq!(events(&journal)[..2], ["acquired", "asked"]);
}

/// As a script does in a trap.
fn a_release_by_a_process_that_is_being_stopped_does_not_wait_for_it<S: Service>(service: &S) {
    let said = service.scratch().path("said");
    let script = format!(
        "trap '{} release $(cat {1}.handle) 2>{1}; echo $? >>{1}; exit 3' TERM; while :; do sleep 0.05; done",
        *DLOCK,
        said.display()
    );
    let ward = Ward::shell(&script);
    let kept = taken(service, &ward, &[]);
    std::fs::write(format!("{}.handle", said.display()), &kept.handle).unwrap();
    break_it(service, &[], 0);
    assert_eq!(ward.wait().code(), Some(3));
    let said = std::fs::read_to_string(said).unwrap();
    assert_eq!(said, "dlock: lost 'job': its keeper is stopping the process that counts on it\n79\n");
    process::wait_gone(kept.keeper);
}

/// The server stops to answer: the process is dead before the lease can end.
#[test]
fn a_process_is_stopped_in_time_when_the_server_falls_silent() {
    let service = RedisService::fresh();
    let (ward, journal) = (Ward::shell("trap '' TERM; while :; do sleep 0.05; done"), service.scratch().path("events"));
    let kept = taken(&service, &ward, &["--events", journal.to_str().unwrap()]);
    service.cluster().node(0).freeze();
    let frozen = boottime();
    // Neither tells the server anything, so the lease has not ended when the server goes on.
    let status = ward.wait();
    let dead = boottime();
    service.cluster().node(0).thaw();
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    // No renewal was sent after that.
    assert!(dead < frozen + Duration::from_secs(4), "{:?}", dead - frozen);
    process::wait_gone(kept.keeper);
    let events = events(&journal);
    assert!(events.starts_with(&["acquired".into(), "trouble".into(), "lost".into(), "stopping".into()]), "{events:?}");
}

/// What another program has deleted is noticed with the next renewal.
#[test]
fn a_process_whose_lock_was_taken_away_is_stopped() {
    let service = RedisService::fresh();
    let ward = Ward::idle();
    let kept = kept(&acquire(&service, ward.pid()).arg("--json").output());
    break_it(&service, &["--now", "-y"], 0);
    assert_eq!(ward.wait().signal(), Some(Signal::SIGTERM as i32));
    process::wait_gone(kept.keeper);
}

/// A keeper that was frozen stops the process as soon as it goes on.
#[test]
fn a_keeper_that_was_frozen_for_longer_than_the_lease_stops_its_process() {
    let service = RedisService::fresh();
    let ward = Ward::idle();
    let kept = taken(&service, &ward, &[]);
    process::signal(kept.keeper, Signal::SIGSTOP);
    eventually("the lease to end", || (status(&service)["state"] == "free").then_some(()));
    let holder = service.hold("job");
    process::signal(kept.keeper, Signal::SIGCONT);
    assert!(ward.wait().signal().is_some());
    process::wait_gone(kept.keeper);
    service.assert_held("job");
    holder.let_go().success();
}
