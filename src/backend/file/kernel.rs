/*!
The kernel's part in a lock file: taking the lock with flock(2), waiting, and showing holders and waiters.
*/

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use tokio::sync::oneshot;

use crate::backend::file::ranges;

/// Number of times that the kernel's table of locks is read to find the holder of a lock that is held.
const LOOKS: u32 = 4;
/// The initial size of the buffer for that table, in bytes.
const TABLE: usize = 64 * 1024;

/// The holder and the waiters of a lock, from `/proc/locks`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLocks {
    /// A process that took the lock with flock(2), as dlock and flock(1) do.
    pub holder: Option<i32>,
    /// All processes that share the lock through flock(2).
    pub readers: Vec<i32>,
    /// The processes that wait in flock(2), in the order of the queue.
    pub waiting: Vec<i32>,
    /// `true` if one of them wants the lock exclusively.
    pub writer_waits: bool,
    /// The process at the turnstile.
    pub first: Option<i32>,
    /// The processes that wait for the turnstile, in the order of the queue.
    pub behind: Vec<i32>,
}

/// The place where a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It waits in flock(2).
    Flock,
    /// It is at the turnstile, and waits there.
    First,
    /// It waits for the turnstile.
    Behind,
}

impl KernelLocks {
    /// Finds the locks of a `file` whose lock is held, where the byte ranges of `gate` are the queue of waiters. The
    /// table is consistent only within one read(2): an entry can be missed while others come and go, so it is read
    /// again until the holder is found, up to [`LOOKS`] times.
    pub(super) fn find(file: &Metadata, gate: &Metadata) -> Option<Self> {
        Self::found((0..LOOKS).map_while(|_| Self::look(file, gate)))
    }

    /// Returns the first of `looks` that shows the holder, or else the last one, with the process at the turnstile if
    /// any of them shows it.
    fn found(mut looks: impl Iterator<Item = Self>) -> Option<Self> {
        let mut found = looks.next()?;
        while found.holder.is_none() {
            let Some(next) = looks.next() else { break };
            let first = next.first.or(found.first.filter(|_| next.holder.is_none()));
            found = Self { first, ..next };
        }
        Some(found)
    }

    /// Looks once; see [`KernelLocks::find`].
    pub(super) fn look(file: &Metadata, gate: &Metadata) -> Option<Self> {
        Some(Self::parse(&table()?, &name(file), &name(gate)))
    }

    /// Parses lines such as `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`, with `->` after the number for waiters.
    /// The locks of [`ranges`] are called `OFDLCK`, and have no process. Other kinds of locks say nothing about ours.
    pub(super) fn parse(table: &str, file: &str, gate: &str) -> Self {
        let mut locks = Self::default();
        for line in table.lines() {
            let mut words = line.split_whitespace().skip(1).peekable();
            let waits = words.next_if_eq(&"->").is_some();
            let words: Vec<&str> = words.collect();
            let [kind, _, access, pid, place, start, end] = words[..] else { continue };
            if kind == "FLOCK" && place == file {
                let Ok(pid) = pid.parse() else { continue };
                if waits {
                    locks.waiting.push(pid);
                    locks.writer_waits |= access == "WRITE";
                } else {
                    locks.holder.get_or_insert(pid);
                    if access == "READ" {
                        locks.readers.push(pid);
                    }
                }
            } else if kind == "OFDLCK" && place == gate {
                let Some(pid) = ranges::TURNSTILE.process(start, end) else { continue };
                if waits { locks.behind.push(pid) } else { locks.first = Some(pid) }
            }
        }
        locks
    }

    /// Returns the number of waiters ahead of the process `pid`, which waits at `stand`.
    #[must_use]
    pub(super) fn before(&self, pid: i32, stand: Stand) -> u64 {
        let place = |line: &[i32]| line.iter().position(|&waiter| waiter == pid).unwrap_or(line.len());
        let before = match stand {
            Stand::Flock => place(&self.waiting),
            Stand::First => self.waiting.len(),
            Stand::Behind => {
                let is_counted = self.first.is_none_or(|first| self.waiting.contains(&first));
                self.waiting.len() + usize::from(!is_counted) + place(&self.behind)
            }
        };
        before as u64
    }
}

/// Reads the kernel's table of locks; `None` if it cannot be read.
pub(super) fn table() -> Option<String> {
    // Without initial capacity it would be read in many small pieces.
    let mut table = Vec::with_capacity(TABLE);
    File::open("/proc/locks").ok()?.read_to_end(&mut table).ok()?;
    Some(String::from_utf8_lossy(&table).into_owned())
}

/// Returns the name of a file in the kernel's table of locks.
pub(super) fn name(file: &Metadata) -> String {
    format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino())
}

/// Calls `flock(2)`, and repeats it when a signal interrupts it.
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

/// Waits in the kernel's queue, on a separate thread: only the kernel serves waiters in the order of their arrival.
/// `wait` blocks until it is served. The thread ends with the process at the latest.
pub(super) fn wait_in_kernel(
    wait: impl FnOnce() -> nix::Result<()> + Send + 'static,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (done, queued) = oneshot::channel();
    std::thread::Builder::new().name("flock".to_owned()).stack_size(64 * 1024).spawn(move || {
        let answer = wait().map_err(io::Error::from);
        // The receiver is gone if dlock gave up: the lock then ends with the last copy of its descriptor.
        let _ = done.send(answer);
    })?;
    Ok(queued)
}

/// Returns the name of a process, for messages.
pub(super) fn command_name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "a process".to_owned(), |name| name.trim().to_owned())
}

