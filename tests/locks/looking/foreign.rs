//! Locks that other programs hold: they are held, by another program.

use serde_json::Value;

use crate::locks::looking::{list, look, names, status, told};
use crate::support::foreign::{Foreign, Kind};
use crate::support::redis_services::Redlock3;
use crate::support::service::{EtcdService, FileService, RedisService, Service, ZooKeeperService};

/// Where a program of this kind finds the lock `job`.
fn place<S: Service>(service: &S) -> (String, String) {
    match S::KIND {
        "file" => (String::new(), service.scratch().lock_dir().join("job.lock").display().to_string()),
        "redis" | "redlock" => (service.url(), "dlock:job".to_owned()),
        "etcd" => (service.url(), "dlock/job".to_owned()),
        _ => (service.url(), "/dlock/job".to_owned()),
    }
}

/// Another program holds a lock, and a dlock waits for it where there is a queue.
fn another_program_is_told<S: Service>(kind: Kind) {
    let service = S::fresh();
    // The directory of the locks, where there is one.
    service.run("other").command(["true"]).output().success();
    let (servers, key) = place(&service);
    let mut other = Foreign::spawn(kind, &servers, &key);
    let text = other.acquire();
    let seen = status(&service, "job");
    let holder = &seen["holder"];
    let expected = if S::KIND == "file" { "process" } else { "foreign" };
    assert_eq!((&seen["state"], &holder["kind"]), (&"held".into(), &expected.into()), "{seen}");
    assert!(holder["id"].as_str().is_some_and(|id| id.starts_with("foreign:") && id.len() == 20), "{seen}");
    assert_eq!(status(&service, "job")["holder"]["id"], holder["id"]);
    match S::KIND {
        "file" => assert_eq!(holder["program"], "flock"),
        "redis" | "redlock" => assert_eq!(holder["text"], text.as_str(), "{seen}"),
        _ => {}
    }
    let first = told(&service, "job", 75);
    assert!(first.lines().next().is_some_and(|line| line.ends_with(": held by another program")), "{first}");
    assert_eq!(names(&list(&service, &[])), ["job"]);
    let table = look(&service, &["list"]).output();
    table.success();
    if S::IN_ORDER {
        let waiter = service.queue_up("job", &["-q"]);
        let seen = status(&service, "job");
        assert_eq!((&seen["waiting"], &seen["queue"][0]["pid"]), (&1.into(), &waiter.pid().into()), "{seen}");
        other.release();
        waiter.wait_held();
        assert_eq!(status(&service, "job")["holder"]["kind"], "dlock");
        // And one that waits itself.
        other.start_acquire();
        service.wait_queued("job", 1);
        let seen = status(&service, "job");
        assert_eq!((&seen["waiting"], &seen["queue"][0]["kind"]), (&1.into(), &expected.into()), "{seen}");
        waiter.let_go().success();
        other.wait_held();
    }
    other.release();
    assert_eq!(status(&service, "job")["state"], "free");
    assert_eq!(status(&service, "job")["holder"], Value::Null);
}

/// Each kind of program, with its service.
macro_rules! told_of {
    ($($test:ident: $service:ty, $kind:ident;)*) => {
        $(#[test]
        fn $test() {
            another_program_is_told::<$service>(Kind::$kind);
        })*
    };
}

told_of! {
    flock: FileService, Flock;
    redlock_py: Redlock3, RedlockPy;
    etcdctl: EtcdService, Etcdctl;
    etcds_go_client: EtcdService, EtcdMutex;
    etcds_lock_service: EtcdService, EtcdLockService;
    kazoo: ZooKeeperService, Kazoo;
    curator: ZooKeeperService, Curator;
    curators_writer: ZooKeeperService, CuratorWrite;
}

/// Its waiters look every tenth of a second, and are in no queue.
#[test]
fn redis_py() {
    let service = RedisService::fresh();
    let (servers, key) = place(&service);
    let mut other = Foreign::spawn(Kind::RedisPy, &servers, &key);
    let text = other.acquire();
    let seen = status(&service, "job");
    let holder = &seen["holder"];
    assert_eq!((&holder["kind"], &holder["text"]), (&"foreign".into(), &text.as_str().into()), "{seen}");
    assert!(holder["ttl_left_ms"].as_u64().is_some_and(|left| (1..=60_000).contains(&left)), "{seen}");
    let waiter = service.queue_up("job", &["-q"]);
    assert_eq!(status(&service, "job")["queue"][0]["pid"], waiter.pid());
    other.release();
    waiter.wait_held();
    waiter.let_go().success();
    other.set_lease("never");
    other.acquire();
    let seen = status(&service, "job");
    assert_eq!((&seen["holder"]["ttl_left_ms"], &seen["holder"]["expires"]), (&Value::Null, &false.into()), "{seen}");
    assert!(told(&service, "job", 75).contains("  lease    never expires: delete it by hand if its owner is gone\n"));
    other.release();
}
