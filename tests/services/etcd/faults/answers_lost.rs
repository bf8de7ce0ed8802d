//! Each request is carried out, and nobody hears of it.

use super::*;

#[test]
fn what_was_done_and_not_heard_of_is_resolved() {
    at_once(&[
        ("grant", || acquire_loses("LeaseGrant", Mode::DropReplies)),
        // Time enough to lose the answer after the next one.
        ("put", || acquire_loses("Txn", Mode::DelayReplies(Duration::from_millis(500)))),
        ("renewal", a_renewal_whose_answer_is_lost_is_tried_again_unnoticed),
        ("release", a_release_whose_answer_is_lost_is_done_all_the_same),
        ("slot", a_slot_whose_grant_was_not_heard_of_is_the_same_slot),
        ("leaving", leaving_the_queue_leaves_nothing_when_the_answer_is_lost),
    ]);
}

/// The answer to `request` is lost, and those that follow it; those before it pass by `mode`.
fn acquire_loses(request: &str, mode: Mode) {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let requests = service.etcd.count_requests();
    proxy.set(mode);
    // With a lease that would outlast this test by far.
    let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "10m"]);
    let dlock = dlock.command(["echo", "ran"]).spawn();
    eventually("the request", || requests.so_far().contains_key(request).then_some(()));
    proxy.set(Mode::DropReplies);
    let outcome = dlock.wait();
    outcome.code(69).stdout_is("").stderr_is_one_line("did not get 'job': ");
    assert!(outcome.elapsed() < Duration::from_secs(11), "{outcome:?}");
    eventually("all to be taken back", || service.litter(&[]).is_empty().then_some(()));
}

fn a_renewal_whose_answer_is_lost_is_tried_again_unnoticed() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "2s"]);
    let holder = Gated::spawn(service.scratch(), dlock);
    holder.wait_held();
    proxy.set(Mode::DropReplies);
    renewed(&service.etcd);
    let lost = boottime();
    eventually("a lost answer", || (proxy.counts().lost_replies > 0).then_some(()));
    proxy.set(Mode::Forward);
    last_until(lost + 2 * TTL);
    holder.let_go().success();
    assert_clean(&service);
}

fn a_release_whose_answer_is_lost_is_done_all_the_same() {
    let service = EtcdService::fresh();
    let proxy = Proxy::to(service.etcd.member(0).port());
    let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "10m"]);
    let dlock = dlock.shell("echo held; read -r _; exit 5").stdin(Stdio::piped());
    let mut holder = dlock.spawn();
    holder.wait_stdout("held");
    proxy.set(Mode::DropReplies);
    drop(holder.take_stdin());
    let outcome = holder.wait();
    outcome.code(5).stderr_is_one_line("could not release 'job'");
    eventually("all to be taken back", || service.litter(&[]).is_empty().then_some(()));
}

/// It is entered by a change of the key, which is not made again.
fn a_slot_whose_grant_was_not_heard_of_is_the_same_slot() {
    let service = EtcdService::fresh();
    let hold = || Gated::spawn(service.scratch(), service.run("job").args(["--slots", "2"]));
    let holders = [(); 2].map(|()| hold());
    holders.iter().for_each(Gated::wait_held);
    let proxy = Proxy::to(service.etcd.member(0).port());
    let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["--slots", "2", "-t", "6s", "-q"]);
    let waiter = Gated::spawn(service.scratch(), dlock);
    eventually("the waiter", || (contenders(&service).len() == 3).then_some(()));
    eventually("its watch", || (watchers(&service.etcd) == 1).then_some(()));
    let own = contenders(&service).remove(2);
    let watch = service.etcd.watch("dlock/job/");
    // Time enough to lose the answer after the next one.
    proxy.set(Mode::DelayReplies(Duration::from_millis(200)));
    let [first, second] = holders;
    let slot = told(&first, "DLOCK_SLOT");
    first.let_go().success();
    let entered = watch.wait("the slot", |event| event.key == own.key && event.value.is_some());
    proxy.set(Mode::DropReplies);
    eventually("a lost answer", || (proxy.counts().lost_replies > 0).then_some(()));
    proxy.set(Mode::Forward);
    assert_eq!(waiter.token(), u64::try_from(entered.revision).unwrap());
    assert_eq!(told(&waiter, "DLOCK_SLOT"), slot);
    assert_eq!(service.etcd.get(&own.key).unwrap().version, 2);
    waiter.let_go().success();
    second.let_go().success();
    assert_clean(&service);
}

fn leaving_the_queue_leaves_nothing_when_the_answer_is_lost() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let proxy = Proxy::to(service.etcd.member(0).port());
    let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "10m", "-q"]);
    let waiter = Gated::spawn(service.scratch(), dlock);
    service.wait_queued("job", 1);
    proxy.set(Mode::DropReplies);
    waiter.running.signal(Signal::SIGTERM);
    waiter.running.wait().signal(Signal::SIGTERM).quiet();
    eventually("the place to be given up", || (contenders(&service).len() == 1).then_some(()));
    eventually("its lease to be given up", || (service.etcd.leases().len() == 1).then_some(()));
    holder.let_go().success();
    assert_clean(&service);
}
