/*!
Too little memory and too few processes from the start: no command runs, and one line says what is missing, in words
that tell users what to change.
*/

use crate::support::backends::{User, on_file_and_redis};
use crate::support::dlock::Outcome;
use crate::support::service::Service;

on_file_and_redis! {
    a_small_address_space_is_told_in_one_line
    a_limit_of_processes_is_told_as_a_reason
    a_small_stack_is_enough
}

/// The step between two address space limits that are tried.
const STEP: u64 = 256 << 10;

/// In every address space from one in which dlock can just be loaded to one in which it works.
fn a_small_address_space_is_told_in_one_line<S: Service>(service: &S) {
    let loads = |&size: &u64| {
        let version = service.scratch().dlock().arg("--version").limit(libc::RLIMIT_AS, size).output();
        let _ = version.stderr();
        version.status().code() == Some(0)
    };
    let least = (1..1000).map(|steps| steps * 4 * STEP).find(loads).expect("a size in which it can be loaded");
    let (mut size, mut enough) = (least - 4 * STEP, 0);
    while enough < 3 {
        size += STEP;
        assert!(size < least + (64 << 20), "that much is not enough");
        let dlock = service.run("job").args(["-n", "-t", "2s"]).limit(libc::RLIMIT_AS, size);
        let outcome = dlock.command(["true"]).output();
        if outcome.status().code() == Some(0) {
            outcome.quiet();
            enough += 1;
        } else if outcome.stderr().contains("dlock: ") && !outcome.stderr().contains("shared libraries") {
            assert_refused(&outcome);
        }
    }
}

fn a_limit_of_processes_is_told_as_a_reason<S: Service>(service: &S) {
    let (mut processes, mut refused) = (0, 0);
    loop {
        processes += 1;
        assert!(processes < 16, "that many processes are not enough");
        // In a user namespace of its own, no other processes count against the limit, and these count nowhere else.
        let limit = format!("--nproc={processes}");
        let dlock = User::Ordinary.run(service, "job").args(["-n", "-t", "2s"]).command(["true"]);
        let outcome = dlock.wrapped_by(["unshare", "-r", "prlimit", &limit]).output();
        if outcome.status().code() == Some(0) {
            break;
        }
        assert_refused(&outcome);
        let told = outcome.stderr().to_lowercase();
        assert!(!told.contains("try again") && !told.contains("temporarily unavailable"), "advice: {told}");
        assert!(told.contains("process") || told.contains("thread"), "what is missing? {told}");
        refused += 1;
    }
    assert!(refused > 0, "one process was enough");
}

#[track_caller]
fn assert_refused(outcome: &Outcome) {
    outcome.code(69).stdout_is("").stderr_is_one_line("could not ");
    assert!(!outcome.stderr().contains("panicked"), "{outcome:?}");
}

/// With as little stack as a shell can leave, which the command gets as it is.
fn a_small_stack_is_enough<S: Service>(service: &S) {
    let run = service.run("job").args(["--ttl", "5s"]).limit(libc::RLIMIT_STACK, 64 << 10);
    run.shell("ulimit -s; exit 3").output().code(3).quiet().stdout_is("64\n");
    let status = service.scratch().dlock().args(["status", "-k", "job"]).backend(service.url());
    status.limit(libc::RLIMIT_STACK, 64 << 10).output().code(0).stderr();
}
