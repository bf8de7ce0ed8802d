//! The terminal.

use super::*;
use crate::support::pty::{PROMPT, Pty, bash};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};

#[test]
fn it_is_a_terminal_of_a_given_size() {
    let terminal = Pty::spawn(&mut bash());
    terminal.expect(PROMPT);
    terminal.send("test -t 0 && test -t 1 && test -t 2 && echo y''es; stty size\n");
    terminal.expect("yes");
    terminal.expect("40 240");
    terminal.expect(PROMPT);
    terminal.resize(24, 80);
    terminal.send("stty size\n");
    terminal.expect("24 80");
    assert!(terminal.screen().contains("40 240"));
}

#[test]
fn ctrl_c_reaches_the_whole_foreground_group_and_not_the_shell() {
    let terminal = Pty::spawn(&mut bash());
    terminal.expect(PROMPT);
    let up = up();
    terminal.send(&format!("tail -f {0} >/dev/tty | tail -f {0}\n", up.path().display()));
    terminal.expect("up\r\n");
    terminal.expect("up\r\n");
    assert_ne!(terminal.foreground(), terminal.pid());
    terminal.send_key('c');
    terminal.expect(PROMPT);
    terminal.send("echo \"${PIPESTATUS[@]}\"; exit 5\n");
    terminal.expect("130 130");
    assert_eq!(terminal.wait().code(), Some(5));
    assert!(terminal.hang_up().contains("exit"));
}

#[test]
fn a_death_by_signal_is_reported_as_one() {
    let up = up();
    let terminal = Pty::spawn(Command::new("tail").arg("-f").arg(up.path()));
    terminal.expect("up");
    terminal.send_key('\\');
    assert_eq!(terminal.wait().signal(), Some(3));
    // It has its own session, and is not gone before the terminal is.
    assert_eq!(terminal.wait().signal(), Some(3));
}

#[test]
fn job_control_works() {
    let terminal = Pty::spawn(&mut bash());
    terminal.expect(PROMPT);
    let up = up();
    terminal.send(&format!("cat {} -\n", up.path().display()));
    terminal.expect("up\r\n");
    let job = terminal.foreground();
    assert_ne!(job, terminal.pid());
    terminal.send_key('z');
    terminal.expect("Stopped");
    terminal.expect(PROMPT);
    assert_eq!(terminal.foreground(), terminal.pid());
    terminal.send("fg\n");
    eventually("cat in the foreground again", || (terminal.foreground() == job).then_some(()));
    terminal.send("back\n");
    terminal.expect("back\r\n");
    terminal.expect("back\r\n");
    terminal.send_key('d');
    terminal.expect(PROMPT);
}

#[test]
fn a_missing_text_is_reported_with_the_screen() {
    let terminal = Pty::spawn(Command::new("sh").args(["-c", "echo something else"]));
    assert_panics("something else", || drop(terminal.expect("what never comes")));
}

#[test]
fn dropping_it_kills_everything_on_it_and_below_it() {
    let terminal = Pty::spawn(&mut bash());
    terminal.expect(PROMPT);
    // One in another process group, one in another session and without a parent, one that only lacks a parent.
    let pids = [
        "sleep 1000 & echo pid''=$!.",
        "setsid sh -c 'echo pid\"\"=$$.; exec sleep 1000' &",
        "sh -c 'nohup sleep 1000 >/dev/null 2>&1 & echo pid\"\"=$!.'",
    ]
    .map(|line| {
        terminal.send(&format!("{line}\n"));
        terminal.expect("pid=");
        Pid::from_raw(terminal.expect(".").trim_end_matches('.').parse().unwrap())
    });
    assert!(pids.iter().all(|pid| kill(*pid, None).is_ok()));
    assert_eq!(getpgid(Some(terminal.pid())).unwrap(), terminal.pid());
    let status = {
        kill(terminal.pid(), Signal::SIGSTOP).unwrap();
        drop(terminal);
        pids.map(is_gone)
    };
    assert_eq!(status, [true; 3]);
}

/// A file that makes a program print `up`: only then does it have its own dispositions of signals. A shell that is about
/// to become that program may still catch a Ctrl-C, or ignore a Ctrl-Z.
fn up() -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().prefix("says-").tempfile().unwrap();
    file.write_all(b"up\n").unwrap();
    file
}

/// Whether `pid` is gone or a zombie, which whoever inherits it may collect later.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}
