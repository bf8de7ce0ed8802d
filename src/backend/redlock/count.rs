/*!
The answers of the servers to one attempt: their votes, and the reasons of those that refused. Knows nothing of
connections or time.
*/

use std::collections::BTreeMap;

use crate::backend::contract::contender::OtherSlots;
use crate::backend::redlock::errors::Failures;
use crate::backend::redlock::quorum::{Vote, majority};
use crate::backend::redlock::requests::{Answer, Event};
use crate::backend::redlock::scripts::{Acquired, Blocker, Occupant};
use crate::backend::redlock::slots::{Known, to_ask_for};
use crate::holder::done::Done;
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;

/// The answers to one attempt, as far as they have arrived.
pub(super) struct Count {
    /// The mode in which the attempt wants the lock.
    mode: Mode,
    /// Each server's vote.
    pub votes: Vec<Vote>,
    /// The failures of the servers that gave no answer.
    pub failures: Failures,
    /// The reasons of the servers that refused.
    blockers: BTreeMap<usize, Blocker>,
    /// The users of another number of slots, by server.
    others: BTreeMap<usize, OtherSlots>,
    /// The outer run that holds the lock.
    outer: Option<Box<Published>>,
    /// The earlier success in the period.
    done: Option<Box<Done>>,
}

/// A party that keeps attempts out: each server where it does so is a vote for it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Party {
    /// One owner, which holds the lock `alone` or in the requested slot.
    Owner { alone: bool, id: String },
    /// All co-holders in this mode.
    Group(String),
    /// Waiting writers, for which servers let nobody join a group.
    Writers,
    /// Another program, identified by the value of the key.
    Other(Occupant),
}

/// The blocker on the largest number of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InTheWay {
    /// One of the holders there.
    pub holder: Holder,
    /// Number of its co-holders.
    pub beside: u64,
    /// Number of these servers.
    pub votes: usize,
    /// Milliseconds until the first of them is worth another look; `None` if nothing there expires.
    pub left: Option<u64>,
}

/// The reason why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// An outer run holds the lock.
    Outer(Box<Published>),
    /// A command has already succeeded in the period.
    Done(Box<Done>),
    /// Others use the lock with another number of slots.
    OtherSlots(OtherSlots),
    /// The slot is taken, but one of these may be free.
    Elsewhere(InTheWay, Vec<u32>),
    /// Others hold a majority, or go first there.
    Held(InTheWay),
    /// Nobody has a majority, as far as is known.
    Split(InTheWay),
}

impl Count {
    /// Returns the count for an attempt in this `mode` at this number of `servers`, before any answer.
    pub(super) fn new(mode: Mode, servers: usize) -> Self {
        Self {
            mode,
            votes: vec![Vote::Pending; servers],
            failures: Failures::new(),
            blockers: BTreeMap::new(),
            others: BTreeMap::new(),
            outer: None,
            done: None,
        }
    }

    /// Counts one answer.
    pub(super) fn add(&mut self, event: Event) {
        self.votes[event.voter] = match event.answer {
            Answer::Acquired(Acquired::Granted(count), _) => Vote::Granted(count),
            Answer::Acquired(Acquired::Busy(blocker), _) => {
                self.blockers.insert(event.voter, blocker);
                Vote::Lost
            }
            Answer::Acquired(Acquired::Outer(outer), _) => {
                self.outer = Some(outer);
                Vote::Lost
            }
            Answer::Acquired(Acquired::Done(done), _) => {
                self.done = Some(done);
                Vote::Lost
            }
            Answer::Acquired(Acquired::OtherSlots(other), _) => {
                self.others.insert(event.voter, other);
                Vote::Lost
            }
            Answer::Failed(failure) => {
                self.failures.insert(event.voter, failure);
                Vote::Lost
            }
            _ => Vote::Lost,
        };
    }

    /// Returns `true` if this attempt, by an owner with this id, continues when several split the votes: it has the
    /// most, or as many as another and comes first. All attempts see about the same votes, so only one leads.
    pub(super) fn leads(&self, owner: &str) -> bool {
        let mine = self.votes.iter().filter(|vote| matches!(vote, Vote::Granted(_))).count();
        let Some((party, theirs)) = self.strongest() else { return false };
        // A writer comes before attempts that may share the lock.
        let is_writer = self.mode == Mode::Exclusive;
        let comes_first = match party {
            Party::Writers => return false,
            Party::Owner { alone, id } => (!is_writer, owner) < (!alone, id.as_str()),
            Party::Group(mode) => is_writer || self.mode.name() < mode,
            Party::Other(_) => false,
        };
        self.outer.is_none() && self.done.is_none() && (mine > theirs.len() || mine == theirs.len() && comes_first)
    }

