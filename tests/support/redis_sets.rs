//! Several redis servers that belong together: independent ones for Redlock, a master with replicas, and such servers
//! under sentinels. Each of them is a [`Redis`], which can be frozen, killed and restarted.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::ops::Deref;

use super::certificates::Tls;
use super::cluster::redis::is_among_servers;
use super::daemon::Daemon;
use super::pool::Servers;
use super::rendezvous::eventually;
use super::servers::{Redis, Reply};

/// Independent servers, for Redlock.
pub struct RedisGroup {
    servers: Vec<Redis>,
    scheme: &'static str,
}

impl RedisGroup {
    /// This many servers that answer.
    #[track_caller]
    pub fn start(count: usize) -> Self {
        Self::with(count, [""; 0])
    }

    /// This many servers that answer, each with these arguments of [`Redis::with`].
    #[track_caller]
    pub fn with<A: AsRef<OsStr>>(count: usize, args: impl IntoIterator<Item = A>) -> Self {
        let args: Vec<A> = args.into_iter().collect();
        Self { servers: (0..count).map(|_| Redis::with(&args)).collect(), scheme: "redlock" }
    }

    /// This many servers that answer, each with a wall clock of its own: see [`Redis::clock`].
    #[track_caller]
    pub fn with_clocks<A: AsRef<OsStr>>(count: usize, args: impl IntoIterator<Item = A>) -> Self {
        let args: Vec<A> = args.into_iter().collect();
        Self { servers: (0..count).map(|_| Redis::with_clock(&args)).collect(), scheme: "redlock" }
    }

    /// This many servers that answer, with TLS.
    #[track_caller]
    pub fn with_tls(count: usize, tls: Tls) -> Self {
        Self { servers: (0..count).map(|_| Redis::with_tls(tls, [""; 0])).collect(), scheme: "redlocks" }
    }

    /// `redlock://127.0.0.1:P1,127.0.0.1:P2,…`, or `redlocks://` where they use TLS.
    pub fn url(&self) -> String {
        let places: Vec<String> = self.servers.iter().map(|redis| place(&redis.url()).to_owned()).collect();
        format!("{}://{}", self.scheme, places.join(","))
    }

    /// The smallest number of servers that is more than half.
    pub fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// The running servers: neither killed nor frozen.
    pub fn running(&self) -> impl Iterator<Item = &Redis> {
        self.servers.iter().filter(|redis| redis.is_running())
    }
}

/// `group[0]` is a server.
impl Deref for RedisGroup {
    type Target = [Redis];

    fn deref(&self) -> &[Redis] {
        &self.servers
    }
}

/// A server and its replicas: `replicas[0]` is the master at first, and always, unless sentinels change it.
pub struct RedisReplicas {
    servers: Vec<Redis>,
}

impl RedisReplicas {
    /// A master with this many replicas, which are up to date.
    #[track_caller]
    pub fn start(replicas: usize) -> Self {
        let this = Self::launch(replicas);
        wait_replicated(&this[0], replicas);
        this
    }

    /// A master with this many replicas, which may not be up to date yet.
    #[track_caller]
    fn launch(replicas: usize) -> Self {
        Self::launch_by(replicas, Redis::with)
    }

    /// A master with this many replicas, which may not be up to date yet; `make` makes the servers from their options.
    #[track_caller]
    fn launch_by(replicas: usize, make: impl Fn(Vec<String>) -> Redis) -> Self {
        // Every server replicates as a user of its own, and knows the users of the others: so each can be locked out
        // alone, while everyone else, sentinels included, still reaches it.
        let args = |number: usize, master: Option<u16>| {
            let mut args = vec!["--repl-diskless-sync-delay".into(), "0".into()];
            for user in (0..=replicas).map(user) {
                args.extend(["--user", &user, "on", ">secret", "+psync", "+replconf", "+ping"].map(String::from));
            }
            args.extend(["--masteruser", &user(number), "--masterauth", "secret"].map(String::from));
            args.extend(master.into_iter().flat_map(|port| ["--replicaof".into(), format!("127.0.0.1 {port}")]));
            args
        };
        let master = make(args(0, None));
        let port = master.port();
        let replicas = (1..=replicas).map(|number| make(args(number, Some(port))));
        Self { servers: std::iter::once(master).chain(replicas).collect() }
    }

