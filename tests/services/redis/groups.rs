/*!
Locks that several hold together on one server: the keys that they have, other clients on the same key, what is deleted
under them, and what wakes their waiters.
*/

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::cluster::Cluster;
use crate::support::foreign::{Foreign, Kind};
use crate::support::redis_sets::{RedisSentinels, wait_replicated};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, Reply, runs_script};
use crate::support::service::{Gated, RedisService, Service};

const KEY: &str = "dlock:job";

/// The options of every mode in which several hold a lock together.
const GROUPS: [&[&str]; 2] = [&["-s"], &["--slots", "3"]];

fn side(name: &str) -> String {
    format!("{{dlock:job}}\u{1}{name}")
}

/// Holds the lock with these options.
#[track_caller]
fn hold(service: &RedisService, options: &[&str]) -> Gated {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(options));
    holder.wait_held();
    holder
}

fn refused(service: &RedisService, options: &[&str], code: i32, why: &str) {
    let outcome = service.run("job").args(options).command(["echo", "overlap"]).output();
    outcome.code(code).stdout_is("").stderr_is_one_line(why);
}

#[track_caller]
fn has_type(redis: &Redis, name: &str, kind: &str) {
    assert_eq!(redis.cli(&["TYPE", &side(name)]), kind, "{name}");
}

