/*!
Requests that may fail: the time limit of each, its retries, and the pauses between them.
*/

use std::time::Duration;

use crate::backend::error::{Error, ErrorKind};
use crate::clock::{Instant, before, sleep_until};
use crate::lease::waiting::{Failed, Trouble, Wait, rides_out};

/// Time limit for connecting without a wait.
const CONNECT_WITHOUT_WAIT: Duration = Duration::from_secs(2);
/// The least time limit for connecting and for an answer, however short the wait is or its rest.
const SHORTEST: Duration = Duration::from_secs(1);
/// The pause after the first failure, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Time limits for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time limit for connecting.
    pub connect: Duration,
    /// Time limit for an answer.
    pub answer: Duration,
}

/// The requests of one wait.
#[derive(Clone, Debug)]
pub(super) struct Tries {
    wait: Wait,
    limits: Limits,
    /// `true` once the service has answered.
    answered: bool,
    /// The number of requests in a row that have failed.
    failures: u32,
}

impl Tries {
    /// Starts the requests within `wait`; none was made yet.
    pub(super) fn new(wait: Wait, limits: Limits) -> Self {
        Self { wait, limits, answered: false, failures: 0 }
    }

    /// Returns `true` if there is no time to wait for anything at `now`.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.wait == Wait::No || self.wait.has_ended(now)
    }

    /// Notes an answer.
    pub(super) fn answered(&mut self) {
        (self.answered, self.failures) = (true, 0);
    }

    /// Notes a failure at `now`; returns the pause before the next try, or `None` if there is to be none. `random`
    /// spreads the tries of clients that failed together.
    pub(super) fn failed(&mut self, failed: &Failed, now: Instant, random: u16) -> Option<Duration> {
        let goes_on = if self.answered { failed.kind.is_transient() } else { rides_out(self.wait, failed.kind) };
        if !goes_on || self.is_over(now) {
            return None;
        }
        let (first, longest) = PAUSES;
        let whole = first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(longest);
        self.failures = self.failures.saturating_add(1);
        Some(whole / 2 + whole / 2 * u32::from(random) / u32::from(u16::MAX))
    }

    fn connect_within(&self, now: Instant) -> Duration {
        match self.wait {
            Wait::No => self.limits.connect.min(CONNECT_WITHOUT_WAIT),
            Wait::Until(_) | Wait::Forever => self.within(self.limits.connect, now),
        }
    }

    fn within(&self, usual: Duration, now: Instant) -> Duration {
        match self.wait {
            Wait::Until(end) => usual.min(end.since(now).max(SHORTEST)),
            Wait::No | Wait::Forever => usual,
        }
    }

    /// Connects within the time limit.
    pub(super) async fn connect(&self, connecting: impl Future<Output = Result<(), Error>>) -> Result<(), Failed> {
        let now = Instant::now();
        let limit = self.connect_within(now);
        let connected = before(now + limit, connecting).await;
        let late = Failed { kind: ErrorKind::Unreachable, trouble: Trouble::Unreachable(limit) };
        connected.map_or(Err(late), |connected| connected.map_err(Failed::from))
    }

    /// Makes a request within the time limit.
    pub(super) async fn ask<T>(&self, asking: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
        let now = Instant::now();
        let limit = self.within(self.limits.answer, now);
        let answered = before(now + limit, asking).await;
        let late = Failed { kind: ErrorKind::Unavailable, trouble: Trouble::Unanswered(limit) };
        answered.map_or(Err(late), |answered| answered.map_err(Failed::from))
    }

    /// Returns the result of `work`; `None` if the wait is over first.
    pub(super) async fn until<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match self.wait {
            Wait::Until(end) => before(end, work).await.ok(),
            Wait::No | Wait::Forever => Some(work.await),
        }
    }

    /// Waits for `length`, or for the rest of the wait.
    pub(super) async fn pause(&self, length: Duration) {
        self.until(sleep_until(Instant::now() + length)).await;
    }
}

/// Returns a random number; 0 if the kernel provides none.
pub(super) fn random() -> u16 {
    let mut bytes = [0; 2];
    let _ = getrandom::fill(&mut bytes);
    u16::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits { connect: Duration::from_secs(5), answer: Duration::from_secs(2) };

    fn failed(kind: ErrorKind) -> Failed {
        Failed { kind, trouble: Trouble::Silent }
    }

    #[test]
    fn a_failure_is_ridden_out_within_a_limited_wait_and_after_an_answer() {
        use ErrorKind::{Denied, Mistaken, Unavailable, Unreachable};
        let now = Instant::from_nanos(0) + 100 * S;
        let until = Wait::Until(now + 10 * S);
        for (wait, answered, kind, goes_on) in [
            (Wait::No, false, Unreachable, false),
            (Wait::No, true, Unreachable, false),
            (Wait::Forever, false, Unreachable, false),
            (Wait::Forever, true, Unreachable, true),
            (Wait::Forever, true, Mistaken, true),
            (Wait::Forever, true, Denied, false),
            (until, false, Unreachable, true),
            (until, false, Unavailable, true),
            (until, false, Mistaken, false),
            (until, false, Denied, false),
            (until, true, Mistaken, true),
            (Wait::Until(now), true, Unavailable, false),
        ] {
            let mut tries = Tries::new(wait, LIMITS);
            if answered {
                tries.answered();
            }
            assert_eq!(tries.failed(&failed(kind), now, 0).is_some(), goes_on, "{wait:?} {answered} {kind:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_begin_anew_after_an_answer() {
        let mut tries = Tries::new(Wait::Forever, LIMITS);
        tries.answered();
        let pause = |tries: &mut Tries, random| {
            let pause = tries.failed(&failed(ErrorKind::Unavailable), Instant::from_nanos(0), random);
            pause.expect("a pause").as_millis()
        };
        assert_eq!([0; 6].map(|random| pause(&mut tries, random)), [250, 500, 1000, 2000, 2500, 2500]);
        assert_eq!(pause(&mut tries, u16::MAX), 5000);
        tries.answered();
        assert_eq!(pause(&mut tries, u16::MAX), 500);
    }

    #[test]
    fn a_request_takes_no_longer_than_what_is_left_but_has_some_time() {
        let now = Instant::from_nanos(0) + 100 * S;
        for (wait, connect, answer) in [
            (Wait::No, 2 * S, 2 * S),
            (Wait::Forever, 5 * S, 2 * S),
            (Wait::Until(now + 60 * S), 5 * S, 2 * S),
            (Wait::Until(now + S * 3 / 2), S * 3 / 2, S * 3 / 2),
            (Wait::Until(now), S, S),
        ] {
            let tries = Tries::new(wait, LIMITS);
            assert_eq!((tries.connect_within(now), tries.within(LIMITS.answer, now)), (connect, answer), "{wait:?}");
        }
    }
}
