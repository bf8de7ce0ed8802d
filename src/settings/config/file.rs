/*!
Finding and reading config files. A file that other users could have written, or that is too long, is refused.
*/

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::settings::trust::{is_for_others, objection_to_way, trusted};
use crate::variables::CONFIG;

/// The file for all users of this host.
pub(super) const SYSTEM: &str = "/etc/dlock/config.toml";
/// The file of a user, relative to the user's directory for configurations.
const USER: &str = "dlock/config.toml";
/// The path to name instead of both, in order to have no config file.
const NO_FILE: &str = "/dev/null";
/// The longest file that is read, in bytes.
const MOST: u64 = 1 << 16;

/// A file that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its path.
    pub path: PathBuf,
    /// `true` if `DLOCK_CONFIG` names it, so that it must exist.
    pub is_named: bool,
}

/// Returns the files to read; the first one takes precedence. The arguments are the variables `DLOCK_CONFIG`,
/// `XDG_CONFIG_HOME` and `HOME`. The error says what is wrong with the first variable.
pub(super) fn candidates(
    named: Option<OsString>,
    config_home: Option<OsString>,
    home: Option<OsString>,
) -> Result<Vec<Candidate>, String> {
    let given = |variable: Option<OsString>| variable.filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = given(named) {
        return match path {
            path if path == Path::new(NO_FILE) => Ok(Vec::new()),
            path if path.is_absolute() => Ok(vec![Candidate { path, is_named: true }]),
            path => Err(format!(
                "{CONFIG}={}: use an absolute path, because no config file is read from the working directory",
                path.display()
            )),
        };
    }
    // A relative directory would be one below the working directory.
    let absolute = |path: &PathBuf| path.is_absolute();
    let directory = given(config_home).filter(absolute).or_else(|| Some(given(home).filter(absolute)?.join(".config")));
    let user = directory.map(|directory| directory.join(USER));
    Ok(user.into_iter().chain([PathBuf::from(SYSTEM)]).map(|path| Candidate { path, is_named: false }).collect())
}

/// The text of a config file.
#[derive(Debug)]
pub(super) struct Text {
    /// The text itself.
    pub text: String,
    /// `true` if other users may read the file, so that it must hold no secret.
    pub is_exposed: bool,
}

/// Reads a file, if it can be trusted. Returns `None` if it is missing and was not named. The error says what is wrong
/// and what to do.
pub(super) fn read(candidate: &Candidate) -> Result<Option<Text>, String> {
    let path = candidate.path.as_path();
    // Checked before it is opened, because opening some devices has side effects.
    match std::fs::metadata(path) {
        Ok(meta) => trusted(&meta, path)?,
        Err(error) if !candidate.is_named && is_absent(&error, path) => return Ok(None),
        Err(error) => return Err(format!("could not be read: {error}")),
    }
    if let Some(objection) = objection_to_way(path).map_err(|error| unreadable(&error, path))? {
        return Err(objection);
    }
    // Not blocking: a FIFO that nobody writes to must not hang us.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| unreadable(&error, path))?;
    let meta = file.metadata().map_err(|error| unreadable(&error, path))?;
    trusted(&meta, path)?;
    Ok(Some(Text { text: text_of(file, path)?, is_exposed: is_for_others(&meta) }))
}

fn text_of(file: File, path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error, path))?;
    if bytes.len() as u64 > MOST {
        return Err(format!("is longer than {MOST} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

/// Returns `true` if this user has no such file. A dangling symbolic link counts as a file. A directory that is closed
/// to this user is another user's, and counts as none: programs that drop root's privileges often keep its `HOME`.
fn is_absent(error: &io::Error, path: &Path) -> bool {
    let is_nowhere =
        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied);
    is_nowhere && std::fs::symlink_metadata(path).is_err()
}

/// Returns the reason why an existing file could not be read, and what to do.
fn unreadable(error: &io::Error, path: &Path) -> String {
    let is_own = |meta: &Metadata| meta.uid() == nix::unistd::geteuid().as_raw();
    let shown = path.display();
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied if std::fs::metadata(path).is_ok_and(|meta| is_own(&meta)) => {
            format!(": chmod u+r {shown}")
        }
        ErrorKind::PermissionDenied => {
            format!(": let its owner make it readable, or name another file with {CONFIG} (/dev/null for none)")
        }
        _ => String::new(),
    };
    format!("could not be read: {error}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_file_comes_before_the_systems() {
        let os = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        for (named, config_home, home, expected) in [
            ("", "/c", "/h", &["/c/dlock/config.toml", SYSTEM][..]),
            ("", "", "/h", &["/h/.config/dlock/config.toml", SYSTEM]),
            ("", "c", "/h", &["/h/.config/dlock/config.toml", SYSTEM]),
            ("", "", "", &[SYSTEM]),
            ("", "", "h", &[SYSTEM]),
            ("/x", "/c", "/h", &["/x"]),
            ("/dev/null", "/c", "/h", &[]),
        ] {
            let found = candidates(os(named), os(config_home), os(home)).expect("absolute");
            let paths: Vec<&Path> = found.iter().map(|candidate| candidate.path.as_path()).collect();
            assert_eq!(paths, expected.iter().map(Path::new).collect::<Vec<_>>(), "{named} {config_home} {home}");
            assert!(found.iter().all(|candidate| candidate.is_named != named.is_empty()));
        }
    }
    #[test]
    fn nothing_is_read_from_the_working_directory() {
        let said = candidates(Some("x.toml".into()), None, Some("/h".into())).expect_err("relative");
        assert!(said.starts_with("DLOCK_CONFIG=x.toml: use an absolute path"), "{said}");
    }
}
