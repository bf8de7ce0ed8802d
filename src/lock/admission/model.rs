//! Explores all that a few contenders of different modes can come to, each of which looks, enters and leaves in its own
//! steps: no two hold that exclude each other, and none sleeps that could enter.

use std::collections::BTreeSet;

use super::*;

/// The number of times that each contender comes.
const COMES: u8 = 2;

/// The next step of a contender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It is not there.
    Away,
    /// It looks at the queue.
    Looks,
    /// It has seen that it may enter this slot, and reports that next.
    Enters(u32),
    /// It waits until one of these entries has gone or, if the second is set, has reported that it has entered.
    Sleeps(Vec<String>, bool),
    /// It holds the lock.
    Holds,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    entries: Vec<Entry>,
    contenders: Vec<(Mode, State, u8)>,
    next: i64,
}

impl World {
    fn new(modes: &[Mode]) -> Self {
        let contenders = modes.iter().map(|&mode| (mode, State::Away, 0)).collect();
        Self { entries: Vec::new(), contenders, next: 0 }
    }

    /// Returns every step that one of the contenders can take.
    fn steps(&self) -> Vec<Self> {
        (0..self.contenders.len()).flat_map(|who| [self.goes_on(who), self.leaves(who)]).flatten().collect()
    }

    /// Returns its name, which is also that of its entry.
    fn name(who: usize) -> String {
        who.to_string()
    }

    fn goes_on(&self, who: usize) -> Option<Self> {
        let mut world = self.clone();
        let name = Self::name(who);
        let (mode, state, comes) = &mut world.contenders[who];
        match state.clone() {
            State::Away if *comes == COMES => return None,
            State::Away => {
                *comes += 1;
                *state = State::Looks;
                world.entries.push(Entry { order: world.next, name, mode: *mode, slot: None });
                world.next += 1;
            }
            State::Looks => match place(&self.entries, |entry| entry.name == name) {
                QueuePlace::Enters { slot: None } => *state = State::Holds,
                QueuePlace::Enters { slot: Some(slot) } => *state = State::Enters(slot),
                QueuePlace::Behind { watch, .. } => {
                    *state = match watch {
                        Watch::Gone(entry) => State::Sleeps(vec![entry.name], false),
                        Watch::Turn(entry) => State::Sleeps(vec![entry.name], true),
                        Watch::Any(entries) => {
                            State::Sleeps(entries.into_iter().map(|entry| entry.name).collect(), false)
                        }
                    };
                }
                QueuePlace::OtherSlots(_) => return self.leaves(who),
                QueuePlace::Missing => panic!("{self:?}"),
            },
            State::Enters(slot) => {
                *state = State::Holds;
                world.entries.iter_mut().filter(|entry| entry.name == name).for_each(|entry| entry.slot = Some(slot));
                world.wakes(&name, false);
            }
            State::Sleeps(..) | State::Holds => return None,
        }
        Some(world)
    }

    /// Returns the world after it gives up, dies or releases the lock.
    fn leaves(&self, who: usize) -> Option<Self> {
        let mut world = self.clone();
        if std::mem::replace(&mut world.contenders[who].1, State::Away) == State::Away {
            return None;
        }
        let name = Self::name(who);
        world.entries.retain(|entry| entry.name != name);
        world.wakes(&name, true);
        Some(world)
    }

    fn wakes(&mut self, name: &str, gone: bool) {
        for (_, state, _) in &mut self.contenders {
            if matches!(state, State::Sleeps(names, turn) if (gone || *turn) && names.iter().any(|one| one == name)) {
                *state = State::Looks;
            }
        }
    }

    /// Returns the violation of the rules, if there is one.
    fn fault(&self) -> Option<String> {
        let holds = |who: &usize| self.contenders[*who].1 == State::Holds;
        let holders: Vec<usize> = (0..self.contenders.len()).filter(holds).collect();
        let modes: Vec<Mode> = holders.iter().map(|&who| self.contenders[who].0).collect();
        if modes.iter().any(|mode| *mode != modes[0]) || modes.first().is_some_and(|mode| modes.len() > mode.room()) {
            return Some(format!("{modes:?} together"));
        }
        let slot =
            |who: &usize| self.entries.iter().find(|entry| entry.name == Self::name(*who)).and_then(|entry| entry.slot);
        let slots: Vec<u32> = holders.iter().filter_map(slot).collect();
        if slots.iter().collect::<BTreeSet<_>>().len() < slots.len() {
            return Some(format!("the slots {slots:?}"));
        }
        let sleeps = |who: &usize| {
            let may_enter = || place(&self.entries, |entry| entry.name == Self::name(*who));
            matches!(self.contenders[*who].1, State::Sleeps(..)) && matches!(may_enter(), QueuePlace::Enters { .. })
        };
        (0..self.contenders.len()).find(sleeps).map(|who| format!("{who} could enter and sleeps"))
    }
}

/// Explores all that can happen; returns the number of different states.
fn search(modes: &[Mode]) -> usize {
    let mut seen = BTreeSet::from([World::new(modes)]);
    let mut open: Vec<World> = seen.iter().cloned().collect();
    while let Some(world) = open.pop() {
        if let Some(fault) = world.fault() {
            panic!("{fault}: {world:?}");
        }
        // Only the order of the entries counts, not the number of earlier ones.
        for mut next in world.steps() {
            for (order, entry) in next.entries.iter_mut().enumerate() {
                entry.order = i64::try_from(order).expect("few");
            }
            next.next = i64::try_from(next.entries.len()).expect("few");
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn nobody_overlaps_and_nobody_sleeps_who_could_enter() {
    let slots = |slots: u32| Mode::Slots(NonZeroU32::new(slots).expect("a slot"));
    let modes = [Mode::Exclusive, Mode::Shared, slots(2)];
    let mut states = 0;
    for one in modes {
        for two in modes {
            for three in modes {
                states += search(&[one, two, three]);
            }
        }
    }
    states += search(&[slots(2), slots(3), slots(2)]);
    states += search(&[slots(2), slots(2), slots(2), slots(2)]);
    assert!(states > 10_000, "{states}");
}
