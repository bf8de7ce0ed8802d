/*!
Which files are trusted: what other users can write could choose another backend, and what they can read must hold no secret.
*/

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bits of a directory in which only the owner of a file may replace it.
const STICKY: u32 = 0o1000;
/// The bits of a mode by which the group or others may write.
const SHARED: u32 = 0o022;

/// Whether users other than its owner may read or write a file; the group of one of root's files is meant to.
#[must_use]
pub(super) fn is_for_others(meta: &Metadata) -> bool {
    let others = if meta.uid() == 0 { 0o006 } else { 0o066 };
    meta.is_file() && meta.mode() & others != 0
}

/// Fails for a file at `path` that other users could have written. The error says what is wrong and what to do.
pub(super) fn trusted(meta: &Metadata, path: &Path) -> Result<(), String> {
    let path = path.display();
    match () {
        () if !meta.is_file() => Err("is not a regular file".to_owned()),
        () if !is_owner_trusted(meta) => {
            Err("belongs to another user, and must belong to you or to root: change its owner, \
                                              or name another file with DLOCK_CONFIG (/dev/null for none)"
                .to_owned())
        }
        () if meta.mode() & SHARED != 0 => Err(format!("can be written by other users: chmod go-w {path}")),
        () => Ok(()),
    }
}

/// Fails for a `directory` in which other users could put another file into the place of a trusted one.
pub(super) fn trusted_directory(meta: &Metadata, directory: &Path) -> Result<(), String> {
    let directory = directory.display();
    match () {
        () if !is_owner_trusted(meta) => Err(format!(
            "is in the directory of another user, who could replace it: change the owner of {directory}, or name another file \
             with DLOCK_CONFIG (/dev/null for none)"
        )),
        () if meta.mode() & SHARED != 0 && meta.mode() & STICKY == 0 => {
            Err(format!("is in a directory that other users can write: chmod go-w {directory}"))
        }
        () => Ok(()),
    }
}

fn is_owner_trusted(meta: &Metadata) -> bool {
    meta.uid() == 0 || meta.uid() == nix::unistd::geteuid().as_raw()
}
