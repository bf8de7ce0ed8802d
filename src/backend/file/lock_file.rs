/*!
An open lock file: taking its lock, and the counter and the holder that are written down while it is held.
*/

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::oneshot;

use crate::backend::file::content::{Content, MARK};
use crate::backend::file::directory::Place;
use crate::backend::file::errors::{self, no_lock_file};
use crate::backend::file::floor;
use crate::backend::file::kept::Kept;
use crate::backend::file::kernel::{KernelLocks, command_name, flock, unlock, wait_in_kernel};
use crate::backend::{Busy, Claim, Error, Queue, Released, Used};
use crate::clock::{Instant, wall_micros};
use crate::holder::{BESIDE, Holder, finished};
use crate::printable::MAX_SHOWN;

/// An open lock file.
#[derive(Debug)]
pub(super) struct LockFile {
    /// The file that is locked.
    file: File,
    path: PathBuf,
    /// The path that the user gave, which may lead elsewhere by now; none for the lock file of a key.
    given: Option<PathBuf>,
    /// The name of the file for counter and holder, where they are not in the locked file itself.
    beside: Option<OsString>,
    /// That file, while the lock is held.
    record: Option<File>,
    /// Whether a reboot of this host removes it.
    is_volatile: bool,
    /// Our place in the kernel's queue: receives the result of a thread that is blocked in `flock(2)`.
    queued: Option<oneshot::Receiver<io::Result<()>>>,
    /// The granted token while the lock is ours.
    token: Option<u64>,
    /// What is published while the lock is ours.
    published: String,
    /// Until when this lock stays taken once it is ours, if longer than it is in use.
    kept: Option<Kept>,
    /// When an earlier run's hold is over, while we wait for that with the file locked.
    free_at: Option<Instant>,
}

/// What came of taking a lock whose file is locked.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is ours: the token, and what to warn of.
    Held(u64, Option<String>),
    /// An earlier run keeps it taken for so long.
    Kept(Holder, Duration),
}

impl LockFile {
    /// The lock file `name` of dlock in `place`, created if it does not exist.
    pub(super) fn of_key(place: &Place, name: &str) -> Result<Self, Error> {
        let path = place.path.join(name);
        let file = place.lock_file(name.as_ref()).map_err(|reason| no_lock_file(&path, &reason))?;
        Ok(Self::new(place, path, file, None))
    }

    /// The file `name` in `place`, which may be anybody's, created if it does not exist. Counter and holder are in a file
    /// beside it: programs that lock a file may write to it, or empty it. `given` is the path that led there, and `remote` is
    /// as [`Place::named_file`] has it.
    pub(super) fn named(place: &Place, name: &OsString, given: &Path, remote: bool) -> Result<Self, Error> {
        let path = place.path.join(name);
        let file = place.named_file(name, remote).map_err(|reason| no_lock_file(&path, &reason))?;
        let mut beside = name.clone();
        beside.push(BESIDE);
        Ok(Self { given: Some(given.to_owned()), ..Self::new(place, path, file, Some(beside)) })
    }

    fn new(place: &Place, path: PathBuf, file: File, beside: Option<OsString>) -> Self {
        let is_volatile = place.is_volatile;
        Self {
            file,
            path,
            given: None,
            beside,
            record: None,
            is_volatile,
            queued: None,
            token: None,
            published: String::new(),
            kept: None,
            free_at: None,
        }
    }

