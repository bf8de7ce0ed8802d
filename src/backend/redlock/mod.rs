/*!
Locks on a majority of independent redis servers. Each server has the same plain string as a single one would, so that
dlock and every client of the published Redlock algorithm on the same servers exclude each other.

All servers are asked at once, each by its own task ([`voter`]); the pure functions of [`quorum`] count the answers and
number the grants. A majority is more than half of the configured servers. Decisions are made as soon as a majority has
answered, so that a dead or silent minority delays nobody. There is no queue: a waiter that finds the lock busy looks
again after a short random time, or when the servers tell it of a release. Each tells the one that has listened longest:
with most servers that is the same waiter, which nobody else disturbs.

A lock with several holders (shared, or slots) is stored on each server as on a single one: with an entry for each
holder and, as long as there is one, a string at its key. Any two majorities share a server, which has either such a
group or an exclusive holder. Each slot is a lock of its own, and an attempt asks all servers for the same one
([`slots`]). If a writer finds a group on a server, others are refused there until the writer has had its turn, or for a
moment after its last look.

Before the next attempt, the votes of a failed one are given back on all servers, even on those that seemed to fail. The
value has the number of the attempt, so that a late release cannot delete the vote of a later attempt of the same owner.
A granted attempt asks the remaining servers again, in the background, but only those that never granted it: a lost vote
is never restored.

The rights that a user needs are in [`Rights`]. `INFO` is used too: if it is denied, two names for one server go
unnoticed.
*/

mod attempt;
mod contender;
mod count;
mod driver;
mod errors;
mod inspect;
mod introduction;
mod meeting;
#[cfg(test)]
mod model;
mod probes;
mod quorum;
mod requests;
mod scripts;
mod slots;
mod voter;
mod voters;

use std::sync::Arc;
use std::time::Duration;

use self::attempt::Tried;
use self::contender::{BETWEEN_LOOKS, LAST_RELEASES, RedlockContender, random, timeout};
pub(crate) use self::driver::DRIVER;
use self::errors::Failures;
use self::inspect::RedlockSurvey;
use self::meeting::{NO_BARRIER, RedlockLatch};
use self::probes::RedlockProbes;
use self::quorum::{Ballot, Outcome};
use self::requests::{Answer, Request};
use self::scripts::{Occupant, Return, Try};
use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Adopted, Attempt, Contender, Grant, Lease, Queue, Released, Renewal, Used};
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::contract::service::Service;
use crate::backend::error::Error;
use crate::backend::meeting::{Barrier, Latch, Meeting};
use crate::backend::redis::Server;
use crate::backend::redis::rights::{MAJORITY, Rights};
use crate::backend::survey::Survey;
use crate::clock::{Instant, before, sleep_until, wall_micros};
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::key::Namespace;

/// The time for the slower servers to accept a connection once a majority has.
const FIRST_CONTACT: Duration = Duration::from_millis(250);
/// The maximum of the first pause after an attempt that nobody won, in milliseconds. It doubles each time.
const SPLIT_PAUSE: u64 = 2 * BETWEEN_LOOKS;
/// The maximum time for which attempts that nobody wins are repeated before the lock is reported as busy.
const SPLIT: Duration = Duration::from_millis(500);

/// The locks of a majority of redis servers.
#[derive(Debug)]
pub(crate) struct RedlockService {
    servers: Vec<Server>,
    strict: bool,
}

impl RedlockService {
    /// Returns the locks of these servers; not connected yet. With `strict`, servers that could lose their counters
    /// when killed are refused.
    #[must_use]
    pub(crate) fn new(servers: Vec<Server>, strict: bool) -> Self {
        Self { servers, strict }
    }
}

impl Service for RedlockService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let rights = Rights::for_locks(&claim, MAJORITY);
        let rights = if self.strict { rights.and("+config|get") } else { rights };
        let servers = self.servers.iter().map(|server| server.clone().needing(rights.clone())).collect();
        Box::new(RedlockContender::new(claim, servers, self.strict))
    }

    fn latch(&self, meeting: Meeting) -> Result<Box<dyn Latch>, &'static str> {
        let rights = Rights::for_locks(&Claim::like(&meeting), MAJORITY);
        let servers = self.servers.iter().map(|server| server.clone().needing(rights.clone())).collect();
        Ok(Box::new(RedlockLatch::new(servers, meeting)))
    }

    fn barrier(&self, _meeting: Meeting, _parties: u32) -> Result<Box<dyn Barrier>, &'static str> {
        Err(NO_BARRIER)
    }

    fn survey(&self, namespace: Namespace) -> Box<dyn Survey> {
        Box::new(RedlockSurvey::new(&self.servers, &namespace))
    }

    fn probes(&self, parameters: CheckParameters) -> Box<dyn Probes> {
        Box::new(RedlockProbes::new(&self.servers, self.strict, parameters.namespace))
    }
}

/// Returns the reason why a lock is lost, from the values that the servers have instead.
fn describe(occupants: &[Occupant], servers: usize) -> String {
    let gone = occupants.iter().filter(|occupant| occupant.kind == "none").count();
    if gone * 2 >= occupants.len() {
        return format!("its key is gone from {gone} of {servers} servers");
    }
    let other = occupants.iter().find(|occupant| occupant.kind == "string");
    // Without its age, because this host's clock may not be the one that granted it.
    let who = other.map_or_else(|| "something else".to_owned(), |occupant| Holder::read(&occupant.value).describe(0));
    format!("its key is {who} on {} of {servers} servers", occupants.len() - gone)
}

