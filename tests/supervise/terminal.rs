use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::dlock::DLOCK;
use crate::support::process::{self, State};
use crate::support::pty::{PROMPT, Pty, bash};
use crate::support::recorder::{RECORDER_CODE, Recorder};
use crate::support::rendezvous::{Fifo, Gate, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need_python};

/// How the line that is kept up to date begins: back to the first column, and an empty line.
const REDRAW: &str = "\r\x1b[2K";

/// A shell at its prompt in the scratch directory, for which `$D` is dlock with the backend `url`, and `$R` the recorder.
fn shell(scratch: &Scratch, url: &str) -> Pty {
    let mut bash = bash();
    bash.current_dir(scratch.root()).env("D", *DLOCK).env("DLOCK_BACKEND", url).env("R", scratch.path("recorder"));
    let terminal = Pty::spawn(&mut bash);
    terminal.expect(PROMPT);
    terminal
}

/// The three processes of a dlock whose command runs.
struct Trio {
    dlock: i32,
    guard: i32,
    command: i32,
}

impl Trio {
    /// Those of the job that the terminal's keys reach.
    #[track_caller]
    fn in_foreground(terminal: &Pty) -> Self {
        Self::of(terminal.foreground().as_raw())
    }

    #[track_caller]
    fn of(dlock: i32) -> Self {
        let only_child = |pid| eventually("one child", || (process::children(pid)[..]).first().copied());
        let guard = only_child(dlock);
        Self { dlock, guard, command: only_child(guard) }
    }

    #[track_caller]
    fn wait_suspended(&self) {
        process::wait_stopped(self.command);
        process::wait_stopped(self.dlock);
        assert_ne!(process::state(self.guard), State::Stopped, "a suspended guard guards nothing");
    }

    #[track_caller]
    fn wait_running(&self) {
        for pid in [self.command, self.dlock] {
            let runs = || !matches!(process::state(pid), State::Stopped);
            eventually(&format!("{pid} to go on"), || runs().then_some(()));
        }
    }
}

/// Asserts whether the lock `k` is free.
#[track_caller]
fn assert_free(scratch: &Scratch, url: &str, free: bool) {
    let other = scratch.dlock().run("k").backend(url).args(["-n", "-q"]).command(["true"]).output();
    other.code(if free { 0 } else { 75 }).quiet();
}

#[test]
fn ctrl_c_ends_the_command_and_dlock() {
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    scratch.script("work", &format!("#!/bin/sh\n{}\nexec sleep 1000\n", words.say("ready")));
    for (key, code) in [('c', 130), ('\\', 131)] {
        let terminal = shell(&scratch, &scratch.file_url());
        terminal.send("\"$D\" run -k k -- ./work\n");
        words.expect("ready");
        let trio = Trio::in_foreground(&terminal);
        terminal.send_key(key);
        terminal.expect(PROMPT);
        for pid in [trio.command, trio.guard, trio.dlock] {
            process::wait_gone(pid);
        }
        terminal.send("echo code=$?\n");
        terminal.expect(&format!("code={code}"));
        assert!(!terminal.screen().contains("dlock:"), "{}", terminal.screen());
        assert_free(&scratch, &scratch.file_url(), true);
    }
}

#[test]
fn ctrl_c_reaches_the_command_once_also_in_a_pipeline() {
    for pipeline in ["", " | cat", " | cat | cat"] {
        let scratch = Scratch::new();
        let mut recorder = Recorder::new(&scratch);
        let terminal = shell(&scratch, &scratch.file_url());
        terminal.send(&format!("\"$D\" run -k k -- \"$R\"{pipeline}\n"));
        let command = recorder.ready();
        let trio = Trio::in_foreground(&terminal);
        assert_eq!(trio.command, command);
        for (key, signal) in [('c', Signal::SIGINT), ('c', Signal::SIGINT), ('\\', Signal::SIGQUIT)] {
            terminal.send_key(key);
            let heard = recorder.next();
            assert_eq!((heard.signal, heard.sender), (signal, 0), "not from the terminal");
        }
        recorder.expect_nothing_more(trio.dlock);
        recorder.end();
        assert_eq!(recorder.rest(), []);
        terminal.expect(PROMPT);
        terminal.send("echo code=${PIPESTATUS[0]}\n");
        terminal.expect(&format!("code={RECORDER_CODE}"));
    }
}

