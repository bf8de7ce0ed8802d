/*!
Errors of PostgreSQL servers and of the client library, in dlock's words: the kind of failure, and what to do.

All functions here are pure, so that every message has a row in a table of the tests.
*/

use std::error::Error as _;
use std::fmt::Display;

use tokio_postgres::error::Severity;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::sql::link::{self, Failure};

/// Facts about a server that its answer does not contain.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// Its name in messages.
    pub name: &'a dyn Display,
    /// `true` if a password was given.
    pub has_password: bool,
    /// `true` if the connection is plain text over a network: the server may then expect TLS.
    pub is_plain: bool,
    /// A suffix for advice about credentials.
    pub nested: &'a str,
    /// The role under which dlock logs in.
    pub user: &'a str,
}

/// Converts an error of the library to a failure.
pub(super) fn failure(error: &tokio_postgres::Error) -> Failure<Said> {
    let Some(said) = error.as_db_error() else {
        let text = error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
        return Failure::Broke(text);
    };
    let is_fatal = match said.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        // Before version 9.6, the severity is in the server's language.
        None => !said.severity().eq_ignore_ascii_case("error"),
    };
    Failure::Said(Said { code: said.code().code().to_owned(), message: said.message().to_owned(), is_fatal })
}

/// An error reported by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The five-character SQLSTATE code.
    pub code: String,
    /// The message text.
    pub message: String,
    /// `true` if the error ends the connection.
    pub is_fatal: bool,
}

impl link::Said for Said {
    fn is_missing_table(&self) -> bool {
        matches!(self.code.as_str(), "42P01" | "3F000")
    }

    fn is_made_by_others(&self) -> bool {
        matches!(self.code.as_str(), "42P07" | "42710" | "23505")
    }

    fn forbids_tables(&self) -> bool {
        matches!(self.code.as_str(), "42501" | "3F000" | "25006")
    }

    fn is_repeated(&self) -> bool {
        matches!(self.code.as_str(), "40001" | "40P01")
    }

    fn is_standby(&self) -> bool {
        self.code == "25006"
    }

    fn is_fatal(&self) -> bool {
        self.is_fatal
    }
}

/// Converts a failure to an error in dlock's words.
pub(super) fn explain(failure: &Failure<Said>, about: About<'_>) -> Error {
    let text = match failure {
        Failure::Said(said) => return answered(said, about),
        Failure::Broke(text) => crate::printable::shown(text.as_bytes()).to_string(),
    };
    let server = about.name;
    if text.contains("password missing") {
        return denied("no password was given", about);
    }
    if let Some(method) = unsupported(&text) {
        let hint = "dlock can use trust, peer, md5, SCRAM-SHA-256, a client certificate, and a password in TLS";
        return Error::new(ErrorKind::Denied, format!("{server} asks for {method}; {hint}"));
    }
    let hint = if about.is_plain {
        "is a PostgreSQL server running there, or one that requires TLS (postgress://)?"
    } else {
        "is a PostgreSQL server running there?"
    };
    let is_broken = ["connection closed", "error communicating"].iter().any(|said| text.starts_with(said));
    if is_broken && !text.contains("too long") {
        return Error::unavailable(format!("{server} broke off the connection: {text}; {hint}"));
    }
    Error::unavailable(format!("{server} gave an answer that makes no sense: {text}; {hint}"))
}

/// Returns the authentication method that a server demands, and that dlock lacks or refuses.
fn unsupported(text: &str) -> Option<&'static str> {
    match () {
        () if text.contains("let us in by SCRAM") => Some("another proof than SCRAM-SHA-256, which auth=scram demands"),
        () if text.contains("clear text") => Some("the password in clear text, over a connection without TLS"),
        () if text.contains("unsupported authentication method") => {
            Some("an authentication method that dlock lacks (GSSAPI, SSPI)")
        }
        () if text.contains("unsupported SASL mechanism") => Some("an authentication method that dlock lacks (SASL)"),
        () => None,
    }
}

/// Explains an error reported by the server.
fn answered(said: &Said, about: About<'_>) -> Error {
    let (server, code) = (about.name, said.code.as_str());
    let message = crate::printable::shown(said.message.as_bytes()).to_string();
    if code.starts_with("28") {
        return denied(&message, about);
    }
    let user = crate::printable::shown(about.user.as_bytes()).to_string();
    if code == "42501" {
        let hint = "dlock generate postgres prints what to grant";
        return Error::new(ErrorKind::Denied, format!("{server}: the role {user} lacks a right: {message}; {hint}"));
    }
    let (kind, hint) = meaning(code);
    Error::new(
        kind,
        format!("{server} answered with an error: {message} ({}); {hint}", crate::printable::shown(code.as_bytes())),
    )
}

fn denied(why: &str, about: About<'_>) -> Error {
    let About { name, has_password, nested, is_plain, .. } = about;
    if why.contains("valid client certificate") {
        let hint = "it requires a client certificate; give one with --tls-cert and --tls-key";
        return Error::new(ErrorKind::Denied, format!("{name} refused the TLS connection: {hint}"));
    }
    if is_plain && why.contains("no encryption") {
        let hint = "if its pg_hba.conf requires TLS, use postgress:// instead of postgres://";
        return Error::new(ErrorKind::Denied, format!("{name} refused the connection: {why}; {hint}"));
    }
    let why = match (has_password, why) {
        (true, why) | (false, why @ "no password was given") => why.to_owned(),
        (false, why) => format!("{why}; no password was given"),
    };
    let hint = "check the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD), and \
                the server's pg_hba.conf";
    Error::new(ErrorKind::Denied, format!("{name} refused the credentials: {why}; {hint}{nested}"))
}

/// Returns the kind of an error, and a hint on what to do about it, by its code.
fn meaning(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::{Contended, Full, Unavailable, Unusable};
    match code {
        "3D000" => (Unavailable, "name a database that exists, or create it"),
        "53300" => {
            (Full, "it has as many clients as its max_connections, or the limit of the role or the database, allows")
        }
        "53100" | "53200" => (Unavailable, "it has run out of room: see its log"),
        "55P03" => (Contended, "another transaction keeps the row or the table locked"),
        "57014" => (Unavailable, "the request took too long there, or was cancelled"),
        "57P01" | "57P02" => (Unavailable, "it is being stopped, or this connection was ended there"),
        "57P03" => (Unavailable, "it is starting or recovering"),
        "25006" => (Unavailable, "it is a standby, or read-only: name the primary"),
        "40001" | "40P01" => (Contended, "other transactions were in the way again and again"),
        "42P01" => (Unavailable, "the table is gone: who has dropped it?"),
        "3F000" => (Unavailable, "there is no such schema: look at ?table= and at the search_path of the role"),
        // Errors of statements on a table that is not ShedLock's.
        "42703" | "42804" | "42883" | "42P10" | "42809" | "22001" | "22P02" => {
            (Unusable, "the table is not as dlock generate postgres makes it: name another one with ?table=")
        }
        _ => (Unavailable, "see the server's log"),
    }
}

/// Returns the error for a server that does not speak TLS; `answer` is its reply to the request for TLS.
pub(super) fn no_tls(server: &dyn Display, answer: u8) -> Error {
    let hint = match answer {
        b'N' => {
            "it says that it does not offer it: set ssl = on there; if it is on, something in between has changed the answer"
        }
        _ => "it does not speak TLS on this port; is a PostgreSQL server running there?",
    };
    Error::new(ErrorKind::Unreachable, format!("could not reach {server} by TLS: {hint}"))
}

#[cfg(test)]
mod tests;
