use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::{Dlock, Running};
use crate::support::process::{self, State};
use crate::support::proxy::Proxy;
use crate::support::recorder::{RECORDER_CODE, Recorder, send_as_somebody_else};
use crate::support::rendezvous::{Fifo, Gate, Lifeline, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

/// The signals that dlock passes on.
const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The signals that end a wait.
const ENDS_WAITING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// A dlock whose command is a recorder.
fn recording(scratch: &Scratch, recorder: &Recorder) -> Dlock {
    scratch.dlock().run("k").backend(scratch.file_url()).command([recorder.program()])
}

/// Asserts that the lock `k` is held.
#[track_caller]
fn assert_held(scratch: &Scratch, url: &str) {
    let other = scratch.dlock().run("k").backend(url).arg("-n").command(["true"]).output();
    other.code(75).stderr_is_one_line("did not get k");
}

/// Asserts that the lock `k` is free.
#[track_caller]
fn assert_free(scratch: &Scratch, url: &str) {
    scratch.dlock().run("k").backend(url).arg("-n").command(["true"]).output().success();
}

#[test]
fn signals_to_dlock_alone_reach_the_command_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = recording(&scratch, &recorder).spawn();
    let command = recorder.ready();
    assert_eq!(dlock.command_pid(), command);
    let guard = dlock.guard_pid();
    for signal in FORWARDED {
        dlock.signal(signal);
        let heard = recorder.next();
        assert_eq!(heard.signal, signal);
        assert_eq!(heard.sender, guard, "another process sent {heard:?}");
    }
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    assert_eq!(recorder.rest(), []);
    dlock.wait().code(RECORDER_CODE).quiet();
}

#[test]
fn signals_to_the_whole_group_reach_the_command_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = recording(&scratch, &recorder).new_process_group().spawn();
    recorder.ready();
    for signal in FORWARDED {
        process::signal_group(dlock.pid(), signal);
        let heard = recorder.next();
        assert_eq!(heard.signal, signal);
        assert_eq!(heard.sender, std::process::id().cast_signed(), "another process sent {heard:?}");
    }
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    assert_eq!(recorder.rest(), []);
    dlock.wait().code(RECORDER_CODE).quiet();
}

#[test]
fn two_signals_of_one_sender_arrive_as_two() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = recording(&scratch, &recorder).spawn();
    recorder.ready();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGTERM, Signal::SIGTERM] {
        dlock.signal(signal);
        recorder.expect(signal);
    }
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    dlock.wait().code(RECORDER_CODE).quiet();
}

#[test]
fn after_a_signal_to_the_group_one_to_dlock_alone_still_arrives() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = recording(&scratch, &recorder).new_process_group().spawn();
    recorder.ready();
    process::signal_group(dlock.pid(), Signal::SIGTERM);
    recorder.expect(Signal::SIGTERM);
    process::wait_taken(dlock.pid(), Signal::SIGTERM);
    // From another sender it is another signal, however soon it comes.
    send_as_somebody_else(dlock.pid(), Signal::SIGTERM);
    recorder.expect(Signal::SIGTERM);
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    dlock.wait().code(RECORDER_CODE).quiet();
}

/// timeout(1) signals dlock and then its own group, dlock and the command in it. A SIGALRM makes its timeout expire.
#[test]
fn a_timeout_reaches_the_command_once() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let scratch = Scratch::new();
        let mut recorder = Recorder::new(&scratch);
        let timeout = ["timeout", "-s", &signal.as_str()[3..], "1000"];
        let timeout = recording(&scratch, &recorder).wrapped_by(timeout).spawn();
        recorder.ready();
        let dlock = timeout.dlock_pid();
        timeout.signal(Signal::SIGALRM);
        recorder.expect(signal);
        // It also continues its group, in case that was suspended.
        recorder.expect(Signal::SIGCONT);
        recorder.expect_nothing_more(dlock);
        recorder.end();
        assert_eq!(recorder.rest(), []);
        timeout.wait().code(124).quiet();
    }
}

