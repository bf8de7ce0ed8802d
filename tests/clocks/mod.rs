/*!
Wall clocks that jump by an hour while locks are held and waited for: a server's clock, the clocks of several servers,
dlock's own.

Leases are measured at the client, by a clock that nobody sets. The wall clock of a redis server still decides when its
keys expire: set forward, the server forgets its locks, which is a documented window. Set back, it loses nothing.
*/

mod rates;

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::clock::{ClockShim, HOUR};
use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::redis_services::Redlock5;
use crate::support::redis_sets::RedisGroup;
use crate::support::rendezvous::{Fifo, Gate, boottime, eventually, last_until};
use crate::support::scene::{KEY, assert_lost};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// The lease in these tests, unless a test says otherwise. It is long enough for a busy machine, also where a server's
/// answer proves less than a whole lease.
fn ttl<S: Service>() -> Duration {
    Duration::from_secs(if S::KIND == "zookeeper" { 4 } else { 2 })
}

/// The options for that lease, and for no messages about waiting.
fn options<S: Service>() -> [&'static str; 3] {
    ["-q", "-t", if S::KIND == "zookeeper" { "4s" } else { "2s" }]
}

/// `dlock run` for the key `job`, with [`options`].
fn run<S: Service>(service: &S) -> Dlock {
    service.run("job").args(options::<S>())
}

#[track_caller]
fn hold<S: Service>(service: &S) -> Gated {
    let holder = Gated::spawn(service.scratch(), run(service));
    holder.wait_held();
    holder
}

#[track_caller]
fn queue_up<S: Service>(service: &S) -> Gated {
    service.queue_up("job", &options::<S>())
}

/// Waits for the next waiter to hold the lock, which was free at `since` or would be when its lease expired, and
/// returns its token.
#[track_caller]
fn takes_over<S: Service>(waiter: &Gated, since: Duration) -> u64 {
    let token = waiter.token();
    let delay = boottime().saturating_sub(since);
    assert!(
        delay < ttl::<S>() + S::EXPIRY_GRANULARITY + Duration::from_secs(2),
        "the next one came only after {delay:?}"
    );
    token
}

/// Checks that no holder and no waiter notices `fault`: the lock stays held, passes on when it is released, and passes
/// on from a killed holder when its lease expires at the latest. Tokens rise, and nothing is left behind.
#[track_caller]
fn is_not_noticed<S: Service>(service: &S, fault: impl FnOnce()) {
    let holder = hold(service);
    let waiters = [(); 2].map(|()| queue_up(service));
    fault();
    last_until(boottime() + ttl::<S>() * 3 / 2);
    let is_lost = waiters.iter().any(Gated::has_held) || !holder.running.is_running();
    assert!(!is_lost, "it was lost by\n{:?}", holder.running);
    service.assert_held("job");
    let mut last = holder.token();
    let released = boottime();
    holder.let_go().success();
    // In queue order, where the service keeps one.
    let first = eventually("the next one", || waiters.iter().position(Gated::has_held));
    assert!(!S::IN_ORDER || first == 0);
    let mut waiters = Vec::from(waiters);
    let next = waiters.remove(first);
    let token = takes_over::<S>(&next, released);
    assert!(token > last, "{token} after {last}");
    last = token;
    let [second] = waiters.try_into().ok().unwrap();
    service.wait_queued("job", 1);
    // On file its command lives on and stays locked, unless it is killed too.
    let mut all = process::descendants(next.pid());
    all.push(next.pid());
    all.iter().rev().for_each(|&pid| process::signal(pid, Signal::SIGKILL));
    let killed = boottime();
    drop(next);
    let token = takes_over::<S>(&second, killed);
    assert!(token > last, "{token} after {last}");
    second.let_go().success();
    run(service).shell(format!("[ $DLOCK_TOKEN -gt {token} ]")).output().success();
    eventually("the end of all traces", || service.litter(&["job"]).is_empty().then_some(()));
}

