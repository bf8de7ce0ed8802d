/*!
The guard: a process forked before anything else, which is the command's parent and knows its deadline itself.

```text
dlock            the lock: acquires, renews, decides
 └─ guard        no runtime, no network, no allocation; a deadline, a kill ladder, and a socket to dlock
     └─ command
```

dlock killed: the guard sees end-of-file and stops the command. dlock frozen: the guard's own deadline comes. Guard
killed: the command dies with it (`PR_SET_PDEATHSIG`), and dlock, to which the orphans come, sweeps them. Nothing here
waits for anything that can hang.

It is a subreaper, so all that the command starts is found below it, also what moved to its own session. It blocks
every catchable signal: what is sent to the process group must not end it. Its name does not contain `dlock`, so that
`pkill dlock` leaves it to do its work; nor do its arguments, for `pkill -f`.
*/

mod watch;

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::pid_t;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, send, sendmsg, socketpair};
use nix::unistd::{ForkResult, fork};
use tokio::io::unix::AsyncFd;

use self::watch::Watch;
use super::command::Command;
use super::protocol::{LENGTH, Notice, Order, Spawn};
use super::sweep::Sweep;
use crate::readable::readable;

/// dlock's end of the line to its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: pid_t,
    socket: AsyncFd<OwnedFd>,
}

/// A guard that was forked and is not yet connected to an event loop.
#[derive(Debug)]
pub(crate) struct Forked {
    pid: pid_t,
    socket: OwnedFd,
}

/// Forks the guard for `command`. Must be called from the main thread, before any other thread exists; every
/// catchable signal must be blocked. In the guard this does not return. `farewell` is said by the guard when dlock
/// died and the command is being stopped.
pub(crate) fn fork_guard(command: Command, farewell: Box<dyn Fn()>) -> nix::Result<Forked> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    let sweep = Sweep::new();
    // SAFETY: the process has one thread, so the child may use everything that was prepared.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Forked { pid: child.as_raw(), socket: ours }),
        ForkResult::Child => {
            drop(ours);
            Watch::begin(command, its, sweep, farewell)
        }
    }
}

impl Forked {
    /// The number of the socket's descriptor.
    #[must_use]
    pub(crate) fn as_raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Connects the guard to the running event loop.
    pub(crate) fn connect(self) -> std::io::Result<Guard> {
        nix::fcntl::fcntl(&self.socket, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        Ok(Guard { pid: self.pid, socket: readable(self.socket)? })
    }
}

impl Guard {
    /// The guard's process id.
    #[must_use]
    pub(crate) fn pid(&self) -> pid_t {
        self.pid
    }

    /// Ends the guard, which has nothing to watch any more, and collects it: whoever inherits it from us may not.
    pub(crate) fn end(&self) {
        // SAFETY: a child that is not collected keeps its process id, so the signal reaches nobody else.
        unsafe {
            if libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) == 0 {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }

    /// Sends an order. A guard that is gone or does not read shows in other ways; an order that does not reach it
    /// leaves the deadline it already knows.
    pub(crate) fn order(&self, order: Order) {
        let _ = send(self.socket.as_raw_fd(), &order.encode(), MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
    }

    /// Orders the command to be started; `lock` travels with it.
    pub(crate) fn spawn(&self, spawn: Spawn, lock: Option<BorrowedFd<'_>>) -> nix::Result<()> {
        let packet = Order::Spawn(spawn).encode();
        let descriptors = lock.map(|lock| [lock.as_raw_fd()]);
        let rights = descriptors.as_ref().map(|descriptors| ControlMessage::ScmRights(descriptors));
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&packet)], rights.as_slice(), flags, None).map(drop)
    }

    /// The guard's next notice; none when it is gone. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        loop {
            let mut ready = self.socket.readable().await.ok()?;
            let mut packet = [0; LENGTH];
            match recv(ready.get_inner().as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(0) => return None,
                Ok(_) => return Notice::decode(&packet),
                Err(Errno::EAGAIN) => ready.clear_ready(),
                // A guard that ended before it read our last order resets the line, which says so once and before what
                // the guard had still told.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(_) => return None,
            }
        }
    }
}
