/*!
Covered runs: a `dlock run` of the same lock inside the command passes straight through, and its command must not
outlive the lock. Each registers with the guard, at a socket in the abstract namespace that is named after the owner,
and counts as alive as long as its connection is open, which that run's dlock and guard both hold.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::pid_t;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, recv, send, socket,
};

use crate::supervise::process::is_below;
use crate::supervise::signalling::signal_below;

/// How many runs can be covered at the same time.
const MOST: usize = 32;
/// How many connections may wait to be accepted.
const BACKLOG: i32 = 16;
/// The answer to a run that is covered.
pub(crate) const COVERED: [u8; 1] = *b"y";

/// The address of the socket at which nested runs register with the guard of the run with this owner. Fails on a name
/// that is too long.
pub(crate) fn address(owner: &str) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("dlock-{owner}").as_bytes())
}

/// A run that is covered.
struct Cover {
    connection: OwnedFd,
    pid: pid_t,
}

/// The runs that this one covers.
pub(super) struct Covers {
    listener: Option<OwnedFd>,
    covered: [Option<Cover>; MOST],
}

impl Covers {
    /// Listens at `address`. Where that is impossible, no run is covered.
    pub(super) fn listen(address: &UnixAddr) -> Self {
        let open = || -> nix::Result<OwnedFd> {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
            bind(listener.as_raw_fd(), address)?;
            listen(&listener, Backlog::new(BACKLOG)?)?;
            Ok(listener)
        };
        Self { listener: open().ok(), covered: [const { None }; MOST] }
    }

    /// Accepts runs that begin, which are covered if `willing`, and drops those that have ended.
    pub(super) fn hear(&mut self, willing: bool) {
        let mut packet = [0; 1];
        for place in &mut self.covered {
            // Nothing is ever sent on this connection: what can be read is end-of-file.
            let open = |cover: &Cover| {
                recv(cover.connection.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) == Err(Errno::EAGAIN)
            };
            if !place.as_ref().is_none_or(open) {
                *place = None;
            }
        }
        for _ in 0..BACKLOG {
            let Some(connection) = self.accept() else { return };
            let Some(place) = self.covered.iter_mut().find(|place| place.is_none()) else { return };
            let pid = getsockopt(&connection, PeerCredentials).map_or(0, |peer| peer.pid());
            if willing && is_below_us(pid) {
                let _ = send(connection.as_raw_fd(), &COVERED, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
                *place = Some(Cover { connection, pid });
            }
        }
    }

    fn accept(&self) -> Option<OwnedFd> {
        use std::os::fd::FromRawFd;
        let listener = self.listener.as_ref()?.as_raw_fd();
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the address is not asked for, and the descriptor is fresh.
        unsafe {
            let connection = libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags);
            (connection >= 0).then(|| OwnedFd::from_raw_fd(connection))
        }
    }

    /// Whether a run that is covered lives.
    pub(super) fn is_any(&self) -> bool {
        self.covered.iter().any(Option::is_some)
    }

    /// Tells the covered runs to end.
    pub(super) fn terminate(&self) {
        // Its guard can hold the connection when that dlock is gone, and its process id may be in use again.
        let me = nix::unistd::getpid().as_raw();
        for cover in self.covered.iter().flatten().filter(|cover| is_below_us(cover.pid)) {
            // A suspended process takes SIGTERM only when it is continued.
            signal_below(me, me, cover.pid, &[libc::SIGTERM, libc::SIGCONT]);
        }
    }

    /// The descriptors that become readable when a run begins or ends.
    pub(super) fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.covered
            .iter()
            .flatten()
            .map(|cover| cover.connection.as_fd())
            .chain(self.listener.as_ref().map(AsFd::as_fd))
    }

    /// The number of the listening socket.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.listener.as_ref().map(AsRawFd::as_raw_fd)
    }
}

fn is_below_us(pid: pid_t) -> bool {
    is_below(pid, nix::unistd::getpid().as_raw()) == Some(true)
}
