/*!
Lock files on one host: `flock(2)` on `<dir>/<key>.lock`, the lock that `flock(1)` takes on the same file.

The file holds the fencing counter, which stays (see [`floor`] for what a reboot removes), and who holds the lock, which
is removed with the release:

```text
dlock:1 0001795190000000123
{"v":1,"id":"…","token":1795190000000123,…}
```

The kernel wakes waiters in the order in which they came. The command inherits the locked descriptor, so that the lock
lives as long as the work whatever happens to dlock. A lock file that is removed or replaced is no lock any more; a
holder checks for that twice a second.
*/

mod content;
mod directory;
mod driver;
mod errors;
mod floor;
mod kernel;
mod locality;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::oneshot;

use self::content::{Content, MARK};
use self::directory::Place;
pub(crate) use self::driver::DRIVER;
use self::errors::no_lock_file;
use self::kernel::{KernelLocks, command_name, flock, unlock, wait_in_kernel};
use crate::backend::{Attempt, Busy, Claim, Contender, Error, Grant, Lease, Queue, Released, Renewal, Service};
use crate::clock::{Instant, sleep_until, wall_micros};
use crate::holder::Holder;
use crate::printable::MAX_SHOWN;

/// How often a holder checks that its lock file is still in place.
const CHECK: Duration = Duration::from_millis(500);
/// How often a waiter checks who holds the lock. The kernel tells it when the lock is free.
const REFRESH: Duration = Duration::from_secs(1);

/// Lock files in one directory.
#[derive(Debug)]
pub(crate) struct FileService {
    /// The directory; none for the default one.
    directory: Option<PathBuf>,
    /// Whether a remote file system is trusted.
    remote: bool,
}

impl FileService {
    /// Lock files in `directory`, or in the default one; `remote` trusts a remote file system.
    #[must_use]
    pub(crate) fn new(directory: Option<PathBuf>, remote: bool) -> Self {
        Self { directory, remote }
    }
}

impl Service for FileService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let Self { directory, remote } = self;
        Box::new(FileContender {
            claim,
            directory: directory.clone(),
            remote: *remote,
            place: None,
            lock: None,
            concerns: Vec::new(),
        })
    }
}

/// One claim on a lock file.
#[derive(Debug)]
struct FileContender {
    claim: Claim,
    directory: Option<PathBuf>,
    remote: bool,
    place: Option<Place>,
    lock: Option<LockFile>,
    concerns: Vec<String>,
}

/// An open lock file.
#[derive(Debug)]
struct LockFile {
    file: File,
    path: PathBuf,
    /// Whether a reboot of this host removes it.
    is_volatile: bool,
    /// Our place in the kernel's queue: receives the result of a thread that is blocked in `flock(2)`.
    queued: Option<oneshot::Receiver<io::Result<()>>>,
    /// The granted token while the lock is ours.
    token: Option<u64>,
}

impl FileContender {
    /// Opens the lock file, unless it is open already.
    fn open(&mut self) -> Result<(), Error> {
        if self.lock.is_none() {
            let place = self.place.as_ref().ok_or_else(errors::directory_not_open)?;
            let name = self.claim.key.file_name();
            let path = place.path.join(&name);
            let file = place.lock_file(&name).map_err(|reason| no_lock_file(&path, &reason))?;
            self.lock = Some(LockFile { file, path, is_volatile: place.is_volatile, queued: None, token: None });
        }
        Ok(())
    }
}

