//! ZooKeeper: one server or an ensemble.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::zookeeper::{Server, ZooKeeper};

use super::{Cluster, Node};

impl Node for Server {
    fn port(&self) -> u16 {
        self.port()
    }
}

impl Cluster for ZooKeeper {
    fn url(&self) -> String {
        self.url()
    }

    fn authority(&self) -> Option<PathBuf> {
        self.is_tls().then(|| self.certificates().ca())
    }

    fn nodes(&self) -> Vec<&dyn Node> {
        self.servers().iter().map(|server| server as &dyn Node).collect()
    }

    fn restart(&self, killed: &[usize]) {
        self.launch(killed);
    }

    fn leader(&self) -> Option<usize> {
        Some(self.leader())
    }

    fn wait_serving(&self) -> bool {
        self.wait_serving()
    }

    fn epoch(&self) -> Option<u64> {
        self.epoch().and_then(|epoch| epoch.try_into().ok())
    }

    fn holder(&self, key: &str) -> Option<String> {
        let number = |name: &String| name[name.len().saturating_sub(10)..].parse().unwrap_or(i64::MAX);
        self.children(&lock(key))?.into_iter().min_by_key(number)
    }

    fn has(&self, key: &str, holder: &str) -> bool {
        self.get(&format!("{}/{holder}", lock(key))).is_some()
    }

    fn queued(&self, key: &str) -> usize {
        // A contender has one session, however many nodes. One of them is the holder.
        let below = format!("{}/", lock(key));
        let ephemerals = self.ephemerals();
        let contends = |nodes: &&BTreeSet<String>| nodes.iter().any(|node| node.starts_with(&below));
        ephemerals.values().filter(contends).count().saturating_sub(1)
    }

    /// By the nodes alone: listing all sessions of a multitude takes long.
    fn contenders(&self, key: &str) -> usize {
        self.children(&lock(key)).map_or(0, |all| all.len() / 3)
    }

    fn litter(&self, _keys: &[&str]) -> Vec<String> {
        let sessions = self.sessions().into_iter().map(|session| format!("session {session:#x}"));
        let (tree, kept) = (self.tree(), ["/dlock", "/dlock/%dlock"]);
        // The namespace of a user stays.
        let is_kept = kept.iter().all(|path| tree.iter().any(|there| there == path));
        tree.into_iter().filter(|path| !(is_kept && kept.contains(&path.as_str()))).chain(sessions).collect()
    }

    fn forget_break(&self, key: &str) -> bool {
        let beside = format!("{}%dlock", lock(key));
        let is_there = self.delete(&format!("{beside}/once-broken"));
        if self.children(&beside).is_some_and(|children| children.is_empty()) {
            self.delete(&beside);
        }
        if self.children("/dlock").is_some_and(|children| children.is_empty()) {
            self.delete("/dlock");
        }
        is_there
    }

    fn remove_directories(&self, key: &str) {
        for path in [&lock(key), "/dlock"] {
            if self.children(path).is_some_and(|children| children.is_empty()) {
                self.delete(path);
            }
        }
    }
}

/// The node under which all contenders for `key` have theirs.
pub fn lock(key: &str) -> String {
    format!("/dlock/{key}")
}
