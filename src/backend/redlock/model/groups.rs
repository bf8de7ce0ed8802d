/*!
A model of locks with several holders: three attempts on three servers, with a shared clock. Requests are late or lost,
attempts give up or end at any moment, and one of them renews its lease once. Tokens are left out: two attempts that
exclude each other are numbered as in the other model.
*/

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use crate::backend::redlock::model::Mix;
use crate::backend::redlock::quorum::{Verdict, Vote, verdict};

const SERVERS: usize = 3;
const ATTEMPTS: usize = 3;
/// The length of a lease in ticks, and the tick at which the clock stops.
const TTL: u8 = 2;
const LAST_TICK: u8 = 4;

/// The mode in which an attempt wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Writer,
    Reader,
    /// One of two slots, with this number.
    Slot(u8),
}

impl Kind {
    /// Returns `true` if both may hold the lock at the same time.
    fn shares(self, other: Self) -> bool {
        match (self, other) {
            (Self::Reader, Self::Reader) => true,
            (Self::Slot(one), Self::Slot(other)) => one != other,
            _ => false,
        }
    }
}

/// The rule that is broken, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// None.
    Kept,
    /// A server counts the slots that are taken there, and does not look at their numbers.
    Counted,
    /// A reader that finds others is let in without its own entry.
    NotEntered,
    /// On a server, all holds end with the first one.
    EndsWithTheFirst,
    /// An attempt that gives back its vote frees the lock on that server.
    FreedByAnyone,
    /// The lease is counted from the grant and not from the first request.
    CountedFromTheAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Request {
    Unsent,
    OnItsWay,
    Done,
}

/// The exchange between one attempt and one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Exchange {
    acquire: Request,
    renew: Request,
    /// The tick at which the attempt's entry there ends; 0 if it has none.
    expires: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    Held,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    /// The tick at which the first request, or the confirmed renewal, was sent.
    sent: u8,
    may_renew: bool,
    /// The tick at which the renewal was sent, until it is confirmed.
    renewed: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// Sorted, because the servers are interchangeable.
    servers: [[Exchange; ATTEMPTS]; SERVERS],
    attempts: [Attempt; ATTEMPTS],
}

/// The attempts and the rules of a run of the model.
#[derive(Clone, Copy, Debug)]
struct World {
    kinds: [Kind; ATTEMPTS],
    rules: Rules,
}

impl State {
    fn first() -> Self {
        let line = Exchange { acquire: Request::Unsent, renew: Request::Unsent, expires: 0 };
        let attempt = |may_renew| Attempt { phase: Phase::Idle, sent: 0, may_renew, renewed: None };
        Self { now: 0, servers: [[line; ATTEMPTS]; SERVERS], attempts: [attempt(true), attempt(false), attempt(false)] }
    }

    /// Adds all states that may follow to `next`.
    fn steps(&self, world: World, next: &mut Vec<Self>) {
        for me in 0..ATTEMPTS {
            match self.attempts[me].phase {
                Phase::Idle => next.push(self.with(|state| {
                    (state.attempts[me].phase, state.attempts[me].sent) = (Phase::Asking, self.now);
                    state.servers.iter_mut().for_each(|server| server[me].acquire = Request::OnItsWay);
                })),
                Phase::Asking => self.decide(world, me, next),
                Phase::Held => self.renew(me, next),
                Phase::Gone => {}
            }
            if matches!(self.attempts[me].phase, Phase::Asking | Phase::Held) {
                next.push(self.with(|state| state.attempts[me].phase = Phase::Gone));
            }
            for index in 0..SERVERS {
                self.serve(world, me, index, next);
            }
        }
        if self.now < LAST_TICK {
            next.push(self.with(|state| state.tick(world)));
        }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut state = *self;
        change(&mut state);
        state
    }

    fn tick(&mut self, world: World) {
        self.now += 1;
        let now = self.now;
        for server in &mut self.servers {
            let is_first = world.rules == Rules::EndsWithTheFirst && server.iter().any(|line| line.expires == now);
            for line in server.iter_mut().filter(|line| is_first || line.expires == now) {
                line.expires = 0;
            }
        }
    }

    fn decide(&self, world: World, me: usize, next: &mut Vec<Self>) {
        let vote = |server: &[Exchange; ATTEMPTS]| match server[me].acquire {
            Request::Done => Vote::Granted(0),
            Request::Unsent | Request::OnItsWay => Vote::Pending,
        };
        if matches!(verdict(&self.servers.each_ref().map(vote)), Verdict::Granted(_)) {
            next.push(self.with(|state| {
                let mine = &mut state.attempts[me];
                mine.phase = Phase::Held;
                if world.rules == Rules::CountedFromTheAnswer {
                    mine.sent = self.now;
                }
            }));
        }
    }

    fn renew(&self, me: usize, next: &mut Vec<Self>) {
        let mine = self.attempts[me];
        let Some(renewed) = mine.renewed else {
            if mine.may_renew {
                next.push(self.with(|state| {
                    (state.attempts[me].renewed, state.attempts[me].may_renew) = (Some(self.now), false);
                    state.servers.iter_mut().for_each(|server| server[me].renew = Request::OnItsWay);
                }));
            }
            return;
        };
        let done = |server: &&[Exchange; ATTEMPTS]| server[me].renew == Request::Done;
        if self.servers.iter().filter(done).count() > SERVERS / 2 {
            next.push(self.with(|state| {
                (state.attempts[me].sent, state.attempts[me].renewed) = (renewed, None);
            }));
        }
    }

