//! What can be wrong with etcd and ZooKeeper.

use crate::cli::checking::{Found, assert_untouched, check_at};
use crate::support::certificates::{ClientCertificate, Identity, Tls};
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::rendezvous::eventually;
use crate::support::service::{
    EtcdClusterService, EtcdService, EtcdTlsService, Service, ZooKeeperEnsembleService, ZooKeeperService,
};
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

#[test]
fn an_etcd_alone_and_its_leases() {
    let service = EtcdService::on(Etcd::with(EtcdOptions { election: 1000, heartbeat: 100, ..EtcdOptions::single() }));
    let found = Found::at(service.scratch(), &service.url(), &["-t", "1s"], 0);
    found.has("warn", "cluster", "only one member: if it is down").has(
        "warn",
        "lease",
        "2s is granted where --ttl asks for 1s",
    );
    if !service.etcd.etcdctl(&["version"]).contains("3.4.3") {
        found.has("warn", "version", "can revoke a renewed lease");
    }
    Found::at(service.scratch(), &service.url(), &[], 0).has("ok", "lease", "30s as asked for");
    assert_untouched(&service);
    // A user with no more rights than for locks.
    service.etcd.guard("worker", "hush", "dlock/");
    let url = |login: &str| service.url().replace("etcd://", &format!("etcd://{login}@"));
    let found = |login: &str, code| Found::at(service.scratch(), &url(login), &[], code);
    found("worker:hush", 0)
        .has("ok", "identity", "user worker")
        .has("warn", "cluster", "only one member")
        .has("ok", "lease", "");
    let nobody = Found::at(service.scratch(), &service.url(), &[], 77);
    nobody.has("fail", "identity", "no password was given").has("skip", "lock", "because of what failed above");
    found("worker:wrong", 77).has("fail", "identity", "refused the credentials").has("ok", "reach", "connected in");
    assert_untouched(&service);
}

#[test]
fn a_full_etcd_takes_no_locks() {
    let args = vec!["--quota-backend-bytes".into(), "300000".into()];
    let service = EtcdService::on(Etcd::with(EtcdOptions { args, ..EtcdOptions::single() }));
    eventually("no space to be left", || {
        let mut put = service.etcd.etcdctl_command();
        let output = put.args(["put", "ballast", &"x".repeat(100_000)]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("space exceeded").then_some(())
    });
    let found = Found::at(service.scratch(), &service.url(), &[], 69);
    found.has("fail", "cluster", "alarm NOSPACE").has("fail", "lock", "space");
}

#[test]
fn an_etcd_without_a_leader_serves_nobody() {
    let service = EtcdClusterService::fresh();
    let found = |code| Found::at(service.scratch(), &service.url(), &[], code);
    found(0).has("ok", "cluster", "3 members, of which 1 may be away");
    service.etcd.member((service.etcd.leader() + 1) % 3).kill();
    found(0).has("warn", "reach", "connection refused").has("ok", "lock", "taken");
    service.etcd.member(service.etcd.leader()).kill();
    let last = service.etcd.members().iter().find(|member| member.has_started()).unwrap();
    let mut status = || {
        let url = format!("etcd://127.0.0.1:{}", last.port());
        let found = check_at(service.scratch(), &url, &["--json"]).output();
        let _ = (found.stderr(), found.code(69));
        found.stdout().contains("it knows no leader").then_some(())
    };
    eventually("the last one to know that it has no leader", &mut status);
}

#[test]
fn a_certificate_of_etcd_is_looked_at() {
    let service = EtcdTlsService::fresh();
    let check = check_at(service.scratch(), &service.url(), &[]).args(service.options());
    Found::by(check, 0).has("warn", "tls", "the certificate ends on ").has("ok", "lock", "taken");
}

/// What a server tells those who say who they are by a certificate is no refusal.
#[test]
fn a_certificate_may_say_who_the_user_of_an_etcd_is() {
    let tls = Tls { clients: ClientCertificate::Needed, ..Tls::default() };
    let service = EtcdService::on(Etcd::with(EtcdOptions { tls: Some(tls), ..EtcdOptions::single() }));
    service.etcd.guard("dlock-client", "hush", "dlock/");
    let certificates = service.etcd.certificates();
    let check = check_at(service.scratch(), &service.url(), &[]).arg("--tls-ca").arg(certificates.ca());
    let check = check.arg("--tls-cert").arg(certificates.certificate(Identity::Client));
    let check = check.arg("--tls-key").arg(certificates.key(Identity::Client));
    Found::by(check, 0).has("ok", "identity", "").has("ok", "lock", "taken");
}

#[test]
fn a_zookeeper_alone_and_its_sessions() {
    let options = ZooKeeperOptions { max_session: 10_000, ..ZooKeeperOptions::single() };
    let service = ZooKeeperService::on(ZooKeeper::with(options));
    let found = Found::at(service.scratch(), &service.url(), &[], 0);
    found.has("warn", "cluster", "standalone").has("warn", "lease", "10s is granted where --ttl asks for 30s");
    assert!(found.of("version")[0].1.starts_with("ZooKeeper 3."), "{:#}", found.0);
    Found::at(service.scratch(), &service.url(), &["-t", "8s"], 0).has("ok", "lease", "8s as asked for");
    assert_untouched(&service);
}

#[test]
fn a_namespace_at_zookeeper_that_is_nobodys_or_everybodys_is_told() {
    let service = ZooKeeperService::fresh();
    let check = || {
        let check = check_at(service.scratch(), &service.url(), &["--user", "alice"]);
        Found::by(check.env("DLOCK_PASSWORD", "secret"), 0)
    };
    check()
        .has("warn", "identity", "/dlock is not there: whoever takes the first lock owns it")
        .has("ok", "lock", "taken");
    assert!(service.zookeeper.tree().is_empty());
    let run = service.run("job").args(["--user", "alice"]).env("DLOCK_PASSWORD", "secret");
    run.command(["true"]).output().success();
    assert!(check().of("identity").iter().all(|(result, _)| *result == "ok"));
    let open = ZooKeeperService::fresh();
    open.zookeeper.create("/dlock", "");
    let check = check_at(open.scratch(), &open.url(), &["--user", "alice"]).env("DLOCK_PASSWORD", "secret");
    Found::by(check, 0).has("warn", "identity", "/dlock is open to everybody");
}

#[test]
fn an_ensemble_of_zookeepers_needs_a_majority() {
    let service = ZooKeeperEnsembleService::fresh();
    let found = |code| Found::at(service.scratch(), &service.url(), &[], code);
    let whole = found(0);
    whole.has("ok", "cluster", "3 members, of which 1 may be away").has("ok", "cluster", "leader");
    let leader = service.zookeeper.leader();
    service.zookeeper.server((leader + 1) % 3).kill();
    found(0).has("warn", "reach", "connection refused").has("ok", "lock", "taken");
    service.zookeeper.server(leader).kill();
    let mut serves_nobody = || {
        let found = check_at(service.scratch(), &service.url(), &["--json"]).output();
        let _ = (found.stderr(), found.code(69));
        found.stdout().contains("it does not serve: it has no leader").then_some(())
    };
    eventually("the last one to serve nobody", &mut serves_nobody);
}
