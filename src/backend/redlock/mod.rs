/*!
A majority of independent redis servers: on each the same plain string as on a single one, so that every client of the
published Redlock algorithm on the same servers is excluded and excludes us.

All servers are asked at once, each by a task of its own ([`voter`]), and what they say is counted by the pure functions
of [`quorum`], which also number the grants. The majority is one of the configured number; decisions are made as soon as
it has spoken, and one server that is dead or silent keeps nobody waiting. There is no queue: who finds the lock busy
looks again after a short random time.

After an attempt that failed its votes are given back everywhere, also on servers that seemed to fail, before the next
one. Every attempt has a number in its value, so that a release that is late on its way cannot delete what a later
attempt of the same owner holds. A granted attempt asks the servers that did not grant it again, in the background and
only those that never granted it; a vote that is gone is never made again.

ACL: as for a single server; `INFO` is asked too, and `CONFIG GET` with strict fencing. Where `INFO` is denied, nobody
notices that two names mean one server.
*/

mod count;
mod driver;
mod errors;
#[cfg(test)]
mod model;
mod quorum;
mod scripts;
mod voter;
mod voters;

use std::sync::Arc;
use std::time::Duration;

use self::count::Count;
pub(crate) use self::driver::DRIVER;
use self::errors::Failures;
use self::quorum::{Ballot, Outcome, Verdict, Vote, majority};
use self::scripts::{Occupant, Try};
use self::voter::{Answer, Request};
use self::voters::Voters;
use crate::backend::redis::Server;
use crate::backend::{Attempt, Busy, Claim, Contender, Error, Grant, Lease, Queue, Released, Renewal, Service};
use crate::clock::{Instant, sleep_until, wall_micros};
use crate::holder::Holder;

/// How long the first connections of those who are slow may take once a majority is there.
const FIRST_CONTACT: Duration = Duration::from_millis(250);
/// How much longer than those who decide the first attempt the others may take to say who they are.
const INTRODUCTION: Duration = Duration::from_millis(100);
/// How much longer than those who matter the others may take to give the lock back.
const LAST_RELEASES: Duration = Duration::from_millis(50);
/// Between two looks at a lock that is held: a random time in this range, in milliseconds.
const LOOK_AGAIN: (u64, u64) = (50, 250);
/// A look must not take more than one of so many parts of the time: with so many times its length until the next one.
const LOOK_SHARE: u32 = 8;
/// But no longer than this: what took so long may have been a server that is not there.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long the others have to give back what they have, before it is asked for again.
const LEADER_PAUSE: Duration = Duration::from_millis(2);
/// The longest first pause between two attempts of which nobody won the last one, in milliseconds; it doubles.
const SPLIT_PAUSE: u64 = 8;
/// The longest time for which such attempts are repeated at once.
const SPLIT: Duration = Duration::from_millis(500);

/// How long one server may take to answer: so short that a silent one costs an attempt little of its lease.
fn patience(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// A random number between the two, or the larger one where the kernel gives none.
fn random(from: u64, to: u64) -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => from + u64::from_ne_bytes(bytes) % (to - from + 1),
        Err(_) => to,
    }
}

/// The locks of a majority of redis servers.
#[derive(Debug)]
pub(crate) struct RedlockService {
    servers: Vec<Server>,
    strict: bool,
}

impl RedlockService {
    /// The locks of these servers; not connected yet. With `strict`, only servers vote that keep their counters when
    /// killed.
    #[must_use]
    pub(crate) fn new(servers: Vec<Server>, strict: bool) -> Self {
        Self { servers, strict }
    }
}

impl Service for RedlockService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        Box::new(RedlockContender::new(claim, self.servers.clone(), self.strict))
    }
}

/// One claim at a majority of redis servers.
#[derive(Debug)]
struct RedlockContender {
    claim: Claim,
    voters: Voters,
    /// With strict fencing.
    strict: bool,
    /// The number of the last attempt.
    number: u64,
    /// The last attempt, unless it was given back.
    attempt: Option<Arc<Try>>,
    /// The token of that attempt, once it is granted.
    token: Option<u64>,
    /// A majority was reached once.
    reached: bool,
    /// The servers have had the time to say who they are.
    introduced: bool,
    look_again: Instant,
}

/// What came of one attempt.
enum Tried {
    Held(Grant),
    Busy(Busy),
    /// Nobody has a majority, as far as can be told.
    Split(Busy),
}

