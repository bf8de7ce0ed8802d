/*!
No room on the disk, no descriptor, no process: whichever part runs out, no command runs without a lock, no lock stays
behind, and one line says what is missing.
*/

use std::fs::File;
use std::time::Duration;

use crate::support::dlock::{Dlock, Outcome};
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::exhausted::{give_descriptors_back, take_all_descriptors, take_free_descriptors, take_processes};
use crate::support::process;
use crate::support::redis_services::Redlock3;
use crate::support::rendezvous::{boottime, eventually, eventually_within, last_until};
use crate::support::servers::Redis;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// The lease in these tests.
const TTL: Duration = Duration::from_secs(2);

/// `dlock run` for the key `job` with a lease of [`TTL`].
fn run<S: Service>(service: &S) -> Dlock {
    service.run("job").args(["-t", "2s"])
}

/// Fails the test unless everything of a dlock that has ended is gone, its lock included.
#[track_caller]
fn assert_nothing_left<S: Service>(service: &S) {
    run(service).args(["-n"]).command(["true"]).output().success();
    eventually("the last process to go", || service.scratch().processes().is_empty().then_some(()));
    assert_no_litter(service);
}

/// What dlock leaves behind is gone when its lease expires at the latest.
#[track_caller]
fn assert_no_litter<S: Service>(service: &S) {
    assert_no_litter_but(service, &[]);
}

#[track_caller]
fn assert_no_litter_but<S: Service>(service: &S, may_stay: &[&str]) {
    let mut litter = Vec::new();
    let clean = eventually_within(2 * TTL + S::EXPIRY_GRANULARITY, || {
        litter = service.litter(&["job"]);
        litter.retain(|line| !may_stay.contains(&&**line));
        litter.is_empty().then_some(())
    });
    assert!(clean.is_some(), "{litter:?}");
}

/// Checks that nothing was run, and that one line gives the reason in the words of the contract's exit codes.
#[track_caller]
fn assert_refused(outcome: &Outcome) {
    let code = outcome.status().code();
    assert!(matches!(code, Some(69 | 73)), "{outcome:?}");
    outcome.stdout_is("").stderr_is_one_line("could not ");
    assert!(!outcome.stderr().contains("panicked"), "{outcome:?}");
}

mod descriptors {
    use super::*;

    /// With fewer descriptors the loader cannot open a library.
    const FEWEST: u64 = 4;

    fn too_few<S: Service>(service: &S) {
        let mut enough = 0;
        for limit in FEWEST..64 {
            let dlock = run(service).arg("-n").command(["echo", "ran"]).limit(libc::RLIMIT_NOFILE, limit);
            let outcome = dlock.output();
            if outcome.status().code() == Some(0) {
                outcome.success().stdout_is("ran\n");
                enough += 1;
            } else {
                assert_eq!(enough, 0, "more descriptors are not enough: {limit}\n{outcome:?}");
                assert_refused(&outcome);
            }
            assert_nothing_left(service);
            if enough == 3 {
                return;
            }
        }
        panic!("that many descriptors are not enough for anything");
    }

    /// A holder's open connections go on working. The lease is long enough that none has to be replaced on a busy
    /// machine: a ZooKeeper client gives up a connection that stays silent for a while.
    fn none_left_while_it_holds<S: Service>(service: &S) {
        let lease = if S::KIND == "zookeeper" { 15 } else { 6 };
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-q", "-t", &format!("{lease}s")]));
        holder.wait_held();
        for pid in [holder.running.guard_pid(), holder.pid()] {
            take_free_descriptors(pid);
        }
        last_until(boottime() + Duration::from_secs(lease + 1));
        assert!(holder.running.is_running(), "it was lost by\n{:?}", holder.running);
        service.assert_held("job");
        holder.let_go().success();
        assert_nothing_left(service);
    }

