/*!
Errors about a lock file or its directory: the kind of failure, the reason in words, and what to do.

All functions here are pure, so that every message has a row in the tables below.
*/

use std::path::Path;

use nix::errno::Errno;

use crate::backend::error::{Error, ErrorKind};

/// Reason: something other than a regular file is at the lock file's path.
pub(super) const NO_FILE: &str = "it is not a regular file: remove it, or choose another key";
/// Reason: `?path` names something other than a regular file.
pub(super) const NAMED_NO_FILE: &str = "it is not a regular file: name one with ?path, or a directory without it";
/// Reason: the lock file holds data that dlock did not write.
pub(super) const NOT_OURS: &str = "it holds data that is not dlock's: choose another key, or move the file away";
/// Reason: the fencing counter in a lock file is not a number, or leaves no room for another token.
pub(super) const DAMAGED: &str = "its fencing counter is damaged: while nobody holds the lock, remove the file, or write \
                                  a number above every earlier DLOCK_TOKEN after dlock:1";
/// Reason: the clock is so far ahead that a token made from it would exceed the highest one.
pub(super) const WRONG_CLOCK: &str = "the clock of this host is after the year 2255, too late for a token: set it";
/// Reason: the file that `?path` names is a lock file of dlock, with its own counter.
pub(super) const OURS: &str = "it is a lock file of dlock: use file:///dir and its key instead of ?path";
/// Reason: the lock directory belongs to another user, who could replace files in it.
pub(super) const OTHER_OWNER: &str = "it belongs to another user: use a directory of this user or of root";
/// Reason: every user could replace files in the lock directory.
pub(super) const OPEN_TO_ALL: &str = "everybody may remove files in it: chmod o-w it, or set its sticky bit (chmod +t)";
/// Reason: the users of a group could replace files in the lock directory, which is not marked as shared.
pub(super) const OPEN_TO_GROUP: &str = "its group may remove files in it: chmod g-w it, or share it with the group \
                                        (chmod g+s), or set its sticky bit (chmod +t)";
/// Reason: another user created the default directory, and only that user could remove it.
pub(super) const TAKEN: &str = "another user made it: name another directory with --backend file:///dir";
/// Reason: the default directory belongs to this user, but others may use it.
pub(super) const NOT_PRIVATE: &str = "its mode must be 0700: chmod 0700 it";

/// The error for a lock file that cannot be used, for this `reason`.
pub(super) fn no_lock_file(path: &Path, reason: &str) -> Error {
    Error::new(ErrorKind::CannotCreate, format!("could not use the lock file {}: {reason}", path.display()))
}

/// The error for a lock file that cannot be shared, because byte ranges of it cannot be locked.
pub(super) fn no_ranges(path: &Path) -> Error {
    let reason = "this kernel or this file system has no open file description locks, which --shared and --slots need: use \
                  a directory on a local file system, or a server backend";
    Error::new(ErrorKind::Unusable, format!("could not share the lock file {}: {reason}", path.display()))
}

/// The reason why a latch or a barrier cannot be used.
pub(super) const NO_RANGES: &str = "this kernel or this file system has no open file description locks: use a directory on a \
                                    local file system, or a server backend";

/// The error for a lock file that cannot be shared, because another program has locked byte ranges of it.
pub(super) fn foreign_ranges(path: &Path) -> Error {
    let reason =
        "another program has locked it with fcntl(2), which hides who shares it: use another file for the lock";
    Error::new(ErrorKind::Unusable, format!("could not share the lock file {}: {reason}", path.display()))
}

/// The error for a lock directory that cannot be used, for this `reason`.
pub(super) fn no_directory(path: &Path, reason: &str) -> Error {
    Error::new(ErrorKind::CannotCreate, format!("could not use the lock directory {}: {reason}", path.display()))
}

/// The error of a look at a file or a directory that this user may not read or reach.
pub(super) fn no_look(path: &Path, errno: Errno) -> Error {
    let reason = "look as a user who may read it, or as root";
    Error::new(ErrorKind::Denied, format!("may not look into {}: {}: {reason}", path.display(), errno.desc()))
}

/// The error of a contender that was not connected: it has no directory yet.
pub(super) fn directory_not_open() -> Error {
    Error::unavailable("the lock directory is not open")
}

/// The error of a contender that has no open lock file.
pub(super) fn file_not_open() -> Error {
    Error::unavailable("the lock file is not open")
}

/// The reason why the default directory cannot be created.
pub(super) fn default_not_made(error: &std::io::Error) -> String {
    format!("{error}; name another with --backend file:///dir")
}

/// The reason why a directory cannot be opened.
pub(super) fn directory_refused(errno: Errno) -> String {
    match errno {
        Errno::ENOENT => "it does not exist: make it (mkdir -m 0700)".to_owned(),
        Errno::ENOTDIR => "it is not a directory: name one".to_owned(),
        Errno::EACCES => format!("{}: this user must be able to read it", errno.desc()),
        other => other.desc().to_owned(),
    }
}

/// The reason why a lock file cannot be opened or created.
pub(super) fn file_refused(errno: Errno) -> String {
    match errno {
        Errno::ELOOP => "it is a symbolic link: remove it".to_owned(),
        Errno::EISDIR => "it is a directory: remove it, or choose another key".to_owned(),
        // A socket.
        Errno::ENXIO => NO_FILE.to_owned(),
        Errno::EACCES | Errno::EPERM | Errno::EROFS => {
            format!("{}: this user must be able to write there", errno.desc())
        }
        other => other.desc().to_owned(),
    }
}

