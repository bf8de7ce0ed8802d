//! Real ZooKeeper servers, one or several that form an ensemble, and how to look at them from outside.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::certificates::{Certificates, ClientCertificate, Tls};
use super::clock::ClockShim;
use super::daemon::{Daemon, Port, need};
use super::exhausted::SmallDisk;
use super::islands::Island;
use super::proxy::{Mode, Proxy};
use super::rendezvous::{CAP, boottime, eventually, eventually_within};

/// How long a server may take to answer one request of the test itself.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a server may take to say what it is, at first: one that is asked while it starts may never answer, and one
/// on a busy machine needs longer, so it is given more time after each silence.
const EARLY_ANSWER: Duration = Duration::from_millis(100);

/// How long a session of the test itself lasts without a word, in milliseconds.
const LONG_SESSION: i32 = 60_000;
/// The same of one that is only to see whether a server gives any.
const BRIEF_SESSION: i32 = 2000;

/// Where Debian keeps what runs the server; its own manifest forgets the last one, which TLS needs.
const JARS: [&str; 3] =
    ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar", "/usr/share/java/netty-codec.jar"];

/// The name and password with which the test may do everything, and how the servers know them: the password's digest is
/// the SHA-1 of both in base64.
const SUPER: (&str, &str) = ("super", "test");
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// The logger that tells of every request before it is answered.
const REQUEST_LOGGER: &str = "org.apache.zookeeper.server.FinalRequestProcessor";

/// What a [`ZooKeeper`] is made of.
pub struct ZooKeeperOptions {
    pub servers: usize,
    /// In milliseconds: sessions are counted in these.
    pub tick: u32,
    /// The shortest session that is granted, in milliseconds.
    pub min_session: u32,
    /// The longest.
    pub max_session: u32,
    /// None for plain text.
    pub tls: Option<Tls>,
    /// Whether [`ZooKeeper::cut_off`] can be used.
    pub cuttable: bool,
    /// Whether every server has a wall clock of its own, [`Server::clock`].
    pub clocks: bool,
    /// Whether every server has its log of transactions on a disk of 4 MiB, [`Server::fill_disk`].
    pub small_disks: bool,
    /// More lines for every server's configuration.
    pub lines: Vec<String>,
    /// Where each server is; none for all on loopback.
    pub islands: Vec<Island>,
}

impl ZooKeeperOptions {
    /// A server that grants sessions from 0.4 s to 60 s to the fifth of a second. ZooKeeper's own limits are 2 and 20
    /// ticks.
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

    /// Three servers, of which one that is not heard for two seconds is taken for dead.
    pub fn ensemble() -> Self {
        Self { servers: 3, ..Self::single() }
    }
}

/// ZooKeeper on loopback: one server, or several that form an ensemble; empty, as an unprivileged user, gone at the end
/// of the test.
///
/// The test looks through a port in plain text, whatever clients have to use, and may do everything. All methods take
/// `&self`, so that another thread may break the servers while the test goes on.
pub struct ZooKeeper {
    servers: Vec<Server>,
    options: ZooKeeperOptions,
    certificates: Option<Certificates>,
    /// Our own connection, and the index of the server at its other end.
    client: Mutex<Option<(usize, Client)>>,
    /// Our own sessions, by which they are told from those of the program under test.
    own: Mutex<HashSet<i64>>,
    /// What each server (the first index) has to go through to reach each other one (the second), where that can be cut.
    links: Vec<Vec<Option<Proxy>>>,
}

/// One server of a [`ZooKeeper`].
pub struct Server {
    daemon: Daemon,
    clock: Option<ClockShim>,
    /// Where its log of transactions is, if that is not with its other data; empty after a restart.
    disk: Option<SmallDisk>,
    /// In plain text.
    plain: Port,
    /// With TLS, where that is asked for.
    secure: Port,
    /// Where those who follow it connect to.
    quorum: Port,
    election: Port,
}

