//! Shared locks and slots: what their keys are called, how clients that know of neither get on with them, and what they
//! cost.

use super::*;
use crate::support::foreign::{Foreign, Kind};
use crate::support::rendezvous::Gate;

/// A run of `job` with these options that has the lock.
#[track_caller]
fn hold_with(service: &EtcdService, options: &[&str]) -> Gated {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(options));
    holder.wait_held();
    holder
}

/// A run of `job` with these options that does not wait: it is refused.
#[track_caller]
fn is_refused(service: &EtcdService, options: &[&str], why: &str) {
    let refused = service.run("job").arg("-n").args(options).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line(why);
}

/// Waits until there are so many keys of holders and waiters.
#[track_caller]
fn wait_contenders(service: &EtcdService, count: usize) {
    eventually(&format!("{count} contenders"), || (contenders(service).len() == count).then_some(()));
}

#[track_caller]
fn wait_watching(service: &EtcdService, count: usize) {
    eventually(&format!("{count} watches"), || (watchers(&service.etcd) == count).then_some(()));
}

#[track_caller]
fn published(entry: &Entry) -> serde_json::Value {
    serde_json::from_str(&entry.value).unwrap_or_else(|error| panic!("{error}: {entry:?}"))
}

#[test]
fn the_name_of_a_key_says_how_the_lock_is_held() {
    let service = EtcdService::fresh();
    for (options, suffix, mode) in [(&["-s"][..], ".shared", "shared"), (&["--slots", "2"], ".slots2", "slots2")] {
        let holders = [(); 2].map(|()| hold_with(&service, options));
        let entries = contenders(&service);
        assert_eq!(entries.len(), 2, "{entries:?}");
        for ((slot, entry), holder) in entries.iter().enumerate().zip(&holders) {
            assert_eq!(entry.key, format!("{}{suffix}", key_of(entry.lease)));
            let (published, token) = (published(entry), told(holder, "DLOCK_TOKEN"));
            assert_eq!(published["mode"], mode);
            assert_eq!(published["id"], told(holder, "DLOCK_OWNER"));
            if mode == "shared" {
                assert_eq!(published.get("slot"), None);
                continue;
            }
            // Entering the slot is a change of the key, and the token its revision.
            assert_eq!(published["slot"], slot);
            assert_eq!(told(holder, "DLOCK_SLOT"), slot.to_string());
            assert_eq!((entry.version, entry.mod_revision.to_string()), (2, token));
        }
        for holder in holders {
            holder.let_go().success();
        }
        assert_clean(&service);
    }
}

#[test]
fn both_keys_of_a_minimum_hold_are_one_entry() {
    let service = EtcdService::fresh();
    let first = hold_with(&service, &["--slots", "2", "--min-hold", "1h"]);
    let keys: Vec<String> = contenders(&service).into_iter().map(|entry| entry.key).collect();
    let key = keys.iter().min().unwrap();
    assert!(key.ends_with(".slots2"), "{keys:?}");
    assert_eq!(keys.iter().max(), Some(&format!("{key}.hold")));
    let second = hold_with(&service, &["--slots", "2"]);
    assert_eq!(told(&second, "DLOCK_SLOT"), "1");
    first.let_go().success();
    // What stays keeps the slot, and says which one that is.
    let kept = contenders(&service).remove(0);
    assert_eq!(kept.key, format!("{key}.hold"));
    assert_eq!(published(&kept)["slot"], 0);
    is_refused(&service, &["--slots", "2"], "all 2 slots are taken, one by ");
    second.let_go().success();
    let third = hold_with(&service, &["--slots", "2"]);
    assert_eq!(told(&third, "DLOCK_SLOT"), "1");
    third.let_go().success();
    service.etcd.revoke(kept.lease);
    assert_clean(&service);

    let first = hold_with(&service, &["-s", "--min-hold", "1h"]);
    let second = hold_with(&service, &["-s"]);
    first.let_go().success();
    second.let_go().success();
    let kept = contenders(&service).remove(0);
    assert!(kept.key.ends_with(".shared.hold"), "{kept:?}");
    is_refused(&service, &[], "finished; kept until ");
    hold_with(&service, &["-s"]).let_go().success();
    service.etcd.revoke(kept.lease);
    assert_clean(&service);
}

