//! One lock with ShedLock, by the statements that its version 7 sends with `usingDbTime()`.

use std::thread;
use std::time::Duration;

use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Session};
use crate::support::rendezvous::boottime;
use crate::support::service::{Gated, Service};

use super::on_databases;

on_databases! {
    shedlock_and_dlock_exclude_each_other_both_ways
    a_lock_that_shedlock_has_by_now_stays_its_own
    the_least_time_that_shedlock_wants_is_waited_for
    a_minimum_hold_keeps_shedlock_away
    they_take_turns_and_never_overlap
    #[ignore = "takes minutes"]
    a_crowd_of_both_takes_turns_and_never_overlaps
    a_lock_with_rounded_times_is_free_at_once
}

/// All statements but the first one of a process for a name.
const UPDATE: &str = "UPDATE shedlock SET lock_until = :until, locked_at = :now, locked_by = :by \
    WHERE shedlock.name = :name AND shedlock.lock_until <= :now";
const EXTEND: &str =
    "UPDATE shedlock SET lock_until = :until WHERE name = :name AND locked_by = :by AND lock_until > :now";
const UNLOCK: &str = "UPDATE shedlock SET lock_until = CASE WHEN :least > :now THEN :least ELSE :now END \
    WHERE name = :name AND locked_by = :by";

/// A process that uses ShedLock.
struct ShedLock<E: Engine> {
    client: E::Client,
    has_inserted: bool,
}

impl<E: Engine> ShedLock<E> {
    fn new(service: &DatabaseService<E>) -> Self {
        Self { client: service.client(), has_inserted: false }
    }

    /// Sends one statement for the lock `job`; returns whether it changed a row.
    #[track_caller]
    fn send(&mut self, statement: &str, most: f64, least: f64) -> bool {
        let after = |then: &str, secs: f64| E::AFTER.replace(":then", then).replace(":secs", &secs.to_string());
        let statement = statement.replace(":until", &after(":now", most)).replace(":least", &after("locked_at", least));
        let statement = statement.replace(":name", "'job'").replace(":now", E::NOW).replace(":by", "'web1'");
        self.client.change(&statement).unwrap() == 1
    }

    /// Tries to take the lock, for at most `most` seconds.
    #[track_caller]
    fn lock(&mut self, most: f64) -> bool {
        let first = !std::mem::replace(&mut self.has_inserted, true);
        // On some databases the first one changes nothing where the row is there.
        (first && self.send(E::INSERT, most, 0.0)) || self.send(UPDATE, most, 0.0)
    }

    #[track_caller]
    fn extend(&mut self, most: f64) -> bool {
        self.send(EXTEND, most, 0.0)
    }

    /// Gives it back, at least `least` seconds after it was taken.
    #[track_caller]
    fn unlock(&mut self, least: f64) -> bool {
        self.send(UNLOCK, 0.0, least)
    }
}

/// A dlock on the lock that ShedLock calls `job`.
fn run<E: Engine>(service: &DatabaseService<E>) -> crate::support::dlock::Dlock {
    service.run("job").args(["--namespace", ""])
}

fn shedlock_and_dlock_exclude_each_other_both_ways<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::TABLE);
    let mut shedlock = ShedLock::new(&service);
    assert!(shedlock.lock(60.0));
    let refused = run(&service).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("held by another program: web1");
    assert!(shedlock.extend(60.0) && shedlock.unlock(0.0));
    for _ in 0..3 {
        let holder = Gated::spawn(service.scratch(), run(&service));
        holder.wait_held();
        // As a process that knows the row, and as one that has just started.
        assert!(!shedlock.lock(60.0) && !ShedLock::new(&service).lock(60.0));
        assert!(!shedlock.extend(60.0) && !shedlock.unlock(0.0));
        run(&service).args(["-n", "-q"]).command(["true"]).output().code(75);
        holder.let_go().success();
        assert!(shedlock.lock(60.0), "the lock is not free, or its row is gone");
        assert!(shedlock.unlock(0.0));
    }
}

fn a_lock_that_shedlock_has_by_now_stays_its_own<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let mut shedlock = ShedLock::new(&service);
    let holder = Gated::spawn(service.scratch(), run(&service));
    holder.wait_held();
    service.sql("UPDATE shedlock SET lock_until = :now WHERE name = 'job'");
    assert!(shedlock.lock(60.0));
    super::assert_lost(&holder.let_go(), "not ours any more when it ended");
    assert_eq!(service.locked_by("job").as_deref(), Some("web1"));
    assert!(shedlock.extend(60.0));
}

fn the_least_time_that_shedlock_wants_is_waited_for<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::TABLE);
    let mut shedlock = ShedLock::new(&service);
    let before = boottime();
    assert!(shedlock.lock(60.0) && shedlock.unlock(1.5));
    run(&service).args(["-q", "-w", "30"]).command(["true"]).output().success();
    assert!(boottime() - before >= Duration::from_millis(1500));
}

/// A minimum hold of dlock is one for ShedLock too.
fn a_minimum_hold_keeps_shedlock_away<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let mut shedlock = ShedLock::new(&service);
    run(&service).args(["--min-hold", "1h"]).command(["true"]).output().success();
    assert!(!shedlock.lock(60.0) && !shedlock.extend(1.0) && !shedlock.unlock(0.0));
    let refused = run(&service).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("finished; kept until ");
}

/// So many threads with ShedLock, and as many dlocks, take the lock so many times each.
fn take_turns<E: Engine>(each: usize, rounds: usize) {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::TABLE);
    let inside = service.scratch().path("inside");
    let script = format!("mkdir '{0}' && sleep 0.01 && rmdir '{0}' && echo $DLOCK_TOKEN", inside.display());
    let turns_of_shedlock = |mut shedlock: ShedLock<E>| {
        for _ in 0..rounds {
            while !shedlock.lock(60.0) {
                thread::sleep(Duration::from_millis(3));
            }
            std::fs::create_dir(&inside).expect("a dlock's command runs");
            thread::sleep(Duration::from_millis(5));
            std::fs::remove_dir(&inside).unwrap();
            assert!(shedlock.unlock(0.0));
        }
    };
    let turns_of_dlock = || {
        let run = || run(&service).args(["-q", "-w", "300"]).shell(&script).output();
        (0..rounds).map(|_| run().success().stdout().trim().parse().unwrap()).collect::<Vec<u64>>()
    };
    thread::scope(|scope| {
        let theirs: Vec<_> = (0..each)
            .map(|_| {
                let shedlock = ShedLock::new(&service);
                scope.spawn(|| turns_of_shedlock(shedlock))
            })
            .collect();
        let ours: Vec<_> = (0..each).map(|_| scope.spawn(turns_of_dlock)).collect();
        for turns in theirs {
            turns.join().unwrap();
        }
        for turns in ours {
            let tokens = turns.join().unwrap();
            assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
        }
    });
}

fn they_take_turns_and_never_overlap<E: Engine>() {
    take_turns::<E>(2, 12);
}

fn a_crowd_of_both_takes_turns_and_never_overlaps<E: Engine>() {
    take_turns::<E>(8, 100);
}

/// A column that rounds to milliseconds must not leave a lock held for the rest of one.
fn a_lock_with_rounded_times_is_free_at_once<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::ROUNDED);
    for _ in 0..10 {
        run(&service).arg("-n").command(["true"]).output().success();
    }
}