/// Sets a clock forward by an hour, waits long enough for a lease to be lost, and then sets it back by two hours.
fn ahead_and_behind<S: Service>(clock: &ClockShim) {
    clock.set(HOUR);
    last_until(boottime() + ttl::<S>());
    clock.set(-HOUR);
}

mod redis {
    use super::*;

    /// A store that must never be written twice: it keeps the last value written with the largest token, and refuses
    /// writes with a smaller one.
    struct FencedStore {
        directory: PathBuf,
    }

    impl FencedStore {
        fn new(scratch: &Scratch) -> Self {
            Self { directory: scratch.directory("store", 0o755) }
        }

        /// Shell code that writes `text` with the token of its command.
        fn write(&self, text: &str) -> String {
            format!(
                "(cd '{}'; flock 9; [ ! -e kept ] || read -r last rest < kept
                if [ \"$DLOCK_TOKEN\" -lt \"${{last:-0}}\" ]; then echo {text} >> refused; exit 1; fi
                echo \"$DLOCK_TOKEN {text}\" > kept) 9> '{0}/lock'",
                self.directory.display()
            )
        }

        fn kept(&self) -> String {
            let kept = fs::read_to_string(self.directory.join("kept")).unwrap_or_default();
            kept.split_once(' ').map_or(String::new(), |(_, text)| text.trim_end().to_owned())
        }

        fn refused(&self) -> String {
            fs::read_to_string(self.directory.join("refused")).unwrap_or_default()
        }
    }

    fn with_clock() -> RedisService {
        RedisService::on(Redis::with_clock([""; 0]))
    }

    /// The documented window: the server forgets the lock at once, and until the next renewal notices, only the token
    /// protects.
    #[test]
    fn an_hour_ahead_the_lock_is_lost_at_the_next_renewal_and_until_then_the_token_protects() {
        let service = with_clock();
        let (redis, scratch) = (&service.redis, service.scratch());
        let store = FencedStore::new(scratch);
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("late")));
        let work = format!(
            "{}; {}; {}; {}; {}; sleep 1000",
            store.write("first"),
            words.say("held"),
            gate.wait(),
            store.write("late"),
            words.say("late")
        );
        let monitor = redis.monitor();
        // Renewed every two seconds.
        let holder = service.run("job").args(["-t", "6s"]).shell(work).spawn();
        words.expect("held");
        let waiter = queue_up(&service);
        monitor.wait_renewed(KEY);
        let renewed = boottime();
        redis.clock().set(HOUR);
        // Immediately, by a waiter that finds the lock free.
        let second = waiter.token();
        gate.open();
        words.expect("late");
        assert!(holder.is_running());
        waiter.let_go().success();
        run(&service).shell(format!("[ $DLOCK_TOKEN -gt {second} ] && {}", store.write("second"))).output().success();
        assert_eq!(store.kept(), "second");
        assert_lost(&holder.wait(), "its key is ");
        let noticed = boottime() - renewed;
        assert!(noticed < Duration::from_secs(5), "noticed only after {noticed:?}");
        // A lock taken and released while the clock was wrong causes no trouble once the clock is right again.
        redis.clock().set(0);
        let third = hold(&service);
        assert!(third.token() > second);
        third.let_go().success();
        eventually("the end of all traces", || service.litter(&["job"]).is_empty().then_some(()));
    }

    /// What a holder writes after the next one has written is refused, although the server's clock is an hour ahead.
    #[test]
    fn an_hour_ahead_a_late_write_is_refused() {
        let service = with_clock();
        let store = FencedStore::new(service.scratch());
        let (mut words, gate) = (Fifo::new(service.scratch().path("words")), Gate::new(service.scratch().path("late")));
        let late = format!("{}; {}; {}; {}", words.say("held"), gate.wait(), store.write("late"), words.say("late"));
        let monitor = service.redis.monitor();
        let holder = service.run("job").args(["-t", "6s"]).shell(format!("{late}; sleep 1000")).spawn();
        words.expect("held");
        monitor.wait_renewed(KEY);
        service.redis.clock().set(HOUR);
        run(&service).arg("-n").shell(store.write("next")).output().success();
        gate.open();
        words.expect("late");
        assert_eq!((&*store.kept(), &*store.refused()), ("next", "late\n"));
        assert_lost(&holder.wait(), "its key is gone from the server");
    }

    #[test]
    fn an_hour_behind_nothing_is_lost() {
        let service = with_clock();
        is_not_noticed(&service, || service.redis.clock().set(-HOUR));
    }

    #[test]
    fn locks_from_while_it_was_an_hour_ahead_are_no_trouble_afterwards() {
        let service = with_clock();
        service.redis.clock().set(HOUR);
        is_not_noticed(&service, || service.redis.clock().set(0));
    }

    /// Left alone, redis would keep the key for another hour.
    #[test]
    fn an_hour_behind_the_lock_of_a_holder_that_was_killed_passes_on_when_its_lease_ends() {
        let service = with_clock();
        let (holder, waiter) = (hold(&service), queue_up(&service));
        process::signal(holder.pid(), Signal::SIGKILL);
        service.redis.clock().set(-HOUR);
        let killed = boottime();
        holder.running.wait().signal(Signal::SIGKILL).stderr();
        // Redis measures a blocking wait by the same clock. dlock gives up first, and then a new lease begins.
        takes_over::<RedisService>(&waiter, killed + ttl::<RedisService>() + Duration::from_secs(1));
        waiter.let_go().success();
    }

    /// Nor would it take waiters that died for live ones.
    #[test]
    fn an_hour_behind_a_dead_waiter_delays_the_others_by_seconds() {
        let service = with_clock();
        let holder = hold(&service);
        let (dead, waiter) = (queue_up(&service), queue_up(&service));
        process::signal(dead.pid(), Signal::SIGKILL);
        dead.running.wait().signal(Signal::SIGKILL);
        service.redis.clock().set(-HOUR);
        let before = boottime();
        holder.let_go().success();
        // Longer than without the fault: a live waiter needs time for another heartbeat, half a ttl and three seconds.
        takes_over::<RedisService>(&waiter, before + Duration::from_secs(6));
        waiter.let_go().success();
    }
}

