//! Locks that several hold together: what each server has of them, slots as locks of their own, writers that have their
//! turn, and tokens.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{FENCE, KEY, scripts, votes};
use crate::services::redis::counters::micros_ahead;
use crate::support::redis_services::Redlock3;
use crate::support::rendezvous::{CAP, eventually, eventually_within};
use crate::support::servers::{Redis, Reply};
use crate::support::service::{Gated, Service};

const HOLDERS: &str = "{dlock:job}\u{1}holders";
const DETAILS: &str = "{dlock:job}\u{1}details";
const INTENT: &str = "{dlock:job}\u{1}intent";

/// The options of every mode in which several hold a lock together.
const GROUPS: [&[&str]; 2] = [&["-s"], &["--slots", "3"]];

/// Holds the lock with these options.
#[track_caller]
fn hold(service: &Redlock3, options: &[&str]) -> Gated {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(options));
    holder.wait_held();
    holder
}

/// What the holders published at this server, as JSON.
fn details(redis: &Redis) -> Vec<serde_json::Value> {
    let texts = redis.call(&[b"HVALS", DETAILS.as_bytes()]).array();
    texts.iter().map(|text| serde_json::from_str(&text.text()).unwrap()).collect()
}

/// How many hold the lock together, by this server.
fn entries(redis: &Redis) -> usize {
    redis.cli(&["ZCARD", HOLDERS]).parse().unwrap()
}

fn refused(service: &Redlock3, options: &[&str], code: i32, why: &str) {
    let outcome = service.run("job").args(options).command(["echo", "overlap"]).output();
    outcome.code(code).stdout_is("").stderr_is_one_line(why);
}

#[test]
fn every_server_has_an_entry_for_each_holder() {
    for options in GROUPS {
        let service = Redlock3::fresh();
        let holders = [(); 2].map(|()| hold(&service, options));
        for redis in service.servers.iter() {
            // A majority is enough to begin with, and the others join.
            eventually("all entries", || (entries(redis) == 2).then_some(()));
            assert!(redis.get(KEY).unwrap().starts_with(r#"{"v":1,"mode":"s"#));
            assert_eq!(redis.call(&[b"SET", KEY.as_bytes(), b"theirs", b"NX"]), Reply::Nil);
        }
        refused(&service, &["-n"], 75, "did not get 'job': ");
        for holder in holders {
            assert_eq!(votes(&service.servers), 3);
            holder.let_go().success();
        }
        eventually("nothing to be left", || service.cluster().litter(&["job"]).is_empty().then_some(()));
    }
}

#[test]
fn a_slot_has_the_same_number_everywhere_and_nobody_shares_it() {
    let service = Redlock3::fresh();
    let holders = [(); 3].map(|()| hold(&service, &["--slots", "3"]));
    let slots = |redis: &Redis| -> BTreeSet<(String, u64)> {
        let slot = |text: &serde_json::Value| (text["id"].as_str().unwrap().to_owned(), text["slot"].as_u64().unwrap());
        details(redis).iter().map(slot).collect()
    };
    for redis in service.servers.iter() {
        eventually("all entries", || (entries(redis) == 3).then_some(()));
        assert_eq!(slots(redis), slots(&service.servers[0]));
    }
    let numbers: BTreeSet<u64> = slots(&service.servers[0]).into_iter().map(|(_, slot)| slot).collect();
    assert_eq!(numbers, BTreeSet::from([0, 1, 2]));
    refused(&service, &["-n", "--slots", "3"], 75, "did not get 'job': all 3 slots are taken");
    refused(&service, &["-n", "--slots", "2"], 64, "is in use with --slots 3");
    refused(&service, &["-w", "20s", "--slots", "4", "-E", "0"], 64, "is in use with --slots 3");
    for holder in holders {
        holder.let_go().success();
        service.run("job").args(["-n", "--slots", "3"]).command(["true"]).output().success();
    }
    service.run("job").args(["--slots", "2"]).command(["true"]).output().success();
}

/// Each makes a directory that is named by its slot.
#[test]
fn of_many_that_contend_for_slots_no_two_have_the_same_one() {
    const CONTENDERS: usize = 8;
    const ROUNDS: usize = 4;
    let service = Redlock3::fresh();
    let directory = service.scratch().directory("slots", 0o700);
    let script = format!(
        "cd '{}' && test $DLOCK_SLOT -lt 2 && mkdir $DLOCK_SLOT && /bin/true && rmdir $DLOCK_SLOT",
        directory.display()
    );
    thread::scope(|scope| {
        for _ in 0..CONTENDERS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    service.run("job").args(["-q", "--slots", "2"]).shell(&script).output().success();
                }
            });
        }
    });
    assert_eq!(votes(&service.servers), 0);
}

