//! The keeper: what it is, what it keeps, and what is left without it.

use std::time::Duration;

use crate::locks::kept::{Ward, acquire, acquire_for, by, has_handles, kept, nothing_is_left, status, taken};
use crate::support::backends::{on_every_backend, on_file_and_redis, on_variant};
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::{FileService, Service, ZooKeeperService};
use nix::sys::signal::Signal;

on_every_backend! {
    ;
    a_lock_is_kept_until_its_process_has_ended_however_it_ends
    a_release_by_the_handle_ends_it
}

on_file_and_redis! {
    it_is_a_process_of_its_own_that_holds_nothing_open
    signals_that_end_programs_do_not_end_it
    without_it_the_lease_ends
}

on_variant! { sentinel: redis_services::SentinelService {
    a_lock_is_kept_until_its_process_has_ended_however_it_ends
    a_release_by_the_handle_ends_it
} }

fn a_lock_is_kept_until_its_process_has_ended_however_it_ends<S: Service>(service: &S) {
    let ward = Ward::idle();
    let kept = taken(service, &ward, &["--reason", "nightly"]);
    let seen = status(service);
    let holder = &seen["holder"];
    assert_eq!((&holder["handle"], &holder["reason"]), (&false.into(), &"nightly".into()), "{seen}");
    let (pid, program) = if S::KIND == "file" {
        (kept.keeper, format!("lock-keeper for pid {}, sleep", ward.pid()))
    } else {
        (ward.pid(), "sleep".to_owned())
    };
    assert_eq!((&holder["pid"], &holder["program"], &holder["alive"]), (&pid.into(), &program.into(), &true.into()));
    // Longer than one lease.
    last_until(boottime() + Duration::from_secs(6));
    service.assert_held("job");
    ward.kill();
    process::wait_gone(kept.keeper);
    service.assert_free("job");
    // By its own end, with another code.
    let ward = Ward::shell("sleep 0.5; exit 3");
    let kept = taken(service, &ward, &[]);
    ward.wait();
    process::wait_gone(kept.keeper);
    nothing_is_left(service);
}

fn it_is_a_process_of_its_own_that_holds_nothing_open<S: Service>(service: &S) {
    let ward = Ward::idle();
    // Returns although the keeper lives: neither standard output nor standard error stay open.
    let outcome = acquire(service, ward.pid()).args(["--json", "-v"]).output();
    outcome.stderr_is_one_line("acquired 'job' at ");
    let keeper = kept(&outcome).keeper;
    assert_eq!(process::session(keeper), Some(keeper));
    assert!(process::cmdline(keeper).iter().all(|word| !word.contains("dlock")));
    assert_eq!(process::cwd(keeper), Some("/".into()));
    let fds = process::fds(keeper);
    for (fd, what) in &fds {
        let is_own = what == "/dev/null" || what.starts_with("anon_inode:") || what.starts_with("socket:");
        let is_lock = S::KIND == "file" && what.starts_with(&service.scratch().root().display().to_string());
        assert!(is_own || is_lock, "{fd}: {what}");
    }
    ward.kill();
    process::wait_gone(keeper);
}

fn signals_that_end_programs_do_not_end_it<S: Service>(service: &S) {
    let ward = Ward::idle();
    let kept = taken(service, &ward, &[]);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        process::signal(kept.keeper, signal);
        process::wait_taken(kept.keeper, signal);
    }
    service.assert_held("job");
    assert!(process::is_alive(kept.keeper));
    ward.kill();
    process::wait_gone(kept.keeper);
    service.assert_free("job");
}

fn a_release_by_the_handle_ends_it<S: Service>(service: &S) {
    let mut ward = Ward::idle();
    let kept = taken(service, &ward, &[]);
    let outcome = by(service, "release", &kept.handle).arg("-v").output();
    outcome.code(0).stdout_is("").stderr_is_one_line("released 'job'");
    assert!(!process::is_alive(kept.keeper));
    service.assert_free("job");
    let again = by(service, "release", &kept.handle).output();
    // `assert_free` has held it since.
    if matches!(S::KIND, "redis" | "postgres" | "mysql") {
        again.code(79).stderr_is_one_line("others have held it since");
    } else {
        again.code(0).stderr_is_one_line(
            "'job' was not held any more: it was released before or taken away, or its lease had ended",
        );
    }
    let holder = service.hold("job");
    by(service, "release", &kept.handle).output().code(79).stderr_is_one_line("lost 'job': held by ");
    holder.let_go().success();
    assert!(ward.is_running());
    nothing_is_left(service);
}

/// The lock outlives the keeper for as long as its lease lasts, which the handle can end; a locked file is free at once.
fn without_it_the_lease_ends<S: Service>(service: &S) {
    let mut ward = Ward::idle();
    let kept = taken(service, &ward, &[]);
    process::signal(kept.keeper, Signal::SIGKILL);
    process::wait_gone(kept.keeper);
    if has_handles::<S>() {
        service.assert_held("job");
        by(service, "release", &kept.handle).output().success();
        service.assert_free("job");
    } else {
        eventually("the lock to be free", || (status(service)["state"] == "free").then_some(()));
        let said = by(service, "release", &kept.handle).output();
        said.code(0).stderr_is_one_line("'job' was not held any more");
        // The next holder removes what the last one has left there.
        service.assert_free("job");
    }
    assert!(ward.is_running());
    nothing_is_left(service);
}

/// A session there lives on for a while without its keeper.
#[test]
fn a_release_says_that_a_session_whose_keeper_was_killed_goes_on() {
    let service = ZooKeeperService::fresh();
    let ward = Ward::idle();
    let kept = kept(&acquire_for(&service, ward.pid(), "30s").arg("--json").output());
    process::signal(kept.keeper, Signal::SIGKILL);
    process::wait_gone(kept.keeper);
    let outcome = by(&service, "release", &kept.handle).output();
    outcome.code(69).stderr_is_one_line(
        "could not release 'job': the process that kept it is gone; the lock will expire on its own within 30s",
    );
}

#[test]
fn a_lock_that_cannot_be_run_under_says_so() {
    let service = FileService::fresh();
    let ward = Ward::idle();
    let kept = taken(&service, &ward, &[]);
    let run = service.scratch().dlock().args(["run", "--handle", &kept.handle]).command(["echo", "ran"]).output();
    run.code(64).stdout_is("").stderr_is_one_line("is kept by its keeper alone: run the command without dlock run");
    by(&service, "renew", &kept.handle).output().code(64).stderr_is_one_line("leave dlock renew out");
    let inside = service.run("job").env("DLOCK_HANDLE", &kept.handle).command(["echo", "ran"]).output();
    inside
        .code(64)
        .stdout_is("")
        .stderr_is_one_line("did not get 'job': DLOCK_HANDLE holds it: run the command without dlock run");
}
