/*!
Errors common to all databases, in dlock's words.
*/

use std::fmt::Display;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::sql::table::Table;
use crate::printable::shown;

/// Returns the error for a socket of a new connection that cannot be duplicated.
pub(crate) fn no_socket(server: &dyn Display, error: &std::io::Error) -> Error {
    Error::unavailable(format!("could not connect to {server}: {error}"))
}

/// Returns the error for a request without a connection.
pub(crate) fn no_connection(server: &dyn Display) -> Error {
    Error::unavailable(format!("there is no connection to {server}"))
}

/// Returns the error for an answer that no server of this `product` gives.
pub(crate) fn malformed(server: &dyn Display, product: &str) -> Error {
    Error::unavailable(format!("{server} gave an answer that makes no sense; is it a {product} server?"))
}

/// Returns the error for a server that leaves a request unanswered.
pub(crate) fn silence(server: &dyn Display) -> Error {
    Error::unavailable(format!("{server} did not answer in time; is it overloaded?"))
}

/// Returns the error for a connection that ends while TLS is being negotiated.
pub(crate) fn ended_before_tls(server: &dyn Display, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("could not reach {server} by TLS: {error}; is it running there?"))
}

/// Returns the error for a server that does not take writes.
pub(crate) fn standby(server: &dyn Display) -> Error {
    Error::unavailable(format!("{server} is a standby, or read-only: name the primary, or all of its servers"))
}

/// Returns the error for a commit that the server confirms without its replicas.
pub(crate) fn unreplicated(server: &dyn Display) -> Error {
    Error::unavailable(format!("{server} did not wait for its replicas: what was asked for may be lost with it"))
}

/// Returns the error for a connection that the server ended while we waited for our turn.
pub(crate) fn hung_up(server: &dyn Display) -> Error {
    Error::unavailable(format!("{server} broke off the connection; is it running there?"))
}

/// Returns the error for missing tables that may not be made: `message` is why, and `run` the command that makes them.
pub(crate) fn no_tables(server: &dyn Display, user: &str, message: &Error, run: &str) -> Error {
    let (user, run) = (shown(user.as_bytes()).to_string(), shown(run.as_bytes()).to_string());
    Error::new(
        ErrorKind::CannotCreate,
        format!("could not make the tables at {server} as {user} ({message}); have an administrator run: {run}"),
    )
}

/// Returns the error if the tables would be made in a schema that only this role searches.
pub(crate) fn own_schema(server: &dyn Display, table: &Table) -> Error {
    let table = shown(table.to_string().as_bytes()).to_string();
    let what = format!("the tables are missing, and would be made as {table} in a schema of this role alone");
    let hint =
        format!("if other roles need no such locks, name it with ?table={table}, or else have them made in another");
    Error::new(ErrorKind::CannotCreate, format!("{server}: {what}; {hint}"))
}

/// Returns the error for a table that would not keep locks; `remedy` is a statement.
pub(crate) fn bad_table(server: &dyn Display, what: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::Unusable, format!("{server}: {what}; mend it by: {remedy}"))
}

/// Returns the error for a token that cannot be used; `remedy` is a statement.
pub(crate) fn damaged(server: &dyn Display, token: i64, remedy: &str) -> Error {
    let what = format!("the last token {token} is more than a year ahead of the server's clock");
    Error::new(ErrorKind::Unusable, format!("{server}: {what}; if the clock is right, mend it by: {remedy}"))
}
