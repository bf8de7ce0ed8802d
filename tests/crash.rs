/*!
No single death or freeze breaks the first promise, be it dlock's, the guard's, the command's, or that of all at once.

On redis everything that the command started is gone before the lease can expire. On file there is no lease: the command
lives on and stays locked, as with flock(1).
*/

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::support::dlock::Dlock;
use crate::support::process::{self, State};
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually, last_until};
use crate::support::scene::{Aftermath, KEY, Scene, TTL, assert_in_time, behind};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need};
use crate::support::tree::Tree;

mod dlock {
    use super::*;

    #[test]
    fn killed_on_redis_its_whole_tree_dies_within_the_lease() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &[]);
        let waiter = scene.wait_behind(&redis.url());
        scene.holder.signal(Signal::SIGKILL);
        process::wait_gone(scene.holder.pid());
        // Nobody renews the lease any more.
        let expiry = redis.expiry(KEY).expect("the lock is not released before its tree is gone");
        assert_in_time(scene.tree.died_at(), expiry);
        killed(scene).taken_over_by(waiter);
    }

    #[test]
    fn killed_on_redis_before_the_first_renewal_too() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &["-t", "1s", "--kill-after", "500ms"]);
        scene.holder.signal(Signal::SIGKILL);
        process::wait_gone(scene.holder.pid());
        let expiry = redis.expiry(KEY).expect("the lock is not released before its tree is gone");
        assert_in_time(scene.tree.died_at(), expiry);
        killed(scene);
    }

    /// The guard says what dlock no longer can.
    #[track_caller]
    fn killed(scene: Scene<'_>) -> Aftermath {
        let word = "dlock: dlock itself was killed: ";
        scene.holder.wait_stderr(word);
        scene.ends(|outcome| outcome.signal(Signal::SIGKILL).stderr_is_one_line(word))
    }

    #[test]
    fn frozen_until_somebody_else_holds_the_lock_its_tree_is_gone_by_then() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &[]);
        let gate = Gate::new(scene.aftermath.scratch.path("gate"));
        let waiter = scene.wait_behind_with(&redis.url(), &gate.wait());
        process::signal(scene.holder.pid(), Signal::SIGSTOP);
        process::wait_stopped(scene.holder.pid());
        let expiry = redis.expiry(KEY).expect("a lock that is held");
        assert_in_time(scene.tree.died_at(), expiry);
        // Long after its lease expired, somebody else holds the lock.
        scene.wait_taken_over();
        process::signal(scene.holder.pid(), Signal::SIGCONT);
        let aftermath = scene.assert_lost("no renewal was confirmed");
        // The thawed dlock has not touched the lock of the present holder.
        assert!(waiter.is_running() && redis.get(KEY).is_some());
        gate.open();
        aftermath.taken_over_by(waiter);
    }

    #[test]
    fn killed_on_file_its_tree_lives_on_and_stays_locked_until_it_ends() {
        lives_on(&[]);
    }

    /// The guard keeps the descriptor until the last process of the tree is gone.
    #[test]
    fn killed_on_file_with_close_its_tree_lives_on_and_stays_locked_until_it_ends() {
        lives_on(&["--close"]);
    }

    fn lives_on(options: &[&str]) {
        let scratch = Scratch::new();
        let mut tree = Tree::new(&scratch);
        let dlock = scratch.dlock().run("job").backend(scratch.file_url()).args(options);
        let holder = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
        let members = tree.wait_grown();
        holder.signal(Signal::SIGKILL);
        holder.wait().signal(Signal::SIGKILL).quiet();

        assert_locked(&scratch);
        // Everything printed up to now would have arrived.
        assert!(!tree.was_termed());
        assert!(members.all().into_iter().all(process::is_alive));
        // Also when only part of the tree is left, whose parents are gone.
        for pid in [members.command, members.child] {
            process::signal(pid, Signal::SIGKILL);
            process::wait_gone(pid);
            assert_locked(&scratch);
        }
        process::signal(members.grandchild, Signal::SIGKILL);
        tree.died_at();
        eventually("the lock to be free", || flock(&scratch).then_some(()));
        dlock_n(&scratch).output().success().stdout_is("ran\n");
    }
}

