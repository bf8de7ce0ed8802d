/*!
Checks whether a directory of lock files, or one lock file, can be used.
*/

use std::path::Path;

use nix::errno::Errno;
use nix::sys::statvfs::Statvfs;
use nix::unistd::geteuid;

use crate::backend::contract::probing::{Finding, Met, Probes, Verdict, kind_of};
use crate::backend::error::Error;
use crate::backend::file::directory::{DirectoryUrl, LockDirectory};
use crate::backend::file::errors::no_lock_file;
use crate::here;
use crate::key::Key;

/// The free space below which a file system is reported as full, in bytes and in files.
const ROOM: u64 = 256 * 1024;
const FILES: u64 = 16;

/// The probes of one directory.
#[derive(Debug)]
pub(super) struct FileProbes {
    url: DirectoryUrl,
    remote: bool,
    place: Option<LockDirectory>,
}

impl FileProbes {
    /// Looks at `url`; `remote` trusts a remote file system.
    pub(super) fn new(url: DirectoryUrl, remote: bool) -> Self {
        Self { url, remote, place: None }
    }
}

/// Returns the directory of a file that the user named. An existing file must be one that can be locked.
fn place_of_named(path: &Path, remote: bool) -> Result<LockDirectory, Error> {
    let (place, name) = LockDirectory::of_file(path, remote)?;
    if !matches!(place.existing(&name), Err(Errno::ENOENT)) {
        place.named_file(&name, remote).map_err(|reason| no_lock_file(path, &reason))?;
    }
    Ok(place)
}

/// Returns the finding on a file system with this many free bytes and files, if it counts files.
fn room(bytes: u64, files: Option<u64>) -> Option<Finding> {
    let text = match files {
        _ if bytes < ROOM => format!("its file system is full: {} KiB are free", bytes / 1024),
        Some(files) if files < FILES => format!("its file system is full: there is room for {files} more files"),
        _ => return None,
    };
    Some(Finding::warn("directory", text, "make room: a lock that is new there needs a file"))
}

/// Returns the finding on a file system's free space.
fn room_of(system: &Statvfs) -> Option<Finding> {
    let bytes = system.blocks_available().saturating_mul(system.fragment_size());
    let files = Some(system.files_available()).filter(|_| system.files() > 0);
    room(bytes, files)
}

#[async_trait::async_trait(?Send)]
impl Probes for FileProbes {
    async fn meet(&mut self) -> Met {
        let found = match &self.url {
            DirectoryUrl::Default => LockDirectory::default_one(self.remote),
            DirectoryUrl::Directory(path) => LockDirectory::given(path, self.remote),
            DirectoryUrl::File(path) => place_of_named(path, self.remote),
        };
        let directory = match found {
            Ok(place) => {
                let what = if place.is_local { "" } else { ", on a file system that may be shared with other hosts" };
                let finding = Finding::ok("directory", format!("{}{what}", place.path.display()));
                self.place = Some(place);
                finding
            }
            Err(error) => {
                let text = error.to_string();
                let (text, remedy) = text.rsplit_once(": ").unwrap_or((&text, ""));
                Finding::fail("directory", error.kind, text, remedy)
            }
        };
        let user = geteuid().as_raw();
        let findings = vec![Finding::ok("identity", format!("user {} ({user})", here::user_name(user))), directory];
        let kind = kind_of(&findings);
        (findings, kind)
    }

    async fn examine(&mut self, warnings: &[String]) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(place) = &self.place {
            findings.extend(place.file_system().ok().as_ref().and_then(room_of));
            if !place.is_local {
                let text = "it is trusted to keep locks of all hosts (?remote=trust), which cannot be found out";
                findings.push(Finding::warn("directory", text, "use a server backend for several hosts"));
            }
        }
        if !here::sees_all() {
            let text = "in this PID namespace (a container), holders outside of it cannot be seen by status and list";
            findings.push(Finding::warn("directory", text, "look from the host, or use a server backend"));
        }
        findings.extend(warnings.iter().map(|warning| Finding::said("directory", Verdict::Warn, warning)));
        findings
    }

    async fn clean(&mut self, key: &Key) {
        if let Some(place) = self.place.as_ref().filter(|_| !matches!(self.url, DirectoryUrl::File(_))) {
            place.remove(key.file_name().as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_full_before_nothing_fits_any_more() {
        for (bytes, files, full) in [
            (ROOM, Some(FILES), false),
            (ROOM, None, false),
            (ROOM - 1, None, true),
            (ROOM, Some(FILES - 1), true),
            (0, Some(0), true),
        ] {
            assert_eq!(room(bytes, files).is_some(), full, "{bytes} {files:?}");
        }
    }
}
