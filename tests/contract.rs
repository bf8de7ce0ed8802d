/*!
What the words of the contract mean: one suite for every backend, and one line per backend at its end.

Nothing here knows which backend it runs on. What only one backend promises is tested in the files named after
behaviours.
*/

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::redis_services::{
    RedissService, Redlock3, Redlock5, RedlocksService, ReplicasService, SentinelService, UnixService,
};
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually};
use crate::support::service::{
    EtcdClusterService, EtcdService, EtcdTlsService, FileService, Gated, RedisService, Service,
    ZooKeeperEnsembleService, ZooKeeperService, ZooKeeperTlsService,
};
use crate::support::witness::{Witness, read_counter};

/// Names the tests and defines the macro that runs all of them on one backend. A test that is missing here is dead
/// code, which the compiler reports.
macro_rules! contract {
    ($($test:ident)*) => {
        macro_rules! holds_on {
            ($backend:ident: $service:ty) => {
                mod $backend {
                    #[allow(unused_imports)]
                    use super::*;
                    $(#[test] fn $test() { super::$test(&<$service>::fresh()) })*
                }
            };
        }
    };
}

contract! {
    a_second_run_is_refused_in_one_line_that_says_who_holds_it
    the_conflict_code_is_the_users_choice
    a_refusal_is_silent_with_q
    who_waits_gets_the_lock_when_it_is_free
    a_wait_that_runs_out_is_a_refusal
    a_wait_of_0_does_not_wait
    flags_beat_the_environment_across_wait_and_nonblock
    tokens_strictly_rise
    the_command_is_told_about_its_lock
    the_lock_is_free_after_every_end_of_the_command
    verbose_says_when_it_is_acquired_and_released
    many_contenders_never_overlap
    waiters_are_served_in_the_order_in_which_they_came
    a_dead_waiter_delays_the_others_by_less_than_a_ttl
    a_signal_ends_the_wait_at_once
    nothing_is_left_behind
    different_keys_do_not_exclude_each_other
    a_string_is_run_by_the_shell
    leftovers_are_left_alone_by_default
    leftovers_can_be_waited_for
    leftovers_can_be_killed
    max_run_ends_the_command
    max_run_ends_all_that_the_command_started
    odd_keys_exclude_themselves_and_nobody_else
}

holds_on!(file: FileService);
holds_on!(redis: RedisService);
holds_on!(redis_socket: UnixService);
holds_on!(redis_tls: RedissService);
holds_on!(redis_replicas: ReplicasService);
holds_on!(redis_sentinel: SentinelService);
holds_on!(etcd: EtcdService);
holds_on!(etcd_cluster: EtcdClusterService);
holds_on!(etcd_tls: EtcdTlsService);
holds_on!(zookeeper: ZooKeeperService);
holds_on!(zookeeper_ensemble: ZooKeeperEnsembleService);
holds_on!(zookeeper_tls: ZooKeeperTlsService);
holds_on!(redlock_3: Redlock3);
holds_on!(redlock_5: Redlock5);
holds_on!(redlock_tls: RedlocksService);

/// What `program` prints, without the end of the line.
fn printed_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn a_second_run_is_refused_in_one_line_that_says_who_holds_it<S: Service>(service: &S) {
    let holder = service.run("job").args(["--reason", "nightly\u{1b}[2J backup"]);
    let holder = Gated::spawn(service.scratch(), holder);
    holder.wait_held();
    let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("did not get job: held by ");
    let line = refused.stderr();
    let who =
        format!("{}@{}, pid {} (sh), since 2", printed_by("id", &["-un"]), printed_by("uname", &["-n"]), holder.pid());
    assert!(line.contains(&who), "{line:?} lacks {who:?}");
    // Whatever a holder says about itself, it cannot upset the terminal of whoever reads it.
    assert!(line.contains("reason: nightly\\u{1b}[2J backup") && !line.contains('\u{1b}'), "{line:?}");
    assert!(!line.contains("echo held"), "arguments are nobody's business: {line:?}");
    holder.let_go().success();
    service.assert_free("job");
}

fn the_conflict_code_is_the_users_choice<S: Service>(service: &S) {
    let holder = service.hold("job");
    let refused = |options: &[&str]| service.run("job").args(options).command(["echo", "overlap"]).output();
    for code in [3, 0, 255] {
        let outcome = refused(&["-n", "-E", &code.to_string()]);
        outcome.code(code).stdout_is("").stderr_is_one_line("did not get job");
    }
    refused(&["-w", "0.05", "-E", "4"]).code(4).stdout_is("").stderr_ends_with_line("did not get job");
    refused(&["-w", "0.05", "--conflict-exit-code", "0"])
        .code(0)
        .stdout_is("")
        .stderr_ends_with_line("did not get job");
    let inherited = service.run("job").arg("-n").env("DLOCK_CONFLICT_EXIT_CODE", "5").command(["true"]).output();
    inherited.code(5).stderr_is_one_line("did not get job");
    holder.let_go().success();
    // Only a lock that was not acquired has this exit code.
    service.run("job").args(["-n", "-E", "3"]).shell("exit 75").output().code(75).quiet();
}

fn a_refusal_is_silent_with_q<S: Service>(service: &S) {
    let holder = service.hold("job");
    for options in [["-q", "-n", "-E75"], ["-q", "-w", "0.05"]] {
        service.run("job").args(options).command(["echo", "overlap"]).output().code(75).stdout_is("").quiet();
    }
    holder.let_go().success();
}

fn who_waits_gets_the_lock_when_it_is_free<S: Service>(service: &S) {
    let holder = service.hold("job");
    let mut waiters = vec![service.queue_up("job", &["-q"]), service.queue_up("job", &["-q", "-w", "60"])];
    assert!(waiters.iter().all(|waiter| !waiter.has_held()));
    holder.let_go().success();
    // Which of them is first does not matter.
    while !waiters.is_empty() {
        let first = eventually("one of them to have it", || waiters.iter().position(Gated::has_held));
        let waiter = waiters.swap_remove(first);
        service.assert_held("job");
        assert!(!waiters.iter().any(Gated::has_held));
        waiter.let_go().success();
    }
    service.assert_free("job");
}

fn a_wait_that_runs_out_is_a_refusal<S: Service>(service: &S) {
    let holder = service.hold("job");
    let patience = Duration::from_millis(300);
    let refused = service.run("job").args(["-w", "0.3"]).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_ends_with_line("did not get job within 300ms: held by ");
    assert!(refused.elapsed() >= patience, "{refused:?}");
    assert!(refused.elapsed() < patience + Duration::from_secs(5), "{refused:?}");
    assert_eq!(service.queued("job"), 0, "who gave up must not stand in the way of others");
    service.assert_held("job");
    holder.let_go().success();
    service.assert_free("job");
}

fn a_wait_of_0_does_not_wait<S: Service>(service: &S) {
    let holder = service.hold("job");
    for options in [["--wait=0"], ["-w0s"]] {
        let refused = service.run("job").args(options).command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line("did not get job: held by ");
    }
    assert_eq!(service.queued("job"), 0);
    holder.let_go().success();
    service.run("job").arg("-w0").command(["true"]).output().success();
}

fn flags_beat_the_environment_across_wait_and_nonblock<S: Service>(service: &S) {
    let holder = service.hold("job");
    let waiter = service.run("job").env("DLOCK_NONBLOCK", "1").args(["-q", "-w", "60"]);
    let waiter = Gated::spawn(service.scratch(), waiter);
    service.wait_queued("job", 1);
    let refused = |dlock: Dlock| dlock.command(["echo", "overlap"]).output();
    let n_over_wait = refused(service.run("job").env("DLOCK_WAIT", "60").arg("-n"));
    n_over_wait.code(75).stdout_is("").stderr_is_one_line("did not get job: ");
    let n_alone = refused(service.run("job").env("DLOCK_NONBLOCK", "1"));
    n_alone.code(75).stdout_is("").stderr_is_one_line("did not get job: ");
    let wait_alone = refused(service.run("job").env("DLOCK_WAIT", "0.05"));
    wait_alone.code(75).stdout_is("").stderr_ends_with_line("did not get job within 50ms: ");
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

/// The token as the command had it, checked for what every token promises.
fn token(text: &str) -> u64 {
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?} is not a decimal number");
    assert!(!text.starts_with('0'), "{text:?}");
    let token = text.parse().unwrap();
    assert!(token < 1 << 53, "{token} is not exact in every language");
    token
}

fn tokens_strictly_rise<S: Service>(service: &S) {
    let often = r#"i=0; while [ "$i" -lt 30 ]; do "$@" || exit; i=$((i + 1)); done"#;
    let runs = service.run("job").wrapped_by(["sh", "-c", often, "sh"]).shell("echo $DLOCK_TOKEN").output();
    let printed = runs.success().stdout();
    let tokens: Vec<u64> = printed.lines().map(token).collect();
    assert_eq!(tokens.len(), 30);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

fn the_command_is_told_about_its_lock<S: Service>(service: &S) {
    let names = ["KEY", "TOKEN", "OWNER", "LEASE_TTL", "BACKEND_KIND", "HELD"].map(|name| format!("DLOCK_{name}"));
    let mut dlock = service.run("job").args(["--ttl", "30s"]);
    for name in &names {
        dlock = dlock.env(name, "inherited");
    }
    let gate = Gate::new(service.scratch().path("gate"));
    let running = dlock.shell(format!("echo held; {}", gate.wait())).spawn();
    running.wait_stdout("held");
    let environment = process::environ(running.command_pid());
    let [key, given, owner, ttl, kind, held] = names.each_ref().map(|name| environment[name].as_str());
    assert_eq!((key, kind, ttl), ("job", S::KIND, S::LEASE_OF_30S));
    token(given);
    assert!(owner.len() == 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit()), "{owner:?}");
    let held: serde_json::Value = serde_json::from_str(held).unwrap();
    assert!(held.to_string().contains(owner), "{held}");
    // Only once, and not in addition to an inherited one: a program may read the first or the last of two.
    let block = std::fs::read(format!("/proc/{}/environ", running.command_pid())).unwrap();
    for name in &names {
        let start = format!("{name}=");
        let count = block.split(|&byte| byte == 0).filter(|pair| pair.starts_with(start.as_bytes())).count();
        assert_eq!(count, 1, "{name}");
    }
    gate.open();
    running.wait().success();
}

fn the_lock_is_free_after_every_end_of_the_command<S: Service>(service: &S) {
    let run = |script: &str| service.run("job").shell(script).output();
    run("exit 0").success();
    service.assert_free("job");
    run("exit 7").code(7).quiet();
    service.assert_free("job");
    run("kill -TERM $$").signal(Signal::SIGTERM).quiet();
    service.assert_free("job");
    run("kill -KILL $$").signal(Signal::SIGKILL).quiet();
    service.assert_free("job");
    service.run("job").command(["/no/such/program"]).output().code(127).stderr_is_one_line("not found");
    service.assert_free("job");
}

fn verbose_says_when_it_is_acquired_and_released<S: Service>(service: &S) {
    let outcome = service.run("job").arg("-v").shell("echo $DLOCK_TOKEN").output();
    let token = outcome.code(0).stdout();
    let expected =
        format!("dlock: acquired job at {}, token {}\ndlock: released job\n", service.url(), token.trim_end());
    assert_eq!(outcome.stderr(), expected);
    // A failing command is no reason to say less.
    service.run("job").arg("-v").shell("exit 3").output().code(3).stderr_ends_with_line("released job");
}

/// How many contenders start at the same time.
const BATCH: usize = 25;

fn many_contenders_never_overlap<S: Service>(service: &S) {
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let holder = service.hold("job");
    let contend = |_| service.run("job").arg("-q").command(witness.counter_command(&counter)).spawn();
    let mut contenders = Vec::new();
    // In the end all wait at the same time, but a slow machine cannot start all of them at once before some give up.
    while contenders.len() < S::CONTENDERS {
        let more = BATCH.min(S::CONTENDERS - contenders.len());
        contenders.extend((0..more).map(contend));
        service.wait_queued("job", contenders.len());
    }
    holder.let_go().success();
    for contender in contenders {
        contender.wait().success();
    }
    assert_eq!(read_counter(&counter), S::CONTENDERS as u64);
    let sections = witness.check();
    assert_eq!(sections.len(), S::CONTENDERS);
    assert!(sections.iter().all(|section| section.end.is_some()));
}

fn waiters_are_served_in_the_order_in_which_they_came<S: Service>(service: &S) {
    let mut turns = Fifo::new(service.scratch().path("turns"));
    let holder = service.hold("job");
    let line = |number: usize| {
        let waiter = service.run("job").arg("-q").shell(turns.say(&number.to_string())).spawn();
        service.wait_queued("job", number);
        waiter
    };
    let waiters: Vec<_> = (1..=8).map(line).collect();
    holder.let_go().success();
    for waiter in waiters {
        waiter.wait().success();
    }
    if S::IN_ORDER {
        for number in 1..=8 {
            turns.expect(&number.to_string());
        }
    }
}

fn a_dead_waiter_delays_the_others_by_less_than_a_ttl<S: Service>(service: &S) {
    let ttl = Duration::from_secs(3);
    let holder = service.hold("job");
    let options = ["-q", "--ttl", "3s"];
    let (dead, waiter) = (service.queue_up("job", &options), service.queue_up("job", &options));
    process::signal(dead.pid(), Signal::SIGKILL);
    dead.running.wait().signal(Signal::SIGKILL).quiet();
    let before = boottime();
    holder.let_go().success();
    waiter.wait_held();
    let delay = boottime().saturating_sub(before);
    // Redis forgets a waiter before its ttl is over. The other services know leases only, and check them now and then.
    assert!(delay < ttl + S::EXPIRY_GRANULARITY, "the next in line had to wait for {delay:?}");
    waiter.let_go().success();
}

fn a_signal_ends_the_wait_at_once<S: Service>(service: &S) {
    let holder = service.hold("job");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let first = service.queue_up("job", &["-q"]);
        let second = service.queue_up("job", &["-q"]);
        first.running.signal(signal);
        let outcome = first.running.wait();
        outcome.signal(signal).stdout_is("").quiet();
        // It is free at once, but the kernel may need a moment to move the other waiter up.
        assert!(service.queued("job") <= 1, "{signal} left a place in the queue");
        service.wait_queued("job", 1);
        service.assert_held("job");
        second.running.signal(signal);
        second.running.wait().signal(signal).quiet();
        assert_eq!(service.queued("job"), 0, "{signal} left a place in the queue");
    }
    holder.let_go().success();
    service.assert_free("job");
}

