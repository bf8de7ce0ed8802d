/*!
Checks that a test's own clock moves what it claims to move, runs as fast as it claims to, and affects nothing else.
*/

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::clock::{ClockShim, HOUR, SLEW};
use crate::support::daemon::need_python;
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::RedisGroup;
use crate::support::rendezvous::{Fifo, boottime, eventually, last_until};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, Reply};
use crate::support::service::{FileService, Gated, Service};
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// How much later one of two clocks that agree may be read, in seconds.
const LATER: i64 = 600;

/// The true time in seconds.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// Fails the test unless `shown`, read just now, is from a clock that is `ahead` seconds ahead.
#[track_caller]
fn assert_ahead(shown: i64, seconds: i64) {
    let ahead = shown - now();
    assert!((seconds - LATER..=seconds).contains(&ahead), "{ahead} s ahead instead of {seconds}");
}

/// The server's clock, in seconds.
fn time_of(redis: &Redis) -> i64 {
    redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap()
}

/// A program that prints, for every line that it reads, what each function of the C library returns, in microseconds.
const CLOCKS: &str = r"
import ctypes, sys
libc = ctypes.CDLL(None)
class Pair(ctypes.Structure):
    _fields_ = [('seconds', ctypes.c_long), ('rest', ctypes.c_long)]
def clock(number):
    pair = Pair()
    assert libc.clock_gettime(number, ctypes.byref(pair)) == 0 and 0 <= pair.rest < 10**9, pair.rest
    return pair.seconds * 10**6 + pair.rest // 1000
def day():
    pair = Pair()
    assert libc.gettimeofday(ctypes.byref(pair), None) == 0 and 0 <= pair.rest < 10**6, pair.rest
    return pair.seconds * 10**6 + pair.rest
libc.time.restype = ctypes.c_long
stored = ctypes.c_long()
def time():
    seconds = libc.time(ctypes.byref(stored))
    assert seconds == stored.value
    return seconds * 10**6
for _ in sys.stdin:
    print(clock(0), clock(5), day(), time(), libc.time(None) * 10**6, clock(1), clock(4), clock(6), clock(7), flush=True)
assert libc.clock_gettime(99, ctypes.byref(Pair())) == -1
";

