/*!
Files that settings name and that may be pipes, such as `<(command)` in a shell. Waits for a named pipe are limited.
*/

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use humantime::format_duration;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::Instant;

/// The longest file that is read as a whole, in bytes.
const MOST: u64 = 1 << 20;

/// Time limits for reading a FIFO, counted from its opening here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until a program has it open for writing.
    pub opening: Duration,
    /// Until everything is written.
    pub writing: Duration,
}

/// An open file. A FIFO is read up to its limits.
pub(super) struct Source {
    file: File,
    fifo: Option<Fifo>,
}

/// The state of reading a FIFO.
struct Fifo {
    limits: Limits,
    opened: Instant,
    /// `true` if it is known that a program had it open for writing.
    had_writer: bool,
    /// `true` if the time for that is over.
    is_late: bool,
}

impl Source {
    /// Opens the file; also returns its metadata. Neither a FIFO without a writer nor a terminal blocks this process.
    pub(super) fn open(path: &Path, limits: Limits) -> io::Result<(Self, Metadata)> {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let meta = file.metadata()?;
        let fifo = || Fifo { limits, opened: Instant::now(), had_writer: false, is_late: false };
        let fifo = meta.file_type().is_fifo().then(fifo);
        Ok((Self { file, fifo }, meta))
    }
}

/// A file that was opened elsewhere, and is waited for without a limit.
impl From<File> for Source {
    fn from(file: File) -> Self {
        Self { file, fifo: None }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.file.read(buffer);
            match (read, &mut self.fifo) {
                (Ok(0), Some(fifo)) if !fifo.had_writer => {
                    let limit = fifo.limits.opening;
                    if fifo.is_late {
                        return Err(late("no program has opened it for writing", limit));
                    }
                    // A writer that has opened it and not written yet shows only by the next read.
                    fifo.had_writer = wait_readable(&self.file, Some(fifo.opened + limit))?;
                    fifo.is_late = !fifo.had_writer;
                }
                (Err(error), Some(fifo)) if error.kind() == ErrorKind::WouldBlock => {
                    fifo.had_writer = true;
                    let limit = fifo.limits.writing;
                    if !wait_readable(&self.file, Some(fifo.opened + limit))? {
                        return Err(late("the program that has it open has not written all of it", limit));
                    }
                }
                // A terminal: somebody may be typing.
                (Err(error), None) if error.kind() == ErrorKind::WouldBlock => {
                    wait_readable(&self.file, None)?;
                }
                (read, fifo) => {
                    if let Some(fifo) = fifo {
                        fifo.had_writer = true;
                    }
                    return read;
                }
            }
        }
    }
}

fn late(what: &str, limit: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("{what} within {}", format_duration(limit)))
}

/// Waits for data or for the end of the file, and returns `false` if `until` comes first.
fn wait_readable(file: &File, until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        match poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads a whole regular file or FIFO. The error says why it cannot be read.
pub(super) fn read_whole(path: &Path, limits: Limits) -> Result<Vec<u8>, String> {
    let text = |error: io::Error| error.to_string();
    let (source, meta) = Source::open(path, limits).map_err(text)?;
    if !meta.is_file() && !meta.file_type().is_fifo() {
        return Err("it is neither a regular file nor a pipe".to_owned());
    }
    let mut bytes = Vec::new();
    source.take(MOST + 1).read_to_end(&mut bytes).map_err(text)?;
    if bytes.len() as u64 > MOST {
        return Err(format!("it is longer than {MOST} bytes"));
    }
    Ok(bytes)
}
