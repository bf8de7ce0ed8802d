//! Giving a lock back by its handle: every row of the table of what is found.

use crate::handles::{by, nothing_is_left, taken, wait_free};
use crate::support::service::Service;

/// Whether the service tells that others have held a lock which is free again.
fn tells_who_was_last<S: Service>() -> bool {
    matches!(S::KIND, "redis" | "postgres" | "mysql")
}

pub(super) fn every_row_of_what_a_release_finds<S: Service>(service: &S) {
    const NOT_HELD: &str = "job was not held any more: it was released before or taken away, or its lease had ended";
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
    lost.code(79).stdout_is("").stderr_is_one_line("lost job: held by ");
    assert!(lost.stderr().contains(&format!("pid {} (sh)", holder.pid())), "{lost:?}");
    by(service, "release", &handle).arg("-q").output().code(79).stderr_is_one_line("lost job: held by ");
    service.assert_held("job");
    holder.let_go().success();
    // Nobody's, but somebody had it since.
    let outcome = by(service, "release", &handle).output();
    if tells_who_was_last::<S>() {
        outcome.code(79).stderr_is_one_line("lost job: its lease ended, and others have held it since");
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
