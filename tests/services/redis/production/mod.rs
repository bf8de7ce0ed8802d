/*!
Redis as it is run in production: behind sentinels and with replicas, at a local socket, as valkey; with settings that
lose locks, and in every state in which it refuses requests.
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

use crate::cli::secrets::{SECRET, assert_silent, encoded};
use crate::support::cluster::Cluster;
use crate::support::dlock::{Dlock, Outcome};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::{MASTER_NAME, RedisReplicas, RedisSentinels, wait_replicated};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::scene::assert_in_time;
use crate::support::scratch::Scratch;
use crate::support::servers::{Client, Port, Redis, Reply, runs_script};
use crate::support::service::Gated;
use crate::support::tree::Tree;

/// The key of the lock `k`.
const KEY: &str = "dlock:k";

/// `dlock run --key k` at `url`.
fn run(scratch: &Scratch, url: impl AsRef<str>) -> Dlock {
    scratch.dlock().run("k").backend(url.as_ref())
}

/// Starts a holder and waits until it holds the lock.
#[track_caller]
fn hold(scratch: &Scratch, dlock: Dlock) -> Gated {
    let holder = Gated::spawn(scratch, dlock);
    holder.wait_held();
    holder
}

/// Asserts that dlock fails with this code and one line that contains all of `parts`, and does not run its command.
#[track_caller]
fn refused(scratch: &Scratch, dlock: Dlock, code: i32, parts: &[&str]) -> Outcome {
    let outcome = dlock.command(["touch", "ran"]).output();
    outcome.code(code).stdout_is("").stderr_is_one_line("did not get 'k': ");
    let line = outcome.stderr();
    assert!(parts.iter().all(|part| line.contains(part)), "{line:?} lacks one of {parts:?}");
    assert!(!scratch.path("ran").exists(), "the command has run");
    outcome
}

/// Waits for this many further renewals of the lock at `redis`, by any holder.
#[track_caller]
fn wait_renewed(redis: &Redis, times: usize) {
    let monitor = redis.monitor();
    monitor.wait_until("renewals", |seen| {
        let renewals = seen.iter().filter(|words| runs_script(words) && words.get(3).is_some_and(|key| key == KEY));
        renewals.count() >= times
    });
    // Answered after the last request was executed. A server in trouble refuses it, which does not matter.
    let _ = redis.call(&[b"PING"]);
}
