/*!
The line of contenders at a lock file, which decides whose turn it is to take the lock.

Every contender first comes to the turnstile, where the kernel admits one at a time, in the order of arrival.

* An exclusive contender tries flock(2). If that fails, it starts to wait in flock(2), marks that it does, and admits
  the next one at once. So it waits in one queue with flock(1), and with every dlock that knows no turnstile.
* A sharing contender stays at the turnstile until it has the lock, so that nobody passes it. It does not enter while an
  exclusive one waits ahead of it, and none can come to wait ahead of it meanwhile.

Thus readers that come after a writer wait until it has had the lock, and readers that come together get it together.
The turnstile only keeps the order: it is flock(2) that holds the lock.

Without byte ranges, there is no turnstile, and no lock can be shared.
*/

use std::fs::File;
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::backend::contract::contender::Queue;
use crate::backend::file::kernel::{KernelLocks, Stand, flock, unlock, wait_in_kernel};
use crate::backend::file::ranges::{self, EXCLUSIVE, FIRST, Kind, LINE, TURNSTILE, WAITERS};
use crate::backend::file::seats::wanted_byte;
use crate::clock::Instant;

/// Number of attempts of a leaving holder to reach the turnstile, and the pause between them.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// The longest time that a process may need to continue after the kernel has woken it.
const COMES_BACK: Duration = Duration::from_millis(20);

/// The open files of a lock.
#[derive(Debug)]
pub(super) struct Files {
    /// The locked file.
    pub file: File,
    /// The file with counter, holders and the line of waiters. It is opened separately, because a descriptor that the
    /// command inherits must not keep a place in the line. `None` if `file` serves.
    pub gate: Option<File>,
    /// `true` if byte ranges can be locked.
    pub has_ranges: bool,
}

impl Files {
    /// Returns the file with counter, holders and the line of waiters.
    #[must_use]
    pub(super) fn gate(&self) -> &File {
        self.gate.as_ref().unwrap_or(&self.file)
    }
}

/// The result of a step towards the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The step has succeeded.
    Done,
    /// Others have the lock, or are ahead.
    Blocked,
    /// Another contender is just checking whether it may have the lock. Try again in a moment.
    Passing,
    /// Byte ranges cannot be locked.
    NoRanges,
}

/// The object that a thread waits for.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Turnstile,
    /// The turnstile, which others only pass.
    Passage,
    Flock,
}

/// One process's observations of a writer that knows no turnstile.
#[derive(Debug, Default)]
struct Writer {
    /// `true` if one waited at the last look.
    waited: bool,
    /// The end of the time that it may need to continue after the kernel has woken it.
    comes_back: Option<Instant>,
}

impl Writer {
    /// Records whether one waits at `now`. Returns when to look again, if one has been woken and may not be back yet.
    fn wakes(&mut self, waits: bool, now: Instant) -> Option<Instant> {
        if std::mem::replace(&mut self.waited, waits) && !waits {
            self.comes_back = Some(now + COMES_BACK);
        }
        self.comes_back.filter(|until| !waits && now < *until)
    }
}

/// The place of this process in the line.
#[derive(Debug)]
pub(super) struct QueueSeat {
    pid: i32,
    /// Receives the result of the thread that waits in the kernel.
    pending: Option<(Awaited, oneshot::Receiver<io::Result<()>>)>,
    /// `true` if this process is at the turnstile.
    is_first: bool,
    /// `true` if the file is locked by flock(2).
    is_locked: bool,
    /// `true` if byte ranges may be locked that show others how this process waits.
    is_marked: bool,
    /// The writer that knows no turnstile, which goes first.
    writer: Writer,
    /// The time of the next useful look, if known.
    again_at: Option<Instant>,
}

impl QueueSeat {
    /// Returns the place of a process that has not come yet.
    #[must_use]
    pub(super) fn new() -> Self {
        let pid = nix::unistd::getpid().as_raw();
        Self {
            pid,
            pending: None,
            is_first: false,
            is_locked: false,
            is_marked: false,
            writer: Writer::default(),
            again_at: None,
        }
    }

    /// Returns `true` if it has a place in the line, which it keeps until [`QueueSeat::entered`] or
    /// [`QueueSeat::leave`].
    #[must_use]
    pub(super) fn is_queued(&self) -> bool {
        self.pending.is_some() && !self.is_passing() || self.is_marked
    }

    /// Returns `true` if a thread waits in the kernel.
    #[must_use]
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns `true` if this process has locked the file.
    #[must_use]
    pub(super) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Returns the time of the next useful look, if known.
    #[must_use]
    pub(super) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// Returns where the process waits, if it does.
    #[must_use]
    pub(super) fn stand(&self) -> Option<Stand> {
        match &self.pending {
            Some((Awaited::Turnstile | Awaited::Passage, _)) => Some(Stand::Behind),
            Some((Awaited::Flock, _)) => Some(Stand::Flock),
            None => self.is_queued().then_some(Stand::First),
        }
    }

