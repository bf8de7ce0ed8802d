//! One trace, played with real contenders.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::backend::conformance::Known;
use crate::backend::conformance::draw::{Move, Play};
use crate::backend::contract::claim::{Claim, Once};
use crate::backend::contract::contender::{Attempt, Contender, Queue, Released, Renewal, Used};
use crate::backend::contract::rule::{Request, Rule, Step, StepResult};
use crate::backend::contract::service::Service;
use crate::backend::error::{Error, ErrorKind};
use crate::backend::survey::{Party, State, Survey};
use crate::clock::{Instant, before, sleep_until, wall_millis};
use crate::holder::ask::Ask;
use crate::holder::{About, Owner};
use crate::key::{Key, Namespace};

const TTL: u64 = 60_000;
const MIN_HOLD: u64 = 300_000;
/// The longest time that a request may take, and that a message may be late.
const LATE: Duration = Duration::from_secs(5);
/// Lengths of periods, at least one of which is far from its end at any time.
const PERIODS: [u64; 3] = [10 * 86_400_000, 7 * 86_400_000, 13 * 86_400_000];

/// The contenders of a trace, and the expected state of their lock.
pub(super) struct Table<'a> {
    service: &'a dyn Service,
    known: Known,
    key: Key,
    survey: Box<dyn Survey>,
    /// All owners, including dead ones.
    claims: Vec<Claim>,
    requests: Vec<Request>,
    /// The owner on each seat, as an index into `claims`.
    seats: Vec<(usize, Box<dyn Contender>)>,
    rule: Rule,
    /// Owners that have been granted the lock since they last released it.
    granted: BTreeSet<usize>,
    /// Owners whose last attempt has joined the queue.
    waits: BTreeSet<usize>,
    /// Owners whose lock was taken away. A contender does not take such a lock again under the same id.
    lost: BTreeSet<usize>,
    /// Number of steps made.
    pub(super) steps: u64,
}

fn period() -> Duration {
    let now = wall_millis();
    let is_far = |length: &&u64| (*length / 10..*length / 10 * 9).contains(&(now % **length));
    Duration::from_millis(*PERIODS.iter().find(is_far).expect("one of them is not about to end"))
}

#[allow(clippy::needless_pass_by_value)] // The signature that `map_err` expects.
fn wrong(error: Error) -> String {
    format!("{error:?}")
}

/// Polls a request at most `steps` times, and drops it.
async fn cut<T>(request: impl Future<Output = T>, steps: u32) {
    let mut request = pin!(request);
    let mut made = 0;
    std::future::poll_fn(|context| {
        made += 1;
        if made > steps { Poll::Ready(()) } else { request.as_mut().poll(context).map(|_| ()) }
    })
    .await;
}

async fn soon<T>(what: &str, request: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    let answered = before(Instant::now() + LATE, Box::pin(request)).await;
    answered.map_err(|_| format!("{what} takes longer than {LATE:?}"))?.map_err(wrong)
}

impl<'a> Table<'a> {
    pub(super) fn new(service: &'a dyn Service, known: Known, play: &Play, key: &str) -> Self {
        let key = Key::parse(key.as_ref()).expect("a key");
        let namespace = Namespace::parse("dlock").expect("a namespace");
        let once_per = play.once.then(|| Once::now(period()));
        let claim = |(mode, hold): (_, &bool)| Claim {
            key: key.clone(),
            namespace: namespace.clone(),
            owner: Owner::random().expect("random"),
            mode,
            ttl: Duration::from_millis(TTL),
            min_hold: Duration::from_millis(if *hold { MIN_HOLD } else { 0 }),
            once_per,
            about: About {
                ttl: Some(TTL),
                stop: true,
                host: "h".to_owned(),
                pid: std::process::id().cast_signed(),
                ..About::default()
            },
            ..Claim::example("", "k").expect("names")
        };
        let claims: Vec<Claim> = play.modes.iter().copied().zip(&play.hold).map(claim).collect();
        let min_hold = |hold: &bool| if *hold { MIN_HOLD } else { 0 };
        let request = |(mode, hold): (_, &bool)| Request {
            mode,
            ttl: TTL,
            heartbeat_ttl: known.heartbeat_ttl,
            min_hold: min_hold(hold),
            once: play.once,
        };
        let requests = play.modes.iter().copied().zip(&play.hold).map(request).collect();
        let seats = claims.iter().enumerate().map(|(who, claim)| (who, service.contend(claim.clone()))).collect();
        let rule = Rule::of(known.lax);
        Self {
            service,
            known,
            survey: service.survey(namespace),
            key,
            claims,
            requests,
            seats,
            rule,
            granted: BTreeSet::new(),
            waits: BTreeSet::new(),
            lost: BTreeSet::new(),
            steps: 0,
        }
    }