fn nothing_is_left_behind<S: Service>(service: &S) {
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-q"]);
    service.run("job").args(["-n", "-q"]).command(["true"]).output().code(75);
    service.run("job").args(["-w", "0.05", "-q"]).command(["true"]).output().code(75);
    let told = service.queue_up("job", &["-q"]);
    told.running.signal(Signal::SIGTERM);
    told.running.wait().signal(Signal::SIGTERM).quiet();
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
    service.run("job").shell("exit 3").output().code(3);
    service.run("job").shell("kill -KILL $$").output().signal(Signal::SIGKILL);
    service.run("other").command(["/no/such/program"]).output().code(127).stderr_is_one_line("not found");
    service.run("other").args(["-q", "--max-run", "0.05"]).command(["sleep", "60"]).output().code(124);
    // The guard ends after dlock, and the server notices a closed connection only later.
    eventually("the last process to go", || service.scratch().processes().is_empty().then_some(()));
    let mut litter = Vec::new();
    let clean = crate::support::rendezvous::eventually_within(Duration::from_secs(1), || {
        litter = service.litter(&["job", "other"]);
        litter.is_empty().then_some(())
    });
    assert!(clean.is_some(), "{litter:?}");
}

fn different_keys_do_not_exclude_each_other<S: Service>(service: &S) {
    let (one, other) = (service.hold("one"), service.hold("other"));
    service.assert_held("one");
    service.assert_held("other");
    one.let_go().success();
    service.assert_free("one");
    service.assert_held("other");
    other.let_go().success();
}

