/*!
Looks at lock files without opening them for writing and without locking them: even a momentary `flock(2)` would make
another contender's attempt fail. The kernel's table shows which processes hold a lock or wait for it, and the file
shows who they are; [`seen`](crate::backend::file::seen) combines both.
*/

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::backend::error::Error;
use crate::backend::file::content::COUNTER;
use crate::backend::file::directory::{DirectoryUrl, LockDirectory};
use crate::backend::file::errors::{no_lock_file, no_look, unwritten};
use crate::backend::file::kernel::{KernelLocks, command_name, name, table};
use crate::backend::file::records::{LATCH, MEET, is_in_use};
use crate::backend::file::seats::taken;
use crate::backend::file::seen::{Found, Processes};
use crate::backend::file::text::{header, numbers, record};
use crate::backend::file::{ranges, requests};
use crate::backend::survey::{Kind, Location, Meetings, Names, Party, Smallest, Snapshot, State, Successes, Survey};
use crate::clock::wall_millis;
use crate::here::{namespace, numbers_of, sees_all, start_of, user_of};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::holder::{BESIDE, Holder, Published};
use crate::key::Key;
use crate::lock::admission::Mode;

/// The suffix of lock files' names.
const LOCK: &str = ".lock";

/// A look at lock files in one directory, or at one file.
pub(super) struct FileSurvey {
    url: DirectoryUrl,
    remote: bool,
    /// The directory, and the file's name in it unless the key determines that; `None` if there is no directory.
    place: Option<(LockDirectory, Option<OsString>)>,
    /// File names that are not UTF-8, keyed by the displayed path.
    odd: BTreeMap<String, OsString>,
}

/// The object at the path of a lock file.
enum There {
    Nothing,
    /// Something other than a file, with a description.
    Other(&'static str),
    Lock(Box<Files>),
}

/// A lock file, and the file with counter and holders, if it exists; each is open for reading if that is allowed.
struct Files {
    about: Metadata,
    file: Option<File>,
    beside: Option<Metadata>,
    gate: Option<File>,
    is_local: bool,
    /// `true` if it has content after the counter that may not be read.
    is_closed: bool,
}

/// Returns the process `pid` as a party that holds a lock or waits for it.
fn process(pid: i32, mode: Option<Mode>) -> Party {
    let mark = format!("{pid} {}", start_of(pid).unwrap_or_default());
    let mut party = Party::new(Holder::Process(pid, command_name(pid)), mark);
    (party.mode, party.user, party.alive) = (mode, user_of(pid), Some(true));
    party
}

/// This host's knowledge of processes.
const HERE: Processes = Processes { process, numbers: numbers_of, is_unseen, sees_all };
/// This host's knowledge of processes, for lists: a lock file without a visible or recorded holder is no lock there.
const LISTED: Processes = Processes { sees_all: || true, ..HERE };

/// Returns `true` if a holder may be in a PID namespace whose locks the kernel does not show here.
fn is_unseen(said: &Published) -> bool {
    !sees_all() && (said.about.ns.is_none() || said.about.ns != namespace())
}

impl Files {
    /// Returns what the files and the kernel's `table` say about the lock.
    fn read(&self, table: &str) -> Found {
        let locks = KernelLocks::parse(table, &name(&self.about), &name(self.beside.as_ref().unwrap_or(&self.about)));
        let alone = self.gate.as_ref().and_then(|gate| header(gate).ok()).map(|content| content.record);
        let file = self.file.as_ref().filter(|_| self.is_local);
        let found = file.map_or(Ok(None), |file| taken(|range| ranges::conflict(file, range)));
        let of_seat = |gate| numbers(gate).filter_map(move |number| Some((number, record(gate, number)?)));
        Found {
            locks,
            alone: alone.unwrap_or_default(),
            seats: found.ok().flatten().unwrap_or_default(),
            records: self.gate.iter().flat_map(of_seat).collect(),
            is_local: self.is_local,
            is_closed: self.is_closed,
        }
    }
}

/// Returns the metadata of the file `name` in `place`, and the file if it may be read; `None` if it does not exist.
fn existing(place: &LockDirectory, name: &OsStr) -> Result<Option<(Metadata, Option<File>)>, Error> {
    let path = place.path.join(name);
    let about = match std::fs::symlink_metadata(&path) {
        Ok(about) => about,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(no_look(&path, Errno::EACCES)),
        Err(error) => return Err(no_lock_file(&path, &error.to_string())),
    };
    if !about.is_file() {
        return Ok(Some((about, None)));
    }
    match place.existing(name) {
        Ok(file) => Ok(Some((file.metadata().unwrap_or(about), Some(file)))),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::EACCES | Errno::EPERM) => Ok(Some((about, None))),
        Err(errno) => Err(no_lock_file(&path, errno.desc())),
    }
}

