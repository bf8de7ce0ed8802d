/*!
The exit codes of dlock. Only this file and the texts of the help and the man pages know the numbers, except those of
flock(1), which are in `command/flock`.
*/

use std::process::ExitCode;

use crate::report::event::Event;

/// The end of dlock: an exit code or a signal, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success, without a command to run.
    Success,
    /// The command ran to its end under the lock; its exit code.
    Command(u8),
    /// The command was ended by this signal, or dlock got the signal while it waited: dlock ends by the same signal.
    Signal(i32),
    /// The lock was not acquired: it was held, the wait ran out, or nothing was left to do in the period. The user
    /// chooses the code.
    NotAcquired(u8),
    /// The lock was lost while the command ran.
    Lost,
    /// The backend is unreachable or too slow, or this machine lacks what supervision needs.
    Unavailable,
    /// The backend refused the credentials.
    Denied,
    /// The command line or the environment is wrong.
    Usage,
    /// A config file is wrong.
    Config,
    /// The lock file, or the tables of a database, cannot be made.
    CannotCreate,
    /// Standard output could not be written.
    NotWritten,
    /// A bug, or the guard was killed.
    Internal,
    /// `--max-run` ran out.
    MaxRun,
    /// The command was found and could not be executed.
    NotExecutable,
    /// The command was not found.
    NotFound,
}

/// The default of `--conflict-exit-code`: `EX_TEMPFAIL`.
pub(crate) const CONFLICT: u8 = 75;
/// The default of flock's `--conflict-exit-code`.
pub(crate) const FLOCK_CONFLICT: u8 = 1;

impl Exit {
    /// The number for `exit(2)`; 128+n for an end by signal n, which only PID 1 uses.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Command(code) | Self::NotAcquired(code) => code,
            Self::Signal(number) => 128_u8.wrapping_add(u8::try_from(number).unwrap_or(0)),
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::CannotCreate => 73,
            Self::NotWritten => 74,
            Self::Denied => 77,
            Self::Config => 78,
            Self::Lost => 79,
            Self::MaxRun => 124,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A failure of dlock: the exit and the message.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit of dlock.
    pub exit: Exit,
    /// The message. `None` with `-q`, where the exit code says enough.
    pub event: Option<Box<Event>>,
    /// `true` if the message is only for the journal (`-q`).
    pub is_quiet: bool,
}

impl Failure {
    /// A failure with a message.
    #[must_use]
    pub(crate) fn new(exit: Exit, event: Event) -> Self {
        Self { exit, event: Some(Box::new(event)), is_quiet: false }
    }

    /// A failure without a message (`-q`).
    #[must_use]
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, event: None, is_quiet: true }
    }

    /// A failure whose message is only for the journal (`-q`).
    #[must_use]
    pub(crate) fn quiet(exit: Exit, event: Event) -> Self {
        Self { is_quiet: true, ..Self::new(exit, event) }
    }

    /// Returns the message to show, if there is one.
    #[must_use]
    pub(crate) fn message(&self) -> Option<&Event> {
        self.event.as_deref().filter(|_| !self.is_quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_contract() {
        for (exit, code) in [
            (Exit::Success, 0),
            (Exit::Command(255), 255),
            (Exit::NotAcquired(CONFLICT), 75),
            (Exit::Lost, 79),
            (Exit::Unavailable, 69),
            (Exit::NotWritten, 74),
            (Exit::Denied, 77),
            (Exit::Usage, 64),
            (Exit::CannotCreate, 73),
            (Exit::Config, 78),
            (Exit::Internal, 70),
            (Exit::MaxRun, 124),
            (Exit::NotExecutable, 126),
            (Exit::NotFound, 127),
            (Exit::Signal(15), 143),
        ] {
            assert_eq!(exit.code(), code);
        }
    }
}
