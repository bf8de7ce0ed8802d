//! A dlock that was started: finding its processes, and waiting for what it says and for its end.

use std::cell::Cell;
use std::fmt;
use std::mem;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::support::process::{self, State};
use crate::support::rendezvous::{CAP, boottime, eventually_within};

use super::outcome::{Outcome, indented};
use super::stream::Stream;
use super::{LISTENER, command_of};

/// A dlock that was started. If this is dropped before [`Self::wait`], everything below it and then dlock itself is
/// killed.
pub struct Running {
    pub(super) child: Child,
    pub(super) program: PathBuf,
    pub(super) shown: String,
    pub(super) stdout: Option<Stream>,
    pub(super) stderr: Option<Stream>,
    pub(super) started: Duration,
    pub(super) collected: bool,
}

impl Running {
    /// The process that was started: dlock, or its wrapper.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for dlock itself, also below a wrapper that stays, and returns its process id.
    #[track_caller]
    pub fn dlock_pid(&self) -> i32 {
        self.find("dlock", || {
            let tree = [self.pid()].into_iter().chain(process::descendants(self.pid()));
            tree.into_iter().find(|&pid| self.is_dlock(pid))
        })
    }

    /// Waits for the guard, dlock's child that supervises the command, and returns its process id.
    #[track_caller]
    pub fn guard_pid(&self) -> i32 {
        let dlock = self.dlock_pid();
        let is_guard = |&pid: &i32| self.is_dlock(pid) && process::comm(pid).as_deref() != Some(LISTENER);
        self.find("the guard", || process::children(dlock).into_iter().find(is_guard))
    }

    /// Waits for the command, the guard's first child that is not the [`LISTENER`], to execute its own program, and returns
    /// its process id. To be called while the command runs; afterwards it could find something that the command left
    /// behind.
    #[track_caller]
    pub fn command_pid(&self) -> i32 {
        let guard = self.guard_pid();
        self.find("the command", || command_of(guard))
    }

    /// The process id of the guard's listener in the caller's process group, if there is one.
    #[track_caller]
    pub fn listener_pid(&self) -> Option<i32> {
        let mut children = process::children(self.guard_pid()).into_iter();
        children.find(|&pid| process::comm(pid).as_deref() == Some(LISTENER))
    }

    /// All living processes below the one that was started.
    pub fn descendants(&self) -> Vec<i32> {
        process::descendants(self.pid())
    }

