//! Errors of servers and of the library, and dlock's messages for them.

use super::ErrorKind::{Contended, Denied, Full, Unavailable, Unusable};
use super::*;
use crate::backend::sql::link::Said as _;

const PASSWORD: &str = "check the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD), \
                        and the server's pg_hba.conf; NESTED";
const PLAIN: &str = "is a PostgreSQL server running there, or one that requires TLS (postgress://)?";

fn explained(failure: &Failure<Said>, has_password: bool, is_plain: bool) -> (ErrorKind, String) {
    let error = explain(failure, About { name: &"S", has_password, is_plain, nested: "; NESTED", user: "U" });
    (error.kind, error.to_string())
}

fn said(code: &str) -> Said {
    Said { code: code.to_owned(), message: "no\u{1b}".to_owned(), is_fatal: false }
}

#[test]
fn what_a_server_says_of_the_credentials() {
    for (code, has_password, text) in [
        ("28P01", true, "no\\u{1b}"),
        ("28000", true, "no\\u{1b}"),
        ("28000", false, "no\\u{1b}; no password was given"),
    ] {
        let told = explained(&Failure::Said(said(code)), has_password, true);
        assert_eq!(told, (Denied, format!("S refused the credentials: {text}; {PASSWORD}")), "{code}");
    }
    let in_words = |message: &str| Failure::Said(Said { message: message.to_owned(), ..said("28000") });
    for (message, is_plain, expected) in [
        (
            "connection requires a valid client certificate",
            false,
            "S refused the TLS connection: it requires a client certificate; give one with --tls-cert and --tls-key"
                .to_owned(),
        ),
        (
            "no pg_hba.conf entry, no encryption",
            true,
            "S refused the connection: no pg_hba.conf entry, no encryption; if its pg_hba.conf requires TLS, use \
             postgress:// instead of postgres://"
                .to_owned(),
        ),
        (
            "no pg_hba.conf entry, no encryption",
            false,
            format!("S refused the credentials: no pg_hba.conf entry, no encryption; {PASSWORD}"),
        ),
    ] {
        assert_eq!(explained(&in_words(message), true, is_plain), (Denied, expected), "{message}");
    }
    let missing = Failure::Broke("invalid configuration: password missing".to_owned());
    let expected = format!("S refused the credentials: no password was given; {PASSWORD}");
    assert_eq!(explained(&missing, false, true), (Denied, expected));
    let told = explained(&Failure::Said(said("42501")), true, true);
    let hint = "dlock generate postgres prints what to grant";
    assert_eq!(told, (Denied, format!("S: the role U lacks a right: no\\u{{1b}}; {hint}")));
}

#[test]
fn what_else_a_server_says() {
    for (code, kind, hint) in [
        ("3D000", Unavailable, "name a database that exists, or create it"),
        (
            "53300",
            Full,
            "it has as many clients as its max_connections, or the limit of the role or the database, allows",
        ),
        ("53100", Unavailable, "it has run out of room: see its log"),
        ("55P03", Contended, "another transaction keeps the row or the table locked"),
        ("57014", Unavailable, "the request took too long there, or was cancelled"),
        ("57P01", Unavailable, "it is being stopped, or this connection was ended there"),
        ("57P03", Unavailable, "it is starting or recovering"),
        ("25006", Unavailable, "it is a standby, or read-only: name the primary"),
        ("40001", Contended, "other transactions were in the way again and again"),
        ("42P01", Unavailable, "the table is gone: who has dropped it?"),
        ("42703", Unusable, "the table is not as dlock generate postgres makes it: name another one with ?table="),
        ("XX000", Unavailable, "see the server's log"),
    ] {
        let told = explained(&Failure::Said(said(code)), true, true);
        assert_eq!(told, (kind, format!("S answered with an error: no\\u{{1b}} ({code}); {hint}")), "{code}");
    }
}

#[test]
fn what_the_library_says() {
    for (text, is_plain, kind, expected) in [
        ("connection closed", true, Unavailable, format!("S broke off the connection: connection closed; {PLAIN}")),
        (
            "error communicating with the server: broken",
            false,
            Unavailable,
            "S broke off the connection: error communicating with the server: broken; is a PostgreSQL server running there?"
                .to_owned(),
        ),
        (
            "unexpected message from server",
            true,
            Unavailable,
            format!("S gave an answer that makes no sense: unexpected message from server; {PLAIN}"),
        ),
        (
            "error communicating with the server: a message is too long",
            true,
            Unavailable,
            format!(
                "S gave an answer that makes no sense: error communicating with the server: a message is too long; {PLAIN}"
            ),
        ),
    ] {
        assert_eq!(explained(&Failure::Broke(text.to_owned()), true, is_plain), (kind, expected), "{text}");
    }
    for text in [
        format!("error communicating with the server: {}", crate::backend::postgres::frames::CLEAR_TEXT),
        "authentication error: unsupported authentication method".to_owned(),
        "authentication error: unsupported SASL mechanism".to_owned(),
    ] {
        let (kind, told) = explained(&Failure::Broke(text), true, true);
        assert!(kind == Denied && told.starts_with("S asks for ") && told.contains("SCRAM-SHA-256"), "{told}");
    }
}

#[test]
fn a_code_decides_what_comes_next() {
    for (code, missing, made, forbidden, repeated, standby) in [
        ("42P01", true, false, false, false, false),
        ("3F000", true, false, true, false, false),
        ("42P07", false, true, false, false, false),
        ("23505", false, true, false, false, false),
        ("42501", false, false, true, false, false),
        ("40001", false, false, false, true, false),
        ("40P01", false, false, false, true, false),
        ("25006", false, false, true, false, true),
        ("XX000", false, false, false, false, false),
    ] {
        let said = said(code);
        let decided = (said.is_missing_table(), said.is_made_by_others(), said.forbids_tables());
        assert_eq!(decided, (missing, made, forbidden), "{code}");
        assert_eq!((said.is_repeated(), said.is_standby()), (repeated, standby), "{code}");
    }
}
