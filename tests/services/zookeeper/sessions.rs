//! Sessions, which outlive connections and end without them.

use super::*;

#[test]
fn a_waiter_whose_session_has_ended_queues_anew_behind_those_who_came_meanwhile() {
    let service = ZooKeeperService::fresh();
    let holder = service.hold("job");
    let proxy = Proxy::to(service.zookeeper.server(0).port());
    let behind = format!("zk://127.0.0.1:{}", proxy.port());
    let waiter = queue_up_at(&service, &behind, &["-t", "1s"]);
    let old = nodes(&service.zookeeper)[3].clone();
    proxy.set(Mode::Hold);
    service.wait_queued("job", 0);
    let second = service.queue_up("job", &["-q"]);
    holder.let_go().success();
    second.wait_held();
    proxy.set(Mode::Forward);
    // On its old place it would run now.
    let new = eventually("new nodes of the waiter", || {
        let all = nodes(&service.zookeeper);
        all.into_iter().find(|(_, node)| owner(node) == owner(&old.1))
    });
    assert_ne!(new.1.ephemeral_owner, old.1.ephemeral_owner);
    assert!(!waiter.has_held());
    second.let_go().success();
    waiter.wait_held();
    ends_well(waiter);
    assert!(service.zookeeper.tree().is_empty());
}

#[test]
fn a_waiter_behind_a_server_that_was_frozen_is_not_refused() {
    let service = ZooKeeperService::fresh();
    let holder = service.queue_up_alone(&["-q", "-t", "20s"]);
    let waiter = service.queue_up("job", &["-q", "-t", "4s"]);
    // Not so long that an answer is overdue, and the lock passes on before a quarter of a session has gone by since.
    service.zookeeper.stop();
    last_until(boottime() + Duration::from_millis(1250));
    service.zookeeper.cont();
    last_until(boottime() + Duration::from_millis(750));
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

/// Many that came early would otherwise all list a long queue after the interval of a short one.
#[test]
fn a_waiter_that_came_early_counts_the_queue_before_it_lists_it() {
    let service = ZooKeeperService::fresh();
    let node = |name: &str, sequence: u32| format!("/dlock/job/{name}__lock__{sequence:010}");
    // Foreign, so that all requests are the waiter's.
    let holder = node("holder", 0);
    for path in ["/dlock", "/dlock/job", &holder] {
        service.zookeeper.create(path, "");
    }
    let waiter = queue_up_at(&service, &service.url(), &["-t", "4s"]);
    for number in 0..400 {
        service.zookeeper.create(&node(&format!("other-{number}"), 1000 + number), "");
    }
    let requests = service.zookeeper.count_requests();
    // One comes every third of a second: twice the interval of a short queue has gone by, and not the one of 130.
    let seen = eventually("signs of life", || {
        let seen = requests.so_far();
        seen.get("exists").is_some_and(|signs| *signs >= 24).then_some(seen)
    });
    assert!(!seen.keys().any(|operation| operation.starts_with("getChildren")), "{seen:?}");
    assert!(service.zookeeper.delete(&holder));
    waiter.wait_held();
    ends_well(waiter);
}

/// Nobody is told that the node before ours is gone, as after an outage that has swallowed the event.
#[test]
fn a_waiter_whose_event_is_lost_looks_anew_within_a_session() {
    let service = ZooKeeperService::fresh();
    let holder = service.hold("job");
    let ignore_watches = |request: &mut Vec<u8>| {
        // The last byte says whether there is to be a watch.
        if request[4..8] == GET_DATA.to_be_bytes()
            && let Some(wanted) = request.last_mut()
        {
            *wanted = 0;
        }
    };
    let proxy = ZooKeeperProxy::editing(service.zookeeper.server(0).port(), ignore_watches, |_, _| Fate::Pass);
    let session = Duration::from_secs(2);
    let waiter = queue_up_at(&service, &proxy.url(), &["-t", "2s"]);
    holder.let_go().success();
    let free = boottime();
    waiter.wait_held();
    let delay = boottime() - free;
    assert!(delay < 2 * session, "the lock was free for {delay:?}");
    ends_well(waiter);
}

#[test]
fn a_waiter_whose_nodes_are_deleted_makes_new_ones() {
    let service = ZooKeeperService::fresh();
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-q", "-t", "2s"]);
    // One is enough: who knows only that spelling would pass the waiter.
    let (name, _) = nodes(&service.zookeeper)[5].clone();
    service.zookeeper.delete(&format!("{LOCK}/{name}"));
    eventually("all nodes anew", || {
        let sequences: Vec<i64> = nodes(&service.zookeeper).iter().map(|(name, _)| sequence(name)).collect();
        (sequences == [0, 1, 2, 6, 7, 8]).then_some(())
    });
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

#[test]
fn a_holder_one_of_whose_nodes_is_deleted_has_lost() {
    for index in [0, 1, 2] {
        let service = ZooKeeperService::fresh();
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "2s"]));
        holder.wait_held();
        let (name, _) = nodes(&service.zookeeper)[index].clone();
        service.zookeeper.delete(&format!("{LOCK}/{name}"));
        holder.running.wait().code(79).stderr_is_one_line("its node is gone from the server");
        // The others are of no use to anybody.
        assert!(service.zookeeper.tree().is_empty());
    }
}

impl ZooKeeperService {
    /// Takes the free lock `job`.
    fn queue_up_alone(&self, options: &[&str]) -> Gated {
        let holder = Gated::spawn(self.scratch(), self.run("job").args(options));
        holder.wait_held();
        holder
    }
}
