//! What happens to redis servers while they run: administrators, memory, and disks.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::servers::{Client, Port, Redis, Reply};

/// The servers forget all scripts, on which nothing may depend.
pub fn script_flush(episode: &mut Episode<'_>) {
    again_and_again(episode, |episode, redis| {
        let how = if episode.coin() { "SYNC" } else { "ASYNC" };
        redis.cli(&["SCRIPT", "FLUSH", how]);
    });
}

/// All connections of holders and waiters are closed by the server.
pub fn client_kill(episode: &mut Episode<'_>) {
    again_and_again(episode, |_, redis| kill_clients(redis));
}

/// Closes the connections of all dlocks.
fn kill_clients(redis: &Redis) {
    for client in redis.clients() {
        let id = client.split(' ').find_map(|word| word.strip_prefix("id=")).expect("a client has an id");
        // It may have gone already.
        redis.call(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()]);
    }
}

/// Servers have as many clients as they may have, and dlocks are not among them any more.
pub fn full(episode: &mut Episode<'_>) {
    says_no(episode, |_, redis| {
        redis.cli(&["CONFIG", "SET", "maxclients", "1"]);
        kill_clients(redis);
        move || _ = redis.cli(&["CONFIG", "SET", "maxclients", "10000"])
    });
}

/// Does `harm` to some of the servers several times, also during the release; nobody notices.
fn again_and_again<'w>(episode: &mut Episode<'w>, harm: impl Fn(&mut Episode<'w>, &'w Redis)) {
    let (servers, _) = some_servers(episode);
    episode.servers_fail();
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    let ttl = episode.ttl;
    let (pause, times) = if episode.coin() { (ttl, 4) } else { (ttl / 20, 20) };
    for _ in 0..episode.rng.u32(1..=times) {
        episode.linger(pause);
        episode.broken();
        for redis in &servers {
            harm(episode, redis);
        }
        if !holder.is_alive() {
            break;
        }
    }
    episode.look_at(&holder.running);
    holder.let_go();
    if episode.coin() {
        for redis in &servers {
            harm(episode, redis);
        }
    }
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
    episode.mended();
}

/// Servers refuse writes, having been made replicas or having too few of them.
pub fn readonly(episode: &mut Episode<'_>) {
    let replica = episode.coin();
    says_no(episode, |_, redis| {
        // Nobody listens there.
        let master = replica.then(Port::reserve);
        match &master {
            Some(master) => _ = redis.cli(&["REPLICAOF", "127.0.0.1", &master.number().to_string()]),
            None => _ = redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        }
        move || {
            match master {
                Some(_) => redis.cli(&["REPLICAOF", "NO", "ONE"]),
                None => redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
            };
        }
    });
}

/// Servers refuse writes because they cannot save.
pub fn misconf(episode: &mut Episode<'_>) {
    says_no(episode, |_, redis| {
        let directory = redis.socket().parent().expect("a socket is in a directory").to_owned();
        redis.cli(&["CONFIG", "SET", "save", "3600 1"]);
        allow(&directory, 0o555);
        save(redis, "err");
        move || {
            allow(&directory, 0o755);
            save(redis, "ok");
            redis.cli(&["CONFIG", "SET", "save", ""]);
        }
    });
}

fn allow(directory: &Path, mode: u32) {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(mode)).expect("the directory is ours");
}

/// Makes `redis` save until that ends with this status.
fn save(redis: &Redis, status: &str) {
    eventually("the end of a save", || {
        let _ = redis.call(&[b"BGSAVE"]);
        redis.cli(&["INFO", "persistence"]).contains(&format!("rdb_last_bgsave_status:{status}")).then_some(())
    });
}