mod guard {
    use super::*;

    #[test]
    fn killed_on_redis_nothing_is_left_when_the_lock_is_released() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &["-t", "10s", "--kill-after", "300ms"]);
        let waiter = scene.wait_behind(&redis.url());
        process::signal(scene.holder.guard_pid(), Signal::SIGKILL);
        // Going by the lease, the waiter would come much later; the witness knows whether it came too early.
        let aftermath = scene.ends(|outcome| outcome.code(70).stderr_is_one_line(KILLED_GUARD));
        aftermath.taken_over_by(waiter);
    }

    /// dlock does the guard's work and is bounded by the lease just as the guard is: less of the lease is left than
    /// `--kill-after` allows.
    #[test]
    fn killed_on_redis_between_term_and_kill_everything_dies_in_time() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        let mut scene = Scene::start(&redis, &behind(&proxy), &["-t", "2s", "--kill-after", "1s"]);
        let waiter = scene.wait_behind(&redis.url());
        proxy.set(Mode::Silent);
        let expiry = redis.expiry(KEY).expect("a lock that is held");
        let guard = scene.holder.guard_pid();
        let termed = scene.tree.termed_at();
        last_until(termed + TTL / 2);
        process::signal(guard, Signal::SIGKILL);
        assert_in_time(scene.tree.died_at(), expiry);
        scene.assert_lost("does not answer").taken_over_by(waiter);
    }

    #[test]
    fn killed_on_file_nothing_is_left_either() {
        let scratch = Scratch::new();
        let mut tree = Tree::new(&scratch);
        let dlock = scratch.dlock().run("job").backend(scratch.file_url()).args(["--kill-after", "2s"]);
        let holder = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        process::signal(holder.guard_pid(), Signal::SIGKILL);
        // Until then the tree lives, and the lock is held.
        tree.termed_at();
        assert_locked(&scratch);
        holder.wait().code(70).stderr_is_one_line(KILLED_GUARD);
        assert!(!tree.is_alive());
        dlock_n(&scratch).output().success();
    }

    #[test]
    fn frozen_it_is_woken_and_the_command_ends_normally() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        for backend in [redis.url(), scratch.file_url()] {
            let scratch = Scratch::new();
            let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
            let script = format!("{}; {}; exit 5", words.say("running"), gate.wait());
            let holder = scratch.dlock().run("job").backend(&backend).args(["-t", "2s"]).shell(script).spawn();
            words.expect("running");
            let guard = holder.guard_pid();
            for _ in 0..3 {
                process::signal(guard, Signal::SIGSTOP);
                eventually("the guard to go on", || (process::state(guard) == State::Sleeping).then_some(()));
            }
            process::signal(guard, Signal::SIGSTOP);
            gate.open();
            holder.wait().code(5).quiet();
        }
    }

    #[test]
    fn frozen_again_and_again_under_a_silent_server_everything_dies_in_time() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        let scene = Scene::start(&redis, &behind(&proxy), &[]);
        let waiter = scene.wait_behind(&redis.url());
        let guard = scene.holder.guard_pid();
        proxy.set(Mode::Silent);
        let expiry = redis.expiry(KEY).expect("a lock that is held");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Woken each time, it never has long enough to finish its work.
                while !over.load(Ordering::Relaxed) && process::is_alive(guard) {
                    process::signal(guard, Signal::SIGSTOP);
                    thread::sleep(Duration::from_micros(100));
                }
            });
            let died = scene.tree.died_at();
            over.store(true, Ordering::Relaxed);
            assert_in_time(died, expiry);
        });
        let aftermath = scene.assert_lost("no renewal was confirmed");
        aftermath.taken_over_by(waiter);
    }

    /// Frozen by something that SIGCONT does not end, such as a debugger or a frozen cgroup: dlock does the guard's
    /// work, and in the end goes on without it.
    #[test]
    fn frozen_for_good_under_a_silent_server_everything_dies_in_time() {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port());
        let scene = Scene::start(&redis, &behind(&proxy), &[]);
        let waiter = scene.wait_behind(&redis.url());
        let guard = scene.holder.guard_pid();
        proxy.set(Mode::Silent);
        let expiry = redis.expiry(KEY).expect("a lock that is held");
        let _frozen = Frozen::new(guard);
        assert_in_time(scene.tree.died_at(), expiry);
        scene.assert_lost("does not answer").taken_over_by(waiter);
        assert!(!process::is_alive(guard));
    }

    /// A process that is stopped by ptrace. It is killed when this is dropped.
    struct Frozen {
        pid: i32,
        tracer: Option<thread::JoinHandle<()>>,
    }

    impl Frozen {
        #[track_caller]
        fn new(pid: i32) -> Self {
            let tracer = thread::spawn(move || {
                for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
                    // SAFETY: these requests neither read nor write memory of this process.
                    let done = unsafe { libc::ptrace(request, pid, 0, 0) };
                    assert_eq!(done, 0, "ptrace {request}: {}", std::io::Error::last_os_error());
                }
                let mut status = 0;
                // Its parent hears of its end only after the tracer, which has to ask for it. SAFETY: `status` is a
                // valid place for the result.
                while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } == pid && libc::WIFSTOPPED(status) {}
            });
            process::wait_stopped(pid);
            Self { pid, tracer: Some(tracer) }
        }
    }

    impl Drop for Frozen {
        fn drop(&mut self) {
            if let Some(tracer) = self.tracer.take().filter(|tracer| !tracer.is_finished()) {
                process::signal(self.pid, Signal::SIGKILL);
                let _ = tracer.join();
            }
        }
    }

    /// What remains nobody can promise to end: the grandchildren. The command itself dies with its guard.
    #[test]
    fn killed_together_with_dlock_the_command_dies_with_them() {
        let redis = Redis::start();
        let scene = Scene::start(&redis, &redis.url(), &[]);
        let (holder, guard) = (scene.holder.pid(), scene.holder.guard_pid());
        // Both are frozen first, so that neither sees the other's end.
        for pid in [holder, guard] {
            process::signal(pid, Signal::SIGSTOP);
            process::wait_stopped(pid);
        }
        let expiry = redis.expiry(KEY).expect("a lock that is held");
        for pid in [guard, holder] {
            process::signal(pid, Signal::SIGKILL);
        }
        process::wait_gone(scene.members.command);
        assert_in_time(boottime(), expiry);
        scene.ends(|outcome| outcome.signal(Signal::SIGKILL).quiet());
    }
}

