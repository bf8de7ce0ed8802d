//! Others use the same servers: they delete the lock's key, or replace it.

use std::time::Duration;

use super::rows;
use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::dlock::{Outcome, Running};
use crate::support::etcd::Etcd;
use crate::support::rendezvous::{boottime, eventually, eventually_within};
use crate::support::servers::{Redis, Reply};
use crate::support::zookeeper::{Acl, Kind, ZooKeeper};
use crate::world::{Column, Servers};

/// The lock's key on a redis server.
const REDIS_KEY: &str = "dlock:job";

/// The prefix of all contenders' keys in etcd.
const ETCD_PREFIX: &str = "dlock/job/";

/// The node under which ZooKeeper has the contenders' nodes.
const ZOOKEEPER_NODE: &str = "/dlock/job";

/// Text that would upset a terminal if it were printed as it is.
const EVIL: &str = "\u{0}\u{1b}[2J\r\n\u{9b}1m\u{202e}";

/// The lock's key is deleted or replaced, and nobody is told. The next renewal or the release notices; until then two
/// commands may run.
pub fn key_taken(episode: &mut Episode<'_>) {
    let holder = episode.hold(Way::Straight, &[]);
    // If nobody waits, the next contender gets the lock at once.
    if episode.coin() {
        episode.queue_some();
    }
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    let world = episode.world;
    let mut left = Vec::new();
    // Whether another contender can take the lock from now on.
    let mut is_free = true;
    // When another program's hold ends by itself.
    let mut theirs = None;
    match &world.servers {
        Servers::Etcd(etcd) => is_free = take_from_etcd(episode, etcd),
        Servers::ZooKeeper(zookeeper) => take_from_zookeeper(episode, zookeeper),
        Servers::Postgres(postgres) => theirs = Some(rows::take(episode, &**postgres)),
        Servers::Mysql(mysql) => theirs = Some(rows::take(episode, &**mysql)),
        _ => left = take_from_redis(episode),
    }
    let taken = boottime();
    let newcomers = episode.rng.usize(..=2);
    episode.come(newcomers);
    let mut allowed = vec![Ending::Lost];
    if episode.rng.u8(..4) == 0 {
        holder.let_go();
        if !is_free {
            allowed.push(Ending::Own(0));
        }
    }
    if eventually_within(ttl, || (!holder.is_alive()).then_some(())).is_none() {
        episode.violation(Invariant::EndsRight, "nobody noticed for a ttl that the lock was taken away");
        holder.let_go();
    }
    holder.died_at();
    episode.ends(holder.running, &allowed);
    let mut free = theirs.map_or(taken, |until| taken.max(until));
    for what in &left {
        free = free.max(what.look(episode));
    }
    episode.mended_at(free);
}

/// What another program left in place of the lock.
struct Left<'w> {
    redis: &'w Redis,
    dump: Reply,
    /// When it expires at the earliest; what does not expire is removed by its owner.
    until: Option<Duration>,
}

impl Left<'_> {
    /// Checks that it is still there, and removes it unless it expires; notes when it is gone.
    fn look(&self, episode: &mut Episode<'_>) -> Duration {
        let now = dump(self.redis);
        if now != self.dump && self.until.is_none_or(|until| boottime() < until) {
            episode.violation(Invariant::EndsRight, format!("what another program has put there became {now:?}"));
        }
        self.until.unwrap_or_else(|| {
            self.redis.cli(&["DEL", REDIS_KEY]);
            boottime()
        })
    }
}

fn dump(redis: &Redis) -> Reply {
    redis.call(&[b"DUMP", REDIS_KEY.as_bytes()])
}

