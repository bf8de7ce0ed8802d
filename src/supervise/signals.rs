/*!
Signals as dlock handles them: every catchable one is blocked and read from a descriptor, with its sender. One function
decides what each one means.
*/

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Pid, getpid, getppid};
use tokio::io::unix::AsyncFd;

use crate::readable::readable;
use crate::supervise::forwards::Sent;
use crate::supervise::process::parent_of;
use crate::supervise::surroundings;

/// The signals that are passed on to the command when they were sent to dlock alone.
const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The signals that end dlock while it waits for the lock.
const ENDS_WAITING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// The signals by which the kernel ends a program for its own faults.
const FAULTS: [Signal; 7] =
    [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGABRT, Signal::SIGTRAP, Signal::SIGSYS];

/// The meaning of a signal to dlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A child changed its state.
    Child,
    /// It is for the command, unless that got it too.
    Forward(Sent),
    /// The terminal suspends its foreground jobs.
    Suspend,
    /// It has no meaning here.
    Nothing,
}

/// Returns the meaning of the signal in `info`. Signals from a terminal are not treated differently: the guard sees
/// whether a signal went to the whole group, and the hang-up of a terminal goes to the session leader alone.
#[must_use]
pub(crate) fn meaning(info: &siginfo) -> Meaning {
    // The kernel reports signal and sender as unsigned numbers.
    meaning_of(i32::try_from(info.ssi_signo).unwrap_or(0), i32::try_from(info.ssi_pid).unwrap_or(0))
}

/// Returns the meaning of the signal with this number from this process; see [`meaning`].
#[must_use]
pub(crate) fn meaning_of(signal: i32, sender: i32) -> Meaning {
    match Signal::try_from(signal) {
        Ok(Signal::SIGCHLD) => Meaning::Child,
        Ok(Signal::SIGTSTP) => Meaning::Suspend,
        Ok(known) if FORWARDED.contains(&known) => Meaning::Forward(Sent { signal, sender }),
        _ => Meaning::Nothing,
    }
}

/// Returns `true` if this signal asks a process to end, unless dlock, and so the command, was started with it ignored.
#[must_use]
pub(crate) fn asks_to_end(signal: i32) -> bool {
    ENDS_WAITING.iter().any(|&ends| ends as i32 == signal) && !surroundings::was_ignored(signal)
}

/// Returns the signal in `info` if it ends dlock while it waits. One that dlock was started with ignored (`nohup`, a
/// background job) or blocked does not.
#[must_use]
pub(crate) fn ends_waiting(info: &siginfo) -> Option<Signal> {
    let number = i32::try_from(info.ssi_signo).ok()?;
    let signal = Signal::try_from(number).ok()?;
    let unwanted = surroundings::was_ignored(number) || surroundings::was_blocked(number);
    (ENDS_WAITING.contains(&signal) && !unwanted).then_some(signal)
}

/// A descriptor from which the blocked signals are read one by one.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks every catchable signal but those of a program's own faults, and undoes an inherited "ignore" of SIGCHLD,
    /// with which no exit status could be read.
    pub(crate) fn block() -> nix::Result<Self> {
        let mut caught = SigSet::all();
        for fault in FAULTS {
            caught.remove(fault);
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&caught), None)?;
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default disposition runs none of our code.
        unsafe { sigaction(Signal::SIGCHLD, &default) }?;
        Self::listen()
    }

    /// Blocks the signals of a program's own faults too, for when another process sends them. A fault of this process
    /// still ends it: the kernel delivers those even when they are blocked.
    pub(crate) fn block_faults() -> nix::Result<()> {
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::from_iter(FAULTS)), None)
    }

    /// Unblocks the signals that ask a process to end: they end it, unless it was started with them ignored or blocked.
    pub(crate) fn let_through() -> nix::Result<()> {
        let wanted = ENDS_WAITING.into_iter().filter(|&signal| !surroundings::was_blocked(signal as i32));
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&wanted.collect()), None)
    }

    /// A second descriptor for the signals that are blocked already: signals are a process's own, and so a forked
    /// guard needs its own descriptor.
    pub(crate) fn listen() -> nix::Result<Self> {
        SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Returns the next pending signal, if there is one.
    pub(crate) fn take(&self) -> Option<siginfo> {
        self.0.read_signal().ok().flatten()
    }
}