fn a_string_is_run_by_the_shell<S: Service>(service: &S) {
    let script = "echo one two | tr a-z A-Z; test \"$0\" = /bin/sh || echo \"$0\"; exit 5";
    let outcome = service.run("job").args(["-c", script]).output();
    outcome.code(5).stdout_is("ONE TWO\n").quiet();
    let long = service.run("job").args(["--command", "echo $DLOCK_KEY"]).output();
    long.success().stdout_is("job\n");
}

/// Shell code of a command that leaves a process in the background, in a session of its own, and then waits at `gate`.
/// It writes the pid of that process to `fifo`; the process ends when `leave` opens.
fn leaving(fifo: &Fifo, leave: &Gate, gate: &Gate) -> String {
    let left = format!("trap '' TERM; {}; {}", fifo.say("$$"), leave.wait()).replace('\'', r"'\''");
    format!("setsid sh -c '{left}' > /dev/null 2>&1 & {}", gate.wait())
}

fn leftovers_are_left_alone_by_default<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    for options in [&[][..], &["--leftovers", "leave"]] {
        let running = service.run("job").args(options).shell(leaving(&fifo, &leave, &gate)).spawn();
        let left = fifo.word().parse().unwrap();
        gate.open();
        running.wait().success();
        assert!(process::is_alive(left));
        service.assert_free("job");
        leave.open();
        process::wait_gone(left);
    }
}

