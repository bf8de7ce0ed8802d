/*!
The outcome of a hold.
*/

use crate::backend::contract::contender::Used;
use crate::lease::timing::Schedule;
use crate::report::event::Left;
use crate::supervise::command::Ended;

/// The reason why the command did not simply run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The lock was lost.
    Lost,
    /// `--max-run` ran out.
    MaxRun,
    /// The guard was killed.
    GuardKilled,
    /// No process could be created, for this errno.
    NotSpawned(i32),
    /// The lease had almost ended before the command could be started.
    TooLate,
}

/// The result of a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// The reason why it was stopped, or never started.
    pub(super) cause: Option<Cause>,
    /// `true` if the guard was gone before it could be asked to start the command.
    pub(super) never_asked: bool,
    /// The command's own end, with the errno of an `execve` that failed.
    pub(super) exited: Option<(Ended, i32)>,
    /// Processes that are left although everything should be gone.
    pub(super) left: Option<Left>,
    /// The lease as last confirmed, if there is one.
    pub(super) schedule: Option<Schedule>,
    /// `true` if the loss of the lock was reported.
    pub(super) told_of_loss: bool,
    /// `true` if the guard has done its work and ends on its own.
    pub(super) guard_done: bool,
}

impl Held {
    /// Returns `true` if the command was executed at all.
    fn ran(&self) -> bool {
        matches!(self.exited, Some((_, 0)))
    }

    /// Returns the use that was made of the lock: none, if it is certain that no command was started; success, if the
    /// command ran to its end with code 0.
    pub(super) fn used(&self) -> Used {
        let failed = matches!(self.exited, Some((_, errno)) if errno != 0);
        let never_started = matches!(self.cause, Some(Cause::TooLate | Cause::NotSpawned(_)));
        match self.exited {
            _ if failed || never_started || self.never_asked => Used::No,
            Some((Ended::Code(0), 0)) if self.ended_well() => Used::Success,
            _ => Used::Yes,
        }
    }

    /// Returns `true` if the command ran to its end, and no loss of its lock was noticed.
    pub(super) fn ended_well(&self) -> bool {
        self.cause.is_none() && self.ran() && !self.told_of_loss
    }
}
