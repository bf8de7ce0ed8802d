//! The expected answers of a lock service to any sequence of requests, by [the rule](enters): one model for all
//! services, against which they play traces. It states what each answer must be and what is known afterwards, not how a
//! service achieves that.

use crate::backend::contract::contender::Used;
use crate::lock::admission::{Mode, enters};

/// A program other than dlock.
pub(crate) const FOREIGN: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// An attempt, which joins the queue if the second field is `true`.
    Attempt(usize, bool),
    Renew(usize),
    Release(usize, Used),
    /// An attempt whose answer is lost, followed by a release.
    Undo(usize),
    /// This owner dies, and its lock stays.
    Die(usize),
    /// This owner is asked to stop.
    Ask(usize),
    /// The lock is taken away from this owner.
    Take(usize),
    /// This many milliseconds pass.
    Pass(u64),
    /// The lock's key is deleted.
    Delete,
    /// Another program takes the lock for this many milliseconds. The result is `Freed` if the key did not exist.
    Foreign(u64),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    Granted {
        token: u64,
        slot: Option<u32>,
    },
    /// The position in the queue, if the service reports it.
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
    /// The step has no answer, or its answer was lost.
    Nothing,
}

/// A contender's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) mode: Mode,
    pub(crate) ttl: u64,
    pub(crate) heartbeat_ttl: u64,
    pub(crate) min_hold: u64,
    /// `true` if it has a period, which is the same for all.
    pub(crate) once: bool,
}

/// Parts of the model that a service need not keep.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is an independent freedom.
pub(crate) struct Lax {
    /// Each waiter watches only its predecessor. A waiter for a slot therefore waits until its predecessors have
    /// entered theirs. Until then, waiters that could enter count as holders, and so does the first one while a lock is
    /// only kept for its minimum time.
    pub(crate) turns: bool,
    /// There is no queue: any contender may take a free lock, and an exclusive one may keep others out for a while.
    pub(crate) no_queue: bool,
    /// A shared grant's token need not be larger than those of its co-holders.
    pub(crate) shared_tokens: bool,
    /// Any free slot may be granted, not only the lowest.
    pub(crate) any_slot: bool,
    /// A repeated attempt by a holder may return the last token that any holder was given.
    pub(crate) last_token: bool,
    /// A new co-holder overwrites the request to stop made to another one.
    pub(crate) loses_requests: bool,
    /// A lock ends with its holder. Once a contender has had to wait, attempts may stay busy until the lock is free.
    pub(crate) mortal: bool,
    /// A conflicting number of slots need not be reported.
    pub(crate) late_slots: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) who: usize,
    /// The millisecond at which the hold ends.
    pub(crate) ends: u64,
    pub(crate) slot: Option<u32>,
    pub(crate) token: u64,
    until: u64,
    /// The lock is no longer used, but kept for its minimum time.
    pub(crate) is_done: bool,
    /// The holder was asked to stop.
    pub(crate) is_asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) who: usize,
    /// The millisecond after which the waiter counts as dead.
    pub(crate) ends: u64,
}

/// The expected state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) holds: Vec<Hold>,
    pub(crate) line: Vec<Waiter>,
    pub(crate) last: u64,
    /// The last token of a grant that was not shared.
    last_alone: u64,
    /// A contender has had to wait.
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

fn mode_of(requests: &[Request], who: usize) -> Mode {
    requests.get(who).map_or(Mode::Exclusive, |request| request.mode)
}

impl Rule {
    /// Returns the rule of a service that is lax in these ways.
    pub(crate) fn of(lax: Lax) -> Self {
        Self { lax, ..Self::default() }
    }

    /// Ends holds that have expired at `now`. A group's hold ends at its millisecond, a key's after it.
    pub(crate) fn expire(&mut self, requests: &[Request], now: u64) {
        self.holds.retain(|hold| match mode_of(requests, hold.who) {
            Mode::Exclusive => now <= hold.ends,
            _ => now < hold.ends,
        });
    }

    /// Drops dead waiters at the front.
    fn drop_dead(&mut self, now: u64) {
        let dead = self.line.iter().take_while(|waiter| waiter.ends < now).count();
        self.line.drain(..dead);
    }

    fn leave(&mut self, who: usize) {
        self.line.retain(|waiter| waiter.who != who);
    }

    /// Returns the first live waiter, if it could enter.
    pub(crate) fn could_enter(&self, requests: &[Request], now: u64) -> Option<usize> {
        let head = self.line.iter().find(|waiter| waiter.ends >= now)?.who;
        // A waiter cannot enter while its own earlier hold is kept.
        let is_kept = self.holds.iter().any(|hold| hold.who == head);
        (!is_kept && enters(mode_of(requests, head), self.holds.iter().map(|hold| mode_of(requests, hold.who))))
            .then_some(head)
    }

