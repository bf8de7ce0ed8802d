/*!
Each message, with its kind.
*/

use std::io;

use super::ErrorKind::{Denied, Unavailable, Unreachable, Unusable};
use super::*;

const GIVE: &str = "give the user and password (--user and --password-file, or DLOCK_USER and DLOCK_PASSWORD)";
const PLAIN: &str = "is etcd running there, or one with TLS, for which the scheme is etcds://?";

fn about(has_tls: bool, has_password: bool) -> About<'static> {
    About { place: &"E", keys: "ns/", has_answered: false, has_tls, has_password, nested: "; NESTED" }
}

fn status(code: Code, said: &str) -> etcd_client::Error {
    etcd_client::Error::GRpcStatus(Status::new(code, said))
}

fn told(error: &Error) -> (ErrorKind, String) {
    (error.kind, error.to_string())
}

#[test]
fn what_etcd_says_of_the_credentials() {
    for (code, said, has_password, text) in [
        (
            Code::FailedPrecondition,
            "etcdserver: authentication is not enabled",
            true,
            "etcdserver: authentication is not enabled; leave out the user and password".to_owned(),
        ),
        (
            Code::InvalidArgument,
            "etcdserver: authentication failed, invalid user ID or password",
            true,
            format!("etcdserver: authentication failed, invalid user ID or password; {GIVE}; NESTED"),
        ),
        (
            Code::InvalidArgument,
            "etcdserver: user name is empty",
            false,
            format!("no password was given (etcdserver: user name is empty); {GIVE}; NESTED"),
        ),
        (
            Code::FailedPrecondition,
            "etcdserver: user name not found",
            true,
            format!("etcdserver: user name not found; {GIVE}; NESTED"),
        ),
        (
            Code::Unauthenticated,
            "etcdserver: invalid auth token",
            true,
            format!("etcdserver: invalid auth token; {GIVE}; NESTED"),
        ),
    ] {
        let fault = explain(&status(code, said), None, about(false, has_password));
        assert!(matches!(fault, Fault::Failed(_)) && !fault.is_of_the_member(), "{said}");
        assert_eq!(told(&fault.into()), (Denied, format!("E refused the credentials: {text}")), "{said}");
    }
}

#[test]
fn missing_rights_are_told_as_missing_rights() {
    let fault = explain(&status(Code::PermissionDenied, "etcdserver: permission denied"), None, about(false, true));
    assert!(!fault.is_of_the_member());
    let text = "E denied access: this user's role may not read and write the keys below ns/ (etcdserver: permission denied); \
                allow it: etcdctl role grant-permission ROLE --prefix=true readwrite ns/";
    assert_eq!(told(&fault.into()), (Denied, text.to_owned()));
}

#[test]
fn what_else_etcd_says() {
    let full = "its database is full: compact and defragment it, then disarm the alarm";
    for (code, said, has_tls, hint) in [
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", false, full),
        (Code::Unavailable, "etcdserver: no leader", false, "is a majority of etcd running?"),
        (Code::Unavailable, "etcdserver: leader changed", false, "is a majority of etcd running?"),
        (
            Code::ResourceExhausted,
            "etcdserver: too many requests",
            false,
            "it is overloaded, or somebody's value is too large",
        ),
        (Code::Unimplemented, "unknown service", false, "is it an etcd with API version 3?"),
        (Code::Unknown, "what", false, PLAIN),
        (Code::Unavailable, "transport is closing", true, "is etcd running there?"),
        (Code::Unavailable, "authentication handshake failed", true, "is etcd running there?"),
        (Code::Unknown, "no password", true, "is etcd running there?"),
    ] {
        let fault = explain(&status(code, said), None, about(has_tls, true));
        assert!(fault.is_of_the_member(), "{said}");
        let text = format!("E answered with an error: {said}; {hint}");
        assert_eq!(told(&fault.into()), (Unavailable, text), "{said}");
    }
}

