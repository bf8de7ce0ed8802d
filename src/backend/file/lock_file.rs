/*!
An open lock file: taking its lock exclusively, and recording counter and holder while it is held. See `group` for
shared locks, and `look` for finding holders and waiters.
*/

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::claim::Known;
use crate::backend::contract::contender::{Queue, Released, Used};
use crate::backend::error::Error;
use crate::backend::error::unrecorded;
use crate::backend::file::content::{Content, Record};
use crate::backend::file::directory::LockDirectory;
use crate::backend::file::errors::{self, no_lock_file};
use crate::backend::file::floor;
use crate::backend::file::kept::{Ends, MinimumHold};
use crate::backend::file::line::{Files, QueueSeat, Step};
use crate::backend::file::once::note_success;
use crate::backend::file::ranges::{self, SEATS};
use crate::backend::file::seats::{Entry, Seat, entry};
use crate::backend::file::text::{header, is_ours, numbers, record, write};
use crate::backend::file::watch::Watcher;
use crate::clock::{Instant, sleep_until, wall_micros, wall_millis};
use crate::holder::done::Done;
use crate::holder::{BESIDE, Holder, finished};
use crate::lock::admission::Mode;

/// The interval at which a waiter checks who holds the lock. The kernel wakes it when the lock is free.
const REFRESH: Duration = Duration::from_secs(1);
/// The time added to that interval for each place in the line: a look reads the kernel's table, which is as long as the
/// line.
const EACH: Duration = Duration::from_millis(40);
/// The interval at which an attempt without a wait checks for waiters ahead of it while other contenders look.
const PASSING: Duration = Duration::from_millis(20);

/// An open lock file.
#[derive(Debug)]
pub(super) struct LockFile {
    /// The locked file, and the one with counter and holders.
    pub(super) files: Files,
    path: PathBuf,
    /// The path that the user gave, which may lead elsewhere by now; `None` for the lock file of a key.
    given: Option<PathBuf>,
    /// The path of the file with counter and holders.
    record_path: PathBuf,
    /// `true` if a reboot of this host removes it.
    is_volatile: bool,
    /// Our place in the line of contenders.
    pub(super) line: QueueSeat,
    /// The ends of earlier runs' holds.
    ends: Ends,
    /// The time of the next useful look, if known.
    pub(super) again_at: Option<Instant>,
    /// Our position in the line at the last look, from 1 on.
    pub(super) position: Option<u64>,
    /// Reports changes of the file while we wait for a seat.
    pub(super) watcher: Option<Watcher>,
    /// The lock, while we hold it.
    pub(super) held: Option<Held>,
}

/// A lock that we hold.
#[derive(Debug)]
pub(super) struct Held {
    /// The granted token.
    pub token: u64,
    /// Our seat; `None` for an exclusive lock.
    pub seat: Option<Seat>,
    /// The published text.
    pub text: String,
    /// The time until which the lock stays taken, if that is longer than it is used.
    pub kept: Option<MinimumHold>,
    /// The periods in which commands have succeeded before, if we hold the lock exclusively.
    pub done: Vec<Done>,
}

/// Returns the interval between two looks of a waiter at this position in the kernel's queue.
fn refresh(position: Option<u64>) -> Duration {
    let position = position.and_then(|position| u32::try_from(position).ok()).unwrap_or_default();
    REFRESH.max(EACH.saturating_mul(position))
}

/// The result of an attempt to take the lock.
#[derive(Debug)]
pub(super) enum Taken {
    /// We hold the lock.
    Held {
        /// The fencing token.
        token: u64,
        /// The slot's number.
        slot: Option<u32>,
        /// A warning, if any.
        warning: Option<String>,
    },
    /// Others have it, or are ahead of us.
    Blocked,
    /// An earlier run keeps it taken, and we are next.
    MinimumHold {
        /// The earlier run.
        holder: Holder,
        /// Number of others that keep a slot.
        beside: u64,
    },
    /// Another contender is just checking whether it may have the lock. Try again in a moment.
    Passing,
    /// Others use this number of slots.
    OtherSlots(u32),
    /// A command has already succeeded in the claim's period.
    Done(Box<Done>),
    /// The file, or a link on the way to it, was replaced: the new file is the lock.
    Replaced,
}

/// The hold of an earlier run that no longer uses the lock.
#[derive(Debug)]
pub(super) struct Hold {
    /// The seat that the run had.
    pub seat: Seat,
    /// The end of the hold.
    pub until: Instant,
    /// The earlier run.
    pub holder: Holder,
}

