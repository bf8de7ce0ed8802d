//! Whether the programs that are hard to stop behave as described, and so do the tools that make others slow or short
//! of memory.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::dlock::Running;
use crate::support::exhausted::SmallMemory;
use crate::support::process;
use crate::support::programs::{SlowForks, sh, unruly};
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;

/// Starts a program of `unruly.c`, and returns the number that it prints after its name.
fn start(scratch: &Scratch, what: &str, says: &str) -> (Running, i32) {
    let running = scratch.dlock().shell(format!("exec {}", unruly(scratch, what))).bare().spawn();
    let number = running.wait_stdout(says).trim_start_matches(says).trim().parse().unwrap();
    (running, number)
}

#[test]
fn a_storm_goes_on_with_other_processes_all_the_time() {
    let scratch = Scratch::new();
    // In a PID namespace of its own, with which it ends. A shell needs no process to count.
    let script = format!(
        "{} & until read -r _ _ _ _ last < /proc/loadavg; [ \"$last\" -gt 1000 ]; do :; done; echo many",
        unruly(&scratch, "storm 2")
    );
    let alone = ["unshare", "-rpf", "--mount-proc", "--kill-child"];
    let storm = scratch.dlock().shell(script).bare().wrapped_by(alone).output();
    storm.success();
    assert!(storm.stdout().ends_with("many\n"), "{storm:?}");
}

#[test]
fn a_crowd_is_as_large_as_it_is_told() {
    let scratch = Scratch::new();
    let (crowd, pid) = start(&scratch, "crowd 20", "crowd");
    let children = process::children(pid);
    assert_eq!(children.len(), 20);
    for pid in children.into_iter().chain([pid]) {
        process::signal(pid, Signal::SIGTERM);
        assert!(process::is_alive(pid));
    }
    assert!(crowd.is_running());
}

#[test]
fn a_headless_process_looks_as_if_it_had_ended() {
    let scratch = Scratch::new();
    let (headless, worker) = start(&scratch, "headless", "worker");
    assert_ne!(headless.pid(), worker);
    assert_eq!(process::state(headless.pid()), process::State::Zombie);
    assert!(process::is_alive(worker));
    process::signal(headless.pid(), Signal::SIGKILL);
    eventually("the end of all of it", || (process::state(worker) == process::State::Gone).then_some(()));
}

#[test]
fn forks_are_slow_where_they_are_to_be() {
    let (scratch, slow) = (Scratch::new(), SlowForks::new());
    let fork = || scratch.dlock().command(["perl", "-e", "fork; wait"]).bare();
    let [(preload, library), (name, micros)] = slow.by(200_000);
    let before = Instant::now();
    fork().env(preload, library).env(name, micros).output().success();
    assert!(before.elapsed() >= Duration::from_millis(400));
    let before = Instant::now();
    fork().output().success();
    assert!(before.elapsed() < Duration::from_millis(400));
}

#[test]
fn who_takes_too_much_memory_is_killed_alone() {
    let Some(memory) = SmallMemory::of(50) else {
        eprintln!("not tested: no control group for memory can be made here");
        return;
    };
    let scratch = Scratch::new();
    let hog = sh(&format!("exec {}", unruly(&scratch, "hog")));
    let dlock = scratch.dlock().shell(format!("{hog}; echo code=$?; sleep 1000")).bare().wrapped_by(memory.wrapper());
    let running = dlock.spawn();
    let child: i32 = running.wait_stdout("child").trim_start_matches("child").trim().parse().unwrap();
    running.wait_stdout("code=137");
    assert!(process::is_alive(child) && running.is_running());
}