#[async_trait::async_trait(?Send)]
impl Contender for RedlockContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn ignore_outer(&mut self) {
        self.claim.outer.clear();
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
            // Strict fencing looks at all servers.
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
                if let Some(error) = self.voters.bad_topology(&failures) {
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

    async fn adopt(&mut self, held: &Adopted) -> Result<(), Error> {
        let number = held.attempt.unwrap_or_default();
        let attempt = Try::new(&self.claim, number, wall_micros(), None, Queue::Pass);
        (self.number, self.attempt, self.token) = (number, Some(Arc::new(attempt)), Some(held.token));
        self.voters.start();
        self.voters.tell_all(&Request::Adopt(number), timeout(self.claim.ttl));
        Ok(())
    }

    fn granted_attempt(&self) -> Option<u64> {
        self.token.map(|_| self.number)
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        let limit = Instant::now() + SPLIT.min(self.claim.ttl / 10);
        let mut longest = SPLIT_PAUSE;
        let mut is_first = true;
        loop {
            let tried = self.try_once(queue, limit).await?;
            let is_last = Instant::now() >= limit;
            match tried {
                Tried::Held(grant) if self.claim.min_hold.is_zero() => return Ok(Attempt::Held(grant)),
                Tried::Held(grant) => {
                    // Only a renewal makes the votes last for the minimum hold.
                    return match self.renew().await? {
                        Renewal::Extended(lease) | Renewal::Asked(lease, _) => {
                            Ok(Attempt::Held(Grant { lease, ..grant }))
                        }
                        Renewal::NotMine(why) => Err(Error::unavailable(why)),
                    };
                }
                Tried::Outer(outer) => return Ok(Attempt::Outer(outer)),
                Tried::Done(done) => return Ok(Attempt::Done(done)),
                Tried::OtherSlots(other) => return Ok(Attempt::OtherSlots(other)),
                Tried::Busy(busy) => return Ok(Attempt::Busy(busy)),
                Tried::Elsewhere(busy) if is_last => return Ok(Attempt::Busy(busy)),
                Tried::Split(busy) if queue == Queue::Join || is_last => return Ok(Attempt::Busy(busy)),
                // The refusal shows which slots may be free.
                Tried::Elsewhere(_) if is_first => {}
                // Several attempts that do not wait must not all be refused because of each other.
                Tried::Split(_) | Tried::Elsewhere(_) => {
                    sleep_until(Instant::now() + Duration::from_millis(random(BETWEEN_LOOKS, longest))).await;
                    longest *= 2;
                }
            }
            is_first = false;
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        // Nobody tells of a foreign client's release, nor of the end of a lease.
        let _ = before(self.look_again, self.told_of_release()).await;
        sleep_until(self.looked + Duration::from_millis(BETWEEN_LOOKS)).await;
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let (Some(attempt), Some(token)) = (self.attempt.clone(), self.token) else {
            return Ok(Renewal::NotMine("it is not held".to_owned()));
        };
        let timeout = timeout(self.claim.ttl);
        let sent = Instant::now();
        let round = self.voters.tell_all(&Request::Renew(Arc::clone(&attempt)), timeout);
        let mut ballots = vec![Ballot::Pending; self.voters.len()];
        let (mut failures, mut occupants, mut asked) = (Failures::new(), Vec::new(), None);
        loop {
            match quorum::outcome(&ballots) {
                Outcome::Undecided => {}
                Outcome::Yes => {
                    // Only after a majority confirmed: a server that joins must not replace one that lost its vote.
                    let lacking = |index: usize| ballots[index] != Ballot::Yes;
                    self.voters.tell(lacking, &Request::Join(attempt, token), timeout);
                    return Ok(Renewal::of(Lease::until(sent, self.claim.ttl), asked));
                }
                Outcome::No => return Ok(Renewal::NotMine(describe(&occupants, self.voters.len()))),
                Outcome::Unknown => return Err(errors::no_majority(&failures, self.voters.len())),
            }
            let Some(event) = self.voters.hear_of(round, None).await? else { continue };
            ballots[event.voter] = match event.answer {
                Answer::Extended(request) => {
                    let request = request.and_then(|request| Ask::read(&request, self.claim.owner.as_str()));
                    asked = asked.or(request);
                    Ballot::Yes
                }
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

    async fn disturbed(&mut self) {
        self.notified().await;
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        self.release_listeners.clear();
        let Some(attempt) = self.attempt.clone().or_else(|| self.announced.clone()) else {
            return Ok(Released::NotMine);
        };
        let round = self.voters.tell_all(&Request::Release(attempt, Return::All(used)), timeout(self.claim.ttl));
        let mut kept = false;
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
                // Servers that have not answered will execute it after all earlier requests.
                let released = match outcome {
                    Outcome::Yes if kept => Released::Kept,
                    Outcome::Yes => Released::Freed,
                    Outcome::No => Released::NotMine,
                    Outcome::Undecided | Outcome::Unknown => {
                        return Err(errors::no_majority(&failures, self.voters.len()));
                    }
                };
                (self.attempt, self.token, self.announced) = (None, None, None);
                return Ok(released);
            };
            kept |= matches!(event.answer, Answer::Released(Released::Kept));
            ballots[event.voter] = match event.answer {
                // An earlier release, which too few servers answered, may have freed it.
                Answer::Released(released) if released != Released::NotMine || self.voters.has_freed(event.voter) => {
                    Ballot::Yes
                }
                Answer::Released(_) => Ballot::No,
                Answer::Failed(failure) => {
                    failures.insert(event.voter, failure);
                    Ballot::Silent
                }
                _ => Ballot::Silent,
            };
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        self.voters.warnings()
    }
}
