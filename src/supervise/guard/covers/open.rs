/*!
The open connections of covered runs, as many as this process may open. The kernel reports those that have ended, so
thousands cost no more than one. Their process ids are in a mapping that takes memory only where it is used.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, pid_t};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{MsgFlags, recv};

/// The number of ended runs to drop before the guard looks at the time again.
const AT_ONCE: usize = 64;
/// The maximum number of connections, however many descriptors are allowed.
const MOST: usize = 1 << 20;

/// The open connections.
pub(super) struct Open {
    /// The kernel's list of them.
    epoll: OwnedFd,
    /// The process id of each, by the number of its connection; 0 if there is none. Never unmapped.
    pids: &'static mut [pid_t],
    count: usize,
    /// One more than the largest number of a connection so far.
    end: usize,
}

impl Open {
    /// Makes an empty list. `None` if the system has no room for one.
    pub(super) fn new() -> Option<Self> {
        let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
        let length = usize::try_from(hard).map_or(MOST, |hard| hard.min(MOST));
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the descriptor is fresh; a fresh anonymous mapping, zeroed by the kernel, holds valid numbers.
        unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            let epoll = (epoll >= 0).then(|| OwnedFd::from_raw_fd(epoll))?;
            let place = libc::mmap(std::ptr::null_mut(), length * size_of::<pid_t>(), protection, flags, -1, 0);
            (place != libc::MAP_FAILED).then(|| {
                let pids = std::slice::from_raw_parts_mut(place.cast::<pid_t>(), length);
                Self { epoll, pids, count: 0, end: 0 }
            })
        }
    }

    /// Adds the connection of the run `pid`; it is to stay open. Returns whether there is room for it.
    pub(super) fn add(&mut self, connection: &OwnedFd, pid: pid_t) -> bool {
        let number = connection.as_raw_fd();
        let index = usize::try_from(number).unwrap_or(MOST);
        let Some(place) = self.pids.get_mut(index) else { return false };
        // Nothing is ever sent on this connection: what can be read is end-of-file.
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
        let mut event = libc::epoll_event { events, u64: index as u64 };
        // SAFETY: both descriptors are open, and the event outlives the call.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, number, &raw mut event) } != 0 {
            return false;
        }
        *place = pid;
        self.count += 1;
        self.end = self.end.max(index + 1);
        true
    }

    /// Closes the connections of runs that have ended.
    pub(super) fn drop_ended(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut ended = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        let most = c_int::try_from(ended.len()).unwrap_or(1);
        // SAFETY: an array, and its length.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), ended.as_mut_ptr(), most, 0) };
        for event in &ended[..usize::try_from(count).unwrap_or(0)] {
            let index = usize::try_from(event.u64).unwrap_or(MOST);
            let number = RawFd::try_from(event.u64).unwrap_or(-1);
            let mut packet = [0; 1];
            if recv(number, &mut packet, MsgFlags::MSG_DONTWAIT) == Err(Errno::EAGAIN) {
                continue;
            }
            if let Some(place) = self.pids.get_mut(index).filter(|place| **place != 0) {
                *place = 0;
                self.count -= 1;
                // SAFETY: it was added by this number, and nothing else closes it. A process that was forked meanwhile
                // can hold it too, so that it does not leave the kernel's list by being closed here.
                unsafe {
                    libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, number, std::ptr::null_mut());
                    libc::close(number);
                }
            }
        }
    }

    /// Returns `true` if there is one.
    pub(super) fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Returns the process ids of the runs.
    pub(super) fn pids(&self) -> impl Iterator<Item = pid_t> {
        self.pids[..self.end].iter().copied().filter(|&pid| pid != 0)
    }
}

impl AsFd for Open {
    /// Readable when a run has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Returns `true` if this process may keep a connection with this number open: the last descriptor is left for the next
/// one, which is told that there is no room. Raises the limit if that is allowed.
pub(super) fn may_hold(connection: &OwnedFd) -> bool {
    let next = u64::try_from(connection.as_raw_fd()).unwrap_or(u64::MAX).saturating_add(1);
    let has_room = || getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(soft, _)| next < soft);
    has_room() || raise_limit() && has_room()
}

/// Lets this process open as many descriptors as it may; returns whether that is more than before. The command, which
/// was forked before, keeps its limit.
pub(super) fn raise_limit() -> bool {
    getrlimit(Resource::RLIMIT_NOFILE)
        .is_ok_and(|(soft, hard)| soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok())
}
