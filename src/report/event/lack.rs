/*!
The steps towards a supervised command, and the reasons why they fail.
*/

use std::time::Duration;

use humantime::format_duration;
use nix::errno::Errno;

use crate::supervise::protocol::Unfit;

/// A step on the way to a supervised command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Making an owner id.
    OwnerId,
    /// Laying out the command's arguments and environment.
    Command,
    /// Taking over the signals.
    Signals,
    /// Becoming the parent of orphans.
    Subreaper,
    /// Naming the guard's socket.
    GuardName,
    /// Starting the guard.
    Guard,
    /// Starting the process that keeps the lock.
    Keeper,
    /// Finding out whether a command can be supervised here.
    Supervision,
    /// Starting the event loop.
    EventLoop,
    /// Starting the thread that writes the events.
    Journal,
    /// Watching the signals.
    WatchSignals,
    /// Watching the guard.
    WatchGuard,
}

/// The reason why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The reason that the system gives.
    System(String),
    /// No process could be made, for this errno.
    NoProcess(i32),
    /// The environment does not allow it.
    Unfit(Unfit),
    /// The guard did not start within this time.
    SlowGuard(Duration),
}

impl Step {
    /// Returns the task that failed, to follow "could not".
    #[must_use]
    pub(in crate::report) fn task(self) -> &'static str {
        match self {
            Self::OwnerId => "get random numbers for an owner id",
            Self::Command => "prepare the command",
            Self::Signals => "take over the signals",
            Self::Subreaper => "become a subreaper",
            Self::GuardName => "name the guard's socket",
            Self::Guard => "start the guard",
            Self::Supervision => "supervise a command here",
            Self::EventLoop => "start the event loop",
            Self::Keeper => "start the process that keeps the lock",
            Self::Journal => "start the thread that writes the events",
            Self::WatchSignals => "watch the signals",
            Self::WatchGuard => "watch the guard",
        }
    }
}

impl Lack {
    /// Returns the reason, to follow the task.
    #[must_use]
    pub(in crate::report) fn words(&self) -> String {
        match self {
            Self::System(reason) => reason.clone(),
            Self::NoProcess(errno) => no_process(*errno),
            Self::Unfit(reason) => unfit(*reason).to_owned(),
            Self::SlowGuard(limit) => format!("the guard did not start within {}", format_duration(*limit)),
        }
    }
}

fn unfit(reason: Unfit) -> &'static str {
    match reason {
        Unfit::Subreaper => "prctl(PR_SET_CHILD_SUBREAPER) is refused: allow it in the container's seccomp profile",
        Unfit::Proc => "/proc is missing or hides the processes: mount it without hidepid for this user",
        Unfit::OtherProc => {
            "/proc shows the processes of another PID namespace: mount one for this namespace (unshare --mount-proc)"
        }
        Unfit::Descriptors => "no descriptors for a timer and for signals: raise the limit of open files (ulimit -n)",
    }
}

/// The reason why no process could be made, with the limit to raise.
pub(in crate::report) fn no_process(errno: i32) -> String {
    match Errno::from_raw(errno) {
        Errno::EAGAIN => "no more processes are allowed here (ulimit -u, or the limit of the control group)".to_owned(),
        Errno::EMFILE => unfit(Unfit::Descriptors).to_owned(),
        errno => format!("no process could be made: {}", errno.desc().to_lowercase()),
    }
}
