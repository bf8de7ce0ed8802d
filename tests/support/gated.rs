//! A dlock that holds its lock until a test lets it go.

use std::sync::atomic::{AtomicU64, Ordering};

use super::dlock::{Dlock, Outcome, Running};
use super::rendezvous::Gate;
use super::scratch::Scratch;

/// A dlock whose command prints `held` and then runs until it is let go.
pub struct Gated {
    gate: Gate,
    pub running: Running,
}

impl Gated {
    /// Starts `dlock`, which must not have a command yet; it may have to wait for its lock.
    #[track_caller]
    pub fn spawn(scratch: &Scratch, dlock: Dlock) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let gate = Gate::new(scratch.path(format!("gate-{}", NUMBER.fetch_add(1, Ordering::Relaxed))));
        let running = dlock.shell(format!("echo held $DLOCK_TOKEN $DLOCK_SLOT; {}", gate.wait())).spawn();
        Self { gate, running }
    }

    /// Waits until its command runs.
    #[track_caller]
    pub fn wait_held(&self) {
        self.running.wait_stdout("held");
    }

    /// Waits until its command runs; returns its token.
    #[track_caller]
    pub fn token(&self) -> u64 {
        let line = self.running.wait_stdout("held");
        let token = line.split_whitespace().nth(1).and_then(|token| token.parse().ok());
        token.unwrap_or_else(|| panic!("no token: {line:?}"))
    }

    /// Waits until its command runs; returns its slot, if it has one.
    #[track_caller]
    pub fn slot(&self) -> Option<u32> {
        let line = self.running.wait_stdout("held");
        line.split_whitespace().nth(2).map(|slot| slot.parse().unwrap_or_else(|_| panic!("no slot: {line:?}")))
    }

    /// Whether its command has run.
    pub fn has_held(&self) -> bool {
        self.running.stdout_so_far().contains("held")
    }

    /// The process id of dlock.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Lets the command end.
    pub fn open(&self) {
        self.gate.open();
    }

    /// Lets the command end, and waits for dlock to end, which must come later.
    #[track_caller]
    pub fn let_go(self) -> Outcome {
        self.gate.open();
        self.running.wait()
    }
}
