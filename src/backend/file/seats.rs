/*!
The seats of co-holders: each has a number, and locks a byte of the lock file that stands for it. The seats that are
taken decide whether another contender may enter. Pure; the kernel knows which bytes are locked.

A reader's seat only shows that there is a reader. A slot's seat has the number of the slot.
*/

use crate::backend::file::ranges::{Range, SEATS, WANTED};
use crate::clock::Instant;
use crate::lock::admission::{MOST_SLOTS, Mode};

/// Number of seats for readers, and for each number of slots.
pub(super) const MOST: u32 = 1 << 12;

/// [`MOST`] as a number of bytes.
const BYTES: i32 = 1 << 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    /// The mode of its holder.
    pub mode: Mode,
    /// The seat's number, from 0 on.
    pub number: u32,
}

impl Seat {
    /// The seat of an exclusive holder. No byte stands for it: flock(2) shows it.
    pub(super) const ALONE: Self = Self { mode: Mode::Exclusive, number: 0 };

    /// Returns the byte that stands for the seat; `None` if there is no such seat.
    #[must_use]
    pub(super) fn byte(self) -> Option<Range> {
        let first = first(self.mode)?;
        let number = i32::try_from(self.number).ok().filter(|_| self.number < room(self.mode))?;
        Some(SEATS.byte(first + number))
    }

    /// Returns the seat for which this byte stands; `None` if it is not a single byte, or stands for no seat.
    #[must_use]
    pub(super) fn of(byte: Range) -> Option<Self> {
        let index = byte.start.checked_sub(SEATS.start).filter(|index| byte.length == 1 && *index >= 0)?;
        let slots = index / BYTES;
        let mode = if slots == 0 { Mode::Shared } else { Mode::read(&format!("slots{slots}"))? };
        let number = u32::try_from(index % BYTES).ok()?;
        (number < room(mode)).then_some(Self { mode, number })
    }

    /// Returns the slot of its holder.
    #[must_use]
    pub(super) fn slot(self) -> Option<u32> {
        self.mode.slots().map(|_| self.number)
    }
}

/// Returns the number of holders that can have the lock at a time in this mode.
fn room(mode: Mode) -> u32 {
    match mode {
        Mode::Exclusive => 1,
        Mode::Shared => MOST,
        Mode::Slots(slots) => slots.get(),
    }
}

/// Returns the offset of the first byte for the seats of this mode, from the beginning of [`SEATS`].
fn first(mode: Mode) -> Option<i32> {
    match mode {
        Mode::Exclusive => None,
        Mode::Shared => Some(0),
        Mode::Slots(slots) => i32::try_from(slots.get()).ok()?.checked_mul(BYTES),
    }
}

/// Returns the taken seats in order, where `conflict` finds a lock in a range; `None` if a lock there is not a seat's.
pub(super) fn taken<E>(mut conflict: impl FnMut(Range) -> Result<Option<Range>, E>) -> Result<Option<Vec<Seat>>, E> {
    let (mut unknown, mut seats) = (vec![SEATS], Vec::new());
    while let Some(range) = unknown.pop() {
        let Some(found) = conflict(range)? else { continue };
        let Some(seat) = Seat::of(found).filter(|_| range.contains(found)) else { return Ok(None) };
        seats.push(seat);
        unknown.extend(range.without(found).into_iter().filter(|part| part.length > 0));
    }
    seats.sort_unstable();
    Ok(Some(seats))
}

/// Returns the ranges of seats for other numbers of slots than `slots`; one of them may be empty.
#[must_use]
pub(super) fn other_slots(slots: u32) -> [Range; 2] {
    let slots = i32::try_from(slots).unwrap_or(i32::MAX / BYTES - 1);
    [SEATS.part(BYTES, slots * BYTES), SEATS.part((slots + 1) * BYTES, SEATS.length)]
}

/// Returns the byte that shows that a contender waits for one of this many slots.
#[must_use]
pub(super) fn wanted_byte(slots: u32) -> Range {
    WANTED.byte(i32::try_from(slots).unwrap_or(0))
}

/// Returns the number of slots that a waiter wants, as shown by this byte; `None` if it is not such a byte.
#[must_use]
pub(super) fn wanted_slots(byte: Range) -> Option<u32> {
    let slots = byte.start.checked_sub(WANTED.start).and_then(|index| u32::try_from(index).ok())?;
    (byte.length == 1 && (1..=MOST_SLOTS).contains(&slots)).then_some(slots)
}

