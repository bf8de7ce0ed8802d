/*!
The order of those who want a lock, where the service keeps a queue of entries: the oldest entry holds it, and each
other one watches the entry before its own. etcd and ZooKeeper share it.
*/

use std::time::Duration;

/// How much longer one who waits goes without news for each entry in the queue.
const NEWS_PER_ENTRY: Duration = Duration::from_millis(100);

/// How often one of so many `entries` asks who holds the lock, although nothing has happened to the entry before its own:
/// as often as `usual` where they are few. What news cost grows with the number of entries, so a crowd of any size asks
/// for them ten times a second in all.
pub(super) fn news_every(usual: Duration, entries: u64) -> Duration {
    usual.max(NEWS_PER_ENTRY.saturating_mul(entries.try_into().unwrap_or(u32::MAX)))
}

/// One entry of the queue. Of two with the same number, which a service gives to nobody but somebody may have made, the
/// name decides: everybody sees the same order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// What orders it, smallest first: a create revision or a sequence number.
    pub order: i64,
    /// Its key's or node's name.
    pub name: String,
}

/// What the queue says of an entry of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the oldest: the lock is ours.
    First,
    /// It waits.
    Behind {
        /// The oldest entry: who holds the lock.
        holder: Entry,
        /// The entry before ours: the one to watch, so that its end wakes us alone.
        predecessor: Entry,
        /// How many are before us; 1 for the next.
        position: u64,
    },
    /// It is not there (any more).
    Missing,
}

/// Where the entry that is ours stands among `entries`, which come in any order.
pub(super) fn place(entries: &[Entry], is_ours: impl Fn(&Entry) -> bool) -> Place {
    let Some(own) = entries.iter().find(|entry| is_ours(entry)) else { return Place::Missing };
    let before = || entries.iter().filter(|entry| *entry < own);
    match (before().min(), before().max()) {
        (Some(holder), Some(predecessor)) => Place::Behind {
            holder: holder.clone(),
            predecessor: predecessor.clone(),
            position: before().count().try_into().unwrap_or(u64::MAX),
        },
        _ => Place::First,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::property::holds;

    fn entries(orders: &[i64]) -> Vec<Entry> {
        orders.iter().map(|&order| Entry { order, name: order.to_string() }).collect()
    }

    fn place_of(order: i64, orders: &[i64]) -> Place {
        place(&entries(orders), |entry| entry.order == order)
    }

    #[test]
    fn the_oldest_entry_holds_and_the_others_watch_the_one_before_them() {
        assert_eq!(place_of(3, &[3]), Place::First);
        assert_eq!(place_of(3, &[9, 3, 5]), Place::First);
        let [holder, predecessor] = [3, 7].map(|order| Entry { order, name: order.to_string() });
        assert_eq!(place_of(9, &[7, 9, 3, 12]), Place::Behind { holder, predecessor, position: 2 });
        assert_eq!(place_of(4, &[3, 5]), Place::Missing);
        assert_eq!(place_of(4, &[]), Place::Missing);
    }

    #[test]
    fn news_are_asked_for_the_less_often_the_more_wait() {
        let usual = Duration::from_secs(10);
        for (entries, expected) in [(0, 10), (2, 10), (100, 10), (500, 50), (2500, 250)] {
            assert_eq!(news_every(usual, entries), Duration::from_secs(expected), "{entries}");
        }
        assert!(news_every(usual, u64::MAX) > Duration::from_secs(1 << 28));
    }

    #[test]
    fn of_two_entries_with_the_same_number_one_is_first() {
        let entries = ["b", "a"].map(|name| Entry { order: 5, name: name.to_owned() });
        assert_eq!(place(&entries, |entry| entry.name == "a"), Place::First);
        assert!(matches!(place(&entries, |entry| entry.name == "b"), Place::Behind { position: 1, .. }));
    }

    #[test]
    fn whatever_the_order_of_the_listing_exactly_one_holds_and_the_others_wait_in_one_line() {
        let order = prop_oneof![-2..4_i64, any::<i64>()];
        let listing = vec((order, 0..20_u8), 1..12).prop_map(|entries| {
            let mut names = std::collections::BTreeSet::new();
            let entry = |(order, name): (i64, u8)| Entry { order, name: name.to_string() };
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
                    0 => Place::First,
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
}
