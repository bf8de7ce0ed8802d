/*!
A model that tries every possible course of two attempts on three servers: requests and answers that are late or lost,
keys that disappear at any moment, attempts that stop. The decisions are those of
[`quorum`](crate::backend::redlock::quorum); the servers are modelled here, after the scripts.

Without a clock, the model shows that tokens differ and that an attempt that begins after another was granted gets the
larger token; with a shared clock, that no two attempts hold the lock at the same time. It also shows that each rule is
needed: without it, the same search finds a violation.

The model leaves out what makes no difference. A refused request equals one that never arrives, and so does an attempt
that gives up; a key that expires or is given back is gone, at the latest, when another attempt notices.

Locks with several holders have their own model, in [`groups`].
*/

mod groups;
mod state;

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::backend::redlock::model::state::{Rules, SERVERS, State, Violation, World};

/// Visits every state that can be reached. Returns their number and all violations.
fn explore(world: World) -> (usize, BTreeSet<Violation>) {
    let first = State::first(world);
    let mut seen: HashSet<State, BuildHasherDefault<Mix>> = HashSet::default();
    let (mut open, mut next, mut wrong) = (vec![first], Vec::new(), BTreeSet::new());
    seen.insert(first);
    while let Some(state) = open.pop() {
        wrong.extend(state.steps(world, &mut next).err());
        for mut state in next.drain(..) {
            state.tidy();
            if seen.insert(state) {
                open.push(state);
            }
        }
    }
    (seen.len(), wrong)
}

/// A fast hash for small numbers: the default one would take most of the time of a search.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.unsigned_abs() as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// Returns all initial counts that matter: their order and a common offset make no difference.
fn all_counts() -> impl Iterator<Item = [u8; SERVERS]> {
    (0..3).flat_map(|middle| (middle..3).map(move |last| [0, middle, last]))
}

fn timeless(rules: Rules, counts: [u8; SERVERS]) -> World {
    World { rules, timed: false, counts, proposals: [0, 0], repeats: false }
}

fn timed(rules: Rules) -> World {
    World { rules, timed: true, counts: [0, 0, 0], proposals: [0, 0], repeats: false }
}

/// Runs the model from all initial counts, and returns all violations.
fn explore_all(rules: Rules, proposals: [u8; 2]) -> BTreeSet<Violation> {
    all_counts().flat_map(|counts| explore(World { proposals, ..timeless(rules, counts) }).1).collect()
}

#[test]
fn tokens_differ_and_rise() {
    // Proposals are below, among and above the counts.
    for proposals in [[0, 0], [2, 2], [0, 3], [3, 0], [3, 4], [4, 3]] {
        assert_eq!(explore_all(Rules::Kept, proposals), BTreeSet::new(), "{proposals:?}");
    }
}

#[test]
fn tokens_differ_and_rise_when_answers_are_lost_and_asked_for_again() {
    for counts in [[0, 0, 2], [0, 1, 2]] {
        let (states, wrong) = explore(World { repeats: true, ..timeless(Rules::Kept, counts) });
        assert_eq!(wrong, BTreeSet::new(), "{counts:?}");
        assert!(states > 10_000, "{states} states are not all");
    }
}

#[test]
fn no_two_attempts_hold_the_lock_at_the_same_time() {
    let (states, wrong) = explore(timed(Rules::Kept));
    assert_eq!(wrong, BTreeSet::new());
    assert!(states > 10_000, "{states} states are not all");
}

#[test]
fn every_rule_is_needed() {
    use Violation::{SameToken, SmallerToken, TwoHolders};
    let found = |rules| explore_all(rules, [0, 0]);
    assert_eq!(found(Rules::NoWriteBack), BTreeSet::from([SameToken, SmallerToken]));
    assert!(found(Rules::WriteBackAnywhere).contains(&SameToken));
    assert!(found(Rules::Forgetting).contains(&SmallerToken));
    assert_eq!(explore(timed(Rules::CountedFromTheAnswer)).1, BTreeSet::from([TwoHolders]));
}
