/*!
Commands that fork without a pause, and commands of thousands of processes, under a server that no longer answers: all
of it is dead before the lease can expire, and dlock ends soon after that.
*/

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{Detour, User, on_backend, on_variant};
use crate::support::cgroup::CpuGroup;
use crate::support::dlock::{Outcome, Running};
use crate::support::process;
use crate::support::programs::unruly;
use crate::support::proxy::Mode;
use crate::support::rendezvous::{Lifeline, boottime};
use crate::support::service::Service;
use crate::support::witness::Witness;

// When dlock begins to stop a command depends on the granted lease alone, and on ZooKeeper on its share of that. The campaign has
// storms on all of them.
on_variant! { zookeeper: service::ZooKeeperService { a_fork_storm_is_over_before_the_lease_is } }

on_backend! { redis: service::RedisService {
    a_cpu_quota_does_not_make_the_guard_late
    a_fork_storm_is_over_before_the_lease_is
    a_storm_of_shells_is_over_before_the_lease_is
    thousands_of_processes_are_dead_before_the_lease_ends
    thousands_of_processes_die_soon_when_the_guard_is_killed
} }

on_backend! { file: service::FileService { a_fork_storm_is_over_soon } }

/// The lease in these tests.
const TTL: Duration = Duration::from_secs(8);

/// One storm at a time: several at once would each have only part of the machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// Waits until no other storm is running.
fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much later than its command's last process dlock ends, at most: it tries twice to release the lock, and a
/// request without an answer takes two seconds.
const SOON: Duration = Duration::from_secs(8);

/// How many chains of processes a storm has.
fn chains(user: User) -> u32 {
    if user == User::Own { 60 } else { 30 }
}

/// A holder whose command does `work` (shell text) after it has said `begun`, and a waiter behind it that reaches the
/// servers directly.
struct Scene {
    detour: Detour,
    witness: Witness,
    lifeline: Lifeline,
    holder: Running,
    waiter: Running,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    #[track_caller]
    fn start<S: Service>(service: &S, user: User, work: &str, begun: &str) -> Self {
        let alone = alone();
        let key = format!("{user:?}");
        let witness = Witness::in_dir(service.scratch().directory(&key, 0o777));
        let (detour, (lifeline, end)) = (Detour::to(service), Lifeline::pair());
        let options = ["-t", "8s"];
        let holder = user.run_by(service, &detour, &key).args(options).command(witness.command(work));
        let holder = holder.lifeline(end).spawn();
        holder.wait_stdout(begun);
        let waiter = user.run(service, &key).arg("-q").args(options).command(witness.command("true")).spawn();
        service.wait_queued(&key, 1);
        Self { detour, witness, lifeline, holder, waiter, _alone: alone }
    }

    /// Checks that after `end` the whole command dies (`in_time`, if given), that dlock ends soon after that as `check`
    /// wants it, and that the next holder begins then.
    #[track_caller]
    fn dies(self, end: impl FnOnce(&Self), in_time: bool, check: impl FnOnce(&Outcome)) {
        let begun = boottime();
        end(&self);
        let died = self.lifeline.closed_at();
        // The last renewal that was answered came before that.
        assert!(!in_time || died - begun < TTL, "it lived for {:?}", died - begun);
        let outcome = self.holder.wait();
        let late = boottime() - died;
        assert!(late < SOON, "dlock ended {late:?} after the last process of its command");
        check(&outcome);
        self.waiter.wait().success();
        assert_eq!(self.witness.check().len(), 2, "{}", self.witness.log());
    }

    #[track_caller]
    fn dies_under_a_silent_server(self) {
        self.dies(
            |scene| scene.detour.set(Mode::Silent),
            true,
            |outcome| {
                outcome.code(79).stderr_ends_with_line("lost ");
            },
        );
    }
}

fn a_fork_storm_is_over_before_the_lease_is<S: Service>(service: &S) {
    for &user in User::all() {
        let storm = unruly(service.scratch(), &format!("storm {}", chains(user)));
        Scene::start(service, user, &format!("{storm} & wait; true"), "storm ").dies_under_a_silent_server();
    }
}

fn a_storm_of_shells_is_over_before_the_lease_is<S: Service>(service: &S) {
    let user = User::Ordinary;
    // Nobody is left to stop them if the test fails.
    let shell = "end=$(($(date +%s) + 20)); while [ $(date +%s) -lt $end ]; do (true &) ; (true &) ; (true &); done";
    let storm = format!("trap '' TERM; for i in $(seq 30); do ({shell}) & done; echo storm; wait");
    Scene::start(service, user, &storm, "storm").dies_under_a_silent_server();
}

/// Throttled with busy processes that ignore SIGTERM, the guard is woken up late by seconds. Where it may have no group of its
/// own, nothing can be tested.
fn a_cpu_quota_does_not_make_the_guard_late<S: Service>(service: &S) {
    let _alone = alone();
    let Some(group) = CpuGroup::new(Duration::from_millis(20), Duration::from_millis(100)) else {
        // Other users may not make one.
        assert!(!process::is_root(), "no control group can be made: mount /sys/fs/cgroup so that it can be written");
        return;
    };
    let (detour, (lifeline, end)) = (Detour::to(service), Lifeline::pair());
    let busy = unruly(service.scratch(), "busy 60");
    let dlock = User::Ordinary.run_by(service, &detour, "job").args(["-v", "-t", "8s"]).shell(format!("{busy}; true"));
    let holder = group.bring(dlock).lifeline(end).spawn();
    holder.wait_stdout("busy ");
    let begun = boottime();
    detour.set(Mode::Silent);
    let died = lifeline.closed_at();
    group.lift();
    assert!(died.saturating_sub(begun) < TTL, "it lived for {:?}", died.saturating_sub(begun));
    let outcome = holder.wait();
    outcome.code(79);
    assert!(outcome.stderr().contains("uses up its CPU quota"), "{outcome:?}");
}

fn thousands_of_processes_are_dead_before_the_lease_ends<S: Service>(service: &S) {
    let crowd = unruly(service.scratch(), "crowd 3000");
    Scene::start(service, User::Ordinary, &format!("{crowd}; true"), "crowd ").dies_under_a_silent_server();
}

fn thousands_of_processes_die_soon_when_the_guard_is_killed<S: Service>(service: &S) {
    let crowd = unruly(service.scratch(), "crowd 3000");
    let scene = Scene::start(service, User::Ordinary, &format!("{crowd}; true"), "crowd ");
    scene.dies(
        |scene| process::signal(scene.holder.guard_pid(), Signal::SIGKILL),
        true,
        |outcome| {
            outcome.code(70).stderr_ends_with_line("guard");
        },
    );
}

/// Without a lease everything is dead, and dlock ends, soon after SIGKILL is due, which is after 700 ms. Left alone,
/// the storm would go on for twenty seconds.
fn a_fork_storm_is_over_soon<S: Service>(service: &S) {
    let _alone = alone();
    for &user in User::all() {
        let storm = unruly(service.scratch(), &format!("storm {}", chains(user)));
        for round in 0..5 {
            let (line, end) = Lifeline::pair();
            let dlock =
                user.run(service, &format!("{user:?}-{round}")).args(["--max-run", "0.5", "--kill-after", "0.2"]);
            let begun = boottime();
            let outcome = dlock.shell(format!("{storm} & wait; true")).lifeline(end).output();
            outcome.code(124).stderr_is_one_line("--max-run").stdout();
            let (died, ended) = (line.closed_at() - begun, outcome.elapsed());
            assert!(ended < Duration::from_secs(5), "{user:?}: dead after {died:?}, and over after {ended:?}");
        }
    }
}
