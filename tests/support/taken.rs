//! Other hands, which delete what a lock service has of a lock.

use std::fs;

use super::cluster;
use super::database_services::DatabaseService;
use super::databases::Engine;
use super::redis_services::Redlock3;
use super::service::{EtcdService, FileService, RedisService, Service, ZooKeeperService};

/// A service from which a lock can be deleted by other hands.
pub trait Taken: Service {
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

impl<E: Engine> Taken for DatabaseService<E> {
    fn take_away(&self, key: &str) {
        let name = cluster::databases::name(key);
        self.sql(&format!("UPDATE shedlock SET lock_until = :now WHERE name = '{name}'"));
    }
}
