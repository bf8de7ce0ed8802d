/*!
What dlock itself does where the guard cannot: it sends SIGKILL beside a guard that is frozen, and stops what a killed one
left behind.
*/

use std::time::Duration;

use libc::pid_t;

use crate::clock::Instant;
use crate::supervise::process::has_ended;
use crate::supervise::reaping::{Collected, Reaped, is_child, reap};
use crate::supervise::stop::{Ladder, Step};
use crate::supervise::sweep::{Sweep, again};

/// How long dlock waits between two passes of its own SIGKILL.
const KILL_AGAIN: Duration = Duration::from_millis(10);
/// How long after SIGKILL a process may take to go before it counts as one that cannot be stopped.
const GIVE_UP: Duration = Duration::from_secs(2);

/// What is left of the command although everything should be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// This process, and perhaps others.
    Process(pid_t),
    /// What it is cannot be told, because the processes cannot be listed.
    Unknown,
}

/// What dlock has for the processes below itself.
pub(super) struct Below {
    /// Children that this process already had: they are not the command's.
    pub(super) spared: Vec<pid_t>,
    /// Finds all others.
    pub(super) sweep: Sweep,
}

/// dlock's own way to stop the command of one hold.
pub(super) struct Rescue<'a> {
    guard: pid_t,
    below: &'a mut Below,
    /// The command's process, once there is one.
    pub(super) command: Option<pid_t>,
    /// A process that is known to be beyond our power.
    pub(super) unkillable: Option<pid_t>,
    /// Since when dlock itself has been sending SIGKILL.
    killing_since: Option<Instant>,
    /// When it does so again.
    kill_again: Option<Instant>,
    /// dlock's own ladder, for what a killed guard left behind.
    orphans: Option<Ladder>,
    /// There is nothing more to do.
    over: bool,
    /// What is left then.
    left: Option<Left>,
}

impl<'a> Rescue<'a> {
    /// For the command that this guard is about to start.
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

    /// The guard was killed, and its orphans are our children now: stops them on this ladder.
    pub(super) fn take_over(&mut self, ladder: Ladder) {
        self.orphans = Some(ladder);
    }

    /// Whether the guard's orphans are being stopped.
    pub(super) fn has_taken_over(&self) -> bool {
        self.orphans.is_some()
    }

    /// Whether there is nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// What is left of the command, once this is over.
    pub(super) fn left(&self) -> Option<Left> {
        self.left
    }

    /// At the time of SIGKILL the guard is at work; where it is not, because it is frozen, this is. Returns when to come
    /// again. `exited` says that the command's end is known, `holds` that what the guard has open is the lock.
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
        // Counted from our own first pass: we may have been frozen until long after the deadline.
        if now < *self.killing_since.get_or_insert(now) + GIVE_UP {
            return Some(now + KILL_AGAIN);
        }
        let left = self.give_up(guard);
        // Where it holds the lock of what is left, its end would release it. Otherwise it is of no use to anybody.
        if !(holds && left.is_some()) {
            // SAFETY: it is our child, and its end has not been taken note of.
            unsafe { libc::kill(guard, libc::SIGKILL) };
        }
        None
    }

    /// Stops what a killed guard left behind, as far as that is due at `now`. Returns when to come again.
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
                let tally = self.below.sweep.signal_below(me, &[libc::SIGTERM, libc::SIGCONT], &self.below.spared);
                ladder.counted(tally.signalled);
                self.unkillable = self.unkillable.or(tally.refused);
            }
        }
        if step == Step::Kill && self.kill_again.is_none_or(|again| now >= again) {
            let tally = self.below.sweep.kill_below(me, &self.below.spared);
            self.kill_again = Some(again(now, KILL_AGAIN));
            self.unkillable = self.unkillable.or(tally.refused);
            if let Some(command) = self.command.filter(|&command| !self.below.sweep.met(command) && is_child(command)) {
                // SAFETY: kill has no memory effects; a child that has not been collected keeps its process id.
                unsafe { libc::kill(command, libc::SIGKILL) };
            }
            if now >= *self.killing_since.get_or_insert(now) + GIVE_UP {
                self.give_up(me);
            }
        }
        Some(if reaped.collected == Collected::Some { now } else { now + KILL_AGAIN })
    }

    /// Whether nothing of the command can be left below us. The kernel proves it where we have no other children.
    fn is_nothing_left(&mut self, me: pid_t, reaped: Reaped) -> bool {
        if self.below.spared.is_empty() || reaped.collected != Collected::All {
            return reaped.collected == Collected::NoneLeft;
        }
        let below = self.below.sweep.children(me);
        below.complete && below.listed.iter().all(|child| self.below.spared.contains(child))
    }

    /// Ends the rescue although the end of everything was not seen. While something is left below `root`, or may be, the
    /// lock must not be released.
    fn give_up(&mut self, root: pid_t) -> Option<Left> {
        let spared = &self.below.spared;
        // Below a frozen guard what has ended stays listed, because nobody collects it.
        let is_left = |child: &pid_t| !spared.contains(child) && !has_ended(*child);
        let below = self.below.sweep.children(root);
        self.left = match below.listed.iter().copied().find(is_left) {
            Some(child) => Some(Left::Process(self.unkillable.unwrap_or(child))),
            None => (!below.complete).then_some(Left::Unknown),
        };
        self.over = true;
        self.left
    }
}