fn leftovers_can_be_waited_for<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    let script = format!("{}; exit 3", leaving(&fifo, &leave, &gate));
    let running = service.run("job").args(["--leftovers", "wait"]).shell(script).spawn();
    let (left, command) = (fifo.word().parse().unwrap(), running.command_pid());
    gate.open();
    process::wait_gone(command);
    assert!(process::is_alive(left));
    service.assert_held("job");
    assert!(running.is_running());
    leave.open();
    running.wait().code(3).quiet();
    assert!(!process::is_alive(left));
    service.assert_free("job");
}

fn leftovers_can_be_killed<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    let script = format!("{}; exit 3", leaving(&fifo, &leave, &gate));
    let options = ["--leftovers", "kill", "--kill-after", "100ms"];
    let running = service.run("job").args(options).shell(script).spawn();
    let left = fifo.word().parse().unwrap();
    gate.open();
    running.wait().code(3).quiet();
    assert!(!process::is_alive(left));
    service.assert_free("job");
}

fn max_run_ends_the_command<S: Service>(service: &S) {
    // Time enough for a shell to set a trap on a busy machine.
    let run = |script: &str| service.run("job").args(["--max-run", "0.8"]).shell(script).output();
    // How the command reacts to SIGTERM does not change the exit code.
    let outcome = run("trap 'echo told; exit 3' TERM; sleep 60 & wait");
    outcome.code(124).stdout_is("told\n").stderr_is_one_line("--max-run");
    assert!(outcome.elapsed() >= Duration::from_millis(800), "{outcome:?}");
    service.assert_free("job");
    // A command that ends in time never hears of it.
    let long = service.run("job").args(["--max-run", "1h"]).shell("exit 3").output();
    long.code(3).quiet();
}

