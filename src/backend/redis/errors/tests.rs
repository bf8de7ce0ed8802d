//! Errors of servers and of the library, and dlock's words for them.

use std::io;

use ::redis::parse_redis_value;

use super::ErrorKind::{Denied, Unavailable, Unreachable, Unusable};
use super::*;

const PASSWORD: &str = "check the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD)";
const PLAIN: &str = "is a redis server running there, or one with TLS, which has schemes of its own (rediss://)?";

/// Returns the error for this line of a server's answer.
fn answer(line: &str) -> RedisError {
    let answer = parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("valid");
    answer.extract_error().expect_err("an error")
}

fn explained(error: &RedisError, has_password: bool, is_plain: bool, nested: &str) -> (ErrorKind, String) {
    let rights = Rights::without_keys("RIGHTS");
    let error = explain(
        error,
        About { name: &"S", has_password, has_answered: false, is_plain, nested, user: "U", rights: &rights },
    );
    (error.kind, error.to_string())
}

#[test]
fn what_a_server_says_of_the_credentials() {
    for (said, has_password, text) in [
        ("NOAUTH Authentication required", false, "no password was given (NOAUTH Authentication required)"),
        ("NOAUTH Authentication required", true, "NOAUTH Authentication required"),
        ("WRONGPASS invalid pair.", true, "WRONGPASS invalid pair"),
        ("ERR Protocol error: unauthenticated bulk length", false, "no password was given"),
        ("ERR Protocol error: unauthenticated bulk length", true, "Protocol error: unauthenticated bulk length"),
        (
            "ERR AUTH <password> called without any password configured for the default user",
            true,
            "AUTH <password> called without any password configured for the default user",
        ),
        ("ERR invalid password", true, "invalid password"),
    ] {
        let (kind, told) = explained(&answer(said), has_password, true, "; NESTED");
        let hint = if said.contains("called without") {
            "leave out --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD"
        } else {
            PASSWORD
        };
        let nested = if hint == PASSWORD { "; NESTED" } else { "" };
        let expected = format!("S refused the credentials: {text}; {hint}{nested}");
        assert_eq!((kind, told), (Denied, expected), "{said}");
    }
}

#[test]
fn what_a_server_says_of_missing_rights() {
    for (said, text) in [
        ("NOPERM no permissions", "NOPERM no permissions"),
        ("ERR The user executing the script can't", "The user executing the script can't"),
        ("ERR No permissions to access a key", "No permissions to access a key"),
    ] {
        let expected = format!("S: the user U lacks rights: {text}; needed: ACL SETUSER U RIGHTS");
        assert_eq!(explained(&answer(said), true, true, "; NESTED"), (Denied, expected), "{said}");
    }
}

#[test]
fn what_else_a_server_says() {
    for (said, text, hint) in [
        ("LOADING loading", "LOADING loading", "it is still loading its data"),
        ("READONLY no", "READONLY no", "it is a replica: name the master"),
        ("MISCONF disk", "MISCONF disk", "it cannot save its data: see its log"),
        ("OOM full", "OOM full", "it is out of memory: see its maxmemory"),
        ("MOVED 1 h:1", "MOVED 1 h:1", "it is one of a cluster's servers: name one that stands alone"),
        ("ASK 1 h:1", "ASK 1 h:1", "it is one of a cluster's servers: name one that stands alone"),
        ("CROSSSLOT x", "CROSSSLOT x", "it is one of a cluster's servers: name one that stands alone"),
        (
            "ERR unknown command 'EVAL', with args beginning with: 'local'",
            "unknown command 'EVAL'",
            "is it a sentinel? those are named by redis+sentinel://host,host/NAME",
        ),
        (
            "ERR unknown command 'SENTINEL', with args beginning with: 'MASTER'",
            "unknown command 'SENTINEL'",
            "it is not a sentinel: is the port right (26379)?",
        ),
        (
            "ERR max number of clients reached",
            "max number of clients reached",
            "it has as many clients as its maxclients allows",
        ),
        (
            "ERR DB index is out of range",
            "DB index is out of range",
            "it has fewer databases: name a lower number, or none",
        ),
        (
            "ERR No such master with that name",
            "No such master with that name",
            "is the name after the sentinels' hosts right?",
        ),
        ("CLUSTERDOWN x", "CLUSTERDOWN x", "its cluster is not complete"),
        ("MASTERDOWN x", "MASTERDOWN x", "its cluster is not complete"),
        ("TRYAGAIN x", "TRYAGAIN x", "its cluster is not complete"),
        ("ERR what", "what", "see the server's documentation"),
        ("NEW what", "NEW what", "see the server's documentation"),
    ] {
        let (kind, told) = explained(&answer(said), true, true, "");
        assert_eq!((kind, told), (Unavailable, format!("S answered with an error: {text}; {hint}")), "{said}");
    }
}

