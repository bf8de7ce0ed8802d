/*!
What a command leaves behind: nothing, when a signal ended it or it ended because of one, whoever holds the lock next;
and all that it wants to, when it ended by itself.
*/

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{User, on_backend, on_file_and_redis};
use crate::support::dlock::{Outcome, Running};
use crate::support::exhausted::SmallMemory;
use crate::support::process;
use crate::support::programs::{sh, unruly};
use crate::support::rendezvous::{Fifo, Gate, boottime, last_until};
use crate::support::service::Service;
use crate::support::witness::Witness;

on_file_and_redis! {
    term_to_dlock_leaves_nothing
    hup_to_dlock_leaves_nothing
    kill_of_the_command_leaves_nothing
    term_to_the_group_leaves_nothing_elsewhere
    a_command_that_ends_well_because_it_was_told_to_leaves_nothing
    a_command_that_the_kernel_kills_for_its_memory_leaves_nothing
}

on_backend! { also_file: service::FileService { after_a_normal_end_all_stays every_signal_that_tells_it_to_end_counts } }
on_backend! { also_redis: service::RedisService { after_a_normal_end_all_stays every_signal_that_tells_it_to_end_counts } }

/// The time between SIGTERM and SIGKILL for what is left behind.
const KILL_AFTER: Duration = Duration::from_millis(500);

/// A holder whose command has two children, one that ignores SIGTERM and one in its own session, and a waiter behind
/// it.
struct Scene {
    witness: Witness,
    holder: Running,
    command: i32,
    /// What is left when the command has ended.
    children: Vec<i32>,
    waiter: Running,
}

impl Scene {
    /// `trap` is shell code with which the command begins.
    #[track_caller]
    fn start<S: Service>(service: &S, user: User, trap: &str) -> Self {
        let key = format!("{user:?}");
        let directory = service.scratch().directory(&key, 0o777);
        let (witness, mut words) = (Witness::in_dir(&directory), Fifo::new(directory.join("words")));
        let child = format!("{}; exec sleep 1000", words.say("child:$$"));
        let (away, deaf) = (sh(&child), sh(&format!("trap '' TERM HUP INT QUIT; {child}")));
        let script = format!("{trap}; setsid {away} & {}; {deaf} & wait; true", words.say("command:$$"));
        let options = ["-t", "10s", "--kill-after", "500ms"];
        let holder =
            user.run(service, &key).args(options).command(witness.command(&script)).new_process_group().spawn();
        let (mut command, mut children) = (0, Vec::new());
        for _ in 0..3 {
            let word = words.word();
            let (name, pid) = word.split_once(':').unwrap();
            let pid = pid.parse().unwrap();
            if name == "command" { command = pid } else { children.push(pid) }
        }
        let waiter = user.run(service, &key).args(["-q", "-t", "10s"]).command(witness.command("true")).spawn();
        service.wait_queued(&key, 1);
        Self { witness, holder, command, children, waiter }
    }

    /// The command is ended by `end`: `check` accepts the exit code, nothing of the command is left then, and the
    /// waiter gets the lock after that.
    #[track_caller]
    fn ends(self, end: impl FnOnce(&Self), check: impl FnOnce(&Outcome) -> &Outcome) {
        let told = boottime();
        end(&self);
        let outcome = self.holder.wait();
        let took = boottime() - told;
        let left: Vec<i32> = self.children.iter().copied().filter(|&pid| process::is_alive(pid)).collect();
        assert!(left.is_empty(), "{left:?} of {:?} are left when dlock has ended after {took:?}", self.children);
        check(&outcome).quiet();
        assert!(took >= KILL_AFTER, "what is left had {took:?} to end by itself");
        self.waiter.wait().success();
        assert_eq!(self.witness.check().len(), 2, "{}", self.witness.log());
    }
}

fn term_to_dlock_leaves_nothing<S: Service>(service: &S) {
    for &user in User::all() {
        let scene = Scene::start(service, user, ":");
        scene.ends(|scene| scene.holder.signal(Signal::SIGTERM), |outcome| outcome.signal(Signal::SIGTERM));
    }
}

fn hup_to_dlock_leaves_nothing<S: Service>(service: &S) {
    for &user in User::all() {
        let scene = Scene::start(service, user, ":");
        scene.ends(|scene| scene.holder.signal(Signal::SIGHUP), |outcome| outcome.signal(Signal::SIGHUP));
    }
}

fn kill_of_the_command_leaves_nothing<S: Service>(service: &S) {
    for &user in User::all() {
        let scene = Scene::start(service, user, ":");
        scene.ends(|scene| process::signal(scene.command, Signal::SIGKILL), |outcome| outcome.signal(Signal::SIGKILL));
    }
}

