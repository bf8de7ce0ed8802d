//! The server itself says that the lock belongs to somebody else.

use super::*;

#[test]
fn a_key_that_is_deleted_ends_the_command_at_the_next_renewal() {
    let redis = Redis::start();
    taken_away_by(&redis, "redis.call('DEL', KEYS[1])", "its key is gone from the server");
    assert_eq!(redis.get(KEY), None);
}

#[test]
fn a_key_that_is_anothers_ends_the_command_and_stays_anothers() {
    let redis = Redis::start();
    taken_away_by(&redis, "redis.call('SET', KEYS[1], 'theirs', 'PX', 600000)", "its key is held by");
    assert_eq!(redis.get(KEY).as_deref(), Some("theirs"));
    // Neither shortened nor extended to dlock's lease.
    assert!(redis.pttl(KEY) > 500_000);
}

#[test]
fn a_key_that_became_a_list_ends_the_command_and_stays_a_list() {
    let redis = Redis::start();
    let list = "redis.call('DEL', KEYS[1]); redis.call('RPUSH', KEYS[1], 'a', 'b')";
    taken_away_by(&redis, list, "something else is at its key");
    assert_eq!(redis.cli(&["LRANGE", KEY, "0", "-1"]), "a\nb");
    assert_eq!(redis.pttl(KEY), -1);
}

fn taken_away_by(redis: &Redis, change: &str, why: &str) {
    let mut scene = Scene::start(redis, &redis.url(), &["-t", "2s"]);
    let lease = Lease { ends: replace(redis, change), ttl: 2 * TTL };
    lease.ends_at_the_next_renewal(&mut scene.tree);
    scene.assert_lost(why);
}

#[test]
fn a_key_deleted_just_before_the_command_ends_is_told_as_a_loss() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("{}; {}; echo all done", words.say("running"), gate.wait());
    // No renewal comes before the end.
    let dlock = scratch.dlock().run("job").backend(redis.url()).args(["-t", "10m"]).shell(script).spawn();
    words.expect("running");
    assert_eq!(redis.cli(&["DEL", KEY]), "1");
    gate.open();
    let outcome = dlock.wait();
    assert_lost(&outcome, "not ours any more when it ended");
    outcome.stdout_is("all done\n");
}

#[test]
fn a_key_overwritten_just_before_the_command_ends_is_not_deleted() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("{}; {}", words.say("running"), gate.wait());
    let dlock = scratch.dlock().run("job").backend(redis.url()).args(["-t", "10m"]).shell(script).spawn();
    words.expect("running");
    redis.cli(&["SET", KEY, "theirs"]);
    gate.open();
    assert_lost(&dlock.wait(), "not ours any more when it ended");
    assert_eq!(redis.get(KEY).as_deref(), Some("theirs"));
}
