/*!
What the kernel does for a lock file: taking the lock, waiting for it, and telling who holds it.
*/

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use tokio::sync::oneshot;

/// How often the kernel's table of locks is read to find out who holds a lock that is held.
const LOOKS: u32 = 4;
/// The initial size of the buffer for that table, in bytes.
const TABLE: usize = 64 * 1024;

/// The holder and the waiters of a file's lock, from `/proc/locks`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLocks {
    /// The process that took the lock.
    pub holder: Option<i32>,
    /// The waiting processes, first in line first.
    pub waiting: Vec<i32>,
}

impl KernelLocks {
    /// Finds the locks of a file whose lock is held. The table is consistent only within one read(2): while others come
    /// and go an entry can be missed, so it is read again until the holder is found.
    pub(super) fn find(device: u64, inode: u64) -> Option<Self> {
        let mut locks = Self::of(device, inode)?;
        for _ in 1..LOOKS {
            if locks.holder.is_some() {
                break;
            }
            locks = Self::of(device, inode)?;
        }
        Some(locks)
    }

    fn of(device: u64, inode: u64) -> Option<Self> {
        // Without room to begin with it would be read in many small pieces.
        let mut table = Vec::with_capacity(TABLE);
        File::open("/proc/locks").ok()?.read_to_end(&mut table).ok()?;
        let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
        Some(Self::parse(&String::from_utf8_lossy(&table), &file))
    }

    /// Lines are `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`, with `->` after the number for waiters.
    fn parse(table: &str, file: &str) -> Self {
        let mut locks = Self::default();
        for line in table.lines() {
            let mut words = line.split_whitespace().skip(1).peekable();
            let waits = words.next_if_eq(&"->").is_some();
            let Some((pid, place)) = words.nth(3).and_then(|pid| Some((pid.parse().ok()?, words.next()?))) else {
                continue;
            };
            if place != file {
                continue;
            }
            if waits { locks.waiting.push(pid) } else { locks.holder = Some(pid) }
        }
        locks
    }
}

/// `flock(2)`, repeated when a signal interrupts it.
pub(super) fn flock(file: &File, operation: libc::c_int) -> Result<(), Errno> {
    loop {
        // SAFETY: flock has no memory effects.
        match Errno::result(unsafe { libc::flock(file.as_raw_fd(), operation) }) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Releases the lock on `file`.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_UN).map_err(io::Error::from)
}

/// Waits for the lock in the kernel's queue, on a separate thread: only the kernel serves waiters in the order in which
/// they came. The thread ends with the process at the latest.
pub(super) fn wait_in_kernel(file: File) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (done, queued) = oneshot::channel();
    std::thread::Builder::new().name("flock".to_owned()).stack_size(64 * 1024).spawn(move || {
        let answer = flock(&file, libc::LOCK_EX).map_err(io::Error::from);
        // The receiver is gone when dlock gave up: the lock is released when the process ends.
        let _ = done.send(answer);
    })?;
    Ok(queued)
}

/// The name of a process, for messages.
pub(super) fn command_name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "a process".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn any_table_of_locks_can_be_read() {
        const PIECES: &str = "1:| |->|FLOCK|WRITE|100|-1|08:01:7|\n|0|EOF";
        holds(500, made_of(PIECES), |table| {
            let locks = KernelLocks::parse(&table, "08:01:7");
            prop_assert!(locks == KernelLocks::default() || table.contains("08:01:7"));
            Ok(())
        });
    }

    #[test]
    fn kernel_locks() {
        let table = "\
1: FLOCK  ADVISORY  WRITE 100 08:01:7 0 EOF
1: -> FLOCK  ADVISORY  WRITE 101 08:01:7 0 EOF
1: -> FLOCK  ADVISORY  WRITE 102 08:01:7 0 EOF
2: POSIX  ADVISORY  WRITE 200 08:01:9 0 EOF
nonsense
";
        let locks = KernelLocks::parse(table, "08:01:7");
        assert_eq!(locks, KernelLocks { holder: Some(100), waiting: vec![101, 102] });
        assert_eq!(KernelLocks::parse(table, "08:01:8"), KernelLocks::default());
    }
}
