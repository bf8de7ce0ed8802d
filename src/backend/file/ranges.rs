/*!
Locks on ranges of bytes of a lock file. They show who wants the lock and how it is held, which flock(2) does not.

They are open file description locks: as with flock(2), all copies of a descriptor share them, also inherited ones, and
they end with the last copy. Neither kind of lock sees the other. The bytes are far beyond the content of a lock file:

| range | locked by | for how long |
| --- | --- | --- |
| [`TURNSTILE`] | one contender at a time | while it looks, and one that shares the lock while it waits |
| [`EXCLUSIVE`] | every contender that waits in flock(2) to have the lock alone | until it has it |
| [`FIRST`] | the contender at the turnstile | while it waits |
| [`WANTED`] | every waiter that wants a slot; the byte is the number of slots | until it has one |
| [`SEATS`] | every holder that shares the lock; the byte is its seat | as long as it holds the lock |

Locks on the first three ranges begin at the first byte; their length gives the process, which `/proc/locks` lacks.
*/

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The first byte.
    pub start: i32,
    /// The number of bytes.
    pub length: i32,
}

/// The first byte of all ranges, which fit into 31 bits.
const BASE: i32 = 1 << 30;
/// The length of each range: more than there can be process ids.
const SPAN: i32 = 1 << 23;

/// Locked by the contender whose turn it is.
pub(super) const TURNSTILE: Range = Range { start: BASE, length: SPAN };
/// Locked by each waiter for the exclusive lock in the kernel's queue.
pub(super) const EXCLUSIVE: Range = Range { start: BASE + SPAN, length: SPAN };
/// Locked by the contender at the turnstile if it waits there.
pub(super) const FIRST: Range = Range { start: BASE + 2 * SPAN, length: SPAN };
/// Byte N is locked by each waiter for one of N slots.
pub(super) const WANTED: Range = Range { start: BASE + 3 * SPAN, length: SPAN };
/// Each byte is a holder's seat.
pub(super) const SEATS: Range = Range { start: BASE + 4 * SPAN, length: SPAN };
/// Locked by all waiters except those for the turnstile.
pub(super) const WAITERS: Range = Range { start: BASE + SPAN, length: 2 * SPAN };
/// All ranges that a contender locks before it has the lock.
pub(super) const LINE: Range = Range { start: BASE, length: 4 * SPAN };

impl Range {
    /// Returns the part of the range that the process `pid` locks.
    #[must_use]
    pub(super) fn of_process(self, pid: i32) -> Self {
        Self { start: self.start, length: pid.clamp(0, self.length - 1) + 1 }
    }

    /// Returns the process that has locked the bytes from `start` to `end`, if that is its part of this range.
    #[must_use]
    pub(super) fn process(self, start: &str, end: &str) -> Option<i32> {
        let (start, end): (i32, i32) = (start.parse().ok()?, end.parse().ok()?);
        let pid = end.checked_sub(start)?;
        (start == self.start && (0..self.length).contains(&pid)).then_some(pid)
    }

    /// Returns the byte `index` of the range.
    #[must_use]
    pub(super) fn byte(self, index: i32) -> Self {
        Self { start: self.start.saturating_add(index), length: 1 }
    }

    /// Returns the bytes from `first` up to, but not including, `end`.
    #[must_use]
    pub(super) fn part(self, first: i32, end: i32) -> Self {
        Self { start: self.start + first, length: end - first }
    }

    /// Returns the parts before and after `other`, which is within the range.
    #[must_use]
    pub(super) fn without(self, other: Self) -> [Self; 2] {
        let after = other.start + other.length;
        [
            Self { start: self.start, length: other.start - self.start },
            Self { start: after, length: self.start + self.length - after },
        ]
    }

    /// Returns `true` if all of `other` is within the range.
    #[must_use]
    pub(super) fn contains(self, other: Self) -> bool {
        let end = |range: Self| i64::from(range.start) + i64::from(range.length);
        self.start <= other.start && end(other) <= end(self)
    }
}

/// The kind of lock on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Shared with other read locks.
    Read,
    /// Exclusive. The file must be open for writing.
    Write,
}

/// Locks `range` of `file`; returns `false` if that conflicts with another lock.
pub(super) fn lock(file: &File, kind: Kind, range: Range) -> nix::Result<bool> {
    let kind = match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&request(kind, range))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Locks `range` of `file` exclusively, and waits for that without limit. The kernel serves waiters in the order of
/// their arrival.
pub(super) fn wait_for(file: &File, range: Range) -> nix::Result<()> {
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLKW(&request(libc::F_WRLCK, range))) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Unlocks those parts of `range` of `file` that are locked through this descriptor or a copy of it.
pub(super) fn unlock(file: &File, range: Range) -> nix::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&request(libc::F_UNLCK, range))).map(drop)
}

