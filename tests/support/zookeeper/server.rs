//! One server of a ZooKeeper: where it is, what can be done to it, and what it says of itself.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::support::clock::ClockShim;
use crate::support::daemon::{Daemon, Port};
use crate::support::exhausted::SmallDisk;

use super::client::connect;
use super::{ANSWER, ZooKeeperOptions};

/// How long a server may take to say what it is, at first: one that is asked while it starts may never answer, and one
/// on a busy machine needs longer, so it is given more time after each silence.
pub(super) const EARLY_ANSWER: Duration = Duration::from_millis(100);

/// One server of a [`super::ZooKeeper`].
pub struct Server {
    pub(in crate::support) daemon: Daemon,
    pub(super) clock: Option<ClockShim>,
    /// Where its log of transactions is, if that is not with its other data; empty after a restart.
    pub(super) disk: Option<SmallDisk>,
    /// In plain text.
    plain: Port,
    /// With TLS, where that is asked for.
    secure: Port,
    /// Where those who follow it connect to.
    pub(super) quorum: Port,
    pub(super) election: Port,
}

impl Server {
    /// One that does not run yet.
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

    /// Where it keeps its data.
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
