//! Tests of the support for etcd, ZooKeeper and certificates. They need no working dlock.

mod etcd;
mod postgres;
mod redis;
mod zookeeper;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::certificates::{Certificates, Identity};
use crate::support::daemon::need;
use crate::support::databases::Server;
use crate::support::etcd::Etcd;
use crate::support::mysql::MariaDb;
use crate::support::pool::{Lent, Servers};
use crate::support::postgres::PostgreSql;
use crate::support::redis_sets::{RedisGroup, RedisReplicas, RedisSentinels};
use crate::support::servers::Redis;
use crate::support::service::{
    EtcdClusterService, EtcdTlsService, Service, ZooKeeperEnsembleService, ZooKeeperTlsService,
};
use crate::support::zookeeper::{Acl, Client, Kind, ZooKeeper};

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

/// Otherwise every test would start servers of its own, and nobody would know.
#[test]
fn servers_are_lent_to_one_test_after_the_other() {
    fn are_lent_again<S: Servers>(name: &'static str, start: impl FnOnce() -> S) {
        drop(Lent::by(name, start));
        drop(Lent::<S>::by(name, || panic!("{name}: they were not fit for a second test")));
    }
    are_lent_again("selftest: redis", Redis::start);
    are_lent_again("selftest: redlock", || RedisGroup::start(3));
    are_lent_again("selftest: replicas", || RedisReplicas::start(1));
    are_lent_again("selftest: sentinels", RedisSentinels::start);
    are_lent_again("selftest: etcd", Etcd::start);
    are_lent_again("selftest: zookeeper", ZooKeeper::start);
    are_lent_again("selftest: postgres", Server::<PostgreSql>::start);
    are_lent_again("selftest: mysql", Server::<MariaDb>::start);
}
