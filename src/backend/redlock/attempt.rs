/*!
One attempt: asks the servers, counts their votes, and gives them back if they are too few.
*/

use std::sync::Arc;
use std::time::Duration;

use crate::backend::contract::contender::{Busy, Grant, Lease, OtherSlots, Queue, Used};
use crate::backend::error::Error;
use crate::backend::redis::listener::Listener;
use crate::backend::redlock::contender::{BETWEEN_LOOKS, LAST_RELEASES, RedlockContender, random, timeout};
use crate::backend::redlock::count::{Count, InTheWay, Refusal};
use crate::backend::redlock::errors;
use crate::backend::redlock::quorum::{self, Ballot, Outcome, Verdict, Vote, majority};
use crate::backend::redlock::requests::{Answer, Request};
use crate::backend::redlock::scripts::{Return, Try};
use crate::clock::{Instant, sleep_until, wall_micros};
use crate::holder::Published;
use crate::holder::done::Done;

/// The time for the slower servers to identify themselves once the first attempt is decided.
const INTRODUCTION: Duration = Duration::from_millis(100);
/// The time between two looks at a held lock: random, in this range of milliseconds.
const LOOK_AGAIN: (u64, u64) = (50, 250);
/// The minimum time until the next look, in multiples of the duration of the last: waiters must not keep servers busy.
const LOOK_SHARE: u32 = 8;
/// The maximum pause that [`LOOK_SHARE`] may cause: a look may be slow only because a server is down.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The time that the leader of a split vote waits for the others to give back their votes before it asks again.
const LEADER_PAUSE: Duration = Duration::from_millis(BETWEEN_LOOKS);

/// The outcome of one attempt.
pub(super) enum Tried {
    /// A majority granted it.
    Held(Grant),
    /// An outer run holds it.
    Outer(Box<Published>),
    /// A command has already succeeded in the period.
    Done(Box<Done>),
    /// Others use the lock with another number of slots.
    OtherSlots(OtherSlots),
    /// Others hold a majority.
    Busy(Busy),
    /// The slot is taken, but another one may be free, and is requested next.
    Elsewhere(Busy),
    /// Nobody has a majority, as far as is known.
    Split(Busy),
}

impl RedlockContender {
    /// Asks all servers for the lock once, and gives the votes back if they are too few.
    pub(super) async fn try_once(&mut self, queue: Queue, limit: Instant) -> Result<Tried, Error> {
        self.voters.start();
        let timeout = timeout(self.claim.ttl);
        if let (Some(dropped), None) = (self.attempt.clone(), self.token) {
            // Sent before the next attempt on every connection, which preserves the order.
            self.voters.tell_all(&Request::Release(dropped, Return::Vote), timeout);
        }
        self.number += 1;
        let attempt = Arc::new(Try::new(&self.claim, self.number, wall_micros(), self.slot_to_ask_for(), queue));
        (self.attempt, self.token) = (Some(Arc::clone(&attempt)), None);
        self.voters.forget_freed();
        let sent = Instant::now();
        self.looked = sent;
        // This attempt sees what has been told so far.
        self.release_listeners.iter().flatten().for_each(Listener::forget);
        let round = self.voters.tell_all(&Request::Acquire(Arc::clone(&attempt)), timeout);
        let mut count = Count::new(self.claim.mode, self.voters.len());
        let mut verdict = self.poll(round, &mut count).await?;
        if !self.introduced {
            if let Some(error) = self.voters.bad_topology(&count.failures) {
                self.withdraw(&attempt, &count.votes, Return::All(Used::No), timeout).await?;
                return Err(error);
            }
            self.introduced = true;
        }
        if verdict == Verdict::Impossible {
            verdict = self.lead(round, &attempt, &mut count, limit).await?;
        }
        // Waiters must use only a small part of the servers' time, even if the servers are slow.
        self.look_again = Instant::now() + (Instant::now().since(sent) * LOOK_SHARE).min(LONGEST_PAUSE);
        let token = match verdict {
            Verdict::Granted(token) => Some(token),
            Verdict::WriteBack(token) => {
                self.write_back(&attempt, &count.votes, token, timeout).await?.then_some(token)
            }
            Verdict::Impossible | Verdict::Undecided => None,
        };
        if let Some(token) = token {
            // A holder must not be told what is meant for the waiters.
            self.release_listeners.clear();
            // The slot is requested again if too little is left of the lease.
            (self.token, self.slot) = (Some(token), attempt.slot);
            let lacking = |index: usize| !matches!(count.votes[index], Vote::Granted(_));
            let grant = Grant { token, slot: attempt.slot, lease: Lease::until(sent, self.claim.ttl) };
            self.voters.tell(lacking, &Request::Join(attempt, token), timeout);
            return Ok(Tried::Held(grant));
        }
        // If the attempt ends with an error, nothing of it stays: servers that do not answer get one release, not two.
        let what = if self.is_silenced(&count) { Return::All(Used::No) } else { Return::Vote };
        if what == Return::Vote && attempt.announces() {
            self.announced = Some(Arc::clone(&attempt));
        }
        self.withdraw(&attempt, &count.votes, what, timeout).await?;
        self.lost(&count, attempt.slot)
    }