    /// Without descriptors no new connection can be made, and the command is gone before its lease expires.
    fn none_left_for_a_new_connection<S: Severable>(service: &S) {
        let holder = Gated::spawn(service.scratch(), run(service).arg("-q"));
        holder.wait_held();
        take_all_descriptors(holder.pid());
        let cut = boottime();
        service.sever();
        let waiter = Gated::spawn(service.scratch(), service.run("job").args(["-t", "10s", "-q"]));
        waiter.wait_held();
        if S::KIND == "zookeeper" {
            // The library keeps asking for a socket without a pause once its session must have ended. dlock, whose
            // command was killed by the guard, may not end before it gets one.
            give_descriptors_back(holder.pid());
        }
        let outcome = holder.running.wait();
        outcome.code(79).stderr_is_one_line("dlock: lost job at ");
        assert!(boottime() < cut + 3 * TTL + S::EXPIRY_GRANULARITY, "{outcome:?}");
        waiter.let_go().success();
        assert_nothing_left_after_a_cut(service);
    }

    /// A waiter that has no descriptor left when its turn comes passes the lock on.
    fn none_left_while_it_waits<S: Service>(service: &S) {
        let holder = Gated::spawn(service.scratch(), run(service).arg("-q"));
        holder.wait_held();
        let waiter = service.queue_up("job", &["-t", "2s", "-q"]);
        let guard = process::children(waiter.pid())[0];
        for pid in [guard, waiter.pid()] {
            take_free_descriptors(pid);
        }
        holder.let_go().success();
        eventually("its turn", || (waiter.has_held() || !waiter.running.is_running()).then_some(()));
        waiter.open();
        let outcome = waiter.running.wait();
        // All of its output is there only at the end.
        if outcome.stdout().starts_with("held ") {
            // The command has as few, which is its own problem.
            outcome.stderr();
        } else {
            assert_refused(&outcome);
        }
        assert_nothing_left(service);
    }

    /// An outage without descriptors is survived if there are some again in time.
    fn some_again_in_time<S: Severable>(service: &S) {
        let lease = if S::KIND == "zookeeper" { 24 } else { 12 };
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-q", "-t", &format!("{lease}s")]));
        holder.wait_held();
        let cut = boottime();
        take_all_descriptors(holder.pid());
        service.sever();
        // One renewal fails.
        last_until(cut + Duration::from_millis(lease * 1000 * 3 / 8));
        give_descriptors_back(holder.pid());
        last_until(cut + Duration::from_secs(lease + 1));
        assert!(holder.running.is_running(), "it was lost by\n{:?}", holder.running);
        holder.let_go().success();
        assert_nothing_left_after_a_cut(service);
    }

    /// It would need more descriptors than it may open, and runs with real-time priority.
    #[test]
    fn a_guard_that_may_open_few_takes_no_time() {
        let service = FileService::fresh();
        let dlock = service.run("job").arg("-q").limit(libc::RLIMIT_NOFILE, 20);
        let holder = Gated::spawn(service.scratch(), dlock);
        holder.wait_held();
        let guard = holder.running.guard_pid();
        let takes_no_time = || {
            let ticks = || process::cpu_ticks(guard).unwrap();
            let before = ticks();
            last_until(boottime() + Duration::from_secs(1));
            // Out of a hundred.
            assert!(ticks() - before < 20, "{} ticks within a second", ticks() - before);
        };
        takes_no_time();
        take_all_descriptors(guard);
        takes_no_time();
        holder.let_go().success();
        assert_nothing_left(&service);
    }

    /// Fails the test unless everything of a dlock that has ended is gone, except perhaps directories in ZooKeeper:
    /// they are kept when it is uncertain whether only dlock used them, for instance because the server died before
    /// counting them.
    #[track_caller]
    fn assert_nothing_left_after_a_cut<S: Severable>(service: &S) {
        service.assert_free("job");
        eventually("the last process to go", || service.scratch().processes().is_empty().then_some(()));
        assert_no_litter_but(service, &["/dlock", "/dlock/job"]);
    }

    /// A service whose connections can be closed from its side without losing a lock.
    pub(super) trait Severable: Service {
        fn sever(&self);
    }