/// Go's `concurrency.Mutex` and `etcdctl lock` wait for every key that is older than their own.
#[test]
fn clients_without_modes_wait_for_all_who_share_the_lock_and_are_waited_for() {
    for kind in [Kind::Etcdctl, Kind::EtcdMutex] {
        for options in [&["-s"][..], &["--slots", "2"]] {
            let service = EtcdService::fresh();
            let holders = [(); 2].map(|()| hold_with(&service, options));
            let mut other = Foreign::spawn(kind, &service.etcd.url(), "dlock/job");
            other.start_acquire();
            wait_contenders(&service, 3);
            let behind = Gated::spawn(service.scratch(), service.run("job").args(options));
            wait_contenders(&service, 4);
            let mut tokens: Vec<u64> = Vec::new();
            for holder in holders {
                // It would overtake the other one, also where there is room.
                is_refused(&service, options, "did not get 'job': ");
                assert!(!other.is_held() && !behind.has_held(), "{kind:?} {options:?}");
                tokens.push(holder.token());
                holder.let_go().success();
            }
            let revision: u64 = other.wait_held().parse().unwrap();
            assert!(tokens.iter().all(|&token| token < revision), "{tokens:?} {revision}");
            is_refused(&service, options, "held by another program: key dlock/job/");
            assert!(!behind.has_held());
            other.release();
            assert!(behind.token() > revision);
            assert_waited(&behind.let_go());
            other.close();
            // etcdctl leaves its lease to run out.
            assert_eq!(contenders(&service), []);
        }
    }
}

/// A key as releases without modes make it.
#[test]
fn keys_of_older_releases_are_exclusive() {
    let service = EtcdService::fresh();
    let lease = service.etcd.grant(600);
    let old = r#"{"v":1,"id":"0123456789abcdef0123456789abcdef","since":1,"host":"web1","user":"deploy","pid":4711,"program":"old.sh","ttl":600000}"#;
    for options in [&["-s"][..], &["--slots", "3"]] {
        let holder = hold_with(&service, options);
        service.etcd.put(&key_of(lease), old, lease);
        let behind = Gated::spawn(service.scratch(), service.run("job").args(options));
        wait_contenders(&service, 3);
        is_refused(&service, options, ", pid ");
        holder.let_go().success();
        is_refused(&service, options, "held by deploy@web1, pid 4711 (old.sh), since ");
        assert!(!behind.has_held());
        assert!(service.etcd.delete(&key_of(lease)));
        behind.wait_held();
        assert_waited(&behind.let_go());
    }
    service.etcd.revoke(lease);
    assert_clean(&service);
}

#[test]
fn every_reader_loses_what_is_taken_from_all() {
    let revoke = |service: &EtcdService| {
        for entry in contenders(service) {
            service.etcd.revoke(entry.lease);
        }
    };
    let delete = |service: &EtcdService| {
        service.etcd.etcdctl(&["del", "--prefix", "dlock/job/"]);
    };
    thread::scope(|scope| {
        scope.spawn(|| ends_all(revoke, "its lease has ended at the server or was revoked"));
        scope.spawn(|| ends_all(delete, "its key is gone from the server"));
    });
}

#[track_caller]
fn ends_all(change: impl FnOnce(&EtcdService), why: &str) {
    let service = EtcdService::fresh();
    let readers = [(); 3].map(|()| hold_with(&service, &["-s", "-t", "6s"]));
    // Each has renewed its lease once, and watches its own key and for requests since.
    wait_watching(&service, 6);
    let changed = boottime();
    change(&service);
    for reader in readers {
        assert_lost(&reader.running.wait(), why);
    }
    let took = boottime() - changed;
    assert!(took < Duration::from_secs(2), "{took:?}");
    // What comes next has nothing to do with them.
    let reader = hold_with(&service, &["-s"]);
    assert_eq!(contenders(&service).len(), 1);
    reader.let_go().success();
    assert_clean(&service);
}

/// Slots are entered one after the other, so that their numbers need no agreement.
#[test]
fn a_waiter_that_stands_still_is_passed_when_its_lease_has_ended() {
    let service = EtcdService::fresh();
    let two = ["--slots", "2", "-t", "60s"];
    let (first, second) = (hold_with(&service, &two), hold_with(&service, &two));
    let (still, next) = (service.queue_up("job", &two), service.queue_up("job", &two));
    wait_watching(&service, 2);
    process::signal(still.pid(), Signal::SIGSTOP);
    process::wait_stopped(still.pid());
    first.let_go().success();
    is_refused(&service, &two, "all 2 slots are taken, one by ");
    assert!(!next.has_held(), "it has overtaken another one");
    service.etcd.revoke(contenders(&service)[1].lease);
    next.wait_held();
    assert_eq!(told(&next, "DLOCK_SLOT"), "0");
    process::signal(still.pid(), Signal::SIGCONT);
    // It is in the queue again, behind the two who have the slots.
    wait_contenders(&service, 3);
    assert!(!still.has_held(), "three have two slots");
    second.let_go().success();
    still.wait_held();
    assert_eq!(told(&still, "DLOCK_SLOT"), "1");
    assert!(still.token() > next.token());
    assert_waited(&next.let_go());
    assert_waited(&still.let_go());
    assert_clean(&service);
}

