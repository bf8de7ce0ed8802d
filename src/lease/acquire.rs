/*!
The wait for a lock: attempt, wait for a change, attempt again, until it is held or the wait has run out.
*/

use std::time::Duration;

use super::timing::{Grace, Schedule, acquire_timeout};
use crate::backend::{Attempt, Backend, Busy, Claim, Error, Grant, Kind, Lease, Queue, Released};
use crate::clock::{Instant, before, sleep_until};

/// How long to wait at most after the backend failed for the first time while we queue, and which part of the lease after
/// it has failed again and again.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
const AFTER_FAILURES: u32 = 6;
/// How long the last look may take when the wait has run out.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long one try may take to take back what is wanted no more: the service also does it when nobody hears of it.
pub(crate) const TAKE_BACK: Duration = Duration::from_millis(500);
/// How many grants in a row may come with too little left before the backend counts as too slow: few at the first contact,
/// more for a waiter, which rides out what may pass. Each of them keeps others from the lock.
const GRANTS_TRIED: usize = 2;
const GRANTS_TRIED_BY_WAITERS: usize = 8;
/// How often a release is tried when its answer does not come.
const RELEASE_TRIES: usize = 2;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Until this instant.
    Until(Instant),
    /// For ever.
    Forever,
}

/// How requests are bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long connecting may take.
    pub connect: Duration,
    /// The time between SIGTERM and SIGKILL: it decides how much of a lease is of use.
    pub grace: Grace,
}

/// What is wrong with a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No connection could be made within this time.
    Unreachable(Duration),
    /// A request was not answered within this time.
    Unanswered(Duration),
    /// Each grant came too late to be of use.
    TooSlow,
    /// No release was answered.
    Silent,
    /// What the backend itself says of it.
    Said(String),
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// What kind of failure it is.
    pub kind: Kind,
    /// What is wrong.
    pub trouble: Trouble,
}

impl Failed {
    /// Whether trying again may mend it.
    fn may_pass(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::Unavailable)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { kind: error.kind, trouble: Trouble::Said(error.to_string()) }
    }
}

/// News of the wait.
#[derive(Clone, Debug)]
pub(crate) enum WaitNews {
    /// It is somebody else's.
    Busy(Busy),
    /// The backend fails, since it last said who has it; it is asked again and again.
    Trouble(Trouble),
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It is somebody else's, and we do not wait (longer).
    Busy(Busy),
    /// The wait ran out while the backend failed.
    Trouble(Trouble),
    /// The backend failed.
    Failed(Failed),
}

/// Takes the lock. `news` hears of everything that happens to the wait. A refusal leaves nothing behind. Dropping the
/// future leaves a place in the queue, and perhaps a lock whose grant was not seen: [`give_back`] takes both away.
pub(crate) async fn acquire(
    backend: &mut dyn Backend,
    claim: &Claim,
    wait: Wait,
    limits: Limits,
    news: impl FnMut(WaitNews),
) -> Result<Grant, Refused> {
    let mut trace = false;
    let result = wait_for(backend, claim, wait, limits, news, &mut trace).await;
    if result.is_err() && trace {
        // Best effort: a place in the queue that stays is given up when its owner shows no life, and a lock runs out.
        let _ = give_back(backend, claim, TAKE_BACK).await;
    }
    result
}

/// Sets `trace` once something of ours may be at the service: a place in the queue, or a grant that was not seen.
async fn wait_for(
    backend: &mut dyn Backend,
    claim: &Claim,
    wait: Wait,
    limits: Limits,
    mut news: impl FnMut(WaitNews),
    trace: &mut bool,
) -> Result<Grant, Refused> {
    let queue = if wait == Wait::No { Queue::Pass } else { Queue::Join };
    let mut last: Option<WaitNews> = None;
    let (mut slow, mut failures) = (0, 0);
    loop {
        match attempt(backend, claim, queue, limits, trace).await {
            Ok(Attempt::Held(grant)) => {
                if is_of_use(&grant, limits) {
                    return Ok(grant);
                }
                // Asking again extends what is ours. Giving it back first and then asking again would not do: a release
                // that is late on its way deletes what the same owner holds by then.
                slow += 1;
                if slow >= if last.is_some() { GRANTS_TRIED_BY_WAITERS } else { GRANTS_TRIED } {
                    return Err(Refused::Failed(Failed { kind: Kind::Unavailable, trouble: Trouble::TooSlow }));
                }
            }
            Ok(Attempt::Busy(busy)) => {
                slow = 0;
                if wait == Wait::No {
                    return Err(Refused::Busy(busy));
                }
                news(WaitNews::Busy(busy.clone()));
                last = Some(WaitNews::Busy(busy));
                match until(wait, backend.changed(claim)).await {
                    Some(Err(error)) => pause(wait, error.into(), &mut failures, claim.ttl).await?,
                    Some(Ok(())) | None => failures = 0,
                }
            }
            // Once in the queue, an outage is ridden out; before that it is the user's to know.
            Err(error) if last.is_some() => {
                let trouble = WaitNews::Trouble(error.trouble.clone());
                if error.may_pass() {
                    news(trouble.clone());
                    last = Some(trouble);
                }
                pause(wait, error, &mut failures, claim.ttl).await?;
            }
            Err(error) => return Err(Refused::Failed(error)),
        }
        if let (Wait::Until(end), Some(last)) = (wait, &last)
            && Instant::now() >= end
        {
            // One look at what it is now: a lock that came free in the last moment is not refused.
            let look = attempt(backend, claim, Queue::Pass, limits, trace);
            return match before(Instant::now() + LAST_LOOK, look).await {
                Ok(Ok(Attempt::Held(grant))) if is_of_use(&grant, limits) => Ok(grant),
                Ok(Ok(Attempt::Busy(busy))) => Err(Refused::Busy(busy)),
                _ => Err(match last.clone() {
                    WaitNews::Busy(busy) => Refused::Busy(busy),
                    WaitNews::Trouble(trouble) => Refused::Trouble(trouble),
                }),
            };
        }
    }
}

