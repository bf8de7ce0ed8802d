/*!
The order of those who want a lock, where the service keeps a queue of entries: the oldest entry holds it, and each
other one watches the entry before its own. etcd and ZooKeeper share it.
*/

/// One entry of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    let before = || entries.iter().filter(|entry| entry.order < own.order);
    match (before().min_by_key(|entry| entry.order), before().max_by_key(|entry| entry.order)) {
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
    use super::*;

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
}
