/*!
Signals to the whole process group: the command has each of them once, wherever it is by then and whatever dlock and its
guard are doing. And signals and freezes that hit the guard itself.
*/

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::{Dlock, Running};
use crate::support::process;
use crate::support::programs::SlowForks;
use crate::support::recorder::{RECORDER_CODE, Recorder};
use crate::support::rendezvous::{Fifo, Gate, boottime, eventually, eventually_within, last_until};
use crate::support::scratch::Scratch;

/// What ends a process that dlock passes on to its command.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

fn run(scratch: &Scratch) -> Dlock {
    scratch.dlock().run("k").backend(scratch.file_url())
}

#[test]
fn a_command_that_left_the_group_has_its_signals_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = run(&scratch).command(["setsid"]).args([recorder.program()]).new_process_group().spawn();
    let command = recorder.ready();
    assert_eq!(process::session(command), Some(command));
    for signal in ENDING.into_iter().chain([Signal::SIGUSR1]) {
        process::signal_group(dlock.pid(), signal);
        recorder.expect(signal);
    }
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    assert_eq!(recorder.rest(), []);
    dlock.wait().code(RECORDER_CODE).quiet();
}

/// The command is told by the group's signal, or it never starts: dlock ends by the signal either way.
#[test]
fn a_signal_to_the_group_is_never_lost_while_the_command_is_started() {
    let scratch = Scratch::new();
    let command = || run(&scratch).arg("-q").command(["sleep", "1000"]).new_process_group();
    for _ in 0..200 {
        told_after(command(), Duration::from_micros(fastrand::u64(..25_000)));
    }
}

/// With some milliseconds between the steps of the start.
#[test]
fn a_signal_to_the_group_is_never_lost_while_the_command_is_started_slowly() {
    let (scratch, slow) = (Scratch::new(), SlowForks::new());
    for round in 0..50 {
        let mut dlock = run(&scratch).arg("-q").command(["sleep", "1000"]).new_process_group();
        for (name, value) in slow.by(10_000) {
            dlock = dlock.env(name, value);
        }
        told_after(dlock, Duration::from_millis(2 * round));
    }
}

#[track_caller]
fn told_after(dlock: Dlock, delay: Duration) {
    let dlock = dlock.spawn();
    last_until(boottime() + delay);
    process::signal_group(dlock.pid(), Signal::SIGTERM);
    let ended = eventually_within(Duration::from_secs(5), || (!dlock.is_running()).then_some(()));
    assert!(ended.is_some(), "SIGTERM to the group {delay:?} after the start was lost:\n{dlock:?}");
    dlock.wait().signal(Signal::SIGTERM).quiet();
}

/// dlock hears of it when the command has had it for long.
#[test]
fn a_dlock_that_was_frozen_does_not_repeat_the_groups_signal() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = run(&scratch).command([recorder.program()]).new_process_group().spawn();
    recorder.ready();
    process::signal(dlock.pid(), Signal::SIGSTOP);
    process::wait_stopped(dlock.pid());
    process::signal_group(dlock.pid(), Signal::SIGTERM);
    let heard = recorder.next();
    assert_eq!((heard.signal, heard.sender), (Signal::SIGTERM, std::process::id().cast_signed()));
    last_until(boottime() + Duration::from_secs(3));
    process::signal(dlock.pid(), Signal::SIGCONT);
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    assert_eq!(recorder.rest(), []);
    dlock.wait().code(RECORDER_CODE).quiet();
}

/// What the guard has to tell meanwhile is more than fits on the line between them.
#[test]
fn a_dlock_that_was_frozen_hears_all_that_happened() {
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.path("gate"));
    let dlock = run(&scratch).shell(format!("echo ready; {}; exit 5", gate.wait())).new_process_group().spawn();
    dlock.wait_stdout("ready");
    let (guard, command) = (dlock.guard_pid(), dlock.command_pid());
    process::signal(dlock.pid(), Signal::SIGSTOP);
    process::wait_stopped(dlock.pid());
    let idle = |pid| while process::state(pid) == process::State::Running {};
    for _ in 0..1000 {
        process::signal(command, Signal::SIGSTOP);
        while process::state(command) != process::State::Stopped {}
        idle(guard);
        process::signal(command, Signal::SIGCONT);
        while process::state(command) == process::State::Stopped {}
        idle(guard);
    }
    gate.open();
    process::wait_gone(command);
    process::signal(dlock.pid(), Signal::SIGCONT);
    dlock.wait().code(5).quiet();
}

