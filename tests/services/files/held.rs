/*!
Those who hold the lock `k` of a scratch directory, or try to: dlock in each mode, and flock(1).
*/

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use crate::support::dlock::{Dlock, Running};
use crate::support::process;
use crate::support::rendezvous::{Gate, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::need;

pub(super) fn run(scratch: &Scratch, options: &[&str]) -> Dlock {
    scratch.dlock().run("k").backend(scratch.file_url()).args(options)
}

pub(super) fn lock_file(scratch: &Scratch) -> PathBuf {
    scratch.lock_dir().join("k.lock")
}

/// A dlock whose command says its slot, if it has one, and then runs until its gate is opened.
pub(super) struct Held {
    pub(super) gate: Gate,
    pub(super) running: Running,
}

impl Held {
    /// Starts it; it may have to wait.
    pub(super) fn start(scratch: &Scratch, name: &str, dlock: Dlock) -> Self {
        let gate = Gate::new(scratch.path(format!("gate-{name}")));
        let running = dlock.shell(format!("echo \"slot $DLOCK_SLOT.\"; {}", gate.wait())).spawn();
        Self { gate, running }
    }

    /// Starts it, and waits until it holds the lock.
    pub(super) fn now(scratch: &Scratch, name: &str, options: &[&str]) -> Self {
        let held = Self::start(scratch, name, run(scratch, options));
        held.wait_slot("");
        held
    }

    /// Starts it, and waits until it is in the line.
    pub(super) fn waiting(scratch: &Scratch, name: &str, options: &[&str]) -> Self {
        let held = Self::start(scratch, name, run(scratch, options).arg("-q"));
        eventually("the waiter to be in the line", || scratch.waiting("k").contains(&held.running.pid()).then_some(()));
        held
    }

    /// Waits until it holds the lock in a slot whose number begins so.
    #[track_caller]
    pub(super) fn wait_slot(&self, slot: &str) {
        self.running.wait_stdout(&format!("slot {slot}"));
    }

    pub(super) fn holds(&self) -> bool {
        self.running.stdout_so_far().contains("slot ")
    }

    #[track_caller]
    pub(super) fn let_go(self) {
        self.gate.open();
        self.running.wait().success();
    }

    /// Kills dlock and everything below it.
    pub(super) fn kill_all(self) {
        let mut all = vec![self.running.pid()];
        all.extend(self.running.descendants());
        for &pid in &all {
            process::signal(pid, Signal::SIGKILL);
        }
        all.into_iter().for_each(process::wait_gone);
        self.running.wait().signal(Signal::SIGKILL).stderr();
    }
}

/// `flock OPTIONS locks/k.lock sh -c SCRIPT`.
pub(super) fn flock(scratch: &Scratch, options: &[&str], script: &str) -> Flock {
    let mut flock = Command::new(need("flock", "util-linux"));
    flock.args(options).arg(lock_file(scratch)).args(["sh", "-c", script]);
    Flock(flock.current_dir(scratch.root()).stdin(Stdio::null()).spawn().unwrap())
}

/// A flock(1) that is killed if the test does not see its end.
pub(super) struct Flock(Child);

impl Flock {
    pub(super) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    pub(super) fn code(mut self) -> i32 {
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a dlock with these options gets the lock without waiting.
#[track_caller]
pub(super) fn enters(scratch: &Scratch, options: &[&str]) -> bool {
    let outcome = run(scratch, options).args(["-n", "-q"]).command(["true"]).output();
    let code = outcome.status().code();
    assert!(matches!(code, Some(0 | 75)), "{options:?}: {outcome:?}");
    outcome.quiet();
    code == Some(0)
}

/// Whether a flock(1) with this option does.
#[track_caller]
pub(super) fn flock_enters(scratch: &Scratch, option: &str) -> bool {
    let code = flock(scratch, &[option, "-n", "-E", "17"], "true").code();
    assert!(matches!(code, 0 | 17), "{code}");
    code == 0
}
