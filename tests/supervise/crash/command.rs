//! The command is killed, or everything is frozen at once.

use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually};
use crate::support::scene::KEY;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

#[test]
fn killed_it_ends_dlock_by_the_same_signal_and_the_lock_is_free() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    for backend in [redis.url(), scratch.file_url()] {
        let mut words = Fifo::new(scratch.path(if backend.starts_with('f') { "file" } else { "redis" }));
        let script = format!("{}; while :; do sleep 1000; done", words.say("$$"));
        let holder = scratch.dlock().run("job").backend(&backend).args(["-t", "10m"]).shell(script).spawn();
        process::signal(words.word().parse().unwrap(), Signal::SIGKILL);
        holder.wait().signal(Signal::SIGKILL).quiet();
        scratch.dlock().run("job").backend(&backend).arg("-n").shell("true").output().success();
    }
    assert_eq!(redis.get(KEY), None);
}

/// The whole process group and the guard are frozen, as when a machine is paused, while the world outside goes on
/// and the lease expires. Only the token protects then; the command is stopped when it thaws.
#[test]
fn frozen_with_dlock_and_the_guard_it_is_stopped_at_the_thaw_and_its_late_writes_are_refused() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let mut store = Store::new(&scratch);
    let write = store.write();
    let (lifeline, end) = Lifeline::pair();
    // The writer has its own session, so the freeze does not reach it.
    let script = format!("setsid sh -c '{}' & wait", repeatedly(&write).replace('\'', r"'\''"));
    let holder = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s"]).shell(script);
    let holder = holder.new_process_group().lifeline(end).spawn();
    let first = store.next().expect("the only writer is never refused");
    let all = [holder.dlock_pid(), holder.guard_pid(), holder.command_pid()];
    killpg(Pid::from_raw(holder.pid()), Signal::SIGSTOP).unwrap();
    process::signal(all[1], Signal::SIGSTOP);
    for pid in all {
        process::wait_stopped(pid);
    }
    let gate = Gate::new(scratch.path("gate"));
    let other = format!("{write}; {}; {write}", gate.wait());
    let other = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s", "-q"]).shell(other).spawn();
    let second = eventually("the other one's write", || store.next().ok().filter(|token| *token != first));
    assert!(second > first);
    // The first holder goes on, and this is how it ends.
    assert_eq!(eventually("a late write", || store.next().err()), first);
    assert!(lifeline.is_open());
    let before = redis.get(KEY);

    let thawed = boottime();
    killpg(Pid::from_raw(holder.pid()), Signal::SIGCONT).unwrap();
    process::signal(all[1], Signal::SIGCONT);
    let died = lifeline.closed_at();
    // SIGTERM and SIGKILL are both overdue.
    assert!(died - thawed < Duration::from_millis(500), "it lived for {:?} after the thaw", died - thawed);
    holder.wait().code(79).stderr_is_one_line("lost 'job' at redis://");
    assert_eq!(redis.get(KEY), before, "the lock is the other one's");
    gate.open();
    other.wait().success();
    let refused = std::iter::from_fn(|| store.try_next()).filter(Result::is_err).count();
    assert_eq!(store.last, second, "{refused} refused");
}

/// A store that knows nothing of locks: it accepts a write whose token is at least as large as the last one.
struct Store {
    wire: Fifo,
    last: u64,
}

impl Store {
    fn new(scratch: &Scratch) -> Self {
        Self { wire: Fifo::new(scratch.path("store")), last: 0 }
    }

    /// Shell code that writes once.
    fn write(&self) -> String {
        format!("echo \"$DLOCK_TOKEN\" > '{}'", self.wire.path().display())
    }

    /// Waits for the next write: its token, `Ok` if accepted and `Err` if refused.
    fn next(&mut self) -> Result<u64, u64> {
        let word = self.wire.word();
        self.take(&word)
    }

    /// Returns the next write if there has been one.
    fn try_next(&mut self) -> Option<Result<u64, u64>> {
        let word = self.wire.try_word()?;
        Some(self.take(&word))
    }

    fn take(&mut self, token: &str) -> Result<u64, u64> {
        let token = token.parse().expect("a token");
        if token < self.last {
            return Err(token);
        }
        self.last = token;
        Ok(token)
    }
}

fn repeatedly(write: &str) -> String {
    format!("while :; do {write}; sleep 0.02; done")
}
