/*!
Errors of redis servers and of the client library, in dlock's words: the kind of failure, and what to do about it.

All functions here are pure, so that every message has a row in a table of the tests.
*/

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use ::redis::{ErrorKind as RedisErrorKind, RedisError};

use crate::backend::error::{Error, ErrorKind, reasons};
use crate::backend::net::wire::Address;
use crate::backend::redis::rights::Rights;

/// Facts about a server that its answer does not contain.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// Its name in messages.
    pub name: &'a dyn Display,
    /// `true` if a password was given.
    pub has_password: bool,
    /// `true` if it has answered before: there is no doubt about what it is.
    pub has_answered: bool,
    /// `true` if the connection is plain text over a network: the server may then expect TLS.
    pub is_plain: bool,
    /// A suffix for advice about credentials.
    pub nested: &'a str,
    /// The user that dlock logs in as.
    pub user: &'a str,
    /// The rights that the user needs.
    pub rights: &'a Rights,
}

/// Explains an error of the client library, or one that a server answered.
pub(super) fn explain(error: &RedisError, about: About<'_>) -> Error {
    let server = about.name;
    let text = crate::printable::shown(said(error).as_bytes()).to_string();
    // The server repeats the arguments, here a whole script.
    let text = text.split_once(", with args beginning with").map_or(text.as_str(), |(text, _)| text).to_owned();
    if lacks_rights(error, &text) {
        let user = crate::printable::shown(about.user.as_bytes()).to_string();
        let advice = about.rights.advice(&user, text.contains("keys") || text.contains("a key"));
        return Error::new(
            ErrorKind::Denied,
            format!("{server}: the user {user} lacks rights: {text}; needed: {advice}"),
        );
    }
    if is_denied(error, &text) {
        let text = match (about.has_password, text.contains("unauthenticated")) {
            (true, _) => text,
            // The server complains about the size of the request, which would only confuse.
            (false, true) => "no password was given".to_owned(),
            (false, false) => format!("no password was given ({text})"),
        };
        let hint = if has_none(&text) {
            "leave out --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD"
        } else {
            "check the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD)"
        };
        let nested = if has_none(&text) { "" } else { about.nested };
        return Error::new(ErrorKind::Denied, format!("{server} refused the credentials: {text}; {hint}{nested}"));
    }
    let did = if error.is_connection_dropped() { "broke off the connection" } else { "answered with an error" };
    let hint = if about.has_answered && error.code().is_none() {
        String::new()
    } else {
        format!("; {}", hint(error, &text, about.is_plain))
    };
    Error::unavailable(format!("{server} {did}: {text}{hint}"))
}

/// Returns an error in the server's own words, or in the library's, without the library's names for kinds of errors.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some("ERR"), Some(detail)) => detail.trim_end_matches('.').to_owned(),
        (Some(code), Some(detail)) => format!("{code} {}", detail.trim_end_matches('.')),
        (Some(code), None) => code.to_owned(),
        (None, _) if is_foreign(error) => "its answer does not follow the redis protocol".to_owned(),
        (None, _) => error.to_string(),
    }
}

/// Returns `true` if the answer does not follow the redis protocol.
fn is_foreign(error: &RedisError) -> bool {
    matches!(error.kind(), RedisErrorKind::Parse | RedisErrorKind::UnexpectedReturnType)
}

/// Returns `true` if an error is about missing rights of the user; `text` is its message.
fn lacks_rights(error: &RedisError, text: &str) -> bool {
    // The last two are errors of a script whose user may not access one of its keys, or run one of its commands.
    error.code() == Some("NOPERM")
        || error.code().is_some()
            && ["No permissions", "user executing the script"].iter().any(|said| text.contains(said))
}

/// Returns `true` if an error is about the credentials; `text` is its message. Any other answer to them, such as "max
/// number of clients reached", is an outage that may pass.
fn is_denied(error: &RedisError, text: &str) -> bool {
    // The first from a server that requires a password, in answer to a request as large as a script; the other from
    // versions before 6, which have no codes for this.
    let is_said = || has_none(text) || ["unauthenticated", "invalid password"].iter().any(|said| text.contains(said));
    error.code().is_some_and(|code| matches!(code, "NOAUTH" | "WRONGPASS") || is_said())
}

/// Returns `true` if a server with the message `text` has no password set; the second is from versions before 6.
fn has_none(text: &str) -> bool {
    ["called without any password", "no password is set"].iter().any(|said| text.contains(said))
}

