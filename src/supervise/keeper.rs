/*!
The socket of a process that keeps a lock: runs under its handle register there, and `dlock release` asks it to let go.

The socket is in the abstract namespace and is named after the owner of the lock; the kernel tells each side which
process the other one is. A client sends one byte and gets one answer. A run leaves its connection open as long as any
of its processes lives, and has to stop when the keeper closes its own direction of it.
*/

use std::os::fd::{AsRawFd, OwnedFd};

use libc::pid_t;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, bind, connect, getsockopt, listen, recv, send, socket,
};

use crate::supervise::guard::address;
use crate::supervise::process::start_of;

/// The length of the longest packet.
const LENGTH: usize = 5;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Keep the lock until this connection is closed.
    Register,
    /// Let the lock go.
    LetGo,
}

/// The answer of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Yes,
    /// The lock is lost, or a request to stop has come: all that counts on it is being stopped.
    Stopping,
    /// The client belongs to another user, and the process that the lock is kept for has not started it.
    Denied,
    /// The lock is not let go: the run of this process is registered.
    Busy(pid_t),
}

impl Request {
    /// Sends the request. Errors are ignored: there is no answer then.
    pub(crate) fn send(self, line: &OwnedFd) {
        let byte = match self {
            Self::Register => b'r',
            Self::LetGo => b'l',
        };
        deliver(line, &[byte]);
    }

    /// Reads a packet.
    fn read(packet: &[u8]) -> Option<Self> {
        match packet {
            b"r" => Some(Self::Register),
            b"l" => Some(Self::LetGo),
            _ => None,
        }
    }

    /// Receives the next request; `None` for one that this dlock does not know. Fails with `EAGAIN` if there is none
    /// yet, and with `EPIPE` if the client is gone.
    pub(crate) fn receive(line: &OwnedFd) -> nix::Result<Option<Self>> {
        let mut packet = [0; LENGTH];
        packet_of(line, &mut packet).map(Self::read)
    }
}

impl Answer {
    /// Sends the answer. Errors are ignored: a client that is gone is noticed in other ways.
    pub(crate) fn send(self, line: &OwnedFd) {
        match self {
            Self::Yes => deliver(line, b"y"),
            Self::Stopping => deliver(line, b"s"),
            Self::Denied => deliver(line, b"d"),
            Self::Busy(pid) => {
                let [a, b, c, d] = pid.to_le_bytes();
                deliver(line, &[b'b', a, b, c, d]);
            }
        }
    }

    fn read(packet: &[u8]) -> Option<Self> {
        match *packet {
            [b'y'] => Some(Self::Yes),
            [b's'] => Some(Self::Stopping),
            [b'd'] => Some(Self::Denied),
            [b'b', a, b, c, d] => Some(Self::Busy(pid_t::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }

    /// Receives the answer; `None` if the keeper has ended, or for an answer that this dlock does not know.
    pub(crate) fn receive(line: &OwnedFd) -> Option<Self> {
        let mut packet = [0; LENGTH];
        packet_of(line, &mut packet).ok().and_then(Self::read)
    }
}

fn deliver(line: &OwnedFd, packet: &[u8]) {
    let _ = send(line.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
}

fn packet_of<'a>(line: &OwnedFd, packet: &'a mut [u8; LENGTH]) -> nix::Result<&'a [u8]> {
    loop {
        return match recv(line.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT) {
            // A peer that has closed its end before it has read everything resets the connection. That error comes
            // once, and before the last packets of the peer.
            Err(Errno::ECONNRESET | Errno::EINTR) => continue,
            Err(error) => Err(error),
            Ok(0) => Err(Errno::EPIPE),
            Ok(length) => Ok(&packet[..length.min(LENGTH)]),
        };
    }
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// Makes the socket of the keeper of this owner's lock.
pub(crate) fn listening(owner: &str) -> nix::Result<OwnedFd> {
    let listener = open()?;
    bind(listener.as_raw_fd(), &address(owner)?)?;
    listen(&listener, Backlog::MAXCONN)?;
    Ok(listener)
}

/// Connects to the process `pid`, which began at `start` and keeps the lock of `owner`. Fails if no such keeper
/// listens; with `EAGAIN` if too many clients wait.
pub(crate) fn connected(owner: &str, pid: pid_t, start: u64) -> nix::Result<OwnedFd> {
    let line = open()?;
    connect(line.as_raw_fd(), &address(owner)?)?;
    // Any process can listen at a name that is free.
    let peer = getsockopt(&line, PeerCredentials)?.pid();
    let is_it = peer == pid && start_of(pid).is_none_or(|began| began == start);
    if is_it { Ok(line) } else { Err(Errno::ECONNREFUSED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::process::has_ended;

    #[test]
    fn a_keeper_is_the_process_that_listens_and_no_other_one() {
        let me = nix::unistd::getpid().as_raw();
        let owner = &format!("{me:032x}");
        let start = start_of(me).expect("a start");
        assert_eq!(connected(owner, me, start).err(), Some(Errno::ECONNREFUSED));
        let listener = listening(owner).expect("a socket");
        assert_eq!(listening(owner).err(), Some(Errno::EADDRINUSE));
        assert!(connected(owner, me, start).is_ok());
        let parent = nix::unistd::getppid().as_raw();
        assert!(!has_ended(parent));
        assert_eq!(connected(owner, parent, start_of(parent).expect("a start")).err(), Some(Errno::ECONNREFUSED));
        assert_eq!(connected(owner, me, start + 1).err(), Some(Errno::ECONNREFUSED));
        drop(listener);
        // A process that another test forks at this moment has the socket until it executes its program.
        while connected(owner, me, start).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(connected(owner, me, start).err(), Some(Errno::ECONNREFUSED));
    }

    #[test]
    fn what_is_sent_is_received_and_nonsense_is_nothing() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (one, other) =
            nix::sys::socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("sockets");
        for answer in [Answer::Yes, Answer::Stopping, Answer::Denied, Answer::Busy(4_194_304)] {
            answer.send(&one);
            assert_eq!(Answer::receive(&other), Some(answer));
        }
        assert_eq!(Request::receive(&other), Err(Errno::EAGAIN));
        for request in [Request::Register, Request::LetGo] {
            request.send(&one);
            assert_eq!(Request::receive(&other), Ok(Some(request)));
        }
        for nonsense in [&b"?"[..], b"b", b"bxxx", b"yy", b"longer than any"] {
            deliver(&one, nonsense);
            deliver(&one, nonsense);
            assert_eq!((Answer::receive(&other), Request::receive(&other)), (None, Ok(None)));
        }
        // The last answer of a keeper that has not read the request.
        Request::Register.send(&other);
        Answer::Denied.send(&one);
        drop(one);
        assert_eq!(Answer::receive(&other), Some(Answer::Denied));
        assert_eq!((Answer::receive(&other), Request::receive(&other)), (None, Err(Errno::EPIPE)));
    }
}
