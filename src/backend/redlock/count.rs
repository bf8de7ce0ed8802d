/*!
The answers of the servers to one attempt: their votes, and what is in the way where it was refused. Knows nothing of
connections and of time.
*/

use std::collections::BTreeMap;

use crate::backend::OtherSlots;
use crate::backend::redlock::errors::Failures;
use crate::backend::redlock::quorum::{Vote, majority};
use crate::backend::redlock::requests::{Answer, Event};
use crate::backend::redlock::scripts::{Acquired, Obstacle, Occupant};
use crate::backend::redlock::slots::{Known, to_ask_for};
use crate::holder::done::Done;
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;

/// The answers to one attempt, as far as they have arrived.
pub(super) struct Count {
    /// How the attempt wants to hold the lock.
    mode: Mode,
    /// Each server's vote.
    pub votes: Vec<Vote>,
    /// The servers without an answer, and why.
    pub failures: Failures,
    /// By server that refused: why.
    obstacles: BTreeMap<usize, Obstacle>,
    /// By server that others use with another number of slots: who.
    others: BTreeMap<usize, OtherSlots>,
    /// A run around this one, which holds the lock.
    outer: Option<Box<Published>>,
    /// Who has succeeded in the period already.
    done: Option<Box<Done>>,
}

/// Those who share what is in the way: a server of theirs is a vote for them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Party {
    /// One owner, who holds the lock `alone` or in the slot that was asked for.
    Owner { alone: bool, id: String },
    /// All who hold it together in this mode.
    Group(String),
    /// The writers before whom nobody joins a group.
    Writers,
    /// Another program, by what is at the key.
    Other(Occupant),
}

/// What is in the way on the most servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InTheWay {
    /// One of those who hold the lock there.
    pub holder: Holder,
    /// How many others hold it together with that one.
    pub beside: u64,
    /// The number of these servers.
    pub votes: usize,
    /// After how many milliseconds the first of them is worth another look.
    pub left: Option<u64>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A run around this one holds the lock.
    Outer(Box<Published>),
    /// A command has succeeded in the period already.
    Done(Box<Done>),
    /// Others use another number of slots.
    OtherSlots(OtherSlots),
    /// The slot is taken, and one of these may be free.
    Elsewhere(InTheWay, Vec<u32>),
    /// Others hold a majority, or go first there.
    Held(InTheWay),
    /// Nobody has a majority, as far as can be told.
    Split(InTheWay),
}

impl Count {
    /// The count for an attempt in this `mode` before any of so many `servers` has answered.
    pub(super) fn new(mode: Mode, servers: usize) -> Self {
        Self {
            mode,
            votes: vec![Vote::Pending; servers],
            failures: Failures::new(),
            obstacles: BTreeMap::new(),
            others: BTreeMap::new(),
            outer: None,
            done: None,
        }
    }

    /// Counts one answer.
    pub(super) fn add(&mut self, event: Event) {
        self.votes[event.voter] = match event.answer {
            Answer::Acquired(Acquired::Granted(count), _) => Vote::Granted(count),
            Answer::Acquired(Acquired::Busy(obstacle), _) => {
                self.obstacles.insert(event.voter, obstacle);
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

    /// Whether this attempt is to go on, by an owner with this id, when several split the votes: it has the most, or as many
    /// as another and comes first. All attempts see about the same votes, so that only one of them leads.
    pub(super) fn leads(&self, owner: &str) -> bool {
        let mine = self.votes.iter().filter(|vote| matches!(vote, Vote::Granted(_))).count();
        let Some((party, theirs)) = self.strongest() else { return false };
        // Writers are not kept waiting by those who may hold the lock together.
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
        let refused: Vec<usize> = std::mem::take(&mut self.obstacles).into_keys().collect();
        for &index in &refused {
            self.votes[index] = Vote::Pending;
        }
        refused
    }

    /// Why the attempt failed, for which enough servers have answered.
    pub(super) fn refusal(&self) -> Refusal {
        let servers = self.votes.len();
        // It is enough that one server knows it: whether that run still has the lock is asked there.
        if let Some(outer) = &self.outer {
            return Refusal::Outer(outer.clone());
        }
        // Nobody records what has not been done: a server that has it is right, also where others missed it.
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

    /// Who keeps the attempt out on this server.
    fn party(&self, obstacle: &Obstacle) -> Party {
        let Obstacle { occupant, writer, .. } = obstacle;
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

    /// The party with the most votes, and what the servers say that are its votes.
    fn strongest(&self) -> Option<(Party, Vec<&Obstacle>)> {
        let mut parties: Vec<(Party, Vec<&Obstacle>)> = Vec::new();
        for obstacle in self.obstacles.values() {
            let party = self.party(obstacle);
            match parties.iter_mut().find(|(known, _)| *known == party) {
                Some((_, theirs)) => theirs.push(obstacle),
                None => parties.push((party, vec![obstacle])),
            }
        }
        parties.into_iter().max_by_key(|(_, theirs)| theirs.len())
    }

    fn in_the_way(&self) -> InTheWay {
        let theirs = self.strongest().map(|(_, theirs)| theirs).unwrap_or_default();
        let most = theirs.iter().max_by_key(|obstacle| obstacle.beside);
        let holder = most.map_or(Holder::Unknown, |obstacle| match obstacle.occupant.kind.as_str() {
            // A writer is about to take it.
            "none" => Holder::Nobody,
            "string" => Holder::read(&obstacle.occupant.value),
            other => Holder::InTheWay(format!("a redis {other} at the lock's key")),
        });
        let left = theirs.iter().filter_map(|obstacle| u64::try_from(obstacle.left).ok()).min();
        InTheWay { holder, beside: most.map_or(0, |obstacle| obstacle.beside), votes: theirs.len(), left }
    }

    /// The slots that may be had instead of the one that was asked for.
    fn free_slots(&self) -> Vec<u32> {
        let known = |(server, vote): (usize, &Vote)| match (vote, self.obstacles.get(&server)) {
            (Vote::Lost, Some(obstacle)) if obstacle.writer.is_none() && !obstacle.taken.is_empty() => {
                Known::Taken(&obstacle.taken)
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
