/*!
Taking and releasing a lock: attempt, wait for a change, attempt again, as [`crate::lease::waiting`] decides. Every
request has a time-out.
*/

use std::time::Duration;

use crate::backend::contract::contender::{Attempt, Contender, Grant, Lease, Queue, Released, Used};
use crate::backend::error::ErrorKind;
use crate::clock::{Instant, before, sleep_until};
use crate::key::Key;
use crate::lease::timing::{Delay, Grace, acquire_timeout};
use crate::lease::waiting::{Failed, Next, Refused, Trouble, Wait, WaitNews, Waiting, backoff};

/// Time limit for the last look when the wait has run out.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// Time limit for one try to withdraw a request that is no longer wanted. The service executes it even if the answer is
/// not waited for.
pub(crate) const TAKE_BACK: Duration = Duration::from_millis(500);
/// The least number of tries of a release without an answer, and the pause between later tries.
const RELEASE_TRIES: usize = 2;
const BETWEEN_RELEASES: Duration = Duration::from_millis(250);

/// Time limits for taking a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time limit for connecting.
    pub connect: Duration,
    /// The time between SIGTERM and SIGKILL, which decides how much of a lease is useful.
    pub grace: Grace,
    /// The part of a lease that is not for the command.
    pub delay: Delay,
}

/// Takes the lock. Calls `news` for every change during the wait, with the name of the lock that is waited for. A
/// refusal leaves nothing at the service. Dropping the future leaves a place in the queue, and perhaps a lock whose
/// grant was not seen; [`give_back`] removes both.
pub(crate) async fn take(
    contender: &mut dyn Contender,
    wait: Wait,
    limits: Limits,
    news: impl FnMut(&Key, WaitNews),
) -> Result<Grant, Refused> {
    let mut trace = false;
    let result = wait_for(contender, wait, limits, news, &mut trace).await;
    if result.is_err() && trace {
        // Best effort: a place in the queue is removed when its heartbeats end, and a lock expires.
        let _ = give_back(contender, Used::No, TAKE_BACK).await;
    }
    result
}

/// Does the work of [`take`]. Sets `trace` once this claim may have left something at the service: a place in the
/// queue, or a grant that was not seen.
async fn wait_for(
    contender: &mut dyn Contender,
    wait: Wait,
    limits: Limits,
    mut news: impl FnMut(&Key, WaitNews),
    trace: &mut bool,
) -> Result<Grant, Refused> {
    let mut waiting = Waiting::new(wait, limits.grace);
    loop {
        let answer = attempt(contender, &waiting, waiting.queue(), limits, trace).await;
        let mut next = waiting.answered(answer, Instant::now(), &mut |event| news(&contender.claim().key, event));
        if next == Next::Listen {
            let changed = until(wait, contender.changed()).await;
            next = waiting.listened(changed.map(|changed| changed.map_err(Failed::from)));
        }
        match next {
            Next::Take(grant) => return Ok(grant),
            Next::Refuse(refused) => return Err(refused),
            Next::Pause(failures) => {
                let mut random = [0; 2];
                let _ = getrandom::fill(&mut random);
                let pause = backoff(waiting.most_failures(failures), contender.claim().ttl, u16::from_ne_bytes(random));
                let _ = until(wait, sleep_until(Instant::now() + pause)).await;
            }
            Next::Again | Next::Listen => {}
        }
        if let Some(failed) = waiting.is_unanswered(Instant::now()) {
            return Err(Refused::Failed(failed));
        }
        if waiting.is_over(Instant::now()) {
            let look = last_look(contender, &waiting, limits, trace);
            let seen = before(Instant::now() + LAST_LOOK, look).await;
            let unanswered = Failed { kind: ErrorKind::Unavailable, trouble: Trouble::Unanswered(LAST_LOOK) };
            return waiting.last_look(seen.unwrap_or(Err(unanswered)), Instant::now());
        }
    }
}

/// Asks one last time, without joining a queue; of several locks, for each that is missing.
async fn last_look(
    contender: &mut dyn Contender,
    waiting: &Waiting,
    limits: Limits,
    trace: &mut bool,
) -> Result<Attempt, Failed> {
    loop {
        match attempt(contender, waiting, Queue::Pass, limits, trace).await {
            Ok(Attempt::Partly | Attempt::Unprepared) => {}
            answer => return answer,
        }
    }
}

/// Releases a lock and leaves the queue. Tries a bounded number of times, each for at most `timeout`.
pub(crate) async fn give_back(
    contender: &mut dyn Contender,
    used: Used,
    timeout: Duration,
) -> Result<Released, Trouble> {
    give_back_until(Instant::now(), contender, used, timeout).await.map_err(|failed| failed.trouble)
}

