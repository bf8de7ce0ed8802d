/*!
The directory of lock files: no other user may be able to replace files in it, and it must be on this host.

A setgid directory that is writable by its group is shared on purpose: lock files in it are for the whole group,
whatever the umask, so that its users exclude each other as with `flock(1)`.
*/

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, umask};
use nix::sys::statfs::fstatfs;
use nix::sys::statvfs::{Statvfs, fstatvfs};
use nix::unistd::{UnlinkatFlags, getegid, geteuid, unlinkat};

use crate::backend::error::Error;
use crate::backend::file::errors::{self, no_directory, no_lock_file, no_look};
use crate::backend::file::locality;

/// The location of lock files, as given by a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirectoryUrl {
    /// The default directory.
    Default,
    /// This directory.
    Directory(PathBuf),
    /// This file, whatever the key.
    File(PathBuf),
}

/// A lock directory that has been checked.
#[derive(Debug)]
pub(super) struct LockDirectory {
    pub(super) path: PathBuf,
    /// `true` if a reboot of this host empties it.
    pub(super) is_volatile: bool,
    /// `true` if it is known to be on a file system of this host.
    pub(super) is_local: bool,
    /// `true` if its group shares it on purpose: then lock files are for the group, too.
    is_shared: bool,
    descriptor: OwnedFd,
}

impl LockDirectory {
    /// Opens a directory that the user named. It must exist, and no other user may be able to replace files in it,
    /// unless the group shares it on purpose.
    pub(super) fn given(path: &Path, remote: bool) -> Result<Self, Error> {
        let mut place = Self::open(path, OFlag::empty(), remote, errors::directory_refused)?;
        let meta = place.metadata()?;
        let groups = nix::unistd::getgroups().unwrap_or_default();
        let in_group = groups.into_iter().chain([getegid()]).any(|group| group.as_raw() == meta.gid());
        place.is_shared = is_shared(meta.mode());
        match objection(meta.mode(), meta.uid(), geteuid().as_raw(), in_group) {
            Some(problem) => Err(no_directory(path, problem)),
            None => Ok(place),
        }
    }

