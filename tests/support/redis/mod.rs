//! Real redis servers, a fresh one for every test that asks.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::certificates::{Certificates, ClientCertificate, Tls};
use super::clock::ClockShim;
use super::daemon::Daemon;
// What all servers need, and what tests of redis always found here.
pub use super::daemon::{Port, need, need_python};
use super::exhausted::SmallDisk;
use super::rendezvous::{CAP, boottime, eventually, go_first};

/// How long a server may take to answer one request of the test itself.
const ANSWER: Duration = Duration::from_secs(10);

/// The name of a server's configuration file, if it has one.
const CONFIGURATION: &str = "redis.conf";

/// A redis-server on loopback: without persistence unless requested, as an unprivileged user, gone at the end of the
/// test.
///
/// All methods take `&self`, so that another thread may break the server while the test goes on.
pub struct Redis {
    port: Port,
    /// Its TLS port and settings, if it has any.
    tls: Option<(Port, Tls, Certificates)>,
    /// Its wall clock, if it does not use the machine's.
    clock: Option<Arc<ClockShim>>,
    /// The disk with its data, if that is not in its directory.
    disk: Option<SmallDisk>,
    pub(super) daemon: Daemon,
    args: Vec<OsString>,
    password: Option<String>,
    client: Mutex<Option<Client>>,
    /// The addresses of the test's own connections, which tell them from those of the program under test.
    own: Arc<Mutex<HashSet<String>>>,
}

impl Redis {
    /// Starts a server, and returns once it answers.
    #[track_caller]
    pub fn start() -> Self {
        Self::with([""; 0])
    }

