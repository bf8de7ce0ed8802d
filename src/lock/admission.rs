/*!
The rule of admission: the order of the queue decides who may hold a lock. All kinds of lock have the same rule.

> An entry enters when all entries before it are of its own mode and fewer than its mode has room for.

Entries are the holders and the live waiters of a lock, in the order in which they came. So no entry overtakes one that
it would keep out, and the first entry always enters: no mode starves another.
*/

use std::num::NonZeroU32;

/// The largest number of slots that one lock can have.
pub(crate) const MOST_SLOTS: u32 = 1000;

/// The mode in which a claim wants to hold a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with all others of this mode.
    Shared,
    /// Together with others of this mode, up to this number in all; each has its own number.
    Slots(NonZeroU32),
}

impl Mode {
    /// Returns the number of entries of this mode that may hold together; `usize::MAX` for no limit.
    #[must_use]
    pub(crate) fn room(self) -> usize {
        match self {
            Self::Exclusive => 1,
            Self::Shared => usize::MAX,
            Self::Slots(slots) => usize::try_from(slots.get()).unwrap_or(usize::MAX),
        }
    }

    /// Returns its name in what services keep: `exclusive`, `shared`, `slots5`.
    #[must_use]
    pub(crate) fn name(self) -> String {
        match self {
            Self::Exclusive => "exclusive".to_owned(),
            Self::Shared => "shared".to_owned(),
            Self::Slots(slots) => format!("slots{slots}"),
        }
    }

    /// Reads such a name; `None` for any other text.
    #[must_use]
    pub(crate) fn read(name: &str) -> Option<Self> {
        match name {
            "exclusive" => Some(Self::Exclusive),
            "shared" => Some(Self::Shared),
            _ => {
                let digits = name.strip_prefix("slots").filter(|digits| !digits.starts_with(['0', '+']))?;
                digits.parse().ok().filter(|slots: &NonZeroU32| slots.get() <= MOST_SLOTS).map(Self::Slots)
            }
        }
    }

    /// Returns the number of slots; `None` for the other modes.
    #[must_use]
    pub(crate) fn slots(self) -> Option<u32> {
        match self {
            Self::Slots(slots) => Some(slots.get()),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// Returns `true` if both are slots, but in different numbers: that is a disagreement about the lock, not a queue.
    #[must_use]
    pub(crate) fn contradicts(self, other: Self) -> bool {
        matches!((self.slots(), other.slots()), (Some(one), Some(other)) if one != other)
    }

    /// Returns `true` if a run that holds a lock in this mode covers an inner one that wants it in mode `inner`.
    #[must_use]
    pub(crate) fn covers(self, inner: Self) -> bool {
        self == Self::Exclusive || self == inner
    }
}

/// The rule: returns `true` if an entry of mode `own` enters with these modes before it.
#[must_use]
pub(crate) fn enters(own: Mode, before: impl IntoIterator<Item = Mode>) -> bool {
    let mut count = 0;
    before.into_iter().all(|mode| {
        count += 1;
        mode == own && count < own.room()
    })
}

/// Returns how many of the entries with these modes, the oldest first, hold the lock by [the rule](enters).
#[must_use]
pub(crate) fn holders(modes: impl IntoIterator<Item = Mode>) -> usize {
    let mut modes = modes.into_iter().peekable();
    let Some(&first) = modes.peek() else { return 0 };
    modes.take_while(|mode| *mode == first).take(first.room()).count()
}

/// One entry of the queue. If two have the same number (a service never assigns one twice, but a client can make such
/// an entry), the name decides, so that all clients see the same order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The sort key, smallest first: a create revision or a sequence number.
    pub order: i64,
    /// The name of its key or node.
    pub name: String,
    /// The mode in which it wants to hold the lock.
    pub mode: Mode,
    /// The slot that it has, once it has entered one.
    pub slot: Option<u32>,
}

/// The entries that a waiter watches, so that it is woken when it may enter, and no sooner if that can be helped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// The end of this entry.
    Gone(Entry),
    /// The end of this entry, or its report that it has entered: slots are entered one after the other, so that their
    /// numbers need no agreement.
    Turn(Entry),
    /// The end of any of these entries.
    Any(Vec<Entry>),
}

