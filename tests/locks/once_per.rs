/*!
`--once-per`: of all runs for a lock, at most one succeeds in each period; the others take over when it fails, and skip when it
has succeeded.
*/

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::locks::looking::{list, look, status};
use crate::support::backends::{on_backend, on_every_backend, on_file_and_redis};
use crate::support::clock::ClockShim;
use crate::support::dlock::{DLOCK, Dlock, Outcome};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::{EtcdService, Gated, Service};

on_every_backend! {
    a_failure_is_taken_over_and_a_success_is_not_repeated
    those_who_wait_skip_when_another_has_succeeded
    the_last_success_is_told
}

on_file_and_redis! {
    a_waiter_takes_over_from_one_that_fails
    each_period_is_another_occasion
    a_waiter_of_a_later_period_has_its_turn
    a_success_that_was_not_recorded_may_be_repeated
    nothing_is_done_where_no_command_was_started_or_it_was_stopped
    clocks_that_show_the_same_period_mean_the_same_occasion
    a_clock_that_is_a_year_ahead_keeps_others_out_for_two_periods_at_most
    inside_a_run_that_holds_the_lock_it_is_refused
    a_kept_lock_is_done_too
    of_several_locks_each_is_done
}

on_backend! { only_redis: service::RedisService {
    what_is_recorded_is_gone_after_two_periods
} }

on_backend! { only_etcd: service::EtcdService {
    a_success_is_recorded_when_the_server_is_back_within_the_lease
} }

on_backend! { only_file: service::FileService {
    what_was_done_stays_when_readers_come_and_go
} }

/// So long that no test comes to its end, and the number of seconds in it.
const LONG: &str = "52weeks";
const SECONDS: i64 = 52 * 7 * 86_400;
const DAY: i64 = 86_400;

/// A short period, in seconds, for tests that wait for its end.
const SHORT: u64 = 2;

fn run<S: Service>(service: &S) -> Dlock {
    service.run("job").args(["--once-per", LONG])
}

#[track_caller]
fn is_skipped<S: Service>(service: &S) {
    let skipped = run(service).arg("-n").command(["echo", "again"]).output();
    skipped.code(75).stdout_is("").stderr_is_one_line("skipped: 'job' at ");
    let said = skipped.stderr();
    assert!(said.contains(" was done in this period (--once-per ") && said.contains(", at 2"), "{said}");
}

fn the_last_success_is_told<S: Service>(service: &S) {
    let asked = |length: &str| look(service, &["status", "-k", "job", "--done-within", length]).output();
    let told = |outcome: Outcome, code: i32, what: &str| {
        outcome.code(code).quiet();
        assert!(outcome.stdout().starts_with("job at ") && outcome.stdout().contains(what), "{outcome:?}");
    };
    told(asked("1h"), 75, ": not done within 1h: no successful run with --once-per is on record");
    run(service).command(["false"]).output().code(1).quiet();
    told(asked("1h"), 75, "no successful run with --once-per is on record");
    run(service).command(["true"]).output().success();
    service.run("job").args(["--once-per", "51weeks"]).command(["false"]).output().code(1).quiet();
    told(asked("1h"), 0, "s ago by ");
    std::thread::sleep(Duration::from_millis(20));
    told(asked("0.01"), 75, ": not done within 10ms: last done 0s ago by ");
    asked("25h").code(0).quiet();
    let seen = status(service, "job");
    assert_eq!(seen["last_success"]["period_ms"], SECONDS * 1000, "{seen}");
    // It is told of a lock that is free, too, and as often as there are locks.
    let listed = |words: &[&str]| list(service, words)["last_successes"].clone();
    let all = listed(&[]);
    assert_eq!((&all[0]["key"], all.as_array().map(Vec::len)), (&"job".into(), Some(1)), "{all}");
    assert_eq!(all[0]["at"], seen["last_success"]["at"]);
    assert_eq!((listed(&["jo"]), listed(&["x"])), (all, serde_json::json!([])));
}

fn a_failure_is_taken_over_and_a_success_is_not_repeated<S: Service>(service: &S) {
    run(service).command(["false"]).output().code(1).quiet();
    run(service).shell("kill -TERM $$").output().signal(Signal::SIGTERM).quiet();
    run(service).command(["true"]).output().success();
    is_skipped(service);
    run(service).args(["-q", "-E", "0"]).command(["echo", "again"]).output().success().stdout_is("").quiet();
    // Periods of another length, other keys, and runs without one are not concerned.
    service.run("job").args(["--once-per", "51weeks"]).command(["true"]).output().success();
    service.run("other").args(["--once-per", LONG]).command(["true"]).output().success();
    service.run("job").command(["true"]).output().success();
    is_skipped(service);
}

