//! Each option's variable, proved by what it does. The name of a test says whose: `nonblock_and_wait` is about those of
//! `--nonblock` and `--wait`.

mod connection;

use super::*;

/// A `run` whose backend is to come from elsewhere.
fn run(scratch: &Scratch) -> Dlock {
    scratch.dlock().run("k")
}

#[test]
fn backend() {
    let scratch = Scratch::new();
    run(&scratch).env("DLOCK_BACKEND", scratch.file_url()).command(["true"]).output().success();
    assert_eq!(names(&scratch.lock_dir()), BTreeSet::from(["k.lock".into()]));
    // A flag beats it.
    let other = scratch.directory("other", 0o700);
    let flag = run(&scratch).env("DLOCK_BACKEND", "redis://127.0.0.1:1");
    flag.backend(format!("file://{}", other.display())).command(["true"]).output().success();
    assert_eq!(names(&other), BTreeSet::from(["k.lock".into()]));
}

#[test]
fn require_backend() {
    let scratch = Scratch::new();
    let refused = "no backend was chosen: name one with --backend or DLOCK_BACKEND";
    for run in [
        run(&scratch).env("DLOCK_REQUIRE_BACKEND", "1"),
        run(&scratch).arg("--require-backend"),
        // An empty variable chooses nothing, and -q hides nothing of it.
        run(&scratch).arg("--require-backend").env("DLOCK_BACKEND", "").arg("-q"),
    ] {
        run.command(["touch", "ran"]).output().code(64).stderr_is_one_line(refused);
    }
    assert!(!scratch.path("ran").exists());
    let misspelt = run(&scratch)
        .arg("--require-backend")
        .env("DLOCK_BAKEND", "redis://h")
        .env("DLOCK_FOO", "1")
        .command(["true"])
        .output();
    misspelt.code(64).stderr_is_one_line("; DLOCK_BAKEND is set: did you mean DLOCK_BACKEND?");
    run_file(&scratch).env("DLOCK_REQUIRE_BACKEND", "1").command(["true"]).output().success();
    let variable = run(&scratch).arg("--require-backend").env("DLOCK_BACKEND", scratch.file_url());
    variable.command(["true"]).output().success();
    // One that says no.
    for no in ["0", "off", ""] {
        run_file(&scratch).env("DLOCK_REQUIRE_BACKEND", no).command(["true"]).output().success();
    }
}

#[test]
fn handle() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    let acquire = scratch.dlock().args(["acquire", "-k", "k", "--ttl", "30s"]).backend(redis.url()).output();
    acquire.success();
    let run = || scratch.dlock().arg("run").env("DLOCK_HANDLE", acquire.stdout().trim_end());
    run().shell("echo $DLOCK_KEY").output().success().stdout_is("k\n");
    // A key is another lock, and a flag beats it.
    let other = run().args(["-k", "other"]).backend(redis.url()).shell("echo $DLOCK_KEY");
    other.output().success().stdout_is("other\n");
    run().args(["--handle", "nonsense"]).shell("echo $DLOCK_KEY").output().code(64).stderr_is_one_line("--handle: ");
    run().env("DLOCK_HANDLE", "nonsense").command(["true"]).output().code(64).stderr_is_one_line("DLOCK_HANDLE: ");
}

/// It is what a lock is by default, and accepted for those who know flock.
#[test]
fn exclusive() {
    let scratch = Scratch::new();
    let _held = hold(&scratch);
    for flags in [&["-x"][..], &["-e"], &["--exclusive"]] {
        let refused = run_file(&scratch).args(flags).args(["--nb"]).command(["true"]).output();
        refused.code(75).stderr_is_one_line("did not get 'k': held by");
        let other = scratch.dlock().run("other").backend(scratch.file_url()).args(flags).args(["--timeout", "1"]);
        other.command(["true"]).output().success();
    }
    let variable = scratch.dlock().run("other").backend(scratch.file_url()).env("DLOCK_EXCLUSIVE", "1");
    variable.command(["true"]).output().success();
}

