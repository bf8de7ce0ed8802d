//! The way to the servers breaks for the holder; everyone else reaches them.

use std::time::Duration;

use crate::episode::{Ending, Episode, Length, Way};
use crate::net;
use crate::support::proxy::Mode;
use crate::support::rendezvous::{boottime, last_until};
use crate::world::Column;

/// How long an intermittent fault lasts.
const A_WHILE: Duration = Duration::from_secs(10);

/// A lease that survives an intermittent fault, however often it strikes.
const OUTLIVES_OUTAGES: Duration = Duration::from_secs(10);

/// Packets vanish, and nothing is refused.
pub fn cut_off(episode: &mut Episode<'_>) {
    let holder = episode.stubborn_scene(Way::Detour);
    let ttl = episode.ttl;
    let ports: Vec<u16> = episode.world.proxies().iter().map(crate::support::proxy::Proxy::port).collect();
    let cut = episode.broken();
    let dropping = net::Dropping::start(&ports);
    episode.mended();
    episode.dies_in_time(&holder);
    last_until(cut + 3 * ttl);
    drop(dropping);
    // After the cut, TCP recovers only at its next retransmission, which can take as long as the cut once more.
    episode.world.set_way(Mode::Reset);
    episode.world.set_way(Mode::Forward);
    episode.ends(holder.running, &[Ending::Lost]);
}

/// The lock may be taken without the client knowing; it must not stay.
pub fn acquire_answer_lost(episode: &mut Episode<'_>) {
    let world = episode.world;
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    episode.broken();
    // It asks while the lock is held, or gets the lock and does not hear of it.
    world.set_way(Mode::DropReplies);
    if episode.coin() {
        holder.let_go();
    }
    let unheard = episode.dlock(Way::Detour).args(["-w", "5s"]).command(["false"]).spawn();
    let ttl = episode.ttl;
    episode.linger(ttl);
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
    episode.ends(unheard, &[Ending::Unavailable, Ending::Busy]);
    world.set_way(Mode::Forward);
    episode.mended();
}

/// The lease goes on at the server, but the command is stopped by what is known.
pub fn renew_answer_lost(episode: &mut Episode<'_>) {
    lost_behind(episode, Mode::DropReplies);
}

/// The command is over, so its exit code counts.
pub fn release_answer_lost(episode: &mut Episode<'_>) {
    let holder = episode.scene(Way::Detour);
    episode.broken();
    episode.world.set_way(Mode::DropReplies);
    holder.let_go();
    holder.died_at();
    episode.mended();
    episode.ends(holder.running, &[Ending::Own(0)]);
    episode.world.set_way(Mode::Forward);
}

/// Connections are refused: nobody listens.
pub fn refused(episode: &mut Episode<'_>) {
    lost_behind(episode, Mode::Refuse);
}

/// Every connection ends by a reset.
pub fn reset(episode: &mut Episode<'_>) {
    lost_behind(episode, Mode::Reset);
}

/// Connections and requests are accepted, and nothing comes back.
pub fn silent(episode: &mut Episode<'_>) {
    lost_behind(episode, Mode::Silent);
}

/// Answers come late and then not at all. A deadline measured from the answer would be as late as the answer.
pub fn late_then_silent(episode: &mut Episode<'_>) {
    if matches!(episode.world.column, Column::Postgres | Column::Mysql) {
        // A new database makes its tables in a third of that.
        episode.ttl = episode.ttl.max(Duration::from_secs(4));
    }
    let ttl = episode.ttl;
    // Not so late that it counts as lost, and later than the margin where there is time for that.
    let (late, options) = match episode.world.column {
        Column::Redlock => (episode.rng.u64(40..=80), &[][..]),
        Column::Redis | Column::Postgres | Column::Mysql => {
            (episode.rng.u64(148..=152) * ttl.as_secs(), &["--kill-after", "0"][..])
        }
        Column::ZooKeeper => (episode.rng.u64(60..=100), &[][..]),
        _ => (episode.rng.u64(90..=140), &[][..]),
    };
    let late = Duration::from_millis(late);
    let holder = episode.hold_stubbornly(Way::Detour, options);
    episode.queue_some();
    episode.broken();
    episode.world.set_way(Mode::DelayReplies(late));
    // At least one of three renewals falls into this time.
    last_until(boottime() + ttl / 2);
    episode.linger(ttl / 2);
    episode.world.set_way(Mode::Silent);
    episode.mended();
    episode.dies_in_time(&holder);
    episode.ends(holder.running, &[Ending::Lost]);
    episode.world.set_way(Mode::Forward);
}

/// Every answer comes, but takes longer than anybody can wait.
pub fn drip(episode: &mut Episode<'_>) {
    lost_behind(episode, Mode::Drip(Duration::from_secs(1)));
}

/// `mode` lasts longer than the lease.
fn lost_behind(episode: &mut Episode<'_>, mode: Mode) {
    let holder = episode.stubborn_scene(Way::Detour);
    let ttl = episode.ttl;
    let broken = episode.broken();
    episode.world.set_way(mode);
    episode.mended();
    episode.dies_in_time(&holder);
    episode.ends(holder.running, &[Ending::Lost]);
    if matches!(mode, Mode::DropReplies | Mode::Drip(_)) {
        // What was requested while it was there was done.
        episode.mended();
    }
    let how_long = episode.some_time(3 * ttl);
    last_until(broken + how_long);
    episode.world.set_way(Mode::Forward);
}

/// Answers come late, each by a different time; a lease that is long enough is never lost.
pub fn latency(episode: &mut Episode<'_>) {
    episode.ttl = OUTLIVES_OUTAGES;
    comes_and_goes(episode, A_WHILE, |episode, _| {
        // One way: a round trip takes 50 to 350 ms.
        let delay = Duration::from_millis(episode.rng.u64(25..=175));
        (Mode::Delay(delay), Duration::from_millis(400))
    });
}

/// Connected long enough to renew, and then not at all.
pub fn flapping(episode: &mut Episode<'_>) {
    let how_long = if episode.length == Length::Full {
        episode.ttl = OUTLIVES_OUTAGES;
        Duration::from_secs(600)
    } else {
        A_WHILE
    };
    comes_and_goes(episode, how_long, |episode, round| {
        let down = [Mode::Refuse, Mode::Reset, Mode::Silent, Mode::DropReplies, Mode::Hold];
        let mode = if round % 2 == 0 { *episode.rng.choice(&down).expect("one of several") } else { Mode::Forward };
        (mode, Duration::from_secs(1))
    });
}

/// Applies what `next` returns, one after the other and each for some time, for this long.
fn comes_and_goes(
    episode: &mut Episode<'_>,
    how_long: Duration,
    mut next: impl FnMut(&mut Episode<'_>, u32) -> (Mode, Duration),
) {
    let holder = episode.hold(Way::Detour, &[]);
    episode.queue_some();
    let begin = boottime();
    let mut until = begin;
    let mut round = 0;
    while until - begin < how_long && holder.is_alive() {
        let (mode, pause) = next(episode, round);
        episode.broken();
        episode.world.set_way(mode);
        until = boottime() + pause;
        last_until(until);
        round += 1;
    }
    episode.world.set_way(Mode::Forward);
    if holder.is_alive() {
        episode.look_at(&holder.running);
    }
    holder.let_go();
    holder.died_at();
    episode.mended();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
}
