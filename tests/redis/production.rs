/*!
Redis as it is run in production: behind sentinels and with replicas, at a local socket, as valkey; with settings that
lose locks, and in all the states in which it says no.
*/

use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use crate::secrets::{SECRET, assert_silent, encoded};
use crate::support::cluster::Cluster;
use crate::support::dlock::{Dlock, Outcome};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::{MASTER_NAME, RedisReplicas, RedisSentinels, wait_replicated};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::scene::assert_in_time;
use crate::support::scratch::Scratch;
use crate::support::servers::{Client, Port, Redis, Reply};
use crate::support::service::Gated;
use crate::support::tree::Tree;

/// The lock `k` at a server.
const KEY: &str = "dlock:k";

/// `run --key k` there.
fn run(scratch: &Scratch, url: impl AsRef<str>) -> Dlock {
    scratch.dlock().run("k").backend(url.as_ref())
}

/// Somebody who holds the lock.
#[track_caller]
fn hold(scratch: &Scratch, dlock: Dlock) -> Gated {
    let holder = Gated::spawn(scratch, dlock);
    holder.wait_held();
    holder
}

/// Fails with this code and one line with all of `parts`, and its command has not run.
#[track_caller]
fn refused(scratch: &Scratch, dlock: Dlock, code: i32, parts: &[&str]) -> Outcome {
    let outcome = dlock.command(["touch", "ran"]).output();
    outcome.code(code).stdout_is("").stderr_is_one_line("did not get k: ");
    let line = outcome.stderr();
    assert!(parts.iter().all(|part| line.contains(part)), "{line:?} lacks one of {parts:?}");
    assert!(!scratch.path("ran").exists(), "the command has run");
    outcome
}

/// Waits until the lease of the lock at `redis` has been renewed `times` more from now on, whoever renewed it.
#[track_caller]
fn wait_renewed(redis: &Redis, times: usize) {
    let monitor = redis.monitor();
    monitor.wait_until("renewals", |seen| {
        let renewals = seen.iter().filter(|words| words[0] == "EVAL" && words.get(3).is_some_and(|key| key == KEY));
        renewals.count() >= times
    });
    // What was asked last has been done; a server in trouble refuses even this.
    let _ = redis.call(&[b"PING"]);
}

mod other_ways {
    use super::*;

    #[test]
    fn a_local_socket_with_database_and_password() {
        let (scratch, redis) = (Scratch::new(), Redis::with(["--requirepass", SECRET]));
        let path = redis.socket().display().to_string();
        let monitor = redis.monitor();
        let url = format!("redis+unix://:{}@{path}?db=3", encoded(SECRET));
        let outcome = run(&scratch, &url).arg("-v").shell("env").output();
        outcome.code(0).stderr_ends_with_line("released k");
        assert!(outcome.stderr().contains(&format!("acquired k at redis+unix://{path}")), "{outcome:?}");
        assert_silent(&outcome);
        let databases: Vec<u32> =
            monitor.all().into_iter().filter(|seen| seen.words[0] == "EVAL").map(|seen| seen.db).collect();
        assert_eq!(databases, [3, 3]);
        // From the environment, without the password in that of the command.
        let outcome =
            scratch.dlock().run("k").env("DLOCK_BACKEND", &url).shell("printf %s \"$DLOCK_BACKEND\"").output();
        outcome.success().stdout_is(&format!("redis+unix://{path}?db=3"));
        let file = scratch.file("password", SECRET);
        run(&scratch, redis.socket_url()).arg("--password-file").arg(file).command(["true"]).output().success();
        let outcome = refused(&scratch, run(&scratch, redis.socket_url()), 77, &["no password was given"]);
        assert_silent(&outcome);
        // The same lock as by the other way.
        let holder = hold(&scratch, run(&scratch, &url));
        let by_tcp = run(&scratch, redis.url_for("", SECRET, 3)).args(["-n", "-q"]).command(["true"]);
        by_tcp.output().code(75).quiet();
        holder.let_go().success();
    }