/// The place of this client's entry in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueuePlace {
    /// It enters: this client holds the lock, in this slot if it has slots.
    Enters {
        /// The lowest free slot, or the one that it has already.
        slot: Option<u32>,
    },
    /// It waits.
    Behind {
        /// The oldest entry: one that holds the lock.
        holder: Entry,
        /// The entries whose change wakes it.
        watch: Watch,
        /// Its position among the waiters; 1 for the next.
        position: u64,
    },
    /// Others before it use this number of slots.
    OtherSlots(u32),
    /// It is not in the queue (any more).
    Missing,
}

/// Returns the place of the entry for which `is_ours` is true, among `entries` in any order.
pub(crate) fn place(entries: &[Entry], is_ours: impl Fn(&Entry) -> bool) -> QueuePlace {
    let Some(own) = entries.iter().find(|entry| is_ours(entry)) else { return QueuePlace::Missing };
    // No entry comes before it any more, and its slot stays the same whatever becomes of the others.
    if own.slot.is_some() {
        return QueuePlace::Enters { slot: own.slot };
    }
    let mut before: Vec<&Entry> = entries.iter().filter(|entry| *entry < own).collect();
    before.sort_unstable();
    // The oldest one decides, so that of entries that disagree only the later ones are refused.
    if let Some(oldest) = before.iter().find(|entry| entry.mode.slots().is_some())
        && own.mode.contradicts(oldest.mode)
    {
        return QueuePlace::OtherSlots(oldest.mode.slots().unwrap_or_default());
    }
    let (Some(&holder), Some(&last)) = (before.first(), before.last()) else {
        return QueuePlace::Enters { slot: own.mode.slots().map(|_| 0) };
    };
    let shuts_out = |entry: &&&Entry| own.mode == Mode::Exclusive || entry.mode != own.mode;
    let watch = if own.mode.slots().is_some() && last.mode == own.mode && last.slot.is_none() {
        // They enter one after the other: whatever keeps that entry out keeps this one out.
        Watch::Turn(last.clone())
    } else if let Some(other) = before.iter().rev().find(shuts_out) {
        Watch::Gone((*other).clone())
    } else if own.mode.slots().is_none() {
        return QueuePlace::Enters { slot: None };
    } else if before.len() >= own.mode.room() {
        Watch::Any(before.iter().copied().cloned().collect())
    } else if let Some(odd) = before.iter().rev().find(|entry| entry.slot.is_none()) {
        // It entered before those behind it, but its slot is no longer known: it could be any.
        Watch::Turn((*odd).clone())
    } else {
        let is_free = |slot: &u32| before.iter().all(|entry| entry.slot != Some(*slot));
        return QueuePlace::Enters { slot: (0..own.mode.slots().unwrap_or(1)).find(is_free) };
    };
    let holders = holders(before.iter().map(|entry| entry.mode));
    let position = (before.len() - holders + 1).try_into().unwrap_or(u64::MAX);
    QueuePlace::Behind { holder: holder.clone(), watch, position }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::property::holds;

    fn slots(slots: u32) -> Mode {
        Mode::Slots(NonZeroU32::new(slots).expect("a slot"))
    }

    fn entry(order: i64, mode: Mode) -> Entry {
        Entry { order, name: order.to_string(), mode, slot: None }
    }

    fn entries(orders: &[i64]) -> Vec<Entry> {
        orders.iter().map(|&order| entry(order, Mode::Exclusive)).collect()
    }

    fn place_of(order: i64, entries: &[Entry]) -> QueuePlace {
        place(entries, |entry| entry.order == order)
    }

    const ENTERS: QueuePlace = QueuePlace::Enters { slot: None };

    #[test]
    fn the_oldest_entry_holds_and_the_others_watch_the_one_before_them() {
        assert_eq!(place_of(3, &entries(&[3])), ENTERS);
        assert_eq!(place_of(3, &entries(&[9, 3, 5])), ENTERS);
        let [holder, before] = [3, 7].map(|order| entry(order, Mode::Exclusive));
        let expected = QueuePlace::Behind { holder, watch: Watch::Gone(before), position: 2 };
        assert_eq!(place_of(9, &entries(&[7, 9, 3, 12])), expected);
        assert_eq!(place_of(4, &entries(&[3, 5])), QueuePlace::Missing);
        assert_eq!(place_of(4, &[]), QueuePlace::Missing);
    }

    #[test]
    fn of_two_entries_with_the_same_number_one_is_first() {
        let named = |name: &str| Entry { name: name.to_owned(), ..entry(5, Mode::Exclusive) };
        let entries = ["b", "a"].map(named);
        assert_eq!(place(&entries, |entry| entry.name == "a"), ENTERS);
        assert!(matches!(place(&entries, |entry| entry.name == "b"), QueuePlace::Behind { position: 1, .. }));
    }

    #[test]
    fn whoever_waits_watches_what_can_let_it_in() {
        use Mode::{Exclusive as X, Shared as S};
        let n = slots(2);
        let taken = |order: i64, slot: u32| Entry { slot: Some(slot), ..entry(order, n) };
        let behind = |holder: &Entry, watch, position| QueuePlace::Behind { holder: holder.clone(), watch, position };
        for (line, expected) in [
            // Readers: the nearest entry of another mode.
            (vec![entry(1, S), entry(2, S), entry(3, S)], ENTERS),
            (vec![entry(1, X), entry(2, S), entry(3, S)], behind(&entry(1, X), Watch::Gone(entry(1, X)), 2)),
            (vec![entry(1, S), entry(2, X), entry(3, S)], behind(&entry(1, S), Watch::Gone(entry(2, X)), 2)),
            (vec![entry(1, S), entry(2, S), entry(3, X)], behind(&entry(1, S), Watch::Gone(entry(2, S)), 1)),
            // Slots: in turn, with the lowest number that is free.
            (vec![entry(3, n)], QueuePlace::Enters { slot: Some(0) }),
            (vec![taken(1, 0), entry(3, n)], QueuePlace::Enters { slot: Some(1) }),
            (vec![taken(1, 1), entry(3, n)], QueuePlace::Enters { slot: Some(0) }),
            (vec![taken(1, 0), taken(3, 1)], QueuePlace::Enters { slot: Some(1) }),
            (vec![entry(1, n), entry(3, n)], behind(&entry(1, n), Watch::Turn(entry(1, n)), 1)),
            (
                vec![taken(1, 0), taken(2, 1), entry(3, n)],
                behind(&taken(1, 0), Watch::Any(vec![taken(1, 0), taken(2, 1)]), 1),
            ),
            (
                vec![taken(0, 0), taken(1, 1), entry(2, n), entry(3, n)],
                behind(&taken(0, 0), Watch::Turn(entry(2, n)), 2),
            ),
            // The slot of the first one is no longer known.
            (
                vec![entry(1, slots(3)), Entry { slot: Some(0), ..entry(2, slots(3)) }, entry(3, slots(3))],
                behind(&entry(1, slots(3)), Watch::Turn(entry(1, slots(3))), 1),
            ),
            (vec![entry(1, n), taken(3, 1)], QueuePlace::Enters { slot: Some(1) }),
            (vec![taken(1, 0), entry(2, X), entry(3, n)], behind(&taken(1, 0), Watch::Gone(entry(2, X)), 2)),
            // Of entries that disagree about the number of slots, the later ones are refused.
            (vec![entry(1, slots(1)), entry(3, n)], QueuePlace::OtherSlots(1)),
            (vec![entry(3, n), entry(4, slots(3))], QueuePlace::Enters { slot: Some(0) }),
            (
                vec![taken(1, 0), entry(2, slots(3)), entry(3, n)],
                behind(&taken(1, 0), Watch::Gone(entry(2, slots(3))), 2),
            ),
        ] {
            assert_eq!(place_of(3, &line), expected, "{line:?}");
        }
    }

    #[test]
    fn whatever_the_order_of_the_listing_exactly_one_holds_and_the_others_wait_in_one_line() {
        let order = prop_oneof![-2..4_i64, any::<i64>()];
        let listing = vec((order, 0..20_u8), 1..12).prop_map(|entries| {
            let mut names = std::collections::BTreeSet::new();
            let exclusive =
                |(order, name): (i64, u8)| Entry { name: name.to_string(), ..entry(order, Mode::Exclusive) };
            entries.into_iter().map(exclusive).filter(|entry| names.insert(entry.name.clone())).collect::<Vec<_>>()
        });
        let shuffled = listing.prop_flat_map(|listing| (Just(listing.clone()), Just(listing).prop_shuffle()));
        holds(1500, shuffled, |(listing, shuffled)| {
            let mut line = listing.clone();
            line.sort();
            for (index, own) in line.iter().enumerate() {
                let seen = place(&listing, |entry| entry.name == own.name);
                prop_assert_eq!(&seen, &place(&shuffled, |entry| entry.name == own.name));
                let expected = match index {
                    0 => ENTERS,
                    _ => QueuePlace::Behind {
                        holder: line[0].clone(),
                        watch: Watch::Gone(line[index - 1].clone()),
                        position: index as u64,
                    },
                };
                prop_assert_eq!(seen, expected);
            }
            prop_assert_eq!(place(&listing, |entry| entry.name == "nobody"), QueuePlace::Missing);
            Ok(())
        });
    }

    #[test]
    fn names_are_read_back() {
        for mode in [Mode::Exclusive, Mode::Shared, slots(1), slots(MOST_SLOTS)] {
            assert_eq!(Mode::read(&mode.name()), Some(mode));
        }
        for name in ["", "Shared", "slots", "slots0", "slots01", "slots+1", "slots-1", "slots1001", "slots5x"] {
            assert_eq!(Mode::read(name), None, "{name}");
        }
    }

    #[test]
    fn an_outer_run_covers_what_it_excludes_everybody_else_from() {
        use Mode::{Exclusive as X, Shared as S};
        let (two, three) = (slots(2), slots(3));
        let all = [X, S, two, three];
        for (outer, covered) in [(X, &all[..]), (S, &[S]), (two, &[two]), (three, &[three])] {
            for inner in all {
                assert_eq!(outer.covers(inner), covered.contains(&inner), "{outer:?} {inner:?}");
            }
        }
        assert!(two.contradicts(three) && !two.contradicts(two) && !two.contradicts(S) && !X.contradicts(two));
    }

    #[test]
    fn the_rule() {
        use Mode::{Exclusive as X, Shared as S};
        let n = slots;
        for (own, before, expected) in [
            (X, &[][..], true),
            (X, &[X], false),
            (X, &[S], false),
            (X, &[n(2)], false),
            (S, &[], true),
            (S, &[S, S, S], true),
            (S, &[X], false),
            // A reader does not overtake the writer that waits for the readers before it.
            (S, &[S, X], false),
            (S, &[X, S], false),
            (n(2), &[], true),
            (n(2), &[n(2)], true),
            (n(2), &[n(2), n(2)], false),
            (n(1), &[n(1)], false),
            (n(2), &[n(3)], false),
            (n(2), &[S], false),
        ] {
            assert_eq!(enters(own, before.iter().copied()), expected, "{own:?} {before:?}");
        }
    }

    #[test]
    fn whoever_holds_together_may_and_nobody_is_overtaken() {
        let mode = || prop_oneof![2 => Just(Mode::Exclusive), 3 => Just(Mode::Shared), 4 => (1..4_u32).prop_map(slots)];
        holds(3000, vec(mode(), 1..9), |line| {
            let holds: Vec<bool> = (0..line.len()).map(|own| enters(line[own], line[..own].iter().copied())).collect();
            prop_assert!(holds[0], "the first one waits for nobody");
            prop_assert_eq!(super::holders(line.iter().copied()), holds.iter().filter(|holds| **holds).count());
            prop_assert!(holds.is_sorted_by(|one, next| *one || !*next), "{line:?}: overtaken in {holds:?}");
            let holders: Vec<Mode> =
                line.iter().zip(&holds).filter(|(_, holds)| **holds).map(|(mode, _)| *mode).collect();
            prop_assert!(holders.iter().all(|mode| *mode == holders[0]), "{line:?}: {holders:?} together");
            prop_assert!(holders.len() <= holders[0].room(), "{line:?}: {holders:?} together");
            // No room is left that the next one could have had.
            if let Some(next) = line.get(holders.len()) {
                let is_full = holders[0].room() == holders.len();
                prop_assert!(*next != holders[0] || is_full, "{line:?}: only {holders:?} together");
            }
            Ok(())
        });
    }
}
