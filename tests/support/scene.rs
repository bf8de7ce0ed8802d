//! The scene of most faults: a holder at a redis whose tree does not want to end, a waiter behind it, and the witness
//! between them.

use std::time::Duration;

use super::dlock::{Outcome, Running};
use super::proxy::Proxy;
use super::rendezvous::eventually;
use super::scratch::Scratch;
use super::servers::{Monitor, Redis};
use super::tree::{Members, Tree};
use super::witness::Witness;

/// The redis key of the lock `job`.
pub const KEY: &str = "dlock:job";

/// The lease in these tests, unless a test says otherwise.
pub const TTL: Duration = Duration::from_secs(1);

/// A stubborn [`Tree`] that holds the lock `job` under the witness.
pub struct Scene<'a> {
    pub tree: Tree,
    pub members: Members,
    pub holder: Running,
    pub monitor: Monitor<'a>,
    pub aftermath: Aftermath,
}

/// What is left when the holder has ended, for checks of the next one.
pub struct Aftermath {
    pub witness: Witness,
    pub scratch: Scratch,
}

impl<'a> Scene<'a> {
    /// Returns once the whole tree runs. `url` leads to `redis`, perhaps by a detour; the lease is [`TTL`] unless
    /// `options` of `dlock run` change it.
    #[track_caller]
    pub fn start(redis: &'a Redis, url: &str, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let monitor = redis.monitor();
        let mut tree = Tree::new(&scratch);
        let witness = Witness::in_dir(scratch.root());
        let ttl: &[&str] = if options.contains(&"-t") { &[] } else { &["-t", "1s"] };
        let dlock = scratch.dlock().run("job").backend(url).args(ttl).args(options);
        let holder = dlock.command(witness.command(&tree.work())).lifeline(tree.end()).spawn();
        let members = tree.wait_grown();
        Self { tree, members, holder, monitor, aftermath: Aftermath { witness, scratch } }
    }

    /// Starts a waiter behind the holder.
    #[track_caller]
    pub fn wait_behind(&self, url: &str) -> Running {
        self.wait_behind_with(url, "true")
    }

    /// Starts a waiter behind the holder, to do `work` (shell text) under the witness.
    #[track_caller]
    pub fn wait_behind_with(&self, url: &str, work: &str) -> Running {
        let waiter = self.aftermath.next(url, work);
        waiter.wait_stderr("waiting for 'job'");
        waiter
    }

    /// Waits until the next one holds the lock.
    #[track_caller]
    pub fn wait_taken_over(&self) {
        let starts = || self.aftermath.witness.log().lines().filter(|line| line.starts_with("start ")).count();
        eventually("the next one to have the lock", || (starts() == 2).then_some(()));
    }

    /// Waits for the end of the tree, which must come before the lease expires at the server: the lease that the server
    /// had granted at `until`, by [`super::rendezvous::boottime`].
    #[track_caller]
    pub fn assert_dies_in_time(&self, until: Duration) {
        let died = self.tree.died_at();
        assert_in_time(died, self.monitor.expiry(KEY, until));
    }

    /// Waits for the holder to end, and passes its outcome to `check`.
    #[track_caller]
    pub fn ends(self, check: impl FnOnce(&Outcome) -> &Outcome) -> Aftermath {
        check(&self.holder.wait());
        self.aftermath
    }

    /// Waits for the holder to end because of the loss, and to say `why`.
    #[track_caller]
    pub fn assert_lost(self, why: &str) -> Aftermath {
        assert_lost(&self.holder.wait(), why);
        self.aftermath
    }
}

impl Aftermath {
    /// A dlock that does `work` (shell text) under the lock and the witness.
    #[track_caller]
    pub fn next(&self, url: &str, work: &str) -> Running {
        let dlock = self.scratch.dlock().run("job").backend(url).args(["-t", "1s"]);
        dlock.command(self.witness.command(work)).spawn()
    }

    /// Waits for the next holder to have had its turn: alone, and with a larger token.
    #[track_caller]
    pub fn taken_over_by(self, next: Running) {
        assert_taken_over(&self.witness, next);
    }
}

/// Asserts that the last process died before the lease could expire.
#[track_caller]
pub fn assert_in_time(died: Duration, expiry: Duration) {
    assert!(died < expiry, "the last process died {:?} after the lease could end", died - expiry);
}

/// Asserts exit code 79, and one line that says what was lost and why.
#[track_caller]
pub fn assert_lost(outcome: &Outcome, why: &str) {
    outcome.code(79).stderr_is_one_line(why);
    assert!(outcome.stderr().starts_with("dlock: lost 'job' at redis://127.0.0.1:"), "{outcome:?}");
}

/// Checks that after a holder that was killed under the witness, `next` has its turn.
#[track_caller]
pub fn assert_taken_over(witness: &Witness, next: Running) {
    let outcome = next.wait();
    outcome.code(0);
    // It may have had to wait.
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for 'job': ")), "{outcome:?}");
    let ends: Vec<_> = witness.check().iter().map(|section| section.end.is_some()).collect();
    assert_eq!(ends, [false, true], "{}", witness.log());
}

/// The URL of the redis behind `proxy`.
pub fn behind(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}
