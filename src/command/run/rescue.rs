/*!
The guard's work if the guard cannot do it: dlock sends SIGKILL in place of a frozen guard, and stops what a killed
guard left behind.
*/

use std::time::Duration;

use libc::pid_t;

use crate::clock::Instant;
use crate::report::event::Left;
use crate::supervise::process::has_ended;
use crate::supervise::reaping::{Collected, Reaped, child, reap};
use crate::supervise::stop::{Ladder, Step};
use crate::supervise::sweep::Sweep;

/// Pause between two passes of dlock's own SIGKILL.
const KILL_AGAIN: Duration = Duration::from_millis(10);
/// Time after SIGKILL until a process counts as one that does not end.
const GIVE_UP: Duration = Duration::from_secs(2);

/// The means to find the processes below dlock.
pub(super) struct Below {
    /// Children that this process already had; they do not belong to the command.
    pub(super) spared: Vec<pid_t>,
    /// Finds all others.
    pub(super) sweep: Sweep,
}

/// Stopping the command of one hold without the guard.
pub(super) struct Rescue<'a> {
    guard: pid_t,
    below: &'a mut Below,
    /// The command's process, once it is known.
    pub(super) command: Option<pid_t>,
    /// A process that dlock may not signal.
    pub(super) unkillable: Option<pid_t>,
    /// The instant at which dlock itself began to send SIGKILL.
    killing_since: Option<Instant>,
    /// The instant at which dlock sends SIGKILL again.
    kill_again: Option<Instant>,
    /// dlock's own ladder, for what a killed guard left behind.
    orphans: Option<Ladder>,
    /// `true` if there is nothing more to do.
    over: bool,
    /// The processes that are left at the end.
    left: Option<Left>,
}

impl<'a> Rescue<'a> {
    /// Makes the rescue for the command that `guard` is about to start.
    pub(super) fn new(guard: pid_t, below: &'a mut Below) -> Self {
        Self {
            guard,
            below,
            command: None,
            unkillable: None,
            killing_since: None,
            kill_again: None,
            orphans: None,
            over: false,
            left: None,
        }
    }

    /// Stops the orphans of a killed guard, which are children of dlock now, by this ladder.
    pub(super) fn take_over(&mut self, ladder: Ladder) {
        self.orphans = Some(ladder);
    }

    /// Returns `true` if dlock itself has sent SIGKILL.
    pub(super) fn has_killed(&self) -> bool {
        self.killing_since.is_some()
    }

    /// Returns `true` if the guard's orphans are being stopped.
    pub(super) fn has_taken_over(&self) -> bool {
        self.orphans.is_some()
    }

    /// Returns `true` if there is nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Returns what is left of the command, once the rescue is over.
    pub(super) fn left(&self) -> Option<Left> {
        self.left
    }

    /// Sends SIGKILL at `kill_at`, in case the guard is frozen; returns the instant of the next call. `exited` says
    /// that the command's end is known, `holds` that the guard's descriptor is the lock.
    pub(super) fn back_up_the_guard(
        &mut self,
        now: Instant,
        kill_at: Instant,
        exited: bool,
        holds: bool,
    ) -> Option<Instant> {
        if now < kill_at {
            return Some(kill_at);
        }
        let guard = self.guard;
        self.below.sweep.kill_below(guard, &[]);
        if let Some(command) = self.command.filter(|&command| !exited && !self.below.sweep.met(command)) {
            // SAFETY: kill has no memory effects; the guard has not collected this process, so the pid is its own.
            unsafe { libc::kill(command, libc::SIGKILL) };
        }
        // Counted from dlock's own first pass: dlock may have been frozen until long after the deadline.
        if now < *self.killing_since.get_or_insert(now) + GIVE_UP {
            return Some(now + KILL_AGAIN);
        }
        let left = self.give_up(guard);
        // A guard that holds the lock of what is left must live, because its end would release it.
        if !(holds && left.is_some()) {
            // SAFETY: kill has no memory effects; it is a child that has not been collected, so the pid is its own.
            unsafe { libc::kill(guard, libc::SIGKILL) };
        }
        None
    }

    /// Stops what a killed guard left behind, as far as that is due at `now`; returns the instant of the next call.
    pub(super) fn stop_orphans(&mut self, now: Instant) -> Option<Instant> {
        let me = nix::unistd::getpid().as_raw();
        let reaped = reap(self.guard);
        if self.is_nothing_left(me, reaped) {
            self.over = true;
            return None;
        }
        let ladder = self.orphans.as_mut()?;
        let mut step = ladder.step(now);
        if matches!(step, Step::Term { .. }) {
            step = ladder.step(now);
            if step != Step::Kill {
                let (signals, kill_at) = ([libc::SIGTERM, libc::SIGCONT], ladder.kill_at());
                let tally = self.below.sweep.signal_below(me, &signals, &self.below.spared, kill_at);
                ladder.counted(tally.signalled);
                self.unkillable = self.unkillable.or(tally.refused);
            }
        }
        if step == Step::Kill && self.kill_again.is_none_or(|again| now >= again) {
            let tally = self.below.sweep.kill_below(me, &self.below.spared);
            self.kill_again = Some(self.below.sweep.again(KILL_AGAIN));
            self.unkillable = self.unkillable.or(tally.refused);
            if let Some(command) =
                self.command.filter(|&command| !self.below.sweep.met(command) && child(command).is_some())
            {
                // SAFETY: kill has no memory effects; a child that has not been collected keeps its process id.
                unsafe { libc::kill(command, libc::SIGKILL) };
            }
            if now >= *self.killing_since.get_or_insert(now) + GIVE_UP {
                self.give_up(me);
            }
        }
        Some(if reaped.collected == Collected::Some { now } else { now + KILL_AGAIN })
    }

    /// Returns `true` if no process of the command is left. The kernel proves it if dlock has no other children.
    fn is_nothing_left(&mut self, me: pid_t, reaped: Reaped) -> bool {
        if self.below.spared.is_empty() || reaped.collected != Collected::All {
            return reaped.collected == Collected::NoneLeft;
        }
        let below = self.below.sweep.children(me);
        below.complete && below.listed.iter().all(|child| self.below.spared.contains(child))
    }

    /// Ends the rescue although not everything was seen to end. While a process is left below `root`, or may be, the
    /// lock must not be released.
    fn give_up(&mut self, root: pid_t) -> Option<Left> {
        let spared = &self.below.spared;
        // A frozen guard does not collect its children, so those that have ended stay listed.
        let is_left = |child: &pid_t| !spared.contains(child) && !has_ended(*child);
        let below = self.below.sweep.children(root);
        self.left = match below.listed.iter().copied().find(is_left) {
            Some(child) => Some(self.unkillable.map_or(Left::Living(child), Left::Refused)),
            None => (!below.complete).then_some(Left::Unknown),
        };
        self.over = true;
        self.left
    }
}
