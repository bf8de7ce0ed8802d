//! Servers of an ensemble that follow, are cut off, or come and go.

use super::*;

/// A stubborn tree under the lock, with a session of four seconds.
struct Holder {
    tree: Tree,
    running: crate::support::dlock::Running,
    node: String,
    scratch: Scratch,
}

fn hold(zookeeper: &ZooKeeper, url: &str) -> Holder {
    let scratch = Scratch::new();
    // Servers that have just started are slow at what they do for the first time, and the session is short.
    eventually("the servers to be warm", || {
        let first = scratch.dlock().run("first").backend(url).args(["-t", "30s"]).command(["true"]).output();
        first.stderr().is_empty().then_some(())
    });
    let mut tree = Tree::new(&scratch);
    let dlock = scratch.dlock().run("job").backend(url).args(["-t", "4s"]).shell(tree.work());
    let running = dlock.lifeline(tree.end()).spawn();
    tree.wait_grown();
    let node = format!("{LOCK}/{}", nodes(zookeeper)[0].0);
    Holder { tree, running, node, scratch }
}

/// Waits until the holder has renewed so many times more; when the last one was seen.
fn renewed(zookeeper: &ZooKeeper, node: &str, times: i32) -> Duration {
    let version = || zookeeper.get(node).unwrap_or_else(|| panic!("{node} is gone")).version;
    let first = version();
    eventually("renewals", || (version() >= first + times).then(boottime))
}

/// Whatever the leader does, and it counts in whole ticks: the deadline counts from a request that is a quarter of a
/// session older than the last renewal, which was answered before `confirmed`.
fn assert_early(died: Duration, confirmed: Duration) {
    let after = died.saturating_sub(confirmed);
    assert!(after < Duration::from_secs(3), "{after:?} after the last renewal of a session of four seconds");
}

fn lost(outcome: &Outcome) {
    outcome.code(79).stderr_is_one_line("dlock: lost 'job' at zk://127.0.0.1:");
}

/// A follower answers for itself for as long as it believes in its leader, and its leader has not heard from our
/// session since then, or even since a little earlier: half a tick, which here is a quarter of the session.
#[test]
fn a_follower_that_is_cut_off_is_survived_by_no_command() {
    let lines = vec!["syncLimit=10".to_owned()];
    let options =
        ZooKeeperOptions { tick: 2000, min_session: 4000, cuttable: true, lines, ..ZooKeeperOptions::ensemble() };
    let zookeeper = ZooKeeper::with(options);
    // The test itself looks through the first server that is at work.
    let follower = if zookeeper.leader() == 2 { 1 } else { 2 };
    let holder = hold(&zookeeper, &format!("zk://127.0.0.1:{}", zookeeper.server(follower).port()));
    let confirmed = renewed(&zookeeper, &holder.node, 3);
    zookeeper.cut_off(follower);
    let died = holder.tree.died_at();
    assert_early(died, confirmed);
    // The last look at which it was still there.
    let mut alive = None;
    eventually("the leader to end the session", || {
        let now = boottime();
        let there = zookeeper.get(&holder.node).is_some();
        if there {
            alive = Some(now);
        }
        (!there).then_some(())
    });
    let alive = alive.expect("the session was over before its command was dead");
    assert_in_time(died, alive);
    lost(&holder.running.wait());
    zookeeper.heal(follower);
    drop(holder.scratch);
}

#[test]
fn a_leader_that_is_killed_is_not_noticed() {
    let service = ZooKeeperService::on(ZooKeeper::ensemble());
    let zookeeper = &service.zookeeper;
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "12s"]));
    holder.wait_held();
    let node = format!("{LOCK}/{}", nodes(zookeeper)[0].0);
    let waiter = queue_up_at(&service, &service.url(), &["-t", "12s"]);
    zookeeper.server(zookeeper.leader()).kill();
    renewed(zookeeper, &node, 2);
    assert!(!waiter.has_held());
    holder.let_go().success();
    waiter.wait_held();
    // It may have had something to say of the time without a leader.
    waiter.let_go().code(0).stderr_ends_with_line("waiting for 'job': ");
}

/// The one that it talks to answers nothing; the others do.
#[test]
fn a_server_that_is_frozen_is_left_for_another() {
    let service = ZooKeeperService::on(ZooKeeper::ensemble());
    let zookeeper = &service.zookeeper;
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "12s"]));
    holder.wait_held();
    let (name, made) = nodes(zookeeper)[0].clone();
    let session = format!("{:#x}", made.ephemeral_owner);
    let index = eventually("its server", || {
        zookeeper.servers().iter().position(|server| server.four_letters("cons").contains(&session))
    });
    zookeeper.server(index).stop();
    renewed(zookeeper, &format!("{LOCK}/{name}"), 2);
    zookeeper.server(index).cont();
    holder.let_go().success();
}

#[test]
fn a_majority_that_is_frozen_is_survived_by_no_command() {
    let zookeeper = ZooKeeper::ensemble();
    let holder = hold(&zookeeper, &zookeeper.url());
    let leader = zookeeper.leader();
    let confirmed = renewed(&zookeeper, &holder.node, 3);
    let frozen = [leader, (leader + 1) % 3].map(|index| zookeeper.server(index));
    for server in frozen {
        server.stop();
    }
    assert_early(holder.tree.died_at(), confirmed);
    lost(&holder.running.wait());
    for server in frozen {
        server.cont();
    }
    zookeeper.leader();
    let next = holder.scratch.dlock().run("job").backend(zookeeper.url()).args(["-q", "-t", "8s"]);
    next.command(["true"]).output().success();
}

#[test]
fn servers_that_are_dead_cost_little_and_none_at_all_is_an_error() {
    let zookeeper = ZooKeeper::ensemble();
    let scratch = Scratch::new();
    zookeeper.server(0).kill();
    for _ in 0..4 {
        let outcome = scratch.dlock().run("job").backend(zookeeper.url()).command(["true"]).output();
        outcome.success();
        assert!(outcome.elapsed() < Duration::from_secs(3), "{outcome:?}");
    }
    zookeeper.server(1).kill();
    // The last one serves nobody without a majority.
    let alone = scratch.dlock().run("job").backend(zookeeper.url()).command(["true"]).output();
    alone.code(69).stderr_is_one_line("hung up before it answered; it may be starting, lack a quorum");
    zookeeper.server(2).kill();
    let none = scratch.dlock().run("job").backend(zookeeper.url()).command(["true"]).output();
    none.code(69).stderr_is_one_line("connection refused");
}
