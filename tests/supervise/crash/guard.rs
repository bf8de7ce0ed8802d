//! The guard is killed or frozen, alone or together with dlock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::Running;
use crate::support::process::{self, State};
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{Fifo, Gate, boottime, eventually, last_until};
use crate::support::scene::{KEY, Scene, TTL, assert_in_time, behind};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::tree::Tree;

use super::{KILLED_GUARD, assert_locked, dlock_n};

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
    scene.assert_lost("not answer").taken_over_by(waiter);
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

/// A holder whose server does not answer through `proxy` any more, a waiter, and when the holder's lease ends.
fn under_a_silent_server<'a>(redis: &'a Redis, proxy: &Proxy) -> (Scene<'a>, Running, Duration) {
    let scene = Scene::start(redis, &behind(proxy), &[]);
    let waiter = scene.wait_behind(&redis.url());
    proxy.set(Mode::Silent);
    let expiry = redis.expiry(KEY).expect("a lock that is held");
    (scene, waiter, expiry)
}

#[test]
fn frozen_again_and_again_under_a_silent_server_everything_dies_in_time() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let (scene, waiter, expiry) = under_a_silent_server(&redis, &proxy);
    let guard = scene.holder.guard_pid();
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
    let (scene, waiter, expiry) = under_a_silent_server(&redis, &proxy);
    let guard = scene.holder.guard_pid();
    let _frozen = Frozen::new(guard);
    assert_in_time(scene.tree.died_at(), expiry);
    scene.assert_lost("not answer").taken_over_by(waiter);
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
