//! Latches on every backend.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::on_every_backend;
use crate::support::dlock::Dlock;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::Service;

use super::dlock;

on_every_backend! {
    who_waits_is_let_through_by_the_last_name
    a_failure_reaches_those_who_wait_now_and_later
    a_name_counts_for_as_long_as_it_is_kept
    a_name_counts_once_and_a_wait_after_the_fact_returns_at_once
    what_is_forgotten_leaves_nothing_behind
    a_wait_that_runs_out_is_told_from_a_signal
}

/// A change that takes longer to be noticed was not heard: waiters look by themselves every ten seconds.
const PROMPT: Duration = Duration::from_secs(5);

fn down<S: Service>(service: &S, name: &str) -> Dlock {
    dlock(service, "latch").args(["done", "--as", name])
}

fn wait<S: Service>(service: &S, count: usize) -> Dlock {
    dlock(service, "latch").args(["wait", "--count", &count.to_string()])
}

fn a_name_counts_once_and_a_wait_after_the_fact_returns_at_once<S: Service>(service: &S) {
    for name in ["unit", "lint/a b", "unit"] {
        down(service, name).output().success();
    }
    let short = wait(service, 3).args(["-w", "0"]).output();
    short.code(75).stderr_is_one_line("latch 'k' is not open: 2 of 3 are done (lint/a b and unit)");
    wait(service, 3).args(["-w", "0", "-q", "-E", "7"]).output().code(7).quiet();
    let verbose = down(service, "docs").arg("-v").output();
    verbose.code(0).stderr_is_one_line("reported docs as done at latch 'k' at ");
    wait(service, 3).output().success();
    wait(service, 2).output().success();
    // More than those are told who wait.
    for name in 0..6 {
        down(service, &format!("job {name}")).output().success();
    }
    let shown = dlock(service, "latch").arg("show").output();
    let text = shown.code(0).quiet().stdout();
    assert!(text.contains(": 9 are done\n  done     "), "{text}");
    let names = ["docs", "lint/a b", "unit", "job 0", "job 5"];
    assert!(names.iter().all(|name| text.contains(&format!("  done     {name}\n"))), "{text}");
    // It has nothing to do with the lock of that name.
    service.assert_free("k");
}

fn who_waits_is_let_through_by_the_last_name<S: Service>(service: &S) {
    let waiters = [2, 3].map(|count| wait(service, count).spawn());
    for waiter in &waiters {
        waiter.wait_stderr("waiting for latch 'k': none of ");
    }
    down(service, "a").output().success();
    down(service, "b").output().success();
    let [first, second] = waiters;
    let since = boottime();
    first.wait().code(0).stderr_is_one_line("waiting for latch 'k': none of 2 is done");
    assert!(boottime() - since < PROMPT, "it was not told");
    assert!(second.is_running());
    let since = boottime();
    down(service, "c").output().success();
    second.wait().code(0).stderr_is_one_line("waiting for latch 'k': none of 3 is done");
    assert!(boottime() - since < PROMPT, "it was not told");
}

fn a_failure_reaches_those_who_wait_now_and_later<S: Service>(service: &S) {
    let waiter = wait(service, 2).spawn();
    waiter.wait_stderr("waiting for latch 'k'");
    let since = boottime();
    let fail = dlock(service, "latch").args(["fail", "--as", "unit", "--reason", "3 tests are red"]);
    fail.output().success();
    let said = "latch 'k' has failed, reported by unit: 3 tests are red";
    waiter.wait().code(79).stderr_ends_with_line(said);
    assert!(boottime() - since < PROMPT, "it was not told");
    for name in ["a", "b"] {
        down(service, name).output().success();
    }
    wait(service, 2).output().code(79).stderr_is_one_line(said);
    wait(service, 1).args(["-w", "0", "-q"]).output().code(79).stderr_is_one_line(said);
    let shown = dlock(service, "latch").args(["show", "--json"]).output().code(0).quiet().stdout();
    assert!(
        shown.contains(r#""count":2,"names":["a","b"],"failed":{"by":"unit","reason":"3 tests are red"}"#),
        "{shown}"
    );
    dlock(service, "latch").arg("forget").output().success();
    down(service, "a").output().success();
    wait(service, 1).output().success();
}

fn what_is_forgotten_leaves_nothing_behind<S: Service>(service: &S) {
    let forget = || dlock(service, "latch").arg("forget");
    forget().output().success();
    for name in ["a", "b", "a"] {
        down(service, name).output().success();
    }
    dlock(service, "latch").arg("fail").output().success();
    let waiter = wait(service, 1).output();
    waiter.code(79).stderr_is_one_line("latch 'k' has failed");
    let verbose = forget().arg("-v").output();
    verbose.code(0).stderr_is_one_line("cleared latch");
    wait(service, 1).args(["-w", "0"]).output().code(75).stderr_is_one_line("latch 'k' is not open: none of 1 is done");
    service.assert_tidy(&[]);
}

fn a_name_counts_for_as_long_as_it_is_kept<S: Service>(service: &S) {
    down(service, "long").args(["--keep", "1h"]).output().success();
    let since = boottime();
    down(service, "short").args(["--keep", "5s"]).output().success();
    wait(service, 2).args(["-w", "0"]).output().success();
    last_until(since + Duration::from_secs(5));
    // etcd removes a lease up to a second after its end.
    let short = eventually("the end of the name", || {
        let outcome = wait(service, 2).args(["-w", "0"]).output();
        (!outcome.status().success()).then_some(outcome)
    });
    assert!(boottime() < since + Duration::from_secs(9), "it counts for longer than it is kept");
    short.code(75).stderr_is_one_line("latch 'k' is not open: 1 of 2 is done (long)");
    // And once more.
    down(service, "short").output().success();
    wait(service, 2).output().success();
}

fn a_wait_that_runs_out_is_told_from_a_signal<S: Service>(service: &S) {
    let short = wait(service, 1).args(["-w", "1"]).output();
    short.code(75).stderr_ends_with_line("latch 'k' did not open within 1s: none of 1 is done");
    assert!(short.elapsed() >= Duration::from_secs(1), "{short:?}");
    let waiter = wait(service, 1).spawn();
    waiter.wait_stderr("waiting for latch 'k'");
    waiter.signal(Signal::SIGTERM);
    waiter.wait().signal(Signal::SIGTERM).stderr_is_one_line("waiting for latch 'k'");
    service.assert_tidy(&[]);
}
