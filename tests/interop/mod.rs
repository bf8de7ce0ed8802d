/*!
The same locks taken by other programs, each with its own library: what holds for every such pair, and below it the
table of the pairs. What only one service or one library knows is in the file of that service.

Each property begins with an unused service and ends with [`leave`]: the others are gone, and nothing of the lock is
left at the servers.
*/

mod etcd;
mod file;
// The recipes in examples/, as far as this machine can run them.
mod recipes;
mod redis;
mod redlock;
mod zookeeper;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::foreign::{Foreign, Kind};
use crate::support::redis_services::{RedissService, Redlock3, RedlocksService, SentinelService, UnixService};
use crate::support::rendezvous::{boottime, eventually, eventually_within};
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};
use crate::support::witness::{Witness, read_counter};

/// The lock that dlock and the other programs share.
const KEY: &str = "job";

/// A waiter that takes longer was not notified, but found out by polling: a lease here lasts ten seconds or more,
/// unless a test says otherwise, and a waiting dlock polls after ten.
const PROMPT: Duration = Duration::from_secs(4);

/// A service whose locks other programs take too.
trait Shared: Service + Sync {
    /// Where the other programs find the lock [`KEY`]: its servers and its name, as they spell them.
    fn place(&self) -> (String, String);

    /// What the servers have of each holder and, where they know them, of each waiter. Renewals do not change it.
    fn traces(&self) -> BTreeSet<String>;

    /// How dlock names another program that holds the lock now with this token.
    fn shown(&self, token: &str) -> String;

    /// Deletes everything that dlock has of the lock, as an administrator could by mistake.
    fn rob(&self);

    /// Whether a program of this kind leaves that line of litter behind whenever it is used, with dlock or without.
    fn is_left_by(&self, _kind: Kind, _litter: &str) -> bool {
        false
    }

    /// Another program that uses the lock.
    #[track_caller]
    fn other(&self, kind: Kind) -> Foreign {
        let (servers, name) = self.place();
        Foreign::spawn(kind, &servers, &name)
    }

    /// Has `other` begin to take the lock, which is held; returns once it waits.
    #[track_caller]
    fn queue_other(&self, other: &mut Foreign) {
        let before = self.queued(KEY);
        other.start_acquire();
        self.wait_queued(KEY, before + 1);
    }
}

/// The table of the pairs, and which properties hold for each.
macro_rules! shared_with {
    ($pair:ident: $service:ty, $kind:ident: $($properties:ident)*) => {
        mod $pair {
            use super::*;

            type Pair = $service;
            const KIND: Kind = Kind::$kind;
            $($properties! {})*
        }
    };
}

