//! Wall clocks are wrong by an hour, and clocks run at other rates.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::failover::{fail_over, sentinels};
use crate::episode::{Ending, Episode, Way};
use crate::support::clock::{ClockShim, HOUR, SLEW};
use crate::support::process;
use crate::support::proxy::Mode;
use crate::support::redis_sets::wait_replicated;

/// A server's clock is set forward. Of a majority it is only one, and sessions do not depend on it. A single redis ends
/// the lease at once, and dlock notices at the next renewal.
pub fn server_forward(episode: &mut Episode<'_>) {
    server_steps(episode, HOUR);
}

/// A server's clock is set back, which only makes leases longer.
pub fn server_back(episode: &mut Episode<'_>) {
    server_steps(episode, -HOUR);
}

fn server_steps(episode: &mut Episode<'_>, seconds: i64) {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let which = episode.rng.usize(..episode.world.size());
    let world = episode.world;
    episode.servers_fail();
    episode.broken();
    world.node(which).clock().step(seconds);
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

/// The clocks of some or all servers run at another rate, as far as chronyd slews one, so leases end earlier than they
/// should. Then the way to the servers breaks, so that their end matters.
pub fn server_rate(episode: &mut Episode<'_>) {
    let fast = episode.rng.u8(..3) > 0;
    for server in 0..episode.world.size() {
        let rate = if fast || episode.coin() { SLEW } else { -SLEW };
        episode.world.node(server).clock().drift(rate);
    }
    let holder = episode.stubborn_scene(Way::Detour);
    episode.broken();
    episode.world.set_way(Mode::Silent);
    episode.mended();
    episode.dies_in_time(&holder);
    episode.world.set_way(Mode::Forward);
    episode.ends(holder.running, &[Ending::Lost]);
}

/// The clocks of dlock's host alone run at another rate, as far as chronyd slews them. Then dlock hears nothing any
/// more, or is frozen and its guard has to watch the clock.
pub fn client_rate(episode: &mut Episode<'_>) {
    let clock = ClockShim::new();
    clock.slew(if episode.rng.u8(..3) > 0 { -SLEW } else { SLEW });
    let dlock = episode.dlock(Way::Detour).clock(&clock);
    let holder = episode.hold_stubbornly_by(dlock);
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    let frozen = episode.coin();
    if frozen {
        process::signal(holder.running.pid(), Signal::SIGSTOP);
        process::wait_stopped(holder.running.pid());
    } else {
        episode.world.set_way(Mode::Silent);
    }
    episode.mended();
    episode.dies_in_time(&holder);
    if frozen {
        process::signal(holder.running.pid(), Signal::SIGCONT);
    }
    episode.world.set_way(Mode::Forward);
    episode.ends(holder.running, &[Ending::Lost]);
}

/// dlock's own clock jumps while it holds the lock; other contenders have other clocks.
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

/// The new master has the lock, and ends it three seconds too early.
pub fn replica_ahead(episode: &mut Episode<'_>) {
    let set = sentinels(episode.world);
    episode.ttl = Duration::from_secs(episode.rng.u64(6..=9));
    let old = set.master();
    for replica in set.replicas() {
        replica.clock().set(3);
    }
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    episode.linger(Duration::from_secs(2));
    wait_replicated(old, 2);
    let back = fail_over(episode, set, old);
    episode.mended();
    let ttl = episode.ttl;
    episode.linger(ttl);
    holder.let_go();
    holder.died_at();
    episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    back();
    wait_replicated(set.master(), 2);
    set.wait_settled();
}
