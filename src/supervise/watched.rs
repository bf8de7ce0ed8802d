/*!
A process that dlock did not start: it is watched until it ends, and no signal hits another process that reuses its id.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{c_int, pid_t};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::unix::AsyncFd;

use crate::readable::readable;
use crate::supervise::process::{pidfd_open, pidfd_signal};

/// The first process of a PID namespace: no signal from inside ends it.
const INIT: pid_t = 1;

/// The reason why a process cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwatchable {
    /// There is no such process, or it has ended.
    Missing,
    /// It belongs to another user, so that it could not be stopped.
    Denied,
    /// No signal ends it.
    Init,
    /// The system refuses, for this errno.
    Refused(i32),
}

/// A process that is watched.
#[derive(Debug)]
pub(crate) struct Watched(OwnedFd);

impl Watched {
    /// Watches the process with this id, which must be one that this user may signal.
    pub(crate) fn open(pid: pid_t) -> Result<Self, Unwatchable> {
        if pid == INIT {
            return Err(Unwatchable::Init);
        }
        let refused = |errno| match errno {
            // Only the first thread of a process has the number of that process.
            Errno::ESRCH | Errno::EINVAL | Errno::ENOENT => Unwatchable::Missing,
            Errno::EPERM => Unwatchable::Denied,
            errno => Unwatchable::Refused(errno as i32),
        };
        let watched = Self(pidfd_open(pid).map_err(refused)?);
        watched.signal(0).map_err(refused)?;
        if watched.has_ended() { Err(Unwatchable::Missing) } else { Ok(watched) }
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: c_int) -> nix::Result<()> {
        pidfd_signal(&self.0, signal)
    }

    /// Returns `true` if it has ended; its parent may not have asked for its exit code yet.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(PollTimeout::ZERO)
    }

    /// Waits until it has ended, for `limit` at most; returns `true` if it has. Blocks the thread.
    #[must_use]
    pub(crate) fn ends_within(&self, limit: impl Into<PollTimeout>) -> bool {
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], limit.into()) == Ok(1)
    }

    /// Makes the running event loop wait for its end.
    pub(crate) fn connect(self) -> std::io::Result<AsyncFd<Self>> {
        readable(self)
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_watched_until_it_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process");
        let pid = pid_t::try_from(child.id()).expect("an id");
        let watched = Watched::open(pid).expect("watched");
        assert!(!watched.has_ended());
        drop(child.stdin.take());
        assert!(watched.ends_within(PollTimeout::NONE) && watched.has_ended());
        // It has ended, and was not asked for its exit code.
        assert_eq!(Watched::open(pid).err(), Some(Unwatchable::Missing));
        child.wait().expect("its end");
        assert_eq!(watched.signal(0), Err(Errno::ESRCH));
    }

    #[test]
    fn what_is_no_process_that_could_be_stopped_is_refused() {
        assert_eq!(Watched::open(pid_t::MAX).err(), Some(Unwatchable::Missing));
        assert_eq!(Watched::open(-1).err(), Some(Unwatchable::Missing));
        assert_eq!(Watched::open(0).err(), Some(Unwatchable::Missing));
        assert_eq!(Watched::open(INIT).err(), Some(Unwatchable::Init));
    }
}
