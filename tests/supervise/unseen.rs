/*!
Processes that dlock cannot list, cannot see, or that do not end: what is not known to be gone counts as left, and
nobody else's processes are touched.
*/

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{on_backend, on_file_and_redis};
use crate::support::process;
use crate::support::programs::{sh, unruly};
use crate::support::rendezvous::{Fifo, Gate, eventually};
use crate::support::scratch::Scratch;
use crate::support::service::{FileService, Gated, RedisService, Service};

on_file_and_redis! {
    the_guard_killed_without_descriptors_to_list_what_is_left
}

on_backend! { also_file: service::FileService { a_worker_that_cannot_end_counts_although_its_leader_has } }
on_backend! { also_redis: service::RedisService { a_worker_that_cannot_end_counts_although_its_leader_has } }

/// With as few descriptors as are enough for a run, and with some more.
fn the_guard_killed_without_descriptors_to_list_what_is_left<S: Service>(service: &S) {
    let is_enough = |&limit: &u64| {
        let outcome = service.run("probe").arg("-n").wrapped_by(descriptors(limit)).command(["true"]).output();
        let _ = outcome.stderr();
        outcome.status().code() == Some(0)
    };
    // With fewer the loader cannot open a library.
    let fewest = (4..64).find(is_enough).expect("64 descriptors are enough");
    for limit in fewest..fewest + 4 {
        killed_with_descriptors(service, limit);
    }
}

/// The wrapper that lets dlock have this many descriptors.
fn descriptors(limit: u64) -> [String; 2] {
    ["prlimit".into(), format!("--nofile={limit}:64")]
}

