//! Locks that several hold: the row says so to other programs, and the rows of the holders to other dlocks.

use std::time::Duration;

use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Session};
use crate::support::dlock::Dlock;
use crate::support::rendezvous::boottime;
use crate::support::service::{Gated, Service};

use super::on_databases;

on_databases! {
    readers_and_slots_keep_shedlock_out_until_the_last_of_them_has_gone
    a_renewal_of_one_does_not_revive_what_others_have_by_now
    a_minimum_hold_of_one_keeps_its_slot_and_not_those_of_others
    slots_that_are_taken_at_once_are_different_ones
    a_short_lease_of_one_does_not_shorten_that_of_others
    rows_of_the_dead_go_with_the_next_grant
}

/// What ShedLock sends for a name that it knows, with a lease of an hour.
const SHEDLOCK: &str = "UPDATE shedlock SET lock_until = :later, locked_at = :now, locked_by = 'web1' \
    WHERE name = 'dlock:job' AND lock_until <= :now";

fn begin<E: Engine>(service: &DatabaseService<E>, options: &[&str]) -> Gated {
    Gated::spawn(service.scratch(), service.run("job").args(options))
}

/// Whether ShedLock takes the lock.
fn is_free_for_shedlock<E: Engine>(service: &DatabaseService<E>) -> bool {
    service.client().change(&SHEDLOCK.replace(":later", E::LATER).replace(":now", E::NOW)).unwrap() == 1
}

fn readers_and_slots_keep_shedlock_out_until_the_last_of_them_has_gone<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    for options in [["-s", "-q", "-t30s"], ["--slots=3", "-q", "-t30s"]] {
        let holders = [(); 2].map(|()| begin(&service, &options));
        holders.iter().for_each(Gated::wait_held);
        for holder in holders {
            assert!(!is_free_for_shedlock(&service), "{options:?}");
            holder.let_go().success();
        }
        assert!(is_free_for_shedlock(&service), "{options:?}");
        let refused = service.run("job").args(options).arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("");
        service.sql("UPDATE shedlock SET lock_until = :now");
    }
}

fn a_renewal_of_one_does_not_revive_what_others_have_by_now<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let reader = begin(&service, &["-s", "-t", "6s"]);
    reader.wait_held();
    service.sql("UPDATE shedlock SET lock_until = :now");
    assert!(is_free_for_shedlock(&service));
    super::assert_lost(&reader.running.wait(), "its row is held by another program: web1");
    assert_eq!(service.locked_by("dlock:job").as_deref(), Some("web1"));
    assert_eq!(service.members("dlock:job"), Vec::<String>::new());
}

fn a_minimum_hold_of_one_keeps_its_slot_and_not_those_of_others<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let run = |options: &[&str]| -> Dlock { service.run("job").args(["-n", "--slots", "2"]).args(options) };
    let told = |outcome: crate::support::dlock::Outcome| outcome.success().stdout();
    let before = boottime();
    assert_eq!(told(run(&["--min-hold", "2s"]).shell("echo $DLOCK_SLOT").output()), "0\n");
    // One is kept, and the other comes and goes.
    for _ in 0..2 {
        assert_eq!(told(run(&[]).shell("echo $DLOCK_SLOT").output()), "1\n");
    }
    assert!(!is_free_for_shedlock(&service), "the row ends before what is kept");
    let other = begin(&service, &["--slots", "2"]);
    assert_eq!(other.slot(), Some(1));
    run(&["-q"]).command(["echo", "overlap"]).output().code(75).stdout_is("");
    let waiter = begin(&service, &["--slots", "2", "-q"]);
    assert_eq!(waiter.slot(), Some(0));
    assert!(boottime() - before >= Duration::from_secs(2));
    waiter.let_go().success();
    other.let_go().success();
    assert!(is_free_for_shedlock(&service));
}

/// They wait for the row at the same time, and must see what those before them have done.
fn slots_that_are_taken_at_once_are_different_ones<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("job").args(["--slots", "3"]).command(["true"]).output().success();
    let mut other = service.client();
    other.query("BEGIN; SELECT 1 FROM shedlock FOR UPDATE").unwrap();
    let holders = [(); 3].map(|()| begin(&service, &["--slots", "3", "-q"]));
    let blocked = || (service.blocked() == 3).then_some(());
    crate::support::rendezvous::eventually("all to wait for the row", blocked);
    other.query("ROLLBACK").unwrap();
    let mut slots: Vec<u32> = holders.iter().map(|holder| holder.slot().expect("a slot")).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    for holder in holders {
        holder.let_go().success();
    }
}

fn a_short_lease_of_one_does_not_shorten_that_of_others<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let long = begin(&service, &["-s", "-t", "10m"]);
    long.wait_held();
    let until = || service.value("SELECT lock_until FROM shedlock").unwrap();
    let first = until();
    let short = begin(&service, &["-s", "-t", "2s"]);
    short.wait_held();
    assert!(until() >= first, "the row ends with the newest");
    short.let_go().success();
    assert!(until() >= first, "the row ends with who has gone");
    long.let_go().success();
}

/// A reader's row that is over is dropped by the next one, so that the table stays small.
fn rows_of_the_dead_go_with_the_next_grant<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let dead = begin(&service, &["-s", "-t", "1s"]);
    dead.wait_held();
    crate::support::process::signal(dead.pid(), nix::sys::signal::Signal::SIGKILL);
    // First what it has asked for at last.
    let unheard = || service.connections().is_empty().then_some(());
    crate::support::rendezvous::eventually("its connection to end", unheard);
    let gone = || service.members("dlock:job").is_empty().then_some(());
    crate::support::rendezvous::eventually("the lease to end", gone);
    service.run("job").args(["-n", "-s"]).command(["true"]).output().success();
    assert_eq!(service.value("SELECT count(*) FROM dlock_member").as_deref(), Some("0"));
}