/// How many hold the lock, by the last flag or the variables; of those that exclude each other none is chosen.
#[test]
fn shared_and_slots() {
    let scratch = Scratch::new();
    let run = |flags: &[&str]| run_file(&scratch).args(flags).arg("-n").shell("printf %s \"${DLOCK_SLOT-none}\"");
    let refused = |run: Dlock| {
        run.output().code(75).stdout_is("").stderr_is_one_line("did not get 'k': held by");
    };
    let wrong = |run: Dlock, what: &str| {
        run.output().code(64).stdout_is("").stderr_is_one_line(what);
    };
    // As `flock -s` would.
    let reader = File::create(scratch.lock_dir().join("k.lock")).unwrap();
    reader.lock_shared().unwrap();
    for flags in [&["-s"][..], &["--shared"], &["-x", "-s"]] {
        run(flags).output().success().stdout_is("none");
    }
    run(&[]).env("DLOCK_SHARED", "1").output().success().stdout_is("none");
    // One that says no.
    for no in ["0", "no", ""] {
        refused(run(&[]).env("DLOCK_SHARED", no));
    }
    // A flag beats the environment also across the options.
    refused(run(&["-x"]).env("DLOCK_SHARED", "1"));
    refused(run(&["-s", "-x"]));
    run(&["-s"]).env("DLOCK_SLOTS", "3").env("DLOCK_EXCLUSIVE", "1").output().success().stdout_is("none");
    drop(reader);
    let gate = Gate::new(scratch.path("gate"));
    let holder =
        run_file(&scratch).env("DLOCK_SLOTS", "2").shell(format!("echo held $DLOCK_SLOT; {}", gate.wait())).spawn();
    holder.wait_stdout("held 0");
    run(&["--slots", "2"]).output().success().stdout_is("1");
    run(&["--slots", "2"]).env("DLOCK_SLOTS", "3").env("DLOCK_SHARED", "1").output().success().stdout_is("1");
    run(&[]).env("DLOCK_SLOTS", "2").output().success().stdout_is("1");
    wrong(run(&[]).env("DLOCK_SLOTS", "3"), "in use with --slots 2");
    gate.open();
    holder.wait().success();
    // A variable that was inherited says nothing of this run.
    run(&[]).env("DLOCK_SLOT", "7").output().success().stdout_is("none");
    run(&[]).env("DLOCK_SLOTS", "").output().success().stdout_is("none");
    run(&["-s", "-x", "--slots", "2"]).output().success().stdout_is("0");
    run(&["--slots", "2", "-s"]).output().success().stdout_is("none");
    let both = |one: &str, other: &str| run(&[]).env(one, "1").env(other, "1");
    wrong(both("DLOCK_SHARED", "DLOCK_SLOTS"), "DLOCK_SHARED and DLOCK_SLOTS are mutually exclusive");
    wrong(both("DLOCK_SHARED", "DLOCK_EXCLUSIVE"), "DLOCK_EXCLUSIVE and DLOCK_SHARED are mutually exclusive");
}

#[test]
fn namespace_and_ttl() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let monitor = redis.monitor();
    let run = || run(&scratch).backend(redis.url()).shell("printf $DLOCK_LEASE_TTL");
    let flagged = |flags: &[&str]| {
        let run = scratch.dlock().run("k").backend(redis.url()).args(flags);
        run.env("DLOCK_NAMESPACE", "ns").env("DLOCK_TTL", "7s").shell("printf $DLOCK_LEASE_TTL")
    };
    run().output().success().stdout_is("30");
    run().env("DLOCK_NAMESPACE", "ns").env("DLOCK_TTL", "7s").output().success().stdout_is("7");
    run().env("DLOCK_NAMESPACE", "").env("DLOCK_TTL", "").output().success().stdout_is("30");
    flagged(&["--namespace", "flag", "-t", "8"]).output().success().stdout_is("8");
    flagged(&["--namespace="]).output().success().stdout_is("7");
    let keys: Vec<String> = strings_set(&monitor.all()).into_iter().map(|(_, key)| key).collect();
    assert_eq!(keys, ["dlock:k", "ns:k", "k", "flag:k", "k"]);
}