#[test]
fn as_many_as_there_are_slots_get_one_without_waiting() {
    let service = Redlock3::fresh();
    let at_once = [(); 3].map(|()| Gated::spawn(service.scratch(), service.run("job").args(["-n", "--slots", "3"])));
    at_once.iter().for_each(Gated::wait_held);
    for holder in at_once {
        holder.let_go().success();
    }
}

#[test]
fn a_writer_has_its_turn_in_a_stream_of_readers() {
    const READERS: usize = 5;
    let service = Redlock3::fresh();
    let over = AtomicBool::new(false);
    let writer = thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let reader = service.run("job").args(["-s", "-q", "-w", "25s"]).command(["sleep", "0.4"]);
                    reader.output().success();
                }
            });
        }
        // From now on never without a reader. Nothing fails before they are told to end.
        let several = eventually_within(CAP, || (entries(&service.servers[0]) >= 3).then_some(()));
        let writer = Gated::spawn(service.scratch(), service.run("job").arg("-q"));
        let turn = eventually_within(Duration::from_secs(5), || writer.has_held().then_some(()));
        over.store(true, Ordering::Relaxed);
        assert!(several.is_some() && turn.is_some(), "the writer waits");
        let with_readers = service.servers.iter().filter(|redis| entries(redis) > 0).count();
        assert!(with_readers < service.servers.majority(), "readers hold the lock together with the writer");
        writer.let_go()
    });
    writer.success();
}

#[test]
fn a_writer_that_gives_up_lets_readers_in_at_once() {
    let service = Redlock3::fresh();
    let reader = hold(&service, &["-s"]);
    // One that does not wait keeps nobody out.
    service.run("job").args(["-n", "-q"]).command(["echo", "overlap"]).output().code(75).stdout_is("").quiet();
    assert!(service.servers.iter().all(|redis| redis.get(INTENT).is_none()));
    for is_told in [true, false] {
        let wait = if is_told { "20s" } else { "1s" };
        let writer = service.run("job").args(["-q", "-w", wait]).command(["echo", "overlap"]).spawn();
        let id = eventually("the writer to wait", || service.servers[0].get(INTENT));
        for redis in service.servers.iter() {
            eventually("the writer to be known", || (redis.get(INTENT).as_ref() == Some(&id)).then_some(()));
            assert!((1..=1500).contains(&redis.pttl(INTENT)));
        }
        service
            .run("job")
            .args(["-n", "-q", "-s"])
            .command(["echo", "overtaken"])
            .output()
            .code(75)
            .stdout_is("")
            .quiet();
        if is_told {
            writer.signal(Signal::SIGTERM);
            writer.wait().signal(Signal::SIGTERM).stdout_is("").quiet();
        } else {
            writer.wait().code(75).stdout_is("").quiet();
        }
        assert!(service.servers.iter().all(|redis| redis.get(INTENT).is_none()));
        service.run("job").args(["-n", "-s"]).command(["true"]).output().success();
    }
    // One that dies keeps them out for a moment.
    let writer = service.run("job").arg("-q").command(["echo", "overlap"]).spawn();
    eventually("the writer to wait", || service.servers[0].get(INTENT));
    writer.signal(Signal::SIGKILL);
    writer.wait().signal(Signal::SIGKILL).stdout_is("").quiet();
    service.run("job").args(["-q", "-s", "-w", "20s"]).command(["true"]).output().success();
    reader.let_go().success();
}