mod redlock {
    use super::*;

    #[test]
    fn one_server_of_five_whose_clock_is_moved_is_not_noticed() {
        let service = Redlock5::on(RedisGroup::with_clocks(5, [""; 0]));
        is_not_noticed(&service, || ahead_and_behind::<Redlock5>(service.servers[0].clock()));
    }
}

mod zookeeper {
    use super::*;

    fn one_of_three(is_leader: bool) {
        let options = ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::ensemble() };
        let service = ZooKeeperService::on(ZooKeeper::with(options));
        let leader = service.zookeeper.leader();
        let index = if is_leader { leader } else { (leader + 1) % 3 };
        is_not_noticed(&service, || ahead_and_behind::<ZooKeeperService>(service.zookeeper.server(index).clock()));
        assert_eq!(service.zookeeper.leader(), leader);
    }

    #[test]
    fn a_leader_whose_clock_is_moved_is_not_noticed() {
        one_of_three(true);
    }

    #[test]
    fn a_follower_whose_clock_is_moved_is_not_noticed() {
        one_of_three(false);
    }
}

/// The clock of the machine that dlock runs on.
mod client {
    use super::*;

    /// An offset in seconds from now to a date in 1969, before the epoch.
    fn before_1970() -> i64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        -now.as_secs().cast_signed() - 24 * HOUR
    }

    fn with_clock<S: Service>(service: &S, clock: &ClockShim, options: &[&str]) -> Dlock {
        run(service).args(options).clock(clock)
    }

    /// Waits in the queue, with a clock of its own.
    #[track_caller]
    fn wait_with<S: Service>(service: &S, clock: &ClockShim, options: &[&str]) -> Gated {
        let before = service.queued("job");
        let waiter = Gated::spawn(service.scratch(), with_clock(service, clock, options));
        service.wait_queued("job", before + 1);
        waiter
    }

    fn moved_while_it_holds_and_waits<S: Service>() {
        let service = S::fresh();
        let clocks = [(); 3].map(|()| ClockShim::new());
        let holder = Gated::spawn(service.scratch(), with_clock(&service, &clocks[0], &[]));
        let first = holder.token();
        let waiter = wait_with(&service, &clocks[1], &[]);
        assert!(clocks[0].is_in(holder.pid()) && clocks[1].is_in(waiter.pid()));
        let impatient = with_clock(&service, &clocks[2], &["-w", "3s"]).command(["echo", "overlap"]).spawn();
        let started = boottime();
        for seconds in [HOUR, -HOUR, before_1970(), HOUR] {
            for clock in &clocks {
                clock.set(seconds);
            }
            last_until(boottime() + ttl::<S>() / 2);
        }
        assert!(holder.running.is_running() && !waiter.has_held(), "it was lost by\n{:?}", holder.running);
        service.assert_held("job");
        // How long it waits is measured by another clock.
        let outcome = impatient.wait();
        outcome.code(75).stdout_is("").quiet();
        let elapsed = boottime() - started;
        assert!(outcome.elapsed() >= Duration::from_secs(3) && elapsed < Duration::from_secs(20), "{outcome:?}");
        clocks[1].set(-HOUR);
        let released = boottime();
        holder.let_go().success();
        let second = takes_over::<S>(&waiter, released);
        assert!(second > first, "{second} after {first}");
        waiter.let_go().success();
        eventually("the end of all traces", || service.litter(&["job"]).is_empty().then_some(()));
    }

    /// Checks that tokens rise when every client has a different clock.
    fn tokens_rise<S: Service>() {
        let service = S::fresh();
        let mut last = 0;
        for seconds in [0, HOUR, -HOUR, 0, before_1970(), HOUR, -HOUR] {
            let clock = ClockShim::new();
            clock.set(seconds);
            let holder = Gated::spawn(service.scratch(), with_clock(&service, &clock, &[]));
            let token = holder.token();
            assert!(token > last && token < 1 << 53, "{token} after {last}");
            last = token;
            holder.let_go().success();
        }
    }

    /// Checks what is said about the holder by a client whose clock differs.
    fn times_are_no_nonsense<S: Service>() {
        let service = S::fresh();
        for (theirs, ours) in [(HOUR, 0), (0, HOUR), (-HOUR, HOUR), (HOUR, before_1970()), (before_1970(), 0)] {
            let [their, our] = [theirs, ours].map(|seconds| {
                let clock = ClockShim::new();
                clock.set(seconds);
                clock
            });
            let holder = Gated::spawn(service.scratch(), with_clock(&service, &their, &[]));
            holder.wait_held();
            for options in [&["-n"][..], &["-w", "0.1"]] {
                let refused = service.run("job").args(options).clock(&our).command(["echo", "overlap"]).output();
                refused.code(75).stdout_is("").stderr_ends_with_line("did not get job");
                for line in refused.stderr().lines().filter(|line| line.contains("held by ")) {
                    assert_sane(line);
                }
            }
            holder.let_go().success();
        }
    }

    /// Checks that a time is written as `…, since 2026-01-31T12:00:00Z (1h 2s)` and in no other way.
    #[track_caller]
    fn assert_sane(line: &str) {
        let Some((_, time)) = line.split_once(", since ") else { return };
        let (date, rest) = time.split_once(" (").unwrap_or_else(|| panic!("no age: {line}"));
        let age = rest.split_once(')').unwrap_or_else(|| panic!("no age: {line}")).0;
        let is_date = date.len() == 20 && date.ends_with('Z') && ["19", "20", "21"].contains(&&date[..2]);
        assert!(is_date, "{date:?} in {line}");
        let unit = |word: &str| word.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
        let words: Vec<String> = age.split(' ').map(unit).collect();
        let known = ["years", "year", "months", "month", "days", "day", "h", "m", "s"];
        assert!(words.iter().all(|word| known.contains(&&**word)) && !age.contains('-'), "{age:?} in {line}");
    }

    macro_rules! clients_of {
        ($($name:ident: $service:ty;)*) => {
            $(mod $name {
                use super::*;

                #[test]
                fn moved_while_it_holds_and_waits() {
                    super::moved_while_it_holds_and_waits::<$service>();
                }

                #[test]
                fn tokens_rise_whatever_the_holders_clock_says() {
                    super::tokens_rise::<$service>();
                }

                #[test]
                fn what_is_said_about_a_holder_is_no_nonsense() {
                    super::times_are_no_nonsense::<$service>();
                }
            })*
        };
    }

    clients_of! {
        file: FileService;
        redis: RedisService;
        redlock: Redlock5;
        etcd: EtcdService;
        zookeeper: ZooKeeperService;
    }
}

