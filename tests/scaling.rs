//! What a hand-over costs the servers: the same, however many wait.

use std::collections::BTreeMap;

use crate::support::dlock::Running;
use crate::support::service::{EtcdService, RedisService, Service, ZooKeeperService};

/// A service whose requests can be counted.
trait Counted: Service {
    /// What dlocks ask while `work` goes on, by the service's own names; heartbeats apart.
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64>;
}

impl Counted for RedisService {
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64> {
        self.redis.cli(&["CONFIG", "RESETSTAT"]);
        work();
        let stats = self.redis.cli(&["INFO", "commandstats"]);
        let read = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            // What a script does is part of one request.
            let asked = ["eval", "blpop", "config|get", "role"].contains(&name);
            asked.then(|| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
        };
        stats.lines().filter_map(read).collect()
    }
}

impl Counted for EtcdService {
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64> {
        let counter = self.etcd.count_requests();
        work();
        let mut requests = counter.so_far();
        requests.remove("LeaseKeepAlive");
        requests
    }
}

impl Counted for ZooKeeperService {
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64> {
        let counter = self.zookeeper.count_requests();
        work();
        let mut requests = counter.so_far();
        requests.remove("ping");
        requests
    }
}

/// How many requests a hand-over takes where so many wait at its beginning. A lease is long, so that its renewals and the
/// waiters' signs of life do not come into it.
fn per_hand_over<S: Counted>(waiters: usize) -> u64 {
    let service = S::fresh();
    let holder = service.hold("job");
    let wait = |_| service.run("job").args(["-q", "--ttl", "60s"]).command(["true"]).spawn();
    let waiting: Vec<Running> = (0..waiters).map(wait).collect();
    service.wait_queued("job", waiters);
    let requests = service.count(|| {
        holder.let_go().success();
        for waiter in waiting {
            waiter.wait().success();
        }
    });
    let all: u64 = requests.values().sum();
    let each = all / waiters as u64;
    println!("{}: {waiters} waiters, {each} requests for each hand-over: {requests:?}", S::KIND);
    each
}

/// Shown with `--nocapture`.
fn does_not_grow<S: Counted>() {
    let (few, many) = (per_hand_over::<S>(10), per_hand_over::<S>(100));
    // The first of them have just arrived, and may still be at that.
    assert!(many <= few + 1, "with 10 waiters a hand-over takes {few} requests, with 100 it takes {many}");
    assert!((1..=12).contains(&few), "{few} requests for a hand-over");
}

#[test]
fn a_hand_over_on_redis_costs_the_same_however_many_wait() {
    does_not_grow::<RedisService>();
}

#[test]
fn a_hand_over_on_etcd_costs_the_same_however_many_wait() {
    does_not_grow::<EtcdService>();
}

#[test]
fn a_hand_over_on_zookeeper_costs_the_same_however_many_wait() {
    does_not_grow::<ZooKeeperService>();
}
