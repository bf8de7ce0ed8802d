//! A database: one server.

use std::path::PathBuf;

use crate::support::databases::{Engine, Server};

use super::{Cluster, Node};

impl<E: Engine> Node for Server<E> {
    fn port(&self) -> u16 {
        self.port()
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }

    fn kill(&self) {
        self.kill();
    }
}

impl<E: Engine> Cluster for Server<E> {
    fn url(&self) -> String {
        self.url()
    }

    fn authority(&self) -> Option<PathBuf> {
        self.is_tls().then(|| self.certificates().ca())
    }

    fn nodes(&self) -> Vec<&dyn Node> {
        vec![self]
    }

    fn restart(&self, killed: &[usize]) {
        if !killed.is_empty() {
            self.restart();
        }
    }

    /// Of several together, the first that came.
    fn holder(&self, key: &str) -> Option<String> {
        self.members(&name(key)).into_iter().next().or_else(|| self.locked_by(&name(key)))
    }

    fn has(&self, key: &str, holder: &str) -> bool {
        self.members(&name(key)).iter().any(|member| member == holder)
            || self.locked_by(&name(key)).as_deref() == Some(holder)
    }

    fn queued(&self, key: &str) -> usize {
        self.waiting(&name(key))
    }

    /// All that is locked, all waiters and connections, and rows of other locks.
    fn litter(&self, keys: &[&str]) -> Vec<String> {
        self.left(&keys.iter().map(|key| name(key)).collect::<Vec<_>>())
    }

    fn forget_break(&self, key: &str) -> bool {
        let of_key = format!("FROM dlock_once WHERE name = '{}' AND length_ms = 0", name(key));
        let is_there = !self.sql(&format!("SELECT name {of_key}")).is_empty();
        self.sql(&format!("DELETE {of_key}"));
        is_there
    }
}

/// The name of the row of the lock `key`.
pub fn name(key: &str) -> String {
    format!("dlock:{key}")
}