impl RedlockContender {
    fn new(claim: Claim, servers: Vec<Server>, strict: bool) -> Self {
        let mut concerns = Vec::new();
        if servers.len().is_multiple_of(2) {
            let (even, odd) = (servers.len(), servers.len() - 1);
            concerns.push(format!("{even} servers survive no more losses than {odd} would: use an odd number of them"));
        }
        Self {
            claim,
            voters: Voters::new(servers, strict, concerns),
            strict,
            number: 0,
            attempt: None,
            token: None,
            reached: false,
            introduced: false,
            look_again: Instant::now(),
        }
    }

    async fn try_once(&mut self, limit: Instant) -> Result<Tried, Error> {
        self.voters.start();
        let patience = patience(self.claim.ttl);
        if let (Some(dropped), None) = (self.attempt.clone(), self.token) {
            // Before the next one on every connection: order is kept there.
            self.voters.tell_all(&Request::Release(dropped), patience);
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
        // Of several that came at once the others give back what they have: it need only be asked for again.
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
        // Whoever waits shall have little part in the work of the servers, also when they are slow.
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

    /// Adds the answers of `round` until they decide the attempt. In the first attempt those that are there have a moment
    /// to say who they are.
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

    /// Lets those who granted the attempt with a smaller count hold its token; whether a majority does.
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

    /// Gives a failed attempt back everywhere; waits for those who granted it, and a moment for those who are slow.
    async fn withdraw(&mut self, attempt: &Arc<Try>, votes: &[Vote], patience: Duration) -> Result<(), Error> {
        let round = self.voters.tell_all(&Request::Release(Arc::clone(attempt)), patience);
        let granted = |index: usize| matches!(votes[index], Vote::Granted(_));
        let mut missing: Vec<usize> = (0..votes.len()).collect();
        let slow = Instant::now() + LAST_RELEASES;
        while !missing.is_empty() {
            let limit = (!missing.iter().copied().any(granted)).then_some(slow);
            match self.voters.hear_of(round, limit).await? {
                Some(event) => missing.retain(|index| *index != event.voter),
                // It is on its way to them: that much happens before the time is over.
                None => break,
            }
        }
        self.attempt = None;
        Ok(())
    }

    /// What an attempt came to that did not get a majority.
    fn lost(&mut self, count: &Count) -> Result<Tried, Error> {
        let servers = self.voters.len();
        if count.failures.len() > servers - majority(servers) {
            return Err(errors::no_majority(&count.failures, servers));
        }
        let now = wall_micros() / 1000;
        let (holder, votes, pttl) = count.holder();
        let busy = Busy { holder, position: None, now };
        let wait = Duration::from_millis(random(LOOK_AGAIN.0, LOOK_AGAIN.1));
        // Once it has expired everybody looks: not all at the same time.
        let expiry = pttl.map_or(wait, |pttl| Duration::from_millis(pttl + random(2, LOOK_AGAIN.0)));
        self.look_again = self.look_again.max(Instant::now() + wait.min(expiry));
        Ok(if votes >= majority(servers) { Tried::Busy(busy) } else { Tried::Split(busy) })
    }
}

/// Why a lock is not ours any more, from what the servers have instead.
fn describe(occupants: &[Occupant], servers: usize) -> String {
    let gone = occupants.iter().filter(|occupant| occupant.kind == "none").count();
    if gone * 2 >= occupants.len() {
        return format!("its key is gone from {gone} of {servers} servers");
    }
    let other = occupants.iter().find(|occupant| occupant.kind == "string");
    // Without the time: this clock may not be the one that granted it.
    let who = other.map_or_else(|| "something else".to_owned(), |occupant| Holder::read(&occupant.value).describe(0));
    format!("its key is {who} on {} of {servers} servers", occupants.len() - gone)
}

#[async_trait::async_trait(?Send)]
impl Contender for RedlockContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.voters.start();
        if self.reached {
            return Ok(());
        }
        let round = self.voters.tell_all(&Request::Contact, Duration::from_secs(1));
        let mut ballots = vec![Ballot::Pending; self.voters.len()];
        let mut failures = Failures::new();
        let mut limit = None;
        loop {
            let outcome = quorum::outcome(&ballots);
            // Strict fencing has the time to look at all of them.
            if outcome != Outcome::Undecided && !self.strict {
                limit = limit.or(Some(Instant::now() + FIRST_CONTACT));
            }
            let over = outcome == Outcome::Unknown && !self.strict;
            let event = if over || !ballots.contains(&Ballot::Pending) {
                None
            } else {
                self.voters.hear_of(round, limit).await?
            };
            let Some(event) = event else {
                if let Some(error) = self.voters.misfit(&failures) {
                    return Err(error);
                }
                if outcome != Outcome::Yes {
                    return Err(errors::no_majority(&failures, self.voters.len()));
                }
                self.reached = true;
                return Ok(());
            };
            ballots[event.voter] = match event.answer {
                Answer::Failed(failure) => {
                    failures.insert(event.voter, failure);
                    Ballot::Silent
                }
                _ => Ballot::Yes,
            };
        }
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        let limit = Instant::now() + SPLIT.min(self.claim.ttl / 10);
        let mut longest = SPLIT_PAUSE;
        loop {
            match self.try_once(limit).await? {
                Tried::Held(grant) => return Ok(Attempt::Held(grant)),
                Tried::Busy(busy) => return Ok(Attempt::Busy(busy)),
                Tried::Split(busy) if queue == Queue::Join || Instant::now() >= limit => {
                    return Ok(Attempt::Busy(busy));
                }
                // Who does not wait must not be refused because of others that are refused as well.
                Tried::Split(_) => {
                    sleep_until(Instant::now() + Duration::from_millis(random(1, longest))).await;
                    longest *= 2;
                }
            }
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        sleep_until(self.look_again).await;
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let (Some(attempt), Some(token)) = (self.attempt.clone(), self.token) else {
            return Ok(Renewal::NotMine("it is not held".to_owned()));
        };
        let patience = patience(self.claim.ttl);
        let sent = Instant::now();
        let round = self.voters.tell_all(&Request::Renew(Arc::clone(&attempt)), patience);
        let mut ballots = vec![Ballot::Pending; self.voters.len()];
        let (mut failures, mut occupants) = (Failures::new(), Vec::new());
        loop {
            match quorum::outcome(&ballots) {
                Outcome::Undecided => {}
                Outcome::Yes => {
                    // Only now: a server that joins must not replace one that has lost its vote.
                    let lacking = |index: usize| ballots[index] != Ballot::Yes;
                    self.voters.tell(lacking, &Request::Join(attempt, token), patience);
                    return Ok(Renewal::Extended(Lease::until(sent, self.claim.ttl)));
                }
                Outcome::No => return Ok(Renewal::NotMine(describe(&occupants, self.voters.len()))),
                Outcome::Unknown => return Err(errors::no_majority(&failures, self.voters.len())),
            }
            let Some(event) = self.voters.hear_of(round, None).await? else { continue };
            ballots[event.voter] = match event.answer {
                Answer::Extended => Ballot::Yes,
                Answer::NotOurs(occupant) => {
                    occupants.push(occupant);
                    Ballot::No
                }
                Answer::Failed(failure) => {
                    failures.insert(event.voter, failure);
                    Ballot::Silent
                }
                _ => Ballot::Silent,
            };
            if self.voters.twin(event.voter).is_some() {
                ballots[event.voter] = Ballot::Silent;
            }
        }
    }

    async fn release(&mut self) -> Result<Released, Error> {
        let Some(attempt) = self.attempt.clone() else { return Ok(Released::NotMine) };
        let round = self.voters.tell_all(&Request::Release(attempt), patience(self.claim.ttl));
        let mut ballots = vec![Ballot::Pending; self.voters.len()];
        let mut failures = Failures::new();
        let mut limit = None;
        loop {
            let outcome = quorum::outcome(&ballots);
            let complete = !ballots.contains(&Ballot::Pending);
            if outcome != Outcome::Undecided && limit.is_none() {
                limit = Some(Instant::now() + LAST_RELEASES);
            }
            let event = if complete { None } else { self.voters.hear_of(round, limit).await? };
            let Some(event) = event else {
                // Those who have not answered have it before them, behind all that was asked of them.
                return match outcome {
                    Outcome::Yes => {
                        (self.attempt, self.token) = (None, None);
                        Ok(Released::Freed)
                    }
                    Outcome::No => {
                        (self.attempt, self.token) = (None, None);
                        Ok(Released::NotMine)
                    }
                    Outcome::Undecided | Outcome::Unknown => Err(errors::no_majority(&failures, self.voters.len())),
                };
            };
            ballots[event.voter] = match event.answer {
                // A try whose answers were too few has freed it too.
                Answer::Released(freed) if freed || self.voters.has_freed(event.voter) => Ballot::Yes,
                Answer::Released(_) => Ballot::No,
                Answer::Failed(failure) => {
                    failures.insert(event.voter, failure);
                    Ballot::Silent
                }
                _ => Ballot::Silent,
            };
        }
    }

    fn concerns(&mut self) -> Vec<String> {
        self.voters.concerns()
    }
}
