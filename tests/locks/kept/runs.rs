//! Runs under the handle of a lock that is kept: the keeper gives the lock back only when none of them is left.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::locks::kept::ending::break_it;
use crate::locks::kept::{Kept, Ward, acquire, acquire_for, by, kept, status, taken};
use crate::support::backends::{User, on_redis_and_etcd};
use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::rendezvous::{Gate, boottime, eventually, last_until};
use crate::support::service::{Gated, RedisService, Service};

on_redis_and_etcd! {
    a_lock_is_kept_until_the_run_of_a_script_that_was_killed_has_ended
    a_lock_is_kept_until_the_guard_of_a_killed_run_has_stopped_its_job
    a_run_is_stopped_before_the_lock_of_a_keeper_that_was_asked_passes_on
    a_run_whose_keeper_is_gone_stops_its_job
}

/// `dlock run` under the handle.
fn under<S: Service>(service: &S, kept: &Kept) -> Dlock {
    service.scratch().dlock().args(["run", "--handle", &kept.handle]).args(service.options())
}

fn a_lock_is_kept_until_the_run_of_a_script_that_was_killed_has_ended<S: Service>(service: &S) {
    let ward = Ward::idle();
    let kept = taken(service, &ward, &[]);
    let run = Gated::spawn(service.scratch(), under(service, &kept));
    run.wait_held();
    ward.kill();
    // Longer than one lease, in which other runs under the handle may begin.
    last_until(boottime() + Duration::from_secs(2));
    under(service, &kept).command(["true"]).output().success();
    last_until(boottime() + Duration::from_secs(3));
    service.assert_held("job");
    assert!(process::is_alive(kept.keeper));
    run.let_go().success();
    process::wait_gone(kept.keeper);
    service.assert_free("job");
}

/// The process for which the lock is kept is the run itself, `exec dlock run --handle`, and its job ignores SIGTERM.
fn a_lock_is_kept_until_the_guard_of_a_killed_run_has_stopped_its_job<S: Service>(service: &S) {
    let gate = Gate::new(service.scratch().path("handle"));
    let script =
        format!("read -r handle < '{}'; exec \"$@\" --handle \"$handle\" -- \"$0\" -c \"$JOB\"", gate.path().display());
    let run = service.scratch().dlock().args(["run", "--kill-after", "1s"]).args(service.options());
    let run = run.env("JOB", "trap '' TERM; echo job $$; while :; do sleep 0.05; done");
    let run = run.wrapped_by(["/bin/sh", "-c", &script, "/bin/sh"]).spawn();
    let kept = kept(&acquire(service, run.pid()).arg("--json").output());
    std::fs::write(gate.path(), format!("{}\n", kept.handle)).unwrap();
    let job = pid_of(&run.wait_stdout("job "));
    let next = service.run("job").arg("-q").shell(is_gone(job)).spawn();
    process::signal(run.pid(), Signal::SIGKILL);
    next.wait().success();
    process::wait_gone(kept.keeper);
    let _ = run.wait().stderr();
}

/// A condition of a shell: that this process does not run.
fn is_gone(pid: i32) -> String {
    format!("! kill -0 {pid} 2>/dev/null || grep -q 'State:.Z' /proc/{pid}/status")
}

