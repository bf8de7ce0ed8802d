/*!
Wall clocks that jump by an hour while locks are held and waited for: a server's clock, the clocks of several servers,
dlock's own.

Leases are measured at the client, by a clock that nobody sets. The wall clock of a redis server still decides when its
keys expire: set forward, the server forgets its locks, which is a documented window. Set back, it loses nothing.
*/

mod client;
mod rates;
mod redis;
mod redlock;
mod restart;
mod zookeeper;

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::clock::{ClockShim, HOUR};
use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::{Gated, Service};

/// The lease in these tests, unless a test says otherwise. It is long enough for a busy machine, also where a server's
/// answer proves less than a whole lease.
fn ttl<S: Service>() -> Duration {
    Duration::from_secs(if S::KIND == "zookeeper" { 8 } else { 2 })
}

/// The options for that lease, and for no messages about waiting.
fn options<S: Service>() -> [&'static str; 3] {
    ["-q", "-t", if S::KIND == "zookeeper" { "8s" } else { "2s" }]
}

/// `dlock run` for the key `job`, with [`options`].
fn run<S: Service>(service: &S) -> Dlock {
    service.run("job").args(options::<S>())
}

#[track_caller]
fn hold<S: Service>(service: &S) -> Gated {
    let holder = Gated::spawn(service.scratch(), run(service));
    holder.wait_held();
    holder
}

#[track_caller]
fn queue_up<S: Service>(service: &S) -> Gated {
    service.queue_up("job", &options::<S>())
}

/// Waits for the next waiter to hold the lock, which was free at `since` or would be when its lease expired, and
/// returns its token.
#[track_caller]
fn takes_over<S: Service>(waiter: &Gated, since: Duration) -> u64 {
    let token = waiter.token();
    let delay = boottime().saturating_sub(since);
    assert!(
        delay < ttl::<S>() + S::EXPIRY_GRANULARITY + Duration::from_secs(2),
        "the next one came only after {delay:?}"
    );
    token
}

/// Checks that no holder and no waiter notices `fault`: the lock stays held, passes on when it is released, and passes
/// on from a killed holder when its lease expires at the latest. Tokens rise, and nothing is left behind.
#[track_caller]
fn is_not_noticed<S: Service>(service: &S, fault: impl FnOnce()) {
    let holder = hold(service);
    let waiters = [(); 2].map(|()| queue_up(service));
    fault();
    last_until(boottime() + ttl::<S>() * 3 / 2);
    let is_lost = waiters.iter().any(Gated::has_held) || !holder.running.is_running();
    assert!(!is_lost, "it was lost by\n{:?}", holder.running);
    service.assert_held("job");
    let mut last = holder.token();
    let released = boottime();
    holder.let_go().success();
    // In queue order, where the service keeps one.
    let first = eventually("the next one", || waiters.iter().position(Gated::has_held));
    assert!(!S::IN_ORDER || first == 0);
    let mut waiters = Vec::from(waiters);
    let next = waiters.remove(first);
    let token = takes_over::<S>(&next, released);
    assert!(token > last, "{token} after {last}");
    last = token;
    let [second] = waiters.try_into().ok().unwrap();
    service.wait_queued("job", 1);
    // On file its command lives on and stays locked, unless it is killed too.
    let mut all = process::descendants(next.pid());
    all.push(next.pid());
    all.iter().rev().for_each(|&pid| process::signal(pid, Signal::SIGKILL));
    let killed = boottime();
    drop(next);
    let token = takes_over::<S>(&second, killed);
    assert!(token > last, "{token} after {last}");
    second.let_go().success();
    run(service).shell(format!("[ $DLOCK_TOKEN -gt {token} ]")).output().success();
    eventually("the end of all traces", || service.litter(&["job"]).is_empty().then_some(()));
}

/// Sets a clock forward by an hour, waits long enough for a lease to be lost, and then sets it back by two hours.
fn ahead_and_behind<S: Service>(clock: &ClockShim) {
    clock.set(HOUR);
    last_until(boottime() + ttl::<S>());
    clock.set(-HOUR);
}