    /// Takes the lock exclusively, or waits for it.
    pub(super) fn alone(&mut self, files: &mut Files, queue: Queue) -> io::Result<Step> {
        if self.is_waiting()? {
            return self.standstill(files);
        }
        if self.is_locked {
            return Ok(Step::Done);
        }
        match self.turnstile(files, queue)? {
            Step::Done | Step::NoRanges => {}
            other => return Ok(other),
        }
        if !self.flock(&files.file, libc::LOCK_EX)? && queue == Queue::Join {
            self.mark(files, EXCLUSIVE)?;
            self.wait(Awaited::Flock, &files.file, |file| flock(file, libc::LOCK_EX))?;
        }
        if self.is_first {
            ranges::unlock(files.gate(), TURNSTILE)?;
            self.is_first = false;
        }
        Ok(if self.is_locked { Step::Done } else { Step::Blocked })
    }

    /// Locks the file together with others, or waits for that. The caller checks whether the others can share the lock,
    /// and [steps back](QueueSeat::step_back) if not.
    pub(super) fn together(&mut self, files: &mut Files, queue: Queue) -> io::Result<Step> {
        if self.is_waiting()? {
            return self.standstill(files);
        }
        if self.is_locked {
            return Ok(Step::Done);
        }
        match self.turnstile(files, queue)? {
            Step::Done => {}
            other => return Ok(other),
        }
        let is_in_front = ranges::conflict(files.gate(), EXCLUSIVE)?.is_some();
        // The kernel lets a reader pass a waiting writer, and one that it has woken and that is not back yet.
        let writer_waits = is_writer_waiting(files);
        self.again_at = self.writer.wakes(writer_waits, Instant::now());
        if writer_waits || self.again_at.is_some() {
            self.stay(files, queue)?;
            return Ok(Step::Blocked);
        }
        if !is_in_front && self.flock(&files.file, libc::LOCK_SH)? {
            return Ok(Step::Done);
        }
        if queue == Queue::Join {
            self.mark(files, FIRST)?;
            if !is_in_front {
                self.wait(Awaited::Flock, &files.file, |file| flock(file, libc::LOCK_SH))?;
            }
        }
        Ok(Step::Blocked)
    }

    /// Releases the lock, which others hold in a way that cannot be shared, and keeps the place at the turnstile if
    /// this process is to wait.
    pub(super) fn step_back(&mut self, files: &Files, queue: Queue) -> io::Result<()> {
        unlock(&files.file)?;
        self.is_locked = false;
        self.stay(files, queue)
    }

    /// Keeps the place at the turnstile if this process is to wait.
    pub(super) fn stay(&mut self, files: &Files, queue: Queue) -> io::Result<()> {
        if queue == Queue::Join { self.mark(files, FIRST) } else { Ok(()) }
    }

    /// Shows others that this process wants one of this many slots.
    pub(super) fn wants(&mut self, files: &Files, slots: u32) -> io::Result<()> {
        self.is_marked = true;
        ranges::lock(files.gate(), Kind::Read, wanted_byte(slots))?;
        Ok(())
    }

    /// Leaves the line with the lock.
    pub(super) fn entered(&mut self, files: &Files) -> io::Result<()> {
        if self.is_first || self.is_marked {
            ranges::unlock(files.gate(), LINE)?;
        }
        (self.is_first, self.is_marked) = (false, false);
        Ok(())
    }

    /// Starts to wait for the turnstile, which others only pass.
    pub(super) fn comes_next(&mut self, files: &Files) -> io::Result<()> {
        if self.pending.is_none() {
            let range = TURNSTILE.of_process(self.pid);
            self.wait(Awaited::Passage, files.gate(), move |file| ranges::wait_for(file, range))?;
        }
        Ok(())
    }

    /// Leaves the line, and unlocks the file. A waiting thread cannot be ended: a lock that it gets ends with the last
    /// copy of its descriptor, so the files must be closed after this.
    pub(super) fn leave(&mut self, files: &Files) -> io::Result<()> {
        self.pending = None;
        if std::mem::take(&mut self.is_locked) {
            unlock(&files.file)?;
        }
        self.entered(files)
    }

    /// Comes to the turnstile for a moment, unless somebody waits there; returns `true` on success.
    pub(super) fn comes_back(&mut self, files: &mut Files) -> bool {
        for _ in 0..TRIES {
            match self.turnstile(files, Queue::Pass) {
                Ok(Step::Done) => return true,
                Ok(Step::Passing) => std::thread::sleep(PAUSE),
                Ok(Step::Blocked | Step::NoRanges) | Err(_) => return false,
            }
        }
        false
    }

