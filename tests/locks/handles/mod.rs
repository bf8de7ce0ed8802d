//! Locks that outlive the process that took them: `acquire`, `renew`, `release` and `run --handle`, on every backend that has
//! them.

mod credentials;
mod refused;
mod releasing;
mod running;
mod shells;
mod taking;

use std::ffi::OsString;

use serde_json::Value;

use crate::support::backends::{on_every_backend_with_handles, on_redis_and_etcd, on_variant};
use crate::support::dlock::Dlock;
use crate::support::service::Service;

/// `dlock acquire` of this key at this service, for so long.
pub(super) fn acquire<S: Service>(service: &S, key: &str, ttl: &str) -> Dlock {
    let dlock = service.scratch().dlock().args(["acquire", "--key", key, "--ttl", ttl]);
    dlock.backend(service.url()).args(service.options())
}

/// Takes a lock that is free; returns its handle.
#[track_caller]
pub(super) fn taken<S: Service>(service: &S, key: &str, ttl: &str) -> String {
    let outcome = acquire(service, key, ttl).output();
    outcome.success();
    let handle = outcome.stdout().trim_end().to_owned();
    assert!(handle.starts_with("dlock1_") && handle.len() <= 2048, "{handle}");
    assert!(handle.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{handle}");
    handle
}

/// `dlock renew` or `dlock release` of this handle.
pub(super) fn by<S: Service>(service: &S, what: &str, handle: &str) -> Dlock {
    service.scratch().dlock().args([what, handle]).args(options(service))
}

/// `dlock run --handle HANDLE`.
pub(super) fn run_by<S: Service>(service: &S, handle: &str) -> Dlock {
    service.scratch().dlock().args(["run", "--handle", handle]).args(options(service))
}

/// The options that a connection to the service needs: not what a handle says.
pub(super) fn options<S: Service>(service: &S) -> Vec<OsString> {
    service.options()
}

/// What `dlock status` says of the lock.
#[track_caller]
pub(super) fn status<S: Service>(service: &S, key: &str) -> Value {
    let look = service.scratch().dlock().args(["status", "--json", "--key", key]).backend(service.url());
    serde_json::from_str(&look.args(service.options()).output().stdout()).unwrap()
}

/// Waits until the lock is free, as its lease ends.
#[track_caller]
pub(super) fn wait_free<S: Service>(service: &S, key: &str) {
    crate::support::rendezvous::eventually("the lock to be free", || {
        (status(service, key)["state"] == "free").then_some(())
    });
}

/// Waits until nothing is left at the service but the counters of these locks; a server may take a moment to see that a
/// process has ended.
#[track_caller]
pub(super) fn nothing_is_left<S: Service>(service: &S, keys: &[&str]) {
    crate::support::rendezvous::eventually("nothing to be left", || service.litter(keys).is_empty().then_some(()));
}

on_every_backend_with_handles! {
    a_lock_goes_through_several_processes_and_leaves_nothing
    every_row_of_what_a_release_finds
    a_command_whose_lock_is_taken_away_is_stopped;
    a_renewal_extends_the_lease_and_never_makes_a_lock_that_is_gone
}

on_redis_and_etcd! {
    a_lock_that_is_held_by_its_handle_is_shown_as_one
    what_was_acquired_is_told_as_a_document
    a_handle_that_nobody_could_read_is_not_taken
    a_signal_during_the_wait_leaves_nothing_behind
    a_lock_whose_own_handle_is_in_the_environment_is_not_waited_for
    two_releases_at_once_are_both_a_success
    a_release_waits_for_the_guard_that_still_stops_a_job
    a_release_waits_for_a_run_that_is_being_stopped
    a_release_waits_for_a_run_that_was_told_to_end
    a_command_runs_under_a_handle_and_the_lock_stays_held
    a_command_whose_lock_is_gone_is_not_started
    a_command_is_kept_alive_beyond_the_lease
}

on_variant! { sentinel: redis_services::SentinelService {
    a_lock_goes_through_several_processes_and_leaves_nothing
    a_renewal_extends_the_lease_and_never_makes_a_lock_that_is_gone
    every_row_of_what_a_release_finds
    a_command_whose_lock_is_taken_away_is_stopped
} }

use releasing::{
    a_release_waits_for_a_run_that_is_being_stopped, a_release_waits_for_a_run_that_was_told_to_end,
    a_release_waits_for_the_guard_that_still_stops_a_job, every_row_of_what_a_release_finds,
    two_releases_at_once_are_both_a_success,
};
use running::{
    a_command_is_kept_alive_beyond_the_lease, a_command_runs_under_a_handle_and_the_lock_stays_held,
    a_command_whose_lock_is_gone_is_not_started, a_command_whose_lock_is_taken_away_is_stopped,
};
use taking::{
    a_handle_that_nobody_could_read_is_not_taken, a_lock_goes_through_several_processes_and_leaves_nothing,
    a_lock_that_is_held_by_its_handle_is_shown_as_one, a_lock_whose_own_handle_is_in_the_environment_is_not_waited_for,
    a_renewal_extends_the_lease_and_never_makes_a_lock_that_is_gone, a_signal_during_the_wait_leaves_nothing_behind,
    what_was_acquired_is_told_as_a_document,
};
