/*!
The servers of a lock service, whatever they are: where they are, what can be done to them, and what they know of locks.

A backend has one [`Cluster`] here, which the contract suite looks at (see `service`) and the campaign breaks (see
`tests/faults/world.rs`).
*/

pub mod etcd;
mod file;
pub mod redis;
pub mod zookeeper;

use std::ffi::OsString;
use std::path::PathBuf;

use super::clock::ClockShim;
use super::daemon::Daemon;
use super::servers::{Monitor, Redis};

/// One server of a [`Cluster`].
pub trait Node {
    /// The process that serves, and what became of it.
    fn daemon(&self) -> &Daemon;

    /// Where clients reach it in plain text.
    fn port(&self) -> u16;

    /// Its wall clock. Fails the test when it goes by the machine's.
    fn clock(&self) -> &ClockShim {
        panic!("its clock cannot be moved");
    }

    /// Its process. Fails the test when it is not running.
    fn pid(&self) -> i32 {
        self.daemon().pid()
    }

    /// Freezes it: connections are still accepted by the kernel, and nothing is answered. Returns when it stands still.
    fn freeze(&self) {
        self.daemon().stop();
    }

    /// Lets it go on when it is frozen.
    fn thaw(&self) {
        self.daemon().cont();
    }

    /// Kills it, frozen or not. Returns when it is gone; connecting is refused from then on.
    fn kill(&self) {
        self.daemon().kill();
    }

    /// Has nobody look at it, as long as it is cut off from the others and cannot know.
    fn set_aside(&self, aside: bool) {
        self.daemon().set_aside(aside);
    }
}

/// The servers of a lock service. Keys must be plain words, which every backend spells as they are.
pub trait Cluster {
    /// What to give to `--backend` to reach the servers straight.
    fn url(&self) -> String;

    /// What a dlock needs besides the URL to use them.
    fn options(&self) -> Vec<OsString> {
        Vec::new()
    }

    /// Each of the servers.
    fn nodes(&self) -> Vec<&dyn Node> {
        self.redis().into_iter().map(|redis| redis as &dyn Node).collect()
    }

    /// The server of this index.
    fn node(&self, index: usize) -> &dyn Node {
        self.nodes()[index]
    }

    /// The redis servers, where they are that.
    fn redis(&self) -> Vec<&Redis> {
        Vec::new()
    }

    /// The ports at which a proxy can stand in for the servers.
    fn ports(&self) -> Vec<u16> {
        self.nodes().into_iter().map(Node::port).collect()
    }

    /// Starts these servers again, which were killed, with their data; returns when they answer. (Not each by itself: those
    /// that need each other answer only when most of them run.)
    fn restart(&self, killed: &[usize]) {
        for &index in killed {
            self.redis()[index].restart();
        }
    }

    /// How many servers there are.
    fn size(&self) -> usize {
        self.nodes().len()
    }

    /// How many of them are more than half.
    fn majority(&self) -> usize {
        self.size() / 2 + 1
    }

    /// The server that leads, where one does.
    fn leader(&self) -> Option<usize> {
        None
    }

    /// Waits until the servers, which are all at work again, serve: after an outage they may have to find a leader first.
    /// False where they never do.
    fn wait_serving(&self) -> bool {
        true
    }

    /// Waits until the servers, which are all at work again, serve and belong together. False where they never do.
    fn wait_together(&self) -> bool {
        self.wait_serving()
    }

    /// How often the servers have chosen a leader, where their tokens tell.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// Where the servers tell of every lease that they give, somebody who listens to each.
    fn monitors(&self) -> Vec<Monitor<'_>> {
        Vec::new()
    }

    /// A name for whoever holds `key` now, by the servers' own account; none where nobody does, or where no server keeps
    /// such an account alone.
    fn holder(&self, _key: &str) -> Option<String> {
        None
    }

    /// Whether what [`Self::holder`] named holds or waits for `key` still.
    fn has(&self, key: &str, holder: &str) -> bool {
        self.holder(key).as_deref() == Some(holder)
    }

    /// How many wait for `key`, by the servers' own account. Fails the test where they keep no queue.
    fn queued(&self, _key: &str) -> usize {
        panic!("{} keeps no queue that can be counted", self.url());
    }

    /// How many hold `key` or wait for it, by the servers' own account. Fails the test where they keep no queue.
    fn contenders(&self, key: &str) -> usize {
        self.queued(key) + usize::from(self.holder(key).is_some())
    }

    /// What is left of locks that nobody holds or waits for any more, but for what stays on purpose: the tokens' counters
    /// of `keys`.
    fn litter(&self, keys: &[&str]) -> Vec<String>;

    /// Removes the directories of `key` where servers have such things, if they are empty.
    fn remove_directories(&self, _key: &str) {}
}

/// What a dlock needs to trust a server whose certificate is of this authority.
fn trusting(ca: PathBuf) -> Vec<OsString> {
    vec!["--tls-ca".into(), ca.into()]
}
