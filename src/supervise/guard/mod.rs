/*!
The guard: a process forked before anything else, which is the command's parent and knows its deadline itself.

```text
dlock            the lock: acquires, renews, decides
 └─ guard        no runtime, no network, no allocation; a deadline, a kill ladder, and a socket to dlock
     ├─ listener      receives the signals to the caller's process group, which the guard has left
     └─ command
```

dlock killed: the guard sees end-of-file and stops the command. dlock frozen: the guard's own deadline passes. Guard
killed: the command dies with it (`PR_SET_PDEATHSIG`), and dlock, which inherits the orphans, sweeps them. The whole
group killed or frozen (`timeout -k`, a CI runner's cancel): the guard has left it, and goes on. Nothing here waits for
anything that can hang.

The guard is a subreaper, so all that the command starts is found below it, even in another session. It blocks every
catchable signal. Neither its name nor its arguments contain `dlock`, so that `pkill dlock` and `pkill -f dlock` spare
it.
*/

mod child;
mod covers;
mod group;
mod line;
mod listener;
mod throttled;
pub(crate) mod under;
mod watch;

pub(crate) use self::covers::{ANSWER, COVERED, FULL, STOPPING, STRANGER, TOLD, address};

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::pid_t;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, recv, send, sendmsg, socketpair,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use tokio::io::unix::AsyncFd;

use self::watch::Watch;
use crate::clock::Instant;
use crate::readable::readable;
use crate::supervise::command::Command;
use crate::supervise::process::pidfd_open;
use crate::supervise::protocol::{LENGTH, Notice, Order, Spawn};
use crate::supervise::sweep::Sweep;

/// Time that dlock waits for the guard to end. A guard frozen with its control group does not end, even when killed.
const END: Duration = Duration::from_secs(1);

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

/// Forks the guard for `command`. Must be called from the main thread, before any other thread exists; every catchable
/// signal must be blocked. In the guard, this does not return. Nested runs register at `address`. The guard calls
/// `farewell` when dlock died and the command is being stopped.
pub(crate) fn fork_guard(command: Command, address: &UnixAddr, farewell: Box<dyn Fn()>) -> nix::Result<Forked> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    let sweep = Sweep::new();
    // The clock is initialised before the fork, so that both processes use the same one.
    let _ = Instant::now();
    // SAFETY: the process has one thread, so the child may use everything that was prepared.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Forked { pid: child.as_raw(), socket: ours }),
        ForkResult::Child => {
            drop(ours);
            Watch::begin(command, its, sweep, address, farewell)
        }
    }
}

impl Forked {
    /// Returns the number of the socket's descriptor.
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
    /// Returns the guard's process id.
    #[must_use]
    pub(crate) fn pid(&self) -> pid_t {
        self.pid
    }

    /// Waits for the end of a guard that is `done`, and kills one that has nothing left to watch. Reaps it, because the
    /// process that would inherit it may not.
    pub(crate) fn end(&self, done: bool) {
        let pid = nix::unistd::Pid::from_raw(self.pid);
        let collected = || waitpid(pid, Some(WaitPidFlag::WNOHANG)) != Ok(WaitStatus::StillAlive);
        let Ok(process) = pidfd_open(self.pid) else { return };
        let timeout = PollTimeout::try_from(END).unwrap_or(PollTimeout::ZERO);
        let has_ended = || poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout) == Ok(1);
        if collected() || done && has_ended() && collected() {
            return;
        }
        // A child that is not reaped keeps its process id, so the signal reaches no other process.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        let _ = has_ended() && collected();
    }

    /// Sends an order. Errors are ignored: a guard that is gone or does not read is noticed in other ways, and without
    /// the order the deadline that it already knows applies.
    pub(crate) fn order(&self, order: Order) {
        let _ = send(self.socket.as_raw_fd(), &order.encode(), MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
    }

    /// Orders the command to be started. The `locks` travel with the order: descriptors that the command inherits or
    /// that the guard keeps, no more than [`MOST_LOCKS`](crate::supervise::tokens::MOST_LOCKS).
    pub(crate) fn spawn(&self, spawn: Spawn, locks: &[BorrowedFd<'_>]) -> nix::Result<()> {
        let packet = Order::Spawn(spawn).encode();
        let descriptors: Vec<RawFd> = locks.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = (!descriptors.is_empty()).then_some(ControlMessage::ScmRights(&descriptors));
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&packet)], rights.as_slice(), flags, None).map(drop)
    }

    /// Returns the guard's next notice; `None` if the guard is gone. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        loop {
            let mut ready = self.socket.readable().await.ok()?;
            match receive(ready.get_inner()) {
                Heard::Notice(notice) => return Some(notice),
                Heard::Nothing => ready.clear_ready(),
                Heard::End => return None,
            }
        }
    }

    /// Returns what the guard has sent already, whether the event loop knows of it or not.
    pub(crate) fn has_said(&self) -> Heard {
        receive(self.socket.get_ref())
    }
}

/// The result of a look at dlock's end of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The guard's next notice.
    Notice(Notice),
    /// Nothing at present.
    Nothing,
    /// The guard is gone.
    End,
}

/// Reads the next message from dlock's end of the socket.
fn receive(socket: &OwnedFd) -> Heard {
    loop {
        let mut packet = [0; LENGTH];
        return match recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Ok(0) => Heard::End,
            Ok(_) => Notice::decode(&packet).map_or(Heard::End, Heard::Notice),
            Err(Errno::EAGAIN) => Heard::Nothing,
            // A guard that ended before it read our last order resets the connection. That error comes once, and before
            // the last notices of the guard.
            Err(Errno::EINTR | Errno::ECONNRESET) => continue,
            Err(_) => Heard::End,
        };
    }
}
