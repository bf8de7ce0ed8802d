/*!
What etcd alone has: keys named after leases, the queue by create revisions, watches, what other hands do to all that,
and who may use it.
*/

mod clusters;
mod credentials;
mod faults;
mod hostile;
mod modes;
mod recipe;
mod taken_away;
mod waiting;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::certificates::Tls;
use crate::support::dlock::Outcome;
use crate::support::etcd::{Entry, Etcd, EtcdOptions};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{EtcdService, Gated, Service};
use crate::support::tree::Tree;

/// What a lease is called in the name of its key.
fn key_of(lease: i64) -> String {
    format!("dlock/job/{lease:x}")
}

/// The keys of those who hold `job` or wait for it, the first in line first.
#[track_caller]
pub fn contenders(service: &EtcdService) -> Vec<Entry> {
    service.etcd.keys(&EtcdService::contenders("job"))
}

/// The URL of the etcd behind `proxy`.
pub fn behind(proxy: &Proxy) -> String {
    format!("etcd://127.0.0.1:{}", proxy.port())
}

/// What the command of `running` was told, while it runs.
#[track_caller]
fn told(gated: &Gated, name: &str) -> String {
    process::environ(gated.running.command_pid()).remove(name).unwrap_or_else(|| panic!("no {name}"))
}

/// Nothing is left, neither keys nor leases.
#[track_caller]
pub fn assert_clean(service: &EtcdService) {
    assert_eq!(service.litter(&[]), [""; 0]);
}

/// 0, and nothing said but that it waited.
#[track_caller]
pub fn assert_waited(outcome: &Outcome) {
    outcome.code(0);
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for 'job': ")), "{outcome:?}");
}

/// 79, and one line that says what was lost and why.
#[track_caller]
pub fn assert_lost(outcome: &Outcome, why: &str) {
    outcome.code(79).stderr_is_one_line(why);
    assert!(outcome.stderr().starts_with("dlock: lost 'job' at etcd://127.0.0.1:"), "{outcome:?}");
}

/// How many watches clients have open.
#[track_caller]
pub fn watchers(etcd: &Etcd) -> usize {
    etcd.metric("etcd_debugging_mvcc_watcher_total").try_into().unwrap()
}

/// Waits for a lease to be extended, where only one client does that; a moment just before it, by [`boottime`].
#[track_caller]
pub fn renewed(etcd: &Etcd) -> Duration {
    let requests = etcd.count_requests();
    let mut before = boottime();
    eventually("a renewal", || {
        let now = boottime();
        if requests.so_far().contains_key("LeaseKeepAlive") {
            return Some(before);
        }
        before = now;
        None
    })
}
