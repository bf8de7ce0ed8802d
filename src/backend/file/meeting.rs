/*!
The common part of latches and barriers on one host: a file in the lock directory, `KEY.latch` or `KEY.meet` (beside a
file that `?path` names, with its name and that ending). It holds one line of JSON; the rest is left of a longer one.

Readers and writers of the file lock its first byte, for reading or for writing. These are locks of the open file
(`F_OFD_SETLK`), which end with the process and are independent of `flock(2)`.
*/

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::error::Error;
use crate::backend::file::directory::{DirectoryUrl, LockDirectory};
use crate::backend::file::errors::{self, no_lock_file};
use crate::backend::file::ranges::{self, Kind, Range};
use crate::backend::file::watch::Watcher;
use crate::backend::meeting::Meeting;
use crate::clock::{Instant, pause, sleep_until};

/// The suffix of a latch's file.
pub(super) const LATCH: &str = ".latch";
/// The suffix of a barrier's file.
pub(super) const MEET: &str = ".meet";
/// The range that readers and writers of the file lock.
const ALL: Range = Range { start: 0, length: 1 };
/// The interval between attempts to lock the file, which others lock only for a moment.
const TURN: Duration = Duration::from_millis(2);
/// The interval at which a waiter looks again without a notification.
const LOOK: Duration = Duration::from_millis(250);
/// The number of bytes of a file that are read.
const LONGEST: u64 = 4 * 1024 * 1024;

/// Returns the reason why a lock on a byte of the file failed.
pub(super) fn no_byte_lock(errno: Errno) -> String {
    if ranges::is_unknown(errno) { errors::NO_RANGES.to_owned() } else { errno.desc().to_owned() }
}

/// Reads the content of the file; the default if it is empty. The error is the reason why it cannot be read.
pub(super) fn read<T: DeserializeOwned + Default>(mut file: &File) -> Result<T, String> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(LONGEST).read_to_end(&mut text))
        .map_err(|error| errors::unread(&error))?;
    match text.split(|&byte| byte == b'\n').next() {
        None | Some([]) => Ok(T::default()),
        Some(line) => serde_json::from_slice(line).map_err(|_| errors::NOT_OURS.to_owned()),
    }
}

/// Replaces the content of the file with a single write; without enough room, nothing is replaced. The error is the
/// reason of the failure.
pub(super) fn write<T: Serialize>(file: &File, said: &T) -> Result<(), String> {
    let mut text = serde_json::to_string(said).map_err(|error| error.to_string())?;
    text.push('\n');
    let room = reserve(file, text.len());
    let written = room.and_then(|()| file.write_all_at(text.as_bytes(), 0));
    written.and_then(|()| file.set_len(text.len() as u64)).map_err(|error| errors::unwritten(&error))
}

