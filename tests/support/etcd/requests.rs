//! Counting what others request from an etcd, by the servers' metrics.

use std::collections::BTreeMap;

use super::{Etcd, Member};

/// What others request from an [`Etcd`] from a moment on.
pub struct RequestCount<'a> {
    etcd: &'a Etcd,
    before: BTreeMap<String, u64>,
}

impl RequestCount<'_> {
    /// How often others have requested what up to now, by the method's name (`Range`, `Txn`, `Watch`, `LeaseGrant` …).
    /// Streams are counted by the message: each `LeaseKeepAlive` is one heartbeat, each `Watch` one watch created or
    /// cancelled. Everything that has been answered is included.
    #[track_caller]
    pub fn so_far(&self) -> BTreeMap<String, u64> {
        let mut after = self.etcd.requests_by_others();
        for (method, count) in &mut after {
            *count -= self.before.get(method).copied().unwrap_or(0);
        }
        after.retain(|_, count| *count > 0);
        after
    }

    /// How many requests these were, without heartbeats.
    #[track_caller]
    pub fn without_heartbeats(&self) -> u64 {
        self.so_far().iter().filter(|(method, _)| *method != "LeaseKeepAlive").map(|(_, count)| count).sum()
    }
}
impl Etcd {
    /// Counts requests of others than [`Etcd`] itself, from now on. Members must not be restarted meanwhile.
    #[track_caller]
    pub fn count_requests(&self) -> RequestCount<'_> {
        RequestCount { etcd: self, before: self.requests_by_others() }
    }

    /// The sum of a metric without labels over all members at work.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let value = |member: &Member| {
            // Large numbers are written as `1.234e+06`.
            let line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok();
            let value = member.metrics().lines().find_map(line).unwrap_or(0.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let value = value as u64;
            value
        };
        self.at_work().map(|(_, member)| value(member)).sum()
    }

    /// How many bytes the members at work have sent to clients, without the answers to the test's requests for metrics.
    #[track_caller]
    pub fn sent(&self) -> u64 {
        self.metric("etcd_network_client_grpc_sent_bytes_total")
    }

    /// How often others have requested what, by the names of the metrics, since the members were started.
    #[track_caller]
    fn requests_by_others(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (_, member) in self.at_work() {
            // The test's own first: a request in between would otherwise be counted as another's.
            let own = member.own.lock().unwrap().clone();
            for (method, count) in member.requests() {
                *sums.entry(method.clone()).or_default() +=
                    count.saturating_sub(own.get(&method).copied().unwrap_or(0));
            }
        }
        sums
    }
}
