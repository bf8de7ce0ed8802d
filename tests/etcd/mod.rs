/*!
What etcd alone has: keys named after leases, the queue by create revisions, watches, what other hands do to all that,
and who may use it.
*/

mod faults;
mod hostile;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::certificates::Tls;
use crate::support::dlock::Outcome;
use crate::support::etcd::{Entry, Etcd, EtcdOptions};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{EtcdService, Gated, Service};
use crate::support::tree::Tree;

/// What a lease is called in the name of its key.
fn key_of(lease: i64) -> String {
    format!("dlock/job/{lease:x}")
}

/// The keys of those who hold `job` or wait for it, the first in line first.
#[track_caller]
pub fn contenders(service: &EtcdService) -> Vec<Entry> {
    service.etcd.keys(&EtcdService::contenders("job"))
}

/// The URL of the etcd behind `proxy`.
pub fn behind(proxy: &Proxy) -> String {
    format!("etcd://127.0.0.1:{}", proxy.port())
}

/// What the command of `running` was told, while it runs.
#[track_caller]
fn told(gated: &Gated, name: &str) -> String {
    process::environ(gated.running.command_pid()).remove(name).unwrap_or_else(|| panic!("no {name}"))
}

/// Nothing is left, neither keys nor leases.
#[track_caller]
pub fn assert_clean(service: &EtcdService) {
    assert_eq!(service.litter(&[]), [""; 0]);
}

/// 0, and nothing said but that it waited.
#[track_caller]
pub fn assert_waited(outcome: &Outcome) {
    outcome.code(0);
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for job: ")), "{outcome:?}");
}

/// 79, and one line that says what was lost and why.
#[track_caller]
pub fn assert_lost(outcome: &Outcome, why: &str) {
    outcome.code(79).stderr_is_one_line(why);
    assert!(outcome.stderr().starts_with("dlock: lost job at etcd://127.0.0.1:"), "{outcome:?}");
}

mod recipe {
    use super::*;