    /// Returns the directory of a file that the user named, and the file's name in it. Symbolic links are followed now,
    /// so that all names of one file lead to one directory.
    pub(super) fn of_file(path: &Path, remote: bool) -> Result<(Self, OsString), Error> {
        let real = match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            other => other.map_err(|error| no_lock_file(path, &error.to_string()))?,
        };
        let (Some(directory), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(no_lock_file(path, errors::NAMED_NO_FILE));
        };
        // If the file is missing, the path of its directory is as the user wrote it.
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        Ok((Self::given(&directory, remote)?, name.to_owned()))
    }

    /// Returns the default directory, and creates it if it does not exist. It depends on the user id alone, so that a
    /// user's shell and crontab share their locks.
    pub(super) fn default_one(remote: bool) -> Result<Self, Error> {
        let (user, path) = (geteuid(), Self::default_path());
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(no_directory(&path, &errors::default_not_made(&error)));
            }
            _ => {}
        }
        let place = Self::open(&path, OFlag::O_NOFOLLOW, remote, errors::default_refused)?;
        let meta = place.metadata()?;
        if meta.uid() != user.as_raw() {
            return Err(no_directory(&path, errors::TAKEN));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(no_directory(&path, errors::NOT_PRIVATE));
        }
        Ok(place)
    }

    /// Returns the path of the default directory.
    pub(super) fn default_path() -> PathBuf {
        let user = geteuid();
        if user.is_root() {
            return PathBuf::from("/run/dlock");
        }
        let shared = std::fs::metadata("/run/lock");
        let usable = shared.is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o1002 == 0o1002);
        Path::new(if usable { "/run/lock" } else { "/tmp" }).join(format!("dlock-{user}"))
    }

    /// Opens `path` or the default directory to look at, whoever may write to it; `None` if there is no default one.
    pub(super) fn to_look(path: Option<&Path>, remote: bool) -> Result<Option<Self>, Error> {
        let default = Self::default_path();
        if path.is_none() && !default.exists() {
            return Ok(None);
        }
        let path = path.unwrap_or(&default);
        // Permission to reach its files is enough to look at one of them.
        Self::open(path, OFlag::O_PATH, remote, errors::directory_refused).map(Some).map_err(|error| {
            match std::fs::metadata(path) {
                Err(refused) if refused.kind() == io::ErrorKind::PermissionDenied => no_look(path, Errno::EACCES),
                _ => error,
            }
        })
    }

    /// Opens the file `name` for reading, and leaves its access time unchanged if this user may do that.
    pub(super) fn existing(&self, name: &OsStr) -> Result<File, Errno> {
        match self.open_at(name, OFlag::O_RDONLY | OFlag::O_NOATIME) {
            Err(Errno::EPERM) => self.open_at(name, OFlag::O_RDONLY),
            other => other,
        }
        .map(File::from)
    }

    fn open(path: &Path, extra: OFlag, remote: bool, refused: fn(Errno) -> String) -> Result<Self, Error> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | extra;
        let descriptor =
            nix::fcntl::open(path, flags, Mode::empty()).map_err(|errno| no_directory(path, &refused(errno)))?;
        let magic = match fstatfs(&descriptor) {
            // The magic numbers have 32 bits; the field is wider, and signed on some machines.
            Ok(found) => u32::try_from(found.filesystem_type().0 & 0xffff_ffff).unwrap_or_default(),
            Err(_) if remote => 0,
            Err(errno) => return Err(no_directory(path, errno.desc())),
        };
        let objection = locality::objection(magic);
        let (is_local, is_volatile) = (objection.is_none(), locality::is_volatile(magic));
        if let Some(problem) = objection.filter(|_| !remote) {
            return Err(no_directory(path, &problem));
        }
        Ok(Self { path: path.to_owned(), is_volatile, is_local, is_shared: false, descriptor })
    }

    /// Returns the statistics of its file system.
    pub(super) fn file_system(&self) -> nix::Result<Statvfs> {
        fstatvfs(&self.descriptor)
    }

    /// Removes the file `name`, which nobody else may use.
    pub(super) fn remove(&self, name: &OsStr) {
        // It may never have been created.
        let _ = unlinkat(&self.descriptor, name, UnlinkatFlags::NoRemoveDir);
    }

    fn metadata(&self) -> Result<std::fs::Metadata, Error> {
        let descriptor = self.descriptor.try_clone().map_err(|error| no_directory(&self.path, &error.to_string()))?;
        File::from(descriptor).metadata().map_err(|error| no_directory(&self.path, &error.to_string()))
    }

    /// Opens the lock file `name`, and creates it if it does not exist. Fails on anything but a regular file; symbolic
    /// links are not followed.
    pub(super) fn lock_file(&self, name: &OsStr) -> Result<File, String> {
        regular(self.open_or_create(name, OFlag::O_RDWR).map_err(errors::file_refused)?, errors::NO_FILE)
    }

    /// Opens the lock file `name` for appending; `None` if it does not exist.
    pub(super) fn appended(&self, name: &OsStr) -> Result<Option<File>, String> {
        match self.open_at(name, OFlag::O_WRONLY | OFlag::O_APPEND) {
            Err(Errno::ENOENT) => Ok(None),
            other => regular(other.map_err(errors::file_refused)?, errors::NO_FILE).map(Some),
        }
    }

    /// Opens the file `name`, which the user named explicitly, and creates it if it does not exist. It is never written
    /// to, so this user only needs to be able to read it, as for `flock(1)`. With `remote`, it is opened for writing,
    /// as some remote file systems require for exclusive locks.
    pub(super) fn named_file(&self, name: &OsStr, remote: bool) -> Result<File, String> {
        let access = if remote { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        regular(self.open_or_create(name, access).map_err(errors::named_file_refused)?, errors::NAMED_NO_FILE)
    }

    /// Opens the file `name` for reading; `None` if it does not exist.
    pub(super) fn existing_file(&self, name: &OsStr) -> Result<Option<File>, String> {
        match self.open_at(name, OFlag::O_RDONLY) {
            Ok(descriptor) => regular(descriptor, errors::NO_FILE).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errors::file_refused(errno)),
        }
    }

    fn open_or_create(&self, name: &OsStr, access: OFlag) -> Result<OwnedFd, Errno> {
        // First without O_CREAT, and again if another user was faster: that user's file in a sticky directory may be
        // opened but not "created".
        match self.open_at(name, access) {
            Err(Errno::ENOENT) => match self.open_at(name, access | OFlag::O_CREAT) {
                Err(Errno::EACCES) => match self.open_at(name, access) {
                    Err(Errno::ENOENT) => Err(Errno::EACCES),
                    other => other,
                },
                other => other,
            },
            other => other,
        }
    }

    fn open_at(&self, name: &OsStr, access: OFlag) -> Result<OwnedFd, Errno> {
        // Non-blocking: a FIFO must not hang us.
        let flags = access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        if !self.is_shared || !access.contains(OFlag::O_CREAT) {
            return openat(&self.descriptor, name, flags, Mode::from_bits_truncate(0o666));
        }
        // The group must be able to use it from the start. The command got its own umask with the guard.
        let before = umask(Mode::empty());
        let opened = openat(&self.descriptor, name, flags, Mode::from_bits_truncate(0o660));
        umask(before);
        opened
    }
}

