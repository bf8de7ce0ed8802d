//! Transactions of others, of clients that are gone, and with settings of their own.

use nix::sys::signal::Signal;

use crate::support::database_services::PostgresService;
use crate::support::databases::Session;
use crate::support::process;
use crate::support::rendezvous::eventually;
use crate::support::service::Service;
use crate::support::witness::{Witness, read_counter};

#[test]
fn a_role_with_serializable_transactions_has_no_errors() {
    const CONTENDERS: u64 = 20;
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("ALTER ROLE postgres SET default_transaction_isolation = serializable");
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let contend = |_| service.run("job").command(witness.counter_command(&counter)).spawn();
    let all: Vec<_> = (0..CONTENDERS).map(contend).collect();
    for dlock in all {
        let outcome = dlock.wait();
        assert!(!outcome.code(0).stderr().contains("40001"), "{outcome:?}");
    }
    witness.check();
    assert_eq!(read_counter(&counter), CONTENDERS);
}

#[test]
fn what_a_killed_client_had_asked_for_is_not_granted_later() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    let mut other = service.client();
    other.query("BEGIN; SELECT FROM shedlock FOR UPDATE").unwrap();
    let dlock = service.run("job").arg("-q").command(["true"]).spawn();
    eventually("the attempt to wait for the row", || (service.blocked() == 1).then_some(()));
    process::signal(dlock.pid(), Signal::SIGKILL);
    dlock.wait().signal(Signal::SIGKILL);
    // The server gives up what nobody waits for any more, before the row is free: another attempt too, which may have been
    // on its way.
    eventually("all attempts to be given up", || service.connections().is_empty().then_some(()));
    other.query("ROLLBACK").unwrap();
    service.assert_free("job");
}

#[test]
fn a_command_that_needs_the_end_of_old_snapshots_is_not_kept_by_waiters() {
    let service = PostgresService::fresh();
    let holder = service.hold("job");
    let _waiters = [(); 3].map(|()| service.queue_up("job", &["-q"]));
    let mut other = service.client();
    other.query("CREATE TABLE t (a int)").unwrap();
    other.query("CREATE INDEX CONCURRENTLY ON t (a)").expect("it ends in time");
    other.query("VACUUM FULL dlock_holder").unwrap();
    holder.let_go().success();
}
