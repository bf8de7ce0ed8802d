/*!
Writes the lines, and counts those that their reader does not take.
*/

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::clock::Instant;
use crate::schema::events::{Entry, Moment, Run, line};

/// Longest time that a line waits for its reader.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Writes the lines of one run.
#[derive(Debug)]
pub(super) struct Writer {
    file: OwnedFd,
    run: Run,
    /// Number of lines lost since the last one that was written.
    lost: u64,
    /// `true` after a wait for the reader has timed out: only the last line waits again before the reader reads.
    stalled: bool,
    /// `true` if a line was written in part: the next one then begins on a new line.
    torn: bool,
    /// The last error of a write, other than a reader that lets it wait.
    failure: Option<Errno>,
}

impl Writer {
    /// A writer of the lines of this run.
    pub(super) fn new(file: OwnedFd, run: Run) -> Self {
        Self { file, run, lost: 0, stalled: false, torn: false, failure: None }
    }

    /// Begins on a new line if the last one in the file is `torn`.
    pub(super) fn after(self, torn: bool) -> Self {
        Self { torn, ..self }
    }

    /// Returns the last error of a write, if the reader or the disk has refused a line.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// Writes a line with the number `lost` before it, or counts it as lost. The last line always waits for room.
    pub(super) fn put(&mut self, at: Moment, lost: u64, entry: Entry, is_last: bool) {
        self.lost = self.lost.saturating_add(lost);
        let line = line(&self.run, at, self.lost, entry);
        let text = if self.torn { format!("\n{line}") } else { line };
        let timeout = if self.stalled && !is_last { Duration::ZERO } else { TIMEOUT };
        if self.write(text.as_bytes(), timeout) {
            (self.lost, self.stalled, self.torn) = (0, false, false);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Returns `true` if all of `text` was written within `timeout`: at once to a file or to a pipe with room for it.
    fn write(&mut self, mut text: &[u8], timeout: Duration) -> bool {
        let limit = Instant::now() + timeout;
        let whole = text.len();
        loop {
            let left = PollTimeout::try_from(limit.since(Instant::now())).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)], left) {
                Ok(0) => {
                    self.stalled = true;
                    break;
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    self.failure = Some(errno);
                    break;
                }
            }
            match write(&self.file, text) {
                Ok(written) if written == text.len() => return true,
                Ok(written) => text = &text[written..],
                // A pipe that others fill too.
                Err(Errno::EAGAIN) if limit > Instant::now() => std::thread::sleep(Duration::from_millis(1)),
                Err(Errno::EINTR) => {}
                // A pipe that others keep full is one whose reader does not read.
                Err(Errno::EAGAIN) => break,
                Err(errno) => {
                    self.failure = Some(errno);
                    break;
                }
            }
        }
        self.torn |= text.len() < whole;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    const AT: Moment = Moment { wall: 0, boot: 0 };

    fn writer(file: OwnedFd) -> Writer {
        let of = str::to_owned;
        let (key, owner, backend, namespace) = (of("k"), of("o"), of("file:"), of(""));
        let run = Run { key, owner, backend, namespace, pid: 7, host: of("h"), user: of("u"), program: of("") };
        Writer::new(file, run)
    }

    fn trouble(writer: &mut Writer, size: usize, lost: u64) {
        writer.put(AT, lost, Entry::Trouble { error: "x".repeat(size) }, false);
    }

    #[test]
    fn what_is_not_read_is_counted_and_told_once_somebody_reads() {
        let (mut reader, end) = std::io::pipe().expect("a pipe");
        let mut writer = writer(end.into());
        while !writer.stalled {
            trouble(&mut writer, 1000, 0);
        }
        let begun = Instant::now();
        for _ in 0..100 {
            trouble(&mut writer, 1000, 1);
        }
        assert!(Instant::now().since(begun) < TIMEOUT * 50, "a reader is waited for once");
        let mut pipe = vec![0; 1 << 20];
        let read = reader.read(&mut pipe).expect("lines");
        trouble(&mut writer, 10, 0);
        let more = reader.read(&mut pipe[read..]).expect("a line");
        let text = String::from_utf8(pipe[..read + more].to_vec()).expect("text");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect();
        let dropped: Vec<u64> = lines.iter().map(|line| line["dropped"].as_u64().expect("a number")).collect();
        assert_eq!(dropped.last(), Some(&201));
        assert!(dropped[..dropped.len() - 1].iter().all(|&dropped| dropped == 0), "{dropped:?}");
    }

    #[test]
    fn a_line_on_a_full_disk_or_without_a_reader_is_lost_and_the_one_after_a_torn_one_is_whole() {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let mut writer = writer(full.into());
        trouble(&mut writer, 10, 0);
        assert_eq!((writer.lost, writer.stalled, writer.torn), (1, false, false));
        let (reader, end) = std::io::pipe().expect("a pipe");
        writer.file = end.into();
        drop(reader);
        trouble(&mut writer, 10, 0);
        assert_eq!((writer.lost, writer.stalled, writer.torn), (2, false, false));
        let (mut reader, end) = std::io::pipe().expect("a pipe");
        (writer.file, writer.torn) = (end.into(), true);
        trouble(&mut writer, 10, 0);
        let mut text = [0; 4096];
        let read = reader.read(&mut text).expect("a line");
        assert!(text[..read].starts_with(b"\n{\"v\":1,") && text[..read].ends_with(b"}\n"));
        assert_eq!((writer.lost, writer.torn), (0, false));
    }
}
