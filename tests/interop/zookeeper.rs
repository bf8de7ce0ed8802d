//! Curator and kazoo on ZooKeeper, which do not see each other: dlock is visible to both, and keeps both out.

use std::collections::BTreeSet;

use super::{KEY, Shared, is_served_in_order, leave};
use crate::support::foreign::Kind;
use crate::support::service::{Gated, Service, ZooKeeperService};
use crate::support::zookeeper::Node;

/// The nodes of all holders and waiters of [`KEY`], with their names, in the order of their numbers.
fn nodes(service: &ZooKeeperService) -> Vec<(String, Node)> {
    let directory = ZooKeeperService::lock(KEY);
    let mut names = service.zookeeper.children(&directory).unwrap_or_default();
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    // A node that goes meanwhile is not there.
    let read = |name: String| service.zookeeper.get(&format!("{directory}/{name}")).map(|node| (name, node));
    names.into_iter().filter_map(read).collect()
}

/// The paths of the nodes that dlocks created: three in each session.
fn dlocks(service: &ZooKeeperService) -> Vec<String> {
    let nodes = nodes(service);
    let is_dlocks = |session| nodes.iter().filter(|(_, node)| node.ephemeral_owner == session).count() == 3;
    let own = nodes.iter().filter(|(_, node)| is_dlocks(node.ephemeral_owner));
    own.map(|(name, _)| format!("{}/{name}", ZooKeeperService::lock(KEY))).collect()
}

impl Shared for ZooKeeperService {
    fn place(&self) -> (String, String) {
        (self.zookeeper.hosts(), ZooKeeperService::lock(KEY))
    }

    fn traces(&self) -> BTreeSet<String> {
        nodes(self)
            .into_iter()
            .map(|(name, node)| format!("{name} {} {:#x}", node.czxid, node.ephemeral_owner))
            .collect()
    }

    fn shown(&self, _token: &str) -> String {
        format!("held by another program: {}", nodes(self)[0].1.data)
    }

    fn rob(&self) {
        for path in dlocks(self) {
            self.zookeeper.delete(&path);
        }
    }

    fn is_left_by(&self, kind: Kind, litter: &str) -> bool {
        // The directories that they created, or that dlock did not create for itself alone.
        kind.is_of_zookeeper() && ["/dlock", &ZooKeeperService::lock(KEY)].contains(&litter)
    }
}

#[test]
fn dlocks_and_both_others_are_served_in_the_order_in_which_they_came_with_rising_tokens() {
    let [curator, kazoo] = [Kind::Curator, Kind::Kazoo].map(Some);
    is_served_in_order(&ZooKeeperService::fresh(), &[curator, None, kazoo, None, curator]);
}

/// Without a dlock between them, both hold the lock at the same time, as they do without dlock; this is what dlock
/// adds.
#[test]
fn one_dlock_keeps_both_others_out_at_the_same_time() {
    let service = ZooKeeperService::fresh();
    let mut others = [Kind::Curator, Kind::Kazoo].map(|kind| service.other(kind));
    let holder = service.hold(KEY);
    for other in &mut others {
        assert_eq!(other.try_acquire(), None, "both hold the lock");
        service.queue_other(other);
    }
    assert!(others.iter_mut().all(|other| !other.is_held()), "both hold the lock");
    let dlock = service.queue_up(KEY, &["-q"]);
    let held: u64 = holder.token();
    holder.let_go().success();
    let tokens = others.each_mut().map(|other| other.wait_held().parse::<u64>().unwrap());
    // To be seen by one of them is not enough.
    for other in &mut others {
        assert!(!dlock.has_held(), "both hold the lock");
        other.release();
    }
    let last = dlock.token();
    assert!(tokens.iter().all(|token| (held + 1..last).contains(token)), "{held} {tokens:?} {last}");
    dlock.let_go().success();
    leave(&service, others.into());
}

#[test]
fn a_dlock_that_was_robbed_of_one_node_does_not_hold_the_lock_any_more() {
    let service = ZooKeeperService::fresh();
    for (marker, kind) in [("-lock-", Kind::Curator), ("-__WRIT__", Kind::CuratorRead), ("__lock__", Kind::Kazoo)] {
        let mut other = service.other(kind);
        let holder = service.run(KEY).args(["--ttl", "3s"]);
        let holder = Gated::spawn(service.scratch(), holder);
        holder.wait_held();
        let path = dlocks(&service).into_iter().find(|path| path.contains(marker)).unwrap();
        assert!(service.zookeeper.delete(&path));
        // A client that looks for nodes of the other spelling finds it free.
        other.acquire();
        holder.running.wait().code(79).stderr_is_one_line("lost 'job'");
        assert!(other.owns());
        service.assert_held(KEY);
        other.release();
        leave(&service, vec![other]);
    }
}

/// The names that others read: Curator takes all nodes for contenders and sorts those not in its own spelling by their
/// whole names, so these must not begin with a digit; and in either spelling the number must come last.
#[test]
fn dlocks_nodes_are_named_as_the_others_name_theirs() {
    let service = ZooKeeperService::fresh();
    let holder = service.hold(KEY);
    let waiters = [(); 7].map(|()| service.queue_up(KEY, &["-q"]));
    let nodes = nodes(&service);
    assert_eq!(nodes.len(), 24);
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    for triple in nodes.chunks(3) {
        let [(curator, one), (read_write, other), (kazoo, third)] = triple else { unreachable!() };
        for (name, mark) in [(curator, "-lock-"), (read_write, "-__WRIT__")] {
            let uuid = name.strip_prefix("_c_").unwrap().rsplit_once(mark).unwrap().0;
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert!(lengths == [8, 4, 4, 4, 12] && is_hex(&uuid.replace('-', "")), "{name}");
        }
        let id = kazoo.rsplit_once("__lock__").unwrap().0;
        assert!(id.len() == 32 && is_hex(id) && id.starts_with('f'), "{kazoo}");
        for node in [other, third] {
            assert_eq!((one.czxid, one.ephemeral_owner), (node.czxid, node.ephemeral_owner));
        }
    }
    holder.let_go().success();
    for waiter in waiters {
        waiter.let_go().success();
    }
    leave(&service, Vec::new());
}

/// kazoo creates the directory once and relies on it from then on: dlock removes only directories that nobody else has
/// used.
#[test]
fn a_kazoo_can_take_the_lock_again_whatever_dlocks_came_between() {
    let service = ZooKeeperService::fresh();
    let mut other = service.other(Kind::Kazoo);
    let holder = service.hold(KEY);
    for _ in 0..2 {
        assert_eq!(other.try_acquire(), None, "both hold the lock");
    }
    holder.let_go().success();
    for _ in 0..2 {
        other.acquire();
        service.assert_held(KEY);
        other.release();
        service.assert_free(KEY);
    }
    leave(&service, vec![other]);
}
