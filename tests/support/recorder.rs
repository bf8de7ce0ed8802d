//! A command that reports the signals that reach it, one by one, with their senders.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use super::process;
use super::rendezvous::Fifo;
use super::scratch::Scratch;
use super::servers::need_python;

/// With every signal blocked, none is lost between two reads: only those that are pending at the same time are merged,
/// as in any program.
const PROGRAM: &str = r"
import os, signal, sys
signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
words = os.open(sys.argv[1], os.O_WRONLY)
os.write(words, b'ready %d\n' % os.getpid())
while True:
    heard = signal.sigwaitinfo(signals)
    if heard.si_signo == signal.SIGALRM:
        os._exit(5)
    os.write(words, b'%d %d\n' % (heard.si_signo, heard.si_pid))
";

/// The exit code of a [`Recorder`] that was told to end.
pub const RECORDER_CODE: i32 = 5;

/// A signal as the command received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    pub signal: Signal,
    /// Its sender's process id; 0 for the terminal and other parts of the kernel.
    pub sender: i32,
}

/// A command that no signal ends but SIGALRM (and SIGKILL), and that reports all others.
pub struct Recorder {
    program: PathBuf,
    words: Fifo,
    pid: i32,
}

impl Recorder {
    /// Creates the recorder; one per scratch directory.
    pub fn new(scratch: &Scratch) -> Self {
        let python = need_python("signal", "python3");
        let (words, source) = (Fifo::new(scratch.path("signals")), scratch.file("recorder.py", PROGRAM));
        let [python, source, pipe] = [&python, &source, words.path()].map(|path: &Path| path.display());
        let program = scratch.script("recorder", &format!("#!/bin/sh\nexec '{python}' '{source}' '{pipe}'\n"));
        Self { program, words, pid: 0 }
    }

    /// The command, which takes no arguments.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Waits until it runs and misses no signal from now on; returns its process id as it sees it itself.
    #[track_caller]
    pub fn ready(&mut self) -> i32 {
        let word = self.words.word();
        let pid = word.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        self.pid = pid.unwrap_or_else(|| panic!("the recorder said {word:?} instead of being ready"));
        self.pid
    }

    /// Waits for the next signal.
    #[track_caller]
    pub fn next(&mut self) -> Heard {
        let word = self.words.word();
        parse(&word).unwrap_or_else(|| panic!("not a signal: {word:?}"))
    }

    /// Waits for the next signal, which must be this one.
    #[track_caller]
    pub fn expect(&mut self, signal: Signal) {
        let heard = self.next();
        assert_eq!(heard.signal, signal, "{heard:?}");
    }

    /// Asserts that nothing more is on its way to it through `dlock`.
    ///
    /// Sends dlock alone two signals, the second once the first has arrived: dlock keeps their order, so a signal that
    /// it still had to pass on would come before the second one, and be taken for it.
    #[track_caller]
    pub fn expect_nothing_more(&mut self, dlock: i32) {
        for marker in [Signal::SIGUSR1, Signal::SIGUSR2] {
            // One that dlock has not taken yet would be merged with this one.
            process::wait_taken(dlock, marker);
            send_as_somebody_else(dlock, marker);
            self.expect(marker);
        }
    }

    /// Makes it end with [`RECORDER_CODE`].
    pub fn end(&self) {
        assert_ne!(self.pid, 0, "nobody has waited for the recorder");
        process::signal(self.pid, Signal::SIGALRM);
    }

    /// Waits until it is gone; returns the signals that it received and that were not waited for.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<Heard> {
        self.words.closed().iter().filter_map(|word| parse(word)).collect()
    }
}

fn parse(word: &str) -> Option<Heard> {
    let (signal, sender) = word.split_once(' ')?;
    Some(Heard { signal: Signal::try_from(signal.parse::<i32>().ok()?).ok()?, sender: sender.parse().ok()? })
}

/// Sends `signal` to `pid` alone, from a process that has never sent it anything before.
#[track_caller]
pub fn send_as_somebody_else(pid: i32, signal: Signal) {
    let mut shell = Command::new("sh");
    let status = shell.args(["-c", "kill -s \"$1\" \"$2\"", "sh", &signal.as_str()[3..], &pid.to_string()]).status();
    assert!(status.unwrap().success(), "cannot send {signal} to {pid}");
}
