//! etcd servers, and what the test sees of them.

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::certificates::{ClientCertificate, Identity, Tls};
use crate::support::daemon::need;
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::process::{self, State};
use crate::support::rendezvous::boottime;

use super::{assert_refused, assert_trusted};

#[test]
fn an_etcd_shows_its_keys_and_leases() {
    let etcd = Etcd::start();
    assert_eq!(etcd.url(), format!("etcd://127.0.0.1:{}", etcd.member(0).port()));
    let uid = process::status(etcd.member(0).pid(), "Uid").unwrap();
    assert!(!process::is_root() || !uid.split_whitespace().any(|id| id == "0"), "etcd runs with user ids {uid}");
    assert_eq!(etcd.keys(""), []);
    let lease = etcd.grant(60);
    etcd.put("a/second", "", 0);
    etcd.put("a/first\u{1}", "wörld", lease);
    etcd.put("a/second", "{}", 0);
    etcd.put("b", "x", 0);
    let keys = etcd.keys("a/");
    let seen: Vec<_> = keys.iter().map(|entry| (&*entry.key, &*entry.value, entry.lease, entry.version)).collect();
    // In the order of their creation.
    assert_eq!(seen, [("a/second", "{}", 0, 2), ("a/first\u{1}", "wörld", lease, 1)]);
    assert!(keys[0].create_revision < keys[1].create_revision && keys[1].create_revision < keys[0].mod_revision);
    assert_eq!(etcd.get("b").unwrap().value, "x");
    assert_eq!(etcd.keys("").len(), 3);
    let leases = etcd.leases();
    assert_eq!(leases.len(), 1);
    assert_eq!((leases[0].id, leases[0].granted, &*leases[0].keys), (lease, 60, &["a/first\u{1}".to_owned()][..]));
    assert!((1..=60).contains(&leases[0].left));
    assert_eq!(etcd.etcdctl(&["get", "b", "--print-value-only"]), "x\n");
    etcd.revoke(lease);
    assert_eq!((etcd.get("a/first\u{1}"), etcd.leases()), (None, vec![]));
    assert!(etcd.delete("b") && !etcd.delete("b"));
}

#[test]
fn an_etcd_grants_short_leases_and_tells_of_their_end() {
    let etcd = Etcd::start();
    let lease = etcd.grant(1);
    assert_eq!(etcd.lease(lease).unwrap().granted, 1);
    let watch = etcd.watch("k");
    etcd.put("k", "v", lease);
    assert_eq!(watch.wait("the put", |event| event.value.as_deref() == Some("v")).key, "k");
    let (granted, gone) = (boottime(), watch.wait_deleted("k").at);
    assert!(gone > granted);
    assert_eq!((etcd.lease(lease), etcd.keys("")), (None, vec![]));
    let slow = Etcd::with(EtcdOptions { heartbeat: 100, election: 1000, ..EtcdOptions::single() });
    assert_eq!(slow.lease(slow.grant(1)).unwrap().granted, 2);
}

#[test]
fn a_compacted_etcd_has_forgotten() {
    let etcd = Etcd::start();
    etcd.put("k", "1", 0);
    let old = etcd.revision();
    etcd.put("k", "2", 0);
    assert_eq!(etcd.etcdctl(&["get", "k", "--print-value-only", &format!("--rev={old}")]), "1\n");
    etcd.compact();
    let refused = etcd.etcdctl_command().args(["get", "k", &format!("--rev={old}")]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("required revision has been compacted"), "{refused:?}");
}

#[test]
fn an_etcd_counts_what_others_ask() {
    let etcd = Etcd::start();
    etcd.put("ours", "1", 0);
    let count = etcd.count_requests();
    etcd.keys("");
    etcd.leases();
    assert_eq!(count.so_far(), BTreeMap::new());
    etcd.etcdctl(&["put", "theirs", "1"]);
    etcd.keys("");
    etcd.etcdctl(&["get", "theirs"]);
    let lease = etcd.grant(60);
    etcd.etcdctl(&["lease", "keep-alive", "--once", &format!("{lease:x}")]);
    let counts = [("Put", 1), ("Range", 1), ("LeaseKeepAlive", 1)];
    assert_eq!(count.so_far(), counts.map(|(method, count)| (method.to_owned(), count)).into());
    assert_eq!(count.without_heartbeats(), 2);
}