#[test]
fn what_the_library_says() {
    let broken = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
    let garbled = RedisError::from((RedisErrorKind::Parse, "garbled"));
    let unexpected = RedisError::from((RedisErrorKind::UnexpectedReturnType, "odd"));
    let local = "is a redis server running there?";
    for (error, is_plain, kind, text) in [
        (&broken, true, Unavailable, format!("S broke off the connection: broken pipe; {PLAIN}")),
        (&broken, false, Unavailable, format!("S broke off the connection: broken pipe; {local}")),
        (
            &garbled,
            true,
            Unavailable,
            "S answered with an error: its answer does not follow the redis protocol; is it a redis server?".to_owned(),
        ),
        (
            &unexpected,
            true,
            Unavailable,
            "S answered with an error: its answer does not follow the redis protocol; is it a redis server?".to_owned(),
        ),
    ] {
        assert_eq!(explained(error, true, is_plain, ""), (kind, text), "{error}");
    }
    let rights = Rights::default();
    let (has_password, is_plain) = (false, true);
    let about =
        About { name: &"S", has_password, has_answered: true, is_plain, nested: "", user: "U", rights: &rights };
    assert_eq!(explain(&broken, about).to_string(), "S broke off the connection: broken pipe");
}

#[test]
fn what_dlock_says_by_itself() {
    let master = Address::Tcp("h".to_owned(), 1);
    let other = Address::Tcp("g".to_owned(), 2);
    let local = [Error::new(Unusable, "three"), Error::new(Unusable, "four")];
    let failed = [Error::new(Unreachable, "one"), Error::new(Denied, "two")];
    for (error, kind, text) in [
        (no_socket(&"S", &io::Error::other("full")), Unavailable, "could not connect to S: full"),
        (no_connection(&"S"), Unavailable, "there is no connection to S"),
        (malformed(&"S"), Unavailable, "S gave an answer that makes no sense; is it a redis server?"),
        (silence(&"S"), Unavailable, "S does not answer"),
        (
            unconfirmed(1, 2, Duration::from_millis(500)),
            Unavailable,
            "1 of the 2 replicas that --replicas wants confirmed within 500ms; are they connected?",
        ),
        (too_few_sentinels("m", &failed, 1), Denied, "too few sentinels of m can be asked: one; two"),
        // Of three sentinels, one that refuses leaves two.
        (too_few_sentinels("m", &failed, 2), Unavailable, "too few sentinels of m can be asked: one; two"),
        (too_few_sentinels("m", &failed[..1], 1), Unreachable, "too few sentinels of m can be asked: one"),
        (too_few_sentinels("m", &local, 2), Unusable, "too few sentinels of m can be asked: three; four"),
        (too_few_sentinels("m", &local[..1], 2), Unavailable, "too few sentinels of m can be asked: three"),
        (damaged(&"S", &"its key"), Unusable, "S: its key"),
        (
            no_agreement("m", &[master.clone(), other, master.clone()]),
            Unavailable,
            "the sentinels do not agree on the master of m: they name g:2 and h:1",
        ),
        (
            local_master(&"S", &master, "m"),
            Unusable,
            "S names h:1 as the master of m, which would be this host; have the sentinels monitor it by an address \
             that all hosts can use",
        ),
        (
            twin_sentinels(SocketAddr::from(([10, 0, 0, 1], 26379))),
            Unusable,
            "two names lead to the sentinel at 10.0.0.1:26379, which has one vote: name each once",
        ),
        (master_leaves(&master, "m"), Unavailable, "h:1 is being replaced as the master of m"),
        (another_master(&master, "m"), Unavailable, "the sentinels have made h:1 the master of m"),
        (
            another_server(&"S"),
            Unavailable,
            "S is another server than before; does its name lead to several independent ones?",
        ),
        (
            several_servers(&"S", SocketAddr::from(([10, 0, 0, 1], 6379))),
            Unusable,
            "S names several independent redis servers, one of them at 10.0.0.1:6379: name one of them, or use \
             redlock:// and name each",
        ),
    ] {
        assert_eq!((error.kind, error.to_string()), (kind, text.to_owned()));
    }
}