    /// Starts a server with more arguments, which override the default ones, such as `["--appendonly", "yes"]`. With
    /// `--requirepass` the test's own connections use that password.
    #[track_caller]
    pub fn with<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let redis = Self::prepare(args);
        redis.launch();
        redis
    }

    /// Starts a server that also listens with TLS, at [`Self::tls_port`]. The test itself reaches it in plain text at
    /// [`Self::port`].
    #[track_caller]
    pub fn with_tls<A: AsRef<OsStr>>(tls: Tls, args: impl IntoIterator<Item = A>) -> Self {
        let mut redis = Self::prepare(args);
        redis.tls = Some((Port::reserve(), tls, Certificates::new()));
        redis.launch();
        redis
    }

    /// Starts a server with a wall clock of its own, [`Self::clock`].
    #[track_caller]
    pub fn with_clock<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut redis = Self::prepare(args);
        redis.clock = Some(Arc::new(ClockShim::new()));
        redis.launch();
        redis
    }

    /// Starts a server with its data on a disk of 4 MiB, which [`Self::fill_disk`] fills, and which is empty after a
    /// restart.
    #[track_caller]
    pub fn on_small_disk<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut redis = Self::prepare(args);
        redis.disk = Some(SmallDisk::on(redis.daemon.subdirectory("disk"), 4));
        redis.launch();
        redis
    }

    /// A server that is not started yet: [`Self::launch`] does that. Its ports and its directory exist.
    pub fn prepare<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let password = args.iter().skip_while(|arg| *arg != "--requirepass").nth(1);
        let password = password.map(|word| word.to_string_lossy().into_owned());
        Self {
            port: Port::reserve(),
            tls: None,
            clock: None,
            disk: None,
            daemon: Daemon::new("redis-server"),
            args,
            password,
            client: Mutex::default(),
            own: Arc::default(),
        }
    }

    /// Makes `text` the server's configuration file, which the server itself may change. Arguments override it.
    pub fn configure(&self, text: &str) {
        self.daemon.write(CONFIGURATION, text);
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port at which it uses TLS. Fails the test if it does not.
    #[track_caller]
    pub fn tls_port(&self) -> u16 {
        self.tls.as_ref().expect("this redis does not speak TLS").0.number()
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The certificates that its TLS uses. Fails the test if it does not use TLS.
    #[track_caller]
    pub fn certificates(&self) -> &Certificates {
        &self.tls.as_ref().expect("this redis does not speak TLS").2
    }

    /// Its wall clock, which outlives the process. Fails the test if it uses the machine's.
    #[track_caller]
    pub fn clock(&self) -> &ClockShim {
        self.clock.as_ref().expect("this redis goes by the clock of the machine")
    }

    /// Leaves no room on its disk, which must be a small one.
    #[track_caller]
    pub fn fill_disk(&self) {
        self.disk.as_ref().expect("this redis has a large disk").fill(self.pid());
    }

    /// Frees the room that [`Self::fill_disk`] took.
    #[track_caller]
    pub fn free_disk(&self) {
        self.disk.as_ref().expect("this redis has a large disk").free(self.pid());
    }

    /// The unix socket at which it listens too; every user may connect there.
    pub fn socket(&self) -> PathBuf {
        self.daemon.directory().join("socket")
    }

    /// Whether it was started, and neither killed nor frozen since.
    pub fn is_running(&self) -> bool {
        self.daemon.is_at_work()
    }

    /// The server's process id. Fails the test if it is not running.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// `redis://127.0.0.1:PORT`, or `rediss://` and the TLS port where it uses TLS.
    pub fn url(&self) -> String {
        match &self.tls {
            None => format!("redis://127.0.0.1:{}", self.port()),
            Some((port, ..)) => format!("rediss://127.0.0.1:{}", port.number()),
        }
    }

    /// `redis+unix://` and its socket.
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// A URL with a user (may be empty), a password (may be empty) and a database.
    pub fn url_for(&self, user: &str, password: &str, db: u32) -> String {
        let mut secret = utf8_percent_encode(user, NON_ALPHANUMERIC).to_string();
        if !password.is_empty() {
            let _ = write!(secret, ":{}", utf8_percent_encode(password, NON_ALPHANUMERIC));
        }
        if !secret.is_empty() {
            secret.push('@');
        }
        format!("redis://{secret}127.0.0.1:{}/{db}", self.port())
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Sends one request over the test's own connection and waits for the reply. The connection is kept for the next
    /// request.
    #[track_caller]
    pub fn call(&self, request: &[&[u8]]) -> Reply {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that the server has closed since is replaced; one that fails during a request is not, because
        // the request may have been carried out.
        let mut client = kept.take().filter(Client::is_usable).unwrap_or_else(|| self.client());
        let reply = client.call(request);
        let named = || request.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        let reply = reply.unwrap_or_else(|error| panic!("redis did not answer {}: {error}", named()));
        *kept = Some(client);
        reply
    }

    /// Sends one request to a server that may be gone, or may close connections on its own: none if it does.
    pub fn ask(&self, request: &[&str]) -> Option<Reply> {
        let mut client = self.connect().ok()?;
        self.log_in(&mut client).ok()?;
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
        client.call(&words).ok()
    }

    /// Sends one request in words, as [`Self::call`], and returns the reply as text, an array as lines. An error reply
    /// fails the test.
    #[track_caller]
    pub fn cli<A: AsRef<str>>(&self, request: &[A]) -> String {
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_ref().as_bytes()).collect();
        match self.call(&words) {
            Reply::Error(error) => {
                let request = request.iter().map(AsRef::as_ref).collect::<Vec<_>>();
                panic!("redis refused {}: {error}", request.join(" "))
            }
            reply => reply.text(),
        }
    }

    /// A connection of the test's own, logged in, for what [`Self::call`] cannot do (such as SUBSCRIBE).
    #[track_caller]
    pub fn client(&self) -> Client {
        let client = self.connect().and_then(|mut client| self.log_in(&mut client).map(|()| client));
        client.unwrap_or_else(|error| panic!("cannot connect to redis: {error}\n{}", self.log()))
    }

    /// All keys of database 0, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.call(&[b"KEYS", b"*"]).array().iter().map(Reply::text).collect();
        keys.sort();
        keys
    }

    /// The string at `key` in database 0, if there is one.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.call(&[b"GET", key.as_bytes()]) {
            Reply::Nil => None,
            Reply::Bulk(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            other => panic!("GET {key} answered {other:?}"),
        }
    }

    /// The milliseconds that `key` in database 0 has left; -1 when it does not expire, -2 when there is none.
    #[track_caller]
    pub fn pttl(&self, key: &str) -> i64 {
        match self.call(&[b"PTTL", key.as_bytes()]) {
            Reply::Int(left) => left,
            other => panic!("PTTL {key} answered {other:?}"),
        }
    }

    /// When `key` in database 0 expires at the earliest, by [`boottime`]; none when there is none or it does not expire.
    #[track_caller]
    pub fn expiry(&self, key: &str) -> Option<Duration> {
        // Asked later than this, it has that much left.
        let now = boottime();
        let left = Duration::from_millis(u64::try_from(self.pttl(key)).ok()?.saturating_sub(1));
        Some(now + self.true_length(left))
    }

    /// The true length of an interval that takes `shown` by the server's clock.
    fn true_length(&self, shown: Duration) -> Duration {
        self.clock.as_ref().map_or(shown, |clock| clock.true_length(shown))
    }

    /// The connections of others, one line of `CLIENT LIST` each.
    #[track_caller]
    pub fn clients(&self) -> Vec<String> {
        let list = self.cli(&["CLIENT", "LIST"]);
        let own = self.own.lock().unwrap();
        let is_own = |line: &str| {
            let address = line.split(' ').find_map(|word| word.strip_prefix("addr="));
            address.is_some_and(|address| own.contains(address))
        };
        list.lines().filter(|line| !line.is_empty() && !is_own(line)).map(str::to_owned).collect()
    }

    /// Freezes the server: the kernel still accepts connections, and nothing is answered. Returns once it is stopped.
    #[track_caller]
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Continues a frozen server.
    #[track_caller]
    pub fn cont(&self) {
        self.daemon.cont();
    }

    /// Kills the server, frozen or not. Returns once it is gone; connections are refused from then on.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Kills the server if it runs, and restarts it on the same port with the same arguments and directory: empty,
    /// unless it persists its data. Returns once it answers.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    /// Kills the server if it runs, and restarts it on the same port without its data, even if it persists them.
    /// Returns once it answers.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.kill();
        for name in ["appendonlydir", "dump.rdb"] {
            let path = self.daemon.directory().join(name);
            let _ = std::fs::remove_dir_all(&path);
            let _ = std::fs::remove_file(&path);
        }
        self.launch();
    }

    /// Watches the commands that the server carries out, from now on.
    #[track_caller]
    pub fn monitor(&self) -> Monitor<'_> {
        let mut client = self.client();
        assert_eq!(client.call(&[b"MONITOR"]).unwrap().text(), "OK");
        client.stream.get_ref().set_read_timeout(None).unwrap();
        Monitor::watch(self, client)
    }

    fn connect(&self) -> io::Result<Client> {
        let client = Client::connect(self.port())?;
        self.own.lock().unwrap().insert(client.address.clone());
        Ok(client)
    }

    fn log_in(&self, client: &mut Client) -> io::Result<()> {
        let Some(password) = &self.password else { return Ok(()) };
        match client.call(&[b"AUTH", password.as_bytes()])? {
            Reply::Error(error) => Err(io::Error::other(error)),
            _ => Ok(()),
        }
    }

    /// Starts a server that is not running. Returns once it answers.
    #[track_caller]
    pub fn launch(&self) {
        let mut command = Command::new(need("redis-server", "redis-server"));
        let directory = self.daemon.directory();
        let configuration = directory.join(CONFIGURATION);
        if configuration.exists() {
            command.arg(configuration);
        }
        command.arg("--unixsocket").arg(self.socket()).args(["--unixsocketperm", "777"]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--port").arg(self.port().to_string()).arg("--dir");
        command.arg(self.disk.as_ref().map_or(directory, SmallDisk::directory));
        if let Some((port, tls, certificates)) = &self.tls {
            command.arg("--tls-port").arg(port.number().to_string());
            command.arg("--tls-cert-file").arg(certificates.certificate(tls.server));
            command.arg("--tls-key-file").arg(certificates.key(tls.server));
            command.arg("--tls-ca-cert-file").arg(certificates.ca());
            command.args(["--tls-auth-clients", asked_of_clients(tls.clients)]);
        }
        command.args(&self.args);
        if let Some(clock) = &self.clock {
            clock.attach(&mut command);
        }
        let command = match &self.disk {
            Some(disk) => disk.wrap(&command),
            None => command,
        };
        self.daemon.launch(command);
        let mut client = self.daemon.wait_ready(|| {
            let mut client = self.connect().ok()?;
            let pong = client.call(&[b"PING"]).ok()?;
            is_ready(&pong).then_some(client)
        });
        self.log_in(&mut client).unwrap();
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }
}

