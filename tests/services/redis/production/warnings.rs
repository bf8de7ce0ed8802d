//! Warnings about settings that lose locks.

use super::*;

/// What a successful run prints on stderr.
fn said(scratch: &Scratch, redis: &Redis, options: &[&str]) -> String {
    let outcome = run(scratch, redis.url()).args(options).command(["true"]).output();
    outcome.code(0);
    outcome.stderr()
}

#[test]
fn a_policy_that_may_evict_locks() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let set = |policy: &str, limit: &str| {
        redis.cli(&["CONFIG", "SET", "maxmemory-policy", policy]);
        redis.cli(&["CONFIG", "SET", "maxmemory", limit]);
    };
    for policy in ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-lfu"] {
        set(policy, "100mb");
        let line = said(&scratch, &redis, &[]);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.starts_with("dlock: 'k' at redis://") && line.contains(policy), "{line}");
        assert!(line.contains("it may evict locks") && line.contains("use noeviction"), "{line}");
        assert_eq!(said(&scratch, &redis, &["-q"]), "");
    }
    for (policy, limit) in [("noeviction", "100mb"), ("allkeys-lru", "0"), ("noeviction", "0")] {
        set(policy, limit);
        assert_eq!(said(&scratch, &redis, &[]), "");
    }
    // Once, however long dlock waits and holds, and in addition to its other messages.
    set("allkeys-lru", "100mb");
    let first = hold(&scratch, run(&scratch, redis.url()).args(["-q", "-t", "1s"]));
    let second = Gated::spawn(&scratch, run(&scratch, redis.url()).args(["-t", "1s"]));
    second.running.wait_stderr("waiting for 'k'");
    first.let_go().success();
    second.wait_held();
    wait_renewed(&redis, 3);
    let outcome = second.let_go();
    outcome.code(0).stderr_ends_with_line("it may evict locks");
    assert_eq!(outcome.stderr().lines().count(), 2, "{outcome:?}");
    // Not when the lock is refused.
    let held = hold(&scratch, run(&scratch, redis.url()).arg("-q"));
    refused(&scratch, run(&scratch, redis.url()).arg("-n"), 75, &["held by"]);
    held.let_go().success();
    // Not for a user who may not read the settings.
    redis.cli(&["ACL", "SETUSER", "worker", "on", ">x", "~*", "&*", "+@all", "-config", "-role"]);
    run(&scratch, redis.url_for("worker", "x", 0)).command(["true"]).output().success();
}

#[test]
fn a_replica_that_takes_writes_and_one_that_takes_none() {
    let (scratch, set) = (Scratch::new(), RedisReplicas::start(1));
    refused(&scratch, run(&scratch, set[1].url()), 69, &["read only replica", "it is a replica: name the master"]);
    set[1].cli(&["CONFIG", "SET", "replica-read-only", "no"]);
    let line = said(&scratch, &set[1], &[]);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("the server is a replica") && line.contains("name the master"), "{line}");
    assert_eq!(said(&scratch, &set[1], &["-q"]), "");
    assert_eq!(said(&scratch, &set[0], &[]), "");
}
