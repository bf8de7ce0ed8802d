/*!
Several locks as one: taken one after the other, each kept during the wait for the next, and all of them held or none.

Every dlock takes its locks in the byte order of their encoded names, so runs cannot wait for each other in a circle: of
those that wait, the one whose lock is last in that order waits for a run that has all its locks. A lock that is lost
during the wait for a later one would have to be taken out of order, so all are released then, and the run begins again.
*/

use std::os::fd::BorrowedFd;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Attempt, Contender, Grant, Lease, Queue, Released, Renewal, Used};
use crate::backend::error::Error;
use crate::clock::{Instant, before, sleep_until};
use crate::lease::renewal::{Renewals, Turn};
use crate::lease::timing::{Grace, Schedule};

/// Time limit for a look at a lock without a lease, while others are waited for.
const LOOK: Duration = Duration::from_secs(2);

/// One of several locks.
struct One {
    contender: Box<dyn Contender>,
    /// Its position among the keys in the user's order.
    place: usize,
    state: State,
    /// `true` if something of it may be at the service.
    asked: bool,
}

/// The state of one of several locks.
enum State {
    /// It is not held.
    Wanted,
    /// This run holds it.
    Held(Hold),
    /// An outer run holds it, with this token.
    Covered(u64),
}

/// A lock that this run holds, while others may still be waited for.
struct Hold {
    grant: Grant,
    kept: Kept,
}

/// The schedule of the requests for a lock that this run holds.
enum Kept {
    /// That of its lease.
    Lease(Renewals),
    /// It has no lease: a look at these intervals, the next one at this instant.
    Looks(Duration, Instant),
}

impl Hold {
    fn new(grant: Grant) -> Self {
        let kept = match grant.lease {
            Lease::Until { sent, ttl, renew_every } => Kept::Lease(Renewals::new(idle(sent, ttl), renew_every)),
            Lease::Unlimited { check } => Kept::Looks(check, Instant::now() + check),
        };
        Self { grant, kept }
    }

    /// Returns the instant of the next renewal or look.
    fn due(&self) -> Instant {
        match &self.kept {
            Kept::Lease(renewals) => renewals.next(),
            Kept::Looks(_, at) => *at,
        }
    }

    /// Returns `true` if its lease, less `useful.delay`, leaves too little time at `now` for a command to start.
    fn is_short(&self, useful: Useful, now: Instant) -> bool {
        match self.grant.lease.less(useful.delay) {
            Lease::Until { sent, ttl, .. } => {
                Schedule { sent, ttl, kill_after: useful.grace.within(Some(ttl)) }.too_little_left(now)
            }
            Lease::Unlimited { .. } => false,
        }
    }
}

/// The part of a lease that is of use to a command.
#[derive(Clone, Copy, Debug)]
struct Useful {
    grace: Grace,
    /// The time for which the server keeps a lock longer than the command counts on it.
    delay: Duration,
}

/// Returns the schedule of a lease under which nothing runs yet: it is good until it ends.
fn idle(sent: Instant, ttl: Duration) -> Schedule {
    Schedule { sent, ttl, kill_after: Duration::ZERO }
}

impl One {
    fn hold(&self) -> Option<&Hold> {
        match &self.state {
            State::Held(hold) => Some(hold),
            State::Wanted | State::Covered(_) => None,
        }
    }

    /// Returns the error if the service takes the key of `other` and this one for one lock: it would wait for itself.
    fn is_also(&self, other: &Self) -> Option<Error> {
        let (one, twin) = (&other.contender, &self.contender);
        let what = format!("{} and {} are one lock there: give one of these keys", one.claim().key, twin.claim().key);
        (one.kept_as()? == twin.kept_as()?).then(|| Error::misused(what))
    }

    /// Renews it, and records the lease. A loss names the lock.
    async fn renew(&mut self) -> Result<Renewal, Error> {
        self.contender.connect().await?;
        let renewal = self.contender.renew().await?;
        match &renewal {
            Renewal::Extended(lease) | Renewal::Asked(lease, _) => {
                if let State::Held(hold) = &mut self.state {
                    hold.grant.lease = *lease;
                }
                Ok(renewal)
            }
            Renewal::NotMine(why) => Ok(Renewal::NotMine(format!("{why} ({})", self.contender.claim().key))),
        }
    }

    /// Gives it back and leaves the queue; returns the result for a lock that was held.
    async fn release(&mut self, used: Used) -> Result<Option<Released>, Error> {
        let released = self.contender.release(used).await?;
        self.asked = false;
        let was_held = self.hold().is_some();
        if was_held {
            self.state = State::Wanted;
        }
        Ok(was_held.then_some(released))
    }

