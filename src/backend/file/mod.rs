/*!
Lock files on one host: `flock(2)` on `<dir>/<key>.lock`, the lock that `flock(1)` takes on the same file.

The file holds the fencing counter, which stays (see [`floor`] for what a reboot removes), and the holder, which is
removed with the release. If the lock has a minimum hold, [`kept`] gives its end, and the next holder waits for that
with the file locked:

```text
dlock:1 0001795190000000123
{"v":1,"id":"…","token":1795190000000123,…}
kept 8e6c3d90-… 0000000000000612345 0000000000000040000
once {"v":1,"period":498652,"length":3600000,…}
```

The last line, which stays too, records a period in which a command has succeeded (`--once-per`), one for each length.

Readers and slots lock the file as `flock -s` does. Locks on bytes far beyond its content show who they are ([`seats`])
and who is next ([`line`](mod@line)), and each of them has its own record in the file ([`content`]).

If the URL names a file itself (`file:///dir/file?path`), that file is locked and never written to: other programs that
lock it may fill or empty it. Counter and holders are then in `<file>.dlock` beside it, under the same lock.

The kernel wakes waiters in the order of their arrival. The command inherits the locked descriptor, so that the lock
lives as long as the work, whatever happens to dlock. A lock file that is removed or replaced is no longer a lock; a
holder checks for that twice a second.
*/

mod content;
mod directory;
mod driver;
mod errors;
mod floor;
mod group;
mod inspect;
mod kept;
mod kernel;
mod line;
mod locality;
mod lock_file;
mod look;
mod once;
mod probes;
mod ranges;
mod records;
mod requests;
mod seats;
mod seen;
mod text;
mod watch;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use self::directory::{DirectoryUrl, LockDirectory};
pub(crate) use self::driver::DRIVER;
use self::inspect::FileSurvey;
use self::lock_file::{LockFile, Taken};
use self::probes::FileProbes;
use self::records::{FileRecords, LATCH, MEET};
use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Attempt, Busy, Contender, Grant, Lease, Queue, Released, Renewal, Used};
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::contract::service::Service;
use crate::backend::error::Error;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::Records;
use crate::backend::survey::{Kind, Survey};
use crate::clock::{Instant, wall_millis};
use crate::key::Namespace;

/// The interval at which a holder checks that its lock file is still in place.
const CHECK: Duration = Duration::from_millis(500);
/// The time for which an attempt without a wait continues while other contenders are looking, too, which takes each of
/// them a millisecond or two. There may be hundreds, and on a busy machine one of them may be stalled for a while.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Lock files in one directory, or one file.
#[derive(Debug)]
pub(crate) struct FileService {
    /// The directory or the file.
    url: DirectoryUrl,
    /// `true` if a remote file system is trusted.
    remote: bool,
}

impl FileService {
    /// Returns the lock files at `url`; `remote` trusts a remote file system.
    #[must_use]
    fn new(url: DirectoryUrl, remote: bool) -> Self {
        Self { url, remote }
    }
}

impl Service for FileService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let Self { url, remote } = self;
        Box::new(FileContender {
            claim,
            url: url.clone(),
            remote: *remote,
            place: None,
            lock: None,
            warnings: Vec::new(),
        })
    }

    fn records(&self, meeting: Meeting, kind: Kind) -> Option<Box<dyn Records>> {
        let ending = if kind == Kind::Latch { LATCH } else { MEET };
        Some(Box::new(FileRecords::new(self.url.clone(), self.remote, meeting, ending)))
    }

    fn survey(&self, _namespace: Namespace) -> Box<dyn Survey> {
        Box::new(FileSurvey::new(self.url.clone(), self.remote))
    }

    fn probes(&self, _parameters: CheckParameters) -> Box<dyn Probes> {
        Box::new(FileProbes::new(self.url.clone(), self.remote))
    }
}

/// One claim on a lock file.
#[derive(Debug)]
struct FileContender {
    claim: Claim,
    url: DirectoryUrl,
    remote: bool,
    /// The directory, and the file's name in it unless the key determines that.
    place: Option<(LockDirectory, Option<OsString>)>,
    lock: Option<LockFile>,
    warnings: Vec<String>,
}

