/*!
The meaning of every exit code. Only this file knows the numbers.
*/

use std::process::ExitCode;

use crate::report::event::Event;

/// How dlock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success, without a command to run.
    Success,
    /// The command ran to its end under the lock; its exit code.
    Command(u8),
    /// The command was ended by this signal, or dlock got the signal while it waited: dlock ends by the same signal.
    Signal(i32),
    /// The lock was not acquired: it was held, the wait ran out, or nothing was left to do in the period. The user chooses the
    /// code.
    NotAcquired(u8),
    /// The lock was lost while the command ran.
    Lost,
    /// The backend is unreachable or too slow, or this machine lacks what supervision needs.
    Unavailable,
    /// The backend refused the credentials.
    Denied,
    /// The command line or the environment is wrong.
    Usage,
    /// The lock file cannot be made.
    CannotCreate,
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

/// The exit codes for users: code, meaning.
pub(crate) const TABLE: &[(&str, &str)] = &[
    (
        "the command's own",
        "the command ran to its end under the lock; if a signal ended it, dlock ends by the same signal",
    ),
    (
        "75",
        "the lock was not acquired: busy with --nonblock, or --wait ran out; or the run was skipped, because another one has succeeded \
         in the period of --once-per (--conflict-exit-code changes the number)",
    ),
    ("79", "the lock was lost while the command ran; the command was stopped"),
    (
        "69",
        "the backend is unreachable or too slow, also when --wait ran out, or the machine lacks what supervising a command needs",
    ),
    ("77", "the backend refused the credentials, or they lack a right"),
    (
        "64",
        "wrong usage; also if the lock is in use with another number of --slots, or if the dlock run around this one holds it in \
         a way that does not include this one's (shared, for an exclusive one)",
    ),
    ("73", "the lock file cannot be made"),
    ("70", "a bug, or the guard process was killed"),
    ("124", "--max-run ran out"),
    ("126, 127", "the command was found but cannot be executed; it was not found"),
    ("by signal", "dlock itself was told to stop by that signal while it waited (queue left, nothing held)"),
];

/// The exit codes of latches and barriers for users: code, meaning.
pub(crate) const MEETINGS: &[(&str, &str)] = &[
    ("0", "done: the name is down, enough names are down, or all parties are there"),
    ("75", "--wait ran out (--conflict-exit-code changes the number)"),
    (
        "79",
        "a latch that has failed; a barrier that is broken, because a party that waited there left or died, or where a newer \
         process has the name of this one or this one was counted as dead",
    ),
    ("69", "the backend is unreachable or too slow, also when --wait ran out"),
    ("77", "the backend refused the credentials, or they lack a right"),
    ("64", "wrong usage; a barrier that is in use with another number of parties, or a backend without barriers"),
    ("73", "the file cannot be made"),
    ("70", "a bug"),
    ("by signal", "dlock was told to stop by that signal while it waited"),
];

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
            Self::Denied => 77,
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

/// Why dlock ends without success: the exit and the message.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit.
    pub exit: Exit,
    /// The message. `None` with `-q`, where the exit code says enough.
    pub event: Option<Box<Event>>,
}

impl Failure {
    /// A failure with a message.
    #[must_use]
    pub(crate) fn new(exit: Exit, event: Event) -> Self {
        Self { exit, event: Some(Box::new(event)) }
    }

    /// A failure without a message (`-q`).
    #[must_use]
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, event: None }
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
            (Exit::Denied, 77),
            (Exit::Usage, 64),
            (Exit::CannotCreate, 73),
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
