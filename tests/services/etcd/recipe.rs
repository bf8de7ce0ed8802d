//! The keys, leases and revisions of a lock, as etcd's own recipe has them, and what they cost.

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
    let line = first.running.wait_stderr("waiting for 'job'");
    assert!(line.contains(&who), "{line}");
    others(260, 390);
    let second = Gated::spawn(service.scratch(), service.run("job"));
    second.running.wait_stderr("waiting for 'job'");
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
        let long = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
        long.wait_held();
        let line = long.running.wait_stderr("etcd#15247");
        assert!(line.starts_with("dlock: 'job' at etcd://127.0.0.1:"), "{line}");
        assert!(line.contains(": etcd 3.4.23 can revoke a renewed lease"), "{line}");
        for _ in 0..2 {
            renewed(&service.etcd);
        }
        assert_eq!(long.let_go().success().warnings_of_old_etcd(), 1);
        let quiet = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s", "-q"]));
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
    waiter.running.wait_stderr("waiting for 'job'");
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
