//! Waiters: who gets the lock next, and what ends a wait.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::process;
use crate::support::rendezvous::{Fifo, boottime, eventually};
use crate::support::service::{Gated, Service};
use crate::support::witness::{Witness, read_counter};

pub(super) fn who_waits_gets_the_lock_when_it_is_free<S: Service>(service: &S) {
    let holder = service.hold("job");
    let mut waiters = vec![service.queue_up("job", &["-q"]), service.queue_up("job", &["-q", "-w", "60"])];
    assert!(waiters.iter().all(|waiter| !waiter.has_held()));
    holder.let_go().success();
    // Which of them is first does not matter.
    while !waiters.is_empty() {
        let first = eventually("one of them to have it", || waiters.iter().position(Gated::has_held));
        let waiter = waiters.swap_remove(first);
        service.assert_held("job");
        assert!(!waiters.iter().any(Gated::has_held));
        waiter.let_go().success();
    }
    service.assert_free("job");
}

/// How many contenders start at the same time.
const BATCH: usize = 25;

pub(super) fn many_contenders_never_overlap<S: Service>(service: &S) {
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let holder = service.hold("job");
    let contend = |_| service.run("job").arg("-q").command(witness.counter_command(&counter)).spawn();
    let mut contenders = Vec::new();
    // In the end all wait at the same time, but a slow machine cannot start all of them at once before some give up.
    while contenders.len() < S::CONTENDERS {
        let more = BATCH.min(S::CONTENDERS - contenders.len());
        contenders.extend((0..more).map(contend));
        service.wait_queued("job", contenders.len());
    }
    holder.let_go().success();
    // Where they are not served in order, the first may be among the last: each has its time after any other one.
    while !contenders.is_empty() {
        let ended = eventually("one of the contenders to end", || contenders.iter().position(|one| !one.is_running()));
        contenders.swap_remove(ended).wait().success();
    }
    assert_eq!(read_counter(&counter), S::CONTENDERS as u64);
    let sections = witness.check();
    assert_eq!(sections.len(), S::CONTENDERS);
    assert!(sections.iter().all(|section| section.end.is_some()));
}

pub(super) fn waiters_are_served_in_the_order_in_which_they_came<S: Service>(service: &S) {
    let mut turns = Fifo::new(service.scratch().path("turns"));
    let holder = service.hold("job");
    let line = |number: usize| {
        let waiter = service.run("job").arg("-q").shell(turns.say(&number.to_string())).spawn();
        service.wait_queued("job", number);
        waiter
    };
    let waiters: Vec<_> = (1..=8).map(line).collect();
    holder.let_go().success();
    for waiter in waiters {
        waiter.wait().success();
    }
    if S::IN_ORDER {
        for number in 1..=8 {
            turns.expect(&number.to_string());
        }
    }
}

pub(super) fn a_dead_waiter_delays_the_others_by_less_than_a_ttl<S: Service>(service: &S) {
    let ttl = Duration::from_secs(3);
    let holder = service.hold("job");
    let options = ["-q", "--ttl", "3s"];
    let (dead, waiter) = (service.queue_up("job", &options), service.queue_up("job", &options));
    process::signal(dead.pid(), Signal::SIGKILL);
    dead.running.wait().signal(Signal::SIGKILL).quiet();
    let before = boottime();
    holder.let_go().success();
    waiter.wait_held();
    let delay = boottime().saturating_sub(before);
    // Redis forgets a waiter before its ttl is over. The other services know leases only, and check them now and then.
    assert!(delay < ttl + S::EXPIRY_GRANULARITY, "the next in line had to wait for {delay:?}");
    waiter.let_go().success();
}

pub(super) fn a_signal_ends_the_wait_at_once<S: Service>(service: &S) {
    let holder = service.hold("job");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let first = service.queue_up("job", &["-q"]);
        let second = service.queue_up("job", &["-q"]);
        first.running.signal(signal);
        let outcome = first.running.wait();
        outcome.signal(signal).stdout_is("").quiet();
        // It is free at once, but the kernel may need a moment to move the other waiter up.
        assert!(service.queued("job") <= 1, "{signal} left a place in the queue");
        service.wait_queued("job", 1);
        service.assert_held("job");
        second.running.signal(signal);
        second.running.wait().signal(signal).quiet();
        assert_eq!(service.queued("job"), 0, "{signal} left a place in the queue");
    }
    holder.let_go().success();
    service.assert_free("job");
}
