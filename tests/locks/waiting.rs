/*!
Messages while dlock waits and when the lock is refused, the cost of waiting, and outages during a wait. Waiting itself is
tested in `contract.rs`.
*/

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::{DLOCK, Outcome};
use crate::support::process;
use crate::support::pty::Pty;
use crate::support::rendezvous::{boottime, eventually};
use crate::support::servers::{Redis, Reply, Seen, need, runs_script};
use crate::support::service::{FileService, Gated, RedisService, Service};

/// How long a wait is silent.
const SILENCE: Duration = Duration::from_millis(400);

#[test]
fn a_short_wait_says_nothing() {
    short_wait(&FileService::fresh());
    short_wait(&RedisService::fresh());
}

fn short_wait<S: Service>(service: &S) {
    // A machine that stalls makes a wait long; then it says nothing about short ones.
    eventually("a wait that is short", || {
        let holder = service.hold("job");
        let waiter = service.queue_up("job", &[]);
        holder.let_go().success();
        let outcome = waiter.let_go();
        outcome.code(0);
        let silent = outcome.stderr().is_empty();
        assert!(silent || outcome.elapsed() >= SILENCE, "{outcome:?}");
        (outcome.elapsed() < SILENCE).then_some(())
    });
}

#[test]
fn a_longer_wait_says_once_who_holds_the_lock_since_when_and_our_place() {
    longer_wait(&FileService::fresh());
    longer_wait(&RedisService::fresh());
}

fn longer_wait<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--reason", "nightly backup"]));
    holder.wait_held();
    let silent = service.queue_up("job", &["-q"]);
    let before = boottime();
    let second = service.queue_up("job", &[]);
    let third = service.queue_up("job", &["-w", "60"]);
    let line = second.running.wait_stderr("waiting for 'job'");
    let silent_for = boottime().saturating_sub(before);
    assert!(silent_for >= SILENCE, "too soon: {line:?}");
    assert!(silent_for < SILENCE + Duration::from_secs(3), "too late: {silent_for:?}");
    let who = format!(", pid {} (sh), since 2", holder.pid());
    assert!(line.starts_with("dlock: waiting for 'job': held by ") && line.contains(&who), "{line:?} lacks {who:?}");
    assert!(line.contains(", reason: nightly backup; 1 ahead of you"), "{line:?}");
    let line = third.running.wait_stderr("waiting for 'job'");
    assert!(line.ends_with("; 2 ahead of you"), "{line:?}");
    // The first of them has waited for longer than those that have said so.
    assert_eq!(silent.running.stderr_so_far(), "");
    let first = service.run("job").args(["-w", "1"]).command(["true"]).output();
    first.code(75).stderr_ends_with_line("did not get 'job' within 1s: held by ");
    assert_eq!(first.stderr().lines().count(), 2, "{first:?}");

    holder.let_go().success();
    for waiter in [silent, second, third] {
        waiter.wait_held();
        let quiet = waiter.running.stderr_so_far().is_empty();
        let outcome = waiter.let_go();
        assert!(quiet == outcome.quiet_or_one_line("waiting for 'job'"), "{outcome:?}");
    }
}

/// What may be asked of the outcome of a wait.
trait Waited {
    /// Whether nothing was said; otherwise it must be one line with `part`.
    fn quiet_or_one_line(&self, part: &str) -> bool;
}

impl Waited for Outcome {
    #[track_caller]
    fn quiet_or_one_line(&self, part: &str) -> bool {
        self.code(0);
        let quiet = self.stderr().is_empty();
        if !quiet {
            self.stderr_is_one_line(part);
        }
        quiet
    }
}

mod silent_server {
    use super::*;
    use crate::support::backends::on_every_server;

    /// The server says nothing any more: that somebody held the lock when it last did must not be taken for a refusal, which
    /// `-E 0` makes a success.
    fn a_wait_that_runs_out_behind_one_is_an_outage<S: Service>(service: &S) {
        let holder = service.hold("job");
        let waiters: Vec<_> = [&["-q", "-E", "0"][..], &[]]
            .map(|options| service.run("job").args(["-w", "4s"]).args(options).command(["echo", "ran"]).spawn())
            .into();
        service.wait_queued("job", 2);
        let cluster = service.cluster();
        cluster.nodes().iter().for_each(|node| node.freeze());
        for waiter in waiters {
            let outcome = waiter.wait();
            outcome.code(69).stdout_is("").stderr_ends_with_line("did not get 'job' within 4s: ");
            assert!(!outcome.stderr().lines().last().unwrap().contains("held by"), "{outcome:?}");
        }
        cluster.nodes().iter().for_each(|node| node.thaw());
        drop(holder);
    }

