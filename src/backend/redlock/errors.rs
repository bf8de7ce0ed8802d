/*!
Errors of several servers together, in dlock's words: the kind of failure, and what to do about it. Errors of one server
are explained by [`crate::backend::redis`].

All functions here are pure, so that every message has a row in a table of the tests.
*/

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::backend::error::{Error, ErrorKind, together};
use crate::backend::redlock::quorum::majority;

/// The reason why a server gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The failure in words, with the server's name.
    pub reason: String,
    /// `true` if the server must not vote, which waiting does not change.
    pub unfit: bool,
}

/// The failures, by number of the server.
pub(super) type Failures = BTreeMap<usize, Failure>;

/// Returns the failure for an error of the connection to one server.
pub(super) fn failed(error: &Error) -> Failure {
    Failure { kind: error.kind, reason: error.to_string(), unfit: false }
}

/// Returns the failure if nothing was sent: the server cannot be reached, or has earlier requests to answer.
pub(super) fn unasked(server: &str) -> Failure {
    Failure { kind: ErrorKind::Unreachable, reason: format!("{server} does not answer"), unfit: false }
}

/// Returns the failure if no answer came in time.
pub(super) fn unanswered(server: &str) -> Failure {
    Failure { kind: ErrorKind::Unavailable, reason: format!("{server} does not answer"), unfit: false }
}

/// Returns the failure for a replica, which has no vote of its own.
pub(super) fn replica(server: &str) -> Failure {
    let reason = format!("{server} is a replica, whose vote is its master's: name the master");
    Failure { kind: ErrorKind::Unavailable, reason, unfit: true }
}

/// With strict fencing, returns the failure for a server that may lose its counter, for the reason `lack`.
pub(super) fn forgetful(server: &str, lack: &str) -> Failure {
    let reason = format!(
        "{server} may forget its counter when it is killed: {lack}; --strict-fencing needs appendonly yes and \
         appendfsync always on every server"
    );
    Failure { kind: ErrorKind::Unavailable, reason, unfit: true }
}

/// With strict fencing, returns the reason against a server that answered a request for its settings with `failure`.
pub(super) fn untold(failure: &Failure) -> String {
    format!("it does not say whether it keeps it ({})", failure.reason)
}

/// Returns the error for a list of servers, one of which must not vote.
pub(super) fn bad_topology(failure: &Failure) -> Error {
    Error::new(failure.kind, &failure.reason)
}

/// Returns the error for two names that lead to the same server.
pub(super) fn twins(one: &dyn Display, other: &dyn Display) -> Error {
    Error::unavailable(format!("{one} and {other} are the same server, which has one vote: name each server once"))
}

/// Returns the error if the servers without a failure are no majority of `all`.
pub(super) fn no_majority(failures: &Failures, all: usize) -> Error {
    // This many failures of one kind leave no majority.
    let refusals = all - majority(all) + 1;
    let kind = ErrorKind::of_voters(failures.values().map(|failure| failure.kind), refusals);
    let reasons = together(failures.values().map(|failure| failure.reason.clone()));
    let reasons = if reasons.is_empty() { reasons } else { format!(": {reasons}") };
    Error::new(kind, format!("no majority: {} of {all} servers cannot be used{reasons}", failures.len()))
}

/// Returns the error if a majority has forgotten a latch, but not all servers: the others would bring its names back to
/// every majority that they belong to.
pub(super) fn not_forgotten(failures: &Failures, all: usize) -> Error {
    let kind = ErrorKind::of_voters(failures.values().map(|failure| failure.kind), failures.len());
    let reasons = together(failures.values().map(|failure| failure.reason.clone()));
    Error::new(kind, format!("{} of {all} servers may still have names: {reasons}", failures.len()))
}

/// Returns the error if the tasks that look after the servers have ended; never happens.
pub(super) fn nobody_there() -> Error {
    Error::unavailable("nobody looks after the servers")
}

#[cfg(test)]
mod tests {
    use super::ErrorKind::{Denied, Unavailable, Unreachable, Unusable};
    use super::*;

    #[test]
    fn what_becomes_of_one_server() {
        let refused = Error::new(Denied, "S refused");
        for (failure, kind, reason, unfit) in [
            (failed(&refused), Denied, "S refused", false),
            (unasked("S"), Unreachable, "S does not answer", false),
            (unanswered("S"), Unavailable, "S does not answer", false),
            (replica("S"), Unavailable, "S is a replica, whose vote is its master's: name the master", true),
            (
                forgetful("S", "LACK"),
                Unavailable,
                "S may forget its counter when it is killed: LACK; --strict-fencing needs appendonly yes and appendfsync \
                 always on every server",
                true,
            ),
        ] {
            assert_eq!(failure, Failure { kind, reason: reason.to_owned(), unfit });
        }
        assert_eq!(untold(&failed(&refused)), "it does not say whether it keeps it (S refused)");
    }

    #[test]
    fn what_becomes_of_all() {
        let failures = |kinds: &[ErrorKind]| -> Failures {
            let failure = |(index, kind): (usize, &ErrorKind)| {
                (index, Failure { kind: *kind, reason: format!("S{index}"), unfit: false })
            };
            kinds.iter().enumerate().map(failure).collect()
        };
        for (error, kind, text) in [
            (bad_topology(&replica("S")), Unavailable, "S is a replica, whose vote is its master's: name the master"),
            (twins(&"S", &"T"), Unavailable, "S and T are the same server, which has one vote: name each server once"),
            (nobody_there(), Unavailable, "nobody looks after the servers"),
            (
                no_majority(&failures(&[Unreachable, Unreachable]), 3),
                Unreachable,
                "no majority: 2 of 3 servers cannot be used: S0; S1",
            ),
            (
                no_majority(&failures(&[Unreachable, Unavailable]), 3),
                Unavailable,
                "no majority: 2 of 3 servers cannot be used: S0; S1",
            ),
            // One server that refuses leaves two, which might be a majority.
            (
                no_majority(&failures(&[Denied, Unreachable]), 3),
                Unavailable,
                "no majority: 2 of 3 servers cannot be used: S0; S1",
            ),
            (
                no_majority(&failures(&[Denied, Denied]), 3),
                Denied,
                "no majority: 2 of 3 servers cannot be used: S0; S1",
            ),
            (
                no_majority(&failures(&[Denied, Denied, Unreachable]), 5),
                Unavailable,
                "no majority: 3 of 5 servers cannot be used: S0; S1; S2",
            ),
            (
                no_majority(&failures(&[Denied, Denied]), 4),
                Denied,
                "no majority: 2 of 4 servers cannot be used: S0; S1",
            ),
            (
                no_majority(&failures(&[Unusable, Unusable]), 3),
                Unusable,
                "no majority: 2 of 3 servers cannot be used: S0; S1",
            ),
            (
                no_majority(&failures(&[Unusable, Unreachable]), 3),
                Unavailable,
                "no majority: 2 of 3 servers cannot be used: S0; S1",
            ),
            (not_forgotten(&failures(&[Unreachable]), 3), Unreachable, "1 of 3 servers may still have names: S0"),
            (no_majority(&failures(&[]), 3), Unreachable, "no majority: 0 of 3 servers cannot be used"),
        ] {
            assert_eq!((error.kind, error.to_string()), (kind, text.to_owned()));
        }
    }
}