mod command {
    use super::*;

    #[test]
    fn killed_it_ends_dlock_by_the_same_signal_and_the_lock_is_free() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        for backend in [redis.url(), scratch.file_url()] {
            let mut words = Fifo::new(scratch.path(if backend.starts_with('f') { "file" } else { "redis" }));
            let script = format!("{}; while :; do sleep 1000; done", words.say("$$"));
            let holder = scratch.dlock().run("job").backend(&backend).args(["-t", "10m"]).shell(script).spawn();
            process::signal(words.word().parse().unwrap(), Signal::SIGKILL);
            holder.wait().signal(Signal::SIGKILL).quiet();
            scratch.dlock().run("job").backend(&backend).arg("-n").shell("true").output().success();
        }
        assert_eq!(redis.get(KEY), None);
    }

    /// The whole process group and the guard are frozen, as when a machine is paused, while the world outside goes on
    /// and the lease expires. Only the token protects then; the command is stopped when it thaws.
    #[test]
    fn frozen_with_dlock_and_the_guard_it_is_stopped_at_the_thaw_and_its_late_writes_are_refused() {
        let redis = Redis::start();
        let scratch = Scratch::new();
        let mut store = Store::new(&scratch);
        let write = store.write();
        let (lifeline, end) = Lifeline::pair();
        // The writer has its own session, so the freeze does not reach it.
        let script = format!("setsid sh -c '{}' & wait", repeatedly(&write).replace('\'', r"'\''"));
        let holder = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s"]).shell(script);
        let holder = holder.new_process_group().lifeline(end).spawn();
        let first = store.next().expect("the only writer is never refused");
        let all = [holder.dlock_pid(), holder.guard_pid(), holder.command_pid()];
        killpg(Pid::from_raw(holder.pid()), Signal::SIGSTOP).unwrap();
        process::signal(all[1], Signal::SIGSTOP);
        for pid in all {
            process::wait_stopped(pid);
        }
        let gate = Gate::new(scratch.path("gate"));
        let other = format!("{write}; {}; {write}", gate.wait());
        let other = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s", "-q"]).shell(other).spawn();
        let second = eventually("the other one's write", || store.next().ok().filter(|token| *token != first));
        assert!(second > first);
        // The first holder goes on, and this is how it ends.
        assert_eq!(eventually("a late write", || store.next().err()), first);
        assert!(lifeline.is_open());
        let before = redis.get(KEY);

        let thawed = boottime();
        killpg(Pid::from_raw(holder.pid()), Signal::SIGCONT).unwrap();
        process::signal(all[1], Signal::SIGCONT);
        let died = lifeline.closed_at();
        // SIGTERM and SIGKILL are both overdue.
        assert!(died - thawed < Duration::from_millis(500), "it lived for {:?} after the thaw", died - thawed);
        holder.wait().code(79).stderr_is_one_line("lost job at redis://");
        assert_eq!(redis.get(KEY), before, "the lock is the other one's");
        gate.open();
        other.wait().success();
        let refused = std::iter::from_fn(|| store.try_next()).filter(Result::is_err).count();
        assert_eq!(store.last, second, "{refused} refused");
    }

    /// A store that knows nothing of locks: it accepts a write whose token is at least as large as the last one.
    struct Store {
        wire: Fifo,
        last: u64,
    }

    impl Store {
        fn new(scratch: &Scratch) -> Self {
            Self { wire: Fifo::new(scratch.path("store")), last: 0 }
        }

        /// Shell code that writes once.
        fn write(&self) -> String {
            format!("echo \"$DLOCK_TOKEN\" > '{}'", self.wire.path().display())
        }

        /// Waits for the next write: its token, `Ok` if accepted and `Err` if refused.
        fn next(&mut self) -> Result<u64, u64> {
            let word = self.wire.word();
            self.take(&word)
        }

        /// Returns the next write if there has been one.
        fn try_next(&mut self) -> Option<Result<u64, u64>> {
            let word = self.wire.try_word()?;
            Some(self.take(&word))
        }

        fn take(&mut self, token: &str) -> Result<u64, u64> {
            let token = token.parse().expect("a token");
            if token < self.last {
                return Err(token);
            }
            self.last = token;
            Ok(token)
        }
    }

    fn repeatedly(write: &str) -> String {
        format!("while :; do {write}; sleep 0.02; done")
    }
}