/// Deletes or replaces the lock's key on enough servers to leave no majority.
fn take_from_redis<'w>(episode: &mut Episode<'w>) -> Vec<Left<'w>> {
    let mut servers = episode.world.redis();
    let count = episode.rng.usize(episode.world.majority()..=servers.len());
    episode.rng.shuffle(&mut servers);
    servers.truncate(count);
    let way = episode.rng.u8(..5);
    let mut left = Vec::new();
    for redis in servers {
        // Not in the same way on every server.
        let way = if way == 4 { episode.rng.u8(..4) } else { way };
        let mut until = None;
        match way {
            0 => _ = redis.cli(&["DEL", REDIS_KEY]),
            // The counter from which tokens are taken goes with it, and so does the queue.
            1 => _ = redis.cli(&["FLUSHALL"]),
            2 => {
                let (value, _) = foreign_text(episode);
                let lease = episode.ttl / 2 + episode.some_time(episode.ttl);
                until = Some(boottime() + lease);
                let lease = lease.as_millis().to_string();
                redis.call(&[b"SET", REDIS_KEY.as_bytes(), &value, b"PX", lease.as_bytes()]);
            }
            _ => {
                // In one step, since a waiter is ready to take the lock.
                let script = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], ARGV[1])";
                redis.cli(&["EVAL", script, "1", REDIS_KEY, "theirs"]);
            }
        }
        if way > 1 {
            left.push(Left { redis, dump: dump(redis), until });
        }
    }
    left
}

/// Deletes or replaces the lock's key in etcd, and returns whether another contender can take the lock then.
fn take_from_etcd(episode: &mut Episode<'_>, etcd: &Etcd) -> bool {
    let held = etcd.keys(ETCD_PREFIX).into_iter().next().expect("somebody holds the lock");
    let way = episode.rng.u8(..4);
    match way {
        0 => assert!(etcd.delete(&held.key), "it was there"),
        1 => etcd.revoke(held.lease),
        2 => {
            etcd.delete(&held.key);
            etcd.put(&held.key, &held.value, held.lease);
        }
        // It is still the first one. Without a lease it would stay forever.
        _ => etcd.put(&held.key, "theirs", 0),
    }
    way < 3
}

fn take_from_zookeeper(episode: &mut Episode<'_>, zookeeper: &ZooKeeper) {
    let first = episode.world.holder(KEY).expect("somebody holds the lock");
    let first = zookeeper.get(&format!("{ZOOKEEPER_NODE}/{first}")).expect("the holder's node");
    let session = first.ephemeral_owner;
    let mut nodes = zookeeper.ephemerals().remove(&session).expect("the session has nodes");
    match episode.rng.u8(..3) {
        0 => assert!(zookeeper.end_session(session), "the session had ended"),
        both => {
            // Each kind of foreign client sees only one of the three nodes.
            if both == 1 {
                let kept = if episode.coin() { nodes.pop_first() } else { nodes.pop_last() };
                assert!(kept.is_some() && nodes.len() == 2, "a holder has three nodes");
            }
            assert!(nodes.iter().all(|node| zookeeper.delete(node)), "they were there");
        }
    }
}

/// Text that is not dlock's own, and how it is shown.
fn foreign_text(episode: &mut Episode<'_>) -> (Vec<u8>, String) {
    let held = |what: &str| format!("held by another program{what}");
    match episode.rng.u8(..5) {
        0 => (b"worker-7".to_vec(), held(": worker-7")),
        1 => (Vec::new(), held("")),
        2 => (EVIL.into(), held(r": \u{0}\u{1b}[2J\r\n\u{9b}1m\u{202e}")),
        3 => (b"{\"v\":1,\"id\":\"\"}".to_vec(), held(": {\"v\":1,\"id\":\"\"}")),
        _ => {
            let bytes: Vec<u8> = (0..episode.rng.usize(1..40)).map(|_| episode.rng.u8(..)).collect();
            (bytes, held(": "))
        }
    }
}

/// What another program has put where the lock should be.
pub struct Obstacle<'w> {
    /// How dlock names it, in one of these ways; empty if it keeps nobody out.
    pub shown: Vec<String>,
    /// Reads what is there.
    pub look: Box<dyn Fn() -> String + 'w>,
    /// Removes it, as its owner would.
    pub remove: Box<dyn FnOnce() + 'w>,
    /// Cleans up, as its owner would, when nobody uses the lock.
    pub tidy: Box<dyn FnOnce() + 'w>,
}

