/*!
The directory that holds lock files: no other user may be able to replace files in it, and it must be on this host.
*/

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::fstatfs;
use nix::unistd::geteuid;

use crate::backend::error::Error;
use crate::backend::file::errors::{self, no_directory};
use crate::backend::file::locality;

/// A lock directory that has been checked.
#[derive(Debug)]
pub(super) struct Place {
    /// Its path.
    pub(super) path: PathBuf,
    /// Whether a restart of this host empties it.
    pub(super) is_volatile: bool,
    descriptor: OwnedFd,
}

impl Place {
    /// A directory that the user named: it must exist, and no other user may be able to replace files in it.
    pub(super) fn given(path: &Path, remote: bool) -> Result<Self, Error> {
        let place = Self::open(path, OFlag::empty(), remote)?;
        let meta = place.metadata()?;
        let sticky = meta.mode() & libc::S_ISVTX != 0;
        let problem = if meta.uid() != geteuid().as_raw() && meta.uid() != 0 {
            errors::OTHER_OWNER
        } else if meta.mode() & libc::S_IWOTH != 0 && !sticky {
            errors::OPEN_TO_ALL
        } else {
            return Ok(place);
        };
        Err(no_directory(path, problem))
    }

    /// The default directory, created if it does not exist. The user id alone decides which it is, so that a shell and
    /// a crontab of one user share their locks.
    pub(super) fn default_one(remote: bool) -> Result<Self, Error> {
        let user = geteuid();
        let path = if user.is_root() {
            PathBuf::from("/run/dlock")
        } else {
            let shared = std::fs::metadata("/run/lock");
            let usable = shared.is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o1002 == 0o1002);
            Path::new(if usable { "/run/lock" } else { "/tmp" }).join(format!("dlock-{user}"))
        };
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(no_directory(&path, &errors::default_not_made(&error)));
            }
            _ => {}
        }
        let place = Self::open(&path, OFlag::O_NOFOLLOW, remote)?;
        let meta = place.metadata()?;
        if meta.uid() != user.as_raw() || meta.mode() & 0o077 != 0 {
            return Err(no_directory(&path, errors::NOT_PRIVATE));
        }
        Ok(place)
    }

    fn open(path: &Path, extra: OFlag, remote: bool) -> Result<Self, Error> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | extra;
        let descriptor = nix::fcntl::open(path, flags, Mode::empty())
            .map_err(|errno| no_directory(path, &errors::directory_refused(errno)))?;
        let magic = match fstatfs(&descriptor) {
            // The magic numbers have 32 bits; the field is wider, and on some machines signed.
            Ok(found) => u32::try_from(found.filesystem_type().0 & 0xffff_ffff).unwrap_or_default(),
            Err(_) if remote => 0,
            Err(errno) => return Err(no_directory(path, errno.desc())),
        };
        if !remote && let Some(problem) = locality::objection(magic) {
            return Err(no_directory(path, &problem));
        }
        Ok(Self { path: path.to_owned(), is_volatile: locality::is_volatile(magic), descriptor })
    }

    fn metadata(&self) -> Result<std::fs::Metadata, Error> {
        let descriptor = self.descriptor.try_clone().map_err(|error| no_directory(&self.path, &error.to_string()))?;
        File::from(descriptor).metadata().map_err(|error| no_directory(&self.path, &error.to_string()))
    }

    /// Opens the lock file `name`, and creates it if it does not exist. Fails on anything but a regular file; symbolic
    /// links are not followed.
    pub(super) fn lock_file(&self, name: &str) -> Result<File, String> {
        // Not blocking: a FIFO must not hang us. Without O_CREAT at first: another user's file in a sticky directory
        // may be opened but not "created".
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        let mode = Mode::from_bits_truncate(0o666);
        let open = |flags| openat(&self.descriptor, name, flags, mode);
        let descriptor = match open(flags) {
            Err(Errno::ENOENT) => open(flags | OFlag::O_CREAT),
            other => other,
        };
        let file = File::from(descriptor.map_err(errors::file_refused)?);
        let meta = file.metadata().map_err(|error| error.to_string())?;
        if meta.is_file() { Ok(file) } else { Err(errors::NO_FILE.to_owned()) }
    }
}
