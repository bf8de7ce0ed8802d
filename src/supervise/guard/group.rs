/*!
What the caller's process group is sent, as the guard hears of it: by itself until the command has been started, and by
its ear from then on. Then the guard leaves group and session, so that nothing that hits the group (`timeout -k`, a CI
runner's cancel, SIGSTOP) hits it. It leaves the session too: as the command's parent in another group of the same session
it would keep the group from being orphaned, and Ctrl-Z would suspend what no shell can continue.
*/

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use libc::{c_int, pid_t};

use crate::clock::Instant;
use crate::supervise::command::Command;
use crate::supervise::forwards::{Forwards, Sent};
use crate::supervise::guard::ear::Ear;
use crate::supervise::process;
use crate::supervise::signals::{Meaning, Signals, asks_to_end, meaning, meaning_of};

/// How many signals are read before the guard looks at the time again.
const AT_ONCE: usize = 64;
/// How many signals that came while the command was forked can be kept.
const EARLY: usize = 16;

/// What the caller's process group is sent.
pub(super) struct Group {
    id: pid_t,
    signals: Signals,
    ear: Ear,
    /// What the guard heard while it started the command.
    early: [Option<Early>; EARLY],
    /// Whether the guard has left it.
    left: bool,
}

/// A signal that came while the command was started.
#[derive(Clone, Copy)]
struct Early {
    sent: Sent,
    /// The command existed then; otherwise it tells itself what was sent to it.
    after_fork: bool,
}

/// One look at what may have been heard.
enum Heard {
    /// There was nothing.
    Nothing,
    /// Something that means nothing here.
    Other,
    /// The group was sent this.
    Sent(Sent),
}

impl Group {
    /// The group in which this process is. Every catchable signal must be blocked.
    pub(super) fn new() -> nix::Result<Self> {
        let (signals, ear) = (Signals::listen()?, Ear::new()?);
        Ok(Self { id: nix::unistd::getpgrp().as_raw(), signals, ear, early: [None; EARLY], left: false })
    }

    /// Forgets what came so far: there was no command that it could have reached.
    pub(super) fn forget(&mut self) {
        for _ in 0..AT_ONCE {
            if self.signals.take().is_none() {
                return;
            }
        }
    }

    /// The command was forked just now, and does nothing yet: takes note of what came meanwhile.
    pub(super) fn forked(&mut self) {
        self.note(false);
    }

    /// Leaves the group and its session, and an ear behind.
    pub(super) fn leave(&mut self) {
        self.ear.open();
        // It fails for a group's first process only, which a freshly forked one is not.
        let _ = nix::unistd::setsid();
        self.note(true);
        self.left = true;
    }

    fn note(&mut self, after_fork: bool) {
        for place in self.early.iter_mut().filter(|place| place.is_none()) {
            let Some(info) = self.signals.take() else { return };
            if let Meaning::Forward(sent) = meaning(&info) {
                *place = Some(Early { sent, after_fork });
            }
        }
    }

    /// Hears what the group was sent, and returns whether the command, process `child`, was told to end by it.
    pub(super) fn hear(&mut self, command: &Command, child: Option<pid_t>, forwards: &mut Forwards) -> bool {
        let now = Instant::now();
        let mut told_to_end = false;
        let mut saw = |sent: Sent| {
            forwards.saw(sent, now);
            told_to_end |= asks_to_end(sent.signal);
        };
        for place in &mut self.early {
            let Some(early) = *place else { continue };
            let reached = if early.after_fork { Some(true) } else { command.was_pending(early.sent.signal) };
            if let Some(reached) = reached {
                *place = None;
                if reached {
                    saw(early.sent);
                }
            }
        }
        for _ in 0..AT_ONCE {
            match self.take() {
                // A command that has left the group was not sent what the group was.
                Heard::Sent(sent) if child.is_some_and(|child| self.has(child)) => saw(sent),
                Heard::Sent(_) | Heard::Other => {}
                Heard::Nothing => break,
            }
        }
        told_to_end
    }

    fn take(&self) -> Heard {
        let meaning = match (self.signals.take(), self.left) {
            // What reaches the guard outside the group was sent to it alone.
            (Some(_), true) => return Heard::Other,
            (Some(info), false) => meaning(&info),
            (None, _) => match self.ear.hear() {
                Some(sent) => meaning_of(sent.signal, sent.sender),
                None => return Heard::Nothing,
            },
        };
        match meaning {
            Meaning::Forward(sent) => Heard::Sent(sent),
            _ => Heard::Other,
        }
    }

    /// Whether the group was sent nothing that has not been heard here yet.
    pub(super) fn is_quiet(&self) -> bool {
        self.ear.pid().is_none_or(process::waits_without_signals) && !self.ear.has_reported()
    }

    /// Whether `child` is in the group, or was until it ended.
    fn has(&self, child: pid_t) -> bool {
        // SAFETY: getpgid has no memory effects.
        let group = unsafe { libc::getpgid(child) };
        group == self.id || group == -1
    }

    /// A child of the guard changed its state, perhaps the ear.
    pub(super) fn changed(&mut self, pid: pid_t, status: c_int) {
        self.ear.changed(pid, status);
    }

    /// Nobody is left who could be passed a signal.
    pub(super) fn close(&mut self) {
        self.ear.close();
    }

    /// Whether nothing of it is left that somebody else would have to collect.
    pub(super) fn is_closed(&self) -> bool {
        self.ear.is_gone()
    }

    /// The ear's process, which is not the command's.
    pub(super) fn ear(&self) -> Option<pid_t> {
        self.ear.pid()
    }

    /// What becomes readable when there is something to hear.
    pub(super) fn readable(&self) -> [BorrowedFd<'_>; 2] {
        [self.signals.as_fd(), self.ear.as_fd()]
    }

    /// The numbers of its descriptors.
    pub(super) fn descriptors(&self) -> [RawFd; 3] {
        let [reports, tells] = self.ear.descriptors();
        [self.signals.as_raw(), reports, tells]
    }
}