    /// The file's path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The locked descriptor, while the lock is ours.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.token.map(|_| self.file.as_fd())
    }

    /// Whether the lock is ours, as far as is known.
    pub(super) fn is_ours(&self) -> bool {
        self.token.is_some()
    }

    /// Resolves when the thread that waits in the kernel's queue is done; at once where there is none.
    pub(super) async fn queue_moved(&mut self) {
        let Some(queued) = &mut self.queued else { return };
        // The attempt that follows looks into the file's own state: put the answer back there.
        let answer = (&mut *queued).await;
        let (done, receiver) = oneshot::channel();
        // The receiver is alive: it is in this scope.
        let _ = done.send(answer.unwrap_or_else(|_| Err(io::Error::other("the waiting thread ended"))));
        *queued = receiver;
    }

    /// Whether a thread waits in the kernel's queue.
    pub(super) fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    /// When an earlier run's hold is over, while we wait for that.
    pub(super) fn free_at(&self) -> Option<Instant> {
        self.free_at
    }

    /// Unlocks the file if it is locked only because we wait for the end of an earlier run's hold.
    pub(super) fn let_go(&mut self) -> Result<(), Error> {
        if self.free_at.take().is_some() { self.unlock() } else { Ok(()) }
    }

    /// Gives the lock back if it is ours.
    pub(super) fn release(mut self, used: Used) -> Result<Released, Error> {
        self.let_go()?;
        let Some(token) = self.token.take() else { return Ok(Released::NotMine) };
        let mine = self.is_in_place();
        let kept = self.kept.as_ref().filter(|kept| used == Used::Yes && kept.left().is_some());
        let is_kept = kept.is_some();
        if mine {
            // Best effort: a leftover text names a holder that `/proc/locks` does not confirm. A nested run that is left must
            // not take one for its outer run.
            let text = kept.map(|_| finished(&self.published)).unwrap_or_default();
            let _ = write(self.record.as_ref().unwrap_or(&self.file), token, &text, kept);
        }
        // Explicitly, because a daemon that the command left behind may have inherited the descriptor.
        self.unlock()?;
        Ok(match (mine, is_kept) {
            (true, true) => Released::Kept,
            (true, false) => Released::Freed,
            (false, _) => Released::NotMine,
        })
    }

    fn unlock(&self) -> Result<(), Error> {
        unlock(&self.file).map_err(|error| no_lock_file(&self.path, &error.to_string()))
    }

    /// Tries to take the lock, and returns whether it is held now. With [`Queue::Join`] a thread waits for it in the
    /// kernel's queue from then on.
    pub(super) fn try_lock(&mut self, queue: Queue) -> io::Result<bool> {
        if self.token.is_some() || self.free_at.is_some() {
            return Ok(true);
        }
        if let Some(queued) = &mut self.queued {
            return match queued.try_recv() {
                Ok(answer) => {
                    self.queued = None;
                    answer.map(|()| true)
                }
                Err(oneshot::error::TryRecvError::Empty) => Ok(false),
                Err(oneshot::error::TryRecvError::Closed) => Err(io::Error::other("the waiting thread ended")),
            };
        }
        match flock(&self.file, libc::LOCK_EX | libc::LOCK_NB) {
            Err(Errno::EWOULDBLOCK) if queue == Queue::Join => {
                self.queued = Some(wait_in_kernel(self.file.try_clone()?)?);
                Ok(false)
            }
            Err(Errno::EWOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(true),
        }
    }

    /// Whether the file is still the one at its path, by all symbolic links that the user's path goes through.
    pub(super) fn is_in_place(&self) -> bool {
        let ours = self.file.metadata();
        let there = match &self.given {
            Some(given) => std::fs::metadata(given),
            None => std::fs::symlink_metadata(&self.path),
        };
        matches!((ours, there), (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino())
    }

    /// Writes down the new token and the holder, unless an earlier run keeps the lock taken; the file must be locked, and it
    /// stays so. Where it fails, nothing was changed and the lock is given back.
    pub(super) fn take(&mut self, place: &Place, claim: &Claim) -> Result<Taken, Error> {
        if let Some(token) = self.token {
            return Ok(Taken::Held(token, None));
        }
        // While we have the file locked the hold does not grow, whatever this process's clock makes of it.
        let free_at = self.free_at.take();
        match self.write_down(place, claim, free_at.is_some_and(|at| at <= Instant::now())) {
            Ok(came) => {
                match &came {
                    Taken::Held(token, _) => self.token = Some(*token),
                    Taken::Kept(_, left) => {
                        let at = Instant::now() + *left;
                        self.free_at = Some(free_at.map_or(at, |before| before.min(at)));
                    }
                }
                Ok(came)
            }
            Err(error) => {
                // It ends with the process at the latest.
                let _ = unlock(&self.file);
                Err(error)
            }
        }
    }

    fn write_down(&mut self, place: &Place, claim: &Claim, waited: bool) -> Result<Taken, Error> {
        let path = match &self.beside {
            None => self.path.clone(),
            Some(name) => {
                // Its own counter would be passed over, and that lock's next holder would pass over ours.
                let is_ours = read(&self.file).is_ok_and(|content| content.starts_with(MARK.as_bytes()));
                if is_ours {
                    return Err(no_lock_file(&self.path, errors::OURS));
                }
                let path = place.path.join(name);
                // Only now: before it was locked, the file could have been replaced.
                self.record = Some(place.lock_file(name).map_err(|reason| no_lock_file(&path, &reason))?);
                path
            }
        };
        let record = self.record.as_ref().unwrap_or(&self.file);
        let (mut kept, mut published) = (None, String::new());
        let mut write_down = || {
            let content = Content::parse(&read(record)?)?;
            if let Some((holder, left)) = content.finished().filter(|_| !waited) {
                return Ok(Taken::Kept(holder, left));
            }
            let (clock, mut concern) = (wall_micros(), None);
            let token = content.token(|counter| {
                let (token, warning) = self.next_token(counter, clock);
                concern = warning;
                token
            })?;
            let text = claim.text(token, wall_micros() / 1000);
            kept = Kept::from_now(claim.min_hold);
            write(record, token, &text, kept.as_ref()).map_err(|error| errors::unwritten(&error))?;
            published = text;
            Ok(Taken::Held(token, concern))
        };
        let taken = write_down().map_err(|reason: String| no_lock_file(&path, &reason));
        (self.kept, self.published) = (kept, published);
        taken
    }

    fn next_token(&self, counter: u64, clock: u64) -> (u64, Option<String>) {
        if self.is_volatile && nix::unistd::geteuid().is_root() {
            floor::token(Path::new(floor::PLACE), counter, clock)
        } else {
            (clock.max(counter + 1), None)
        }
    }

    /// Finds out who holds the lock, and our place in the queue.
    pub(super) fn look(&self, place: &Place, claim: &Claim) -> Busy {
        let record = self.beside.as_ref().map(|name| place.existing_file(name));
        let content = match &record {
            None => read(&self.file).ok(),
            Some(record) => record.as_ref().and_then(|record| read(record).ok()),
        };
        let content = content.and_then(|content| Content::parse(&content).ok());
        let finished = content.as_ref().and_then(Content::finished);
        let published = content.map(|content| content.holder);
        let locks = self.file.metadata().ok().and_then(|meta| KernelLocks::find(meta.dev(), meta.ino()));
        let holder = match (published.as_deref(), locks.as_ref().and_then(|locks| locks.holder)) {
            // The kernel knows the process that took the lock; the text may be left over from a dlock that was killed.
            (published, Some(pid)) => match (published.map(Holder::read), finished) {
                (Some(Holder::Dlock(published)), _) if published.about.pid == pid => Holder::Dlock(published),
                // The first in line has it until the hold of the one before is over.
                (_, Some((holder, _))) if command_name(pid) == "dlock" => holder,
                _ => Holder::Process(pid, command_name(pid)),
            },
            (Some(_), None) if finished.is_some() => finished.map_or(Holder::Unknown, |(holder, _)| holder),
            (Some(published), None) if !published.is_empty() => Holder::read(published),
            _ => Holder::Unknown,
        };
        let position = self.queued.as_ref().map(|_| {
            let before = locks.map_or(0, |locks| {
                locks.waiting.iter().position(|&pid| pid == claim.about.pid).unwrap_or(locks.waiting.len())
            });
            before as u64 + 1
        });
        Busy { holder, position, now: wall_micros() / 1000 }
    }
}

/// Reads as much of a file as a lock file can hold.
fn read(mut file: &File) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(2 * MAX_SHOWN as u64).read_to_end(&mut content))
        .map_err(|error| errors::unread(&error))?;
    Ok(content)
}

/// Replaces the content of `file` with a single write, so that a reader without the lock sees the old or the new text.
/// What is left of a longer one is cut off afterwards.
fn write(file: &File, counter: u64, holder: &str, kept: Option<&Kept>) -> io::Result<()> {
    let mut text = format!("{MARK}{counter:019}\n");
    if !holder.is_empty() {
        text.push_str(holder);
        text.push('\n');
    }
    if let Some(kept) = kept {
        text.push_str(&kept.text());
        text.push('\n');
    }
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}
