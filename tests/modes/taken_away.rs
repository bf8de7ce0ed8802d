//! What somebody deletes is lost to all who held it together, and those who come after it are others.

use std::fs;
use std::time::Duration;

use super::{assert_clean, hold, let_go};
use crate::support::backends::on_every_backend;
use crate::support::cluster;
use crate::support::redis_services::Redlock3;
use crate::support::rendezvous::boottime;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};

on_every_backend! {
    all_who_held_it_are_stopped_and_the_next_ones_are_not
}

/// A service from which a lock can be deleted by other hands.
trait Taken: Service {
    /// Deletes all that the service has of the holders of `key`.
    fn take_away(&self, key: &str);
}

impl Taken for FileService {
    fn take_away(&self, key: &str) {
        fs::remove_file(self.scratch().lock_dir().join(format!("{key}.lock"))).unwrap();
    }
}

impl Taken for RedisService {
    fn take_away(&self, key: &str) {
        assert_eq!(self.redis.cli(&["DEL", &Self::lock(key)]), "1");
    }
}

impl Taken for Redlock3 {
    fn take_away(&self, key: &str) {
        for redis in self.servers.iter() {
            redis.cli(&["DEL", &RedisService::lock(key)]);
        }
    }
}

impl Taken for EtcdService {
    fn take_away(&self, key: &str) {
        for entry in self.etcd.keys(&cluster::etcd::contenders(key)) {
            assert!(self.etcd.delete(&entry.key), "{entry:?}");
        }
    }
}

impl Taken for ZooKeeperService {
    fn take_away(&self, key: &str) {
        let lock = cluster::zookeeper::lock(key);
        for node in self.zookeeper.children(&lock).expect("a lock that is held") {
            self.zookeeper.delete(&format!("{lock}/{node}"));
        }
    }
}

/// How soon everybody is stopped: a third of the lease after the loss, and SIGTERM suffices.
const SOON: Duration = Duration::from_secs(4);

fn all_who_held_it_are_stopped_and_the_next_ones_are_not<S: Taken>(service: &S) {
    let keys = [("readers", &["--ttl", "6s", "-s"][..]), ("slots", &["--ttl", "6s", "--slots", "3"])];
    let held: Vec<Gated> =
        keys.iter().flat_map(|(key, options)| (0..3).map(move |_| hold(service, key, *options))).collect();
    for (key, _) in keys {
        service.take_away(key);
    }
    let taken = boottime();
    let next: Vec<Gated> = keys.iter().map(|(key, options)| hold(service, key, *options)).collect();
    for holder in held {
        holder.running.wait().code(79).stderr_ends_with_line("lost ");
    }
    let passed = boottime() - taken;
    assert!(passed < SOON, "{passed:?}");
    // What the others did at their ends was none of theirs.
    for (key, _) in keys {
        service.assert_held(key);
    }
    let_go(next);
    assert_clean(service, &["readers", "slots"]);
}