    #[test]
    fn the_key_is_named_after_its_lease_and_its_first_value_says_who_holds_it() {
        let service = EtcdService::fresh();
        let watch = service.etcd.watch("dlock/");
        let holder = service.hold("job");
        let owner = told(&holder, "DLOCK_OWNER");
        let [entry] = &contenders(&service)[..] else { panic!("one key") };
        assert!(entry.lease > 0);
        assert_eq!(entry.key, key_of(entry.lease));
        // Put once, and it said so from the first moment on.
        assert_eq!((entry.version, entry.create_revision), (1, entry.mod_revision));
        assert!(entry.value.starts_with(&format!(r#"{{"v":1,"id":"{owner}","#)), "{}", entry.value);
        let published: serde_json::Value = serde_json::from_str(&entry.value).unwrap();
        assert_eq!(published["program"], "sh");
        let lease = service.etcd.lease(entry.lease).unwrap();
        assert_eq!((lease.granted, lease.keys), (30, vec![entry.key.clone()]));

        holder.let_go().success();
        assert_clean(&service);
        let events = watch.so_far();
        assert_eq!(events.iter().filter(|event| event.value.is_some()).count(), 1, "{events:?}");
    }

    #[test]
    fn a_key_with_a_slash_is_not_below_another_one() {
        let service = EtcdService::fresh();
        let inner = service.hold("job/part");
        let [entry] = &service.etcd.keys("")[..] else { panic!("one key") };
        assert_eq!(entry.key, format!("dlock/job%2Fpart/{:x}", entry.lease));
        service.assert_free("job");
        service.assert_held("job/part");
        inner.let_go().success();
        // And without a namespace.
        let bare = Gated::spawn(service.scratch(), service.run("job").args(["--namespace", ""]));
        bare.wait_held();
        let [entry] = &service.etcd.keys("")[..] else { panic!("one key") };
        assert_eq!(entry.key, format!("job/{:x}", entry.lease));
        bare.let_go().success();
        assert_clean(&service);
    }

    /// The keys of a lock whose namespace is `dlock/job` begin as those of `job` in `dlock` do.
    #[test]
    fn a_lock_whose_namespace_begins_with_ours_is_not_in_the_way() {
        let service = EtcdService::fresh();
        // More than one look names, older than all that follows; then more, in between.
        let lease = service.etcd.grant(600);
        let others = |from: u32, to: u32| {
            for number in from..to {
                service.etcd.put(&format!("dlock/job/key-{number}/{lease:x}"), "theirs", lease);
            }
        };
        others(0, 130);
        let inner = Gated::spawn(service.scratch(), service.run("part").args(["--namespace", "dlock/job"]));
        inner.wait_held();
        service.assert_free("job");
        let holder = service.hold("job");
        let who = format!(", pid {} (sh)", holder.pid());
        // Who has it is told all the same, and those who wait for it have one order.
        let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line(&who);
        others(130, 260);
        let first = Gated::spawn(service.scratch(), service.run("job"));
        let line = first.running.wait_stderr("waiting for job");
        assert!(line.contains(&who), "{line}");
        others(260, 390);
        let second = Gated::spawn(service.scratch(), service.run("job"));
        second.running.wait_stderr("waiting for job");
        inner.let_go().success();
        assert!(!first.has_held() && !second.has_held());
        holder.let_go().success();
        first.wait_held();
        assert!(!second.has_held());
        assert_waited(&first.let_go());
        second.wait_held();
        assert_waited(&second.let_go());
        service.etcd.revoke(lease);
        assert_clean(&service);
    }

    /// The installed one is such.
    #[test]
    fn an_etcd_that_can_revoke_renewed_leases_is_warned_of_once_by_runs_that_renew() {
        for members in [1, 3] {
            let options = if members == 1 { EtcdOptions::single() } else { EtcdOptions::cluster() };
            let service = EtcdService::on(Etcd::with(options));
            let version = service.etcd.etcdctl(&["version"]);
            assert!(version.contains("3.4.23"), "this test knows what 3.4.23 does, not {version}");
            let short = service.run("job").command(["true"]).output();
            assert_eq!(short.success().warnings_of_old_etcd(), 0);
            let long = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s"]));
            long.wait_held();
            let line = long.running.wait_stderr("etcd#15247");
            assert!(line.starts_with("dlock: job at etcd://127.0.0.1:"), "{line}");
            assert!(line.contains(": etcd 3.4.23 can revoke a renewed lease"), "{line}");
            for _ in 0..3 {
                renewed(&service.etcd);
            }
            assert_eq!(long.let_go().success().warnings_of_old_etcd(), 1);
            let quiet = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s", "-q"]));
            quiet.wait_held();
            for _ in 0..2 {
                renewed(&service.etcd);
            }
            assert_eq!(quiet.let_go().success().warnings_of_old_etcd(), 0);
        }
    }

    /// The revision at which it was known that the lock is ours, as etcdctl and Go show it: for who waited it is larger
    /// than its key's create revision, and comparable with theirs.
    #[test]
    fn tokens_and_the_revisions_of_etcdctl_rise_in_one_order() {
        let service = EtcdService::fresh();
        let first = service.hold("job");
        let first_token: i64 = told(&first, "DLOCK_TOKEN").parse().unwrap();
        assert_eq!(first_token, contenders(&service)[0].create_revision);
        let mut foreign = service.etcd.etcdctl_command();
        foreign.args(["lock", "dlock/job", "--", "sh", "-c", "echo $ETCD_LOCK_REV"]).stdin(Stdio::null());
        let foreign = foreign.stdout(Stdio::piped()).spawn().unwrap();
        service.wait_queued("job", 1);
        let second = service.queue_up("job", &[]);
        let created = contenders(&service)[2].create_revision;
        for _ in 0..5 {
            service.etcd.put("elsewhere", "", 0);
        }
        first.let_go().success();
        let foreign = foreign.wait_with_output().unwrap();
        second.wait_held();
        let second_token: i64 = told(&second, "DLOCK_TOKEN").parse().unwrap();
        let foreign_token: i64 = String::from_utf8_lossy(&foreign.stdout).trim().parse().unwrap();
        assert!(created < foreign_token, "this test shows nothing: {created}, {foreign_token}");
        assert!(first_token < foreign_token && foreign_token < second_token, "{foreign_token}, {second_token}");
        assert!(second_token <= service.etcd.revision());
        // Once it is held, what it publishes says that too.
        let published = eventually("the token to be published", || {
            let published: serde_json::Value = serde_json::from_str(&contenders(&service)[0].value).unwrap();
            published["token"].as_i64()
        });
        assert_eq!(published, second_token);
        assert_waited(&second.let_go());
        // etcdctl leaves its lease to run out.
        assert_eq!(contenders(&service), []);
    }

    #[test]
    fn the_granted_ttl_is_what_counts() {
        // The shortest lease that etcd grants by default is of 2 s.
        let etcd = Etcd::with(EtcdOptions { heartbeat: 100, election: 1000, ..EtcdOptions::single() });
        let service = EtcdService::on(etcd);
        for (asked, granted) in [("1s", 2), ("2500ms", 3)] {
            let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", asked]));
            holder.wait_held();
            assert_eq!(told(&holder, "DLOCK_LEASE_TTL"), granted.to_string());
            assert_eq!(service.etcd.leases()[0].granted, granted);
            holder.let_go().success();
        }
        // And the command lives by it: beyond the second that was asked for.
        let mut tree = Tree::new(service.scratch());
        let dlock = service.run("job").args(["-t", "1s"]).shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        let renewed = super::renewed(&service.etcd);
        service.etcd.stop();
        let died = tree.died_at();
        assert!(died < renewed + Duration::from_secs(2), "{:?} after the last renewal", died - renewed);
        assert!(died > renewed + Duration::from_secs(1), "{:?} after the last renewal", died - renewed);
        service.etcd.cont();
        assert_lost(&dlock.wait(), "does not answer");
    }

    /// Above all never the server's lock service, which in some versions grants a lock whose lease has ended.
    #[test]
    fn only_keys_leases_and_watches_are_used() {
        let service = EtcdService::fresh();
        let requests = service.etcd.count_requests();
        let holder = service.hold("job");
        let waiter = Gated::spawn(service.scratch(), service.run("job").args(["-t", "1s"]));
        waiter.running.wait_stderr("waiting for job");
        service.assert_held("job");
        holder.let_go().success();
        waiter.wait_held();
        renewed(&service.etcd);
        assert_waited(&waiter.let_go());
        let used: BTreeSet<String> = requests.so_far().into_keys().collect();
        let known = ["DeleteRange", "LeaseGrant", "LeaseKeepAlive", "LeaseRevoke", "Range", "Status", "Txn", "Watch"];
        assert_eq!(used, known.map(str::to_owned).into());
    }

    /// Each watches the one before it only, so it is alone in waking up.
    #[test]
    fn a_hand_over_costs_the_same_however_many_wait() {
        let service = EtcdService::fresh();
        let mut queue = vec![service.hold("job")];
        let mut costs = Vec::new();
        for waiting in [3, 24] {
            while queue.len() <= waiting {
                queue.push(Gated::spawn(service.scratch(), service.run("job").args(["-q"])));
            }
            service.wait_queued("job", waiting);
            let order: Vec<String> = contenders(&service).into_iter().map(|entry| entry.value).collect();
            // Those who came at the same time stand in the order of their keys.
            queue.sort_by_key(|gated| {
                let pid = format!(r#""pid":{},"#, gated.pid());
                order.iter().position(|value| value.contains(&pid)).unwrap()
            });
            // All of them watch: nothing that belongs to the coming is counted below.
            eventually("all to watch", || (watchers(&service.etcd) == waiting).then_some(()));
            let requests = service.etcd.count_requests();
            queue.remove(0).let_go().success();
            queue[0].wait_held();
            // What it publishes now comes after it began.
            eventually("the next one to tell", || contenders(&service)[0].value.contains("token").then_some(()));
            assert_eq!(queue.iter().filter(|gated| gated.has_held()).count(), 1);
            let counted = requests.so_far();
            assert_eq!(counted.get("Watch"), None, "{counted:?}");
            costs.push(requests.without_heartbeats());
        }
        assert_eq!(costs[0], costs[1]);
        assert!(costs[0] <= 4, "{costs:?}");
        for gated in queue {
            gated.let_go().success();
        }
        assert_clean(&service);
    }
}

/// How many watches clients have open.
#[track_caller]
pub fn watchers(etcd: &Etcd) -> usize {
    etcd.metric("etcd_debugging_mvcc_watcher_total").try_into().unwrap()
}

/// Waits for a lease to be extended, where only one client does that; a moment just before it, by [`boottime`].
#[track_caller]
pub fn renewed(etcd: &Etcd) -> Duration {
    let requests = etcd.count_requests();
    let mut before = boottime();
    eventually("a renewal", || {
        let now = boottime();
        if requests.so_far().contains_key("LeaseKeepAlive") {
            return Some(before);
        }
        before = now;
        None
    })
}

/// What befalls those who wait.
mod waiting {
    use super::*;

    /// etcd #11456: the end of the one before it says nothing about a place that is gone itself.
    #[test]
    fn who_lost_its_lease_while_it_waited_does_not_run_when_its_turn_would_be() {
        let service = EtcdService::fresh();
        let holder = service.hold("job");
        let first = service.queue_up("job", &["-t", "60s"]);
        let second = service.queue_up("job", &["-t", "60s"]);
        // It hears of both ends at once.
        process::signal(first.pid(), Signal::SIGSTOP);
        process::wait_stopped(first.pid());
        service.etcd.revoke(contenders(&service)[1].lease);
        holder.let_go().success();
        second.wait_held();
        process::signal(first.pid(), Signal::SIGCONT);
        // It is in the queue again, with a new key, behind who has the lock.
        service.wait_queued("job", 1);
        assert!(!first.has_held(), "two hold the lock");
        let token: u64 = told(&second, "DLOCK_TOKEN").parse().unwrap();
        assert_waited(&second.let_go());
        first.wait_held();
        assert!(told(&first, "DLOCK_TOKEN").parse::<u64>().unwrap() > token);
        assert_waited(&first.let_go());
        assert_clean(&service);
    }

    #[test]
    fn a_place_that_is_taken_away_is_asked_for_again_at_the_end_of_the_queue() {
        let service = EtcdService::fresh();
        for lose_lease in [true, false] {
            let holder = service.hold("job");
            let first = service.queue_up("job", &["-t", "1s"]);
            let second = service.queue_up("job", &["-t", "60s"]);
            let place = contenders(&service).remove(1);
            if lose_lease {
                service.etcd.revoke(place.lease);
            } else {
                assert!(service.etcd.delete(&place.key));
            }
            service.wait_queued("job", 2);
            assert!(contenders(&service)[2].create_revision > place.create_revision);
            holder.let_go().success();
            second.wait_held();
            assert!(!first.has_held());
            assert_waited(&second.let_go());
            first.wait_held();
            assert_waited(&first.let_go());
            assert_clean(&service);
        }
    }

    /// That the lease is gone is an answer, and a good one: there is nothing wrong with who gave it.
    #[test]
    fn a_lost_place_is_no_reason_to_leave_the_server() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let holder = service.hold("job");
        let waiter = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "1s", "-q"]);
        let waiter = Gated::spawn(service.scratch(), waiter);
        service.wait_queued("job", 1);
        service.etcd.revoke(contenders(&service)[1].lease);
        service.wait_queued("job", 1);
        assert_eq!(proxy.counts().accepted, 1);
        holder.let_go().success();
        waiter.let_go().success();
    }

    #[test]
    fn who_waits_stays_in_the_queue_for_many_leases() {
        let service = EtcdService::fresh();
        let holder = service.hold("job");
        let waiter = service.queue_up("job", &["-t", "1s", "-q"]);
        let place = contenders(&service).remove(1);
        for _ in 0..5 {
            renewed(&service.etcd);
        }
        assert_eq!(contenders(&service)[1], place);
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
        assert_clean(&service);
    }

    /// A watch from before the compaction is refused: what is true is read again.
    #[test]
    fn a_compaction_while_it_begins_to_wait_is_no_error() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let holder = service.hold("job");
        // Time enough between the look at the queue and the watch that starts there.
        proxy.set(Mode::DelayReplies(Duration::from_millis(300)));
        let requests = service.etcd.count_requests();
        let waiter = Gated::spawn(service.scratch(), service.scratch().dlock().run("job").backend(behind(&proxy)));
        service.wait_queued("job", 1);
        for _ in 0..3 {
            service.etcd.put("elsewhere", "", 0);
        }
        service.etcd.delete("elsewhere");
        service.etcd.compact();
        // It comes back to a watch that lasts.
        eventually("a second watch", || (requests.so_far().get("Watch") == Some(&2)).then_some(()));
        proxy.set(Mode::Forward);
        holder.let_go().success();
        waiter.wait_held();
        assert_waited(&waiter.let_go());
        assert_clean(&service);
    }