/// The reason why the default directory cannot be opened although it exists. If it is not a directory, or may not be
/// opened, dlock did not create it for this user.
pub(super) fn default_refused(errno: Errno) -> String {
    match errno {
        Errno::EACCES | Errno::ENOTDIR | Errno::ELOOP => TAKEN.to_owned(),
        other => other.desc().to_owned(),
    }
}

/// The reason why the file that `?path` names cannot be opened or created.
pub(super) fn named_file_refused(errno: Errno) -> String {
    match errno {
        Errno::EACCES | Errno::EPERM => format!("{}: this user must be able to read it, or to make it", errno.desc()),
        Errno::ENXIO | Errno::EISDIR => NAMED_NO_FILE.to_owned(),
        other => file_refused(other),
    }
}

/// The reason why the content of a lock file is not known.
pub(super) fn unread(error: &std::io::Error) -> String {
    format!("could not read it: {error}")
}

/// The reason why the token could not be written to the lock file.
pub(super) fn unwritten(error: &std::io::Error) -> String {
    format!("could not write to it: {error}")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::ErrorKind::{CannotCreate, Denied, Unavailable, Unusable};
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_directory() {
        for (errno, said) in [
            (Errno::ENOENT, "it does not exist: make it (mkdir -m 0700)"),
            (Errno::ENOTDIR, "it is not a directory: name one"),
            (Errno::EACCES, "Permission denied: this user must be able to read it"),
            (Errno::ELOOP, "Too many symbolic links encountered"),
            (Errno::EIO, "I/O error"),
        ] {
            assert_eq!(directory_refused(errno), said, "{errno}");
        }
    }

    #[test]
    fn what_the_kernel_says_of_a_lock_file() {
        for (errno, said) in [
            (Errno::ELOOP, "it is a symbolic link: remove it"),
            (Errno::EISDIR, "it is a directory: remove it, or choose another key"),
            (Errno::ENXIO, "it is not a regular file: remove it, or choose another key"),
            (Errno::EACCES, "Permission denied: this user must be able to write there"),
            (Errno::EPERM, "Operation not permitted: this user must be able to write there"),
            (Errno::EROFS, "Read-only file system: this user must be able to write there"),
            (Errno::ENOSPC, "No space left on device"),
        ] {
            assert_eq!(file_refused(errno), said, "{errno}");
        }
    }

    #[test]
    fn what_the_kernel_says_of_the_default_directory_and_of_a_named_file() {
        for (errno, said) in
            [(Errno::EACCES, TAKEN), (Errno::ENOTDIR, TAKEN), (Errno::ELOOP, TAKEN), (Errno::EIO, "I/O error")]
        {
            assert_eq!(default_refused(errno), said, "{errno}");
        }
        for (errno, said) in [
            (Errno::EACCES, "Permission denied: this user must be able to read it, or to make it"),
            (Errno::ELOOP, "it is a symbolic link: remove it"),
            (Errno::ENXIO, NAMED_NO_FILE),
            (Errno::EROFS, "Read-only file system: this user must be able to write there"),
        ] {
            assert_eq!(named_file_refused(errno), said, "{errno}");
        }
    }

    #[test]
    fn what_may_not_be_read_is_denied() {
        let told = no_look(Path::new("/d"), Errno::EACCES);
        let text = "may not look into /d: Permission denied: look as a user who may read it, or as root";
        assert_eq!((told.kind, told.to_string().as_str()), (Denied, text));
    }

    #[test]
    fn what_dlock_says_by_itself() {
        let full = io::Error::other("full");
        for (reason, said) in [
            (default_not_made(&full), "full; name another with --backend file:///dir"),
            (unread(&full), "could not read it: full"),
            (unwritten(&full), "could not write to it: full"),
        ] {
            assert_eq!(reason, said);
        }
        for (told, kind, text) in [
            (
                no_lock_file(Path::new("/d/k.lock"), NO_FILE),
                CannotCreate,
                format!("could not use the lock file /d/k.lock: {NO_FILE}"),
            ),
            (
                no_directory(Path::new("/d"), OPEN_TO_ALL),
                CannotCreate,
                format!("could not use the lock directory /d: {OPEN_TO_ALL}"),
            ),
            (
                no_ranges(Path::new("/d/k.lock")),
                Unusable,
                "could not share the lock file /d/k.lock: this kernel or this file system has no open file description \
                 locks, which --shared and --slots need: use a directory on a local file system, or a server backend"
                    .to_owned(),
            ),
            (
                foreign_ranges(Path::new("/d/k.lock")),
                Unusable,
                "could not share the lock file /d/k.lock: another program has locked it with fcntl(2), which hides who \
                 shares it: use another file for the lock"
                    .to_owned(),
            ),
            (directory_not_open(), Unavailable, "the lock directory is not open".to_owned()),
            (file_not_open(), Unavailable, "the lock file is not open".to_owned()),
        ] {
            assert_eq!((told.kind, told.to_string()), (kind, text));
        }
        let advice = [
            NAMED_NO_FILE,
            NO_FILE,
            NOT_OURS,
            DAMAGED,
            WRONG_CLOCK,
            OURS,
            OTHER_OWNER,
            OPEN_TO_ALL,
            OPEN_TO_GROUP,
            TAKEN,
            NOT_PRIVATE,
        ];
        for advice in advice {
            assert!(advice.contains(": "), "{advice}: says what is wrong, and what to do");
        }
    }
}
