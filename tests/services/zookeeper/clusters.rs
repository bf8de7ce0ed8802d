//! A URL whose servers belong to different ensembles: two holders would each have a lock of their own.

use super::*;

/// What a run at `hosts` came to.
fn run(hosts: &[String], options: &[&str]) -> Outcome {
    let scratch = Scratch::new();
    let dlock = scratch.dlock().run("job").backend(format!("zk://{}", hosts.join(","))).args(options);
    dlock.command(["echo", "ran"]).output()
}

/// Where one server is.
fn host(zookeeper: &ZooKeeper, index: usize) -> String {
    format!("127.0.0.1:{}", zookeeper.server(index).port())
}

/// Refused, where both servers answer soon: those that have just started are slow at what they do for the first time.
#[track_caller]
fn assert_refused(hosts: &[String; 2]) {
    for host in hosts {
        run(std::slice::from_ref(host), &[]).success();
    }
    for options in [&[][..], &["-n"], &["-w", "60"], &[]] {
        let outcome = run(hosts, options);
        outcome.code(69).stdout_is("").stderr_is_one_line("belong to different clusters");
        let line = outcome.stderr();
        assert!(hosts.iter().all(|host| line.contains(host)), "{line}");
    }
}

#[test]
fn servers_of_two_ensembles_are_refused_whichever_is_asked_first() {
    let (one, other) = (ZooKeeper::start(), ZooKeeper::start());
    assert_refused(&[host(&one, 0), host(&other, 0)]);
    for zookeeper in [&one, &other] {
        assert!(zookeeper.tree().is_empty(), "something was made there");
        eventually("the sessions to be closed", || zookeeper.sessions().is_empty().then_some(()));
    }
    // Two names of one server are one server.
    let port = one.server(0).port();
    run(&[host(&one, 0), format!("localhost:{port}")], &[]).success();
    // One that cannot be asked says nothing against the other.
    let hosts = [host(&one, 0), host(&other, 0)];
    other.kill();
    run(&hosts, &[]).success();
}

#[test]
fn an_ensemble_and_a_server_outside_it_are_refused() {
    let (three, alone) = (ZooKeeper::ensemble(), ZooKeeper::start());
    assert_refused(&[host(&three, 1), host(&alone, 0)]);
    let others = ZooKeeper::ensemble();
    assert_refused(&[host(&three, 1), host(&others, 2)]);
    for _ in 0..3 {
        run(&[host(&three, 0), host(&three, 1), host(&three, 2)], &[]).success();
    }
}