    #[test]
    fn a_watch_that_breaks_costs_neither_the_place_nor_the_news() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let holder = service.hold("job");
        let waiter = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "60s"]);
        let waiter = Gated::spawn(service.scratch(), waiter);
        service.wait_queued("job", 1);
        eventually("a watch", || (watchers(&service.etcd) == 1).then_some(()));
        let place = contenders(&service).remove(1);
        proxy.set(Mode::Reset);
        eventually("the end of the watch", || (watchers(&service.etcd) == 0).then_some(()));
        proxy.set(Mode::Forward);
        eventually("another watch", || (watchers(&service.etcd) == 1).then_some(()));
        assert_eq!(contenders(&service)[1], place);
        // The release falls into the next gap.
        proxy.set(Mode::Refuse);
        holder.let_go().success();
        proxy.set(Mode::Forward);
        waiter.wait_held();
        assert_waited(&waiter.let_go());
        assert_clean(&service);
    }

    /// A lock that is granted with too little left of the lease is extended by asking again.
    #[test]
    fn a_turn_that_comes_late_in_the_waiters_lease_is_taken() {
        let service = EtcdService::fresh();
        let watch = service.etcd.watch("dlock/job/");
        let holder = service.hold("job");
        // Of use until 1.25 s after it was granted, and extended after 1.33 s.
        let waiter = service.queue_up("job", &["-t", "4s", "--kill-after", "2s", "-q"]);
        let key = contenders(&service).remove(1).key;
        let granted = watch.wait("the place", |event| event.key == key).at;
        crate::support::rendezvous::last_until(granted + Duration::from_millis(1285));
        holder.let_go().success();
        waiter.let_go().success();
        assert_clean(&service);
    }

    #[test]
    fn a_key_that_is_no_lock_is_named_and_waited_for() {
        let service = EtcdService::fresh();
        let lease = service.etcd.grant(60);
        let strays = [
            ("dlock/job/config", 0, "without a lease"),
            ("dlock/job/6f", 0, "without a lease"),
            ("dlock/job/config", lease, "that is no lock"),
            ("dlock/job/", lease, "that is no lock"),
        ];
        for (key, lease, what) in strays {
            service.etcd.put(key, "x", lease);
            let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
            refused.code(75).stdout_is("").stderr_is_one_line(&format!("the key {key}, a key {what}"));
            let waiter = service.queue_up("job", &[]);
            let line = waiter.running.wait_stderr("waiting for job");
            assert!(line.contains(&format!("the key {key}, a key {what}")), "{line}");
            assert!(!waiter.has_held());
            assert!(service.etcd.delete(key), "a stray key is not ours to delete");
            waiter.wait_held();
            assert_waited(&waiter.let_go());
        }
        service.etcd.revoke(lease);
        assert_clean(&service);
    }

    /// One that is in the queue behind a lock too, where it is what a waiter waits for.
    #[test]
    fn a_stray_key_between_the_holder_and_us_is_named() {
        let service = EtcdService::fresh();
        let holder = service.hold("job");
        service.etcd.put("dlock/job/config", "x", 0);
        let waiter = Gated::spawn(service.scratch(), service.run("job"));
        let line = waiter.running.wait_stderr("waiting for job");
        assert!(line.contains("the key dlock/job/config, a key without a lease"), "{line}");
        // It came later than the holder, whom it does not concern.
        holder.let_go().success();
        assert!(!waiter.has_held());
        service.etcd.delete("dlock/job/config");
        waiter.wait_held();
        assert_waited(&waiter.let_go());
        assert_clean(&service);
    }

    #[test]
    fn who_is_killed_while_it_waits_leaves_nothing_for_longer_than_a_lease() {
        let service = EtcdService::fresh();
        let holder = service.hold("job");
        let waiter = service.queue_up("job", &["-t", "1s"]);
        let key = contenders(&service).remove(1).key;
        let watch = service.etcd.watch("dlock/job/");
        waiter.running.signal(Signal::SIGKILL);
        waiter.running.wait().signal(Signal::SIGKILL);
        watch.wait_deleted(&key);
        holder.let_go().success();
        assert_clean(&service);
    }
}

