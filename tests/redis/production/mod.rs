/*!
Redis as it is run in production: behind sentinels and with replicas, at a local socket, as valkey; with settings that
lose locks, and in all the states in which it says no.
*/

mod other_ways;
mod refusals;
mod replicas;
mod sentinel;
mod tokens;
mod warnings;

use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use crate::secrets::{SECRET, assert_silent, encoded};
use crate::support::cluster::Cluster;
use crate::support::dlock::{Dlock, Outcome};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::{MASTER_NAME, RedisReplicas, RedisSentinels, wait_replicated};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::scene::assert_in_time;
use crate::support::scratch::Scratch;
use crate::support::servers::{Client, Port, Redis, Reply};
use crate::support::service::Gated;
use crate::support::tree::Tree;

/// The lock `k` at a server.
const KEY: &str = "dlock:k";

/// `run --key k` there.
fn run(scratch: &Scratch, url: impl AsRef<str>) -> Dlock {
    scratch.dlock().run("k").backend(url.as_ref())
}

/// Somebody who holds the lock.
#[track_caller]
fn hold(scratch: &Scratch, dlock: Dlock) -> Gated {
    let holder = Gated::spawn(scratch, dlock);
    holder.wait_held();
    holder
}

/// Fails with this code and one line with all of `parts`, and its command has not run.
#[track_caller]
fn refused(scratch: &Scratch, dlock: Dlock, code: i32, parts: &[&str]) -> Outcome {
    let outcome = dlock.command(["touch", "ran"]).output();
    outcome.code(code).stdout_is("").stderr_is_one_line("did not get k: ");
    let line = outcome.stderr();
    assert!(parts.iter().all(|part| line.contains(part)), "{line:?} lacks one of {parts:?}");
    assert!(!scratch.path("ran").exists(), "the command has run");
    outcome
}

/// Waits until the lease of the lock at `redis` has been renewed `times` more from now on, whoever renewed it.
#[track_caller]
fn wait_renewed(redis: &Redis, times: usize) {
    let monitor = redis.monitor();
    monitor.wait_until("renewals", |seen| {
        let renewals = seen.iter().filter(|words| words[0] == "EVAL" && words.get(3).is_some_and(|key| key == KEY));
        renewals.count() >= times
    });
    // What was asked last has been done; a server in trouble refuses even this.
    let _ = redis.call(&[b"PING"]);
}
