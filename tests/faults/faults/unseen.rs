//! Processes that cannot be listed or are not what they seem, and combinations of faults that dlock survives one by
//! one.

use nix::sys::signal::Signal;

use super::storms;
use crate::episode::{Ending, Episode, Invariant, Way};
use crate::support::process;
use crate::support::programs::sh;
use crate::support::rendezvous::Fifo;

/// One of these faults, at random.
pub fn unseen(episode: &mut Episode<'_>) {
    if episode.coin() { other_namespace(episode) } else { guard_killed_without_descriptors(episode) }
}

/// Two faults at once.
pub fn two_at_once(episode: &mut Episode<'_>) {
    match episode.rng.u8(..if episode.world.column.has_leases() { 3 } else { 2 }) {
        0 => guard_killed_without_descriptors(episode),
        1 => storms::guard_killed(episode),
        _ => storms::silent(episode),
    }
}

/// With the `/proc` of another PID namespace nothing is acquired, and no process is touched: the witness would notice.
fn other_namespace(episode: &mut Episode<'_>) {
    let holder = episode.hold(Way::Straight, &[]);
    for _ in 0..3 {
        episode.broken();
        let dlock = episode.dlock(Way::Straight).arg("-n").command(["echo", "ran"]);
        let outcome = dlock.wrapped_by(["unshare", "-rpf"]).output();
        let stderr = outcome.stderr();
        if outcome.status().code() != Some(69) || stderr.lines().count() != 1 || !stderr.contains("/proc") {
            episode.violation(Invariant::EndsRight, format!("not refused:\n{outcome:?}"));
        }
    }
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
    episode.mended();
}

/// Neither the command nor a process in its own session is left when the next holder begins.
fn guard_killed_without_descriptors(episode: &mut Episode<'_>) {
    // A majority is enough for a run, and one more slow answer can be too much for it.
    let spare = if episode.world.column.is_redlock() { 2 } else { 0 };
    let limit = fewest(episode) + spare + episode.rng.u64(..4);
    let mut words = Fifo::new(episode.scratch.path("words"));
    let deaf = |name: &str| format!("trap '' TERM; {}; exec sleep 1000", words.say(&format!("{name}:$$")));
    let work = format!("(setsid {} &); {} & wait", sh(&deaf("away")), sh(&deaf("child")));
    // The command may have more than dlock.
    let mut command: Vec<std::ffi::OsString> = ["prlimit", "--nofile=64:64"].map(Into::into).into();
    command.extend(episode.section(&work));
    let dlock = episode.dlock(Way::Straight).args(["--kill-after", "300ms"]).command(command);
    let holder = episode.hold_as_told(dlock.wrapped_by(descriptors(limit)));
    let left = [words.word(), words.word()];
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    let guard = holder.running.guard_pid();
    episode.broken();
    process::signal(guard, Signal::SIGKILL);
    process::wait_gone(holder.running.pid());
    let left = left.map(|word| word.split_once(':').and_then(|(_, pid)| pid.parse().ok()).unwrap_or(0));
    if left.iter().any(|&pid| process::is_alive(pid)) {
        episode.violation(
            Invariant::NoOverlap,
            format!("with {limit} descriptors something is left when dlock has ended"),
        );
        for pid in left {
            process::signal(pid, Signal::SIGKILL);
        }
    }
    holder.died_at();
    episode.mended();
    episode.ends(holder.running, &[Ending::GuardKilled]);
}

/// The wrapper that starts dlock with this limit on descriptors.
fn descriptors(limit: u64) -> [String; 2] {
    ["prlimit".into(), format!("--nofile={limit}:64")]
}

/// The smallest number of descriptors with which a run succeeds.
fn fewest(episode: &Episode<'_>) -> u64 {
    let is_enough = |limit: u64| {
        let dlock = episode.dlock(Way::Straight).args(["-w", "10"]).command(["true"]);
        let outcome = dlock.wrapped_by(descriptors(limit)).output();
        let _ = outcome.stderr();
        outcome.status().code() == Some(0)
    };
    let (mut too_few, mut enough) = (3, 64);
    while too_few + 1 < enough {
        let middle = u64::midpoint(too_few, enough);
        if is_enough(middle) { enough = middle } else { too_few = middle }
    }
    enough
}
