/*!
`--min-hold`: a lock stays taken for a time after it was granted, whatever becomes of the command and of dlock; and not
where no command was started.
*/

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{on_backend, on_every_backend, on_file_and_redis};
use crate::support::process;
use crate::support::rendezvous::boottime;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};

on_every_backend! {
    ;
    it_stays_taken_after_a_short_command
}

on_file_and_redis! {
    it_stays_taken_when_dlock_is_killed
    it_is_free_at_once_where_no_command_was_started
    a_run_that_is_longer_frees_it_at_its_end
    many_starts_within_the_hold_are_one_run
    a_wait_may_be_shorter_than_the_hold
}

on_backend! { only_redis: service::RedisService {
    what_a_finished_run_left_behind_is_not_covered_by_it
    no_renewal_revives_a_finished_lock
} }

/// README's commands for the end of a hold whose holder is gone.
#[test]
fn the_documented_commands_free_a_lock_that_is_kept() {
    let file = FileService::fresh();
    let lock_file = file.scratch().lock_dir().join("job.lock");
    let edit = || {
        let mut flock = Command::new("flock");
        flock.arg("-n").arg(&lock_file).args(["sed", "-i", "2,$d"]).arg(&lock_file).status().unwrap().success()
    };
    for mode in [&[][..], &["--shared"], &["--slots", "3"]] {
        let holder = Gated::spawn(file.scratch(), file.run("job").args(["--min-hold", "1h"]).args(mode));
        holder.wait_held();
        assert!(!edit(), "a lock that is in use must not be freed");
        holder.let_go().success();
        is_refused(&file, "job");
        assert!(edit());
        file.assert_free("job");
    }

    let redis = RedisService::fresh();
    let waiter = kept_with_a_waiter(&redis);
    assert_eq!(redis.redis.cli(&["DEL", "dlock:job"]), "1");
    goes_on(&redis, waiter);

    let etcd = EtcdService::fresh();
    let waiter = kept_with_a_waiter(&etcd);
    let first = etcd.etcd.etcdctl(&["get", "--prefix", "--sort-by=CREATE", "--limit=1", "--keys-only", "dlock/job/"]);
    let contender = first.trim().trim_end_matches(".hold");
    assert_eq!(etcd.etcd.etcdctl(&["del", "--prefix", contender]).trim(), "1");
    goes_on(&etcd, waiter);

    let zookeeper = ZooKeeperService::fresh();
    let waiter = kept_with_a_waiter(&zookeeper);
    // What `deleteall` of the directory does.
    let [holder] = &zookeeper.zookeeper.children("/dlock/job%dlock").unwrap()[..] else { panic!("one holder") };
    assert!(zookeeper.zookeeper.delete(&format!("/dlock/job%dlock/{holder}")));
    goes_on(&zookeeper, waiter);
}

/// A lock that is kept for an hour, and a waiter behind it.
#[track_caller]
fn kept_with_a_waiter<S: Service>(service: &S) -> Gated {
    service.run("job").args(["--min-hold", "1h"]).command(["true"]).output().success();
    let waiter = Gated::spawn(service.scratch(), service.run("job").args(["--ttl", "6s"]));
    waiter.running.wait_stderr("waiting for 'job': held by ");
    waiter
}

#[track_caller]
fn goes_on<S: Service>(service: &S, waiter: Gated) {
    waiter.wait_held();
    let outcome = waiter.let_go();
    let _ = outcome.code(0).stderr();
    service.assert_free("job");
}

/// Longer than the shortest leases of etcd and ZooKeeper.
const HOLD: Duration = Duration::from_secs(6);
/// How much later than its hold ends a waiter may have the lock, in addition to what the service needs to notice it.
const SOON: Duration = Duration::from_secs(5);

/// Waits for `key`, and checks that this lasts until the hold is over that was granted after `since`.
#[track_caller]
fn is_free_after_the_hold<S: Service>(service: &S, key: &str, since: Duration) {
    service.run(key).arg("-q").command(["true"]).output().success();
    let passed = boottime() - since;
    assert!(passed >= HOLD, "free after {passed:?}");
    assert!(passed < HOLD + SOON + S::EXPIRY_GRANULARITY, "free only after {passed:?}");
}

#[track_caller]
fn is_refused<S: Service>(service: &S, key: &str) {
    let refused = service.run(key).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("finished; kept until 2");
    assert!(
        refused.stderr().contains("Z (another ") && refused.stderr().contains(", --min-hold); see dlock status "),
        "{refused:?}"
    );
}