fn max_run_ends_all_that_the_command_started<S: Service>(service: &S) {
    let (line, end) = Lifeline::pair();
    let deaf = "trap '' TERM; setsid sh -c 'sleep 60; :' & sleep 60; :";
    let options = ["--max-run", "0.2", "--kill-after", "0.3"];
    let started = boottime();
    let outcome = service.run("job").args(options).lifeline(end).shell(deaf).output();
    outcome.code(124).stderr_is_one_line("--max-run");
    let after = line.closed_at().saturating_sub(started);
    assert!(after >= Duration::from_millis(500), "no time to end by itself: {after:?}");
    assert!(after < Duration::from_secs(10), "{after:?}");
    service.assert_free("job");
}

fn odd_keys_exclude_themselves_and_nobody_else<S: Service>(service: &S) {
    let long = "x".repeat(511);
    let (a, b) = (format!("{long}a"), format!("{long}b"));
    let emoji = "🔒".repeat(128);
    let keys = [
        ".",
        "..",
        "...",
        "a/b",
        "a%2Fb",
        "a",
        "/",
        "-x",
        "--",
        ".hidden",
        "%2Ehidden",
        " ",
        "*",
        "{a}b",
        "锁",
        "قفل",
        "🔒",
        &a,
        &b,
        &emoji,
    ];
    let run = |key: &str| {
        let dlock = service.scratch().dlock().arg("run").arg(format!("--key={key}"));
        dlock.backend(service.url()).args(service.options())
    };
    let holders: Vec<_> = keys.iter().map(|key| Gated::spawn(service.scratch(), run(key))).collect();
    for holder in &holders {
        holder.wait_held();
    }
    for key in keys {
        let refused = run(key).arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line("held by ");
    }
    for holder in holders {
        holder.let_go().success();
    }
}