#[test]
fn a_resized_terminal_tells_the_command_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let terminal = shell(&scratch, &scratch.file_url());
    terminal.send("\"$D\" run -k k -- \"$R\"\n");
    recorder.ready();
    let trio = Trio::in_foreground(&terminal);
    terminal.resize(24, 80);
    recorder.expect(Signal::SIGWINCH);
    recorder.expect_nothing_more(trio.dlock);
    recorder.end();
    terminal.expect(PROMPT);
}

#[test]
fn a_job_that_the_shell_kills_gets_it_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let terminal = shell(&scratch, &scratch.file_url());
    terminal.send("\"$D\" run -k k -- \"$R\" &\n");
    let command = recorder.ready();
    let dlock = process::ppid(process::ppid(command).unwrap()).unwrap();
    terminal.send("kill %1\n");
    let heard = recorder.next();
    assert_eq!((heard.signal, heard.sender), (Signal::SIGTERM, terminal.pid().as_raw()));
    recorder.expect_nothing_more(dlock);
    recorder.end();
    process::wait_gone(dlock);
}

#[test]
fn a_job_can_be_suspended_and_goes_on_and_keeps_its_lock() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("#!/bin/sh\n{}\n{}\n{}\nexit 4\n", words.say("ready"), gate.wait(), words.say("over"));
    scratch.script("work", &script);
    for again in ["fg", "bg"] {
        let terminal = shell(&scratch, &url);
        terminal.send("\"$D\" run -k k -- ./work\n");
        words.expect("ready");
        let trio = Trio::in_foreground(&terminal);
        // Twice, because the second time may meet what the first one left behind.
        for _ in 0..2 {
            terminal.send_key('z');
            terminal.expect("Stopped");
            terminal.expect(PROMPT);
            trio.wait_suspended();
            assert_free(&scratch, &url, false);
            terminal.send("fg\n");
            trio.wait_running();
            let is_foreground = || terminal.foreground().as_raw() == trio.dlock;
            eventually("the job in the foreground", || is_foreground().then_some(()));
        }
        if again == "bg" {
            terminal.send_key('z');
            terminal.expect("Stopped");
            terminal.expect(PROMPT);
            trio.wait_suspended();
            terminal.send("bg\n");
            trio.wait_running();
            terminal.expect(PROMPT);
            assert_eq!(terminal.foreground(), terminal.pid());
        }
        gate.open();
        words.expect("over");
        process::wait_gone(trio.dlock);
        terminal.send("wait %1 2>/dev/null || echo code=$?\n");
        let code = if again == "bg" { "code=4" } else { "code=127" };
        terminal.expect(code);
        assert_free(&scratch, &url, true);
        assert!(!terminal.screen().contains("dlock:"), "{}", terminal.screen());
    }
}

#[test]
fn a_command_reads_from_the_terminal() {
    let scratch = Scratch::new();
    let python = need_python("sys", "python3");
    scratch.script("ask", "#!/bin/sh\nprintf 'name'; printf '? '; read -r name; echo \"he''llo $name\"\n");
    scratch.script("pyask", &format!("#!{}\nprint('hel' + 'lo', input('na' + 'me? '))\n", python.display()));
    let terminal = shell(&scratch, &scratch.file_url());
    for (program, name) in [("./ask", "Ada"), ("./pyask", "Bob")] {
        terminal.send(&format!("\"$D\" run -k k -- {program}\n"));
        terminal.expect("name? ");
        terminal.send(&format!("{name}\n"));
        terminal.expect(name);
        terminal.expect(name);
        terminal.expect(PROMPT);
    }
}

#[test]
fn a_background_job_that_reads_is_suspended_until_it_is_brought_back() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    scratch.script("ask", "#!/bin/sh\nread -r name; echo \"hello $name\"\n");
    let terminal = shell(&scratch, &url);
    terminal.send("\"$D\" run -k k -- ./ask & echo p''id=$!.\n");
    terminal.expect("pid=");
    let dlock = terminal.expect(".").trim_end_matches('.').parse().unwrap();
    let trio = Trio::of(dlock);
    trio.wait_suspended();
    assert_free(&scratch, &url, false);
    terminal.send("fg\n");
    trio.wait_running();
    eventually("the job in the foreground", || (terminal.foreground().as_raw() == dlock).then_some(()));
    terminal.send("Ada\n");
    terminal.expect("hello Ada");
    terminal.expect(PROMPT);
    assert_free(&scratch, &url, true);
}