    on_every_server! { a_wait_that_runs_out_behind_one_is_an_outage }
}

#[test]
fn the_next_in_line_is_told_so() {
    for line in [next_in_line(&FileService::fresh()), next_in_line(&RedisService::fresh())] {
        assert!(line.ends_with("; you are next"), "{line:?}");
    }
}

fn next_in_line<S: Service>(service: &S) -> String {
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &[]);
    let line = waiter.running.wait_stderr("waiting for 'job'");
    holder.let_go().success();
    waiter.let_go().stderr_is_one_line("waiting for 'job'");
    line
}

#[test]
fn on_a_terminal_what_changes_comes_first_and_is_kept_up_to_date() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    let mut command = Command::new(*DLOCK);
    command.args(["run", "--key", "job", "--backend", &service.url(), "--", "echo", "it is ours"]);
    command.current_dir(service.scratch().root()).env_clear();
    let terminal = Pty::spawn(&mut command);
    let (begins, user) = ("\r\x1b[2Kdlock: 'job': waiting ", "you are next; held ");
    terminal.expect(&format!("{begins}0s, {user}"));
    // The ages of the wait and of the hold are updated in place.
    terminal.expect(&format!("{begins}1s, {user}"));
    holder.let_go().success();
    let rest = terminal.expect("it is ours");
    let last = rest.rsplit("\r\x1b[2K").next().unwrap();
    assert!(last.starts_with("dlock: 'job': got it after ") && last.ends_with("s\r\nit is ours"), "{rest:?}");
    assert!(terminal.wait().success());
    assert!(!terminal.screen().replace("\r\n", "").contains('\n'), "{:?}", terminal.screen());
}

/// A flock(1) that holds the lock file of `job` until its input ends.
struct Flock(Child);

