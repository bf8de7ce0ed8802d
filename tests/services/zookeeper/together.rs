//! Who holds a lock together with whom: dlock in each mode, and the locks of Curator and kazoo, on one path.

use super::*;
use crate::support::foreign::{Foreign, Kind as Program};

/// dlock's own modes.
const MODES: [(&str, &[&str]); 3] = [("exclusive", &["-x"]), ("shared", &["-s"]), ("slots", &["--slots", "2"])];

const PROGRAMS: [Program; 6] = [
    Program::Curator,
    Program::CuratorRead,
    Program::CuratorWrite,
    Program::Kazoo,
    Program::KazooRead,
    Program::KazooWrite,
];

/// Whether dlock in each of [`MODES`] and then each of [`PROGRAMS`] runs (`+`) or waits (`w`) while dlock holds the lock.
const WHILE_DLOCK_HOLDS: [&str; 3] = ["wwwwwwwww", "w+ww+w++w", "ww+wwwwww"];

/// Whether dlock in each of [`MODES`] runs (`+`) or waits (`w`) while each of [`PROGRAMS`] holds the lock.
const WHILE_OTHERS_HOLD: [&str; 6] = ["www", "w+w", "www", "www", "w+w", "www"];

/// Checks that dlock in each of the modes runs or waits, as `row` says. Leaves nothing.
#[track_caller]
fn dlocks_come(service: &ZooKeeperService, holder: &str, row: &str) {
    for ((mode, options), cell) in MODES.into_iter().zip(row.chars()) {
        let outcome = service.run("job").arg("-n").args(options).command(["echo", "ran"]).output();
        let ran = outcome.status().success();
        assert_eq!(ran, cell == '+', "{holder} holds, and dlock comes, {mode}: {outcome:?}");
        let _ = outcome.stderr();
        assert_eq!(outcome.stdout(), if ran { "ran\n" } else { "" });
    }
}

#[test]
fn who_comes_while_dlock_holds_the_lock_runs_or_waits_as_the_table_says() {
    let service = ZooKeeperService::fresh();
    let mut others = PROGRAMS.map(|program| Foreign::spawn(program, &service.zookeeper.hosts(), LOCK));
    for ((mode, options), row) in MODES.into_iter().zip(WHILE_DLOCK_HOLDS) {
        let holder = Gated::spawn(service.scratch(), service.run("job").args(options));
        holder.wait_held();
        let (dlocks, programs) = row.split_at(MODES.len());
        dlocks_come(&service, mode, dlocks);
        for (other, cell) in others.iter_mut().zip(programs.chars()) {
            let ran = other.try_acquire().is_some();
            assert_eq!(ran, cell == '+', "dlock holds, {mode}, and {:?} comes", other.kind());
            if ran {
                other.release();
            }
        }
        holder.let_go().success();
    }
    others.into_iter().for_each(Foreign::close);
}

#[test]
fn dlock_that_comes_while_another_program_holds_the_lock_runs_or_waits_as_the_table_says() {
    let service = ZooKeeperService::fresh();
    for (program, row) in PROGRAMS.into_iter().zip(WHILE_OTHERS_HOLD) {
        let mut other = Foreign::spawn(program, &service.zookeeper.hosts(), LOCK);
        other.acquire();
        dlocks_come(&service, &format!("{program:?}"), row);
        assert!(other.owns());
        other.release();
        other.close();
    }
}

/// The order of their arrival is that of their tokens.
#[test]
fn readers_and_writers_of_all_programs_take_turns() {
    let service = ZooKeeperService::fresh();
    let (servers, read, write) = (service.zookeeper.hosts(), ["-q", "-s"], ["-q"]);
    let other = |program| Foreign::spawn(program, &servers, LOCK);
    let (mut curator, mut writer) = (other(Program::CuratorRead), other(Program::CuratorWrite));
    let first = Gated::spawn(service.scratch(), service.run("job").args(read));
    let mut tokens = vec![first.token()];
    tokens.push(curator.acquire().parse().unwrap());
    // A writer of each kind waits for both readers, and readers who come then wait for the writers.
    service.wait_queued("job", 1);
    writer.start_acquire();
    service.wait_queued("job", 2);
    let (second, readers) = (service.queue_up("job", &write), [(); 2].map(|()| service.queue_up("job", &read)));
    first.let_go().success();
    assert!(!writer.is_held() && !second.has_held());
    curator.release();
    tokens.push(writer.wait_held().parse().unwrap());
    assert!(!second.has_held());
    writer.release();
    tokens.push(second.token());
    assert!(!readers.iter().any(Gated::has_held));
    second.let_go().success();
    tokens.extend(readers.iter().map(Gated::token));
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    for reader in readers {
        reader.let_go().success();
    }
    curator.close();
    writer.close();
}

/// As an earlier release of dlock makes them: two nodes, and no modes.
#[test]
fn every_mode_waits_for_a_release_that_makes_two_nodes() {
    let service = ZooKeeperService::fresh();
    service.zookeeper.create("/dlock", "");
    service.zookeeper.create(LOCK, "");
    let mut earlier = service.zookeeper.client();
    let first = format!("{LOCK}/_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
    let last = format!("{LOCK}/f123456789abcdef0123456789abcdef__lock__");
    let text = r#"{"v":1,"id":"0123456789abcdef0123456789abcdef","host":"old","user":"u","pid":7}"#;
    earlier.create_together(&[&first, &last], text).unwrap();
    for (mode, options) in MODES {
        let refused = service.run("job").arg("-n").args(options).command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line("held by u@old, pid 7");
        let waiter = Gated::spawn(service.scratch(), service.run("job").arg("-q").args(options));
        service.wait_queued("job", 1);
        assert!(!waiter.has_held(), "{mode}");
        waiter.running.signal(nix::sys::signal::Signal::SIGTERM);
        let outcome = waiter.running.wait();
        outcome.signal(nix::sys::signal::Signal::SIGTERM).quiet();
    }
    let waiters = MODES.map(|(_, options)| service.queue_up("job", &[&["-q"][..], options].concat()));
    earlier.close().unwrap();
    for waiter in waiters {
        waiter.wait_held();
        waiter.let_go().success();
    }
}