#[test]
#[ignore = "of the support itself: tests/run all"]
fn every_way_to_ask_for_the_wall_clock_is_moved_and_no_other_clock() {
    let clock = ClockShim::new();
    let mut python = Command::new(need_python("ctypes", "python3"));
    clock.attach(&mut python);
    python.args(["-c", CLOCKS]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    assert!(!clock.is_in(std::process::id().cast_signed()));
    let (mut questions, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for seconds in [0, HOUR, -HOUR, 100 * 365 * 24 * HOUR, 0] {
        clock.set(seconds);
        assert_eq!(clock.ahead(), seconds);
        writeln!(questions).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let shown: Vec<i64> = line.split_whitespace().map(|word| word.parse::<i64>().unwrap() / 1_000_000).collect();
        let (moved, others) = shown.split_at(5);
        assert_eq!(others.len(), 4);
        for &shown in moved {
            assert_ahead(shown, seconds);
        }
        let boottime = boottime().as_secs().cast_signed();
        // CLOCK_MONOTONIC, in three kinds, does not count suspends.
        assert!(others.iter().all(|other| *other <= boottime), "{others:?} {boottime}");
        assert!((0..LATER).contains(&(boottime - others[3])), "{others:?} {boottime}");
        assert!(clock.is_in(child.id().cast_signed()));
    }
    drop(questions);
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_rate_is_that_of_every_clock_and_of_the_raw_one_only_where_the_oscillator_is_meant() {
    let clock = ClockShim::new();
    let mut python = Command::new(need_python("ctypes", "python3"));
    clock.attach(&mut python);
    python.args(["-c", CLOCKS]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let (mut questions, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut ask = || {
        writeln!(questions).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        line.split_whitespace().map(|word| word.parse::<i64>().unwrap()).collect::<Vec<_>>()
    };
    let mut last = ask();
    // In microseconds, after a second each.
    for (rate, raw_too) in [(SLEW, false), (-SLEW, false), (0, false), (SLEW, true), (9 * SLEW, true), (0, true)] {
        if raw_too {
            clock.drift(rate);
        } else {
            clock.slew(rate);
        }
        let (first, before) = (ask(), boottime());
        last_until(before + Duration::from_secs(1));
        let (then, passed) = (ask(), boottime() - before);
        let passed = i64::try_from(passed.as_micros()).unwrap();
        // The wall clock, its coarse variant, the day; monotonic, raw, its coarse variant, with suspends.
        for (place, gains) in [(0, true), (1, true), (2, true), (5, true), (6, raw_too), (7, true), (8, true)] {
            let expected = if gains { passed + passed * rate / 1_000_000 } else { passed };
            let shown = then[place] - first[place];
            assert!((shown - expected).abs() < 30_000, "clock {place} at {rate}: {shown} instead of {expected}");
            assert!(first[place] >= last[place] - 10_000, "clock {place} jumped back at {rate}");
        }
        last = then;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let meant = clock.true_time(Duration::from_micros(last[0].unsigned_abs()), now);
        assert!(now - meant < Duration::from_millis(30), "{meant:?} {now:?}");
        let length = clock.true_length(Duration::from_secs(1)).as_micros();
        assert_eq!(length, u128::try_from(1_000_000_000_000 / (1_000_000 + rate)).unwrap());
    }
    drop(questions);
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn the_keys_of_a_redis_expire_by_the_rate_of_its_clock_and_a_monitor_knows() {
    let redis = Redis::with_clock([""; 0]);
    redis.clock().drift(10 * SLEW);
    let monitor = redis.monitor();
    let mut stranger = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    let before = boottime();
    stranger.write_all(b"SET k v PX 4000\r\n").unwrap();
    eventually("the request", || redis.get("k"));
    let expected = redis.expiry("k").unwrap();
    eventually("its end", || redis.get("k").is_none().then_some(()));
    let after = boottime();
    assert!(
        (Duration::from_millis(2120)..Duration::from_millis(2400)).contains(&(after - before)),
        "{:?}",
        after - before
    );
    for end in [expected, monitor.expiry("k", after)] {
        assert!(end <= after && after - end < Duration::from_millis(160), "{end:?} {after:?}");
    }
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_ends_sessions_by_the_rate_of_its_clock() {
    let zookeeper = ZooKeeper::with(ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::single() });
    let lasts = || {
        let proxy = Proxy::to(zookeeper.server(0).port());
        let scratch = Scratch::new();
        let url = format!("zk://127.0.0.1:{}", proxy.port());
        let mut line = Fifo::new(scratch.path("held"));
        let work = format!("{}; sleep 1000", line.say("held"));
        let holder =
            scratch.dlock().run("job").backend(url).args(["-t", "4s", "--on-lost", "kill"]).shell(work).spawn();
        line.expect("held");
        let nodes = || zookeeper.children("/dlock/job").unwrap_or_default().len();
        proxy.set(Mode::Silent);
        let silent = boottime();
        assert_eq!(nodes(), 3);
        eventually("the end of the session", || (nodes() == 0).then_some(()));
        drop(holder);
        boottime() - silent
    };
    let right = lasts();
    zookeeper.server(0).clock().drift(12 * SLEW);
    let fast = lasts();
    assert!(right > Duration::from_secs(3) && fast < right * 3 / 4, "{right:?} {fast:?}");
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_clock_whose_file_is_gone_does_not_quietly_show_the_right_time() {
    let clock = ClockShim::new();
    let mut command = Command::new("true");
    clock.attach(&mut command);
    command.env("CLOCK_SHIM_FILE", "/nonexistent");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_redis_is_moved_while_it_runs_and_stays_moved_over_a_restart() {
    let (redis, other) = (Redis::with_clock([""; 0]), Redis::start());
    assert!(redis.clock().is_in(redis.pid()));
    let uptime = |redis: &Redis| {
        let info = redis.cli(&["INFO", "server"]);
        info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap().parse::<i64>().unwrap()
    };
    assert_ahead(time_of(&redis), 0);
    for seconds in [HOUR, -HOUR, 0] {
        redis.clock().set(seconds);
        assert_ahead(time_of(&redis), seconds);
        assert_ahead(time_of(&other), 0);
        assert!(uptime(&redis).abs() <= 2 * HOUR);
    }
    redis.clock().step(HOUR);
    redis.clock().step(HOUR);
    redis.restart();
    assert_ahead(time_of(&redis), 2 * HOUR);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn the_keys_of_a_redis_expire_by_the_clock_that_was_moved() {
    let redis = Redis::with_clock([""; 0]);
    let set = || redis.cli(&["SET", "k", "v", "PX", "30000"]);
    set();
    // Expires immediately.
    redis.clock().set(HOUR);
    assert_eq!((redis.pttl("k"), redis.get("k")), (-2, None));
    set();
    assert!((1..=30_000).contains(&redis.pttl("k")));
    // An hour too late.
    redis.clock().set(0);
    assert!((3_600_000..=3_630_000).contains(&redis.pttl("k")), "{}", redis.pttl("k"));
    redis.clock().set(HOUR);
    assert!((1..=30_000).contains(&redis.pttl("k")));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_monitor_tells_the_true_time_of_what_a_redis_did_by_another_clock() {
    let redis = Redis::with_clock([""; 0]);
    let monitor = redis.monitor();
    let mut stranger = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    for (number, seconds) in [HOUR, 0, -HOUR, -2 * HOUR, 5].into_iter().enumerate() {
        redis.clock().set(seconds);
        let before = boottime();
        stranger.write_all(b"ECHO x\r\n").unwrap();
        eventually("the request", || (monitor.all().len() > number).then_some(()));
        let after = boottime();
        let at = monitor.all().last().unwrap().at;
        // The server may have looked at its clock a moment before it was moved.
        let early = before.saturating_sub(Duration::from_secs(6));
        assert!((early..=after).contains(&at), "{before:?} {at:?} {after:?}, moved by {seconds}");
    }
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn servers_of_a_group_are_moved_one_by_one() {
    let group = RedisGroup::with_clocks(3, ["--appendonly", "yes"]);
    group[1].clock().set(HOUR);
    group[2].clock().set(-HOUR);
    for (redis, seconds) in group.iter().zip([0, HOUR, -HOUR]) {
        assert_ahead(time_of(redis), seconds);
        assert_eq!(redis.call(&[b"CONFIG", b"GET", b"appendonly"]).array().last(), Some(&Reply::Bulk(b"yes".into())));
    }
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_zookeeper_is_moved_while_it_runs() {
    let zookeeper = ZooKeeper::with(ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::ensemble() });
    let leader = zookeeper.leader();
    for (number, server) in zookeeper.servers().iter().enumerate() {
        assert!(server.clock().is_in(server.pid()), "server {number}");
    }
    let made_at = |path: &str| {
        zookeeper.create(path, "");
        zookeeper.get(path).unwrap().ctime / 1000
    };
    assert_ahead(made_at("/a"), 0);
    // The leader's clock is what counts.
    let server = |index: usize| zookeeper.server(index).clock();
    server((leader + 1) % 3).set(HOUR);
    assert_ahead(made_at("/b"), 0);
    server(leader).set(HOUR);
    assert_ahead(made_at("/c"), HOUR);
    server(leader).set(-HOUR);
    assert_ahead(made_at("/d"), -HOUR);
    assert_eq!(zookeeper.leader(), leader);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_dlock_is_moved_while_it_runs() {
    let (file, clock) = (FileService::fresh(), ClockShim::new());
    // What a lock file says of its holder.
    let since = || {
        let text = fs::read_to_string(file.scratch().lock_dir().join("job.lock")).unwrap();
        let (_, rest) = text.split_once("\"since\":").unwrap_or_else(|| panic!("no time: {text}"));
        rest.split_once(',').unwrap().0.parse::<i64>().unwrap() / 1000
    };
    let mut first = 0;
    for seconds in [-HOUR, HOUR] {
        clock.set(seconds);
        let holder = Gated::spawn(file.scratch(), file.run("job").clock(&clock));
        let token = holder.token();
        assert!(clock.is_in(holder.pid()) && process::is_alive(holder.pid()));
        assert_ahead((token / 1_000_000).cast_signed(), seconds);
        assert_ahead(since(), seconds);
        assert!(token > first);
        first = token;
        holder.let_go().success();
    }
    // A waiter sees its clock move too: it was an hour behind when it started.
    clock.set(-HOUR);
    let holder = file.hold("job");
    let waiter = Gated::spawn(file.scratch(), file.run("job").clock(&clock));
    waiter.running.wait_stderr("waiting for 'job'");
    clock.set(2 * HOUR);
    holder.let_go().success();
    assert_ahead((waiter.token() / 1_000_000).cast_signed(), 2 * HOUR);
    assert_ahead(since(), 2 * HOUR);
    waiter.let_go().code(0).stderr_is_one_line("waiting for 'job'");
}
