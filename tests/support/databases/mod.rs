//! Real database servers of every kind, a fresh one for every test that asks: how they are started, asked and ended.

pub mod archive;
mod content;
mod engine;

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub use engine::{Engine, Session};

use super::certificates::{Certificates, Tls};
use super::daemon::{Daemon, Port};
use super::programs::unsync;

/// The directory with the data of a server, below its own.
pub const DATA: &str = "data";

/// A server on loopback with one empty database: as an unprivileged user, gone at the end of the test. The test itself may do
/// everything, by the server's socket.
///
/// All methods take `&self`, so that another thread may break the server while the test goes on.
pub struct Server<E: Engine> {
    port: Port,
    tls: Option<(Tls, Certificates)>,
    daemon: Daemon,
    settings: Vec<String>,
    client: Mutex<Option<E::Client>>,
}

impl<E: Engine> Deref for Server<E> {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl<E: Engine> Server<E> {
    /// Starts a server, and returns once it answers.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings, such as `max_connections=30`, which override the default ones.
    #[track_caller]
    pub fn with(settings: &[&str]) -> Self {
        let server = Self::prepare(settings);
        server.launch();
        server
    }

    /// Starts a server that speaks TLS, and refuses clients over TCP that do not.
    #[track_caller]
    pub fn with_tls(tls: Tls) -> Self {
        let mut server = Self::prepare(&[E::TLS]);
        server.tls = Some((tls, Certificates::new()));
        E::before_tls(&server, tls.clients);
        server.launch();
        E::after_tls(&server, tls.clients);
        server
    }

    /// Starts a server with a wall clock of its own, [`Daemon::clock`].
    #[track_caller]
    pub fn with_clock() -> Self {
        let server = Self::on(Daemon::new(E::KIND).with_clock(), &[]);
        server.launch();
        server
    }

    /// A server that is not started yet: [`Self::launch`] does that. Its port and its data exist.
    #[track_caller]
    pub fn prepare(settings: &[&str]) -> Self {
        Self::on(Daemon::new(E::KIND), settings)
    }

    /// A server that is not started yet, as this daemon.
    #[track_caller]
    pub fn on(daemon: Daemon, settings: &[&str]) -> Self {
        E::fill(&daemon.subdirectory(DATA));
        Self::filled(daemon, settings)
    }

    /// A server that is not started yet, as this daemon, whose data exist.
    pub fn filled(daemon: Daemon, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self { port: Port::reserve(), tls: None, daemon, settings, client: Mutex::default() }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The certificates that its TLS uses. Fails the test if it does not use TLS.
    #[track_caller]
    pub fn certificates(&self) -> &Certificates {
        &self.tls.as_ref().expect("this server does not speak TLS").1
    }

    /// The unix socket at which it listens too; every user may connect there.
    pub fn socket(&self) -> PathBuf {
        E::socket(self.daemon.directory(), self.port())
    }

    /// The URL of its database for its first user, who needs no password.
    pub fn url(&self) -> String {
        self.url_for(E::USER, "")
    }

    /// The URL of its database for this user, with a password, which may be empty.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        let secure = if self.is_tls() { "s" } else { "" };
        let mut login = utf8_percent_encode(user, NON_ALPHANUMERIC).to_string();
        if !password.is_empty() {
            login = format!("{login}:{}", utf8_percent_encode(password, NON_ALPHANUMERIC));
        }
        format!("{}{secure}://{login}@127.0.0.1:{}/{}", E::KIND, self.port(), E::DATABASE)
    }

    /// The URL of its database by its socket, for its first user.
    pub fn socket_url(&self) -> String {
        format!("{}+unix://{}@{}?db={}", E::KIND, E::USER, self.socket().display(), E::DATABASE)
    }

    /// Freezes the server: the kernel still accepts connections, and nothing is answered. Returns once it is stopped.
    #[track_caller]
    pub fn freeze(&self) {
        E::freeze(&self.daemon);
    }

    /// Continues a frozen server.
    #[track_caller]
    pub fn thaw(&self) {
        E::thaw(&self.daemon);
    }

    /// Kills the server with all its processes, frozen or not. Returns once they are gone; connections are refused then.
    pub fn kill(&self) {
        if self.daemon.has_started() {
            E::kill(&self.daemon);
        }
        *self.kept() = None;
    }

    /// Kills the server if it runs, and restarts it on the same port with its data. Returns once it answers.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    /// Starts a server that is not running. Returns once it answers.
    #[track_caller]
    pub fn launch(&self) {
        let (directory, mut settings) = (self.daemon.directory(), Vec::new());
        if let Some((tls, certificates)) = &self.tls {
            // A key that others can read may be refused.
            let key = fs::read(certificates.key(tls.server)).unwrap();
            self.daemon.write("server.key", std::str::from_utf8(&key).unwrap());
            fs::set_permissions(directory.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
            let files = [certificates.certificate(tls.server), directory.join("server.key"), certificates.ca()];
            settings.extend(E::TLS_FILES.iter().zip(files).map(|(name, file)| format!("{name}={}", file.display())));
        }
        settings.extend(self.settings.iter().cloned());
        let mut command = E::command(directory, self.port(), &settings);
        command.stdin(Stdio::null());
        unsync(&mut command, directory);
        self.daemon.launch(command);
        let client = self.daemon.wait_ready(|| {
            let mut client = E::Client::connect(&self.socket())?;
            client.query("SELECT 1").ok().map(|_| client)
        });
        *self.kept() = Some(client);
    }

    fn kept(&self) -> MutexGuard<'_, Option<E::Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine> Drop for Server<E> {
    fn drop(&mut self) {
        self.kill();
    }
}
