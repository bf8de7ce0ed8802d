//! No file descriptors are left, from the start or from some moment on.

use std::time::Duration;

use crate::support::backends::on_backend;
use crate::support::exhausted::{give_descriptors_back, take_all_descriptors, take_free_descriptors};
use crate::support::process;
use crate::support::redis_services::Redlock3;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::servers::Redis;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};

use super::{TTL, assert_no_litter_but, assert_nothing_left, assert_refused, run};

/// With fewer descriptors the loader cannot open a library.
const FEWEST: u64 = 4;

fn too_few<S: Service>(service: &S) {
    let mut enough = 0;
    for limit in FEWEST..64 {
        let dlock = run(service).arg("-n").command(["echo", "ran"]).limit(libc::RLIMIT_NOFILE, limit);
        let outcome = dlock.output();
        if outcome.status().code() == Some(0) {
            outcome.success().stdout_is("ran\n");
            enough += 1;
        } else {
            assert_eq!(enough, 0, "more descriptors are not enough: {limit}\n{outcome:?}");
            assert_refused(&outcome);
        }
        assert_nothing_left(service);
        if enough == 3 {
            return;
        }
    }
    panic!("that many descriptors are not enough for anything");
}

/// A holder's open connections go on working. The lease is long enough that none has to be replaced on a busy
/// machine: a ZooKeeper client gives up a connection that stays silent for a while.
fn none_left_while_it_holds<S: Service>(service: &S) {
    let lease = if S::KIND == "zookeeper" { 15 } else { 6 };
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-q", "-t", &format!("{lease}s")]));
    holder.wait_held();
    for pid in [holder.running.guard_pid(), holder.pid()] {
        take_free_descriptors(pid);
    }
    last_until(boottime() + Duration::from_secs(lease + 1));
    assert!(holder.running.is_running(), "it was lost by\n{:?}", holder.running);
    service.assert_held("job");
    holder.let_go().success();
    assert_nothing_left(service);
}

/// Without descriptors no new connection can be made, and the command is gone before its lease expires.
fn none_left_for_a_new_connection<S: Severable>(service: &S) {
    let holder = Gated::spawn(service.scratch(), run(service).arg("-q"));
    holder.wait_held();
    let command = holder.running.command_pid();
    take_all_descriptors(holder.pid());
    let cut = boottime();
    service.sever();
    let waiter = Gated::spawn(service.scratch(), service.run("job").args(["-t", "10s", "-q"]));
    process::wait_gone(command);
    if S::KIND == "zookeeper" {
        // The library keeps asking for a socket without a pause once its session must have ended. dlock, whose
        // command was killed by the guard, may not end before it gets one.
        give_descriptors_back(holder.pid());
    }
    let outcome = holder.running.wait();
    outcome.code(79).stderr_is_one_line("dlock: lost 'job' at ");
    assert!(boottime() < cut + 3 * TTL + S::EXPIRY_GRANULARITY, "{outcome:?}");
    waiter.wait_held();
    waiter.let_go().success();
    assert_nothing_left_after_a_cut(service);
}

/// A waiter that has no descriptor left when its turn comes passes the lock on.
fn none_left_while_it_waits<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), run(service).arg("-q"));
    holder.wait_held();
    let waiter = service.queue_up("job", &["-t", "2s", "-q"]);
    let guard = process::children(waiter.pid())[0];
    for pid in [guard, waiter.pid()] {
        take_free_descriptors(pid);
    }
    holder.let_go().success();
    eventually("its turn", || (waiter.has_held() || !waiter.running.is_running()).then_some(()));
    waiter.open();
    let outcome = waiter.running.wait();
    // All of its output is there only at the end.
    if outcome.stdout().starts_with("held ") {
        // The command has as few, which is its own problem.
        outcome.stderr();
    } else {
        assert_refused(&outcome);
    }
    assert_nothing_left(service);
}

/// An outage without descriptors is survived if there are some again in time.
fn some_again_in_time<S: Severable>(service: &S) {
    let lease = if S::KIND == "zookeeper" { 24 } else { 12 };
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-q", "-t", &format!("{lease}s")]));
    holder.wait_held();
    let cut = boottime();
    take_all_descriptors(holder.pid());
    service.sever();
    // One renewal fails.
    last_until(cut + Duration::from_millis(lease * 1000 * 3 / 8));
    give_descriptors_back(holder.pid());
    last_until(cut + Duration::from_secs(lease + 1));
    assert!(holder.running.is_running(), "it was lost by\n{:?}", holder.running);
    holder.let_go().success();
    assert_nothing_left_after_a_cut(service);
}

/// It would need more descriptors than it may open, and runs with real-time priority.
#[test]
fn a_guard_that_may_open_few_takes_no_time() {
    let service = FileService::fresh();
    let dlock = service.run("job").arg("-q").limit(libc::RLIMIT_NOFILE, 20);
    let holder = Gated::spawn(service.scratch(), dlock);
    holder.wait_held();
    let guard = holder.running.guard_pid();
    let takes_no_time = || {
        let ticks = || process::cpu_ticks(guard).unwrap();
        let before = ticks();
        last_until(boottime() + Duration::from_secs(1));
        // Out of a hundred.
        assert!(ticks() - before < 20, "{} ticks within a second", ticks() - before);
    };
    takes_no_time();
    take_all_descriptors(guard);
    takes_no_time();
    holder.let_go().success();
    assert_nothing_left(&service);
}

/// Fails the test unless everything of a dlock that has ended is gone, except perhaps directories in ZooKeeper:
/// they are kept when it is uncertain whether only dlock used them, for instance because the server died before
/// counting them.
#[track_caller]
fn assert_nothing_left_after_a_cut<S: Severable>(service: &S) {
    service.assert_free("job");
    eventually("the last process to go", || service.scratch().processes().is_empty().then_some(()));
    assert_no_litter_but(service, &["/dlock", "/dlock/job"]);
}

/// A service whose connections can be closed from its side without losing a lock.
trait Severable: Service {
    fn sever(&self);
}

fn hang_up(redis: &Redis) {
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

impl Severable for RedisService {
    fn sever(&self) {
        hang_up(&self.redis);
    }
}

impl Severable for Redlock3 {
    fn sever(&self) {
        self.servers.iter().for_each(hang_up);
    }
}

impl Severable for EtcdService {
    fn sever(&self) {
        self.etcd.restart();
    }
}

impl Severable for ZooKeeperService {
    fn sever(&self) {
        self.zookeeper.restart();
    }
}

on_backend! { file: service::FileService { too_few none_left_while_it_holds none_left_while_it_waits } }
on_backend! { redis: service::RedisService {
    too_few none_left_while_it_holds none_left_while_it_waits none_left_for_a_new_connection some_again_in_time
} }
on_backend! { redlock: redis_services::Redlock3 {
    too_few none_left_while_it_waits none_left_for_a_new_connection;
    none_left_while_it_holds some_again_in_time
} }
on_backend! { etcd: service::EtcdService {
    too_few none_left_while_it_waits none_left_for_a_new_connection;
    none_left_while_it_holds some_again_in_time
} }
on_backend! { zookeeper: service::ZooKeeperService {
    too_few none_left_while_it_holds none_left_while_it_waits none_left_for_a_new_connection some_again_in_time
} }
