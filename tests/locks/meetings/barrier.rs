//! Barriers on every backend that has them.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::support::backends::{on_backend, on_variant};
use crate::support::dlock::{DLOCK, Dlock, NO_CONFIG, Running};
use crate::support::redis_services::Redlock3;
use crate::support::service::Service;

use super::dlock;

/// Makes a module of tests for each kind of backend that has barriers; those after the semicolon are variants on databases,
/// whose barriers are made of records alone.
macro_rules! on_every_backend_with_barriers {
    ($($test:ident)* ; $($word:ident)*) => {
        on_backend! { file: service::FileService { $($test)* $($word)* } }
        on_backend! { redis: service::RedisService { $($test)* $($word)* } }
        on_variant! { sentinel: redis_services::SentinelService { $($test)* $($word)* } }
        on_backend! { etcd: service::EtcdService { $($test)* $($word)* } }
        on_backend! { zookeeper: service::ZooKeeperService { $($test)* $($word)* } }
        on_backend! { postgres: database_services::PostgresService { $($test)* ; $($word)* } }
        on_backend! { mysql: database_services::MysqlService { $($test)* ; $($word)* } }
    };
}

on_every_backend_with_barriers! {
    all_go_on_when_the_last_one_comes
    one_that_is_told_to_stop_when_it_has_opened_passes_with_the_others
    one_that_is_killed_breaks_it;
    rounds_in_a_loop_do_not_mix
    one_that_is_told_to_stop_breaks_it
    one_whose_wait_runs_out_breaks_it
    a_newer_process_takes_the_place_of_an_older_one
    another_number_is_refused
    who_is_patient_waits_on
}

/// A party called `name` that waits for three.
fn party<S: Service>(service: &S, name: &str) -> Dlock {
    dlock(service, "barrier").args(["--parties", "3", "--as", name])
}

/// Starts a party called `name`, and returns once it waits together with all that are there, `there` in all.
#[track_caller]
fn waits<S: Service>(service: &S, name: &str, options: &[&str], there: usize) -> Running {
    let party = party(service, name).args(options).spawn();
    party.wait_stderr(&format!("waiting for barrier 'k': {there} of 3 "));
    party
}

/// The party has gone on, and had nothing to say but that it waited.
#[track_caller]
fn went_on(party: Running) {
    party.wait().code(0).stderr_is_one_line("waiting for barrier 'k': ");
}

fn all_go_on_when_the_last_one_comes<S: Service>(service: &S) {
    let one = waits(service, "a", &[], 1);
    let other = waits(service, "b/ü", &[], 2);
    assert!(one.is_running() && other.is_running());
    let last = party(service, "c").arg("-v").output();
    last.code(0).stderr_ends_with_line("barrier 'k' is open, after ");
    went_on(one);
    went_on(other);
    // It remembers nothing.
    let short = party(service, "a").args(["-w", "1"]).output();
    short.code(75).stderr_ends_with_line("barrier 'k' did not open within 1s: 1 of 3 is here (a)");
    service.assert_free("k");
    dlock(service, "barrier").args(["--parties", "1"]).output().success();
}

fn rounds_in_a_loop_do_not_mix<S: Service>(service: &S) {
    const ROUNDS: usize = 20;
    let log = service.scratch().path("log");
    let parties = ["a", "b", "c"].map(|name| {
        let meet =
            format!("'{}' barrier --key k --backend '{}' --parties 3 --as {name} -q -w 25", *DLOCK, service.url());
        let round = format!("{meet} || exit 9; echo $i >> '{}'", log.display());
        let script = format!("i=1; while [ $i -le {ROUNDS} ]; do {round}; i=$((i + 1)); done");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script]).current_dir(service.scratch().root()).stdin(Stdio::null());
        shell.env_clear().envs([("PATH", "/usr/bin:/bin"), NO_CONFIG]);
        shell.spawn().unwrap()
    });
    for mut party in parties {
        assert!(party.wait().unwrap().success(), "a round did not end well");
    }
    // Whoever has passed a round has written it down before it came to the next one.
    let passed: Vec<usize> = fs::read_to_string(log).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<usize> = (1..=ROUNDS).flat_map(|round| [round; 3]).collect();
    assert_eq!(passed, expected);
    service.assert_tidy(&[]);
}