/// The host is rebooted with an earlier clock: everything in memory is lost.
mod restart {
    use super::*;

    /// A simulated host: what it keeps on disk, how often it was booted, and its clock.
    struct Host {
        scratch: Scratch,
        clock: ClockShim,
        starts: Cell<u32>,
    }

    impl Host {
        fn new() -> Self {
            let scratch = Scratch::new();
            scratch.directory("disk", 0o755);
            fs::write(scratch.path("boot"), "0").unwrap();
            Self { scratch, clock: ClockShim::new(), starts: Cell::new(0) }
        }

        /// Boots the host again with a clock that is `seconds` ahead of true time.
        fn start(&self, seconds: i64) {
            self.starts.set(self.starts.get() + 1);
            fs::write(self.scratch.path("boot"), self.starts.get().to_string()).unwrap();
            self.clock.set(seconds);
        }

        /// The tokens of this many consecutive runs as root, and what dlock printed.
        fn tokens(&self, runs: u32) -> (Vec<u64>, String) {
            let [disk, boot] = ["disk", "boot"].map(|name| self.scratch.path(name).into_os_string());
            let script = format!(
                "mount -t tmpfs t /run && mount --bind \"$1\" /var/lib && mount --bind \"$2\" \
                 /proc/sys/kernel/random/boot_id && shift 2 || exit
                 for i in $(seq {runs}); do \"$@\" || exit; done"
            );
            let unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
            let wrapper: Vec<OsString> = unshare.map(OsString::from).into_iter().chain([disk, boot]).collect();
            let dlock = self.scratch.dlock().run("job").backend("file:").clock(&self.clock);
            let outcome = dlock.shell("echo $DLOCK_TOKEN").wrapped_by(wrapper).output();
            outcome.code(0);
            (outcome.stdout().lines().map(|line| line.parse().unwrap()).collect(), outcome.stderr().clone())
        }
    }

