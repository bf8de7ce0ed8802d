/*!
Errors of etcd and its client library, in dlock's words: the kind of failure, and what to do.

All functions here are pure, so that every message has a row in a table of the tests.
*/

use std::fmt::Display;

use tonic::{Code, Status};

use crate::backend::error::{Error, ErrorKind, reasons};
use crate::backend::net::tls::refused;
use crate::backend::net::wire::Address;
use crate::printable::shown;

/// The server's message for a lease that does not exist.
const NO_LEASE: &str = "lease not found";
/// The server's message when a lease is requested with the id of an existing one.
const LEASE_KNOWN: &str = "lease already exists";

/// Facts about a cluster that complete its error messages.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// The cluster's name in messages.
    pub place: &'a dyn Display,
    /// The key prefix of all locks in the namespace.
    pub keys: &'a str,
    /// It has answered before: there is no doubt about what it is.
    pub has_answered: bool,
    /// TLS is in use.
    pub has_tls: bool,
    /// A password was given.
    pub has_password: bool,
    /// A text to append to hints about credentials.
    pub nested: &'a str,
}

/// The reason why a request was not carried out.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no such lease: a valid answer, even if the caller treats it as an error.
    NoLease(Error),
    /// A lease with this id exists already: also a valid answer.
    LeaseKnown(Error),
    /// The request failed.
    Failed(Error),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoLease(error) | Fault::LeaseKnown(error) | Fault::Failed(error) => error,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Fault {
    /// Returns `true` if another member may answer better, `false` if the answer concerns this client or its lease.
    pub(super) fn is_of_the_member(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_transient())
    }
}

/// Translates an error of the client library or of a member; `refusal` is the server's reason for refusing our
/// certificate on this connection.
pub(super) fn explain(error: &etcd_client::Error, refusal: Option<&str>, about: About<'_>) -> Fault {
    if let Some(said) = refusal {
        return Fault::Failed(refused(about.place, said));
    }
    let place = about.place;
    let (told, said) = match error {
        etcd_client::Error::GRpcStatus(status) => (of_status(status, about), status.message()),
        other => {
            let text = shown(in_full(&other.to_string(), other).as_bytes()).to_string();
            let told = Error::unavailable(format!("{place} answered with an error: {text}{}", doubt(about)));
            (told, if let etcd_client::Error::LeaseKeepAliveError(said) = other { said.as_str() } else { "" })
        }
    };
    match () {
        () if said.contains(NO_LEASE) => Fault::NoLease(told),
        () if said.contains(LEASE_KNOWN) => Fault::LeaseKnown(told),
        () => Fault::Failed(told),
    }
}

fn of_status(status: &Status, about: About<'_>) -> Error {
    let place = about.place;
    let text = shown(in_full(status.message(), status).as_bytes()).to_string();
    let says = |words: &str| status.message().contains(words);
    if says("permission denied") {
        let role =
            format!("etcdctl role grant-permission ROLE --prefix=true readwrite {}", shown(about.keys.as_bytes()));
        let what = format!("this user's role may not read and write the keys below {}", shown(about.keys.as_bytes()));
        return Error::new(ErrorKind::Denied, format!("{place} denied access: {what} ({text}); allow it: {role}"));
    }
    if is_denied(status) {
        let nested = about.nested;
        let hint = format!(
            "give the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD){nested}"
        );
        let text = if says("authentication is not enabled") {
            format!("{text}; leave out the user and password")
        } else if about.has_password {
            format!("{text}; {hint}")
        } else {
            format!("no password was given ({text}); {hint}")
        };
        return Error::new(ErrorKind::Denied, format!("{place} refused the credentials: {text}"));
    }
    let hint = match status.code() {
        _ if says("space exceeded") => "its database is full: compact and defragment it, then disarm the alarm",
        Code::ResourceExhausted => "it is overloaded, or somebody's value is too large",
        Code::Unimplemented => "is it an etcd with API version 3?",
        Code::Unavailable if says("etcdserver: ") => "is a majority of etcd running?",
        _ => return Error::unavailable(format!("{place} answered with an error: {text}{}", doubt(about))),
    };
    Error::unavailable(format!("{place} answered with an error: {text}; {hint}"))
}

/// Returns `true` if the status is about the credentials.
fn is_denied(status: &Status) -> bool {
    let says = |words: &str| status.message().contains(words);
    let of_users =
        says("authentication") || says("user name is empty") || says("user name not found") || says("password");
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => true,
        // With any other code, a proxy between us and etcd may have sent these words, and the error may be transient.
        Code::InvalidArgument | Code::FailedPrecondition => of_users,
        _ => false,
    }
}