#[test]
fn nonblock_and_wait() {
    let scratch = Scratch::new();
    let held = hold(&scratch);
    let run = || run_file(&scratch).command(["true"]);
    let flagged = |flags: &[&str]| run_file(&scratch).args(flags).command(["true"]);
    run().env("DLOCK_NONBLOCK", "1").output().code(75).stderr_is_one_line("did not get 'k': held by");
    run().env("DLOCK_WAIT", "0.2").output().code(75).stderr_is_one_line("did not get 'k' within 200ms");
    // One that says no.
    for no in ["0", "false", "no"] {
        let waits = run().env("DLOCK_NONBLOCK", no).env("DLOCK_WAIT", "0.1");
        waits.output().code(75).stderr_is_one_line("within 100ms");
    }
    // A flag beats the environment also across the two.
    let waits = flagged(&["-w", "0.1"]).env("DLOCK_NONBLOCK", "1");
    waits.output().code(75).stderr_is_one_line("within 100ms");
    flagged(&["-n"]).env("DLOCK_WAIT", "1h").output().code(75).stderr_is_one_line("did not get 'k': held by");
    flagged(&["-w", "0.1"]).env("DLOCK_WAIT", "1h").output().code(75).stderr_is_one_line("within 100ms");
    // Empty ones count as unset: this one waits until it is let in.
    let waiting = run().env("DLOCK_NONBLOCK", "").env("DLOCK_WAIT", "").spawn();
    waiting.wait_stderr("waiting for 'k'");
    drop(held);
    waiting.wait().code(0).stderr_is_one_line("waiting for 'k'");
}

#[test]
fn conflict_exit_code() {
    let scratch = Scratch::new();
    let _held = hold(&scratch);
    let run = |flags: &[&str]| run_file(&scratch).arg("-n").args(flags).command(["true"]);
    let code = |run: Dlock, code| {
        run.output().code(code).stderr_is_one_line("did not get 'k'");
    };
    code(run(&[]).env("DLOCK_CONFLICT_EXIT_CODE", "42"), 42);
    code(run(&["-E", "43"]).env("DLOCK_CONFLICT_EXIT_CODE", "42"), 43);
    code(run(&[]).env("DLOCK_CONFLICT_EXIT_CODE", ""), 75);
    code(run(&["-E", "0"]), 0);
}

#[test]
fn kill_after_and_max_run() {
    let scratch = Scratch::new();
    // One that does not go at SIGTERM: it is gone as soon as SIGKILL may come.
    let stubborn = "trap '' TERM; while :; do sleep 1000; done";
    let run = run_file(&scratch).env("DLOCK_KILL_AFTER", "0.2").env("DLOCK_MAX_RUN", "0.1").shell(stubborn).output();
    run.code(124).stderr_is_one_line("--max-run");
    assert!(run.elapsed().as_secs() < 4, "the default of 5s was used: {run:?}");
    let flag = run_file(&scratch).args(["--max-run", "0.1"]).env("DLOCK_MAX_RUN", "1h").command(["sleep", "1000"]);
    flag.output().code(124).stderr_is_one_line("--max-run");
    let flag =
        run_file(&scratch).args(["--kill-after", "0.2"]).env("DLOCK_KILL_AFTER", "10").env("DLOCK_MAX_RUN", "0.1");
    let flag = flag.shell(stubborn).output();
    flag.code(124).stderr_is_one_line("--max-run");
    assert!(flag.elapsed().as_secs() < 4, "the variable was used: {flag:?}");
    let empty = run_file(&scratch).env("DLOCK_KILL_AFTER", "").env("DLOCK_MAX_RUN", "");
    empty.shell("exit 3").output().code(3).quiet();
}

