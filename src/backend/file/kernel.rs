/*!
The kernel's part of a lock file: taking the lock, waiting for it, and who has it.
*/

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use tokio::sync::oneshot;

/// How often the kernel's table of locks is read to find out who holds a lock that is held.
const LOOKS: u32 = 4;
/// Room for that table, in bytes.
const TABLE: usize = 64 * 1024;

/// Who holds a file's lock and who waits for it, by `/proc/locks`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLocks {
    /// The process that took the lock.
    pub holder: Option<i32>,
    /// The processes that wait for it, in their order.
    pub waiting: Vec<i32>,
}

impl KernelLocks {
    /// The locks of a file that somebody holds. The table is whole only within one read: where others come and go
    /// meanwhile an entry can be missed, and is looked for again.
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

    /// Lines are `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`, with `->` after the number for those who wait.
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

/// `flock(2)`, also where a signal comes in between.
pub(super) fn flock(file: &File, operation: libc::c_int) -> Result<(), Errno> {
    loop {
        // SAFETY: flock has no memory effects.
        match Errno::result(unsafe { libc::flock(file.as_raw_fd(), operation) }) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Gives the lock on `file` back.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_UN).map_err(io::Error::from)
}

/// Waits for the lock in the kernel's queue, on a thread of its own: the one way to come first and be served first.
/// The thread ends with the process at the latest.
pub(super) fn wait_in_kernel(file: File) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (done, queued) = oneshot::channel();
    std::thread::Builder::new().name("flock".to_owned()).stack_size(64 * 1024).spawn(move || {
        let answer = flock(&file, libc::LOCK_EX).map_err(io::Error::from);
        // Nobody listens any more when dlock gave up: then the lock goes with the process.
        let _ = done.send(answer);
    })?;
    Ok(queued)
}

/// What the process is called.
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
