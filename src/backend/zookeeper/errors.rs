/*!
Errors of ZooKeeper servers and of the client library, in dlock's words: the kind of failure, and what to do.

All functions here are pure, so that every message has a row in the table below.
*/

use std::fmt::Display;
use std::io;

use ::zookeeper_client::Error as ZkError;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::tls::refused;
use crate::printable::shown;

/// The context of an error, for its message.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// The name of the ensemble in messages.
    pub place: &'a dyn Display,
    /// Set if a user was given.
    pub has_user: bool,
    /// The lock's directory, if there is a session.
    pub directory: Option<&'a str>,
    /// The text to append to advice about credentials.
    pub nested: &'a str,
}

/// Explains an error of the library, or one that a server answered with; `reason` says why the connection ended, if it
/// did.
pub(super) fn explain(error: &ZkError, reason: Option<String>, about: About<'_>) -> Error {
    let place = about.place;
    match error {
        ZkError::NoAuth => {
            let path = about.directory.unwrap_or("its nodes");
            no_rights(&shown(path.as_bytes()), about)
        }
        ZkError::AuthFailed | ZkError::InvalidAcl => denied("refused the credentials", about),
        ZkError::NoChildrenForEphemerals => {
            let hint = "use another --namespace or chroot";
            let what = "a node above it is ephemeral and can have no others below it";
            Error::new(ErrorKind::CannotCreate, format!("{place}: {what}: {hint}"))
        }
        ZkError::ConnectionLoss | ZkError::Timeout | ZkError::NoHosts => {
            let reason = reason.unwrap_or_else(|| "it does not answer".to_owned());
            Error::unavailable(format!("lost the connection to {place}: {reason}"))
        }
        other => {
            let text = other.to_string();
            Error::unavailable(format!("{place} answered with an error: {}", shown(text.as_bytes())))
        }
    }
}

/// Reports denied access. ZooKeeper accepts any user and password, and then looks for them in a node's access list.
fn no_rights(path: &dyn Display, about: About<'_>) -> Error {
    let (place, nested) = (about.place, about.nested);
    let what = if about.has_user {
        format!(
            "the access list there does not allow this user with this password: check --user and --password-file, or \
             have them added with the rights cdrwa (setAcl in zkCli.sh){nested}"
        )
    } else {
        format!(
            "no user was given, and the access list there is not for everybody; give one with --user and --password-file{nested}"
        )
    };
    Error::new(ErrorKind::Denied, format!("{place} refused access to {path}: {what}"))
}

fn denied(what: &str, about: About<'_>) -> Error {
    let (place, nested) = (about.place, about.nested);
    let known = if about.has_user { "check the user and password" } else { "no user was given" };
    let hint = "give them with --user and --password-file, or mend the nodes' access lists";
    Error::new(ErrorKind::Denied, format!("{place} {what}: {known} ({hint}{nested})"))
}

/// Reports incomplete credentials; `lacking` is the missing half.
pub(super) fn half_login(place: &dyn Display, lacking: &str) -> Error {
    let hint = "give both --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD";
    Error::new(ErrorKind::Denied, format!("{place} needs a {lacking} too: {hint}"))
}

/// Reports that ZooKeeper does not allow the lock's path, for this `reason`.
pub(super) fn invalid_name(place: &dyn Display, reason: &str) -> Error {
    Error::new(ErrorKind::CannotCreate, format!("{place}: {reason}"))
}

/// Reports that this host lacks what the client library needs.
pub(super) fn no_room(error: &io::Error) -> Error {
    // Worded for the administrator who sets the limits.
    let lack = match error.kind() {
        io::ErrorKind::WouldBlock => {
            "no more threads are allowed here (ulimit -u, or the limit of the control group)".to_owned()
        }
        _ => error.to_string(),
    };
    Error::new(ErrorKind::Unreachable, format!("could not start the ZooKeeper client on this host: {lack}"))
}

/// Reports that this host cannot listen for the client library.
pub(super) fn no_listener(error: &io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("could not listen on this host for the ZooKeeper client: {error}"))
}

/// Reports that a session is gone although there was one a moment ago.
pub(super) fn vanished(place: &dyn Display) -> Error {
    Error::unavailable(format!("the session with {place} ended before it began"))
}

/// Reports that the nodes of an attempt were removed each time.
pub(super) fn no_place(place: &dyn Display) -> Error {
    let what = "its nodes went as soon as they were made; is something removing them?";
    Error::unavailable(format!("could not queue at {place}: {what}"))
}

/// Reports that the sequence numbers in `directory` are nearly used up, so that the order of new nodes is not certain.
pub(super) fn worn_out(place: &dyn Display, directory: &str) -> Error {
    let hint = "remove that node when nobody uses it, and it is counted anew";
    let what = format!("the sequence numbers in {} are all but used up", shown(directory.as_bytes()));
    Error::new(ErrorKind::CannotCreate, format!("{place}: {what}; {hint}"))
}

/// Reports a malformed reply.
pub(super) fn malformed(place: &dyn Display) -> Error {
    Error::unavailable(format!("{place} gave an answer that makes no sense"))
}

