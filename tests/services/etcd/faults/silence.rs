//! Members that are silent, for a moment or for good.

use super::*;

#[test]
fn a_server_that_does_not_answer_in_time_is_survived_by_no_command() {
    at_once(&[
        ("frozen", a_server_that_is_frozen_for_three_ttl_is_survived_by_no_command),
        ("killed", a_server_that_is_killed_for_good_is_survived_by_no_command),
        ("late", a_deadline_counts_from_when_the_renewal_was_sent),
        ("far away", a_server_that_is_far_away_serves),
    ]);
}

fn a_server_that_is_frozen_for_three_ttl_is_survived_by_no_command() {
    let service = EtcdService::fresh();
    let scene = Scene::start(&service, &service.url(), &[]);
    let waiter = scene.wait_behind();
    renewed(&service.etcd);
    service.etcd.stop();
    let stopped = boottime();
    scene.assert_dies_within(TTL, stopped);
    last_until(stopped + 3 * TTL);
    service.etcd.cont();
    scene.lost_to(waiter, "does not answer");
}

fn a_server_that_is_killed_for_good_is_survived_by_no_command() {
    let service = EtcdService::fresh();
    let scene = Scene::start(&service, &service.url(), &[]);
    renewed(&service.etcd);
    service.etcd.kill();
    scene.assert_dies_within(TTL, boottime());
    assert_lost(&scene.holder.wait(), "refused");
}

/// Of renewals whose answers are lost or too slow, etcd knows that the lease was extended, and nobody here.
#[test]
fn a_way_that_fails_is_survived_by_no_command() {
    let silent = [Mode::Silent, Mode::DropReplies, Mode::DropRequests, Mode::Drip(Duration::from_millis(50))];
    thread::scope(|scope| {
        for mode in silent {
            scope.spawn(move || lost_behind(mode, "does not answer"));
        }
        // How it is called depends on what the reset came upon.
        scope.spawn(|| lost_behind(Mode::Reset, "no renewal was confirmed"));
        scope.spawn(|| lost_behind(Mode::Refuse, "refused"));
    });
}

/// The holder reaches the server through the fault, the waiter past it.
fn lost_behind(mode: Mode, why: &str) {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let scene = Scene::start(&service, &behind(&proxy), &[]);
    let waiter = scene.wait_behind();
    renewed(&service.etcd);
    proxy.set(mode);
    let asked = proxy.counts().accepted;
    scene.assert_dies_within(TTL, boottime());
    if !matches!(mode, Mode::Refuse) {
        assert!(proxy.counts().accepted > asked, "no renewal was retried on a new connection");
    }
    scene.lost_to(waiter, why);
}

/// A deadline that counted from the answer would be late by as much as the answer.
fn a_deadline_counts_from_when_the_renewal_was_sent() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let scene = Scene::start(&service, &behind(&proxy), &["-t", "2s", "--kill-after", "0"]);
    let waiter = scene.wait_behind();
    renewed(&service.etcd);
    proxy.set(Mode::DelayReplies(Duration::from_millis(250)));
    let answered = proxy.counts().replies;
    let last = renewed(&service.etcd);
    // Its second half is what counts: with the first, only the lease is known to live.
    let both = 2 * 60;
    eventually("late answers", || (proxy.counts().replies >= answered + both).then_some(()));
    proxy.set(Mode::Silent);
    scene.assert_dies_within(2 * TTL, last);
    scene.lost_to(waiter, "does not answer");
}

fn a_server_that_is_far_away_serves() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    proxy.set(Mode::Delay(Duration::from_millis(60)));
    let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "2s"]);
    let holder = Gated::spawn(service.scratch(), dlock);
    holder.wait_held();
    for _ in 0..4 {
        renewed(&service.etcd);
    }
    holder.let_go().success();
    assert_clean(&service);
}
