//! etcd: one member or several.

use std::ffi::OsString;

use crate::support::daemon::Daemon;
use crate::support::etcd::{Etcd, Member};

use super::{Cluster, Node, trusting};

impl Node for Member {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn port(&self) -> u16 {
        self.port()
    }
}

impl Cluster for Etcd {
    fn url(&self) -> String {
        self.url()
    }

    fn options(&self) -> Vec<OsString> {
        if self.is_tls() { trusting(self.certificates().ca()) } else { Vec::new() }
    }

    fn nodes(&self) -> Vec<&dyn Node> {
        self.members().iter().map(|member| member as &dyn Node).collect()
    }

    fn restart(&self, killed: &[usize]) {
        if killed.len() == self.members().len() {
            return self.restart();
        }
        for &index in killed {
            self.restart_member(index);
        }
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

    fn holder(&self, key: &str) -> Option<String> {
        self.keys(&contenders(key)).first().map(|entry| entry.key.clone())
    }

    fn has(&self, _key: &str, holder: &str) -> bool {
        self.get(holder).is_some()
    }

    fn queued(&self, key: &str) -> usize {
        // The first of them is the holder's.
        self.keys(&contenders(key)).len().saturating_sub(1)
    }

    fn contenders(&self, key: &str) -> usize {
        self.count(&contenders(key))
    }

    fn litter(&self, _keys: &[&str]) -> Vec<String> {
        let keys = self.keys("").into_iter().map(|entry| format!("{entry:?}"));
        keys.chain(self.leases().into_iter().map(|lease| format!("{lease:?}"))).collect()
    }
}

/// The prefix of the keys of all holders and waiters of `key`.
pub fn contenders(key: &str) -> String {
    format!("dlock/{key}/")
}
