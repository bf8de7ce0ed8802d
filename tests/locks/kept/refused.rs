//! Processes for which no lock is kept, and options that do not go together.

use crate::locks::kept::{Ward, acquire, by, kept, taken};
use crate::support::process;
use crate::support::service::{RedisService, Service};

#[test]
fn a_process_that_is_not_there_or_cannot_be_stopped_is_refused() {
    let service = RedisService::fresh();
    for (pid, part) in [
        (1, "--while-pid 1: no signal stops process 1 if the lock is lost: use dlock run"),
        (i32::MAX, "--while-pid 2147483647: there is no such process, or it has ended"),
        (0, "--while-pid 0: must be a process id"),
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

/// A keeper works for an ordinary user too, and heeds its own user and root alone.
#[test]
fn a_lock_is_released_by_the_user_of_its_keeper() {
    let service = RedisService::fresh();
    let ward = Ward::idle();
    let kept = taken(&service, &ward, &[]);
    if process::is_root() {
        let refused = by(&service, "release", &kept.handle).unprivileged().reachable().output();
        refused.code(77).stderr_is_one_line("which keeps it, belongs to another user: release it as that user");
        assert!(process::is_alive(kept.keeper));
    }
    by(&service, "release", &kept.handle).output().success();
    let script = "h=$(\"$0\" acquire -k job -b \"$1\" --while-pid $$) || exit; \"$0\" status -k job -b \"$1\"; \"$0\" release \"$h\"";
    let script = service.scratch().dlock().arg(service.url()).wrapped_by(["/bin/sh", "-c", script]);
    let outcome = script.unprivileged().reachable().output();
    assert!(outcome.success().stdout().contains(": held for "), "{outcome:?}");
    service.assert_free("job");
}

/// Its keeper has the password, and goes on renewing the lock.
#[test]
fn a_run_without_the_password_says_what_it_lacks() {
    let (service, ward) = (RedisService::fresh(), Ward::idle());
    service.redis.cli(&["CONFIG", "SET", "requirepass", "geheim"]);
    let kept = kept(&acquire(&service, ward.pid()).env("DLOCK_PASSWORD", "geheim").arg("--json").output());
    let run = service.scratch().dlock().args(["run", "--handle", &kept.handle]).command(["echo", "ran"]).output();
    run.code(77).stdout_is("").stderr_is_one_line("password");
    assert!(!run.stderr().contains("expire"), "{run:?}");
    by(&service, "release", &kept.handle).env("DLOCK_PASSWORD", "geheim").output().success();
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