#[async_trait::async_trait(?Send)]
impl Contender for FileContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    async fn connect(&mut self) -> Result<(), Error> {
        if self.place.is_none() {
            self.place = Some(match &self.directory {
                Some(path) => Place::given(path, self.remote),
                None => Place::default_one(self.remote),
            }?);
        }
        Ok(())
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        loop {
            self.open()?;
            let Self { claim, lock: Some(lock), .. } = self else {
                return Err(errors::file_not_open());
            };
            let path = lock.path.clone();
            if !lock.try_lock(queue).map_err(|error| no_lock_file(&path, &error.to_string()))? {
                return Ok(Attempt::Busy(lock.look(claim)));
            }
            // The file may have been replaced while we waited: then the new one is the lock.
            if lock.is_in_place() {
                let (token, concern) = lock.take(claim).map_err(|reason| no_lock_file(&path, &reason))?;
                self.concerns.extend(concern);
                return Ok(Attempt::Held(Grant { token, lease: Lease::Unlimited { check: CHECK } }));
            }
            self.lock = None;
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        let Some(queued) = self.lock.as_mut().and_then(|lock| lock.queued.as_mut()) else {
            return Ok(());
        };
        tokio::select! {
            // The attempt that follows looks into the file's own state: put the answer back there.
            answer = &mut *queued => {
                let (done, receiver) = oneshot::channel();
                // The receiver is alive: it is in this scope.
                let _ = done.send(answer.unwrap_or_else(|_| Err(io::Error::other("the waiting thread ended"))));
                *queued = receiver;
            }
            () = sleep_until(Instant::now() + REFRESH) => {}
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        match &self.lock {
            Some(lock) if lock.token.is_some() && lock.is_in_place() => {
                Ok(Renewal::Extended(Lease::Unlimited { check: CHECK }))
            }
            Some(lock) => Ok(Renewal::NotMine(format!("{} was removed or replaced", lock.path.display()))),
            None => Ok(Renewal::NotMine("it was released".to_owned())),
        }
    }

    async fn release(&mut self) -> Result<Released, Error> {
        let Some(mut lock) = self.lock.take() else { return Ok(Released::NotMine) };
        let Some(token) = lock.token.take() else { return Ok(Released::NotMine) };
        let mine = lock.is_in_place();
        if mine {
            // Best effort: a leftover text names a holder that `/proc/locks` does not confirm.
            let _ = lock.write(token, "");
        }
        // Explicitly, because a daemon that the command left behind may have inherited the descriptor.
        unlock(&lock.file).map_err(|error| no_lock_file(&lock.path, &error.to_string()))?;
        Ok(if mine { Released::Freed } else { Released::NotMine })
    }

    fn concerns(&mut self) -> Vec<String> {
        std::mem::take(&mut self.concerns)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.lock.as_ref().filter(|lock| lock.token.is_some()).map(|lock| lock.file.as_fd())
    }
}

impl LockFile {
    /// Tries to take the lock, and returns whether it is held now. With [`Queue::Join`] a thread waits for it in the
    /// kernel's queue from then on.
    fn try_lock(&mut self, queue: Queue) -> io::Result<bool> {
        if self.token.is_some() {
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

    fn is_in_place(&self) -> bool {
        let ours = self.file.metadata();
        let there = std::fs::symlink_metadata(&self.path);
        matches!((ours, there), (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino())
    }

    /// Writes the new token and the holder to the file, which must be locked. Returns the token, and what to warn of.
    fn take(&mut self, claim: &Claim) -> Result<(u64, Option<String>), String> {
        if let Some(token) = self.token {
            return Ok((token, None));
        }
        let content = self.read().and_then(|content| Content::parse(&content));
        let written = content.and_then(|content| {
            let (token, concern) = self.next_token(content.counter, wall_micros());
            let text = claim.about.text(&claim.owner, token, wall_micros() / 1000);
            self.write(token, &text).map(|()| (token, concern)).map_err(|error| errors::unwritten(&error))
        });
        match &written {
            Ok((token, _)) => self.token = Some(*token),
            Err(_) => drop(unlock(&self.file)),
        }
        written
    }

    fn next_token(&self, counter: u64, clock: u64) -> (u64, Option<String>) {
        if self.is_volatile && nix::unistd::geteuid().is_root() {
            floor::token(Path::new(floor::PLACE), counter, clock)
        } else {
            (clock.max(counter + 1), None)
        }
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let mut content = Vec::new();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.take(2 * MAX_SHOWN as u64).read_to_end(&mut content))
            .map_err(|error| errors::unread(&error))?;
        Ok(content)
    }

    /// Replaces the content with a single write, so that a reader without the lock sees the old or the new text. What
    /// is left of a longer one is cut off afterwards.
    fn write(&self, counter: u64, holder: &str) -> io::Result<()> {
        let mut text = format!("{MARK}{counter:019}\n");
        if !holder.is_empty() {
            text.push_str(holder);
            text.push('\n');
        }
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Finds out who holds the lock, and our place in the queue.
    fn look(&self, claim: &Claim) -> Busy {
        let published =
            self.read().ok().and_then(|content| Content::parse(&content).ok()).map(|content| content.holder);
        let locks = self.file.metadata().ok().and_then(|meta| KernelLocks::find(meta.dev(), meta.ino()));
        let holder = match (published.as_deref(), locks.as_ref().and_then(|locks| locks.holder)) {
            // The kernel knows the process that took the lock; the text may be left over from a dlock that was killed.
            (published, Some(pid)) => match published.map(Holder::read) {
                Some(Holder::Dlock(published)) if published.about.pid == pid => Holder::Dlock(published),
                _ => Holder::Process(pid, command_name(pid)),
            },
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
