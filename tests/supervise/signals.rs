//! Signals that reach dlock, from whatever sender and at whatever moment, and what the command and the lock have of them.

mod acquiring;
mod many;

use nix::sys::signal::Signal;

use crate::support::dlock::{Dlock, Running};
use crate::support::process;
use crate::support::proxy::Proxy;
use crate::support::recorder::{RECORDER_CODE, Recorder, send_as_somebody_else};
use crate::support::rendezvous::{Fifo, Gate, eventually};
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
    other.code(75).stderr_is_one_line("did not get 'k'");
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
        outcome.stderr_is_one_line("could not release 'k'");
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
