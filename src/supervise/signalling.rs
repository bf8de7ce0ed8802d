/*!
Signals to processes that were found by their ids.

A process can end between its listing and its signal, and its id can be reused. So a descriptor of the process is opened
first, then the id is checked to be still that of a process below the root, and the signal goes through the descriptor.
Our own children do not need this: only we reap them, and until then they keep their ids.
*/

use libc::{c_int, pid_t};
use nix::errno::Errno;

use crate::supervise::priority::hurry;
use crate::supervise::process::{is_below, parent_of, pidfd_open, pidfd_signal};
use crate::supervise::reaping::{Child, child};

/// The result of signalling a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// It was signalled, or has ended just now.
    Done,
    /// This user may not signal it.
    Refused,
    /// It is a child that has ended, or its id belongs to a process that is not below the root (any more).
    Nobody,
}

/// Sends `signals`, in this order, to the process `pid`, which was listed as a child of `parent` somewhere below
/// `root`, and to no other one that has its id by now. Needs two descriptors; without them, the signals go by the id,
/// right after the check. Allocates nothing.
pub(crate) fn signal_below(root: pid_t, parent: pid_t, pid: pid_t, signals: &[c_int]) -> Signalled {
    let process = match child(pid) {
        Some(Child::Ended) => return Signalled::Nobody,
        Some(Child::Living) => None,
        None => Some(pidfd_open(pid)),
    };
    // Most have kept their parent, however deep they are. A process that is hidden, or has just lost a parent on the
    // way, was listed a moment ago: only one that is certainly elsewhere is left alone.
    if process.is_some() && parent_of(pid) != Some(parent) && is_below(pid, root) == Some(false) {
        return Signalled::Nobody;
    }
    let mut signalled = Signalled::Done;
    for &signal in signals {
        let sent = match &process {
            Some(Err(Errno::ESRCH)) => Ok(()),
            Some(Ok(process)) => pidfd_signal(process, signal),
            // SAFETY: kill has no memory effects; the pid is positive, so it names one process.
            Some(Err(_)) | None => Errno::result(unsafe { libc::kill(pid, signal) }).map(drop),
        };
        if sent == Err(Errno::EPERM) {
            signalled = Signalled::Refused;
        }
        if signal == libc::SIGKILL && sent.is_ok() {
            hurry(pid);
        }
    }
    // A stranger whose own parent ended during the check has another one by now.
    if signalled == Signalled::Refused && process.is_some() && is_below(pid, root) == Some(false) {
        return Signalled::Nobody;
    }
    signalled
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::supervise::process::{children, has_ended};

    /// The number of a process that has ended since it was listed may belong to another one.
    #[test]
    fn a_number_that_belongs_to_another_process_by_now_is_not_signalled() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 600 & echo; wait"]).stdout(Stdio::piped()).spawn().expect("sh");
        shell.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("started");
        let root = pid_t::try_from(shell.id()).expect("pid");
        let mut child = 0;
        let _ = children(root, |pid| child = child.max(pid));
        let mut stranger = Command::new("sleep").arg("600").spawn().expect("sleep");
        let elsewhere = pid_t::try_from(stranger.id()).expect("pid");
        // It was listed below one process, and is below another one.
        assert_eq!(signal_below(elsewhere, elsewhere, child, &[libc::SIGKILL]), Signalled::Nobody);
        assert!(!has_ended(child));
        assert_eq!(signal_below(root, root, child, &[libc::SIGTERM, libc::SIGKILL]), Signalled::Done);
        shell.wait().expect("wait");
        assert!(has_ended(child));
        // One that has ended is no failure, nor is one that cannot be looked at.
        assert_eq!(signal_below(root, root, child, &[libc::SIGKILL]), Signalled::Done);
        stranger.kill().expect("kill");
        stranger.wait().expect("wait");
    }
}
