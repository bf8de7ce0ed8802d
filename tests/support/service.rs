/*!
A lock service as the tests see it, whatever the backend: for every test one of its own, and how to look at it from outside,
without dlock.

A new backend implements [`Cluster`] for its servers, and [`Service`] for them together with a directory to work in;
what `tests/contract.rs` says then holds for it too.
*/

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use super::certificates::Tls;
use super::cluster::{self, Cluster};
use super::dlock::Dlock;
use super::etcd::{Etcd, EtcdOptions};
pub use super::gated::Gated;
use super::pool::Lent;
use super::rendezvous::{eventually, eventually_within};
use super::scratch::Scratch;
use super::servers::Redis;
use super::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// A lock service that no other test uses. Keys in [`Self::queued`] and [`Self::litter`] must be plain words, which
/// every backend spells as they are.
pub trait Service {
    /// The value of `DLOCK_BACKEND_KIND`.
    const KIND: &'static str;
    /// The value of `DLOCK_LEASE_TTL` under a `--ttl` of 30 seconds.
    const LEASE_OF_30S: &'static str;

    /// Whether waiters get the lock in the order in which they came.
    const IN_ORDER: bool = true;
    /// How many may contend for one lock at a time: a hundred, unless connecting takes long.
    const CONTENDERS: usize = 100;
    /// How much later than it expires the service removes a lease.
    const EXPIRY_GRANULARITY: Duration = Duration::ZERO;

    /// A service that is ready, and on which nothing was ever locked, as far as its clients can see: its servers are new,
    /// or as new (see [`Lent`]).
    fn fresh() -> Self;

    /// The directory in which its dlocks work.
    fn scratch(&self) -> &Scratch;

    /// Its servers.
    fn cluster(&self) -> &dyn Cluster;

    /// The URL for `--backend`.
    fn url(&self) -> String {
        self.cluster().url()
    }

    /// The options that a dlock needs in addition to the URL.
    fn options(&self) -> Vec<OsString> {
        self.cluster().options()
    }

    /// How many wait for `key`, by the service's own data.
    fn queued(&self, key: &str) -> usize {
        self.cluster().queued(key)
    }

    /// What is left of locks without holders and waiters, except for what stays on purpose: the tokens' counters of
    /// `keys`.
    fn litter(&self, keys: &[&str]) -> Vec<String> {
        self.cluster().litter(keys)
    }

    /// Removes what tells of the last break of `key`; returns whether there was something.
    fn forget_break(&self, key: &str) -> bool {
        self.cluster().forget_break(key)
    }

    /// Asserts that nothing is left of locks, as [`litter`](Self::litter) has it. A server may see a moment later that a client
    /// has gone.
    #[track_caller]
    fn assert_tidy(&self, keys: &[&str]) {
        let mut litter = Vec::new();
        let tidy = eventually_within(Duration::from_secs(5), || {
            litter = self.litter(keys);
            litter.is_empty().then_some(())
        });
        assert!(tidy.is_some(), "{litter:?}");
    }

    /// `dlock run --key KEY --backend URL`, and the other options that it needs.
    fn run(&self, key: &str) -> Dlock {
        self.scratch().dlock().run(key).backend(self.url()).args(self.options())
    }

    /// Waits until exactly `count` waiters are in the queue of `key`.
    #[track_caller]
    fn wait_queued(&self, key: &str, count: usize) {
        eventually(&format!("{count} in the queue of {key}"), || (self.queued(key) == count).then_some(()));
    }

    /// Takes `key`, and returns once it is held.
    #[track_caller]
    fn hold(&self, key: &str) -> Gated
    where
        Self: Sized,
    {
        let holder = Gated::spawn(self.scratch(), self.run(key));
        holder.wait_held();
        holder
    }

    /// Waits for `key` behind the present waiters, with these options; returns once it is in the queue. Nobody else may
    /// come or go meanwhile.
    #[track_caller]
    fn queue_up(&self, key: &str, options: &[&str]) -> Gated
    where
        Self: Sized,
    {
        let before = self.queued(key);
        let waiter = Gated::spawn(self.scratch(), self.run(key).args(options));
        self.wait_queued(key, before + 1);
        waiter
    }

    /// Fails the test unless `key` is free at this moment and can be taken.
    #[track_caller]
    fn assert_free(&self, key: &str) {
        self.run(key).arg("-n").command(["true"]).output().success();
    }

    /// Fails the test unless `key` is held at this moment.
    #[track_caller]
    fn assert_held(&self, key: &str) {
        let refused = self.run(key).args(["-n", "-q"]).command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").quiet();
    }
}

/// Lock files in a directory of their own.
pub struct FileService {
    scratch: Scratch,
}

impl Service for FileService {
    const KIND: &'static str = "file";
    const LEASE_OF_30S: &'static str = "0";

    fn fresh() -> Self {
        Self { scratch: Scratch::new() }
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &self.scratch
    }

    fn queue_up(&self, key: &str, options: &[&str]) -> Gated {
        let waiter = Gated::spawn(self.scratch(), self.run(key).args(options));
        eventually("the waiter to be in the queue", || self.scratch.waiting(key).contains(&waiter.pid()).then_some(()));
        waiter
    }

