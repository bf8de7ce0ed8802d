//! Every state in which redis refuses requests.

use super::*;

/// A proxy in front of `redis` that counts connections.
fn counted(redis: &Redis) -> (Proxy, String) {
    let proxy = Proxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    (proxy, url)
}

/// Asserts that a refusal of `redis` with `code` is reported at once, explained by `hint`, and not retried again and
/// again.
#[track_caller]
fn is_explained(scratch: &Scratch, redis: &Redis, code: &str, hint: &str) {
    let (proxy, url) = counted(redis);
    let outcome = refused(scratch, run(scratch, &url), 69, &[code, hint]);
    assert!(outcome.elapsed() < Duration::from_secs(5), "{outcome:?}");
    // One attempt, and at most two tries to take back what may have been done.
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

/// Asserts that a holder's command ends in time when `redis` begins to refuse everything.
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
    // The lock cannot be released either.
    let stderr = outcome.stderr();
    assert!(stderr.starts_with("dlock: lost 'k' at redis://") && stderr.contains(code), "{stderr}");
    let tries = monitor.scripts().len();
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
    // Renewals and releases need no memory.
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
        // Returns when the data is loaded.
        let loading = scope.spawn(|| redis.restart());
        eventually("the server to load", || {
            let mut client = Client::connect(redis.port()).ok()?;
            matches!(client.call(&[b"PING"]), Ok(Reply::Error(error)) if error.starts_with("LOADING")).then_some(())
        });
        let before = proxy.counts();
        refused(&scratch, run(&scratch, &url), 69, &["loading the dataset", "it is still loading its data"]);
        // The holder retries meanwhile.
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
    is_explained(&scratch, &one, "CLUSTERDOWN", "its cluster is not complete");
    let meet = [other.port().to_string(), ports[1].number().to_string()];
    one.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    other.cli(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    one.cli(&["CLUSTER", "MEET", "127.0.0.1", &meet[0], &meet[1]]);
    for redis in [&one, &other] {
        eventually("the cluster", || redis.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(()));
    }
    let slot: u32 = one.cli(&["CLUSTER", "KEYSLOT", KEY]).parse().unwrap();
    let (here, elsewhere) = if slot < 8192 { (&one, &other) } else { (&other, &one) };
    is_explained(&scratch, elsewhere, "MOVED", "it is one of a cluster's servers: name one that stands alone");
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
    holder.running.wait().code(79).stderr_ends_with_line("lost 'k' at redis://");
    waiter.running.wait().code(69).stderr_is_one_line("did not get 'k' within 3s: ");
    // Every twentieth of the lease, and every half second of the wait.
    let tries = proxy.counts().accepted - before;
    assert!(tries <= 45, "{tries} connections");
}