/// The value of redis's option for this requirement.
fn asked_of_clients(certificate: ClientCertificate) -> &'static str {
    match certificate {
        ClientCertificate::Ignored => "no",
        ClientCertificate::Wanted => "optional",
        ClientCertificate::Needed => "yes",
    }
}

/// A server that requires a password is ready; one that is still loading its data is not.
fn is_ready(pong: &Reply) -> bool {
    match pong {
        Reply::Error(error) => error.starts_with("NOAUTH"),
        other => other.text() == "PONG",
    }
}

/// A reply of redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply as text: a null is the empty string, an array is its items as lines.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil => String::new(),
            Self::Array(items) => items.iter().map(Self::text).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The items of an array. Fails the test if it is not one.
    #[track_caller]
    pub fn array(self) -> Vec<Reply> {
        match self {
            Self::Array(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }
}

/// A connection to a redis on loopback that speaks RESP2 and knows no commands.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_nodelay(true)?;
        let address = stream.local_addr()?.to_string();
        Ok(Self { stream: BufReader::new(stream), address })
    }

    /// Sends one request and waits for its reply.
    pub fn call(&mut self, request: &[&[u8]]) -> io::Result<Reply> {
        let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
        for word in request {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)?;
        self.read_reply()
    }

    /// Waits for the next reply or message.
    pub fn read_reply(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| bad(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| bad(&line));
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => Reply::Array((0..length).map(|_| self.read_reply()).collect::<io::Result<_>>()?),
            },
            _ => return Err(bad(&line)),
        })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.stream.read_until(b'\n', &mut bytes)?;
        match bytes.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether the other side has neither closed it nor sent anything unasked.
    fn is_usable(&self) -> bool {
        let stream = self.stream.get_ref();
        let _ = stream.set_nonblocking(true);
        let silent = stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        let _ = stream.set_nonblocking(false);
        silent && self.stream.buffer().is_empty()
    }
}

