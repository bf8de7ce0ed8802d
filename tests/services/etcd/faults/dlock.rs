//! dlock itself is killed or stopped.

use super::*;

#[test]
fn killed_or_stopped_it_leaves_no_command_and_nothing_for_longer_than_a_lease() {
    at_once(&[
        ("killed", killed_while_it_holds_it_leaves_no_command_and_nothing_for_longer_than_a_lease),
        ("stopped", stopped_for_longer_than_the_lease_it_leaves_no_command),
    ]);
}

fn killed_while_it_holds_it_leaves_no_command_and_nothing_for_longer_than_a_lease() {
    let service = EtcdService::fresh();
    let scene = Scene::start(&service, &service.url(), &[]);
    let waiter = scene.wait_behind();
    let key = contenders(&service).remove(0).key;
    let watch = service.etcd.watch(&key);
    renewed(&service.etcd);
    scene.holder.signal(Signal::SIGKILL);
    scene.assert_dies_within(TTL, boottime());
    let ended = watch.wait_deleted(&key).at;
    assert_in_time(scene.tree.died_at(), ended);
    scene.holder.wait().signal(Signal::SIGKILL).stderr_is_one_line("dlock itself was killed");
    assert_taken_over(&scene.witness, waiter);
    assert_clean(&service);
}

fn stopped_for_longer_than_the_lease_it_leaves_no_command() {
    let service = EtcdService::fresh();
    let scene = Scene::start(&service, &service.url(), &[]);
    let waiter = scene.wait_behind();
    renewed(&service.etcd);
    scene.holder.signal(Signal::SIGSTOP);
    let stopped = boottime();
    scene.assert_dies_within(TTL, stopped);
    assert_taken_over(&scene.witness, waiter);
    scene.holder.signal(Signal::SIGCONT);
    assert_lost(&scene.holder.wait(), "dlock itself was stopped");
    assert_clean(&service);
}