    fn hang_up(redis: &Redis) {
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    impl Severable for RedisService {
        fn sever(&self) {
            hang_up(&self.redis);
        }
    }

    impl Severable for Redlock3 {
        fn sever(&self) {
            self.servers.iter().for_each(hang_up);
        }
    }

    impl Severable for EtcdService {
        fn sever(&self) {
            self.etcd.restart();
        }
    }

    impl Severable for ZooKeeperService {
        fn sever(&self) {
            self.zookeeper.restart();
        }
    }

    macro_rules! runs_out_on {
        ($($backend:ident: $service:ty { $($test:ident)* })*) => {
            $(mod $backend {
                use super::*;
                $(#[test] fn $test() { super::$test(&<$service>::fresh()) })*
            })*
        };
    }

    runs_out_on! {
        file: FileService { too_few none_left_while_it_holds none_left_while_it_waits }
        redis: RedisService { too_few none_left_while_it_holds none_left_while_it_waits none_left_for_a_new_connection some_again_in_time }
        redlock: Redlock3 { too_few none_left_while_it_holds none_left_while_it_waits none_left_for_a_new_connection some_again_in_time }
        etcd: EtcdService { too_few none_left_while_it_holds none_left_while_it_waits none_left_for_a_new_connection some_again_in_time }
        zookeeper: ZooKeeperService { too_few none_left_while_it_holds none_left_while_it_waits none_left_for_a_new_connection some_again_in_time }
    }
}

mod processes {
    use super::*;

    fn prepared<S: Service>() -> S {
        let service = S::fresh();
        service.scratch().lock_dir();
        service.scratch().give_away("locks");
        service
    }

    fn too_few<S: Service>() {
        let service = prepared::<S>();
        let mut enough = 0;
        for processes in 1..16 {
            // In a user namespace of its own, no other processes count against the limit, and these count nowhere else.
            let limit = format!("--nproc={processes}");
            let dlock = run(&service).arg("-n").command(["echo", "ran"]).unprivileged();
            let outcome = dlock.wrapped_by(["unshare", "-r", "prlimit", &limit]).output();
            if outcome.status().code() == Some(0) {
                outcome.success().stdout_is("ran\n");
                enough += 1;
            } else {
                assert_eq!(enough, 0, "more processes are not enough: {processes}\n{outcome:?}");
                assert_refused(&outcome);
            }
            run(&service).arg("-n").unprivileged().command(["true"]).output().success();
            assert_no_litter(&service);
            if enough == 3 {
                return;
            }
        }
        panic!("that many processes are not enough for anything");
    }

    /// A waiter whose turn comes when no process can be started passes the lock on.
    fn none_left_while_it_waits<S: Service>() {
        let service = prepared::<S>();
        let unprivileged = || run(&service).arg("-q").unprivileged();
        let holder = Gated::spawn(service.scratch(), unprivileged());
        holder.wait_held();
        let waiter = Gated::spawn(service.scratch(), unprivileged());
        service.wait_queued("job", 1);
        let guard = eventually("the guard", || process::children(waiter.pid()).first().copied());
        for pid in [guard, waiter.pid()] {
            take_processes(pid);
        }
        holder.let_go().success();
        let released = boottime();
        assert_refused(&waiter.running.wait());
        assert!(boottime() < released + TTL, "the lock was kept");
        run(&service).arg("-n").unprivileged().command(["true"]).output().success();
        assert_no_litter(&service);
    }

    /// A holder needs no new process to keep the lock and to release it.
    fn none_left_while_it_holds<S: Service>() {
        let service = prepared::<S>();
        let holder = Gated::spawn(service.scratch(), run(&service).arg("-q").unprivileged());
        holder.wait_held();
        for pid in [holder.running.guard_pid(), holder.pid()] {
            take_processes(pid);
        }
        last_until(boottime() + TTL * 3 / 2);
        assert!(holder.running.is_running());
        holder.let_go().success();
        run(&service).arg("-n").unprivileged().command(["true"]).output().success();
    }

    macro_rules! runs_out_on {
        ($($backend:ident: $service:ty;)*) => {
            $(mod $backend {
                use super::*;

                #[test]
                fn too_few() {
                    super::too_few::<$service>();
                }

                #[test]
                fn none_left_while_it_waits() {
                    super::none_left_while_it_waits::<$service>();
                }

                #[test]
                fn none_left_while_it_holds() {
                    super::none_left_while_it_holds::<$service>();
                }
            })*
        };
    }

    runs_out_on! {
        file: FileService;
        redis: RedisService;
        redlock: Redlock3;
        etcd: EtcdService;
        zookeeper: ZooKeeperService;
    }
}

mod disk {
    use super::*;

    /// A file to which nothing can be written, for messages.
    fn full() -> File {
        File::options().write(true).open("/dev/full").unwrap()
    }

    /// On every backend dlock does what it always does, silently.
    fn no_room_for_messages<S: Service>() {
        let service = S::fresh();
        let holder = Gated::spawn(service.scratch(), run(&service).arg("-v").stderr(full()));
        holder.wait_held();
        run(&service).arg("-n").command(["echo", "overlap"]).stderr(full()).output().code(75).stdout_is("");
        run(&service).args(["-w", "0.5"]).command(["echo", "overlap"]).stderr(full()).output().code(75).stdout_is("");
        holder.let_go().code(0);
        run(&service).command(["/no/such/program"]).stderr(full()).output().code(127);
        assert_nothing_left(&service);
    }

    macro_rules! no_room_on {
        ($($backend:ident: $service:ty;)*) => {
            $(#[test]
            fn $backend() {
                no_room_for_messages::<$service>();
            })*
        };
    }

    mod no_room_for_messages_on {
        use super::*;

        no_room_on! {
            file: FileService;
            redis: RedisService;
            redlock: Redlock3;
            etcd: EtcdService;
            zookeeper: ZooKeeperService;
        }
    }

    /// A lock file that already exists needs no more room, neither to be locked nor to be released.
    #[test]
    fn a_disk_that_fills_up_while_a_lock_file_is_held_loses_nothing() {
        let service = FileService::fresh();
        let disk = service.scratch().directory("disk", 0o700);
        let fill = "echo $DLOCK_TOKEN; cd \"$disk\" && head -c 1M /dev/zero > fill 2>/dev/null; true";
        let script = r#"
            mount -t tmpfs -o mode=0700,size=16k tmpfs "$disk" && cd "$disk" || exit 1
            "$@"; echo "filled $?"
            "$@"; echo "full $?"
        "#;
        let dlock = service
            .scratch()
            .dlock()
            .run("job")
            .backend(format!("file://{}", disk.display()))
            .env("disk", &disk)
            .shell(fill);
        let wrapper = ["unshare", "-rm", "sh", "-c", script, "sh"];
        let outcome = dlock.wrapped_by(wrapper).output();
        outcome.success();
        let stdout = outcome.stdout();
        let [first, "filled 0", second, "full 0"] = stdout.lines().collect::<Vec<_>>()[..] else {
            panic!("{outcome:?}");
        };
        assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap(), "{outcome:?}");
    }

    /// A redis that cannot write its append-only file: nobody gets a lock that it would not remember, and a holder goes
    /// on until its lease expires or there is room again.
    #[test]
    fn a_redis_whose_disk_is_full_grants_nothing_and_loses_nothing() {
        let service = RedisService::on(Redis::on_small_disk(["--appendonly", "yes", "--appendfsync", "everysec"]));
        let redis = &service.redis;
        // Its lease is longer than the fault.
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "9s", "-q"]));
        holder.wait_held();
        let fail = || {
            redis.fill_disk();
            eventually("a write that fails", || {
                redis.ask(&["SET", "ballast", &"x".repeat(10_000)]).filter(|reply| reply.text().contains("MISCONF"))
            });
        };
        fail();
        let refused = service.run("other").command(["echo", "ran"]).output();
        refused.code(69).stdout_is("").stderr_is_one_line("MISCONF");
        // One renewal fails.
        last_until(boottime() + Duration::from_secs(4));
        redis.free_disk();
        eventually("a write", || redis.ask(&["DEL", "ballast"]).filter(|reply| !reply.text().contains("MISCONF")));
        last_until(boottime() + Duration::from_secs(3));
        service.assert_held("job");
        holder.let_go().success();
        assert_nothing_left(&service);
        // If the fault stays, the hold ends in time.
        let holder = Gated::spawn(service.scratch(), run(&service));
        holder.wait_held();
        fail();
        let outcome = holder.running.wait();
        outcome.code(79);
        assert!(outcome.stderr().starts_with("dlock: lost job at redis://") && outcome.stderr().contains("MISCONF"));
        redis.free_disk();
        eventually("a write", || redis.ask(&["DEL", "ballast"]).filter(|reply| !reply.text().contains("MISCONF")));
        // The lock could not be released, and lasts no longer than its lease.
        let next = run(&service).args(["-q", "-w", "4s"]).command(["true"]).output();
        next.success();
        assert!(next.elapsed() < TTL, "{next:?}");
        assert_nothing_left(&service);
    }

    /// A server that cannot write its transaction log is out of service: without a majority of others the command is
    /// stopped, and when there is room again, the next contender gets the lock.
    #[test]
    fn a_zookeeper_whose_disks_are_full_grants_nothing_and_loses_nothing() {
        let options = ZooKeeperOptions { small_disks: true, ..ZooKeeperOptions::ensemble() };
        let service = ZooKeeperService::on(ZooKeeper::with(options));
        let servers = service.zookeeper.servers();
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "4s"]));
        let first = holder.token();
        let waiter = service.queue_up("job", &["-t", "4s", "-q"]);
        servers.iter().for_each(|server| server.fill_disk());
        let outcome = holder.running.wait();
        outcome.code(79).stderr_is_one_line("lost job at ");
        assert!(!waiter.has_held());
        let other = service.run("other").command(["echo", "ran"]).output();
        other.code(69).stdout_is("").stderr_is_one_line("did not get other: ");
        servers.iter().for_each(|server| server.free_disk());
        assert!(waiter.token() > first);
        waiter.let_go().success();
    }

    /// A full etcd accepts no new keys or leases, and keeps those that it has.
    #[test]
    fn an_etcd_without_space_grants_nothing_and_loses_nothing() {
        let args = vec!["--quota-backend-bytes".into(), "1048576".into()];
        let service = EtcdService::on(Etcd::with(EtcdOptions { args, ..EtcdOptions::single() }));
        let holder = Gated::spawn(service.scratch(), run(&service).arg("-q"));
        let first = holder.token();
        let waiter = service.queue_up("job", &["-t", "2s", "-q"]);
        let mut filled = 0;
        eventually("no space to be left", || {
            filled += 1;
            let mut put = service.etcd.etcdctl_command();
            let output = put.args(["put", &format!("ballast{filled}"), &"x".repeat(100_000)]).output().unwrap();
            String::from_utf8_lossy(&output.stderr).contains("space exceeded").then_some(())
        });
        let refused = service.run("other").command(["echo", "ran"]).output();
        refused.code(69).stdout_is("").stderr_is_one_line("space");
        last_until(boottime() + TTL * 3 / 2);
        assert!(holder.running.is_running() && !waiter.has_held(), "{:?}", holder.running);
        holder.let_go().success();
        // A waiter that was in the queue before has everything it needs.
        let second = waiter.token();
        assert!(second > first);
        waiter.let_go().success();
    }
}

