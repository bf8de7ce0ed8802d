/*!
How lock files are named in a URL.
*/

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::backend::driver::{Abilities, Driver, Follows, Form, Place, Scheme};
use crate::backend::file::FileService;
use crate::backend::net::location::encoded;
use crate::backend::net::tls::Tls;
use crate::backend::{Options, Service};

/// Lock files on this host.
pub(crate) static DRIVER: Driver = Driver {
    name: "file",
    forms: &[Form {
        schemes: &[Scheme::local("file")],
        short: "file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir",
        full: "file: or file:///dir[?remote=trust]",
        follows: Follows::Anything,
        read: |_, rest, _| Ok(Box::new(Files::read(rest)?)),
    }],
    meant: &[],
    kill_after_share: 2,
    has_lease: false,
    abilities: Abilities { replicas: false, strict_fencing: false },
};

/// The place of lock files on this host, as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    /// The directory; none for the default one.
    directory: Option<PathBuf>,
    /// Whether a remote file system is trusted (`?remote=trust`).
    remote: bool,
}

impl Files {
    /// Reads what follows `file:`.
    fn read(rest: &str) -> Result<Self, String> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let remote = match query {
            "" => false,
            "remote=trust" => true,
            _ => {
                return Err("file: knows only ?remote=trust: remove the rest, or write a ? in a path as %3F".to_owned());
            }
        };
        let path = match path.strip_prefix("//") {
            Some(path) => path.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(path),
            None => path,
        };
        if path.is_empty() {
            return if rest.starts_with("//") {
                Err("file:// needs a directory: use file:///dir, or file: for the default one".to_owned())
            } else {
                Ok(Self { directory: None, remote })
            };
        }
        if !path.starts_with('/') {
            return Err("the directory of file: must be absolute: use file:///dir".to_owned());
        }
        let bytes: Vec<u8> = percent_decode_str(path).collect();
        if bytes.contains(&0) {
            return Err("the directory of file: must not contain a NUL byte".to_owned());
        }
        Ok(Self { directory: Some(PathBuf::from(OsString::from_vec(bytes))), remote })
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("file:")?;
        if let Some(directory) = &self.directory {
            write!(f, "//{}", encoded(directory.as_os_str().as_bytes(), "?"))?;
        }
        f.write_str(if self.remote { "?remote=trust" } else { "" })
    }
}

impl Place for Files {
    fn open(&self, _options: &Options, _tls: Option<Tls>) -> Box<dyn Service> {
        Box::new(FileService::new(self.directory.clone(), self.remote))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        for (rest, directory, remote) in [
            ("", None, false),
            ("?remote=trust", None, true),
            ("///var/lock", Some("/var/lock"), false),
            ("//localhost/x", Some("/x"), false),
            ("/x%20y?remote=trust", Some("/x y"), true),
        ] {
            assert_eq!(Files::read(rest), Ok(Files { directory: directory.map(PathBuf::from), remote }), "{rest}");
        }
        for bad in ["//", "x", "//host/x", "///x?remote=maybe", "///%00"] {
            assert!(Files::read(bad).is_err(), "{bad}");
        }
    }
}
