/*!
The guard's work when something is due: passing signals on to the command, and stopping everything below the guard.
*/

use std::time::Duration;

use libc::{c_int, pid_t};

use crate::clock::Instant;
use crate::supervise::guard::child::Child;
use crate::supervise::guard::watch::{LOOK_AGAIN, Watch};
use crate::supervise::protocol::Notice;
use crate::supervise::signals::asks_to_end;
use crate::supervise::stop::Step;

/// Pause between two passes of SIGKILL.
const KILL_AGAIN: Duration = Duration::from_millis(2);
/// Pause between them once the guard has met a process that it may not kill.
const KILL_REFUSED_AGAIN: Duration = Duration::from_millis(200);
/// The longest time that the listener may take to report a signal to the group.
const EAR_IS_LATE: Duration = Duration::from_secs(1);

impl Watch {
    /// Does what is due at `now`; returns the time of the next look.
    pub(super) fn act(&mut self, now: Instant) -> Option<Instant> {
        let signals = self.pass_signals_on(now);
        self.child.as_ref()?;
        let (look, late) = self.look_at_quota(now);
        let now = if late { Instant::now() } else { now };
        let own = self.child.as_ref().and_then(|child| child.next_look(now));
        let mut step = self.ladder.step(now);
        if let Step::Term { by_deadline } = step {
            if by_deadline {
                self.line.tell(Notice::Deadline);
            }
            step = self.ladder.step(now);
            // If SIGKILL is due at the same time (`--on-lost kill`, a late thaw), SIGTERM would only be a race.
            if step != Step::Kill {
                self.terminate_all();
                step = self.ladder.step(now);
            }
        }
        if step == Step::Kill && self.kill_again.is_none_or(|again| now >= again) {
            if self.kill_again.is_none() && self.leaving.is_none() {
                self.line.tell(Notice::Killing);
            }
            self.kill_all();
            // A process that may not be killed can live for long.
            let pause = if self.unkillable.is_some() { KILL_REFUSED_AGAIN } else { KILL_AGAIN };
            self.kill_again = Some(self.sweep.again(pause));
        }
        let next = match step {
            Step::Wait(next) => next,
            _ => self.kill_again,
        };
        [next, own, signals, look].into_iter().flatten().min()
    }

    /// Passes on the signals that are due; returns the time of the next look.
    fn pass_signals_on(&mut self, now: Instant) -> Option<Instant> {
        let due = self.forwards.next()?;
        // On a busy machine the listener can be late to report signals to the group.
        if now >= due && now < due + EAR_IS_LATE && !self.group.is_quiet() {
            return Some(now + LOOK_AGAIN);
        }
        while let Some(signal) = self.forwards.due(now) {
            if let Some(child) = self.child.as_mut().filter(|child| !child.has_ended()) {
                // SAFETY: the command is our child and not reaped, so the pid is its own.
                unsafe { libc::kill(child.pid, signal) };
                if asks_to_end(signal) {
                    child.told_to_end(now);
                }
            }
        }
        self.forwards.next()
    }

    fn terminate_all(&mut self) {
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        let spared = [self.group.listener().unwrap_or(0)];
        // A suspended process takes SIGTERM only when it is continued.
        let tally = self.sweep.signal_below(me, &[libc::SIGTERM, libc::SIGCONT], &spared, self.ladder.kill_at());
        self.signal_child(&[libc::SIGTERM, libc::SIGCONT]);
        self.ladder.counted(tally.signalled);
        self.refused(tally.refused);
    }

    fn kill_all(&mut self) {
        self.group.close();
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        let tally = self.sweep.kill_below(me, &[]);
        self.signal_child(&[libc::SIGKILL]);
        self.refused(tally.refused);
    }

    /// Signals the command's own process, whose id is known, if the last pass could not list it.
    fn signal_child(&self, signals: &[c_int]) {
        let missed = |child: &&Child| !child.has_ended() && !self.sweep.met(child.pid);
        if let Some(child) = self.child.as_ref().filter(missed) {
            for &signal in signals {
                // SAFETY: the command is our child and not reaped, so the pid is its own.
                unsafe { libc::kill(child.pid, signal) };
            }
        }
    }

    fn refused(&mut self, refused: Option<pid_t>) {
        if let Some(pid) = refused
            && self.unkillable.replace(pid).is_none()
        {
            self.line.tell(Notice::Unkillable(pid));
        }
    }
}
