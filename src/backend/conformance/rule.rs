//! What a lock service is to answer to any sequence of requests, by [the rule](enters): one model for all services, which play
//! traces against it. It says what is expected of each answer, and what is to be known afterwards; how a service keeps that is its
//! own business.

use crate::backend::Used;
use crate::lock::admission::{Mode, enters};

/// Somebody else: a program that is no dlock.
pub(crate) const FOREIGN: usize = usize::MAX;

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// An attempt, which joins the queue if the second is set.
    Attempt(usize, bool),
    Renew(usize),
    Release(usize, Used),
    /// An attempt whose answer is lost, and a release.
    Undo(usize),
    /// This owner dies, and what it holds stays.
    Die(usize),
    /// A request to stop is made to this owner.
    Ask(usize),
    /// The lock is taken away from this owner.
    Take(usize),
    /// So many milliseconds pass.
    Pass(u64),
    /// Somebody deletes the lock's key.
    Delete,
    /// Another program takes the lock for so many milliseconds, which comes to `Freed` where nothing is at its key.
    Foreign(u64),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Granted {
        token: u64,
        slot: Option<u32>,
    },
    /// The place in the queue, where the service says it.
    Busy {
        position: Option<u64>,
    },
    OtherSlots(u32),
    /// A command has succeeded in the period.
    Done,
    Extended,
    /// Extended, with a request to stop.
    Asked,
    NotMine,
    Freed,
    Kept,
    /// A step that has no answer, or whose answer was lost.
    Nothing,
}

/// How a contender wants to hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    pub(crate) ttl: u64,
    pub(crate) heartbeat_ttl: u64,
    pub(crate) min_hold: u64,
    /// Whether it has a period, which is the same for all.
    pub(crate) once: bool,
}

/// What a service need not keep of the model.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is a freedom of its own.
pub(crate) struct Lax {
    /// Each waits for the one before it, and looks no further. So whoever wants a slot waits until those before it have entered theirs; until then, waiters that could enter count as
    /// holders, and so does the first one where a lock is only kept for its minimum time.
    pub(crate) turns: bool,
    /// There is no queue: a lock that is free is anybody's, and one who wants it alone may keep others out for a while.
    pub(crate) no_queue: bool,
    /// A shared grant has a token that need not be larger than those of others with whom it is shared.
    pub(crate) shared_tokens: bool,
    /// Any slot that is free, not the lowest.
    pub(crate) any_slot: bool,
    /// An attempt of a holder may show the last token that any of them was given.
    pub(crate) last_token: bool,
    /// Of those who share a lock, one who comes overwrites what was asked of another one.
    pub(crate) loses_requests: bool,
    /// A lock ends with whoever holds it; in this process, one who has waited may stand in the line until the lock is free.
    pub(crate) mortal: bool,
    /// A waiter of another mode is not asked for its number of slots.
    pub(crate) late_slots: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) who: usize,
    /// The millisecond at which it ends.
    pub(crate) ends: u64,
    pub(crate) slot: Option<u32>,
    pub(crate) token: u64,
    until: u64,
    /// It is not used any more, and kept for its minimum time.
    pub(crate) is_done: bool,
    /// It was asked to stop.
    pub(crate) is_asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) who: usize,
    /// The millisecond after which it counts as dead.
    pub(crate) ends: u64,
}

/// What is to be true of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) holds: Vec<Hold>,
    pub(crate) line: Vec<Waiter>,
    pub(crate) last: u64,
    /// The last token of a grant that was not shared.
    last_alone: u64,
    /// Somebody has had to wait.
    waited: bool,
    /// A command has succeeded in the period.
    pub(crate) done: bool,
    pub(crate) lax: Lax,
}

impl PartialEq for Lax {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lax {}

fn mode_of(wishes: &[Wish], who: usize) -> Mode {
    wishes.get(who).map_or(Mode::Exclusive, |wish| wish.mode)
}

impl Rule {
    /// That of a service about which this much is not certain.
    pub(crate) fn of(lax: Lax) -> Self {
        Self { lax, ..Self::default() }
    }

    /// Ends what is over at `now`. A group's hold ends at its millisecond, a key's after it.
    pub(crate) fn expire(&mut self, wishes: &[Wish], now: u64) {
        self.holds.retain(|hold| match mode_of(wishes, hold.who) {
            Mode::Exclusive => now <= hold.ends,
            _ => now < hold.ends,
        });
    }

    /// Dead waiters at the front are dropped.
    fn drop_dead(&mut self, now: u64) {
        let dead = self.line.iter().take_while(|waiter| waiter.ends < now).count();
        self.line.drain(..dead);
    }

    fn leave(&mut self, who: usize) {
        self.line.retain(|waiter| waiter.who != who);
    }

