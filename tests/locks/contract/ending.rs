//! The end of the command and what is left then.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::Running;
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually};
use crate::support::service::Service;

pub(super) fn the_lock_is_free_after_every_end_of_the_command<S: Service>(service: &S) {
    let run = |script: &str| service.run("job").shell(script).output();
    run("exit 0").success();
    service.assert_free("job");
    run("exit 7").code(7).quiet();
    service.assert_free("job");
    run("kill -TERM $$").signal(Signal::SIGTERM).quiet();
    service.assert_free("job");
    run("kill -KILL $$").signal(Signal::SIGKILL).quiet();
    service.assert_free("job");
    service.run("job").command(["/no/such/program"]).output().code(127).stderr_is_one_line("not found");
    service.assert_free("job");
}

pub(super) fn verbose_says_when_it_is_acquired_and_released<S: Service>(service: &S) {
    let outcome = service.run("job").arg("-v").shell("echo $DLOCK_TOKEN").output();
    let token = outcome.code(0).stdout();
    let stderr = outcome.stderr();
    let [acquired, "dlock: released 'job'"] = stderr.lines().collect::<Vec<_>>()[..] else { panic!("{outcome:?}") };
    let place = format!("dlock: acquired 'job' at {}", service.url());
    let rest = acquired.strip_prefix(&place).expect("the lock");
    let table = ["public", "locks"].map(|schema| format!(" (table {schema}.shedlock)"));
    let rest = table.iter().find_map(|table| rest.strip_prefix(table)).unwrap_or(rest);
    let rest = rest.strip_prefix(&format!(", token {}", token.trim_end())).expect("its token");
    // The granted lease, where there is one, and how long it took.
    let lease = if service.url().starts_with("file:") { "" } else { ", ttl " };
    assert!(
        rest.starts_with(lease) && rest.contains(", after ") && rest.contains("ttl") != lease.is_empty(),
        "{rest:?}"
    );
    // A failing command is no reason to say less.
    service.run("job").arg("-v").shell("exit 3").output().code(3).stderr_ends_with_line("released 'job'");
}

pub(super) fn nothing_is_left_behind<S: Service>(service: &S) {
    let holder = service.hold("job");
    let waiter = service.queue_up("job", &["-q"]);
    service.run("job").args(["-n", "-q"]).command(["true"]).output().code(75);
    service.run("job").args(["-w", "0.05", "-q"]).command(["true"]).output().code(75);
    let told = service.queue_up("job", &["-q"]);
    told.running.signal(Signal::SIGTERM);
    told.running.wait().signal(Signal::SIGTERM).quiet();
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
    service.run("job").shell("exit 3").output().code(3);
    service.run("job").shell("kill -KILL $$").output().signal(Signal::SIGKILL);
    service.run("other").command(["/no/such/program"]).output().code(127).stderr_is_one_line("not found");
    let stopped = service.run("other").args(["--max-run", "0.05"]).command(["sleep", "60"]).output();
    stopped.code(124).stderr_is_one_line("--max-run");
    // The guard ends after dlock, and the server notices a closed connection only later.
    eventually("the last process to go", || service.scratch().processes().is_empty().then_some(()));
    service.assert_tidy(&["job", "other"]);
}

/// Shell code of a command that leaves a process in the background, in a session of its own, and then waits at `gate`.
/// It writes the pid of that process to `fifo`; the process ends when `leave` opens.
fn leaving(fifo: &Fifo, leave: &Gate, gate: &Gate) -> String {
    let left = format!("trap '' TERM; {}; {}", fifo.say("$$"), leave.wait()).replace('\'', r"'\''");
    format!("setsid sh -c '{left}' > /dev/null 2>&1 & {}", gate.wait())
}

pub(super) fn leftovers_are_left_alone_by_default<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    for options in [&[][..], &["--leftovers", "leave"]] {
        let running = service.run("job").args(options).shell(leaving(&fifo, &leave, &gate)).spawn();
        let left = fifo.word().parse().unwrap();
        gate.open();
        running.wait().success();
        assert!(process::is_alive(left));
        service.assert_free("job");
        leave.open();
        process::wait_gone(left);
    }
}

