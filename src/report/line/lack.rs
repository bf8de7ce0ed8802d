//! The sentences about what is missing on this machine, or not permitted.

use humantime::format_duration;
use nix::errno::Errno;

use crate::report::event::{Lack, Step};
use crate::supervise::protocol::Unfit;

/// The task that failed, to follow "could not".
pub(super) fn task(step: Step) -> &'static str {
    match step {
        Step::OwnerId => "get random numbers for an owner id",
        Step::Command => "prepare the command",
        Step::Signals => "take over the signals",
        Step::Subreaper => "become a subreaper",
        Step::GuardName => "name the guard's socket",
        Step::Guard => "start the guard",
        Step::Supervision => "supervise a command here",
        Step::EventLoop => "start the event loop",
        Step::Keeper => "start the process that keeps the lock",
        Step::Journal => "start the thread that writes the events",
        Step::WatchSignals => "watch the signals",
        Step::WatchGuard => "watch the guard",
    }
}

/// The reason, to follow the task.
pub(in crate::report) fn lack(reason: &Lack) -> String {
    match reason {
        Lack::System(reason) => reason.clone(),
        Lack::NoProcess(errno) => no_process(*errno),
        Lack::Unfit(reason) => unfit(*reason).to_owned(),
        Lack::SlowGuard(limit) => format!("the guard did not start within {}", format_duration(*limit)),
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
pub(super) fn no_process(errno: i32) -> String {
    match Errno::from_raw(errno) {
        Errno::EAGAIN => "no more processes are allowed here (ulimit -u, or the limit of the control group)".to_owned(),
        Errno::EMFILE => unfit(Unfit::Descriptors).to_owned(),
        errno => format!("no process could be made: {}", errno.desc().to_lowercase()),
    }
}