fn term_to_the_group_leaves_nothing_elsewhere<S: Service>(service: &S) {
    for &user in User::all() {
        let scene = Scene::start(service, user, ":");
        scene.ends(
            |scene| process::signal_group(scene.holder.pid(), Signal::SIGTERM),
            |outcome| outcome.signal(Signal::SIGTERM),
        );
    }
}

fn a_command_that_ends_well_because_it_was_told_to_leaves_nothing<S: Service>(service: &S) {
    for &user in User::all() {
        let scene = Scene::start(service, user, "trap 'exit 0' TERM");
        scene.ends(|scene| scene.holder.signal(Signal::SIGTERM), |outcome| outcome.code(0));
    }
}

fn every_signal_that_tells_it_to_end_counts<S: Service>(_: &S) {
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        for to_group in [false, true] {
            let service = S::fresh();
            let scene = Scene::start(&service, User::Own, &format!("trap 'exit 3' {}", &signal.as_str()[3..]));
            let tell = |scene: &Scene| {
                let dlock = scene.holder.pid();
                if to_group { process::signal_group(dlock, signal) } else { process::signal(dlock, signal) }
            };
            scene.ends(tell, |outcome| outcome.code(3));
        }
    }
}

/// The command is the largest by far, so nothing else is killed.
fn a_command_that_the_kernel_kills_for_its_memory_leaves_nothing<S: Service>(service: &S) {
    let Some(memory) = SmallMemory::of(100) else {
        eprintln!("not tested: no control group for memory can be made here");
        return;
    };
    let witness = Witness::in_dir(service.scratch().root());
    let hog = format!("exec {}", unruly(service.scratch(), "hog"));
    let gate = Gate::new(service.scratch().path("gate"));
    let dlock = service.run("job").args(["-t", "10s", "--kill-after", "500ms"]).wrapped_by(memory.wrapper());
    let holder = dlock.command(witness.command(&format!("{}; {hog}", gate.wait()))).spawn();
    holder.command_pid();
    let waiter = service.run("job").args(["-q", "-t", "10s"]).command(witness.command("true")).spawn();
    service.wait_queued("job", 1);
    gate.open();
    let child: i32 = holder.wait_stdout("child ").trim_start_matches("child ").parse().unwrap();
    holder.wait().signal(Signal::SIGKILL).quiet();
    assert!(!process::is_alive(child), "its child {child} is left");
    waiter.wait().success();
    assert_eq!(witness.check().len(), 2, "{}", witness.log());
}

/// Also when the signal that was passed on does not ask to end, or came long before.
fn after_a_normal_end_all_stays<S: Service>(service: &S) {
    let told = |signal| move |holder: &Running| holder.signal(signal);
    let nothing = |_: &Running| {};
    left_alone(service, "", &nothing, Duration::ZERO);
    left_alone(service, "trap : USR1; ", &told(Signal::SIGUSR1), Duration::ZERO);
    left_alone(service, "trap : TERM; ", &told(Signal::SIGTERM), 4 * KILL_AFTER);
}

/// The command gets a signal, exits with 3 after that time, and what it leaves behind is left alone.
#[track_caller]
fn left_alone<S: Service>(service: &S, trap: &str, tell: &dyn Fn(&Running), later: Duration) {
    let (mut words, gate) = fresh_pipes(service);
    let script = format!(
        "{trap}setsid {} > /dev/null 2>&1 & {}; until {}; do {}; done; exit 3",
        sh(&format!("{}; exec sleep 1000", words.say("$$"))),
        words.say("ready"),
        gate.wait(),
        words.say("heard")
    );
    let holder = service.run("job").args(["--kill-after", "500ms"]).shell(script).spawn();
    let said = [words.word(), words.word()];
    let left: i32 = said.iter().find_map(|word| word.parse().ok()).expect("a pid");
    tell(&holder);
    if !trap.is_empty() {
        words.expect("heard");
    }
    last_until(boottime() + later);
    gate.open();
    holder.wait().code(3).quiet();
    assert!(process::is_alive(left), "{left} was stopped although the command ended by itself");
    service.assert_free("job");
    process::signal(left, Signal::SIGKILL);
    process::wait_gone(left);
}

/// Pipes in a directory of their own.
fn fresh_pipes<S: Service>(service: &S) -> (Fifo, Gate) {
    let number = fs::read_dir(service.scratch().root()).unwrap().count();
    let directory = service.scratch().directory(&format!("pipes-{number}"), 0o777);
    (Fifo::new(directory.join("words")), Gate::new(directory.join("gate")))
}