/// A restarted server takes long to load its data.
pub fn loading(episode: &mut Episode<'_>) {
    thread::scope(|scope| {
        says_no(episode, |episode, redis| {
            fill_for_loading(episode, redis);
            redis.configure("key-load-delay 20000\nloading-process-events-interval-bytes 1024\nrdbcompression no\n");
            redis.kill();
            // It returns once the data is there.
            let loading = scope.spawn(|| redis.restart());
            eventually("the server to load", || {
                let mut client = Client::connect(redis.port()).ok()?;
                matches!(client.call(&[b"PING"]), Ok(Reply::Error(error)) if error.starts_with("LOADING")).then_some(())
            });
            move || {
                let mut client = Client::connect(redis.port()).expect("it takes connections");
                let quick = client.call(&[b"CONFIG", b"SET", b"key-load-delay", b"0"]).expect("an answer");
                assert_eq!(quick.text(), "OK");
                loading.join().expect("the server is there again");
                redis.configure("");
                for number in 0..FILLERS {
                    redis.cli(&["DEL", &filler(number)]);
                }
            }
        });
    });
}

/// This many keys take six seconds to load, unless interrupted.
const FILLERS: usize = 300;

fn filler(number: usize) -> String {
    format!("filler-{number}")
}

/// Stores much in what the server reads first at startup: from what follows, it takes a thousand commands at a time
/// before it looks at its clients.
fn fill_for_loading(episode: &mut Episode<'_>, redis: &Redis) {
    let value: String = (0..2000).map(|_| episode.rng.alphanumeric()).collect();
    let names: Vec<String> = (0..FILLERS).map(filler).collect();
    let words: Vec<&str> =
        std::iter::once("MSET").chain(names.iter().flat_map(|name| [name.as_str(), value.as_str()])).collect();
    redis.cli(&words);
    redis.cli(&["BGREWRITEAOF"]);
    eventually("the data to be written anew", || {
        let about = redis.cli(&["INFO", "persistence"]);
        let done = about.contains("aof_rewrite_in_progress:0") && about.contains("aof_rewrite_scheduled:0");
        assert!(about.contains("aof_last_bgrewrite_status:ok"), "{about}");
        done.then_some(())
    });
}

/// Has a server refuse requests from `begin` until the function that it returns is called, for a moment or for longer
/// than a lease: some of several servers, or all. If all refuse for too long, the command is stopped.
fn says_no<'w, E: FnOnce()>(episode: &mut Episode<'w>, begin: impl Fn(&mut Episode<'w>, &'w Redis) -> E) {
    let (servers, all) = some_servers(episode);
    let long = episode.coin();
    let fatal = all && long;
    let holder = if fatal { episode.stubborn_scene(Way::Straight) } else { episode.scene(Way::Straight) };
    let ttl = episode.ttl;
    let since = episode.broken();
    let ends: Vec<E> = servers.iter().map(|redis| begin(episode, redis)).collect();
    if fatal {
        episode.dies_in_time(&holder);
    }
    let newcomer = episode.dlock(Way::Straight).arg("-n").command(["false"]).spawn();
    if fatal {
        episode.linger(ttl);
    } else if long {
        last_until(since + ttl + ttl / 2);
    } else {
        episode.linger(ttl / 6);
    }
    let over = |episode: &mut Episode<'w>| {
        for end in ends {
            end();
        }
        episode.mended();
    };
    if fatal {
        episode.ends(newcomer, &[Ending::Unavailable, Ending::Busy]);
        episode.ends(holder.running, &[Ending::Lost]);
        over(episode);
        return;
    }
    over(episode);
    let moment = boottime() - since < ttl / 4;
    episode.ends(newcomer, &[Ending::Unavailable, Ending::Busy]);
    episode.linger(ttl);
    if holder.is_alive() {
        episode.mended();
    }
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    if moment || !all {
        episode.could_have_kept(ending);
    }
}