/// The hint to append to an error that etcd may not have sent.
fn doubt(about: About<'_>) -> &'static str {
    match (about.has_answered, about.has_tls) {
        (true, _) => "",
        (false, true) => "; is etcd running there?",
        (false, false) => "; is etcd running there, or one with TLS, for which the scheme is etcds://?",
    }
}

/// The text of an error and its root cause, because a broken connection on its own reads only "transport error".
fn in_full(text: &str, error: &dyn std::error::Error) -> String {
    let cause = std::iter::successors(error.source(), |error| error.source()).last().map(ToString::to_string);
    cause.filter(|cause| !text.contains(cause)).map_or_else(|| text.to_owned(), |cause| format!("{text}: {cause}"))
}

/// The error for a request without a connection.
pub(super) fn no_connection(place: &dyn Display) -> Error {
    Error::unavailable(format!("there is no connection to {place}"))
}

/// The error for a malformed reply.
pub(super) fn malformed(place: &dyn Display) -> Error {
    Error::unavailable(format!("{place} gave an answer that makes no sense; is it etcd?"))
}

/// The error for a revision that cannot be a fencing token: an invented one, or one from a damaged database.
pub(super) fn no_token(place: &dyn Display, revision: i64) -> Error {
    let message = format!("{place} is at revision {revision}, which cannot be a fencing token; is its data damaged?");
    Error::new(ErrorKind::Unusable, message)
}

/// The error for an answer about another lease than the requested one.
pub(super) fn other_lease(place: &dyn Display, lease: i64) -> Error {
    Error::unavailable(format!("{place} answered about another lease ({lease:x}) than it was asked for; is it etcd?"))
}

/// The error for a user without a password: the library would silently ignore the user.
pub(super) fn no_password(place: &dyn Display, nested: &str) -> Error {
    let message = format!(
        "{place} needs a password too: give both --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD{nested}"
    );
    Error::new(ErrorKind::Denied, message)
}

/// The error for a connection on which etcd's protocol could not be started; `refusal` is the server's reason for
/// refusing our certificate, and `name` names the server in that case.
pub(super) fn unusable(
    address: &Address,
    error: &dyn std::error::Error,
    refusal: Option<&str>,
    name: &dyn Display,
) -> Error {
    match refusal {
        Some(said) => refused(name, said),
        None => Error::unavailable(format!("could not use {address}: {}", in_full(&error.to_string(), error))),
    }
}

/// The error for a member that is cut off from the others.
pub(super) fn no_leader(address: &Address) -> Error {
    Error::unavailable(format!("{address} knows no leader: is a majority of etcd running?"))
}

/// The error for a member that has no vote yet.
pub(super) fn learner(address: &Address) -> Error {
    Error::unavailable(format!("{address} is a learner, which serves no locks"))
}

/// The error for two members of one URL that belong to different clusters, and so do not know each other's locks.
pub(super) fn two_clusters(one: &Address, other: &Address) -> Error {
    let message = format!("{one} and {other} belong to different clusters; name members of one cluster only");
    Error::new(ErrorKind::Unusable, message)
}

/// The error if no member could be used, with the reasons of all.
pub(super) fn no_member(errors: &[Error]) -> Error {
    Error::new(ErrorKind::of_several(errors.iter().map(|error| error.kind), 1), reasons(errors))
}

/// The error for a member that does not answer in time: it is frozen or cut off.
pub(super) fn silence(member: &dyn Display) -> Error {
    Error::unavailable(format!("the etcd member {member} does not answer"))
}

/// The error if the lease or key of each attempt on the lock `key` was removed before it could be used.
pub(super) fn too_short_lived(key: &dyn Display) -> Error {
    Error::unavailable(format!("the lease or key of {key} ends faster than it can be used"))
}

/// The error if the key that keeps our place is no longer ours.
pub(super) fn taken_away(key: &str) -> Error {
    Error::unavailable(format!("the key {key} was deleted or made again by somebody else"))
}

/// The error for a watch that ended before it began.
pub(super) fn no_watch() -> Error {
    Error::unavailable("etcd ended a watch before it began")
}

/// The error for the renewal of a lock that was never acquired.
pub(super) fn nothing_to_renew() -> Error {
    Error::unavailable("there is no lock to renew")
}

/// The error if there are too many keys of other locks below `prefix` for a look to find this lock's entries.
pub(super) fn too_many_keys(prefix: &str) -> Error {
    let hint = "choose a --namespace that no other one begins with";
    Error::unavailable(format!("too many keys of other locks are below {prefix}: {hint}"))
}

#[cfg(test)]
mod tests;
