//! A lock that is to be held for a time of its own, whatever becomes of its holder.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, Way};
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually_within};

/// How long it is held: longer than any lease in an episode.
const HOLD: Duration = Duration::from_secs(8);
/// How long the next holder may take after that.
const PATIENCE: Duration = Duration::from_secs(15);

/// The holder ends or is killed early: the next one comes when the minimum hold is over, and not before.
pub fn kept(episode: &mut Episode<'_>) {
    let since = boottime();
    let holder = episode.hold(Way::Straight, &["--kill-after", "300ms", "--min-hold", "8s"]);
    episode.queue_some();
    episode.linger(Duration::from_secs(2));
    episode.broken();
    let how = episode.rng.u8(..4);
    let ending = match how {
        0 => {
            holder.let_go();
            Ending::Own(0)
        }
        1 => {
            holder.running.signal(Signal::SIGTERM);
            Ending::By(Signal::SIGTERM)
        }
        2 => {
            process::signal(holder.running.guard_pid(), Signal::SIGKILL);
            Ending::GuardKilled
        }
        _ => {
            holder.running.signal(Signal::SIGKILL);
            if !episode.world.column.has_leases() {
                // It outlives dlock there, and has inherited the lock.
                holder.let_go();
            }
            Ending::By(Signal::SIGKILL)
        }
    };
    holder.died_at();
    let over = since + HOLD;
    episode.mended_at(over.max(boottime()));
    episode.ends(holder.running, &[ending]);
    // The next one that may not run next to it.
    let next = || {
        let starts = episode.store.starts();
        let (_, first) = *starts.first()?;
        starts.iter().skip(1).find(|(_, hold)| hold.excludes(&first)).map(|(at, _)| *at)
    };
    match eventually_within(HOLD + PATIENCE, next) {
        Some(at) if at < over => {
            let early = over.saturating_sub(at);
            episode.violation(Invariant::HeldLongEnough, format!("somebody else began {early:?} before its end"));
        }
        Some(_) => {}
        None => episode.violation(Invariant::GoesOn, "nobody came after the minimum hold"),
    }
}
