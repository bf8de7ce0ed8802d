/*!
A lock service as the tests see it, whatever the backend: a fresh one for every test, and how to look at it from
outside, without dlock.

A new backend implements [`Service`]; what `tests/contract.rs` says then holds for it too.
*/

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dlock::{Dlock, Outcome, Running};
use super::rendezvous::{Gate, eventually};
use super::scratch::Scratch;
use super::servers::{Redis, Reply};

/// A lock service that nobody else uses. Keys in [`Self::queued`] and [`Self::litter`] must be plain words, which every
/// backend spells as they are.
pub trait Service {
    /// What `DLOCK_BACKEND_KIND` says.
    const KIND: &'static str;
    /// What `DLOCK_LEASE_TTL` says under a `--ttl` of 30 seconds.
    const LEASE_OF_30S: &'static str;

    /// A service that is ready, and on which nothing was ever locked.
    fn fresh() -> Self;

    /// The directory in which its dlocks work.
    fn scratch(&self) -> &Scratch;

    /// What to give to `--backend`.
    fn url(&self) -> String;

    /// How many wait for `key`, by the service's own account.
    fn queued(&self, key: &str) -> usize;

    /// What is left of locks that nobody holds or waits for any more, but for what stays on purpose: the tokens' counters
    /// of `keys`.
    fn litter(&self, keys: &[&str]) -> Vec<String>;

    /// `dlock run --key KEY --backend URL`.
    fn run(&self, key: &str) -> Dlock {
        self.scratch().dlock().run(key).backend(self.url())
    }

    /// Waits until exactly so many wait for `key`.
    #[track_caller]
    fn wait_queued(&self, key: &str, count: usize) {
        eventually(&format!("{count} in the queue of {key}"), || (self.queued(key) == count).then_some(()));
    }

    /// Takes `key`, and returns once it is held.
    #[track_caller]
    fn hold(&self, key: &str) -> Gated
    where
        Self: Sized,
    {
        let holder = Gated::spawn(self.scratch(), self.run(key));
        holder.wait_held();
        holder
    }

    /// Waits for `key` behind those who wait already, with these options; returns once it is in the queue. Nobody else
    /// may come or go meanwhile.
    #[track_caller]
    fn queue_up(&self, key: &str, options: &[&str]) -> Gated
    where
        Self: Sized,
    {
        let before = self.queued(key);
        let waiter = Gated::spawn(self.scratch(), self.run(key).args(options));
        self.wait_queued(key, before + 1);
        waiter
    }

    /// Fails the test unless `key` is free at this moment and can be had again.
    #[track_caller]
    fn assert_free(&self, key: &str) {
        self.run(key).arg("-n").command(["true"]).output().success();
    }

    /// Fails the test unless `key` is held at this moment.
    #[track_caller]
    fn assert_held(&self, key: &str) {
        let refused = self.run(key).args(["-n", "-q"]).command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").quiet();
    }
}

/// A dlock whose command says `held` and then runs until it is let go.
pub struct Gated {
    gate: Gate,
    pub running: Running,
}

impl Gated {
    /// Starts `dlock`, which must not have a command yet; it may have to wait for its lock.
    #[track_caller]
    pub fn spawn(scratch: &Scratch, dlock: Dlock) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let gate = Gate::new(scratch.path(format!("gate-{}", NUMBER.fetch_add(1, Ordering::Relaxed))));
        let running = dlock.shell(format!("echo held; {}", gate.wait())).spawn();
        Self { gate, running }
    }

    /// Waits until its command runs.
    #[track_caller]
    pub fn wait_held(&self) {
        self.running.wait_stdout("held");
    }

    /// Whether its command has run.
    pub fn has_held(&self) -> bool {
        self.running.stdout_so_far().contains("held")
    }

    /// The process id of dlock.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Lets the command end.
    pub fn open(&self) {
        self.gate.open();
    }

    /// Lets the command end, and waits for the end of dlock, which must be the later one.
    #[track_caller]
    pub fn let_go(self) -> Outcome {
        self.gate.open();
        self.running.wait()
    }
}

/// Lock files in a directory of their own.
pub struct FileService {
    scratch: Scratch,
}