/// Describes a file of this type that is in the way of a lock file; `None` for a regular file.
fn in_the_way(kind: FileType) -> Option<&'static str> {
    match () {
        () if kind.is_file() => None,
        () if kind.is_symlink() => Some("a symbolic link at the lock file's path"),
        () if kind.is_dir() => Some("a directory at the lock file's path"),
        () if kind.is_fifo() => Some("a FIFO at the lock file's path"),
        () if kind.is_socket() => Some("a socket at the lock file's path"),
        () => Some("a device at the lock file's path"),
    }
}

impl FileSurvey {
    /// Looks at the locks at `url`; `remote` trusts a remote file system.
    pub(super) fn new(url: DirectoryUrl, remote: bool) -> Self {
        Self { url, remote, place: None, odd: BTreeMap::new() }
    }

    /// Returns the path that the lock with this key has or would have.
    fn path(&self, key: &Key) -> PathBuf {
        match (&self.place, &self.url) {
            (_, DirectoryUrl::File(path)) => path.clone(),
            (Some((place, _)), _) => place.path.join(key.file_name()),
            (None, _) => PathBuf::from(key.file_name()),
        }
    }

    /// Returns the file name of the lock at this path.
    fn name<'a>(&'a self, path: &'a str) -> &'a OsStr {
        let given = self.place.as_ref().and_then(|(_, name)| name.as_ref());
        let name = given.or_else(|| self.odd.get(path)).map(OsString::as_os_str);
        name.or_else(|| Path::new(path).file_name()).unwrap_or_default()
    }

    /// Opens the file of this name.
    fn open(&self, name: &OsStr) -> Result<There, Error> {
        let Some((place, given)) = &self.place else { return Ok(There::Nothing) };
        let Some((about, file)) = existing(place, name)? else { return Ok(There::Nothing) };
        if let Some(what) = in_the_way(about.file_type()) {
            return Ok(There::Other(what));
        }
        let is_unread =
            |about: &Metadata, file: &Option<File>| file.is_none() && about.is_file() && about.len() > COUNTER;
        let lock = |beside, gate, is_closed| {
            let (about, file) = (about.clone(), file.as_ref().and_then(|file| file.try_clone().ok()));
            There::Lock(Box::new(Files { about, file, beside, gate, is_local: place.is_local, is_closed }))
        };
        if given.is_none() {
            let gate = file.as_ref().and_then(|file| file.try_clone().ok());
            return Ok(lock(Some(about.clone()), gate, is_unread(&about, &file)));
        }
        let mut beside = name.to_owned();
        beside.push(BESIDE);
        Ok(match existing(place, &beside)? {
            Some((about, gate)) => {
                let is_closed = is_unread(&about, &gate);
                lock(Some(about), gate, is_closed)
            }
            None => lock(None, None, false),
        })
    }

    /// Returns the state of the lock in the file of this name, by the kernel's `table` and by `processes`, and `true`
    /// if it has content that may not be read.
    fn inspect(
        &self,
        location: Location,
        name: &OsStr,
        table: &str,
        processes: &Processes,
    ) -> Result<(Snapshot, bool), Error> {
        let now = wall_millis();
        Ok(match self.open(name)? {
            There::Nothing => (Snapshot::free(location, now), false),
            There::Other(what) => {
                (Snapshot { state: State::Blocked(what.to_owned()), ..Snapshot::free(location, now) }, false)
            }
            There::Lock(files) => {
                let mut seen = files.read(table).seen(location, now, processes);
                for holder in &mut seen.holders {
                    let requests = files.gate.as_ref().zip(holder.who.id());
                    holder.asked = requests.and_then(|(gate, id)| requests::find(gate, id));
                }
                (seen, files.is_closed)
            }
        })
    }

