//! etcd: one member or several.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::etcd::{Entry, Etcd, Member};

use super::{Cluster, Node};

impl Node for Member {
    fn port(&self) -> u16 {
        self.port()
    }
}

impl Cluster for Etcd {
    fn url(&self) -> String {
        self.url()
    }

    fn authority(&self) -> Option<PathBuf> {
        self.is_tls().then(|| self.certificates().ca())
    }

    fn nodes(&self) -> Vec<&dyn Node> {
        self.members().iter().map(|member| member as &dyn Node).collect()
    }

    fn restart(&self, killed: &[usize]) {
        self.launch(killed);
    }

    fn leader(&self) -> Option<usize> {
        Some(self.leader())
    }

    fn wait_serving(&self) -> bool {
        self.leader() < self.members().len()
    }

    fn wait_together(&self) -> bool {
        self.wait_together()
    }

    fn epoch(&self) -> Option<u64> {
        self.term()
    }

    fn holder(&self, key: &str) -> Option<String> {
        self.keys(&contenders(key)).first().map(|entry| entry.key.clone())
    }

    fn has(&self, _key: &str, holder: &str) -> bool {
        self.get(holder).is_some()
    }

    fn queued(&self, key: &str) -> usize {
        // The first of them is the holder's. A contender with a minimum hold has two.
        let contender = |entry: Entry| entry.key.trim_end_matches(".hold").to_owned();
        let all: BTreeSet<String> = self.keys(&contenders(key)).into_iter().map(contender).collect();
        all.len().saturating_sub(1)
    }

    fn contenders(&self, key: &str) -> usize {
        self.count(&contenders(key))
    }

    fn litter(&self, _keys: &[&str]) -> Vec<String> {
        let keys = self.keys("").into_iter().map(|entry| format!("{entry:?}"));
        keys.chain(self.leases().into_iter().map(|lease| format!("{lease:?}"))).collect()
    }

    /// Each break has granted a lease of a week.
    fn forget_break(&self, key: &str) -> bool {
        let is_there = self.get(&format!("dlock/{key}\u{1}broken")).is_some();
        for lease in self.leases().into_iter().filter(|lease| lease.granted == 7 * 24 * 3600) {
            self.revoke(lease.id);
        }
        is_there
    }
}

/// The prefix of the keys of all holders and waiters of `key`.
pub fn contenders(key: &str) -> String {
    format!("dlock/{key}/")
}