/// What befalls those who hold the lock.
mod taken_away {
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
        let dlock = service.run("job").args(["-t", "2s"]).shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        renewed(&service.etcd);
        change(&service, &contenders(&service)[0]);
        let changed = boottime();
        // The next renewal finds out, within a third of the lease, and SIGKILL comes a quarter of it later.
        let died = tree.died_at();
        assert!(died < changed + Duration::from_millis(1400), "{:?} later", died - changed);
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
}

/// Names and passwords.
mod credentials {
    use super::*;

    const PASSWORD: &str = "pass of the tests";

    /// An etcd that lets `someone` at the keys below `prefix`.
    fn guarded(prefix: &str, options: EtcdOptions) -> EtcdService {
        let service = EtcdService::on(Etcd::with(options));
        service.etcd.guard("someone", PASSWORD, prefix);
        service
    }

    /// 77 in one line that has all of `parts` and no password.
    #[track_caller]
    fn assert_refused(service: &EtcdService, user: Option<&str>, password: Option<&str>, parts: &[&str]) {
        let mut dlock = service.run("job").args(user.map(|user| format!("--user={user}")));
        if let Some(password) = password {
            dlock = dlock.env("DLOCK_PASSWORD", password);
        }
        let outcome = dlock.command(["echo", "ran"]).output();
        outcome.code(77).stdout_is("").stderr_is_one_line("did not get job: ");
        let line = outcome.stderr();
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
        assert!(password.is_none_or(|password| !line.contains(password)), "{line}");
        assert!(outcome.elapsed() < Duration::from_secs(3), "{outcome:?}");
    }