#[test]
fn pipelines_end_as_without_dlock() {
    let scratch = Scratch::new();
    let terminal = shell(&scratch, &scratch.file_url());
    for (line, expected) in [
        ("\"$D\" run -k k -- seq 3 | cat", "0 0."),
        // SIGPIPE ends the command, and dlock the same way.
        ("\"$D\" run -k k -- yes | head -1", "141 0."),
        ("yes | \"$D\" run -k k -- head -1", "141 0."),
        ("seq 3 | \"$D\" run -k k -- grep 4 | cat", "0 1 0."),
    ] {
        terminal.send(&format!("{line}; echo \"=${{PIPESTATUS[*]}}.\"\n"));
        terminal.expect(&format!("={expected}"));
        terminal.expect(PROMPT);
    }
    assert!(!terminal.screen().contains("dlock:"), "{}", terminal.screen());
}

#[test]
fn a_suspended_job_with_a_lease_is_told_so_and_ended_when_that_runs_out() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    // The shell and its child both keep the pipe open.
    let script = format!("#!/bin/sh\nexec 9> '{}'\necho ready >&9\nsleep 1000 &\nwait\n", words.path().display());
    scratch.script("work", &script);
    let terminal = shell(&scratch, &redis.url());
    terminal.send("\"$D\" run -k k -t 2s -- ./work\n");
    words.expect("ready");
    let trio = Trio::in_foreground(&terminal);
    terminal.send_key('z');
    terminal.expect("dlock: suspended: 'k' cannot be renewed");
    terminal.expect("Stopped");
    terminal.expect(PROMPT);
    assert_eq!(words.closed(), [""; 0]);
    process::wait_gone(trio.dlock);
    // The shell tells of it before its next prompt.
    terminal.send("\n");
    let told = terminal.expect("Exit 79");
    assert!(told.contains("dlock: lost 'k'"), "{}", terminal.screen());
    assert_free(&scratch, &redis.url(), true);
}

#[test]
fn a_suspended_job_with_a_lease_that_goes_on_in_time_is_not_harmed() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("#!/bin/sh\n{}\n{}\nexit 4\n", words.say("ready"), gate.wait());
    scratch.script("work", &script);
    let terminal = shell(&scratch, &redis.url());
    terminal.send("\"$D\" run -k k -t 60s -- ./work; echo code=$?\n");
    words.expect("ready");
    let trio = Trio::in_foreground(&terminal);
    let first = redis.pttl("dlock:k");
    terminal.send_key('z');
    terminal.expect("Stopped");
    trio.wait_suspended();
    assert_free(&scratch, &redis.url(), false);
    assert!(redis.pttl("dlock:k") < first, "somebody renews it");
    terminal.send("fg\n");
    trio.wait_running();
    gate.open();
    process::wait_gone(trio.dlock);
    assert_free(&scratch, &redis.url(), true);
}

/// Two ways to have a terminal: as one of a shell's jobs, and as the leader of the session, as under `ssh -t host dlock`.
#[test]
fn a_terminal_that_goes_away_tells_the_command_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let mut terminal = shell(&scratch, &scratch.file_url());
    terminal.send("\"$D\" run -k k -- \"$R\"\n");
    recorder.ready();
    let trio = Trio::in_foreground(&terminal);
    terminal.close();
    // The shell tells its jobs, and when it has ended the kernel tells the group that lost its session's leader.
    let told = [terminal.pid().as_raw(), 0];
    loop {
        let heard = recorder.next();
        assert!(told.contains(&heard.sender), "from the guard: {heard:?}");
        if heard.signal == Signal::SIGCONT {
            break;
        }
        assert_eq!(heard.signal, Signal::SIGHUP);
    }
    recorder.expect_nothing_more(trio.dlock);
    recorder.end();
    assert_eq!(recorder.rest(), []);
    process::wait_gone(trio.dlock);
    assert_free(&scratch, &scratch.file_url(), true);
}

#[test]
fn a_session_leader_passes_its_hang_up_on_once() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let mut dlock = Command::new(*DLOCK);
    dlock.args(["run", "--key", "k", "--backend", &scratch.file_url(), "--"]).arg(recorder.program());
    let mut terminal = Pty::spawn(dlock.current_dir(scratch.root()));
    recorder.ready();
    terminal.close();
    recorder.expect(Signal::SIGHUP);
    recorder.expect_nothing_more(terminal.pid().as_raw());
    recorder.end();
    assert_eq!(recorder.rest(), []);
    assert_eq!(terminal.wait().code(), Some(RECORDER_CODE));
}