    /// Renews it if that is due, and with `useful` also if its lease is too short for a command; `false` if it is lost.
    async fn keep_up(&mut self, useful: Option<Useful>) -> bool {
        let State::Held(hold) = &self.state else { return true };
        let now = Instant::now();
        if now < hold.due() && !useful.is_some_and(|useful| hold.is_short(useful, now)) {
            return true;
        }
        let limit = match &hold.kept {
            Kept::Lease(renewals) => match renewals.turn(now) {
                Turn::Ask(limit) => limit,
                Turn::GiveUp(_) => return false,
            },
            Kept::Looks(..) => now + LOOK,
        };
        let answered = before(limit, self.renew()).await;
        let answer = answered.map_or(Err(None), |answer| answer.map_err(|error| Some(error.to_string())));
        // Nothing runs yet: a request to stop is honored by giving all of them back, and beginning again.
        let lost = matches!(answer, Ok(Renewal::NotMine(_) | Renewal::Asked(..)));
        if let State::Held(hold) = &mut self.state {
            match &mut hold.kept {
                Kept::Lease(renewals) => drop(renewals.answered(now, Instant::now(), answer)),
                Kept::Looks(check, at) => *at = Instant::now() + *check,
            }
        }
        !lost
    }
}

/// Keeps those of these locks that are held. Resolves when one of them is lost.
async fn keep(locks: &mut [One]) {
    loop {
        let Some(due) = locks.iter().filter_map(One::hold).map(Hold::due).min() else {
            return std::future::pending().await;
        };
        sleep_until(due).await;
        if join_all(locks.iter_mut().map(|one| one.keep_up(None))).await.contains(&false) {
            return;
        }
    }
}

/// One contender for several locks.
pub(crate) struct Several {
    /// The locks in the order in which they are taken.
    locks: Vec<One>,
    useful: Useful,
    /// The index of the lock that the last attempt reached.
    reached: usize,
    /// `true` if a lock that was held already is lost: all are given back before anything else is asked for.
    lost: bool,
    /// The combined result of the releases so far.
    released: Option<Released>,
}

impl Several {
    /// Makes one contender for the locks of all these: at least one, in the order in which the user has named their
    /// keys, which differ. A command can use what `grace` and `delay` leave of a lease.
    #[must_use]
    pub(crate) fn new(contenders: Vec<Box<dyn Contender>>, grace: Grace, delay: Duration) -> Self {
        let one = |(place, contender)| One { contender, place, state: State::Wanted, asked: false };
        let mut locks: Vec<One> = contenders.into_iter().enumerate().map(one).collect();
        locks.sort_by_cached_key(|one| one.contender.claim().key.encoded());
        Self { locks, useful: Useful { grace, delay }, reached: 0, lost: false, released: None }
    }

    /// Returns the index of the first lock that is not held.
    fn wanted(&self) -> Option<usize> {
        self.locks.iter().position(|one| matches!(one.state, State::Wanted))
    }

    /// Returns the lease that ends first, before which the command must be gone.
    fn lease(&self) -> Option<Lease> {
        let leases = || self.locks.iter().filter_map(One::hold).map(|hold| hold.grant.lease);
        let ends = |lease: &Lease| match lease {
            Lease::Until { sent, ttl, .. } => Some(idle(*sent, *ttl).dead_at()),
            Lease::Unlimited { .. } => None,
        };
        leases().filter(|lease| ends(lease).is_some()).min_by_key(ends).or_else(|| leases().next())
    }

    /// Returns the grant of all locks together, once none is missing. Leases that are too short for a command are
    /// renewed before: the first ones may have waited long for the last one.
    async fn whole(&mut self) -> Result<Attempt, Error> {
        let useful = self.useful;
        if join_all(self.locks.iter_mut().map(|one| one.keep_up(Some(useful)))).await.contains(&false) {
            self.lost = true;
            return Ok(Attempt::Partly);
        }
        let first = self.locks.iter().filter(|one| one.hold().is_some()).min_by_key(|one| one.place);
        match (first.and_then(One::hold), self.lease()) {
            (Some(hold), Some(lease)) => Ok(Attempt::Held(Grant { lease, ..hold.grant.clone() })),
            _ => Err(Error::unavailable("all of its locks are held by the outer runs")),
        }
    }

    /// Gives back what is held and leaves every queue, so that the next attempt begins with the first lock. Nothing is
    /// asked for until that is done.
    async fn begin_again(&mut self) -> Result<Attempt, Error> {
        self.release_all(Used::No).await?;
        self.lost = false;
        Ok(Attempt::Partly)
    }

