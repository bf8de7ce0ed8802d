/*!
Who may hold a lock, by the order of its queue: one rule for all kinds of lock.

> An entry enters when all entries before it are of its own mode and fewer than its mode has room for.

Entries are the holders and the live waiters of a lock, in the order in which they came. So no entry overtakes one that it
would keep out, and the first entry always enters: no mode starves another one.
*/

/// How a claim wants to hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Alone.
    Exclusive,
    /// Together with all others of this mode. Not available to claims yet; used in tests of the rule.
    #[cfg(test)]
    Shared,
    /// Together with others of this mode, up to this number in all. Not available to claims yet; used in tests of the rule.
    #[cfg(test)]
    Slots(usize),
}

impl Mode {
    /// How many entries of this mode may hold together; `usize::MAX` for no limit.
    #[must_use]
    pub(crate) fn room(self) -> usize {
        match self {
            Self::Exclusive => 1,
            #[cfg(test)]
            Self::Shared => usize::MAX,
            #[cfg(test)]
            Self::Slots(slots) => slots,
        }
    }
}

/// The rule: whether an entry of mode `own` enters with these modes before it.
#[must_use]
pub(crate) fn enters(own: Mode, before: impl IntoIterator<Item = Mode>) -> bool {
    let mut count = 0;
    before.into_iter().all(|mode| {
        count += 1;
        mode == own && count < own.room()
    })
}

/// One entry of the queue. If two have the same number (a service never assigns one twice, but a client can make such an
/// entry), the name decides, so that all clients see the same order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// What orders it, smallest first: a create revision or a sequence number.
    pub order: i64,
    /// Its key's or node's name.
    pub name: String,
    /// How it wants to hold the lock.
    pub mode: Mode,
}

/// The place of this client's entry in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It enters: this client holds the lock.
    Enters,
    /// It waits.
    Behind {
        /// The oldest entry: one that holds the lock.
        holder: Entry,
        /// The entry before it: the one to watch, so that its end wakes this waiter alone.
        predecessor: Entry,
        /// How many are before it; 1 for the next.
        position: u64,
    },
    /// It is not in the queue (any more).
    Missing,
}

/// The place of the entry for which `is_ours` is true, among `entries` in any order.
pub(crate) fn place(entries: &[Entry], is_ours: impl Fn(&Entry) -> bool) -> Place {
    let Some(own) = entries.iter().find(|entry| is_ours(entry)) else { return Place::Missing };
    let before = || entries.iter().filter(|entry| *entry < own);
    if enters(own.mode, before().map(|entry| entry.mode)) {
        return Place::Enters;
    }
    match (before().min(), before().max()) {
        (Some(holder), Some(predecessor)) => Place::Behind {
            holder: holder.clone(),
            predecessor: predecessor.clone(),
            position: before().count().try_into().unwrap_or(u64::MAX),
        },
        // No entry is before it, and it does not enter: its mode has no room at all.
        _ => Place::Missing,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::property::holds;

    fn entries(orders: &[i64]) -> Vec<Entry> {
        orders.iter().map(|&order| Entry { order, name: order.to_string(), mode: Mode::Exclusive }).collect()
    }

    fn place_of(order: i64, orders: &[i64]) -> Place {
        place(&entries(orders), |entry| entry.order == order)
    }

    #[test]
    fn the_oldest_entry_holds_and_the_others_watch_the_one_before_them() {
        assert_eq!(place_of(3, &[3]), Place::Enters);
        assert_eq!(place_of(3, &[9, 3, 5]), Place::Enters);
        let [holder, predecessor] = [3, 7].map(|order| Entry { order, name: order.to_string(), mode: Mode::Exclusive });
        assert_eq!(place_of(9, &[7, 9, 3, 12]), Place::Behind { holder, predecessor, position: 2 });
        assert_eq!(place_of(4, &[3, 5]), Place::Missing);
        assert_eq!(place_of(4, &[]), Place::Missing);
    }

    #[test]
    fn of_two_entries_with_the_same_number_one_is_first() {
        let entries = ["b", "a"].map(|name| Entry { order: 5, name: name.to_owned(), mode: Mode::Exclusive });
        assert_eq!(place(&entries, |entry| entry.name == "a"), Place::Enters);
        assert!(matches!(place(&entries, |entry| entry.name == "b"), Place::Behind { position: 1, .. }));
    }

    #[test]
    fn whatever_the_order_of_the_listing_exactly_one_holds_and_the_others_wait_in_one_line() {
        let order = prop_oneof![-2..4_i64, any::<i64>()];
        let listing = vec((order, 0..20_u8), 1..12).prop_map(|entries| {
            let mut names = std::collections::BTreeSet::new();
            let entry = |(order, name): (i64, u8)| Entry { order, name: name.to_string(), mode: Mode::Exclusive };
            entries.into_iter().map(entry).filter(|entry| names.insert(entry.name.clone())).collect::<Vec<_>>()
        });
        let shuffled = listing.prop_flat_map(|listing| (Just(listing.clone()), Just(listing).prop_shuffle()));
        holds(1500, shuffled, |(listing, shuffled)| {
            let mut line = listing.clone();
            line.sort();
            for (index, own) in line.iter().enumerate() {
                let seen = place(&listing, |entry| entry.name == own.name);
                prop_assert_eq!(&seen, &place(&shuffled, |entry| entry.name == own.name));
                let expected = match index {
                    0 => Place::Enters,
                    _ => Place::Behind {
                        holder: line[0].clone(),
                        predecessor: line[index - 1].clone(),
                        position: index as u64,
                    },
                };
                prop_assert_eq!(seen, expected);
            }
            prop_assert_eq!(place(&listing, |entry| entry.name == "nobody"), Place::Missing);
            Ok(())
        });
    }

    #[test]
    fn the_rule() {
        use Mode::{Exclusive as X, Shared as S, Slots as N};
        for (own, before, expected) in [
            (X, &[][..], true),
            (X, &[X], false),
            (X, &[S], false),
            (X, &[N(2)], false),
            (S, &[], true),
            (S, &[S, S, S], true),
            (S, &[X], false),
            // A reader does not overtake the writer that waits for the readers before it.
            (S, &[S, X], false),
            (S, &[X, S], false),
            (N(2), &[], true),
            (N(2), &[N(2)], true),
            (N(2), &[N(2), N(2)], false),
            (N(1), &[N(1)], false),
            (N(2), &[N(3)], false),
            (N(2), &[S], false),
        ] {
            assert_eq!(enters(own, before.iter().copied()), expected, "{own:?} {before:?}");
        }
    }

    #[test]
    fn whoever_holds_together_may_and_nobody_is_overtaken() {
        let mode = || prop_oneof![2 => Just(Mode::Exclusive), 3 => Just(Mode::Shared), 4 => (1..4_usize).prop_map(Mode::Slots)];
        holds(3000, vec(mode(), 1..9), |line| {
            let holds: Vec<bool> = (0..line.len()).map(|own| enters(line[own], line[..own].iter().copied())).collect();
            prop_assert!(holds[0], "the first one waits for nobody");
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
