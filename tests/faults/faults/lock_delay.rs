//! A lock that stays taken for longer than its command can run.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, Way};
use crate::support::rendezvous::{boottime, eventually_within};

/// How much longer.
const DELAY: Duration = Duration::from_secs(3);
/// How long the next holder may take after that.
const PATIENCE: Duration = Duration::from_secs(15);

/// dlock is killed: the next one comes when the lease and the delay are over, and not before.
pub fn kept(episode: &mut Episode<'_>) {
    let holder = episode.hold(Way::Straight, &["--kill-after", "300ms", "--lock-delay", "3s"]);
    episode.queue_some();
    episode.linger(Duration::from_secs(2));
    episode.broken();
    // The last renewal is a third of a lease old, or a little more on a busy machine.
    let over = boottime() + episode.ttl / 2 + DELAY;
    holder.running.signal(Signal::SIGKILL);
    holder.died_at();
    episode.mended_at(over.max(boottime()));
    episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
    let next = || {
        let starts = episode.store.starts();
        let (_, first) = *starts.first()?;
        starts.iter().skip(1).find(|(_, hold)| hold.excludes(&first)).map(|(at, _)| *at)
    };
    match eventually_within(episode.ttl + DELAY + PATIENCE, next) {
        Some(at) if at < over => {
            let early = over.saturating_sub(at);
            episode.violation(Invariant::HeldLongEnough, format!("somebody else began {early:?} before its end"));
        }
        Some(_) => {}
        None => episode.violation(Invariant::GoesOn, "nobody came after the delay"),
    }
}
