/*!
Users who may not do all that dlock does are told of the rights that they lack, and not of a wrong password. What the
message says to grant is granted here to the letter, and is enough.
*/

use crate::support::dlock::{Dlock, Outcome};
use crate::support::redis_sets::RedisGroup;
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::Gated;

/// What to grant, by the line that tells of missing rights; with `may_use_all`, to a user that may use all keys.
#[track_caller]
fn advice(refused: &Outcome, may_use_all: bool) -> Vec<String> {
    refused.code(77).stdout_is("").stderr_is_one_line("the user worker lacks rights: ");
    let line = refused.stderr();
    assert!(!line.contains("password"), "{line}");
    let (_, advice) = line.split_once("; needed: ").expect("advice");
    // Of several servers, the first. A user that may use all keys already cannot be given some.
    let advice = advice.split_once("; ").map_or(advice, |(first, _)| first);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match advice.split_once(" (and ") {
        Some((commands, rest)) if !may_use_all => {
            [words(commands), words(rest.split_once(',').expect("the patterns").0)].concat()
        }
        Some((commands, _)) => words(commands),
        None => words(advice),
    }
}

/// Runs alone, holds the lock together with another, and hands it over.
fn assert_works(scratch: &Scratch, run: impl Fn() -> Dlock) {
    run().command(["echo", "ran"]).output().success().stdout_is("ran\n");
    for (together, mode) in [(1, &["-x"][..]), (2, &["-s"]), (2, &["--slots", "2"])] {
        let holders: Vec<Gated> =
            (0..together).map(|_| Gated::spawn(scratch, run().args(["-t", "1s"]).args(mode))).collect();
        holders.iter().for_each(Gated::wait_held);
        // Another reader would not have to wait.
        let next: &[&str] = if mode == ["-s"] { &["-x"] } else { mode };
        let waiter = Gated::spawn(scratch, run().args(next));
        waiter.running.wait_stderr("waiting for 'job'");
        for holder in holders {
            holder.let_go().success();
        }
        waiter.wait_held();
        waiter.let_go().code(0).stderr();
    }
}

#[test]
fn that_are_missing_are_told_with_the_patterns_and_commands_that_are_needed() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    for (namespace, db) in [("dlock", 0), ("jobs[1]*", 0), ("", 3)] {
        let run = || {
            let dlock = scratch.dlock().run("job").backend(redis.url_for("worker", "hush", db));
            dlock.args(["--namespace", namespace])
        };
        // No commands; no keys; a script whose last command is missing; no other database.
        for lacking in ["~* -@all", "~other:* +@all", "~* +@all -set", "~* +@all -select -get"] {
            redis.cli(&["FLUSHALL"]);
            let rule = format!("ACL SETUSER worker reset on >hush {lacking}");
            redis.cli(&rule.split(' ').collect::<Vec<_>>());
            let outcome = run().command(["echo", "ran"]).output();
            if outcome.stderr().is_empty() {
                // In database 0 nothing was lacking, and without a namespace every key is allowed.
                assert!(db == 0 && lacking.contains("-select"), "{lacking}");
                continue;
            }
            let words = advice(&outcome, lacking.starts_with("~*"));
            assert_eq!(words[..3], ["ACL", "SETUSER", "worker"]);
            assert_eq!(redis.cli(&words), "OK");
            assert_works(&scratch, run);
        }
    }
}

/// Each line of the documentation is pasted as it is, with a password.
#[test]
fn of_the_documented_users_are_enough() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let docs = include_str!("../../../docs/backends.md");
    let lines: Vec<&str> = docs.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let line = line.replace("PASSWORD", "hush");
        assert_eq!(redis.cli(&line.split(' ').collect::<Vec<_>>()), "OK");
    }
    let run = || scratch.dlock().run("job").backend(redis.url_for("dlock", "hush", 0));
    assert_works(&scratch, run);
    let holder = Gated::spawn(&scratch, run());
    holder.wait_held();
    for user in ["dlock", "viewer"] {
        let look = |words: &[&str]| {
            let url = redis.url_for(user, "hush", 0);
            scratch.dlock().args(words).args(["-b", &url]).output()
        };
        look(&["status", "-k", "job"]).code(75).quiet();
        assert!(look(&["list"]).success().stdout().contains("job"));
    }
    holder.let_go().success();
}

#[test]
fn that_are_enough_are_not_more_than_is_told() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let run = || scratch.dlock().run("job").backend(redis.url_for("worker", "hush", 0));
    redis.cli(&["ACL", "SETUSER", "worker", "reset", "on", ">hush", "-@all"]);
    let words = advice(&run().command(["true"]).output(), false);
    redis.cli(&words);
    for (key, allowed) in [("dlock:job", true), ("{dlock:job}\u{1}fence", true), ("other:job", false)] {
        let checked = redis.cli(&["ACL", "DRYRUN", "worker", "GET", key]);
        assert_eq!(checked == "OK", allowed, "{key}: {checked}");
    }
    for command in [&["FLUSHALL"][..], &["CONFIG", "GET", "*"], &["KEYS", "*"]] {
        let checked = redis.cli(&[&["ACL", "DRYRUN", "worker"], command].concat());
        assert!(checked.contains("no permissions"), "{command:?}: {checked}");
    }
}

#[test]
fn that_are_missing_on_a_majority_are_told_for_each_server() {
    let (scratch, servers) = (Scratch::new(), RedisGroup::start(3));
    let url = servers.url().replace("://", "://worker:hush@");
    let run = || scratch.dlock().run("job").backend(&url);
    for redis in servers.iter() {
        redis.cli(&["ACL", "SETUSER", "worker", "reset", "on", ">hush", "-@all"]);
    }
    let words = advice(&run().command(["echo", "ran"]).output(), false);
    for redis in servers.iter() {
        redis.cli(&words);
    }
    assert_works(&scratch, run);
    eventually("the votes to be given back", || {
        servers.iter().all(|redis| redis.get("dlock:job").is_none()).then_some(())
    });
}