    /// Forgets the answers of the servers that refused, and returns their numbers.
    pub(super) fn ask_again(&mut self) -> Vec<usize> {
        let refused: Vec<usize> = std::mem::take(&mut self.blockers).into_keys().collect();
        for &index in &refused {
            self.votes[index] = Vote::Pending;
        }
        refused
    }

    /// Returns the reason why the attempt failed; enough servers must have answered.
    pub(super) fn refusal(&self) -> Refusal {
        let servers = self.votes.len();
        // One server that knows it is enough: the outer run itself is asked whether it still has the lock.
        if let Some(outer) = &self.outer {
            return Refusal::Outer(outer.clone());
        }
        // Only real successes are recorded: a server that has one is right, even if others missed it.
        if let Some(done) = &self.done {
            return Refusal::Done(done.clone());
        }
        if let Some(other) = self.others.values().next().filter(|_| self.others.len() > servers - majority(servers)) {
            return Refusal::OtherSlots(other.clone());
        }
        let (in_the_way, free) = (self.in_the_way(), self.free_slots());
        if !free.is_empty() {
            Refusal::Elsewhere(in_the_way, free)
        } else if in_the_way.votes >= majority(servers) {
            Refusal::Held(in_the_way)
        } else {
            Refusal::Split(in_the_way)
        }
    }

    /// Returns the party that keeps the attempt out on this server.
    fn party(&self, blocker: &Blocker) -> Party {
        let Blocker { occupant, writer, .. } = blocker;
        if self.mode != Mode::Exclusive && writer.is_some() {
            return Party::Writers;
        }
        match Holder::read(&occupant.value) {
            Holder::Dlock(holder) => match holder.mode {
                None => Party::Owner { alone: true, id: holder.id },
                Some(mode) if self.mode.slots().is_some() && mode == self.mode.name() => {
                    Party::Owner { alone: false, id: holder.id }
                }
                Some(mode) => Party::Group(mode),
            },
            _ => Party::Other(occupant.clone()),
        }
    }

    /// Returns the party with the most votes, and the reasons of the servers that are its votes.
    fn strongest(&self) -> Option<(Party, Vec<&Blocker>)> {
        let mut parties: Vec<(Party, Vec<&Blocker>)> = Vec::new();
        for blocker in self.blockers.values() {
            let party = self.party(blocker);
            match parties.iter_mut().find(|(known, _)| *known == party) {
                Some((_, theirs)) => theirs.push(blocker),
                None => parties.push((party, vec![blocker])),
            }
        }
        parties.into_iter().max_by_key(|(_, theirs)| theirs.len())
    }

    fn in_the_way(&self) -> InTheWay {
        let theirs = self.strongest().map(|(_, theirs)| theirs).unwrap_or_default();
        let most = theirs.iter().max_by_key(|blocker| blocker.beside);
        let holder = most.map_or(Holder::Unknown, |blocker| match blocker.occupant.kind.as_str() {
            // A writer is about to take it.
            "none" => Holder::Nobody,
            "string" => Holder::read(&blocker.occupant.value),
            other => Holder::InTheWay(format!("a redis {other} at the lock's key")),
        });
        let left = theirs.iter().filter_map(|blocker| u64::try_from(blocker.left).ok()).min();
        InTheWay { holder, beside: most.map_or(0, |blocker| blocker.beside), votes: theirs.len(), left }
    }

    /// Returns the slots that may be available instead of the requested one.
    fn free_slots(&self) -> Vec<u32> {
        let known = |(server, vote): (usize, &Vote)| match (vote, self.blockers.get(&server)) {
            (Vote::Lost, Some(blocker)) if blocker.writer.is_none() && !blocker.taken.is_empty() => {
                Known::Taken(&blocker.taken)
            }
            (Vote::Lost, _) => Known::Refused,
            (Vote::Granted(_) | Vote::Pending, _) => Known::Nothing,
        };
        let servers: Vec<Known<'_>> = self.votes.iter().enumerate().map(known).collect();
        to_ask_for(self.mode.slots().unwrap_or_default(), &servers)
    }
}

#[cfg(test)]
mod tests;
