//! Taking a lock that outlives the process that takes it, and renewing it.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::locks::handles::{acquire, by, nothing_is_left, run_by, status, taken, wait_free};
use crate::support::service::Service;

pub(super) fn a_lock_goes_through_several_processes_and_leaves_nothing<S: Service>(service: &S) {
    let handle = taken(service, "job", "30s");
    service.assert_held("job");
    let refused = acquire(service, "job", "30s").arg("-n").output();
    refused.code(75).stdout_is("").stderr_is_one_line("did not get 'job': held by ");
    assert!(refused.stderr().contains(", taken by dlock acquire"), "{refused:?}");
    by(service, "renew", &handle).output().success().stdout_is("");
    run_by(service, &handle).shell("echo $DLOCK_KEY").output().success().stdout_is("job\n");
    service.assert_held("job");
    let said = by(service, "renew", &handle).arg("-v").output();
    said.code(0).stderr_is_one_line("renewed 'job', ttl 30s");
    let said = by(service, "release", &handle).arg("-v").output();
    said.code(0).stderr_is_one_line("released 'job'");
    service.assert_free("job");
    nothing_is_left(service, &["job"]);
}

pub(super) fn a_lock_that_is_held_by_its_handle_is_shown_as_one<S: Service>(service: &S) {
    let outcome = acquire(service, "job", "30s").args(["--reason", "two steps", "-v"]).output();
    outcome.code(0).stderr_is_one_line("acquired 'job' at ");
    let seen = status(service, "job");
    let holder = &seen["holder"];
    assert_eq!((&seen["state"], &holder["handle"], &holder["alive"]), (&"held".into(), &true.into(), &Value::Null));
    assert_eq!((&holder["reason"], &holder["ttl_ms"]), (&"two steps".into(), &30_000.into()));
    let look = service.scratch().dlock().args(["status", "--key", "job"]).backend(service.url());
    let text = look.args(service.options()).output().code(75).quiet().stdout();
    assert!(text.contains(", taken by dlock acquire"), "{text}");
    // A waiter is a process, whatever it is going to leave behind.
    if S::IN_ORDER {
        let waiter = acquire(service, "job", "30s").arg("-q").spawn();
        service.wait_queued("job", 1);
        let seen = status(service, "job");
        assert_eq!(seen["queue"][0]["pid"], waiter.pid(), "{seen}");
        assert_eq!((&seen["queue"][0]["alive"], &seen["waiting"]), (&true.into(), &1.into()));
        by(service, "release", outcome.stdout().trim_end()).output().success();
        let next = waiter.wait();
        next.success();
        let holder = status(service, "job")["holder"].clone();
        assert_eq!((&holder["handle"], &holder["reason"]), (&true.into(), &Value::Null));
        let token = run_by(service, next.stdout().trim_end()).shell("echo $DLOCK_TOKEN").output().success().stdout();
        assert_eq!(holder["token"].to_string() + "\n", token, "{holder}");
        by(service, "release", next.stdout().trim_end()).output().success();
    }
}

pub(super) fn a_renewal_extends_the_lease_and_never_makes_a_lock_that_is_gone<S: Service>(service: &S) {
    let ttl = if S::KIND == "etcd" { "3s" } else { "2s" };
    let handle = taken(service, "job", ttl);
    // Longer than one lease.
    for _ in 0..4 {
        crate::support::rendezvous::last_until(
            crate::support::rendezvous::boottime() + std::time::Duration::from_millis(700),
        );
        by(service, "renew", &handle).output().success();
    }
    service.assert_held("job");
    wait_free(service, "job");
    let gone = by(service, "renew", &handle).output();
    gone.code(79).stdout_is("").stderr_is_one_line("lost 'job': ");
    assert_eq!(status(service, "job")["state"], "free");
    // Nor does it touch what another owner has.
    let other = taken(service, "job", "30s");
    let before = status(service, "job")["holder"]["id"].clone();
    by(service, "renew", &handle).output().code(79).stderr_is_one_line("lost 'job': ");
    assert_eq!(status(service, "job")["holder"]["id"], before);
    by(service, "release", &other).output().success();
}

pub(super) fn what_was_acquired_is_told_as_a_document<S: Service>(service: &S) {
    let outcome = acquire(service, "job", "30s").arg("--json").output();
    outcome.success();
    let text = outcome.stdout();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let seen = status(service, "job");
    assert_eq!((&document["v"], &document["key"]), (&1.into(), &"job".into()));
    assert_eq!((&document["backend"], &document["namespace"]), (&seen["backend"], &"dlock".into()));
    assert_eq!((&document["owner"], &document["ttl_ms"]), (&seen["holder"]["id"], &30_000.into()));
    assert_eq!(document["keeper"], Value::Null);
    let handle = document["handle"].as_str().unwrap();
    let token = run_by(service, handle).shell("echo $DLOCK_TOKEN $DLOCK_OWNER").output().success().stdout();
    assert_eq!(token, format!("{} {}\n", document["token"], document["owner"].as_str().unwrap()));
    by(service, "release", handle).output().success();
}

pub(super) fn a_handle_that_nobody_could_read_is_not_taken<S: Service>(service: &S) {
    let outcome = acquire(service, "job", "30s").without_fd(1).output();
    outcome.code(74).stdout_is("").stderr_is_one_line("could not write to standard output: it is closed");
    service.assert_free("job");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    acquire(service, "job", "30s")
        .stdout(full)
        .output()
        .code(74)
        .stderr_is_one_line("could not write to standard output");
    service.assert_free("job");
}

pub(super) fn a_signal_during_the_wait_leaves_nothing_behind<S: Service>(service: &S) {
    let handle = taken(service, "job", "30s");
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let waiter = acquire(service, "job", "30s").spawn();
        waiter.wait_stderr("waiting for 'job'");
        waiter.signal(signal);
        let outcome = waiter.wait();
        outcome.signal(signal).stdout_is("");
        outcome.stderr();
        // Null where there is no queue.
        assert_eq!(status(service, "job")["waiting"].as_u64().unwrap_or(0), 0);
    }
    by(service, "release", &handle).output().success();
    nothing_is_left(service, &["job"]);
}

pub(super) fn a_lock_whose_own_handle_is_in_the_environment_is_not_waited_for<S: Service>(service: &S) {
    const SAID: &str = "did not get 'job': DLOCK_HANDLE holds it: use dlock run --handle";
    let handle = taken(service, "job", "30s");
    let run = || service.run("job").env("DLOCK_HANDLE", &handle);
    run().command(["echo", "ran"]).output().code(64).stdout_is("").stderr_is_one_line(SAID);
    // It is no busy lock: --quiet and --conflict-exit-code 0 must not hide that the job never runs.
    let skip = ["-q", "-w", "20s", "-E", "0"];
    run().args(skip).command(["echo", "ran"]).output().code(64).stdout_is("").stderr_is_one_line(SAID);
    acquire(service, "job", "30s")
        .env("DLOCK_HANDLE", &handle)
        .output()
        .code(64)
        .stdout_is("")
        .stderr_is_one_line(SAID);
    // Other locks are taken as always, and a handle of another lock is in nobody's way.
    service.run("other").env("DLOCK_HANDLE", &handle).command(["echo", "ran"]).output().success().stdout_is("ran\n");
    by(service, "release", &handle).output().success();
    run().command(["echo", "ran"]).output().success().stdout_is("ran\n");
    nothing_is_left(service, &["job", "other"]);
}
