/*!
Errors of MySQL and MariaDB servers and of the client library, in dlock's words: the kind of failure, and what to do.

All functions here are pure, so that every message has a row in the table below.
*/

use std::fmt::Display;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::sql::link::{self, Failure};
use crate::printable::shown;

/// The reason for not sending a password.
pub(super) const CLEAR_TEXT: &str = "it asks for the password in clear text";
/// The beginning of the reason if a server requires a method that dlock lacks.
pub(super) const LACKS: &str = "it asks for the authentication method ";

/// Facts about a server that complete its error messages.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// Its name in messages.
    pub name: &'a dyn Display,
    /// A password was given.
    pub has_password: bool,
    /// The connection is plain text over a network: the server may expect TLS.
    pub is_plain: bool,
    /// A text to append to hints about credentials.
    pub nested: &'a str,
    /// The user as which dlock logs in.
    pub user: &'a str,
}

/// An error reported by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The error number.
    pub code: u16,
    /// The error message.
    pub message: String,
}

impl link::Said for Said {
    fn is_missing_table(&self) -> bool {
        self.code == 1146
    }

    fn is_made_by_others(&self) -> bool {
        self.code == 1050
    }

    fn forbids_tables(&self) -> bool {
        matches!(self.code, 1044 | 1049 | 1142)
    }

    fn is_repeated(&self) -> bool {
        // A cluster also reports this for a commit that it refuses; 1242 is our own, for a transaction that has ended.
        matches!(self.code, 1213 | 1242 | 3058)
    }

    /// Also returns `true` for a cluster node that is not part of its cluster.
    fn is_standby(&self) -> bool {
        matches!(self.code, 1047 | 1290 | 1792 | 1836)
    }

    fn is_fatal(&self) -> bool {
        matches!(self.code, 1053 | 1080 | 1152..=1161 | 1927 | 3169 | 4031)
    }
}

/// Explains a failure.
pub(super) fn explain(failure: &Failure<Said>, about: About<'_>) -> Error {
    let text = match failure {
        Failure::Said(said) => return answered(said, about),
        Failure::Broke(text) => text.as_str(),
    };
    let server = about.name;
    if text == CLEAR_TEXT {
        let hint = "use mysqls://, or log in once over TLS or by a local socket where the server caches passwords";
        let what = "the password in clear text, over a connection without TLS";
        return Error::new(ErrorKind::Denied, format!("{server} asks for {what}; {hint}"));
    }
    if let Some(method) = text.strip_prefix(LACKS) {
        let method = shown(method.as_bytes());
        let hint = "dlock can use mysql_native_password, caching_sha2_password, unix_socket and, over TLS, \
                    mysql_clear_password";
        let what = format!("the authentication method {method}, which dlock lacks");
        return Error::new(ErrorKind::Denied, format!("{server} asks for {what}; {hint}"));
    }
    let hint = "is a MySQL or MariaDB server running there?";
    let text = shown(text.as_bytes());
    if text.to_string() == "connection closed" {
        return Error::unavailable(format!("{server} broke off the connection; {hint}"));
    }
    Error::unavailable(format!("{server} gave an answer that makes no sense: {text}; {hint}"))
}

/// Explains an error reported by the server.
fn answered(said: &Said, about: About<'_>) -> Error {
    let (server, code) = (about.name, said.code);
    let message = shown(said.message.as_bytes()).to_string();
    match code {
        1045 | 1130 | 1698 | 1820 | 1862 | 3118 | 3159 | 4151 => return denied(&message, code, about),
        1044 | 1142 | 1143 | 1227 | 1370 => {
            let user = shown(about.user.as_bytes());
            let hint = match code {
                1044 => "is the database's name right? dlock generate mysql prints what to grant",
                _ => "dlock generate mysql prints what to grant",
            };
            return Error::new(
                ErrorKind::Denied,
                format!("{server}: the user {user} lacks a right: {message}; {hint}"),
            );
        }
        _ => {}
    }
    let (kind, hint) = meaning(code);
    Error::new(kind, format!("{server} answered with an error: {message} ({code}); {hint}"))
}

fn denied(why: &str, code: u16, about: About<'_>) -> Error {
    let About { name, has_password, nested, is_plain, .. } = about;
    if code == 3159 || why.contains("insecure transport") {
        let hint = "use mysqls:// instead of mysql://";
        return Error::new(ErrorKind::Denied, format!("{name} refused the connection: {why}; {hint}"));
    }
    let why = if has_password { why.to_owned() } else { format!("{why}; no password was given") };
    let tls = if is_plain {
        ", and whether the account requires TLS (mysqls://)"
    } else {
        ", and whether the account requires a client certificate (--tls-cert and --tls-key)"
    };
    let hint = "check the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD)";
    Error::new(ErrorKind::Denied, format!("{name} refused the credentials: {why}; {hint}{tls}{nested}"))
}