/// Returns the open file if it is a regular one; otherwise this `problem`.
fn regular(descriptor: OwnedFd, problem: &str) -> Result<File, String> {
    let file = File::from(descriptor);
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if meta.is_file() { Ok(file) } else { Err(problem.to_owned()) }
}

/// Returns `true` if a directory of this mode is shared with its group on purpose: group-writable and setgid.
fn is_shared(mode: u32) -> bool {
    mode & 0o2020 == 0o2020
}

/// Returns the reason why the user `me`, who is a member of the directory's group or not, must not use a directory with
/// this mode and owner: another user could replace files in it.
fn objection(mode: u32, owner: u32, me: u32, in_group: bool) -> Option<&'static str> {
    let (is_sticky, is_setgid) = (mode & libc::S_ISVTX != 0, mode & libc::S_ISGID != 0);
    // The members of a group that shares a directory can replace each other's files anyway.
    if owner != me && owner != 0 && !(is_shared(mode) && in_group) {
        Some(errors::OTHER_OWNER)
    } else if mode & libc::S_IWOTH != 0 && !is_sticky {
        Some(errors::OPEN_TO_ALL)
    } else if mode & libc::S_IWGRP != 0 && !is_sticky && !is_setgid {
        Some(errors::OPEN_TO_GROUP)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_where_nobody_else_can_replace_files_or_where_it_is_shared_on_purpose() {
        const ME: u32 = 1000;
        for (mode, owner, in_group, problem) in [
            (0o700, ME, true, None),
            (0o755, 0, false, None),
            (0o700, 1001, true, Some(errors::OTHER_OWNER)),
            (0o777, ME, true, Some(errors::OPEN_TO_ALL)),
            (0o1777, 0, false, None),
            (0o2777, 0, true, Some(errors::OPEN_TO_ALL)),
            (0o770, ME, true, Some(errors::OPEN_TO_GROUP)),
            (0o775, 0, true, Some(errors::OPEN_TO_GROUP)),
            (0o1770, ME, true, None),
            (0o2770, ME, true, None),
            (0o2775, 0, false, None),
            (0o2770, 1001, true, None),
            (0o2770, 1001, false, Some(errors::OTHER_OWNER)),
            (0o1770, 1001, true, Some(errors::OTHER_OWNER)),
            (0o2750, 1001, true, Some(errors::OTHER_OWNER)),
        ] {
            assert_eq!(objection(mode, owner, ME, in_group), problem, "{mode:o} of {owner}");
        }
    }
}