    /// Returns the last success that the file of this name records, if it is a readable lock file.
    fn success(&self, name: &OsStr) -> Result<Option<Done>, Error> {
        let There::Lock(files) = self.open(name)? else { return Ok(None) };
        let content = files.gate.as_ref().and_then(|gate| header(gate).ok());
        Ok(content.and_then(|content| content.done.into_iter().max_by_key(|done| done.at)))
    }

    /// Reads the kernel's table of locks.
    fn table() -> Result<String, Error> {
        table().ok_or_else(|| Error::unavailable("could not read /proc/locks: mount /proc to see who holds a lock"))
    }
}

/// The error for a directory that cannot be listed.
fn unlisted(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => no_look(path, Errno::EACCES),
        _ => no_lock_file(path, &error.to_string()),
    }
}

/// Returns `true` if the lock of this file may be held or blocked, by the kernel's table or by its content: a file that
/// nobody holds has only the counter, successes in periods, and the last break.
fn may_be_held(directory: &Path, file: &OsStr, table: &str) -> bool {
    // An unreachable file is left to the look itself.
    let Ok(about) = std::fs::symlink_metadata(directory.join(file)) else { return true };
    !about.is_file() || about.len() > COUNTER || table.contains(&format!(" {} ", name(&about)))
}

#[async_trait::async_trait(?Send)]
impl Survey for FileSurvey {
    async fn connect(&mut self) -> Result<(), Error> {
        if self.place.is_some() {
            return Ok(());
        }
        self.place = match &self.url {
            DirectoryUrl::Default => LockDirectory::to_look(None, self.remote)?.map(|place| (place, None)),
            DirectoryUrl::Directory(path) => {
                LockDirectory::to_look(Some(path), self.remote)?.map(|place| (place, None))
            }
            DirectoryUrl::File(path) => {
                let real = path.canonicalize().unwrap_or_else(|_| path.clone());
                let (directory, name) = (real.parent().unwrap_or(Path::new("/")), real.file_name().unwrap_or_default());
                LockDirectory::to_look(Some(directory), self.remote)?.map(|place| (place, Some(name.to_owned())))
            }
        };
        Ok(())
    }