/// Returns the ranges of bytes for waiters that want another number of slots than `slots`; one may be empty.
#[must_use]
pub(super) fn other_wanted(slots: u32) -> [Range; 2] {
    let [own, last] = [slots, MOST_SLOTS].map(|slots| i32::try_from(slots).unwrap_or(0));
    [WANTED.part(1, own), WANTED.part(own + 1, last + 1)]
}

/// The decision whether a contender may enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It may, and takes the seat with this number.
    Free(u32),
    /// No user of the lock keeps it out, but the lock stays taken until then.
    MinimumHold(Instant),
    /// Others have it. Unless it is free before, look again then: an unused seat becomes free.
    Taken(Option<Instant>),
    /// Others use this number of slots.
    OtherSlots(u32),
}

/// Decides whether a contender of mode `own` may enter, where these seats are `taken`, and those are `kept` until then
/// although they are not used. No other contender may be ahead of it.
#[must_use]
pub(super) fn entry(own: Mode, taken: &[Seat], kept: &[(Seat, Instant)]) -> Entry {
    let modes = || taken.iter().chain(kept.iter().map(|(seat, _)| seat)).map(|seat| seat.mode);
    if let Some(slots) = modes().filter(|mode| own.contradicts(*mode)).find_map(Mode::slots) {
        return Entry::OtherSlots(slots);
    }
    let shuts_out = |seat: &Seat| own == Mode::Exclusive || seat.mode != own;
    if taken.iter().any(shuts_out) {
        return Entry::Taken(None);
    }
    if let Some(until) = kept.iter().filter(|(seat, _)| shuts_out(seat)).map(|(_, until)| *until).max() {
        return Entry::MinimumHold(until);
    }
    let used = |number: u32| taken.iter().chain(kept.iter().map(|(seat, _)| seat)).any(|seat| seat.number == number);
    match (0..room(own)).find(|&number| !used(number)) {
        Some(number) => Entry::Free(number),
        None => Entry::Taken(kept.iter().map(|(_, until)| *until).min()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;
    use crate::property::holds;

    fn slots(slots: u32) -> Mode {
        Mode::read(&format!("slots{slots}")).expect("slots")
    }

    fn seat(mode: Mode, number: u32) -> Seat {
        Seat { mode, number }
    }

    #[test]
    fn a_seat_is_told_by_its_byte() {
        let modes = [Mode::Shared, slots(1), slots(2), slots(999), slots(MOST_SLOTS)];
        let mut bytes = BTreeSet::new();
        for mode in modes {
            for number in [0, 1, room(mode) / 2, room(mode) - 1] {
                let Some(byte) = seat(mode, number).byte() else {
                    assert!(number >= room(mode));
                    continue;
                };
                assert!(SEATS.contains(byte));
                assert_eq!(Seat::of(byte), Some(seat(mode, number)));
                bytes.insert(byte.start);
            }
            assert_eq!(seat(mode, room(mode)).byte(), None);
        }
        assert_eq!(bytes.len(), 4 + 1 + 2 + 4 + 4, "different seats, different bytes");
        assert_eq!(Seat::ALONE.byte(), None);
        for (start, length) in [
            (SEATS.start, 2),
            (SEATS.start - 1, 1),
            (0, i32::MAX),
            (i32::MAX, i32::MAX),
            // The third of two slots, and a slot of too many.
            (SEATS.start + 2 * BYTES + 2, 1),
            (SEATS.start + 1001 * BYTES, 1),
        ] {
            assert_eq!(Seat::of(Range { start, length }), None, "{start} {length}");
        }
    }

    #[test]
    fn every_seat_that_is_taken_is_found_in_whatever_order_the_kernel_tells() {
        let seats = btree_set((0..4_u32, 0..6_u32), 0..20);
        holds(500, (seats, any::<u64>()), |(seats, random)| {
            let mode = |kind| if kind == 0 { Mode::Shared } else { slots(kind * 7) };
            let seats: BTreeSet<Seat> = seats.into_iter().map(|(kind, number)| seat(mode(kind), number)).collect();
            let mut asked = 0;
            let found = taken(|range| {
                asked += 1;
                let within: Vec<Range> =
                    seats.iter().filter_map(|seat| seat.byte()).filter(|byte| range.contains(*byte)).collect();
                let any = usize::try_from(random % (within.len() as u64).max(1)).expect("small");
                Ok::<_, Infallible>(within.get(any).copied())
            });
            prop_assert_eq!(found, Ok(Some(seats.iter().copied().collect::<Vec<_>>())));
            prop_assert!(asked <= 2 * seats.len() + 1, "{} for {}", asked, seats.len());
            Ok(())
        });
        let whole_file = |_| Ok::<_, Infallible>(Some(Range { start: 0, length: i32::MAX }));
        assert_eq!(taken(whole_file), Ok(None));
        assert_eq!(taken(|_| Err("no")), Err("no"));
    }

    #[test]
    fn other_numbers_of_slots_are_all_but_the_own_one() {
        for own in [1, 2, 3, MOST_SLOTS] {
            let ranges = other_slots(own);
            for other in [1, 2, 3, 4, MOST_SLOTS - 1, MOST_SLOTS] {
                for number in [0, other - 1] {
                    let byte = seat(slots(other), number).byte().expect("a seat");
                    let is_other = ranges.iter().any(|range| range.contains(byte));
                    assert_eq!(is_other, own != other, "{own} {other}");
                }
            }
            let reader = Seat { mode: Mode::Shared, number: 0 }.byte().expect("a seat");
            assert!(!ranges.iter().any(|range| range.contains(reader)));
        }
    }

    #[test]
    fn the_number_of_slots_that_is_wanted_is_read_from_its_byte() {
        for own in [1, 2, 3, MOST_SLOTS] {
            assert_eq!(wanted_slots(wanted_byte(own)), Some(own));
            for other in [1, 2, 3, 4, MOST_SLOTS - 1, MOST_SLOTS] {
                let is_other = other_wanted(own).iter().any(|range| range.contains(wanted_byte(other)));
                assert_eq!(is_other, own != other, "{own} {other}");
            }
        }
        for byte in [WANTED.byte(0), WANTED.byte(1001), WANTED.part(1, 3), SEATS.byte(1), Range { start: 0, length: 1 }]
        {
            assert_eq!(wanted_slots(byte), None, "{byte:?}");
        }
    }

    #[test]
    fn whoever_may_enter_takes_the_lowest_seat_that_is_free() {
        use Mode::{Exclusive as X, Shared as S};
        let (two, three) = (slots(2), slots(3));
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        for (own, taken, kept, expected) in [
            (X, &[][..], &[][..], Entry::Free(0)),
            (X, &[], &[(Seat::ALONE, at(5))], Entry::MinimumHold(at(5))),
            // The latest end counts.
            (X, &[], &[(seat(S, 0), at(5)), (seat(S, 1), at(9)), (seat(S, 2), at(7))], Entry::MinimumHold(at(9))),
            (X, &[seat(S, 0)], &[(seat(S, 1), at(9))], Entry::Taken(None)),
            (S, &[], &[], Entry::Free(0)),
            (S, &[seat(S, 0), seat(S, 2)], &[], Entry::Free(1)),
            // A reader's hold keeps its record, but no other reader out.
            (S, &[seat(S, 0)], &[(seat(S, 1), at(9))], Entry::Free(2)),
            (S, &[], &[(Seat::ALONE, at(9))], Entry::MinimumHold(at(9))),
            (S, &[], &[(seat(two, 1), at(9))], Entry::MinimumHold(at(9))),
            (S, &[seat(two, 1)], &[], Entry::Taken(None)),
            (two, &[], &[], Entry::Free(0)),
            (two, &[seat(two, 0)], &[], Entry::Free(1)),
            (two, &[seat(two, 1)], &[], Entry::Free(0)),
            (two, &[seat(two, 0), seat(two, 1)], &[], Entry::Taken(None)),
            // A kept slot is taken, and free when its hold is over.
            (two, &[seat(two, 1)], &[(seat(two, 0), at(9))], Entry::Taken(Some(at(9)))),
            (two, &[], &[(seat(two, 0), at(9)), (seat(two, 1), at(7))], Entry::Taken(Some(at(7)))),
            (two, &[], &[(seat(two, 0), at(9))], Entry::Free(1)),
            (two, &[seat(S, 0)], &[], Entry::Taken(None)),
            (two, &[], &[(seat(S, 0), at(9))], Entry::MinimumHold(at(9))),
            (two, &[seat(three, 0)], &[], Entry::OtherSlots(3)),
            (three, &[], &[(seat(two, 1), at(9))], Entry::OtherSlots(2)),
        ] {
            assert_eq!(entry(own, taken, kept), expected, "{own:?} {taken:?} {kept:?}");
        }
        let all: Vec<Seat> = (0..MOST).map(|number| seat(S, number)).collect();
        assert_eq!(entry(S, &all, &[]), Entry::Taken(None));
    }
}