    #[test]
    fn what_is_wrong_with_the_credentials_is_said_and_is_77() {
        let service = guarded("dlock/", EtcdOptions::single());
        let hint = "--password-file";
        assert_refused(&service, Some("someone"), Some("secret guess"), &["invalid user ID or password", hint]);
        assert_refused(&service, Some("nobody"), Some(PASSWORD), &["invalid user ID or password", hint]);
        assert_refused(&service, None, None, &["no password was given", hint]);
        assert_refused(&service, Some("someone"), None, &["needs a password too", hint]);
        let right = || service.run("job").arg("--user=someone").env("DLOCK_PASSWORD", PASSWORD);
        right().command(["true"]).output().success();
        // Another namespace is not theirs.
        let elsewhere = right().args(["--namespace", "elsewhere"]).command(["echo", "ran"]).output();
        elsewhere.code(77).stdout_is("").stderr_is_one_line("permission denied");
        assert!(elsewhere.stderr().contains("the keys of --namespace"), "{elsewhere:?}");
        assert_clean(&service);
    }

    #[test]
    fn a_server_that_knows_no_users_says_so() {
        let service = EtcdService::fresh();
        let parts = ["authentication is not enabled", "leave out the user and password"];
        assert_refused(&service, Some("someone"), Some(PASSWORD), &parts);
        assert_clean(&service);
    }