fn bad(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

/// One command that a server carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When the server reported it, by [`boottime`]: a script before it ran, the commands that it called afterwards.
    pub at: Duration,
    pub db: u32,
    /// The client's address, or `lua` for a command that a script called.
    pub source: String,
    /// The command's name as it was sent, and its arguments.
    pub words: Vec<String>,
}

/// The commands that a server carries out, as it reports them itself (`MONITOR`). It leaves out administrators'
/// commands (CONFIG and the like) and those that contain a password.
pub struct Monitor<'a> {
    redis: &'a Redis,
    seen: Arc<(Mutex<Vec<Seen>>, Condvar)>,
    /// The test's own connection, to end the thread.
    stream: TcpStream,
}

impl<'a> Monitor<'a> {
    fn watch(redis: &'a Redis, mut client: Client) -> Self {
        let seen = Arc::<(Mutex<Vec<Seen>>, Condvar)>::default();
        let stream = client.stream.get_ref().try_clone().unwrap();
        let (shared, clock) = (Arc::clone(&seen), redis.clock.clone());
        thread::spawn(move || {
            // A question about a lease must not be answered before this has heard of its renewal.
            go_first();
            while let Ok(Reply::Status(line)) = client.read_reply() {
                shared.0.lock().unwrap().push(parse_seen(&line, clock.as_deref()));
                shared.1.notify_all();
            }
        });
        Self { redis, seen, stream }
    }

    /// The commands that others than this test have sent up to now, without those that ran in their scripts. Everything
    /// that the server has carried out before this call is included.
    #[track_caller]
    pub fn client_commands(&self) -> Vec<Vec<String>> {
        self.catch_up();
        self.others().into_iter().filter(|seen| seen.source != "lua").map(|seen| seen.words).collect()
    }

    /// The commands that others than this test have sent up to now, including those that ran in their scripts, with
    /// their senders.
    #[track_caller]
    pub fn all(&self) -> Vec<Seen> {
        self.catch_up();
        self.others()
    }

    /// Waits until `enough` of the commands that others have sent, without those that ran in scripts; sends nothing to
    /// the server.
    #[track_caller]
    pub fn wait_until(&self, what: &str, enough: impl Fn(&[Vec<String>]) -> bool) -> Vec<Vec<String>> {
        eventually(what, || {
            let words: Vec<_> =
                self.others().into_iter().filter(|seen| seen.source != "lua").map(|s| s.words).collect();
            enough(&words).then_some(words)
        })
    }

    /// When the lease of the lock at `key` can expire at the server at the earliest, by [`boottime`] and by what had
    /// been carried out at `until`. Sends nothing to the server, which may be gone by now: the report of what it
    /// carried out just before has to have arrived already.
    #[track_caller]
    pub fn expiry(&self, key: &str, until: Duration) -> Duration {
        let seen = self.others();
        let given = seen.iter().rev().filter(|seen| seen.at <= until).find_map(|seen| self.lease_until(seen, key));
        given.unwrap_or_else(|| panic!("nobody took the lock at {key}: {seen:?}"))
    }