impl Service for FileService {
    const KIND: &'static str = "file";
    const LEASE_OF_30S: &'static str = "0";

    fn fresh() -> Self {
        Self { scratch: Scratch::new() }
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn url(&self) -> String {
        self.scratch.file_url()
    }

    fn queued(&self, key: &str) -> usize {
        self.waiting(key).len()
    }

    fn queue_up(&self, key: &str, options: &[&str]) -> Gated {
        let waiter = Gated::spawn(self.scratch(), self.run(key).args(options));
        eventually("the waiter to be in the queue", || self.waiting(key).contains(&waiter.pid()).then_some(()));
        waiter
    }

    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let mut litter: Vec<String> = keys.iter().flat_map(|key| self.kernel_locks(key)).collect();
        for entry in fs::read_dir(self.scratch.lock_dir()).unwrap() {
            let (name, path) = entry.map(|entry| (entry.file_name(), entry.path())).unwrap();
            let text = fs::read_to_string(path).unwrap();
            let counter = text.strip_prefix("dlock:1 ").and_then(|rest| rest.strip_suffix('\n'));
            let is_counter = counter.is_some_and(|counter| counter.parse::<u64>().is_ok());
            if !is_counter || !keys.iter().any(|key| name == *format!("{key}.lock")) {
                litter.push(format!("{}: {text}", name.display()));
            }
        }
        litter
    }
}

impl FileService {
    /// The processes that wait for `key`. The kernel hands its table out in pieces, and one that changes meanwhile may
    /// lack a line or have it twice: one that is missing comes with the next look, and a second one does not count.
    fn waiting(&self, key: &str) -> BTreeSet<i32> {
        let pid = |line: &String| line.split_once(" -> ")?.1.split_whitespace().nth(3)?.parse().ok();
        self.kernel_locks(key).iter().filter_map(pid).collect()
    }

    /// The lines of `/proc/locks` about `key`; those who wait have an arrow in theirs.
    fn kernel_locks(&self, key: &str) -> Vec<String> {
        let Ok(about) = fs::metadata(self.scratch.lock_dir().join(format!("{key}.lock"))) else { return Vec::new() };
        // Without the device, which some file systems spell in another way there.
        let inode = format!(":{} ", about.ino());
        let table = fs::read_to_string("/proc/locks").unwrap();
        table.lines().filter(|line| line.contains("FLOCK") && line.contains(&inode)).map(str::to_owned).collect()
    }
}

/// A redis server of our own.
pub struct RedisService {
    // Before the server goes those who use it.
    scratch: Scratch,
    pub redis: Redis,
}

impl Service for RedisService {
    const KIND: &'static str = "redis";
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self::on(Redis::start())
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn url(&self) -> String {
        self.redis.url()
    }

    fn queued(&self, key: &str) -> usize {
        match self.redis.call(&[b"ZCARD", side(key, "queue").as_bytes()]) {
            Reply::Int(count) => usize::try_from(count).unwrap(),
            other => panic!("ZCARD answered {other:?}"),
        }
    }

    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let counters: Vec<String> = keys.iter().map(|key| side(key, "fence")).collect();
        let mut litter = self.redis.keys();
        litter.retain(|key| !counters.contains(key) || self.redis.pttl(key) <= 0);
        litter.extend(self.redis.clients());
        litter
    }
}

impl RedisService {
    /// The same on a server with options of its own.
    pub fn on(redis: Redis) -> Self {
        Self { scratch: Scratch::new(), redis }
    }

    /// The redis key of the lock `key`.
    pub fn lock(key: &str) -> String {
        format!("dlock:{key}")
    }

    /// How many of dlock's connections are in a blocking wait.
    pub fn blocked(&self) -> usize {
        self.redis.clients().iter().filter(|line| line.contains(" cmd=blpop ")).count()
    }

    /// Waits until exactly so many of dlock's connections are in a blocking wait: those who wait have then nothing to do.
    #[track_caller]
    pub fn wait_blocked(&self, count: usize) {
        eventually(&format!("{count} blocked waiters"), || (self.blocked() == count).then_some(()));
    }
}

/// The redis key that stands beside the lock `key`.
fn side(key: &str, name: &str) -> String {
    format!("{{dlock:{key}}}\u{1}{name}")
}