    #[test]
    fn a_socket_whose_path_is_odd_and_one_that_is_not_there() {
        let scratch = Scratch::new();
        let directory = scratch.directory("open", 0o777);
        let odd = directory.join("a b@c%d?e,f");
        let _redis = Redis::with(["--unixsocket", odd.to_str().unwrap()]);
        let url = format!("redis+unix://{}/{}", directory.display(), encoded("a b@c%d?e,f"));
        run(&scratch, &url).command(["true"]).output().success();
        let missing = format!("redis+unix://{}", scratch.path("missing").display());
        refused(&scratch, run(&scratch, &missing), 69, &["could not reach", "/missing", "is it running there?"]);
        let file = scratch.file("file", "");
        refused(&scratch, run(&scratch, format!("redis+unix://{}", file.display())), 69, &["could not reach"]);
    }

    #[test]
    fn valkey_is_redis_by_another_name() {
        let (scratch, redis) = (Scratch::new(), Redis::start());
        let url = format!("valkey://127.0.0.1:{}", redis.port());
        let outcome = run(&scratch, &url).arg("-v").shell("echo $DLOCK_BACKEND_KIND").output();
        outcome.code(0).stdout_is("redis\n").stderr_ends_with_line("released k");
        assert!(outcome.stderr().contains(&format!("acquired k at {url}, token ")), "{outcome:?}");
        let holder = hold(&scratch, run(&scratch, &url));
        run(&scratch, redis.url()).args(["-n", "-q"]).command(["true"]).output().code(75).quiet();
        holder.let_go().success();
    }
}

mod sentinel {
    use super::*;

    #[test]
    fn a_failover_shorter_than_the_lease_is_not_noticed_by_holder_and_waiter() {
        let (scratch, set) = (Scratch::new(), RedisSentinels::start());
        let other_spelling = set.url().replace("redis+sentinel", "redis-sentinel");
        let holder = hold(&scratch, run(&scratch, set.url()).args(["-t", "12s"]));
        let waiter = Gated::spawn(&scratch, run(&scratch, &other_spelling).args(["-q", "-t", "12s"]));
        let master = set.master();
        eventually("the waiter to be in the queue", || (master.queued("k") == 1).then_some(()));
        wait_replicated(master, 2);
        let value = master.get(KEY).unwrap();
        // Worse than a killed one: who is connected to it has to give it up by himself.
        master.stop();
        let next = set.wait_failover(master);
        assert_eq!(next.get(KEY).as_deref(), Some(value.as_str()), "the same holder, with the same token");
        wait_renewed(next, 1);
        assert!(holder.running.is_running() && !waiter.has_held());
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
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
            .args(["-t", "12s", "--kill-after", "0.3"])
            .shell(tree.work())
            .lifeline(tree.end())
            .spawn();
        tree.wait_grown();
        old.kill();
        let killed = boottime();
        let new = set.wait_failover(old);
        let outcome = holder.wait();
        outcome.code(79).stderr_is_one_line("its key is gone from the server; stopping");
        assert!(outcome.stderr().starts_with("dlock: lost k at redis+sentinel://127.0.0.1:"), "{outcome:?}");
        assert_in_time(tree.died_at(), monitor.expiry(KEY, killed));
        assert!(new.get(KEY).is_none(), "what was lost is not made again");
    }

    /// Those who look after the servers are shut out of the old master, and dlock is not.
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
        let holder = run(&scratch, &url)
            .args(["-t", "6s", "--kill-after", "0.3"])
            .shell(tree.work())
            .lifeline(tree.end())
            .spawn();
        tree.wait_grown();
        old.cli(&["ACL", "SETUSER", "default", "off"]);
        for line in old.clients().iter().filter(|line| line.contains(" name=sentinel-")) {
            let id = line.split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
            old.cli(&["CLIENT", "KILL", "ID", id]);
        }
        let new = set.wait_failover(old);
        let outcome = holder.wait();
        outcome.code(79).stderr_is_one_line("lost k at redis+sentinel://worker@127.0.0.1:");
        assert_silent(&outcome);
        assert!(new.get(KEY).is_none());
        // It was no end of the server that ended it.
        let renewals = monitor.wait_until("renewals", |seen| !seen.is_empty());
        assert!(renewals.iter().filter(|words| words[0] == "EVAL").count() >= 2, "{renewals:?}");
        tree.died_at();
    }

    #[test]
    fn one_sentinel_that_is_gone_or_frozen_does_not_matter() {
        let (scratch, set) = (Scratch::new(), RedisSentinels::start());
        let master = set.master();
        for sentinel in set.sentinels() {
            let holder = hold(&scratch, run(&scratch, set.url()).args(["-t", "1s"]));
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
        holder.wait().code(79).stderr_is_one_line("lost k at redis+sentinel://127.0.0.1:");
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
            outcome.code(0).stderr_ends_with_line("released k");
            assert_silent(&outcome);
            let wrong =
                refused(&scratch, run(&scratch, with("", &format!("{SECRET}x"))), 77, &["refused the credentials"]);
            assert_silent(&wrong);
            refused(&scratch, run(&scratch, set.url()), 77, &["no password was given", place]);
        };
        check("redis+sentinel://");
        set.sentinels().iter().for_each(give);
        check("sentinel://");
    }
}