/// The number after the first word.
fn pid_of(line: &str) -> i32 {
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Its job needs longer than the process that the lock is kept for.
fn a_run_is_stopped_before_the_lock_of_a_keeper_that_was_asked_passes_on<S: Service>(service: &S) {
    let ward = Ward::idle();
    let kept = taken(service, &ward, &["--kill-after", "1s"]);
    let job = "trap '' TERM; echo job $$; while :; do sleep 0.05; done";
    let run = under(service, &kept).args(["--kill-after", "1s"]).shell(job).spawn();
    let job = pid_of(&run.wait_stdout("job "));
    let next = service.run("job").arg("-q").shell(is_gone(job)).spawn();
    break_it(service, &[], 0);
    next.wait().success();
    run.wait().code(79).stderr_is_one_line("lost 'job' at ");
    assert!(ward.wait().code().is_none());
    process::wait_gone(kept.keeper);
}

fn a_run_whose_keeper_is_gone_stops_its_job<S: Service>(service: &S) {
    let ward = Ward::idle();
    let kept = kept(&acquire_for(service, ward.pid(), "1h").arg("--json").output());
    let run = Gated::spawn(service.scratch(), under(service, &kept));
    run.wait_held();
    let job = run.running.command_pid();
    process::signal(kept.keeper, Signal::SIGKILL);
    // The next renewal would be 20 minutes later.
    run.running.wait().code(79).stderr_is_one_line(": its keeper has ended or is giving it back; stopping sh");
    assert!(!process::is_alive(job));
    under(service, &kept)
        .command(["echo", "ran"])
        .output()
        .code(79)
        .stdout_is("")
        .stderr_is_one_line("lost 'job': the process that kept it has ended");
    by(service, "release", &kept.handle).output().success();
    service.assert_free("job");
}

/// What a release finds while a run goes on: never does the lock pass on before its end.
#[test]
fn a_release_waits_for_a_run_and_says_which_one_goes_on() {
    let service = RedisService::fresh();
    let ward = Ward::idle();
    let kept = taken(&service, &ward, &[]);
    // Inside of the run that it would wait for.
    let release = format!("{} release '{}'", *crate::support::dlock::DLOCK, kept.handle);
    let inside = under(&service, &kept).shell(release).output();
    inside.code(69).stderr_is_one_line("still runs a command under its handle: end that first");
    let run = Gated::spawn(service.scratch(), under(&service, &kept));
    run.wait_held();
    let refused = by(&service, "release", &kept.handle).args(["--connect-timeout", "1s"]).output();
    refused.code(69).stdout_is("");
    let said = refused.stderr();
    let who = format!("process {} still runs a command under its handle", run.pid());
    let expected =
        format!("dlock: waiting to release 'job': {who}\ndlock: could not release 'job': {who}: end that first\n");
    assert_eq!(said, expected);
    // One that ends while it is waited for.
    let release = by(&service, "release", &kept.handle).args(["--connect-timeout", "30s"]).spawn();
    release.wait_stderr("waiting to release 'job': ");
    service.assert_held("job");
    run.let_go().success();
    let released = release.wait();
    released.code(0);
    assert!(released.stderr().contains("waiting to release"));
    process::wait_gone(kept.keeper);
    service.assert_free("job");
}

/// A run is registered by the users of the keeper and of the script, and by no stranger, who could keep the lock for ever.
#[test]
fn a_run_registers_as_the_user_of_its_keeper_or_from_its_script() {
    let service = RedisService::fresh();
    for &user in User::all() {
        let script = "h=$(\"$0\" acquire -k job -b \"$1\" --while-pid $$) && \"$0\" run --handle \"$h\" -- echo ran";
        let script = service.scratch().dlock().arg(service.url()).wrapped_by(["/bin/sh", "-c", script]);
        let script = if user == User::Ordinary { script.unprivileged().reachable() } else { script };
        script.output().success().stdout_is("ran\n");
        eventually("the lock to be free", || (status(&service)["state"] == "free").then_some(()));
    }
    if process::is_root() {
        let ward = Ward::idle();
        let kept = taken(&service, &ward, &[]);
        let refused = under(&service, &kept).unprivileged().reachable().command(["echo", "ran"]).output();
        refused.code(77).stdout_is("").stderr_is_one_line(", belongs to another user: run the command as that user");
        // From the script.
        let script = "h=$(\"$0\" acquire -k other -b \"$1\" --while-pid $$) && \
            setpriv --reuid 65534 --clear-groups \"$0\" run --handle \"$h\" -- echo ran";
        let script = service.scratch().dlock().reachable().arg(service.url()).wrapped_by(["/bin/sh", "-c", script]);
        script.output().success().stdout_is("ran\n");
        // From another PID namespace.
        let elsewhere = under(&service, &kept).command(["echo", "ran"]);
        let elsewhere = elsewhere.wrapped_by(["unshare", "--pid", "--fork", "--mount-proc"]).output();
        elsewhere
            .code(64)
            .stdout_is("")
            .stderr_is_one_line("cannot be seen from here: run the command where that runs");
    }
}
