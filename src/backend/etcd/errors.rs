/*!
What etcd or its client library said, in dlock's words: what kind of failure it is, and what to do.

Nothing here asks or changes anything, so that every sentence has a row in a table of the tests.
*/

use std::fmt::Display;

use tonic::{Code, Status};

use crate::backend::error::{Error, ErrorKind, reasons};
use crate::backend::net::tls::refused;
use crate::backend::net::wire::Address;
use crate::printable::shown;

/// What the service says of a lease that there is not.
const NO_LEASE: &str = "lease not found";
/// What it says when a lease is asked for by the id of one that there is.
const LEASE_KNOWN: &str = "lease already exists";

/// What is known of a cluster in addition to what it says.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// How it is called in messages.
    pub place: &'a dyn Display,
    /// What the keys of all locks of the namespace begin with.
    pub keys: &'a str,
    /// Whether it is spoken to by TLS.
    pub has_tls: bool,
    /// Whether a password was given.
    pub has_password: bool,
    /// What to add to advice about credentials.
    pub nested: &'a str,
}

/// Why a request has not been done.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no such lease: a sound answer, also where the caller has nothing to say to it.
    NoLease(Error),
    /// A lease of this id is there already: a sound answer too.
    LeaseKnown(Error),
    /// It failed.
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
    /// Whether another member may do better: not where the answer is about us or what is ours.
    pub(super) fn is_of_the_member(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_transient())
    }
}

/// What an error of the client library means, or one that a member answered with; `refusal` is what the server said against
/// our certificate on this connection.
pub(super) fn explain(error: &etcd_client::Error, refusal: Option<&str>, about: About<'_>) -> Fault {
    if let Some(said) = refusal {
        return Fault::Failed(refused(about.place, said));
    }
    let place = about.place;
    let (told, said) = match error {
        etcd_client::Error::GRpcStatus(status) => (of_status(status, about), status.message()),
        other => {
            let text = shown(in_full(&other.to_string(), other).as_bytes()).to_string();
            let told = Error::unavailable(format!("{place} answered with an error: {text}; {}", doubt(about)));
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
        _ if says("no leader") => "is a majority of etcd running?",
        Code::ResourceExhausted => "it is overloaded, or somebody's value is too large",
        Code::Unimplemented => "is it an etcd with API version 3?",
        _ => doubt(about),
    };
    Error::unavailable(format!("{place} answered with an error: {text}; {hint}"))
}

/// Whether it is about the credentials.
fn is_denied(status: &Status) -> bool {
    let says = |words: &str| status.message().contains(words);
    let of_users =
        says("authentication") || says("user name is empty") || says("user name not found") || says("password");
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => true,
        // With any other code these are words of something between us and etcd, which may go away.
        Code::InvalidArgument | Code::FailedPrecondition => of_users,
        _ => false,
    }
}

/// What to ask oneself when the answer is none of etcd's.
fn doubt(about: About<'_>) -> &'static str {
    if about.has_tls {
        "is etcd running there?"
    } else {
        "is etcd running there, or one with TLS, for which the scheme is etcds://?"
    }
}

/// What an error says, and its first cause: that a connection broke is called no more than a transport error.
fn in_full(text: &str, error: &dyn std::error::Error) -> String {
    let cause = std::iter::successors(error.source(), |error| error.source()).last().map(ToString::to_string);
    cause.filter(|cause| !text.contains(cause)).map_or_else(|| text.to_owned(), |cause| format!("{text}: {cause}"))
}

/// There is nothing to send a request on.
pub(super) fn no_connection(place: &dyn Display) -> Error {
    Error::unavailable(format!("there is no connection to {place}"))
}

/// An answer that no etcd gives.
pub(super) fn malformed(place: &dyn Display) -> Error {
    Error::unavailable(format!("{place} gave an answer that makes no sense; is it etcd?"))
}

/// A revision that cannot be a fencing token: made up, or of a damaged database.
pub(super) fn no_token(place: &dyn Display, revision: i64) -> Error {
    let message = format!("{place} is at revision {revision}, which cannot be a fencing token; is its data damaged?");
    Error::new(ErrorKind::Unusable, message)
}

/// An answer about a lease that was not asked for.
pub(super) fn other_lease(place: &dyn Display, lease: i64) -> Error {
    Error::unavailable(format!("{place} answered about another lease ({lease:x}) than it was asked for; is it etcd?"))
}

/// A user without a password: the library would leave the user out in silence.
pub(super) fn no_password(place: &dyn Display, nested: &str) -> Error {
    let message = format!(
        "{place} needs a password too: give both --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD{nested}"
    );
    Error::new(ErrorKind::Denied, message)
}

/// A connection to a member on which etcd's protocol could not be begun; `refusal` is what the server said against our
/// certificate, which then is called `name`.
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

/// A member that is cut off from the others.
pub(super) fn no_leader(address: &Address) -> Error {
    Error::unavailable(format!("{address} knows no leader: is a majority of etcd running?"))
}

/// A member that has no vote yet.
pub(super) fn learner(address: &Address) -> Error {
    Error::unavailable(format!("{address} is a learner, which serves no locks"))
}

/// Two members of one URL, of which each one's cluster knows nothing of the other's locks.
pub(super) fn two_clusters(one: &Address, other: &Address) -> Error {
    let message = format!("{one} and {other} belong to different clusters; name members of one cluster only");
    Error::new(ErrorKind::Unusable, message)
}

/// No member could be used.
pub(super) fn no_member(errors: &[Error]) -> Error {
    Error::new(ErrorKind::of_several(errors.iter().map(|error| error.kind), 1), reasons(errors))
}

/// The member that was asked for a sign of life is frozen or cut off.
pub(super) fn silence(member: &dyn Display) -> Error {
    Error::unavailable(format!("the etcd member {member} does not answer"))
}

/// What an attempt made for the lock `key` was taken away each time.
pub(super) fn too_short_lived(key: &dyn Display) -> Error {
    Error::unavailable(format!("the lease or key of {key} ends faster than it can be used"))
}

/// The key that keeps our place is not ours any more.
pub(super) fn taken_away(key: &str) -> Error {
    Error::unavailable(format!("the key {key} was deleted or made again by somebody else"))
}

/// A watch that never began.
pub(super) fn no_watch() -> Error {
    Error::unavailable("etcd ended a watch before it began")
}

/// A renewal of what was never acquired.
pub(super) fn nothing_to_renew() -> Error {
    Error::unavailable("there is no lock to renew")
}

/// There are too many keys of other locks below `prefix`: no look finds the entries among them.
pub(super) fn too_many_keys(prefix: &str) -> Error {
    let hint = "choose a --namespace that no other one begins with";
    Error::unavailable(format!("too many keys of other locks are below {prefix}: {hint}"))
}

#[cfg(test)]
mod tests;
