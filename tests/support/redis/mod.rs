//! Real redis servers, a fresh one for every test that asks.

mod client;
mod content;
mod monitor;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

// Each test program uses its own part of this.
#[allow(unused_imports)]
pub use client::{Client, Reply};
#[allow(unused_imports)]
pub use monitor::{Monitor, Seen, runs_script};

use super::certificates::{Certificates, ClientCertificate, Tls};
use super::daemon::Daemon;
// What all servers need, and what tests of redis always found here.
#[allow(unused_imports)]
pub use super::daemon::{Port, need, need_python};

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
    daemon: Daemon,
    args: Vec<OsString>,
    password: Option<String>,
    client: Mutex<Option<Client>>,
    /// The addresses of the test's own connections, which tell them from those of the program under test.
    own: Arc<Mutex<HashSet<String>>>,
}

impl Deref for Redis {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
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

    /// Starts a server with a wall clock of its own, [`Daemon::clock`].
    #[track_caller]
    pub fn with_clock<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut redis = Self::prepare(args);
        redis.daemon = redis.daemon.with_clock();
        redis.launch();
        redis
    }

    /// Starts a server with its data on a disk of 4 MiB, which [`Daemon::fill_disk`] fills, and which is empty after a
    /// restart.
    #[track_caller]
    pub fn on_small_disk<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut redis = Self::prepare(args);
        redis.daemon = redis.daemon.with_small_disk();
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
        command.arg(self.daemon.disk().unwrap_or(directory));
        if let Some((port, tls, certificates)) = &self.tls {
            command.arg("--tls-port").arg(port.number().to_string());
            command.arg("--tls-cert-file").arg(certificates.certificate(tls.server));
            command.arg("--tls-key-file").arg(certificates.key(tls.server));
            command.arg("--tls-ca-cert-file").arg(certificates.ca());
            command.args(["--tls-auth-clients", asked_of_clients(tls.clients)]);
        }
        command.args(&self.args);
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
