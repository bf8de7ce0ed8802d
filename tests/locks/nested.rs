/*!
A `dlock run` inside a `dlock run` of the same key: it passes through if the outer one holds the lock for it, and never
otherwise.
*/

use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::dlock::{DLOCK, Outcome};
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, Lifeline};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::{FileService, Gated, RedisService, Service};

/// Shell code that runs `script` under dlock with `options`.
fn inner(options: &str, script: &str) -> String {
    let dlock = *DLOCK;
    format!("'{dlock}' run {options} -- sh -c '{}'", script.replace('\'', r"'\''"))
}

/// Shell code that runs `script` under dlock with `options`, for a key on `service`.
fn inner_on<S: Service>(service: &S, key: &str, options: &str, script: &str) -> String {
    inner(&format!("--key {key} --backend '{}' {options}", service.url()), script)
}

#[test]
fn the_same_key_passes_through() {
    same_key(&FileService::fresh());
    same_key(&RedisService::fresh());
}

fn same_key<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (inside, after) = (Gate::new(path("inside")), Gate::new(path("after")));
    let told = r#"echo "$DLOCK_TOKEN $DLOCK_KEY $DLOCK_BACKEND_KIND""#;
    let nested = inner_on(service, "job", "", &format!("{told}; echo inside; {}; exit 5", inside.wait()));
    let script = format!("{told}; {nested}; echo after $?; {}; {told}", after.wait());
    let running = service.run("job").shell(script).spawn();
    running.wait_stdout("inside");
    service.assert_held("job");
    let refused = service.run("job").arg("-n").command(["true"]).output();
    refused.code(75).stderr_is_one_line(&format!(", pid {} (sh)", running.pid()));
    assert_eq!(service.queued("job"), 0);
    inside.open();
    running.wait_stdout("after 5");
    service.assert_held("job");
    after.open();
    let outcome = running.wait();
    let printed = outcome.success().stdout();
    let [outer, within, "inside", "after 5", last] = printed.lines().collect::<Vec<_>>()[..] else {
        panic!("{printed:?}");
    };
    assert!(outer == within && outer == last && outer.ends_with(&format!(" job {}", S::KIND)), "{printed}");
    service.assert_free("job");
    assert_eq!(service.queued("job"), 0);
}

#[test]
fn no_option_about_waiting_keeps_it_from_passing_through() {
    any_patience(&FileService::fresh());
    any_patience(&RedisService::fresh());
}

fn any_patience<S: Service>(service: &S) {
    for options in ["-n", "-w 0", "-w 5", "-q", "-n -E 0", "--ttl 1s", "--max-run 1m"] {
        let nested = inner_on(service, "job", options, "echo passed");
        service.run("job").shell(nested).output().success().stdout_is("passed\n");
    }
    let verbose = service.run("job").shell(inner_on(service, "job", "-v", "echo passed")).output();
    verbose.code(0).stdout_is("passed\n").stderr_is_one_line("held by the outer dlock run");
}

#[test]
fn a_backend_that_is_spelled_differently_is_the_same() {
    let service = RedisService::fresh();
    let port = service.redis.port();
    let passes = |outer: &str, options: &str, nested: &str| {
        let outer = service.scratch().dlock().run("job").backend(outer).args(options.split_whitespace());
        // With -n, so that a mistake does not become a deadlock.
        let nested = inner(&format!("-n --key job --backend '{nested}' {options}"), "echo passed");
        outer.shell(nested).output().success().stdout_is("passed\n");
    };
    passes(&format!("redis://127.0.0.1:{port}"), "", &format!("redis://localhost:{port}"));
    passes(&format!("redis://localhost:{port}/0"), "", &format!("redis://127.0.0.1:{port}"));
    passes(&format!("redis://localhost:{port}/3"), "--namespace=", &format!("redis://127.0.0.1:{port}/3"));

    let service = FileService::fresh();
    let (directory, link) = (service.scratch().lock_dir(), service.scratch().path("link"));
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let nested = inner(&format!("-n --key job --backend 'file://{}'", link.display()), "echo passed");
    service.run("job").shell(nested).output().success().stdout_is("passed\n");
    let nested = inner(&format!("-n --key job --backend 'file://{}/'", directory.display()), "echo passed");
    service.run("job").shell(nested).output().success().stdout_is("passed\n");
}

#[test]
fn a_lock_that_only_looks_the_same_is_another() {
    let service = RedisService::fresh();
    let port = service.redis.port();
    for other in [
        format!("--key job --backend redis://127.0.0.1:{port}/1"),
        format!("--key job --backend redis://127.0.0.1:{port} --namespace other"),
        format!("--key jobs --backend redis://127.0.0.1:{port}"),
        format!("--key job --backend 'file://{}'", service.scratch().lock_dir().display()),
    ] {
        let gate = Gate::new(service.scratch().path("gate"));
        let nested = inner(&other, &format!("echo held; {}", gate.wait()));
        let running = service.run("job").shell(nested).spawn();
        running.wait_stdout("held");
        // It is really held: another dlock is refused, with the inner run named.
        let mut words = vec!["run", "-n"];
        let other = other.replace('\'', "");
        words.extend(other.split_whitespace());
        let refused = service.scratch().dlock().args(words).command(["true"]).output();
        refused.code(75).stderr_is_one_line("held by ");
        assert!(!refused.stderr().contains(&format!("pid {} ", running.pid())), "{refused:?}");
        gate.open();
        running.wait().success();
        std::fs::remove_file(gate.path()).unwrap();
    }
}