mod replicas {
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
        let wanting = |number: &str| run(&scratch, set.url()).args(["-t", "2s", "--replicas", number]);
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
            let dlock = run(&scratch, set.url()).args(["-t", "2s", "--replicas", number]);
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
        assert!(outcome.stderr().starts_with("dlock: lost k at redis://"), "{outcome:?}");
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
}

mod tokens {
    use super::*;

    /// As after a step of its clock, or a failover to a server that is behind.
    #[test]
    fn rise_also_when_the_servers_clock_is_behind_the_last_one() {
        const FENCE: &str = "{dlock:k}\u{1}fence";
        // Far above what the clock says, and below 2^53.
        const HIGH: u64 = 5_000_000_000_000_000;
        let (redis, scratch) = (Redis::start(), Scratch::new());
        redis.cli(&["SET", FENCE, &HIGH.to_string()]);
        for token in [HIGH + 1, HIGH + 2] {
            let outcome = run(&scratch, redis.url()).shell("echo $DLOCK_TOKEN").output();
            outcome.success().stdout_is(&format!("{token}\n"));
        }
    }
}

mod warnings {
    use super::*;

    /// What a run says, beside nothing.
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
            assert!(line.starts_with("dlock: k at redis://") && line.contains(policy), "{line}");
            assert!(line.contains("it may evict locks") && line.contains("use noeviction"), "{line}");
            assert_eq!(said(&scratch, &redis, &["-q"]), "");
        }
        for (policy, limit) in [("noeviction", "100mb"), ("allkeys-lru", "0"), ("noeviction", "0")] {
            set(policy, limit);
            assert_eq!(said(&scratch, &redis, &[]), "");
        }
        // Once, however long it waits and holds, and on top of what else is said.
        set("allkeys-lru", "100mb");
        let first = hold(&scratch, run(&scratch, redis.url()).args(["-q", "-t", "1s"]));
        let second = Gated::spawn(&scratch, run(&scratch, redis.url()).args(["-t", "1s"]));
        second.running.wait_stderr("waiting for k");
        first.let_go().success();
        second.wait_held();
        wait_renewed(&redis, 3);
        let outcome = second.let_go();
        outcome.code(0).stderr_ends_with_line("it may evict locks");
        assert_eq!(outcome.stderr().lines().count(), 2, "{outcome:?}");
        // A refusal is about something else.
        let held = hold(&scratch, run(&scratch, redis.url()).arg("-q"));
        refused(&scratch, run(&scratch, redis.url()).arg("-n"), 75, &["held by"]);
        held.let_go().success();
        // Who may not ask is not warned.
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
}

mod refusals {
    use super::*;

    /// A proxy in front of `redis`, to count who connects.
    fn counted(redis: &Redis) -> (Proxy, String) {
        let proxy = Proxy::to(redis.port());
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        (proxy, url)
    }

    /// `redis` says no with `code`, which is told at once, explained by `hint`, and no reason to ask again and again.
    #[track_caller]
    fn is_explained(scratch: &Scratch, redis: &Redis, code: &str, hint: &str) {
        let (proxy, url) = counted(redis);
        let outcome = refused(scratch, run(scratch, &url), 69, &[code, hint]);
        assert!(outcome.elapsed() < Duration::from_secs(5), "{outcome:?}");
        // Once, and at most two tries to take back what may have been done.
        let tries = proxy.counts().accepted;
        assert!(tries <= 3, "{tries} connections: {outcome:?}");
    }

