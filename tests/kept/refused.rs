//! Processes for which no lock is kept, and options that do not go together.

use crate::kept::{Ward, acquire};
use crate::support::process;
use crate::support::service::{RedisService, Service};

#[test]
fn a_process_that_is_not_there_or_cannot_be_stopped_is_refused() {
    let service = RedisService::fresh();
    for (pid, part) in [
        (1, "--while-pid 1: no signal stops process 1 if the lock is lost: use dlock run"),
        (i32::MAX, "--while-pid 2147483647: there is no such process, or it has ended"),
        (0, "--while-pid 0: a process id is a number from 1 on"),
        (-1, "--while-pid -1: "),
    ] {
        acquire(&service, pid).output().code(64).stdout_is("").stderr_is_one_line(part);
    }
    if process::is_root() {
        let ward = Ward::idle();
        let outcome = acquire(&service, ward.pid()).unprivileged().reachable().output();
        outcome.code(64).stdout_is("").stderr_is_one_line("it belongs to another user");
    }
    service.assert_free("job");
}

#[test]
fn options_that_need_a_process_are_refused_without_one() {
    let service = RedisService::fresh();
    let acquire =
        |words: &[&str]| service.scratch().dlock().args(["acquire", "-k", "job", "-b", &service.url()]).args(words);
    for (words, part) in [
        (&["--ttl", "3s", "--on-lost", "kill"][..], "--on-lost is only for --while-pid"),
        (&["--ttl", "3s", "--kill-after", "1s"], "--kill-after is only for --while-pid"),
        (&[], "--ttl is missing: add --ttl 10m, after which the lock ends, or --while-pid $$ for the rest of a script"),
        (&["--while-pid", "x"], "--while-pid x: "),
    ] {
        acquire(words).output().code(64).stdout_is("").stderr_is_one_line(part);
    }
    let ward = Ward::idle();
    let long = acquire(&["--while-pid", &ward.pid().to_string(), "--kill-after", "20s"]).output();
    long.code(64).stdout_is("").stderr_is_one_line("--kill-after may be at most half of --ttl (15s of 30s)");
    // A variable may be meant for dlock run.
    let outcome = acquire(&["--ttl", "3s"]).env("DLOCK_ON_LOST", "kill").output();
    outcome.success();
}