/// While it is there, the lock is held for every contender, and nobody touches it.
pub fn foreign_in_the_way(episode: &mut Episode<'_>) {
    let world = episode.world;
    episode.broken();
    let obstacle = match &world.servers {
        Servers::Etcd(etcd) => etcd_obstacle(episode, etcd),
        Servers::ZooKeeper(zookeeper) => zookeeper_obstacle(episode, zookeeper),
        Servers::Postgres(postgres) => rows::obstacle(episode, &**postgres),
        Servers::Mysql(mysql) => rows::obstacle(episode, &**mysql),
        _ => redis_obstacle(episode),
    };
    let before = (obstacle.look)();
    let refused = !obstacle.shown.is_empty();
    for options in [&["-n"][..], &["-w", "0.3"]] {
        let ask = || {
            let section = episode.section(&episode.store.write());
            episode.dlock(Way::Straight).args(options).command(section).output()
        };
        // Where a majority has to answer quickly, it can give up first; that does not answer the question here.
        let gave_up = |outcome: &Outcome| {
            let gave_up = world.column == Column::Redlock && outcome.status().code() == Some(69);
            if gave_up {
                let _ = outcome.stderr();
            }
            gave_up
        };
        let outcome = eventually("an answer", || Some(ask()).filter(|outcome| !gave_up(outcome)));
        if refused {
            let (code, text) = (outcome.status().code(), outcome.stderr());
            let last = text.lines().next_back().unwrap_or_default();
            let named =
                last.starts_with("dlock: did not get 'job'") && obstacle.shown.iter().any(|how| last.contains(how));
            let clean = !text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}');
            if code != Some(75) || !named || !clean {
                episode.violation(Invariant::EndsRight, format!("not one of {:?}:\n{outcome:?}", obstacle.shown));
            }
        } else {
            episode.ended(&outcome, &[Ending::Own(0)]);
        }
    }
    let mut waiters: Vec<Running> = Vec::new();
    for _ in 0..if refused { episode.rng.usize(1..=3) } else { 0 } {
        let waiter = episode.dlock(Way::Straight).command(episode.section(&episode.store.write())).spawn();
        let line = waiter.wait_stderr("waiting for ");
        if !obstacle.shown.iter().any(|how| line.contains(how)) {
            episode.violation(Invariant::EndsRight, format!("not one of {:?}: {line}", obstacle.shown));
        }
        waiters.push(waiter);
    }
    let ttl = episode.ttl;
    episode.linger(2 * ttl);
    let after = (obstacle.look)();
    if after != before {
        episode.violation(
            Invariant::EndsRight,
            format!("what another program has put there was {before}, and is {after}"),
        );
    }
    if refused && !episode.store.starts().is_empty() {
        episode.violation(Invariant::NoOverlap, "a command ran although another program had the lock");
    }
    (obstacle.remove)();
    episode.mended();
    for waiter in waiters {
        episode.ends(waiter, &[Ending::Own(0)]);
    }
    (obstacle.tidy)();
}

/// An obstacle on one server; of several, on as many as can be spared.
fn redis_obstacle<'w>(episode: &mut Episode<'w>) -> Obstacle<'w> {
    let mut servers = episode.world.redis();
    let count = episode.rng.usize(1..=servers.len());
    episode.rng.shuffle(&mut servers);
    servers.truncate(count);
    let alike = episode.coin().then(|| redis_thing(episode));
    let mut shown = Vec::new();
    for redis in &servers {
        let (request, how) = alike.clone().unwrap_or_else(|| redis_thing(episode));
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        assert!(!matches!(redis.call(&words), Reply::Error(_)), "{request:?}");
        shown.push(how);
    }
    if count < episode.world.majority() {
        shown.clear();
    }
    let there = servers.clone();
    let look = move || {
        let each = there.iter().map(|redis| format!("{:?} for {} ms", dump(redis), redis.pttl(REDIS_KEY)));
        each.collect::<Vec<_>>().join(", ")
    };
    let remove = move || servers.iter().for_each(|redis| _ = redis.cli(&["DEL", REDIS_KEY]));
    Obstacle { shown, look: Box::new(look), remove: Box::new(remove), tidy: Box::new(|| ()) }
}