/// Gives a lock back and leaves the queue, within a bounded time, as often as that takes.
pub(crate) async fn give_back(
    backend: &mut dyn Backend,
    claim: &Claim,
    patience: Duration,
) -> Result<Released, Trouble> {
    let mut result = Err(Trouble::Silent);
    let mut perhaps_done = false;
    for _ in 0..RELEASE_TRIES {
        let limit = Instant::now() + acquire_timeout(claim.ttl).min(patience);
        match before(limit, backend.release(claim)).await {
            // After a try whose answer was lost, "not mine" may mean "already released".
            Ok(Ok(Released::NotMine)) if perhaps_done => return Ok(Released::Freed),
            Ok(Ok(released)) => return Ok(released),
            Ok(Err(error)) => {
                perhaps_done |= error.kind != Kind::Unreachable;
                let may_pass = error.may_pass();
                result = Err(Trouble::Said(error.to_string()));
                if !may_pass {
                    break;
                }
            }
            Err(_) => perhaps_done = true,
        }
    }
    result
}

async fn attempt(
    backend: &mut dyn Backend,
    claim: &Claim,
    queue: Queue,
    limits: Limits,
    trace: &mut bool,
) -> Result<Attempt, Failed> {
    backend.prepare(claim);
    let connected = before(Instant::now() + limits.connect, backend.connect()).await;
    connected.map_err(|_| Failed { kind: Kind::Unreachable, trouble: Trouble::Unreachable(limits.connect) })??;
    let limit = acquire_timeout(claim.ttl);
    let answered = before(Instant::now() + limit, backend.attempt(claim, queue)).await;
    let unanswered = Failed { kind: Kind::Unavailable, trouble: Trouble::Unanswered(limit) };
    let result = answered.map_or(Err(unanswered), |answer| answer.map_err(Failed::from));
    *trace |= match &result {
        Ok(Attempt::Busy(_)) => queue == Queue::Join,
        Ok(Attempt::Held(_)) => true,
        // It may have arrived, and its answer been lost; and who refuses one request may have done the one before it.
        Err(error) => error.kind != Kind::Unreachable,
    };
    result
}

/// Whether a lease just granted leaves time to work.
fn is_of_use(grant: &Grant, limits: Limits) -> bool {
    match grant.lease {
        Lease::Unlimited { .. } => true,
        Lease::Until { sent, ttl, .. } => {
            let kill_after = limits.grace.within(Some(ttl));
            !Schedule { sent, ttl, kill_after }.too_little_left(Instant::now())
        }
    }
}

async fn until<T>(wait: Wait, work: impl Future<Output = T>) -> Option<T> {
    match wait {
        Wait::Until(end) => before(end, work).await.ok(),
        Wait::No | Wait::Forever => Some(work.await),
    }
}

/// Lets some time go by after one of several `failures` in a row that trying again may mend.
async fn pause(wait: Wait, error: Failed, failures: &mut u32, ttl: Duration) -> Result<(), Refused> {
    if !error.may_pass() {
        return Err(Refused::Failed(error));
    }
    let mut random = [0; 2];
    let _ = getrandom::fill(&mut random);
    let _ = until(wait, sleep_until(Instant::now() + backoff(*failures, ttl, u16::from_ne_bytes(random)))).await;
    *failures = failures.saturating_add(1);
    Ok(())
}

/// How long to wait after so many `failures` before this one, for a lock of `ttl`: longer each time, so that servers that
/// have too much to do are not given more, and not as long as all others who failed at the same moment.
fn backoff(failures: u32, ttl: Duration, random: u16) -> Duration {
    let longest = AFTER_FAILURE.max(ttl / AFTER_FAILURES);
    let whole = AFTER_FAILURE.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(longest);
    whole / 2 + whole / 2 * u32::from(random) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_each_failure_in_a_row_it_is_tried_later_up_to_a_part_of_the_lease() {
        let ms = Duration::from_millis;
        for (failures, ttl, least, most) in [
            (0, 30_000, 250, 500),
            (1, 30_000, 500, 1000),
            (2, 30_000, 1000, 2000),
            (4, 30_000, 2500, 5000),
            (100, 30_000, 2500, 5000),
            // A short lease is kept alive, whatever fails.
            (0, 1_000, 250, 500),
            (100, 1_000, 250, 500),
        ] {
            let ttl = ms(ttl);
            assert_eq!(backoff(failures, ttl, 0), ms(least), "{failures} {ttl:?}");
            assert_eq!(backoff(failures, ttl, u16::MAX), ms(most), "{failures} {ttl:?}");
        }
    }
}