    /// What the server gave for the password is good for a short time only.
    #[test]
    fn a_proof_that_expires_while_it_is_held_or_waited_for_is_asked_for_again() {
        let args = ["--auth-token-ttl", "1"].map(str::to_owned).into();
        let service = guarded("dlock/job/", EtcdOptions { args, ..EtcdOptions::single() });
        let spawn = |options: &[&str]| {
            let dlock = service.run("job").arg("--user=someone").args(options);
            Gated::spawn(service.scratch(), dlock.env("DLOCK_PASSWORD", PASSWORD))
        };
        // Renewed so rarely that it is always too late.
        let holder = spawn(&["-t", "4s"]);
        holder.wait_held();
        let waiter = spawn(&["-t", "4s", "-q"]);
        service.wait_queued("job", 1);
        let place = contenders(&service).remove(1);
        let requests = service.etcd.count_requests();
        // Two of each.
        eventually("renewals", || (requests.so_far().get("LeaseKeepAlive") >= Some(&4)).then_some(()));
        assert_eq!(contenders(&service)[1], place);
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
        assert_clean(&service);
    }

    #[test]
    fn a_cluster_through_tls_refuses_wrong_passwords_too() {
        let service = guarded("dlock/", EtcdOptions { tls: Some(Tls::default()), ..EtcdOptions::single() });
        assert_refused(&service, Some("someone"), Some("secret guess"), &["invalid user ID or password"]);
        let right = service.run("job").arg("--user=someone").env("DLOCK_PASSWORD", PASSWORD);
        right.command(["true"]).output().success();
    }
}
