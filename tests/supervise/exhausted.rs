/*!
No room on the disk, no descriptor, no process: whichever part runs out, no command runs without a lock, no lock stays
behind, and one line says what is missing.
*/

mod address_space;
mod descriptors;
mod disk;
mod processes;

use std::time::Duration;

use crate::support::dlock::{Dlock, Outcome};
use crate::support::rendezvous::{eventually, eventually_within};
use crate::support::service::Service;

/// The lease in these tests.
const TTL: Duration = Duration::from_secs(2);

/// `dlock run` for the key `job` with a lease of [`TTL`].
fn run<S: Service>(service: &S) -> Dlock {
    service.run("job").args(["-t", "2s"])
}

/// Fails the test unless everything of a dlock that has ended is gone, its lock included.
#[track_caller]
fn assert_nothing_left<S: Service>(service: &S) {
    run(service).args(["-n"]).command(["true"]).output().success();
    eventually("the last process to go", || service.scratch().processes().is_empty().then_some(()));
    assert_no_litter(service);
}

/// What dlock leaves behind is gone when its lease expires at the latest.
#[track_caller]
fn assert_no_litter<S: Service>(service: &S) {
    assert_no_litter_but(service, &[]);
}

#[track_caller]
fn assert_no_litter_but<S: Service>(service: &S, may_stay: &[&str]) {
    let mut litter = Vec::new();
    let clean = eventually_within(2 * TTL + S::EXPIRY_GRANULARITY, || {
        litter = service.litter(&["job"]);
        litter.retain(|line| !may_stay.contains(&&**line));
        litter.is_empty().then_some(())
    });
    assert!(clean.is_some(), "{litter:?}");
}

/// Checks that nothing was run, and that one line gives the reason in the words of the contract's exit codes.
#[track_caller]
fn assert_refused(outcome: &Outcome) {
    let code = outcome.status().code();
    assert!(matches!(code, Some(69 | 73)), "{outcome:?}");
    outcome.stdout_is("").stderr_is_one_line("could not ");
    assert!(!outcome.stderr().contains("panicked"), "{outcome:?}");
}
