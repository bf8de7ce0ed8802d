//! Members of a cluster of three.

use super::*;

#[test]
fn members_that_fail_are_not_noticed_and_majorities_that_fail_are_survived_by_no_command() {
    at_once(&[
        ("leader", a_leader_that_freezes_or_is_killed_is_not_noticed),
        ("in use", a_member_in_use_that_freezes_or_is_killed_is_not_noticed),
        ("majority with leader", || majority_freezes(true)),
        // It may go on to extend leases for a while, and knows nothing of what the others decide.
        ("majority without leader", || majority_freezes(false)),
    ]);
}

fn a_leader_that_freezes_or_is_killed_is_not_noticed() {
    let service = EtcdService::on(cluster());
    unnoticed(&service, &service.url(), || service.etcd.leader());
}

fn a_member_in_use_that_freezes_or_is_killed_is_not_noticed() {
    let endpoints = Endpoints::of_a_cluster();
    unnoticed(&endpoints.service, &endpoints.url(), || endpoints.in_use());
}

/// Held while `which` member freezes and comes back, and another one is killed for good.
fn unnoticed(service: &EtcdService, url: &str, which: impl Fn() -> usize) {
    // Longer than a renewal and an election whose first vote was split.
    let dlock = service.scratch().dlock().run("job").backend(url).args(["-t", "3s"]);
    let holder = Gated::spawn(service.scratch(), dlock);
    holder.wait_held();
    renewed(&service.etcd);
    let frozen = which();
    service.etcd.member(frozen).stop();
    // Long enough for two renewals. A leader of this version that stands still for longer than the lease revokes it
    // when it comes back, although it was renewed.
    last_until(boottime() + 9 * TTL / 4);
    assert!(process::is_alive(holder.running.command_pid()));
    service.etcd.member(frozen).cont();
    service.etcd.leader();
    renewed(&service.etcd);
    service.etcd.member(which()).kill();
    last_until(boottime() + 3 * TTL);
    let waiter = service.queue_up("job", &["-t", "60s"]);
    holder.let_go().success();
    waiter.wait_held();
    assert_waited(&waiter.let_go());
    assert_clean(service);
}

/// It would keep a watch open that nothing comes through any more, until the next sign of life.
#[test]
fn a_member_that_is_cut_off_from_the_others_is_left_by_those_who_wait() {
    let endpoints = Endpoints::of_a_cluster();
    let service = &endpoints.service;
    let holder = service.hold("job");
    let waiter = Gated::spawn(service.scratch(), endpoints.dlock().args(["-t", "3m", "-q"]));
    service.wait_queued("job", 1);
    let place = contenders(service).remove(1);
    let member = endpoints.in_use();
    eventually("its watch", || (service.etcd.metric("etcd_debugging_mvcc_watcher_total") == 1).then_some(()));
    let others: Vec<usize> = (0..3).filter(|&other| other != member).collect();
    for &other in &others {
        service.etcd.member(other).stop();
    }
    eventually("it to look elsewhere", || {
        others.iter().any(|&other| endpoints.proxies[other].counts().accepted > 0).then_some(())
    });
    for &other in &others {
        service.etcd.member(other).cont();
    }
    service.etcd.leader();
    holder.let_go().success();
    waiter.wait_held();
    // It kept its place.
    assert_eq!(contenders(service)[0].create_revision, place.create_revision);
    waiter.let_go().success();
    assert_clean(service);
}

fn majority_freezes(with_leader: bool) {
    let service = EtcdService::on(cluster());
    let scene = Scene::start(&service, &service.url(), &["-t", "2s"]);
    let waiter = scene.wait_behind();
    let leader = service.etcd.leader();
    let spared = if with_leader { (leader + 1) % 3 } else { leader };
    renewed(&service.etcd);
    for member in (0..3).filter(|&member| member != spared) {
        service.etcd.member(member).stop();
    }
    let stopped = boottime();
    scene.assert_dies_within(2 * TTL, stopped);
    // What exactly it says depends on which member it asked last.
    let outcome = scene.holder.wait();
    assert_lost(&outcome, "no renewal was confirmed for");
    service.etcd.cont();
    assert_taken_over(&scene.witness, waiter);
    assert_clean(&service);
}
