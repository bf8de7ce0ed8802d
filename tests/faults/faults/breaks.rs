//! A holder is asked to stop, by one or several at once, and may be frozen meanwhile.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::failover::{fail_over, sentinels};
use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::dlock::Running;
use crate::support::process;
use crate::support::redis_sets::wait_replicated;

/// It stops, and gives the lock back when everything is gone: others never overlap with it.
pub fn asked(episode: &mut Episode<'_>) {
    let holder = episode.hold_stubbornly(Way::Straight, &["--kill-after", "300ms"]);
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    let owner = holder.owner.clone().unwrap_or_default();
    // Much shorter than its lease.
    let is_frozen = episode.coin();
    let frozen = episode.some_time(ttl / 4);
    episode.broken();
    if is_frozen {
        process::signal(holder.running.pid(), Signal::SIGSTOP);
        process::wait_stopped(holder.running.pid());
    }
    let count = episode.rng.usize(1..=2);
    let breaking: Vec<Running> = (0..count).map(|_| break_it(episode, &owner)).collect();
    if is_frozen {
        std::thread::sleep(frozen);
        process::signal(holder.running.pid(), Signal::SIGCONT);
    }
    holder.died_at();
    episode.mended();
    episode.ends(holder.running, &[Ending::Lost]);
    for breaking in breaking {
        let outcome = breaking.wait();
        // One that comes late finds the next holder.
        if !matches!(outcome.status().code(), Some(0 | 79)) {
            episode.violation(Invariant::EndsRight, format!("{outcome:?}"));
        }
        let _ = outcome.stderr();
    }
    check_told(episode, &owner);
}

/// The master is replaced while a holder is asked to stop: the request may be lost with it, and is made again. Whoever asks is
/// told if that did not help.
pub fn asked_in_a_failover(episode: &mut Episode<'_>) {
    let set = sentinels(episode.world);
    episode.ttl = Duration::from_secs(episode.rng.u64(6..=12));
    let old = set.master();
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    episode.linger(Duration::from_secs(2));
    wait_replicated(old, 2);
    let owner = holder.owner.clone().unwrap_or_default();
    let breaking = break_it(episode, &owner);
    let pause = episode.some_time(Duration::from_millis(300));
    std::thread::sleep(pause);
    let back = fail_over(episode, set, old);
    let outcome = breaking.wait();
    let _ = outcome.stderr();
    let is_told = !matches!(outcome.status().code(), Some(0 | 79));
    if is_told {
        holder.let_go();
    }
    holder.died_at();
    let stopped = if is_told { Ending::Own(0) } else { Ending::Lost };
    episode.ends(holder.running, &[Ending::Lost, stopped]);
    episode.mended();
    back();
    wait_replicated(set.master(), 2);
    set.wait_settled();
}

/// Checks that those who look at the lock now are told of the break that hit this owner.
pub(super) fn check_told(episode: &mut Episode<'_>, owner: &str) {
    let look = episode.scratch.dlock().args(["status", "--json", "--key", KEY]);
    let outcome = look.backend(episode.world.url()).output();
    let seen: Value = serde_json::from_str(&outcome.stdout()).unwrap_or_default();
    let _ = outcome.stderr();
    let broken = &seen["last_break"];
    if broken["holder_id"] != owner || broken["taken"] != false || broken["by"].as_str().is_none() {
        episode.violation(Invariant::BreaksTold, format!("{owner} was asked to stop, and told is {broken}"));
    }
}

/// `dlock break` of this owner.
pub(super) fn break_it(episode: &Episode<'_>, owner: &str) -> Running {
    episode.is_traced.set(true);
    let wait = (episode.ttl * 2 + Duration::from_secs(15)).as_secs().to_string();
    let dlock = episode.scratch.dlock().args(["break", "--key", KEY, "--owner", owner, "--wait", &wait]);
    dlock.backend(episode.world.url()).spawn()
}