/// A request that stores something at the lock's key, and how that is shown.
fn redis_thing(episode: &mut Episode<'_>) -> (Vec<Vec<u8>>, String) {
    let others: [&[&str]; 5] =
        [&["RPUSH", "a"], &["HSET", "a", "b"], &["SADD", "a"], &["ZADD", "1", "a"], &["XADD", "*", "a", "b"]];
    let kinds = ["list", "hash", "set", "zset", "stream"];
    let which = episode.rng.usize(..2 * others.len());
    let Some((words, kind)) = others.get(which).zip(kinds.get(which)) else {
        let (value, how) = foreign_text(episode);
        return (vec![b"SET".to_vec(), REDIS_KEY.into(), value], how);
    };
    let mut request: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    request.insert(1, REDIS_KEY.into());
    (request, format!("blocked by a redis {kind} at the lock's key"))
}

/// A key without a lease or with a name that no lock has, or another program's lock.
fn etcd_obstacle<'w>(episode: &mut Episode<'_>, etcd: &'w Etcd) -> Obstacle<'w> {
    let lease = etcd.grant(60);
    let blocked = |key: &str, what: &str| format!("blocked by the key {key}, a key {what}");
    let (key, bound, value, how) = match episode.rng.u8(..5) {
        0 => ("dlock/job/config", 0, EVIL, blocked("dlock/job/config", "without a lease")),
        1 => ("dlock/job/6f", 0, "", blocked("dlock/job/6f", "without a lease")),
        2 => ("dlock/job/a-b", lease, "x", blocked("dlock/job/a-b", "that is no lock")),
        3 => ("dlock/job/", lease, EVIL, blocked("dlock/job/", "that is no lock")),
        _ => ("dlock/job/6f", lease, EVIL, r"held by another program: \u{0}\u{1b}[2J\r\n\u{9b}1m\u{202e}".to_owned()),
    };
    etcd.put(key, value, bound);
    Obstacle {
        shown: vec![how],
        look: Box::new(move || format!("{:?}", etcd.get(key))),
        remove: Box::new(move || _ = etcd.delete(key)),
        tidy: Box::new(move || etcd.revoke(lease)),
    }
}

/// Another program's lock, or a node that no session owns.
fn zookeeper_obstacle<'w>(episode: &mut Episode<'_>, zookeeper: &'w ZooKeeper) -> Obstacle<'w> {
    let [root, lock] = ["/dlock", ZOOKEEPER_NODE];
    zookeeper.create(root, "");
    zookeeper.create(lock, "");
    let (node, owner, how) = if episode.coin() {
        let mut owner = zookeeper.client();
        let names = ["aaaaaaaa11112222333344444444aaaa__lock__", "_c_00000000-1111-2222-3333-444444444444-lock-", "ex"];
        let name = format!("{lock}/{}", episode.rng.choice(names).expect("one of several"));
        let node = owner.create(&name, EVIL, Kind::EphemeralSequential, Acl::Open).expect("a node");
        (node, Some(owner), r"held by another program: \u{0}\u{1b}[2J\r\n\u{9b}1m\u{202e}".to_owned())
    } else {
        let node = format!("{lock}/left-0000000000");
        zookeeper.create(&node, EVIL);
        (node, None, "blocked by the node left-0000000000, which no session owns".to_owned())
    };
    let looked_at = node.clone();
    Obstacle {
        shown: vec![how],
        look: Box::new(move || format!("{:?}", zookeeper.get(&looked_at))),
        remove: Box::new(move || match owner {
            Some(owner) => owner.close().expect("the session ends"),
            None => assert!(zookeeper.delete(&node), "it was there"),
        }),
        // All clients leave directories alone that were there before.
        tidy: Box::new(move || {
            assert!(zookeeper.delete(lock) && zookeeper.delete(root), "nodes of others were removed");
        }),
    }
}