    /// The first live waiter, if it could enter.
    pub(crate) fn could_enter(&self, wishes: &[Wish], now: u64) -> Option<usize> {
        let head = self.line.iter().find(|waiter| waiter.ends >= now)?.who;
        // Nobody enters again what is left of its own hold.
        let is_kept = self.holds.iter().any(|hold| hold.who == head);
        (!is_kept && enters(mode_of(wishes, head), self.holds.iter().map(|hold| mode_of(wishes, hold.who))))
            .then_some(head)
    }

    /// Carries out `step` at `now`; fails where `seen` is not what it had to come to.
    pub(crate) fn step(&mut self, wishes: &[Wish], step: Step, seen: &Seen, now: u64) -> Result<(), String> {
        self.expire(wishes, now);
        let expected = match step {
            Step::Attempt(who, joins) => self.attempt(wishes, who, joins, seen, now)?,
            Step::Renew(who) => match self.holds.iter_mut().find(|hold| hold.who == who && !hold.is_done) {
                Some(hold) => {
                    hold.extend(&wishes[who], now);
                    let is_lost = self.lax.loses_requests && *seen == Seen::Extended;
                    if hold.is_asked && !is_lost { Seen::Asked } else { Seen::Extended }
                }
                None => Seen::NotMine,
            },
            Step::Release(who, used) => self.release(wishes, who, used, now),
            Step::Undo(who) => {
                self.release(wishes, who, Used::No, now);
                Seen::Nothing
            }
            Step::Die(who) => {
                self.leave(who);
                self.holds.retain(|hold| hold.who != who || hold.is_done || !self.lax.mortal);
                Seen::Nothing
            }
            Step::Ask(who) => match self.holds.iter_mut().find(|hold| hold.who == who && !hold.is_done) {
                Some(hold) => {
                    hold.is_asked = true;
                    Seen::Freed
                }
                None => Seen::NotMine,
            },
            Step::Take(who) => {
                let before = self.holds.len();
                self.holds.retain(|hold| hold.who != who);
                if self.holds.len() < before { Seen::Freed } else { Seen::NotMine }
            }
            Step::Pass(_) => Seen::Nothing,
            Step::Delete => {
                self.holds.clear();
                Seen::Nothing
            }
            Step::Foreign(millis) => {
                if self.holds.is_empty() && *seen == Seen::Freed {
                    self.holds.push(Hold::foreign(now + millis));
                }
                return Ok(());
            }
        };
        if *seen == expected || *seen == Seen::Nothing {
            return self.fault(wishes);
        }
        if let (Seen::Busy { position }, Seen::Busy { position: expected }) = (seen, &expected)
            && (position.is_none() || expected.is_none() || self.has_no_places(wishes))
        {
            return Ok(());
        }
        Err(format!("{step:?} came to {seen:?}, not {expected:?}"))
    }

    /// Whether places in the line are not those that the model has.
    fn has_no_places(&self, wishes: &[Wish]) -> bool {
        let is_kept = self.holds.iter().any(|hold| hold.is_done);
        self.lax.no_queue || self.lax.turns && (is_kept || self.anyone_enters(wishes))
    }

    /// Whether nobody is in the way of this one.
    pub(crate) fn is_free_for(&self, wishes: &[Wish], who: usize) -> bool {
        let others = self.line.iter().any(|waiter| waiter.who != who);
        !others && enters(wishes[who].mode, self.holds.iter().map(|hold| mode_of(wishes, hold.who)))
    }

    /// Whether a waiter could enter that has not.
    pub(crate) fn anyone_enters(&self, wishes: &[Wish]) -> bool {
        let mut before: Vec<Mode> = self.holds.iter().map(|hold| mode_of(wishes, hold.who)).collect();
        self.line.iter().any(|waiter| {
            let mode = mode_of(wishes, waiter.who);
            let enters = enters(mode, before.iter().copied());
            before.push(mode);
            enters
        })
    }

