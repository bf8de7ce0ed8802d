//! The connection is open, and what is sent over it is late or lost.

use super::*;

#[test]
fn silence_both_ways_is_survived_by_no_command() {
    lost_behind(Mode::Silent, "not answer");
}

/// At the server the lease is extended, but the client cannot know that.
#[test]
fn renewals_whose_answers_are_lost_do_not_count() {
    lost_behind(Mode::DropReplies, "not answer");
}

#[test]
fn requests_that_are_lost_are_survived_by_no_command() {
    lost_behind(Mode::DropRequests, "not answer");
}

#[test]
fn connections_that_are_reset_are_survived_by_no_command() {
    // The wording depends on what the reset interrupted.
    lost_behind(Mode::Reset, "no renewal was confirmed");
}

#[test]
fn connections_that_are_refused_are_survived_by_no_command() {
    lost_behind(Mode::Refuse, "refused");
}

#[test]
fn answers_that_drip_do_not_count() {
    lost_behind(Mode::Drip(Duration::from_millis(100)), "not answer");
}

/// The holder reaches the server through the faulty proxy, the waiter directly.
fn lost_behind(mode: Mode, why: &str) {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let scene = Scene::start(&redis, &behind(&proxy), &[]);
    let waiter = scene.wait_behind(&redis.url());
    // The next renewal is far away: what is confirmed now is the last one.
    scene.monitor.wait_renewed(KEY);
    let confirmed = boottime();
    proxy.set(mode);
    let asked = proxy.counts().accepted;
    scene.assert_dies_in_time(confirmed);
    if !matches!(mode, Mode::Refuse) {
        assert!(proxy.counts().accepted > asked, "no renewal was retried on a new connection");
    }
    scene.assert_lost(why).taken_over_by(waiter);
}

/// A deadline measured from the answer would be as late as the answer.
#[test]
fn a_deadline_counts_from_when_the_renewal_was_sent() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    // With no part of the lease reserved for SIGTERM, a renewal may take 740 ms; the margin is 450 ms.
    let scene = Scene::start(&redis, &behind(&proxy), &["-t", "4s", "--kill-after", "0"]);
    let waiter = scene.wait_behind(&redis.url());
    proxy.set(Mode::DelayReplies(Duration::from_millis(650)));
    let answered = proxy.counts().replies;
    scene.monitor.wait_renewed(KEY);
    eventually("a late answer", || (proxy.counts().replies > answered).then_some(()));
    let confirmed = boottime();
    proxy.set(Mode::Silent);
    scene.assert_dies_in_time(confirmed);
    scene.assert_lost("not answer").taken_over_by(waiter);
}

#[test]
fn a_server_that_is_far_away_serves() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    // With this lease, a renewal may take 194 ms: a third of what is left until SIGTERM.
    proxy.set(Mode::Delay(Duration::from_millis(60)));
    outlives_unnoticed(&redis, &behind(&proxy), 3, || {});
}

#[test]
fn an_acquire_whose_answer_is_lost_ends_in_time_and_leaves_no_lock() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    proxy.set(Mode::DropReplies);
    let monitor = redis.monitor();
    let scratch = Scratch::new();
    // With a lease that outlasts this test by far.
    let dlock = scratch.dlock().run("job").backend(behind(&proxy)).args(["-t", "10m"]).shell("echo ran");
    let outcome = dlock.output();
    outcome.code(69).stdout_is("").stderr_is_one_line("did not get 'job': ");
    // It is asked for twice, for five seconds and for two, and then taken back.
    assert!(outcome.elapsed() < Duration::from_secs(11), "{outcome:?}");
    // It was granted all the same, and released.
    monitor.expiry(KEY, boottime());
    eventually("the lock to be given back", || redis.get(KEY).is_none().then_some(()));
}

/// It is a valid lock until it is released.
#[test]
fn a_grant_that_comes_with_too_little_left_is_not_used() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    // With half of the lease reserved for SIGTERM, it is of use for 1.6 s after the request; an answer may take 2 s.
    proxy.set(Mode::DelayReplies(Duration::from_millis(1940)));
    let scratch = Scratch::new();
    let dlock = scratch.dlock().run("job").backend(behind(&proxy)).args(["-t", "6s", "--kill-after", "3s"]);
    dlock.shell("echo ran").output().code(69).stdout_is("").stderr_is_one_line("did not get 'job': ");
    assert_eq!(redis.get(KEY), None);
}

/// If not even that is possible, the lease ends it.
#[test]
fn an_acquire_that_cannot_be_taken_back_leaves_the_lock_for_no_more_than_a_lease() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    proxy.set(Mode::CutReplyAfter(0));
    let monitor = redis.monitor();
    let scratch = Scratch::new();
    let dlock = scratch.dlock().run("job").backend(behind(&proxy)).args(["-t", "1s"]).shell("echo ran").spawn();
    monitor.wait_until("the acquire", |words| words.iter().any(|words| runs_script(words)));
    proxy.set(Mode::Silent);
    dlock.wait().code(69).stdout_is("").stderr_is_one_line("did not get 'job': ");
    let scratch = Scratch::new();
    let next = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s", "-q"]).shell("true");
    next.output().success();
}
