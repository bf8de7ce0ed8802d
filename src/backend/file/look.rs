/*!
The holders and waiters of a lock, as far as the kernel and the text in the lock file show them.
*/

use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Busy, OtherSlots};
use crate::backend::file::content::Content;
use crate::backend::file::kernel::{KernelLocks, command_name, is_suspended};
use crate::backend::file::lock_file::LockFile;
use crate::backend::file::requests;
use crate::backend::file::seats::Seat;
use crate::backend::file::text::{header, numbers, record};
use crate::clock::wall_millis;
use crate::holder::ask::Ask;
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;

impl LockFile {
    /// Returns the outer run of this one that is recorded here as a holder, if any. The caller must check that it does
    /// hold the lock. Returns `None` once we are in the line.
    pub(super) fn outer(&self, claim: &Claim) -> Option<Box<Published>> {
        let is_new = self.held.is_none() && !self.line.is_queued() && !self.line.is_locked();
        if claim.outer.is_empty() || !is_new {
            return None;
        }
        let file = self.files.gate();
        let alone = header(file).ok().map(|content| content.record);
        let records = numbers(file).filter_map(|number| record(file, number));
        let mut published = alone.into_iter().chain(records).filter_map(|record| record.published());
        published.find(|published| !published.done && claim.outer.contains(&published.id))
    }

    /// Determines who holds the lock, and our position in the line.
    pub(super) fn look(&mut self, claim: &Claim) -> Busy {
        let content = header(self.files.gate()).ok();
        let locks = self.kernel_locks();
        let stand = self.line.stand();
        let before = |stand| locks.as_ref().map_or(0, |locks| locks.before(claim.about.pid, stand));
        let position = stand.map(|stand| before(stand) + 1);
        self.position = position;
        let seats = self.known_seats();
        let pid = locks.as_ref().and_then(|locks| locks.holder);
        let first = locks.as_ref().and_then(|locks| locks.first).filter(|&first| first != claim.about.pid);
        let holder = match seats.iter().find_map(|seat| self.occupant(*seat)) {
            Some(holder) => holder,
            None if !seats.is_empty() => process(pid),
            None => match self.holder_alone(content.as_ref(), pid) {
                Holder::Unknown => first.map_or(Holder::Unknown, next),
                holder => holder,
            },
        };
        let slots = self.kept(&seats).into_iter().filter(|(mode, _)| mode.slots().is_some()).count();
        let beside = ((seats.len() + slots) as u64).saturating_sub(1);
        Busy { holder, beside, position, now: wall_millis() }
    }

    /// Returns the request to stop that was made to this owner.
    pub(super) fn asked(&self, claim: &Claim) -> Option<Ask> {
        requests::find(self.files.gate(), claim.owner.as_str())
    }

    /// Determines who uses this number of slots.
    pub(super) fn user_of(&self, slots: u32) -> OtherSlots {
        let mut seats = self.known_seats();
        seats.retain(|seat| seat.mode.slots() == Some(slots));
        let kept = || self.kept(&seats).into_iter().find(|(mode, _)| mode.slots() == Some(slots)).map(|(_, run)| run);
        let holder = seats.iter().find_map(|seat| self.occupant(*seat)).or_else(kept).unwrap_or(Holder::Unknown);
        OtherSlots { slots, holder, now: wall_millis() }
    }

    /// Returns the holder of a lock that is not shared, where the kernel says that the process `pid` holds it.
    fn holder_alone(&self, content: Option<&Content>, pid: Option<i32>) -> Holder {
        let finished = content.and_then(|content| self.finished(content));
        let published = content.map(|content| content.record.holder.as_slice());
        // The kernel knows the process that took the lock; the text may be left over from a dlock that was killed.
        match (published, pid) {
            (published, Some(pid)) => match (published.map(Holder::read), finished) {
                (Some(Holder::Dlock(published)), _) if published.about.pid == pid => Holder::Dlock(published),
                // The first in line has it locked until its predecessor's hold is over.
                (_, Some((holder, _))) if command_name(pid) == "dlock" => holder,
                _ => process(Some(pid)),
            },
            (Some(_), None) if finished.is_some() => finished.map_or(Holder::Unknown, |(holder, _)| holder),
            (Some(published), None) if !published.is_empty() => Holder::read(published),
            _ => Holder::Unknown,
        }
    }

    /// Returns the earlier run that keeps the lock taken longest although it no longer uses it, and for how long.
    fn finished(&self, content: &Content) -> Option<(Holder, Duration)> {
        let file = self.files.gate();
        let records = numbers(file).filter_map(|number| record(file, number)).filter_map(|record| record.finished());
        content.record.finished().into_iter().chain(records).max_by_key(|(_, left)| *left)
    }

    /// Returns the earlier runs that keep a seat although they no longer use the lock, and their modes, where others
    /// have these `seats`.
    fn kept(&self, seats: &[Seat]) -> Vec<(Mode, Holder)> {
        let file = self.files.gate();
        let left = numbers(file).filter(|number| !seats.iter().any(|seat| seat.number == *number));
        let runs = left.filter_map(|number| record(file, number)).filter_map(|record| record.finished());
        let with_mode = |(run, _): (Holder, Duration)| {
            let Holder::Dlock(published) = &run else { return None };
            let mode = published.mode()?;
            Some((mode, run))
        };
        runs.filter_map(with_mode).collect()
    }

    /// Returns the dlock that has this seat, if that is recorded.
    fn occupant(&self, seat: Seat) -> Option<Holder> {
        let published = record(self.files.gate(), seat.number)?.published()?;
        (published.mode() == Some(seat.mode) && !published.done).then_some(Holder::Dlock(published))
    }

    /// Returns the seats of others, as far as they can be seen.
    fn known_seats(&self) -> Vec<Seat> {
        if self.files.has_ranges { self.seats().unwrap_or_default() } else { Vec::new() }
    }

    fn kernel_locks(&self) -> Option<KernelLocks> {
        let file = self.files.file.metadata().ok()?;
        let gate = self.files.gate().metadata().ok()?;
        KernelLocks::find(&file, &gate)
    }
}

/// Returns what blocks a free lock, where the process `pid` is first in line: that process if it is suspended.
fn next(pid: i32) -> Holder {
    if is_suspended(pid) {
        Holder::InTheWay(format!("{} (pid {pid}), which is first in line and suspended", command_name(pid)))
    } else {
        Holder::Nobody
    }
}

/// Returns this process as the holder; the kernel may not show it.
fn process(pid: Option<i32>) -> Holder {
    pid.map_or(Holder::Unknown, |pid| Holder::Process(pid, command_name(pid)))
}
