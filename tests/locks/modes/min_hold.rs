//! `--min-hold` of one of several: its place is kept when it has finished, and nobody else's.

use std::time::Duration;

use super::{assert_clean, hold, let_go};
use crate::support::backends::on_file_and_redis;
use crate::support::rendezvous::boottime;
use crate::support::service::Service;

on_file_and_redis! {
    a_slot_is_another_ones_only_when_its_hold_is_over
    a_writer_waits_for_the_hold_of_a_reader
}

const HOLD: Duration = Duration::from_secs(5);

/// Runs `true` with these options.
#[track_caller]
fn done<S: Service>(service: &S, key: &str, options: &[&str]) {
    service.run(key).arg("-q").args(options).command(["true"]).output().success();
}

#[track_caller]
fn refused<S: Service>(service: &S, key: &str, options: &[&str], why: &str) {
    let refused = service.run(key).arg("-n").args(options).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line(why);
}

/// Asserts that what was taken after `since` was kept for the hold, and not for much longer.
#[track_caller]
fn lasted(since: Duration) {
    let passed = boottime() - since;
    assert!((HOLD..HOLD + Duration::from_secs(4)).contains(&passed), "it lasted for {passed:?}");
}

fn a_slot_is_another_ones_only_when_its_hold_is_over<S: Service>(service: &S) {
    let since = boottime();
    done(service, "slots", &["--slots", "2", "--min-hold", "5s"]);
    let other = hold(service, "slots", ["--slots", "2"]);
    refused(service, "slots", &["--slots", "2"], "did not get 'slots': all 2 slots are taken");
    done(service, "slots", &["--slots", "2"]);
    lasted(since);
    let_go([other]);
    assert_clean(service, &["slots"]);
}

fn a_writer_waits_for_the_hold_of_a_reader<S: Service>(service: &S) {
    let since = boottime();
    done(service, "readers", &["-s", "--min-hold", "5s"]);
    done(service, "readers", &["-n", "-s"]);
    refused(service, "readers", &[], "finished; kept until 2");
    done(service, "readers", &[]);
    lasted(since);
    assert_clean(service, &["readers"]);
}
