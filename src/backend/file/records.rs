/*!
The records of latches and barriers on one host: see [`records`](crate::backend::meeting::records). They are a file in the
lock directory, `KEY.latch` or `KEY.meet` (beside a file that `?path` names, with its name and that ending). It holds one
line of JSON; the rest is left of a longer one. Whoever removes the last record removes the file.

Readers and writers of the file lock its first byte, for reading or for writing. Each record of a barrier names another
byte, which its party has locked, and ends with that lock. These are locks of the open file (`F_OFD_SETLK`), which end
with the process and are independent of `flock(2)`.
*/

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::backend::file::directory::{DirectoryUrl, LockDirectory};
use crate::backend::file::errors::{self, no_lock_file};
use crate::backend::file::ranges::{self, Kind, Range};
use crate::backend::file::watch::Watcher;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::{Moment, Page, Record, Records};
use crate::clock::{Instant, millis, pause, sleep_until, wall_millis};

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
/// Upper limit of the locked bytes: far more than there can be parties.
const MOST_BYTES: i32 = 10_000;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Content {
    /// The number of the last change: the time when it was made, in milliseconds since 1970, or more.
    version: i64,
    records: Vec<Kept>,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    name: String,
    text: String,
    version: i64,
    /// The end of its life, in milliseconds since 1970, for one of a latch.
    until: Option<u64>,
    /// The byte that its party has locked, for one of a barrier.
    byte: Option<i32>,
}

impl Kept {
    /// Returns `true` if it has not ended; `own` is the byte that is locked through `file` itself.
    fn lives(&self, file: &File, own: Option<i32>) -> Result<bool, String> {
        let Some(byte) = self.byte else { return Ok(self.until.is_some_and(|until| until > wall_millis())) };
        Ok(Some(byte) == own || ranges::conflict(file, range(byte)).map_err(no_byte_lock)?.is_some())
    }
}

fn range(byte: i32) -> Range {
    Range { start: byte, length: 1 }
}

/// Returns the reason why a lock on a byte of the file failed.
fn no_byte_lock(errno: Errno) -> String {
    if ranges::is_unknown(errno) { errors::NO_RANGES.to_owned() } else { errno.desc().to_owned() }
}

/// Reads the records that have not ended; none if the file is empty. `own` is the byte that is locked through `file`
/// itself. The error is the reason why it cannot be read.
fn read(mut file: &File, own: Option<i32>) -> Result<Content, String> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(LONGEST).read_to_end(&mut text))
        .map_err(|error| errors::unread(&error))?;
    let mut content = match text.split(|&byte| byte == b'\n').next() {
        None | Some([]) => Content::default(),
        Some(line) => serde_json::from_slice(line).map_err(|_| errors::NOT_OURS.to_owned())?,
    };
    let mut living = Vec::new();
    for kept in std::mem::take(&mut content.records) {
        if kept.lives(file, own)? {
            living.push(kept);
        }
    }
    Ok(Content { records: living, ..content })
}

/// Returns `true` if the file has a record that has not ended.
pub(super) fn is_in_use(file: &File) -> bool {
    // A writer may have been in the middle of its work.
    read(file, None).or_else(|_| read(file, None)).is_ok_and(|content| !content.records.is_empty())
}

/// Locks and returns a byte that nobody has locked, never the first one.
fn take_byte(file: &File) -> Result<i32, String> {
    for byte in 1..MOST_BYTES {
        if ranges::lock(file, Kind::Write, range(byte)).map_err(no_byte_lock)? {
            return Ok(byte);
        }
    }
    Err("too many processes have locked a byte of it".to_owned())
}