    /// Resolves when the thread that waits in the kernel is done; at once if there is none.
    pub(super) async fn moved(&mut self) {
        let Some((_, receiver)) = &mut self.pending else { return };
        // The next step looks for the answer here: put it back.
        let answer = (&mut *receiver).await;
        let (done, again) = oneshot::channel();
        // The receiver is alive: it is in this scope.
        let _ = done.send(answer.unwrap_or_else(|_| Err(ended())));
        *receiver = again;
    }

    /// Returns `true` if a thread waits in the kernel. If it is done, takes over what it has locked.
    fn is_waiting(&mut self) -> io::Result<bool> {
        let Some((awaited, receiver)) = &mut self.pending else { return Ok(false) };
        let awaited = *awaited;
        let answer = match receiver.try_recv() {
            Err(TryRecvError::Empty) => return Ok(true),
            Err(TryRecvError::Closed) => Err(ended()),
            Ok(answer) => answer,
        };
        self.pending = None;
        answer?;
        match awaited {
            Awaited::Turnstile | Awaited::Passage => self.is_first = true,
            Awaited::Flock => self.is_locked = true,
        }
        Ok(false)
    }

    /// Comes to the turnstile, or waits for it.
    fn turnstile(&mut self, files: &mut Files, queue: Queue) -> io::Result<Step> {
        if self.is_first {
            return Ok(Step::Done);
        }
        if !files.has_ranges {
            return Ok(Step::NoRanges);
        }
        let range = TURNSTILE.of_process(self.pid);
        match ranges::lock(files.gate(), Kind::Write, range) {
            Ok(true) => {
                self.is_first = true;
                Ok(Step::Done)
            }
            Ok(false) if queue == Queue::Join => {
                self.wait(Awaited::Turnstile, files.gate(), move |file| ranges::wait_for(file, range))?;
                Ok(Step::Blocked)
            }
            Ok(false) => passing(files),
            Err(errno) if ranges::is_unknown(errno) => {
                files.has_ranges = false;
                Ok(Step::NoRanges)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns `true` if a thread waits only while others pass the turnstile.
    fn is_passing(&self) -> bool {
        matches!(self.pending, Some((Awaited::Passage, _)))
    }

    /// Returns the step's result while a thread waits in the kernel.
    fn standstill(&self, files: &Files) -> io::Result<Step> {
        if self.is_passing() { passing(files) } else { Ok(Step::Blocked) }
    }

    /// Tries flock(2) without waiting; returns `true` if the file is locked.
    fn flock(&mut self, file: &File, operation: libc::c_int) -> io::Result<bool> {
        match flock(file, operation | libc::LOCK_NB) {
            Ok(()) => self.is_locked = true,
            Err(Errno::EWOULDBLOCK) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(self.is_locked)
    }

    /// Starts a thread that blocks in `wait`.
    fn wait(
        &mut self,
        awaited: Awaited,
        file: &File,
        wait: impl FnOnce(&File) -> nix::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let file = file.try_clone()?;
        self.pending = Some((awaited, wait_in_kernel(move || wait(&file))?));
        Ok(())
    }

    /// Shows others that this process waits.
    fn mark(&mut self, files: &Files, range: ranges::Range) -> io::Result<()> {
        if files.has_ranges {
            self.is_marked = true;
            ranges::lock(files.gate(), Kind::Read, range.of_process(self.pid))?;
        }
        Ok(())
    }
}

/// Returns `Blocked` if a contender waits at the turnstile, and `Passing` if one is only passing.
fn passing(files: &Files) -> io::Result<Step> {
    let waits = ranges::conflict(files.gate(), WAITERS)?.is_some();
    Ok(if waits { Step::Blocked } else { Step::Passing })
}

/// Returns `true` if a writer waits in flock(2) for the exclusive lock, for example a program that knows no turnstile.
fn is_writer_waiting(files: &Files) -> bool {
    let (Ok(file), Ok(gate)) = (files.file.metadata(), files.gate().metadata()) else { return false };
    KernelLocks::look(&file, &gate).is_some_and(|locks| locks.writer_waits)
}

fn ended() -> io::Error {
    io::Error::other("the waiting thread ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_waited_at_the_last_look_has_time_to_come_back_however_long_ago_that_was() {
        let at = |millis: u64| Instant::from_nanos(1_000_000_000 + millis * 1_000_000);
        let mut writer = Writer::default();
        for (millis, waits, again) in [
            (0, false, None),
            (1, true, None),
            (900, false, Some(920)),
            (910, false, Some(920)),
            (920, false, None),
            (930, true, None),
            (931, false, Some(951)),
            (932, true, None),
            (952, false, Some(972)),
        ] {
            assert_eq!(writer.wakes(waits, at(millis)), again.map(at), "{millis}");
        }
    }
}