#[test]
fn a_foreground_timeout_reaches_the_command_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let timeout = recording(&scratch, &recorder).wrapped_by(["timeout", "--foreground", "1000"]).spawn();
    recorder.ready();
    let dlock = timeout.dlock_pid();
    timeout.signal(Signal::SIGALRM);
    recorder.expect(Signal::SIGTERM);
    recorder.expect_nothing_more(dlock);
    recorder.end();
    assert_eq!(recorder.rest(), []);
    timeout.wait().code(124).quiet();
}

#[test]
fn a_timeout_ends_the_command_and_dlock() {
    let scratch = Scratch::new();
    let dlock = scratch.dlock().run("k").backend(scratch.file_url()).command(["sleep", "1000"]);
    dlock.wrapped_by(["timeout", "0.2"]).output().code(124).quiet();
    assert!(scratch.processes().is_empty());
    assert_free(&scratch, &scratch.file_url());
}

#[test]
fn stop_and_continue_are_never_passed_on() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = recording(&scratch, &recorder).spawn();
    recorder.ready();
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGCONT] {
        dlock.signal(signal);
        process::wait_taken(dlock.pid(), signal);
    }
    // SIGSTOP cannot be blocked: dlock alone stops, and what was sent meanwhile arrives afterwards.
    dlock.signal(Signal::SIGSTOP);
    process::wait_stopped(dlock.pid());
    dlock.signal(Signal::SIGTERM);
    dlock.signal(Signal::SIGCONT);
    recorder.expect(Signal::SIGTERM);
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    assert_eq!(recorder.rest(), []);
    dlock.wait().code(RECORDER_CODE).quiet();
}

#[test]
fn the_lock_is_kept_until_the_command_has_ended_however_often_it_is_asked_to() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    for url in [scratch.file_url(), redis.url()] {
        let dlock = scratch.dlock().run("k").backend(&url).command([recorder.program()]).spawn();
        recorder.ready();
        for signal in [Signal::SIGTERM, Signal::SIGTERM, Signal::SIGINT, Signal::SIGINT, Signal::SIGHUP] {
            dlock.signal(signal);
            recorder.expect(signal);
            assert_held(&scratch, &url);
        }
        recorder.end();
        dlock.wait().code(RECORDER_CODE).quiet();
        assert_free(&scratch, &url);
    }
}

/// A dlock on redis whose command has just ended, and whose release gets no answer.
fn releasing(redis: &Redis, proxy: &Proxy, scratch: &Scratch, end: &str) -> Running {
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let dlock = scratch.dlock().run("k").backend(url).args(["--connect-timeout", "500ms"]);
    let dlock = dlock.shell(format!("{}; {}; {end}", words.say("ready"), gate.wait())).spawn();
    words.expect("ready");
    let before = proxy.counts().requests;
    redis.stop();
    gate.open();
    eventually("a release", || (proxy.counts().requests > before).then_some(()));
    dlock
}

#[test]
fn signals_during_the_release_change_nothing() {
    let redis = Redis::start();
    for (end, number) in [("exit 7", None), ("kill -TERM $$", Some(Signal::SIGTERM))] {
        let (scratch, proxy) = (Scratch::new(), Proxy::to(redis.port()));
        let dlock = releasing(&redis, &proxy, &scratch, end);
        for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGINT] {
            dlock.signal(signal);
        }
        let outcome = dlock.wait();
        redis.cont();
        outcome.stderr_is_one_line("could not release k");
        match number {
            None => outcome.code(7),
            Some(number) => outcome.signal(number),
        };
    }
}

