/*!
Trust in files: one that other users can write could choose another backend, and one they can read must hold no secret.
*/

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The most symbolic links that the kernel follows in one path.
const MAX_LINKS: usize = 40;
/// The bits of a directory in which only the owner of a file may replace it.
const STICKY: u32 = 0o1000;
/// The bits of a mode by which the group or others may write.
const SHARED: u32 = 0o022;

/// Returns `true` if users other than its owner may read or write a file, not counting the group of a file of root.
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

/// Returns the objection to the path of a file that is trusted itself: a directory in which other users could replace a
/// file or a directory of the path, or a symbolic link that they could have made. Each directory from `/` on counts,
/// also those through which symbolic links lead. The path must be absolute. `None` if there is no objection.
pub(super) fn objection_to_way(path: &Path) -> io::Result<Option<String>> {
    // The owner of the root could replace everything. In a user namespace, that may be an unmapped user.
    let owners = [0, nix::unistd::geteuid().as_raw(), fs::metadata("/")?.uid()];
    let (mut at, mut rest, mut links) = (PathBuf::from("/"), Vec::new(), 0);
    let mut about = fs::metadata(&at)?;
    push_names(&mut rest, path);
    loop {
        if let Some(objection) = objection_to_directory(&about, &at, &owners, rest.len() == 1) {
            return Ok(Some(objection));
        }
        let Some(name) = rest.pop() else { return Ok(None) };
        // The way so far leads through no links.
        let is_back = name == "..";
        let next = if is_back { at.parent().unwrap_or(&at).to_path_buf() } else { at.join(name) };
        let found = fs::symlink_metadata(&next)?;
        if found.is_symlink() {
            let is_shared = about.mode() & SHARED != 0;
            if is_shared && !owners.contains(&found.uid()) {
                return Ok(Some(format!("is named by a symbolic link of another user: remove {}", next.display())));
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = fs::read_link(&next)?;
            push_names(&mut rest, &target);
            if target.is_absolute() {
                at = PathBuf::from("/");
                about = fs::metadata(&at)?;
            }
        } else if found.is_dir() {
            (at, about) = (next, found);
        } else {
            return Ok(None);
        }
    }
}

/// Puts the names in `path` before those that are left.
fn push_names(rest: &mut Vec<OsString>, path: &Path) {
    let is_name = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    let names = path.components().rev().filter(is_name);
    rest.extend(names.map(|part| part.as_os_str().to_owned()));
}

/// Returns the objection to a `directory` on the path of a file, which `is_last` if it holds the file itself.
fn objection_to_directory(meta: &Metadata, directory: &Path, owners: &[u32], is_last: bool) -> Option<String> {
    let (is_in, directory) = (if is_last { "is in" } else { "is below" }, directory.display());
    match () {
        () if !owners.contains(&meta.uid()) => Some(format!(
            "{is_in} the directory of another user, who could replace it: change the owner of {directory}, or name another file \
             with DLOCK_CONFIG (/dev/null for none)"
        )),
        // In a sticky one, nobody else can replace what belongs to root or to this user.
        () if meta.mode() & SHARED != 0 && meta.mode() & STICKY == 0 => {
            Some(format!("{is_in} a directory that other users can write: chmod go-w {directory}"))
        }
        () => None,
    }
}

/// Returns `true` if a file belongs to a user who is neither root nor this one.
#[must_use]
pub(super) fn is_of_another(meta: &Metadata) -> bool {
    meta.is_file() && !is_owner_trusted(meta)
}

fn is_owner_trusted(meta: &Metadata) -> bool {
    meta.uid() == 0 || meta.uid() == nix::unistd::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_could_write_or_replace_is_not_trusted() {
        let place = tempfile::tempdir().expect("a directory");
        let inner = place.path().join("inner");
        let file = inner.join("config.toml");
        fs::create_dir(&inner).and_then(|()| fs::write(&file, "")).expect("a file");
        let told = |of_place: u32, of_inner: u32, of_file: u32| {
            for (path, mode) in [(place.path(), of_place), (&inner, of_inner), (&file, of_file)] {
                fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
            }
            let said = trusted(&fs::metadata(&file).expect("it is there"), &file).err();
            said.or(objection_to_way(&file).expect("it can be reached"))
        };
        assert_eq!(told(0o755, 0o755, 0o644), None);
        // In a sticky directory nobody replaces what belongs to others.
        assert_eq!(told(0o1777, 0o755, 0o600), None);
        for (modes, said) in [
            ([0o755, 0o755, 0o664], "can be written by other users: chmod go-w "),
            ([0o755, 0o755, 0o602], "can be written by other users: chmod go-w "),
            ([0o755, 0o775, 0o644], "is in a directory that other users can write: chmod go-w "),
            ([0o777, 0o755, 0o644], "is below a directory that other users can write: chmod go-w "),
        ] {
            let [place, inner, file] = modes;
            let objection = told(place, inner, file).unwrap_or_default();
            assert!(objection.starts_with(said), "{objection}");
        }
    }
}