    /// Lets a server execute the requests of an attempt.
    fn serve(&self, world: World, me: usize, index: usize, next: &mut Vec<Self>) {
        let World { kinds, rules } = world;
        let server = &self.servers[index];
        let line = server[me];
        let is_there = |other: &usize| *other != me && server[*other].expires > 0;
        let others: Vec<usize> = (0..ATTEMPTS).filter(is_there).collect();
        let are_slots = |other: usize| matches!((kinds[me], kinds[other]), (Kind::Slot(_), Kind::Slot(_)));
        let may_enter = match rules {
            Rules::Counted if others.iter().all(|&other| are_slots(other)) => others.len() < 2,
            _ => others.iter().all(|&other| kinds[me].shares(kinds[other])),
        };
        if line.acquire == Request::OnItsWay && may_enter {
            let is_skipped = rules == Rules::NotEntered && kinds[me] == Kind::Reader && !others.is_empty();
            next.push(self.with(|state| {
                let line = &mut state.servers[index][me];
                line.acquire = Request::Done;
                line.expires = if is_skipped { 0 } else { self.now + TTL };
            }));
        }
        if line.renew == Request::OnItsWay && line.expires > 0 {
            next.push(self.with(|state| {
                let line = &mut state.servers[index][me];
                (line.renew, line.expires) = (Request::Done, self.now + TTL);
            }));
        }
        if self.attempts[me].phase == Phase::Gone && line.expires > 0 {
            next.push(self.with(|state| match rules {
                Rules::FreedByAnyone => state.servers[index].iter_mut().for_each(|line| line.expires = 0),
                _ => state.servers[index][me].expires = 0,
            }));
        }
    }

    fn holds(&self, me: usize) -> bool {
        self.attempts[me].phase == Phase::Held && self.now < self.attempts[me].sent + TTL
    }

    /// Returns `true` if two attempts that exclude each other hold the lock.
    fn is_wrong(&self, world: World) -> bool {
        let together = |one: usize, other: usize| self.holds(one) && self.holds(other);
        (0..ATTEMPTS)
            .any(|one| (0..one).any(|other| together(one, other) && !world.kinds[one].shares(world.kinds[other])))
    }

    /// Removes what no longer makes a difference, so that states that differ in nothing else are equal. A vote that
    /// comes when its attempt is gone would only keep others out.
    fn tidy(&mut self) {
        for me in 0..ATTEMPTS {
            let mine = &mut self.attempts[me];
            if mine.phase != Phase::Idle && self.now >= mine.sent + TTL {
                mine.phase = Phase::Gone;
            }
            if mine.phase == Phase::Gone {
                *mine = Attempt { phase: Phase::Gone, sent: 0, may_renew: false, renewed: None };
            }
            let (phase, renews) = (mine.phase, mine.renewed.is_some());
            for line in self.servers.iter_mut().map(|server| &mut server[me]) {
                if phase == Phase::Gone || phase == Phase::Held && line.acquire == Request::Done {
                    line.acquire = Request::Unsent;
                }
                if !renews {
                    line.renew = Request::Unsent;
                }
            }
        }
        self.servers.sort_unstable();
    }
}

/// Visits every state that can be reached. Returns their number, or `None` if one of them is wrong.
fn explore(world: World) -> Option<usize> {
    let mut seen: HashSet<State, BuildHasherDefault<Mix>> = HashSet::from_iter([State::first()]);
    let (mut open, mut next) = (vec![State::first()], Vec::new());
    while let Some(state) = open.pop() {
        if state.is_wrong(world) {
            return None;
        }
        state.steps(world, &mut next);
        for mut state in next.drain(..) {
            state.tidy();
            if seen.insert(state) {
                open.push(state);
            }
        }
    }
    Some(seen.len())
}

#[test]
fn nobody_holds_a_lock_together_with_one_that_it_excludes() {
    use Kind::{Reader, Slot, Writer};
    for kinds in [
        [Reader, Reader, Writer],
        [Reader, Writer, Writer],
        [Slot(0), Slot(1), Slot(1)],
        [Slot(0), Slot(1), Writer],
        [Reader, Slot(0), Slot(1)],
    ] {
        let states = explore(World { kinds, rules: Rules::Kept });
        assert!(states.is_some_and(|states| states > 10_000), "{kinds:?}: {states:?}");
    }
}

#[test]
fn every_rule_of_groups_is_needed() {
    use Kind::{Reader, Slot, Writer};
    for (rules, kinds) in [
        (Rules::Counted, [Slot(0), Slot(1), Slot(1)]),
        (Rules::NotEntered, [Reader, Reader, Writer]),
        (Rules::EndsWithTheFirst, [Reader, Reader, Writer]),
        (Rules::FreedByAnyone, [Reader, Reader, Writer]),
        (Rules::CountedFromTheAnswer, [Reader, Reader, Writer]),
    ] {
        assert_eq!(explore(World { kinds, rules }), None, "{rules:?}");
    }
}