#[test]
fn a_terminal_that_goes_away_leaves_nothing_behind() {
    let redis = Redis::start();
    for on_redis in [false, true] {
        for leader in [false, true] {
            let scratch = Scratch::new();
            let url = if on_redis { redis.url() } else { scratch.file_url() };
            let mut words = Fifo::new(scratch.path("words"));
            let script = format!("#!/bin/sh\nexec 9> '{}'\necho ready >&9\nexec sleep 1000\n", words.path().display());
            let work = scratch.script("work", &script);
            let mut terminal = if leader {
                let mut dlock = Command::new(*DLOCK);
                dlock.args(["run", "--key", "k", "--backend", &url, "--"]).arg(&work);
                Pty::spawn(dlock.current_dir(scratch.root()))
            } else {
                let terminal = shell(&scratch, &url);
                terminal.send("\"$D\" run -k k -- ./work\n");
                terminal
            };
            words.expect("ready");
            terminal.close();
            assert_eq!(words.closed(), [""; 0]);
            eventually("everything to be gone", || scratch.processes().is_empty().then_some(()));
            assert_free(&scratch, &url, true);
        }
    }
}

/// Holds the lock `k` until the gate opens.
fn hold(scratch: &Scratch, url: &str) -> (crate::support::dlock::Running, Gate) {
    let (mut words, gate) = (Fifo::new(scratch.path("held")), Gate::new(scratch.path("hold")));
    let holder = scratch.dlock().run("k").backend(url).shell(format!("{}; {}", words.say("held"), gate.wait()));
    let holder = holder.spawn();
    words.expect("held");
    (holder, gate)
}

#[test]
fn a_wait_is_one_line_that_is_kept_up_to_date_and_says_at_last_how_long_it_was() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let (holder, gate) = hold(&scratch, &url);
    let mut dlock = Command::new(*DLOCK);
    dlock.args(["run", "--key", "k", "--backend", &url, "--", "echo", "ran"]);
    let terminal = Pty::spawn(dlock.current_dir(scratch.root()).env("TERM", "xterm"));
    let redraws = |terminal: &Pty| terminal.screen().matches(REDRAW).count();
    eventually("the line", || (redraws(&terminal) >= 1).then_some(()));
    // Narrower than the line: one that wrapped could not be removed.
    terminal.resize(24, 30);
    let before = redraws(&terminal);
    eventually("a narrow line", || (redraws(&terminal) >= before + 2).then_some(()));
    gate.open();
    holder.wait().success();
    assert_eq!(terminal.wait().code(), Some(0));
    let screen = terminal.hang_up();
    let drawn: Vec<&str> = screen.split(REDRAW).collect();
    let [before, lines @ .., after] = &drawn[..] else { panic!("{screen:?}") };
    assert_eq!(*before, "", "{screen:?}");
    assert!(after.starts_with("dlock: 'k': got it after ") && after.ends_with("s\r\nran\r\n"), "{screen:?}");
    assert!(lines.len() >= 3, "{screen:?}");
    for line in lines {
        assert!(line.starts_with("dlock: 'k': waiting ") && !line.contains(['\r', '\n']), "{screen:?}");
    }
    let last = lines.last().unwrap();
    assert!(last.chars().count() < 30, "{last:?} does not fit on a line");
}

#[test]
fn a_wait_can_be_suspended_and_goes_on() {
    let scratch = Scratch::new();
    let url = scratch.file_url();
    let (holder, gate) = hold(&scratch, &url);
    let terminal = shell(&scratch, &url);
    terminal.send("\"$D\" run -k k -- echo r''an; echo code=$?\n");
    terminal.expect("dlock: waiting for 'k'");
    let dlock = terminal.foreground().as_raw();
    terminal.send_key('z');
    terminal.expect("Stopped");
    terminal.expect(PROMPT);
    process::wait_stopped(dlock);
    // A suspended waiter does not keep others waiting.
    gate.open();
    holder.wait().success();
    assert_free(&scratch, &url, true);
    terminal.send("fg\n");
    terminal.expect("ran");
    terminal.expect(PROMPT);
}

