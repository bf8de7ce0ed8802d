/*!
A contender's place in a lock's queue, judged by one bounded look: that is enough for
[the rule](crate::lock::admission), although a look never lists the whole queue. Pure decisions.

No entry is ever created before another one, so the entries before a contender only become fewer. An entry that has
entered says so in its value, unless nothing was before it when it was created. It follows:

* An exclusive contender waits for the entry before its own.
* Slots are entered one after the other. A contender whose predecessor has not entered waits for that, and need not know
  more. Otherwise all before it have entered: they are no more than there are slots, and their values name their slots.
* A shared contender waits for the nearest entry of another mode. If it sees none, and not the beginning of the queue,
  the farthest entry that it sees decides: if that one has entered, all before it are shared too; otherwise the
  contender waits for it to enter.

An entry waits only for entries before its own, so there is no circle.
*/

use crate::backend::etcd::names::stem;
use crate::holder::Published;
use crate::lock::admission::{Entry, Mode, QueuePlace, Watch, holders, place};

/// A contender's view of the entries before its own, by one look; of all entries, if it has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueView {
    /// The mode in which it wants to hold the lock.
    pub mode: Mode,
    /// The slot that its entry has entered already.
    pub slot: Option<u32>,
    /// The nearest entries, newest first.
    pub before: Vec<Entry>,
    /// The entries before those.
    pub rest: Rest,
    /// The oldest entry of the queue.
    pub first: Option<Entry>,
}

/// The entries that a look does not show because they are too far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    /// There are none.
    Nothing,
    /// There may be any.
    Unseen,
    /// All of them are of the contender's own mode and have entered.
    Entered,
}

impl QueueView {
    /// The entries whose values are needed for a decision, without those whose values were given to
    /// [`QueueView::learn`].
    #[must_use]
    pub(super) fn unread(&self) -> Vec<Entry> {
        let needed: &[Entry] = match self.mode {
            Mode::Slots(_) if self.rest == Rest::Nothing && self.before.len() <= self.mode.room() => &self.before,
            Mode::Shared if self.rest == Rest::Unseen => &self.before[self.before.len().saturating_sub(1)..],
            Mode::Exclusive | Mode::Shared | Mode::Slots(_) => &[],
        };
        let needed = needed.iter().filter(|entry| self.is_of_one_mode() && entry.slot.is_none());
        needed.cloned().collect()
    }

    /// Applies the value published by the entry with this key, created at the revision `order`.
    pub(super) fn learn(&mut self, order: i64, key: &str, said: &Published) {
        let is_it = |entry: &Entry| entry.order == order && stem(&entry.name) == stem(key);
        match self.mode {
            Mode::Exclusive => {}
            Mode::Shared => {
                let is_farthest = self.before.last().is_some_and(is_it) && self.is_of_one_mode();
                if is_farthest && self.rest == Rest::Unseen && said.token.is_some() {
                    self.rest = Rest::Entered;
                }
            }
            Mode::Slots(slots) => {
                for entry in self.before.iter_mut().filter(|entry| is_it(entry) && entry.slot.is_none()) {
                    entry.slot = said.slot.filter(|&slot| slot < slots.get());
                }
            }
        }
    }

    /// The place of the contender's entry, existing or not; [`QueuePlace::Missing`] if the view does not show it.
    #[must_use]
    pub(super) fn place(&self) -> QueuePlace {
        let own = Entry { order: i64::MAX, name: String::new(), mode: self.mode, slot: self.slot };
        if let (Some(turn), Some(holder)) = (self.turn(), self.before.last()) {
            let position = self.position(None).unwrap_or_default();
            return QueuePlace::Behind { holder: holder.clone(), watch: Watch::Turn(turn.clone()), position };
        }
        // If not all entries are seen, the oldest one still shows the number of slots.
        let unseen = self.first.iter().filter(|_| self.rest != Rest::Nothing);
        let entries: Vec<Entry> = unseen.chain(&self.before).chain([&own]).cloned().collect();
        match place(&entries, |entry| *entry == own) {
            QueuePlace::Enters { .. } if self.rest == Rest::Unseen => QueuePlace::Missing,
            place => place,
        }
    }

    /// Returns `true` if an entry at this place enters as soon as those before it have entered: as far as their names
    /// tell, nothing else keeps it out.
    #[must_use]
    pub(super) fn is_entering(&self) -> bool {
        let is_of_one_mode = self.is_of_one_mode() && self.first.iter().all(|first| first.mode == self.mode);
        match self.mode {
            Mode::Exclusive => self.before.is_empty(),
            Mode::Shared => is_of_one_mode,
            Mode::Slots(_) => is_of_one_mode && self.rest == Rest::Nothing && self.before.len() < self.mode.room(),
        }
    }