/// Reports a transaction number that cannot be a fencing token: made up, or from a damaged database.
pub(super) fn no_token(place: &dyn Display, transaction: i64) -> Error {
    let what = format!("{place} counts its transactions as {transaction}, which cannot be a fencing token");
    Error::new(ErrorKind::Unusable, format!("{what}; is its data damaged?"))
}

/// Reports that there is no connection, for an unknown reason.
pub(super) fn no_connection(place: &dyn Display) -> Error {
    Error::new(ErrorKind::Unreachable, format!("there is no connection to {place}"))
}

/// Reports that two servers of one URL belong to different ensembles, neither of which knows the other's locks.
pub(super) fn two_clusters(one: &dyn Display, other: &dyn Display) -> Error {
    let message = format!("{one} and {other} belong to different clusters; name servers of one ensemble only");
    Error::new(ErrorKind::Unusable, message)
}

/// Reports that no server can be reached; `errors` has one error for each.
pub(super) fn no_server(mut errors: Vec<Error>, place: &dyn Display) -> Error {
    let count = errors.len();
    if count == 1
        && let Some(error) = errors.pop()
    {
        return error;
    }
    let kind = ErrorKind::of_several(errors.iter().map(|error| error.kind), 1);
    // A refusal says more than an unreachable server.
    let told = errors.iter().find(|error| error.kind == ErrorKind::Denied).or(errors.last());
    let told = told.map_or_else(|| "there is none".to_owned(), ToString::to_string);
    Error::new(kind, format!("none of the {count} servers of {place} can be used; one of them: {told}"))
}

/// Reports that the server called `name` did not answer the connect request in time.
pub(super) fn no_welcome(name: &dyn Display) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{name} does not answer; is it overloaded or stopped?"))
}

/// Reports why the server called `name` did not welcome us; `refusal` is its objection to our certificate.
pub(super) fn unwelcome(name: &dyn Display, error: &io::Error, refusal: Option<&str>) -> Error {
    if let Some(said) = refusal {
        return refused(name, said);
    }
    if error.kind() == io::ErrorKind::InvalidData {
        return ended(name, error, None);
    }
    let hint = "it may be starting, lack a quorum, have too many clients from here, or speak TLS on this port";
    Error::new(ErrorKind::Unreachable, format!("{name} hung up before it answered; {hint}"))
}

/// Reports why a connection to the server called `name` ended; `refusal` is its objection to our certificate.
pub(super) fn ended(name: &dyn Display, error: &io::Error, refusal: Option<&str>) -> Error {
    if let Some(said) = refusal {
        return refused(name, said);
    }
    let text = error.to_string();
    let what = match error.kind() {
        io::ErrorKind::InvalidData => format!("{name} does not answer as ZooKeeper does: {}", shown(text.as_bytes())),
        io::ErrorKind::UnexpectedEof => format!("{name} closed the connection"),
        _ => format!("the connection to {name} broke: {text}"),
    };
    Error::new(ErrorKind::Unreachable, what)
}

#[cfg(test)]
mod tests {
    use super::ErrorKind::{CannotCreate, Denied, Unavailable, Unreachable, Unusable};
    use super::*;