    /// Repeats the request while this attempt leads a split vote: the others give back theirs. Returns the verdict.
    async fn lead(
        &mut self,
        round: u64,
        attempt: &Arc<Try>,
        count: &mut Count,
        limit: Instant,
    ) -> Result<Verdict, Error> {
        let mut verdict = Verdict::Impossible;
        while verdict == Verdict::Impossible && count.leads(self.claim.owner.as_str()) && Instant::now() < limit {
            sleep_until(Instant::now() + LEADER_PAUSE).await;
            let refused = count.ask_again();
            let request = Request::Acquire(Arc::clone(attempt));
            self.voters.tell_in(round, |index| refused.contains(&index), &request, timeout(self.claim.ttl));
            verdict = self.poll(round, count).await?;
        }
        Ok(verdict)
    }

    /// Counts the answers of `round` until they decide the attempt. In the first attempt, servers that can be reached
    /// get [`INTRODUCTION`] to identify themselves.
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

    /// Raises the counters of servers that granted the attempt with a smaller count to its token. Returns `true` if a
    /// majority holds the token.
    async fn write_back(
        &mut self,
        attempt: &Arc<Try>,
        votes: &[Vote],
        token: u64,
        timeout: Duration,
    ) -> Result<bool, Error> {
        let mut holders = quorum::holders(votes, token);
        let request = Request::WriteBack(Arc::clone(attempt), token);
        let round = self.voters.tell(|index| holders[index] == Ballot::Pending, &request, timeout);
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

    /// Releases a failed attempt on all servers. Waits for those that granted it, and [`LAST_RELEASES`] for the others.
    async fn withdraw(
        &mut self,
        attempt: &Arc<Try>,
        votes: &[Vote],
        what: Return,
        timeout: Duration,
    ) -> Result<(), Error> {
        let round = self.voters.tell_all(&Request::Release(Arc::clone(attempt), what), timeout);
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

    /// Returns `true` if too few servers have answered for a majority.
    fn is_silenced(&self, count: &Count) -> bool {
        let servers = self.voters.len();
        count.failures.len() > servers - majority(servers)
    }

    /// Returns the outcome of an attempt that asked for this `slot` and got no majority.
    fn lost(&mut self, count: &Count, slot: Option<u32>) -> Result<Tried, Error> {
        if self.is_silenced(count) {
            return Err(errors::no_majority(&count.failures, self.voters.len()));
        }
        let refusal = count.refusal();
        self.slot = match &refusal {
            Refusal::Elsewhere(_, free) => any_of(free),
            // Others asked for it too, and may leave it to this attempt.
            Refusal::Split(_) => slot,
            Refusal::Outer(_) | Refusal::Done(_) | Refusal::OtherSlots(_) | Refusal::Held(_) => None,
        };
        Ok(match refusal {
            Refusal::Outer(outer) => Tried::Outer(outer),
            Refusal::Done(done) => Tried::Done(done),
            Refusal::OtherSlots(other) => Tried::OtherSlots(other),
            Refusal::Elsewhere(in_the_way, _) => Tried::Elsewhere(self.busy(in_the_way)),
            Refusal::Held(in_the_way) => Tried::Busy(self.busy(in_the_way)),
            Refusal::Split(in_the_way) => Tried::Split(self.busy(in_the_way)),
        })
    }

    /// Converts the blocker to the report for waiters, and decides when to look again.
    fn busy(&mut self, in_the_way: InTheWay) -> Busy {
        let InTheWay { holder, beside, left, .. } = in_the_way;
        let wait = Duration::from_millis(random(LOOK_AGAIN.0, LOOK_AGAIN.1));
        // Waiters look after the expiry, but not all at the same time.
        let expiry = left.map_or(wait, |left| Duration::from_millis(left + random(BETWEEN_LOOKS, LOOK_AGAIN.0)));
        self.look_again = self.look_again.max(Instant::now() + wait.min(expiry));
        Busy { holder, beside, position: None, now: wall_micros() / 1000 }
    }
}

/// Returns a random one of these numbers, if there are any: several clients should choose different ones.
fn any_of(numbers: &[u32]) -> Option<u32> {
    let last = u64::try_from(numbers.len().checked_sub(1)?).ok()?;
    numbers.get(usize::try_from(random(0, last)).ok()?).copied()
}