/// Servers are out of memory: no new lock can be had, and a held one can be kept and released.
pub fn oom(episode: &mut Episode<'_>) {
    let (servers, all) = some_servers(episode);
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    episode.servers_fail();
    episode.broken();
    set_memory(&servers, "1");
    let newcomer = episode.dlock(Way::Straight).arg("-n").command(["false"]).spawn();
    episode.linger(2 * ttl);
    episode.ends(newcomer, &[Ending::Unavailable, Ending::Busy]);
    let meanwhile = episode.coin();
    let over = |episode: &mut Episode<'_>| {
        set_memory(&servers, "0");
        episode.mended();
    };
    if !meanwhile {
        over(episode);
    }
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
    if meanwhile {
        if all {
            let newcomer = episode.dlock(Way::Straight).arg("-n").command(["false"]).spawn();
            episode.ends(newcomer, &[Ending::Unavailable, Ending::Busy]);
        }
        over(episode);
    } else {
        episode.mended();
    }
}

fn set_memory(servers: &[&Redis], limit: &str) {
    for redis in servers {
        redis.cli(&["CONFIG", "SET", "maxmemory", limit]);
    }
}

/// The only server; of several, as many as can be spared, or all. Returns whether it is all of them.
fn some_servers<'w>(episode: &mut Episode<'w>) -> (Vec<&'w Redis>, bool) {
    let mut servers = episode.world.redis();
    let size = servers.len();
    if size > 1 && episode.coin() {
        episode.rng.shuffle(&mut servers);
        servers.truncate(episode.rng.usize(1..=size - episode.world.majority()));
    }
    let all = servers.len() == size;
    (servers, all)
}

/// A server that runs out of memory evicts any key. A holder is warned of that.
pub fn eviction(episode: &mut Episode<'_>) {
    let mut servers = episode.world.redis();
    let count = episode.rng.usize(episode.world.majority()..=servers.len());
    episode.rng.shuffle(&mut servers);
    servers.truncate(count);
    let policies = ["allkeys-random", "allkeys-lru", "allkeys-lfu", "volatile-random", "volatile-ttl", "volatile-lru"];
    let policy = *episode.rng.choice(&policies).expect("one of several");
    for redis in &servers {
        let used = redis.cli(&["INFO", "memory"]);
        let used = used.lines().find_map(|line| line.trim_end().strip_prefix("used_memory:"));
        let used: u64 = used.and_then(|used| used.parse().ok()).expect("a server knows its memory");
        redis.cli(&["CONFIG", "SET", "maxmemory-policy", policy]);
        redis.cli(&["CONFIG", "SET", "maxmemory", &(used + (4 << 20)).to_string()]);
    }
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    episode.broken();
    // There may not be room yet for the next lock either.
    episode.waiters_may_lose = true;
    let gone = servers.iter().filter(|redis| fill_memory(redis)).count();
    for redis in &servers {
        redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        let fillers: Vec<String> = redis.keys().into_iter().filter(|key| key.starts_with("filler-")).collect();
        for filler in fillers {
            redis.cli(&["DEL", &filler]);
        }
    }
    episode.mended();
    // The first ones must find room.
    let newcomers = episode.rng.usize(..=2);
    episode.come(newcomers);
    let left = episode.world.redis().len() - gone;
    if left < episode.world.majority() {
        holder.died_at();
    } else {
        episode.linger(ttl);
        holder.let_go();
    }
    let outcome = holder.running.wait();
    let allowed = if left < episode.world.majority() { Ending::Lost } else { Ending::Own(0) };
    episode.ended(&outcome, &[allowed]);
    let warnings = outcome.stderr().lines().filter(|line| line.contains(policy)).count();
    let is_warned = outcome.stderr().lines().take(warnings).all(|line| line.contains("it may evict locks"));
    if warnings != servers.len() || !is_warned {
        episode.violation(Invariant::EndsRight, format!("not warned of {count} servers with {policy}: {outcome:?}"));
    }
}

/// Writes to `redis` until it has evicted the lock; returns false if it keeps that.
fn fill_memory(redis: &Redis) -> bool {
    const SIZE: usize = 256 << 10;
    let lock = format!("dlock:{KEY}");
    let before = redis.get(&lock);
    (0..1000).any(|number| {
        let last = (SIZE - 1).to_string();
        // When nothing is left to evict, it refuses.
        redis.call(&[b"SETRANGE", filler(number).as_bytes(), last.as_bytes(), b"x"]);
        redis.get(&lock) != before
    })
}
