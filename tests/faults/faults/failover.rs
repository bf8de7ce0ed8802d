//! Sentinels replace the master of redis, which may or may not have the lock.

use std::time::Duration;

use crate::episode::{Ending, Episode, Way};
use crate::support::redis_sets::{RedisSentinels, wait_replicated};
use crate::support::rendezvous::boottime;
use crate::support::servers::Redis;
use crate::world::{Servers, World};

/// The new master has never heard of the lock, or missed its last renewals.
pub fn without_the_lock(episode: &mut Episode<'_>) {
    let set = sentinels(episode.world);
    episode.ttl = Duration::from_secs(episode.rng.u64(3..=8));
    let old = set.master();
    for replica in set.replicas() {
        set.servers.cut_replication(replica);
    }
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    episode.linger(Duration::from_secs(2));
    let back = fail_over(episode, set, old);
    episode.mended();
    let newcomers = episode.rng.usize(..=2);
    episode.come(newcomers);
    holder.died_at();
    episode.ends(holder.running, &[Ending::Lost]);
    back();
    for redis in &*set.servers {
        set.servers.restore_replication(redis);
    }
    wait_replicated(set.master(), 2);
    set.wait_settled();
}

/// The new master has the lock: holder and waiters go on there.
pub fn with_the_lock(episode: &mut Episode<'_>) {
    let set = sentinels(episode.world);
    episode.ttl = Duration::from_secs(episode.rng.u64(3..=12));
    let old = set.master();
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    episode.linger(Duration::from_secs(2));
    let ttl = episode.ttl;
    wait_replicated(old, 2);
    let since = boottime();
    let back = fail_over(episode, set, old);
    let quick = boottime() - since < ttl / 3;
    if episode.coin() {
        episode.linger(ttl);
    }
    if holder.is_alive() {
        episode.look_at(&holder.running);
    }
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    if quick {
        episode.could_have_kept(ending);
    }
    episode.mended();
    back();
    wait_replicated(set.master(), 2);
    set.wait_settled();
}

/// The servers under sentinels.
pub(super) fn sentinels(world: &World) -> &RedisSentinels {
    match &world.servers {
        Servers::Sentinel(set) => set,
        _ => panic!("no sentinels"),
    }
}

/// Returns once another server than `old`, which was killed or frozen or is well, is master. The result, when called,
/// brings `old` back.
pub(super) fn fail_over<'w>(
    episode: &mut Episode<'w>,
    set: &'w RedisSentinels,
    old: &'w Redis,
) -> Box<dyn FnOnce() + 'w> {
    episode.servers_fail();
    episode.broken();
    match episode.rng.u8(..3) {
        0 => {
            old.kill();
            set.wait_failover(old);
            Box::new(|| old.restart())
        }
        1 => {
            old.stop();
            set.wait_failover(old);
            Box::new(|| old.cont())
        }
        _ => {
            set.fail_over();
            Box::new(|| ())
        }
    }
}
