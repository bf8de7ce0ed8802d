//! dlock is killed or frozen.

use nix::sys::signal::Signal;

use crate::support::process;
use crate::support::rendezvous::{Gate, eventually};
use crate::support::scene::{Aftermath, KEY, Scene, assert_in_time};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::tree::Tree;

use super::{assert_locked, dlock_n, flock};

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
