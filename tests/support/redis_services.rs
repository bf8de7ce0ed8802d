//! The services that use redis servers other than a single one in plain text.

use std::collections::{BTreeMap, BTreeSet};

use super::certificates::Tls;
use super::cluster::Cluster;
use super::cluster::redis::is_among_servers;
use super::pool::{Lent, connections};
use super::process;
use super::redis_sets::{RedisGroup, RedisReplicas, RedisSentinels};
use super::scratch::Scratch;
use super::servers::Redis;
use super::service::{RedisService, Service, on_other_servers};

/// `N` independent servers.
pub struct RedlockService<const N: usize> {
    // Dropped before the servers that its dlocks use.
    scratch: Scratch,
    pub servers: Lent<RedisGroup>,
}

impl<const N: usize> Service for RedlockService<N> {
    const KIND: &'static str = "redlock";
    const IN_ORDER: bool = false;
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self::on(Lent::by(["redlock of 3", "redlock of 5"][usize::from(N > 3)], || RedisGroup::start(N)))
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.servers
    }

    /// The servers keep no queue, so this counts the dlocks that would be in it: see [`Self::waiting`].
    fn queued(&self, key: &str) -> usize {
        self.waiting(key).len()
    }
}

impl<const N: usize> RedlockService<N> {
    /// The service on servers with options of their own.
    pub fn on(servers: impl Into<Lent<RedisGroup>>) -> Self {
        Self { scratch: Scratch::new(), servers: servers.into() }
    }

    /// The dlocks in the scratch directory that wait for `key`: they have no command yet, and have requested something
    /// from a majority of the servers over a connection that is still open.
    ///
    /// They are found by their processes and connections, because nothing at the servers tells two waiters from one
    /// that asks twice, and nothing on stderr tells when one has left. A holder that has not started its command yet,
    /// or has not released the lock after it, counts too, for as long as that takes.
    pub fn waiting(&self, key: &str) -> BTreeSet<i32> {
        let asked: Vec<BTreeSet<u16>> = self.servers.running().map(ports_that_asked).collect();
        let ports: BTreeMap<String, u16> = connections().into_iter().map(|one| (one.socket, one.local)).collect();
        let has_asked = |pid: i32| {
            let sockets = process::fds(pid).into_values();
            let own: Vec<u16> = sockets.filter_map(|target| ports.get(&target).copied()).collect();
            let servers = asked.iter().filter(|asked| own.iter().any(|port| asked.contains(port)));
            servers.count() >= self.servers.majority()
        };
        // The guard has another name, and is the parent of the command.
        let is_idle = |pid: i32| process::children(pid).into_iter().all(|guard| process::children(guard).is_empty());
        let wants = |pid: i32| process::cmdline(pid).windows(2).any(|words| words == ["--key", key]);
        let dlocks = self.scratch.processes().into_iter().filter(|&pid| process::comm(pid).as_deref() == Some("dlock"));
        dlocks.filter(|&pid| wants(pid) && is_idle(pid) && has_asked(pid)).collect()
    }
}

/// The clients' ports of the connections to `redis` over which more was sent than every connection begins with.
fn ports_that_asked(redis: &Redis) -> BTreeSet<u16> {
    const GREETINGS: [&str; 9] = ["NULL", "auth", "client", "hello", "ping", "select", "info", "config", "role"];
    let parse = |line: String| {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let command = field("cmd")?.split('|').next()?;
        let port = field("addr")?.rsplit_once(':')?.1.parse().ok()?;
        (!GREETINGS.contains(&command)).then_some(port)
    };
    redis.clients().into_iter().filter_map(parse).collect()
}

/// A master and two replicas, of which one must have every lock.
pub struct ReplicasService {
    scratch: Scratch,
    pub servers: Lent<RedisReplicas>,
}

impl Service for ReplicasService {
    const KIND: &'static str = "redis";
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self { scratch: Scratch::new(), servers: Lent::by("ReplicasService", || RedisReplicas::start(2)) }
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.servers
    }
}

/// A master and two replicas under three sentinels.
pub struct SentinelService {
    scratch: Scratch,
    pub set: Lent<RedisSentinels>,
}

impl Service for SentinelService {
    const KIND: &'static str = "redis";
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self { scratch: Scratch::new(), set: Lent::by("SentinelService", RedisSentinels::start) }
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.set
    }

    /// Also checks that nothing is left on the replicas, and that nobody is connected to a sentinel.
    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let sentinels = self.set.sentinels().iter().filter(|sentinel| sentinel.is_running());
        let connections = sentinels.flat_map(Redis::clients).filter(|line| !is_among_servers(line));
        self.set.servers.litter(keys).into_iter().chain(connections).collect()
    }
}

/// A redis that is reached by its unix socket.
pub struct UnixService {
    scratch: Scratch,
    pub redis: Lent<Redis>,
}

impl Service for UnixService {
    const KIND: &'static str = "redis";
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self { scratch: Scratch::new(), redis: Lent::by("RedisService", Redis::start) }
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.redis
    }

    fn url(&self) -> String {
        self.redis.socket_url()
    }
}

on_other_servers! {
    /// A redis that is reached through TLS.
    RedissService: RedisService::on(Redis::with_tls(Tls::default(), [""; 0])), 25 contenders
}

/// Three independent servers.
pub type Redlock3 = RedlockService<3>;

/// Five independent servers.
pub type Redlock5 = RedlockService<5>;

on_other_servers! {
    /// Three independent servers that are reached through TLS.
    RedlocksService: Redlock3::on(RedisGroup::with_tls(3, Tls::default())), 25 contenders
}
