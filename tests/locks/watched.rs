/*!
From its first renewal on, a holder on etcd or ZooKeeper watches the keys or nodes of its lock: losing one is noticed at
once, and not at the next renewal, which comes after a third of the ttl on etcd and a sixth on ZooKeeper.
*/

use std::thread;
use std::time::Duration;

use crate::services::etcd::{assert_lost, contenders, renewed, watchers};
use crate::support::dlock::Running;
use crate::support::etcd::Entry;
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{EtcdService, Gated, Service, ZooKeeperService};
use crate::support::tree::Tree;

/// Long before the next renewal of a lock with the usual ttl of 30 s, which is due after 5 s at the earliest.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A lock with the usual ttl, held by a stubborn tree.
fn hold(service: &impl Service) -> (Tree, Running) {
    let mut tree = Tree::new(service.scratch());
    let dlock = service.run("job").args(["--on-lost", "kill"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    (tree, dlock)
}

/// Checks that the loss caused by `change` is noticed at once.
#[track_caller]
fn ends_at_once(tree: &Tree, change: impl FnOnce()) {
    change();
    let changed = boottime();
    let died = tree.died_at();
    assert!(died < changed + AT_ONCE, "{:?} later", died - changed);
}

#[test]
fn what_is_taken_from_a_holder_on_etcd_after_its_first_renewal_is_noticed_at_once() {
    let overwrite = |service: &EtcdService, held: &Entry| service.etcd.put(&held.key, "theirs", 0);
    thread::scope(|scope| {
        let why = "its lease has ended at the server or was revoked";
        scope.spawn(|| on_etcd(|service, held| service.etcd.revoke(held.lease), why));
        scope.spawn(|| on_etcd(|service, held| assert!(service.etcd.delete(&held.key)), "its key is gone"));
        scope.spawn(|| on_etcd(overwrite, "its key was overwritten"));
    });
}

fn on_etcd(change: impl FnOnce(&EtcdService, &Entry), why: &str) {
    let service = EtcdService::fresh();
    let (tree, dlock) = hold(&service);
    assert_eq!(watchers(&service.etcd), 0, "a run that ends before its first renewal would pay for it");
    renewed(&service.etcd);
    eventually("watches on its own key and on requests", || (watchers(&service.etcd) == 2).then_some(()));
    let held = contenders(&service).remove(0);
    ends_at_once(&tree, || change(&service, &held));
    assert_lost(&dlock.wait(), why);
    service.assert_free("job");
}

/// An event is only a reason to ask, and many events do not cause many requests.
#[test]
fn a_holder_whose_value_is_overwritten_again_and_again_asks_at_most_ten_times_a_second() {
    let service = EtcdService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    holder.wait_held();
    renewed(&service.etcd);
    eventually("watches on its own key and on requests", || (watchers(&service.etcd) == 2).then_some(()));
    let held = contenders(&service).remove(0);
    let requests = service.etcd.count_requests();
    let begun = boottime();
    for number in 0..300 {
        service.etcd.put(&held.key, &format!("theirs, {number}"), held.lease);
    }
    let asked = requests.so_far().get("LeaseKeepAlive").copied().unwrap_or(0);
    // The requests that are due anyway are among them.
    let tenths = (boottime() - begun).as_millis() / 100;
    assert!(u128::from(asked) <= tenths + 2, "{asked} renewals in {tenths} tenths of a second");
    assert!(asked > 0, "it did not hear of any");
    holder.let_go().success();
}

#[test]
fn what_is_taken_from_a_holder_on_zookeeper_after_its_first_renewal_is_noticed_at_once() {
    thread::scope(|scope| {
        // The first and the last; the loss of the one between them alone is noticed at the next renewal.
        for which in [0, 2] {
            let delete = move |service: &ZooKeeperService| {
                let names = nodes(service);
                assert!(service.zookeeper.delete(&format!("/dlock/job/{}", names[which])), "it was there");
            };
            scope.spawn(move || on_zookeeper(delete, "its node"));
        }
        let close = |service: &ZooKeeperService| {
            let session = service.zookeeper.get(&format!("/dlock/job/{}", nodes(service)[0])).unwrap().ephemeral_owner;
            assert!(service.zookeeper.end_session(session), "the session had ended");
        };
        scope.spawn(move || on_zookeeper(close, "its "));
    });
}

/// The names of the nodes of `job`, in the order of their numbers.
fn nodes(service: &ZooKeeperService) -> Vec<String> {
    let mut names = service.zookeeper.children("/dlock/job").unwrap_or_default();
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
}

fn on_zookeeper(change: impl FnOnce(&ZooKeeperService), why: &str) {
    let service = ZooKeeperService::fresh();
    let (tree, dlock) = hold(&service);
    let version = || service.zookeeper.get(&format!("/dlock/job/{}", nodes(&service)[0])).map(|node| node.version);
    let before = version();
    eventually("a renewal", || (version() > before).then_some(()));
    eventually("watches on its nodes", || (service.zookeeper.watches() >= 2).then_some(()));
    ends_at_once(&tree, || change(&service));
    dlock.wait().code(79).stderr_is_one_line(why);
    service.assert_free("job");
}