    /// Somebody holds the lock while `redis` says no for a while, and notices nothing.
    #[track_caller]
    fn is_ridden_out(scratch: &Scratch, redis: &Redis, begin: impl FnOnce(), end: impl FnOnce()) {
        let holder = hold(scratch, run(scratch, redis.url()).args(["-t", "2s", "--kill-after", "0.1"]));
        begin();
        // One, and at once another.
        wait_renewed(redis, 2);
        end();
        wait_renewed(redis, 1);
        holder.let_go().success();
        assert!(redis.get(KEY).is_none());
    }

    /// Somebody holds the lock while `redis` begins to say no for good.
    #[track_caller]
    fn ends_the_hold(scratch: &Scratch, redis: &Redis, code: &str, begin: impl FnOnce()) {
        let mut tree = Tree::new(scratch);
        let monitor = redis.monitor();
        let holder = run(scratch, redis.url()).args(["-t", "1s"]).shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        monitor.wait_renewed(KEY);
        begin();
        let told = boottime();
        assert_in_time(tree.died_at(), monitor.expiry(KEY, told));
        let outcome = holder.wait();
        outcome.code(79);
        // The lock cannot be given back either.
        let stderr = outcome.stderr();
        assert!(stderr.starts_with("dlock: lost k at redis://") && stderr.contains(code), "{stderr}");
        let tries = monitor.client_commands().iter().filter(|words| words[0] == "EVAL").count();
        assert!(tries <= 30, "{tries} requests within a lease");
    }

    #[test]
    fn readonly() {
        let (scratch, redis, nobody) = (Scratch::new(), Redis::start(), Port::reserve());
        let demote = || drop(redis.cli(&["REPLICAOF", "127.0.0.1", &nobody.number().to_string()]));
        let promote = || drop(redis.cli(&["REPLICAOF", "NO", "ONE"]));
        is_ridden_out(&scratch, &redis, demote, promote);
        ends_the_hold(&scratch, &redis, "read only replica", demote);
        is_explained(&scratch, &redis, "read only replica", "name the master");
    }

    #[test]
    fn misconf() {
        let (scratch, redis) = (Scratch::new(), Redis::with(["--save", "3600 1"]));
        let directory = redis.socket().parent().unwrap().to_owned();
        let mode = |mode| std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
        let save = |status: &str| {
            eventually("the end of a save", || {
                let _ = redis.call(&[b"BGSAVE"]);
                redis.cli(&["INFO", "persistence"]).contains(&format!("rdb_last_bgsave_status:{status}")).then_some(())
            });
        };
        let fail = || {
            mode(0o555);
            save("err");
        };
        let mend = || {
            mode(0o755);
            save("ok");
        };
        is_ridden_out(&scratch, &redis, fail, mend);
        ends_the_hold(&scratch, &redis, "unable to persist to disk", fail);
        is_explained(&scratch, &redis, "unable to persist to disk", "it cannot save its data");
        mend();
    }

    #[test]
    fn oom() {
        let (scratch, redis) = (Scratch::new(), Redis::with(["--maxmemory-policy", "noeviction"]));
        let limit = |limit: &str| drop(redis.cli(&["CONFIG", "SET", "maxmemory", limit]));
        // What is held can be kept and given back without memory.
        is_ridden_out(&scratch, &redis, || limit("1"), || ());
        is_explained(&scratch, &redis, "OOM", "see its maxmemory");
        limit("0");
        run(&scratch, redis.url()).command(["true"]).output().success();
    }

