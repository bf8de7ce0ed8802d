use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::{DLOCK, Dlock};
use crate::support::process::{self, State};
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually, eventually_within};
use crate::support::scratch::Scratch;
use crate::support::servers::{Client, Port, Redis, need, need_python};

#[test]
fn a_reserved_port_is_given_to_nobody_else_and_can_be_served() {
    let port = Port::reserve();
    assert!(Client::connect(port.number()).is_err());
    let others: Vec<_> = (0..200).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    assert!(others.iter().all(|other| other.local_addr().unwrap().port() != port.number()));
    std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
}

#[test]
#[should_panic(expected = "missing no-such-program: apt-get install no-such-package")]
fn what_is_missing_is_named() {
    need("no-such-program", "no-such-package");
}

#[test]
fn a_python_with_a_client_library_is_found() {
    let python = need_python("redis", "python3-redis");
    let redis = Redis::start();
    let program = "import redis, sys; redis.Redis(port=int(sys.argv[1])).set('k', 'from python')";
    let status = Command::new(python).args(["-c", program, &redis.port().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(redis.get("k").as_deref(), Some("from python"));
}

#[test]
fn eventually_returns_the_first_answer() {
    let mut asked = 0;
    let third = eventually("the third time", || {
        asked += 1;
        (asked == 3).then_some("yes")
    });
    assert_eq!((third, asked), ("yes", 3));
    assert_eq!(eventually_within(Duration::ZERO, || None::<()>), None);
    let before = boottime();
    assert!(boottime() >= before);
}

#[test]
fn words_come_through_a_fifo_in_order_and_its_end_is_an_event() {
    let scratch = Scratch::new();
    let (mut fifo, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("{}; exec 9>'{}'; echo two >&9; {}", fifo.say("one"), fifo.path().display(), gate.wait());
    let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    fifo.expect("one");
    assert_eq!(fifo.word(), "two");
    assert_eq!(fifo.try_word(), None);
    assert!(child.try_wait().unwrap().is_none());
    gate.open();
    assert!(fifo.closed().is_empty());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_end_of_a_fifo_brings_the_words_that_were_left() {
    let scratch = Scratch::new();
    let mut fifo = Fifo::new(scratch.path("words"));
    let script = format!("{{ echo one; echo two; }} > '{}'", fifo.path().display());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    assert_eq!(fifo.closed(), ["one", "two"]);
}

#[test]
fn a_gate_that_is_dropped_lets_everybody_go_on() {
    let scratch = Scratch::new();
    let (mut fifo, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("exec < '{}'; {}; read -r _", gate.path().display(), fifo.say("here"));
    let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    fifo.expect("here");
    drop(gate);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_lifeline_ends_with_the_last_of_the_tree() {
    let scratch = Scratch::new();
    let (mut fifo, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let (line, end) = Lifeline::pair();
    // The grandchild moves to its own session and outlives the child.
    let inner = format!("{}; {}", fifo.say("ready"), gate.wait());
    let mut command = Command::new("sh");
    command.args(["-c", "setsid sh -c \"$1\" &", "sh", &inner]);
    end.attach(&mut command);
    let mut child = command.spawn().unwrap();
    drop(command);
    assert!(child.wait().unwrap().success());
    fifo.expect("ready");
    assert!(line.is_open());
    let before = boottime();
    gate.open();
    let closed = line.closed_at();
    assert!(before < closed && closed < boottime());
}

#[test]
fn proc_tells_about_a_tree() {
    let scratch = Scratch::new();
    let mut fifo = Fifo::new(scratch.path("words"));
    let gate = Gate::new(scratch.path("gate"));
    // With `:` after the last command, a shell does not replace itself by it.
    let script = format!("trap '' USR1; sh -c \"{}; {}; :\"; :", fifo.say("ready"), gate.wait());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(scratch.root()).stdin(Stdio::null());
    let mut parent = command.spawn().unwrap();
    fifo.expect("ready");
    let pid = parent.id().cast_signed();
    let children = process::children(pid);
    assert_eq!(children.len(), 1);
    let child = children[0];
    assert_eq!(process::descendants(pid), [child]);
    assert_eq!(process::ppid(child), Some(pid));
    assert_eq!(process::pgrp(child), process::pgrp(pid));
    assert_eq!(process::session(child), process::session(pid));
    assert_eq!(process::comm(child).as_deref(), Some("sh"));
    assert_eq!(process::cmdline(pid), ["sh", "-c", &script]);
    assert_eq!(process::cwd(pid).as_deref(), Some(scratch.root()));
    assert!(scratch.processes().contains(&pid) && scratch.processes().contains(&child));
    assert_eq!(process::fds(pid).get(&0).map(String::as_str), Some("/dev/null"));
    assert!(process::rss_kib(pid).unwrap() > 0);
    assert!(process::cpu_ticks(pid).is_some());
    let ignored = u64::from_str_radix(&process::status(pid, "SigIgn").unwrap(), 16).unwrap();
    assert_ne!(ignored & (1 << (Signal::SIGUSR1 as u64 - 1)), 0);

    process::signal(pid, Signal::SIGSTOP);
    process::wait_stopped(pid);
    process::signal(child, Signal::SIGKILL);
    // Nobody collects it, and yet it counts as gone.
    eventually("a zombie", || (process::state(child) == State::Zombie).then_some(()));
    assert!(!process::is_alive(child) && process::children(pid).is_empty());
    process::signal(pid, Signal::SIGKILL);
    assert_eq!(parent.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_eq!(process::state(pid), State::Gone);
    assert!(process::cmdline(pid).is_empty() && process::fds(pid).is_empty());
}

#[test]
fn a_scratch_directory_is_open_to_everybody_and_leaves_nothing() {
    let scratch = Scratch::new();
    let root = scratch.root().to_owned();
    fs::write(scratch.path("file"), "text").unwrap();
    let mut cat = Command::new("cat");
    cat.arg(scratch.path("file"));
    process::unprivileged(&mut cat);
    let output = cat.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "text");

    let script = scratch.script("hello", "#!/bin/sh\necho hello\n");
    assert_eq!(Command::new(script).output().unwrap().stdout, b"hello\n");

    let locks = scratch.lock_dir();
    assert_eq!(scratch.file_url(), format!("file://{}", locks.display()));
    let mut list = Command::new("ls");
    list.arg(&locks).stderr(Stdio::null());
    process::unprivileged(&mut list);
    let privileged = !process::is_root();
    assert_eq!(list.status().unwrap().success(), privileged);
    scratch.give_away("locks");
    assert!(list.status().unwrap().success());

    // Processes that still work in the directory go with it, wherever they moved.
    let mut fifo = Fifo::new(scratch.path("words"));
    let inner = format!("{}; exec sleep 60", fifo.say("$$"));
    let mut command = Command::new("setsid");
    command.args(["--fork", "sh", "-c", &inner]).current_dir(&root);
    assert!(command.status().unwrap().success());
    let pid = fifo.word().parse().unwrap();
    assert!(process::is_alive(pid));
    drop(scratch);
    process::wait_gone(pid);
    assert!(!root.exists());
}

/// A stand-in for dlock: a shell that runs `script`, with dlock's path and arguments in `$@`.
fn stand_in(scratch: &Scratch, script: &str) -> Dlock {
    scratch.dlock().wrapped_by(["sh", "-c", script, "sh"])
}

#[test]
fn a_dlock_gets_its_arguments_and_surroundings_exactly() {
    let scratch = Scratch::new();
    let words = stand_in(&scratch, r#"for word; do echo "$word"; done"#).run("a key").backend("file:");
    let words = words.args(["-w", "1"]).command(["echo", ""]).output();
    words.success().stdout_is(&format!("{}\nrun\n--key\na key\n--backend\nfile:\n-w\n1\n--\necho\n\n", *DLOCK));

    let root = scratch.root().display();
    let surroundings = stand_in(&scratch, "env | grep -v ^PWD= | cut -d= -f1 | sort; pwd; cat; umask; ulimit -n");
    let surroundings = surroundings.env("X", "1").env_remove("TMPDIR").umask(0o27).limit(libc::RLIMIT_NOFILE, 64);
    surroundings.output().success().stdout_is(&format!("DLOCK_CONFIG\nHOME\nPATH\nX\n{root}\n0027\n64\n"));

    let other = stand_in(&scratch, "echo ready; read -r _").stdin(Stdio::piped()).unprivileged().without_fd(2);
    let other = other.ignoring(Signal::SIGHUP).blocking(Signal::SIGUSR1).spawn();
    // Until then the loader has files open.
    other.wait_stdout("ready");
    let status = |field| process::status(other.pid(), field).unwrap();
    assert!(!status("Uid").split_whitespace().any(|id| id == "0"));
    let signals = |field| u64::from_str_radix(&status(field), 16).unwrap();
    assert_eq!(signals("SigBlk"), 1 << (Signal::SIGUSR1 as u64 - 1));
    assert_ne!(signals("SigIgn") & (1 << (Signal::SIGHUP as u64 - 1)), 0);
    assert!(!process::fds(other.pid()).contains_key(&2));

    let session = stand_in(&scratch, "read -r _").new_session().stdin(Stdio::piped()).spawn();
    assert_eq!(process::session(session.pid()), Some(session.pid()));
    let group = stand_in(&scratch, "read -r _").new_process_group().stdin(Stdio::piped()).spawn();
    assert_eq!(process::pgrp(group.pid()), Some(group.pid()));
    assert_ne!(process::session(group.pid()), Some(group.pid()));
}

#[test]
fn an_outcome_says_how_it_ended() {
    let scratch = Scratch::new();
    stand_in(&scratch, "echo out; echo 'dlock: k is busy' >&2; exit 75")
        .output()
        .code(75)
        .stdout_is("out\n")
        .stderr_is_one_line("is busy")
        .stderr_ends_with_line("busy");
    stand_in(&scratch, "kill -TERM $$").output().signal(Signal::SIGTERM).quiet();
}

#[test]
#[should_panic(expected = "nobody asked for what is on stderr")]
fn stray_messages_fail_a_test() {
    stand_in(&Scratch::new(), "echo stray >&2").output().code(0);
}

#[test]
#[should_panic(expected = "expected one line `dlock: …` with \"busy\" on stderr")]
fn two_messages_are_not_one() {
    stand_in(&Scratch::new(), "echo dlock: busy >&2; echo dlock: busy >&2").output().stderr_is_one_line("busy");
}

#[test]
#[should_panic(expected = "sh -c 'echo more; exit 3' sh")]
fn a_failed_expectation_shows_the_command() {
    stand_in(&Scratch::new(), "echo more; exit 3").output().success();
}

#[test]
fn lines_are_events_and_survivors_do_not_delay_an_outcome() {
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.path("gate"));
    // The survivor keeps both streams open, and writes once more when it is let go.
    let script = format!("echo one >&2; {}; {{ {}; echo late; }} & echo two; exit 4", gate.wait(), gate.wait());
    let mut running = stand_in(&scratch, &script).stdin(Stdio::piped()).spawn();
    drop(running.take_stdin());
    assert_eq!(running.wait_stderr("on"), "one");
    assert!(running.is_running());
    gate.open();
    assert_eq!(running.wait_stdout("two"), "two");
    let outcome = running.wait();
    outcome.code(4).stdout_is("two\n");
    assert_eq!(outcome.stderr(), "one\n");
    gate.open();

    let running = stand_in(&scratch, "echo last; exec >&-; exec sleep 60").spawn();
    assert_eq!(running.wait_stdout_closed(), "last\n");
}

#[test]
#[should_panic(expected = "stopped waiting for a line with \"never\" on stderr")]
fn a_line_that_cannot_come_any_more_fails_at_once() {
    stand_in(&Scratch::new(), "echo only this >&2").spawn().wait_stderr("never");
}

#[test]
fn a_dropped_dlock_takes_its_tree_along() {
    let scratch = Scratch::new();
    let (line, end) = Lifeline::pair();
    let mut fifo = Fifo::new(scratch.path("words"));
    // A process forked after that could get away: this stand-in does not adopt orphans, as dlock does.
    let script = format!("trap '' TERM; sh -c \"sleep 60 & {}; wait; :\"; :", fifo.say("ready"));
    let running = stand_in(&scratch, &script).lifeline(end).spawn();
    fifo.expect("ready");
    assert!(!running.descendants().is_empty());
    let pid = running.pid();
    assert!(line.is_open());
    drop(running);
    line.closed_at();
    assert_eq!(process::state(pid), State::Gone);
}
