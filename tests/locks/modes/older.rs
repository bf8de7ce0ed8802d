//! A mixed fleet: a dlock from before locks could be shared, which the variable `OLDER_DLOCK` names, on the same keys as this
//! one. `tests/run older COMMIT` builds such a dlock, and runs these tests.

use super::{let_go, wait};
use crate::support::dlock::{Dlock, Running};
use crate::support::mode_witness::{Mode, ModeWitness};
use crate::support::redis_services::{Redlock3, SentinelService};
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};

macro_rules! beside_an_older_one {
    ($($backend:ident: $service:ident)*) => {
        $(#[test]
        #[ignore = "needs OLDER_DLOCK: use tests/run older COMMIT"]
        fn $backend() {
            each_mode_and_the_older_one_exclude_each_other(&$service::fresh());
            in_a_crowd_nobody_overlaps(&$service::fresh());
        })*
    };
}

beside_an_older_one! {
    file: FileService
    redis: RedisService
    redis_sentinel: SentinelService
    redlock: Redlock3
    etcd: EtcdService
    zookeeper: ZooKeeperService
}

/// An older dlock that wants `key`.
fn older<S: Service>(service: &S, key: &str) -> Dlock {
    let program = std::env::var_os("OLDER_DLOCK").expect("OLDER_DLOCK names a dlock from before locks could be shared");
    service.run(key).program(program)
}

fn each_mode_and_the_older_one_exclude_each_other<S: Service>(service: &S) {
    for (key, mode) in [("alone", Mode::Exclusive), ("shared", Mode::Shared), ("slots", Mode::Slots(3))] {
        let old = Gated::spawn(service.scratch(), older(service, key));
        old.wait_held();
        let new = wait(service, key, mode.options());
        assert!(!new.has_held());
        let_go([old]);
        new.wait_held();
        let old = Gated::spawn(service.scratch(), older(service, key));
        old.running.wait_stderr("waiting for ");
        let refused = older(service, key).args(["-n", "-q"]).command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").quiet();
        // They wait in one line.
        let late = S::IN_ORDER.then(|| wait(service, key, mode.options()));
        assert!(!old.has_held());
        let_go([new]);
        old.wait_held();
        assert!(!late.as_ref().is_some_and(Gated::has_held));
        let_go([old]);
        let_go(late);
        service.assert_free(key);
    }
}

fn in_a_crowd_nobody_overlaps<S: Service>(service: &S) {
    let witness = ModeWitness::in_dir(service.scratch().root());
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Slots(3), Mode::Shared, Mode::Slots(3)];
    let holder = service.hold("job");
    let come = |number: usize| match modes.get(number % (modes.len() + 1)) {
        Some(&mode) => service.run("job").arg("-q").args(mode.options()).command(witness.command(mode, "0.02")).spawn(),
        None => older(service, "job").arg("-q").command(witness.command(Mode::Exclusive, "0.02")).spawn(),
    };
    let crowd: Vec<Running> = (0..36).map(come).collect();
    holder.let_go().success();
    for one in crowd {
        one.wait().success();
    }
    assert_eq!(witness.check().len(), 36);
}