/// The signals of a program's own faults end it when the kernel sends them, but not when another process does.
#[test]
fn no_signal_that_can_be_caught_ends_the_guard() {
    let (scratch, redis) = (Scratch::new(), crate::support::servers::Redis::start());
    for url in [scratch.file_url(), redis.url()] {
        let scratch = Scratch::new();
        let gate = Gate::new(scratch.path("gate"));
        let script = format!("echo ready; {}; exit 5", gate.wait());
        let dlock = scratch.dlock().run("k").backend(&url).shell(script).spawn();
        dlock.wait_stdout("ready");
        let guard = dlock.guard_pid();
        let caught = |signal: &Signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP);
        for signal in Signal::iterator().filter(caught) {
            for pid in [Some(guard), dlock.listener_pid()].into_iter().flatten() {
                process::signal(pid, signal);
                assert!(process::is_alive(pid), "{signal} ended {:?}", process::comm(pid));
            }
        }
        // What it blocks waits; what it does not has ended it by then.
        last_until(boottime() + Duration::from_millis(50));
        assert!(process::is_alive(guard));
        gate.open();
        dlock.wait().code(5).quiet();
    }
}

/// A guard that is frozen for good, as in a debugger, which does not reap it either.
#[test]
fn a_frozen_guard_does_not_keep_a_dlock_that_gives_up() {
    let scratch = Scratch::new();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let holder = run(&scratch).shell(format!("{}; {}", words.say("held"), gate.wait())).spawn();
    words.expect("held");
    let waiter = run(&scratch).args(["-q", "-w", "3"]).command(["echo", "ran"]).spawn();
    eventually("it to wait", || scratch.waiting("k").contains(&waiter.pid()).then_some(()));
    let _frozen = Frozen::new(waiter.guard_pid());
    ends_within(&waiter, Duration::from_secs(8));
    waiter.wait().code(75).stdout_is("").quiet();
    gate.open();
    holder.wait().success();
}

#[test]
fn a_guard_that_never_starts_keeps_a_dlock_no_longer_than_it_may_wait() {
    let (scratch, stuck) = (Scratch::new(), SlowForks::new());
    let mut dlock = run(&scratch).args(["-w", "3"]).command(["echo", "ran"]);
    for (name, value) in stuck.stuck() {
        dlock = dlock.env(name, value);
    }
    let dlock = dlock.spawn();
    ends_within(&dlock, Duration::from_secs(8));
    let outcome = dlock.wait();
    outcome.stdout_is("").stderr_is_one_line("");
    assert!(matches!(outcome.status().code(), Some(69 | 75)), "{outcome:?}");
    run(&scratch).arg("-n").command(["true"]).output().success();
    eventually("the last process to go", || scratch.processes().is_empty().then_some(()));
}

#[track_caller]
fn ends_within(dlock: &Running, patience: Duration) {
    let ended = eventually_within(patience, || (!dlock.is_running()).then_some(()));
    assert!(ended.is_some(), "it has not ended within {patience:?}:\n{dlock:?}");
}

/// A process that is frozen by a tracer, which does not even handle its end. It is killed when this is dropped.
struct Frozen {
    pid: i32,
    over: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Frozen {
    #[track_caller]
    fn new(pid: i32) -> Self {
        let (over, wait) = channel();
        let tracer = thread::spawn(move || {
            for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
                // SAFETY: these requests do not access our memory.
                let done = unsafe { libc::ptrace(request, pid, 0, 0) };
                assert_eq!(done, 0, "ptrace {request}: {}", std::io::Error::last_os_error());
            }
            // With this thread ends the tracing.
            let _ = wait.recv();
        });
        process::wait_stopped(pid);
        Self { pid, over: Some(over), tracer: Some(tracer) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if process::state(self.pid) == process::State::Stopped {
            process::signal(self.pid, Signal::SIGKILL);
        }
        drop(self.over.take());
        let _ = self.tracer.take().map(JoinHandle::join);
    }
}