    /// The URL of the first server.
    pub fn url(&self) -> String {
        self.servers[0].url()
    }

    /// The server at this port.
    #[track_caller]
    pub fn at(&self, port: u16) -> &Redis {
        self.servers.iter().find(|redis| redis.port() == port).expect("none of these servers has this port")
    }

    /// The running servers: neither killed nor frozen.
    pub fn running(&self) -> impl Iterator<Item = &Redis> {
        self.servers.iter().filter(|redis| redis.is_running())
    }

    /// Stops replication to `replica` (one of these), whichever is the master: what is written from now on does not
    /// reach it, while it goes on serving clients. Returns once it has noticed.
    #[track_caller]
    pub fn cut_replication(&self, replica: &Redis) {
        let user = self.user_of(replica);
        for redis in self.running() {
            redis.cli(&["ACL", "SETUSER", &user, "off"]);
            redis.cli(&["CLIENT", "KILL", "USER", &user]);
        }
        eventually("the replica to lose its master", || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:down").then_some(())
        });
    }

    /// Lets `replica` replicate again. Returns immediately; see [`wait_replicated`].
    #[track_caller]
    pub fn restore_replication(&self, replica: &Redis) {
        let user = self.user_of(replica);
        for redis in self.running() {
            redis.cli(&["ACL", "SETUSER", &user, "on"]);
        }
    }

    fn user_of(&self, replica: &Redis) -> String {
        user(self.servers.iter().position(|redis| redis.port() == replica.port()).expect("not one of these"))
    }
}

/// The user as which the server with this number replicates.
fn user(number: usize) -> String {
    format!("replica-{number}")
}

impl Deref for RedisReplicas {
    type Target = [Redis];

    fn deref(&self) -> &[Redis] {
        &self.servers
    }
}

/// The name under which the sentinels know their master.
pub const MASTER_NAME: &str = "mymaster";

/// How many sentinels there are.
const SENTINELS: usize = 3;

/// A master with two replicas under three sentinels, of which two must agree.
///
/// They take a server for dead after a second of silence, and a new master is elected within about three. A sentinel
/// that was frozen for more than two seconds does nothing for thirty more (its `TILT` mode): kill it instead.
pub struct RedisSentinels {
    // Dropped before the servers, whose end they would notice.
    sentinels: Vec<Redis>,
    pub servers: RedisReplicas,
}

impl RedisSentinels {
    /// Returns once all of them know each other and the replicas are up to date, so that a failover would work.
    #[track_caller]
    pub fn start() -> Self {
        Self::over(RedisReplicas::launch(2))
    }

    /// Such servers, each with a clock of its own: see [`Redis::clock`]. Returns once a failover would work.
    #[track_caller]
    pub fn with_clocks() -> Self {
        Self::over(RedisReplicas::launch_by(2, Redis::with_clock))
    }

    #[track_caller]
    fn over(servers: RedisReplicas) -> Self {
        let sentinels: Vec<Redis> = (0..SENTINELS).map(|_| Redis::prepare(["--sentinel"])).collect();
        for (number, sentinel) in sentinels.iter().enumerate() {
            sentinel.configure(&configuration(number, &servers, &sentinels));
            sentinel.launch();
            // They look and talk more often than every second, so that tests need not wait for that, and two of them do
            // not begin a failover each.
            let often = ["PING-PERIOD", "INFO-PERIOD", "PUBLISH-PERIOD", "ASK-PERIOD"].map(|period| [period, "200"]);
            sentinel.cli(&[&["SENTINEL", "DEBUG"], &often.concat()[..]].concat());
        }
        let this = Self { sentinels, servers };
        wait_replicated(&this.servers[0], 2);
        this.wait_settled();
        this
    }