    /// Plays the trace, and then releases everything.
    pub(super) async fn play(&mut self, play: &Play) -> Result<(), String> {
        for (number, made) in play.moves.iter().enumerate() {
            self.make(*made).await.map_err(|why| format!("move {number}, {made:?}: {why}"))?;
            self.steps += 1;
        }
        for seat in 0..self.seats.len() {
            let gone = Move::Release(seat, Used::No);
            self.make(gone).await.map_err(|why| format!("in the end, {gone:?}: {why}"))?;
        }
        let deadline = Instant::now() + LATE;
        loop {
            // A file stays open for a moment longer.
            match self.make(Move::Look).await {
                Err(_) if self.known.lax.mortal && Instant::now() < deadline => {
                    sleep_until(Instant::now() + Duration::from_millis(20)).await;
                }
                came => return came.map_err(|why| format!("in the end: {why}")),
            }
        }
    }

    async fn make(&mut self, made: Move) -> Result<(), String> {
        let now = wall_millis();
        self.rule.expire(&self.requests, now);
        let could = self.rule.could_enter(&self.requests, now);
        if let Move::Join(seat) | Move::Pass(seat) | Move::Again(seat, _) | Move::Undo(seat, _) = made
            && self.lost.contains(&self.seats[seat].0)
        {
            self.replace(seat);
        }
        let done = match made {
            Move::Join(seat) => self.attempt(seat, Queue::Join).await?,
            Move::Pass(seat) => self.attempt(seat, Queue::Pass).await?,
            Move::Renew(seat) => self.renew(seat).await?,
            Move::Release(seat, used) => self.release(seat, used).await?,
            Move::Again(seat, _) if !self.may_be_cut(seat) => self.attempt(seat, Queue::Join).await?,
            Move::Undo(seat, _) if !self.may_be_cut(seat) => self.release(seat, Used::No).await?,
            Move::Again(seat, steps) => {
                let contender = &mut self.seats[seat].1;
                soon("a connection", contender.connect()).await?;
                cut(contender.attempt(Queue::Join), steps).await;
                self.attempt(seat, Queue::Join).await?
            }
            Move::Undo(seat, steps) => {
                let contender = &mut self.seats[seat].1;
                soon("a connection", contender.connect()).await?;
                cut(contender.attempt(Queue::Join), steps).await;
                let step = self.release(seat, Used::No).await?;
                step.map(|_| (Step::Undo(self.seats[seat].0), StepResult::Nothing))
            }
            Move::Die(seat) => self.die(seat),
            Move::Ask(holder) => self.ask(holder, false).await?,
            Move::Take(holder) => self.ask(holder, true).await?,
            Move::Look => return self.look().await,
        };
        let Some((step, seen)) = done else { return Ok(()) };
        let now = wall_millis();
        self.rule.step(&self.requests, step, &seen, now)?;
        if let Move::Release(seat, _) | Move::Undo(seat, _) = made
            && (!self.known.comes_again && (seen != StepResult::NotMine || matches!(made, Move::Undo(..)))
                || self.lost.contains(&self.seats[seat].0))
        {
            self.replace(seat);
        }
        if let (Step::Take(who), StepResult::Freed) = (step, &seen) {
            self.lost.insert(who);
            // A waiter that watches this owner learns of it only when the owner's process has noticed.
            if self.known.watches_one {
                self.waits.clear();
            }
        }
        let is_told = matches!(step, Step::Attempt(..) | Step::Release(..) | Step::Undo(_));
        match self.rule.could_enter(&self.requests, now) {
            Some(head) if is_told && could != Some(head) && self.known.wakes && self.waits.contains(&head) => {
                self.hears(head).await
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the waiter learns at once that it may enter.
    async fn hears(&mut self, head: usize) -> Result<(), String> {
        let Some((_, contender)) = self.seats.iter_mut().find(|(who, _)| *who == head) else { return Ok(()) };
        let answered = before(Instant::now() + LATE, contender.changed()).await;
        answered.map_err(|_| format!("{head} could enter and did not hear of it"))?.map_err(wrong)
    }

    async fn attempt(&mut self, seat: usize, queue: Queue) -> Result<Option<(Step, StepResult)>, String> {
        let may = self.known.lax.no_queue && self.rule.is_free_for(&self.requests, self.seats[seat].0);
        let (who, contender) = &mut self.seats[seat];
        let mut tries = 0;
        let seen = loop {
            soon("a connection", contender.connect()).await?;
            let attempt = before(Instant::now() + LATE, contender.attempt(queue)).await;
            break match attempt.map_err(|_| "an attempt takes too long")? {
                // Runs ask again, too. Servers of which a majority must answer soon may be late on a busy machine.
                Err(error) if matches!(error.kind, ErrorKind::Contended | ErrorKind::Unreachable) && tries < 3 => {
                    tries += 1;
                    sleep_until(Instant::now() + Duration::from_millis(20)).await;
                    continue;
                }
                Err(error) => return Err(wrong(error)),
                Ok(attempt) => match attempt {
                    Attempt::Held(grant) => StepResult::Granted { token: grant.token, slot: grant.slot },
                    // It is the kernel's turn, or some servers have not processed another contender's request yet.
                    Attempt::Busy(_) if may && tries < 20 => {
                        tries += 1;
                        sleep_until(Instant::now() + Duration::from_millis(20)).await;
                        continue;
                    }
                    Attempt::Busy(busy) => StepResult::Busy { position: busy.position },
                    Attempt::OtherSlots(other) => StepResult::OtherSlots(other.slots),
                    Attempt::Done(_) => StepResult::Done,
                    Attempt::Unprepared if tries < 3 => {
                        tries += 1;
                        continue;
                    }
                    other => return Err(format!("{other:?}")),
                },
            };
        };
        let is_next = matches!(seen, StepResult::Busy { position: Some(1) });
        if queue == Queue::Join && (is_next || !self.known.watches_one) {
            self.waits.insert(*who);
        } else {
            self.waits.remove(who);
        }
        if let StepResult::Granted { .. } = seen {
            self.granted.insert(*who);
        }
        Ok(Some((Step::Attempt(*who, queue == Queue::Join), seen)))
    }

    async fn renew(&mut self, seat: usize) -> Result<Option<(Step, StepResult)>, String> {
        let (who, contender) = &mut self.seats[seat];
        // Only a granted lock is renewed.
        if self.rule.holds.iter().all(|hold| hold.who != *who || hold.is_done) {
            return Ok(None);
        }
        soon("a connection", contender.connect()).await?;
        let seen = match soon("a renewal", contender.renew()).await? {
            Renewal::Extended(_) => StepResult::Extended,
            Renewal::Asked(..) => StepResult::Asked,
            Renewal::NotMine(_) => StepResult::NotMine,
        };
        Ok(Some((Step::Renew(*who), seen)))
    }

    async fn release(&mut self, seat: usize, used: Used) -> Result<Option<(Step, StepResult)>, String> {
        let (who, contender) = &mut self.seats[seat];
        // Without a grant no command has run.
        let used = if self.granted.remove(who) { used } else { Used::No };
        soon("a connection", contender.connect()).await?;
        let seen = match soon("a release", contender.release(used)).await? {
            Released::Freed => StepResult::Freed,
            Released::Kept => StepResult::Kept,
            Released::NotMine => StepResult::NotMine,
        };
        // A waiter may have been granted a lock that it does not know of, and a kept lock no longer has an owner.
        let hold = self.rule.holds.iter().find(|hold| hold.who == *who);
        let is_open = hold.is_none_or(|hold| hold.is_done);
        Ok(Some((Step::Release(*who, used), if is_open { StepResult::Nothing } else { seen })))
    }

    /// Returns `true` if an attempt may be dropped. On redlock, a holder's may not: a majority might forget its hold.
    fn may_be_cut(&self, seat: usize) -> bool {
        let holds = self.rule.holds.iter().any(|hold| hold.who == self.seats[seat].0);
        self.known.may_be_cut && !(self.known.lax.no_queue && holds)
    }

    /// Puts a new owner on this seat.
    fn replace(&mut self, seat: usize) {
        let who = self.seats[seat].0;
        let claim = Claim { owner: Owner::random().expect("random"), ..self.claims[who].clone() };
        self.seats[seat] = (self.claims.len(), self.service.contend(claim.clone()));
        self.claims.push(claim);
        self.requests.push(self.requests[who]);
    }

    fn die(&mut self, seat: usize) -> Option<(Step, StepResult)> {
        let who = self.seats[seat].0;
        // The time that a dead waiter keeps its place is tested elsewhere.
        if self.rule.holds.iter().all(|hold| hold.who != who) {
            return None;
        }
        self.replace(seat);
        Some((Step::Die(who), StepResult::Nothing))
    }

    async fn seen(&mut self) -> Result<crate::backend::survey::Snapshot, String> {
        soon("a connection", self.survey.connect()).await?;
        soon("a look", self.survey.look(&self.key)).await
    }

    /// Asks a holder to stop, or takes the lock away from it.
    async fn ask(&mut self, holder: usize, takes: bool) -> Result<Option<(Step, StepResult)>, String> {
        if self.rule.holds.is_empty() {
            return Ok(None);
        }
        let hold = &self.rule.holds[holder % self.rule.holds.len()];
        // The holder of a file is the process that has locked it, which may be a waiter for the end of a kept lock.
        if hold.is_done || self.known.lax.mortal && !self.rule.line.is_empty() {
            return Ok(None);
        }
        let who = hold.who;
        let owner = self.claims[who].owner.clone();
        let found = self.seen().await?;
        let is_owner = |party: &&Party| party.published().is_some_and(|published| published.id == owner.as_str());
        let party = found.holders.iter().find(is_owner);
        let party = party.ok_or_else(|| format!("{who} holds it and is not shown: {:?}", found.holders))?.clone();
        let ask = Ask::new(owner.as_str(), "a@b", None, wall_millis()).to("somebody", takes);
        let done = if takes {
            soon("a break", self.survey.take_away(&self.key, &party, &ask)).await
        } else {
            soon("a request", self.survey.ask_to_stop(&self.key, &party, &ask)).await
        };
        if takes && self.known.lax.mortal {
            return Ok(None);
        }
        let seen = if done? { StepResult::Freed } else { StepResult::NotMine };
        let trace = soon("a look", self.survey.last_break(&self.key)).await?;
        if takes && trace.as_ref().is_none_or(|trace| trace.stop != owner.as_str() || !trace.taken) {
            return Err(format!("the lock was taken from {who}, and the last break is {trace:?}"));
        }
        Ok(Some((if takes { Step::Take(who) } else { Step::Ask(who) }, seen)))
    }

    /// Compares a look at the lock with the model. Threads of this process try locks that end with their process, and
    /// may hold a file for a moment after their contender has gone.
    async fn look(&mut self) -> Result<(), String> {
        let limit = Instant::now() + Duration::from_millis(500);
        loop {
            let looked = self.look_once().await;
            if looked.is_ok() || !self.known.lax.mortal || Instant::now() > limit {
                return looked;
            }
            sleep_until(Instant::now() + Duration::from_millis(10)).await;
        }
    }

    async fn look_once(&mut self) -> Result<(), String> {
        let found = self.seen().await?;
        self.rule.expire(&self.requests, wall_millis());
        let unknown = || "?".to_owned();
        let id = |party: &Party| party.published().map_or_else(unknown, |published| published.id.clone());
        let holders: Vec<(String, Option<u32>)> = found.holders.iter().map(|party| (id(party), party.slot)).collect();
        let queue: Vec<String> = found.queue.iter().map(id).collect();
        let owner = |who: usize| self.claims[who].owner.as_str().to_owned();
        let mut expected: Vec<_> = self.rule.holds.iter().map(|hold| (owner(hold.who), hold.slot)).collect();
        let line: Vec<String> = self.rule.line.iter().map(|waiter| owner(waiter.who)).collect();
        let mut told = holders.clone();
        told.sort();
        expected.sort();
        let is_clear = line.is_empty()
            || !self.known.lax.mortal && !self.known.lax.turns
            || !self.known.lax.mortal && !self.rule.anyone_enters(&self.requests);
        if !is_clear {
            return Ok(());
        }
        if told != expected || (found.state == State::Held) == expected.is_empty() {
            return Err(format!("{:?} by {holders:?} is shown, and {expected:?} hold it", found.state));
        }
        if self.known.lists && queue != line {
            return Err(format!("{queue:?} are shown to wait, and {line:?} do"));
        }
        Ok(())
    }
}
