//! The clock of one server of a redlock is set forward and back.

use crate::support::redis_services::Redlock5;
use crate::support::redis_sets::RedisGroup;

use super::{ahead_and_behind, is_not_noticed};

#[test]
fn one_server_of_five_whose_clock_is_moved_is_not_noticed() {
    let service = Redlock5::on(RedisGroup::with_clocks(5, [""; 0]));
    is_not_noticed(&service, || ahead_and_behind::<Redlock5>(service.servers[0].clock()));
}