#[test]
fn sound_answers_about_leases_are_no_faults_of_the_member() {
    let not_found = status(Code::NotFound, "etcdserver: requested lease not found");
    let gone = etcd_client::Error::LeaseKeepAliveError("lease not found".to_owned());
    let known = status(Code::FailedPrecondition, "etcdserver: lease already exists");
    for error in [&not_found, &gone] {
        let fault = explain(error, None, about(false, true));
        assert!(matches!(fault, Fault::NoLease(_)) && !fault.is_of_the_member(), "{error}");
    }
    let fault = explain(&known, None, about(false, true));
    assert!(matches!(fault, Fault::LeaseKnown(_)) && !fault.is_of_the_member());
    let (kind, text) = told(&fault.into());
    let expected = format!("E answered with an error: etcdserver: lease already exists; {PLAIN}");
    assert_eq!((kind, text), (Unavailable, expected));
    // Once the server has refused the connection, nothing else counts.
    assert!(matches!(explain(&not_found, Some("SAID"), about(true, true)), Fault::Failed(_)));
}

#[test]
fn what_the_library_says() {
    let broken = etcd_client::Error::IoError(io::Error::other("broken"));
    let watch = etcd_client::Error::WatchError("odd".to_owned());
    for (error, has_tls, refusal, kind, text) in [
        (&broken, false, None, Unavailable, format!("E answered with an error: io error: broken; {PLAIN}")),
        (
            &broken,
            true,
            None,
            Unavailable,
            "E answered with an error: io error: broken; is etcd running there?".to_owned(),
        ),
        (&watch, false, None, Unavailable, format!("E answered with an error: watch error: odd; {PLAIN}")),
        (&broken, true, Some("SAID"), Denied, "E refused the TLS connection: SAID".to_owned()),
    ] {
        let fault = explain(error, refusal, about(has_tls, true));
        assert_eq!(told(&fault.into()), (kind, text), "{error}");
    }
    let fault = explain(&broken, None, About { has_answered: true, ..about(false, true) });
    assert_eq!(told(&fault.into()).1, "E answered with an error: io error: broken");
}

#[test]
fn what_dlock_says_by_itself() {
    let address = Address::Tcp("h".to_owned(), 1);
    let broken = io::Error::other("broken");
    let failed = || [Error::new(Unreachable, "one"), Error::new(Unavailable, "two")];
    for (error, kind, text) in [
        (no_connection(&"E"), Unavailable, "there is no connection to E"),
        (malformed(&"E"), Unavailable, "E gave an answer that makes no sense; is it etcd?"),
        (no_token(&"E", -7), Unusable, "E is at revision -7, which cannot be a fencing token; is its data damaged?"),
        (other_lease(&"E", 31), Unavailable, "E answered about another lease (1f) than it was asked for; is it etcd?"),
        (
            no_password(&"E", "; NESTED"),
            Denied,
            "E needs a password too: give both --user and --password-file, or DLOCK_USER and DLOCK_PASSWORD; NESTED",
        ),
        (unusable(&address, &broken, None, &"N"), Unavailable, "could not use h:1: broken"),
        (unusable(&address, &broken, Some("SAID"), &"N"), Denied, "N refused the TLS connection: SAID"),
        (no_leader(&address), Unavailable, "h:1 knows no leader: is a majority of etcd running?"),
        (learner(&address), Unavailable, "h:1 is a learner, which serves no locks"),
        (
            two_clusters(&address, &Address::Tcp("i".to_owned(), 2)),
            Unusable,
            "h:1 and i:2 belong to different clusters; name members of one cluster only",
        ),
        (no_member(&failed()), Unavailable, "one; two"),
        (no_member(&failed()[..1]), Unreachable, "one"),
        (silence(&"M"), Unavailable, "the etcd member M does not answer"),
        (too_short_lived(&"k"), Unavailable, "the lease or key of k ends faster than it can be used"),
        (taken_away("k"), Unavailable, "the key k was deleted or made again by somebody else"),
        (no_watch(), Unavailable, "etcd ended a watch before it began"),
        (nothing_to_renew(), Unavailable, "there is no lock to renew"),
        (
            too_many_keys("ns/k/"),
            Unavailable,
            "too many keys of other locks are below ns/k/: choose a --namespace that no other one begins with",
        ),
    ] {
        assert_eq!(told(&error), (kind, text.to_owned()));
    }
}
