/*!
The wait for a lock: when to ask again, when the wait is over, and why the lock was not granted. Pure decisions from the
answers and the time; [`take`](crate::lease::taking::take) carries them out.
*/

use std::time::Duration;

use crate::backend::contract::contender::{Attempt, Busy, Grant, Lease, OtherSlots, Queue};
use crate::backend::error::{Error, ErrorKind};
use crate::clock::Instant;
use crate::holder::Published;
use crate::holder::done::Done;
use crate::lease::timing::{Grace, Schedule, acquire_timeout, first_timeout};

/// The longest pause after the first failure of the backend during a wait, and the divisor of the lease for the longest
/// pause after repeated failures.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
const AFTER_FAILURES: u32 = 6;
/// The number of grants in a row that leave a waiter too little time until the backend counts as too slow. At the first
/// contact the second such grant decides. Each of them keeps others from the lock.
const GRANTS_TRIED_BY_WAITERS: u32 = 8;

/// Time limit for connecting without a wait.
const CONNECT_WITHOUT_WAIT: Duration = Duration::from_secs(2);
/// The least time limit for connecting and for an answer, however short the wait is or its rest: a busy server needs
/// some time even if the lock is free.
const SHORTEST: Duration = Duration::from_secs(1);

/// The limit of a wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Do not wait.
    No,
    /// Until this instant.
    Until(Instant),
    /// Without a limit.
    Forever,
}

impl Wait {
    /// Returns `true` if a wait with a limit is over at `now`.
    #[must_use]
    pub(crate) fn has_ended(self, now: Instant) -> bool {
        matches!(self, Self::Until(end) if now >= end)
    }
}

/// A problem with a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No connection could be made within this time.
    Unreachable(Duration),
    /// A request was not answered within this time.
    Unanswered(Duration),
    /// Each grant left too little time.
    TooSlow,
    /// The server grants a lease of which `--lock-delay` leaves too little.
    ShortLease {
        /// The length that it grants.
        granted: Duration,
        /// The part of it that is not for the command.
        delay: Duration,
        /// The least that must be left.
        least: Duration,
    },
    /// No release was answered.
    Silent,
    /// The backend's own description.
    Said(String),
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The problem.
    pub trouble: Trouble,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { kind: error.kind, trouble: Trouble::Said(error.to_string()) }
    }
}

/// News of the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitNews {
    /// Another holder has the lock.
    Busy(Busy),
    /// The backend fails; requests are retried.
    Trouble(Trouble),
}

/// The reason why the lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another holder has it, and the wait is over.
    Busy(Busy),
    /// An outer run holds it.
    Outer(Box<Published>),
    /// It is in use with another number of slots.
    OtherSlots(OtherSlots),
    /// A command has succeeded in the claim's period already.
    Done(Box<Done>),
    /// The backend failed: at once, or when the wait had run out.
    Failed(Failed),
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing more: the lock is held.
    Take(Grant),
    /// Nothing more: the lock was not granted.
    Refuse(Refused),
    /// Ask again at once.
    Again,
    /// Wait until it is worth asking again.
    Listen,
    /// Pause as [`backoff`] says after this number of earlier failures, and ask again.
    Pause(u32),
}

/// A wait in progress.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    wait: Wait,
    grace: Grace,
    /// The latest news.
    last: Option<WaitNews>,
    /// `true` once the service has named the holder of the lock, or granted one of several locks.
    answered: bool,
    /// The last failure before the service has answered.
    unanswered: Option<Failed>,
    /// The number of grants in a row that left too little time.
    slow: u32,
    /// The number of requests in a row that have failed.
    failures: u32,
}

impl Waiting {
    /// Starts a wait that begins now; `grace` decides how much of a lease is useful.
    #[must_use]
    pub(super) fn new(wait: Wait, grace: Grace) -> Self {
        Self { wait, grace, last: None, answered: false, unanswered: None, slow: 0, failures: 0 }
    }

    /// Returns whether an attempt joins the queue.
    #[must_use]
    pub(super) fn queue(&self) -> Queue {
        if self.wait == Wait::No { Queue::Pass } else { Queue::Join }
    }

