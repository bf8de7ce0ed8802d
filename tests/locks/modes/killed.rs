//! Holders that are killed: what they held is free when their leases end, and the others do not notice.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{any_has_held, hold, let_go, wait};
use crate::support::backends::on_file_and_redis;
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{Gated, Service};

on_file_and_redis! {
    what_a_killed_holder_had_passes_on_and_the_others_keep_theirs
}

const TTL: Duration = Duration::from_secs(4);
/// How much later than its lease ends the next one may have what a killed holder had.
const SOON: Duration = Duration::from_secs(2);

/// Kills dlock, its guard and its command, before one of them can do anything about the others' end.
fn kill(holder: &Gated) {
    process::signal(holder.pid(), Signal::SIGSTOP);
    process::wait_stopped(holder.pid());
    // On file: the lock is kept by what has inherited it.
    let mut all = holder.running.descendants();
    all.push(holder.pid());
    for &pid in &all {
        process::signal(pid, Signal::SIGKILL);
    }
    all.into_iter().for_each(process::wait_gone);
}

fn what_a_killed_holder_had_passes_on_and_the_others_keep_theirs<S: Service>(service: &S) {
    let (two, shared) = (["--ttl", "4s", "--slots", "2"], ["--ttl", "4s", "-s"]);
    let [first, second] = [two, two].map(|options| hold(service, "slots", options));
    let [one, other] = [shared, shared].map(|options| hold(service, "readers", options));
    let mut line: Vec<Gated> = (0..3).map(|_| wait(service, "slots", two)).collect();
    let writer = wait(service, "readers", ["--ttl", "4s"]);
    let slots = [&first, &second].map(Gated::slot);
    kill(&first);
    kill(&one);
    let killed = boottime();
    let_go([other]);
    assert!(S::LEASE_OF_30S == "0" || !writer.has_held(), "a dead reader's lease keeps a writer out");
    let next = eventually("the next one", || line.iter().position(Gated::has_held));
    let passed = boottime() - killed;
    assert!(passed < TTL + SOON + S::EXPIRY_GRANULARITY, "{passed:?}");
    let next = line.remove(next);
    assert_eq!([next.slot(), second.slot()], slots, "the free one, and nobody else's");
    assert!(!any_has_held(&line) && second.running.is_running());
    writer.wait_held();
    let passed = boottime() - killed;
    assert!(passed < TTL + SOON + S::EXPIRY_GRANULARITY, "{passed:?}");
    let_go([writer, next, second]);
    let_go(line);
    for key in ["slots", "readers"] {
        service.assert_free(key);
    }
}
