//! The clock of the machine that dlock runs on.

use std::time::Duration;

use crate::support::clock::{ClockShim, HOUR};
use crate::support::dlock::Dlock;
use crate::support::redis_services::Redlock5;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};

use super::{run, takes_over, ttl};

/// An offset in seconds from now to a date in 1969, before the epoch.
fn before_1970() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    -now.as_secs().cast_signed() - 24 * HOUR
}

fn with_clock<S: Service>(service: &S, clock: &ClockShim, options: &[&str]) -> Dlock {
    run(service).args(options).clock(clock)
}

/// Waits in the queue, with a clock of its own.
#[track_caller]
fn wait_with<S: Service>(service: &S, clock: &ClockShim, options: &[&str]) -> Gated {
    let before = service.queued("job");
    let waiter = Gated::spawn(service.scratch(), with_clock(service, clock, options));
    service.wait_queued("job", before + 1);
    waiter
}

fn moved_while_it_holds_and_waits<S: Service>() {
    let service = S::fresh();
    let clocks = [(); 3].map(|()| ClockShim::new());
    let holder = Gated::spawn(service.scratch(), with_clock(&service, &clocks[0], &[]));
    let first = holder.token();
    let waiter = wait_with(&service, &clocks[1], &[]);
    assert!(clocks[0].is_in(holder.pid()) && clocks[1].is_in(waiter.pid()));
    let impatient = with_clock(&service, &clocks[2], &["-w", "3s"]).command(["echo", "overlap"]).spawn();
    let started = boottime();
    for seconds in [HOUR, -HOUR, before_1970(), HOUR] {
        for clock in &clocks {
            clock.set(seconds);
        }
        last_until(boottime() + ttl::<S>() / 2);
    }
    assert!(holder.running.is_running() && !waiter.has_held(), "it was lost by\n{:?}", holder.running);
    service.assert_held("job");
    // How long it waits is measured by another clock.
    let outcome = impatient.wait();
    outcome.code(75).stdout_is("").quiet();
    let elapsed = boottime() - started;
    assert!(outcome.elapsed() >= Duration::from_secs(3) && elapsed < Duration::from_secs(20), "{outcome:?}");
    clocks[1].set(-HOUR);
    let released = boottime();
    holder.let_go().success();
    let second = takes_over::<S>(&waiter, released);
    assert!(second > first, "{second} after {first}");
    waiter.let_go().success();
    eventually("the end of all traces", || service.litter(&["job"]).is_empty().then_some(()));
}

/// Checks that tokens rise when every client has a different clock.
fn tokens_rise<S: Service>() {
    let service = S::fresh();
    let mut last = 0;
    for seconds in [0, HOUR, -HOUR, 0, before_1970(), HOUR, -HOUR] {
        let clock = ClockShim::new();
        clock.set(seconds);
        let holder = Gated::spawn(service.scratch(), with_clock(&service, &clock, &[]));
        let token = holder.token();
        assert!(token > last && token < 1 << 53, "{token} after {last}");
        last = token;
        holder.let_go().success();
    }
}

/// Checks what is said about the holder by a client whose clock differs.
fn times_are_no_nonsense<S: Service>() {
    let service = S::fresh();
    for (theirs, ours) in [(HOUR, 0), (0, HOUR), (-HOUR, HOUR), (HOUR, before_1970()), (before_1970(), 0)] {
        let [their, our] = [theirs, ours].map(|seconds| {
            let clock = ClockShim::new();
            clock.set(seconds);
            clock
        });
        let holder = Gated::spawn(service.scratch(), with_clock(&service, &their, &[]));
        holder.wait_held();
        for options in [&["-n"][..], &["-w", "0.1"]] {
            let refused = service.run("job").args(options).clock(&our).command(["echo", "overlap"]).output();
            refused.code(75).stdout_is("").stderr_ends_with_line("did not get 'job'");
            for line in refused.stderr().lines().filter(|line| line.contains("held by ")) {
                assert_sane(line);
            }
        }
        holder.let_go().success();
    }
}

/// Checks that a time is written as `…, since 2026-01-31T12:00:00Z (1h 2s)` and in no other way.
#[track_caller]
fn assert_sane(line: &str) {
    let Some((_, time)) = line.split_once(", since ") else { return };
    let (date, rest) = time.split_once(" (").unwrap_or_else(|| panic!("no age: {line}"));
    let age = rest.split_once(')').unwrap_or_else(|| panic!("no age: {line}")).0;
    let is_date = date.len() == 20 && date.ends_with('Z') && ["19", "20", "21"].contains(&&date[..2]);
    assert!(is_date, "{date:?} in {line}");
    let unit = |word: &str| word.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
    let words: Vec<String> = age.split(' ').map(unit).collect();
    let known = ["years", "year", "months", "month", "days", "day", "h", "m", "s"];
    assert!(words.iter().all(|word| known.contains(&&**word)) && !age.contains('-'), "{age:?} in {line}");
}

macro_rules! clients_of {
    ($($name:ident: $service:ty { $($test:ident)* })*) => {
        $(mod $name {
            use super::*;
            $(#[test]
            fn $test() {
                super::$test::<$service>();
            })*
        })*
    };
}

clients_of! {
    file: FileService { moved_while_it_holds_and_waits tokens_rise times_are_no_nonsense }
    redis: RedisService { moved_while_it_holds_and_waits tokens_rise times_are_no_nonsense }
    redlock: Redlock5 { tokens_rise times_are_no_nonsense }
    etcd: EtcdService { tokens_rise times_are_no_nonsense }
    zookeeper: ZooKeeperService { moved_while_it_holds_and_waits tokens_rise times_are_no_nonsense }
}
