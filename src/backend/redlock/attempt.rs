/*!
One attempt: asks the servers, counts their votes, and gives them back when they are too few.
*/

use std::sync::Arc;
use std::time::Duration;

use crate::backend::redlock::contender::{BETWEEN_LOOKS, LAST_RELEASES, RedlockContender, patience, random};
use crate::backend::redlock::count::Count;
use crate::backend::redlock::errors;
use crate::backend::redlock::quorum::{self, Ballot, Outcome, Verdict, Vote, majority};
use crate::backend::redlock::scripts::Try;
use crate::backend::redlock::voter::{Answer, Request};
use crate::backend::{Busy, Error, Grant, Lease, Used};
use crate::clock::{Instant, sleep_until, wall_micros};

/// How long the slower servers may take to identify themselves once the first attempt is decided.
const INTRODUCTION: Duration = Duration::from_millis(100);
/// The time between two looks at a lock that is held: random, in this range of milliseconds.
const LOOK_AGAIN: (u64, u64) = (50, 250);
/// The least time until the next look, in multiples of the length of the last one: waiters must not keep servers busy.
const LOOK_SHARE: u32 = 8;
/// The most that [`LOOK_SHARE`] may add: a look may be slow only because a server is away.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long the leader of a split vote waits for the others to give back their votes before it asks again.
const LEADER_PAUSE: Duration = Duration::from_millis(BETWEEN_LOOKS);

/// The outcome of one attempt.
pub(super) enum Tried {
    /// A majority granted it.
    Held(Grant),
    /// Another client holds a majority.
    Busy(Busy),
    /// Nobody has a majority, as far as can be told.
    Split(Busy),
}

impl RedlockContender {
    /// Asks all servers for the lock once, and gives the votes back if they are too few.
    pub(super) async fn try_once(&mut self, limit: Instant) -> Result<Tried, Error> {
        self.voters.start();
        let patience = patience(self.claim.ttl);
        if let (Some(dropped), None) = (self.attempt.clone(), self.token) {
            // Sent before the next attempt on every connection, which keeps the order.
            self.voters.tell_all(&Request::Release(dropped, Used::No), patience);
        }
        self.number += 1;
        let attempt = Arc::new(Try::new(&self.claim, self.number, wall_micros()));
        (self.attempt, self.token) = (Some(Arc::clone(&attempt)), None);
        self.voters.forget_freed();
        let sent = Instant::now();
        let round = self.voters.tell_all(&Request::Acquire(Arc::clone(&attempt)), patience);
        let mut count = Count::new(self.voters.len());
        let mut verdict = self.poll(round, &mut count).await?;
        if !self.introduced {
            if let Some(error) = self.voters.misfit(&count.failures) {
                self.withdraw(&attempt, &count.votes, patience).await?;
                return Err(error);
            }
            self.introduced = true;
        }
        // Of several attempts at once, the others give back their votes: the leader need only ask again.
        while verdict == Verdict::Impossible && count.leads(&self.claim) && Instant::now() < limit {
            sleep_until(Instant::now() + LEADER_PAUSE).await;
            let refused = count.ask_again();
            self.voters.tell_in(
                round,
                |index| refused.contains(&index),
                &Request::Acquire(Arc::clone(&attempt)),
                patience,
            );
            verdict = self.poll(round, &mut count).await?;
        }
        // Waiters must take only a small part of the servers' time, also when these are slow.
        self.look_again = Instant::now() + (Instant::now().since(sent) * LOOK_SHARE).min(LONGEST_PAUSE);
        let token = match verdict {
            Verdict::Granted(token) => Some(token),
            Verdict::WriteBack(token) => {
                self.write_back(&attempt, &count.votes, token, patience).await?.then_some(token)
            }
            Verdict::Impossible | Verdict::Undecided => None,
        };
        if let Some(token) = token {
            self.token = Some(token);
            let lacking = |index: usize| !matches!(count.votes[index], Vote::Granted(_));
            self.voters.tell(lacking, &Request::Join(attempt, token), patience);
            return Ok(Tried::Held(Grant { token, lease: Lease::until(sent, self.claim.ttl) }));
        }
        self.withdraw(&attempt, &count.votes, patience).await?;
        self.lost(&count)
    }

