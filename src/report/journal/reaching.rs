/*!
Opens the file for the events, without being led elsewhere by other users.

The path is walked name by name, each below an open directory, so that nothing can be exchanged between a check and its
use. A symbolic link that another user could have put there is not followed, and nothing is made where it leads. In
procfs the kernel follows the links, as in `/dev/stdout`, `/dev/fd/63` and `/proc/self/fd/3`: they lead to open files.

root also writes to no file of another user, and to none with a second name that others could have given to it.
*/

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// The most symbolic links of one path, as in the kernel.
const MOST_LINKS: u32 = 40;
/// The mode bits for writing by the group or others.
const SHARED: u32 = 0o022;
/// The mode bit for writing by others.
const OPEN: u32 = 0o002;
/// The flags for every file: append, and do not wait for the reader of a FIFO.
const FLAGS: OFlag = OFlag::O_APPEND.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// A path that is being walked.
struct Walk {
    /// The directory that has been reached.
    at: File,
    /// The names that are still to be walked.
    names: VecDeque<OsString>,
    links: u32,
    is_root: bool,
}

/// Opens the file at `path` for appending, and makes it if it is missing, for its owner alone. A FIFO without a reader
/// is opened too: lines wait in it for one. The error is the reason why the file cannot be opened.
pub(super) fn open(path: &Path) -> Result<OwnedFd, String> {
    let is_root = nix::unistd::geteuid().is_root();
    let mut walk = Walk { at: start(path, None)?, names: names(path), links: 0, is_root };
    if path.as_os_str().is_empty() {
        return Err(reason(&Errno::ENOENT.into()));
    }
    while let Some(name) = walk.names.pop_front() {
        let is_last = walk.names.is_empty();
        let opened = if is_last { walk.file(&name)? } else { walk.directory(&name)? };
        match opened {
            Some(file) if is_last => return Ok(file),
            Some(directory) => walk.at = directory.into(),
            None => walk.follow(&name)?,
        }
    }
    Err(reason(&Errno::EISDIR.into()))
}

/// Opens the directory where `path` begins: the root directory, else `directory` or the working directory.
fn start(path: &Path, directory: Option<File>) -> Result<File, String> {
    match directory {
        Some(directory) if !path.is_absolute() => Ok(directory),
        _ => {
            let from = if path.is_absolute() { "/" } else { "." };
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let opened = nix::fcntl::open(from, flags, Mode::empty()).map_err(|errno| reason(&errno.into()))?;
            Ok(opened.into())
        }
    }
}

/// Returns the names in `path`; with a slash at its end the last one is a directory.
fn names(path: &Path) -> VecDeque<OsString> {
    let bytes = path.as_os_str().as_bytes();
    let names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let end = bytes.ends_with(b"/").then_some(&b"."[..]);
    names.chain(end).map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

impl Walk {
    /// Opens the directory of this name; `None` if it is a link.
    fn directory(&self, name: &OsStr) -> Result<Option<OwnedFd>, String> {
        let mut flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if !self.is_procfs() {
            flags |= OFlag::O_NOFOLLOW;
        }
        match openat(&self.at, name, flags, Mode::empty()) {
            Ok(directory) => Ok(Some(directory)),
            // A link is no directory.
            Err(Errno::ENOTDIR | Errno::ELOOP) if self.link(name).is_some() => Ok(None),
            Err(errno) => Err(reason(&errno.into())),
        }
    }

    /// Opens the file of this name for writing; `None` if it is a link.
    fn file(&self, name: &OsStr) -> Result<Option<OwnedFd>, String> {
        let open = |flags: OFlag| openat(&self.at, name, FLAGS | flags, Mode::S_IRUSR | Mode::S_IWUSR);
        // What procfs has was opened by this process, or for it.
        let is_inherited = self.is_procfs();
        let (makes, stays) =
            if is_inherited { (OFlag::empty(), OFlag::empty()) } else { (OFlag::O_CREAT, OFlag::O_NOFOLLOW) };
        let opened = match open(OFlag::O_WRONLY | makes | stays) {
            Err(Errno::ELOOP) if !is_inherited => return Ok(None),
            // A FIFO without a reader.
            Err(Errno::ENXIO) => open(OFlag::O_RDWR | stays),
            opened => opened,
        };
        let file = File::from(opened.map_err(|errno| reason(&errno.into()))?);
        if !is_inherited {
            self.is_safe(&file.metadata().map_err(|error| reason(&error))?)?;
        }
        Ok(Some(file.into()))
    }

    /// Fails for a file that root must not write to. Only root can make a device.
    fn is_safe(&self, meta: &Metadata) -> Result<(), String> {
        let kind = meta.file_type();
        if !self.is_root || !(kind.is_file() || kind.is_fifo()) {
            return Ok(());
        }
        if meta.uid() != 0 {
            return Err(
                "it belongs to another user, and root writes to its own files only: name another file".to_owned()
            );
        }
        if meta.nlink() > 1 && !self.is_ours_alone() {
            return Err("it has a second name, and other users can write the directory: name another file".to_owned());
        }
        Ok(())
    }

    /// Continues at the target of the link of this name, if no other user could have put the link there.
    fn follow(&mut self, name: &OsStr) -> Result<(), String> {
        self.links += 1;
        let Some(link) = self.link(name).filter(|_| self.links <= MOST_LINKS) else {
            return Err(reason(&Errno::ELOOP.into()));
        };
        let owner = link.metadata().map_err(|error| reason(&error))?.uid();
        let is_ours = owner == 0 || owner == nix::unistd::geteuid().as_raw();
        if !is_ours && !self.is_ours_alone() {
            let name = name.display();
            return Err(format!("{name} is a symbolic link of another user, which is not followed: name another file"));
        }
        let target = readlinkat(&link, "").map_err(|errno| reason(&errno.into()))?;
        let target = Path::new(&target);
        let before = self.at.try_clone().map_err(|error| reason(&error))?;
        self.at = start(target, Some(before))?;
        for name in names(target).into_iter().rev() {
            self.names.push_front(name);
        }
        Ok(())
    }

    /// Opens the link of this name itself, if there is one.
    fn link(&self, name: &OsStr) -> Option<File> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let link = File::from(openat(&self.at, name, flags, Mode::empty()).ok()?);
        link.metadata().is_ok_and(|meta| meta.is_symlink()).then_some(link)
    }

    /// Returns `true` if no other user can put links and files into the directory: for root no user at all, otherwise
    /// none but the directory's owner and its group.
    fn is_ours_alone(&self) -> bool {
        let shared = if self.is_root { SHARED } else { OPEN };
        self.at.metadata().is_ok_and(|meta| meta.mode() & shared == 0 && (!self.is_root || meta.uid() == 0))
    }

    fn is_procfs(&self) -> bool {
        fstatfs(&self.at).is_ok_and(|system| system.filesystem_type() == PROC_SUPER_MAGIC)
    }
}

/// Returns the system's reason in words.
fn reason(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| Errno::from_raw(errno).desc().to_owned())
}
