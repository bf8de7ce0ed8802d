/*!
The password for the backend: from a file, an open descriptor, a variable or a config file, never from a flag.
*/

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::settings::layers::{Given, Secret};
use crate::settings::origin::Origin;
use crate::settings::source::{Limits, Source};
use crate::settings::trust::{is_for_others, is_of_another};
use crate::settings::usage::refused;

/// The longest password that is read from a file, in bytes.
const MAX_PASSWORD: usize = 4096;
/// The mark that some editors put at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A password, and its file if that is exposed.
#[derive(Default)]
pub(super) struct Password {
    /// The password; `None` if there is none.
    pub text: Option<String>,
    /// Its file, if other users may read or write it.
    pub exposed: Option<PathBuf>,
}

/// Returns the password itself, or reads it from the first line of its file. Waits for a FIFO within `limits`.
pub(super) fn password(secret: &Given<Secret>, limits: Limits) -> Result<Password, Failure> {
    let origin = &secret.origin;
    match &secret.value {
        Secret::File(path) => {
            let password = read_password(path, limits).map_err(|why| {
                let shown = path.display();
                match why {
                    Unusable::Unreadable(reason) => {
                        let remedy = "name a readable file that holds the password";
                        refused(origin, format!("{origin}: could not read {shown}: {reason}; {remedy}"))
                    }
                    Unusable::Foreign => foreign(origin, path),
                }
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

/// The reason why there is no password.
enum Unusable {
    /// It could not be read, for this reason.
    Unreadable(String),
    /// Its file belongs to another user, who could change it.
    Foreign,
}

impl From<String> for Unusable {
    fn from(reason: String) -> Self {
        Self::Unreadable(reason)
    }
}

impl From<&str> for Unusable {
    fn from(reason: &str) -> Self {
        Self::Unreadable(reason.to_owned())
    }
}

/// Returns the failure for a password file at `path` that belongs to another user.
fn foreign(origin: &Origin, path: &Path) -> Failure {
    let path = path.display();
    refused(
        origin,
        format!(
            "{origin}: the password file {path} belongs to another user, who could change it: change its owner, or hand it over \
             open, with --password-file - <{path}"
        ),
    )
}

/// Fails if a config file names a password file at `path` that belongs to another user, or that other users may read or
/// write. For other origins the latter is a warning, because such files may be older than config files.
pub(super) fn check_exposure(origin: &Origin, path: &Path) -> Result<(), Failure> {
    let meta = std::fs::metadata(path).ok();
    match origin {
        Origin::File { .. } if meta.as_ref().is_some_and(is_of_another) => Err(foreign(origin, path)),
        Origin::File { .. } if meta.as_ref().is_some_and(is_for_others) => {
            let path = path.display();
            Err(refused(origin, format!("{origin}: other users can read or write the password file: chmod 600 {path}")))
        }
        Origin::File { .. } | Origin::Flag(_) | Origin::Variable(_) | Origin::Default => Ok(()),
    }
}

/// Reads the first line of a file, of standard input (`-`) or of an open descriptor (`fd:N`).
fn read_password(path: &Path, limits: Limits) -> Result<Password, Unusable> {
    let text = |error: io::Error| error.to_string();
    let (mut source, mut is_exposed) = (None, false);
    match path.to_str() {
        Some("-" | "fd:0") => source = Some(File::from(io::stdin().as_fd().try_clone_to_owned().map_err(text)?)),
        Some(text) if text.starts_with("fd:") => {
            let number: RawFd = text[3..].parse().map_err(|_| "fd: takes a number")?;
            if number < 3 {
                return Err("the standard descriptors are the command's own, use another".into());
            }
            // SAFETY: F_GETFD only asks whether the descriptor is open.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
                return Err("that descriptor is not open".into());
            }
            // SAFETY: it is open, was handed to us for this, and nothing else here uses it.
            source = Some(unsafe { File::from_raw_fd(number) });
        }
        _ => {}
    }
    let mut source = if let Some(source) = source {
        Source::from(source)
    } else {
        let (source, meta) = Source::open(path, limits).map_err(text)?;
        if is_of_another(&meta) {
            return Err(Unusable::Foreign);
        }
        is_exposed = is_for_others(&meta);
        source
    };
    let line = first_line(&mut source)?;
    if line.starts_with(BYTE_ORDER_MARK) {
        return Err("it begins with a byte order mark, which is no part of a password: save it without one".into());
    }
    let line = String::from_utf8(line).map_err(|_| "its first line is not UTF-8")?;
    match line.trim_end_matches('\r') {
        "" => Err("its first line is empty".into()),
        password => Ok(Password { text: Some(password.to_owned()), exposed: is_exposed.then(|| path.to_path_buf()) }),
    }
}

/// Reads up to the first newline.
fn first_line(source: &mut Source) -> Result<Vec<u8>, String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    // Byte by byte, because what follows the first line of standard input is the command's.
    loop {
        match source.read(&mut byte) {
            Ok(0) => return Ok(line),
            Ok(_) if byte == *b"\n" => return Ok(line),
            Ok(_) if line.len() == MAX_PASSWORD => {
                return Err(format!("its first line is longer than {MAX_PASSWORD} bytes"));
            }
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