    /// Counts the answers of `round` until they decide the attempt. In the first attempt, servers that can be reached
    /// have [`INTRODUCTION`] to identify themselves.
    async fn poll(&mut self, round: u64, count: &mut Count) -> Result<Verdict, Error> {
        let mut decided = None;
        loop {
            for index in 0..self.voters.len() {
                if self.voters.twin(index).is_some() {
                    count.votes[index] = Vote::Lost;
                }
            }
            let verdict = quorum::verdict(&count.votes);
            let limit = if verdict == Verdict::Undecided {
                None
            } else {
                let missing =
                    |(index, vote): (usize, &Vote)| *vote == Vote::Pending && self.voters.is_unintroduced(index);
                if self.introduced || !count.votes.iter().enumerate().any(missing) {
                    return Ok(verdict);
                }
                Some(*decided.get_or_insert_with(|| Instant::now() + INTRODUCTION))
            };
            match self.voters.hear_of(round, limit).await? {
                Some(event) => count.add(event),
                None => return Ok(verdict),
            }
        }
    }

    /// Raises the counters of servers that granted the attempt with a smaller count to its token. Returns whether a
    /// majority holds the token.
    async fn write_back(
        &mut self,
        attempt: &Arc<Try>,
        votes: &[Vote],
        token: u64,
        patience: Duration,
    ) -> Result<bool, Error> {
        let mut holders = quorum::holders(votes, token);
        let request = Request::WriteBack(Arc::clone(attempt), token);
        let round = self.voters.tell(|index| holders[index] == Ballot::Pending, &request, patience);
        loop {
            match quorum::outcome(&holders) {
                Outcome::Undecided => {}
                outcome => return Ok(outcome == Outcome::Yes),
            }
            if let Some(event) = self.voters.hear_of(round, None).await? {
                holders[event.voter] = match event.answer {
                    Answer::WroteBack(true) => Ballot::Yes,
                    Answer::WroteBack(false) => Ballot::No,
                    _ => Ballot::Silent,
                };
            }
        }
    }

    /// Gives a failed attempt back everywhere. Waits for the servers that granted it, and [`LAST_RELEASES`] for the
    /// others.
    async fn withdraw(&mut self, attempt: &Arc<Try>, votes: &[Vote], patience: Duration) -> Result<(), Error> {
        let round = self.voters.tell_all(&Request::Release(Arc::clone(attempt), Used::No), patience);
        let granted = |index: usize| matches!(votes[index], Vote::Granted(_));
        let mut missing: Vec<usize> = (0..votes.len()).collect();
        let slow = Instant::now() + LAST_RELEASES;
        while !missing.is_empty() {
            let limit = (!missing.iter().copied().any(granted)).then_some(slow);
            match self.voters.hear_of(round, limit).await? {
                Some(event) => missing.retain(|index| *index != event.voter),
                // The releases are on their way.
                None => break,
            }
        }
        self.attempt = None;
        Ok(())
    }

    /// The outcome of an attempt that got no majority.
    fn lost(&mut self, count: &Count) -> Result<Tried, Error> {
        let servers = self.voters.len();
        if count.failures.len() > servers - majority(servers) {
            return Err(errors::no_majority(&count.failures, servers));
        }
        let now = wall_micros() / 1000;
        let (holder, votes, pttl) = count.holder();
        let busy = Busy { holder, position: None, now };
        let wait = Duration::from_millis(random(LOOK_AGAIN.0, LOOK_AGAIN.1));
        // Waiters look after the expiry, but not all at the same time.
        let expiry = pttl.map_or(wait, |pttl| Duration::from_millis(pttl + random(BETWEEN_LOOKS, LOOK_AGAIN.0)));
        self.look_again = self.look_again.max(Instant::now() + wait.min(expiry));
        Ok(if votes >= majority(servers) { Tried::Busy(busy) } else { Tried::Split(busy) })
    }
}