    fn place(&self) -> Option<String> {
        let directory = self.place.as_ref().map_or_else(LockDirectory::default_path, |(place, _)| place.path.clone());
        (self.url == DirectoryUrl::Default).then(|| format!("file://{}", directory.display()))
    }

    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let path = self.path(key);
        let location = Location::of(key, path.display().to_string());
        let name = self.name(path.to_str().unwrap_or_default());
        let (seen, is_closed) = self.inspect(location, name, &Self::table()?, &HERE)?;
        // Another user may be able to tell.
        if is_closed && seen.state == State::Unknown { Err(no_look(&path, Errno::EACCES)) } else { Ok(seen) }
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        let path = self.path(key);
        let there = self.open(self.name(path.to_str().unwrap_or_default()))?;
        let There::Lock(files) = there else { return Ok(None) };
        Ok(files.gate.as_ref().and_then(requests::trace))
    }

    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        let path = self.path(key);
        self.success(self.name(path.to_str().unwrap_or_default()))
    }

    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        let mut found = Successes::default();
        let Some((place, name)) = &self.place else { return Ok(found) };
        if let (Some(name), DirectoryUrl::File(path)) = (name, &self.url) {
            let location = Location { key: None, place: path.display().to_string() };
            self.success(name)?.into_iter().for_each(|done| found.add(location.clone(), done));
            return Ok(found);
        }
        let refused = |error: std::io::Error| unlisted(&place.path, &error);
        for entry in std::fs::read_dir(&place.path).map_err(refused)? {
            let file = entry.map_err(refused)?.file_name();
            let Some(stem) = file.to_str().and_then(|file| file.strip_suffix(LOCK)) else { continue };
            let location = Location::read(stem, place.path.join(&file).display().to_string());
            if location.key.as_ref().map_or(prefix.is_empty(), |key| key.starts_with(prefix))
                && let Some(done) = self.success(&file)?
            {
                found.add(location, done);
            }
        }
        Ok(found)
    }

    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error> {
        let mut found = Meetings::of(prefix);
        let Some((place, name)) = &self.place else { return Ok(found) };
        let refused = |error: std::io::Error| unlisted(&place.path, &error);
        let files = if let Some(name) = name {
            // Those beside a file that is named by its path.
            [LATCH, MEET].map(|ending| [name.as_os_str(), OsStr::new(ending)].join(OsStr::new(""))).into()
        } else {
            let files = std::fs::read_dir(&place.path).map_err(refused)?;
            files.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>, _>>().map_err(refused)?
        };
        for file in files {
            let mut kinds = [(Kind::Latch, LATCH), (Kind::Barrier, MEET)].into_iter();
            let read = |(kind, ending): (Kind, &str)| Some((kind, file.as_bytes().strip_suffix(ending.as_bytes())?));
            let Some((kind, stem)) = kinds.find_map(read) else { continue };
            let path = place.path.join(&file);
            let shown = path.display().to_string();
            let location = match std::str::from_utf8(stem) {
                Ok(stem) if name.is_none() => Location::read(stem, shown),
                _ => Location { key: None, place: shown },
            };
            let is_file = || std::fs::symlink_metadata(&path).is_ok_and(|about| about.is_file());
            if !found.wants(&location) || !is_file() {
                continue;
            }
            let opened = place.existing_file(&file).map_err(|reason| no_lock_file(&path, &reason))?;
            if opened.is_some_and(|file| is_in_use(&file)) {
                found.add(kind, location);
            }
        }
        Ok(found)
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let (table, mut smallest, mut total) = (Self::table()?, Smallest::new(most), 0);
        let complete = |smallest: Smallest, total| Names { is_partial: !sees_all(), ..smallest.names(Some(total)) };
        let Some((place, name)) = &self.place else { return Ok(complete(smallest, 0)) };
        if name.is_some() {
            // Its path is its only name.
            if let DirectoryUrl::File(path) = &self.url {
                smallest.add(Location { key: None, place: path.display().to_string() });
            }
            return Ok(complete(smallest, 1));
        }
        let refused = |error: std::io::Error| unlisted(&place.path, &error);
        let mut odd = BTreeMap::new();
        for entry in std::fs::read_dir(&place.path).map_err(refused)? {
            let file = entry.map_err(refused)?.file_name();
            let Some(stem) = file.as_bytes().strip_suffix(LOCK.as_bytes()) else { continue };
            let shown = place.path.join(&file).display().to_string();
            let location = match std::str::from_utf8(stem) {
                Ok(stem) => Location::read(stem, shown),
                Err(_) => Location { key: None, place: shown },
            };
            let is_wanted = location.key.as_ref().map_or(prefix.is_empty(), |key| key.starts_with(prefix));
            if !is_wanted || !may_be_held(&place.path, &file, &table) {
                continue;
            }
            if file.to_str().is_none() {
                odd.insert(location.place.clone(), file.clone());
            }
            if self.inspect(location.clone(), &file, &table, &LISTED)?.0.state != State::Free {
                smallest.add(location);
                total += 1;
            }
        }
        let names = complete(smallest, total);
        self.odd = odd;
        Ok(names)
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        // The lock file outlives its holders: only the named owner honors the appended request.
        let seen = self.look(key).await?;
        if !seen.holders.iter().any(|holder| holder.who.id().is_some() && holder.who.id() == party.who.id()) {
            return Ok(false);
        }
        let (Some((place, _)), path) = (&self.place, self.path(key)) else { return Ok(false) };
        let name = match (&self.url, &self.place) {
            (DirectoryUrl::File(_), Some((_, Some(name)))) => {
                let mut beside = name.clone();
                beside.push(BESIDE);
                beside
            }
            _ => path.file_name().unwrap_or_default().to_owned(),
        };
        let failed = |reason: String| no_lock_file(&place.path.join(&name), &reason);
        let Some(file) = place.appended(&name).map_err(failed)? else { return Ok(false) };
        requests::append(&file, ask).map_err(|error| failed(unwritten(&error)))?;
        Ok(true)
    }

    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error> {
        let (table, mut found) = (Self::table()?, Vec::with_capacity(locations.len()));
        for location in locations {
            let (mut seen, _) = self.inspect(location.clone(), self.name(&location.place), &table, &LISTED)?;
            seen.queue.clear();
            found.extend(Some(seen).filter(|seen| seen.state != State::Free));
        }
        Ok(found)
    }
}
