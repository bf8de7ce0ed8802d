//! The lock services under test: one per column of the matrix, and what can be done to its servers.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::support::cluster::{Cluster, Node};
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::islands::Islands;
use crate::support::mysql::Mysql;
use crate::support::postgres::Postgres;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::{RedisGroup, RedisSentinels};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// How many lines are shown of what a server has logged.
const LOGGED: usize = 20;

/// A column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// Lock files.
    File,
    /// One redis that writes everything to disk.
    Redis,
    /// Three redis servers under three sentinels: the part of the redis column that only they can suffer.
    Sentinel,
    /// Three independent redis servers that write everything to disk.
    Redlock3,
    /// Five such servers.
    Redlock,
    /// Three members.
    Etcd,
    /// Three servers.
    ZooKeeper,
    /// One server.
    Postgres,
    /// One server, a MariaDB.
    Mysql,
}

impl Column {
    /// All columns, in the order of the matrix.
    pub const ALL: [Self; 9] = [
        Self::File,
        Self::Redis,
        Self::Sentinel,
        Self::Redlock3,
        Self::Redlock,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Postgres,
        Self::Mysql,
    ];

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
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// Its title above the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Sentinel => "redis under sentinels",
            Self::Redlock3 => "redlock of 3",
            Self::Redlock => "redlock of 5",
            Self::Etcd => "etcd of 3",
            Self::ZooKeeper => "zookeeper of 3",
            Self::File | Self::Redis | Self::Postgres | Self::Mysql => self.name(),
        }
    }

    /// Whether a lock expires when it is not renewed.
    pub fn has_leases(self) -> bool {
        self != Self::File
    }

    /// Whether it is a majority of independent servers.
    pub fn is_redlock(self) -> bool {
        matches!(self, Self::Redlock3 | Self::Redlock)
    }

    /// How much later than a lease expires the servers remove it, at most.
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
    Postgres(Box<Postgres>),
    Mysql(Box<Mysql>),
}

impl Servers {
    fn cluster(&self) -> &(dyn Cluster + 'static) {
        match self {
            Self::File(scratch) => scratch,
            Self::Redis(redis) => &**redis,
            Self::Sentinel(set) => &**set,
            Self::Redlock(group) => group,
            Self::Etcd(etcd) => etcd,
            Self::ZooKeeper(zookeeper) => zookeeper,
            Self::Postgres(postgres) => &**postgres,
            Self::Mysql(mysql) => &**mysql,
        }
    }
}

/// A lock service of this episode's own, and a detour to it on which things can go wrong.
pub struct World {
    pub column: Column,
    // Dropped before the servers that they lead to.
    proxies: Vec<Proxy>,
    pub servers: Servers,
    // Dropped after the servers that are on them.
    islands: Option<Islands>,
}

/// Makes redis write everything to disk before it answers.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A database for hundreds of holders, each of which has a connection.
const ROOMY: [&str; 1] = ["max_connections=700"];

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
            Column::Postgres => Servers::Postgres(Box::new(Postgres::with(&ROOMY))),
            Column::Mysql => Servers::Mysql(Box::new(Mysql::with(&ROOMY))),
        };
        Self::of(column, servers)
    }

    /// A service that is ready and unused, and whose servers' clocks can be moved.
    pub fn with_clocks(column: Column) -> Self {
        let servers = match column {
            Column::Redis => Servers::Redis(Box::new(Redis::with_clock(DURABLE))),
            Column::Sentinel => Servers::Sentinel(Box::new(RedisSentinels::with_clocks())),
            Column::Redlock => Servers::Redlock(RedisGroup::with_clocks(5, DURABLE)),
            Column::ZooKeeper => {
                Servers::ZooKeeper(ZooKeeper::with(ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::ensemble() }))
            }
            Column::Postgres => Servers::Postgres(Box::new(Postgres::with_clock())),
            Column::Mysql => Servers::Mysql(Box::new(Mysql::with_clock())),
            _ => panic!("the clocks of {column} cannot be moved"),
        };
        Self::of(column, servers)
    }

    /// A service that is ready and unused, with each server on an island of its own. One more island, the last, has no
    /// server. There are no proxies.
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

    /// Three members that elect a new leader within half a lease of 2 s.
    fn quick_etcd() -> EtcdOptions {
        EtcdOptions { heartbeat: 30, election: 300, ..EtcdOptions::cluster() }
    }

    fn of(column: Column, servers: Servers) -> Self {
        let mut world = Self { column, proxies: Vec::new(), servers, islands: None };
        world.proxies = world.servers.cluster().ports().into_iter().map(Proxy::to).collect();
        world
    }

    /// What to give to `--backend` to reach the servers by way of [`Self::proxies`]. Where there are none, this is the
    /// direct way.
    pub fn detour(&self) -> String {
        if self.proxies.is_empty() {
            return self.url();
        }
        let place = |port: u16| format!("127.0.0.1:{port}");
        let ways = self.ports().into_iter().zip(&self.proxies);
        ways.fold(self.url(), |url, (port, proxy)| url.replace(&place(port), &place(proxy.port())))
    }

    /// The proxies, one in front of each server.
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// Whether each server is on an island.
    pub fn is_on_islands(&self) -> bool {
        self.islands.is_some()
    }

    /// The islands that the servers are on. Fails the test if there are none.
    #[track_caller]
    pub fn islands(&self) -> &Islands {
        self.islands.as_ref().expect("the servers are on islands")
    }

    /// Sets all proxies to `mode`.
    pub fn set_way(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// How many bytes the servers have written up to now: to clients, to one another and to disks.
    pub fn written(&self) -> u64 {
        let written = |node: &dyn Node| {
            let account = fs::read_to_string(format!("/proc/{}/io", node.pid())).expect("servers run");
            let line = account.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("bytes written");
            line.parse::<u64>().expect("a number")
        };
        self.nodes().into_iter().map(written).sum()
    }

    /// The last lines that each server has logged: perhaps they say why it did not answer.
    pub fn logs(&self) -> String {
        let log = |(index, node): (usize, &dyn Node)| {
            let log = node.log();
            // PostgreSQL indents the rest of what takes several lines.
            let mut lines: Vec<&str> = log.lines().filter(|line| !line.starts_with('\t')).rev().take(LOGGED).collect();
            lines.reverse();
            format!("the log of server {index}:\n    {}\n", lines.join("\n    "))
        };
        self.nodes().into_iter().enumerate().map(log).collect()
    }
}

/// What can be asked of the servers and done to them directly.
impl Deref for World {
    type Target = dyn Cluster;

    fn deref(&self) -> &Self::Target {
        self.servers.cluster()
    }
}