/// Returns `true` if the process `pid` is suspended.
pub(super) fn is_suspended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name before it is in parentheses, and may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn any_table_of_locks_can_be_read() {
        const PIECES: &str = "\
            1: FLOCK ADVISORY WRITE |1: -> FLOCK ADVISORY READ |1: -> OFDLCK ADVISORY WRITE -1 08:01:9 1073741824 \
            |1:| |->|FLOCK|OFDLCK|WRITE|100|-1|08:01:7|08:01:9|\n|0|EOF|0 EOF\n|1073741824|1073741924\n";
        holds(500, made_of(PIECES), |table| {
            let locks = KernelLocks::parse(&table, "08:01:7", "08:01:9");
            prop_assert!(locks == KernelLocks::default() || table.contains("08:01:7") || table.contains("08:01:9"));
            prop_assert!(locks.before(100, Stand::Behind) >= locks.before(100, Stand::First).min(1));
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
        let locks = KernelLocks::parse(table, "08:01:7", "08:01:7");
        let expected =
            KernelLocks { holder: Some(100), waiting: vec![101, 102], writer_waits: true, ..KernelLocks::default() };
        assert_eq!(locks, expected);
        assert_eq!(KernelLocks::parse(table, "08:01:8", "08:01:8"), KernelLocks::default());
        assert_eq!(KernelLocks::parse(table, "08:01:9", "08:01:9"), KernelLocks::default(), "a POSIX lock is none");
    }

    #[test]
    fn a_look_that_misses_an_entry_is_made_good_by_another_one() {
        let look = |holder, first| KernelLocks { holder, first, ..KernelLocks::default() };
        for (looks, expected) in [
            (vec![], None),
            (vec![look(None, Some(7)), look(None, None)], Some((None, Some(7)))),
            (vec![look(None, Some(7)), look(None, None), look(None, Some(8))], Some((None, Some(8)))),
            // It has the lock by now.
            (vec![look(None, Some(7)), look(Some(7), None)], Some((Some(7), None))),
            (vec![look(Some(9), Some(7)), look(None, None)], Some((Some(9), Some(7)))),
        ] {
            let found = KernelLocks::found(looks.into_iter());
            assert_eq!(found.map(|locks| (locks.holder, locks.first)), expected);
        }
    }

    /// As printed by a kernel: two readers, a writer that waits for them, and a queue at the turnstile, where each
    /// waiter is indented below its predecessor.
    const SHARED: &str = "\
19: FLOCK  ADVISORY  READ 100 fe:00:77 0 EOF
19: -> FLOCK  ADVISORY  WRITE 102 fe:00:77 0 EOF
20: FLOCK  ADVISORY  READ 101 fe:00:77 0 EOF
21: OFDLCK ADVISORY  READ -1 fe:00:77 1107296256 1107296256
22: OFDLCK ADVISORY  READ -1 fe:00:77 1107296257 1107296257
23: OFDLCK ADVISORY  READ -1 fe:00:77 1082130432 1082130534
24: OFDLCK ADVISORY  WRITE -1 fe:00:77 1073741824 1073741927
24: -> OFDLCK ADVISORY  WRITE -1 fe:00:77 1073741824 1073741928
24:  -> OFDLCK ADVISORY  WRITE -1 fe:00:77 1073741824 1073741929
25: POSIX  ADVISORY  WRITE 900 fe:00:77 0 EOF
26: LEASE  ACTIVE    READ  901 fe:00:77 0 EOF
";

    #[test]
    fn only_flock_holds_and_the_length_of_a_range_tells_the_process() {
        let locks = KernelLocks::parse(SHARED, "fe:00:77", "fe:00:77");
        let expected = KernelLocks {
            holder: Some(100),
            readers: vec![100, 101],
            waiting: vec![102],
            writer_waits: true,
            first: Some(103),
            behind: vec![104, 105],
        };
        assert_eq!(locks, expected);
        // The queue of a file that the user named is in the file beside it.
        let locks = KernelLocks::parse(SHARED, "fe:00:77", "fe:00:78");
        assert_eq!((locks.holder, locks.first, locks.behind), (Some(100), None, vec![]));
        let locks = KernelLocks::parse(SHARED, "fe:00:78", "fe:00:77");
        assert_eq!((locks.holder, locks.first, locks.behind), (None, Some(103), vec![104, 105]));
        let readers = "1: FLOCK ADVISORY WRITE 1 a:b:7 0 EOF\n1: -> FLOCK ADVISORY READ 2 a:b:7 0 EOF\n";
        let locks = KernelLocks::parse(readers, "a:b:7", "a:b:7");
        assert_eq!((locks.waiting, locks.writer_waits), (vec![2], false));
    }

    #[test]
    fn a_place_in_the_line_counts_everybody_in_front() {
        let locks = |first, waiting: &[i32]| KernelLocks {
            first,
            waiting: waiting.to_vec(),
            behind: vec![20, 21],
            ..KernelLocks::default()
        };
        for (locks, pid, stand, before) in [
            (locks(None, &[10, 11]), 10, Stand::Flock, 0),
            (locks(None, &[10, 11]), 11, Stand::Flock, 1),
            // Not in the queue yet: behind all that are.
            (locks(None, &[10, 11]), 12, Stand::Flock, 2),
            (locks(Some(12), &[10, 11]), 12, Stand::First, 2),
            (locks(Some(12), &[]), 12, Stand::First, 0),
            // The process at the turnstile counts once, whether or not it also waits in flock(2).
            (locks(Some(12), &[10]), 20, Stand::Behind, 2),
            (locks(Some(12), &[10, 12]), 20, Stand::Behind, 2),
            (locks(Some(12), &[10, 12]), 21, Stand::Behind, 3),
            (locks(None, &[]), 22, Stand::Behind, 2),
        ] {
            assert_eq!(locks.before(pid, stand), before, "{pid} {stand:?} {locks:?}");
        }
    }
}
