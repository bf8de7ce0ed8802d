/*!
The guards on this host of runs under one handle, for `dlock release`: a guard whose dlock was killed still stops its
command. They are found by the names of their sockets, which the kernel lists. So is a dlock whose guard was killed, and
which stops the command itself.
*/

use std::fs;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

use libc::pid_t;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, socket};

use crate::supervise::guard::covers::listening;
use crate::supervise::guard::{STOPPING, TOLD, address};
use crate::supervise::process::{is_ending, parent_of};

/// Returns the name of the guard of this process's run under the handle of this lock's owner; `unique` tells it apart.
#[must_use]
pub(crate) fn name(owner: &str, unique: &str) -> String {
    format!("{owner}-{}-{unique}", nix::unistd::getpid())
}

/// The suffix of a dlock's name, which begins with that of its guard.
const DLOCK: &str = ".dlock";

/// Announces this process as the dlock of the guard of this name for as long as it lives. It answers nobody: a process
/// that looks for the guard asks it only if there is no guard any more.
pub(crate) fn announce(guard: &str) -> nix::Result<()> {
    // It is closed when the process ends.
    let _ = listening(&address(&format!("{guard}{DLOCK}"))?)?.into_raw_fd();
    Ok(())
}

/// A guard of a run under a handle, or the dlock of one that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Under {
    /// Its process id.
    pub pid: pid_t,
    /// `true` if it stops its command, has none, or has one that was told to end.
    pub is_stopping: bool,
}

/// Returns the guards on this host of runs under the handle of this owner's lock: those of this user and of root, for
/// root of all users. Each may take as long as `timeout` to answer; one that does not counts as stopping.
pub(crate) fn guards(owner: &str, timeout: PollTimeout) -> Vec<Under> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let prefix = format!("@dlock-{owner}-");
    let names = sockets.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| name.starts_with(&prefix));
    let mut names: Vec<&str> = names.collect();
    // The kernel lists the connections too.
    names.sort_unstable();
    names.dedup();
    let dlock_of = |name: &str| name.strip_prefix(&prefix)?.split_once('-')?.0.parse().ok();
    let asked = |name: &str| ask(name.strip_prefix('@')?, dlock_of(name)?, timeout);
    // Sorted, a guard comes before its dlock, which counts if nobody answers for the guard.
    let mut found: Vec<(&str, Under)> = Vec::new();
    for name in names {
        let has_guard = |guard: &str| found.iter().any(|(known, _)| *known == guard);
        if !name.strip_suffix(DLOCK).is_some_and(has_guard) {
            found.extend(asked(name).map(|under| (name, under)));
        }
    }
    found.into_iter().map(|(_, under)| under).collect()
}

/// Asks the guard at this name, whose dlock has this id in its PID namespace; `None` if it is gone or another user's.
fn ask(name: &str, dlock: pid_t, timeout: PollTimeout) -> Option<Under> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let line = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).ok()?;
    match connect(line.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).ok()?) {
        Ok(()) => {}
        // It accepts nobody, and its queue is full.
        Err(Errno::EAGAIN) => return Some(Under { pid: 0, is_stopping: true }),
        Err(_) => return None,
    }
    let peer = getsockopt(&line, PeerCredentials).ok()?;
    let own = nix::unistd::geteuid().as_raw();
    // Any process can listen at such a name, and would be waited for.
    if own != 0 && ![0, own].contains(&peer.uid()) {
        return None;
    }
    let mut answer = [0; STOPPING.len()];
    let is_silent = poll(&mut [PollFd::new(line.as_fd(), PollFlags::POLLIN)], timeout) != Ok(1);
    let received = recv(line.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).unwrap_or_default();
    if !is_silent && received == 0 {
        // It has ended. If it was killed, its dlock is asked.
        return None;
    }
    let is_stopping = is_silent || [STOPPING, TOLD].contains(&answer);
    // It may not know yet that its dlock was killed.
    Some(Under { pid: peer.pid(), is_stopping: is_stopping || is_orphan(peer.pid(), dlock) })
}

/// Returns `true` if the dlock of this guard has ended, or is about to because of a SIGKILL.
fn is_orphan(guard: pid_t, dlock: pid_t) -> bool {
    // A guard that cannot be seen from here has no number.
    let Some(parent) = parent_of(guard) else { return false };
    let status = fs::read_to_string(format!("/proc/{parent}/status")).unwrap_or_default();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let is_dlock = line("NSpid:").split_whitespace().any(|number| number.parse() == Ok(dlock));
    let is_killed = ["SigPnd:", "ShdPnd:"].into_iter().any(|name| {
        u64::from_str_radix(line(name).trim(), 16).is_ok_and(|pending| pending & (1 << (libc::SIGKILL - 1)) != 0)
    });
    !is_dlock || is_killed || is_ending(parent)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};

    use nix::sys::socket::{accept, send};

    use super::*;
    use crate::supervise::guard::STRANGER;

    #[test]
    fn a_guard_that_has_ended_without_an_answer_is_none_that_goes_on() {
        let parent = nix::unistd::getppid().as_raw();
        for (answer, expected) in [(None, None), (Some(STOPPING), Some(true)), (Some(STRANGER), Some(false))] {
            let name = format!("dlock-test-{}-{answer:?}", nix::unistd::getpid());
            let listener = listening(&UnixAddr::new_abstract(name.as_bytes()).expect("a name")).expect("a listener");
            let asked = std::thread::scope(|scope| {
                scope.spawn(|| {
                    poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).expect("asked");
                    let number = accept(listener.as_raw_fd()).expect("a connection");
                    // SAFETY: it was just opened, and belongs to nobody else.
                    let line = unsafe { OwnedFd::from_raw_fd(number) };
                    if let Some(answer) = answer {
                        send(line.as_raw_fd(), &answer, MsgFlags::MSG_NOSIGNAL).expect("sent");
                    }
                });
                ask(&name, parent, PollTimeout::from(30_000_u16))
            });
            assert_eq!(asked.map(|under| under.is_stopping), expected, "{answer:?}");
        }
    }
}
