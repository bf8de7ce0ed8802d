/*!
The URL syntax of lock files.
*/

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Endpoint, Follows, Form, Meetings, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::file::FileService;
use crate::backend::file::directory::DirectoryUrl;
use crate::backend::net::location::encoded;
use crate::backend::net::tls::Tls;

/// Lock files on this host.
pub(crate) static DRIVER: Driver = Driver {
    name: "file",
    forms: &[Form {
        schemes: &[Scheme::local("file")],
        short: "file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, file:///dir/file?path \
                (that file, as flock takes it)",
        full: "file:, file:///dir[?remote=trust] or file:///dir/file?path",
        follows: Follows::Anything,
        read: |_, rest, _| Ok(Box::new(Files::read(rest)?)),
    }],
    meant: &[],
    kill_after_share: 2,
    delay_share: None,
    has_lease: false,
    abilities: Abilities {
        replicas: false,
        strict_fencing: false,
        breaks: Breaks::Asking,
        handles: false,
        meetings: Meetings::Both,
    },
    setup: None,
};

/// The location of lock files on this host, as given by a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    url: DirectoryUrl,
    /// `true` if a remote file system is trusted (`?remote=trust`).
    remote: bool,
}

impl Files {
    /// Reads the part after `file:`.
    fn read(rest: &str) -> Result<Self, String> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (is_file, remote) = match query {
            "" => (false, false),
            "remote=trust" => (false, true),
            "path" => (true, false),
            "path&remote=trust" | "remote=trust&path" => (true, true),
            _ => {
                return Err("file: knows only ?path and ?remote=trust: remove the rest, or write a ? in a path as %3F"
                    .to_owned());
            }
        };
        let path = match path.strip_prefix("//") {
            Some(path) => path.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(path),
            None => path,
        };
        if path.is_empty() {
            return if is_file {
                Err("?path needs a file: use file:///dir/file?path".to_owned())
            } else if rest.starts_with("//") {
                Err("file:// needs a directory: use file:///dir, or file: for the default one".to_owned())
            } else {
                Ok(Self { url: DirectoryUrl::Default, remote })
            };
        }
        if !path.starts_with('/') {
            return Err("the directory of file: must be absolute: use file:///dir".to_owned());
        }
        let bytes: Vec<u8> = percent_decode_str(path).collect();
        if bytes.contains(&0) {
            return Err("the directory of file: must not contain a NUL byte".to_owned());
        }
        let path = PathBuf::from(OsString::from_vec(bytes));
        if !is_file {
            return Ok(Self { url: DirectoryUrl::Directory(path), remote });
        }
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err("?path needs a file, not a directory: use file:///dir/file?path".to_owned());
        }
        Ok(Self { url: DirectoryUrl::File(path), remote })
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("file:")?;
        let (path, is_file) = match &self.url {
            DirectoryUrl::Default => (None, false),
            DirectoryUrl::Directory(path) => (Some(path), false),
            DirectoryUrl::File(path) => (Some(path), true),
        };
        if let Some(path) = path {
            write!(f, "//{}", encoded(path.as_os_str().as_bytes(), "?"))?;
        }
        f.write_str(match (is_file, self.remote) {
            (false, false) => "",
            (false, true) => "?remote=trust",
            (true, false) => "?path",
            (true, true) => "?path&remote=trust",
        })
    }
}

impl Endpoint for Files {
    fn is_one_lock(&self) -> bool {
        matches!(self.url, DirectoryUrl::File(_))
    }

    fn open(&self, _options: &Options, _tls: Option<Tls>) -> Box<dyn Service> {
        Box::new(FileService::new(self.url.clone(), self.remote))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        for (rest, url, remote) in [
            ("", DirectoryUrl::Default, false),
            ("?remote=trust", DirectoryUrl::Default, true),
            ("///var/lock", DirectoryUrl::Directory("/var/lock".into()), false),
            ("//localhost/x", DirectoryUrl::Directory("/x".into()), false),
            ("/x%20y?remote=trust", DirectoryUrl::Directory("/x y".into()), true),
            ("///var/lock/x?path", DirectoryUrl::File("/var/lock/x".into()), false),
            ("///x?remote=trust&path", DirectoryUrl::File("/x".into()), true),
        ] {
            let read = Files::read(rest);
            assert_eq!(read, Ok(Files { url, remote }), "{rest}");
            let shown = read.map(|files| files.to_string()).unwrap_or_default();
            assert_eq!(Files::read(&shown["file:".len()..]), Files::read(rest), "{shown}");
        }
        let bad =
            ["//", "x", "//host/x", "///x?remote=maybe", "///%00", "?path", "///?path", "///x/?path", "///x/..?path"];
        for bad in bad {
            assert!(Files::read(bad).is_err(), "{bad}");
        }
    }
}