/// A node and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub data: String,
    /// The transaction that made it.
    pub czxid: i64,
    /// When that was, in milliseconds since 1970 by the clock of the server that led.
    pub ctime: i64,
    /// The transaction that changed its data last.
    pub mzxid: i64,
    /// How often its data was changed.
    pub version: i32,
    /// The session it goes with, or 0.
    pub ephemeral_owner: i64,
    pub children: i32,
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
        let server = |index| {
            let daemon = Daemon::new("zookeeper").on(options.islands.get(index));
            Server {
                clock: options.clocks.then(ClockShim::new),
                disk: options.small_disks.then(|| SmallDisk::on(daemon.subdirectory("disk"), 4)),
                daemon,
                plain: Port::reserve(),
                secure: Port::reserve(),
                quorum: Port::reserve(),
                election: Port::reserve(),
            }
        };
        let servers: Vec<Server> = (0..options.servers).map(server).collect();
        let link =
            |from: usize, to: usize| (options.cuttable && from != to).then(|| Proxy::to(servers[to].quorum.number()));
        let links = (0..servers.len()).map(|from| (0..servers.len()).map(|to| link(from, to)).collect()).collect();
        let certificates = options.tls.map(|_| Certificates::new());
        let (client, own) = (Mutex::default(), Mutex::default());
        let zookeeper = Self { servers, options, certificates, client, own, links };
        zookeeper.launch_all();
        zookeeper
    }

    /// `zk://127.0.0.1:PORT,127.0.0.1:PORT`, or `zks://` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "zks" } else { "zk" };
        format!("{scheme}://{}", self.hosts())
    }

    /// `127.0.0.1:PORT,127.0.0.1:PORT`, as clients in Java and Python want it.
    pub fn hosts(&self) -> String {
        let tls = self.is_tls();
        let port = |server: &Server| if tls { server.secure_port() } else { server.port() };
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("{}:{}", server.host(), port(server))).collect();
        hosts.join(",")
    }

    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// Whether clients have to use TLS.
    pub fn is_tls(&self) -> bool {
        self.options.tls.is_some()
    }

    /// What clients need for TLS. Fails the test when there is none.
    #[track_caller]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("zookeeper was started without TLS")
    }

    /// Freezes all servers.
    #[track_caller]
    pub fn stop(&self) {
        self.servers.iter().for_each(Server::stop);
    }

    /// Lets all servers that are frozen go on.
    #[track_caller]
    pub fn cont(&self) {
        self.servers.iter().for_each(Server::cont);
    }

    /// Kills all servers.
    pub fn kill(&self) {
        self.servers.iter().for_each(Server::kill);
    }

    /// Kills all servers that run, and starts all again on their ports with their data. Returns when they answer.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch_all();
    }

    /// Kills this server if it runs, and starts it again on its port with its data. Returns when it answers, which takes
    /// a majority.
    #[track_caller]
    pub fn restart_server(&self, index: usize) {
        self.servers[index].kill();
        self.launch(index);
        self.servers[index].wait_ready(self.is_tls());
    }

    /// The index of the server that leads at this moment. Waits until one that is neither frozen nor killed does, and most
    /// of the others follow it.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let mut patience = EARLY_ANSWER;
        eventually("a leader", || {
            let at_work = (0..self.servers.len()).filter(|&index| self.servers[index].is_at_work());
            let modes: Vec<(usize, String)> =
                at_work.filter_map(|index| Some((index, self.servers[index].mode(&mut patience)?))).collect();
            let (leader, _) = modes.iter().find(|(_, mode)| mode == "leader" || mode == "standalone")?;
            (modes.len() * 2 > self.servers.len()).then_some(*leader)
        })
    }

    /// Waits until every server that is at work takes new sessions, which needs all of them to agree. After an outage that
    /// can take much longer than to find a leader: once in a while more than half a minute. False where it does not happen
    /// at all.
    pub fn wait_serving(&self) -> bool {
        let serves = |server: &Server| {
            // One that is answered too late leaves a session that nobody knows.
            let client = Client::introduce(server.place(), Duration::from_secs(1), BRIEF_SESSION, None).ok()?;
            self.own.lock().unwrap().insert(client.session);
            client.close().ok()
        };
        let mut at_work = self.servers.iter().filter(|server| server.is_at_work());
        at_work.all(|server| eventually_within(4 * CAP, || serves(server)).is_some())
    }

    /// How often the ensemble has chosen a leader, by what the first server that answers has seen last: the first half of
    /// every transaction id.
    pub fn epoch(&self) -> Option<i64> {
        self.servers.iter().filter(|server| server.is_at_work()).find_map(|server| {
            let answer = server.try_four_letters("srvr", Duration::from_millis(500)).ok()?;
            let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x"))?;
            Some(i64::from_str_radix(zxid, 16).ok()? >> 32)
        })
    }

    /// Lets nothing pass any more between this server and those it follows or that follow it; its clients still reach it.
    /// (The servers can still vote, so a leader that is cut off may become leader again, which helps it nothing.)
    #[track_caller]
    pub fn cut_off(&self, index: usize) {
        self.set_links(index, Mode::Hold);
    }

    /// Lets what [`Self::cut_off`] held back arrive, and all that comes after.
    #[track_caller]
    pub fn heal(&self, index: usize) {
        self.set_links(index, Mode::Forward);
    }

    /// The children of a node, sorted; none where there is no such node.
    #[track_caller]
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        self.read(path, |client| client.children(path))
    }

    /// What is at `path`.
    #[track_caller]
    pub fn get(&self, path: &str) -> Option<Node> {
        self.read(path, |client| client.get(path, false))
    }

    /// Who may do what with the node at `path`: permissions, scheme and id.
    #[track_caller]
    pub fn acl(&self, path: &str) -> Option<Vec<(i32, String, String)>> {
        self.ask(path, |client| client.acl(path))
    }

    /// Makes a node that stays and that everybody may use.
    #[track_caller]
    pub fn create(&self, path: &str, data: &str) {
        let made = self.ask(path, |client| client.create(path, data, Kind::Persistent, Acl::Open));
        assert!(made.is_some(), "{path} has no parent");
    }

    /// Changes a node's data; whether it was there.
    #[track_caller]
    pub fn set(&self, path: &str, data: &str) -> bool {
        self.ask(path, |client| client.set(path, data)).is_some()
    }

    /// Deletes a node; whether it was there.
    #[track_caller]
    pub fn delete(&self, path: &str) -> bool {
        self.ask(path, |client| client.delete(path)).is_some()
    }

    /// The paths of all nodes but ZooKeeper's own, parents before their children.
    #[track_caller]
    pub fn tree(&self) -> Vec<String> {
        let mut found = vec![String::new()];
        let mut next = 0;
        while next < found.len() {
            let path = found[next].clone();
            // What has gone meanwhile has no children.
            let children = self.children(if path.is_empty() { "/" } else { &path }).unwrap_or_default();
            found.extend(children.iter().map(|child| format!("{path}/{child}")).filter(|path| path != "/zookeeper"));
            next += 1;
        }
        found.split_off(1)
    }

    /// The sessions of others that have not ended.
    #[track_caller]
    pub fn sessions(&self) -> BTreeSet<i64> {
        let leader = self.leader();
        let dump = self.servers[leader].four_letters("dump");
        let own = self.own.lock().unwrap();
        let sessions = dump.split("ephemeral nodes dump").next().unwrap();
        sessions.lines().filter_map(session_id).filter(|session| !own.contains(session)).collect()
    }

    /// The sessions, ours too, that have ephemeral nodes, and the paths of those, in the leader's eyes.
    #[track_caller]
    pub fn ephemerals(&self) -> BTreeMap<i64, BTreeSet<String>> {
        let leader = self.leader();
        let dump = self.servers[leader].four_letters("dump");
        let nodes = dump.split("ephemeral nodes dump").nth(1).unwrap_or_else(|| panic!("no dump: {dump}"));
        let mut found = BTreeMap::<i64, BTreeSet<String>>::new();
        let mut owner = 0;
        for line in nodes.lines().take_while(|line| !line.starts_with("Connections dump")) {
            match (session_id(line), line.strip_prefix('\t')) {
                (Some(session), _) => owner = session,
                (None, Some(path)) => _ = found.entry(owner).or_default().insert(path.to_owned()),
                _ => {}
            }
        }
        found
    }

    /// How many watches clients have set at the first server.
    #[track_caller]
    pub fn watches(&self) -> usize {
        let monitored = self.servers[0].four_letters("mntr");
        let count = monitored.lines().find_map(|line| line.strip_prefix("zk_watch_count\t"));
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count of watches: {monitored}"))
    }

    /// Ends somebody else's session, and with it all its ephemeral nodes. Returns when they are gone; false where it had
    /// ended before.
    #[track_caller]
    pub fn end_session(&self, session: i64) -> bool {
        let server = self.servers.iter().find(|server| server.is_at_work()).expect("no server of zookeeper is at work");
        // Whoever has it may take it back before it is closed.
        for attempt in 0..5 {
            let Ok(client) = Client::reattach(server.place(), ANSWER, session) else { return attempt > 0 };
            if client.close().is_ok() {
                return true;
            }
        }
        false
    }

    /// A connection with a session of its own, at the first server that is at work, for what the methods here cannot do.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.any_client().1
    }

    /// Counts what others than [`ZooKeeper`] itself and its clients ask, from now on.
    #[track_caller]
    pub fn count_requests(&self) -> RequestCount<'_> {
        RequestCount { zookeeper: self, before: self.requests_by_others() }
    }

    /// Watches the node at `path`, which must be there.
    #[track_caller]
    pub fn watch(&self, path: &str) -> Watch {
        let mut client = self.client();
        client.get(path, true).unwrap_or_else(|error| panic!("cannot watch {path}: {error:?}"));
        Watch { client, path: path.to_owned() }
    }

    fn set_links(&self, index: usize, mode: Mode) {
        assert!(self.options.cuttable, "the ensemble was not started as one that can be cut");
        let away = self.links[index].iter();
        let back = self.links.iter().map(|from| &from[index]);
        away.chain(back).flatten().for_each(|link| link.set(mode));
    }

    /// Asks over our own connection, which is kept for the next request. None where there is no such node; whatever else
    /// is refused or not answered fails the test.
    #[track_caller]
    fn ask<T>(&self, path: &str, request: impl Fn(&mut Client) -> Result<T, Error>) -> Option<T> {
        let (index, answer) = self.try_ask(path, request);
        self.settled(path, index, answer)
    }

    /// The same for what changes nothing: it is asked again when the server goes away under it, as one does that loses its
    /// leader.
    #[track_caller]
    fn read<T>(&self, path: &str, request: impl Fn(&mut Client) -> Result<T, Error>) -> Option<T> {
        eventually(&format!("what zookeeper says of {path}"), || match self.try_ask(path, &request) {
            (_, Err(Error::Io(_))) => None,
            (index, answer) => Some(self.settled(path, index, answer)),
        })
    }

    #[track_caller]
    fn settled<T>(&self, path: &str, index: usize, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(Error::Refused(NO_NODE)) => None,
            Err(error) => panic!("zookeeper {index} failed at {path}: {error:?}\n{}", self.servers[index].last_words()),
        }
    }

    /// Asks a server that is up to date; which one, and what it says.
    #[track_caller]
    fn try_ask<T>(&self, path: &str, request: impl Fn(&mut Client) -> Result<T, Error>) -> (usize, Result<T, Error>) {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose server is broken or has closed it is replaced; one that fails under a request is not, because the
        // request may have been carried out.
        let usable = |(index, client): &(usize, Client)| self.servers[*index].is_at_work() && client.is_usable();
        // A server of an ensemble may be behind the others. To ask for that changes nothing, so it can be asked again.
        let (index, mut client) = eventually("a server of zookeeper that is up to date", || {
            let (index, mut client) = kept.take().filter(usable).unwrap_or_else(|| self.any_client());
            client.sync(path).is_ok().then_some((index, client))
        });
        let answer = request(&mut client);
        if !matches!(answer, Err(Error::Io(_))) {
            *kept = Some((index, client));
        }
        (index, answer)
    }

    #[track_caller]
    fn any_client(&self) -> (usize, Client) {
        eventually("a server of zookeeper to take a connection", || {
            let mut at_work = (0..self.servers.len()).filter(|&index| self.servers[index].is_at_work());
            at_work.find_map(|index| {
                let mut client = Client::connect_at(self.servers[index].place(), ANSWER).ok()?;
                self.own.lock().unwrap().insert(client.session);
                client.add_auth(SUPER.0, SUPER.1).ok()?;
                Some((index, client))
            })
        })
    }

    /// What others have asked up to now.
    fn requests_by_others(&self) -> Requests {
        let own = self.own.lock().unwrap().clone();
        let mut found = Requests::default();
        for server in &self.servers {
            for line in server.log().lines() {
                let Some(request) = parse_request(line) else { continue };
                if own.contains(&request.session) {
                    continue;
                }
                if request.operation == "ping" {
                    found.pings += 1;
                } else {
                    // Every server tells of every write.
                    found.others.insert(request);
                }
            }
        }
        found
    }

    #[track_caller]
    fn launch_all(&self) {
        // All first: a server of an ensemble is not ready before most of them are.
        (0..self.servers.len()).for_each(|index| self.launch(index));
        self.servers.iter().for_each(|server| server.wait_ready(self.is_tls()));
    }

    #[track_caller]
    fn launch(&self, index: usize) {
        let server = &self.servers[index];
        let here = server.daemon.directory();
        for jar in JARS {
            assert!(
                Path::new(jar).exists(),
                "missing {jar}: apt-get install libzookeeper-java libslf4j-java (or run tests/run)"
            );
        }
        fs::write(here.join("zoo.cfg"), self.configuration(index)).unwrap();
        let mut command = Command::new(need("java", "default-jdk-headless"));
        // What starts quickly and stays small.
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
        let mut define = |name: &str, value: &str| _ = command.arg(format!("-D{name}={value}"));
        define("java.io.tmpdir", here.to_str().unwrap());
        // What a process has written outlives its being killed without that, and no test takes away the power.
        define("zookeeper.forceSync", "no");
        // They talk to each other again soon after an outage: by default up to a minute later.
        define("zookeeper.fastleader.maxNotificationInterval", "1000");
        define("zookeeper.cnxTimeout", "1000");
        define("zookeeper.preAllocSize", "1024");
        define("zookeeper.DigestAuthenticationProvider.superDigest", SUPER_DIGEST);
        define(&format!("org.slf4j.simpleLogger.log.{REQUEST_LOGGER}"), "debug");
        command.arg("-cp").arg(JARS.join(":")).arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        command.arg(here.join("zoo.cfg"));
        // Java takes options from variables too.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if let Some(clock) = &server.clock {
            clock.attach(&mut command);
        }
        fs::write(server.data().join("myid"), (index + 1).to_string()).unwrap();
        let command = match &server.disk {
            Some(disk) => disk.wrap(&command),
            None => command,
        };
        server.daemon.launch(command);
    }

    fn configuration(&self, index: usize) -> String {
        let server = &self.servers[index];
        let mut lines = vec![
            format!("tickTime={}", self.options.tick),
            format!("minSessionTimeout={}", self.options.min_session),
            format!("maxSessionTimeout={}", self.options.max_session),
            format!("dataDir={}", server.data().display()),
            format!("clientPort={}", server.port()),
            format!("clientPortAddress={}", server.host()),
            "admin.enableServer=false".into(),
            "4lw.commands.whitelist=*".into(),
            "maxClientCnxns=0".into(),
        ];
        lines.extend(server.disk.as_ref().map(|disk| format!("dataLogDir={}", disk.directory().display())));
        if self.servers.len() > 1 {
            lines.extend(["initLimit=25".into(), "syncLimit=10".into()]);
            for (other, peer) in self.servers.iter().enumerate() {
                let quorum = self.links[index][other].as_ref().map_or(peer.quorum.number(), Proxy::port);
                lines.push(format!("server.{}={}:{quorum}:{}", other + 1, peer.host(), peer.election.number()));
            }
        }
        if let Some((tls, files)) = self.options.tls.zip(self.certificates.as_ref()) {
            let clients = match tls.clients {
                ClientCertificate::Ignored => "none",
                ClientCertificate::Wanted => "want",
                ClientCertificate::Needed => "need",
            };
            lines.extend([
                format!("secureClientPort={}", server.secure_port()),
                format!("secureClientPortAddress={}", server.host()),
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".into(),
                format!("ssl.keyStore.location={}", files.key_and_certificate(tls.server).display()),
                "ssl.keyStore.type=PEM".into(),
                format!("ssl.trustStore.location={}", files.ca().display()),
                "ssl.trustStore.type=PEM".into(),
                format!("ssl.clientAuth={clients}"),
            ]);
        }
        lines.extend(self.options.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}

impl Server {
    /// Where clients reach it in plain text.
    pub fn port(&self) -> u16 {
        self.plain.number()
    }

    /// Where clients reach it with TLS, if it was started with that.
    pub fn secure_port(&self) -> u16 {
        self.secure.number()
    }

    /// Its process. Fails the test when it is not running.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Its wall clock, which outlives the process. Fails the test when it goes by the machine's.
    #[track_caller]
    pub fn clock(&self) -> &ClockShim {
        self.clock.as_ref().expect("zookeeper was started without clocks of its own")
    }

    /// Leaves no room on its disk, which must be a small one.
    #[track_caller]
    pub fn fill_disk(&self) {
        self.disk.as_ref().expect("this zookeeper has a large disk").fill(self.pid());
    }

    /// Makes room there again.
    #[track_caller]
    pub fn free_disk(&self) {
        self.disk.as_ref().expect("this zookeeper has a large disk").free(self.pid());
    }

    /// What it has logged: every request, and more.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// The address of it.
    pub fn host(&self) -> Ipv4Addr {
        self.daemon.host()
    }

    /// Where clients reach it in plain text: address and port.
    pub fn place(&self) -> SocketAddr {
        (self.host(), self.port()).into()
    }

    /// Has the test ask others, as long as this one is cut off from them and cannot know.
    pub fn set_aside(&self, aside: bool) {
        self.daemon.set_aside(aside);
    }

    /// Whether it has been started and neither killed, frozen nor set aside since.
    pub fn is_at_work(&self) -> bool {
        self.daemon.is_at_work()
    }

    /// Freezes it: connections are still accepted by the kernel, and nothing is answered. Returns when it stands still.
    #[track_caller]
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Lets it go on when it is frozen.
    #[track_caller]
    pub fn cont(&self) {
        self.daemon.cont();
    }

    /// Kills it, frozen or not. Returns when it is gone; connecting is refused from then on.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// What it answers to a command of four letters, such as `srvr`, `mntr`, `cons` or `wchp`.
    #[track_caller]
    pub fn four_letters(&self, command: &str) -> String {
        let answer = self.try_four_letters(command, ANSWER);
        answer.unwrap_or_else(|error| panic!("{command}: {error}\n{}", self.last_words()))
    }

    /// `leader`, `follower` or `standalone`; none while it does not serve. Silence makes us more patient.
    fn mode(&self, patience: &mut Duration) -> Option<String> {
        let answer = self.try_four_letters("srvr", *patience);
        if answer.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)) {
            *patience = ANSWER.min(*patience * 2);
        }
        Some(answer.ok()?.lines().find_map(|line| line.strip_prefix("Mode: "))?.to_owned())
    }

    fn try_four_letters(&self, command: &str, patience: Duration) -> io::Result<String> {
        let mut stream = connect(self.place(), patience)?;
        stream.write_all(command.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[track_caller]
    fn wait_ready(&self, tls: bool) {
        let mut patience = EARLY_ANSWER;
        self.daemon.wait_ready(|| self.mode(&mut patience));
        if tls {
            // Bound after the other one.
            self.daemon.wait_ready(|| connect((self.host(), self.secure_port()).into(), ANSWER).ok());
        }
    }

    /// Where it keeps its data.
    fn data(&self) -> PathBuf {
        self.daemon.subdirectory("data")
    }

    /// The end of its log, without the requests.
    fn last_words(&self) -> String {
        let log = self.log();
        let mut lines: Vec<&str> = log.lines().rev().filter(|line| !line.contains("DEBUG")).take(30).collect();
        lines.reverse();
        lines.join("\n")
    }
}

/// One request that a server carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    session: i64,
    /// Its number within the session.
    number: String,
    operation: String,
}

