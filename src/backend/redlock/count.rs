/*!
The answers of the servers to one attempt: their votes, and who holds the lock where it was refused.
*/

use std::collections::BTreeMap;

use crate::backend::Claim;
use crate::backend::redlock::errors::Failures;
use crate::backend::redlock::quorum::Vote;
use crate::backend::redlock::scripts::{Acquired, Occupant};
use crate::backend::redlock::voter::{Answer, Event};
use crate::holder::Holder;

/// The answers to one attempt, as far as they have arrived.
pub(super) struct Count {
    /// Each server's vote.
    pub votes: Vec<Vote>,
    /// The servers without an answer, and why.
    pub failures: Failures,
    /// By server that refused: what is at the lock's key, and its remaining time in milliseconds.
    occupants: BTreeMap<usize, (Occupant, i64)>,
}

impl Count {
    /// The count before any of so many `servers` has answered.
    pub(super) fn new(servers: usize) -> Self {
        Self { votes: vec![Vote::Pending; servers], failures: Failures::new(), occupants: BTreeMap::new() }
    }

    /// Counts one answer.
    pub(super) fn add(&mut self, event: Event) {
        self.votes[event.voter] = match event.answer {
            Answer::Acquired(Acquired::Granted(count), _) => Vote::Granted(count),
            Answer::Acquired(Acquired::Busy { occupant, pttl }, _) => {
                self.occupants.insert(event.voter, (occupant, pttl));
                Vote::Lost
            }
            Answer::Failed(failure) => {
                self.failures.insert(event.voter, failure);
                Vote::Lost
            }
            _ => Vote::Lost,
        };
    }

    /// Whether this attempt is to go on when several split the votes: it has the most, or as many as another and the
    /// smaller id. All attempts see about the same votes, so that only one of them leads.
    pub(super) fn leads(&self, claim: &Claim) -> bool {
        let mine = self.votes.iter().filter(|vote| matches!(vote, Vote::Granted(_))).count();
        let (holder, votes, _) = self.holder();
        mine > votes || (mine == votes && holder.id().is_some_and(|id| claim.owner.as_str() < id))
    }

    /// Forgets the answers of the servers that refused, and returns their numbers.
    pub(super) fn ask_again(&mut self) -> Vec<usize> {
        let refused: Vec<usize> = std::mem::take(&mut self.occupants).into_keys().collect();
        for &index in &refused {
            self.votes[index] = Vote::Pending;
        }
        refused
    }

    /// The holder with the most votes, how many these are, and after how many milliseconds the first of them expires.
    pub(super) fn holder(&self) -> (Holder, usize, Option<u64>) {
        let same = |one: &Occupant, other: &Occupant| {
            one == other || {
                let id = Holder::read(&one.value).id().map(str::to_owned);
                id.is_some() && id.as_deref() == Holder::read(&other.value).id()
            }
        };
        let votes = |of: &Occupant| self.occupants.values().filter(|(other, _)| same(of, other)).count();
        let Some((most, _)) = self.occupants.values().max_by_key(|(occupant, _)| votes(occupant)) else {
            return (Holder::Unknown, 0, None);
        };
        let theirs = || self.occupants.values().filter(|(other, _)| same(most, other));
        let holder = match most.kind.as_str() {
            "string" => Holder::read(&most.value),
            other => Holder::InTheWay(format!("a redis {other} at the lock's key")),
        };
        let pttl = theirs().filter_map(|(_, pttl)| u64::try_from(*pttl).ok()).min();
        (holder, theirs().count(), pttl)
    }
}
