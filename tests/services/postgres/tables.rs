//! What is said of tables that would not keep locks, or whose times are rounded.

use nix::sys::signal::Signal;

use crate::services::databases::tables::refused_and_mended;
use crate::support::database_services::PostgresService;
use crate::support::databases::Session;
use crate::support::rendezvous::eventually;
use crate::support::service::Service;
use crate::support::tree::Tree;

#[test]
fn a_table_that_would_not_keep_locks_is_refused_with_what_mends_it() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    for (change, what) in [
        (
            "ALTER TABLE shedlock ALTER COLUMN lock_until TYPE timestamptz",
            "lock_until of public.shedlock is a timestamp with time zone",
        ),
        ("ALTER TABLE shedlock SET UNLOGGED", "does not survive a crash"),
    ] {
        service.sql(change);
        refused_and_mended(&service, &[], what);
    }
}

#[test]
fn a_table_of_several_holders_that_would_not_keep_them_is_refused_with_what_mends_it() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    for (options, change, what) in [
        (
            &["-s"][..],
            "ALTER TABLE dlock_member SET UNLOGGED",
            "the table public.dlock_member does not survive a crash",
        ),
        (
            &["--once-per", "1h"],
            "ALTER TABLE dlock_once SET UNLOGGED",
            "the table public.dlock_once does not survive a crash",
        ),
        (
            &["--slots", "2"],
            "ALTER TABLE dlock_member ALTER COLUMN until TYPE timestamptz",
            "the column until of \"public\".\"dlock_member\" is a timestamp with time zone",
        ),
    ] {
        service.sql(change);
        // A lock that one holds alone needs none of them.
        service.run("job").command(["true"]).output().success();
        refused_and_mended(&service, options, what);
    }
}

#[test]
fn a_success_that_could_not_be_recorded_is_not_begun() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("CREATE ROLE app LOGIN");
    service.sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO app");
    service.sql("REVOKE INSERT ON dlock_once FROM app");
    let run = || service.scratch().dlock().run("job").backend(service.url_for("app", ""));
    let refused = run().args(["--once-per", "1h"]).command(["echo", "ran"]).output();
    refused
        .code(77)
        .stdout_is("")
        .stderr_is_one_line("lacks the right to INSERT and UPDATE in the table public.dlock_once");
    run().command(["true"]).output().success();
}

/// On a slow disk that takes longer than a request may.
#[test]
fn tables_are_made_in_the_time_that_connecting_may_take() {
    let service = PostgresService::fresh();
    let mut other = service.client();
    other.query("BEGIN; CREATE TABLE shedlock (name varchar(64))").unwrap();
    let running = service.run("job").args(["--connect-timeout", "1m"]).command(["echo", "ran"]).spawn();
    let blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND age(now(), query_start) > '4 s'";
    eventually("a request that is older than others may be", || (!service.sql(blocked).is_empty()).then_some(()));
    other.query("ROLLBACK").unwrap();
    running.wait().success().stdout_is("ran\n");
}

/// The server rounds the end of the lease down, by up to half a second.
#[test]
fn a_column_that_rounds_shortens_the_lease() {
    let service = PostgresService::fresh();
    service.sql(
        "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp(0) NOT NULL, \
         locked_at timestamp(0) NOT NULL, locked_by varchar(255) NOT NULL)",
    );
    service.run("job").command(["true"]).output().success();
    let mut tree = Tree::new(service.scratch());
    // At two fifths of a second.
    service.sql("SELECT pg_sleep(1.35 - extract(epoch FROM clock_timestamp())::numeric % 1)");
    let dlock = service.run("job").args(["-t", "1s"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    dlock.signal(Signal::SIGSTOP);
    let ends = service.expiry("dlock:job");
    let died = tree.died_at();
    assert!(died < ends, "the last process died {:?} after its lease", died.saturating_sub(ends));
    dlock.signal(Signal::SIGKILL);
    dlock.wait().signal(Signal::SIGKILL).stderr();
}
