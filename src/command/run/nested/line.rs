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

/// How long the guard of an outer run may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How soon a guard is called again that has as many calls to take as the system keeps for it.
const CALL_AGAIN: Duration = Duration::from_millis(10);

/// How many runs with one command line may be the commands of each other.
const MOST_ALIKE: usize = 8;

/// The connection to an outer guard, which stays open as long as any process of this run lives.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The name of the guard.
    pub(crate) guard: String,
    /// Becomes readable when the guard keeps nothing for this run any more.
    pub(crate) connection: Rc<AsyncFd<OwnedFd>>,
}

/// The answer of an outer guard to a nested run.
pub(crate) enum Registered {
    /// It keeps its locks until this connection is closed.
    Yes(Line),
    /// It is about to release the lock.
    No,
    /// It may open no more descriptors.
    Full,
    /// It cannot be reached, or cannot tell whether this process is a part of its command.
    Unreachable,
}

/// Registers with the guard that goes by the id of this `owner`.
pub(crate) async fn register(owner: &str) -> Result<Registered, Failure> {
    let until = Instant::now() + ANSWER;
    let line = loop {
        match call(owner) {
            Err(Errno::EAGAIN) if Instant::now() < until => sleep_until(Instant::now() + CALL_AGAIN).await,
            called => break called,
        }
    };
    let Ok(line) = line else { return Ok(Registered::Unreachable) };
    // Any process can listen at a name that is not taken; the guard must be an ancestor.
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
            // Anew, because it has been readable, and is not any more.
            let connection = readable(line.into_inner());
            let connection = connection.map_err(|error| unreachable_guard(Some(error.to_string())))?;
            Ok(Registered::Yes(Line { guard: owner.to_owned(), connection: Rc::new(connection) }))
        }
        (Ok(_), guard::FULL) => Ok(Registered::Full),
        (Ok(_), guard::STRANGER | guard::TOLD) => Ok(Registered::Unreachable),
        _ => Ok(Registered::No),
    }
}

/// Connects to the guard that goes by the id of this `owner`.
fn call(owner: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let line = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(line.as_raw_fd(), &guard::address(owner)?)?;
    Ok(line)
}

/// The failure of a guard that cannot be reached; the system's reason, `None` if there is no answer.
pub(crate) fn unreachable_guard(reason: Option<String>) -> Failure {
    Failure::new(Exit::Unavailable, Event::OuterGuardUnreachable(reason))
}

/// Whether the process with this id is above this one.
pub(crate) fn is_above_us(pid: i32) -> bool {
    ancestors().any(|ancestor| ancestor == pid)
}

/// Whether this run is the command of a run with the same command line, and so on, [so often](MOST_ALIKE) that this will not end: a
/// script that locks itself asks for another lock with `dlock held` than it then takes.
pub(crate) fn starts_itself() -> bool {
    let arguments = |pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok();
    let own = arguments(nix::unistd::getpid().as_raw());
    // Above each command is its guard, and above that the dlock.
    let around = |&pid: &i32| parent_of(parent_of(pid)?).filter(|&dlock| arguments(dlock) == own);
    own.is_some()
        && std::iter::successors(Some(nix::unistd::getpid().as_raw()), around).take(MOST_ALIKE + 1).count() > MOST_ALIKE
}

/// The processes above this one, from its parent on.
fn ancestors() -> impl Iterator<Item = i32> {
    let me = nix::unistd::getpid().as_raw();
    std::iter::successors(parent_of(me), |&pid| parent_of(pid)).take_while(|&pid| pid > 0).take(1 << 16)
}
