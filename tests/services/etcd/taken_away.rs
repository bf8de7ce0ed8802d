//! What befalls those who hold the lock.

use super::*;

#[test]
fn a_lease_or_key_that_is_revoked_deleted_made_again_or_overwritten_ends_the_command() {
    let again = |service: &EtcdService, held: &Entry| {
        service.etcd.delete(&held.key);
        service.etcd.put(&held.key, &held.value, held.lease);
    };
    // It would stay for ever, and block everybody, if it were left.
    let overwrite = |service: &EtcdService, held: &Entry| {
        service.etcd.etcdctl(&["put", &held.key, &held.value]);
    };
    thread::scope(|scope| {
        let why = "its lease has ended at the server or was revoked";
        scope.spawn(|| ends(|service, held| service.etcd.revoke(held.lease), why));
        scope.spawn(|| ends(|service, held| assert!(service.etcd.delete(&held.key)), "its key is gone"));
        scope.spawn(|| ends(again, "its key was deleted and made again by somebody else"));
        scope.spawn(|| ends(overwrite, "its key was overwritten and is not bound to the lease any more"));
    });
}

#[track_caller]
fn ends(change: impl FnOnce(&EtcdService, &Entry), why: &str) {
    let service = EtcdService::fresh();
    let mut tree = Tree::new(service.scratch());
    let dlock = service.run("job").args(["-t", "4s"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    renewed(&service.etcd);
    // No renewal comes between two steps of the change.
    dlock.signal(Signal::SIGSTOP);
    change(&service, &contenders(&service)[0]);
    dlock.signal(Signal::SIGCONT);
    let changed = boottime();
    // The next renewal finds out, within a third of the lease, and SIGKILL comes a quarter of it later.
    let (died, lease) = (tree.died_at(), Duration::from_secs(4));
    let late = changed + lease / 3 + lease / 4 + Duration::from_millis(250);
    assert!(died < late, "{:?} later", died - changed);
    assert_lost(&dlock.wait(), why);
    assert_clean(&service);
    service.assert_free("job");
}

/// The value is for people: what holds the lock is the key and its lease.
#[test]
fn a_value_that_is_overwritten_is_nobodys_loss() {
    let service = EtcdService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s"]));
    holder.wait_held();
    let key = contenders(&service).remove(0).key;
    service.etcd.etcdctl(&["put", &key, "mine!", "--ignore-lease"]);
    renewed(&service.etcd);
    renewed(&service.etcd);
    let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("held by another program: mine!");
    holder.let_go().success();
    assert_clean(&service);
}

#[test]
fn what_happened_since_the_last_renewal_is_found_out_at_the_end() {
    let service = EtcdService::fresh();
    // No renewal comes before the end.
    let holder = service.hold("job");
    let held = contenders(&service).remove(0);
    service.etcd.delete(&held.key);
    assert_lost(&holder.let_go(), "not ours any more when it ended");
    assert_clean(&service);

    let holder = service.hold("job");
    service.etcd.revoke(contenders(&service)[0].lease);
    assert_lost(&holder.let_go(), "not ours any more when it ended");

    // Nobody else can have had it meanwhile.
    let holder = service.hold("job");
    service.etcd.put(&contenders(&service)[0].key, "detached", 0);
    holder.let_go().success();
    assert_clean(&service);
}

/// In between somebody else may have had the lock.
#[test]
fn a_key_deleted_and_made_again_just_before_the_command_ends_is_told_as_a_loss() {
    let service = EtcdService::fresh();
    let holder = service.hold("job");
    let held = contenders(&service).remove(0);
    service.etcd.delete(&held.key);
    service.etcd.put(&held.key, &held.value, held.lease);
    assert_lost(&holder.let_go(), "not ours any more when it ended");
    assert_clean(&service);
}
