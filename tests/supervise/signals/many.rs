//! Many signals, and signals that dlock inherits ignored or blocked.

use nix::sys::signal::Signal;

use crate::support::process::{self, State};
use crate::support::recorder::{RECORDER_CODE, Recorder};
use crate::support::rendezvous::{Fifo, Gate, Lifeline};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

use super::{FORWARDED, assert_free, assert_held, recording};

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
