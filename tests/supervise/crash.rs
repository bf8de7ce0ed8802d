/*!
No single death or freeze breaks the first promise, be it dlock's, the guard's, the command's, or that of all at once.

On redis everything that the command started is gone before the lease can expire. On file there is no lease: the command
lives on and stays locked, as with flock(1).
*/

mod command;
mod dlock;
mod guard;
mod lock_file;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::rendezvous::{Fifo, boottime, eventually};
use crate::support::scene::KEY;
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need};

/// dlock's user may not signal a process of another user. In that case the lock is never released and the lease
/// expires.
#[test]
fn what_cannot_be_killed_keeps_the_lock_until_the_lease_ends() {
    if !process::is_root() {
        eprintln!("not tested: only root can start a dlock whose command becomes another user");
        return;
    }
    let redis = Redis::start();
    let monitor = redis.monitor();
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    // As sudo does, but without set-user-id: dlock's user may become another user, and may not kill that user's
    // processes.
    let become_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let capabilities = ["--inh-caps=-all,+setuid,+setgid", "--ambient-caps=-all,+setuid,+setgid"];
    let survivor = format!("{}; exec sleep 1000", words.say("$$"));
    let script = format!("setpriv --reuid=0 sh -c '{}' & wait", survivor.replace('\'', r"'\''"));
    let options = ["-t", "2s", "--kill-after", "100ms"];
    let holder = scratch.dlock().run("job").backend(redis.url()).args(options).shell(script);
    let holder = holder.wrapped_by(become_nobody.into_iter().chain(capabilities)).reachable().spawn();
    let survivor: i32 = words.word().parse().unwrap();
    let waiter = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s", "-q"]).shell("true").spawn();
    eventually("the waiter", || (redis.clients().len() == 2).then_some(()));

    process::signal(holder.guard_pid(), Signal::SIGKILL);
    let outcome = holder.wait();
    let ended = boottime();
    outcome.code(70).stderr_ends_with_line(KILLED_GUARD);
    let told = outcome.stderr();
    let line = format!("dlock: process {survivor} could not be stopped by this user: 'job' is not released");
    assert!(told.lines().any(|said| said.starts_with(&line)), "{told}");
    assert!(process::is_alive(survivor));
    waiter.wait().success();
    let taken_over = boottime();
    let expiry = monitor.expiry(KEY, ended);
    assert!(taken_over > expiry, "the next one had the lock {:?} before the lease ended", expiry - taken_over);
    process::signal(survivor, Signal::SIGKILL);
    process::wait_gone(survivor);
}

/// What dlock says when its guard was killed.
const KILLED_GUARD: &str = "the guard process was killed, and the command was stopped";

fn lock_file(scratch: &Scratch) -> PathBuf {
    scratch.lock_dir().join("job.lock")
}

/// A dlock that does not wait for the lock `job` (`-n`).
fn dlock_n(scratch: &Scratch) -> Dlock {
    scratch.dlock().run("job").backend(scratch.file_url()).arg("-n").shell("echo ran")
}

/// Whether flock(1) gets the lock.
fn flock(scratch: &Scratch) -> bool {
    let mut flock = Command::new(need("flock", "util-linux"));
    flock.arg("-n").arg(lock_file(scratch)).arg("true").stdin(Stdio::null()).status().unwrap().success()
}

/// Asserts that neither dlock nor flock(1) gets the lock.
#[track_caller]
fn assert_locked(scratch: &Scratch) {
    dlock_n(scratch).output().code(75).stdout_is("").stderr_is_one_line("did not get 'job': ");
    assert!(!flock(scratch));
}
