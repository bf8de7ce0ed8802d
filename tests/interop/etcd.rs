//! The clients of etcd that create keys below the lock's name: dlock and they have one queue.

use std::collections::BTreeSet;

use super::{KEY, Shared, is_served_in_order, leave};
use crate::support::etcd::Entry;
use crate::support::foreign::Kind;
use crate::support::rendezvous::eventually;
use crate::support::service::{EtcdService, Service};

/// The keys of all holders and waiters of [`KEY`], in queue order.
fn keys(service: &EtcdService) -> Vec<Entry> {
    let mut entries = service.etcd.keys(&EtcdService::contenders(KEY));
    entries.sort_by_key(|entry| entry.create_revision);
    entries
}

impl Shared for EtcdService {
    fn place(&self) -> (String, String) {
        (self.etcd.url(), format!("dlock/{KEY}"))
    }

    fn traces(&self) -> BTreeSet<String> {
        keys(self).into_iter().map(|entry| format!("{} {} {}", entry.key, entry.lease, entry.create_revision)).collect()
    }

    fn shown(&self, _token: &str) -> String {
        format!("held by another program: key {}", keys(self)[0].key)
    }

    fn rob(&self) {
        // The others' keys have no value.
        for entry in keys(self).iter().filter(|entry| !entry.value.is_empty()) {
            self.etcd.delete(&entry.key);
        }
    }

    fn is_left_by(&self, kind: Kind, litter: &str) -> bool {
        // etcdctl deletes its key, and lets its lease expire.
        kind == Kind::Etcdctl && litter.starts_with("Lease ") && !litter.contains("granted: 30")
    }
}

/// etcd's users take the revision at which they hold the lock for a token, and dlock's token is that number.
#[test]
fn dlocks_and_all_others_are_served_in_the_order_in_which_they_came_with_rising_tokens() {
    let [etcdctl, client, lock_service] = [Kind::Etcdctl, Kind::EtcdMutex, Kind::EtcdLockService].map(Some);
    let queue = [etcdctl, None, client, None, lock_service, None, None, etcdctl];
    is_served_in_order(&EtcdService::fresh(), &queue);
}

#[test]
fn dlocks_key_is_named_after_its_lease_as_the_others_name_theirs() {
    let service = EtcdService::fresh();
    let holder = service.hold(KEY);
    let waiter = service.queue_up(KEY, &["-q"]);
    for entry in keys(&service) {
        assert_eq!(entry.key, format!("dlock/{KEY}/{:x}", entry.lease));
    }
    holder.let_go().success();
    waiter.let_go().success();
    // Lease ids are random numbers: enough of them that some are short.
    let watch = service.etcd.watch(&EtcdService::contenders(KEY));
    let often = r#"i=0; while [ "$i" -lt 40 ]; do "$@" || exit; i=$((i + 1)); done"#;
    service.run(KEY).wrapped_by(["sh", "-c", often, "sh"]).command(["true"]).output().success();
    let names = eventually("the watch to have seen all", || {
        let names: BTreeSet<String> = watch.so_far().into_iter().map(|event| event.key).collect();
        (names.len() == 40).then_some(names)
    });
    for name in names {
        let digits = name.strip_prefix(&EtcdService::contenders(KEY)).unwrap();
        assert_eq!(digits, format!("{:x}", u64::from_str_radix(digits, 16).unwrap()));
    }
    leave(&service, Vec::new());
}
