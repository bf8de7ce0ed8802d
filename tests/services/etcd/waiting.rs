//! What befalls those who wait.

use super::*;

/// etcd #11456: the end of the one before it says nothing about a place that is gone itself.
#[test]
fn who_lost_its_lease_while_it_waited_does_not_run_when_its_turn_would_be() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let first = service.queue_up("job", &["-t", "60s"]);
    let second = service.queue_up("job", &["-t", "60s"]);
    // It hears of both ends at once.
    process::signal(first.pid(), Signal::SIGSTOP);
    process::wait_stopped(first.pid());
    service.etcd.revoke(contenders(&service)[1].lease);
    holder.let_go().success();
    second.wait_held();
    process::signal(first.pid(), Signal::SIGCONT);
    // It is in the queue again, with a new key, behind who has the lock.
    service.wait_queued("job", 1);
    assert!(!first.has_held(), "two hold the lock");
    let token: u64 = told(&second, "DLOCK_TOKEN").parse().unwrap();
    assert_waited(&second.let_go());
    first.wait_held();
    assert!(told(&first, "DLOCK_TOKEN").parse::<u64>().unwrap() > token);
    assert_waited(&first.let_go());
    assert_clean(&service);
}

#[test]
fn a_place_that_is_taken_away_is_asked_for_again_at_the_end_of_the_queue() {
    let service = EtcdService::fresh();
    for lose_lease in [true, false] {
        let holder = service.hold("job");
        let first = service.queue_up("job", &["-t", "1s"]);
        let second = service.queue_up("job", &["-t", "60s"]);
        let place = contenders(&service).remove(1);
        if lose_lease {
            service.etcd.revoke(place.lease);
        } else {
            assert!(service.etcd.delete(&place.key));
        }
        service.wait_queued("job", 2);
        assert!(contenders(&service)[2].create_revision > place.create_revision);
        holder.let_go().success();
        second.wait_held();
        assert!(!first.has_held());
        assert_waited(&second.let_go());
        first.wait_held();
        assert_waited(&first.let_go());
        assert_clean(&service);
    }
}

/// That the lease is gone is an answer, and a good one: there is nothing wrong with who gave it.
#[test]
fn a_lost_place_is_no_reason_to_leave_the_server() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let holder = service.hold("job");
    let waiter = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "1s"]);
    let waiter = Gated::spawn(service.scratch(), waiter);
    // Before it has had an answer, losing its place would be a failure of the first contact.
    waiter.running.wait_stderr("waiting for 'job'");
    service.etcd.revoke(contenders(&service)[1].lease);
    service.wait_queued("job", 1);
    assert_eq!(proxy.counts().accepted, 1);
    holder.let_go().success();
    waiter.let_go().code(0).stderr_is_one_line("waiting for 'job'");
}

#[test]
fn who_waits_stays_in_the_queue_for_many_leases() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-t", "1s", "-q"]);
    let place = contenders(&service).remove(1);
    for _ in 0..5 {
        renewed(&service.etcd);
    }
    assert_eq!(contenders(&service)[1], place);
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
    assert_clean(&service);
}

/// A watch from before the compaction is refused: what is true is read again.
#[test]
fn a_compaction_while_it_begins_to_wait_is_no_error() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let holder = service.hold("job");
    // Time enough between the look at the queue and the watch that starts there.
    proxy.set(Mode::DelayReplies(Duration::from_millis(300)));
    let requests = service.etcd.count_requests();
    let waiter = Gated::spawn(service.scratch(), service.scratch().dlock().run("job").backend(behind(&proxy)));
    service.wait_queued("job", 1);
    for _ in 0..3 {
        service.etcd.put("elsewhere", "", 0);
    }
    service.etcd.delete("elsewhere");
    service.etcd.compact();
    // It comes back to a watch that lasts.
    eventually("a second watch", || (requests.so_far().get("Watch") >= Some(&2)).then_some(()));
    proxy.set(Mode::Forward);
    holder.let_go().success();
    waiter.wait_held();
    assert_waited(&waiter.let_go());
    assert_clean(&service);
}

