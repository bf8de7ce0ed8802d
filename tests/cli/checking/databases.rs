//! What can be wrong with databases.

use crate::cli::checking::{Found, assert_untouched, check_at};
use crate::services::postgres::poolers::Pooler;
use crate::support::database_services::{MysqlService, MysqlTlsService, PostgresService, PostgresTlsService};
use crate::support::mysql::Mysql;
use crate::support::postgres::Postgres;
use crate::support::rendezvous::eventually;
use crate::support::service::Service;

#[test]
fn a_postgres_that_loses_locks_is_told() {
    let service = PostgresService::on(Postgres::with(&["fsync=off", "max_connections=20"]));
    let found = |url: &str, code| Found::at(service.scratch(), url, &[], code);
    let others: Vec<_> = (0..16).map(|_| service.client()).collect();
    let loose = found(&service.url(), 0);
    loose
        .has("warn", "persistence", "fsync is off")
        .has("warn", "connections", " of 20 in use")
        .has("ok", "pooler", "none");
    assert!(loose.of("table").iter().all(|(said, _)| *said == "ok"), "said once: {:#}", loose.0);
    drop(others);
    let strict = PostgresService::on(Postgres::with(&["fsync=on"]));
    strict.sql("ALTER ROLE postgres SET synchronous_commit = off");
    let standby = Postgres::standby_of(&strict);
    let url = |ports: &[u16]| {
        let places: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("postgres://postgres@{}/postgres", places.join(","))
    };
    eventually("the standby to follow", || {
        (strict.count("SELECT count(*) FROM pg_stat_replication") == 1).then_some(())
    });
    let alone = found(&url(&[strict.port()]), 0);
    alone.has("ok", "persistence", "synchronous_commit is off, and dlock sets it to on");
    alone.has("warn", "replicas", "1 standby server that no grant waits for");
    found(&url(&[standby.port()]), 69).has("fail", "role", "it is a standby, or read-only").has("skip", "lock", "");
    let both = found(&url(&[standby.port(), strict.port()]), 0);
    both.has("ok", "role", "it is a standby").has("ok", "role", "it takes writes").has("ok", "lock", "taken");
    standby.kill();
    found(&url(&[standby.port(), strict.port()]), 0).has("warn", "reach", "connection refused");
}

#[test]
fn a_pooler_that_swallows_notifications_is_told() {
    let service = PostgresService::fresh();
    for (mode, result) in [("transaction", "warn"), ("session", "ok")] {
        let pooler = Pooler::before(&service, mode);
        let found = Found::at(service.scratch(), &pooler.url(), &[], 0);
        found.has("ok", "lock", "taken");
        // Whether it is another connection is up to the pooler.
        assert!(mode == "transaction" || found.of("pooler").iter().all(|(said, _)| *said == result || *said == "warn"));
        if mode == "transaction" {
            found.has("warn", "pooler", "gives each transaction another connection");
        }
    }
}

/// The rows of locks are deleted by nobody, and so most roles cannot: then one row stays, which the next check uses again.
#[test]
fn a_role_without_the_right_to_delete_leaves_one_row_for_all_checks() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("CREATE ROLE app LOGIN");
    service.sql("GRANT SELECT, INSERT, UPDATE ON shedlock, dlock_holder TO app");
    service.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON dlock_queue, dlock_member TO app");
    service.sql("GRANT SELECT, INSERT, UPDATE ON dlock_once TO app");
    service.ask_for("trust");
    let rows = || service.sql("SELECT name FROM shedlock WHERE name LIKE 'dlock:dlock-check-%'");
    let found = |user: &str, code| Found::at(service.scratch(), &service.url_for(user, ""), &[], code);
    found("app", 0).has("ok", "lock", "taken").has("ok", "identity", "user app");
    let first = rows();
    assert_eq!(first.len(), 1);
    found("app", 0);
    assert_eq!(rows(), first);
    found("postgres", 0);
    assert_eq!(rows().len(), 0, "who may delete it does");
    service.sql("REVOKE UPDATE ON shedlock FROM app");
    found("app", 77).has("fail", "lock", "");
    service.ask_for("scram-sha-256");
    let refused = Found::at(service.scratch(), &service.url_for("app", "wrong"), &[], 77);
    refused.has("fail", "identity", "").has("ok", "reach", "connected in");
}

#[test]
fn a_mysql_that_loses_locks_is_told() {
    let service = MysqlService::on(Mysql::with(&["innodb_flush_log_at_trx_commit=2"]));
    let found = |code| Found::at(service.scratch(), &service.url(), &[], code);
    found(0).has("warn", "persistence", "innodb_flush_log_at_trx_commit is 2").has("ok", "replicas", "none");
    assert_untouched(&service);
    service.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    found(0).has("ok", "persistence", "is 1").has("ok", "connections", "in use");
    service.sql("SET GLOBAL read_only = 1");
    found(69).has("fail", "role", "it is a standby, or read-only").has("skip", "lock", "");
}

#[test]
fn certificates_of_databases_are_looked_at() {
    fn on<S: Service>(service: &S) {
        let check = check_at(service.scratch(), &service.url(), &[]).args(service.options());
        Found::by(check, 0).has("warn", "tls", "the certificate ends on ").has("ok", "lock", "taken");
        // Nobody is trusted who signed it.
        Found::at(service.scratch(), &service.url(), &[], 69).has("fail", "tls", "not signed by an authority");
    }
    on(&PostgresTlsService::fresh());
    on(&MysqlTlsService::fresh());
}
