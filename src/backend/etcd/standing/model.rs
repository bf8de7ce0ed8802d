//! An exhaustive search of the states of a few contenders of different modes that see only the nearest entries before
//! their own, and read values after names: no two holders exclude each other, and no contender sleeps that could enter.

use std::collections::BTreeSet;

use super::*;
use crate::lock::admission::enters;

/// The next step of a contender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It has no entry.
    Away,
    /// It lists the queue.
    Lists,
    /// It has listed the queue, at a time when these entries had entered, and reads values.
    Reads(QueueView, Vec<i64>),
    /// It has seen that it may enter, and records so next.
    Enters(Option<u32>),
    /// It waits until one of these entries has gone or, if the flag is set, has recorded that it has entered.
    Sleeps(Vec<i64>, bool),
    /// It holds the lock.
    Holds,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Contender {
    mode: Mode,
    state: State,
    /// Number of times that it may still join.
    comes: u8,
    /// The order of its entry.
    order: i64,
    /// Nothing was before its entry when that was made: it need not record that it has entered.
    alone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    /// The entries, oldest first; the flag is set once an entry records that it has entered.
    entries: Vec<(Entry, bool)>,
    contenders: Vec<Contender>,
    next: i64,
}

impl World {
    fn new(modes: &[Mode], comes: u8) -> Self {
        let contender = |&mode: &Mode| Contender { mode, state: State::Away, comes, order: -1, alone: false };
        Self { entries: Vec::new(), contenders: modes.iter().map(contender).collect(), next: 0 }
    }

    fn mode_of(&self, who: usize) -> Mode {
        self.contenders[who].mode
    }

    fn entry(&mut self, order: i64) -> Option<&mut (Entry, bool)> {
        self.entries.iter_mut().find(|(entry, _)| entry.order == order)
    }

    /// The view of the contender `who` that looks at `near` entries.
    fn queue_view(&self, who: usize, near: usize) -> QueueView {
        let Contender { mode, order, .. } = self.contenders[who];
        let older = self.entries.iter().filter(|(entry, _)| entry.order < order);
        let mut before: Vec<Entry> = older.map(|(entry, _)| Entry { slot: None, ..entry.clone() }).rev().collect();
        let all = before.len();
        before.truncate(mode.slots().map_or(near, |_| near.max(mode.room() + 1)));
        let rest = if before.len() == all { Rest::Nothing } else { Rest::Unseen };
        QueueView { mode, slot: None, before, rest, first: self.entries.first().map(|(entry, _)| entry.clone()) }
    }

    /// Adds to `view` the current values that it needs.
    fn read(&self, mut view: QueueView) -> QueueView {
        for entry in view.unread() {
            if let Some((now, entered)) = self.entries.iter().find(|(now, _)| now.order == entry.order) {
                let token = entered.then_some(1);
                view.learn(now.order, &now.name, &Published { slot: now.slot, token, ..Published::default() });
            }
        }
        view
    }

    /// The results of all steps that one of the contenders can take.
    fn steps(&self, near: usize) -> Vec<Self> {
        (0..self.contenders.len()).flat_map(|who| [self.goes_on(who, near), self.leaves(who)]).flatten().collect()
    }

    fn goes_on(&self, who: usize, near: usize) -> Option<Self> {
        let mut world = self.clone();
        let own = &mut world.contenders[who];
        match own.state.clone() {
            State::Away if own.comes == 0 => return None,
            State::Away => {
                (own.comes, own.order, own.state) = (own.comes - 1, self.next, State::Lists);
                own.alone = self.entries.is_empty();
                let entry = Entry { order: own.order, name: own.order.to_string(), mode: own.mode, slot: None };
                world.entries.push((entry, false));
                world.next += 1;
            }
            State::Lists => own.state = State::Reads(self.queue_view(who, near), self.entered().collect()),
            State::Reads(view, entered) => {
                let view = self.read(view);
                own.state = match view.place() {
                    QueuePlace::Enters { slot: None } if own.alone => State::Holds,
                    QueuePlace::Enters { slot } => State::Enters(slot),
                    QueuePlace::OtherSlots(_) => return self.leaves(who),
                    QueuePlace::Missing => panic!("{self:?}"),
                    QueuePlace::Behind { watch, .. } => self.sleeps(&watch, &entered),
                };
            }
            State::Enters(slot) => {
                own.state = State::Holds;
                let order = own.order;
                if let Some((entry, entered)) = world.entry(order) {
                    (entry.slot, *entered) = (slot, true);
                }
                world.wakes(order, false);
            }
            State::Sleeps(..) | State::Holds => return None,
        }
        Some(world)
    }