fn those_who_wait_skip_when_another_has_succeeded<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), run(service));
    holder.wait_held();
    let waiters = [(); 2].map(|()| service.queue_up("job", &["-q", "--once-per", LONG]));
    holder.let_go().success();
    for waiter in waiters {
        waiter.running.wait().code(75).stdout_is("").quiet();
    }
    service.assert_free("job");
}

fn a_waiter_takes_over_from_one_that_fails<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), run(service));
    holder.wait_held();
    let waiter = service.queue_up("job", &["-q", "--once-per", LONG]);
    holder.running.signal(Signal::SIGTERM);
    holder.running.wait().signal(Signal::SIGTERM).quiet();
    waiter.wait_held();
    waiter.let_go().success();
    is_skipped(service);
}

fn each_period_is_another_occasion<S: Service>(service: &S) {
    let runs = service.scratch().path("runs");
    let job = format!("echo run >> '{}'", runs.display());
    let period = SHORT.to_string();
    let end = boottime() + Duration::from_secs(4 * SHORT);
    while boottime() < end {
        let run = service.run("job").args(["-n", "-q", "-E", "0", "--once-per", &period]);
        run.shell(&job).output().success().quiet();
    }
    let done = std::fs::read_to_string(runs).unwrap().lines().count();
    // The time from the first start to the last one is a part of four or five periods.
    assert!((3..=5).contains(&done), "{done} runs");
}

/// The period is the one in which a run was started, however long it has waited.
fn a_waiter_of_a_later_period_has_its_turn<S: Service>(service: &S) {
    let period = SHORT.to_string();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--once-per", &period]));
    holder.wait_held();
    last_until(boottime() + Duration::from_secs(SHORT));
    let waiter = service.queue_up("job", &["-q", "--once-per", &period]);
    last_until(boottime() + Duration::from_secs(3 * SHORT));
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

fn a_success_that_was_not_recorded_may_be_repeated<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), run(service).args(["--ttl", "4s"]));
    holder.wait_held();
    let command = holder.running.command_pid();
    // It cannot hear of the end of its command.
    holder.running.signal(Signal::SIGSTOP);
    holder.open();
    process::wait_gone(command);
    process::signal(holder.pid(), Signal::SIGKILL);
    run(service).arg("-q").command(["echo", "again"]).output().success().stdout_is("again\n");
    is_skipped(service);
}

fn nothing_is_done_where_no_command_was_started_or_it_was_stopped<S: Service>(service: &S) {
    run(service).command(["/nonexistent"]).output().code(127).stderr_is_one_line("could not run ");
    let stopped = run(service).args(["--max-run", "0.2"]).shell("trap 'exit 0' TERM; sleep 1000 & wait").output();
    stopped.code(124).stderr_is_one_line("--max-run");
    run(service).command(["true"]).output().success();
    is_skipped(service);
}

/// The number of the period that it is now, and how many seconds a clock must be ahead to show that moment, counted from the
/// beginning of it.
fn ahead(moment: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let now = i64::try_from(now).unwrap();
    now / SECONDS * SECONDS + moment - now
}

fn clocks_that_show_the_same_period_mean_the_same_occasion<S: Service>(service: &S) {
    let clock = ClockShim::new();
    let run_at = |moment| {
        clock.set(ahead(moment));
        run(service).arg("-q").clock(&clock).command(["true"]).output()
    };
    // At the beginning and at the end of one period, one period later, and at the right time.
    run_at(DAY).success();
    run_at(SECONDS - DAY).code(75).quiet();
    run_at(SECONDS + DAY).success();
    run_at(SECONDS + 2 * DAY).code(75).quiet();
    is_skipped(service);
}

