//! Looking takes no lock, joins no queue and extends no lease: the services are as before.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::locks::looking::{list, status, told};
use crate::support::servers::runs_script;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};

/// What a look may ask of a redis server.
const READS: &[&str] =
    &["MULTI", "EXEC", "TIME", "TYPE", "GETRANGE", "GET", "PTTL", "ZCARD", "ZRANGE", "HMGET", "SCAN"];

/// A lock with a holder and a waiter, one that readers share, and one that is only kept.
fn scene<S: Service>(service: &S) -> Vec<Gated> {
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-q"]);
    let reader = Gated::spawn(service.scratch(), service.run("shared").arg("-s"));
    reader.wait_held();
    service.run("kept").args(["--min-hold", "1m"]).command(["true"]).output().success();
    vec![holder, waiter, reader]
}

fn look_at_all<S: Service>(service: &S) {
    for key in ["job", "shared", "kept"] {
        status(service, key);
        told(service, key, 75);
    }
    assert_eq!(list(service, &[])["locks"].as_array().unwrap().len(), 3);
}

fn end(scene: Vec<Gated>) {
    for one in scene {
        one.wait_held();
        one.let_go().success();
    }
}

#[test]
fn on_redis_there_are_only_reads() {
    let service = RedisService::fresh();
    let scene = scene(&service);
    service.wait_blocked(1);
    let monitor = service.redis.monitor();
    look_at_all(&service);
    let asked = monitor.client_commands();
    assert!(asked.len() > 40, "{asked:?}");
    // Renewals and heartbeats are far apart.
    let is_read = |words: &&Vec<String>| READS.contains(&words[0].to_uppercase().as_str());
    let others: Vec<_> = asked.iter().filter(|words| !is_read(words)).collect();
    let is_known =
        |words: &[String]| ["EVAL", "EVALSHA", "INFO", "CLIENT", "BLPOP"].contains(&words[0].to_uppercase().as_str());
    assert!(others.iter().all(|words| is_known(words)), "{others:?}");
    assert!(others.iter().all(|words| !runs_script(words)), "a renewal, or worse: {others:?}");
    end(scene);
}

#[test]
fn on_etcd_the_revision_stays_and_no_lease_is_made() {
    let service = EtcdService::fresh();
    let scene = scene(&service);
    let leases = || service.etcd.leases().into_iter().map(|lease| (lease.id, lease.keys)).collect::<Vec<_>>();
    let before = (service.etcd.revision(), leases());
    look_at_all(&service);
    assert_eq!((service.etcd.revision(), leases()), before);
    end(scene);
}

#[test]
fn on_zookeeper_the_nodes_stay_as_they_are() {
    let service = ZooKeeperService::fresh();
    let scene = scene(&service);
    // A holder that renews writes to its own nodes; the directories stay as they are.
    let nodes = || -> BTreeMap<String, (i64, i32)> {
        let all = service.zookeeper.tree().into_iter();
        let node = |path: String| service.zookeeper.get(&path).map(|node| (path, (node.czxid, node.children)));
        all.filter_map(node).collect()
    };
    let before = nodes();
    assert!(before.len() > 8, "{before:?}");
    look_at_all(&service);
    assert_eq!(nodes(), before);
    end(scene);
}

#[test]
fn lock_files_are_neither_written_nor_locked() {
    let service = FileService::fresh();
    let scene = scene(&service);
    let files = || -> BTreeMap<_, _> {
        let file = |entry: fs::DirEntry| {
            let about = entry.metadata().unwrap();
            (entry.file_name(), (fs::read(entry.path()).unwrap(), about.mtime_nsec(), about.ctime_nsec(), about.ino()))
        };
        fs::read_dir(service.scratch().lock_dir()).unwrap().map(|entry| file(entry.unwrap())).collect()
    };
    let before = files();
    look_at_all(&service);
    assert_eq!(files(), before);
    end(scene);
    // While one looks all the time, a run that does not wait is never refused.
    let watching = crate::locks::looking::look(&service, &["status", "-k", "free", "--json", "--watch"]).spawn();
    for _ in 0..50 {
        status(&service, "free");
        service.run("free").arg("-n").command(["true"]).output().success();
    }
    drop(watching);
}
