/*!
What latches and barriers on one host have in common: a file in the lock directory, `KEY.latch` or `KEY.meet` (beside a file
that `?path` names, with its name and that ending). It holds one line of JSON; what follows is left of a longer one.

Whoever reads or writes the file has its first byte locked, for reading or for writing. These are locks of the open file
(`F_OFD_SETLK`), which end with the process and have nothing to do with `flock(2)`.
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
use crate::backend::file::directory::{Place, Spot};
use crate::backend::file::errors::{self, no_lock_file};
use crate::backend::file::ranges::{self, Kind, Range};
use crate::backend::file::watch::Watcher;
use crate::backend::meeting::Meeting;
use crate::clock::{Instant, pause, sleep_until};

/// What is locked by whoever reads or writes the file.
const ALL: Range = Range { start: 0, length: 1 };
/// How often it is tried to lock the file, which others have for a moment only.
const TURN: Duration = Duration::from_millis(2);
/// How often a waiter looks again although it has heard nothing.
const LOOK: Duration = Duration::from_millis(250);
/// How much of a file is read.
const LONGEST: u64 = 4 * 1024 * 1024;

/// Why a lock on a byte of the file failed.
pub(super) fn no_byte_lock(errno: Errno) -> String {
    if ranges::is_unknown(errno) { errors::NO_RANGES.to_owned() } else { errno.desc().to_owned() }
}

/// What the file says; the default where it is empty. The error is the reason why that is not known.
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

/// Replaces what the file says with a single write; where there is no room for it, nothing is replaced. The error is the
/// reason why that failed.
pub(super) fn write<T: Serialize>(file: &File, said: &T) -> Result<(), String> {
    let mut text = serde_json::to_string(said).map_err(|error| error.to_string())?;
    text.push('\n');
    let room = reserve(file, text.len());
    let written = room.and_then(|()| file.write_all_at(text.as_bytes(), 0));
    written.and_then(|()| file.set_len(text.len() as u64)).map_err(|error| errors::unwritten(&error))
}

/// Makes sure that so many bytes can be written, where the file system can tell.
fn reserve(file: &File, length: usize) -> io::Result<()> {
    let length = i64::try_from(length).map_err(io::Error::other)?;
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the file says something in the form of dlock, or nothing.
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
    /// Whether it is open for writing.
    is_writable: bool,
    /// Reports what happens to it.
    watcher: Watcher,
}

impl Sheet {
    /// Whether it is still the one at its path.
    fn is_in_place(&self) -> bool {
        let there = std::fs::symlink_metadata(&self.path);
        matches!((self.file.metadata(), there), (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino())
    }
}

/// The file of a latch or barrier, and who takes part.
#[derive(Debug)]
pub(super) struct Board {
    spot: Spot,
    /// Whether a remote file system is trusted.
    remote: bool,
    /// Who takes part, and in what.
    pub meeting: Meeting,
    /// How the name of the file ends.
    ending: &'static str,
    /// The directory, and the file's name in it.
    place: Option<(Place, OsString)>,
    sheet: Option<Sheet>,
    /// Reports new files, while there is no such file.
    watcher: Option<Watcher>,
}

impl Board {
    /// The file with this `ending` at `spot`; not opened yet.
    pub(super) fn new(spot: Spot, remote: bool, meeting: Meeting, ending: &'static str) -> Self {
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
            Spot::Default => (Place::default_one(self.remote)?, key),
            Spot::Directory(path) => (Place::given(path, self.remote)?, key),
            Spot::File(path) => Place::of_file(path, self.remote)?,
        };
        name.push(self.ending);
        self.place = Some((place, name));
        Ok(())
    }

    /// Opens the file, unless that is done; makes it where that is for writing. False where it is not there.
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
            // Before it is looked for, so that it is not missed.
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

    /// Does `work` with the file, which nobody writes meanwhile, and nobody reads either if this one `writes`. None where it is
    /// not there, and is not to be made. An error of `work` is its reason.
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
                    // It ends with the process at the latest.
                    let _ = ranges::unlock(&sheet.file, ALL);
                    return done.map(Some);
                }
                // Another one is in its place, or none.
                Ok(true) => self.sheet = None,
                Ok(false) => pause(TURN).await,
                Err(errno) => return Err(no_lock_file(&sheet.path, &no_byte_lock(errno))),
            }
        }
    }

    /// Does `work` with the file, and removes the file if that says so.
    pub(super) async fn with_or_without(
        &mut self,
        work: impl FnOnce(&File) -> Result<bool, String>,
    ) -> Result<(), Error> {
        self.find()?;
        let (place, name) = self.place.as_ref().ok_or_else(errors::directory_not_open)?;
        let path = place.path.join(name);
        // Removed while it is locked: whoever waits to lock it finds that it is not in its place.
        let removes = |file: &File| -> Result<(), String> {
            if work(file)? {
                // Where that is not allowed, it stays and says that there is nothing.
                let _ = std::fs::remove_file(&path);
            }
            Ok(())
        };
        self.with(true, removes).await?;
        Ok(())
    }

    /// Whether the file is there.
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