/// A lock file that is removed no longer locks anything.
mod lock_file {
    use super::*;

    #[test]
    fn removed_while_held_it_is_a_loss_within_a_second() {
        loses(|scratch| fs::remove_file(lock_file(scratch)).unwrap());
    }

    #[test]
    fn replaced_while_held_it_is_a_loss_within_a_second() {
        loses(|scratch| {
            let other = scratch.file("other", "");
            fs::rename(other, lock_file(scratch)).unwrap();
        });
    }

    fn loses(fault: impl FnOnce(&Scratch)) {
        let scratch = Scratch::new();
        let mut tree = Tree::new(&scratch);
        let dlock = scratch.dlock().run("job").backend(scratch.file_url()).args(["--kill-after", "500ms"]);
        let holder = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
        tree.wait_grown();
        fault(&scratch);
        let lost = boottime();
        // The new file is a new lock, and its holder is not disturbed by the end of the old one.
        let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
        let script = format!("{}; {}", words.say("held"), gate.wait());
        let other = scratch.dlock().run("job").backend(scratch.file_url()).arg("-n").shell(script).spawn();
        words.expect("held");
        let termed = tree.termed_at();
        assert!(termed - lost < Duration::from_millis(1500), "noticed after {:?}", termed - lost);
        holder.wait().code(79).stderr_is_one_line("was removed or replaced");
        assert!(!tree.is_alive());
        assert!(other.is_running());
        assert_locked(&scratch);
        let text = fs::read_to_string(lock_file(&scratch)).unwrap();
        assert!(text.contains(&format!("\"pid\":{}", other.pid())), "{text}");
        gate.open();
        other.wait().success();
        dlock_n(&scratch).output().success();
    }
}

