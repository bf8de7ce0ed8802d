/*!
How often a waiter looks at a lock, whatever it is told, and how much work one look is.
*/

use std::time::{Duration, Instant};

use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::servers::{Monitor, Redis};
use crate::support::service::Gated;

const QUEUE: &str = "{dlock:job}\u{1}queue";

/// A holder, and one who waits for the lock; with the name of the list that wakes the waiter.
fn holder_and_waiter(scratch: &Scratch, redis: &Redis) -> (Gated, Gated, String) {
    let run = || scratch.dlock().run("job").backend(redis.url()).args(["-q"]);
    let holder = Gated::spawn(scratch, run());
    holder.wait_held();
    let waiter = Gated::spawn(scratch, run());
    let id = eventually("the waiter to be in the queue", || {
        let queue = redis.cli(&["ZRANGE", QUEUE, "0", "-1"]);
        (!queue.is_empty()).then_some(queue)
    });
    (holder, waiter, format!("{{dlock:job}}\u{1}wake:{id}"))
}

fn looks(monitor: &Monitor) -> u32 {
    u32::try_from(monitor.scripts().len()).unwrap()
}

#[test]
fn however_often_a_waiter_is_woken_its_looks_are_ten_milliseconds_apart() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let (holder, waiter, wake) = holder_and_waiter(&scratch, &redis);
    let (monitor, begun) = (redis.monitor(), Instant::now());
    for _ in 0..2000 {
        redis.cli(&["LPUSH", &wake, "1"]);
    }
    let looks = looks(&monitor);
    let most = u32::try_from(begun.elapsed().as_millis() / 10).unwrap() + 2;
    assert!(looks <= most, "{looks} looks instead of {most}");
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

#[test]
fn messages_that_pile_up_are_answered_by_one_look() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let (holder, waiter, wake) = holder_and_waiter(&scratch, &redis);
    let monitor = redis.monitor();
    let messages: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    let words = ["LPUSH", &wake].into_iter().chain(messages.iter().map(String::as_str));
    redis.cli(&words.collect::<Vec<_>>());
    eventually("the messages to be gone", || (redis.cli(&["EXISTS", &wake]) == "0").then_some(()));
    let looks = looks(&monitor);
    assert!(looks <= 3, "{looks} looks");
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

#[test]
fn one_look_drops_at_most_a_thousand_dead_waiters() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let dead: Vec<String> = (0..2500).flat_map(|number| [number.to_string(), format!("{number:032x}")]).collect();
    let words = ["ZADD", QUEUE].into_iter().chain(dead.iter().map(String::as_str));
    redis.cli(&words.collect::<Vec<_>>());
    let run = || scratch.dlock().run("job").backend(redis.url()).arg("-q");
    run().arg("-n").command(["echo", "ran"]).output().code(75).quiet();
    assert_eq!(redis.cli(&["ZCARD", QUEUE]), "1500");
    // A waiter comes to the end of them soon.
    let outcome = run().args(["-t", "30s"]).command(["echo", "ran"]).output();
    outcome.success().stdout_is("ran\n");
    assert!(outcome.elapsed() < Duration::from_secs(4), "{outcome:?}");
    assert_eq!(redis.cli(&["EXISTS", QUEUE]), "0");
}

#[test]
fn later_looks_call_the_script_by_its_digest_until_the_server_refuses_that() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let (holder, waiter, wake) = holder_and_waiter(&scratch, &redis);
    let monitor = redis.monitor();
    let seen = || monitor.scripts().into_iter().map(|words| words[0].clone()).collect::<Vec<_>>();
    let look = |expected: &[&str]| {
        let before = seen().len();
        redis.cli(&["LPUSH", &wake, "1"]);
        eventually("a look", || (seen().len() >= before + expected.len()).then_some(()));
        assert_eq!(seen()[before..], *expected);
    };
    look(&["EVALSHA"]);
    redis.cli(&["SCRIPT", "FLUSH"]);
    look(&["EVALSHA", "EVAL"]);
    look(&["EVAL"]);
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}