/// Reads the end of a line: `Processing request:: sessionid:0x1 type:create cxid:0x1 zxid:0x2 txntype:1 reqpath:/x`.
fn parse_request(line: &str) -> Option<Request> {
    let (_, words) = line.split_once("Processing request:: ")?;
    let word = |name: &str| words.split(' ').find_map(|word| word.strip_prefix(name));
    let session = session_id(word("sessionid:")?)?;
    Some(Request { session, number: word("cxid:")?.to_owned(), operation: word("type:")?.to_owned() })
}

/// A session's id as ZooKeeper prints it at the beginning of a line.
fn session_id(line: &str) -> Option<i64> {
    let digits = line.trim().strip_prefix("0x")?;
    let end = digits.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(digits.len());
    Some(u64::from_str_radix(&digits[..end], 16).ok()?.cast_signed())
}

#[derive(Default)]
struct Requests {
    others: BTreeSet<Request>,
    pings: u64,
}

/// What others ask a [`ZooKeeper`] from a moment on.
pub struct RequestCount<'a> {
    zookeeper: &'a ZooKeeper,
    before: Requests,
}

impl RequestCount<'_> {
    /// How often others have asked what up to now, by the operation's name in ZooKeeper's log (`create2`, `multi`,
    /// `getChildren2`, `createSession` …, and `ping` for heartbeats). All that has been answered is in it; a logging in is
    /// not.
    #[track_caller]
    pub fn so_far(&self) -> BTreeMap<String, u64> {
        let after = self.zookeeper.requests_by_others();
        let mut counts = BTreeMap::new();
        for request in after.others.difference(&self.before.others) {
            *counts.entry(request.operation.clone()).or_default() += 1;
        }
        let pings = after.pings - self.before.pings;
        if pings > 0 {
            counts.insert("ping".to_owned(), pings);
        }
        counts
    }

    /// How many requests these were, heartbeats apart.
    #[track_caller]
    pub fn without_heartbeats(&self) -> u64 {
        self.so_far().iter().filter(|(operation, _)| *operation != "ping").map(|(_, count)| count).sum()
    }
}