/// dlock's user may not signal a process of another user. In that case the lock is never released and the lease
/// expires.
#[test]
fn what_cannot_be_killed_keeps_the_lock_until_the_lease_ends() {
    if !process::is_root() {
        eprintln!("not tested: only root can start a dlock whose command becomes another user");
        return;
    }
    let redis = Redis::start();
    let monitor = redis.monitor();
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    // As sudo does, but without set-user-id: dlock's user may become another user, and may not kill that user's
    // processes.
    let become_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let capabilities = ["--inh-caps=-all,+setuid,+setgid", "--ambient-caps=-all,+setuid,+setgid"];
    let survivor = format!("{}; exec sleep 1000", words.say("$$"));
    let script = format!("setpriv --reuid=0 sh -c '{}' & wait", survivor.replace('\'', r"'\''"));
    let options = ["-t", "2s", "--kill-after", "100ms"];
    let holder = scratch.dlock().run("job").backend(redis.url()).args(options).shell(script);
    let holder = holder.wrapped_by(become_nobody.into_iter().chain(capabilities)).reachable().spawn();
    let survivor: i32 = words.word().parse().unwrap();
    let waiter = scratch.dlock().run("job").backend(redis.url()).args(["-t", "1s", "-q"]).shell("true").spawn();
    eventually("the waiter", || (redis.clients().len() == 2).then_some(()));

    process::signal(holder.guard_pid(), Signal::SIGKILL);
    let outcome = holder.wait();
    let ended = boottime();
    outcome.code(70).stderr_ends_with_line(KILLED_GUARD);
    let told = outcome.stderr();
    let line = format!("dlock: process {survivor} could not be stopped by this user: job is not released");
    assert!(told.lines().any(|said| said.starts_with(&line)), "{told}");
    assert!(process::is_alive(survivor));
    waiter.wait().success();
    let taken_over = boottime();
    let expiry = monitor.expiry(KEY, ended);
    assert!(taken_over > expiry, "the next one had the lock {:?} before the lease ended", expiry - taken_over);
    process::signal(survivor, Signal::SIGKILL);
    process::wait_gone(survivor);
}

/// What dlock says when its guard was killed.
const KILLED_GUARD: &str = "somebody killed the guard process; the command was stopped";

fn lock_file(scratch: &Scratch) -> PathBuf {
    scratch.lock_dir().join("job.lock")
}

/// A dlock that does not wait for the lock `job` (`-n`).
fn dlock_n(scratch: &Scratch) -> Dlock {
    scratch.dlock().run("job").backend(scratch.file_url()).arg("-n").shell("echo ran")
}

/// Whether flock(1) gets the lock.
fn flock(scratch: &Scratch) -> bool {
    let mut flock = Command::new(need("flock", "util-linux"));
    flock.arg("-n").arg(lock_file(scratch)).arg("true").stdin(Stdio::null()).status().unwrap().success()
}

/// Asserts that neither dlock nor flock(1) gets the lock.
#[track_caller]
fn assert_locked(scratch: &Scratch) {
    dlock_n(scratch).output().code(75).stdout_is("").stderr_is_one_line("did not get job: ");
    assert!(!flock(scratch));
}
