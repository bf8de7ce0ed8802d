//! Tests of the support for etcd, ZooKeeper and certificates. They need no working dlock.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::certificates::{Certificates, ClientCertificate, Identity, Tls};
use crate::support::daemon::need;
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::process::{self, State};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{
    EtcdClusterService, EtcdTlsService, Service, ZooKeeperEnsembleService, ZooKeeperTlsService,
};
use crate::support::zookeeper::{Acl, Client, Error, Kind, NO_AUTH, NO_NODE, ZooKeeper, ZooKeeperOptions};

/// What `openssl` says about a server's certificate in a handshake, as a client that trusts this authority and expects
/// this name: the code and text of its verdict, and whether the server accepted.
fn handshake(port: u16, ca: &Path, host: &str, client: Option<(&Certificates, Identity)>) -> (String, bool) {
    let mut command = Command::new(need("openssl", "openssl"));
    command.args(["s_client", "-brief", "-verify_return_error", "-verify_hostname", host, "-servername", host]);
    // Under TLS 1.3 a client hears of its refusal only when it reads.
    command.arg("-tls1_2").arg("-connect").arg(format!("127.0.0.1:{port}")).arg("-CAfile").arg(ca);
    if let Some((files, identity)) = client {
        command.arg("-cert").arg(files.certificate(identity)).arg("-key").arg(files.key(identity));
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
}

#[track_caller]
fn assert_trusted(port: u16, ca: &Path, client: Option<(&Certificates, Identity)>) {
    let (words, accepted) = handshake(port, ca, "localhost", client);
    assert!(accepted && words.contains("Verification: OK"), "{words}");
}

#[track_caller]
fn assert_refused(port: u16, ca: &Path, client: Option<(&Certificates, Identity)>, why: &str) {
    let (words, accepted) = handshake(port, ca, "localhost", client);
    assert!(!accepted && words.contains(why), "{words}");
}

fn verify(ca: &Path, extra: &[&str], certificate: &Path) -> String {
    let mut command = Command::new(need("openssl", "openssl"));
    let output = command.arg("verify").args(extra).arg("-CAfile").arg(ca).arg(certificate).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn each_certificate_is_wrong_in_one_way_only() {
    let files = Certificates::new();
    let (ours, other) = (files.ca(), files.other_ca());
    let verdict = |ca: &Path, extra: &[&str], identity| verify(ca, extra, &files.certificate(identity));
    let as_server = ["-purpose", "sslserver", "-verify_ip", "127.0.0.1"];
    assert!(verdict(&ours, &as_server, Identity::Server).ends_with(": OK\n"));
    assert!(verdict(&ours, &["-verify_hostname", "localhost"], Identity::Server).ends_with(": OK\n"));
    assert!(verdict(&ours, &as_server, Identity::Expired).contains("certificate has expired"));
    assert!(verdict(&ours, &[&as_server[..], &["-no_check_time"]].concat(), Identity::Expired).ends_with(": OK\n"));
    assert!(verdict(&ours, &as_server, Identity::OtherHost).contains("IP address mismatch"));
    assert!(verdict(&ours, &["-verify_hostname", "elsewhere.example"], Identity::OtherHost).ends_with(": OK\n"));
    assert!(verdict(&ours, &as_server, Identity::Stranger).contains("unable to get local issuer certificate"));
    assert!(verdict(&other, &as_server, Identity::Stranger).ends_with(": OK\n"));
    assert!(verdict(&ours, &["-purpose", "sslclient"], Identity::Client).ends_with(": OK\n"));
    assert!(!verdict(&ours, &as_server, Identity::Client).ends_with(": OK\n"));
    assert!(!verdict(&ours, &["-purpose", "sslclient"], Identity::ClientOfStranger).ends_with(": OK\n"));
}

#[test]
fn certificates_are_made_once_and_go_with_their_directory() {
    let (first, second) = (Certificates::new(), Certificates::new());
    let bytes = |files: &Certificates| std::fs::read(files.key(Identity::Server)).unwrap();
    assert_eq!(bytes(&first), bytes(&second));
    assert_ne!(first.ca(), second.ca());
    let path = first.ca();
    assert!(path.exists());
    drop(first);
    assert!(!path.exists());
}

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

#[test]
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
#[should_panic(expected = "zookeeper ended at once")]
fn a_zookeeper_that_cannot_start_says_why() {
    ZooKeeper::with(ZooKeeperOptions { lines: vec!["tickTime=nonsense".into()], ..ZooKeeperOptions::single() });
}

#[test]
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

#[test]
fn services_see_holders_waiters_and_what_is_left() {
    let etcd = EtcdClusterService::fresh();
    assert_eq!((etcd.queued("job"), etcd.litter(&["job"])), (0, vec![]));
    let lease = etcd.etcd.grant(60);
    etcd.etcd.put("dlock/job/1", "", lease);
    etcd.etcd.put("dlock/job2/1", "", 0);
    assert_eq!((etcd.queued("job"), etcd.litter(&["job"]).len()), (0, 3));
    etcd.etcd.put("dlock/job/2", "", 0);
    assert_eq!((etcd.queued("job"), etcd.options()), (1, vec![]));

    let zookeeper = ZooKeeperEnsembleService::fresh();
    assert_eq!((zookeeper.queued("job"), zookeeper.litter(&["job"])), (0, vec![]));
    for path in ["/dlock", "/dlock/job", "/dlock/job2"] {
        zookeeper.zookeeper.create(path, "");
    }
    let port = zookeeper.zookeeper.server(0).port();
    let contender = |key: &str| {
        let mut client = Client::connect(port, Duration::from_secs(10)).unwrap();
        for name in ["_c_x-lock-", "f__lock__"] {
            let path = format!("/dlock/{key}/{name}");
            client.create(&path, "", Kind::EphemeralSequential, Acl::Open).unwrap();
        }
        client
    };
    let (_holder, _other, waiter) = (contender("job"), contender("job2"), contender("job"));
    zookeeper.wait_queued("job", 1);
    // Three parents, six nodes, three sessions.
    assert_eq!(zookeeper.litter(&["job"]).len(), 12);
    waiter.close().unwrap();
    zookeeper.wait_queued("job", 0);

    let (etcd, zookeeper) = (EtcdTlsService::fresh(), ZooKeeperTlsService::fresh());
    assert_eq!(etcd.options(), ["--tls-ca".into(), etcd.etcd.certificates().ca().into_os_string()]);
    assert_eq!(zookeeper.options(), ["--tls-ca".into(), zookeeper.zookeeper.certificates().ca().into_os_string()]);
    assert!(etcd.url().starts_with("etcds://") && zookeeper.url().starts_with("zks://"));
    assert_trusted(etcd.etcd.member(0).port(), &etcd.etcd.certificates().ca(), None);
    assert_trusted(zookeeper.zookeeper.server(0).secure_port(), &zookeeper.zookeeper.certificates().ca(), None);
}