    /// Also checks that nothing is left in the lock files but the counters, and that nobody has locked them.
    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let mut litter: Vec<String> = keys.iter().flat_map(|key| self.scratch.kernel_locks(key)).collect();
        for entry in fs::read_dir(self.scratch.lock_dir()).unwrap() {
            let (name, path) = entry.map(|entry| (entry.file_name(), entry.path())).unwrap();
            let text = fs::read_to_string(path).unwrap();
            let counter = text.strip_prefix("dlock:1 ").and_then(|rest| rest.strip_suffix('\n'));
            let is_counter = counter.is_some_and(|counter| counter.parse::<u64>().is_ok());
            if !is_counter || !keys.iter().any(|key| name == *format!("{key}.lock")) {
                litter.push(format!("{}: {text}", name.display()));
            }
        }
        litter
    }
}

/// One redis server.
pub struct RedisService {
    // Dropped before the server that its dlocks use.
    scratch: Scratch,
    pub redis: Lent<Redis>,
}

impl Service for RedisService {
    const KIND: &'static str = "redis";
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self::on(Lent::by("RedisService", Redis::start))
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.redis
    }
}

impl RedisService {
    /// The service on a server with options of its own.
    pub fn on(redis: impl Into<Lent<Redis>>) -> Self {
        Self { scratch: Scratch::new(), redis: redis.into() }
    }

    /// The redis key of the lock `key`.
    pub fn lock(key: &str) -> String {
        format!("dlock:{key}")
    }

    /// How many of dlock's connections are in a blocking wait.
    pub fn blocked(&self) -> usize {
        self.redis.clients().iter().filter(|line| line.contains(" cmd=blpop ")).count()
    }

    /// Waits until exactly `count` of dlock's connections are in a blocking wait, so that the waiters have nothing to
    /// do.
    #[track_caller]
    pub fn wait_blocked(&self, count: usize) {
        eventually(&format!("{count} blocked waiters"), || (self.blocked() == count).then_some(()));
    }
}

/// One etcd server.
pub struct EtcdService {
    // Dropped before the servers that its dlocks use.
    scratch: Scratch,
    pub etcd: Lent<Etcd>,
}

impl Service for EtcdService {
    const KIND: &'static str = "etcd";
    const EXPIRY_GRANULARITY: Duration = Duration::from_secs(1);
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self::on(Lent::by("EtcdService", Etcd::start))
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.etcd
    }
}

impl EtcdService {
    /// The service on servers with options of their own.
    pub fn on(etcd: impl Into<Lent<Etcd>>) -> Self {
        Self { scratch: Scratch::new(), etcd: etcd.into() }
    }

    /// The prefix of the keys of all holders and waiters of `key`.
    pub fn contenders(key: &str) -> String {
        cluster::etcd::contenders(key)
    }
}

/// One ZooKeeper server.
pub struct ZooKeeperService {
    // Dropped before the servers that its dlocks use.
    scratch: Scratch,
    pub zookeeper: Lent<ZooKeeper>,
}

impl Service for ZooKeeperService {
    const KIND: &'static str = "zookeeper";
    const EXPIRY_GRANULARITY: Duration = Duration::from_secs(1);
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self::on(Lent::by("ZooKeeperService", ZooKeeper::start))
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.zookeeper
    }
}

impl ZooKeeperService {
    /// The service on servers with options of their own.
    pub fn on(zookeeper: impl Into<Lent<ZooKeeper>>) -> Self {
        Self { scratch: Scratch::new(), zookeeper: zookeeper.into() }
    }

    /// The node under which all contenders for `key` have theirs.
    pub fn lock(key: &str) -> String {
        cluster::zookeeper::lock(key)
    }
}

/// Makes another service out of an existing one, on other servers.
macro_rules! on_other_servers {
    ($(#[$what:meta])* $name:ident: $inner:ident::on($servers:expr), $contenders:literal contenders) => {
        $(#[$what])*
        pub struct $name($inner);

        impl Service for $name {
            const KIND: &'static str = $inner::KIND;
            const LEASE_OF_30S: &'static str = $inner::LEASE_OF_30S;
            const IN_ORDER: bool = $inner::IN_ORDER;
            const CONTENDERS: usize = $contenders;
            const EXPIRY_GRANULARITY: std::time::Duration = $inner::EXPIRY_GRANULARITY;

            fn fresh() -> Self {
                Self($inner::on(crate::support::pool::Lent::by(stringify!($name), || $servers)))
            }

            fn scratch(&self) -> &Scratch {
                self.0.scratch()
            }

            fn cluster(&self) -> &dyn crate::support::cluster::Cluster {
                self.0.cluster()
            }

            fn queued(&self, key: &str) -> usize {
                self.0.queued(key)
            }
        }

        impl std::ops::Deref for $name {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.0
            }
        }
    };
}
pub(super) use on_other_servers;

on_other_servers! {
    /// Three servers of etcd.
    EtcdClusterService: EtcdService::on(Etcd::cluster()), 100 contenders
}
on_other_servers! {
    /// An etcd that is reached through TLS.
    EtcdTlsService: EtcdService::on(Etcd::with(EtcdOptions { tls: Some(Tls::default()), ..EtcdOptions::single() })), 25 contenders
}
on_other_servers! {
    /// Three servers of ZooKeeper.
    ZooKeeperEnsembleService: ZooKeeperService::on(ZooKeeper::ensemble()), 100 contenders
}
on_other_servers! {
    /// A ZooKeeper that is reached through TLS.
    ZooKeeperTlsService:
        ZooKeeperService::on(ZooKeeper::with(ZooKeeperOptions { tls: Some(Tls::default()), ..ZooKeeperOptions::single() })),
        25 contenders
}
