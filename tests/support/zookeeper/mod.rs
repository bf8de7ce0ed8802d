//! Real ZooKeeper servers, one or several that form an ensemble, and how to look at them from outside.

mod client;
mod content;
mod jute;
mod launch;
mod requests;
mod server;

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Mutex;
use std::time::Duration;

// Each test program uses its own part of this.
#[allow(unused_imports)]
pub use client::{Acl, Client, Error, Kind, NO_AUTH, NO_NODE, Node};
pub use server::Server;

use crate::support::certificates::Tls;
use crate::support::ensemble::Ensemble;
use crate::support::islands::Island;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{CAP, eventually, eventually_within};

use server::EARLY_ANSWER;

/// How long a server may take to answer one request of the test itself.
const ANSWER: Duration = Duration::from_secs(10);
/// The lifetime in milliseconds of a session that only checks whether a server grants any.
const BRIEF_SESSION: i32 = 2000;

/// How a [`ZooKeeper`] is set up.
pub struct ZooKeeperOptions {
    pub servers: usize,
    /// The tick in milliseconds, in which sessions are counted.
    pub tick: u32,
    /// The shortest session that is granted, in milliseconds.
    pub min_session: u32,
    /// The longest session that is granted, in milliseconds.
    pub max_session: u32,
    /// TLS for clients; none for plain text.
    pub tls: Option<Tls>,
    /// Whether [`ZooKeeper::cut_off`] can be used.
    pub cuttable: bool,
    /// Whether every server has a wall clock of its own, see `Daemon::clock`.
    pub clocks: bool,
    /// Whether every server has its transaction log on a disk of 4 MiB, see `Daemon::fill_disk`.
    pub small_disks: bool,
    /// More lines for every server's configuration.
    pub lines: Vec<String>,
    /// The island of each server; empty for all on loopback.
    pub islands: Vec<Island>,
}

impl ZooKeeperOptions {
    /// A server that grants sessions from 0.4 s to 60 s, accurate to a fifth of a second. ZooKeeper's own limits are 2
    /// and 20 ticks.
    pub fn single() -> Self {
        Self {
            servers: 1,
            tick: 200,
            min_session: 400,
            max_session: 60_000,
            tls: None,
            cuttable: false,
            clocks: false,
            small_disks: false,
            lines: Vec::new(),
            islands: Vec::new(),
        }
    }

    /// Three servers, of which one that is silent for two seconds is taken for dead.
    pub fn ensemble() -> Self {
        Self { servers: 3, ..Self::single() }
    }
}

/// ZooKeeper on loopback: one server, or several that form an ensemble; empty, as an unprivileged user, gone at the end
/// of the test.
///
/// The test uses a port in plain text, whatever clients have to use, and may do everything. All methods take `&self`,
/// so that another thread may break the servers while the test goes on.
pub struct ZooKeeper {
    ensemble: Ensemble<Server>,
    options: ZooKeeperOptions,
    /// The test's own connection, and the index of the server at its other end.
    client: Mutex<Option<(usize, Client)>>,
    /// The test's own sessions, which tell them from those of the program under test.
    own: Mutex<HashSet<i64>>,
    /// The proxy from each server (the first index) to each other one (the second), where that connection can be cut.
    links: Vec<Vec<Option<Proxy>>>,
}

impl Deref for ZooKeeper {
    type Target = Ensemble<Server>;

    fn deref(&self) -> &Ensemble<Server> {
        &self.ensemble
    }
}

impl ZooKeeper {
    /// One server that answers.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(ZooKeeperOptions::single())
    }

    /// Three servers that have a leader.
    #[track_caller]
    pub fn ensemble() -> Self {
        Self::with(ZooKeeperOptions::ensemble())
    }

    #[track_caller]
    pub fn with(options: ZooKeeperOptions) -> Self {
        let servers: Vec<Server> = (0..options.servers).map(|index| Server::new(&options, index)).collect();
        let link =
            |from: usize, to: usize| (options.cuttable && from != to).then(|| Proxy::to(servers[to].quorum.number()));
        let links = (0..servers.len()).map(|from| (0..servers.len()).map(|to| link(from, to)).collect()).collect();
        let (client, own) = (Mutex::default(), Mutex::default());
        let zookeeper = Self { ensemble: Ensemble::new(servers, options.tls), options, client, own, links };
        zookeeper.launch(&zookeeper.indices());
        zookeeper
    }

    /// `zk://127.0.0.1:PORT,127.0.0.1:PORT`, or `zks://` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "zks" } else { "zk" };
        format!("{scheme}://{}", self.hosts())
    }

    /// `127.0.0.1:PORT,127.0.0.1:PORT`, as clients in Java and Python take it.
    pub fn hosts(&self) -> String {
        let tls = self.is_tls();
        let port = |server: &Server| if tls { server.secure_port() } else { server.port() };
        self.addresses(port)
    }

    /// Kills all running servers, and restarts all on their ports with their data. Returns once they answer.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch(&self.indices());
    }

    /// Kills this server if it runs, and restarts it on its port with its data. Returns once it answers, which takes a
    /// majority.
    #[track_caller]
    pub fn restart_server(&self, index: usize) {
        self.server(index).kill();
        self.launch(&[index]);
    }

    /// The index of the present leader. Waits until a server that is neither frozen nor killed leads, and most of the
    /// others follow it.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let mut patience = EARLY_ANSWER;
        eventually("a leader", || {
            let modes: Vec<(usize, String)> =
                self.at_work().filter_map(|(index, server)| Some((index, server.mode(&mut patience)?))).collect();
            let (leader, _) = modes.iter().find(|(_, mode)| mode == "leader" || mode == "standalone")?;
            (modes.len() * 2 > self.servers().len()).then_some(*leader)
        })
    }

    /// Waits until every server at work grants new sessions, for which all of them have to agree. After an outage that
    /// can take much longer than an election: occasionally more than half a minute. Returns false if it never happens.
    pub fn wait_serving(&self) -> bool {
        let serves = |server: &Server| {
            // One that is answered too late leaves an unknown session.
            let client = Client::introduce(server.place(), Duration::from_secs(1), BRIEF_SESSION, None).ok()?;
            self.own.lock().unwrap().insert(client.session());
            client.close().ok()
        };
        self.at_work().all(|(_, server)| eventually_within(4 * CAP, || serves(server)).is_some())
    }

    /// How often the ensemble has elected a leader, by the last transaction id of the first server that answers: its
    /// first half is the epoch.
    pub fn epoch(&self) -> Option<i64> {
        self.at_work().find_map(|(_, server)| {
            let answer = server.try_four_letters("srvr", Duration::from_millis(500)).ok()?;
            let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x"))?;
            Some(i64::from_str_radix(zxid, 16).ok()? >> 32)
        })
    }

    /// Lets nothing pass any more between this server and the others; its clients still reach it. (The servers can
    /// still vote, so a leader that is cut off may be elected again, which does not help it.)
    #[track_caller]
    pub fn cut_off(&self, index: usize) {
        self.set_links(index, Mode::Hold);
    }

    /// Lets what [`Self::cut_off`] held back arrive, and everything after it.
    #[track_caller]
    pub fn heal(&self, index: usize) {
        self.set_links(index, Mode::Forward);
    }

    fn set_links(&self, index: usize, mode: Mode) {
        assert!(self.options.cuttable, "the ensemble was not started as one that can be cut");
        let away = self.links[index].iter();
        let back = self.links.iter().map(|from| &from[index]);
        away.chain(back).flatten().for_each(|link| link.set(mode));
    }
}