    /// `redis+sentinel://127.0.0.1:S1,127.0.0.1:S2,127.0.0.1:S3/mymaster`.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", places.join(","))
    }

    /// The sentinels themselves, to be asked, frozen or killed.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The running sentinels: neither killed nor frozen.
    pub fn running(&self) -> impl Iterator<Item = &Redis> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running())
    }

    /// The server that a majority of all sentinels calls the master now; waits until there is one.
    #[track_caller]
    pub fn master(&self) -> &Redis {
        let port = eventually("a majority of the sentinels to agree", || {
            let told = self.told();
            let agreed = |port: &&u16| told.iter().filter(|other| other == port).count() > SENTINELS / 2;
            told.iter().find(agreed).copied()
        });
        self.servers.at(port)
    }

    /// The servers that are not [`Self::master`].
    #[track_caller]
    pub fn replicas(&self) -> Vec<&Redis> {
        let master = self.master().port();
        self.servers.iter().filter(|redis| redis.port() != master).collect()
    }

    /// Makes a replica the master although the master is well, without checking whether the replica has all of its
    /// data. Returns the new one once all running sentinels agree and it takes writes.
    #[track_caller]
    pub fn fail_over(&self) -> &Redis {
        let old = self.master();
        let sentinel = self.running().next().expect("no sentinel is running");
        eventually("another master", || {
            let view = View::of(sentinel);
            if view.port == old.port() && view.flags == "master" {
                // It refuses, or gives up later, when it has not heard of a replica for a while.
                let _ = sentinel.call(&[b"SENTINEL", b"FAILOVER", MASTER_NAME.as_bytes()]);
            }
            self.failed_over(old)
        })
    }

    /// Waits until all running sentinels have finished making a server other than `old` the master, and agree on it;
    /// returns it. That happens some time after `old` was killed or frozen.
    #[track_caller]
    pub fn wait_failover(&self, old: &Redis) -> &Redis {
        eventually("another master", || self.failed_over(old))
    }

    fn failed_over(&self, old: &Redis) -> Option<&Redis> {
        let views: Vec<_> = self.running().map(View::of).collect();
        let first = views.first()?;
        let is_done = first.port != old.port() && first.flags == "master" && views.iter().all(|view| view == first);
        let new = self.servers.iter().find(|redis| redis.port() == first.port)?;
        (is_done && new.is_running() && is_master(new)).then_some(new)
    }

    /// Waits until every running sentinel would do a failover: it knows enough of the others, and two replicas that are
    /// in step with the master.
    #[track_caller]
    pub fn wait_settled(&self) {
        for sentinel in self.running() {
            eventually("a sentinel to be content", || {
                let quorum = sentinel.call(&[b"SENTINEL", b"CKQUORUM", MASTER_NAME.as_bytes()]);
                let replicas = sentinel.call(&[b"SENTINEL", b"REPLICAS", MASTER_NAME.as_bytes()]).array();
                let is_well = |replica: &&Reply| {
                    let text = replica.text();
                    text.contains("\nflags\nslave\n") && text.contains("\nmaster-link-status\nok\n")
                };
                let well = replicas.iter().filter(is_well).count();
                (matches!(quorum, Reply::Status(_)) && well == 2).then_some(())
            });
        }
    }

    /// The port of the master according to each running sentinel.
    #[track_caller]
    fn told(&self) -> Vec<u16> {
        let ask = |sentinel: &Redis| {
            let answer = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]);
            answer.lines().nth(1).and_then(|port| port.parse().ok()).expect("a sentinel knows no master")
        };
        self.running().map(ask).collect()
    }
}

/// What a sentinel knows about the master.
#[derive(PartialEq, Eq)]
struct View {
    port: u16,
    /// `master`, and what is wrong with it or going on.
    flags: String,
    /// The number of the failover that led to this.
    epoch: String,
}

