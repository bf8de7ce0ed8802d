/*!
The signals to the caller's process group, as the guard learns of them: directly until the command has been started, and
from its listener afterwards. Then the guard leaves the group, so that nothing that hits the group (`timeout -k`, a CI
runner's cancel, SIGSTOP) hits the guard. It leaves the session too: as the command's parent in another group of the
same session it would keep the group from being orphaned, and Ctrl-Z would suspend what no shell can continue.
*/

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use libc::{c_int, pid_t};

use crate::clock::Instant;
use crate::supervise::command::Command;
use crate::supervise::forwards::{Forwards, Sent};
use crate::supervise::guard::listener::Listener;
use crate::supervise::process;
use crate::supervise::signals::{Meaning, Signals, asks_to_end, meaning, meaning_of};

/// The number of signals to read before the guard looks at the time again.
const AT_ONCE: usize = 64;
/// The number of signals that can be kept if they arrive while the command is forked.
const EARLY: usize = 16;

/// The signals to the caller's process group.
pub(super) struct Group {
    id: pid_t,
    signals: Signals,
    listener: Listener,
    /// The signals that the guard got while it started the command.
    early: [Option<Early>; EARLY],
    /// `true` if the guard has left the group.
    left: bool,
}

/// A signal that arrived while the command was started.
#[derive(Clone, Copy)]
struct Early {
    sent: Sent,
    /// `true` if the command certainly existed then. Otherwise the command's process tells whether the signal was
    /// pending.
    after_fork: bool,
}

/// The result of one look for signals.
enum Heard {
    /// There was nothing.
    Nothing,
    /// A signal that means nothing here.
    Other,
    /// A signal to the group.
    Sent(Sent),
}

impl Group {
    /// Returns the group of the calling process. Every catchable signal must be blocked.
    pub(super) fn new() -> nix::Result<Self> {
        let (signals, listener) = (Signals::listen()?, Listener::new()?);
        Ok(Self { id: nix::unistd::getpgrp().as_raw(), signals, listener, early: [None; EARLY], left: false })
    }

    /// Forgets the signals so far: there was no command that they could have reached.
    pub(super) fn forget(&mut self) {
        for _ in 0..AT_ONCE {
            if self.signals.take().is_none() {
                return;
            }
        }
    }

    /// Records the signals that arrived while the command was forked. The command must not run yet.
    pub(super) fn forked(&mut self) {
        self.note(false);
    }

    /// Leaves the group and its session, and starts the listener in the group.
    pub(super) fn leave(&mut self) {
        self.listener.open();
        // It fails only for a group leader, which a freshly forked process is not.
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

    /// Passes the signals to the group on to `forwards`, and returns whether one of them asked the command, process
    /// `child`, to end.
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
                // A command that has left the group does not get the group's signals.
                Heard::Sent(sent) if child.is_some_and(|child| self.has(child)) => saw(sent),
                Heard::Sent(_) | Heard::Other => {}
                Heard::Nothing => break,
            }
        }
        told_to_end
    }

    fn take(&self) -> Heard {
        let meaning = match (self.signals.take(), self.left) {
            // Outside of the group, a signal to the guard was sent to it alone.
            (Some(_), true) => return Heard::Other,
            (Some(info), false) => meaning(&info),
            (None, _) => match self.listener.hear() {
                Some(sent) => meaning_of(sent.signal, sent.sender),
                None => return Heard::Nothing,
            },
        };
        match meaning {
            Meaning::Forward(sent) => Heard::Sent(sent),
            _ => Heard::Other,
        }
    }

    /// Returns `true` if every signal to the group has been reported.
    pub(super) fn is_quiet(&self) -> bool {
        self.listener.pid().is_none_or(process::waits_without_signals) && !self.listener.has_reported()
    }

    /// Returns `true` if `child` is in the group, or was until it ended.
    fn has(&self, child: pid_t) -> bool {
        // SAFETY: getpgid has no memory effects.
        let group = unsafe { libc::getpgid(child) };
        group == self.id || group == -1
    }

    /// Handles a state change of a child of the guard, which may be the listener.
    pub(super) fn changed(&mut self, pid: pid_t, status: c_int) {
        self.listener.changed(pid, status);
    }

    /// Ends the listener, once no command is left that could be passed a signal.
    pub(super) fn close(&mut self) {
        self.listener.close();
    }

    /// Returns `true` if no listener is left that another process would have to reap.
    pub(super) fn is_closed(&self) -> bool {
        self.listener.is_gone()
    }

    /// Returns the process id of the listener, which does not belong to the command.
    pub(super) fn listener(&self) -> Option<pid_t> {
        self.listener.pid()
    }

    /// Returns the descriptors that become readable when a signal arrives.
    pub(super) fn readable(&self) -> [BorrowedFd<'_>; 2] {
        [self.signals.as_fd(), self.listener.as_fd()]
    }

    /// Returns the numbers of its descriptors.
    pub(super) fn descriptors(&self) -> [RawFd; 3] {
        let [reports, tells] = self.listener.descriptors();
        [self.signals.as_raw(), reports, tells]
    }
}