    /// Sends `signal` to the process that was started, and to no other.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert_ne!(process::state(self.pid()), State::Gone, "{} is gone", self.shown);
        process::signal(self.pid(), signal);
    }

    /// Takes its standard input, which must be `Stdio::piped()`. Works once.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("stdin is not a pipe, or was taken before")
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        process::is_alive(self.pid())
    }

    /// Waits for a complete line with `part` on stderr, which may have come already, and returns that line.
    #[track_caller]
    pub fn wait_stderr(&self, part: &str) -> String {
        self.wait_line("stderr", self.stderr.as_ref(), part)
    }

    /// Waits for a complete line with `part` on stdout, which may have come already, and returns that line.
    #[track_caller]
    pub fn wait_stdout(&self, part: &str) -> String {
        self.wait_line("stdout", self.stdout.as_ref(), part)
    }

    /// Waits until nobody has stdout open any more, which can be before or after dlock's own end, and returns
    /// everything that came.
    #[track_caller]
    pub fn wait_stdout_closed(&self) -> String {
        let stream = self.stdout.as_ref().expect("stdout is not collected");
        let gathered = stream.wait(|gathered| gathered.closed);
        let (closed, text) = (gathered.closed, gathered.text());
        // The message below locks it too.
        drop(gathered);
        assert!(closed, "timed out after {CAP:?} waiting for the end of stdout\n{self:?}");
        text
    }

    /// What has come on stderr up to now.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.as_ref().map(|stream| stream.gathered().text()).unwrap_or_default()
    }

    /// What has come on stdout up to now.
    pub fn stdout_so_far(&self) -> String {
        self.stdout.as_ref().map(|stream| stream.gathered().text()).unwrap_or_default()
    }

    /// Waits for it to end. The outcome has everything written by then; what survivors write later is not in it.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let ended = wait_end(self.pid());
        assert!(ended, "timed out after {CAP:?} waiting for the end of\n{self:?}");
        let elapsed = boottime().saturating_sub(self.started);
        let status = self.child.wait().unwrap();
        self.collected = true;
        let shown = mem::take(&mut self.shown);
        let stdout = self.stdout.take().map(Stream::finish).unwrap_or_default();
        let stderr = self.stderr.take().map(Stream::finish).unwrap_or_default();
        let lines = stderr.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec);
        let (warnings, stderr): (Vec<Vec<u8>>, Vec<Vec<u8>>) = lines.partition(|line| is_about_old_etcd(line));
        let (warnings, stderr) = (warnings.len(), stderr.concat());
        Outcome { shown, status, stdout, stderr, warnings, elapsed, expected: Cell::new(false) }
    }

    fn is_dlock(&self, pid: i32) -> bool {
        process::exe(pid).is_some_and(|exe| Some(exe) == self.program.canonicalize().ok())
    }

    #[track_caller]
    fn find(&self, what: &str, mut look: impl FnMut() -> Option<i32>) -> i32 {
        let found = eventually_within(CAP, || match look() {
            // Once it has ended, waiting is useless.
            None if !self.is_running() => Some(None),
            found => found.map(Some),
        });
        found.flatten().unwrap_or_else(|| panic!("stopped waiting for {what} of\n{self:?}"))
    }

    #[track_caller]
    fn wait_line(&self, name: &str, stream: Option<&Stream>, part: &str) -> String {
        let stream = stream.unwrap_or_else(|| panic!("{name} is not collected"));
        let gathered = stream.wait(|gathered| gathered.closed || gathered.line_with(part).is_some());
        let line = gathered.line_with(part);
        drop(gathered);
        line.unwrap_or_else(|| panic!("stopped waiting for a line with {part:?} on {name} of\n{self:?}"))
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.shown)?;
        for pid in [self.pid()].into_iter().chain(self.descendants()) {
            let (state, argv) = (process::state(pid), process::cmdline(pid).join(" "));
            writeln!(f, "  pid {pid}, parent {}, {state:?}: {argv}", process::ppid(pid).unwrap_or(0))?;
        }
        write!(f, "{}{}", indented("stdout", &self.stdout_so_far()), indented("stderr", &self.stderr_so_far()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.collected {
            return;
        }
        // A frozen dlock cannot start anything, and orphans of what dies below it become its children instead of
        // getting away.
        process::signal(self.pid(), Signal::SIGSTOP);
        let _ = eventually_within(Duration::from_secs(5), || {
            let left = self.descendants();
            for &pid in &left {
                process::signal(pid, Signal::SIGKILL);
            }
            left.is_empty().then_some(())
        });
        process::signal(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Waits until the child `pid` has ended, without collecting it. Returns false if it has not within [`CAP`].
fn wait_end(pid: i32) -> bool {
    // SAFETY: a system call with two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(fd @ 0..) = i32::try_from(fd) else {
        return eventually_within(CAP, || (!process::is_alive(pid)).then_some(())).is_some();
    };
    // SAFETY: the descriptor is new and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let start = Instant::now();
    while let Some(left) = CAP.checked_sub(start.elapsed()) {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::try_from(left).unwrap()).is_ok_and(|ready| ready > 0) {
            return true;
        }
    }
    false
}

/// Whether a line on stderr is the warning that the installed etcd has a known bug: dlock prints it once, at its first
/// renewal, in any test that lasts until then.
fn is_about_old_etcd(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.starts_with("dlock: ") && line.contains(": etcd 3.") && line.contains("(etcd#15247)")
}