/// Releases a lock like [`give_back`], and goes on trying until `until`, because the release records what must not be
/// forgotten. The error has the kind of the last failure.
pub(crate) async fn give_back_until(
    until: Instant,
    contender: &mut dyn Contender,
    used: Used,
    timeout: Duration,
) -> Result<Released, Failed> {
    let mut result = Err(Failed { kind: ErrorKind::Unavailable, trouble: Trouble::Silent });
    let mut perhaps_done = false;
    for tries in 0.. {
        if tries >= RELEASE_TRIES {
            let again_at = Instant::now() + BETWEEN_RELEASES;
            if again_at >= until {
                break;
            }
            sleep_until(again_at).await;
        }
        let limit = Instant::now() + acquire_timeout(contender.claim().ttl).min(timeout);
        match before(limit, contender.release(used)).await {
            // After a try whose answer was lost, "not mine" may mean "already released".
            Ok(Ok(Released::NotMine)) if perhaps_done => return Ok(Released::Freed),
            Ok(Ok(released)) => return Ok(released),
            Ok(Err(error)) => {
                perhaps_done |= !error.kind.is_unsent();
                let is_transient = error.is_transient();
                result = Err(Failed::from(error));
                if !is_transient {
                    break;
                }
            }
            Err(_) => perhaps_done = true,
        }
    }
    result
}

async fn attempt(
    contender: &mut dyn Contender,
    waiting: &Waiting,
    queue: Queue,
    limits: Limits,
    trace: &mut bool,
) -> Result<Attempt, Failed> {
    let now = Instant::now();
    let limit = waiting.connect_within(now, limits.connect);
    let connected = before(now + limit, contender.connect()).await;
    connected.map_err(|_| Failed { kind: ErrorKind::Unreachable, trouble: Trouble::Unreachable(limit) })??;
    let now = Instant::now();
    let lease = contender.claim().ttl.saturating_sub(limits.delay.length);
    let limit = waiting.answer_within(now, lease, limits.connect);
    let answered = before(now + limit, contender.attempt(queue)).await;
    let unanswered = Failed { kind: ErrorKind::Unavailable, trouble: Trouble::Unanswered(limit) };
    let result = answered.map_or(Err(unanswered), |answer| answer.map_err(Failed::from));
    let result = result.and_then(|attempt| match attempt {
        Attempt::Held(grant) => without_delay(grant, limits.delay).map(Attempt::Held),
        other => Ok(other),
    });
    *trace |= match &result {
        Ok(Attempt::Busy(_)) => queue == Queue::Join,
        Ok(Attempt::Held(_) | Attempt::Partly) => true,
        Ok(Attempt::Outer(_) | Attempt::OtherSlots(_) | Attempt::Done(_) | Attempt::Unprepared) => false,
        // The request may have arrived although its answer was lost, and an earlier request may have been executed.
        Err(error) => !error.kind.is_unsent(),
    };
    result
}

/// Returns the grant without the delay; an error if the server grants so little that the delay leaves too little.
fn without_delay(mut grant: Grant, delay: Delay) -> Result<Grant, Failed> {
    let (whole, lease) = (grant.lease, grant.lease.less(delay.length));
    match (whole, lease) {
        (Lease::Until { ttl: granted, .. }, Lease::Until { ttl, .. })
            if !delay.length.is_zero() && ttl < delay.least() =>
        {
            let trouble = Trouble::ShortLease { granted, delay: delay.length, least: delay.least() };
            Err(Failed { kind: ErrorKind::Unusable, trouble })
        }
        _ => {
            grant.lease = lease;
            Ok(grant)
        }
    }
}

async fn until<T>(wait: Wait, work: impl Future<Output = T>) -> Option<T> {
    match wait {
        Wait::Until(end) => before(end, work).await.ok(),
        Wait::No | Wait::Forever => Some(work.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_grants_too_little_for_the_delay_is_refused_with_the_numbers() {
        let (sent, seconds) = (Instant::from_nanos(0), Duration::from_secs);
        let grant = |ttl| Grant { token: 7, slot: None, lease: Lease::until(sent, seconds(ttl)) };
        for (granted, delay, share, left) in [
            (30, 0, 0, Some(30)),
            (1, 0, 6, Some(1)),
            (35, 5, 0, Some(30)),
            (35, 5, 6, Some(30)),
            // The server's grant is what counts.
            (6, 5, 0, Some(1)),
            (5, 5, 0, None),
            (4, 5, 0, None),
            (34, 5, 6, None),
        ] {
            let delay = Delay { length: seconds(delay), share };
            let trouble = Trouble::ShortLease { granted: seconds(granted), delay: delay.length, least: delay.least() };
            let expected = left.map(grant).ok_or(Failed { kind: ErrorKind::Unusable, trouble });
            assert_eq!(without_delay(grant(granted), delay), expected, "{granted} {delay:?}");
        }
        let file = Grant { lease: Lease::Unlimited { check: seconds(1) }, ..grant(0) };
        assert_eq!(without_delay(file.clone(), Delay { length: seconds(5), share: 0 }), Ok(file));
    }
}
