/*!
The connection between the keeper and its caller: packets in both directions, until either of the two has ended.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use crate::exit::Exit;
use crate::readable::readable;

/// The longest packet: a handle as a document.
const LONGEST: usize = 16 * 1024;
/// The lowest number for the keeper's descriptor, so that an option that names an unopened descriptor misses it.
const FIRST: i32 = 512;

/// A message from one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// From the keeper: text to print.
    Print(String),
    /// From the caller: the text was printed.
    Printed,
    /// From the keeper: dlock's exit.
    End(Exit),
}

impl Word {
    fn packet(&self) -> Vec<u8> {
        match self {
            Self::Print(text) => [b"p", text.as_bytes()].concat(),
            Self::Printed => b"d".to_vec(),
            Self::End(Exit::Success) => b"e".to_vec(),
            Self::End(Exit::Signal(signal)) => vec![b's', u8::try_from(*signal).unwrap_or(0)],
            Self::End(exit) => vec![b'c', exit.code()],
        }
    }

    fn read(packet: &[u8]) -> Option<Self> {
        Some(match packet {
            [b'p', text @ ..] => Self::Print(String::from_utf8(text.to_vec()).ok()?),
            b"d" => Self::Printed,
            b"e" => Self::End(Exit::Success),
            [b's', signal] => Self::End(Exit::Signal(i32::from(*signal))),
            // The keeper has reported the reason; only the code counts.
            [b'c', code] => Self::End(Exit::NotAcquired(*code)),
            _ => return None,
        })
    }
}

/// One end of the line.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

/// Makes a new line; returns the caller's and the keeper's end.
pub(super) fn ends() -> nix::Result<(Channel, Channel)> {
    let (caller, keeper) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    Ok((Channel(caller), Channel(out_of_the_way(keeper))))
}

/// Moves the descriptor to a higher number, if there is one.
fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    // SAFETY: a new descriptor for the same socket, which nobody else owns.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST) } {
        -1 => descriptor,
        // SAFETY: the kernel has just made it.
        higher => unsafe { OwnedFd::from_raw_fd(higher) },
    }
}

impl Channel {
    /// Returns the descriptor's number.
    pub(super) fn as_raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sends a message; returns `true` if the other end is there.
    pub(super) fn say(&self, word: &Word) -> bool {
        send(self.as_raw(), &word.packet(), MsgFlags::MSG_NOSIGNAL).is_ok()
    }

    /// Receives the next message; `None` if the other end has ended. Blocks the thread.
    pub(super) fn hear(&self) -> Option<Word> {
        let mut packet = vec![0; LONGEST];
        loop {
            return match recv(self.as_raw(), &mut packet, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                Ok(length) => Word::read(packet.get(..length)?),
                Err(_) => None,
            };
        }
    }

    /// Returns `true` if the other end has sent something, or has ended.
    pub(super) fn has_said(&self) -> bool {
        poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1)
    }

    /// Returns `true` if the caller confirms that it has printed the text. Blocks the thread meanwhile.
    pub(super) fn hears_printed(&self) -> bool {
        self.hear() == Some(Word::Printed)
    }

    /// Waits until the other end has ended, while it sends nothing.
    pub(super) async fn ended(&self) {
        match self.0.try_clone().and_then(readable) {
            Ok(line) => drop(line.readable().await),
            // The end is noticed later, when the handle is handed over.
            Err(_) => std::future::pending().await,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until either can be read. Blocks the thread.
pub(super) fn one_is_readable(one: &impl AsFd, other: &impl AsFd) {
    let mut both = [PollFd::new(one.as_fd(), PollFlags::POLLIN), PollFd::new(other.as_fd(), PollFlags::POLLIN)];
    // An error of poll(2) shows when reading, too.
    let _ = poll(&mut both, PollTimeout::NONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_says_the_other_one_hears() {
        let (caller, keeper) = ends().expect("a line");
        assert!(keeper.as_raw() >= FIRST);
        for word in [
            Word::Print("dlock1_abc\n".to_owned()),
            Word::Printed,
            Word::End(Exit::Success),
            Word::End(Exit::Signal(15)),
            Word::End(Exit::NotAcquired(75)),
        ] {
            assert!(keeper.say(&word));
            assert_eq!(caller.hear(), Some(word));
        }
        assert!(keeper.say(&Word::End(Exit::Usage)));
        assert_eq!(caller.hear(), Some(Word::End(Exit::NotAcquired(64))));
        drop(keeper);
        assert_eq!(caller.hear(), None);
        assert!(!caller.say(&Word::Printed));
        assert_eq!(Word::read(b""), None);
    }
}