#[test]
fn min_hold() {
    let scratch = Scratch::new();
    for (key, flags, value, code) in
        [("variable", &[][..], "1h", 75), ("flag", &["--min-hold", "0"], "1h", 0), ("empty", &[], "", 0)]
    {
        let run = || scratch.dlock().run(key).backend(scratch.file_url());
        run().args(flags).env("DLOCK_MIN_HOLD", value).command(["true"]).output().success();
        run().args(["-n", "-q"]).command(["true"]).output().code(code).quiet();
    }
}

/// What is published shows the lease that the server was asked for.
#[test]
fn lock_delay() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    for (flags, value, shown) in [
        (&[][..], "5", "\"ttl\":35000,\"delay\":5000,"),
        (&["--lock-delay", "7"], "5", "\"ttl\":37000,\"delay\":7000,"),
        (&[], "", "\"ttl\":30000,\"boot\":"),
    ] {
        let run = run(&scratch).backend(redis.url()).args(flags).env("DLOCK_LOCK_DELAY", value);
        let holder = crate::support::service::Gated::spawn(&scratch, run);
        holder.wait_held();
        let published = redis.cli(&["GET", "dlock:k"]);
        assert!(published.contains(shown), "{published}");
        holder.let_go().success();
    }
}

#[test]
fn once_per() {
    let scratch = Scratch::new();
    for (key, flags, value, code) in [
        ("variable", &[][..], "52weeks", 75),
        ("flag", &["--once-per", "51weeks"], "52weeks", 0),
        ("empty", &[], "", 0),
    ] {
        let run = || scratch.dlock().run(key).backend(scratch.file_url());
        run().args(flags).env("DLOCK_ONCE_PER", value).command(["true"]).output().success();
        run().args(["-q", "--once-per", "52weeks"]).command(["true"]).output().code(code).quiet();
    }
    let wrong = run_file(&scratch).arg("-s").env("DLOCK_ONCE_PER", "1h").command(["true"]).output();
    wrong.code(64).stderr_is_one_line("DLOCK_ONCE_PER and --shared are mutually exclusive");
}

#[test]
fn on_lost() {
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.path("gate"));
    let lose = format!("rm locks/k.lock; {}; exit 3", gate.wait());
    let run =
        |flags: &[&str], value: &str| run_file(&scratch).args(flags).env("DLOCK_ON_LOST", value).shell(&lose).spawn();
    for (flags, value) in [(&[][..], "ignore"), (&["--on-lost", "ignore"], "kill")] {
        let running = run(flags, value);
        running.wait_stderr("--on-lost ignore");
        gate.open();
        running.wait().code(3).stderr_ends_with_line("lost 'k'");
    }
    for (flags, value) in [(&[][..], ""), (&["--on-lost", "stop"], "ignore"), (&[], "kill")] {
        run(flags, value).wait().code(79).stderr_is_one_line("lost 'k'");
    }
}

#[test]
fn leftovers() {
    let scratch = Scratch::new();
    let leave = "sleep 1000 > /dev/null 2>&1 & exit 0";
    let (line, end) = Lifeline::pair();
    run_file(&scratch).env("DLOCK_LEFTOVERS", "kill").lifeline(end).shell(leave).output().success();
    line.closed_at();
    // What stays behind works in the scratch directory, and goes with it.
    let (line, end) = Lifeline::pair();
    let flag = run_file(&scratch).args(["--leftovers", "leave"]).env("DLOCK_LEFTOVERS", "kill").lifeline(end);
    flag.shell(leave).output().success();
    assert!(line.is_open(), "what the flag said to leave is gone");
    let (line, end) = Lifeline::pair();
    run_file(&scratch).env("DLOCK_LEFTOVERS", "").lifeline(end).shell(leave).output().success();
    assert!(line.is_open(), "what the default leaves is gone");
}

#[test]
fn command() {
    let scratch = Scratch::new();
    let run = || run_file(&scratch).env("DLOCK_COMMAND", "echo variable $0");
    run().output().success().stdout_is("variable /bin/sh\n");
    run().arg("-c").arg("echo flag").output().success().stdout_is("flag\n");
    run().command(["echo", "arguments"]).output().success().stdout_is("arguments\n");
    let empty = run_file(&scratch).env("DLOCK_COMMAND", "").output();
    empty.code(64).stderr_is_one_line("no command to run");
}

