//! Nobody there, or nobody that can help.

use super::*;

#[test]
fn a_server_that_is_not_there_is_69_with_the_reason() {
    let (scratch, [a, b, c]) = (Scratch::new(), [Port::reserve(), Port::reserve(), Port::reserve()]);
    let one = format!("etcd://127.0.0.1:{}", a.number());
    let three = format!("{one},127.0.0.1:{},127.0.0.1:{}", b.number(), c.number());
    for url in [one, three] {
        let outcome = scratch.dlock().run("job").backend(&url).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("refused");
        assert!(outcome.elapsed() < Duration::from_secs(2), "{outcome:?}");
    }
}

#[test]
fn servers_that_are_frozen_are_69_in_bounded_time() {
    let (one, three) = (EtcdService::fresh(), EtcdService::on(Etcd::cluster()));
    one.etcd.stop();
    three.etcd.stop();
    let start = |service: &EtcdService| {
        let dlock = service.run("job").args(["-t", "3s", "--connect-timeout", "1s"]);
        dlock.command(["echo", "ran"]).spawn()
    };
    for running in [start(&one), start(&three)] {
        let outcome = running.wait();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not");
        assert!(outcome.elapsed() < Duration::from_secs(5), "{outcome:?}");
    }
    // What was sent meanwhile must not grant anything for long.
    one.etcd.cont();
    eventually("the end of what was asked for", || one.litter(&[]).is_empty().then_some(()));
}

/// The member that is asked knows that it cannot help, and says so at once.
#[test]
fn a_cluster_without_a_majority_is_69_with_the_reason() {
    let service = EtcdService::on(Etcd::cluster());
    let alive = service.etcd.leader();
    for member in (0..3).filter(|&member| member != alive) {
        service.etcd.member(member).kill();
    }
    let outcome = service.run("job").args(["-t", "3s"]).command(["echo", "ran"]).output();
    outcome.code(69).stdout_is("").stderr_is_one_line("did not get 'job'");
    assert!(outcome.elapsed() < Duration::from_secs(7), "{outcome:?}");
}

/// The follower that is asked sends the request on to the leader, where it is lost, and says nothing of it for 7 s.
#[test]
fn a_leader_that_is_killed_as_a_run_comes_is_only_a_delay() {
    let service = EtcdService::on(cluster());
    let leader = service.etcd.leader();
    let url = format!("etcd://127.0.0.1:{}", service.etcd.member((leader + 1) % 3).port());
    service.etcd.member(leader).kill();
    let run = service.scratch().dlock().run("job").backend(url).args(["-t", "6s"]).command(["echo", "ran"]).output();
    run.success().stdout_is("ran\n");
    assert_clean(&service);
}

#[test]
fn an_outage_while_it_waits_is_ridden_out() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-t", "60s", "-q"]);
    let place = contenders(&service).remove(1);
    // An outage before it knows of its place is one of the first contact.
    let watched = || service.etcd.metric("etcd_debugging_mvcc_watcher_total") == 1;
    eventually("the waiter", || watched().then_some(()));
    service.etcd.restart();
    // It comes back to the same place.
    eventually("the waiter again", || watched().then_some(()));
    assert_eq!(contenders(&service)[1], place);
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
    assert_clean(&service);
}