/// The kind of an error, and a hint on what to do, by its number.
fn meaning(code: u16) -> (ErrorKind, &'static str) {
    use ErrorKind::{Contended, Full, Unavailable, Unusable};
    match code {
        1049 => (Unavailable, "name a database that exists, or create it"),
        1040 | 1203 | 1226 => (Full, "it has as many clients as its max_connections, or the limit of the user, allows"),
        1021 | 1037 | 1041 | 1114 => (Unavailable, "it has run out of room: see its log"),
        1205 => (Contended, "another transaction keeps the row or the table locked"),
        1317 | 1969 | 3024 => (Unavailable, "the request took too long there, or was cancelled"),
        1053 | 1927 | 3169 => (Unavailable, "it is being stopped, or has ended the connection"),
        1047 => (Unavailable, "it is not part of its cluster now, or is starting"),
        1290 | 1792 | 1836 => (Unavailable, "it is a replica, or read-only: name the primary"),
        1213 | 1242 | 3058 => (Contended, "other transactions were in the way again and again"),
        1146 => (Unavailable, "the table is gone: who has dropped it?"),
        1665 => (Unusable, "set binlog_format = MIXED or ROW there"),
        1129 => (Unavailable, "too many connections from this host have failed: see FLUSH HOSTS"),
        // Errors of statements on a table that is not ShedLock's.
        1054 | 1064 | 1267 | 1292 | 1364 | 1366 | 1406 | 1288 | 1347 | 3988 => {
            (Unusable, "the table is not as dlock generate mysql makes it: name another one with ?table=")
        }
        _ => (Unavailable, "see the server's log"),
    }
}

/// The error for a server that does not speak TLS.
pub(super) fn no_tls(server: &dyn Display) -> Error {
    let hint = "it says that it does not offer it: set ssl_cert and ssl_key there; if they are set, something in between has \
                changed the answer";
    Error::new(ErrorKind::Unreachable, format!("could not reach {server} by TLS: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::ErrorKind::{Contended, Denied, Full, Unavailable, Unusable};
    use super::*;
    use crate::backend::sql::link::Said as _;

    fn explained(failure: &Failure<Said>, has_password: bool, is_plain: bool) -> (ErrorKind, String) {
        let error = explain(failure, About { name: &"S", has_password, is_plain, nested: "; NESTED", user: "U" });
        (error.kind, error.to_string())
    }

    fn said(code: u16) -> Said {
        Said { code, message: "no\u{1b}".to_owned() }
    }

    #[test]
    fn what_a_server_says_of_the_credentials() {
        let check = "check the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD), and \
                     whether the account requires";
        for (code, has_password, is_plain, text) in [
            (1045, true, true, format!("S refused the credentials: no\\u{{1b}}; {check} TLS (mysqls://); NESTED")),
            (
                1698,
                false,
                false,
                format!(
                    "S refused the credentials: no\\u{{1b}}; no password was given; {check} a client certificate \
                     (--tls-cert and --tls-key); NESTED"
                ),
            ),
            (3159, true, true, "S refused the connection: no\\u{1b}; use mysqls:// instead of mysql://".to_owned()),
            (
                1142,
                true,
                true,
                "S: the user U lacks a right: no\\u{1b}; dlock generate mysql prints what to grant".to_owned(),
            ),
        ] {
            assert_eq!(explained(&Failure::Said(said(code)), has_password, is_plain), (Denied, text), "{code}");
        }
        for (text, begins) in [
            (
                CLEAR_TEXT.to_owned(),
                "S asks for the password in clear text, over a connection without TLS; use mysqls://",
            ),
            (format!("{LACKS}parsec"), "S asks for the authentication method parsec, which dlock lacks; dlock can use"),
        ] {
            let (kind, told) = explained(&Failure::Broke(text), true, true);
            assert!(kind == Denied && told.starts_with(begins), "{told}");
        }
    }

    #[test]
    fn what_else_a_server_says() {
        for (code, kind, hint) in [
            (1049, Unavailable, "name a database that exists, or create it"),
            (1040, Full, "it has as many clients as its max_connections, or the limit of the user, allows"),
            (1205, Contended, "another transaction keeps the row or the table locked"),
            (1047, Unavailable, "it is not part of its cluster now, or is starting"),
            (1290, Unavailable, "it is a replica, or read-only: name the primary"),
            (1146, Unavailable, "the table is gone: who has dropped it?"),
            (1665, Unusable, "set binlog_format = MIXED or ROW there"),
            (1054, Unusable, "the table is not as dlock generate mysql makes it: name another one with ?table="),
            (9999, Unavailable, "see the server's log"),
        ] {
            let told = explained(&Failure::Said(said(code)), true, true);
            assert_eq!(told, (kind, format!("S answered with an error: no\\u{{1b}} ({code}); {hint}")), "{code}");
        }
        let hint = "is a MySQL or MariaDB server running there?";
        for (text, expected) in [
            ("connection closed", format!("S broke off the connection; {hint}")),
            ("too long", format!("S gave an answer that makes no sense: too long; {hint}")),
        ] {
            assert_eq!(explained(&Failure::Broke(text.to_owned()), true, true), (Unavailable, expected));
        }
    }

    #[test]
    fn a_number_decides_what_comes_next() {
        for (code, missing, made, forbidden, repeated, standby, fatal) in [
            (1146, true, false, false, false, false, false),
            (1050, false, true, false, false, false, false),
            (1142, false, false, true, false, false, false),
            (1213, false, false, false, true, false, false),
            (1242, false, false, false, true, false, false),
            (1836, false, false, false, false, true, false),
            (1047, false, false, false, false, true, false),
            (1927, false, false, false, false, false, true),
            (1205, false, false, false, false, false, false),
        ] {
            let said = said(code);
            let decided = (said.is_missing_table(), said.is_made_by_others(), said.forbids_tables());
            assert_eq!(decided, (missing, made, forbidden), "{code}");
            assert_eq!((said.is_repeated(), said.is_standby(), said.is_fatal()), (repeated, standby, fatal), "{code}");
        }
    }
}
