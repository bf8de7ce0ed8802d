//! PostgreSQL servers, and what the test sees of them.

use crate::support::cluster::Cluster;
use crate::support::databases::Session;
use crate::support::postgres::{Client, Postgres};
use crate::support::process;

#[test]
fn a_postgres_answers_as_an_unprivileged_user_on_loopback_only() {
    let postgres = Postgres::start();
    assert_eq!(postgres.sql("SELECT 1, NULL, 'x'"), [["1", "NULL", "x"]]);
    assert_eq!(postgres.value("SHOW listen_addresses").as_deref(), Some("127.0.0.1"));
    assert_eq!(postgres.url(), format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port()));
    let uid = process::status(postgres.pid(), "Uid").unwrap();
    assert!(!uid.split_whitespace().any(|id| id == "0"), "it runs with user ids {uid}");
    assert!(postgres.try_sql("NONSENSE").unwrap_err().starts_with("42601 "));
    assert_eq!(postgres.litter(&[]), [""; 0]);
}

#[test]
fn a_killed_postgres_refuses_and_restarts_on_its_port_with_its_data() {
    let postgres = Postgres::start();
    let (port, first) = (postgres.port(), postgres.pid());
    postgres.sql("CREATE TABLE t AS SELECT 7 AS number");
    let children = process::children(first);
    assert!(!children.is_empty());
    postgres.freeze();
    // One may have come to its end before.
    let is_frozen = |&pid: &_| process::state(pid) == process::State::Stopped || !process::is_alive(pid);
    assert!(children.iter().all(is_frozen));
    postgres.kill();
    assert!(!children.iter().any(|&pid| process::is_alive(pid)));
    assert!(Client::connect(&postgres.socket()).is_none());
    postgres.launch();
    assert_eq!((postgres.port(), postgres.value("SELECT number FROM t").as_deref()), (port, Some("7")));
    assert_ne!(postgres.pid(), first);
}

#[test]
fn a_frozen_postgres_is_silent_until_it_goes_on() {
    let postgres = Postgres::start();
    postgres.freeze();
    assert!(!postgres.is_at_work());
    postgres.thaw();
    assert_eq!(postgres.value("SELECT 1").as_deref(), Some("1"));
}