    /// Releases all concurrently: the requests are sent in reverse order, and none waits for the answer to another. The
    /// next call repeats the requests that were not answered.
    async fn release_all(&mut self, used: Used) -> Result<Released, Error> {
        let asked = self.locks.iter_mut().rev().filter(|one| one.asked);
        let answers = join_all(asked.map(|one| one.release(used))).await;
        let mut failed = None;
        for answer in answers {
            match answer {
                Ok(released) => self.released = worse(self.released, released),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(self.released.take().unwrap_or(Released::NotMine)),
        }
    }
}

/// Returns the worse of two results of releases.
fn worse(one: Option<Released>, other: Option<Released>) -> Option<Released> {
    let is = |which| one == Some(which) || other == Some(which);
    [Released::NotMine, Released::Kept, Released::Freed].into_iter().find(|&which| is(which))
}

#[async_trait::async_trait(?Send)]
impl Contender for Several {
    fn claim(&self) -> &Claim {
        self.locks[self.reached].contender.claim()
    }

    fn ignore_outer(&mut self) {
        self.locks[self.reached].contender.ignore_outer();
    }

    fn skip_held_by_outer(&mut self, token: u64) {
        self.locks[self.reached].state = State::Covered(token);
    }

    fn tokens(&self) -> Vec<u64> {
        let mut tokens: Vec<(usize, u64)> = self
            .locks
            .iter()
            .filter_map(|one| match &one.state {
                State::Wanted => None,
                State::Held(hold) => Some((one.place, hold.grant.token)),
                State::Covered(token) => Some((one.place, *token)),
            })
            .collect();
        tokens.sort_unstable();
        tokens.into_iter().map(|(_, token)| token).collect()
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let Some(wanted) = self.wanted() else { return Ok(()) };
        self.reached = wanted;
        let (held, rest) = self.locks.split_at_mut(wanted);
        let Some(one) = rest.first_mut() else { return Ok(()) };
        tokio::select! {
            biased;
            connected = one.contender.connect() => connected,
            () = keep(held) => {
                self.lost = true;
                Ok(())
            }
        }
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        if self.lost {
            return self.begin_again().await;
        }
        self.released = None;
        let Some(wanted) = self.wanted() else { return self.whole().await };
        self.reached = wanted;
        let (held, rest) = self.locks.split_at_mut(wanted);
        let Some(one) = rest.first_mut() else { return Ok(Attempt::Partly) };
        let was_asked = std::mem::replace(&mut one.asked, true);
        let attempted = tokio::select! {
            biased;
            attempted = one.contender.attempt(queue) => attempted?,
            () = keep(held) => {
                self.lost = true;
                return Ok(Attempt::Partly);
            }
        };
        held.iter().find_map(|other| one.is_also(other)).map_or(Ok(()), Err)?;
        match attempted {
            Attempt::Held(grant) => {
                one.state = State::Held(Hold::new(grant));
                if self.wanted().is_none() { self.whole().await } else { Ok(Attempt::Partly) }
            }
            refused => {
                // The caller gives back what is held already, if it does not wait.
                one.asked = was_asked || queue == Queue::Join && matches!(refused, Attempt::Busy(_));
                Ok(refused)
            }
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        let (held, rest) = self.locks.split_at_mut(self.reached);
        let Some(one) = rest.first_mut() else { return Ok(()) };
        tokio::select! {
            biased;
            changed = one.contender.changed() => changed,
            () = keep(held) => {
                self.lost = true;
                Ok(())
            }
        }
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let held = self.locks.iter_mut().filter(|one| one.hold().is_some());
        let answers = join_all(held.map(One::renew)).await;
        let (mut failed, mut asked) = (None, None);
        for answer in answers {
            match answer {
                Ok(Renewal::Extended(_)) => {}
                Ok(Renewal::Asked(_, ask)) => asked = asked.or(Some(*ask)),
                Ok(lost @ Renewal::NotMine(_)) => return Ok(lost),
                Err(error) => failed = Some(error),
            }
        }
        match (failed, self.lease()) {
            (Some(error), _) => Err(error),
            (None, Some(lease)) => Ok(Renewal::of(lease, asked)),
            (None, None) => Ok(Renewal::NotMine("it was released".to_owned())),
        }
    }

    async fn disturbed(&mut self) {
        let held = self.locks.iter_mut().filter(|one| one.hold().is_some());
        let listening: Vec<_> = held.map(|one| one.contender.disturbed()).collect();
        if listening.is_empty() {
            return std::future::pending().await;
        }
        select_all(listening).await;
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        self.release_all(used).await
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings: Vec<String> = self.locks.iter_mut().flat_map(|one| one.contender.warnings()).collect();
        warnings.sort();
        warnings.dedup();
        warnings
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.locks.iter().filter(|one| one.hold().is_some()).flat_map(|one| one.contender.descriptors()).collect()
    }
}

#[cfg(test)]
mod tests;
