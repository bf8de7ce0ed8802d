//! A lock that is held is refused, at once or after a wait, in one line.

use std::process::Command;
use std::time::Duration;

use crate::support::dlock::Dlock;
use crate::support::service::{Gated, Service};

/// What `program` prints, without the end of the line.
fn printed_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub(super) fn a_second_run_is_refused_in_one_line_that_says_who_holds_it<S: Service>(service: &S) {
    let holder = service.run("job").args(["--reason", "nightly\u{1b}[2J backup"]);
    let holder = Gated::spawn(service.scratch(), holder);
    holder.wait_held();
    let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("did not get 'job': held by ");
    let line = refused.stderr();
    let who =
        format!("{}@{}, pid {} (sh), since 2", printed_by("id", &["-un"]), printed_by("uname", &["-n"]), holder.pid());
    assert!(line.contains(&who), "{line:?} lacks {who:?}");
    // Whatever a holder says about itself, it cannot upset the terminal of whoever reads it.
    assert!(line.contains("reason: nightly\\u{1b}[2J backup") && !line.contains('\u{1b}'), "{line:?}");
    assert!(!line.contains("echo held"), "arguments are nobody's business: {line:?}");
    holder.let_go().success();
    service.assert_free("job");
}

pub(super) fn the_conflict_code_is_the_users_choice<S: Service>(service: &S) {
    let holder = service.hold("job");
    let refused = |options: &[&str]| service.run("job").args(options).command(["echo", "overlap"]).output();
    for code in [3, 0, 255] {
        let outcome = refused(&["-n", "-E", &code.to_string()]);
        outcome.code(code).stdout_is("").stderr_is_one_line("did not get 'job'");
    }
    refused(&["-w", "0.05", "-E", "4"]).code(4).stdout_is("").stderr_ends_with_line("did not get 'job'");
    refused(&["-w", "0.05", "--conflict-exit-code", "0"])
        .code(0)
        .stdout_is("")
        .stderr_ends_with_line("did not get 'job'");
    let inherited = service.run("job").arg("-n").env("DLOCK_CONFLICT_EXIT_CODE", "5").command(["true"]).output();
    inherited.code(5).stderr_is_one_line("did not get 'job'");
    holder.let_go().success();
    // Only a lock that was not acquired has this exit code.
    service.run("job").args(["-n", "-E", "3"]).shell("exit 75").output().code(75).quiet();
}

pub(super) fn a_refusal_is_silent_with_q<S: Service>(service: &S) {
    let holder = service.hold("job");
    for options in [["-q", "-n", "-E75"], ["-q", "-w", "0.05"]] {
        service.run("job").args(options).command(["echo", "overlap"]).output().code(75).stdout_is("").quiet();
    }
    holder.let_go().success();
}

pub(super) fn a_wait_that_runs_out_is_a_refusal<S: Service>(service: &S) {
    let holder = service.hold("job");
    let patience = Duration::from_millis(300);
    let refused = service.run("job").args(["-w", "0.3"]).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_ends_with_line("did not get 'job' within 300ms: held by ");
    assert!(refused.stderr().contains("; see dlock status --backend "), "{refused:?}");
    assert!(refused.elapsed() >= patience, "{refused:?}");
    assert!(refused.elapsed() < patience + Duration::from_secs(5), "{refused:?}");
    assert_eq!(service.queued("job"), 0, "who gave up must not stand in the way of others");
    service.assert_held("job");
    holder.let_go().success();
    service.assert_free("job");
}

pub(super) fn a_wait_of_0_does_not_wait<S: Service>(service: &S) {
    let holder = service.hold("job");
    for options in [["--wait=0"], ["-w0s"]] {
        let refused = service.run("job").args(options).command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line("did not get 'job': held by ");
    }
    assert_eq!(service.queued("job"), 0);
    holder.let_go().success();
    service.run("job").arg("-w0").command(["true"]).output().success();
}

pub(super) fn flags_beat_the_environment_across_wait_and_nonblock<S: Service>(service: &S) {
    let holder = service.hold("job");
    let waiter = service.run("job").env("DLOCK_NONBLOCK", "1").args(["-q", "-w", "60"]);
    let waiter = Gated::spawn(service.scratch(), waiter);
    service.wait_queued("job", 1);
    let refused = |dlock: Dlock| dlock.command(["echo", "overlap"]).output();
    let n_over_wait = refused(service.run("job").env("DLOCK_WAIT", "60").arg("-n"));
    n_over_wait.code(75).stdout_is("").stderr_is_one_line("did not get 'job': ");
    let n_alone = refused(service.run("job").env("DLOCK_NONBLOCK", "1"));
    n_alone.code(75).stdout_is("").stderr_is_one_line("did not get 'job': ");
    let wait_alone = refused(service.run("job").env("DLOCK_WAIT", "0.05"));
    wait_alone.code(75).stdout_is("").stderr_ends_with_line("did not get 'job' within 50ms: ");
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}