#[test]
fn three_levels_find_the_outermost() {
    three_levels(&FileService::fresh());
    three_levels(&RedisService::fresh());
}

fn three_levels<S: Service>(service: &S) {
    let told = r#"echo "$DLOCK_KEY $DLOCK_TOKEN""#;
    let third = inner_on(service, "a", "-n", told);
    let second = inner_on(service, "b", "-n", &format!("{told}; {third}; {told}"));
    let fourth = inner_on(service, "b", "-n", told);
    let outcome = service.run("a").shell(format!("{told}; {second}; {fourth}; {told}")).output();
    let printed = outcome.success().stdout();
    let [a, b, nested, b_again, b_anew, last] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed:?}") };
    assert!(a.starts_with("a ") && b.starts_with("b ") && b_anew.starts_with("b "), "{printed}");
    assert!(nested == a && b_again == b && last == a, "{printed}");
    // That one was over: the lock was taken anew.
    assert_ne!(b_anew, b);
    service.assert_free("a");
    service.assert_free("b");
}

/// The value of a variable in the environment of `holder`'s command, which must be running.
fn told(holder: &Gated, variable: &str) -> String {
    process::environ(holder.running.command_pid())[variable].clone()
}

#[test]
fn a_stale_variable_outside_does_not_skip_the_lock() {
    stale(&FileService::fresh());
    stale(&RedisService::fresh());
}

fn stale<S: Service>(service: &S) {
    let holder = service.hold("job");
    let held = told(&holder, "DLOCK_HELD");
    let token = |gated: &Gated| told(gated, "DLOCK_TOKEN").parse::<u64>().unwrap();
    let first = token(&holder);
    let with_it = || service.run("job").env("DLOCK_HELD", &held);
    let who = format!(", pid {} (sh)", holder.pid());
    with_it().arg("-n").command(["echo", "overlap"]).output().code(75).stdout_is("").stderr_is_one_line(&who);
    let timed = with_it().args(["-w", "0.1"]).command(["echo", "overlap"]).output();
    timed.code(75).stdout_is("").stderr_ends_with_line(&who);
    let waiter = Gated::spawn(service.scratch(), with_it().arg("-q"));
    service.wait_queued("job", 1);
    assert!(!waiter.has_held());
    holder.let_go().success();
    waiter.wait_held();
    assert!(token(&waiter) > first, "it took the lock, and did not borrow the other's");
    // When the next dlock holds the lock, the first one's variable is stale.
    with_it().arg("-n").command(["echo", "overlap"]).output().code(75).stdout_is("").stderr_is_one_line("held by ");
    waiter.let_go().success();
    with_it().arg("-n").command(["echo", "free"]).output().success().stdout_is("free\n");
}

#[test]
fn a_daemon_that_outlived_its_run_does_not_skip_the_lock() {
    daemon(&FileService::fresh());
    daemon(&RedisService::fresh());
}

fn daemon<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut words, gate) = (Fifo::new(path("words")), Gate::new(path("daemon")));
    let nested = inner_on(service, "job", "-n -q", &words.say("overlap"));
    let daemon = format!("{}; {}; {nested}; {}", words.say("$$"), gate.wait(), words.say("$?"));
    let leaving = format!("setsid sh -c '{}' > /dev/null 2>&1 &", daemon.replace('\'', r"'\''"));
    service.run("job").shell(leaving).output().success();
    let pid = words.word().parse().unwrap();
    let holder = service.hold("job");
    gate.open();
    words.expect("75");
    process::wait_gone(pid);
    holder.let_go().success();
}

#[test]
fn a_forged_variable_does_not_skip_the_lock() {
    forged(&FileService::fresh());
    forged(&RedisService::fresh());
}

