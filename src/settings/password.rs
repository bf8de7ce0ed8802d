/*!
The password for the backend: from a file, an open descriptor or a variable, never from a flag.
*/

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::path::Path;

use crate::exit::Failure;
use crate::settings::usage::usage;
use crate::variables::PASSWORD;

/// The longest password that is read from a file, in bytes.
const MAX_PASSWORD: usize = 64 * 1024;

/// The password: the first line of `file`, otherwise the value of `DLOCK_PASSWORD`; none when that is unset or empty.
pub(super) fn password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    if let Some(path) = file {
        return read_password(path).map(Some);
    }
    let variable = std::env::var_os(PASSWORD).filter(|password| !password.is_empty());
    variable.map(|password| password.into_string().map_err(|_| usage("DLOCK_PASSWORD is not UTF-8"))).transpose()
}

/// Reads the first line of a file, of standard input (`-`) or of an open descriptor (`fd:N`).
fn read_password(path: &Path) -> Result<String, Failure> {
    let failed = |reason: &dyn std::fmt::Display| {
        usage(format!(
            "--password-file: could not read {}: {reason}; name a readable file that holds the password",
            path.display()
        ))
    };
    let mut source = match path.to_str() {
        Some("-" | "fd:0") => File::from(io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?),
        Some(text) if text.starts_with("fd:") => {
            let number: RawFd = text[3..].parse().map_err(|_| failed(&"fd: takes a number"))?;
            if number < 3 {
                return Err(failed(&"the standard descriptors are the command's own, use another"));
            }
            // SAFETY: F_GETFD only asks whether the descriptor is open.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
                return Err(failed(&"that descriptor is not open"));
            }
            // SAFETY: it is open, was handed to us for this, and nothing else here uses it.
            unsafe { File::from_raw_fd(number) }
        }
        _ => File::open(path).map_err(|error| failed(&error))?,
    };
    let mut password = Vec::new();
    let mut byte = [0];
    // Byte by byte, because what follows the first line of standard input is the command's.
    while password.len() < MAX_PASSWORD
        && source.read(&mut byte).map_err(|error| failed(&error))? == 1
        && byte != *b"\n"
    {
        password.push(byte[0]);
    }
    let password = String::from_utf8(password).map_err(|_| failed(&"its first line is not UTF-8"))?;
    let password = password.trim_end_matches('\r');
    if password.is_empty() { Err(failed(&"its first line is empty")) } else { Ok(password.to_owned()) }
}
