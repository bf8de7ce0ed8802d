//! Servers are frozen, killed, restarted and emptied.

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::rendezvous::{boottime, last_until};
use crate::world::Column;

/// No command outlives it, and everybody goes on afterwards.
pub fn frozen(episode: &mut Episode<'_>) {
    let all = choose(episode, episode.world.size());
    frozen_for_long(episode, &all);
}

/// The same of so many that the others cannot go on without them.
pub fn majority_frozen(episode: &mut Episode<'_>) {
    let some = choose(episode, episode.world.majority());
    frozen_for_long(episode, &some);
}

fn frozen_for_long(episode: &mut Episode<'_>, servers: &[usize]) {
    let holder = episode.stubborn_scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
    let frozen = episode.broken();
    for &index in servers {
        world.node(index).freeze();
    }
    let silent = boottime();
    // At a frozen server no lease ends; with leases that are told of, it is known when they could.
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

/// So many servers, at random.
fn choose(episode: &mut Episode<'_>, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..episode.world.size()).collect();
    episode.rng.shuffle(&mut all);
    all.truncate(count);
    all
}

/// A short outage goes unnoticed; in a longer one the command ends.
pub fn restarted(episode: &mut Episode<'_>) {
    let all = choose(episode, episode.world.size());
    killed_for_a_while(episode, &all);
}

/// The same of so many that the others cannot go on without them.
pub fn majority_killed(episode: &mut Episode<'_>) {
    let some = choose(episode, episode.world.majority());
    killed_for_a_while(episode, &some);
}

fn killed_for_a_while(episode: &mut Episode<'_>, servers: &[usize]) {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
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

/// What only this server knew is forgotten.
pub fn emptied(episode: &mut Episode<'_>) {
    let world = episode.world;
    // Of three, two are enough to have a lock, and one of those too few to keep it: another one was away when it was taken.
    let missing = usize::from(world.column == Column::Redlock3 && episode.coin());
    let away = choose(episode, missing);
    forgets(episode, &away);
}

/// So few have the lock that without one of them somebody else finds a majority that has never heard of it.
pub fn bare_majority_emptied(episode: &mut Episode<'_>) {
    let away = choose(episode, episode.world.size() - episode.world.majority());
    forgets(episode, &away);
}

/// One server forgets what it knows; these were away when the lock was taken, and are back then.
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
    // On a busy machine not all may have answered in time. Without one of a bare majority it would not be held any more,
    // which is another fault.
    let is_bare = holders.len() <= world.majority();
    if is_bare && away.is_empty() && !others.is_empty() {
        holders = others;
    }
    let which = *episode.rng.choice(&holders).expect("somebody has the lock");
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

/// Nobody notices.
pub fn minority_killed(episode: &mut Episode<'_>) {
    let count = episode.rng.usize(1..=episode.world.size() - episode.world.majority());
    let some = choose(episode, count);
    killed_unnoticed(episode, &some);
}

/// Nobody notices either.
pub fn leader_killed(episode: &mut Episode<'_>) {
    let leader = episode.world.leader().expect("a service with a leader");
    killed_unnoticed(episode, &[leader]);
}

/// The others choose another leader. When this one comes back, it knows nothing of what was renewed meanwhile: before
/// 3.4.31 and 3.5.13 that of etcd may then revoke what it takes for ended.
pub fn leader_frozen(episode: &mut Episode<'_>) {
    let leader = episode.world.leader().expect("a service with a leader");
    // Whoever has it by then may lose it too.
    episode.waiters_may_lose = episode.world.column == Column::Etcd;
    // How soon the others do without it is a matter of their settings, and may be too late to keep the lock.
    one_frozen(episode, leader);
}

/// Nobody notices but those who are served by it, who go elsewhere.
pub fn follower_frozen(episode: &mut Episode<'_>) {
    let leader = episode.world.leader().expect("a service with a leader");
    let step = episode.rng.usize(1..episode.world.size());
    let ending = one_frozen(episode, (leader + step) % episode.world.size());
    episode.could_have_kept(ending);
}

/// One server alone stands still for longer than a lease, and goes on; how the holder ended.
fn one_frozen(episode: &mut Episode<'_>, server: usize) -> Option<Ending> {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let world = episode.world;
    let frozen = episode.broken();
    world.node(server).freeze();
    let longer = ttl + episode.some_time(ttl);
    last_until(frozen + longer);
    world.node(server).thaw();
    episode.wait_serving();
    episode.mended();
    // What it does when it is back, it does at once.
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
    let killed = episode.broken();
    for &index in servers {
        world.node(index).kill();
    }
    last_until(killed + 2 * ttl);
    episode.mended();
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
    world.restart(servers);
}