mod address_space {
    use super::*;

    /// Above this limit there is room for everything.
    const PLENTY: u64 = 1 << 30;
    const STEP: u64 = 256 * 1024;

    /// The client library for ZooKeeper has its own thread, and panics when there is no memory for its stack.
    #[test]
    fn too_little_of_it_is_no_panic() {
        let service = ZooKeeperService::fresh();
        let run = |bytes: u64| {
            let dlock = run(&service).command(["echo", "ran"]);
            dlock.wrapped_by(["prlimit", &format!("--as={bytes}")]).output()
        };
        // The smallest address space in which it runs.
        let (mut low, mut high) = (STEP, PLENTY);
        while high - low > STEP {
            let middle = low.midpoint(high);
            let outcome = run(middle);
            let _ = outcome.stderr();
            *(if outcome.status().success() { &mut high } else { &mut low }) = middle;
        }
        let mut plain = 0;
        for step in 1..20 {
            let outcome = run(high.saturating_sub(step * STEP));
            let stderr = outcome.stderr();
            assert!(!stderr.contains("panicked"), "{outcome:?}");
            assert!(!outcome.status().success() || outcome.stdout() == "ran\n", "{outcome:?}");
            plain += usize::from(outcome.status().code() == Some(69) && stderr.contains("could not "));
        }
        assert!(plain > 0, "never so little that it is refused for that");
        assert_nothing_left(&service);
    }
}