    #[test]
    fn tokens_of_a_lock_file_in_memory_rise_over_it_for_root() {
        let host = Host::new();
        let mut last = 0;
        // The second and the third boot in the same hour, each with an earlier clock.
        for seconds in [0, -HOUR / 2, -HOUR, -48 * HOUR, 0, HOUR] {
            host.start(seconds);
            let (tokens, said) = host.tokens(3);
            for token in tokens {
                assert!(token > last && token < 1 << 53, "{token} after {last}, {seconds} s ahead");
                last = token;
            }
            assert_eq!(said, "");
        }
        let kept = fs::read_dir(host.scratch.path("disk/dlock")).unwrap();
        assert_eq!(kept.map(|file| file.unwrap().file_name()).collect::<Vec<_>>(), ["tokens"]);
    }

    #[test]
    fn a_damaged_memory_of_them_is_told_and_keeps_nobody_from_the_lock() {
        let host = Host::new();
        host.start(0);
        fs::create_dir(host.scratch.path("disk/dlock")).unwrap();
        fs::write(host.scratch.path("disk/dlock/tokens"), "garbage").unwrap();
        let (tokens, said) = host.tokens(2);
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        let warned = said.lines().filter(|line| line.contains("/var/lib/dlock/tokens (it is damaged")).count();
        assert_eq!((warned, said.lines().count()), (2, 2), "{said}");
    }
}