impl LockFile {
    /// Opens dlock's lock file `name` in `place` for a lock of this mode, and creates it if it does not exist.
    pub(super) fn of_key(place: &LockDirectory, name: &str, mode: Mode) -> Result<Self, Error> {
        let path = place.path.join(name);
        let open = || place.lock_file(name.as_ref()).map_err(|reason| no_lock_file(&path, &reason));
        let (file, gate) = (open()?, if mode == Mode::Exclusive { None } else { Some(open()?) });
        Ok(Self::new(place, path.clone(), path, Files { file, gate, has_ranges: place.is_local }))
    }

    /// Opens the file `name` in `place`, which may belong to anybody, and creates it if it does not exist. Counter and
    /// holders are in a file beside it: programs that lock a file may write to it or empty it. `given` is the path that
    /// led there, and `remote` is passed to [`LockDirectory::named_file`].
    pub(super) fn named(place: &LockDirectory, name: &OsString, given: &Path, remote: bool) -> Result<Self, Error> {
        let path = place.path.join(name);
        let file = place.named_file(name, remote).map_err(|reason| no_lock_file(&path, &reason))?;
        if is_ours(&file) {
            return Err(no_lock_file(&path, errors::OURS));
        }
        let mut beside = name.clone();
        beside.push(BESIDE);
        let record_path = place.path.join(&beside);
        let gate = place.lock_file(&beside).map_err(|reason| no_lock_file(&record_path, &reason))?;
        let files = Files { file, gate: Some(gate), has_ranges: place.is_local };
        Ok(Self { given: Some(given.to_owned()), ..Self::new(place, path, record_path, files) })
    }

    fn new(place: &LockDirectory, path: PathBuf, record_path: PathBuf, files: Files) -> Self {
        Self {
            files,
            path,
            given: None,
            record_path,
            is_volatile: place.is_volatile,
            line: QueueSeat::new(),
            ends: Ends::default(),
            again_at: None,
            position: None,
            watcher: None,
            held: None,
        }
    }

    /// Returns the file's path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the paths of its files.
    pub(super) fn watched(&self) -> Vec<&Path> {
        let mut paths = vec![self.path.as_path(), self.record_path.as_path()];
        paths.dedup();
        paths
    }

