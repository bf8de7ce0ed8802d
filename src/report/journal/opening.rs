/*!
Where the events go, and opening it.
*/

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// Where the events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// A file, to whose end they are added.
    File(PathBuf),
    /// A descriptor that dlock inherited.
    Descriptor(RawFd),
}

impl Sink {
    /// Reads `fd:N` or the name of a file. The error says what is wrong.
    pub(crate) fn read(text: &Path) -> Result<Self, &'static str> {
        let Some(number) = text.to_str().and_then(|text| text.strip_prefix("fd:")) else {
            return match text.to_str() {
                Some("-") => Err("standard output is the command's: name a file, or fd:N"),
                _ => Ok(Self::File(text.to_path_buf())),
            };
        };
        match number.parse::<RawFd>() {
            Ok(0..=2) => Err("the standard descriptors are the command's own: use fd:3 or a higher one"),
            Ok(number) if number >= 3 && number.to_string().len() == text.as_os_str().len() - 3 => {
                Ok(Self::Descriptor(number))
            }
            _ => Err("fd: takes the number of an open descriptor, such as fd:3"),
        }
    }

    /// Opens it for writing; the command will not inherit it. Must be called before anything else of dlock's is opened. The error
    /// is the reason why it cannot be opened.
    pub(in crate::report) fn open(&self) -> Result<OwnedFd, String> {
        match self {
            Self::File(path) => open(path).map(OwnedFd::from).map_err(|error| reason(&error)),
            Self::Descriptor(number) => inherited(*number),
        }
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Descriptor(number) => write!(f, "fd:{number}"),
        }
    }
}

/// Whether the last line of the file is not whole, as on a disk that was full.
pub(super) fn is_torn(sink: &Sink) -> bool {
    let Sink::File(path) = sink else { return false };
    let mut last = [0];
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
        && File::open(path).is_ok_and(|mut file| {
            file.seek(SeekFrom::End(-1)).is_ok() && file.read_exact(&mut last).is_ok() && last != *b"\n"
        })
}

/// Opens a file at its end, and makes it if it is not there. A FIFO without a reader is opened too: lines wait in it for one.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    match options.open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_fifo(path) => options.read(true).open(path),
        opened => opened,
    }
}

fn is_fifo(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

/// Takes a descriptor over.
fn inherited(number: RawFd) -> Result<OwnedFd, String> {
    // SAFETY: F_GETFL only asks for flags, and fails on a descriptor that is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    if flags == -1 {
        return Err("that descriptor is not open".to_owned());
    }
    if flags & libc::O_ACCMODE == libc::O_RDONLY || flags & libc::O_PATH != 0 {
        return Err("that descriptor is not open for writing".to_owned());
    }
    // SAFETY: it is open, was handed to us for this, and nothing else here uses it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    nix::fcntl::fcntl(&descriptor, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))
        .map_err(|errno| errno.desc().to_owned())?;
    Ok(descriptor)
}

fn reason(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| Errno::from_raw(errno).desc().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_a_descriptor() {
        let file = |name: &str| Ok(Sink::File(name.into()));
        for (text, expected) in [
            ("events.jsonl", file("events.jsonl")),
            ("/var/log/fd:3", file("/var/log/fd:3")),
            ("./-", file("./-")),
            ("fd:3", Ok(Sink::Descriptor(3))),
            ("fd:1023", Ok(Sink::Descriptor(1023))),
        ] {
            assert_eq!(Sink::read(Path::new(text)), expected, "{text}");
        }
        for text in ["-", "fd:", "fd:2", "fd:-1", "fd:+3", "fd:03", "fd:3 ", "fd:x", "fd:99999999999"] {
            assert!(Sink::read(Path::new(text)).is_err(), "{text}");
        }
    }
}
