/*!
What hits the caller's whole process group, SIGKILL and SIGSTOP: the guard is not in it, and stops what was not hit. And
job control is for the command what it would be without dlock.
*/

mod signals;

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{User, on_file_and_redis};
use crate::support::dlock::{DLOCK, Dlock, Running};
use crate::support::process;
use crate::support::programs::sh;
use crate::support::pty::Pty;
use crate::support::rendezvous::{Fifo, Gate, boottime, eventually, last_until};
use crate::support::scratch::Scratch;
use crate::support::service::Service;
use crate::support::witness::Witness;

on_file_and_redis! {
    timeout_with_kill_after_leaves_nothing_beside_the_next_holder
    kill_9_of_a_job_leaves_nothing_beside_the_next_holder
    a_frozen_group_leaves_nothing_beside_the_next_holder
    a_group_that_is_frozen_for_a_moment_goes_on
}

/// The lease of the holders that are hit.
const TTL: Duration = Duration::from_secs(2);

/// Where the work is: in the group, in the group of a timeout(1) within it, in a session of its own.
const PLACES: [&str; 3] = ["", "timeout 1000", "setsid"];

/// How a dlock is started.
type Wrap = fn(Dlock) -> Dlock;

/// A command and its work in one of the [`PLACES`], both ignoring SIGTERM, and a waiter behind it.
struct Scene {
    key: String,
    witness: Witness,
    holder: Running,
    waiter: Running,
    work: i32,
}

impl Scene {
    #[track_caller]
    fn start<S: Service>(service: &S, (user, key): (User, &str), place: &str, options: &[&str], wrap: Wrap) -> Self {
        let directory = service.scratch().directory(key, 0o777);
        let (witness, mut words) = (Witness::in_dir(&directory), Fifo::new(directory.join("words")));
        let work = format!("{}; exec sleep 1000", words.say("$$"));
        let script = format!("trap '' TERM; {place} {} & wait; true", sh(&work));
        let run = |dlock: Dlock, work: &str| dlock.args(["-t", "2s"]).command(witness.command(work));
        let holder = wrap(run(user.run(service, key).args(options), &script)).spawn();
        let work = words.word().parse().unwrap();
        let waiter = run(user.run(service, key).arg("-q"), "true").spawn();
        service.wait_queued(key, 1);
        Self { key: key.to_owned(), witness, holder, waiter, work }
    }

    /// After SIGKILL to the group: the work is gone before the next one begins. Where there is no lease it may go on
    /// for as long as it likes instead, and is locked.
    #[track_caller]
    fn ends<S: Service>(self, service: &S, user: User, since: Duration) {
        let outcome = self.holder.wait();
        outcome.signal(Signal::SIGKILL).stderr();
        let ended = boottime();
        if S::KIND == "file" {
            // Whatever is done about it is done by then, and what is still alive is killed by nobody for some seconds.
            last_until(since + TTL);
            if process::is_alive(self.work) {
                let other = user.run(service, &self.key).args(["-n", "-q"]).command(["true"]).output();
                other.code(75).quiet();
            }
            process::signal(self.work, Signal::SIGKILL);
        }
        self.waiter.wait().success();
        let next = boottime();
        assert!(!process::is_alive(self.work), "the work lives on {:?} after the end", next - ended);
        let sections = self.witness.check();
        assert_eq!(sections.len(), 2, "{}", self.witness.log());
    }
}

/// Scenes with the work in each of the places, and the options that make a difference.
fn scenes<S: Service>(service: &S, user: User, wrap: Wrap) -> Vec<Scene> {
    // On file with --close, the guard alone holds the lock.
    let all: &[&[&str]] = if S::KIND == "file" { &[&[], &["--close"]] } else { &[&[]] };
    let mut scenes = Vec::new();
    for (number, place) in PLACES.iter().enumerate() {
        for (variant, options) in all.iter().enumerate() {
            let key = format!("{user:?}-{number}-{variant}");
            scenes.push(Scene::start(service, (user, &key), place, options, wrap));
        }
    }
    scenes
}

/// TERM to all of the group, and KILL half a second later.
fn timeout_with_kill_after_leaves_nothing_beside_the_next_holder<S: Service>(service: &S) {
    for &user in User::all() {
        let scenes = scenes(service, user, |dlock| dlock.wrapped_by(["timeout", "-k", "0.5", "1000"]));
        for scene in &scenes {
            // Its time is over.
            scene.holder.signal(Signal::SIGALRM);
        }
        let since = boottime();
        for scene in scenes {
            scene.ends(service, user, since);
        }
    }
}

fn kill_9_of_a_job_leaves_nothing_beside_the_next_holder<S: Service>(service: &S) {
    for &user in User::all() {
        let scenes = scenes(service, user, Dlock::new_process_group);
        for scene in &scenes {
            process::signal_group(scene.holder.pid(), Signal::SIGKILL);
        }
        let since = boottime();
        for scene in scenes {
            scene.ends(service, user, since);
        }
    }
}

