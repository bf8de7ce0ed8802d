//! Wall clocks are wrong by an hour.

use crate::episode::{Ending, Episode, Way};
use crate::support::clock::{ClockShim, HOUR};
use crate::world::Servers;

/// A server's clock is set forward: of a majority it is one, and a session does not go by it. A single redis ends the
/// lease at once, and dlock notices at the next renewal.
pub fn server_forward(episode: &mut Episode<'_>) {
    server_steps(episode, HOUR);
}

/// Set back, it only makes leases longer.
pub fn server_back(episode: &mut Episode<'_>) {
    server_steps(episode, -HOUR);
}

fn server_steps(episode: &mut Episode<'_>, seconds: i64) {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let which = episode.rng.usize(..episode.world.size());
    let world = episode.world;
    let clock: &ClockShim = match &world.servers {
        Servers::ZooKeeper(zookeeper) => zookeeper.server(which).clock(),
        _ => world.redis()[which].clock(),
    };
    episode.broken();
    clock.step(seconds);
    episode.mended();
    episode.linger(ttl);
    let alive = holder.is_alive();
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
    if alive {
        episode.mended();
    }
}

/// dlock's own clock jumps while it holds the lock; others have other clocks.
pub fn client(episode: &mut Episode<'_>) {
    let clock = ClockShim::new();
    clock.set(episode.rng.choice([-HOUR, 0, HOUR]).unwrap_or(0));
    let dlock = episode.dlock(Way::Straight).clock(&clock);
    let holder = episode.hold_by(dlock);
    episode.queue_some();
    let ttl = episode.ttl;
    for _ in 0..episode.rng.u32(1..=3) {
        episode.linger(ttl / 2);
        episode.broken();
        clock.set(episode.rng.choice([-HOUR, 0, HOUR]).unwrap_or(0));
    }
    episode.linger(ttl);
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
    episode.mended();
}
