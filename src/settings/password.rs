/*!
The password for the backend: from a file, an open descriptor, a variable or a config file, never from a flag.
*/

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use humantime::format_duration;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::Failure;
use crate::settings::layers::{Given, Secret};
use crate::settings::origin::Origin;
use crate::settings::trust::is_for_others;
use crate::settings::usage::refused;

/// The longest password that is read from a file, in bytes.
const MAX_PASSWORD: usize = 4096;
/// What some editors put at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A password, and what is wrong with the file that it comes from.
#[derive(Default)]
pub(super) struct Password {
    /// The password; none when there is none.
    pub text: Option<String>,
    /// Its file, if other users may read or write it.
    pub exposed: Option<PathBuf>,
}

/// The password itself, or the first line of the file that holds it. A FIFO is waited for no longer than `patience`, unless some
/// program has it open for writing.
pub(super) fn password(secret: &Given<Secret>, patience: Duration) -> Result<Password, Failure> {
    let origin = &secret.origin;
    match &secret.value {
        Secret::File(path) => {
            let password = read_password(path, patience).map_err(|reason| {
                let remedy = "name a readable file that holds the password";
                refused(origin, format!("{origin}: could not read {}: {reason}; {remedy}", path.display()))
            })?;
            match &password.exposed {
                Some(path) => check_exposure(origin, path).map(|()| password),
                None => Ok(password),
            }
        }
        Secret::Text(text) => match text.to_str() {
            Some(text) => Ok(Password { text: Some(text.to_owned()), exposed: None }),
            None => Err(refused(origin, format!("{origin} is not UTF-8"))),
        },
    }
}

/// Fails if a config file names a password file at `path` that other users may read or write. Elsewhere that is a warning,
/// because there were no config files when such files were made.
pub(super) fn check_exposure(origin: &Origin, path: &Path) -> Result<(), Failure> {
    let is_exposed = || std::fs::metadata(path).is_ok_and(|meta| is_for_others(&meta));
    match origin {
        Origin::File { .. } if is_exposed() => {
            let path = path.display();
            Err(refused(origin, format!("{origin}: other users can read or write the password file: chmod 600 {path}")))
        }
        Origin::File { .. } | Origin::Flag(_) | Origin::Variable(_) | Origin::Default => Ok(()),
    }
}

/// Reads the first line of a file, of standard input (`-`) or of an open descriptor (`fd:N`). The error is the reason why
/// that is impossible.
fn read_password(path: &Path, patience: Duration) -> Result<Password, String> {
    let text = |error: io::Error| error.to_string();
    let (mut source, mut is_exposed, mut waits) = (None, false, None);
    match path.to_str() {
        Some("-" | "fd:0") => source = Some(File::from(io::stdin().as_fd().try_clone_to_owned().map_err(text)?)),
        Some(text) if text.starts_with("fd:") => {
            let number: RawFd = text[3..].parse().map_err(|_| "fd: takes a number")?;
            if number < 3 {
                return Err("the standard descriptors are the command's own, use another".to_owned());
            }
            // SAFETY: F_GETFD only asks whether the descriptor is open.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
                return Err("that descriptor is not open".to_owned());
            }
            // SAFETY: it is open, was handed to us for this, and nothing else here uses it.
            source = Some(unsafe { File::from_raw_fd(number) });
        }
        _ => {}
    }
    let mut source = if let Some(source) = source {
        source
    } else {
        // Not blocking: a FIFO that nobody writes to must not hang us.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(text)?;
        let meta = file.metadata().map_err(text)?;
        (is_exposed, waits) = (is_for_others(&meta), meta.file_type().is_fifo().then_some(patience));
        file
    };
    let line = first_line(&mut source, waits)?;
    if line.starts_with(BYTE_ORDER_MARK) {
        return Err("it begins with a byte order mark, which is no part of a password: save it without one".to_owned());
    }
    let line = String::from_utf8(line).map_err(|_| "its first line is not UTF-8")?;
    match line.trim_end_matches('\r') {
        "" => Err("its first line is empty".to_owned()),
        password => Ok(Password { text: Some(password.to_owned()), exposed: is_exposed.then(|| path.to_path_buf()) }),
    }
}

/// Reads up to the first end of a line. `waits` is for a FIFO: how long to wait for a program that writes to it.
fn first_line(source: &mut File, mut waits: Option<Duration>) -> Result<Vec<u8>, String> {
    let (mut line, mut byte, mut waited) = (Vec::new(), [0], None);
    // Byte by byte, because what follows the first line of standard input is the command's.
    loop {
        match source.read(&mut byte) {
            Ok(0) => match (waits.take(), waited) {
                (Some(limit), _) => {
                    let limit_ms = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
                    // A writer that has opened it and not written yet shows only by the next read.
                    waited = (!wait_readable(source, limit_ms)?).then_some(limit);
                }
                (None, Some(limit)) => {
                    return Err(format!("no program has opened it for writing within {}", format_duration(limit)));
                }
                (None, None) => return Ok(line),
            },
            Ok(_) if byte == *b"\n" => return Ok(line),
            Ok(_) if line.len() == MAX_PASSWORD => {
                return Err(format!("its first line is longer than {MAX_PASSWORD} bytes"));
            }
            Ok(_) => {
                line.push(byte[0]);
                (waits, waited) = (None, None);
            }
            // There is a writer, which may wait for its user.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                (waits, waited) = (None, None);
                wait_readable(source, PollTimeout::NONE)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Whether there is something to read from `source`, or its end, before the time is over.
fn wait_readable(source: &File, limit: PollTimeout) -> Result<bool, String> {
    let ready = poll(&mut [PollFd::new(source.as_fd(), PollFlags::POLLIN)], limit);
    ready.map(|count| count > 0).map_err(|errno| errno.desc().to_owned())
}
