//! A master and its replicas under sentinels.

use super::*;

#[test]
fn a_failover_shorter_than_the_lease_is_not_noticed_by_holder_and_waiter() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let other_spelling = set.url().replace("redis+sentinel", "redis-sentinel");
    let holder = hold(&scratch, run(&scratch, set.url()).args(["-t", "12s"]));
    let waiter = Gated::spawn(&scratch, run(&scratch, &other_spelling).args(["-t", "12s"]));
    let master = set.master();
    // It is in the queue before it knows: the sentinels have to agree first.
    waiter.running.wait_stderr("waiting for 'k'");
    wait_replicated(master, 2);
    let value = master.get(KEY).unwrap();
    // Worse than killing it: clients have to give up their connections themselves.
    master.stop();
    let next = set.wait_failover(master);
    assert_eq!(next.get(KEY).as_deref(), Some(value.as_str()), "the same holder, with the same token");
    wait_renewed(next, 1);
    assert!(holder.running.is_running() && !waiter.has_held());
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().code(0).stderr_is_one_line("waiting for 'k'");
    assert!(next.get(KEY).is_none());
}

#[test]
fn a_lock_that_the_new_master_never_heard_of_is_lost() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let old = set.master();
    for replica in set.replicas() {
        set.servers.cut_replication(replica);
    }
    let mut tree = Tree::new(&scratch);
    let monitor = old.monitor();
    let holder = run(&scratch, set.url())
        .args(["-t", "20s", "--kill-after", "0.3"])
        .shell(tree.work())
        .lifeline(tree.end())
        .spawn();
    tree.wait_grown();
    old.kill();
    let killed = boottime();
    let new = set.wait_failover(old);
    let outcome = holder.wait();
    outcome.code(79).stderr_is_one_line("its key is gone from the server; stopping");
    assert!(outcome.stderr().starts_with("dlock: lost 'k' at redis+sentinel://127.0.0.1:"), "{outcome:?}");
    assert_in_time(tree.died_at(), monitor.expiry(KEY, killed));
    assert!(new.get(KEY).is_none(), "what was lost is not made again");
}

/// The sentinels are shut out of the old master, and dlock is not.
#[test]
fn renewals_at_a_master_that_is_one_no_more_do_not_count() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let old = set.master();
    for server in &*set.servers {
        server.cli(&["ACL", "SETUSER", "worker", "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
    }
    for replica in set.replicas() {
        set.servers.cut_replication(replica);
    }
    let url = set.url().replace("://", &format!("://worker:{}@", encoded(SECRET)));
    let mut tree = Tree::new(&scratch);
    let monitor = old.monitor();
    let holder =
        run(&scratch, &url).args(["-t", "6s", "--kill-after", "0.3"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    old.cli(&["ACL", "SETUSER", "default", "off"]);
    for line in old.clients().iter().filter(|line| line.contains(" name=sentinel-")) {
        let id = line.split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
        old.cli(&["CLIENT", "KILL", "ID", id]);
    }
    let new = set.wait_failover(old);
    let outcome = holder.wait();
    outcome.code(79).stderr_is_one_line("lost 'k' at redis+sentinel://worker@127.0.0.1:");
    assert_silent(&outcome);
    assert!(new.get(KEY).is_none());
    // The old master served renewals until the end.
    let renewals = monitor.wait_until("renewals", |seen| !seen.is_empty());
    assert!(renewals.iter().filter(|words| runs_script(words)).count() >= 2, "{renewals:?}");
    tree.died_at();
}

#[test]
fn one_sentinel_that_is_gone_or_frozen_does_not_matter() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let master = set.master();
    for sentinel in set.sentinels() {
        let holder = hold(&scratch, run(&scratch, set.url()).args(["-t", "2s"]));
        sentinel.stop();
        wait_renewed(master, 2);
        holder.let_go().success();
        run(&scratch, set.url()).command(["true"]).output().success();
        sentinel.kill();
        run(&scratch, set.url()).command(["true"]).output().success();
        sentinel.launch();
    }
}

#[test]
fn a_name_that_no_sentinel_knows_is_refused_with_a_hint() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let url = set.url().replace(MASTER_NAME, "nobody");
    refused(&scratch, run(&scratch, url), 69, &["is the name after the sentinels' hosts right?", "nobody"]);
}

#[test]
fn without_a_majority_of_the_sentinels_nothing_is_locked_and_nothing_is_kept() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let master = set.master();
    let mut tree = Tree::new(&scratch);
    let monitor = master.monitor();
    let holder = run(&scratch, set.url()).args(["-t", "2s"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    monitor.wait_renewed(KEY);
    // Now the next renewal is two thirds of a second away.
    let confirmed = monitor.expiry(KEY, boottime());
    let [first, second, third] = set.sentinels() else { panic!("three sentinels") };
    first.stop();
    second.stop();
    assert_in_time(tree.died_at(), confirmed);
    holder.wait().code(79).stderr_is_one_line("lost 'k' at redis+sentinel://127.0.0.1:");
    let silent = || run(&scratch, set.url()).args(["--connect-timeout", "0.5"]);
    refused(&scratch, silent(), 69, &["did not answer within 500ms"]);
    for sentinel in [first, second, third] {
        sentinel.kill();
    }
    refused(&scratch, silent(), 69, &["too few sentinels of mymaster can be asked", "refused"]);
    assert_eq!(master.keys().iter().filter(|key| *key == KEY).count(), 0);
}

#[test]
fn passwords_of_the_servers_and_of_the_sentinels() {
    let (scratch, set) = (Scratch::new(), RedisSentinels::start());
    let with = |user: &str, password: &str| set.url().replace("://", &format!("://{user}:{}@", encoded(password)));
    let give = |redis: &Redis| {
        redis.cli(&["ACL", "SETUSER", "default", "resetpass", &format!(">{SECRET}")]);
    };
    // The sentinels themselves have to get in.
    for sentinel in set.sentinels() {
        sentinel.cli(&["SENTINEL", "SET", MASTER_NAME, "auth-pass", SECRET]);
    }
    set.servers.iter().for_each(give);
    let check = |place: &str| {
        let outcome = run(&scratch, with("", SECRET)).arg("-v").shell("env").output();
        outcome.code(0).stderr_ends_with_line("released 'k'");
        assert_silent(&outcome);
        let wrong = refused(&scratch, run(&scratch, with("", &format!("{SECRET}x"))), 77, &["refused the credentials"]);
        assert_silent(&wrong);
        refused(&scratch, run(&scratch, set.url()), 77, &["no password was given", place]);
    };
    check("redis+sentinel://");
    set.sentinels().iter().for_each(give);
    check("sentinel://");
}
