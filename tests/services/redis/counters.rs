/*!
Fencing counters that are damaged, and side keys that hold something else: refused before anything is written, with the
name of the key and what to do. On a majority of servers, one damaged counter spreads nowhere.
*/

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::redis_services::Redlock3;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::{Gated, Service};

const FENCE: &str = "{dlock:job}\u{1}fence";
/// The key of the fencing counter in the quotes in which redis-cli reads it.
const QUOTED: &str = "\"{dlock:job}\\x01fence\"";

/// The time in this many days, in microseconds since 1970.
pub fn micros_ahead(days: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    u64::try_from(now).unwrap() + days * 86_400_000_000
}

/// What counters must not be, and what is said of each.
fn damage() -> [(String, &'static str); 7] {
    [
        ("abc".to_owned(), "is not a number"),
        (String::new(), "is not a number"),
        ("-5".to_owned(), "is not a number"),
        ("1e15".to_owned(), "is not a number"),
        (micros_ahead(400).to_string(), "is more than a year ahead of the server's clock"),
        ("9007199254740990".to_owned(), "is too large"),
        ("9".repeat(400), "is too large"),
    ]
}

/// All keys of a server with what they hold.
fn content(redis: &Redis) -> Vec<(String, String)> {
    let dump = |key: String| (key.clone(), format!("{:?}", redis.call(&[b"DUMP", key.as_bytes()])));
    redis.keys().into_iter().map(dump).collect()
}

#[test]
fn a_damaged_counter_is_refused_before_anything_is_written_and_named_with_the_remedy() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let run = |wait| scratch.dlock().run("job").backend(redis.url()).args(["-w", wait]).command(["echo", "ran"]);
    for (counter, why) in damage() {
        redis.cli(&["SET", FENCE, &counter]);
        let before = content(&redis);
        // Waiting would not mend it.
        for wait in ["0", "30s"] {
            let outcome = run(wait).output();
            outcome.code(69).stdout_is("").stderr_is_one_line(why);
            let line = outcome.stderr();
            assert!(line.contains(&format!("the key {QUOTED} holds")), "{line}");
            assert!(line.contains(&format!("run DEL {QUOTED} in redis-cli")), "{line}");
        }
        assert_eq!(content(&redis), before, "{counter}");
        redis.cli(&["DEL", FENCE]);
        run("0").output().success().stdout_is("ran\n");
        redis.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_side_key_of_another_type_is_named() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let run = || scratch.dlock().run("job").backend(redis.url()).args(["-w", "30s"]).command(["echo", "ran"]);
    for (name, make) in [
        ("queue", &["SET", "KEY", "x"][..]),
        ("queue", &["HSET", "KEY", "x", "y"]),
        ("alive", &["LPUSH", "KEY", "x"]),
        ("modes", &["SADD", "KEY", "x"]),
        ("holders", &["SET", "KEY", "x"]),
        ("details", &["ZADD", "KEY", "1", "x"]),
        ("fence", &["HSET", "KEY", "x", "y"]),
        ("fence", &["ZADD", "KEY", "1", "x"]),
    ] {
        let key = format!("{{dlock:job}}\u{1}{name}");
        let words: Vec<&str> = make.iter().map(|word| if *word == "KEY" { key.as_str() } else { word }).collect();
        redis.cli(&words);
        let before = content(&redis);
        let kind = redis.cli(&["TYPE", &key]);
        let outcome = run().output();
        let expected = format!("its key \"{{dlock:job}}\\x01{name}\" holds a {kind}, which is not dlock's");
        outcome.code(69).stdout_is("").stderr_is_one_line(&expected);
        assert_eq!(content(&redis), before, "{make:?}");
        redis.cli(&["DEL", &key]);
        run().output().success().stdout_is("ran\n");
        redis.cli(&["FLUSHALL"]);
    }
}

/// The lock is given back all the same.
#[test]
fn a_queue_that_is_damaged_while_the_lock_is_held_does_not_keep_it() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let holder = Gated::spawn(&scratch, scratch.dlock().run("job").backend(redis.url()));
    holder.wait_held();
    redis.cli(&["SET", "{dlock:job}\u{1}queue", "x"]);
    holder.let_go().success();
    assert_eq!(redis.get("dlock:job"), None);
}

#[test]
fn one_damaged_counter_of_a_majority_spreads_nowhere_and_is_warned_of() {
    for (counter, why) in damage() {
        let service = Redlock3::fresh();
        service.servers[0].cli(&["SET", FENCE, &counter]);
        let mut last = 0;
        for _ in 0..2 {
            let outcome = service.run("job").shell("echo $DLOCK_TOKEN").output();
            outcome.code(0).stderr_is_one_line("one server less: ");
            let line = outcome.stderr();
            assert!(line.contains(why) && line.contains(&service.servers[0].port().to_string()), "{line}");
            let token: u64 = outcome.stdout().trim_end().parse().unwrap();
            assert!(token > last && token < micros_ahead(1), "{token} after {last}");
            last = token;
        }
        let counters: Vec<_> = service.servers.iter().filter_map(|redis| redis.get(FENCE)).collect();
        assert_eq!(counters, [counter, last.to_string(), last.to_string()]);
        assert_eq!(service.servers[0].keys(), [FENCE]);
    }
}

#[test]
fn without_a_majority_of_sound_counters_there_is_no_lock() {
    for (counter, why) in damage() {
        let service = Redlock3::fresh();
        for redis in &service.servers[1..] {
            redis.cli(&["SET", FENCE, &counter]);
        }
        // Waiting would not mend it.
        let outcome = service.run("job").args(["-w", "30s"]).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_ends_with_line(why);
        assert!(outcome.stderr().contains("no majority: 2 of 3 servers cannot be used: "), "{outcome:?}");
        for redis in &service.servers[1..] {
            assert_eq!((redis.keys(), redis.get(FENCE)), (vec![FENCE.to_owned()], Some(counter.clone())));
        }
        assert_eq!(service.servers[0].get("dlock:job"), None);
    }
}