/// A node that is watched for a change.
pub struct Watch {
    client: Client,
    path: String,
}

impl Watch {
    /// Waits for the end of the node, and returns when we were told, by [`boottime`]: never before it happened. Fails the
    /// test when its data change instead.
    #[track_caller]
    pub fn wait_deleted(mut self) -> Duration {
        let event = self.client.wait_event();
        let event = event.unwrap_or_else(|error| panic!("waited {CAP:?} in vain for {}: {error:?}", self.path));
        let at = boottime();
        assert_eq!(event, (NODE_DELETED, self.path), "what happened, and where");
        at
    }
}

/// Why a request of a [`Client`] failed.
#[derive(Debug)]
pub enum Error {
    /// The server's code for it, such as [`NO_NODE`].
    Refused(i32),
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub const NO_NODE: i32 = -101;
pub const NO_AUTH: i32 = -102;
pub const NODE_EXISTS: i32 = -110;
pub const NOT_EMPTY: i32 = -111;

const NODE_DELETED: i32 = 2;

/// How long a node lives, and what its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Persistent,
    /// As long as the client's session.
    Ephemeral,
    /// The same, and ten digits that count up are put behind its name.
    EphemeralSequential,
}

/// Who may use a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acl {
    Open,
    /// Whom the client has logged in as.
    Mine,
}

