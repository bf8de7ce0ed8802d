/*!
The command's process as the guard knows it: its state, and the meaning of its end.

A command that ends by a signal, or soon after a request to end, did not end normally: what it started was not meant to
go on, and a terminated shell leaves its children behind. Then everything is stopped before the lock is released.
*/

use std::time::Duration;

use libc::{c_int, pid_t};

use crate::clock::Instant;
use crate::supervise::guard::line::Locks;
use crate::supervise::protocol::Spawn;
use crate::supervise::stop::{Ladder, Step};

/// Time for which the end of a command is not reported, because the listener may still have signals to report.
const WAIT_FOR_LISTENER: Duration = Duration::from_millis(40);

/// The command's process.
pub(super) struct Child {
    pub(super) pid: pid_t,
    pub(super) spawn: Spawn,
    /// The descriptors of locks and of outer guards, held until everything is gone.
    locks: Locks,
    stopped: bool,
    /// The status with which it ended, and the time at which that was seen.
    ended: Option<(c_int, Instant)>,
    /// The time at which it was last seen alive.
    alive: Instant,
    /// The time at which it was last told to end.
    told: Option<Instant>,
    /// The steps of stopping the covered runs.
    covers: Option<Ladder>,
    concluded: bool,
}

impl Child {
    pub(super) fn new(pid: pid_t, spawn: Spawn, locks: Locks) -> Self {
        let alive = Instant::now();
        Self { pid, spawn, locks, stopped: false, ended: None, alive, told: None, covers: None, concluded: false }
    }

    /// Records that its state changed to this wait status.
    pub(super) fn changed(&mut self, status: c_int) {
        self.stopped = libc::WIFSTOPPED(status);
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.ended = Some((status, Instant::now()));
        }
    }

    /// Records that it, or its process group, was sent a signal that asks it to end.
    pub(super) fn told_to_end(&mut self, now: Instant) {
        self.told = Some(now);
    }

    /// Records that it was checked at `now`. Returns its wait status once it has ended.
    pub(super) fn looked(&mut self, now: Instant) -> Option<c_int> {
        if self.ended.is_none() {
            self.alive = now;
        }
        self.ended.map(|(status, _)| status)
    }

    /// Returns `true` if its locks end with the guard.
    pub(super) fn has_locks(&self) -> bool {
        self.locks.iter().any(Option::is_some)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn was_told_to_end(&self) -> bool {
        self.told.is_some()
    }

    /// Returns `true` if a signal ended it, or it ended within `--kill-after` of a request to end. It may have ended at
    /// any moment since it was last seen alive.
    pub(super) fn ended_by_request(&self) -> bool {
        let by_signal = self.ended.is_some_and(|(status, _)| libc::WIFSIGNALED(status));
        by_signal || self.told.is_some_and(|told| self.alive <= told + self.spawn.kill_after)
    }

    /// Returns `true` if the listener has had enough time to report what it received before the end.
    pub(super) fn has_waited_for_listener(&self, now: Instant) -> bool {
        self.ended.is_some_and(|(_, ended)| now >= ended + WAIT_FOR_LISTENER)
    }

    /// Returns the next step of stopping the covered runs; the first call begins it.
    pub(super) fn stop_covers(&mut self, now: Instant) -> Step {
        let kill_after = self.spawn.kill_after;
        let ladder = self.covers.get_or_insert_with(|| {
            let mut ladder = Ladder::default();
            ladder.stop(now + kill_after);
            ladder
        });
        ladder.step(now)
    }

    /// Records that its end has been reported, and what follows has been decided.
    pub(super) fn conclude(&mut self) {
        self.concluded = true;
    }

    pub(super) fn is_concluded(&self) -> bool {
        self.concluded
    }

    /// Returns the latest time of the next check: to know whether it lives beyond the time within which a request
    /// explains its end, and for the covered runs.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        if self.concluded {
            return None;
        }
        if self.ended.is_some() {
            let covers = self.covers.map(|mut ladder| match ladder.step(now) {
                Step::Wait(next) => next.unwrap_or(now),
                _ => now + LOOK_AGAIN,
            });
            return covers.or(Some(now + LOOK_AGAIN));
        }
        self.told.map(|told| told + self.spawn.kill_after + LOOK_AGAIN).filter(|&at| at > self.alive)
    }
}

/// Pause before an ended command is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