/// Makes sure that this many bytes can be written, if the file system can tell.
fn reserve(file: &File, length: usize) -> io::Result<()> {
    let length = i64::try_from(length).map_err(io::Error::other)?;
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns `true` if the file is empty or begins as dlock's files do.
pub(super) fn is_ours(mut file: &File) -> io::Result<bool> {
    let mut first = [0];
    file.seek(SeekFrom::Start(0))?;
    Ok(file.read(&mut first)? == 0 || matches!(first, [b'{' | b'\n']))
}

/// The open file.
#[derive(Debug)]
struct Sheet {
    file: File,
    path: PathBuf,
    /// `true` if it is open for writing.
    is_writable: bool,
    /// Reports changes of the file.
    watcher: Watcher,
}

impl Sheet {
    /// Returns `true` if it is still the file at its path.
    fn is_in_place(&self) -> bool {
        let there = std::fs::symlink_metadata(&self.path);
        matches!((self.file.metadata(), there), (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino())
    }
}

/// The file of a latch or barrier, and its participant.
#[derive(Debug)]
pub(super) struct Board {
    spot: DirectoryUrl,
    /// `true` if a remote file system is trusted.
    remote: bool,
    /// The participant and the meeting point.
    pub meeting: Meeting,
    /// The suffix of the file's name.
    ending: &'static str,
    /// The directory, and the file's name in it.
    place: Option<(LockDirectory, OsString)>,
    sheet: Option<Sheet>,
    /// Reports new files, while this one does not exist.
    watcher: Option<Watcher>,
}

impl Board {
    /// Returns the file with this `ending` at `spot`, not yet opened.
    pub(super) fn new(spot: DirectoryUrl, remote: bool, meeting: Meeting, ending: &'static str) -> Self {
        Self { spot, remote, meeting, ending, place: None, sheet: None, watcher: None }
    }

    /// Finds the directory, unless it is known already.
    pub(super) fn find(&mut self) -> Result<(), Error> {
        if self.place.is_some() {
            return Ok(());
        }
        let key = self.meeting.key.file_name();
        let key = OsString::from(key.strip_suffix(".lock").unwrap_or(&key));
        let (place, mut name) = match &self.spot {
            DirectoryUrl::Default => (LockDirectory::default_one(self.remote)?, key),
            DirectoryUrl::Directory(path) => (LockDirectory::given(path, self.remote)?, key),
            DirectoryUrl::File(path) => LockDirectory::of_file(path, self.remote)?,
        };
        name.push(self.ending);
        self.place = Some((place, name));
        Ok(())
    }

    /// Opens the file, unless it is open; creates it if this is for writing. Returns `false` if it does not exist.
    fn open(&mut self, writes: bool) -> Result<bool, Error> {
        self.find()?;
        if self.sheet.as_ref().is_some_and(|sheet| sheet.is_writable || !writes) {
            return Ok(true);
        }
        let (place, name) = self.place.as_ref().ok_or_else(errors::directory_not_open)?;
        let path = place.path.join(name);
        let file = if writes {
            place.lock_file(name).map_err(|reason| no_lock_file(&path, &reason))?
        } else {
            // Created before the look, so that a new file is not missed.
            self.watcher.get_or_insert_with(|| Watcher::of_new_files(&place.path));
            match place.existing_file(name).map_err(|reason| no_lock_file(&path, &reason))? {
                Some(file) => file,
                None => return Ok(false),
            }
        };
        let watcher = Watcher::new(&[path.as_path()]);
        (self.sheet, self.watcher) = (Some(Sheet { file, path, is_writable: writes, watcher }), None);
        Ok(true)
    }

    /// Does `work` with the file while no other process writes it, nor reads it if this one `writes`. Returns `None` if
    /// the file does not exist and is not to be created. An error of `work` is its reason.
    pub(super) async fn with<T>(
        &mut self,
        writes: bool,
        work: impl FnOnce(&File) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let kind = if writes { Kind::Write } else { Kind::Read };
        loop {
            if !self.open(writes)? {
                return Ok(None);
            }
            let Some(sheet) = &self.sheet else { return Err(errors::file_not_open()) };
            match ranges::lock(&sheet.file, kind, ALL) {
                Ok(true) if sheet.is_in_place() => {
                    let done = work(&sheet.file).map_err(|reason| no_lock_file(&sheet.path, &reason));
                    // The lock ends with the process at the latest.
                    let _ = ranges::unlock(&sheet.file, ALL);
                    return done.map(Some);
                }
                // The file was replaced or removed.
                Ok(true) => self.sheet = None,
                Ok(false) => pause(TURN).await,
                Err(errno) => return Err(no_lock_file(&sheet.path, &no_byte_lock(errno))),
            }
        }
    }

    /// Does `work` with the file, and removes the file if `work` returns `true`.
    pub(super) async fn with_or_without(
        &mut self,
        work: impl FnOnce(&File) -> Result<bool, String>,
    ) -> Result<(), Error> {
        self.find()?;
        let (place, name) = self.place.as_ref().ok_or_else(errors::directory_not_open)?;
        let path = place.path.join(name);
        // Removed while it is locked: a process that waits to lock it notices that it is not in place.
        let removes = |file: &File| -> Result<(), String> {
            if work(file)? {
                // If that is not allowed, the file stays, without entries.
                let _ = std::fs::remove_file(&path);
            }
            Ok(())
        };
        self.with(true, removes).await?;
        Ok(())
    }

    /// Returns `true` if the file exists.
    pub(super) fn is_there(&self) -> bool {
        let path = self.place.as_ref().map(|(place, name)| place.path.join(name));
        path.is_some_and(|path| std::fs::symlink_metadata(path).is_ok())
    }

    /// Resolves when it is worth looking again.
    pub(super) async fn changed(&self) {
        let limit = Instant::now() + LOOK;
        match self.sheet.as_ref().map(|sheet| &sheet.watcher).or(self.watcher.as_ref()) {
            Some(watcher) => drop(watcher.heard(limit).await),
            None => sleep_until(limit).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_also_before_the_rest_of_a_longer_text() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(read::<Vec<String>>(&file), Ok(Vec::new()), "an empty one");
        let said = vec!["a\nb".to_owned(), "ü".to_owned()];
        write(&file, &said).expect("written");
        assert_eq!(read::<Vec<String>>(&file), Ok(said.clone()));
        let end = file.metadata().expect("metadata").len();
        file.write_all_at(b"rest of a longer one\n", end).expect("written");
        assert_eq!(read::<Vec<String>>(&file), Ok(said));
        file.write_all_at(b"4711\n", 0).expect("written");
        assert_eq!(read::<Vec<String>>(&file), Err(errors::NOT_OURS.to_owned()));
    }
}