/// Which slot it has is not known then, so nobody may enter one: it could be the same.
#[test]
fn the_slot_of_a_holder_whose_value_was_overwritten_is_given_to_nobody() {
    let service = EtcdService::fresh();
    let three = ["--slots", "3"];
    let (first, second) = (hold_with(&service, &three), hold_with(&service, &three));
    let key = contenders(&service).remove(0).key;
    service.etcd.etcdctl(&["put", &key, "mine!", "--ignore-lease"]);
    is_refused(&service, &three, "held by another program: mine!");
    assert_eq!(contenders(&service).len(), 2, "an attempt has left its key");
    let third = service.queue_up("job", &three);
    wait_watching(&service, 1);
    assert!(!third.has_held());
    first.let_go().success();
    third.wait_held();
    assert_eq!((told(&second, "DLOCK_SLOT"), told(&third, "DLOCK_SLOT")), ("1".to_owned(), "0".to_owned()));
    second.let_go().success();
    assert_waited(&third.let_go());
    assert_clean(&service);
}

#[test]
fn an_attempt_that_does_not_wait_puts_nothing_where_it_would_not_enter() {
    let service = EtcdService::fresh();
    let reader = hold_with(&service, &["-s"]);
    let writer = service.queue_up("job", &[]);
    let before = (service.etcd.revision(), service.etcd.leases().len());
    for options in [&["-s"][..], &["-x"], &["--slots", "2"]] {
        is_refused(&service, options, "held shared by ");
    }
    assert_eq!((service.etcd.revision(), service.etcd.leases().len()), before);
    reader.let_go().success();
    assert_waited(&writer.let_go());
    assert_clean(&service);
}

#[test]
fn another_number_of_slots_is_refused_without_a_trace() {
    let service = EtcdService::fresh();
    let two = hold_with(&service, &["--slots", "2"]);
    let writer = service.queue_up("job", &[]);
    let keys: Vec<String> = contenders(&service).into_iter().map(|entry| entry.key).collect();
    for options in [&["--slots", "3"][..], &["--slots", "3", "-n"], &["--slots", "3", "-w", "60"]] {
        let refused = service.run("job").args(options).command(["echo", "overlap"]).output();
        refused.code(64).stdout_is("").stderr_is_one_line(" is in use with --slots 2 (by ");
        let left: Vec<String> = contenders(&service).into_iter().map(|entry| entry.key).collect();
        assert_eq!((left, service.etcd.leases().len()), (keys.clone(), 2));
    }
    two.let_go().success();
    // When the last of them has gone, any number will do.
    let three = service.queue_up("job", &["--slots", "3"]);
    assert_waited(&writer.let_go());
    three.wait_held();
    assert_waited(&three.let_go());
    assert_clean(&service);
}

/// Only who is next in line watches the holders, and those behind it the one before them.
#[test]
fn a_slot_costs_the_same_however_many_wait_for_one() {
    let service = EtcdService::fresh();
    let options = ["--slots", "2", "-t", "10m", "-q"];
    let mut queue = vec![hold_with(&service, &options), hold_with(&service, &options)];
    let mut costs = Vec::new();
    for waiting in [3, 24] {
        while queue.len() < waiting + 2 {
            queue.push(service.queue_up("job", &options));
        }
        wait_watching(&service, waiting);
        let requests = service.etcd.count_requests();
        queue.remove(0).let_go().success();
        queue[1].wait_held();
        // And the one behind it is the next now.
        eventually("the next one to watch", || (requests.so_far().get("Watch") == Some(&1)).then_some(()));
        wait_watching(&service, waiting - 1);
        assert_eq!(queue.iter().filter(|gated| gated.has_held()).count(), 2);
        costs.push(requests.without_heartbeats());
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0] <= 6, "{costs:?}");
    for gated in queue {
        gated.let_go().success();
    }
    assert_clean(&service);
}

/// Requests for each of so many readers, all of which run together once a writer has gone that was before them.
#[track_caller]
fn for_each_reader(readers: usize) -> u64 {
    let service = EtcdService::fresh();
    let writer = service.hold("job");
    let gate = Gate::new(service.scratch().path("readers"));
    let script = format!("echo held; {}", gate.wait());
    let mut crowd = Vec::new();
    while crowd.len() < readers {
        let more = 25_usize.min(readers - crowd.len());
        crowd.extend((0..more).map(|_| service.run("job").args(["-s", "-q", "-t", "10m"]).shell(&script).spawn()));
        service.wait_queued("job", crowd.len());
    }
    wait_watching(&service, readers);
    let requests = service.etcd.count_requests();
    writer.let_go().success();
    for reader in &crowd {
        reader.wait_stdout("held");
    }
    let requests = requests.without_heartbeats();
    println!("{readers} readers: {requests} requests");
    for _ in &crowd {
        gate.open();
    }
    for reader in crowd {
        reader.wait().success();
    }
    assert_clean(&service);
    requests / readers as u64
}

/// Some of them see none but readers before them, and more beyond those.
#[test]
fn readers_behind_a_writer_run_together_and_cost_the_same_however_many_they_are() {
    let (few, many) = (for_each_reader(10), for_each_reader(130));
    assert!(many <= few + 1, "{few} requests for each of 10, {many} for each of 130");
    assert!((1..=3).contains(&few), "{few}");
}