    /// Records at `now` the result of an attempt, and calls `news` with what has changed.
    pub(super) fn answered(
        &mut self,
        answer: Result<Attempt, Failed>,
        now: Instant,
        news: &mut impl FnMut(WaitNews),
    ) -> Next {
        match answer {
            Ok(Attempt::Held(grant)) if is_of_use(&grant, self.grace, now) => Next::Take(grant),
            Ok(Attempt::Held(_)) => {
                // Asking again extends the lock. Releasing it first would be wrong: a release that is delayed on its
                // way deletes what the same owner holds by then.
                self.slow += 1;
                match (self.slow, self.answered) {
                    (1, _) => Next::Again,
                    (2..GRANTS_TRIED_BY_WAITERS, true) => Next::Pause(self.slow - 2),
                    _ => {
                        let (kind, trouble) = (ErrorKind::Unavailable, Trouble::TooSlow);
                        Next::Refuse(Refused::Failed(Failed { kind, trouble }))
                    }
                }
            }
            Ok(Attempt::Busy(busy)) => {
                self.slow = 0;
                if self.wait == Wait::No {
                    return Next::Refuse(Refused::Busy(busy));
                }
                news(WaitNews::Busy(busy.clone()));
                self.last = Some(WaitNews::Busy(busy));
                if !std::mem::replace(&mut self.answered, true) {
                    self.failures = 0;
                }
                Next::Listen
            }
            // Locks that are held already are not given up for an outage, like a place in a queue.
            Ok(Attempt::Partly) => {
                self.answered |= self.wait != Wait::No;
                self.failures = 0;
                Next::Again
            }
            Ok(Attempt::Unprepared) => Next::Again,
            Ok(Attempt::Outer(outer)) => Next::Refuse(Refused::Outer(outer)),
            Ok(Attempt::OtherSlots(other)) => Next::Refuse(Refused::OtherSlots(other)),
            Ok(Attempt::Done(done)) => Next::Refuse(Refused::Done(done)),
            Err(error) => self.hear_failure(error, news),
        }
    }

    fn hear_failure(&mut self, error: Failed, news: &mut impl FnMut(WaitNews)) -> Next {
        if !self.answered && !rides_out(self.wait, error.kind) {
            let is_silence = matches!(error.trouble, Trouble::Unanswered(_));
            if is_silence && self.wait == Wait::Forever && self.unanswered.is_none() {
                // Asked once more: the servers may have chosen a new leader, and have forgotten the request.
                self.unanswered = Some(error);
                return Next::Pause(0);
            }
            // The first silence was the longer one.
            let first = self.unanswered.take().filter(|_| is_silence);
            return Next::Refuse(Refused::Failed(first.unwrap_or(error)));
        }
        if !self.answered {
            self.unanswered = Some(error.clone());
        }
        if error.kind.is_transient() {
            let trouble = WaitNews::Trouble(error.trouble.clone());
            news(trouble.clone());
            self.last = Some(trouble);
        }
        self.failed(error)
    }

    /// Records the result of the wait for a change; `None` if its time ran out.
    pub(super) fn listened(&mut self, outcome: Option<Result<(), Failed>>) -> Next {
        if let Some(Err(error)) = outcome {
            return self.failed(error);
        }
        self.failures = 0;
        Next::Again
    }

    fn failed(&mut self, error: Failed) -> Next {
        if !error.kind.is_transient() {
            return Next::Refuse(Refused::Failed(error));
        }
        let before = self.failures;
        self.failures = before.saturating_add(1);
        Next::Pause(before)
    }

    /// Returns the time limit for connecting from `now` on, where the user allows `usual`: less without a wait, and not
    /// beyond the end of a wait.
    #[must_use]
    pub(super) fn connect_within(&self, now: Instant, usual: Duration) -> Duration {
        match self.wait {
            Wait::No => usual.min(CONNECT_WITHOUT_WAIT),
            Wait::Until(_) | Wait::Forever => self.before_the_end(now, usual),
        }
    }