    /// The entries that have entered.
    fn entered(&self) -> impl Iterator<Item = i64> {
        self.entries.iter().filter(|(_, entered)| *entered).map(|(entry, _)| entry.order)
    }

    /// A watch begins with the listing, when these had `entered`: any event since then wakes the contender at once.
    fn sleeps(&self, watch: &Watch, entered: &[i64]) -> State {
        let (entries, turn) = match watch {
            Watch::Gone(entry) => (vec![entry.order], false),
            Watch::Turn(entry) => (vec![entry.order], true),
            Watch::Any(entries) => (entries.iter().map(|entry| entry.order).collect(), false),
        };
        let is_there = |order: &i64| self.entries.iter().any(|(entry, _)| entry.order == *order);
        let has_entered = |order: &i64| !entered.contains(order) && self.entered().any(|now| now == *order);
        let wakes = !entries.iter().all(is_there) || turn && entries.iter().any(has_entered);
        if wakes { State::Lists } else { State::Sleeps(entries, turn) }
    }

    /// The contender gives up, dies or releases the lock.
    fn leaves(&self, who: usize) -> Option<Self> {
        let mut world = self.clone();
        if std::mem::replace(&mut world.contenders[who].state, State::Away) == State::Away {
            return None;
        }
        let order = std::mem::replace(&mut world.contenders[who].order, -1);
        world.entries.retain(|(entry, _)| entry.order != order);
        world.wakes(order, true);
        Some(world)
    }

    fn wakes(&mut self, order: i64, gone: bool) {
        for contender in &mut self.contenders {
            if matches!(&contender.state, State::Sleeps(entries, turn) if (gone || *turn) && entries.contains(&order)) {
                contender.state = State::Lists;
            }
        }
    }

    /// The violation in this state, if there is one.
    fn fault(&self) -> Option<String> {
        let all = 0..self.contenders.len();
        let is = |who: &usize, wanted: fn(&State) -> bool| wanted(&self.contenders[*who].state);
        let holders: Vec<usize> = all.clone().filter(|who| is(who, |state| *state == State::Holds)).collect();
        let modes: Vec<Mode> = holders.iter().map(|&who| self.mode_of(who)).collect();
        if modes.iter().any(|mode| *mode != modes[0]) || modes.first().is_some_and(|mode| modes.len() > mode.room()) {
            return Some(format!("{modes:?} together"));
        }
        let orders: BTreeSet<i64> = holders.iter().map(|&who| self.contenders[who].order).collect();
        let held = self.entries.iter().filter(|(entry, _)| orders.contains(&entry.order));
        let slots: Vec<u32> = held.filter_map(|(entry, _)| entry.slot).collect();
        if slots.iter().collect::<BTreeSet<_>>().len() < slots.len() {
            return Some(format!("the slots {slots:?}"));
        }
        // A contender that is awake may be about to wake another one.
        let is_awake = |state: &State| !matches!(state, State::Sleeps(..) | State::Holds | State::Away);
        if all.clone().any(|who| is(&who, is_awake)) {
            return None;
        }
        let may_enter = |who: &usize| {
            let own = &self.contenders[*who];
            let before = self.entries.iter().filter(|(entry, _)| entry.order < own.order);
            enters(own.mode, before.map(|(entry, _)| entry.mode))
        };
        let mut sleepers = all.filter(|who| is(who, |state| matches!(state, State::Sleeps(..))));
        sleepers.find(may_enter).map(|who| format!("{who} could enter and sleeps"))
    }
}

/// Searches all states of contenders that look at `near` entries, and returns the number of distinct states. Panics on
/// a violation.
fn search(modes: &[Mode], comes: u8, near: usize) -> usize {
    let mut seen = BTreeSet::from([World::new(modes, comes)]);
    let mut open: Vec<World> = seen.iter().cloned().collect();
    while let Some(world) = open.pop() {
        if let Some(fault) = world.fault() {
            panic!("{fault}, of those who see {near}: {world:?}");
        }
        for next in world.steps(near) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

/// Searches several mixtures of modes, and returns the total number of states.
pub(super) fn search_all() -> usize {
    let slots = |slots: u32| Mode::Slots(slots.try_into().expect("a slot"));
    let (x, s, n) = (Mode::Exclusive, Mode::Shared, slots(2));
    let mut states = 0;
    for one in [x, s, n] {
        for two in [x, s, n] {
            for three in [x, s, n] {
                states += search(&[one, two, three], 1, 1);
            }
        }
    }
    states += search(&[s, s, x], 2, 1);
    states += search(&[s, s, s, x], 1, 1);
    states += search(&[s, s, s, s], 1, 2);
    states += search(&[n, n, n, x], 1, 1);
    states + search(&[slots(2), slots(3), slots(2)], 1, 1)
}
