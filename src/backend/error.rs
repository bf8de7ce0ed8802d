/*!
Errors of a lock service, as dlock reports them: the kind of failure, and in words what to do. Knows no library and no
service; each backend's `errors` module maps its replies to these errors.
*/

mod reasons;

use std::fmt;

pub(crate) use crate::backend::error::reasons::together;

/// The kind of an [`Error`]; it decides the exit code and whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// There is no connection, and nothing was sent. Trying again may help.
    Unreachable,
    /// The settings are probably wrong: there is no host of this name, its certificate is not the expected one, or this
    /// process may not open another connection. Nothing was sent. At the first contact this is final; once the service
    /// has answered, trying again may help.
    Mistaken,
    /// The service has as many clients as it allows. Nothing was sent. A waiter retries even at the first contact,
    /// because waiters ahead of it free connections.
    Full,
    /// Others are changing the same data, and the service has given the request up: nothing was granted. A waiter
    /// retries even at the first contact, because the service is there.
    Contended,
    /// No answer, or one that says "later": the request may have been carried out. Trying again may help.
    Unavailable,
    /// The credentials are refused.
    Denied,
    /// The service cannot be used as it is, and would not keep locks. Trying again does not help.
    Unusable,
    /// The lock file, or the tables of a database, cannot be created.
    CannotCreate,
    /// The request cannot be met, whatever others do. Trying again does not help.
    Misused,
}

impl ErrorKind {
    /// Returns `true` if trying again may help.
    #[must_use]
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, Self::Unreachable | Self::Mistaken | Self::Full | Self::Contended | Self::Unavailable)
    }

    /// Returns `true` if nothing was sent.
    #[must_use]
    pub(crate) fn is_unsent(self) -> bool {
        matches!(self, Self::Unreachable | Self::Mistaken | Self::Full)
    }

    /// Returns the kind of the failure when several servers failed, each in one of these ways. The credentials are
    /// wrong if at least `refusals` of them say so, and nothing was sent if no server could be reached.
    #[must_use]
    pub(crate) fn of_several(kinds: impl IntoIterator<Item = Self>, refusals: usize) -> Self {
        let kinds: Vec<Self> = kinds.into_iter().collect();
        let denied = kinds.iter().filter(|kind| **kind == Self::Denied).count();
        match () {
            () if denied >= refusals => Self::Denied,
            () if !kinds.is_empty() && kinds.iter().all(|kind| *kind == Self::Mistaken) => Self::Mistaken,
            () if kinds.contains(&Self::Full) && kinds.iter().all(|kind| kind.is_unsent()) => Self::Full,
            () if kinds.iter().all(|kind| kind.is_unsent()) => Self::Unreachable,
            () => Self::Unavailable,
        }
    }

    /// Returns the kind of the failure when several voting servers failed, each in one of these ways, and this many
    /// `failures` leave no majority. A permanent failure wins if at least that many servers report it.
    #[must_use]
    pub(crate) fn of_voters(kinds: impl IntoIterator<Item = Self>, failures: usize) -> Self {
        let kinds: Vec<Self> = kinds.into_iter().collect();
        let unusable = kinds.iter().filter(|kind| **kind == Self::Unusable).count();
        if unusable >= failures { Self::Unusable } else { Self::of_several(kinds, failures) }
    }
}

/// A request that failed. For an acquire or a renewal this means "unknown", never "no".
#[derive(Debug)]
pub(crate) struct Error {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The reason and what to do, without secrets.
    pub cause: anyhow::Error,
}

impl Error {
    /// Returns an error of this kind, with this message.
    pub(crate) fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, cause: anyhow::anyhow!("{message}") }
    }

    /// Returns `true` if trying again may help, according to the kind.
    pub(crate) fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Returns an error of [`ErrorKind::Misused`], which says what is wrong with the request.
    pub(crate) fn misused(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Misused, what)
    }

    /// Returns the error of a request that may or may not have been carried out.
    pub(crate) fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.cause)
    }
}

/// Returns the warning that a command's success in its period could not be recorded, for this `reason`.
#[must_use]
pub(crate) fn unrecorded(reason: &impl fmt::Display) -> String {
    format!(
        "could not record that the command has succeeded in this period (--once-per), so another run may repeat it: {reason}"
    )
}

/// Returns the reasons of several servers in one line.
#[must_use]
pub(crate) fn reasons(errors: &[Error]) -> String {
    together(errors.iter().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_failures_refusals_count_first_and_silence_only_when_all_are_silent() {
        use ErrorKind::{CannotCreate, Denied, Full, Mistaken, Unavailable, Unreachable, Unusable};
        for (kinds, refusals, expected) in [
            (&[Unreachable][..], 1, Unreachable),
            (&[Unreachable, Unreachable], 1, Unreachable),
            (&[Unreachable, Unavailable], 1, Unavailable),
            // A single wrong name is a mistake only if no other server can be reached later.
            (&[Mistaken, Mistaken], 1, Mistaken),
            (&[Mistaken, Unreachable], 1, Unreachable),
            (&[Mistaken, Unavailable], 1, Unavailable),
            (&[Unavailable, Unusable, CannotCreate], 1, Unavailable),
            (&[Full, Unreachable], 1, Full),
            (&[Full, Unavailable], 1, Unavailable),
            (&[Unreachable, Denied], 1, Denied),
            (&[Denied], 1, Denied),
            // Of five voting servers, three must refuse.
            (&[Denied, Denied, Unreachable], 3, Unavailable),
            (&[Denied, Denied, Denied], 3, Denied),
            (&[Denied, Denied, Denied, Unavailable], 3, Denied),
            (&[], 1, Unreachable),
        ] {
            assert_eq!(ErrorKind::of_several(kinds.iter().copied(), refusals), expected, "{kinds:?} {refusals}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        use ErrorKind::{CannotCreate, Contended, Denied, Full, Mistaken, Unavailable, Unreachable, Unusable};
        let passes = |kind: ErrorKind| kind.is_transient() && Error::new(kind, "").is_transient();
        assert!([Unreachable, Mistaken, Full, Contended, Unavailable].into_iter().all(passes));
        let passes = |kind: ErrorKind| kind.is_transient() || Error::new(kind, "").is_transient();
        assert!(![Denied, Unusable, CannotCreate].into_iter().any(passes));
    }
}
