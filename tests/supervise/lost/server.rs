//! The server is killed or frozen.

use super::*;

#[test]
fn a_server_that_is_frozen_for_three_ttl_is_survived_by_no_command() {
    let redis = Redis::start();
    let scene = Scene::start(&redis, &redis.url(), &[]);
    let waiter = scene.wait_behind(&redis.url());
    scene.monitor.wait_renewed(KEY);
    redis.stop();
    let stopped = boottime();
    scene.assert_dies_in_time(stopped);
    last_until(stopped + 3 * TTL);
    redis.cont();
    scene.assert_lost("not answer").taken_over_by(waiter);
}

#[test]
fn a_server_that_is_killed_for_good_is_survived_by_no_command() {
    let redis = Redis::start();
    let scene = Scene::start(&redis, &redis.url(), &[]);
    scene.monitor.wait_renewed(KEY);
    redis.kill();
    scene.assert_dies_in_time(boottime());
    scene.assert_lost("refused");
}

#[test]
fn a_server_that_comes_back_empty_after_the_lease_finds_no_command() {
    let redis = Redis::start();
    let scene = Scene::start(&redis, &redis.url(), &[]);
    let waiter = scene.wait_behind(&redis.url());
    scene.monitor.wait_renewed(KEY);
    redis.kill();
    scene.assert_dies_in_time(boottime());
    redis.restart();
    scene.assert_lost("refused").taken_over_by(waiter);
}

#[test]
fn a_server_that_comes_back_empty_at_once_ends_the_command_at_the_next_renewal() {
    let redis = Redis::start();
    let mut scene = Scene::start(&redis, &redis.url(), &["-t", "2s"]);
    scene.monitor.wait_renewed(KEY);
    redis.kill();
    let killed = boottime();
    redis.restart();
    let lease = Lease { ends: scene.monitor.expiry(KEY, killed), ttl: 2 * TTL };
    lease.ends_at_the_next_renewal(&mut scene.tree);
    let aftermath = scene.assert_lost("its key is gone from the server");
    // Only now: until that renewal nothing but the token protects.
    let next = aftermath.next(&redis.url(), "true");
    aftermath.taken_over_by(next);
}
