//! The cost of a hand-over at the servers does not grow with the number of waiters.

use std::collections::BTreeMap;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::database_services::{MysqlLoggedService, PostgresLoggedService};
use crate::support::databases::Engine;
use crate::support::dlock::Running;
use crate::support::mysql::MariaDb;
use crate::support::process;
use crate::support::rendezvous::eventually;
use crate::support::service::{EtcdService, RedisService, Service, ZooKeeperService};

/// A service whose requests can be counted.
trait Counted: Service {
    /// What dlocks request during `work`, by the service's own names for it, without heartbeats.
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64>;
}

impl Counted for RedisService {
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64> {
        self.redis.cli(&["CONFIG", "RESETSTAT"]);
        work();
        let stats = self.redis.cli(&["INFO", "commandstats"]);
        let read = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            // Calls made by a script are part of one request.
            let asked = ["eval", "evalsha", "blpop", "config|get", "role"].contains(&name);
            let calls: u64 = rest.split(',').next().unwrap().parse().unwrap();
            asked.then(|| (if name == "evalsha" { "eval" } else { name }.to_owned(), calls))
        };
        stats.lines().filter_map(read).fold(BTreeMap::new(), |mut all, (name, calls)| {
            *all.entry(name).or_default() += calls;
            all
        })
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

impl Counted for PostgresLoggedService {
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64> {
        const KINDS: [(&str, &str); 4] = [
            ("join", "INSERT INTO \"public\".\"dlock_queue\""),
            ("attempt", "INSERT INTO \"public\".\"dlock_holder\""),
            ("release", "date_trunc('milliseconds'"),
            ("renewal", "UPDATE \"public\".\"shedlock\""),
        ];
        let before = self.log().len();
        work();
        let log = self.log().split_off(before);
        let mut requests = BTreeMap::new();
        // A request is one message, however many statements it has.
        for request in log.split("LOG:  statement: ").skip(1) {
            let kind = KINDS.iter().find(|(_, text)| request.contains(text));
            if let Some((kind, _)) = kind {
                *requests.entry((*kind).to_owned()).or_default() += 1;
            }
        }
        requests
    }
}

impl Counted for MysqlLoggedService {
    fn count(&self, work: impl FnOnce()) -> BTreeMap<String, u64> {
        const KINDS: [(&str, &str); 4] = [
            ("join", "INSERT INTO `locks`.`dlock_queue`"),
            ("wait", "'gone', GET_LOCK"),
            ("attempt", "INSERT INTO `locks`.`dlock_holder`"),
            ("release", "'released'"),
        ];
        let before = MariaDb::requests(self).len();
        work();
        let log = MariaDb::requests(self).split_off(before);
        let counted = KINDS.iter().map(|(kind, text)| ((*kind).to_owned(), log.matches(text).count() as u64));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

/// A crowd whose hand-overs are over before one of them sends a heartbeat.
const FEW: usize = 10;
/// How many are started at the same time: with more, a small machine answers none in time.
const BATCH: usize = 25;

/// Starts `waiters` dlocks that wait for `job` with these options and print nothing.
fn crowd<S: Counted>(service: &S, waiters: usize, options: &[&str]) -> Vec<Running> {
    let mut crowd: Vec<Running> = Vec::new();
    while crowd.len() < waiters {
        let more = BATCH.min(waiters - crowd.len());
        crowd.extend((0..more).map(|_| {
            let waiter = service.run("job").arg("-q").args(options).command(["true"]);
            waiter.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        }));
        service.wait_queued("job", crowd.len());
    }
    crowd
}

/// How many requests a hand-over takes with `waiters` waiting at its beginning, who want to hold the lock in this `mode`.
/// Leases are long, so that renewals do not count.
fn per_hand_over<S: Counted>(waiters: usize, mode: &[&str]) -> u64 {
    let service = S::fresh();
    let holder = service.hold("job");
    let waiting = crowd(&service, waiters, &[&["--ttl", "10m"], mode].concat());
    let requests = service.count(|| {
        holder.let_go().success();
        for waiter in waiting {
            waiter.wait().success();
        }
    });
    // Whoever is woken takes the lock, and does not renew its place in the queue before that. While a crowd starts, the
    // first of them renew theirs by themselves.
    let joined = requests.get("join").copied().unwrap_or_default();
    assert!(waiters > FEW || 2 * joined <= waiters as u64, "{requests:?}");
    let all: u64 = requests.values().sum();
    let each = all / waiters as u64;
    println!("{}: {waiters} waiters {mode:?}, {each} requests for each hand-over: {requests:?}", S::KIND);
    each
}

/// Shown with `--nocapture`.
fn does_not_grow<S: Counted>(crowd: usize, mode: &[&str]) {
    let (few, many) = (per_hand_over::<S>(FEW, mode), per_hand_over::<S>(crowd, mode));
    // The first of them have just arrived, and may still be busy with that.
    assert!(many <= few + 1, "with 10 waiters a hand-over takes {few} requests, with {crowd} it takes {many}");
    assert!((1..=16).contains(&few), "{few} requests for a hand-over");
}

macro_rules! hand_overs {
    ($($name:ident: $service:ty;)+) => { $(
        mod $name {
            use super::*;

            #[test]
            fn an_exclusive_hand_over_costs_the_same_however_many_wait() {
                does_not_grow::<$service>(100, &[]);
            }

            #[test]
            fn a_reader_costs_the_same_however_many_wait() {
                does_not_grow::<$service>(50, &["--shared"]);
            }

            #[test]
            fn a_slot_costs_the_same_however_many_wait() {
                does_not_grow::<$service>(50, &["--slots", "3"]);
            }
        }
    )+ };
}

hand_overs! {
    redis: RedisService;
    etcd: EtcdService;
    zookeeper: ZooKeeperService;
    postgres: PostgresLoggedService;
    mysql: MysqlLoggedService;
}

/// What a crowd costs an etcd that does nothing else.
struct Crowd {
    /// The client requests and the bytes sent per heartbeat of a waiter.
    idle: (f64, f64),
    /// The bytes sent for one more waiter to join.
    joining: u64,
}

#[allow(clippy::cast_precision_loss)]
fn on_etcd(waiters: usize) -> Crowd {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let waiting = crowd(&service, waiters, &["--ttl", "6s"]);
    let (requests, sent) = (service.etcd.count_requests(), service.etcd.sent());
    let signs = |requests: &BTreeMap<String, u64>| requests.get("LeaseKeepAlive").copied().unwrap_or(0);
    // Three samples of each.
    let seen = eventually("signs of life", || {
        let seen = requests.so_far();
        (signs(&seen) >= 3 * waiters as u64).then_some(seen)
    });
    let (all, sent) = (seen.values().sum::<u64>(), service.etcd.sent() - sent);
    let idle = (all as f64 / signs(&seen) as f64, sent as f64 / signs(&seen) as f64);
    // Nobody else is notified while one more joins.
    for waiter in &waiting {
        waiter.signal(Signal::SIGSTOP);
        process::wait_stopped(waiter.pid());
    }
    let before = service.etcd.sent();
    let more = service.run("job").args(["--ttl", "10m"]).command(["true"]).spawn();
    more.wait_stderr("waiting for 'job'");
    let joining = service.etcd.sent() - before;
    println!("etcd: {waiters} waiters, for each sign of life {idle:?} requests and bytes; joining: {joining} bytes");
    for waiter in waiting.iter().chain([&more, &holder.running]) {
        waiter.signal(Signal::SIGKILL);
    }
    for waiter in waiting.into_iter().chain([more, holder.running]) {
        let outcome = waiter.wait();
        let _ = outcome.stderr();
    }
    Crowd { idle, joining }
}

/// A server that sends all names to each of them has 1,000 times as much to send to 1,000 as to one.
#[test]
fn what_an_idle_waiter_on_etcd_costs_does_not_grow_with_their_number() {
    let (few, many) = (on_etcd(10), on_etcd(300));
    // A heartbeat, a read of its own key, and now and then one of the holder's key.
    for Crowd { idle: (requests, bytes), joining } in [&few, &many] {
        assert!(*requests < 3.5, "{requests} requests for each sign of life");
        assert!(*bytes < 2000.0, "{bytes} bytes for each sign of life");
        assert!(*joining < 12_000, "{joining} bytes for one who joins");
    }
    assert!(many.idle.1 < few.idle.1 * 1.2, "{} bytes grow to {}", few.idle.1, many.idle.1);
}
