//! The clock of one server of an ensemble is set forward and back.

use crate::support::service::ZooKeeperService;
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

use super::{ahead_and_behind, is_not_noticed};

fn one_of_three(is_leader: bool) {
    let options = ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::ensemble() };
    let service = ZooKeeperService::on(ZooKeeper::with(options));
    let leader = service.zookeeper.leader();
    let index = if is_leader { leader } else { (leader + 1) % 3 };
    is_not_noticed(&service, || ahead_and_behind::<ZooKeeperService>(service.zookeeper.server(index).clock()));
    assert_eq!(service.zookeeper.leader(), leader);
}

#[test]
fn a_leader_whose_clock_is_moved_is_not_noticed() {
    one_of_three(true);
}

#[test]
fn a_follower_whose_clock_is_moved_is_not_noticed() {
    one_of_three(false);
}
