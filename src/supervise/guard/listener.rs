/*!
The listener: a small process that stays in the caller's process group when the guard has left it, and reports to the
guard which signals went to the whole group.

It blocks every catchable signal and waits for them. It dies with the guard. If it is killed, the guard no longer knows
which signals went to the group, and passes on all that dlock reports: a signal may then reach the command twice, but
none is lost.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{c_int, pid_t};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::supervise::forwards::Sent;
use crate::supervise::priority::{PRIORITY, go_first};
use crate::supervise::surroundings;

/// The listener's name in process lists.
const NAME: &std::ffi::CStr = c"lock-listener";
/// The length of one report: signal and sender.
const LENGTH: usize = 8;

/// The guard's side of the listener.
pub(super) struct Listener {
    reports: OwnedFd,
    tells: OwnedFd,
    pid: Option<pid_t>,
    closed: bool,
}

impl Listener {
    /// Prepares a listener. Fails if the process may open no more descriptors.
    pub(super) fn new() -> nix::Result<Self> {
        let (reports, tells) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { reports, tells, pid: None, closed: false })
    }

    /// Starts the listener in the process group of this process. Every catchable signal must be blocked. If no process
    /// can be forked, there is no listener.
    pub(super) fn open(&mut self) {
        // SAFETY: getpid cannot fail; the guard has one thread, and the child makes system calls only.
        let (guard, forked) = unsafe { (libc::getpid(), libc::fork()) };
        match forked {
            0 => listen(self.tells.as_raw_fd(), guard),
            pid if pid > 0 => self.pid = Some(pid),
            _ => {}
        }
    }

    /// Kills the listener; it is reaped with all other children.
    pub(super) fn close(&mut self) {
        if let Some(pid) = self.pid.filter(|_| !self.closed) {
            // SAFETY: a child that has not been reaped keeps its process id.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        self.closed = true;
    }

    /// Returns `true` if its process has been reaped, or never existed.
    pub(super) fn is_gone(&self) -> bool {
        self.pid.is_none()
    }

    /// Handles a child's change of state: if the child is the listener, it is continued, or recorded as gone.
    pub(super) fn changed(&mut self, pid: pid_t, status: c_int) {
        if self.pid != Some(pid) {
            return;
        }
        if libc::WIFSTOPPED(status) && !self.closed {
            // SAFETY: it is our child, and has not ended.
            unsafe { libc::kill(pid, libc::SIGCONT) };
        } else if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.pid = None;
        }
    }

    /// Returns the next report of a signal to the group.
    pub(super) fn hear(&self) -> Option<Sent> {
        let mut report = [0_u8; LENGTH];
        // A write of this length is atomic.
        let read = nix::unistd::read(&self.reports, &mut report);
        (read == Ok(LENGTH)).then(|| {
            let word = |from: usize| i32::from_ne_bytes(report[from..from + 4].try_into().unwrap_or_default());
            Sent { signal: word(0), sender: word(4) }
        })
    }

    /// Returns `true` if there is a report to read.
    pub(super) fn has_reported(&self) -> bool {
        let mut waiting = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut waiting, PollTimeout::ZERO) != Ok(0)
    }

    /// Returns its process id while it listens, so that it can be left out when all others are signalled.
    pub(super) fn pid(&self) -> Option<pid_t> {
        self.pid.filter(|_| !self.closed)
    }

    /// Returns the numbers of its descriptors.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.reports.as_raw_fd(), self.tells.as_raw_fd()]
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }
}

/// Runs the listener in a freshly forked process. It waits for a guard that does not read; meanwhile signals stay
/// pending.
fn listen(tells: RawFd, guard: pid_t) -> ! {
    // SAFETY: system calls with integers, and with memory of this function; the process has one thread.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        surroundings::rename_process(NAME);
        surroundings::close_all_but(&mut [tells]);
        // A signal that it reports late may reach the command twice.
        go_first(0, PRIORITY);
        libc::fcntl(tells, libc::F_SETFL, 0);
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        loop {
            // The guard may have died before PR_SET_PDEATHSIG took effect.
            if libc::getppid() != guard {
                libc::_exit(0);
            }
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigwaitinfo(&raw const all, &raw mut info);
            if signal <= 0 {
                continue;
            }
            // Signals from the kernel have no sender.
            let sender = if info.si_code <= 0 { info.si_pid() } else { 0 };
            let mut report = [0_u8; LENGTH];
            report[..4].copy_from_slice(&signal.to_ne_bytes());
            report[4..].copy_from_slice(&sender.to_ne_bytes());
            libc::write(tells, report.as_ptr().cast(), LENGTH);
        }
    }
}
