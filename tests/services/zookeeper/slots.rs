//! Slots, which are entered one after the other, and minimum holds of several holders.

use super::*;

/// A waiter that takes longer was not notified: with the usual ttl it looks again after half a minute.
const PROMPT: Duration = Duration::from_secs(5);

/// The name of a dlock's last node, made by hand, which is held by no session; and what it says.
fn entry(number: u32, slot: Option<u32>) -> (String, String) {
    let id = format!("{number:031x}");
    let slot = slot.map_or_else(String::new, |slot| format!(r#","slot":{slot}"#));
    let text = format!(r#"{{"v":1,"id":"0{id}","mode":"slots2"{slot},"host":"h","user":"u","pid":7}}"#);
    (format!("{LOCK}/f{id}-slots2__lock__{number:010}"), text)
}

/// A lock with two slots, which these have entered.
fn taken(slots: [u32; 2]) -> (ZooKeeperService, [String; 2]) {
    let service = ZooKeeperService::fresh();
    service.zookeeper.create("/dlock", "");
    service.zookeeper.create(LOCK, "");
    // The server numbers the nodes that come later by how many there were.
    let entries = [0, 1].map(|index| entry(u32::try_from(index).unwrap(), Some(slots[index])));
    for (path, text) in &entries {
        service.zookeeper.create(path, text);
    }
    (service, entries.map(|(path, _)| path))
}

fn slot(running: &Gated) -> String {
    process::environ(running.running.command_pid())["DLOCK_SLOT"].clone()
}

fn wait(service: &ZooKeeperService) -> Gated {
    let waiter = Gated::spawn(service.scratch(), service.run("job").args(["-q", "--slots", "2"]));
    eventually("a watch", || (service.zookeeper.watches() >= 1).then_some(()));
    waiter
}

#[test]
fn the_first_in_line_hears_of_the_end_of_any_holder_and_has_its_slot() {
    for (slots, gone) in [([0, 1], 0), ([0, 1], 1), ([1, 0], 0)] {
        let (service, paths) = taken(slots);
        let waiter = wait(&service);
        assert!(!waiter.has_held());
        assert!(service.zookeeper.delete(&paths[gone]));
        let deleted = boottime();
        waiter.wait_held();
        assert!(boottime() < deleted + PROMPT, "it has found out by itself");
        assert_eq!(slot(&waiter), slots[gone].to_string());
        waiter.let_go().success();
    }
}

/// It lists the queue when somebody comes, and nobody else does anything.
#[test]
fn those_who_come_cost_the_first_in_line_one_look_each_and_the_others_nothing() {
    const COMING: u32 = 40;
    let (service, paths) = taken([0, 1]);
    let waiters = [(); 3].map(|()| wait(&service));
    service.wait_queued("job", 2);
    eventually("their watches", || (service.zookeeper.watches() >= 3).then_some(()));
    let requests = service.zookeeper.count_requests();
    for number in 0..COMING {
        let (path, text) = entry(1000 + number, None);
        service.zookeeper.create(&path, &text);
    }
    // Nothing else comes of it, and three waiters send a heartbeat or two.
    last_until(boottime() + Duration::from_secs(1));
    let seen = requests.so_far();
    let all: u64 = seen.values().sum();
    assert!((1..=u64::from(COMING) + 6).contains(&all), "{seen:?}");
    assert!(service.zookeeper.delete(&paths[0]));
    eventually("one of them to hold it", || waiters.iter().any(Gated::has_held).then_some(()));
    for number in 0..COMING {
        service.zookeeper.delete(&entry(1000 + number, None).0);
    }
    let mut waiters = Vec::from(waiters);
    while !waiters.is_empty() {
        let holder = eventually("a holder", || waiters.iter().position(Gated::has_held));
        waiters.remove(holder).let_go().success();
    }
}

/// Those behind have counted on the slot that it has said, so that it must keep that.
#[test]
fn one_whose_entry_was_not_answered_keeps_the_slot_that_it_has_entered() {
    let service = ZooKeeperService::fresh();
    let first = Gated::spawn(service.scratch(), service.run("job").args(["-q", "--slots", "3"]));
    first.wait_held();
    let armed = Arc::new(AtomicBool::new(true));
    let proxy = ZooKeeperProxy::to(service.zookeeper.server(0).port(), move |request, _| {
        let enters = request.operation == MULTI && request.frame.windows(7).any(|part| part == b"\"slot\":");
        if enters && armed.swap(false, Ordering::SeqCst) { Fate::Silence } else { Fate::Pass }
    });
    let patient = ["-t", "3s", "-w", "60", "--slots", "3"];
    let second = Gated::spawn(service.scratch(), run_at(&service, &proxy.url(), &patient));
    let said = |node: &Node| {
        let published: serde_json::Value = serde_json::from_str(&node.data).unwrap();
        published["slot"].as_u64()
    };
    eventually("its entry", || {
        let nodes = nodes(&service.zookeeper);
        (nodes.len() == 6 && said(&nodes[5].1) == Some(1)).then_some(())
    });
    // The lowest slot is free now, and the one behind it takes that.
    first.let_go().success();
    let third = Gated::spawn(service.scratch(), service.run("job").args(["-q", "--slots", "3"]));
    third.wait_held();
    second.wait_held();
    assert_eq!([slot(&second), slot(&third)], ["1", "0"]);
    let nodes = nodes(&service.zookeeper);
    let slots: Vec<Option<u64>> = nodes.iter().map(|(_, node)| said(node)).collect();
    assert_eq!(slots, [Some(1), None, Some(1), Some(0), None, Some(0)]);
    third.let_go().success();
    let outcome = second.let_go();
    outcome.code(0);
    let _ = outcome.stderr();
}

#[test]
fn another_number_of_slots_is_refused_before_anything_is_made() {
    let service = ZooKeeperService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--slots", "2"]));
    holder.wait_held();
    for options in [&["--slots", "3"][..], &["--slots", "1", "-n"], &["--slots", "3", "-w", "9"]] {
        let refused = service.run("job").args(options).command(["echo", "ran"]).output();
        refused.code(64).stdout_is("").stderr_is_one_line("in use with --slots 2 (by ");
    }
    let other = Gated::spawn(service.scratch(), service.run("job").args(["--slots", "2"]));
    other.wait_held();
    let sequences: Vec<i64> = nodes(&service.zookeeper).iter().map(|(name, _)| sequence(name)).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4, 5], "nodes were made meanwhile");
    other.let_go().success();
    holder.let_go().success();
    service.run("job").args(["--slots", "3"]).command(["true"]).output().success();
    assert!(service.zookeeper.tree().is_empty());
}

#[test]
fn slots_that_are_kept_after_their_use_are_taken_one_by_one() {
    let service = ZooKeeperService::fresh();
    let run = |options: &[&str]| service.run("job").args(options).shell("echo $DLOCK_SLOT").output();
    for expected in ["0\n", "1\n"] {
        run(&["-n", "--slots", "2", "--min-hold", "10m"]).success().stdout_is(expected);
    }
    for options in [&["-n", "--slots", "2"][..], &["-n"], &["-n", "-s"]] {
        run(options).code(75).stdout_is("").stderr_is_one_line("finished; kept until 2");
    }
    run(&["-n", "--slots", "3"]).code(64).stdout_is("").stderr_is_one_line("in use with --slots 2 (by ");
    let directory = "/dlock/job%dlock";
    let kept = || service.zookeeper.children(directory).unwrap_or_default();
    assert_eq!(kept().len(), 2);
    // Each is a node of its own. When the one that ends first is removed by hand, its slot is free.
    let waiter = service.queue_up_for_slots();
    for name in kept() {
        let path = format!("{directory}/{name}");
        if service.zookeeper.get(&path).unwrap().data.contains(r#""slot":0,"#) {
            assert!(service.zookeeper.delete(&path));
        }
    }
    waiter.wait_held();
    assert_eq!(slot(&waiter), "0");
    waiter.let_go().success();
    for name in kept() {
        service.zookeeper.delete(&format!("{directory}/{name}"));
    }
    service.run("job").arg("-n").command(["true"]).output().success();
    assert!(service.zookeeper.tree().is_empty());
}

#[test]
fn readers_who_are_finished_keep_writers_out_and_no_readers() {
    let service = ZooKeeperService::fresh();
    for _ in 0..2 {
        service.run("job").args(["-n", "-s", "--min-hold", "10m"]).command(["true"]).output().success();
    }
    service.run("job").args(["-n", "-s"]).command(["true"]).output().success();
    let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("finished; kept until 2");
    assert_eq!(service.zookeeper.children("/dlock/job%dlock").unwrap().len(), 2);
}

impl ZooKeeperService {
    /// Waits for one of two slots, which are kept.
    fn queue_up_for_slots(&self) -> Gated {
        let waiter = Gated::spawn(self.scratch(), self.run("job").args(["-q", "--slots", "2"]));
        eventually("a watch on what is kept", || (self.zookeeper.watches() >= 1).then_some(()));
        waiter
    }
}
