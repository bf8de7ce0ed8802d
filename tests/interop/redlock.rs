//! redlock-py, and locks that others hold on single servers of a redlock.

use std::collections::BTreeSet;

use super::redis::wait_asking;
use super::{KEY, Shared, leave};
use crate::support::foreign::{Foreign, Kind};
use crate::support::redis_services::{Redlock3, RedlockService, RedlocksService};
use crate::support::service::Service;

/// The redis key of [`KEY`].
const NAME: &str = "dlock:job";

impl<const N: usize> Shared for RedlockService<N> {
    fn place(&self) -> (String, String) {
        // In plain text, however dlock connects.
        let places: Vec<String> = self.servers.iter().map(|redis| format!("127.0.0.1:{}", redis.port())).collect();
        (places.join(","), NAME.to_owned())
    }

    fn traces(&self) -> BTreeSet<String> {
        let values = self.servers.running().filter_map(|redis| Some(format!("{}: {}", redis.port(), redis.get(NAME)?)));
        values.collect()
    }

    fn shown(&self, token: &str) -> String {
        format!("held by another program: {token}")
    }

    fn rob(&self) {
        for redis in self.servers.running() {
            redis.cli(&["DEL", NAME]);
        }
    }

    /// redlock-py has no queue: it polls.
    fn queue_other(&self, other: &mut Foreign) {
        wait_asking(self.servers.running().next().unwrap(), other);
    }
}

impl Shared for RedlocksService {
    fn place(&self) -> (String, String) {
        (**self).place()
    }

    fn traces(&self) -> BTreeSet<String> {
        (**self).traces()
    }

    fn shown(&self, token: &str) -> String {
        (**self).shown(token)
    }

    fn rob(&self) {
        (**self).rob();
    }

    fn queue_other(&self, other: &mut Foreign) {
        (**self).queue_other(other);
    }
}

/// A lock on one server does not hinder a majority, and it is still somebody's.
#[test]
fn a_lock_of_another_on_a_minority_is_let_alone() {
    let service = Redlock3::fresh();
    let single = &service.servers[1];
    let mut stray = Foreign::spawn_with_lease(Kind::RedisPy, &single.url(), NAME, "never");
    let value = stray.acquire();
    let mut other = service.other(Kind::RedlockPy);
    let holder = service.hold(KEY);
    assert_eq!(other.try_acquire(), None, "both hold the lock");
    assert!(stray.owns());
    holder.let_go().success();
    assert_eq!((single.get(NAME), single.pttl(NAME)), (Some(value), -1));
    assert_eq!(service.traces().len(), 1, "dlock has left something: {:?}", service.traces());
    // Nor when it is the others that keep dlock from a majority.
    other.acquire();
    let traces = service.traces();
    let refused = service.run(KEY).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("did not get 'job': held by another program");
    assert_eq!(service.traces(), traces);
    other.release();
    stray.release();
    leave(&service, vec![stray, other]);
}