/// Returns a lock in `range` of `file` that does not belong to this descriptor or a copy of it. It may exceed that
/// range.
pub(super) fn conflict(file: &File, range: Range) -> nix::Result<Option<Range>> {
    if range.length <= 0 {
        // For the kernel that would be a range without an end.
        return Ok(None);
    }
    let mut found = request(libc::F_WRLCK, range);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    if libc::c_int::from(found.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let start = i32::try_from(found.l_start).unwrap_or(i32::MAX);
    // A length of zero means all bytes that follow.
    let length = i32::try_from(found.l_len).ok().filter(|&length| length > 0).unwrap_or(i32::MAX);
    Ok(Some(Range { start, length }))
}

/// Returns `true` if the error says that this kernel or this file system does not have such locks.
#[must_use]
pub(super) fn is_unknown(errno: Errno) -> bool {
    matches!(errno, Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENOLCK)
}

fn request(kind: libc::c_int, range: Range) -> libc::flock {
    libc::flock {
        // The kernel's numbers for the kinds are small.
        l_type: kind.try_into().unwrap_or(libc::c_short::MAX),
        // SEEK_SET: the range counts from the beginning of the file.
        l_whence: 0,
        l_start: range.start.into(),
        l_len: range.length.into(),
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn the_ranges_do_not_overlap_and_a_process_is_read_back() {
        let ranges = [TURNSTILE, EXCLUSIVE, FIRST, WANTED, SEATS];
        for (index, range) in ranges.into_iter().enumerate() {
            assert!(range.start.checked_add(range.length).is_some(), "31 bits");
            for other in &ranges[index + 1..] {
                assert!(range.start + range.length <= other.start);
            }
            for pid in [0, 1, 4711, 1 << 22] {
                let part = range.of_process(pid);
                assert!(range.contains(part));
                let [start, end] = [part.start, part.start + part.length - 1].map(|byte| byte.to_string());
                assert_eq!(range.process(&start, &end), Some(pid));
                assert_eq!(range.process(&end, &start), (pid == 0).then_some(0));
            }
            assert!(range.contains(range.of_process(i32::MAX)) && range.contains(range.of_process(-1)));
        }
        for (start, end) in [("0", "EOF"), ("0", "9223372036854775806"), ("-1", "7"), ("x", "1"), ("", "")] {
            assert_eq!(TURNSTILE.process(start, end), None);
        }
        assert!(WAITERS.contains(EXCLUSIVE) && WAITERS.contains(FIRST) && !WAITERS.contains(TURNSTILE));
        assert!(LINE.contains(TURNSTILE) && LINE.contains(WANTED) && !LINE.contains(SEATS.byte(0)));
    }

    #[test]
    fn parts_of_a_range() {
        let range = Range { start: 10, length: 10 };
        assert_eq!(range.byte(3), Range { start: 13, length: 1 });
        assert_eq!(range.part(2, 10), Range { start: 12, length: 8 });
        assert_eq!(range.without(range.byte(0)), [Range { start: 10, length: 0 }, Range { start: 11, length: 9 }]);
        assert_eq!(range.without(range.byte(9)), [Range { start: 10, length: 9 }, Range { start: 20, length: 0 }]);
        assert!(!range.contains(Range { start: 0, length: i32::MAX }));
        assert!(!range.contains(Range { start: i32::MAX, length: i32::MAX }));
    }

    #[test]
    fn what_one_descriptor_locks_is_seen_and_respected_by_another() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("file");
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let open = || options.open(&path).expect("opened");
        let (one, other) = (open(), open());
        let range = TURNSTILE.of_process(7);
        assert_eq!(lock(&one, Kind::Write, range), Ok(true));
        assert_eq!(lock(&one, Kind::Write, range), Ok(true), "again");
        assert_eq!(lock(&other, Kind::Write, TURNSTILE.of_process(3)), Ok(false));
        assert_eq!(conflict(&other, TURNSTILE.byte(0)), Ok(Some(range)));
        assert_eq!(conflict(&one, TURNSTILE), Ok(None), "its own lock");
        assert_eq!(conflict(&other, TURNSTILE.part(0, 0)), Ok(None), "no byte");
        // A copy has it, too, and keeps it.
        let copy = one.try_clone().expect("copied");
        drop(one);
        assert_eq!(conflict(&other, TURNSTILE), Ok(Some(range)));
        unlock(&copy, LINE).expect("unlocked");
        assert_eq!(wait_for(&other, range), Ok(()));
        drop(other);
        assert_eq!(conflict(&copy, LINE), Ok(None));
        // Readers share, even through a read-only descriptor, and a look at them needs no write permission.
        let reader = std::fs::File::open(&path).expect("opened");
        assert_eq!(lock(&reader, Kind::Read, SEATS.byte(1)), Ok(true));
        assert_eq!(lock(&copy, Kind::Read, SEATS.byte(1)), Ok(true));
        assert_eq!(lock(&copy, Kind::Write, SEATS.byte(1)), Ok(false));
        assert_eq!(lock(&reader, Kind::Write, SEATS.byte(2)), Err(Errno::EBADF));
        assert_eq!(conflict(&reader, SEATS), Ok(Some(SEATS.byte(1))));
        // Another program's lock on the whole file.
        let all = request(libc::F_RDLCK, Range { start: 0, length: 0 });
        let file = open();
        fcntl(&file, FcntlArg::F_OFD_SETLK(&all)).expect("locked");
        let found = conflict(&copy, TURNSTILE).expect("looked").expect("a lock");
        assert_eq!((found.start, found.length), (0, i32::MAX));
    }
}