    /// Returns the locked descriptor, while we hold the lock.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().map(|_| self.files.file.as_fd())
    }

    /// Returns `true` if we hold the lock, as far as is known.
    pub(super) fn is_ours(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the lock in the claim's mode, or returns the reason why it cannot. A claim that waits keeps its place in
    /// the line, and the next attempt continues from there. After an error, or if the file was replaced, this must be
    /// dropped.
    pub(super) fn advance(&mut self, claim: &Claim, queue: Queue) -> Result<Taken, Error> {
        if let Some(Held { token, seat, .. }) = &self.held {
            return Ok(Taken::Held { token: *token, slot: seat.and_then(Seat::slot), warning: None });
        }
        self.again_at = None;
        let taken = match claim.mode {
            Mode::Exclusive => self.take_alone(claim, queue)?,
            Mode::Shared | Mode::Slots(_) => self.take_a_seat(claim, queue)?,
        };
        let left = match &taken {
            Taken::Held { .. } => self.line.entered(&self.files),
            Taken::Blocked | Taken::MinimumHold { .. } if self.line.is_queued() || queue == Queue::Join => Ok(()),
            Taken::Passing if self.line.is_pending() => Ok(()),
            _ => self.line.leave(&self.files),
        };
        left.map_err(|error| self.unusable(&error))?;
        Ok(taken)
    }

    fn take_alone(&mut self, claim: &Claim, queue: Queue) -> Result<Taken, Error> {
        let step = self.line.alone(&mut self.files, queue);
        match step.map_err(|error| self.unusable(&error))? {
            Step::Passing => return Ok(Taken::Passing),
            Step::Blocked => return Ok(Taken::Blocked),
            Step::Done | Step::NoRanges => {}
        }
        if !self.is_current() {
            return Ok(Taken::Replaced);
        }
        let mut content = self.content()?;
        if let Some(done) = content.done_in(claim, wall_millis()) {
            return Ok(Taken::Done(done));
        }
        let holds = self.holds(&content.record, &[]);
        if let Entry::MinimumHold(until) = may_enter(Mode::Exclusive, &[], &holds) {
            return Ok(self.waits_until(until, holds));
        }
        let (token, warning) = self.next_token(&content)?;
        let known = Known { token: Some(token), since: Some(wall_millis()), ..Known::default() };
        let (text, kept) = (claim.text(known), MinimumHold::from_now(claim.min_hold));
        content.done.retain(|done| done.is_remembered(wall_millis()));
        let written = write(self.files.gate(), token, &text, kept.as_ref(), &content.done);
        written.map_err(|error| self.unwritten(&error))?;
        self.held = Some(Held { token, seat: None, text, kept, done: content.done });
        Ok(Taken::Held { token, slot: None, warning })
    }

    /// Returns the result of an attempt that must wait until then, when the last of these holds is over.
    pub(super) fn waits_until(&mut self, until: Instant, holds: Vec<Hold>) -> Taken {
        self.again_at = Some(until);
        let slots = holds.iter().filter(|hold| hold.seat.slot().is_some()).count() as u64;
        let last = holds.into_iter().find(|hold| hold.until == until);
        let holder = last.map_or(Holder::Unknown, |hold| hold.holder);
        Taken::MinimumHold { holder, beside: slots.saturating_sub(1) }
    }

    /// Returns the holds of earlier runs, where these seats are `taken` and `alone` is the record of the last exclusive
    /// holder. The file must be locked.
    pub(super) fn holds(&mut self, alone: &Record, taken: &[Seat]) -> Vec<Hold> {
        let mut found: Vec<(Seat, MinimumHold, Record)> = Vec::new();
        if let Some(kept) = &alone.kept {
            found.push((Seat::ALONE, kept.clone(), alone.clone()));
        }
        let file = self.files.gate();
        for number in numbers(file).filter(|number| !taken.iter().any(|seat| seat.number == *number)) {
            let Some(record) = record(file, number) else { continue };
            let Some(kept) = record.kept.clone() else { continue };
            // A mode that this dlock does not know keeps all others out.
            let mode = record.published().and_then(|published| published.mode()).unwrap_or_default();
            found.push((Seat { mode, number }, kept, record));
        }
        let kept: Vec<MinimumHold> = found.iter().map(|(_, kept, _)| kept.clone()).collect();
        let ends = self.ends.of(&kept, Instant::now());
        let hold = |((seat, _, record), until): ((Seat, MinimumHold, Record), Option<Instant>)| {
            let holder = record.finished().map_or(Holder::Unknown, |(holder, _)| holder);
            Some(Hold { seat, until: until?, holder })
        };
        found.into_iter().zip(ends).filter_map(hold).collect()
    }

    /// Returns the token for the next holder, and a warning, if any.
    pub(super) fn next_token(&self, content: &Content) -> Result<(u64, Option<String>), Error> {
        let (clock, mut warning) = (wall_micros(), None);
        let token = content.token(|counter| {
            if self.is_volatile && nix::unistd::geteuid().is_root() {
                let token;
                (token, warning) = floor::token(Path::new(floor::PLACE), counter, clock);
                token
            } else {
                clock.max(counter + 1)
            }
        });
        let token = token.map_err(|reason| no_lock_file(&self.record_path, &reason))?;
        Ok((token, warning))
    }

    /// Reads the beginning of the file. Fails if it is not ours, or if the file that a user named is the lock file of a
    /// key: we would ignore its counter, and that lock's next holder would ignore ours.
    pub(super) fn content(&self) -> Result<Content, Error> {
        if self.given.is_some() && is_ours(&self.files.file) {
            return Err(no_lock_file(&self.path, errors::OURS));
        }
        header(self.files.gate()).map_err(|reason| no_lock_file(&self.record_path, &reason))
    }

    /// Returns `true` if the file is still the one at its path, through all symbolic links on the user's path.
    pub(super) fn is_in_place(&self) -> bool {
        let there = match &self.given {
            Some(given) => std::fs::metadata(given),
            None => std::fs::symlink_metadata(&self.path),
        };
        is_same(&self.files.file, there)
    }

    /// Returns `true` if the file is still the one at its path, and so is the one with counter and holders: the next
    /// holder must see what this one writes there.
    pub(super) fn is_current(&self) -> bool {
        let is_gate_in_place = |gate| is_same(gate, std::fs::symlink_metadata(&self.record_path));
        self.is_in_place() && self.files.gate.as_ref().is_none_or(is_gate_in_place)
    }

    /// Resolves when it is worth trying again, after an attempt that waits.
    pub(super) async fn changed(&mut self) {
        let limit = Instant::now() + refresh(self.position.filter(|_| self.line.is_pending()));
        let limit = self.again_at.map_or(limit, |at| at.min(limit));
        if self.line.is_pending() {
            tokio::select! {
                () = self.line.moved() => {}
                () = sleep_until(limit) => {}
            }
        } else if let Some(watcher) = self.watcher.as_mut().filter(|_| !self.line.is_locked()) {
            watcher.changed(limit).await;
        } else {
            sleep_until(limit).await;
        }
    }

    /// Resolves when it is worth trying again after an attempt that others kept from looking, at `limit` at the latest.
    pub(super) async fn passed(&mut self, limit: Instant) -> Result<(), Error> {
        self.line.comes_next(&self.files).map_err(|error| self.unusable(&error))?;
        let limit = limit.min(Instant::now() + PASSING);
        tokio::select! {
            () = self.line.moved() => {}
            () = sleep_until(limit) => {}
        }
        Ok(())
    }

    /// Returns who has already succeeded in the claim's period, as far as can be seen before entering the line.
    pub(super) fn done(&self, claim: &Claim) -> Option<Box<Done>> {
        let is_asked = claim.once_per.is_some() && !self.line.is_queued() && self.held.is_none();
        is_asked.then(|| header(self.files.gate()).ok()).flatten()?.done_in(claim, wall_millis())
    }

    /// Releases the lock if we hold it, and leaves the line. Records a success of the command in the claim's period; an
    /// error that prevents this is added to `warnings`.
    pub(super) fn release(mut self, claim: &Claim, used: Used, warnings: &mut Vec<String>) -> Result<Released, Error> {
        let Some(mut held) = self.held.take() else {
            self.line.leave(&self.files).map_err(|error| self.unusable(&error))?;
            return Ok(Released::NotMine);
        };
        let mine = self.is_in_place();
        let kept = held.kept.as_ref().filter(|kept| used != Used::No && kept.left().is_some());
        if mine {
            // Best effort: a leftover text names a holder that the kernel does not confirm. A nested run that remains
            // must not take such a text for its outer run.
            let text = kept.map(|_| finished(&held.text)).unwrap_or_default();
            let has_succeeded = note_success(&mut held.done, claim, used);
            match held.seat {
                None => {
                    let written = write(self.files.gate(), held.token, &text, kept, &held.done);
                    warnings.extend(written.err().filter(|_| has_succeeded).map(|error| unrecorded(&error)));
                }
                Some(seat) => self.vacate(seat, &text, kept),
            }
        }
        // Explicitly, because a daemon that the command left behind may have inherited the descriptor.
        if held.seat.is_some() {
            let _ = ranges::unlock(&self.files.file, SEATS);
        }
        self.line.leave(&self.files).map_err(|error| self.unusable(&error))?;
        if held.seat.is_some() {
            // Only now: a waiter that is notified finds the seat free.
            let _ = futimens(self.files.gate(), &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW);
        }
        Ok(match (mine, kept) {
            (true, Some(_)) => Released::Kept,
            (true, None) => Released::Freed,
            (false, _) => Released::NotMine,
        })
    }

    /// Returns the error of a system call on the locked file.
    pub(super) fn unusable(&self, error: &io::Error) -> Error {
        no_lock_file(&self.path, &error.to_string())
    }

    /// Returns the error if the token could not be written.
    pub(super) fn unwritten(&self, error: &io::Error) -> Error {
        no_lock_file(&self.record_path, &errors::unwritten(error))
    }
}

/// Decides whether a contender of this mode may enter, where these seats are `taken` and earlier runs have these
/// `holds`.
pub(super) fn may_enter(mode: Mode, taken: &[Seat], holds: &[Hold]) -> Entry {
    let kept: Vec<(Seat, Instant)> = holds.iter().map(|hold| (hold.seat, hold.until)).collect();
    entry(mode, taken, &kept)
}

/// Returns `true` if the open file is the one that is `there`.
fn is_same(file: &File, there: io::Result<std::fs::Metadata>) -> bool {
    matches!((file.metadata(), there), (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_far_behind_in_the_line_looks_less_often() {
        let seconds = |position| refresh(position).as_secs();
        let all = [None, Some(1), Some(25), Some(300), Some(u64::MAX)];
        assert_eq!(all.map(seconds), [1, 1, 1, 12, 1]);
    }
}