/// A connection to a ZooKeeper server on loopback with a session of its own, which it does not keep alive: the session
/// ends when nothing is asked for so long as it lasts (a minute, unless the server grants less), or when this is closed.
pub struct Client {
    stream: TcpStream,
    session: i64,
    xid: i32,
}

impl Client {
    /// At this port of the loopback address.
    pub fn connect(port: u16, patience: Duration) -> Result<Self, Error> {
        Self::connect_at((Ipv4Addr::LOCALHOST, port).into(), patience)
    }

    /// Wherever it is.
    pub fn connect_at(place: SocketAddr, patience: Duration) -> Result<Self, Error> {
        Self::introduce(place, patience, LONG_SESSION, None)
    }

    /// The same with a session that is there already, whoever began it: its password follows from its number.
    pub fn reattach(place: SocketAddr, patience: Duration, session: i64) -> Result<Self, Error> {
        Self::introduce(place, patience, LONG_SESSION, Some(session))
    }

    fn introduce(place: SocketAddr, patience: Duration, length: i32, session: Option<i64>) -> Result<Self, Error> {
        let mut client = Self { stream: connect(place, patience)?, session: 0, xid: 0 };
        let mut request = Jute::default();
        // Protocol version, last transaction seen, session's time-out, session, its password, no read-only mode.
        let (session, password) = session.map_or((0, [0; 16]), |session| (session, session_password(session)));
        request.int(0).long(0).int(length).long(session).bytes(&password).flag(false);
        client.send(&request)?;
        let mut answer = client.receive()?;
        answer.int()?;
        let granted = answer.int()?;
        client.session = answer.long()?;
        if granted > 0 { Ok(client) } else { Err(io::Error::other("no session").into()) }
    }

