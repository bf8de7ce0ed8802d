//! Users who may only read: that is enough to look, and a right that is missing is named.

use crate::locks::looking::{look, names, read};
use crate::support::database_services::DatabaseService;
use crate::support::databases::Engine;
use crate::support::dlock::Dlock;
use crate::support::mysql::MariaDb;
use crate::support::postgres::PostgreSql;
use crate::support::service::{EtcdService, Gated, RedisService, Service, ZooKeeperService};
use crate::support::zookeeper::{Acl, Kind};

/// `dlock` with these words, as a user who is called `viewer` in the URL.
pub fn viewer<S: Service>(service: &S, scheme: &str, words: &[&str]) -> Dlock {
    let url = service.url();
    let (_, place) = url.split_once("://").unwrap();
    // The URL may have a user of its own.
    let place = place.split_once('@').map_or(place, |(_, place)| place);
    let url = format!("{scheme}://viewer@{place}");
    service.scratch().dlock().args(words).backend(url).env("DLOCK_PASSWORD", "secret")
}

#[test]
fn the_right_to_read_is_enough_on_redis_and_a_right_that_is_missing_is_named() {
    let service = RedisService::fresh();
    let acl = |words: &[&str]| service.redis.cli(&[&["ACL", "SETUSER", "viewer"], words].concat());
    acl(&["on", ">secret", "resetkeys", "%R~dlock:*", "%R~{dlock:*", "-@all", "+multi", "+exec", "+time", "+type"]);
    acl(&["+getrange", "+get", "+pttl", "+zcard", "+zrange", "+hmget", "+scan"]);
    let viewer = |words: &[&str]| viewer(&service, "redis", words);
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-q"]);
    let group = Gated::spawn(service.scratch(), service.run("shared").arg("-s"));
    group.wait_held();
    let outcome = viewer(&["status", "--json", "-k", "job"]).output();
    outcome.code(75).quiet();
    assert_eq!(read(&outcome)["queue"][0]["pid"], waiter.pid());
    let outcome = viewer(&["list", "--json"]).output();
    outcome.success();
    assert_eq!(names(&read(&outcome)), ["job", "shared"]);
    // Names of keys are secret here.
    acl(&["-scan"]);
    viewer(&["list"]).output().code(77).stdout_is("").stderr_is_one_line("+scan");
    viewer(&["status", "-k", "job"]).output().code(75).quiet();
    acl(&["-zrange"]);
    viewer(&["status", "-k", "job"]).output().code(77).stderr_is_one_line("+zrange");
    holder.let_go().success();
    waiter.let_go().success();
    group.let_go().success();
}

#[test]
fn the_right_to_read_is_enough_on_etcd() {
    let service = EtcdService::fresh();
    let etcd = &service.etcd;
    let holder = service.hold("job");
    etcd.guard("worker", "hush", "dlock/");
    etcd.etcdctl(&["user", "add", "viewer:secret"]);
    etcd.etcdctl(&["role", "add", "look"]);
    etcd.etcdctl(&["role", "grant-permission", "look", "read", "dlock/", "--prefix"]);
    etcd.etcdctl(&["user", "grant-role", "viewer", "look"]);
    let viewer = |words: &[&str]| viewer(&service, "etcd", words);
    let outcome = viewer(&["status", "--json", "-k", "job"]).output();
    outcome.code(75).quiet();
    let seen = read(&outcome);
    assert_eq!(seen["holder"]["pid"], holder.pid());
    assert!(seen["holder"]["ttl_left_ms"].as_u64().is_some_and(|left| left > 0), "{seen}");
    let outcome = viewer(&["list", "--json"]).output();
    outcome.success();
    assert_eq!(names(&read(&outcome)), ["job"]);
    drop(holder);
}

/// `made` makes a user `viewer` who may read `shedlock` at most; `granted` lets that user read one more table.
fn the_right_to_read_is_enough<E: Engine>(made: &str, whose: &str, granted: impl Fn(&str) -> String) {
    let service = DatabaseService::<E>::fresh();
    let (holder, waiter) = (service.hold("job"), service.queue_up("job", &["-q"]));
    let group = Gated::spawn(service.scratch(), service.run("shared").arg("-s"));
    group.wait_held();
    look(&service, &["latch", "-k", "build", "done", "--as", "a"]).output().success();
    service.sql(made);
    let viewer = |words: &[&str]| viewer(&service, E::KIND, words);
    let refused = viewer(&["status", "-k", "job"]).output();
    refused.code(77).stdout_is("").stderr_is_one_line(&format!("the {whose} viewer lacks a right: "));
    for table in ["shedlock", "dlock_holder", "dlock_member", "dlock_queue"] {
        service.sql(&granted(table));
    }
    let outcome = viewer(&["status", "--json", "-k", "job"]).output();
    outcome.code(75).quiet();
    let seen = read(&outcome);
    assert_eq!((&seen["holder"]["pid"], &seen["queue"][0]["pid"]), (&holder.pid().into(), &waiter.pid().into()));
    // What may not be read is not reported as missing.
    for latches in [None, Some("build")] {
        let outcome = viewer(&["list", "--json"]).output();
        outcome.success();
        let list = read(&outcome);
        assert_eq!((names(&list), list["latches"][0]["key"].as_str()), (vec!["job", "shared"], latches), "{list}");
        assert_eq!((list["latches"].is_null(), list["barriers"].is_null()), (latches.is_none(), latches.is_none()));
        service.sql(&granted("dlock_record"));
    }
    holder.let_go().success();
    waiter.let_go().success();
    group.let_go().success();
}

#[test]
fn the_right_to_read_is_enough_on_postgresql() {
    // As for people who must not change anything by mistake.
    let made = "CREATE ROLE viewer LOGIN PASSWORD 'secret'; ALTER ROLE viewer SET default_transaction_read_only = on";
    the_right_to_read_is_enough::<PostgreSql>(made, "role", |table| format!("GRANT SELECT ON {table} TO viewer"));
}

#[test]
fn the_right_to_read_is_enough_on_mysql() {
    let made = "CREATE USER viewer@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON locks.shedlock TO viewer@'%'";
    the_right_to_read_is_enough::<MariaDb>(made, "user", |table| {
        format!("GRANT SELECT ON locks.{table} TO viewer@'%'")
    });
}

/// Directories that anybody may read, and that only their maker may change.
#[test]
fn the_right_to_read_is_enough_on_zookeeper() {
    let service = ZooKeeperService::fresh();
    let mut worker = service.zookeeper.client();
    worker.add_auth("worker", "hush").unwrap();
    worker.create("/dlock", "", Kind::Persistent, Acl::Readable).unwrap();
    worker.create("/dlock/job", "", Kind::Persistent, Acl::Readable).unwrap();
    let node = "/dlock/job/_c_e457f1b7-a38a-b51a-0c8c-e773f17aabeb-lock-0000000000";
    worker.create(node, "10.0.0.1", Kind::Ephemeral, Acl::Readable).unwrap();
    let look = |words: &[&str]| service.scratch().dlock().args(words).backend(service.url());
    let outcome = look(&["status", "--json", "-k", "job"]).output();
    outcome.code(75).quiet();
    assert_eq!(read(&outcome)["holder"]["kind"], "foreign");
    let outcome = look(&["list", "--json"]).output();
    outcome.success();
    assert_eq!(names(&read(&outcome)), ["job"]);
    // What dlock makes for a user is closed to all others.
    worker.create("/dlock/closed", "", Kind::Persistent, Acl::Mine).unwrap();
    look(&["status", "-k", "closed"]).output().code(77).stdout_is("").stderr_is_one_line("cannot read 'closed': ");
}
