//! One server of a ZooKeeper: where it is, what can be done to it, and what it reports.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::support::clock::ClockShim;
use crate::support::daemon::{Daemon, Port};
use crate::support::exhausted::SmallDisk;

use super::client::connect;
use super::{ANSWER, ZooKeeperOptions};

/// How long a server may at first take to report its state: one that is asked while it starts may never answer, and one
/// on a busy machine needs longer, so it is given more time after each silence.
pub(super) const EARLY_ANSWER: Duration = Duration::from_millis(100);

/// One server of a [`super::ZooKeeper`].
pub struct Server {
    pub(in crate::support) daemon: Daemon,
    pub(super) clock: Option<ClockShim>,
    /// The disk with its transaction log, if that is not with its other data; empty after a restart.
    pub(super) disk: Option<SmallDisk>,
    /// For clients in plain text.
    plain: Port,
    /// For clients with TLS, if that is enabled.
    secure: Port,
    /// For the followers' connections.
    pub(super) quorum: Port,
    pub(super) election: Port,
}

impl Server {
    /// A server that does not run yet.
    pub(super) fn new(options: &ZooKeeperOptions, index: usize) -> Self {
        let daemon = Daemon::new("zookeeper").on(options.islands.get(index));
        Self {
            clock: options.clocks.then(ClockShim::new),
            disk: options.small_disks.then(|| SmallDisk::on(daemon.subdirectory("disk"), 4)),
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

    /// Its process id. Fails the test if it is not running.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Its wall clock, which outlives the process. Fails the test if it uses the machine's.
    #[track_caller]
    pub fn clock(&self) -> &ClockShim {
        self.clock.as_ref().expect("zookeeper was started without clocks of its own")
    }

    /// Leaves no room on its disk, which must be a small one.
    #[track_caller]
    pub fn fill_disk(&self) {
        self.disk.as_ref().expect("this zookeeper has a large disk").fill(self.pid());
    }

    /// Frees the room that [`Self::fill_disk`] took.
    #[track_caller]
    pub fn free_disk(&self) {
        self.disk.as_ref().expect("this zookeeper has a large disk").free(self.pid());
    }

    /// Its log, which has every request, and more.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Its address.
    pub fn host(&self) -> Ipv4Addr {
        self.daemon.host()
    }

    /// The address and port at which clients reach it in plain text.
    pub fn place(&self) -> SocketAddr {
        (self.host(), self.port()).into()
    }

    /// Excludes it from [`Self::is_at_work`], or includes it again: one that is cut off from the others cannot know
    /// that.
    pub fn set_aside(&self, aside: bool) {
        self.daemon.set_aside(aside);
    }

    /// Whether it is running, and neither frozen nor set aside.
    pub fn is_at_work(&self) -> bool {
        self.daemon.is_at_work()
    }

    /// Freezes it: the kernel still accepts connections, and nothing is answered. Returns once it is stopped.
    #[track_caller]
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Continues it if it is frozen.
    #[track_caller]
    pub fn cont(&self) {
        self.daemon.cont();
    }

    /// Kills it, frozen or not. Returns once it is gone; connections are refused from then on.
    pub fn kill(&self) {
        self.daemon.kill();
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
    pub(super) fn wait_ready(&self, tls: bool) {
        let mut patience = EARLY_ANSWER;
        self.daemon.wait_ready(|| self.mode(&mut patience));
        if tls {
            // Bound after the other one.
            self.daemon.wait_ready(|| connect((self.host(), self.secure_port()).into(), ANSWER).ok());
        }
    }

    /// The directory with its data.
    pub(super) fn data(&self) -> PathBuf {
        self.daemon.subdirectory("data")
    }

    /// The end of its log, without the requests.
    pub(super) fn last_words(&self) -> String {
        let log = self.log();
        let mut lines: Vec<&str> = log.lines().rev().filter(|line| !line.contains("DEBUG")).take(30).collect();
        lines.reverse();
        lines.join("\n")
    }
}