/// Replaces the content of the file with a single write; without enough room, nothing is replaced. The error is the
/// reason of the failure.
fn write(file: &File, content: &Content) -> Result<(), String> {
    let mut text = serde_json::to_string(content).map_err(|error| error.to_string())?;
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
fn is_ours(mut file: &File) -> io::Result<bool> {
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
    /// The byte that is locked through it, for our record.
    byte: Option<i32>,
}

impl Sheet {
    /// Unlocks our record's byte, if we have one.
    fn unlock_byte(&mut self) {
        if let Some(byte) = self.byte.take() {
            // The lock ends with the process at the latest.
            let _ = ranges::unlock(&self.file, range(byte));
        }
    }

    /// Returns `true` if it is still the file at its path.
    fn is_in_place(&self) -> bool {
        let there = std::fs::symlink_metadata(&self.path);
        matches!((self.file.metadata(), there), (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino())
    }
}

/// The records of one latch or barrier, for one dlock.
#[derive(Debug)]
pub(super) struct FileRecords {
    url: DirectoryUrl,
    /// `true` if a remote file system is trusted.
    remote: bool,
    meeting: Meeting,
    /// The suffix of the file's name.
    ending: &'static str,
    /// The directory, and the file's name in it.
    place: Option<(LockDirectory, OsString)>,
    sheet: Option<Sheet>,
    /// Reports new files, while this one does not exist.
    watcher: Option<Watcher>,
}

impl FileRecords {
    /// Returns the records in the file with this `ending` at `url`, not yet opened.
    pub(super) fn new(url: DirectoryUrl, remote: bool, meeting: Meeting, ending: &'static str) -> Self {
        Self { url, remote, meeting, ending, place: None, sheet: None, watcher: None }
    }

    /// Finds the directory, unless it is known already.
    fn find(&mut self) -> Result<(), Error> {
        if self.place.is_some() {
            return Ok(());
        }
        let key = self.meeting.key.file_name();
        let key = OsString::from(key.strip_suffix(".lock").unwrap_or(&key));
        let (place, mut name) = match &self.url {
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
        (self.sheet, self.watcher) = (Some(Sheet { file, path, is_writable: writes, watcher, byte: None }), None);
        Ok(true)
    }

    /// Does `work` with the file while no other process writes it, nor reads it if this one `writes`. Returns `None` if
    /// the file does not exist and is not to be created. An error of `work` is its reason.
    async fn with<T>(
        &mut self,
        writes: bool,
        work: impl FnOnce(&mut Sheet) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let kind = if writes { Kind::Write } else { Kind::Read };
        loop {
            if !self.open(writes)? {
                return Ok(None);
            }
            let Some(sheet) = &mut self.sheet else { return Err(errors::file_not_open()) };
            match ranges::lock(&sheet.file, kind, ALL) {
                Ok(true) if sheet.is_in_place() => {
                    let done = work(sheet).map_err(|reason| no_lock_file(&sheet.path, &reason));
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

    /// Makes a `change` to the records, and returns `true`, unless it returns `false`. The file is removed if it has
    /// none left.
    async fn change(
        &mut self,
        change: impl FnOnce(&mut Content, &mut Sheet) -> Result<bool, String>,
    ) -> Result<bool, Error> {
        let work = |sheet: &mut Sheet| {
            let (byte, mut content) = (sheet.byte, read(&sheet.file, sheet.byte)?);
            content.version = i64::try_from(wall_millis()).unwrap_or_default().max(content.version.saturating_add(1));
            if !change(&mut content, sheet)? {
                return Ok(false);
            }
            if let Err(reason) = write(&sheet.file, &content) {
                if byte.is_none() {
                    // Another record, which has ended, may still name it.
                    sheet.unlock_byte();
                }
                return Err(reason);
            }
            if content.records.is_empty() {
                // While it is locked: a process that waits to lock it notices that it is not in place. If it cannot be
                // removed, it stays, without records.
                let _ = std::fs::remove_file(&sheet.path);
            }
            Ok(true)
        };
        Ok(self.with(true, work).await?.unwrap_or_default())
    }

    /// Returns `true` if the file exists.
    fn is_there(&mut self) -> Result<bool, Error> {
        self.find()?;
        let path = self.place.as_ref().map(|(place, name)| place.path.join(name));
        Ok(path.is_some_and(|path| std::fs::symlink_metadata(path).is_ok()))
    }
}

#[async_trait::async_trait(?Send)]
impl Records for FileRecords {
    fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.find()
    }

    async fn read(&mut self, most: usize) -> Result<Page, Error> {
        let read = self.with(false, |sheet| read(&sheet.file, sheet.byte)).await?;
        let Content { version, records } = read.unwrap_or_default();
        let count = records.len().try_into().unwrap_or(u64::MAX);
        let mut records: Vec<Record> =
            records.into_iter().map(|Kept { name, text, version, .. }| Record { name, text, version }).collect();
        records.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        records.truncate(most);
        Ok(Page { records, count, moment: Moment { version, micros: 0 } })
    }

    async fn put(&mut self, name: &str, text: &str, life: Duration, seen: Option<Moment>) -> Result<bool, Error> {
        let removes = life.is_zero();
        if removes && !self.is_there()? {
            return Ok(true);
        }
        let until = wall_millis().saturating_add(millis(life));
        let put = |content: &mut Content, sheet: &mut Sheet| {
            let newer = |kept: &Kept| kept.name == name && seen.is_some_and(|seen| kept.version > seen.version);
            if content.records.iter().any(newer) {
                return Ok(false);
            }
            content.records.retain(|kept| kept.name != name);
            if removes {
                sheet.unlock_byte();
                return Ok(true);
            }
            // One that has ended is gone from the content by now: its byte can be taken.
            if seen.is_some() && sheet.byte.is_none() {
                sheet.byte = Some(take_byte(&sheet.file)?);
            }
            let (until, byte) = if seen.is_some() { (None, sheet.byte) } else { (Some(until), None) };
            let (name, text, version) = (name.to_owned(), text.to_owned(), content.version);
            content.records.push(Kept { name, text, version, until, byte });
            Ok(true)
        };
        self.change(put).await
    }

    async fn amend(&mut self, records: &[Record], _seen: Moment) -> Result<bool, Error> {
        if !self.is_there()? {
            return Ok(false);
        }
        let amend = |content: &mut Content, _: &mut Sheet| {
            for Record { name, text, version } in records {
                let there = content.records.iter_mut().find(|kept| kept.name == *name && kept.version == *version);
                let Some(kept) = there else { return Ok(false) };
                (kept.text, kept.version) = (text.clone(), content.version);
            }
            Ok(true)
        };
        self.change(amend).await
    }

    async fn clear(&mut self) -> Result<(), Error> {
        if !self.is_there()? {
            return Ok(());
        }
        let clear = |sheet: &mut Sheet| match is_ours(&sheet.file) {
            Ok(true) => {
                write(&sheet.file, &Content::default())?;
                // If that is not allowed, the file stays, without records.
                let _ = std::fs::remove_file(&sheet.path);
                Ok(())
            }
            Ok(false) => Err(errors::NOT_OURS.to_owned()),
            Err(error) => Err(errors::unread(&error)),
        };
        self.with(true, clear).await.map(drop)
    }

    async fn changed(&mut self, _at_most: Duration) -> Result<(), Error> {
        let limit = Instant::now() + LOOK;
        match self.sheet.as_ref().map(|sheet| &sheet.watcher).or(self.watcher.as_ref()) {
            Some(watcher) => drop(watcher.notified(limit).await),
            None => sleep_until(limit).await,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn kept(name: &str, until: Option<u64>, byte: Option<i32>) -> Kept {
        Kept { name: name.to_owned(), until, byte, ..Kept::default() }
    }

    #[test]
    fn what_is_written_is_read_back_also_before_the_rest_of_a_longer_text() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(read(&file, None), Ok(Content::default()), "an empty one");
        let ended = wall_millis();
        let content =
            Content { version: 7, records: vec![kept("a\nb", Some(u64::MAX), None), kept("ü", Some(ended), None)] };
        write(&file, &content).expect("written");
        let living = Content { records: content.records[..1].to_vec(), ..content };
        assert_eq!(read(&file, None), Ok(living.clone()));
        let end = file.metadata().expect("metadata").len();
        file.write_all_at(b"rest of a longer one\n", end).expect("written");
        assert_eq!(read(&file, None), Ok(living));
        file.write_all_at(b"4711\n", 0).expect("written");
        assert_eq!(read(&file, None), Err(errors::NOT_OURS.to_owned()));
    }

    #[test]
    fn a_record_lives_as_long_as_its_byte_is_locked() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("file");
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let open = || options.open(&path).expect("opened");
        let (one, other, looker) = (open(), open(), open());
        let bytes = [&one, &other].map(|file| take_byte(file).expect("a byte"));
        assert_eq!(bytes, [1, 2]);
        let records = vec![kept("a", None, Some(1)), kept("b", None, Some(2)), kept("c", None, Some(7))];
        write(&one, &Content { version: 1, records }).expect("written");
        let alive = |file: &File, own: Option<i32>| {
            let content = read(file, own).expect("read");
            content.records.iter().map(|kept| kept.name.clone()).collect::<String>()
        };
        assert_eq!(alive(&one, Some(1)), "ab", "our own lock does not show");
        assert_eq!(alive(&looker, None), "ab");
        drop(other);
        assert_eq!(alive(&looker, None), "a");
    }
}