    /// The position among the waiters, 1 for the next. If not all entries were seen, it is known only behind an
    /// exclusive holder, for the newest of all `keys` (their number) below the lock's name.
    #[must_use]
    pub(super) fn position(&self, keys: Option<u64>) -> Option<u64> {
        let is_held_by_one = self.first.as_ref().is_some_and(|first| first.mode == Mode::Exclusive);
        match self.rest {
            Rest::Nothing => (self.before.len() - self.holders() + 1).try_into().ok(),
            Rest::Unseen | Rest::Entered => keys.filter(|_| is_held_by_one).map(|keys| keys.saturating_sub(1)),
        }
    }

    /// Number of co-holders of the first holder, as far as it is known.
    #[must_use]
    pub(super) fn beside(&self) -> u64 {
        match (self.rest, self.first.as_ref().and_then(|first| first.mode.slots())) {
            (Rest::Nothing, _) => self.holders().saturating_sub(1).try_into().unwrap_or(u64::MAX),
            // There would not be so many waiters if a slot were free.
            (Rest::Unseen | Rest::Entered, Some(slots)) => u64::from(slots) - 1,
            (Rest::Unseen | Rest::Entered, None) => 0,
        }
    }

    /// Number of the entries that hold the lock, if all entries are seen.
    fn holders(&self) -> usize {
        holders(self.before.iter().rev().map(|entry| entry.mode))
    }

    /// The farthest reader seen, which stands for the unseen entries and has to enter first.
    fn turn(&self) -> Option<&Entry> {
        let speaks = self.mode == Mode::Shared && self.rest == Rest::Unseen && self.is_of_one_mode();
        self.before.last().filter(|_| speaks)
    }