fn it_stays_taken_after_a_short_command<S: Service>(service: &S) {
    let kept = [("true", 0), ("false", 1)].map(|(key, code)| {
        let since = boottime();
        let outcome = service.run(key).args(["-v", "--min-hold", "6s"]).command([key]).output();
        outcome
            .code(code)
            .stderr_ends_with_line(&format!("finished; '{key}' stays taken until 6s after it was acquired"));
        assert!(outcome.elapsed() < HOLD, "dlock itself ends at once: {outcome:?}");
        is_refused(service, key);
        (key, since)
    });
    for (key, since) in kept {
        is_free_after_the_hold(service, key, since);
        service.assert_free(key);
    }
    service.assert_tidy(&["true", "false"]);
}

fn it_stays_taken_when_dlock_is_killed<S: Service>(service: &S) {
    let since = boottime();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--ttl", "4s", "--min-hold", "6s"]));
    holder.wait_held();
    // On file: the lock is kept by what has inherited it.
    let mut all = holder.running.descendants();
    all.push(holder.pid());
    for &pid in &all {
        process::signal(pid, Signal::SIGKILL);
    }
    all.into_iter().for_each(process::wait_gone);
    service.assert_held("job");
    is_free_after_the_hold(service, "job", since);
}

fn it_is_free_at_once_where_no_command_was_started<S: Service>(service: &S) {
    let data = service.scratch().file("data", "no program");
    for (command, code) in [("/nonexistent", 127), (data.to_str().unwrap(), 126)] {
        let outcome = service.run("job").args(["--min-hold", "1h"]).command([command]).output();
        outcome.code(code).stderr_is_one_line("could not run ");
        service.assert_free("job");
    }
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-q", "--min-hold", "1h"]);
    waiter.running.signal(Signal::SIGTERM);
    waiter.running.wait().signal(Signal::SIGTERM).quiet();
    holder.let_go().success();
    service.assert_free("job");
    service.assert_tidy(&["job"]);
}

fn a_run_that_is_longer_frees_it_at_its_end<S: Service>(service: &S) {
    // etcd has no leases below 2 s, and removes them up to a second later.
    service.run("job").args(["--min-hold", "1s"]).command(["sleep", "4"]).output().success();
    service.assert_free("job");
    service.assert_tidy(&["job"]);
}

fn many_starts_within_the_hold_are_one_run<S: Service>(service: &S) {
    let runs = service.scratch().path("runs");
    let job = format!("echo run >> '{}'", runs.display());
    for _ in 0..30 {
        service.run("job").args(["-q", "-n", "-E", "0", "--min-hold", "10m"]).shell(&job).output().success();
    }
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n");
}

fn a_wait_may_be_shorter_than_the_hold<S: Service>(service: &S) {
    service.run("job").args(["--min-hold", "10m"]).command(["true"]).output().success();
    let first = service.run("job").args(["-w", "1"]).command(["echo", "overlap"]).output();
    first.code(75).stdout_is("").stderr_ends_with_line("did not get 'job' within 1s: held by ");
    assert_eq!(service.queued("job"), 0);
    let waiter = service.run("job").command(["echo", "overlap"]).spawn();
    waiter.wait_stderr("waiting for 'job': held by ");
    waiter.signal(Signal::SIGTERM);
    let outcome = waiter.wait();
    outcome.signal(Signal::SIGTERM).stdout_is("");
    let _ = outcome.stderr();
    is_refused(service, "job");
}

fn what_a_finished_run_left_behind_is_not_covered_by_it<S: Service>(service: &S) {
    let outer = service.run("job").args(["--min-hold", "10m"]).shell("echo $DLOCK_HELD").output();
    let held = outer.success().stdout();
    let inner = service.run("job").arg("-n").env("DLOCK_HELD", held.trim_end()).command(["echo", "overlap"]).output();
    inner.code(75).stdout_is("").stderr_is_one_line("finished; kept until 2");
}

/// A renewal that arrives after the release must not make a lease of what is left.
fn no_renewal_revives_a_finished_lock<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--ttl", "3s", "--min-hold", "6s"]));
    let since = boottime();
    holder.wait_held();
    // A renewal or two come before the end.
    std::thread::sleep(Duration::from_secs(3));
    holder.let_go().success();
    is_refused(service, "job");
    is_free_after_the_hold(service, "job", since.saturating_sub(Duration::from_secs(1)));
}