macro_rules! tests {
    ($($property:ident)*) => {
        $(#[test] fn $property() { super::$property(&Pair::fresh(), KIND); })*
    };
}

macro_rules! exclusion {
    () => {
        tests! { dlock_keeps_the_other_out_and_hands_over the_other_keeps_dlock_out_and_hands_over }
    };
}

macro_rules! respect {
    () => {
        tests! { a_dlock_that_was_robbed_lets_the_others_lock_alone a_mixed_crowd_never_overlaps }
    };
}

macro_rules! leases {
    () => {
        tests! { an_other_that_comes_back_late_lets_dlocks_lock_alone }
    };
}

shared_with!(flock: FileService, Flock: exclusion respect);
shared_with!(redis_py: RedisService, RedisPy: exclusion respect leases);
shared_with!(redis_py_by_socket: UnixService, RedisPy: exclusion);
shared_with!(redis_py_by_tls: RedissService, RedisPy: exclusion);
shared_with!(redis_py_on_sentinels_master: SentinelService, RedisPy: exclusion);
shared_with!(redlock_py: Redlock3, RedlockPy: exclusion respect leases);
shared_with!(redlock_py_by_tls: RedlocksService, RedlockPy: exclusion);
shared_with!(etcdctl: EtcdService, Etcdctl: exclusion respect leases);
shared_with!(etcds_go_client: EtcdService, EtcdMutex: exclusion respect leases);
shared_with!(etcds_lock_service: EtcdService, EtcdLockService: exclusion respect leases);
shared_with!(kazoo: ZooKeeperService, Kazoo: exclusion respect leases);
shared_with!(kazoos_reader: ZooKeeperService, KazooRead: exclusion);
shared_with!(kazoos_writer: ZooKeeperService, KazooWrite: exclusion);
shared_with!(curator: ZooKeeperService, Curator: exclusion respect leases);
shared_with!(curators_reader: ZooKeeperService, CuratorRead: exclusion);
shared_with!(curators_writer: ZooKeeperService, CuratorWrite: exclusion);

fn dlock_keeps_the_other_out_and_hands_over<S: Shared>(service: &S, kind: Kind) {
    let mut other = service.other(kind);
    let holder = service.hold(KEY);
    let traces = service.traces();
    assert_eq!(other.try_acquire(), None, "both hold the lock");
    assert!(!other.owns());
    service.queue_other(&mut other);
    assert!(!other.is_held(), "both hold the lock");
    assert!(service.traces().is_superset(&traces), "{traces:?} became {:?}", service.traces());
    let opened = boottime();
    holder.open();
    other.wait_held();
    assert_prompt(opened);
    holder.let_go().success();
    assert!(other.owns());
    service.assert_held(KEY);
    other.release();
    service.assert_free(KEY);
    leave(service, vec![other]);
}

fn the_other_keeps_dlock_out_and_hands_over<S: Shared>(service: &S, kind: Kind) {
    let mut other = service.other(kind);
    let token = other.acquire();
    let (traces, shown) = (service.traces(), service.shown(&token));
    let refused = service.run(KEY).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line(&format!("did not get 'job': {shown}"));
    let patience = service.run(KEY).args(["-w", "0.5"]).command(["echo", "overlap"]).output();
    patience.code(75).stdout_is("").stderr_ends_with_line(&format!("did not get 'job' within 500ms: {shown}"));
    assert_eq!(service.traces(), traces, "dlock has changed what is not its own, or has left something of its own");
    let waiter = service.queue_up(KEY, &[]);
    waiter.running.wait_stderr(&format!("waiting for 'job': {shown}"));
    assert!(!waiter.has_held() && other.owns());
    let released = boottime();
    other.release();
    waiter.wait_held();
    assert_prompt(released);
    waiter.let_go().code(0).stderr_is_one_line("waiting for 'job'");
    leave(service, vec![other]);
}

/// It may find out while its command runs, or only when that ends.
fn a_dlock_that_was_robbed_lets_the_others_lock_alone<S: Shared>(service: &S, kind: Kind) {
    let mut other = service.other(kind);
    let holder = Gated::spawn(service.scratch(), service.run(KEY).args(["--ttl", "3s"]));
    holder.wait_held();
    service.rob();
    other.acquire();
    let traces = service.traces();
    // The gate stays closed.
    holder.running.wait().code(79).stderr_is_one_line("lost 'job'");
    assert_eq!(service.traces(), traces);
    assert!(other.owns());
    service.assert_held(KEY);
    other.release();
    let holder = service.hold(KEY);
    service.rob();
    other.acquire();
    let traces = service.traces();
    holder.let_go().code(79).stderr_is_one_line("lost 'job'");
    assert_eq!(service.traces(), traces);
    assert!(other.owns());
    service.assert_held(KEY);
    other.release();
    service.assert_free(KEY);
    leave(service, vec![other]);
}

fn an_other_that_comes_back_late_lets_dlocks_lock_alone<S: Shared>(service: &S, kind: Kind) {
    let lease = Duration::from_secs(2);
    let (servers, name) = service.place();
    let mut other = Foreign::spawn_with_lease(kind, &servers, &name, "2");
    let asked = boottime();
    other.acquire();
    other.freeze();
    let holder = service.queue_up(KEY, &[]);
    holder.wait_held();
    let after = boottime() - asked;
    assert!(after >= lease, "the lock passed on after {after:?} of a lease of {lease:?}");
    let traces = service.traces();
    other.thaw();
    other.release_late();
    assert!(!other.owns());
    assert!(service.traces().is_superset(&traces), "{traces:?} became {:?}", service.traces());
    service.assert_held(KEY);
    holder.let_go().code(0).stderr_is_one_line("waiting for 'job'");
    service.assert_free(KEY);
    leave(service, vec![other]);
}

fn a_mixed_crowd_never_overlaps<S: Shared>(service: &S, kind: Kind) {
    const ROUNDS: u64 = 6;
    let directory = service.scratch().directory("witness", 0o700);
    let (witness, counter) = (Witness::in_dir(&directory), service.scratch().path("counter"));
    let mut others = [(); 2].map(|()| service.other(kind));
    let dlocks = [(); 4];
    let work = |other: &mut Foreign| {
        for _ in 0..ROUNDS {
            let token = other.acquire();
            work_as_other(&witness, &directory, &counter, orders(kind).then_some(token));
            other.release();
        }
    };
    let run = || {
        for _ in 0..ROUNDS {
            service.run(KEY).arg("-q").command(witness.counter_command(&counter)).output().success();
        }
    };
    thread::scope(|scope| {
        for other in &mut others {
            scope.spawn(|| work(other));
        }
        for () in dlocks {
            scope.spawn(run);
        }
    });
    // If the others have tokens too, all of these rise in the order in which the lock was held.
    let dlocks = dlocks.len() as u64 * ROUNDS;
    let all = dlocks + others.len() as u64 * ROUNDS;
    assert_eq!(witness.check().len() as u64, if orders(kind) { all } else { dlocks });
    assert_eq!(read_counter(&counter), all);
    leave(service, others.into());
}

/// Whether the token of a program of this kind is comparable with dlock's tokens.
fn orders(kind: Kind) -> bool {
    !matches!(kind, Kind::Flock | Kind::RedisPy | Kind::RedlockPy)
}

/// What [`Witness::counter_command`] does, for a holder that is not dlock: under its own token, or without a token,
/// when the witness only looks for overlaps.
#[track_caller]
fn work_as_other(witness: &Witness, directory: &Path, counter: &Path, token: Option<String>) {
    const WITHOUT_TOKEN: &str = r#"
        exec 9>>"$1/witness.lock"
        flock -n 9 || { echo 'OVERLAP - 0' >> "$1/log"; exit 97; }
        n=0; [ ! -s "$2" ] || read -r n < "$2"; /bin/true; echo "$((n + 1))" > "$2"
    "#;
    let mut command = Command::new("/bin/sh");
    match token {
        Some(token) => command.args(&witness.counter_command(counter)[1..]).env("DLOCK_TOKEN", token),
        None => command.args(["-c", WITHOUT_TOKEN, "other"]).arg(directory).arg(counter),
    };
    assert!(command.status().unwrap().success(), "{}", witness.log());
}

/// A contender in a queue of dlocks and other programs.
enum Contender {
    Dlock(Gated),
    Other(Kind, Foreign),
}

impl Contender {
    /// Waits until it holds the lock, and returns its token if it has one.
    #[track_caller]
    fn wait_held(&mut self) -> Option<u64> {
        match self {
            Self::Dlock(gated) => Some(gated.token()),
            Self::Other(kind, other) => {
                let token = other.wait_held();
                orders(*kind).then(|| token.parse().unwrap())
            }
        }
    }

    #[track_caller]
    fn has_held(&mut self) -> bool {
        match self {
            Self::Dlock(gated) => gated.has_held(),
            Self::Other(_, other) => other.is_held(),
        }
    }
}

/// Checks a queue of these contenders in this order (`None` is a dlock): the lock passes promptly from one to the next,
/// nobody else has it in between, and all tokens rise. The first may hold the lock already.
#[track_caller]
fn is_served_in_order<S: Shared>(service: &S, queue: &[Option<Kind>]) {
    let mut waiting: Vec<Contender> = Vec::new();
    for kind in queue {
        let is_first = waiting.is_empty();
        waiting.push(match kind {
            None if is_first => Contender::Dlock(service.hold(KEY)),
            None => Contender::Dlock(service.queue_up(KEY, &["-q"])),
            Some(kind) => {
                let mut other = service.other(*kind);
                if is_first {
                    other.start_acquire();
                    eventually("the first one to have the lock", || other.is_held().then_some(()));
                } else {
                    service.queue_other(&mut other);
                }
                Contender::Other(*kind, other)
            }
        });
    }
    let (mut tokens, mut others, mut passed) = (Vec::new(), Vec::new(), boottime());
    for number in 0..queue.len() {
        let mut holder = waiting.remove(0);
        tokens.extend(holder.wait_held());
        assert_prompt(passed);
        let early = waiting.iter_mut().position(Contender::has_held);
        assert_eq!(early, None, "more than number {number} of {queue:?} have the lock");
        service.assert_held(KEY);
        passed = boottime();
        match holder {
            Contender::Dlock(gated) => {
                gated.let_go().success();
            }
            Contender::Other(_, mut other) => {
                other.release();
                others.push(other);
            }
        }
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    leave(service, others);
}

#[track_caller]
fn assert_prompt(since: Duration) {
    let took = boottime() - since;
    assert!(took < PROMPT, "the lock was handed over after {took:?}");
}

/// Ends the other programs, and checks that nothing of the lock is left but what they always leave.
#[track_caller]
fn leave<S: Shared>(service: &S, others: Vec<Foreign>) {
    let kinds: Vec<Kind> = others.iter().map(Foreign::kind).collect();
    others.into_iter().for_each(Foreign::close);
    let is_expected = |litter: &String| kinds.iter().any(|&kind| service.is_left_by(kind, litter));
    let mut litter = Vec::new();
    let clean = eventually_within(CLEAN, || {
        litter = service.litter(&[KEY]);
        litter.retain(|litter| !is_expected(litter));
        litter.is_empty().then_some(())
    });
    assert!(clean.is_some(), "left behind: {litter:?}");
}

/// How long a server may need to see that a connection is closed.
const CLEAN: Duration = Duration::from_secs(2);
