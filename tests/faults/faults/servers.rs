//! Servers are frozen, killed, restarted and emptied.

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::rendezvous::{boottime, last_until};
use crate::world::Column;

/// All servers are frozen: no command outlives its lease, and everyone goes on afterwards.
pub fn frozen(episode: &mut Episode<'_>) {
    let all = choose(episode, episode.world.size());
    frozen_for_long(episode, &all);
}

/// So many servers are frozen that the others cannot go on without them: no command outlives its lease, and everyone
/// goes on afterwards.
pub fn majority_frozen(episode: &mut Episode<'_>) {
    let some = choose(episode, episode.world.majority());
    frozen_for_long(episode, &some);
}

fn frozen_for_long(episode: &mut Episode<'_>, servers: &[usize]) {
    let holder = episode.stubborn_scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
    episode.servers_fail();
    let frozen = episode.broken();
    for &index in servers {
        world.node(index).freeze();
    }
    let silent = boottime();
    // A frozen server ends no lease. Where the servers report each lease, the earliest end is known.
    let died = if world.redis().is_empty() { holder.died_at() } else { episode.dies_in_time(&holder) };
    if died >= silent + ttl {
        let what =
            format!("the command lived for {:?} after the last servers that could renew its lease", died - silent);
        episode.violation(Invariant::DeadInTime, what);
    }
    last_until(frozen + 3 * ttl);
    for &index in servers {
        world.node(index).thaw();
    }
    episode.wait_serving();
    episode.mended();
    episode.ends(holder.running, &[Ending::Lost]);
}

/// `count` servers, at random.
fn choose(episode: &mut Episode<'_>, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..episode.world.size()).collect();
    episode.rng.shuffle(&mut all);
    all.truncate(count);
    all
}

/// All servers are killed and restarted: a short outage goes unnoticed, and in a longer one the command is stopped.
pub fn restarted(episode: &mut Episode<'_>) {
    let all = choose(episode, episode.world.size());
    killed_for_a_while(episode, &all);
}

/// So many servers are killed that the others cannot go on without them: a short outage goes unnoticed, and in a longer
/// one the command is stopped.
pub fn majority_killed(episode: &mut Episode<'_>) {
    let some = choose(episode, episode.world.majority());
    killed_for_a_while(episode, &some);
}

fn killed_for_a_while(episode: &mut Episode<'_>, servers: &[usize]) {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
    episode.servers_fail();
    let killed = episode.broken();
    for &index in servers {
        world.node(index).kill();
    }
    let outage = if episode.coin() { ttl / 6 } else { 2 * ttl };
    let outage = episode.some_time(outage);
    last_until(killed + outage);
    world.restart(servers);
    episode.wait_serving();
    episode.mended();
    let short = boottime() - killed < ttl / 4;
    // Whoever still holds it may do so for as long as it likes.
    episode.linger(ttl);
    let alive = holder.is_alive();
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    if short {
        episode.could_have_kept(ending);
    }
    if alive {
        episode.mended();
    }
}

/// A server loses its data, and with it what only this server knew.
pub fn emptied(episode: &mut Episode<'_>) {
    let world = episode.world;
    // Of three servers, two are enough to take a lock, and one of those is too few to keep it: another one was away
    // when it was taken.
    let missing = usize::from(world.column == Column::Redlock3 && episode.coin());
    let away = choose(episode, missing);
    forgets(episode, &away);
}

/// The lock is on a bare majority of the servers. When one of those is emptied, another contender finds a majority that
/// has never heard of it.
pub fn bare_majority_emptied(episode: &mut Episode<'_>) {
    let away = choose(episode, episode.world.size() - episode.world.majority());
    forgets(episode, &away);
}

/// Empties one server. The servers `away` were out of reach when the lock was taken, and are back by then.
fn forgets(episode: &mut Episode<'_>, away: &[usize]) {
    let world = episode.world;
    for &index in away {
        world.node(index).kill();
    }
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let (mut holders, others): (Vec<usize>, Vec<usize>) = (0..world.size())
        .filter(|index| !away.contains(index))
        .partition(|&index| world.redis()[index].get(&format!("dlock:{KEY}")).is_some());
    // On a busy machine not all may have answered in time. If one of a bare majority were missing, the lock would be
    // lost, which is another fault.
    let is_bare = holders.len() <= world.majority();
    if is_bare && away.is_empty() && !others.is_empty() {
        holders = others;
    }
    let which = *episode.rng.choice(&holders).expect("somebody has the lock");
    episode.servers_fail();
    episode.broken();
    world.redis()[which].restart_empty();
    if !away.is_empty() {
        world.restart(away);
    }
    episode.mended();
    episode.linger(ttl);
    let alive = holder.is_alive();
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    if world.size() > 1 && away.is_empty() {
        episode.could_have_kept(ending);
    }
    if alive {
        episode.mended();
    }
}

/// A minority of the servers is killed, and nobody notices.
pub fn minority_killed(episode: &mut Episode<'_>) {
    let count = episode.rng.usize(1..=episode.world.size() - episode.world.majority());
    let some = choose(episode, count);
    killed_unnoticed(episode, &some);
}

/// The leader is killed, and nobody notices.
pub fn leader_killed(episode: &mut Episode<'_>) {
    let leader = episode.world.leader().expect("a service with a leader");
    killed_unnoticed(episode, &[leader]);
}

/// The leader is frozen, and the others elect another one. When it comes back, it knows nothing of the renewals in
/// between: etcd before 3.4.31 and 3.5.13 may then revoke a lease that it takes for expired.
pub fn leader_frozen(episode: &mut Episode<'_>) {
    let leader = episode.world.leader().expect("a service with a leader");
    // The next holder may lose it too.
    episode.waiters_may_lose = episode.world.column == Column::Etcd;
    // How soon the others go on without it depends on their settings, and may be too late to keep the lock.
    one_frozen(episode, leader);
}

/// A follower is frozen. Nobody notices but its clients, which go to other servers.
pub fn follower_frozen(episode: &mut Episode<'_>) {
    let leader = episode.world.leader().expect("a service with a leader");
    let step = episode.rng.usize(1..episode.world.size());
    let ending = one_frozen(episode, (leader + step) % episode.world.size());
    episode.could_have_kept(ending);
}

/// Freezes one server for longer than a lease, and thaws it. Returns how the holder ended.
fn one_frozen(episode: &mut Episode<'_>, server: usize) -> Option<Ending> {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
    episode.servers_fail();
    let frozen = episode.broken();
    world.node(server).freeze();
    let longer = ttl + episode.some_time(ttl);
    last_until(frozen + longer);
    world.node(server).thaw();
    episode.wait_serving();
    episode.mended();
    // What it does on its return, it does at once.
    episode.linger(ttl);
    let alive = holder.is_alive();
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    if alive {
        episode.mended();
    }
    ending
}

fn killed_unnoticed(episode: &mut Episode<'_>, servers: &[usize]) {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
    episode.servers_fail();
    let killed = episode.broken();
    for &index in servers {
        world.node(index).kill();
    }
    // On etcd it is no more than a delay for whoever comes now. Elsewhere it may be told that nobody serves.
    if world.column == Column::Etcd {
        let newcomer = episode.contender(Way::Straight).args(["-t", "6s"]);
        episode.follow(newcomer.command(episode.section(&episode.store.write())).spawn());
    }
    last_until(killed + 2 * ttl);
    episode.mended();
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
    world.restart(servers);
}
