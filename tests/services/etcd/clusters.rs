//! A URL whose members belong to different clusters: two holders would each have a lock of their own.

use super::*;

/// 69 in one line that names both, and nothing happened.
#[track_caller]
fn assert_refused(outcome: &Outcome, services: [&EtcdService; 2]) {
    outcome.code(69).stdout_is("").stderr_is_one_line("belong to different clusters");
    let line = outcome.stderr();
    for service in services {
        assert!(line.contains(&format!("127.0.0.1:{}", service.etcd.member(0).port())), "{line}");
    }
}

#[test]
fn members_of_two_clusters_are_refused_whichever_is_asked_first() {
    let (one, other) = (EtcdService::fresh(), EtcdService::fresh());
    let url = format!("{},127.0.0.1:{}", one.url(), other.etcd.member(0).port());
    let run = |options: &[&str]| {
        let dlock = one.scratch().dlock().run("job").backend(&url).args(options);
        dlock.command(["echo", "ran"]).output()
    };
    // It begins with any of them.
    for _ in 0..4 {
        assert_refused(&run(&[]), [&one, &other]);
        assert_refused(&run(&["-n"]), [&one, &other]);
        assert_refused(&run(&["-w", "60"]), [&one, &other]);
    }
    assert_clean(&one);
    assert_clean(&other);
    // One that cannot be asked says nothing against the other.
    other.etcd.kill();
    run(&[]).success();
}

#[test]
fn a_holder_whose_member_fails_does_not_go_on_with_another_clusters() {
    let (one, other) = (EtcdService::fresh(), EtcdService::fresh());
    let proxies = [&one, &other].map(|service| Proxy::to(service.etcd.member(0).port()));
    // Out of reach at first, so that nothing is known of it.
    proxies[1].set(Mode::Refuse);
    let url = format!("{},127.0.0.1:{}", behind(&proxies[0]), proxies[1].port());
    let holder = Gated::spawn(one.scratch(), one.scratch().dlock().run("job").backend(&url).args(["-t", "3s"]));
    holder.wait_held();
    renewed(&one.etcd);
    proxies[1].set(Mode::Forward);
    proxies[0].set(Mode::Refuse);
    let outcome = holder.running.wait();
    // Not that the lease is unknown there: it was never asked.
    assert_lost(&outcome, "no renewal was confirmed");
    assert!(outcome.stderr().contains("belong to different clusters"), "{outcome:?}");
    assert_clean(&other);
}
