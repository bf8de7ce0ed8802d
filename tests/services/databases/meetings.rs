//! What latches and barriers remember is in a table of their own: who makes it, and what becomes of rows that nobody wants.

use nix::sys::signal::Signal;

use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Session};
use crate::support::dlock::Dlock;
use crate::support::rendezvous::eventually;
use crate::support::service::Service;

use super::on_databases;

on_databases! {
    tables_of_an_older_version_are_enough_for_locks
    names_that_some_databases_take_for_one_count_apart
    parties_that_come_at_once_all_count
    one_that_gives_up_while_it_comes_leaves_nothing
    a_party_that_died_before_the_clock_was_set_back_does_not_count
    what_ended_long_ago_goes_with_a_later_change
    a_table_that_would_not_keep_it_is_refused_with_what_mends_it
}

fn latch<E: Engine>(service: &DatabaseService<E>, rest: &[&str]) -> Dlock {
    service.scratch().dlock().args(["latch", "--key", "k"]).args(rest).backend(service.url())
}

fn party<E: Engine>(service: &DatabaseService<E>, name: &str) -> Dlock {
    let barrier = service.scratch().dlock().args(["barrier", "--key", "k", "--parties", "3", "--as", name]);
    barrier.backend(service.url())
}

/// Comes and goes, which makes the table: a busy server may take longer for that than a party without a wait does.
fn make_table<E: Engine>(service: &DatabaseService<E>) {
    eventually("the table to be made", || {
        let code = party(service, "a").args(["-w", "0", "-q"]).output().status().code();
        (code == Some(75)).then_some(())
    });
}

fn rows<E: Engine>(service: &DatabaseService<E>) -> usize {
    service.count("SELECT count(*) FROM dlock_record WHERE record <> ''")
}

fn tables_of_an_older_version_are_enough_for_locks<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let run = || service.run("job").args(["--once-per", "1s"]).command(["true"]).output();
    run().success();
    service.sql("DROP TABLE dlock_record");
    std::thread::sleep(std::time::Duration::from_secs(1));
    run().success();
    assert!(!service.has("dlock_record"));
    latch(&service, &["down", "--as", "a"]).output().success();
    latch(&service, &["wait", "--count", "1"]).output().success();
    // A waiter may be the first to miss it.
    service.sql("DROP TABLE dlock_record");
    let waiter = latch(&service, &["wait", "--count", "1"]).spawn();
    waiter.wait_stderr("waiting for latch 'k'");
    latch(&service, &["down", "--as", "a"]).output().success();
    waiter.wait().code(0).stderr_is_one_line("waiting for latch 'k'");
}

fn names_that_some_databases_take_for_one_count_apart<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let names = ["a", "A", "a ", "\u{e4}", "a'b\\", "{now}", &"\u{1f512}".repeat(32)];
    for name in names {
        latch(&service, &["down", "--as", name]).output().success();
    }
    latch(&service, &["wait", "--count", "7", "-w", "0"]).output().success();
    let more = latch(&service, &["wait", "--count", "8", "-w", "0"]).output();
    more.code(75).stderr_is_one_line("latch 'k' is not open: 7 of 8 are done (");
}

/// Their arrivals wait for each other at the server.
fn parties_that_come_at_once_all_count<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    make_table(&service);
    let mut other = service.client();
    other.query("BEGIN; SELECT 1 FROM dlock_record WHERE record = '' FOR UPDATE").unwrap();
    let parties = ["a", "b", "c"].map(|name| party(&service, name).arg("-q").spawn());
    eventually("all to come", || (service.blocked() == 3).then_some(()));
    other.query("ROLLBACK").unwrap();
    for party in parties {
        party.wait().success();
    }
    service.assert_tidy(&[]);
}

fn one_that_gives_up_while_it_comes_leaves_nothing<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    make_table(&service);
    let mut other = service.client();
    other.query("BEGIN; SELECT 1 FROM dlock_record WHERE record = '' FOR UPDATE").unwrap();
    let party = party(&service, "b").arg("-q").spawn();
    eventually("its arrival", || (service.blocked() == 1).then_some(()));
    party.signal(Signal::SIGTERM);
    std::thread::sleep(std::time::Duration::from_millis(100));
    other.query("ROLLBACK").unwrap();
    party.wait().signal(Signal::SIGTERM).quiet();
    service.assert_tidy(&[]);
}

fn a_party_that_died_before_the_clock_was_set_back_does_not_count<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let begin = |name: &str, there: usize| {
        let party = party(&service, name).args(["--ttl", "3s"]).spawn();
        party.wait_stderr(&format!("waiting for barrier 'k': {there} of 3 "));
        party
    };
    let (one, dead) = (begin("a", 1), begin("b", 2));
    dead.signal(Signal::SIGKILL);
    let _ = dead.wait().signal(Signal::SIGKILL).stderr();
    service.sql("UPDATE dlock_record SET until = :later");
    one.wait().code(79).stderr_ends_with_line("barrier 'k' is broken: b left or died");
}

fn what_ended_long_ago_goes_with_a_later_change<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    for name in ["a", "b", "c"] {
        latch(&service, &["down", "--as", name]).output().success();
    }
    service.sql("UPDATE dlock_record SET until = :now - INTERVAL '2' MINUTE WHERE record <> 'nc.'");
    assert_eq!(rows(&service), 3);
    let other = service.scratch().dlock().args(["latch", "--key", "other", "down", "--as", "a"]);
    other.backend(service.url()).output().success();
    assert_eq!(rows(&service), 2);
    latch(&service, &["wait", "--count", "1", "-w", "0"]).output().success();
}

fn a_table_that_would_not_keep_it_is_refused_with_what_mends_it<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    latch(&service, &["down", "--as", "a"]).output().success();
    let (change, what) = match E::KIND {
        "postgres" => ("SET UNLOGGED", "the table public.dlock_record does not survive a crash of the server"),
        _ => ("ENGINE=MyISAM", "has an engine without transactions"),
    };
    service.sql(&format!("ALTER TABLE dlock_record {change}"));
    let refused = latch(&service, &["down", "--as", "b"]).output();
    refused.code(69).stderr_is_one_line(what);
    let told = refused.stderr();
    let (_, remedy) = told.trim_end().split_once("mend it by: ").unwrap();
    service.sql(remedy);
    latch(&service, &["down", "--as", "b"]).output().success();
    latch(&service, &["wait", "--count", "2"]).output().success();
}
