/*!
Latches and barriers: who is let through and when, who is told what, and that nothing is left behind.
*/

mod barrier;
mod latch;
mod trouble;

use crate::support::dlock::Dlock;
use crate::support::service::{FileService, Service};

/// The name of the latch or barrier.
const KEY: &str = "k";

/// `dlock SUBCOMMAND --key KEY --backend URL`, and the other options that it needs.
fn dlock<S: Service>(service: &S, subcommand: &str) -> Dlock {
    let dlock = service.scratch().dlock().args([subcommand, "--key", KEY]);
    dlock.backend(service.url()).args(service.options())
}

#[test]
fn options_come_from_variables_too_and_a_flag_overrides_its_variable() {
    let service = FileService::fresh();
    let latch = |action: &str| {
        let latch = dlock(&service, "latch").arg(action).env("DLOCK_AS", "a").env("DLOCK_COUNT", "2");
        latch.env("DLOCK_REASON", "red").env("DLOCK_KEEP", "1h").env("DLOCK_WAIT", "0")
    };
    // A variable may be set for all actions, also those that have no use for it.
    latch("done").arg("-v").output().code(0).stderr_is_one_line("reported a as done at latch 'k' at ");
    latch("wait").output().code(75).stderr_is_one_line("1 of 2 is done (a)");
    latch("wait").args(["--count", "1"]).output().success();
    latch("fail").output().success();
    latch("wait").output().code(79).stderr_is_one_line("latch 'k' has failed, reported by a: red");
    latch("forget").output().success();
    let barrier = || dlock(&service, "barrier").env("DLOCK_PARTIES", "2").env("DLOCK_AS", "a").env("DLOCK_WAIT", "0");
    barrier().output().code(75).stderr_is_one_line("barrier 'k' is not open: 1 of 2 is here (a)");
    barrier().args(["--parties", "1"]).env("DLOCK_PATIENT", "1").output().success();
    service.assert_tidy(&[]);
}

#[test]
fn what_is_wrong_with_the_options_is_told_in_one_line() {
    let service = FileService::fresh();
    for (words, said) in [
        (&["latch", "down"][..], "add --as NAME"),
        (&["latch", "wait"], "add --count N"),
        (&["latch", "wait", "--count", "0"], "--count 0: must be a whole number from 1 to 1000"),
        (&["latch", "fly"], "<ACTION> fly: use one of done, wait, fail, show, forget"),
        (&["latch", "forget", "--reason", "x"], "--reason is only for dlock latch fail"),
        (&["latch", "down", "--as", "a\nb"], "--as: a name must not contain control characters"),
        (&["barrier"], "the number of parties is missing: add --parties N"),
        (&["barrier", "--parties", "101"], "--parties 101: must be a whole number from 1 to 100"),
    ] {
        let outcome = dlock(&service, words[0]).args(&words[1..]).output();
        outcome.code(64).stdout_is("").stderr_is_one_line(said);
    }
    service.assert_tidy(&[]);
}
