//! ZooKeeper servers, and what the test sees of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::certificates::{ClientCertificate, Identity, Tls};
use crate::support::process::{self, State};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::zookeeper::{Acl, Client, Error, Kind, NO_AUTH, NO_NODE, ZooKeeper, ZooKeeperOptions};

use super::{assert_refused, assert_trusted};

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_shows_its_nodes_and_sessions() {
    let zookeeper = ZooKeeper::start();
    let server = zookeeper.server(0);
    assert_eq!(zookeeper.url(), format!("zk://127.0.0.1:{}", server.port()));
    let uid = process::status(server.pid(), "Uid").unwrap();
    assert!(!process::is_root() || !uid.split_whitespace().any(|id| id == "0"), "zookeeper runs with user ids {uid}");
    assert_eq!((zookeeper.tree(), zookeeper.sessions().len()), (vec![], 0));
    zookeeper.create("/a", "wörld");
    assert!(zookeeper.set("/a", "2") && !zookeeper.set("/b", ""));
    let mut other = Client::connect(server.port(), Duration::from_secs(10)).unwrap();
    let made = other.create("/a/lock-", "mine", Kind::EphemeralSequential, Acl::Open).unwrap();
    assert_eq!(made, "/a/lock-0000000000");
    assert_eq!(zookeeper.tree(), ["/a", "/a/lock-0000000000"]);
    assert_eq!(zookeeper.children("/a").unwrap(), ["lock-0000000000"]);
    assert_eq!(zookeeper.children("/b"), None);
    let (parent, node) = (zookeeper.get("/a").unwrap(), zookeeper.get(&made).unwrap());
    assert_eq!((&*parent.data, parent.version, parent.ephemeral_owner, parent.children), ("2", 1, 0, 1));
    assert_eq!((&*node.data, node.version, node.ephemeral_owner), ("mine", 0, other.session()));
    assert!(parent.czxid < parent.mzxid && parent.mzxid < node.czxid && node.czxid == node.mzxid);
    assert_eq!(zookeeper.sessions(), [other.session()].into());
    assert_eq!(zookeeper.ephemerals(), [(other.session(), [made.clone()].into())].into());
    assert_eq!(zookeeper.acl("/a").unwrap(), [(31, "world".to_owned(), "anyone".to_owned())]);
    let watch = zookeeper.watch(&made);
    let before = boottime();
    other.close().unwrap();
    assert!(watch.wait_deleted() > before);
    assert_eq!((zookeeper.get(&made), zookeeper.sessions().len()), (None, 0));
    assert!(zookeeper.delete("/a") && !zookeeper.delete("/a"));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_grants_long_and_short_sessions() {
    let zookeeper = ZooKeeper::start();
    let mut client = zookeeper.client();
    client.create("/ours", "", Kind::Ephemeral, Acl::Open).unwrap();
    let connections = zookeeper.server(0).four_letters("cons");
    assert!(connections.contains("to=60000"), "{connections}");
    let short = ZooKeeper::with(ZooKeeperOptions { max_session: 1000, ..ZooKeeperOptions::single() });
    let mut client = short.client();
    client.create("/ours", "", Kind::Ephemeral, Acl::Open).unwrap();
    // Nobody renews it.
    eventually("the end of a session of 1 s", || short.tree().is_empty().then_some(()));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_refuses_who_is_not_in_the_acl() {
    let zookeeper = ZooKeeper::start();
    let port = zookeeper.server(0).port();
    let login = |password: &str| {
        let mut client = Client::connect(port, Duration::from_secs(10)).unwrap();
        client.add_auth("ann", password).unwrap();
        client
    };
    let mut ann = login("se:cret");
    ann.create("/private", "x", Kind::Persistent, Acl::Mine).unwrap();
    let acl = zookeeper.acl("/private").unwrap();
    assert!(matches!(&acl[..], [(31, scheme, id)] if scheme == "digest" && id.starts_with("ann:")), "{acl:?}");
    let refused = login("wrong").create("/private/k", "", Kind::Persistent, Acl::Open);
    assert!(matches!(refused, Err(Error::Refused(NO_AUTH))), "{refused:?}");
    login("se:cret").create("/private/k", "", Kind::Persistent, Acl::Open).unwrap();
    // The test itself may do everything.
    assert_eq!(zookeeper.get("/private").unwrap().data, "x");
    assert!(zookeeper.delete("/private/k") && zookeeper.delete("/private"));
    let missing = ann.get("/private", false);
    assert!(matches!(missing, Err(Error::Refused(NO_NODE))), "{missing:?}");
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_counts_what_others_ask() {
    let zookeeper = ZooKeeper::ensemble();
    zookeeper.create("/a", "");
    let count = zookeeper.count_requests();
    zookeeper.tree();
    assert_eq!(count.so_far(), BTreeMap::new());
    let follower = (zookeeper.leader() + 1) % 3;
    let mut other = Client::connect(zookeeper.server(follower).port(), Duration::from_secs(10)).unwrap();
    other.create("/a/k", "", Kind::Ephemeral, Acl::Open).unwrap();
    other.children("/a").unwrap();
    other.children("/a").unwrap();
    let counts = [("createSession", 1), ("create", 1), ("getChildren2", 2)];
    assert_eq!(count.so_far(), counts.map(|(operation, count)| (operation.to_owned(), count)).into());
    assert_eq!(count.without_heartbeats(), 4);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_can_be_frozen_killed_and_restarted_with_its_data() {
    let zookeeper = ZooKeeper::start();
    let (port, first) = (zookeeper.server(0).port(), zookeeper.server(0).pid());
    zookeeper.create("/k", "v");
    zookeeper.stop();
    assert_eq!(process::state(first), State::Stopped);
    assert!(!zookeeper.server(0).is_at_work());
    zookeeper.cont();
    assert_eq!(zookeeper.get("/k").unwrap().data, "v");
    zookeeper.stop();
    zookeeper.kill();
    assert_eq!(process::state(first), State::Gone);
    std::thread::scope(|scope| scope.spawn(|| zookeeper.restart()).join().unwrap());
    assert_eq!(zookeeper.get("/k").unwrap().data, "v");
    assert_eq!(zookeeper.server(0).port(), port);
    let last = zookeeper.server(0).pid();
    drop(zookeeper);
    assert_eq!(process::state(last), State::Gone);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
#[should_panic(expected = "zookeeper ended at once")]
fn a_zookeeper_that_cannot_start_says_why() {
    ZooKeeper::with(ZooKeeperOptions { lines: vec!["tickTime=nonsense".into()], ..ZooKeeperOptions::single() });
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_ensemble_elects_another_leader() {
    let zookeeper = ZooKeeper::ensemble();
    zookeeper.create("/k", "1");
    let first = zookeeper.leader();
    zookeeper.server(first).kill();
    let second = zookeeper.leader();
    assert_ne!(first, second);
    assert!(zookeeper.set("/k", "2"));
    zookeeper.restart_server(first);
    zookeeper.server(second).stop();
    let third = zookeeper.leader();
    assert_ne!(second, third);
    assert_eq!(zookeeper.get("/k").unwrap().data, "2");
    zookeeper.server(second).cont();
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_follower_that_is_cut_off_still_shows_what_is_gone() {
    let zookeeper = ZooKeeper::with(ZooKeeperOptions { cuttable: true, ..ZooKeeperOptions::ensemble() });
    let leader = zookeeper.leader();
    let follower = (leader + 1) % 3;
    let connect = |index: usize| Client::connect(zookeeper.server(index).port(), Duration::from_secs(10)).unwrap();
    let (mut at_leader, mut at_follower) = (connect(leader), connect(follower));
    at_leader.create("/k", "", Kind::Persistent, Acl::Open).unwrap();
    at_follower.sync("/k").unwrap();
    at_follower.get("/k", false).unwrap();
    zookeeper.cut_off(follower);
    at_leader.delete("/k").unwrap();
    at_follower.get("/k", false).unwrap();
    // In the end it notices that it hears nothing, and drops its clients.
    eventually("the follower to give up", || at_follower.get("/k", false).is_err().then_some(()));
    assert_eq!(zookeeper.leader(), leader);
    zookeeper.heal(follower);
    let gone = |index| {
        matches!(
            Client::connect(zookeeper.server(index).port(), Duration::from_secs(1))
                .and_then(|mut client| client.get("/k", false)),
            Err(Error::Refused(NO_NODE))
        )
    };
    eventually("the follower to come back", || gone(follower).then_some(()));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_speaks_tls_with_the_certificate_it_is_told_to_show() {
    let with = |server, clients| {
        ZooKeeper::with(ZooKeeperOptions { tls: Some(Tls { server, clients }), ..ZooKeeperOptions::single() })
    };
    let zookeeper = with(Identity::Server, ClientCertificate::Wanted);
    let (files, port) = (zookeeper.certificates(), zookeeper.server(0).secure_port());
    assert_eq!(zookeeper.url(), format!("zks://127.0.0.1:{port}"));
    assert_trusted(port, &files.ca(), None);
    assert_trusted(port, &files.ca(), Some((files, Identity::Client)));
    assert_refused(port, &files.other_ca(), None, "unable to get local issuer certificate");
    zookeeper.create("/k", "v");

    let zookeeper = with(Identity::Expired, ClientCertificate::Ignored);
    assert_refused(zookeeper.server(0).secure_port(), &zookeeper.certificates().ca(), None, "certificate has expired");

    let zookeeper = with(Identity::Server, ClientCertificate::Needed);
    let (files, port) = (zookeeper.certificates(), zookeeper.server(0).secure_port());
    assert_refused(port, &files.ca(), None, "alert");
    assert_refused(port, &files.ca(), Some((files, Identity::ClientOfStranger)), "alert");
    assert_trusted(port, &files.ca(), Some((files, Identity::Client)));
}
