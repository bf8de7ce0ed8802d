/*!
The destination of the events, and opening it.
*/

use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{SFlag, fstat};

use crate::report::journal::reaching;

/// The destination of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// A file, to which they are appended.
    File(PathBuf),
    /// A file that the config file for all users names: if it cannot be opened, dlock goes on without it.
    FileOfAll(PathBuf),
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

    /// Opens it for writing; the command will not inherit it. Must be called before anything else of dlock's is opened.
    /// The error is the reason why it cannot be opened.
    pub(in crate::report) fn open(&self) -> Result<OwnedFd, String> {
        match self {
            Self::File(path) | Self::FileOfAll(path) => reaching::open(path),
            Self::Descriptor(number) => inherited(*number),
        }
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::FileOfAll(path) => write!(f, "{}", path.display()),
            Self::Descriptor(number) => write!(f, "fd:{number}"),
        }
    }
}

/// Returns `true` if the last line of the file is incomplete, as after a full disk.
pub(super) fn is_torn(file: &OwnedFd) -> bool {
    // The descriptor itself is for writing.
    let Ok(meta) = fstat(file) else { return false };
    let is_file = SFlag::from_bits_truncate(meta.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let Some(end) = u64::try_from(meta.st_size).ok().and_then(|size| size.checked_sub(1)).filter(|_| is_file) else {
        return false;
    };
    let mut last = [0];
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .is_ok_and(|reader| reader.read_exact_at(&mut last, end).is_ok() && last != *b"\n")
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
