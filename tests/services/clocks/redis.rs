//! The clock of a redis server is set forward and back.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::clock::HOUR;
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, boottime, eventually};
use crate::support::scene::{KEY, assert_lost};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::{Gated, RedisService, Service};

use super::{hold, is_not_noticed, queue_up, run, takes_over, ttl};

/// A store that must never be written twice: it keeps the last value written with the largest token, and refuses
/// writes with a smaller one.
struct FencedStore {
    directory: PathBuf,
}

impl FencedStore {
    fn new(scratch: &Scratch) -> Self {
        Self { directory: scratch.directory("store", 0o755) }
    }

    /// Shell code that writes `text` with the token of its command.
    fn write(&self, text: &str) -> String {
        format!(
            "(cd '{}'; flock 9; [ ! -e kept ] || read -r last rest < kept
            if [ \"$DLOCK_TOKEN\" -lt \"${{last:-0}}\" ]; then echo {text} >> refused; exit 1; fi
            echo \"$DLOCK_TOKEN {text}\" > kept) 9> '{0}/lock'",
            self.directory.display()
        )
    }

    fn kept(&self) -> String {
        let kept = fs::read_to_string(self.directory.join("kept")).unwrap_or_default();
        kept.split_once(' ').map_or(String::new(), |(_, text)| text.trim_end().to_owned())
    }

    fn refused(&self) -> String {
        fs::read_to_string(self.directory.join("refused")).unwrap_or_default()
    }
}

fn with_clock() -> RedisService {
    RedisService::on(Redis::with_clock([""; 0]))
}

/// The documented window: the server forgets the lock at once, and until the next renewal notices, only the token
/// protects.
#[test]
fn an_hour_ahead_the_lock_is_lost_at_the_next_renewal_and_until_then_the_token_protects() {
    let service = with_clock();
    let (redis, scratch) = (&service.redis, service.scratch());
    let store = FencedStore::new(scratch);
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("late")));
    let work = format!(
        "{}; {}; {}; {}; {}; sleep 1000",
        store.write("first"),
        words.say("held"),
        gate.wait(),
        store.write("late"),
        words.say("late")
    );
    let monitor = redis.monitor();
    // Renewed every two seconds.
    let holder = service.run("job").args(["-t", "6s"]).shell(work).spawn();
    words.expect("held");
    let waiter = queue_up(&service);
    monitor.wait_renewed(KEY);
    let renewed = boottime();
    redis.clock().set(HOUR);
    // Immediately, by a waiter that finds the lock free.
    let second = waiter.token();
    gate.open();
    words.expect("late");
    assert!(holder.is_running());
    waiter.let_go().success();
    run(&service).shell(format!("[ $DLOCK_TOKEN -gt {second} ] && {}", store.write("second"))).output().success();
    assert_eq!(store.kept(), "second");
    assert_lost(&holder.wait(), "its key is ");
    let noticed = boottime() - renewed;
    assert!(noticed < Duration::from_secs(5), "noticed only after {noticed:?}");
    // A lock taken and released while the clock was wrong causes no trouble once the clock is right again.
    redis.clock().set(0);
    let third = hold(&service);
    assert!(third.token() > second);
    third.let_go().success();
    eventually("the end of all traces", || service.litter(&["job"]).is_empty().then_some(()));
}

/// What a holder writes after the next one has written is refused, although the server's clock is an hour ahead.
#[test]
fn an_hour_ahead_a_late_write_is_refused() {
    let service = with_clock();
    let store = FencedStore::new(service.scratch());
    let (mut words, gate) = (Fifo::new(service.scratch().path("words")), Gate::new(service.scratch().path("late")));
    let late = format!("{}; {}; {}; {}", words.say("held"), gate.wait(), store.write("late"), words.say("late"));
    let monitor = service.redis.monitor();
    let holder = service.run("job").args(["-t", "6s"]).shell(format!("{late}; sleep 1000")).spawn();
    words.expect("held");
    monitor.wait_renewed(KEY);
    service.redis.clock().set(HOUR);
    run(&service).arg("-n").shell(store.write("next")).output().success();
    gate.open();
    words.expect("late");
    assert_eq!((&*store.kept(), &*store.refused()), ("next", "late\n"));
    assert_lost(&holder.wait(), "its key is gone from the server");
}

#[test]
fn an_hour_behind_nothing_is_lost() {
    let service = with_clock();
    is_not_noticed(&service, || service.redis.clock().set(-HOUR));
}

#[test]
fn locks_from_while_it_was_an_hour_ahead_are_no_trouble_afterwards() {
    let service = with_clock();
    service.redis.clock().set(HOUR);
    is_not_noticed(&service, || service.redis.clock().set(0));
}

/// Left alone, redis would keep the key for another hour.
#[test]
fn an_hour_behind_the_lock_of_a_holder_that_was_killed_passes_on_when_its_lease_ends() {
    let service = with_clock();
    let (holder, waiter) = (hold(&service), queue_up(&service));
    process::signal(holder.pid(), Signal::SIGKILL);
    service.redis.clock().set(-HOUR);
    let killed = boottime();
    holder.running.wait().signal(Signal::SIGKILL).stderr();
    // Redis measures a blocking wait by the same clock. dlock gives up first, and then a new lease begins.
    takes_over::<RedisService>(&waiter, killed + ttl::<RedisService>() + Duration::from_secs(1));
    waiter.let_go().success();
}

/// Nor would it take waiters that died for live ones.
#[test]
fn an_hour_behind_a_dead_waiter_delays_the_others_by_seconds() {
    let service = with_clock();
    let holder = hold(&service);
    let (dead, waiter) = (queue_up(&service), queue_up(&service));
    process::signal(dead.pid(), Signal::SIGKILL);
    dead.running.wait().signal(Signal::SIGKILL);
    service.redis.clock().set(-HOUR);
    let before = boottime();
    holder.let_go().success();
    // Longer than without the fault: a live waiter needs time for another heartbeat, half a ttl and three seconds.
    takes_over::<RedisService>(&waiter, before + Duration::from_secs(6));
    waiter.let_go().success();
}

/// Nor would it take a reader that died for one that holds the lock.
#[test]
fn an_hour_behind_a_reader_that_was_killed_delays_a_writer_by_its_lease() {
    let service = with_clock();
    let [dead, other] = [(); 2].map(|()| Gated::spawn(service.scratch(), run(&service).arg("-s")));
    dead.wait_held();
    other.wait_held();
    let writer = queue_up(&service);
    process::signal(dead.pid(), Signal::SIGKILL);
    service.redis.clock().set(-HOUR);
    let killed = boottime();
    dead.running.wait().signal(Signal::SIGKILL).stderr();
    other.let_go().success();
    // A new lease begins when the first script finds the old one.
    takes_over::<RedisService>(&writer, killed + ttl::<RedisService>() + Duration::from_secs(1));
    writer.let_go().success();
}