    fn attempt(&mut self, wishes: &[Wish], who: usize, joins: bool, seen: &Seen, now: u64) -> Result<Seen, String> {
        let wish = &wishes[who];
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.who == who && !hold.is_done) {
            hold.extend(wish, now);
            if let Seen::Granted { token, .. } = *seen
                && self.lax.last_token
                && token >= hold.token
            {
                hold.token = token;
                self.last = self.last.max(token);
            }
            let granted = Seen::Granted { token: hold.token, slot: hold.slot };
            self.leave(who);
            if wish.mode != Mode::Exclusive {
                self.drop_dead(now);
            }
            return Ok(granted);
        }
        let is_in_line = self.line.iter().any(|waiter| waiter.who == who);
        let is_late = self.lax.turns && is_in_line && matches!(seen, Seen::Busy { .. });
        if wish.once && self.done && !is_late {
            self.leave(who);
            self.drop_dead(now);
            return Ok(Seen::Done);
        }
        let live = self.line.iter().filter(|waiter| waiter.ends >= now);
        let others = self.holds.iter().map(|hold| hold.who).chain(live.map(|waiter| waiter.who));
        let other = others.map(|who| mode_of(wishes, who)).find(|mode| wish.mode.contradicts(*mode));
        if let Some(other) = other
            && (!self.lax.late_slots || matches!(seen, Seen::OtherSlots(_)))
        {
            self.leave(who);
            self.drop_dead(now);
            return Ok(Seen::OtherSlots(other.slots().unwrap_or_default()));
        }
        self.drop_dead(now);
        let waiters = self.line.iter().take_while(|waiter| waiter.who != who && !self.lax.no_queue);
        let waiters: Vec<usize> = waiters.filter(|waiter| waiter.ends >= now).map(|waiter| waiter.who).collect();
        let before = self.holds.iter().map(|hold| hold.who).chain(waiters.iter().copied());
        let is_kept = self.holds.iter().any(|hold| hold.who == who);
        let may = !is_kept && enters(wish.mode, before.map(|who| mode_of(wishes, who)));
        let may_wait = matches!(seen, Seen::Busy { .. })
            && (self.lax.turns && wish.mode.slots().is_some() && !waiters.is_empty()
                || self.lax.mortal && self.waited && !self.holds.is_empty()
                || self.lax.no_queue && self.line.iter().any(|waiter| waiter.who != who));
        if may && !may_wait {
            return self.grant(wishes, who, seen, now);
        }
        self.waited |= joins;
        if joins {
            let ends = now + wish.heartbeat_ttl;
            match self.line.iter_mut().find(|waiter| waiter.who == who) {
                Some(waiter) => waiter.ends = ends,
                None => self.line.push(Waiter { who, ends }),
            }
        }
        let position = self.line.iter().position(|waiter| waiter.who == who).filter(|_| joins);
        Ok(Seen::Busy { position: position.map(|place| place as u64 + 1) })
    }

    fn grant(&mut self, wishes: &[Wish], who: usize, seen: &Seen, now: u64) -> Result<Seen, String> {
        let wish = &wishes[who];
        let Seen::Granted { token, slot: told } = *seen else {
            return Err(format!("{who} could enter and was told {seen:?}"));
        };
        let is_shared = self.lax.shared_tokens && wish.mode == Mode::Shared;
        let least = if is_shared { self.last_alone } else { self.last };
        if token <= least {
            return Err(format!("the token {token} after {least}"));
        }
        let free = |slot: &u32| self.holds.iter().all(|hold| hold.slot != Some(*slot));
        let lowest = wish.mode.slots().and_then(|slots| (0..slots).find(free));
        let slot = match told.filter(|told| self.lax.any_slot && free(told)) {
            Some(slot) if Some(slot) < wish.mode.slots() => Some(slot),
            _ => lowest,
        };
        self.last = self.last.max(token);
        if wish.mode != Mode::Shared {
            self.last_alone = self.last;
        }
        self.leave(who);
        let until = if wish.min_hold > 0 { now + wish.min_hold } else { 0 };
        let ends = now + wish.ttl;
        self.holds.push(Hold { who, ends, slot, token, until, is_done: false, is_asked: false });
        Ok(Seen::Granted { token, slot })
    }

    fn release(&mut self, wishes: &[Wish], who: usize, used: Used, now: u64) -> Seen {
        let mut came = Seen::NotMine;
        if let Some(at) = self.holds.iter().position(|hold| hold.who == who) {
            let hold = &mut self.holds[at];
            self.done |= !hold.is_done && used == Used::Success && wishes[who].once;
            if hold.is_done {
                came = Seen::Kept;
            } else if used != Used::No && hold.until > now {
                hold.is_done = true;
                hold.ends = now + wishes[who].min_hold.min(hold.until - now);
                came = Seen::Kept;
            } else {
                self.holds.remove(at);
                came = Seen::Freed;
            }
        }
        self.leave(who);
        if came == Seen::Kept || self.holds.iter().all(|hold| mode_of(wishes, hold.who) != Mode::Exclusive) {
            self.drop_dead(now);
        }
        came
    }

    /// What is wrong with it, if anything: this checks the model itself.
    fn fault(&self, wishes: &[Wish]) -> Result<(), String> {
        let modes: Vec<Mode> = self.holds.iter().map(|hold| mode_of(wishes, hold.who)).collect();
        let together =
            modes.iter().all(|mode| *mode == modes[0]) && modes.first().is_none_or(|m| modes.len() <= m.room());
        if together { Ok(()) } else { Err(format!("{modes:?} together")) }
    }
}

impl Hold {
    /// Another program's, until `ends`.
    fn foreign(ends: u64) -> Self {
        Self { who: FOREIGN, ends, slot: None, token: 0, until: 0, is_done: false, is_asked: false }
    }

    fn extend(&mut self, wish: &Wish, now: u64) {
        self.ends = now + wish.ttl.max(wish.min_hold.min(self.until.saturating_sub(now)));
    }
}