fn one_that_is_told_to_stop_breaks_it<S: Service>(service: &S) {
    let one = waits(service, "a", &[], 1);
    let other = waits(service, "b", &[], 2);
    other.signal(Signal::SIGTERM);
    other.wait().signal(Signal::SIGTERM).stderr_is_one_line("waiting for barrier 'k'");
    one.wait().code(79).stderr_ends_with_line("barrier 'k' is broken: b left or died");
    service.assert_tidy(&[]);
}

/// It gets the signal before it has heard that the others have gone on, and counts on them as they count on it.
fn one_that_is_told_to_stop_when_it_has_opened_passes_with_the_others<S: Service>(service: &S) {
    let one = waits(service, "a", &[], 1);
    one.signal(Signal::SIGSTOP);
    for other in ["b", "c"].map(|name| party(service, name).spawn()) {
        other.wait().code(0).stderr();
    }
    one.signal(Signal::SIGTERM);
    one.signal(Signal::SIGCONT);
    went_on(one);
}

fn one_that_is_killed_breaks_it<S: Service>(service: &S) {
    let options = ["--ttl", "4s"];
    let one = waits(service, "a", &options, 1);
    let other = waits(service, "b", &options, 2);
    other.signal(Signal::SIGKILL);
    other.wait().signal(Signal::SIGKILL).stderr_is_one_line("waiting for barrier 'k'");
    one.wait().code(79).stderr_ends_with_line("barrier 'k' is broken: b left or died");
}

fn one_whose_wait_runs_out_breaks_it<S: Service>(service: &S) {
    let one = waits(service, "a", &[], 1);
    let other = party(service, "b").args(["-w", "1"]).output();
    other.code(75).stderr_ends_with_line("barrier 'k' did not open within 1s: 2 of 3 are here (a and b)");
    one.wait().code(79).stderr_ends_with_line("barrier 'k' is broken: b left or died");
}

fn a_newer_process_takes_the_place_of_an_older_one<S: Service>(service: &S) {
    let older = waits(service, "a", &[], 1);
    let other = waits(service, "b", &[], 2);
    let newer = waits(service, "a", &[], 2);
    older
        .wait()
        .code(79)
        .stderr_ends_with_line("gave up barrier 'k': a newer process waits there as a; give each party its own --as");
    assert!(other.is_running() && newer.is_running());
    party(service, "c").arg("-q").output().success();
    went_on(other);
    went_on(newer);
}

fn another_number_is_refused<S: Service>(service: &S) {
    let one = waits(service, "a", &[], 1);
    let refused = dlock(service, "barrier").args(["--parties", "2", "--as", "b"]).output();
    let said = "barrier 'k' is in use with --parties 3 now, by a; --parties 2 can be used once they have left";
    refused.code(64).stderr_is_one_line(said);
    assert!(one.is_running());
    one.signal(Signal::SIGINT);
    one.wait().signal(Signal::SIGINT).stderr_is_one_line("waiting for barrier 'k'");
    dlock(service, "barrier").args(["--parties", "1", "--as", "b"]).output().success();
    service.assert_tidy(&[]);
}

fn who_is_patient_waits_on<S: Service>(service: &S) {
    let patient = waits(service, "a", &["--patient"], 1);
    let other = waits(service, "b", &[], 2);
    other.signal(Signal::SIGTERM);
    other.wait().signal(Signal::SIGTERM).stderr_is_one_line("waiting for barrier 'k'");
    let next = waits(service, "c", &[], 2);
    assert!(patient.is_running());
    party(service, "d").arg("-q").output().success();
    went_on(patient);
    went_on(next);
}

#[test]
fn redlock_has_none_and_says_why() {
    let service = Redlock3::fresh();
    let refused = party(&service, "a").output();
    refused.code(64).stderr_is_one_line(" has no barriers: a barrier needs one server that decides");
}