impl Flock {
    fn hold(service: &FileService) -> Self {
        let mut command = Command::new(need("flock", "util-linux"));
        command.arg(service.scratch().lock_dir().join("job.lock")).args(["sh", "-c", "echo held; read -r _"]);
        command.current_dir(service.scratch().root()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }

    fn let_go(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn a_flock_that_holds_the_file_is_named() {
    let service = FileService::fresh();
    let flock = Flock::hold(&service);
    let who = format!("held by flock (pid {})", flock.0.id());
    let refused = service.run("job").arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line(&format!("did not get 'job': {who}"));
    let waiter = service.queue_up("job", &[]);
    let line = waiter.running.wait_stderr("waiting for 'job'");
    assert_eq!(line, format!("dlock: waiting for 'job': {who}; you are next"));
    flock.let_go();
    waiter.wait_held();
    waiter.let_go().stderr_is_one_line("waiting for 'job'");
    // What a dlock wrote there, and died before it could take it back, does not speak for a flock that came after it.
    let killed = service.hold("job");
    let command = killed.running.command_pid();
    process::signal(killed.pid(), Signal::SIGKILL);
    killed.open();
    process::wait_gone(command);
    killed.running.wait().signal(Signal::SIGKILL).quiet();
    let flock = Flock::hold(&service);
    let who = format!("held by flock (pid {})", flock.0.id());
    service.run("job").arg("-n").command(["true"]).output().code(75).stderr_is_one_line(&who);
    flock.let_go();
}

/// Everything that may stand at a lock's key on redis, how it got there, and how it is shown.
fn in_the_way() -> Vec<(Vec<&'static [u8]>, &'static str)> {
    vec![
        (vec![b"SET", b"dlock:job", b"worker-7"], "held by another program: worker-7"),
        (vec![b"SET", b"dlock:job", b""], "held by another program"),
        (
            vec![b"SET", b"dlock:job", b"\x00\xff\x1b[2J\n\xe2\x80\xae"],
            r"held by another program: \u{0}\xff\u{1b}[2J\n\u{202e}",
        ),
        (vec![b"SET", b"dlock:job", b"{\"v\":1,\"id\":\"\"}"], "held by another program: {\"v\":1,\"id\":\"\"}"),
        (vec![b"RPUSH", b"dlock:job", b"a"], "blocked by a redis list at the lock's key"),
        (vec![b"HSET", b"dlock:job", b"a", b"b"], "blocked by a redis hash at the lock's key"),
        (vec![b"SADD", b"dlock:job", b"a"], "blocked by a redis set at the lock's key"),
        (vec![b"ZADD", b"dlock:job", b"1", b"a"], "blocked by a redis zset at the lock's key"),
    ]
}

#[test]
fn what_another_program_left_on_redis_is_shown_and_never_touched() {
    let service = RedisService::fresh();
    for (request, shown) in in_the_way() {
        service.redis.cli(&["DEL", "dlock:job"]);
        service.redis.call(&request);
        let content = || service.redis.call(&[b"DUMP", b"dlock:job"]);
        let before = content();
        assert_ne!(before, Reply::Nil);
        let run = |options: &[&str]| service.run("job").args(options).command(["echo", "overlap"]).output();
        run(&["-n"]).code(75).stdout_is("").stderr_is_one_line(&format!("did not get 'job': {shown}"));
        let waited = run(&["-w", "0.2", "--ttl", "1s"]);
        waited.code(75).stdout_is("").stderr_ends_with_line(&format!("did not get 'job' within 200ms: {shown}"));
        let told = service.queue_up("job", &["-q", "--ttl", "1s"]);
        told.running.signal(Signal::SIGTERM);
        told.running.wait().signal(Signal::SIGTERM).quiet();
        for outcome in [run(&["-n"]), waited] {
            let line = outcome.stderr();
            assert!(!line.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
        assert_eq!(content(), before, "{shown}");
        assert_eq!(service.redis.pttl("dlock:job"), -1, "{shown}");
        assert_eq!(service.queued("job"), 0);
    }
}

#[test]
fn a_long_value_on_redis_is_cut() {
    let service = RedisService::fresh();
    service.redis.cli(&["SET", "dlock:job", &"x".repeat(100_000)]);
    let refused = service.run("job").arg("-n").command(["true"]).output();
    refused.code(75).stderr_is_one_line("held by another program: xxx");
    assert!(refused.stderr().len() < 5000, "{}", refused.stderr().len());
}

#[test]
fn a_foreign_lock_on_redis_is_waited_for_until_it_expires_or_is_deleted() {
    let service = RedisService::fresh();
    // A long ttl of our own: it is not our heartbeat that finds out.
    let options = ["-q", "--ttl", "10m"];
    service.redis.cli(&["SET", "dlock:job", "theirs", "PX", "3000"]);
    let set = boottime();
    service.run("job").args(["-n", "-q"]).command(["true"]).output().code(75);
    let waiter = service.queue_up("job", &options);
    waiter.wait_held();
    let delay = boottime().saturating_sub(set);
    assert!(delay > Duration::from_millis(2900), "it was theirs until it expired: {delay:?}");
    assert!(delay < SIGN_OF_LIFE, "{delay:?}");
    waiter.let_go().success();

    service.redis.cli(&["SET", "dlock:job", "theirs"]);
    let waiter = service.queue_up("job", &options);
    service.wait_blocked(1);
    service.redis.cli(&["DEL", "dlock:job"]);
    let free = boottime();
    waiter.wait_held();
    assert!(boottime().saturating_sub(free) < SIGN_OF_LIFE / 2);
    waiter.let_go().success();
}

/// The interval of a waiter's heartbeats, when its ttl is long.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// What hand-overs cost a redis server: of each, the commands that clients sent and how many clients sent them. None
/// when they took so long that heartbeats may be among them.
fn hand_overs(waiters: usize) -> Option<Vec<(usize, usize)>> {
    let service = RedisService::fresh();
    let started = boottime();
    let options = ["-q", "--ttl", "1h"];
    let mut holder = Gated::spawn(service.scratch(), service.run("job").args(options));
    holder.wait_held();
    let waiters: Vec<_> = (0..waiters).map(|_| service.queue_up("job", &options)).collect();
    let mut blocked = waiters.len();
    service.wait_blocked(blocked);
    let monitor = service.redis.monitor();
    let mut costs = Vec::new();
    let mut known = 0;
    for next in waiters {
        std::mem::replace(&mut holder, next).let_go().success();
        holder.wait_held();
        blocked -= 1;
        let still = service.blocked();
        let all: Vec<Seen> = monitor.all().into_iter().filter(|seen| seen.source != "lua").collect();
        let new = &all[known..];
        let clients: HashSet<_> = new.iter().map(|seen| &seen.source).collect();
        costs.push((new.len(), clients.len()));
        known = all.len();
        if boottime().saturating_sub(started) >= SIGN_OF_LIFE {
            return None;
        }
        assert_eq!(still, blocked, "a waiter that is not next has nothing to do");
    }
    holder.let_go().success();
    Some(costs)
}

#[test]
fn a_hand_over_on_redis_costs_the_same_however_many_wait() {
    let [few, many] = [2, 20].map(|waiters| eventually("undisturbed hand-overs", || hand_overs(waiters)));
    for &(commands, clients) in few.iter().chain(&many) {
        assert!(commands <= 3, "{few:?}, {many:?}");
        // The holder that releases and the next waiter: no other client is woken.
        assert_eq!(clients, 2, "{few:?}, {many:?}");
    }
    assert_eq!(many.len(), 20);
    assert!(many.iter().all(|cost| *cost == few[0]), "{few:?}, {many:?}");
}

#[test]
fn a_release_on_file_wakes_one_waiter() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    let mut waiters: Vec<_> = (0..5).map(|_| service.queue_up("job", &["-q"])).collect();
    // How often the thread that is in the kernel's queue was put to sleep: that it was woken in between is all that can
    // make it more.
    let sleeps = |waiter: &Gated| {
        let pid = waiter.pid();
        let queued = |entry: fs::DirEntry| (entry.file_name() != *pid.to_string()).then_some(entry.path());
        let threads: Vec<_> = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().filter_map(queued).collect();
        assert_eq!(threads.len(), 1, "{threads:?}");
        let status = fs::read_to_string(threads[0].join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        count.trim().parse::<u64>().unwrap()
    };
    let first = waiters.remove(0);
    // In the queue they are before they sleep.
    for waiter in &waiters {
        eventually("the waiter to sleep", || (sleeps(waiter) > 0).then_some(()));
    }
    let before: Vec<_> = waiters.iter().map(sleeps).collect();
    holder.let_go().success();
    first.wait_held();
    assert_eq!(waiters.iter().map(sleeps).collect::<Vec<_>>(), before);
    first.let_go().success();
    for waiter in waiters {
        waiter.wait_held();
        waiter.let_go().success();
    }
}

/// Lets 10 waiters wait for a while, and returns the CPU time in ticks that they used in it.
fn idle<S: Service>(service: &S, holder: &Gated, settled: impl Fn()) -> u64 {
    const WAITERS: usize = 10;
    let waiters: Vec<_> = (0..WAITERS).map(|_| service.queue_up("job", &["-q", "--ttl", "60s"])).collect();
    settled();
    let all: Vec<i32> = waiters.iter().flat_map(|waiter| [waiter.pid(), waiter.running.guard_pid()]).collect();
    let ticks = || all.iter().map(|&pid| process::cpu_ticks(pid).unwrap()).sum::<u64>();
    let before = ticks();
    // This is what is measured, and nothing is waited for.
    thread::sleep(Duration::from_secs(1));
    let used = ticks() - before;
    for pid in all {
        // All of them share the pages of the program itself.
        let own = process::anonymous_kib(pid).unwrap();
        assert!(own < 4 * 1024, "pid {pid} uses {own} KiB of its own");
    }
    assert!(holder.running.is_running());
    assert_eq!(service.queued("job"), WAITERS);
    used
}

#[test]
fn waiting_on_file_costs_next_to_nothing() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    let used = idle(&service, &holder, || {});
    assert!(used <= 5, "10 waiters used {used} ticks in a second");
}

#[test]
fn waiting_on_redis_costs_next_to_nothing() {
    let service = RedisService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--ttl", "60s"]));
    holder.wait_held();
    let monitor = std::cell::OnceCell::new();
    let used = idle(&service, &holder, || {
        service.wait_blocked(10);
        let _ = monitor.set(service.redis.monitor());
    });
    let asked = monitor.get().unwrap().client_commands();
    assert!(asked.len() <= 2, "{asked:?}");
    assert!(used <= 5, "10 waiters used {used} ticks in a second");
}

#[test]
fn only_the_next_in_line_looks_after_a_foreign_lock() {
    let service = RedisService::fresh();
    service.redis.cli(&["SET", "dlock:job", "theirs"]);
    let options = ["-q", "--ttl", "10m"];
    let waiters: Vec<_> = (0..5).map(|_| service.queue_up("job", &options)).collect();
    // The first one too, as it is between its looks.
    service.wait_blocked(waiters.len());
    let monitor = service.redis.monitor();
    let seen = eventually("the first to look a few times", || {
        let seen = monitor.all();
        let looks = seen.iter().filter(|seen| runs_script(&seen.words)).count();
        (looks >= 3).then_some(seen)
    });
    let who: HashSet<_> = seen.iter().filter(|seen| seen.source != "lua").map(|seen| &seen.source).collect();
    assert_eq!(who.len(), 1, "{seen:?}");
}

#[test]
fn a_redis_that_restarts_empty_is_ridden_out() {
    let service = RedisService::fresh();
    service.redis.cli(&["SET", "dlock:job", "theirs"]);
    let waiter = service.queue_up("job", &["-w", "60", "--ttl", "2s"]);
    waiter.running.wait_stderr("waiting for 'job': held by another program: theirs");
    service.redis.restart();
    waiter.wait_held();
    service.assert_held("job");
    let outcome = waiter.let_go();
    outcome.code(0);
    // The outage is told where it lasted long enough to be met.
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for 'job': ")), "{outcome:?}");
    service.assert_free("job");
}

#[test]
fn a_redis_that_restarts_with_its_data_is_ridden_out() {
    let service = RedisService::on(Redis::with(["--appendonly", "yes", "--appendfsync", "always"]));
    service.redis.cli(&["SET", "dlock:job", "theirs"]);
    let waiter = service.queue_up("job", &["-q", "--ttl", "2s"]);
    // It knows that it waits: until then it is first contact that fails.
    service.wait_blocked(1);
    service.redis.kill();
    service.redis.restart();
    // It looks at the new server, sees that nothing has changed, and waits on.
    service.wait_blocked(1);
    assert!(!waiter.has_held());
    service.redis.cli(&["DEL", "dlock:job"]);
    waiter.wait_held();
    waiter.let_go().success();
}

#[test]
fn an_outage_is_ridden_out_until_the_wait_runs_out() {
    type Break = fn(&Redis);
    let breaks: [(Break, &str); 2] =
        [(Redis::kill, "could not reach redis://"), (Redis::stop, "did not answer within")];
    for (break_it, reason) in breaks {
        let service = RedisService::fresh();
        service.redis.cli(&["SET", "dlock:job", "theirs"]);
        let waiter = service.queue_up("job", &["-w", "1.5", "--ttl", "2s"]);
        waiter.running.wait_stderr("waiting for 'job'");
        break_it(&service.redis);
        let outcome = waiter.running.wait();
        outcome.code(69).stdout_is("").stderr_ends_with_line("did not get 'job' within 1s 500ms: ");
        let told = outcome.stderr();
        let (last, lines) = (told.lines().next_back().unwrap(), told.lines().count());
        assert!(lines <= 3 && last.contains(reason), "{outcome:?}");
        let over = outcome.elapsed().checked_sub(Duration::from_millis(1500)).expect("it gave up too soon");
        // A request that has begun, a last look, and two tries to take back what was asked for.
        assert!(over < Duration::from_secs(3), "it waited longer than it was told: {outcome:?}");
    }
}

#[test]
fn what_a_silent_server_may_still_grant_is_taken_back() {
    // At first contact, where there is nobody to tell about the grant any more when it comes.
    let service = RedisService::fresh();
    for options in [&["--ttl", "3s"][..], &["--ttl", "3s", "-n"]] {
        service.redis.stop();
        let failed = service.run("job").args(options).command(["echo", "ran"]).output();
        failed.code(69).stdout_is("").stderr_is_one_line("did not get 'job': ");
        settles_free(&service);
    }

    // And when a wait runs out, or a signal ends it: the lock was held when the server froze, and is free when it goes on.
    for options in [&["-q", "--ttl", "3s", "-w", "1"][..], &["-q", "--ttl", "3s"]] {
        let set = boottime();
        service.redis.cli(&["SET", "dlock:job", "theirs", "PX", "2500"]);
        let waiter = service.queue_up("job", options);
        service.wait_blocked(1);
        service.redis.stop();
        if options.contains(&"-w") {
            waiter.running.wait().code(69).stdout_is("").stderr_is_one_line("did not answer");
        } else {
            waiter.running.signal(Signal::SIGTERM);
            waiter.running.wait().signal(Signal::SIGTERM).stdout_is("").quiet();
        }
        // A frozen server has nobody told that a key has expired.
        let expired = set + Duration::from_millis(2600);
        eventually("the foreign lock to expire", || (boottime() > expired).then_some(()));
        settles_free(&service);
    }
}

/// Lets a frozen server go on, and fails the test unless `job` is free once it has done all that it was asked.
fn settles_free(service: &RedisService) {
    service.redis.cont();
    eventually("the server to see that nobody is there", || service.redis.clients().is_empty().then_some(()));
    assert_eq!(service.redis.get("dlock:job"), None);
    assert_eq!(service.queued("job"), 0);
}

#[test]
fn verbose_says_how_long_the_wait_was_and_what_was_granted() {
    let service = RedisService::fresh();
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-v", "--ttl", "7s"]);
    waiter.running.wait_stderr("waiting for 'job'");
    holder.let_go().success();
    let line = waiter.running.wait_stderr("acquired 'job' at ");
    assert!(line.contains(", ttl 7s, after "), "{line:?}");
    waiter.let_go().code(0).stderr_ends_with_line("released 'job'");
}

#[test]
fn verbose_says_when_the_server_is_in_trouble_while_the_lock_is_held() {
    let service = RedisService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-v", "--ttl", "15s"]));
    holder.wait_held();
    service.redis.stop();
    holder.running.wait_stderr("could not renew it, trying again: the backend does not answer");
    service.redis.cont();
    holder.running.wait_stderr("renewed again");
    holder.let_go().code(0).stderr_ends_with_line("released 'job'");
}

#[test]
fn without_a_terminal_a_new_holder_is_told_before_the_next_line_is_due() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    let next = service.queue_up("job", &["-q"]);
    let waiter = service.queue_up("job", &[]);
    let who = |pid: i32| format!("pid {pid} (sh), since ");
    let line = waiter.running.wait_stderr(&who(holder.pid()));
    assert!(line.starts_with("dlock: waiting for 'job': held by "), "{line:?}");
    let pid = next.pid();
    holder.let_go().success();
    let line = waiter.running.wait_stderr(&who(pid));
    assert!(line.starts_with("dlock: waiting for 'job': ") && line.contains("s so far; held by "), "{line:?}");
    assert!(!line.contains(" 30s so far"), "when the next line is due: {line:?}");
    assert!(line.ends_with("; you are next"), "{line:?}");
    next.let_go().success();
    let outcome = waiter.let_go();
    outcome.code(0);
    assert_eq!(outcome.stderr().lines().count(), 2, "{outcome:?}");
}

#[test]
fn on_a_narrow_terminal_a_long_name_leaves_room_for_what_matters() {
    let service = FileService::fresh();
    let key = "a-name-that-is-longer-than-the-terminal-is-wide";
    let holder = service.hold(key);
    let wait = |columns: u16, term: &str| {
        let mut command = Command::new("sh");
        // The size is set before dlock starts.
        command.args(["-c", r#"read -r _; exec "$0" run --key "$1" --backend "$2" -- true"#]);
        command.arg(*DLOCK).args([key, &service.url()]).current_dir(service.scratch().root());
        command.env_clear().envs([("TERM", term), ("PATH", "/usr/bin:/bin")]);
        let terminal = Pty::spawn(&mut command);
        terminal.resize(24, columns);
        terminal.send("\n");
        terminal
    };
    let narrow = wait(40, "xterm");
    // 39 columns, of which the name has a quarter.
    narrow.expect("\r\x1b[2Kdlock: 'a-name…': waiting 0s, you are …");
    let dumb = wait(40, "dumb");
    let who = format!("pid {} (sh), since ", holder.pid());
    let line = dumb.expect(&who);
    assert!(line.contains(&format!("dlock: waiting for '{key}': held by ")) && !line.contains('\x1b'), "{line:?}");
    holder.let_go().success();
    narrow.expect(&format!("\r\x1b[2Kdlock: '{key}': got it after "));
    assert!(narrow.wait().success() && dumb.wait().success());
    assert!(!dumb.screen().contains("got it"), "{:?}", dumb.screen());
}