#[test]
fn a_watch_that_breaks_costs_neither_the_place_nor_the_news() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let holder = service.hold("job");
    let waiter = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "60s"]);
    let waiter = Gated::spawn(service.scratch(), waiter);
    service.wait_queued("job", 1);
    eventually("a watch", || (watchers(&service.etcd) == 1).then_some(()));
    let place = contenders(&service).remove(1);
    proxy.set(Mode::Reset);
    eventually("the end of the watch", || (watchers(&service.etcd) == 0).then_some(()));
    proxy.set(Mode::Forward);
    eventually("another watch", || (watchers(&service.etcd) == 1).then_some(()));
    assert_eq!(contenders(&service)[1], place);
    // The release falls into the next gap.
    proxy.set(Mode::Refuse);
    holder.let_go().success();
    proxy.set(Mode::Forward);
    waiter.wait_held();
    assert_waited(&waiter.let_go());
    assert_clean(&service);
}

/// A lock that is granted with too little left of the lease is extended by asking again.
#[test]
fn a_turn_that_comes_late_in_the_waiters_lease_is_taken() {
    let service = EtcdService::fresh();
    let watch = service.etcd.watch("dlock/job/");
    let holder = service.hold("job");
    // Of use until 1.25 s after it was granted, and extended after 1.33 s.
    let waiter = service.queue_up("job", &["-t", "4s", "--kill-after", "2s", "-q"]);
    let key = contenders(&service).remove(1).key;
    let granted = watch.wait("the place", |event| event.key == key).at;
    crate::support::rendezvous::last_until(granted + Duration::from_millis(1285));
    holder.let_go().success();
    waiter.let_go().success();
    assert_clean(&service);
}

#[test]
fn a_key_that_is_no_lock_is_named_and_waited_for() {
    let service = EtcdService::fresh();
    let lease = service.etcd.grant(60);
    let strays = [
        ("dlock/job/config", 0, "without a lease"),
        ("dlock/job/6f", 0, "without a lease"),
        ("dlock/job/config", lease, "that is no lock"),
        ("dlock/job/", lease, "that is no lock"),
    ];
    for (key, lease, what) in strays {
        service.etcd.put(key, "x", lease);
        let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line(&format!("the key {key}, a key {what}"));
        let waiter = service.queue_up("job", &[]);
        let line = waiter.running.wait_stderr("waiting for 'job'");
        assert!(line.contains(&format!("the key {key}, a key {what}")), "{line}");
        assert!(!waiter.has_held());
        assert!(service.etcd.delete(key), "a stray key is not ours to delete");
        waiter.wait_held();
        assert_waited(&waiter.let_go());
    }
    service.etcd.revoke(lease);
    assert_clean(&service);
}

/// One that is in the queue behind a lock too, where it is what a waiter waits for.
#[test]
fn a_stray_key_between_the_holder_and_us_is_named() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    service.etcd.put("dlock/job/config", "x", 0);
    let waiter = Gated::spawn(service.scratch(), service.run("job"));
    let line = waiter.running.wait_stderr("waiting for 'job'");
    assert!(line.contains("the key dlock/job/config, a key without a lease"), "{line}");
    // It came later than the holder, whom it does not concern.
    holder.let_go().success();
    assert!(!waiter.has_held());
    service.etcd.delete("dlock/job/config");
    waiter.wait_held();
    assert_waited(&waiter.let_go());
    assert_clean(&service);
}

#[test]
fn who_is_killed_while_it_waits_leaves_nothing_for_longer_than_a_lease() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-t", "1s"]);
    let key = contenders(&service).remove(1).key;
    let watch = service.etcd.watch("dlock/job/");
    waiter.running.signal(Signal::SIGKILL);
    waiter.running.wait().signal(Signal::SIGKILL);
    watch.wait_deleted(&key);
    holder.let_go().success();
    assert_clean(&service);
}