#[test]
fn close() {
    let scratch = Scratch::new();
    // Some of what `ls` has seen is closed before it has looked at it.
    let count = "ls -l /proc/$$/fd 2>/dev/null | grep -c '/locks/k.lock$'; true";
    let run = || run_file(&scratch).shell(count);
    run().output().success().stdout_is("1\n");
    run().env("DLOCK_CLOSE", "1").output().success().stdout_is("0\n");
    run().env("DLOCK_CLOSE", "0").output().success().stdout_is("1\n");
    run().env("DLOCK_CLOSE", "").output().success().stdout_is("1\n");
    run_file(&scratch).env("DLOCK_CLOSE", "0").arg("-o").shell(count).output().success().stdout_is("0\n");
}

#[test]
fn time() {
    let scratch = Scratch::new();
    for zone in ["utc", "local", ""] {
        run_file(&scratch).env("DLOCK_TIME", zone).command(["true"]).output().success();
    }
    let wrong = run_file(&scratch).env("DLOCK_TIME", "UTC+1").command(["true"]).output();
    wrong.code(64).stderr_is_one_line("DLOCK_TIME=UTC+1: ");
}

#[test]
fn reason() {
    let scratch = Scratch::new();
    let reason = |run: Dlock| {
        let outcome = run.command(["tail", "-n1", "locks/k.lock"]).output();
        outcome.success();
        let holder: serde_json::Value = serde_json::from_str(&outcome.stdout()).unwrap();
        holder["reason"].as_str().map(str::to_owned)
    };
    let run = || run_file(&scratch).env("DLOCK_REASON", "a \"reason\"");
    assert_eq!(reason(run()).as_deref(), Some("a \"reason\""));
    assert_eq!(reason(run().args(["--reason", "another"])).as_deref(), Some("another"));
    assert_eq!(reason(run_file(&scratch).env("DLOCK_REASON", "")), None);
}

#[test]
fn events() {
    let scratch = Scratch::new();
    let lines = |name: &str| std::fs::read_to_string(scratch.path(name)).map_or(0, |text| text.lines().count());
    let run = || run_file(&scratch).env("DLOCK_EVENTS", "variable");
    run().command(["true"]).output().success();
    assert_eq!(lines("variable"), 5);
    run().args(["--events", "flag"]).command(["true"]).output().success();
    run_file(&scratch).env("DLOCK_EVENTS", "").command(["true"]).output().success();
    assert_eq!((lines("variable"), lines("flag")), (5, 5));
}

#[test]
fn quiet_and_verbose() {
    let scratch = Scratch::new();
    let free = || scratch.dlock().run("free").backend(scratch.file_url());
    let talks = |run: Dlock| {
        let outcome = run.command(["true"]).output();
        outcome.code(0).stderr_ends_with_line("released 'free'");
        assert!(outcome.stderr().starts_with("dlock: acquired 'free'"), "{outcome:?}");
        assert_eq!(outcome.stderr().lines().count(), 2, "{outcome:?}");
    };
    talks(free().env("DLOCK_VERBOSE", "1"));
    free().env("DLOCK_VERBOSE", "").env("DLOCK_QUIET", "").command(["true"]).output().success();
    let _held = hold(&scratch);
    let refused = |flags: &[&str]| run_file(&scratch).arg("-n").args(flags).command(["true"]);
    refused(&[]).env("DLOCK_QUIET", "").output().code(75).stderr_is_one_line("did not get 'k'");
    refused(&[]).env("DLOCK_QUIET", "1").output().code(75).quiet();
    // A flag beats the environment also across the two.
    talks(free().arg("-v").env("DLOCK_QUIET", "1"));
    refused(&["-v"]).env("DLOCK_QUIET", "1").output().code(75).stderr_is_one_line("did not get 'k'");
    refused(&["-q"]).env("DLOCK_VERBOSE", "1").output().code(75).quiet();
    free().arg("-q").env("DLOCK_VERBOSE", "1").command(["true"]).output().success();
}