fn a_clock_that_is_a_year_ahead_keeps_others_out_for_two_periods_at_most<S: Service>(service: &S) {
    let (clock, period) = (ClockShim::new(), SHORT.to_string());
    clock.set(366 * DAY);
    let run = || service.run("job").args(["-n", "-q", "-E", "0", "--once-per", &period]);
    run().clock(&clock).command(["true"]).output().success();
    let since = boottime();
    eventually("the first run by a right clock", || {
        let outcome = run().command(["echo", "ran"]).output();
        (outcome.success().stdout() == "ran\n").then_some(())
    });
    let passed = boottime() - since;
    assert!(passed < Duration::from_secs(2 * SHORT + 3) + S::EXPIRY_GRANULARITY, "only after {passed:?}");
}

fn inside_a_run_that_holds_the_lock_it_is_refused<S: Service>(service: &S) {
    let inner = format!("{} run -k job -b '{}' --once-per 1h -- echo ran", *DLOCK, service.url());
    let outer = service.run("job").shell(inner).output();
    outer.code(64).stdout_is("").stderr_is_one_line("use --once-per there");
}

fn a_kept_lock_is_done_too<S: Service>(service: &S) {
    run(service).args(["--min-hold", "10m"]).command(["true"]).output().success();
    is_skipped(service);
}

/// A run for several locks is one for each of them: it is skipped where one of them is done, and takes none of the others.
fn of_several_locks_each_is_done<S: Service>(service: &S) {
    let two = |keys: [&str; 2]| service.run(keys[0]).args(["--key", keys[1], "--once-per", LONG]);
    two(["job", "other"]).command(["true"]).output().success();
    is_skipped(service);
    let skipped = two(["another", "other"]).arg("-n").command(["echo", "again"]).output();
    skipped.code(75).stdout_is("").stderr_is_one_line("skipped: 'other' at ");
    service.assert_free("another");
    service.run("another").args(["--once-per", LONG]).command(["true"]).output().success();
}

fn what_is_recorded_is_gone_after_two_periods<S: Service + Redis>(service: &S) {
    let period = SHORT.to_string();
    service.run("job").args(["--once-per", &period]).command(["true"]).output().success();
    let left = |key: &str| -> i64 { service.cli(&["PTTL", key]).trim().parse().unwrap() };
    let key = format!("{{dlock:job}}\u{1}once:{}", 1000 * SHORT);
    assert!((1..=4000).contains(&left(&key)), "{}", left(&key));
    eventually("the end of the record", || (left(&key) == -2).then_some(()));
    // Those who ask for the last success still find it.
    let outcome = look(service, &["status", "-k", "job", "--done-within", "1"]).output();
    assert!(outcome.code(75).stdout().contains("last done "), "{outcome:?}");
}

/// A service whose one server answers `redis-cli`.
trait Redis {
    fn cli(&self, request: &[&str]) -> String;
}

impl Redis for crate::support::service::RedisService {
    fn cli(&self, request: &[&str]) -> String {
        self.redis.cli(request)
    }
}

fn what_was_done_stays_when_readers_come_and_go<S: Service>(service: &S) {
    run(service).command(["true"]).output().success();
    let lock_file = service.scratch().lock_dir().join("job.lock");
    let recorded = || std::fs::read_to_string(&lock_file).unwrap().contains("\nonce {\"v\":1,\"period\":");
    assert!(recorded());
    for options in [&["-s"][..], &["--slots", "2"], &["-x"], &["--min-hold", "100ms"]] {
        service.run("job").args(options).command(["true"]).output().success();
        assert!(recorded(), "{options:?}");
        is_skipped(service);
    }
    let killed = Gated::spawn(service.scratch(), service.run("job"));
    killed.wait_held();
    let mut all = killed.running.descendants();
    all.push(killed.pid());
    for &pid in &all {
        process::signal(pid, Signal::SIGKILL);
    }
    all.into_iter().for_each(process::wait_gone);
    is_skipped(service);
}

fn a_success_is_recorded_when_the_server_is_back_within_the_lease(service: &EtcdService) {
    let proxy = Proxy::to(service.etcd.member(0).port());
    let run = service.scratch().dlock().run("job").backend(format!("etcd://127.0.0.1:{}", proxy.port()));
    let holder = Gated::spawn(service.scratch(), run.args(["--once-per", LONG, "-t", "1m"]));
    holder.wait_held();
    let before = proxy.counts().accepted;
    proxy.set(Mode::Reset);
    holder.open();
    // Two tries, and more.
    eventually("tries to release it", || (proxy.counts().accepted > before + 4).then_some(()));
    proxy.set(Mode::Forward);
    holder.running.wait().success();
    is_skipped(service);
}