    /// When the lease of the lock at `key` that belongs to `owner`, whose id is in the value that it sets, can expire
    /// at the earliest, as in [`Self::expiry`]; none if that owner never had it.
    pub fn lease_end_of(&self, owner: &str, key: &str, until: Duration) -> Option<Duration> {
        let (mut end, mut is_owners) = (None, false);
        for seen in self.others().iter().filter(|seen| seen.at <= until) {
            let Some(until) = self.lease_until(seen, key) else { continue };
            if seen.words[0] == "SET" {
                is_owners = seen.words[2].contains(owner);
            }
            if is_owners {
                end = Some(until);
            }
        }
        end
    }

    /// Waits until the lease of the lock at `key` is renewed once more, so that the next renewal is as far away as
    /// possible; sends nothing to the server.
    #[track_caller]
    pub fn wait_renewed(&self, key: &str) {
        let renewals = || self.others().iter().filter(|seen| lease(seen, key).is_some()).count();
        let before = renewals();
        eventually(&format!("a renewal of {key}"), || (renewals() > before).then_some(()));
    }

    /// Waits until the monitor has reported a request that is made now.
    #[track_caller]
    fn catch_up(&self) {
        static MARKS: AtomicU64 = AtomicU64::new(0);
        let (seen, changed) = &*self.seen;
        let mark = format!("mark {}", MARKS.fetch_add(1, Ordering::Relaxed));
        self.redis.cli(&["ECHO", &mark]);
        let missing = |seen: &mut Vec<Seen>| !seen.iter().any(|seen| seen.words.get(1) == Some(&mark));
        let (seen, late) = changed.wait_timeout_while(seen.lock().unwrap(), CAP, missing).unwrap();
        assert!(!late.timed_out(), "the monitor fell behind: {seen:?}");
    }

    /// When the lease that this command gave to `key` can expire at the earliest: the server counts in whole
    /// milliseconds.
    fn lease_until(&self, seen: &Seen, key: &str) -> Option<Duration> {
        Some(seen.at + self.redis.true_length(lease(seen, key)?) - Duration::from_millis(1))
    }

    fn others(&self) -> Vec<Seen> {
        let own = self.redis.own.lock().unwrap();
        self.seen.0.lock().unwrap().iter().filter(|seen| !own.contains(&seen.source)).cloned().collect()
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The lease that this command gave to `key`, if it is one that does: `SET key value PX ms` or `PEXPIRE key ms`, which
/// the scripts of dlock call.
fn lease(seen: &Seen, key: &str) -> Option<Duration> {
    let gives = match seen.words.first()?.as_str() {
        "SET" => seen.words.get(3).is_some_and(|word| word == "PX"),
        "PEXPIRE" => true,
        _ => false,
    };
    if !gives || seen.words.get(1)? != key {
        return None;
    }
    seen.words.last()?.parse().ok().map(Duration::from_millis)
}

/// Reads `1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "va\"lue"`, where the time is by the server's clock.
fn parse_seen(line: &str, clock: Option<&ClockShim>) -> Seen {
    let parse = || {
        let (at, rest) = line.split_once(" [")?;
        let (seconds, micros) = at.split_once('.')?;
        let at = Duration::new(seconds.parse().ok()?, micros.parse::<u32>().ok()? * 1000);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        // How long ago that was is the same by every clock that was not changed.
        let ago = now.saturating_sub(clock.map_or(at, |clock| clock.true_time(at, now)));
        let (origin, rest) = rest.split_once("] ")?;
        let (db, source) = origin.split_once(' ')?;
        Some(Seen {
            at: boottime().saturating_sub(ago),
            db: db.parse().ok()?,
            source: source.to_owned(),
            words: unquote(rest),
        })
    };
    parse().unwrap_or_else(|| panic!("not a line of MONITOR: {line:?}"))
}

fn unquote(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.bytes();
    while rest.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = rest.next().filter(|&byte| byte != b'"') {
            word.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
                (_, Some(b'n')) => b'\n',
                (_, Some(b'r')) => b'\r',
                (_, Some(b't')) => b'\t',
                (_, Some(b'a')) => 7,
                (_, Some(b'b')) => 8,
                (_, Some(b'x')) => {
                    let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).unwrap_or(0);
                    u8::try_from(digit() * 16 + digit()).unwrap()
                }
                (_, Some(escaped)) => escaped,
                (plain, None) => plain,
            });
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    words
}
