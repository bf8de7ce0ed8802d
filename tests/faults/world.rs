//! The lock services under test: one of each column of the matrix, and what can be done to its servers.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::islands::Islands;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::{RedisGroup, RedisSentinels};
use crate::support::scratch::Scratch;
use crate::support::servers::{Monitor, Redis};
use crate::support::service::litter_in;
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// A column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// Lock files.
    File,
    /// One redis that writes everything to disk.
    Redis,
    /// Three redis servers under three sentinels: of the redis column, what only they can suffer.
    Sentinel,
    /// Three independent redis servers that write everything to disk.
    Redlock3,
    /// Five of them.
    Redlock,
    /// Three members.
    Etcd,
    /// Three servers.
    ZooKeeper,
}

impl Column {
    /// All, in the order of the matrix.
    pub const ALL: [Self; 7] =
        [Self::File, Self::Redis, Self::Sentinel, Self::Redlock3, Self::Redlock, Self::Etcd, Self::ZooKeeper];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Redis => "redis",
            Self::Sentinel => "sentinel",
            Self::Redlock3 => "redlock3",
            Self::Redlock => "redlock",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// Its name over the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Sentinel => "redis under sentinels",
            Self::Redlock3 => "redlock of 3",
            Self::Redlock => "redlock of 5",
            Self::Etcd => "etcd of 3",
            Self::ZooKeeper => "zookeeper of 3",
            Self::File | Self::Redis => self.name(),
        }
    }

    /// Whether a lock ends by itself when it is not renewed.
    pub fn has_leases(self) -> bool {
        self != Self::File
    }

    /// Whether a majority of independent servers is asked.
    pub fn is_redlock(self) -> bool {
        matches!(self, Self::Redlock3 | Self::Redlock)
    }

    /// How much later than a lease's end the servers take it away, at most.
    pub fn granularity(self) -> Duration {
        match self {
            Self::Etcd | Self::ZooKeeper => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The servers of a [`World`].
pub enum Servers {
    /// None: lock files in this directory.
    File(Scratch),
    Redis(Box<Redis>),
    Sentinel(Box<RedisSentinels>),
    Redlock(RedisGroup),
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

/// A lock service that nobody else uses, and a detour to it on which things can go wrong.
pub struct World {
    pub column: Column,
    // Before the servers goes what leads to them.
    proxies: Vec<Proxy>,
    pub servers: Servers,
    // After the servers goes what they are on.
    islands: Option<Islands>,
}

/// What makes redis write everything to disk before it answers.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

impl World {
    /// A service that is ready, and on which nothing was ever locked.
    pub fn fresh(column: Column) -> Self {
        let servers = match column {
            Column::File => Servers::File(Scratch::new()),
            Column::Redis => Servers::Redis(Box::new(Redis::with(DURABLE))),
            Column::Sentinel => Servers::Sentinel(Box::new(RedisSentinels::start())),
            Column::Redlock3 => Servers::Redlock(RedisGroup::with(3, DURABLE)),
            Column::Redlock => Servers::Redlock(RedisGroup::with(5, DURABLE)),
            Column::Etcd => Servers::Etcd(Etcd::with(Self::quick_etcd())),
            Column::ZooKeeper => Servers::ZooKeeper(ZooKeeper::with(ZooKeeperOptions::ensemble())),
        };
        Self::of(column, servers)
    }

    /// The same, and the servers' clocks can be moved.
    pub fn with_clocks(column: Column) -> Self {
        let servers = match column {
            Column::Redis => Servers::Redis(Box::new(Redis::with_clock(DURABLE))),
            Column::Sentinel => Servers::Sentinel(Box::new(RedisSentinels::with_clocks())),
            Column::Redlock => Servers::Redlock(RedisGroup::with_clocks(5, DURABLE)),
            Column::ZooKeeper => {
                Servers::ZooKeeper(ZooKeeper::with(ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::ensemble() }))
            }
            _ => panic!("the clocks of {column} cannot be moved"),
        };
        Self::of(column, servers)
    }

    /// The same, and each server is on an island of its own. One more island, the last, has none. There are no proxies.
    pub fn on_islands(column: Column) -> Self {
        let islands = Islands::new(4);
        let each = islands.all()[..3].to_vec();
        let servers = match column {
            Column::Etcd => Servers::Etcd(Etcd::with(EtcdOptions { islands: each, ..Self::quick_etcd() })),
            Column::ZooKeeper => {
                Servers::ZooKeeper(ZooKeeper::with(ZooKeeperOptions { islands: each, ..ZooKeeperOptions::ensemble() }))
            }
            _ => panic!("{column} has no three members that need each other"),
        };
        Self { column, proxies: Vec::new(), servers, islands: Some(islands) }
    }

    /// Three members that find a new leader within half a lease of 2 s.
    fn quick_etcd() -> EtcdOptions {
        EtcdOptions { heartbeat: 30, election: 300, ..EtcdOptions::cluster() }
    }

    fn of(column: Column, servers: Servers) -> Self {
        let mut world = Self { column, proxies: Vec::new(), servers, islands: None };
        world.proxies = world.ports().into_iter().map(Proxy::to).collect();
        world
    }

    /// The ports at which the servers serve.
    fn ports(&self) -> Vec<u16> {
        match &self.servers {
            // Sentinels name the servers themselves, so there is no way round.
            Servers::File(_) | Servers::Sentinel(_) => Vec::new(),
            Servers::Redis(redis) => vec![redis.port()],
            Servers::Redlock(group) => group.iter().map(Redis::port).collect(),
            Servers::Etcd(etcd) => etcd.members().iter().map(crate::support::etcd::Member::port).collect(),
            Servers::ZooKeeper(zookeeper) => {
                zookeeper.servers().iter().map(crate::support::zookeeper::Server::port).collect()
            }
        }
    }

    /// What to give to `--backend` to reach the servers straight.
    pub fn url(&self) -> String {
        match &self.servers {
            Servers::File(scratch) => scratch.file_url(),
            Servers::Redis(redis) => redis.url(),
            Servers::Sentinel(set) => set.url(),
            Servers::Redlock(group) => group.url(),
            Servers::Etcd(etcd) => etcd.url(),
            Servers::ZooKeeper(zookeeper) => zookeeper.url(),
        }
    }

    /// What to give to `--backend` to reach them by way of [`Self::proxies`]. Where there are none, this is straight too.
    pub fn detour(&self) -> String {
        if self.proxies.is_empty() {
            return self.url();
        }
        let places: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        let url = self.url();
        let (scheme, _) = url.split_once("://").expect("a URL");
        format!("{scheme}://{}", places.join(","))
    }

    /// One in front of each server.
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// Whether each of the servers is on an island.
    pub fn is_on_islands(&self) -> bool {
        self.islands.is_some()
    }

    /// The islands that the servers are on.
    #[track_caller]
    pub fn islands(&self) -> &Islands {
        self.islands.as_ref().expect("the servers are on islands")
    }

    /// Has nobody look at this server, as long as it is cut off from the others and cannot know.
    pub fn set_aside(&self, index: usize, aside: bool) {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.member(index).set_aside(aside),
            Servers::ZooKeeper(zookeeper) => zookeeper.server(index).set_aside(aside),
            _ => panic!("a server of {} needs no other", self.column),
        }
    }

    /// Sets all proxies to `mode`.
    pub fn set_way(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// How many servers there are.
    pub fn size(&self) -> usize {
        match &self.servers {
            Servers::File(_) => 0,
            Servers::Redis(_) => 1,
            Servers::Sentinel(set) => set.servers.len(),
            Servers::Redlock(group) => group.len(),
            Servers::Etcd(etcd) => etcd.members().len(),
            Servers::ZooKeeper(zookeeper) => zookeeper.servers().len(),
        }
    }

    /// How many of them are more than half.
    pub fn majority(&self) -> usize {
        self.size() / 2 + 1
    }

    /// The one that leads, where one does.
    pub fn leader(&self) -> Option<usize> {
        match &self.servers {
            Servers::Etcd(etcd) => Some(etcd.leader()),
            Servers::ZooKeeper(zookeeper) => Some(zookeeper.leader()),
            _ => None,
        }
    }

    /// Waits until the servers, which are all at work again, serve: after an outage they may have to find a leader first.
    /// False where they never do.
    pub fn wait_serving(&self) -> bool {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.leader() < etcd.members().len(),
            Servers::ZooKeeper(zookeeper) => zookeeper.wait_serving(),
            _ => true,
        }
    }

    /// The same, and all of them belong together again.
    pub fn wait_together(&self) -> bool {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.wait_together(),
            _ => self.wait_serving(),
        }
    }

    /// How often the servers have chosen a leader, where their tokens tell.
    pub fn epoch(&self) -> Option<u64> {
        match &self.servers {
            Servers::ZooKeeper(zookeeper) => zookeeper.epoch().and_then(|epoch| epoch.try_into().ok()),
            _ => None,
        }
    }

    /// The redis servers, if they are that.
    pub fn redis(&self) -> Vec<&Redis> {
        match &self.servers {
            Servers::Redis(redis) => vec![redis],
            Servers::Redlock(group) => group.iter().collect(),
            Servers::Sentinel(set) => set.servers.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Freezes this server.
    pub fn freeze(&self, index: usize) {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.member(index).stop(),
            Servers::ZooKeeper(zookeeper) => zookeeper.server(index).stop(),
            _ => self.redis()[index].stop(),
        }
    }

    /// Lets it go on.
    pub fn thaw(&self, index: usize) {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.member(index).cont(),
            Servers::ZooKeeper(zookeeper) => zookeeper.server(index).cont(),
            _ => self.redis()[index].cont(),
        }
    }

    /// Kills it.
    pub fn kill(&self, index: usize) {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.member(index).kill(),
            Servers::ZooKeeper(zookeeper) => zookeeper.server(index).kill(),
            _ => self.redis()[index].kill(),
        }
    }

    /// Starts these again, which were killed, with their data; returns when they answer.
    pub fn restart(&self, killed: &[usize]) {
        let all = killed.len() == self.size();
        match &self.servers {
            Servers::Etcd(etcd) if all => etcd.restart(),
            Servers::ZooKeeper(zookeeper) if all => zookeeper.restart(),
            Servers::Etcd(etcd) => killed.iter().for_each(|&index| etcd.restart_member(index)),
            Servers::ZooKeeper(zookeeper) => killed.iter().for_each(|&index| zookeeper.restart_server(index)),
            _ => killed.iter().for_each(|&index| self.redis()[index].restart()),
        }
    }

    /// Where the servers tell of every lease that they give, somebody who listens to each.
    pub fn monitors(&self) -> Vec<Monitor<'_>> {
        match &self.servers {
            Servers::Redis(_) | Servers::Redlock(_) => self.redis().into_iter().map(Redis::monitor).collect(),
            _ => Vec::new(),
        }
    }

    /// A name for whoever holds `key` now, by the servers' own account; none where nobody does, or where no server keeps
    /// such an account alone.
    pub fn holder(&self, key: &str) -> Option<String> {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.keys(&format!("dlock/{key}/")).first().map(|entry| entry.key.clone()),
            Servers::ZooKeeper(zookeeper) => {
                let number = |name: &String| name[name.len().saturating_sub(10)..].parse().unwrap_or(i64::MAX);
                zookeeper.children(&format!("/dlock/{key}"))?.into_iter().min_by_key(number)
            }
            Servers::Redis(redis) => redis.get(&format!("dlock:{key}")),
            _ => None,
        }
    }

    /// Whether what [`Self::holder`] named holds or waits for `key` still.
    pub fn has(&self, key: &str, holder: &str) -> bool {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.get(holder).is_some(),
            Servers::ZooKeeper(zookeeper) => zookeeper.get(&format!("/dlock/{key}/{holder}")).is_some(),
            _ => self.holder(key).as_deref() == Some(holder),
        }
    }

    /// Removes the directories of `key` where servers have such things, if they are empty.
    pub fn remove_directories(&self, key: &str) {
        if let Servers::ZooKeeper(zookeeper) = &self.servers {
            for path in [&format!("/dlock/{key}"), "/dlock"] {
                if zookeeper.children(path).is_some_and(|children| children.is_empty()) {
                    zookeeper.delete(path);
                }
            }
        }
    }

    /// How many hold `key` or wait for it, by the account of servers that keep a queue.
    pub fn contenders(&self, key: &str) -> usize {
        match &self.servers {
            Servers::Etcd(etcd) => etcd.count(&format!("dlock/{key}/")),
            Servers::ZooKeeper(zookeeper) => {
                zookeeper.children(&format!("/dlock/{key}")).map_or(0, |all| all.len() / 2)
            }
            Servers::Redis(redis) => {
                let queue = redis.keys().into_iter().find(|name| name.contains("queue"));
                let waiting = queue.map_or(0, |queue| redis.cli(&["ZCARD", &queue]).trim().parse().unwrap_or(0));
                waiting + usize::from(redis.get(&format!("dlock:{key}")).is_some())
            }
            _ => panic!("{} has no queue that can be counted", self.column),
        }
    }

    /// How many bytes the servers have written up to now: to clients, to one another and to their disks.
    pub fn written(&self) -> u64 {
        let pids: Vec<i32> = match &self.servers {
            Servers::Etcd(etcd) => etcd.members().iter().map(crate::support::etcd::Member::pid).collect(),
            Servers::ZooKeeper(zookeeper) => {
                zookeeper.servers().iter().map(crate::support::zookeeper::Server::pid).collect()
            }
            _ => self.redis().into_iter().map(Redis::pid).collect(),
        };
        let written = |pid: i32| {
            let account = fs::read_to_string(format!("/proc/{pid}/io")).expect("servers run");
            let line = account.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("bytes written");
            line.parse::<u64>().expect("a number")
        };
        pids.into_iter().map(written).sum()
    }

    /// What is left of locks that nobody holds or waits for any more, but for what stays on purpose: the tokens' counters
    /// of `keys`, of which lock files are some, and the connections of those who look.
    pub fn litter(&self, keys: &[&str]) -> Vec<String> {
        match &self.servers {
            Servers::File(scratch) => {
                let files = fs::read_dir(scratch.lock_dir()).into_iter().flatten().flatten();
                let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
                names.filter(|name| !keys.iter().any(|key| *name == format!("{key}.lock"))).collect()
            }
            Servers::Etcd(etcd) => {
                let keys = etcd.keys("").into_iter().map(|entry| format!("{entry:?}"));
                keys.chain(etcd.leases().into_iter().map(|lease| format!("{lease:?}"))).collect()
            }
            Servers::ZooKeeper(zookeeper) => {
                let sessions = zookeeper.sessions().into_iter().map(|session| format!("session {session:#x}"));
                zookeeper.tree().into_iter().chain(sessions).collect()
            }
            // Sentinels and replicas have connections of their own there.
            Servers::Sentinel(set) => set.master().keys().into_iter().filter(|key| !key.contains("fence")).collect(),
            Servers::Redis(_) | Servers::Redlock(_) => {
                self.redis().into_iter().flat_map(|redis| litter_in(redis, keys)).collect()
            }
        }
    }
}
