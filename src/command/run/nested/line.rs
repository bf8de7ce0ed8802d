/*!
The connection to the guard of an outer run, with which a nested run registers.
*/

use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, connect, getsockopt, recv, socket};
use tokio::io::unix::AsyncFd;

use crate::clock::{Instant, before, sleep_until};
use crate::exit::{Exit, Failure};
use crate::readable::readable;
use crate::report::event::Event;
use crate::supervise::guard;
use crate::supervise::process::parent_of;

/// Time limit for the answer of an outer guard.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause before calling a guard again whose queue of connections is full.
const CALL_AGAIN: Duration = Duration::from_millis(10);

/// The maximum number of runs with the same command line that may be nested directly.
const MOST_ALIKE: usize = 8;

/// The connection to an outer guard, which stays open as long as any process of this run lives.
#[derive(Clone, Debug)]
pub(crate) struct OuterConnection {
    /// The name of the guard.
    pub(crate) guard: String,
    /// Becomes readable when the guard no longer keeps anything for this run.
    pub(crate) connection: Rc<AsyncFd<OwnedFd>>,
}

/// The answer of an outer guard to a nested run.
pub(crate) enum Registered {
    /// It keeps its locks until this connection is closed.
    Yes(OuterConnection),
    /// It is about to release the lock.
    No,
    /// It may open no more descriptors.
    Full,
    /// It cannot be reached, or cannot tell whether this process is a part of its command.
    Unreachable,
}

/// Registers with the guard named by the id of this `owner`.
pub(crate) async fn register(owner: &str) -> Result<Registered, Failure> {
    let until = Instant::now() + ANSWER;
    let line = loop {
        match call(owner) {
            Err(Errno::EAGAIN) if Instant::now() < until => sleep_until(Instant::now() + CALL_AGAIN).await,
            called => break called,
        }
    };
    let Ok(line) = line else { return Ok(Registered::Unreachable) };
    // Any process can listen at a name that is free; the guard must be an ancestor.
    let peer = getsockopt(&line, PeerCredentials).map_or(0, |peer| peer.pid());
    if !is_above_us(peer) {
        return Ok(Registered::Unreachable);
    }
    let Ok(line) = readable(line) else { return Ok(Registered::Unreachable) };
    let mut answer = [0; guard::ANSWER];
    match before(until, line.readable()).await {
        Ok(Ok(_)) => {}
        _ => return Ok(Registered::Unreachable),
    }
    match (recv(line.as_raw_fd(), &mut answer, MsgFlags::empty()), answer) {
        (Ok(_), guard::COVERED) => {
            // Registered anew with the event loop: it was readable, and is no longer.
            let connection = readable(line.into_inner());
            let connection = connection.map_err(|error| unreachable_guard(Some(error.to_string())))?;
            Ok(Registered::Yes(OuterConnection { guard: owner.to_owned(), connection: Rc::new(connection) }))
        }
        (Ok(_), guard::FULL) => Ok(Registered::Full),
        (Ok(_), guard::STRANGER | guard::TOLD) => Ok(Registered::Unreachable),
        _ => Ok(Registered::No),
    }
}

/// Connects to the guard named by the id of this `owner`.
fn call(owner: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let line = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(line.as_raw_fd(), &guard::address(owner)?)?;
    Ok(line)
}

/// Returns the failure for a guard that cannot be reached, with the system's reason; `None` if it did not answer.
pub(crate) fn unreachable_guard(reason: Option<String>) -> Failure {
    Failure::new(Exit::Unavailable, Event::OuterGuardUnreachable(reason))
}

/// Returns `true` if the process with this id is an ancestor of this one.
pub(crate) fn is_above_us(pid: i32) -> bool {
    ancestors().any(|ancestor| ancestor == pid)
}

/// Returns `true` if this run is the command of a run with the same command line, and so on, [so often](MOST_ALIKE)
/// that this will not end: a script that locks itself passes another lock to `dlock held` than it then takes.
pub(crate) fn starts_itself() -> bool {
    let arguments = |pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok();
    let own = arguments(nix::unistd::getpid().as_raw());
    // The parent of each command is its guard, whose parent is the dlock.
    let around = |&pid: &i32| parent_of(parent_of(pid)?).filter(|&dlock| arguments(dlock) == own);
    own.is_some()
        && std::iter::successors(Some(nix::unistd::getpid().as_raw()), around).take(MOST_ALIKE + 1).count() > MOST_ALIKE
}

/// Returns the ancestors of this process, beginning with its parent.
fn ancestors() -> impl Iterator<Item = i32> {
    let me = nix::unistd::getpid().as_raw();
    std::iter::successors(parent_of(me), |&pid| parent_of(pid)).take_while(|&pid| pid > 0).take(1 << 16)
}