    /// Returns the time limit for an answer from `now` on, where a lease of `ttl` is asked for and the user allows
    /// `connect` for connecting: not beyond the end of a wait. The first answer to a waiter may take as long as
    /// connecting may, because a server that serves many at once is slow, not silent.
    #[must_use]
    pub(super) fn answer_within(&self, now: Instant, ttl: Duration, connect: Duration) -> Duration {
        let usual = acquire_timeout(ttl);
        let is_first = match self.wait {
            Wait::No => false,
            Wait::Until(_) => !self.answered,
            Wait::Forever => !self.answered && self.unanswered.is_none(),
        };
        self.before_the_end(now, if is_first { usual.max(connect.min(first_timeout(ttl))) } else { usual })
    }

    fn before_the_end(&self, now: Instant, usual: Duration) -> Duration {
        match self.wait {
            Wait::Until(end) => usual.min(end.since(now).max(SHORTEST)),
            Wait::No | Wait::Forever => usual,
        }
    }

    /// Returns the number of earlier failures that count for [`backoff`]: until the service has answered, no place in a
    /// queue is kept alive, and a server that restarts is back soon.
    #[must_use]
    pub(super) fn most_failures(&self, failures: u32) -> u32 {
        if self.answered { failures } else { failures.min(1) }
    }

    /// Returns the failure of a wait that is over at `now`, if the service has never answered.
    #[must_use]
    pub(super) fn is_unanswered(&self, now: Instant) -> Option<Failed> {
        self.unanswered.clone().filter(|_| !self.answered && self.wait.has_ended(now))
    }

    /// Returns `true` if the wait is over at `now`, except for one last look: a lock that became free at the last
    /// moment is taken. A waiter that has had no answer and no failure yet goes on.
    #[must_use]
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.answered && self.wait.has_ended(now)
    }

    /// Ends the wait, after a last look at `now` with the result `seen`. A look that fails is an outage, whatever was
    /// known before: the user must not take it for a lock that is held.
    pub(super) fn last_look(self, seen: Result<Attempt, Failed>, now: Instant) -> Result<Grant, Refused> {
        match (seen, self.last) {
            (Ok(Attempt::Held(grant)), _) if is_of_use(&grant, self.grace, now) => Ok(grant),
            (Ok(Attempt::Busy(busy)), _) | (Ok(Attempt::Held(_)), Some(WaitNews::Busy(busy))) => {
                Err(Refused::Busy(busy))
            }
            (Ok(Attempt::Outer(outer)), _) => Err(Refused::Outer(outer)),
            (Ok(Attempt::OtherSlots(other)), _) => Err(Refused::OtherSlots(other)),
            (Ok(Attempt::Done(done)), _) => Err(Refused::Done(done)),
            // All of several locks are looked at until one of them is missing.
            (Ok(Attempt::Held(_) | Attempt::Partly | Attempt::Unprepared), _) => {
                Err(Refused::Failed(Failed { kind: ErrorKind::Unavailable, trouble: Trouble::TooSlow }))
            }
            (Err(failed), _) => Err(Refused::Failed(failed)),
        }
    }
}

/// Returns `true` if a failure of this kind is ridden out before the first answer: in a limited wait, all that may
/// pass; in an endless one, only a service that is full or busy. All others, like wrong settings, are reported at once.
#[must_use]
pub(crate) fn rides_out(wait: Wait, kind: ErrorKind) -> bool {
    match wait {
        Wait::No => false,
        Wait::Until(_) => kind.is_transient() && kind != ErrorKind::Mistaken,
        Wait::Forever => matches!(kind, ErrorKind::Full | ErrorKind::Contended),
    }
}

/// Returns `true` if a lease that was just granted leaves enough time for the command.
fn is_of_use(grant: &Grant, grace: Grace, now: Instant) -> bool {
    match grant.lease {
        Lease::Unlimited { .. } => true,
        Lease::Until { sent, ttl, .. } => {
            let kill_after = grace.within(Some(ttl));
            !Schedule { sent, ttl, kill_after }.too_little_left(now)
        }
    }
}

/// Returns the pause after a failure that follows `failures` others, for a lock of `ttl`. It grows, so that busy
/// servers get fewer requests, and is random, so that clients that failed together do not come back together.
pub(super) fn backoff(failures: u32, ttl: Duration, random: u16) -> Duration {
    let longest = AFTER_FAILURE.max(ttl / AFTER_FAILURES);
    let whole = AFTER_FAILURE.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(longest);
    whole / 2 + whole / 2 * u32::from(random) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests;
