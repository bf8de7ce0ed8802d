//! Giving a lock back by its handle: every row of the table of what is found.

use nix::sys::signal::Signal;

use crate::locks::handles::{by, nothing_is_left, run_by, taken, wait_free};
use crate::support::process;
use crate::support::service::Service;

/// Whether the service tells that others have held a lock which is free again.
fn tells_who_was_last<S: Service>() -> bool {
    matches!(S::KIND, "redis" | "postgres" | "mysql")
}

pub(super) fn every_row_of_what_a_release_finds<S: Service>(service: &S) {
    const NOT_HELD: &str = "'job' was not held any more: it was released before or taken away, or its lease had ended";
    // Ours.
    let handle = taken(service, "job", "30s");
    by(service, "release", &handle).output().success().stdout_is("");
    // Nobody's, and nobody had it since: released before, or its lease has ended.
    by(service, "release", &handle).output().code(0).stdout_is("").stderr_is_one_line(NOT_HELD);
    by(service, "release", &handle).arg("-q").output().success();
    let handle = taken(service, "job", "1s");
    wait_free(service, "job");
    by(service, "release", &handle).output().code(0).stderr_is_one_line(NOT_HELD);
    // Somebody else's.
    let holder = service.hold("job");
    let lost = by(service, "release", &handle).output();
    lost.code(79).stdout_is("").stderr_is_one_line("lost 'job': held by ");
    assert!(lost.stderr().contains(&format!("pid {} (sh)", holder.pid())), "{lost:?}");
    by(service, "release", &handle).arg("-q").output().code(79).stderr_is_one_line("lost 'job': held by ");
    service.assert_held("job");
    holder.let_go().success();
    // Nobody's, but somebody had it since.
    let outcome = by(service, "release", &handle).output();
    if tells_who_was_last::<S>() {
        outcome.code(79).stderr_is_one_line("lost 'job': its lease ended, and others have held it since");
    } else {
        outcome.code(0).stderr_is_one_line(NOT_HELD);
    }
    // An empty handle.
    for empty in [by(service, "release", ""), service.scratch().dlock().arg("release").env("DLOCK_HANDLE", "")] {
        empty.output().code(0).stdout_is("").stderr_is_one_line("nothing to release: the handle is empty");
    }
    // By the variable.
    let handle = taken(service, "job", "30s");
    let release = service.scratch().dlock().arg("release").args(service.options()).env("DLOCK_HANDLE", &handle);
    release.output().success();
    service.assert_free("job");
    nothing_is_left(service, &["job"]);
}

pub(super) fn two_releases_at_once_are_both_a_success<S: Service>(service: &S) {
    for _ in 0..3 {
        let handle = taken(service, "job", "30s");
        let releases: Vec<_> = (0..2).map(|_| by(service, "release", &handle).spawn()).collect();
        for release in releases {
            let outcome = release.wait();
            outcome.code(0);
            // The second one may find it released.
            outcome.stderr();
        }
        service.assert_free("job");
    }
}

/// dlock was killed, alone or with its process group, and its guard still stops a job that ignores SIGTERM; or the guard was, and
/// dlock does.
pub(super) fn a_release_waits_for_the_guard_that_still_stops_a_job<S: Service>(service: &S) {
    for killed in ["dlock", "group", "guard"] {
        let handle = taken(service, "job", "30s");
        let job = "trap '' TERM; echo job $$; exec 2>&-; while :; do sleep 0.05; done";
        // A leader of its own session is not in the group. The guard's own child would end with the guard.
        let apart = || format!("setsid sh -c \"{}\"; true", job.replace('$', "\\$"));
        let job = if killed == "dlock" { job.to_owned() } else { apart() };
        let run = run_by(service, &handle).args(["--kill-after", "1s"]).new_process_group().shell(job).spawn();
        let job: i32 = run.wait_stdout("job ").split_whitespace().nth(1).unwrap().parse().unwrap();
        match killed {
            "guard" => process::signal(run.guard_pid(), Signal::SIGKILL),
            "group" => process::signal_group(run.pid(), Signal::SIGKILL),
            _ => process::signal(run.pid(), Signal::SIGKILL),
        }
        let released = by(service, "release", &handle).output();
        assert!(!process::is_alive(job), "the lock was given back while a job ran");
        // It says so where it waits for long.
        assert!(
            released.code(0).stdout_is("").stderr().lines().all(|line| line.contains("waiting to release 'job': "))
        );
        service.assert_free("job");
        let _ = run.wait().stderr();
    }
    nothing_is_left(service, &["job"]);
}

/// A CI system cancels the step of a run, and begins the next step at once; the job takes its time to end. Of a job that was not
/// told to end, dlock says that it goes on.
pub(super) fn a_release_waits_for_a_run_that_was_told_to_end<S: Service>(service: &S) {
    for with_group in [false, true] {
        let handle = taken(service, "job", "30s");
        let job = "trap 'sleep 2; exit 0' TERM; echo job $$; while :; do sleep 0.05; done";
        let run = run_by(service, &handle).new_process_group().shell(job).spawn();
        let job: i32 = run.wait_stdout("job ").split_whitespace().nth(1).unwrap().parse().unwrap();
        // The job takes longer to end than a job is waited for that goes on.
        let release = || by(service, "release", &handle).args(["--connect-timeout", "1s"]);
        let refused = release().output();
        refused.code(69).stderr_ends_with_line("end that first");
        assert!(process::is_alive(job));
        if with_group {
            process::signal_group(run.pid(), Signal::SIGTERM);
        } else {
            process::signal(run.pid(), Signal::SIGTERM);
        }
        let released = release().arg("-q").output();
        released.success();
        assert!(!process::is_alive(job), "the lock was given back while a job ran");
        let _ = run.wait().stderr();
        service.assert_free("job");
    }
    nothing_is_left(service, &["job"]);
}

/// dlock lives, and stops a job that ignores SIGTERM.
pub(super) fn a_release_waits_for_a_run_that_is_being_stopped<S: Service>(service: &S) {
    let handle = taken(service, "job", "30s");
    let job = "trap 'echo told' TERM; echo job $$; while :; do sleep 0.05; done";
    let run = run_by(service, &handle).args(["--max-run", "500ms", "--kill-after", "1s"]).shell(job).spawn();
    let job: i32 = run.wait_stdout("job ").split_whitespace().nth(1).unwrap().parse().unwrap();
    run.wait_stdout("told");
    let released = by(service, "release", &handle).arg("-q").output();
    assert!(!process::is_alive(job), "the lock was given back while a job ran");
    released.success();
    let _ = run.wait().stderr();
    nothing_is_left(service, &["job"]);
}
