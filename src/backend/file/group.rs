/*!
Shared locks: readers, and slots.

A co-holder has the lock locked by flock(2) like any reader, and in addition a seat, which tells others how the lock is
shared. It takes its seat at the turnstile, so that no two contenders take the same one. The seat is locked through the
descriptor that the command inherits, and thus lives exactly as long as the lock itself.

flock(1) has no seat. To readers it is another reader; for slots it does not count.
*/

use std::fs::File;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::claim::Known;
use crate::backend::contract::contender::Queue;
use crate::backend::error::Error;
use crate::backend::file::content::Content;
use crate::backend::file::errors::{foreign_ranges, no_ranges};
use crate::backend::file::kept::MinimumHold;
use crate::backend::file::line::Step;
use crate::backend::file::lock_file::{Held, LockFile, Taken, may_enter};
use crate::backend::file::ranges::{self, Kind, Range};
use crate::backend::file::seats::{Entry, Seat, other_slots, other_wanted, taken, wanted_slots};
use crate::backend::file::text::{clear, write_counter, write_record};
use crate::backend::file::watch::Watcher;
use crate::clock::wall_millis;

impl LockFile {
    /// Takes the lock together with others of the claim's mode, or returns the reason why it cannot.
    pub(super) fn take_a_seat(&mut self, claim: &Claim, queue: Queue) -> Result<Taken, Error> {
        if let (Some(slots), false) = (claim.mode.slots(), self.line.is_queued()) {
            if let Some(other) = self.other_slots(slots)? {
                return Ok(Taken::OtherSlots(other));
            }
            if queue == Queue::Join {
                self.line.wants(&self.files, slots).map_err(|error| self.unusable(&error))?;
            }
        }
        loop {
            let taken = self.look_for_a_seat(claim, queue)?;
            let is_to_watch = matches!(taken, Taken::Blocked) && queue == Queue::Join && !self.line.is_pending();
            if !is_to_watch || self.watcher.is_some() {
                return Ok(taken);
            }
            // Changes before the watcher was created are not reported.
            let watcher = Watcher::new(&self.watched());
            self.watcher = Some(watcher);
        }
    }

    fn look_for_a_seat(&mut self, claim: &Claim, queue: Queue) -> Result<Taken, Error> {
        let step = self.line.together(&mut self.files, queue);
        match step.map_err(|error| self.unusable(&error))? {
            Step::Passing => return Ok(Taken::Passing),
            Step::Blocked => {
                self.again_at = self.line.again_at();
                return Ok(Taken::Blocked);
            }
            Step::NoRanges => return Err(no_ranges(self.path())),
            Step::Done => {}
        }
        let seats = self.seats()?;
        let content = self.content()?;
        let holds = self.holds(&content.record, &seats);
        match may_enter(claim.mode, &seats, &holds) {
            Entry::Free(number) => {
                let is_first = seats.is_empty() && holds.is_empty();
                self.sit_down(claim, Seat { mode: claim.mode, number }, &content, is_first)
            }
            Entry::MinimumHold(until) => {
                self.line.stay(&self.files, queue).map_err(|error| self.unusable(&error))?;
                Ok(self.waits_until(until, holds))
            }
            Entry::Taken(again_at) => {
                self.again_at = again_at;
                self.step_back(queue)
            }
            Entry::OtherSlots(slots) => Ok(Taken::OtherSlots(slots)),
        }
    }

    fn step_back(&mut self, queue: Queue) -> Result<Taken, Error> {
        self.line.step_back(&self.files, queue).map_err(|error| self.unusable(&error))?;
        Ok(Taken::Blocked)
    }

    /// Takes this seat, which is free, and records its holder. The file begins with this `content`.
    fn sit_down(&mut self, claim: &Claim, seat: Seat, content: &Content, is_first: bool) -> Result<Taken, Error> {
        let byte = seat.byte().ok_or_else(|| foreign_ranges(self.path()))?;
        match ranges::lock(&self.files.file, Kind::Read, byte) {
            Ok(true) => {}
            Ok(false) => return Err(foreign_ranges(self.path())),
            Err(errno) => return Err(self.unusable(&errno.into())),
        }
        // Checked only now: whoever opens that path from now on finds this file, and the seat in it.
        if !self.is_current() {
            return Ok(Taken::Replaced);
        }
        let (token, warning) = self.next_token(content)?;
        let known = Known { token: Some(token), slot: seat.slot(), since: Some(wall_millis()), until: None };
        let text = claim.text(known);
        let kept = MinimumHold::from_now(claim.min_hold);
        let file = self.files.gate();
        let written = write_counter(file, token, is_first, &content.done)
            .and_then(|()| write_record(file, seat.number, &text, kept.as_ref()));
        written.map_err(|error| self.unwritten(&error))?;
        self.held = Some(Held { token, seat: Some(seat), text, kept, done: Vec::new() });
        Ok(Taken::Held { token, slot: seat.slot(), warning })
    }

    /// Removes the record of our seat, or records there how long we keep the lock. The last holder removes what is left
    /// of all others.
    pub(super) fn vacate(&mut self, seat: Seat, text: &str, kept: Option<&MinimumHold>) {
        let _ = write_record(self.files.gate(), seat.number, text, kept);
        // At the turnstile, because no seat can be taken meanwhile. If a contender waits there, that one cleans up.
        if kept.is_none() && self.line.comes_back(&mut self.files) && self.is_last() {
            let done = self.content().map(|content| content.done).unwrap_or_default();
            let _ = clear(self.files.gate(), &done);
        }
    }

    /// Returns `true` if no other contender has a seat, or keeps one.
    fn is_last(&mut self) -> bool {
        let others = self.seats().map_or(1, |seats| seats.len());
        others == 0 && self.content().is_ok_and(|content| self.holds(&content.record, &[]).is_empty())
    }

    /// Returns the seats of others.
    pub(super) fn seats(&self) -> Result<Vec<Seat>, Error> {
        let seats = taken(|range| ranges::conflict(&self.files.file, range));
        let seats = seats.map_err(|errno| self.unusable(&errno.into()))?;
        seats.ok_or_else(|| foreign_ranges(self.path()))
    }

    /// Returns a different number of slots that others use or wait for.
    fn other_slots(&self, slots: u32) -> Result<Option<u32>, Error> {
        if !self.files.has_ranges {
            return Err(no_ranges(self.path()));
        }
        let conflict = |file: &File, range: Range| {
            ranges::conflict(file, range).map_err(|errno| {
                if ranges::is_unknown(errno) { no_ranges(self.path()) } else { self.unusable(&errno.into()) }
            })
        };
        for range in other_slots(slots) {
            if let Some(found) = conflict(&self.files.file, range)? {
                let seat = Seat::of(found).ok_or_else(|| foreign_ranges(self.path()))?;
                return Ok(seat.mode.slots());
            }
        }
        for range in other_wanted(slots) {
            if let Some(found) = conflict(self.files.gate(), range)? {
                let wanted = wanted_slots(found).ok_or_else(|| foreign_ranges(self.path()))?;
                return Ok(Some(wanted));
            }
        }
        Ok(None)
    }
}
