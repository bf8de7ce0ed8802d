use std::thread;

use nix::sys::signal::Signal;

use crate::support::etcd::Etcd;
use crate::support::foreign::{Foreign, Kind};
use crate::support::process;
use crate::support::redis_sets::RedisGroup;
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::zookeeper::ZooKeeper;

/// Two of the same kind keep each other out, and hand the lock over. `queued` returns how many are in the queue or hold
/// the lock, where there is a queue.
#[track_caller]
fn exclude_each_other(kind: Kind, servers: &str, key: &str, queued: Option<&dyn Fn() -> usize>) {
    let spawn = || Foreign::spawn(kind, servers, key);
    let (mut first, mut second) = (spawn(), spawn());
    let mut tokens = vec![first.acquire()];
    assert_eq!((first.owns(), second.owns()), (true, false));
    assert_eq!(second.try_acquire(), None);
    assert!(first.owns());
    second.start_acquire();
    if let Some(queued) = queued {
        eventually("the second to wait", || (queued() == 2).then_some(()));
    }
    assert!(!second.is_held());
    first.release();
    tokens.push(second.wait_held());
    assert!(!first.owns());
    assert_eq!(first.try_acquire(), None);
    second.release();
    tokens.push(first.try_acquire().expect("the lock is free"));
    first.release();
    if queued.is_some() {
        let numbers: Vec<u64> = tokens.iter().map(|token| token.parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "{numbers:?}");
    }
    // One that is asked whether it holds the lock by now still reports its token.
    second.start_acquire();
    eventually("the second to hold it", || second.is_held().then_some(()));
    assert!(second.is_held());
    assert!(!second.wait_held().is_empty());
    second.release();
    first.close();
    second.close();
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn flock_excludes_flock() {
    let scratch = Scratch::new();
    let path = scratch.path("k.lock").display().to_string();
    exclude_each_other(Kind::Flock, "", &path, None);
    let mut flock = Foreign::spawn(Kind::Flock, "", &path);
    let pid: i32 = flock.acquire().parse().unwrap();
    assert_eq!(process::comm(pid).as_deref(), Some("flock"));
    flock.release();
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn redis_py_excludes_redis_py() {
    let redis = Redis::start();
    exclude_each_other(Kind::RedisPy, &redis.url(), "k", None);
    assert_eq!(redis.keys(), [""; 0]);
    eventually("the connections to go", || redis.clients().is_empty().then_some(()));
    let mut first = Foreign::spawn_with_lease(Kind::RedisPy, &redis.url(), "k", "never");
    let value = first.acquire();
    assert_eq!((redis.get("k"), redis.pttl("k")), (Some(value), -1));
    first.release();
    first.set_lease("0.05");
    first.acquire();
    assert!((0..=50).contains(&redis.pttl("k").max(0)));
    let mut second = Foreign::spawn(Kind::RedisPy, &redis.url(), "k");
    second.acquire();
    assert!(redis.pttl("k") > 30_000);
    assert!(first.release_lost().starts_with("LockNotOwnedError"));
    assert!(second.owns());
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn redlock_py_excludes_redlock_py() {
    let servers = RedisGroup::start(3);
    exclude_each_other(Kind::RedlockPy, &servers.url(), "k", None);
    assert!(servers.iter().all(|redis| redis.keys().is_empty()));
    // A majority is enough, and fewer are not.
    let mut first = Foreign::spawn(Kind::RedlockPy, &servers.url(), "k");
    servers[0].cli(&["SET", "k", "foreign"]);
    let value = first.acquire();
    let values: Vec<_> = servers.iter().map(|redis| redis.get("k")).collect();
    assert_eq!(values, [Some("foreign".into()), Some(value.clone()), Some(value)]);
    servers[1].cli(&["SET", "k", "foreign"]);
    assert!(!first.owns());
    assert_eq!(first.try_acquire(), None);
}

/// The keys below `k/` in the order of their creation.
fn keys(etcd: &Etcd) -> Vec<String> {
    let mut entries = etcd.keys("k/");
    entries.sort_by_key(|entry| entry.create_revision);
    entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn etcdctl_excludes_etcdctl() {
    let etcd = Etcd::start();
    exclude_each_other(Kind::Etcdctl, &etcd.url(), "k", Some(&|| keys(&etcd).len()));
    assert_eq!(keys(&etcd), [""; 0]);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn the_mutex_of_etcds_go_client_excludes_itself_and_etcdctl() {
    let etcd = Etcd::start();
    exclude_each_other(Kind::EtcdMutex, &etcd.url(), "k", Some(&|| keys(&etcd).len()));
    assert_eq!(keys(&etcd), [""; 0]);
    assert!(etcd.leases().is_empty(), "{:?}", etcd.leases());
    let mut mutex = Foreign::spawn(Kind::EtcdMutex, &etcd.url(), "k");
    let mut etcdctl = Foreign::spawn(Kind::Etcdctl, &etcd.url(), "k");
    let held: u64 = mutex.acquire().parse().unwrap();
    let entry = etcd.keys("k/").remove(0);
    assert_eq!((entry.key, entry.value), (format!("k/{:x}", entry.lease), String::new()));
    assert_eq!(etcdctl.try_acquire(), None);
    etcdctl.start_acquire();
    eventually("etcdctl to wait", || (keys(&etcd).len() == 2).then_some(()));
    assert!(!etcdctl.is_held());
    mutex.release();
    let later: u64 = etcdctl.wait_held().parse().unwrap();
    assert!(later > held);
    assert_eq!(mutex.try_acquire(), None);
    etcdctl.release();
    assert!(mutex.acquire().parse::<u64>().unwrap() > later);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn etcds_lock_service_excludes_itself_and_etcdctl() {
    let etcd = Etcd::start();
    exclude_each_other(Kind::EtcdLockService, &etcd.url(), "k", Some(&|| keys(&etcd).len()));
    assert_eq!(keys(&etcd), [""; 0]);
    assert!(etcd.leases().is_empty(), "{:?}", etcd.leases());
    let mut service = Foreign::spawn(Kind::EtcdLockService, &etcd.url(), "k");
    let mut etcdctl = Foreign::spawn(Kind::Etcdctl, &etcd.url(), "k");
    service.acquire();
    assert_eq!(etcdctl.try_acquire(), None);
    service.release();
    etcdctl.acquire();
    assert_eq!(service.try_acquire(), None);
    etcdctl.release();
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn one_that_is_frozen_loses_its_lease_and_hears_of_it_afterwards() {
    let etcd = Etcd::start();
    let mut mutex = Foreign::spawn_with_lease(Kind::EtcdMutex, &etcd.url(), "k", "1");
    mutex.acquire();
    mutex.freeze();
    eventually("the lease to end", || keys(&etcd).is_empty().then_some(()));
    mutex.thaw();
    assert!(!mutex.owns());
    mutex.release_late();
    mutex.close();
}

/// How many nodes there are under `/locks/k`.
fn nodes(zookeeper: &ZooKeeper) -> usize {
    zookeeper.children("/locks/k").map_or(0, |children| children.len())
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn kazoo_excludes_kazoo() {
    let zookeeper = ZooKeeper::start();
    exclude_each_other(Kind::Kazoo, &zookeeper.url(), "/locks/k", Some(&|| nodes(&zookeeper)));
    assert_eq!(nodes(&zookeeper), 0);
    assert!(zookeeper.sessions().is_empty());
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn curator_excludes_curator_but_not_kazoo() {
    let zookeeper = ZooKeeper::start();
    exclude_each_other(Kind::Curator, &zookeeper.url(), "/locks/k", Some(&|| nodes(&zookeeper)));
    assert_eq!(nodes(&zookeeper), 0);
    assert!(zookeeper.sessions().is_empty());
    // They do not see each other's nodes, which is why other programs have to create both kinds.
    let mut curator = Foreign::spawn(Kind::Curator, &zookeeper.url(), "/locks/k");
    let mut kazoo = Foreign::spawn(Kind::Kazoo, &zookeeper.url(), "/locks/k");
    curator.acquire();
    assert!(kazoo.try_acquire().is_some());
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn readers_of_kazoo_and_curator_share_and_writers_exclude_all_of_their_own_kind() {
    let zookeeper = ZooKeeper::start();
    for (read, write) in [(Kind::KazooRead, Kind::KazooWrite), (Kind::CuratorRead, Kind::CuratorWrite)] {
        let path = format!("/locks/{read:?}");
        let nodes = || zookeeper.children(&path).map_or(0, |children| children.len());
        exclude_each_other(write, &zookeeper.url(), &path, Some(&nodes));
        let spawn = |kind| Foreign::spawn(kind, &zookeeper.url(), &path);
        let (mut readers, mut writer) = ([spawn(read), spawn(read)], spawn(write));
        for reader in &mut readers {
            reader.acquire();
        }
        assert!(readers.iter_mut().all(Foreign::owns));
        assert_eq!(writer.try_acquire(), None);
        readers.iter_mut().for_each(Foreign::release);
        writer.acquire();
        assert_eq!(readers[0].try_acquire(), None);
        writer.release();
        readers.into_iter().for_each(Foreign::close);
        writer.close();
    }
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_foreign_program_goes_with_all_that_it_started() {
    let etcd = Etcd::start();
    let mut etcdctl = Foreign::spawn(Kind::Etcdctl, &etcd.url(), "k");
    etcdctl.acquire();
    let mut tree = process::descendants(etcdctl.pid());
    assert!(tree.len() >= 2, "etcdctl and its command: {tree:?}");
    tree.push(etcdctl.pid());
    drop(etcdctl);
    for pid in tree {
        process::wait_gone(pid);
    }
    assert_eq!(keys(&etcd).len(), 1, "what it held stays until its lease ends");
    // Also when only the program itself is killed.
    let mut etcdctl = Foreign::spawn(Kind::Etcdctl, &etcd.url(), "other");
    etcdctl.acquire();
    let tree = process::descendants(etcdctl.pid());
    process::signal(etcdctl.pid(), Signal::SIGKILL);
    for pid in tree {
        process::wait_gone(pid);
    }
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn what_foreign_programs_need_is_made_by_one_for_all() {
    let servers = RedisGroup::start(1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Foreign::spawn(Kind::RedlockPy, &servers.url(), "k").close());
        }
    });
}