    /// Carries out `step` at `now`; fails if `seen` is not the expected result.
    pub(crate) fn step(&mut self, requests: &[Request], step: Step, seen: &StepResult, now: u64) -> Result<(), String> {
        self.expire(requests, now);
        let expected = match step {
            Step::Attempt(who, joins) => self.attempt(requests, who, joins, seen, now)?,
            Step::Renew(who) => match self.holds.iter_mut().find(|hold| hold.who == who && !hold.is_done) {
                Some(hold) => {
                    hold.extend(&requests[who], now);
                    let is_lost = self.lax.loses_requests && *seen == StepResult::Extended;
                    if hold.is_asked && !is_lost { StepResult::Asked } else { StepResult::Extended }
                }
                None => StepResult::NotMine,
            },
            Step::Release(who, used) => self.release(requests, who, used, now),
            Step::Undo(who) => {
                self.release(requests, who, Used::No, now);
                StepResult::Nothing
            }
            Step::Die(who) => {
                self.leave(who);
                self.holds.retain(|hold| hold.who != who || hold.is_done || !self.lax.mortal);
                StepResult::Nothing
            }
            Step::Ask(who) => match self.holds.iter_mut().find(|hold| hold.who == who && !hold.is_done) {
                Some(hold) => {
                    hold.is_asked = true;
                    StepResult::Freed
                }
                None => StepResult::NotMine,
            },
            Step::Take(who) => {
                let before = self.holds.len();
                self.holds.retain(|hold| hold.who != who);
                if self.holds.len() < before { StepResult::Freed } else { StepResult::NotMine }
            }
            Step::Pass(_) => StepResult::Nothing,
            Step::Delete => {
                self.holds.clear();
                StepResult::Nothing
            }
            Step::Foreign(millis) => {
                if self.holds.is_empty() && *seen == StepResult::Freed {
                    self.holds.push(Hold::foreign(now + millis));
                }
                return Ok(());
            }
        };
        if *seen == expected || *seen == StepResult::Nothing {
            return self.fault(requests);
        }
        if let (StepResult::Busy { position }, StepResult::Busy { position: expected }) = (seen, &expected)
            && (position.is_none() || expected.is_none() || self.has_no_places(requests))
        {
            return Ok(());
        }
        Err(format!("{step:?} came to {seen:?}, not {expected:?}"))
    }

    /// Returns `true` if positions in the queue may differ from the model's.
    fn has_no_places(&self, requests: &[Request]) -> bool {
        let is_kept = self.holds.iter().any(|hold| hold.is_done);
        self.lax.no_queue || self.lax.turns && (is_kept || self.anyone_enters(requests))
    }

    /// Returns `true` if no holder and no other waiter blocks this contender.
    pub(crate) fn is_free_for(&self, requests: &[Request], who: usize) -> bool {
        let others = self.line.iter().any(|waiter| waiter.who != who);
        !others && enters(requests[who].mode, self.holds.iter().map(|hold| mode_of(requests, hold.who)))
    }

    /// Returns `true` if a waiter could enter but has not.
    pub(crate) fn anyone_enters(&self, requests: &[Request]) -> bool {
        let mut before: Vec<Mode> = self.holds.iter().map(|hold| mode_of(requests, hold.who)).collect();
        self.line.iter().any(|waiter| {
            let mode = mode_of(requests, waiter.who);
            let enters = enters(mode, before.iter().copied());
            before.push(mode);
            enters
        })
    }

    fn attempt(
        &mut self,
        requests: &[Request],
        who: usize,
        joins: bool,
        seen: &StepResult,
        now: u64,
    ) -> Result<StepResult, String> {
        let request = &requests[who];
        if let Some(granted) = self.grant_again(request, who, seen, now) {
            return Ok(granted);
        }
        let is_in_line = self.line.iter().any(|waiter| waiter.who == who);
        let is_late = self.lax.turns && is_in_line && matches!(seen, StepResult::Busy { .. });
        if request.once && self.done && !is_late {
            self.leave(who);
            self.drop_dead(now);
            return Ok(StepResult::Done);
        }
        let live = self.line.iter().filter(|waiter| waiter.ends >= now);
        let others = self.holds.iter().map(|hold| hold.who).chain(live.map(|waiter| waiter.who));
        let other = others.map(|who| mode_of(requests, who)).find(|mode| request.mode.contradicts(*mode));
        if let Some(other) = other
            && (!self.lax.late_slots || matches!(seen, StepResult::OtherSlots(_)))
        {
            self.leave(who);
            self.drop_dead(now);
            return Ok(StepResult::OtherSlots(other.slots().unwrap_or_default()));
        }
        self.drop_dead(now);
        let waiters = self.line.iter().take_while(|waiter| waiter.who != who && !self.lax.no_queue);
        let waiters: Vec<usize> = waiters.filter(|waiter| waiter.ends >= now).map(|waiter| waiter.who).collect();
        let before = self.holds.iter().map(|hold| hold.who).chain(waiters.iter().copied());
        let is_kept = self.holds.iter().any(|hold| hold.who == who);
        let may = !is_kept && enters(request.mode, before.map(|who| mode_of(requests, who)));
        let may_wait = matches!(seen, StepResult::Busy { .. })
            && (self.lax.turns && request.mode.slots().is_some() && !waiters.is_empty()
                || self.lax.mortal && self.waited && !self.holds.is_empty()
                || self.lax.no_queue && self.line.iter().any(|waiter| waiter.who != who));
        if may && !may_wait {
            return self.grant(requests, who, seen, now);
        }
        self.waited |= joins;
        if joins {
            let ends = now + request.heartbeat_ttl;
            match self.line.iter_mut().find(|waiter| waiter.who == who) {
                Some(waiter) => waiter.ends = ends,
                None => self.line.push(Waiter { who, ends }),
            }
        }
        let position = self.line.iter().position(|waiter| waiter.who == who).filter(|_| joins);
        Ok(StepResult::Busy { position: position.map(|place| place as u64 + 1) })
    }