/// Neither the command nor its child in another session is left when the waiter gets the lock.
#[track_caller]
fn killed_with_descriptors<S: Service>(service: &S, limit: u64) {
    let mut words = Fifo::new(service.scratch().path(format!("words-{limit}")));
    let deaf = |name: &str| format!("trap '' TERM; {}; exec sleep 1000", words.say(&format!("{name}:$$")));
    // The command itself may have more.
    let script = format!("ulimit -Sn 64; (setsid {} &); {}", sh(&deaf("away")), deaf("command"));
    let dlock = service.run("job").args(["-t", "20s", "--kill-after", "300ms"]);
    let holder = dlock.wrapped_by(descriptors(limit)).shell(script).spawn();
    let left = [words.word(), words.word()];
    let left = left.map(|word| word.split_once(':').unwrap().1.parse::<i32>().unwrap());
    let guard = holder.guard_pid();
    let waiter = Gated::spawn(service.scratch(), service.run("job").arg("-q"));
    service.wait_queued("job", 1);
    process::signal(guard, Signal::SIGKILL);
    waiter.wait_held();
    let alive: Vec<i32> = left.into_iter().filter(|&pid| process::is_alive(pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {left:?} are left with {limit} descriptors, and another one has the lock");
    holder.wait().code(70).stderr();
    waiter.let_go().success();
}

/// Its process looks like one that has ended, and it is not.
fn a_worker_that_cannot_end_counts_although_its_leader_has<S: Service>(service: &S) {
    let headless = unruly(service.scratch(), "headless");
    let options = ["-t", "60s", "--kill-after", "200ms"];
    let holder = service.run("job").args(options).shell(format!("exec {headless}")).spawn();
    let worker = holder.wait_stdout("worker ").trim_start_matches("worker ").parse().unwrap();
    let command = process::status(worker, "Tgid").and_then(|pid| pid.parse().ok()).unwrap();
    eventually("the end of the leader", || (process::state(command) == process::State::Zombie).then_some(()));
    let immortal = Immortal::make(worker);
    process::signal(holder.guard_pid(), Signal::SIGKILL);
    immortal.wait_killed();
    let outcome = holder.wait();
    outcome.code(70);
    let told = outcome.stderr();
    assert!(told.contains("not released"), "{told}");
    service.assert_held("job");
    drop(immortal);
}

/// A thread that does not end even when it is killed: its tracer is notified of its exit, and holds it there. It ends
/// when this is dropped.
struct Immortal {
    killed: Receiver<()>,
    over: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Immortal {
    #[track_caller]
    fn make(thread: i32) -> Self {
        let ((ready, is_ready), (told, killed), (over, wait)) = (channel(), channel(), channel::<()>());
        let tracer = thread::spawn(move || {
            // SAFETY: the request does not access our memory.
            let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, libc::PTRACE_O_TRACEEXIT) };
            assert_eq!(done, 0, "ptrace: {}", std::io::Error::last_os_error());
            let _ = ready.send(());
            loop {
                let mut status = 0;
                // SAFETY: `status` is a valid place for the result.
                let stopped = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
                assert!(stopped == thread && libc::WIFSTOPPED(status), "it has ended: {status:#x}");
                if status >> 8 == libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8 {
                    break;
                }
                // A tracer is notified of other signals too, and passes them on.
                // SAFETY: the request does not access our memory.
                unsafe { libc::ptrace(libc::PTRACE_CONT, thread, 0, 0) };
            }
            let _ = told.send(());
            // With this thread ends the tracing, and the other one.
            let _ = wait.recv();
        });
        is_ready.recv().expect("it cannot be traced");
        Self { killed, over: Some(over), tracer: Some(tracer) }
    }

    /// Waits until it has been killed.
    #[track_caller]
    fn wait_killed(&self) {
        self.killed.recv_timeout(Duration::from_secs(30)).expect("nobody has killed it");
    }
}

impl Drop for Immortal {
    fn drop(&mut self) {
        drop(self.over.take());
        let _ = self.tracer.take().map(JoinHandle::join);
    }
}

/// In a PID namespace of its own with the `/proc` of another one, dlock would see strangers instead of what it has
/// started.
mod proc_of_another_namespace {
    use super::*;

    /// Without anything touched: not a lock file, not a key.
    #[track_caller]
    fn is_refused(wrapper: &[&str]) {
        let (file, redis) = (FileService::fresh(), RedisService::fresh());
        refused_on(&file, wrapper);
        assert_eq!(std::fs::read_dir(file.scratch().lock_dir()).unwrap().count(), 0);
        refused_on(&redis, wrapper);
        assert!(redis.redis.keys().is_empty());
    }

    #[track_caller]
    fn refused_on<S: Service>(service: &S, wrapper: &[&str]) {
        for options in [&[][..], &["-n"], &["-w", "5"]] {
            let outcome = service.run("job").args(options).command(["echo", "ran"]).wrapped_by(wrapper).output();
            outcome.code(69).stdout_is("").stderr_is_one_line("/proc");
        }
    }

    #[test]
    fn with_a_namespace_and_no_proc_it_is_refused() {
        is_refused(&["unshare", "-rpf"]);
    }

    #[test]
    fn in_the_namespace_of_somebody_else_it_is_refused() {
        let scratch = Scratch::new();
        let gate = Gate::new(scratch.path("gate"));
        let script = format!("echo ready; {}", gate.wait());
        let init = scratch.dlock().command(["sh", "-c", &script]).bare();
        let init = init.wrapped_by(["unshare", "-rpf", "--mount-proc"]).spawn();
        init.wait_stdout("ready");
        let pid = process::children(init.pid())[0].to_string();
        is_refused(&["nsenter", "-U", "-p", "-t", &pid, "--preserve-credentials"]);
        gate.open();
        init.wait().code(0);
    }

    /// The pids that dlock would signal belong to unrelated processes: these live on whatever becomes of the run.
    #[test]
    fn strangers_are_let_alone() {
        let service = FileService::fresh();
        let (line, end) = crate::support::rendezvous::Lifeline::pair();
        let stranger = service.scratch().dlock().command(["sleep", "1000"]).bare().lifeline(end).spawn();
        for options in [&["--max-run", "0.2"][..], &["--leftovers", "kill"]] {
            let dlock = service.run("job").args(["-q", "--kill-after", "0.1"]).args(options);
            let outcome = dlock.shell("sleep 0.5 & sleep 0.5").wrapped_by(["unshare", "-rpf"]).output();
            outcome.code(69).stderr_is_one_line("/proc");
        }
        assert!(line.is_open() && stranger.is_running());
    }
}