#[test]
fn a_group_is_a_string_at_the_locks_key_and_an_entry_for_each_holder() {
    let service = RedisService::fresh();
    let redis = &service.redis;
    let readers = [(); 2].map(|()| hold(&service, &["-s"]));
    assert_eq!(redis.keys(), [KEY.to_owned(), side("details"), side("fence"), side("holders")]);
    let text = redis.get(KEY).unwrap();
    assert!(text.starts_with(r#"{"v":1,"mode":"shared","id":""#), "{text}");
    has_type(redis, "holders", "zset");
    has_type(redis, "details", "hash");
    let ids = redis.cli(&["ZRANGE", &side("holders"), "0", "-1"]);
    for id in ids.lines() {
        let details = redis.cli(&["HGET", &side("details"), id]);
        assert!(details.starts_with(&format!(r#"{{"v":1,"id":"{id}","token":"#)), "{details}");
    }
    assert_eq!((ids.lines().count(), redis.cli(&["HLEN", &side("details")])), (2, "2".to_owned()));
    for key in [KEY, &side("holders"), &side("details")] {
        assert!((1..=30_000).contains(&redis.pttl(key)), "{key} does not end with the last holder");
    }
    // It names one who holds it, and how many others do.
    refused(&service, &["-n"], 75, "did not get 'job': held by 2 readers, among them ");
    let writer = service.queue_up("job", &["-q"]);
    assert_eq!(redis.cli(&["EXISTS", &side("modes")]), "0");
    let late = service.queue_up("job", &["-q", "-s"]);
    let modes = redis.call(&[b"HVALS", side("modes").as_bytes()]).array();
    assert_eq!(modes, [Reply::Bulk(b"shared".to_vec())]);
    for reader in readers {
        assert!(!writer.has_held() && !late.has_held());
        reader.let_go().success();
    }
    writer.wait_held();
    assert!(!late.has_held());
    writer.let_go().success();
    late.wait_held();
    late.let_go().success();
    service.assert_tidy(&["job"]);
}

#[test]
fn a_slot_is_the_lowest_that_is_free() {
    let service = RedisService::fresh();
    let slots = || {
        let texts = service.redis.call(&[b"HVALS", side("details").as_bytes()]).array();
        let slot = |text: &Reply| serde_json::from_str::<serde_json::Value>(&text.text()).unwrap()["slot"].as_u64();
        let mut slots: Vec<_> = texts.iter().map(slot).collect();
        slots.sort_unstable();
        slots
    };
    let [first, second, third] = [(); 3].map(|()| hold(&service, &["--slots", "3"]));
    assert_eq!(slots(), [Some(0), Some(1), Some(2)]);
    refused(&service, &["-n", "--slots", "3"], 75, "did not get 'job': all 3 slots are taken");
    let waiter = service.queue_up("job", &["-q", "--slots", "3"]);
    second.let_go().success();
    waiter.wait_held();
    assert_eq!(slots(), [Some(0), Some(1), Some(2)]);
    for holder in [first, third, waiter] {
        holder.let_go().success();
    }
    service.run("job").args(["--slots", "3"]).shell("echo $DLOCK_SLOT").output().success().stdout_is("0\n");
    service.assert_tidy(&["job"]);
}

#[test]
fn redis_py_and_a_group_keep_each_other_out() {
    for options in GROUPS {
        let service = RedisService::fresh();
        let mut other = Foreign::spawn(Kind::RedisPy, &service.redis.url(), KEY);
        let [first, second] = [(); 2].map(|()| hold(&service, options));
        assert_eq!(other.try_acquire(), None, "both hold the lock");
        first.let_go().success();
        assert_eq!(other.try_acquire(), None, "both hold the lock");
        assert_eq!(service.redis.call(&[b"SET", KEY.as_bytes(), b"theirs", b"NX", b"PX", b"60000"]), Reply::Nil);
        assert!(!other.owns());
        other.start_acquire();
        second.let_go().success();
        let token = other.wait_held();
        let shown = format!("did not get 'job': held by another program: {token}");
        refused(&service, &[options, &["-n"]].concat(), 75, &shown);
        let waiters = [(); 2].map(|()| service.queue_up("job", &[options, &["-q"]].concat()));
        assert!(other.owns() && waiters.iter().all(|waiter| !waiter.has_held()));
        other.release();
        waiters.iter().for_each(Gated::wait_held);
        assert_eq!(other.try_acquire(), None, "both hold the lock");
        for waiter in waiters {
            waiter.let_go().success();
        }
        other.close();
        eventually("nothing to be left", || service.litter(&["job"]).is_empty().then_some(()));
    }
}

#[test]
fn a_group_whose_key_is_deleted_is_lost_by_all_and_adopted_by_nobody() {
    for options in GROUPS {
        let service = RedisService::fresh();
        let holders = [(); 3].map(|()| hold(&service, &[options, &["--ttl", "6s"]].concat()));
        service.redis.cli(&["DEL", KEY]);
        let newcomer = hold(&service, options);
        assert_eq!(service.redis.cli(&["ZCARD", &side("holders")]), "1");
        for holder in holders {
            // The gate stays closed.
            holder.running.wait().code(79).stderr_is_one_line("lost 'job' at redis://");
        }
        assert_eq!(service.redis.cli(&["ZCARD", &side("holders")]), "1");
        service.assert_held("job");
        newcomer.let_go().success();
        service.assert_free("job");
    }
}

/// The shorter lease is renewed last.
#[test]
fn a_long_hold_does_not_end_with_a_short_one() {
    for options in GROUPS {
        let service = RedisService::fresh();
        let long = hold(&service, options);
        let short = hold(&service, &[options, &["--ttl", "2s"]].concat());
        short.running.signal(Signal::SIGKILL);
        short.running.wait().signal(Signal::SIGKILL).stderr();
        let end: u64 = service
            .redis
            .cli(&["ZRANGE", &side("holders"), "0", "0", "WITHSCORES"])
            .lines()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        eventually("the end of its lease", || {
            let time = service.redis.cli(&["TIME"]);
            let seconds: u64 = time.lines().next().unwrap().parse().unwrap();
            (seconds * 1000 > end).then_some(())
        });
        service.assert_held("job");
        assert_eq!(service.redis.cli(&["ZCARD", &side("holders")]), "1");
        long.let_go().success();
        service.assert_free("job");
    }
}

/// A waiter looks when the last hold ends, and that one may end sooner.
#[test]
fn a_writer_learns_that_the_longest_hold_is_over() {
    let service = RedisService::fresh();
    let long = hold(&service, &["-s", "--ttl", "10m"]);
    let short = hold(&service, &["-s", "--ttl", "2s"]);
    // Its heartbeats are 10 s apart.
    let writer = service.queue_up("job", &["-q", "--ttl", "10m"]);
    service.wait_blocked(1);
    short.running.signal(Signal::SIGKILL);
    short.running.wait().signal(Signal::SIGKILL).stderr();
    let killed = boottime();
    long.let_go().success();
    writer.wait_held();
    let took = boottime() - killed;
    assert!(took < Duration::from_secs(6), "{took:?} after a lease of 2 s");
    writer.let_go().success();
}

#[test]
fn whoever_takes_the_key_from_a_group_keeps_it() {
    for options in GROUPS {
        let service = RedisService::fresh();
        let holders = [(); 2].map(|()| hold(&service, &[options, &["--ttl", "3s"]].concat()));
        service.redis.cli(&["SET", KEY, "theirs"]);
        for holder in holders {
            holder.running.wait().code(79).stderr_is_one_line("its key is held by another program: theirs");
        }
        assert_eq!(service.redis.get(KEY).as_deref(), Some("theirs"));
    }
}

/// As one who holds it alone: a renewal needs no memory.
#[test]
fn a_server_without_memory_renews_a_group_and_lets_it_go() {
    for (options, mode) in [(&["-s"][..], "shared"), (&["--slots", "3"], "slots3")] {
        let service = RedisService::fresh();
        let holders = [(); 2].map(|()| hold(&service, &[options, &["--ttl", "2s"]].concat()));
        service.redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let monitor = service.redis.monitor();
        // The mode is the last argument of a renewal. There are three in a lease.
        let renewal = |words: &&Vec<String>| runs_script(words) && words.last().is_some_and(|word| word == mode);
        monitor.wait_until("five renewals by each", |seen| seen.iter().filter(renewal).count() >= 10);
        assert!(holders.iter().all(|holder| holder.running.is_running()));
        for holder in holders {
            holder.let_go().success();
        }
        service.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        service.assert_free("job");
    }
}

/// Nobody enters before the leases are over that nobody can see any more.
#[test]
fn a_group_whose_entries_are_deleted_stays_closed_until_its_key_ends() {
    for name in ["holders", "details"] {
        let service = RedisService::fresh();
        let reader = hold(&service, &["-s", "--ttl", "3s"]);
        service.redis.cli(&["DEL", &side(name)]);
        refused(&service, &["-n"], 75, "did not get 'job': held shared by ");
        refused(&service, &["-n", "-s"], 75, "did not get 'job': held shared by ");
        reader.running.wait().code(79).stderr_is_one_line("lost 'job' at redis://");
        service.run("job").arg("-q").command(["echo", "ran"]).output().success().stdout_is("ran\n");
    }
}

#[test]
fn another_number_of_slots_is_refused_while_anybody_holds_or_waits() {
    let service = RedisService::fresh();
    let refused = |wait: &[&str]| {
        let options = [&["--slots", "2", "-E", "0"], wait].concat();
        refused(&service, &options, 64, "is in use with --slots 3");
    };
    let holder = hold(&service, &["--slots", "3"]);
    refused(&["-n"]);
    refused(&["-w", "20s"]);
    holder.let_go().success();
    let holder = hold(&service, &[]);
    let waiter = service.queue_up("job", &["-q", "--slots", "3"]);
    refused(&["-n"]);
    refused(&["-w", "20s"]);
    holder.let_go().success();
    waiter.wait_held();
    assert_eq!(service.queued("job"), 0);
    waiter.let_go().success();
    service.run("job").args(["--slots", "2"]).command(["true"]).output().success();
}

/// Each that enters wakes the next one, and nobody else looks.
#[test]
fn a_crowd_of_readers_takes_a_message_and_a_look_each() {
    const READERS: usize = 40;
    let service = RedisService::fresh();
    let holder = hold(&service, &[]);
    // Heartbeats are 10 s apart at this ttl.
    let readers: Vec<Gated> = (0..READERS).map(|_| service.queue_up("job", &["-q", "-s", "--ttl", "10m"])).collect();
    let monitor = service.redis.monitor();
    holder.let_go().success();
    readers.iter().for_each(Gated::wait_held);
    let seen = monitor.all();
    let messages = seen.iter().filter(|seen| seen.words[0] == "LPUSH").count();
    let looks = seen.iter().filter(|seen| runs_script(&seen.words) && seen.source != "lua").count();
    // One whose heartbeat comes first needs none.
    assert!((READERS / 2..=READERS + 2).contains(&messages), "{messages} messages for {READERS} readers");
    // Those of the holder's end, and heartbeats while this machine was busy.
    assert!(looks <= READERS + READERS / 2, "{looks} looks of {READERS} readers");
    for reader in readers {
        reader.let_go().success();
    }
    service.assert_tidy(&["job"]);
}

#[test]
fn a_replica_that_becomes_the_master_knows_all_who_hold_and_wait() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let run = || scratch.dlock().run("job").backend(set.url()).args(["-q", "--ttl", "12s"]);
    let readers = [(); 2].map(|()| Gated::spawn(&scratch, run().arg("-s")));
    readers.iter().for_each(Gated::wait_held);
    let writer = Gated::spawn(&scratch, run());
    let old = set.master();
    eventually("the writer to be in the queue", || (old.queued("job") == 1).then_some(()));
    wait_replicated(old, 2);
    let new = set.fail_over();
    assert_eq!(new.cli(&["ZCARD", &side("holders")]), "2");
    let monitor = new.monitor();
    // The mode is the last argument of a renewal.
    let renewal = |words: &&Vec<String>| runs_script(words) && words.last().is_some_and(|word| word == "shared");
    monitor.wait_until("a renewal by each", |seen| seen.iter().filter(renewal).count() >= 4);
    assert!(!writer.has_held() && readers.iter().all(|reader| reader.running.is_running()));
    run().args(["-n", "-s"]).command(["echo", "overtaken"]).output().code(75).stdout_is("").quiet();
    for reader in readers {
        reader.let_go().success();
    }
    writer.wait_held();
    writer.let_go().success();
}