/// A shell stops its loop when the program it waits for is killed by SIGINT, and not when it exits with 130.
#[test]
fn a_loop_ends_with_the_command() {
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    let command = format!("{}; exec sleep 1000", words.say("run"));
    let dlock = scratch.dlock().run("k").backend(scratch.file_url()).shell(command);
    let shell = dlock.wrapped_by(["bash", "-c", "for i in 1 2 3; do \"$@\"; done; echo survived", "bash"]);
    let shell = shell.new_process_group().spawn();
    words.expect("run");
    process::signal_group(shell.pid(), Signal::SIGINT);
    shell.wait().signal(Signal::SIGINT).quiet().stdout_is("");
    assert_eq!(words.closed(), [""; 0]);
}

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
            waiter.wait_stderr("waiting for k");
        }
        assert_eq!(redis.keys().len() > before.len(), on_redis, "where is the queue? {:?}", redis.keys());
        for (signal, waiter) in waiters {
            waiter.signal(signal);
            waiter.wait().signal(signal).stdout_is("").stderr_is_one_line("waiting for k");
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

#[test]
fn with_sigchld_ignored_the_exit_code_is_still_known() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    for url in [scratch.file_url(), redis.url()] {
        let dlock = scratch.dlock().run("k").backend(&url).ignoring(Signal::SIGCHLD);
        dlock.shell("sh -c 'exit 3'; exit 9").output().code(9).quiet();
        assert_free(&scratch, &url);
    }
}

#[test]
fn with_all_signals_blocked_they_still_reach_the_command() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let mut dlock = recording(&scratch, &recorder);
    for signal in Signal::iterator() {
        dlock = dlock.blocking(signal);
    }
    let dlock = dlock.spawn();
    recorder.ready();
    for signal in FORWARDED {
        dlock.signal(signal);
        recorder.expect(signal);
    }
    recorder.end();
    dlock.wait().code(RECORDER_CODE).quiet();
    // And a command that dies of a signal takes dlock with it all the same.
    let mut dlock = scratch.dlock().run("k").backend(scratch.file_url()).shell("kill -KILL $$");
    for signal in Signal::iterator() {
        dlock = dlock.blocking(signal);
    }
    dlock.output().signal(Signal::SIGKILL).quiet();
}

/// A burst of one signal must not push out a different signal that was sent before.
#[test]
fn a_burst_loses_no_other_signal() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = recording(&scratch, &recorder).spawn();
    recorder.ready();
    // Each is taken before the next is sent, so that the kernel does not merge them, and all are sent within the time
    // for which dlock holds a signal back: hence without a pause.
    for signal in std::iter::once(Signal::SIGTERM).chain([Signal::SIGUSR1; 60]) {
        dlock.signal(signal);
        while process::is_pending(dlock.pid(), signal) {
            std::thread::yield_now();
        }
    }
    let heard = std::iter::from_fn(|| Some(recorder.next().signal)).find(|&signal| signal != Signal::SIGUSR1);
    assert_eq!(heard, Some(Signal::SIGTERM));
    recorder.end();
    dlock.wait().code(RECORDER_CODE).quiet();
}

#[test]
fn a_storm_of_signals_harms_nothing() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    for url in [scratch.file_url(), redis.url()] {
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
        let (line, end) = Lifeline::pair();
        let ignored = "HUP INT QUIT TERM USR1 USR2 WINCH ALRM PIPE IO";
        let script = format!("trap '' {ignored}; {}; {}; exit 6", words.say("ready"), gate.wait());
        let dlock = scratch.dlock().run("k").backend(&url).shell(script).lifeline(end).new_process_group().spawn();
        words.expect("ready");
        let (guard, extra) = (dlock.guard_pid(), [Signal::SIGCONT, Signal::SIGALRM, Signal::SIGCHLD, Signal::SIGIO]);
        let signals: Vec<Signal> = FORWARDED.into_iter().chain(extra).collect();
        for number in 0..200 {
            let signal = signals[number * 7 % signals.len()];
            match number % 3 {
                0 => dlock.signal(signal),
                1 => process::signal_group(dlock.pid(), signal),
                _ => process::signal(guard, signal),
            }
        }
        assert_held(&scratch, &url);
        assert_ne!(process::state(guard), State::Gone);
        gate.open();
        dlock.wait().code(6).quiet();
        line.closed_at();
        assert_free(&scratch, &url);
        std::fs::remove_file(words.path()).unwrap();
        std::fs::remove_file(gate.path()).unwrap();
    }
}