#[test]
fn a_late_server_joins_a_group_and_one_that_lost_its_vote_does_not() {
    let service = Redlock3::fresh();
    service.servers[2].stop();
    let [first, second] = [(); 2].map(|()| hold(&service, &["-s", "-t", "2s"]));
    service.servers[2].cont();
    eventually("the late server's votes", || (entries(&service.servers[2]) == 2).then_some(()));
    // The one that is left with its entry keeps it.
    let id = details(&service.servers[1])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(service.servers[1].cli(&["ZREM", HOLDERS, &id]), "1");
    let monitor = service.servers[0].monitor();
    for _ in 0..4 {
        monitor.wait_renewed(KEY);
        assert_eq!(entries(&service.servers[1]), 1, "a renewal made the entry again");
    }
    for holder in [first, second] {
        holder.let_go().success();
    }
    assert_eq!(votes(&service.servers), 0);
}

#[test]
fn a_group_that_lost_a_majority_is_lost_by_all_and_adopted_by_nobody() {
    for options in GROUPS {
        let service = Redlock3::fresh();
        let holders = [(); 3].map(|()| hold(&service, &[options, &["--ttl", "6s"]].concat()));
        for redis in &service.servers[1..] {
            eventually("all entries", || (entries(redis) == 3).then_some(()));
            redis.cli(&["DEL", KEY]);
        }
        for holder in holders {
            // The gate stays closed.
            holder.running.wait().code(79).stderr_is_one_line("lost 'job' at redlock://");
        }
        hold(&service, options).let_go().success();
    }
}

#[test]
fn tokens_of_readers_are_between_those_of_the_writers_before_and_after_them() {
    // Half a year above what the clock proposes.
    let high = micros_ahead(183);
    let service = Redlock3::fresh();
    let token = |options: &[&str]| -> u64 {
        let outcome = service.run("job").args(options).shell("echo $DLOCK_TOKEN").output();
        outcome.success().stdout().trim_end().parse().unwrap()
    };
    // The two that grant disagree, whichever answers first.
    service.servers[2].kill();
    service.servers[0].cli(&["SET", FENCE, &high.to_string()]);
    let before = token(&[]);
    assert_eq!(before, high + 1);
    let readers = [(); 3].map(|()| hold(&service, &["-s"]));
    let tokens = readers.each_ref().map(Gated::token);
    let counters: Vec<_> = service.servers.running().filter_map(|redis| redis.get(FENCE)).collect();
    let most = tokens.iter().max().unwrap().to_string();
    assert_eq!(counters, [most.clone(), most], "a majority does not know the largest token");
    for reader in readers {
        reader.let_go().success();
    }
    // The server that had the high counter is gone, and the one that never saw it is back.
    service.servers[2].restart();
    service.servers[0].kill();
    let after = token(&[]);
    assert!(tokens.iter().all(|token| (before + 1..after).contains(token)), "{before}, {tokens:?}, {after}");
    let [first, second] = [(); 2].map(|()| token(&["--slots", "1"]));
    assert!(after < first && first < second, "{after}, {first}, {second}");
}

#[test]
fn a_side_key_of_another_type_costs_one_server() {
    for key in [HOLDERS, DETAILS] {
        let service = Redlock3::fresh();
        service.servers[1].cli(&["SET", key, "x"]);
        let outcome = service.run("job").arg("-s").command(["echo", "ran"]).output();
        outcome.code(0).stdout_is("ran\n").stderr_is_one_line("one server less: ");
        assert!(outcome.stderr().contains("holds a string, which is not dlock's"), "{outcome:?}");
        assert_eq!((service.servers[1].get(key).as_deref(), service.servers[1].get(KEY)), (Some("x"), None));
        // Nothing of it is needed by one who holds the lock alone.
        service.run("job").command(["echo", "ran"]).output().success().stdout_is("ran\n");
    }
}

#[test]
fn a_reader_and_a_slot_cost_no_more_requests_than_a_writer() {
    let service = Redlock3::fresh();
    for options in [&["-s"][..], &["--slots", "1"], &["--slots", "7"]] {
        let monitors: Vec<_> = service.servers.iter().map(Redis::monitor).collect();
        service.run("job").args(options).command(["true"]).output().success();
        for monitor in &monitors {
            assert_eq!(scripts(monitor), ["6", "7"], "{options:?}");
        }
    }
}
