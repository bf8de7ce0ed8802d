//! Redis: one server, independent servers, a master with its replicas, and such servers under sentinels.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::support::redis_sets::{RedisGroup, RedisReplicas, RedisSentinels};
use crate::support::servers::{Monitor, Redis, Reply};

use super::{Cluster, Node};

impl Node for Redis {
    fn port(&self) -> u16 {
        self.port()
    }
}

impl Cluster for Redis {
    fn url(&self) -> String {
        self.url()
    }

    fn authority(&self) -> Option<PathBuf> {
        self.is_tls().then(|| self.certificates().ca())
    }

    fn redis(&self) -> Vec<&Redis> {
        vec![self]
    }

    fn monitors(&self) -> Vec<Monitor<'_>> {
        vec![self.monitor()]
    }

    fn holder(&self, key: &str) -> Option<String> {
        self.get(&format!("dlock:{key}"))
    }

    fn queued(&self, key: &str) -> usize {
        match self.call(&[b"ZCARD", side(key, "queue").as_bytes()]) {
            Reply::Int(count) => usize::try_from(count).unwrap(),
            other => panic!("ZCARD answered {other:?}"),
        }
    }

    /// All keys except the tokens' counters of `keys` that will expire, and all connections of others.
    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let counters: Vec<String> = keys.iter().map(|key| side(key, "fence")).collect();
        let mut litter = self.keys();
        litter.retain(|key| !counters.contains(key) || self.pttl(key) <= 0);
        litter.extend(self.clients());
        litter
    }

    fn forget_break(&self, key: &str) -> bool {
        // It ends by itself, a week later.
        let trace = side(key, "broken");
        let is_there = self.pttl(&trace) > 6 * 24 * 3_600_000;
        self.call(&[b"DEL", trace.as_bytes()]);
        is_there
    }
}

impl Cluster for RedisGroup {
    fn url(&self) -> String {
        self.url()
    }

    fn authority(&self) -> Option<PathBuf> {
        self[0].authority()
    }

    fn redis(&self) -> Vec<&Redis> {
        self.iter().collect()
    }

    fn monitors(&self) -> Vec<Monitor<'_>> {
        self.iter().map(Redis::monitor).collect()
    }

    fn litter(&self, keys: &[&str]) -> Vec<String> {
        self.running().flat_map(|redis| redis.litter(keys)).collect()
    }

    fn forget_break(&self, key: &str) -> bool {
        self.running().map(|redis| redis.forget_break(key)).filter(|was_there| *was_there).count() > 0
    }
}

impl Cluster for RedisReplicas {
    fn url(&self) -> String {
        self.url()
    }

    fn options(&self) -> Vec<OsString> {
        ["--replicas", "1"].map(Into::into).into()
    }

    fn redis(&self) -> Vec<&Redis> {
        self.iter().collect()
    }

    fn queued(&self, key: &str) -> usize {
        self[0].queued(key)
    }

    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let litter = self.running().flat_map(|redis| redis.litter(keys));
        litter.filter(|line| !is_among_servers(line)).collect()
    }

    fn forget_break(&self, key: &str) -> bool {
        self[0].forget_break(key)
    }
}

impl Cluster for RedisSentinels {
    fn url(&self) -> String {
        self.url()
    }

    fn redis(&self) -> Vec<&Redis> {
        self.servers.iter().collect()
    }

    /// Sentinels name the servers themselves, so no proxy can stand in.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    fn queued(&self, key: &str) -> usize {
        self.master().queued(key)
    }

    /// A replaced master may have keys that its successor lacks, and sentinels and replicas have connections of their
    /// own there.
    fn litter(&self, _keys: &[&str]) -> Vec<String> {
        self.master().keys().into_iter().filter(|key| !key.contains("fence")).collect()
    }

    fn forget_break(&self, key: &str) -> bool {
        self.master().forget_break(key)
    }
}

/// The redis key next to the lock `key` that has this name.
fn side(key: &str, name: &str) -> String {
    format!("{{dlock:{key}}}\u{1}{name}")
}

/// Whether this line of `CLIENT LIST` is about a connection between a master, its replicas and their sentinels.
pub fn is_among_servers(line: &str) -> bool {
    [" flags=M", " flags=S", " name=sentinel-"].iter().any(|mark| line.contains(mark))
}