    /// The id of its session.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// Logs in with the scheme `digest`.
    pub fn add_auth(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let mut request = Jute::default();
        request.int(-4).int(100).int(0).text("digest").text(&format!("{user}:{password}"));
        self.send(&request)?;
        self.answer(-4).map(|_| ())
    }

    /// Makes a node; its path.
    pub fn create(&mut self, path: &str, data: &str, kind: Kind, acl: Acl) -> Result<String, Error> {
        const ALL: i32 = 31;
        let flags = match kind {
            Kind::Persistent => 0,
            Kind::Ephemeral => 1,
            Kind::EphemeralSequential => 3,
        };
        let (scheme, id) = match acl {
            Acl::Open => ("world", "anyone"),
            Acl::Mine => ("auth", ""),
        };
        let mut body = Jute::default();
        body.text(path).text(data).int(1).int(ALL).text(scheme).text(id).int(flags);
        Ok(self.request(1, &body)?.text()?)
    }

    /// Makes ephemeral nodes, with sequence numbers behind these paths, that everybody may use: in one transaction.
    pub fn create_together(&mut self, paths: &[&str], data: &str) -> Result<(), Error> {
        let mut body = Jute::default();
        for path in paths {
            // The operation, not the last one, no error; then the request as it stands alone.
            body.int(1).flag(false).int(-1);
            body.text(path).text(data).int(1).int(31).text("world").text("anyone").int(3);
        }
        body.int(-1).flag(true).int(-1);
        let mut answer = self.request(14, &body)?;
        // What the first one came to.
        if answer.int()? == 1 { Ok(()) } else { Err(io::Error::other("nothing was made").into()) }
    }