impl View {
    #[track_caller]
    fn of(sentinel: &Redis) -> Self {
        let answer = sentinel.call(&[b"SENTINEL", b"MASTER", MASTER_NAME.as_bytes()]).array();
        let field = |name: &str| {
            let pair = answer.chunks_exact(2).find(|pair| pair[0].text() == name);
            pair.map(|pair| pair[1].text()).unwrap_or_default()
        };
        Self { port: field("port").parse().unwrap(), flags: field("flags"), epoch: field("config-epoch") }
    }
}

/// The initial configuration of sentinel `number`. It would find out all of it on its own, in seconds.
fn configuration(number: usize, servers: &[Redis], sentinels: &[Redis]) -> String {
    let id = |number: usize| format!("{:040x}", number + 1);
    let master = servers[0].port();
    let mut text = format!(
        "sentinel myid {}\n\
         sentinel monitor {MASTER_NAME} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {MASTER_NAME} 1000\n\
         sentinel failover-timeout {MASTER_NAME} 2000\n",
        id(number)
    );
    for replica in &servers[1..] {
        let _ = writeln!(text, "sentinel known-replica {MASTER_NAME} 127.0.0.1 {}", replica.port());
    }
    for (other, sentinel) in sentinels.iter().enumerate().filter(|&(other, _)| other != number) {
        let _ = writeln!(text, "sentinel known-sentinel {MASTER_NAME} 127.0.0.1 {} {}", sentinel.port(), id(other));
    }
    text
}

/// Waits until this many replicas have everything that was written to `master` up to now.
#[track_caller]
pub fn wait_replicated(master: &Redis, count: usize) {
    eventually(&format!("{count} replicas to be up to date"), || {
        let online = master.cli(&["INFO", "replication"]).matches(",state=online,").count();
        if online != count {
            return None;
        }
        // WAIT is about what its own connection has written, and this comes after all earlier writes.
        master.cli(&["PUBLISH", "nobody", "hears"]);
        (master.cli(&["WAIT", &count.to_string(), "1000"]) == count.to_string()).then_some(())
    });
}

/// Whether this server calls itself a master. A server that changes its role closes all connections.
pub fn is_master(redis: &Redis) -> bool {
    redis.ask(&["ROLE"]).is_some_and(|role| role.array().first().is_some_and(|role| role.text() == "master"))
}

/// The part of a URL after the scheme.
fn place(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, place)| place)
}

impl Servers for RedisGroup {
    fn daemons(&self) -> Vec<&Daemon> {
        self.iter().map(|redis| &**redis).collect()
    }

    fn has_clients(&self) -> bool {
        self.iter().any(Redis::has_clients)
    }

    fn clear(&self) {
        self.iter().for_each(Redis::clear);
    }

    fn state(&self) -> String {
        self.iter().map(Redis::state).collect()
    }
}

/// The master is the first one, or their state is another.
impl Servers for RedisReplicas {
    fn daemons(&self) -> Vec<&Daemon> {
        self.iter().map(|redis| &**redis).collect()
    }

    fn has_clients(&self) -> bool {
        self.iter().flat_map(Redis::clients).any(|line| !is_among_servers(&line))
    }

    fn clear(&self) {
        self[0].clear();
        self.iter().for_each(Redis::forget_addresses);
        wait_replicated(&self[0], self.len() - 1);
    }

    fn state(&self) -> String {
        self.iter().map(Redis::state).collect()
    }
}

impl Servers for RedisSentinels {
    fn daemons(&self) -> Vec<&Daemon> {
        self.servers.iter().chain(&self.sentinels).map(|redis| &**redis).collect()
    }

    fn has_clients(&self) -> bool {
        self.servers.has_clients()
            || self.sentinels.iter().flat_map(Redis::clients).any(|line| !is_among_servers(&line))
    }

    fn clear(&self) {
        self.servers.clear();
        self.wait_settled();
        self.sentinels.iter().for_each(Redis::forget_addresses);
    }

    fn state(&self) -> String {
        format!("{} {:?}", self.servers.state(), self.told())
    }
}
