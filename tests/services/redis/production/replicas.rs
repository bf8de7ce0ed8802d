//! A master whose replicas must have every lock.

use super::*;

#[test]
fn replicas_that_confirm_change_nothing() {
    let (scratch, set) = (Scratch::new(), RedisReplicas::start(2));
    let monitor = set[0].monitor();
    for number in ["0", "1", "2"] {
        run(&scratch, set.url()).args(["--replicas", number]).command(["true"]).output().success();
    }
    let asked: Vec<String> = monitor
        .client_commands()
        .into_iter()
        .filter(|words| words[0] == "WAIT")
        .map(|mut words| words.remove(1))
        .collect();
    assert_eq!(asked, ["1", "2"]);
}

#[test]
fn a_grant_that_is_not_confirmed_is_none() {
    let (scratch, set) = (Scratch::new(), RedisReplicas::start(2));
    let wanting = |number: &str| run(&scratch, set.url()).args(["-t", "4s", "--replicas", number]);
    refused(&scratch, wanting("3"), 69, &["2 of the 3 replicas that --replicas wants confirmed"]);
    set[1].stop();
    refused(&scratch, wanting("2"), 69, &["1 of the 2 replicas", "are they connected?"]);
    assert!(set[0].get(KEY).is_none(), "what does not count is given back");
    wanting("1").command(["true"]).output().success();
    set[1].cont();
    wait_replicated(&set[0], 2);
    set.cut_replication(&set[2]);
    refused(&scratch, wanting("2"), 69, &["1 of the 2 replicas"]);
    assert!(set[0].get(KEY).is_none());
    wanting("1").command(["true"]).output().success();
}

#[test]
fn a_renewal_that_is_not_confirmed_does_not_count() {
    let (scratch, set) = (Scratch::new(), RedisReplicas::start(2));
    let start = |number: &str, tree: &mut Tree| {
        let dlock = run(&scratch, set.url()).args(["-t", "4s", "--replicas", number]);
        let running = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        running
    };
    let mut tree = Tree::new(&scratch);
    let monitor = set[0].monitor();
    let holder = start("2", &mut tree);
    monitor.wait_renewed(KEY);
    set[2].stop();
    let expiry = monitor.expiry(KEY, boottime());
    assert_in_time(tree.died_at(), expiry);
    let outcome = holder.wait();
    outcome.code(79).stderr_is_one_line("1 of the 2 replicas that --replicas wants confirmed");
    assert!(outcome.stderr().starts_with("dlock: lost 'k' at redis://"), "{outcome:?}");
    let tries = monitor.client_commands().iter().filter(|words| words[0] == "WAIT").count();
    assert!(tries <= 30, "{tries} within a lease and a renewal");
}

#[test]
fn replicas_that_come_back_in_time_are_not_missed() {
    let (scratch, set) = (Scratch::new(), RedisReplicas::start(1));
    let dlock = run(&scratch, set.url()).args(["-t", "4s", "--kill-after", "0.2", "--replicas", "1"]);
    let monitor = set[0].monitor();
    let holder = hold(&scratch, dlock);
    set[1].stop();
    let waits = |count| {
        monitor.wait_until("renewals that are not confirmed", |seen| {
            seen.iter().filter(|words| words[0] == "WAIT").count() >= count
        })
    };
    // The grant's, and two that came to nothing.
    waits(3);
    set[1].cont();
    wait_replicated(&set[0], 1);
    let now = monitor.client_commands().iter().filter(|words| words[0] == "WAIT").count();
    waits(now + 1);
    holder.let_go().success();
}