/// Returns a hint on an error that is not about the credentials; `text` is its message.
fn hint(error: &RedisError, text: &str, is_plain: bool) -> &'static str {
    match error.code() {
        Some("LOADING") => "it is still loading its data",
        Some("READONLY") => "it is a replica: name the master",
        Some("MISCONF") => "it cannot save its data: see its log",
        Some("OOM") => "it is out of memory: see its maxmemory",
        Some("MOVED" | "ASK" | "CROSSSLOT") => "it is one of a cluster's servers: name one that stands alone",
        _ if text.contains("unknown command 'EVAL'") => {
            "is it a sentinel? those are named by redis+sentinel://host,host/NAME"
        }
        _ if text.contains("unknown command 'SENTINEL'") => "it is not a sentinel: is the port right (26379)?",
        _ if text.contains("max number of clients") => "it has as many clients as its maxclients allows",
        _ if text.contains("DB index") => "it has fewer databases: name a lower number, or none",
        Some("ERR") if text.contains("No such master") => "is the name after the sentinels' hosts right?",
        Some("CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN") => "its cluster is not complete",
        Some(_) => "see the server's documentation",
        None if is_foreign(error) => "is it a redis server?",
        None if is_plain => {
            "is a redis server running there, or one with TLS, which has schemes of its own (rediss://)?"
        }
        None => "is a redis server running there?",
    }
}

/// Returns the error if the socket of a new connection cannot be duplicated.
pub(super) fn no_socket(server: &dyn Display, error: &std::io::Error) -> Error {
    Error::unavailable(format!("could not connect to {server}: {error}"))
}

/// Returns the error for a request without a connection.
pub(super) fn no_connection(server: &dyn Display) -> Error {
    Error::unavailable(format!("there is no connection to {server}"))
}

/// Returns the error for a malformed answer.
pub(super) fn malformed(server: &dyn Display) -> Error {
    Error::unavailable(format!("{server} gave an answer that makes no sense; is it a redis server?"))
}

/// Returns the error for an unusable side key.
pub(super) fn damaged(server: &dyn Display, damage: &dyn Display) -> Error {
    Error::new(ErrorKind::Unusable, format!("{server}: {damage}"))
}

/// Returns the error for a server that does not answer.
pub(super) fn silence(server: &dyn Display) -> Error {
    Error::unavailable(format!("{server} does not answer"))
}

/// Returns the error if only `confirmed` of the `wanted` replicas confirmed a write within `timeout`.
pub(super) fn unconfirmed(confirmed: i64, wanted: u32, timeout: Duration) -> Error {
    let within = humantime::format_duration(timeout);
    Error::unavailable(format!(
        "{confirmed} of the {wanted} replicas that --replicas wants confirmed within {within}; are they connected?"
    ))
}

/// Returns the error if less than a majority of the sentinels answered for the master called `name`. This many
/// `failures` of one kind leave no majority.
pub(super) fn too_few_sentinels(name: &str, errors: &[Error], failures: usize) -> Error {
    let kind = ErrorKind::of_voters(errors.iter().map(|error| error.kind), failures);
    Error::new(kind, format!("too few sentinels of {name} can be asked: {}", reasons(errors)))
}

/// Returns the error for two names of the same sentinel, which is at `peer`.
pub(super) fn twin_sentinels(peer: SocketAddr) -> Error {
    Error::new(
        ErrorKind::Unusable,
        format!("two names lead to the sentinel at {peer}, which has one vote: name each once"),
    )
}

/// Returns the error if no majority of the sentinels names the same master for `name`; these were `named`.
pub(super) fn no_agreement(name: &str, named: &[Address]) -> Error {
    let mut named: Vec<String> = named.iter().map(Address::to_string).collect();
    named.sort_unstable();
    named.dedup();
    let named = named.join(" and ");
    Error::unavailable(format!("the sentinels do not agree on the master of {name}: they name {named}"))
}

/// Returns the error for a `sentinel` on another host that names a master by an address that means this host here.
pub(super) fn local_master(sentinel: &dyn Display, master: &Address, name: &str) -> Error {
    let hint = "have the sentinels monitor it by an address that all hosts can use";
    Error::new(
        ErrorKind::Unusable,
        format!("{sentinel} names {master} as the master of {name}, which would be this host; {hint}"),
    )
}

/// Returns the error if a sentinel considers the master called `name` dead, or reports a failover in progress.
pub(super) fn master_leaves(master: &Address, name: &str) -> Error {
    Error::unavailable(format!("{master} is being replaced as the master of {name}"))
}

/// Returns the error if the sentinels named another master while the last one was asked.
pub(super) fn another_master(master: &Address, name: &str) -> Error {
    Error::unavailable(format!("the sentinels have made {master} the master of {name}"))
}

/// Returns the error if the name of the server leads to another server than before.
pub(super) fn another_server(server: &dyn Display) -> Error {
    let hint = "does its name lead to several independent ones?";
    Error::unavailable(format!("{server} is another server than before; {hint}"))
}

/// Returns the error if the name of the server leads to several independent ones, one of them at `address`.
pub(super) fn several_servers(server: &dyn Display, address: SocketAddr) -> Error {
    let hint = "name one of them, or use redlock:// and name each";
    let message = format!("{server} names several independent redis servers, one of them at {address}: {hint}");
    Error::new(ErrorKind::Unusable, message)
}

#[cfg(test)]
mod tests;