#[test]
fn an_etcd_can_be_frozen_killed_and_restarted_with_its_data() {
    let etcd = Etcd::start();
    let (port, first) = (etcd.member(0).port(), etcd.member(0).pid());
    let lease = etcd.grant(600);
    etcd.put("k", "v", lease);
    etcd.stop();
    assert_eq!(process::state(first), State::Stopped);
    assert!(!etcd.member(0).is_at_work());
    etcd.cont();
    assert_eq!(etcd.get("k").unwrap().value, "v");
    etcd.stop();
    etcd.kill();
    assert_eq!(process::state(first), State::Gone);
    // Also from a thread that ends: the server must not die with it.
    std::thread::scope(|scope| scope.spawn(|| etcd.restart()).join().unwrap());
    let entry = etcd.get("k").unwrap();
    assert_eq!((&*entry.value, entry.lease, etcd.member(0).port()), ("v", lease, port));
    let count = etcd.count_requests();
    etcd.etcdctl(&["get", "k"]);
    assert_eq!(count.without_heartbeats(), 1);
    let last = etcd.member(0).pid();
    drop(etcd);
    assert_eq!(process::state(last), State::Gone);
}

#[test]
#[should_panic(expected = "etcd ended at once")]
fn an_etcd_that_cannot_start_says_why() {
    Etcd::with(EtcdOptions { args: vec!["--nonsense".into()], ..EtcdOptions::single() });
}

#[test]
fn an_etcd_cluster_elects_another_leader() {
    let etcd = Etcd::cluster();
    let ports: Vec<String> = etcd.members().iter().map(|member| format!("127.0.0.1:{}", member.port())).collect();
    assert_eq!(etcd.url(), format!("etcd://{}", ports.join(",")));
    etcd.put("k", "1", 0);
    let first = etcd.leader();
    etcd.member(first).kill();
    let second = etcd.leader();
    assert_ne!(first, second);
    etcd.put("k", "2", 0);
    etcd.restart_member(first);
    // It has what it missed meanwhile.
    etcd.member(second).stop();
    let third = etcd.leader();
    assert_ne!(second, third);
    assert_eq!(etcd.get("k").unwrap().value, "2");
    etcd.member(second).cont();
    assert_eq!(etcd.etcdctl(&["endpoint", "health"]), "");
    let count = etcd.count_requests();
    etcd.etcdctl(&["put", "k", "3"]);
    assert_eq!(count.without_heartbeats(), 1);
}

#[test]
fn an_etcd_wants_names_and_passwords_when_told_to() {
    let etcd = Etcd::start();
    etcd.guard("ann", "se:cret", "dlock/");
    etcd.put("elsewhere", "1", 0);
    etcd.put("dlock/k", "1", 0);
    assert_eq!(etcd.keys("").len(), 2);
    let ask = |user: Option<&str>, key: &str| {
        let mut command = etcd.etcdctl_command();
        command.env_remove("ETCDCTL_USER").args(["get", key, "--print-value-only"]);
        let output =
            user.into_iter().fold(&mut command, |command, user| command.args(["--user", user])).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(ask(Some("ann:se:cret"), "dlock/k"), "1\n");
    assert!(ask(Some("ann:se:cret"), "elsewhere").contains("permission denied"));
    assert!(ask(Some("ann:wrong"), "dlock/k").contains("authentication failed"));
    assert!(ask(None, "dlock/k").contains("user name is empty"));
    etcd.restart();
    assert_eq!(etcd.get("dlock/k").unwrap().value, "1");
    assert!(etcd.leases().is_empty());
}

#[test]
fn an_etcd_speaks_tls_with_the_certificate_it_is_told_to_show() {
    let with =
        |server, clients| Etcd::with(EtcdOptions { tls: Some(Tls { server, clients }), ..EtcdOptions::single() });
    let etcd = with(Identity::Server, ClientCertificate::Ignored);
    let (files, port) = (etcd.certificates(), etcd.member(0).port());
    assert_eq!(etcd.url(), format!("etcds://127.0.0.1:{port}"));
    assert_trusted(port, &files.ca(), None);
    assert_refused(port, &files.other_ca(), None, "unable to get local issuer certificate");
    etcd.put("k", "v", 0);
    let mut real = Command::new(need("etcdctl", "etcd-client"));
    real.env("ETCDCTL_API", "3").arg(format!("--endpoints=https://127.0.0.1:{port}")).arg("--cacert").arg(files.ca());
    assert_eq!(real.args(["get", "k"]).output().unwrap().stdout, b"k\nv\n");

    let etcd = with(Identity::Expired, ClientCertificate::Ignored);
    assert_refused(etcd.member(0).port(), &etcd.certificates().ca(), None, "certificate has expired");
    let etcd = with(Identity::OtherHost, ClientCertificate::Ignored);
    assert_refused(etcd.member(0).port(), &etcd.certificates().ca(), None, "ostname mismatch");

    let etcd = with(Identity::Server, ClientCertificate::Needed);
    let (files, port) = (etcd.certificates(), etcd.member(0).port());
    assert_refused(port, &files.ca(), None, "alert");
    assert_refused(port, &files.ca(), Some((files, Identity::ClientOfStranger)), "alert");
    assert_trusted(port, &files.ca(), Some((files, Identity::Client)));
    etcd.put("k", "v", 0);
}
