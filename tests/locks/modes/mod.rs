/*!
Locks that several may hold: readers and writers, and slots, by the same rule on every backend.

What only one backend promises (who else shares its locks, what it keeps where) is tested where that backend is.
*/

mod inside;
mod killed;
mod min_hold;
mod older;
mod random;
mod readers;
mod slots;
mod taken_away;

use std::ffi::OsStr;

use crate::support::dlock::Outcome;
use crate::support::service::{Gated, Service};

/// A dlock that wants `key` with these options, and holds it until it is let go.
#[track_caller]
fn begin<S: Service, A: AsRef<OsStr>>(service: &S, key: &str, options: impl IntoIterator<Item = A>) -> Gated {
    Gated::spawn(service.scratch(), service.run(key).args(options))
}

/// Holds `key` with these options. Returns once it does.
#[track_caller]
fn hold<S: Service, A: AsRef<OsStr>>(service: &S, key: &str, options: impl IntoIterator<Item = A>) -> Gated {
    let holder = begin(service, key, options);
    holder.wait_held();
    holder
}

/// Waits for `key` with these options. Returns once it has said that it waits.
#[track_caller]
fn wait<S: Service, A: AsRef<OsStr>>(service: &S, key: &str, options: impl IntoIterator<Item = A>) -> Gated {
    let waiter = begin(service, key, options);
    waiter.running.wait_stderr("waiting for ");
    waiter
}

/// Lets all of them end together, and checks that each ends well.
#[track_caller]
fn let_go(all: impl IntoIterator<Item = Gated>) {
    let all: Vec<Gated> = all.into_iter().collect();
    all.iter().for_each(Gated::open);
    for one in all {
        ended_well(&one.running.wait());
    }
}

/// Asserts that a dlock's command has ended with 0, and that dlock has said nothing but that it waits.
#[track_caller]
fn ended_well(outcome: &Outcome) {
    outcome.code(0);
    let said = outcome.stderr();
    assert!(said.lines().all(|line| line.starts_with("dlock: waiting for ")), "{outcome:?}");
}

/// Whether any of them has held its lock.
fn any_has_held(all: &[Gated]) -> bool {
    all.iter().any(Gated::has_held)
}

/// Asserts that `key` is refused at once with these options, because it is held.
#[track_caller]
fn refused<S: Service>(service: &S, key: &str, options: &[&str]) {
    let outcome = service.run(key).args(options).args(["-n", "-q"]).command(["echo", "overlap"]).output();
    outcome.code(75).stdout_is("").quiet();
}

/// Asserts that nothing is left of the locks `keys`.
#[track_caller]
fn assert_clean<S: Service>(service: &S, keys: &[&str]) {
    for key in keys {
        service.assert_free(key);
    }
    service.assert_tidy(keys);
}