    pub fn delete(&mut self, path: &str) -> Result<(), Error> {
        self.request(2, Jute::default().text(path).int(-1)).map(|_| ())
    }

    /// What is at `path`; with `watch`, [`Self::wait_event`] hears of the next change.
    pub fn get(&mut self, path: &str, watch: bool) -> Result<Node, Error> {
        let mut answer = self.request(4, Jute::default().text(path).flag(watch))?;
        let data = answer.text()?;
        let (czxid, mzxid) = (answer.long()?, answer.long()?);
        let ctime = answer.long()?;
        // When it was changed.
        answer.long()?;
        let version = answer.int()?;
        // How often its children and its ACL were changed.
        let _ = (answer.int()?, answer.int()?);
        let ephemeral_owner = answer.long()?;
        // The length of its data.
        answer.int()?;
        Ok(Node { data, czxid, ctime, mzxid, version, ephemeral_owner, children: answer.int()? })
    }

    pub fn set(&mut self, path: &str, data: &str) -> Result<(), Error> {
        self.request(5, Jute::default().text(path).text(data).int(-1)).map(|_| ())
    }

    /// Permissions, scheme and id of all who may use it.
    pub fn acl(&mut self, path: &str) -> Result<Vec<(i32, String, String)>, Error> {
        let mut answer = self.request(6, Jute::default().text(path))?;
        let count = answer.int()?;
        Ok((0..count).map(|_| Ok((answer.int()?, answer.text()?, answer.text()?))).collect::<io::Result<_>>()?)
    }

