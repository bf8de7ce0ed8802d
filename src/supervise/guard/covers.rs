/*!
Covered runs: a `dlock run` of the same lock inside the command starts its own command at once, which must not outlive
the lock. Each registers with the guard, at a socket in the abstract namespace that is named after the owner. It counts
as alive as long as its connection is open, which its dlock and its guard both hold.
*/

mod open;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::pid_t;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, send, socket,
};

use self::open::{Open, may_hold, raise_limit};
use crate::supervise::process::is_below;
use crate::supervise::signalling::signal_below;

/// The number of runs to accept before the guard looks at the time again.
const AT_ONCE: usize = 64;
/// Pause after an error that may last, if a run can still not be accepted.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The length of the answer to a run that registers.
pub(crate) const ANSWER: usize = 1;
/// The answer to a run that is covered.
pub(crate) const COVERED: [u8; ANSWER] = *b"y";
/// The answer to a run that could be covered if the guard might open more descriptors.
pub(crate) const FULL: [u8; ANSWER] = *b"f";
/// The answer to a process that is not known to be a part of the command.
pub(crate) const STRANGER: [u8; ANSWER] = *b"s";
/// The answer to a run that is not covered, if the command was told to end.
pub(crate) const TOLD: [u8; ANSWER] = *b"t";
/// The answer of a guard that stops its command or has none.
pub(crate) const STOPPING: [u8; ANSWER] = *b"e";

/// Returns the address of the socket at which nested runs register with the guard of the run with this owner. Fails on
/// a name that is too long.
pub(crate) fn address(owner: &str) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("dlock-{owner}").as_bytes())
}

/// Makes a socket that listens at `address`.
pub(super) fn listening(address: &UnixAddr) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), address)?;
    // As many as the system allows: hundreds of runs can begin at once.
    listen(&listener, Backlog::MAXALLOWABLE)?;
    Ok(listener)
}

/// The runs that this one covers.
pub(super) struct Covers {
    listener: Option<OwnedFd>,
    /// Their connections, once there has been one.
    open: Option<Open>,
}

impl Covers {
    /// Listens at `address`. If that is impossible, no run is covered.
    pub(super) fn listen(address: &UnixAddr) -> Self {
        Self { listener: listening(address).ok(), open: None }
    }

    /// Accepts runs that begin, which are covered if `willing`, and drops those that have ended. A guard that is not
    /// willing stops its command, or has none. `is_told` says that the command was told to end.
    pub(super) fn hear(&mut self, willing: bool, is_told: bool) {
        if let Some(open) = &mut self.open {
            open.drop_ended();
        }
        for _ in 0..AT_ONCE {
            let Some(connection) = self.accept() else { return };
            let answer = match willing.then(|| self.cover(&connection)) {
                Some(STRANGER | FULL) if is_told => TOLD,
                Some(answer) => answer,
                None => STOPPING,
            };
            let _ = send(connection.as_raw_fd(), &answer, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
            if answer == COVERED {
                // It is closed by its number, when the run has ended.
                let _ = connection.into_raw_fd();
            }
        }
    }

    /// Counts the run at the other end of this connection as covered, if it can be. Returns the answer.
    fn cover(&mut self, connection: &OwnedFd) -> [u8; ANSWER] {
        if !may_hold(connection) {
            return FULL;
        }
        let pid = getsockopt(connection, PeerCredentials).map_or(0, |peer| peer.pid());
        if !is_below_us(pid) {
            return STRANGER;
        }
        if self.open.is_none() {
            self.open = Open::new();
        }
        if self.open.as_mut().is_some_and(|open| open.add(connection, pid)) { COVERED } else { FULL }
    }

    fn accept(&self) -> Option<OwnedFd> {
        use std::os::fd::FromRawFd;
        let listener = self.listener.as_ref()?.as_raw_fd();
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        loop {
            // SAFETY: the address is not asked for.
            let connection = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
            if connection >= 0 {
                // SAFETY: the descriptor is fresh.
                return Some(unsafe { OwnedFd::from_raw_fd(connection) });
            }
            match Errno::last() {
                Errno::EMFILE if raise_limit() => {}
                Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR => return None,
                // The listener stays readable.
                _ => {
                    std::thread::sleep(LOOK_AGAIN);
                    return None;
                }
            }
        }
    }

    /// Returns `true` if a covered run lives.
    pub(super) fn is_any(&self) -> bool {
        self.open.as_ref().is_some_and(Open::is_any)
    }

    /// Tells the covered runs to end.
    pub(super) fn terminate(&self) {
        // Its guard can hold the connection after that dlock has gone, whose process id may be in use again.
        let me = nix::unistd::getpid().as_raw();
        for pid in self.open.iter().flat_map(Open::pids).filter(|&pid| is_below_us(pid)) {
            // A suspended process takes SIGTERM only when it is continued.
            signal_below(me, me, pid, &[libc::SIGTERM, libc::SIGCONT]);
        }
    }

    /// Returns the descriptors that become readable when a run begins or ends.
    pub(super) fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open.as_ref().map(AsFd::as_fd).into_iter().chain(self.listener.as_ref().map(AsFd::as_fd))
    }

    /// Returns the number of the listening socket.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.listener.as_ref().map(AsRawFd::as_raw_fd)
    }
}

fn is_below_us(pid: pid_t) -> bool {
    is_below(pid, nix::unistd::getpid().as_raw()) == Some(true)
}