/// A process that is frozen itself may still be there when the waiter gets the lock; one that runs may not. On file
/// nothing has to be gone.
fn a_frozen_group_leaves_nothing_beside_the_next_holder<S: Service>(service: &S) {
    for &user in User::all() {
        let frozen: Vec<_> = PLACES[1..].iter().map(|place| Frozen::start(service, user, place)).collect();
        for frozen in frozen {
            frozen.ends(service);
        }
    }
}

/// A holder whose group is frozen, except for its work, and a waiter behind it.
struct Frozen {
    holder: Running,
    waiter: Running,
    work: i32,
}

impl Frozen {
    #[track_caller]
    fn start<S: Service>(service: &S, user: User, place: &str) -> Self {
        let key = format!("frozen-{user:?}-{}", place.split(' ').next().unwrap_or_default());
        let directory = service.scratch().directory(&key, 0o777);
        let mut words = Fifo::new(directory.join("words"));
        let run = |script: String| user.run(service, &key).args(["-t", "2s", "-q"]).shell(script);
        // Only the work has it.
        let turn = format!("flock -n -E 97 '{}'", directory.join("turn").display());
        let work = sh(&format!("trap '' TERM; {}; exec sleep 1000", words.say("$$")));
        let holder = run(format!("trap '' TERM; {place} {turn} {work} & wait; exit 5")).new_process_group().spawn();
        let work = words.word().parse().unwrap();
        let waiter = run(format!("{turn} true || echo overlap")).spawn();
        service.wait_queued(&key, 1);
        process::signal_group(holder.pid(), Signal::SIGSTOP);
        process::wait_stopped(holder.pid());
        Self { holder, waiter, work }
    }

    #[track_caller]
    fn ends<S: Service>(self, _: &S) {
        if S::KIND == "file" {
            // It takes as long as it likes.
            last_until(boottime() + TTL / 2);
            assert!(self.waiter.is_running() && process::is_alive(self.work));
            process::signal_group(self.holder.pid(), Signal::SIGCONT);
            process::signal(self.work, Signal::SIGKILL);
            self.holder.wait().code(5).quiet();
            self.waiter.wait().success().stdout_is("");
            return;
        }
        self.waiter.wait().success().stdout_is("");
        assert!(!process::is_alive(self.work));
        process::signal_group(self.holder.pid(), Signal::SIGCONT);
        let outcome = self.holder.wait();
        outcome.code(79);
        assert!(outcome.stderr().contains("dlock: lost "), "{outcome:?}");
    }
}

fn a_group_that_is_frozen_for_a_moment_goes_on<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut words, gate) = (Fifo::new(path("words")), Gate::new(path("gate")));
    let script = format!("setsid {} & {}; wait; exit 5", sh(&format!("{}; {}", words.say("$$"), gate.wait())), ":");
    let holder = service.run("job").shell(script).new_process_group().spawn();
    let away: i32 = words.word().parse().unwrap();
    let (dlock, command) = (holder.pid(), holder.command_pid());
    for _ in 0..2 {
        process::signal_group(dlock, Signal::SIGSTOP);
        process::wait_stopped(dlock);
        process::wait_stopped(command);
        last_until(boottime() + Duration::from_millis(300));
        assert!(process::is_alive(away) && process::is_alive(command));
        process::signal_group(dlock, Signal::SIGCONT);
        let goes_on = |pid| process::state(pid) != process::State::Stopped;
        eventually("it to go on", || (goes_on(dlock) && goes_on(command)).then_some(()));
        service.assert_held("job");
    }
    gate.open();
    holder.wait().code(5).quiet();
    service.assert_free("job");
}

/// A terminal whose session has no shell that could continue a job: its suspend key stops nothing, as without dlock.
/// The guard must not make the group look as if there were one.
#[test]
fn without_job_control_a_terminal_suspends_nobody() {
    let scratch = Scratch::new();
    let ask = scratch.script("ask", "#!/bin/sh\necho ready; read -r name; echo \"hello $name\"\n");
    let dlock = format!("'{}' run -k k -b {} -- '{}'", *DLOCK, scratch.file_url(), ask.display());
    // As the leader of the session, as by `setsid dlock`, and below a shell that is one, as by `script -c`.
    for script in [format!("exec {dlock}"), format!("{dlock}; echo code=$?"), format!("exec '{}'", ask.display())] {
        let mut shell = Command::new("sh");
        let terminal = Pty::spawn(shell.args(["-c", &script]).current_dir(scratch.root()));
        terminal.expect("ready");
        for _ in 0..2 {
            terminal.send_key('z');
        }
        terminal.send("Ada\n");
        // What is read comes after the keys before it.
        terminal.expect("hello Ada");
        assert_eq!(terminal.wait().code(), Some(0));
    }
}