    /// An attempt of an owner that holds the lock already: it is granted again.
    fn grant_again(&mut self, request: &Request, who: usize, seen: &StepResult, now: u64) -> Option<StepResult> {
        let hold = self.holds.iter_mut().find(|hold| hold.who == who && !hold.is_done)?;
        hold.extend(request, now);
        if let StepResult::Granted { token, .. } = *seen
            && self.lax.last_token
            && token >= hold.token
        {
            hold.token = token;
            self.last = self.last.max(token);
        }
        let granted = StepResult::Granted { token: hold.token, slot: hold.slot };
        self.leave(who);
        if request.mode != Mode::Exclusive {
            self.drop_dead(now);
        }
        Some(granted)
    }

    fn grant(&mut self, requests: &[Request], who: usize, seen: &StepResult, now: u64) -> Result<StepResult, String> {
        let request = &requests[who];
        let StepResult::Granted { token, slot: told } = *seen else {
            return Err(format!("{who} could enter and was told {seen:?}"));
        };
        let is_shared = self.lax.shared_tokens && request.mode == Mode::Shared;
        let least = if is_shared { self.last_alone } else { self.last };
        if token <= least {
            return Err(format!("the token {token} after {least}"));
        }
        let free = |slot: &u32| self.holds.iter().all(|hold| hold.slot != Some(*slot));
        let lowest = request.mode.slots().and_then(|slots| (0..slots).find(free));
        let slot = match told.filter(|told| self.lax.any_slot && free(told)) {
            Some(slot) if Some(slot) < request.mode.slots() => Some(slot),
            _ => lowest,
        };
        self.last = self.last.max(token);
        if request.mode != Mode::Shared {
            self.last_alone = self.last;
        }
        self.leave(who);
        let until = if request.min_hold > 0 { now + request.min_hold } else { 0 };
        let ends = now + request.ttl;
        self.holds.push(Hold { who, ends, slot, token, until, is_done: false, is_asked: false });
        Ok(StepResult::Granted { token, slot })
    }

    fn release(&mut self, requests: &[Request], who: usize, used: Used, now: u64) -> StepResult {
        let mut came = StepResult::NotMine;
        if let Some(at) = self.holds.iter().position(|hold| hold.who == who) {
            let hold = &mut self.holds[at];
            self.done |= !hold.is_done && used == Used::Success && requests[who].once;
            if hold.is_done {
                came = StepResult::Kept;
            } else if used != Used::No && hold.until > now {
                hold.is_done = true;
                hold.ends = now + requests[who].min_hold.min(hold.until - now);
                came = StepResult::Kept;
            } else {
                self.holds.remove(at);
                came = StepResult::Freed;
            }
        }
        self.leave(who);
        if came == StepResult::Kept || self.holds.iter().all(|hold| mode_of(requests, hold.who) != Mode::Exclusive) {
            self.drop_dead(now);
        }
        came
    }

    /// Checks the model itself: fails if holds exclude each other.
    fn fault(&self, requests: &[Request]) -> Result<(), String> {
        let modes: Vec<Mode> = self.holds.iter().map(|hold| mode_of(requests, hold.who)).collect();
        let together =
            modes.iter().all(|mode| *mode == modes[0]) && modes.first().is_none_or(|m| modes.len() <= m.room());
        if together { Ok(()) } else { Err(format!("{modes:?} together")) }
    }
}

impl Hold {
    /// Returns the hold of another program, until `ends`.
    fn foreign(ends: u64) -> Self {
        Self { who: FOREIGN, ends, slot: None, token: 0, until: 0, is_done: false, is_asked: false }
    }

    fn extend(&mut self, request: &Request, now: u64) {
        self.ends = now + request.ttl.max(request.min_hold.min(self.until.saturating_sub(now)));
    }
}