#[test]
fn ctrl_c_while_waiting_leaves_the_queue() {
    let redis = Redis::start();
    for on_redis in [false, true] {
        let scratch = Scratch::new();
        let url = if on_redis { redis.url() } else { scratch.file_url() };
        let (holder, gate) = hold(&scratch, &url);
        let before = redis.keys();
        let terminal = shell(&scratch, &url);
        terminal.send("TERM=xterm \"$D\" run -k k -- echo r''an\n");
        terminal.expect("dlock: 'k': waiting");
        terminal.send_key('c');
        terminal.expect(PROMPT);
        terminal.send("echo code=$?\n");
        terminal.expect("code=130");
        assert!(!terminal.screen().contains("ran\r\n"), "{}", terminal.screen());
        // One line stays, which says what was waited for.
        let screen = terminal.screen();
        let last = screen.rsplit(REDRAW).next().unwrap();
        assert!(last.starts_with("dlock: 'k': waiting ") && last.contains("held "), "{screen:?}");
        assert_eq!(redis.keys(), before);
        gate.open();
        holder.wait().success();
        assert_free(&scratch, &url, true);
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_wait() {
    let redis = Redis::start();
    for leader in [false, true] {
        let scratch = Scratch::new();
        let (holder, gate) = hold(&scratch, &redis.url());
        let before = redis.keys();
        let mut terminal = if leader {
            let mut dlock = Command::new(*DLOCK);
            dlock.args(["run", "--key", "k", "--backend", &redis.url(), "--", "echo", "ran"]);
            Pty::spawn(dlock.current_dir(scratch.root()).env("TERM", "xterm"))
        } else {
            let terminal = shell(&scratch, &redis.url());
            terminal.send("\"$D\" run -k k -- echo r''an\n");
            terminal
        };
        terminal.expect(if leader { "dlock: 'k': waiting" } else { "dlock: waiting for 'k'" });
        let dlock = terminal.foreground().as_raw();
        terminal.close();
        process::wait_gone(dlock);
        assert_eq!(redis.keys(), before);
        gate.open();
        holder.wait().success();
    }
}

/// If a shell could continue it, dlock stops with its command, and goes on when the command is continued.
#[test]
fn dlock_stops_and_goes_on_with_its_command() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = scratch.dlock().run("k").backend(scratch.file_url()).command([recorder.program()]);
    let dlock = dlock.new_process_group().spawn();
    let command = recorder.ready();
    process::signal(command, Signal::SIGSTOP);
    process::wait_stopped(dlock.pid());
    process::signal(command, Signal::SIGCONT);
    recorder.expect(Signal::SIGCONT);
    eventually("dlock to go on", || (process::state(dlock.pid()) != State::Stopped).then_some(()));
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    dlock.wait().code(RECORDER_CODE).quiet();
}

/// Under cron a stopped dlock would never be continued.
#[test]
fn in_an_orphaned_group_a_stopped_command_does_not_stop_dlock() {
    let scratch = Scratch::new();
    let mut recorder = Recorder::new(&scratch);
    let dlock = scratch.dlock().run("k").backend(scratch.file_url()).command([recorder.program()]);
    let dlock = dlock.new_session().spawn();
    let command = recorder.ready();
    process::signal(command, Signal::SIGSTOP);
    process::wait_stopped(command);
    // Reaches the command when it goes on, which shows that dlock still does its work.
    dlock.signal(Signal::SIGUSR1);
    let pending = || process::status(command, "ShdPnd").is_some_and(|set| set.contains(|digit| digit != '0'));
    eventually("the signal at the command", || pending().then_some(()));
    assert_ne!(process::state(dlock.pid()), State::Stopped);
    process::signal(command, Signal::SIGCONT);
    let mut heard = [recorder.next().signal, recorder.next().signal];
    heard.sort();
    assert_eq!(heard, [Signal::SIGUSR1, Signal::SIGCONT]);
    recorder.expect_nothing_more(dlock.pid());
    recorder.end();
    dlock.wait().code(RECORDER_CODE).quiet();
}

/// As systemd starts a service: standard error is a stream whose device and inode are in a variable.
#[test]
fn in_the_journal_lines_have_their_priority_and_those_of_the_command_are_left_alone() {
    let scratch = Scratch::new();
    let said = |args: &[&str], script: &str, is_that_stream: bool| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let seen = std::fs::File::from(OwnedFd::from(writer.try_clone().unwrap())).metadata().unwrap();
        let stream = format!("{}:{}", seen.dev(), seen.ino() + u64::from(!is_that_stream));
        let run = scratch.dlock().run("job").backend(scratch.file_url()).args(args).env("JOURNAL_STREAM", stream);
        run.stderr(OwnedFd::from(writer)).shell(script).output();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    };
    let lose = format!("echo '<7>mine' >&2; rm {}; sleep 60", scratch.lock_dir().join("job.lock").display());
    let lines = said(&[], &lose, true);
    assert!(lines.starts_with("<7>mine\n<3>dlock: lost 'job' "), "{lines}");
    let lines = said(&[], &lose, false);
    assert!(lines.starts_with("<7>mine\ndlock: lost 'job' "), "{lines}");
    let lines = said(&["-v"], ":", true);
    assert!(lines.lines().count() > 1 && lines.lines().all(|line| line.starts_with("<6>dlock: ")), "{lines}");
}
