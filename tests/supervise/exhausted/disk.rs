//! No room on a disk: for messages, for lock files, and for the data of servers.

use std::fs::File;
use std::time::Duration;

use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::redis_services::Redlock3;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::servers::Redis;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

use super::{TTL, assert_nothing_left, run};

/// A file to which nothing can be written, for messages.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// On every backend dlock does what it always does, silently.
fn no_room_for_messages<S: Service>() {
    let service = S::fresh();
    let holder = Gated::spawn(service.scratch(), run(&service).arg("-v").stderr(full()));
    holder.wait_held();
    run(&service).arg("-n").command(["echo", "overlap"]).stderr(full()).output().code(75).stdout_is("");
    run(&service).args(["-w", "0.5"]).command(["echo", "overlap"]).stderr(full()).output().code(75).stdout_is("");
    holder.let_go().code(0);
    run(&service).command(["/no/such/program"]).stderr(full()).output().code(127);
    assert_nothing_left(&service);
}

macro_rules! no_room_on {
    ($($backend:ident: $service:ty;)*) => {
        $(#[test]
        fn $backend() {
            no_room_for_messages::<$service>();
        })*
    };
}

mod no_room_for_messages_on {
    use super::*;

    no_room_on! {
        file: FileService;
        redis: RedisService;
        redlock: Redlock3;
        etcd: EtcdService;
        zookeeper: ZooKeeperService;
    }
}

/// A lock file that already exists needs no more room, neither to be locked nor to be released.
#[test]
fn a_disk_that_fills_up_while_a_lock_file_is_held_loses_nothing() {
    let service = FileService::fresh();
    let disk = service.scratch().directory("disk", 0o700);
    let fill = "echo $DLOCK_TOKEN; cd \"$disk\" && head -c 1M /dev/zero > fill 2>/dev/null; true";
    let script = r#"
        mount -t tmpfs -o mode=0700,size=16k tmpfs "$disk" && cd "$disk" || exit 1
        "$@"; echo "filled $?"
        "$@"; echo "full $?"
    "#;
    let dlock = service
        .scratch()
        .dlock()
        .run("job")
        .backend(format!("file://{}", disk.display()))
        .env("disk", &disk)
        .shell(fill);
    let wrapper = ["unshare", "-rm", "sh", "-c", script, "sh"];
    let outcome = dlock.wrapped_by(wrapper).output();
    outcome.success();
    let stdout = outcome.stdout();
    let [first, "filled 0", second, "full 0"] = stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("{outcome:?}");
    };
    assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap(), "{outcome:?}");
}

/// A redis that cannot write its append-only file: nobody gets a lock that it would not remember, and a holder goes
/// on until its lease expires or there is room again.
#[test]
fn a_redis_whose_disk_is_full_grants_nothing_and_loses_nothing() {
    let service = RedisService::on(Redis::on_small_disk(["--appendonly", "yes", "--appendfsync", "everysec"]));
    let redis = &service.redis;
    // Its lease is longer than the fault.
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "9s", "-q"]));
    holder.wait_held();
    let fail = || {
        redis.fill_disk();
        eventually("a write that fails", || {
            redis.ask(&["SET", "ballast", &"x".repeat(10_000)]).filter(|reply| reply.text().contains("MISCONF"))
        });
    };
    fail();
    let refused = service.run("other").command(["echo", "ran"]).output();
    refused.code(69).stdout_is("").stderr_is_one_line("MISCONF");
    // One renewal fails.
    last_until(boottime() + Duration::from_secs(4));
    redis.free_disk();
    eventually("a write", || redis.ask(&["DEL", "ballast"]).filter(|reply| !reply.text().contains("MISCONF")));
    last_until(boottime() + Duration::from_secs(3));
    service.assert_held("job");
    holder.let_go().success();
    assert_nothing_left(&service);
    // If the fault stays, the hold ends in time.
    let holder = Gated::spawn(service.scratch(), run(&service));
    holder.wait_held();
    fail();
    let outcome = holder.running.wait();
    outcome.code(79);
    assert!(outcome.stderr().starts_with("dlock: lost 'job' at redis://") && outcome.stderr().contains("MISCONF"));
    redis.free_disk();
    eventually("a write", || redis.ask(&["DEL", "ballast"]).filter(|reply| !reply.text().contains("MISCONF")));
    // The lock could not be released, and lasts no longer than its lease.
    let next = run(&service).args(["-q", "-w", "4s"]).command(["true"]).output();
    next.success();
    assert!(next.elapsed() < TTL, "{next:?}");
    assert_nothing_left(&service);
}

/// A server that cannot write its transaction log is out of service: without a majority of others the command is
/// stopped, and when there is room again, the next contender gets the lock.
#[test]
fn a_zookeeper_whose_disks_are_full_grants_nothing_and_loses_nothing() {
    let options = ZooKeeperOptions { small_disks: true, ..ZooKeeperOptions::ensemble() };
    let service = ZooKeeperService::on(ZooKeeper::with(options));
    let servers = service.zookeeper.servers();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "4s"]));
    let first = holder.token();
    let waiter = service.queue_up("job", &["-t", "4s", "-q"]);
    for server in servers {
        server.fill_disk();
    }
    let outcome = holder.running.wait();
    outcome.code(79).stderr_is_one_line("lost 'job' at ");
    assert!(!waiter.has_held());
    let other = service.run("other").command(["echo", "ran"]).output();
    other.code(69).stdout_is("").stderr_is_one_line("did not get 'other': ");
    for server in servers {
        server.free_disk();
    }
    assert!(waiter.token() > first);
    waiter.let_go().success();
}

/// A full etcd accepts no new keys or leases, and keeps those that it has.
#[test]
fn an_etcd_without_space_grants_nothing_and_loses_nothing() {
    let args = vec!["--quota-backend-bytes".into(), "1048576".into()];
    let service = EtcdService::on(Etcd::with(EtcdOptions { args, ..EtcdOptions::single() }));
    let holder = Gated::spawn(service.scratch(), run(&service).arg("-q"));
    let first = holder.token();
    let waiter = service.queue_up("job", &["-t", "2s", "-q"]);
    let mut filled = 0;
    eventually("no space to be left", || {
        filled += 1;
        let mut put = service.etcd.etcdctl_command();
        let output = put.args(["put", &format!("ballast{filled}"), &"x".repeat(100_000)]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("space exceeded").then_some(())
    });
    let refused = service.run("other").command(["echo", "ran"]).output();
    refused.code(69).stdout_is("").stderr_is_one_line("space");
    last_until(boottime() + TTL * 3 / 2);
    assert!(holder.running.is_running() && !waiter.has_held(), "{:?}", holder.running);
    holder.let_go().success();
    // A waiter that was in the queue before has everything it needs.
    let second = waiter.token();
    assert!(second > first);
    waiter.let_go().success();
}
