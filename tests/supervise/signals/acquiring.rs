//! Signals while dlock waits for the lock or acquires it.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::Running;
use crate::support::process;
use crate::support::proxy::Proxy;
use crate::support::recorder::{RECORDER_CODE, Recorder};
use crate::support::rendezvous::{Fifo, Gate, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

use super::{ENDS_WAITING, assert_free};

/// A command that holds the lock `k` until it is let go.
struct Holder {
    dlock: Running,
    gate: Gate,
}

impl Holder {
    fn start(scratch: &Scratch, url: &str) -> Self {
        let (mut words, gate) = (Fifo::new(scratch.path("held")), Gate::new(scratch.path("hold")));
        let script = format!("{}; {}", words.say("held"), gate.wait());
        let dlock = scratch.dlock().run("k").backend(url).shell(script).spawn();
        words.expect("held");
        Self { dlock, gate }
    }

    #[track_caller]
    fn release(self) {
        self.gate.open();
        self.dlock.wait().success();
    }
}

#[test]
fn while_it_waits_dlock_is_ended_by_the_signal() {
    let redis = Redis::start();
    for on_redis in [false, true] {
        let scratch = Scratch::new();
        let url = if on_redis { redis.url() } else { scratch.file_url() };
        let holder = Holder::start(&scratch, &url);
        let before = redis.keys();
        let waiter = || scratch.dlock().run("k").backend(&url).command(["echo", "ran"]).spawn();
        let waiters = ENDS_WAITING.map(|signal| (signal, waiter()));
        for (_, waiter) in &waiters {
            waiter.wait_stderr("waiting for 'k'");
        }
        assert_eq!(redis.keys().len() > before.len(), on_redis, "where is the queue? {:?}", redis.keys());
        for (signal, waiter) in waiters {
            waiter.signal(signal);
            waiter.wait().signal(signal).stdout_is("").stderr_is_one_line("waiting for 'k'");
        }
        assert_eq!(redis.keys(), before, "the queue was left behind");
        holder.release();
        assert_free(&scratch, &url);
    }
}

#[test]
fn while_it_waits_other_signals_do_nothing() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let holder = Holder::start(&scratch, &url);
    let waiter = scratch.dlock().run("k").backend(&url).arg("-q").command(["echo", "ran"]);
    let waiter = waiter.ignoring(Signal::SIGHUP).ignoring(Signal::SIGINT).blocking(Signal::SIGQUIT).spawn();
    waiter.guard_pid();
    let signals =
        [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGCHLD, Signal::SIGPIPE];
    for signal in signals.into_iter().chain([Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT]) {
        waiter.signal(signal);
        process::wait_taken(waiter.pid(), signal);
    }
    holder.release();
    waiter.wait().success().stdout_is("ran\n");
}

#[test]
fn a_wait_under_nohup_outlives_its_terminal() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let holder = Holder::start(&scratch, &url);
    let waiter = scratch.dlock().run("k").backend(&url).arg("-q").command(["echo", "ran"]);
    let waiter = waiter.wrapped_by(["nohup"]).spawn();
    waiter.guard_pid();
    process::signal(waiter.dlock_pid(), Signal::SIGHUP);
    process::wait_taken(waiter.dlock_pid(), Signal::SIGHUP);
    holder.release();
    waiter.wait().success().stdout_is("ran\n");
}

#[test]
fn a_signal_during_the_acquire_round_trip_leaves_nothing_behind() {
    let redis = Redis::start();
    let free = redis.keys();
    for signal in ENDS_WAITING {
        let (scratch, proxy) = (Scratch::new(), Proxy::to(redis.port()));
        redis.stop();
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let dlock = scratch.dlock().run("k").backend(url).args(["--connect-timeout", "500ms"]);
        let dlock = dlock.command(["echo", "ran"]).spawn();
        eventually("the request", || (proxy.counts().requests > 0).then_some(()));
        dlock.signal(signal);
        let outcome = dlock.wait();
        outcome.signal(signal).stdout_is("").quiet();
        assert!(outcome.elapsed() < Duration::from_secs(10), "{outcome:?}");
        redis.cont();
        // Everything it sent has been carried out once the server has seen the connection end.
        eventually("the end of the connection", || redis.clients().is_empty().then_some(()));
        let left: Vec<_> =
            redis.keys().into_iter().filter(|key| !free.contains(key) && !key.ends_with("fence")).collect();
        assert!(left.is_empty(), "{left:?} was left behind after {signal}");
        assert_free(&scratch, &redis.url());
    }
}

#[test]
fn what_the_guard_saw_before_the_command_was_started_counts_for_nothing() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let url = scratch.file_url();
    let holder = Holder::start(&scratch, &url);
    let waiter = scratch.dlock().run("k").backend(&url).arg("-q").command([recorder.program()]);
    let waiter = waiter.new_process_group().spawn();
    let guard = waiter.guard_pid();
    // A signal that does not end a wait.
    process::signal_group(waiter.pid(), Signal::SIGUSR1);
    process::wait_taken(waiter.pid(), Signal::SIGUSR1);
    process::wait_taken(guard, Signal::SIGUSR1);
    holder.release();
    recorder.ready();
    // The guard has seen this signal from this sender, but the command has not.
    waiter.signal(Signal::SIGUSR1);
    recorder.expect(Signal::SIGUSR1);
    recorder.end();
    waiter.wait().code(RECORDER_CODE).quiet();
}