impl FileContender {
    /// Finds the directory, unless it is known already.
    fn find(&mut self) -> Result<(), Error> {
        if self.place.is_none() {
            self.place = Some(match &self.url {
                DirectoryUrl::Default => (LockDirectory::default_one(self.remote)?, None),
                DirectoryUrl::Directory(path) => (LockDirectory::given(path, self.remote)?, None),
                DirectoryUrl::File(path) => {
                    let (place, name) = LockDirectory::of_file(path, self.remote)?;
                    (place, Some(name))
                }
            });
        }
        Ok(())
    }

    /// Opens the lock file, unless it is open already.
    fn open(&mut self) -> Result<(), Error> {
        if self.lock.is_none() {
            let (place, name) = self.place.as_ref().ok_or_else(errors::directory_not_open)?;
            self.lock = Some(match (name, &self.url) {
                (Some(name), DirectoryUrl::File(given)) => LockFile::named(place, name, given, self.remote)?,
                _ => LockFile::of_key(place, &self.claim.key.file_name(), self.claim.mode)?,
            });
        }
        Ok(())
    }

    /// Closes the replaced lock file, and finds the directory again, as a link may lead elsewhere now.
    fn reopen(&mut self) -> Result<(), Error> {
        self.lock = None;
        if matches!(self.url, DirectoryUrl::File(_)) {
            self.place = None;
            self.find()?;
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
        self.find()
    }

    fn ignore_outer(&mut self) {
        self.claim.outer.clear();
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        // Well within the time that an attempt may take.
        let give_up_at = Instant::now() + TIMEOUT.min(self.claim.ttl / 6);
        loop {
            self.open()?;
            let Self { claim, lock: Some(lock), .. } = self else { return Err(errors::file_not_open()) };
            if let Some(outer) = lock.outer(claim) {
                return Ok(Attempt::Outer(outer));
            }
            if let Some(done) = lock.done(claim) {
                self.lock = None;
                return Ok(Attempt::Done(done));
            }
            match lock.advance(claim, queue) {
                Ok(Taken::Held { token, slot, warning }) => {
                    self.warnings.extend(warning);
                    return Ok(Attempt::Held(Grant { token, slot, lease: Lease::Unlimited { check: CHECK } }));
                }
                Ok(Taken::MinimumHold { holder, beside }) => {
                    let position = (queue == Queue::Join).then_some(1);
                    return Ok(Attempt::Busy(Busy { holder, beside, position, now: wall_millis() }));
                }
                Ok(Taken::Passing) if Instant::now() < give_up_at => lock.passed(give_up_at).await?,
                Ok(Taken::Blocked | Taken::Passing) => {
                    let busy = lock.look(claim);
                    if queue == Queue::Pass && !lock.line.is_queued() {
                        // A thread of it may still wait in the kernel.
                        self.lock = None;
                    }
                    return Ok(Attempt::Busy(busy));
                }
                Ok(Taken::OtherSlots(slots)) => {
                    let other = lock.user_of(slots);
                    self.lock = None;
                    return Ok(Attempt::OtherSlots(other));
                }
                Ok(Taken::Done(done)) => {
                    self.lock = None;
                    return Ok(Attempt::Done(done));
                }
                Ok(Taken::Replaced) => self.reopen()?,
                Err(error) => {
                    // The lock file's locks end with it.
                    self.lock = None;
                    return Err(error);
                }
            }
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        if let Some(lock) = &mut self.lock {
            lock.changed().await;
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        match &self.lock {
            Some(lock) if lock.is_ours() && lock.is_in_place() => {
                Ok(Renewal::of(Lease::Unlimited { check: CHECK }, lock.asked(&self.claim)))
            }
            Some(lock) => Ok(Renewal::NotMine(format!("{} was removed or replaced", lock.path().display()))),
            None => Ok(Renewal::NotMine("it was released".to_owned())),
        }
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        let Self { claim, lock, warnings, .. } = self;
        lock.take().map_or(Ok(Released::NotMine), |lock| lock.release(claim, used, warnings))
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.lock.as_ref().and_then(LockFile::descriptor)
    }
}