    #[test]
    fn loading() {
        let (scratch, redis) = (
            Scratch::new(),
            Redis::with([
                "--rdbcompression",
                "no",
                "--key-load-delay",
                "100000",
                "--loading-process-events-interval-bytes",
                "1024",
            ]),
        );
        let (proxy, url) = counted(&redis);
        let value = "x".repeat(2000);
        for number in 0..200 {
            redis.cli(&["SET", &format!("filler {number}"), &value]);
        }
        let holder = hold(&scratch, run(&scratch, &url).args(["-t", "6s", "--kill-after", "0.2"]));
        redis.cli(&["SAVE"]);
        redis.kill();
        thread::scope(|scope| {
            // It returns when the data is there.
            let loading = scope.spawn(|| redis.restart());
            eventually("the server to load", || {
                let mut client = Client::connect(redis.port()).ok()?;
                matches!(client.call(&[b"PING"]), Ok(Reply::Error(error)) if error.starts_with("LOADING")).then_some(())
            });
            let before = proxy.counts();
            refused(&scratch, run(&scratch, &url), 69, &["loading the dataset", "it is still loading its data"]);
            // The holder asks again and again meanwhile.
            eventually("the holder to hear it", || (proxy.counts().replies > before.replies + 300).then_some(()));
            assert!(!loading.is_finished());
            let mut client = Client::connect(redis.port()).unwrap();
            assert_eq!(client.call(&[b"CONFIG", b"SET", b"key-load-delay", b"0"]).unwrap().text(), "OK");
            loading.join().unwrap();
        });
        wait_renewed(&redis, 1);
        holder.let_go().success();
    }

    #[test]
    fn a_cluster() {
        let scratch = Scratch::new();
        let ports = [Port::reserve(), Port::reserve()];
        let [one, other] = ports.each_ref().map(|bus| {
            let bus = bus.number().to_string();
            Redis::with(["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "2000"])
        });
        is_explained(&scratch, &one, "ClusterDown", "its cluster is not complete");
        let meet = [other.port().to_string(), ports[1].number().to_string()];
        one.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
        other.cli(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
        one.cli(&["CLUSTER", "MEET", "127.0.0.1", &meet[0], &meet[1]]);
        for redis in [&one, &other] {
            eventually("the cluster", || redis.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(()));
        }
        let slot: u32 = one.cli(&["CLUSTER", "KEYSLOT", KEY]).parse().unwrap();
        let (here, elsewhere) = if slot < 8192 { (&one, &other) } else { (&other, &one) };
        is_explained(&scratch, elsewhere, "Moved", "it is one of a cluster's servers: name one that stands alone");
        assert!(here.get(KEY).is_none());
    }

    #[test]
    fn forgotten_scripts_and_closed_connections_are_not_noticed() {
        let (scratch, redis) = (Scratch::new(), Redis::start());
        let (proxy, url) = counted(&redis);
        let holder = hold(&scratch, run(&scratch, &url).args(["-t", "2s"]));
        let waiter = Gated::spawn(&scratch, run(&scratch, &url).args(["-q", "-t", "2s"]));
        eventually("the waiter to be in the queue", || (redis.queued("k") == 1).then_some(()));
        for _ in 0..3 {
            redis.cli(&["SCRIPT", "FLUSH"]);
            redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
            wait_renewed(&redis, 2);
        }
        assert!(!waiter.has_held() && redis.queued("k") == 1);
        holder.let_go().success();
        waiter.wait_held();
        redis.cli(&["SCRIPT", "FLUSH"]);
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        waiter.let_go().success();
        assert!(redis.get(KEY).is_none());
        let connections = proxy.counts().accepted;
        assert!(connections <= 20, "{connections} connections for four that were closed, of each");
    }

    #[test]
    fn a_server_that_hangs_up_on_everybody_is_not_stormed() {
        let (scratch, redis) = (Scratch::new(), Redis::start());
        let (proxy, url) = counted(&redis);
        let holder = hold(&scratch, run(&scratch, &url).args(["-t", "1s"]));
        let waiter = Gated::spawn(&scratch, run(&scratch, &url).args(["-q", "-w", "3"]));
        eventually("the waiter to be in the queue", || (redis.queued("k") == 1).then_some(()));
        let before = proxy.counts().accepted;
        proxy.set(Mode::Reset);
        holder.running.wait().code(79).stderr_ends_with_line("lost k at redis://");
        waiter.running.wait().code(75).quiet();
        // Every twentieth of the lease, and every half second of the wait.
        let tries = proxy.counts().accepted - before;
        assert!(tries <= 45, "{tries} connections");
    }
}
