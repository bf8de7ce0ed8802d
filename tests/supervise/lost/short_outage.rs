//! Outages that are over before the lease expires.

use super::*;

#[test]
fn a_server_frozen_for_half_a_lease_is_not_noticed() {
    let redis = Redis::start();
    outlives_unnoticed(&redis, &redis.url(), 1, || {
        redis.stop();
        last_until(boottime() + TTL);
        redis.cont();
    });
}

#[test]
fn a_moment_of_refusals_is_not_noticed() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    outlives_unnoticed(&redis, &behind(&proxy), 1, || {
        proxy.set(Mode::Refuse);
        last_until(boottime() + TTL);
        proxy.set(Mode::Forward);
    });
}

#[test]
fn a_moment_of_silence_is_not_noticed() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    outlives_unnoticed(&redis, &behind(&proxy), 1, || {
        proxy.set(Mode::Silent);
        // Until one renewal has gone unanswered.
        eventually("a lost renewal", || (proxy.counts().lost_requests > 0).then_some(()));
        let connections = proxy.counts().accepted;
        eventually("another try", || (proxy.counts().accepted > connections).then_some(()));
        proxy.set(Mode::Forward);
    });
}

#[test]
fn a_connection_that_is_killed_is_made_again() {
    let redis = Redis::start();
    outlives_unnoticed(&redis, &redis.url(), 2, || {
        // From the first renewal on there is another one, on which dlock waits for requests to stop.
        let client = eventually("the connection of the renewals", || {
            redis.clients().into_iter().find(|client| client.contains("cmd=eval"))
        });
        let id = client.split(' ').find_map(|word| word.strip_prefix("id=")).expect("an id");
        assert_eq!(redis.cli(&["CLIENT", "KILL", "ID", id]), "1");
    });
}

#[test]
fn scripts_that_are_flushed_are_sent_again() {
    let redis = Redis::start();
    outlives_unnoticed(&redis, &redis.url(), 2, || {
        redis.cli(&["SCRIPT", "FLUSH"]);
    });
}