pub(super) fn leftovers_can_be_waited_for<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    let script = format!("{}; exit 3", leaving(&fifo, &leave, &gate));
    let running = service.run("job").args(["--leftovers", "wait"]).shell(script).spawn();
    let (left, command) = (fifo.word().parse().unwrap(), running.command_pid());
    gate.open();
    process::wait_gone(command);
    assert!(process::is_alive(left));
    service.assert_held("job");
    assert!(running.is_running());
    leave.open();
    running.wait().code(3).quiet();
    assert!(!process::is_alive(left));
    service.assert_free("job");
}

/// By a signal to dlock, which nobody else would hear, and by the limit of the command.
pub(super) fn leftovers_that_are_waited_for_can_be_stopped<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    let script = format!("{}; exit 3", leaving(&fifo, &leave, &gate));
    let run = || service.run("job").args(["--leftovers", "wait", "--kill-after", "100ms"]);
    let ends = |running: Running, left: i32, code: i32| {
        let outcome = running.wait();
        outcome.code(code);
        assert!(!process::is_alive(left));
        service.assert_free("job");
        outcome
    };
    let events = path("events");
    let running = run().arg("--events").arg(&events).shell(&script).spawn();
    let left = fifo.word().parse().unwrap();
    gate.open();
    let has_exited = || fs::read_to_string(&events).is_ok_and(|events| events.contains(r#""event":"exited""#));
    eventually("the end of the command", || has_exited().then_some(()));
    running.signal(Signal::SIGTERM);
    ends(running, left, 3).quiet();
    let running = run().args(["--max-run", "0.8"]).shell(&script).spawn();
    let left = fifo.word().parse().unwrap();
    gate.open();
    ends(running, left, 124).stderr_is_one_line("--max-run");
}

pub(super) fn leftovers_can_be_killed<S: Service>(service: &S) {
    let path = |name| service.scratch().path(name);
    let (mut fifo, leave, gate) = (Fifo::new(path("words")), Gate::new(path("leave")), Gate::new(path("gate")));
    let script = format!("{}; exit 3", leaving(&fifo, &leave, &gate));
    let options = ["--leftovers", "kill", "--kill-after", "100ms"];
    let running = service.run("job").args(options).shell(script).spawn();
    let left = fifo.word().parse().unwrap();
    gate.open();
    running.wait().code(3).quiet();
    assert!(!process::is_alive(left));
    service.assert_free("job");
}

pub(super) fn max_run_ends_the_command<S: Service>(service: &S) {
    // Time enough for a shell to set a trap on a busy machine.
    // That dlock has stopped the command is said with `-q` too.
    let run = |script: &str| service.run("job").args(["-q", "--max-run", "0.8"]).shell(script).output();
    // How the command reacts to SIGTERM does not change the exit code.
    let outcome = run("trap 'echo told; exit 3' TERM; sleep 60 & wait");
    outcome.code(124).stdout_is("told\n").stderr_is_one_line("--max-run");
    assert!(outcome.elapsed() >= Duration::from_millis(800), "{outcome:?}");
    service.assert_free("job");
    // A command that ends in time never hears of it.
    let long = service.run("job").args(["--max-run", "1h"]).shell("exit 3").output();
    long.code(3).quiet();
}

pub(super) fn max_run_ends_all_that_the_command_started<S: Service>(service: &S) {
    let (line, end) = Lifeline::pair();
    let deaf = "trap '' TERM; setsid sh -c 'sleep 60; :' & sleep 60; :";
    let options = ["--max-run", "0.2", "--kill-after", "0.3"];
    let started = boottime();
    let outcome = service.run("job").args(options).lifeline(end).shell(deaf).output();
    outcome.code(124).stderr_is_one_line("--max-run");
    let after = line.closed_at().saturating_sub(started);
    assert!(after >= Duration::from_millis(500), "no time to end by itself: {after:?}");
    assert!(after < Duration::from_secs(10), "{after:?}");
    service.assert_free("job");
}