fn forged<S: Service>(service: &S) {
    let holder = service.hold("job");
    let genuine: serde_json::Value = serde_json::from_str(&told(&holder, "DLOCK_HELD")).unwrap();
    let change = |name: &str, value: serde_json::Value| {
        let mut entry = genuine[0].clone();
        assert!(entry[name] != serde_json::Value::Null, "{genuine}");
        entry[name] = value;
        entry
    };
    let mut forgeries: Vec<String> =
        ["", "x", "{}", "[]", "[[[[", "[1]", "[{}]", "null", "[{\"id\":1}]"].map(str::to_owned).into();
    forgeries.push(format!("[{}]", genuine[0]["id"]));
    // Nested deeper than any parser should go.
    forgeries.push("[".repeat(100_000));
    forgeries.push(genuine.to_string());
    // An ancestor that does not hold the lock: this test.
    let me = std::process::id();
    let about = std::fs::read_to_string(format!("/proc/{me}/stat")).unwrap();
    let start: u64 = about.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let mut ancestor = change("pid", me.into());
    forgeries.push(serde_json::json!([ancestor]).to_string());
    ancestor["start"] = start.into();
    forgeries.push(serde_json::json!([ancestor]).to_string());
    for pid in [0, 1, -1, i64::from(i32::MAX), i64::MAX] {
        forgeries.push(serde_json::json!([change("pid", pid.into())]).to_string());
    }
    forgeries.push(serde_json::json!([change("start", 0.into())]).to_string());
    forgeries.push(serde_json::json!([change("id", "0".repeat(32).into())]).to_string());
    for forgery in forgeries {
        let outcome = service.run("job").arg("-n").env("DLOCK_HELD", &forgery).command(["echo", "overlap"]).output();
        let shown: String = forgery.chars().take(300).collect();
        assert!(outcome.stdout().is_empty(), "{shown} skipped the lock");
        outcome.code(75).stderr_is_one_line(&format!(", pid {} (sh)", holder.pid()));
    }
    holder.let_go().success();
    // Nor does it keep anybody from a lock that is free.
    service.run("job").arg("-n").env("DLOCK_HELD", "[[").command(["echo", "ran"]).output().success().stdout_is("ran\n");
}

#[test]
fn without_access_it_is_refused_and_told_how_to_get_it() {
    let redis = Redis::with(["--requirepass", "right-one"]);
    let scratch = Scratch::new();
    let url = redis.url();
    let refused = |outcome: Outcome| {
        outcome.code(77).stdout_is("77\n").stderr_is_one_line("--password-file");
        assert!(!outcome.stderr().contains("right-one"), "{outcome:?}");
    };
    let nested = |options: &str| format!("{}; code=$?; echo $code; exit $code", inner(options, "echo passed"));
    // The variable is not passed on.
    let outer = scratch.dlock().run("job").backend(&url).env("DLOCK_PASSWORD", "right-one");
    refused(outer.shell(nested(&format!("--key job --backend '{url}'"))).output());
    // Nor is a password in the URL.
    let outer = || scratch.dlock().run("job").env("DLOCK_BACKEND", redis.url_for("", "right-one", 0));
    refused(outer().shell(nested("--key job")).output());
    let told = outer().shell("echo $DLOCK_BACKEND; env | grep -c right-one").output();
    told.code(1).quiet().stdout_is(&format!("{url}/0\n0\n"));
    // Another lock there is out of reach for the same reason.
    refused(outer().shell(nested("--key other -n")).output());
    // The advice in the message works.
    let file = scratch.secret("password", "right-one\n");
    let outer = scratch.dlock().run("job").backend(&url).env("DLOCK_PASSWORD_FILE", &file);
    outer.shell(nested(&format!("--key job --backend '{url}'"))).output().success().stdout_is("passed\n0\n");
    let outer = scratch.dlock().run("job").backend(&url).arg("--password-file").arg(&file);
    let flag = format!("--key job --backend '{url}' --password-file '{}'", file.display());
    outer.shell(nested(&flag)).output().success().stdout_is("passed\n0\n");
}

#[test]
fn it_stops_with_79_when_the_outer_dlock_is_killed_under_a_lease() {
    // Everything ends, and soon: a trap keeps the reporting shell alive.
    let service = RedisService::fresh();
    let mut words = Fifo::new(service.scratch().path("words"));
    let (line, end) = Lifeline::pair();
    let work = format!("{}; sleep 60; :", words.say("inside"));
    let nested = format!("trap : TERM; {}; {}", inner_on(&service, "job", "", &work), words.say("$?"));
    let running = service.run("job").args(["--ttl", "4s"]).lifeline(end).shell(nested).spawn();
    words.expect("inside");
    process::signal(running.pid(), Signal::SIGKILL);
    words.expect("79");
    line.closed_at();
    running.wait().signal(Signal::SIGKILL).stderr();
}

#[test]
fn in_another_pid_namespace_it_is_refused() {
    other_namespace(&FileService::fresh());
    other_namespace(&RedisService::fresh());
}

fn other_namespace<S: Service>(service: &S) {
    // Whatever its options about waiting: it would wait for itself.
    for options in ["", "-w 60", "-n"] {
        let nested = inner_on(service, "job", options, "echo overlap");
        let outcome = service.run("job").shell(format!("unshare -rpf --mount-proc {nested}")).output();
        outcome.code(64).stdout_is("").stderr_is_one_line("PID namespace");
    }
    assert_eq!(service.queued("job"), 0);
    // Another key is independent.
    let nested = inner_on(service, "other", "-n", "echo ran");
    let outcome = service.run("job").shell(format!("unshare -rpf --mount-proc {nested}")).output();
    outcome.success().stdout_is("ran\n");
}

#[test]
fn unshare_is_there() {
    // Without it the tests above would be refused for a different reason.
    assert!(Command::new("unshare").args(["-rpf", "--mount-proc", "true"]).status().unwrap().success());
}