    /// A row for an error of the library: whether there is a user, the directory, the reason why the connection last
    /// ended, and the expected kind and text.
    type Row = (ZkError, bool, Option<&'static str>, Option<String>, ErrorKind, String);

    fn told(rows: impl IntoIterator<Item = Row>) {
        for (error, has_user, directory, reason, kind, text) in rows {
            let about = About { place: &"Z", has_user, directory, nested: "; NESTED" };
            let told = explain(&error, reason, about);
            assert_eq!((told.kind, told.to_string()), (kind, text), "{error:?}");
        }
    }

    #[test]
    fn what_the_library_says_of_who_may_do_what() {
        let hint = "give them with --user and --password-file, or mend the nodes' access lists; NESTED";
        told([
            (
                ZkError::NoAuth,
                true,
                Some("/ns/k"),
                None,
                Denied,
                "Z refused access to /ns/k: the access list there does not allow this user with this password: check \
                 --user and --password-file, or have them added with the rights cdrwa (setAcl in zkCli.sh); NESTED"
                    .to_owned(),
            ),
            (
                ZkError::NoAuth,
                false,
                None,
                None,
                Denied,
                "Z refused access to its nodes: no user was given, and the access list there is not for \
                 everybody; give one with --user and --password-file; NESTED"
                    .to_owned(),
            ),
            (
                ZkError::AuthFailed,
                true,
                None,
                None,
                Denied,
                format!("Z refused the credentials: check the user and password ({hint})"),
            ),
            (
                ZkError::InvalidAcl,
                false,
                None,
                None,
                Denied,
                format!("Z refused the credentials: no user was given ({hint})"),
            ),
            (
                ZkError::NoChildrenForEphemerals,
                true,
                None,
                None,
                CannotCreate,
                "Z: a node above it is ephemeral and can have no others below it: use another --namespace or chroot"
                    .to_owned(),
            ),
        ]);
    }

    #[test]
    fn what_the_library_says_of_a_connection_or_a_request() {
        let frozen = || Some("FROZEN".to_owned());
        told([
            (ZkError::ConnectionLoss, true, None, frozen(), Unavailable, "lost the connection to Z: FROZEN".to_owned()),
            (ZkError::Timeout, true, None, frozen(), Unavailable, "lost the connection to Z: FROZEN".to_owned()),
            (
                ZkError::NoHosts,
                true,
                None,
                None,
                Unavailable,
                "lost the connection to Z: it does not answer".to_owned(),
            ),
            (
                ZkError::QuotaExceeded,
                true,
                None,
                frozen(),
                Unavailable,
                format!("Z answered with an error: {}", ZkError::QuotaExceeded),
            ),
            (
                ZkError::SessionExpired,
                true,
                None,
                None,
                Unavailable,
                format!("Z answered with an error: {}", ZkError::SessionExpired),
            ),
        ]);
    }

    #[test]
    fn what_becomes_of_a_connection() {
        let error = |kind: io::ErrorKind, text: &str| io::Error::new(kind, text.to_owned());
        let odd = error(io::ErrorKind::InvalidData, "it announced 9 bytes");
        let eof = error(io::ErrorKind::UnexpectedEof, "early eof");
        let reset = error(io::ErrorKind::ConnectionReset, "reset");
        let hung_up = "S hung up before it answered; it may be starting, lack a quorum, have too many clients from here, or \
                       speak TLS on this port";
        let not_zookeeper = "S does not answer as ZooKeeper does: it announced 9 bytes";
        for (told, kind, text) in [
            (no_welcome(&"S"), Unreachable, "S does not answer; is it overloaded or stopped?"),
            (unwelcome(&"S", &eof, None), Unreachable, hung_up),
            (unwelcome(&"S", &reset, None), Unreachable, hung_up),
            (unwelcome(&"S", &odd, None), Unreachable, not_zookeeper),
            (unwelcome(&"S", &odd, Some("SAID")), Denied, "S refused the TLS connection: SAID"),
            (ended(&"S", &odd, None), Unreachable, not_zookeeper),
            (ended(&"S", &eof, None), Unreachable, "S closed the connection"),
            (ended(&"S", &reset, None), Unreachable, "the connection to S broke: reset"),
            (ended(&"S", &eof, Some("SAID")), Denied, "S refused the TLS connection: SAID"),
        ] {
            assert_eq!((told.kind, told.to_string()), (kind, text.to_owned()));
        }
    }

    #[test]
    fn what_dlock_says_by_itself() {
        let full = io::Error::other("full");
        let dead = || Error::new(Unreachable, "dead");
        let refused = || Error::new(Denied, "refused");
        let none = "none of the 2 servers of Z can be used; one of them:";
        for (told, kind, text) in [
            (half_login(&"Z", "user"), Denied, "Z needs a user too: give both --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD".to_owned()),
            (invalid_name(&"Z", "REASON"), CannotCreate, "Z: REASON".to_owned()),
            (no_room(&full), Unreachable, "could not start the ZooKeeper client on this host: full".to_owned()),
            (
                no_room(&io::ErrorKind::WouldBlock.into()),
                Unreachable,
                "could not start the ZooKeeper client on this host: no more threads are allowed here (ulimit -u, or the \
                 limit of the control group)"
                    .to_owned(),
            ),
            (no_listener(&full), Unreachable, "could not listen on this host for the ZooKeeper client: full".to_owned()),
            (vanished(&"Z"), Unavailable, "the session with Z ended before it began".to_owned()),
            (
                no_place(&"Z"),
                Unavailable,
                "could not queue at Z: its nodes went as soon as they were made; is something removing them?".to_owned(),
            ),
            (
                worn_out(&"Z", "/ns/k"),
                CannotCreate,
                "Z: the sequence numbers in /ns/k are all but used up; remove that node when nobody uses it, and it is \
                 counted anew"
                    .to_owned(),
            ),
            (malformed(&"Z"), Unavailable, "Z gave an answer that makes no sense".to_owned()),
            (
                no_token(&"Z", -7),
                Unusable,
                "Z counts its transactions as -7, which cannot be a fencing token; is its data damaged?".to_owned(),
            ),
            (no_connection(&"Z"), Unreachable, "there is no connection to Z".to_owned()),
            (
                two_clusters(&"a:1", &"b:2"),
                Unusable,
                "a:1 and b:2 belong to different clusters; name servers of one ensemble only".to_owned(),
            ),
            (no_server(vec![dead()], &"Z"), Unreachable, "dead".to_owned()),
            (no_server(vec![refused()], &"Z"), Denied, "refused".to_owned()),
            (no_server(vec![dead(), Error::new(Unreachable, "too")], &"Z"), Unreachable, format!("{none} too")),
            (no_server(vec![refused(), dead()], &"Z"), Denied, format!("{none} refused")),
        ] {
            assert_eq!((told.kind, told.to_string()), (kind, text));
        }
    }
}