impl Signals {
    /// Returns the descriptor's number.
    #[must_use]
    pub(crate) fn as_raw(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(self)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The blocked signals as a stream for the event loop.
#[derive(Debug)]
pub(crate) struct SignalStream(AsyncFd<Signals>);

impl std::os::fd::AsRawFd for Signals {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl SignalStream {
    /// Registers `signals` with the running event loop.
    pub(crate) fn new(signals: Signals) -> std::io::Result<Self> {
        readable(signals).map(Self)
    }

    /// Returns the next signal. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> siginfo {
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                // The event loop is shutting down, and this is not polled again.
                return std::future::pending().await;
            };
            if let Some(info) = ready.get_inner().take() {
                return info;
            }
            ready.clear_ready();
        }
    }
}

/// Ends this process by `signal`, as the command ended, without its own core dump; returns if that is impossible (PID
/// 1, or a signal that does not end a process).
pub(crate) fn die_by(signal: i32) {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // The limit does not apply to cores that are piped to a program; this does.
    // SAFETY: prctl with plain numbers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: libc calls on plain integers and an initialised set; real-time signals, which nix has no name for, need
    // them. Only this signal is let in: others may be pending, and one of them would end us instead.
    unsafe {
        if let Ok(signal) = Signal::try_from(signal) {
            let _ = sigaction(signal, &default);
        } else {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::kill(libc::getpid(), signal);
        libc::sigemptyset(mask.as_mut_ptr());
        libc::sigaddset(mask.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, mask.as_ptr(), std::ptr::null_mut());
    }
}

/// Stops this process until it is continued, as a terminal's suspend key does. Does nothing if no shell could continue
/// it.
pub(crate) fn suspend_self() {
    if can_be_continued() {
        // SAFETY: no memory effects.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}

/// Returns `true` if a shell could continue this process once it is stopped: not as PID 1, and not in an orphaned
/// process group (cron), which no job control reaches.
#[must_use]
pub(crate) fn can_be_continued() -> bool {
    if getpid() == Pid::from_raw(1) {
        return false;
    }
    let group = nix::unistd::getpgrp();
    let session = nix::unistd::getsid(None);
    let mut ancestor = getppid();
    // A parent inside the group (a shell script) does not decide: look at its parent.
    for _ in 0..64 {
        if ancestor.as_raw() == 0 {
            return false;
        }
        match nix::unistd::getpgid(Some(ancestor)) {
            Ok(its) if its == group => match parent_of(ancestor.as_raw()) {
                Some(parent) => ancestor = Pid::from_raw(parent),
                None => return false,
            },
            Ok(_) => return nix::unistd::getsid(Some(ancestor)) == session && session != Err(Errno::EPERM),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(signal: Signal, code: i32) -> siginfo {
        // SAFETY: a signalfd_siginfo is plain numbers.
        let mut info: siginfo = unsafe { std::mem::zeroed() };
        info.ssi_signo = signal as u32;
        info.ssi_code = code;
        info.ssi_pid = 7;
        info
    }

    #[test]
    fn the_guard_decides_on_whatever_may_be_passed_on() {
        for signal in FORWARDED {
            let sent = Sent { signal: signal as i32, sender: 7 };
            assert_eq!(meaning(&info(signal, libc::SI_KERNEL)), Meaning::Forward(sent));
            assert_eq!(meaning(&info(signal, libc::SI_USER)), Meaning::Forward(sent));
        }
        assert_eq!(meaning(&info(Signal::SIGCONT, libc::SI_USER)), Meaning::Nothing);
        assert_eq!(meaning(&info(Signal::SIGTSTP, libc::SI_USER)), Meaning::Suspend);
        assert_eq!(meaning(&info(Signal::SIGCHLD, 1)), Meaning::Child);
    }

    #[test]
    fn only_requests_to_end_end_the_wait() {
        assert_eq!(ends_waiting(&info(Signal::SIGTERM, libc::SI_USER)), Some(Signal::SIGTERM));
        assert_eq!(ends_waiting(&info(Signal::SIGINT, libc::SI_KERNEL)), Some(Signal::SIGINT));
        assert_eq!(ends_waiting(&info(Signal::SIGUSR1, libc::SI_USER)), None);
        assert_eq!(ends_waiting(&info(Signal::SIGWINCH, libc::SI_KERNEL)), None);
    }
}