    fn is_of_one_mode(&self) -> bool {
        self.before.iter().all(|entry| entry.mode == self.mode)
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use Mode::{Exclusive as X, Shared as S};
    use Rest::{Entered, Nothing, Unseen};

    use super::*;

    fn slots(slots: u32) -> Mode {
        Mode::Slots(slots.try_into().expect("a slot"))
    }

    fn entry(order: i64, mode: Mode) -> Entry {
        Entry { order, name: format!("dlock/a/{order:x}"), mode, slot: None }
    }

    fn taken(order: i64, mode: Mode, slot: u32) -> Entry {
        Entry { slot: Some(slot), ..entry(order, mode) }
    }

    /// The view of a contender with this mode. The first of the entries is the oldest one seen, and the oldest of the
    /// queue if `rest` is nothing.
    fn queue_view(mode: Mode, oldest_first: &[Entry], rest: Rest) -> QueueView {
        let before: Vec<Entry> = oldest_first.iter().rev().cloned().collect();
        QueueView { mode, slot: None, first: before.last().cloned().filter(|_| rest == Nothing), before, rest }
    }

    /// The watch of a place behind others.
    fn watch(view: &QueueView) -> Option<Watch> {
        match view.place() {
            QueuePlace::Behind { watch, .. } => Some(watch),
            _ => None,
        }
    }

    #[test]
    fn whoever_waits_watches_what_can_let_it_in() {
        let n = slots(2);
        let (gone, turn) = (|entry: Entry| Some(Watch::Gone(entry)), |entry: Entry| Some(Watch::Turn(entry)));
        for (mode, before, rest, expected) in [
            (X, vec![entry(1, S), entry(2, S)], Nothing, gone(entry(2, S))),
            (X, vec![entry(1, n), entry(2, X), entry(3, S)], Unseen, gone(entry(3, S))),
            // A reader waits for the nearest entry of another mode, whatever is beyond it.
            (S, vec![entry(1, X), entry(2, S)], Nothing, gone(entry(1, X))),
            (S, vec![entry(1, S), entry(2, X), entry(3, S)], Unseen, gone(entry(2, X))),
            (S, vec![entry(1, n), entry(2, X), entry(3, n), entry(4, S)], Nothing, gone(entry(3, n))),
            // It sees only readers: the farthest stands for the rest.
            (S, vec![entry(1, S), entry(2, S), entry(3, S)], Unseen, turn(entry(1, S))),
            // With slots, it waits for the entry before, and for all of them only if it is the next.
            (n, vec![entry(1, X)], Nothing, gone(entry(1, X))),
            (n, vec![taken(1, n, 0), entry(2, X)], Nothing, gone(entry(2, X))),
            (n, vec![entry(1, n)], Nothing, turn(entry(1, n))),
            (n, vec![entry(1, X), entry(2, n)], Nothing, turn(entry(2, n))),
            (n, vec![entry(1, n), entry(2, n), entry(3, n)], Unseen, turn(entry(3, n))),
            (n, vec![taken(1, n, 0), taken(2, n, 1), entry(3, n)], Nothing, turn(entry(3, n))),
            (n, vec![taken(1, n, 0), taken(2, n, 1)], Nothing, Some(Watch::Any(vec![taken(1, n, 0), taken(2, n, 1)]))),
            // Its value was overwritten: its slot is unknown.
            (slots(3), vec![entry(1, slots(3)), taken(2, slots(3), 1)], Nothing, turn(entry(1, slots(3)))),
        ] {
            assert_eq!(watch(&queue_view(mode, &before, rest)), expected, "{mode:?} {before:?} {rest:?}");
        }
    }

    #[test]
    fn whoever_enters_has_nobody_before_it_who_keeps_it_out() {
        let n = slots(3);
        let enters = |slot| QueuePlace::Enters { slot };
        for (mode, before, rest, expected) in [
            (X, vec![], Nothing, enters(None)),
            (S, vec![], Nothing, enters(None)),
            (S, vec![entry(1, S), entry(2, S)], Nothing, enters(None)),
            (S, vec![entry(1, S), entry(2, S)], Entered, enters(None)),
            (n, vec![], Nothing, enters(Some(0))),
            (n, vec![taken(1, n, 0)], Nothing, enters(Some(1))),
            (n, vec![taken(1, n, 2), taken(2, n, 0)], Nothing, enters(Some(1))),
            // No service gives such an answer.
            (X, vec![], Unseen, QueuePlace::Missing),
            (S, vec![], Unseen, QueuePlace::Missing),
            (n, vec![], Unseen, QueuePlace::Missing),
            (n, vec![taken(1, n, 0)], Unseen, QueuePlace::Missing),
        ] {
            assert_eq!(queue_view(mode, &before, rest).place(), expected, "{mode:?} {before:?} {rest:?}");
        }
        // The slot was entered by a request whose answer was lost.
        let again = QueueView { slot: Some(2), ..queue_view(n, &[taken(1, n, 0)], Nothing) };
        assert_eq!(again.place(), enters(Some(2)));
    }

    #[test]
    fn another_number_of_slots_is_seen_among_the_nearest_and_in_the_first() {
        for (mode, before, first, expected) in [
            (slots(2), vec![entry(1, slots(3))], None, QueuePlace::OtherSlots(3)),
            (slots(2), vec![entry(1, slots(3)), entry(2, X), entry(3, slots(2))], None, QueuePlace::OtherSlots(3)),
            (slots(2), vec![entry(5, slots(2))], Some(entry(1, slots(7))), QueuePlace::OtherSlots(7)),
        ] {
            let view = QueueView { first, ..queue_view(mode, &before, Unseen) };
            assert_eq!(view.place(), expected, "{view:?}");
        }
        // An entry that is about to be refused does not cause others to be refused.
        let (holder, other) = (taken(1, slots(2), 0), entry(2, slots(3)));
        for (before, rest) in [(vec![holder.clone(), other.clone()], Nothing), (vec![other.clone()], Unseen)] {
            let view = QueueView { first: Some(holder.clone()), ..queue_view(slots(2), &before, rest) };
            assert_eq!(watch(&view), Some(Watch::Gone(other.clone())), "{view:?}");
        }
        for mode in [X, S] {
            assert!(watch(&queue_view(mode, &[entry(1, slots(3)), entry(2, slots(2))], Nothing)).is_some());
        }
    }

    #[test]
    fn an_attempt_that_does_not_wait_makes_an_entry_only_where_it_would_enter() {
        let n = slots(2);
        for (mode, before, rest, expected) in [
            (X, vec![], Nothing, true),
            (X, vec![entry(1, S)], Nothing, false),
            (S, vec![entry(1, S), entry(2, S)], Nothing, true),
            (S, vec![entry(1, S), entry(2, S)], Unseen, true),
            // It would overtake a writer.
            (S, vec![entry(1, S), entry(2, X)], Nothing, false),
            (S, vec![entry(1, n)], Nothing, false),
            (n, vec![], Nothing, true),
            // That one is about to enter.
            (n, vec![entry(1, n)], Nothing, true),
            (n, vec![entry(1, n), entry(2, n)], Nothing, false),
            (n, vec![entry(1, n)], Unseen, false),
            (n, vec![entry(1, S)], Nothing, false),
        ] {
            assert_eq!(queue_view(mode, &before, rest).is_entering(), expected, "{mode:?} {before:?} {rest:?}");
        }
        let behind_a_writer =
            QueueView { first: Some(entry(1, X)), ..queue_view(S, &[entry(8, S), entry(9, S)], Unseen) };
        assert!(!behind_a_writer.is_entering());
    }

    #[test]
    fn only_values_that_decide_are_read() {
        let n = slots(2);
        for (mode, before, rest, expected) in [
            (X, vec![entry(1, n), entry(2, n)], Nothing, vec![]),
            (S, vec![entry(1, S), entry(2, S)], Nothing, vec![]),
            (S, vec![entry(1, S), entry(2, S)], Entered, vec![]),
            (S, vec![entry(1, S), entry(2, S)], Unseen, vec![1]),
            (S, vec![entry(1, S), entry(2, X)], Unseen, vec![]),
            (S, vec![], Unseen, vec![]),
            (n, vec![entry(1, n), entry(2, n)], Nothing, vec![2, 1]),
            (n, vec![taken(1, n, 0), entry(2, n)], Nothing, vec![2]),
            // The entry before has certainly not entered.
            (n, vec![entry(1, n), entry(2, n), entry(3, n)], Nothing, vec![]),
            (n, vec![entry(1, n), entry(2, n), entry(3, n)], Unseen, vec![]),
            (n, vec![entry(1, X), entry(2, n)], Nothing, vec![]),
        ] {
            let unread: Vec<i64> = queue_view(mode, &before, rest).unread().iter().map(|entry| entry.order).collect();
            assert_eq!(unread, expected, "{mode:?} {before:?} {rest:?}");
        }
    }

    #[test]
    fn a_value_says_whether_its_entry_has_entered() {
        let says = |slot, token| Published { token, slot, ..Published::default() };
        let n = slots(2);
        let mut two =
            queue_view(n, &[entry(1, n), Entry { name: "dlock/a/2.hold".to_owned(), ..entry(2, n) }], Nothing);
        two.learn(1, "dlock/a/1", &says(Some(1), None));
        two.learn(1, "dlock/a/1", &says(Some(0), None));
        // A recreated entry, another entry, and a slot that does not exist.
        two.learn(3, "dlock/a/2", &says(Some(0), None));
        two.learn(2, "dlock/a/3", &says(Some(0), None));
        two.learn(2, "dlock/a/2", &says(Some(2), None));
        let slots_of = |view: &QueueView| view.before.iter().map(|entry| entry.slot).collect::<Vec<_>>();
        assert_eq!(slots_of(&two), [None, Some(1)]);
        // Either of its keys may say so.
        two.learn(2, "dlock/a/2", &says(Some(0), Some(7)));
        assert_eq!(slots_of(&two), [Some(0), Some(1)]);
        assert_eq!(two.unread(), []);

        let readers = queue_view(S, &[entry(1, S), entry(2, S)], Unseen);
        let learned = |order, said: &Published| {
            let mut view = readers.clone();
            view.learn(order, &format!("dlock/a/{order:x}"), said);
            view.rest
        };
        assert_eq!(learned(1, &says(None, None)), Unseen);
        assert_eq!(learned(1, &says(None, Some(7))), Entered);
        // The value of a nearer entry does not count.
        assert_eq!(learned(2, &says(None, Some(7))), Unseen);
        let mut mixed = queue_view(S, &[entry(1, S), entry(2, X)], Unseen);
        mixed.learn(1, "dlock/a/1", &says(None, Some(7)));
        assert_eq!(mixed.rest, Unseen);
    }

    #[test]
    fn places_and_holders_are_counted_as_far_as_they_are_known() {
        let n = slots(2);
        for (mode, before, rest, keys, position, beside) in [
            (X, vec![entry(1, X)], Nothing, Some(9), Some(1), 0),
            (X, vec![entry(1, X), entry(2, X), entry(3, X)], Nothing, None, Some(3), 0),
            (X, vec![entry(1, S), entry(2, S), entry(3, S)], Nothing, None, Some(1), 2),
            (X, vec![entry(1, S), entry(2, S), entry(3, X), entry(4, S)], Nothing, None, Some(3), 1),
            (S, vec![entry(1, n), entry(2, n), entry(3, n)], Nothing, None, Some(2), 1),
            (n, vec![entry(1, n)], Nothing, None, Some(1), 0),
            (X, vec![], Nothing, None, Some(1), 0),
        ] {
            let view = queue_view(mode, &before, rest);
            assert_eq!((view.position(keys), view.beside()), (position, beside), "{view:?}");
        }
        for (first, keys, position, beside) in [
            (X, Some(700), Some(699), 0),
            (X, None, None, 0),
            // The number of holders is unknown.
            (S, Some(700), None, 0),
            (n, Some(700), None, 1),
        ] {
            let view = QueueView { first: Some(entry(1, first)), ..queue_view(X, &[entry(600, X)], Unseen) };
            assert_eq!((view.position(keys), view.beside()), (position, beside), "{view:?}");
        }
    }

    #[test]
    fn nobody_overlaps_and_nobody_sleeps_who_could_enter() {
        let states = model::search_all();
        assert!(states > 10_000, "{states}");
    }
}