    /// The children of a node, sorted.
    pub fn children(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let mut answer = self.request(12, Jute::default().text(path).flag(false))?;
        let count = answer.int()?;
        let mut children = (0..count).map(|_| answer.text()).collect::<io::Result<Vec<_>>>()?;
        children.sort();
        Ok(children)
    }

    /// Lets the server catch up with its leader.
    pub fn sync(&mut self, path: &str) -> Result<(), Error> {
        self.request(9, Jute::default().text(path)).map(|_| ())
    }

    /// Ends the session, and with it all its ephemeral nodes. Returns when they are gone.
    pub fn close(mut self) -> Result<(), Error> {
        self.request(-11, &Jute::default()).map(|_| ())
    }

    /// Waits for what a watch has to tell: the kind of change, and where.
    fn wait_event(&mut self) -> Result<(i32, String), Error> {
        self.stream.set_read_timeout(Some(CAP))?;
        let mut event = self.receive()?;
        // Number, transaction, error.
        let _ = (event.int()?, event.long()?, event.int()?);
        let kind = event.int()?;
        // The state of the session.
        event.int()?;
        Ok((kind, event.text()?))
    }

    fn request(&mut self, operation: i32, body: &Jute) -> Result<Answer, Error> {
        self.xid += 1;
        let mut request = Jute::default();
        request.int(self.xid).int(operation).0.extend_from_slice(&body.0);
        self.send(&request)?;
        self.answer(self.xid)
    }

    fn send(&mut self, message: &Jute) -> io::Result<()> {
        let length = u32::try_from(message.0.len()).unwrap().to_be_bytes();
        self.stream.write_all(&[&length[..], &message.0].concat())
    }

    fn answer(&mut self, xid: i32) -> Result<Answer, Error> {
        let mut answer = self.receive()?;
        let (number, _) = (answer.int()?, answer.long()?);
        if number != xid {
            return Err(io::Error::other(format!("an answer to {number} instead of {xid}")).into());
        }
        match answer.int()? {
            0 => Ok(answer),
            code => Err(Error::Refused(code)),
        }
    }

    fn receive(&mut self) -> io::Result<Answer> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut message)?;
        Ok(Answer(io::Cursor::new(message)))
    }

    /// Whether the other side has neither closed it nor sent anything unasked.
    fn is_usable(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let silent = self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        let _ = self.stream.set_nonblocking(false);
        silent
    }
}

/// The password of a session, as the server's `generatePasswd` makes it: by `java.util.Random`, of a seed that anybody
/// can know.
fn session_password(session: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session.cast_unsigned() ^ 0xB341_5C00 ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for chunk in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        chunk.copy_from_slice(&u32::try_from(state >> 16).expect("32 bits of 48").to_le_bytes());
    }
    password
}

fn connect(place: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&place, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A message to a server in ZooKeeper's encoding.
#[derive(Default)]
struct Jute(Vec<u8>);

impl Jute {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(value.len().try_into().unwrap()).0.extend_from_slice(value);
        self
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

/// What a server has said, read from the front.
struct Answer(io::Cursor<Vec<u8>>);

impl Answer {
    fn int(&mut self) -> io::Result<i32> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// Bytes as text; nothing is the empty text.
    fn text(&mut self) -> io::Result<String> {
        let mut bytes = vec![0; usize::try_from(self.int()?).unwrap_or(0)];
        self.0.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
