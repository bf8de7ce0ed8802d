/*!
The guard's end of the connection to dlock. It queues notices while dlock, which may be stopped for long, reads none.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use crate::supervise::protocol::{LENGTH, Notice, Order};
use crate::supervise::tokens::MOST_LOCKS;

/// The maximum number of queued notices: one of each kind.
const WAITING: usize = 16;
/// The size of a descriptor in a control message.
const DESCRIPTOR: libc::c_uint = 4;

/// Descriptors that came with an order: those of locks, or connections to outer guards.
pub(super) type Locks = [Option<OwnedFd>; MOST_LOCKS];

/// A message from dlock.
#[allow(clippy::large_enum_variant, reason = "it is handled at once, and the guard allocates nothing")]
pub(super) enum Received {
    /// An order, and the descriptors that came with it.
    Order(Order, Locks),
    /// An order without all the descriptors that came with it: this process may not open that many more.
    NoRoom,
    /// Nothing for now.
    Nothing,
    /// dlock is gone.
    End,
}

/// The guard's end of the connection to dlock.
pub(super) struct GuardEnd {
    socket: OwnedFd,
    waiting: [Option<Notice>; WAITING],
    gone: bool,
}

impl GuardEnd {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: [None; WAITING], gone: false }
    }

    /// Returns `true` if dlock is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns `true` if a notice is queued.
    pub(super) fn is_waiting(&self) -> bool {
        !self.gone && self.waiting[0].is_some()
    }

    /// Sends a notice, now or once dlock reads; a queued notice of the same kind is replaced.
    pub(super) fn tell(&mut self, notice: Notice) {
        let same = |place: &Option<Notice>| {
            place.is_none_or(|other| std::mem::discriminant(&other) == std::mem::discriminant(&notice))
        };
        if let Some(place) = self.waiting.iter_mut().find(|place| same(place)) {
            *place = Some(notice);
        }
        self.flush();
    }

    /// Sends the queued notices, as far as dlock reads them.
    pub(super) fn flush(&mut self) {
        while let Some(notice) = self.waiting[0] {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match send(self.socket.as_raw_fd(), &notice.encode(), flags) {
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return,
                Err(Errno::EINTR) => {}
                // The end of dlock is noticed by end-of-file.
                Ok(_) | Err(_) => {
                    self.waiting.rotate_left(1);
                    self.waiting[WAITING - 1] = None;
                }
            }
        }
    }

    /// Receives the next order.
    pub(super) fn receive(&mut self) -> Received {
        let received = if self.gone { Received::Nothing } else { receive(&self.socket) };
        self.gone |= matches!(received, Received::End);
        received
    }
}

impl AsFd for GuardEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for GuardEnd {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Receives an order without nix's `recvmsg`, which allocates.
fn receive(socket: &OwnedFd) -> Received {
    // Room for the header and for more descriptors than an order has.
    #[repr(align(8))]
    struct Control([u8; 16 + 8 * MOST_LOCKS]);
    let mut packet = [0; LENGTH];
    let mut control = Control([0; 16 + 8 * MOST_LOCKS]);
    let mut locks: Locks = [const { None }; MOST_LOCKS];
    let mut place = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: LENGTH };
    // SAFETY: zeroed is a valid msghdr; all pointers outlive the call; the control message is read only when the
    // kernel says it is there, and only as many descriptors as its length says, each of which is new and nobody else's.
    let (received, lost) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut place;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // Their types differ between C libraries.
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags);
        let header = if received > 0 { libc::CMSG_FIRSTHDR(&raw const message) } else { std::ptr::null_mut() };
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let (mut next, mut length) = (libc::CMSG_DATA(header).cast::<[u8; size_of::<RawFd>()]>(), 0);
            for lock in &mut locks {
                length += DESCRIPTOR;
                if (*header).cmsg_len < libc::CMSG_LEN(length) as _ {
                    break;
                }
                *lock = Some(OwnedFd::from_raw_fd(RawFd::from_ne_bytes(next.read())));
                next = next.add(1);
            }
        }
        (received, message.msg_flags & libc::MSG_CTRUNC != 0)
    };
    match received {
        0 => Received::End,
        -1 if matches!(Errno::last(), Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
        -1 => Received::End,
        _ if lost => Received::NoRoom,
        _ => Order::decode(&packet).map_or(Received::Nothing, |order| Received::Order(order, locks)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use nix::sys::socket::{AddressFamily, ControlMessage, SockFlag, SockType, recv, sendmsg, socketpair};

    use super::*;

    /// As many descriptors arrive as were sent, in their order, and they are the same files.
    #[test]
    fn all_descriptors_of_an_order_arrive() {
        let flags = SockFlag::SOCK_NONBLOCK;
        let (ours, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a line");
        let mut line = GuardEnd::new(its);
        for count in [0, 1, 2, MOST_LOCKS] {
            let pipes: Vec<_> = (0..count).map(|_| nix::unistd::pipe().expect("a pipe")).collect();
            let sent: Vec<RawFd> = pipes.iter().map(|(end, _)| end.as_raw_fd()).collect();
            let rights = (count > 0).then_some(ControlMessage::ScmRights(&sent));
            let packet = Order::Suspend.encode();
            let sending = [IoSlice::new(&packet)];
            sendmsg::<()>(ours.as_raw_fd(), &sending, rights.as_slice(), MsgFlags::empty(), None).expect("sent");
            let Received::Order(Order::Suspend, locks) = line.receive() else { panic!("no order with {count}") };
            let file = |end: &OwnedFd| nix::sys::stat::fstat(end).map(|about| about.st_ino).expect("a file");
            let arrived: Vec<_> = locks.iter().flatten().map(file).collect();
            assert_eq!(arrived, pipes.iter().map(|(end, _)| file(end)).collect::<Vec<_>>());
            assert_eq!(locks.iter().take_while(|lock| lock.is_some()).count(), count);
        }
    }

    #[test]
    fn what_a_stopped_dlock_does_not_take_is_said_later_and_the_latest_of_each_kind() {
        let flags = SockFlag::SOCK_NONBLOCK;
        let (ours, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a line");
        let mut line = GuardEnd::new(its);
        while !line.is_waiting() {
            line.tell(Notice::Suspended);
        }
        for notice in [Notice::Deadline, Notice::Suspended, Notice::Unkillable(1), Notice::Unkillable(2), Notice::Gone]
        {
            line.tell(notice);
        }
        let mut received = Vec::new();
        let mut packet = [0; LENGTH];
        while recv(ours.as_raw_fd(), &mut packet, MsgFlags::empty()).is_ok() {
            received.extend(Notice::decode(&packet));
            line.flush();
        }
        received.dedup();
        let all = [Notice::Suspended, Notice::Deadline, Notice::Unkillable(2), Notice::Gone];
        assert_eq!(received, all);
        assert!(!line.is_waiting());
    }
}
