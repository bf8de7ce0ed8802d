//! One server of a ZooKeeper: where it is, what can be done to it, and what it reports.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::daemon::{Daemon, Port};

use super::client::connect;
use super::{ANSWER, ZooKeeperOptions};

/// How long a server may at first take to report its state: one that is asked while it starts may never answer, and one
/// on a busy machine needs longer, so it is given more time after each silence.
pub(super) const EARLY_ANSWER: Duration = Duration::from_millis(100);

/// One server of a [`super::ZooKeeper`].
pub struct Server {
    daemon: Daemon,
    /// For clients in plain text.
    plain: Port,
    /// For clients with TLS, if that is enabled.
    secure: Port,
    /// For the followers' connections.
    pub(super) quorum: Port,
    pub(super) election: Port,
}

impl Deref for Server {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl Server {
    /// A server that does not run yet.
    pub(super) fn new(options: &ZooKeeperOptions, index: usize) -> Self {
        let mut daemon = Daemon::new("zookeeper").on(options.islands.get(index));
        if options.clocks {
            daemon = daemon.with_clock();
        }
        if options.small_disks {
            daemon = daemon.with_small_disk();
        }
        Self {
            daemon,
            plain: Port::reserve(),
            secure: Port::reserve(),
            quorum: Port::reserve(),
            election: Port::reserve(),
        }
    }

    /// The port at which clients reach it in plain text.
    pub fn port(&self) -> u16 {
        self.plain.number()
    }

    /// The port at which clients reach it with TLS, if that is enabled.
    pub fn secure_port(&self) -> u16 {
        self.secure.number()
    }

    /// The address and port at which clients reach it in plain text.
    pub fn place(&self) -> SocketAddr {
        (self.host(), self.port()).into()
    }

    /// Its answer to a four-letter command, such as `srvr`, `mntr`, `cons` or `wchp`.
    #[track_caller]
    pub fn four_letters(&self, command: &str) -> String {
        let answer = self.try_four_letters(command, ANSWER);
        answer.unwrap_or_else(|error| panic!("{command}: {error}\n{}", self.last_words()))
    }

    /// `leader`, `follower` or `standalone`; none while it does not serve. Silence increases `patience`.
    pub(super) fn mode(&self, patience: &mut Duration) -> Option<String> {
        let answer = self.try_four_letters("srvr", *patience);
        if answer.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)) {
            *patience = ANSWER.min(*patience * 2);
        }
        Some(answer.ok()?.lines().find_map(|line| line.strip_prefix("Mode: "))?.to_owned())
    }

    pub(super) fn try_four_letters(&self, command: &str, patience: Duration) -> io::Result<String> {
        let mut stream = connect(self.place(), patience)?;
        stream.write_all(command.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[track_caller]
    pub(super) fn wait_answers(&self, tls: bool) {
        let mut patience = EARLY_ANSWER;
        self.wait_ready(|| self.mode(&mut patience));
        if tls {
            // Bound after the other one.
            self.wait_ready(|| connect((self.host(), self.secure_port()).into(), ANSWER).ok());
        }
    }

    /// The directory with its data.
    pub(super) fn data(&self) -> PathBuf {
        self.subdirectory("data")
    }

    /// The end of its log, without the requests.
    pub(super) fn last_words(&self) -> String {
        let log = self.log();
        let mut lines: Vec<&str> = log.lines().rev().filter(|line| !line.contains("DEBUG")).take(30).collect();
        lines.reverse();
        lines.join("\n")
    }
}
