/*!
The servers of a lock service of any kind: where they are, what can be done to them, and what they know of locks.

A backend has one [`Cluster`] here, which the contract suite inspects (see `service`) and the campaign breaks (see
`tests/faults/world.rs`).
*/

pub mod databases;
pub mod etcd;
mod file;
pub mod redis;
pub mod zookeeper;

use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;

use super::daemon::Daemon;
use super::servers::{Monitor, Redis};

/// One server of a [`Cluster`]: a [`Daemon`], with what the campaign calls the things that it does to servers.
pub trait Node: Deref<Target = Daemon> {
    /// The port at which clients reach it in plain text.
    fn port(&self) -> u16;

    /// Freezes it: the kernel still accepts connections, and nothing is answered. Returns once it is stopped.
    fn freeze(&self) {
        self.deref().stop();
    }

    /// Continues it if it is frozen.
    fn thaw(&self) {
        self.deref().cont();
    }

    /// Kills it, frozen or not. Returns once it is gone.
    fn kill(&self) {
        self.deref().kill();
    }
}

/// The servers of a lock service. Keys must be plain words, which every backend spells as they are.
pub trait Cluster {
    /// The URL for `--backend` that reaches the servers directly.
    fn url(&self) -> String;

    /// The options that a dlock needs in addition to the URL.
    fn options(&self) -> Vec<OsString> {
        self.authority().map(|ca| vec!["--tls-ca".into(), ca.into()]).unwrap_or_default()
    }

    /// The certificate of the authority that signed the servers' certificates; none without TLS.
    fn authority(&self) -> Option<PathBuf> {
        None
    }

    /// All servers.
    fn nodes(&self) -> Vec<&dyn Node> {
        self.redis().into_iter().map(|redis| redis as &dyn Node).collect()
    }

    /// The server with this index.
    fn node(&self, index: usize) -> &dyn Node {
        self.nodes()[index]
    }

    /// The servers as redis servers, where they are such.
    fn redis(&self) -> Vec<&Redis> {
        Vec::new()
    }

    /// The ports for which a proxy can stand in.
    fn ports(&self) -> Vec<u16> {
        self.nodes().into_iter().map(Node::port).collect()
    }

    /// Restarts these servers, which were killed, with their data; returns once they answer. (They are restarted
    /// together: servers of one cluster answer only once most of them run.)
    fn restart(&self, killed: &[usize]) {
        for &index in killed {
            self.redis()[index].restart();
        }
    }

    /// How many servers there are.
    fn size(&self) -> usize {
        self.nodes().len()
    }

    /// The smallest number of servers that is more than half.
    fn majority(&self) -> usize {
        self.size() / 2 + 1
    }

    /// The index of the leader, if there is such a thing.
    fn leader(&self) -> Option<usize> {
        None
    }

    /// Waits until the servers, all at work again, serve clients: after an outage they may have to elect a leader
    /// first. Returns false if they never do.
    fn wait_serving(&self) -> bool {
        true
    }

    /// Waits until the servers, all at work again, serve clients and form one cluster. Returns false if they never do.
    fn wait_together(&self) -> bool {
        self.wait_serving()
    }

    /// A number that grows whenever the servers elect a leader, where they do.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// A listener on each server that reports every lease that it grants, where servers do.
    fn monitors(&self) -> Vec<Monitor<'_>> {
        Vec::new()
    }

    /// A name for the present holder of `key` in the servers' own data; none if there is no holder, or if no single
    /// server keeps such data.
    fn holder(&self, _key: &str) -> Option<String> {
        None
    }

    /// Whether the contender that [`Self::holder`] named still holds or waits for `key`.
    fn has(&self, key: &str, holder: &str) -> bool {
        self.holder(key).as_deref() == Some(holder)
    }

    /// How many wait for `key`, by the servers' own data. Fails the test if they keep no queue.
    fn queued(&self, _key: &str) -> usize {
        panic!("{} keeps no queue that can be counted", self.url());
    }

    /// How many hold `key` or wait for it, by the servers' own data. Fails the test if they keep no queue.
    fn contenders(&self, key: &str) -> usize {
        self.queued(key) + usize::from(self.holder(key).is_some())
    }

    /// What is left of locks without holders and waiters, except for what stays on purpose: the tokens' counters of
    /// `keys`.
    fn litter(&self, keys: &[&str]) -> Vec<String>;

    /// Removes what tells of the last break of `key`; returns whether there was something.
    fn forget_break(&self, key: &str) -> bool;

    /// Removes the empty directories of `key`, where servers have directories.
    fn remove_directories(&self, _key: &str) {}
}
