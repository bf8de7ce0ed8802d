/*!
The wait for a lock: when to ask again, when the wait is over, and why the lock was not granted. Pure decisions of what was
answered and what time it is; [`take`](crate::lease::taking::take) carries them out.
*/

use std::time::Duration;

use crate::backend::{Attempt, Busy, Error, ErrorKind, Grant, Lease, Queue};
use crate::clock::Instant;
use crate::lease::timing::{Grace, Schedule};

/// How long to wait at most after the backend failed for the first time while we queue, and which part of the lease after
/// it has failed again and again.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
const AFTER_FAILURES: u32 = 6;
/// How many grants in a row may leave a waiter too little time before the backend counts as too slow. At the first contact the
/// second such grant decides. Each of them keeps others from the lock.
const GRANTS_TRIED_BY_WAITERS: u32 = 8;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Do not wait.
    No,
    /// Until this instant.
    Until(Instant),
    /// Without a limit.
    Forever,
}

/// What is wrong with a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No connection could be made within this time.
    Unreachable(Duration),
    /// A request was not answered within this time.
    Unanswered(Duration),
    /// Each grant left too little time.
    TooSlow,
    /// No release was answered.
    Silent,
    /// The backend's own description.
    Said(String),
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What is wrong.
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

/// Why the lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another holder has it, and the wait is over.
    Busy(Busy),
    /// The wait ran out while the backend failed.
    Trouble(Trouble),
    /// The backend failed, and the lock was not waited for.
    Failed(Failed),
}

/// What to do next.
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
    /// The latest news; `None` until the service has answered.
    last: Option<WaitNews>,
    /// How many grants in a row left too little time.
    slow: u32,
    /// How many requests have failed in a row.
    failures: u32,
}

impl Waiting {
    /// A wait that begins now; `grace` decides how much of a lease is useful.
    #[must_use]
    pub(super) fn new(wait: Wait, grace: Grace) -> Self {
        Self { wait, grace, last: None, slow: 0, failures: 0 }
    }

    /// Whether an attempt joins the queue.
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
                // Asking again extends the lock. Releasing it first would be wrong: a release that is delayed on its way
                // deletes what the same owner holds by then.
                self.slow += 1;
                match (self.slow, &self.last) {
                    (1, _) => Next::Again,
                    (2..GRANTS_TRIED_BY_WAITERS, Some(_)) => Next::Pause(self.slow - 2),
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
                Next::Listen
            }
            // Once in the queue, an outage is ridden out; before that it is the user's to know.
            Err(error) if self.last.is_some() => {
                if error.kind.may_pass() {
                    let trouble = WaitNews::Trouble(error.trouble.clone());
                    news(trouble.clone());
                    self.last = Some(trouble);
                }
                self.failed(error)
            }
            Err(error) => Next::Refuse(Refused::Failed(error)),
        }
    }

    /// Records the result of the wait for a change; `None` if its time ran out.
    pub(super) fn listened(&mut self, heard: Option<Result<(), Failed>>) -> Next {
        if let Some(Err(error)) = heard {
            return self.failed(error);
        }
        self.failures = 0;
        Next::Again
    }

    fn failed(&mut self, error: Failed) -> Next {
        if !error.kind.may_pass() {
            return Next::Refuse(Refused::Failed(error));
        }
        let before = self.failures;
        self.failures = before.saturating_add(1);
        Next::Pause(before)
    }

    /// Whether the wait is over at `now`, except for one last look: a lock that became free at the last moment is taken. A
    /// waiter that has had no answer yet goes on, because each request has its own time-out.
    #[must_use]
    pub(super) fn is_over(&self, now: Instant) -> bool {
        matches!(self.wait, Wait::Until(end) if self.last.is_some() && now >= end)
    }

    /// The end of the wait, after a last look at `now` with the result `seen`; `None` if it had no answer.
    pub(super) fn last_look(self, seen: Option<Attempt>, now: Instant) -> Result<Grant, Refused> {
        match (seen, self.last) {
            (Some(Attempt::Held(grant)), _) if is_of_use(&grant, self.grace, now) => Ok(grant),
            (Some(Attempt::Busy(busy)), _) | (_, Some(WaitNews::Busy(busy))) => Err(Refused::Busy(busy)),
            (_, Some(WaitNews::Trouble(trouble))) => Err(Refused::Trouble(trouble)),
            (_, None) => Err(Refused::Trouble(Trouble::Silent)),
        }
    }
}

/// Whether a lease that was just granted leaves enough time for the command.
fn is_of_use(grant: &Grant, grace: Grace, now: Instant) -> bool {
    match grant.lease {
        Lease::Unlimited { .. } => true,
        Lease::Until { sent, ttl, .. } => {
            let kill_after = grace.within(Some(ttl));
            !Schedule { sent, ttl, kill_after }.too_little_left(now)
        }
    }
}

/// How long to pause after a failure, when `failures` have come before it, for a lock of `ttl`. It grows, so that busy servers
/// get fewer requests, and is random, so that clients that failed together do not come back together.
pub(super) fn backoff(failures: u32, ttl: Duration, random: u16) -> Duration {
    let longest = AFTER_FAILURE.max(ttl / AFTER_FAILURES);
    let whole = AFTER_FAILURE.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(longest);
    whole / 2 + whole / 2 * u32::from(random) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Holder;

    const S: Duration = Duration::from_secs(1);
    const GRACE: Grace = Grace { asked: None, share: 2 };

    fn at(seconds: u32) -> Instant {
        Instant::from_nanos(0) + S * seconds
    }

    /// A lease of 30 s that was requested at `sent` seconds.
    fn grant(sent: u32) -> Grant {
        Grant { token: 7, lease: Lease::until(at(sent), 30 * S) }
    }

    fn busy(position: u64) -> Busy {
        Busy { holder: Holder::Unknown, position: Some(position), now: 0 }
    }

    fn failed(kind: ErrorKind) -> Failed {
        Failed { kind, trouble: Trouble::Said("no".to_owned()) }
    }

    /// What a wait does with each of these answers at 100 s, and its news.
    fn played(wait: Wait, answers: Vec<Result<Attempt, Failed>>) -> (Waiting, Vec<Next>, Vec<WaitNews>) {
        let (mut waiting, mut told) = (Waiting::new(wait, GRACE), Vec::new());
        let mut answered = |answer| waiting.answered(answer, at(100), &mut |news| told.push(news));
        let nexts = answers.into_iter().map(&mut answered).collect();
        (waiting, nexts, told)
    }

    #[test]
    fn the_first_answer_decides_where_nobody_waits() {
        for (answer, next) in [
            (Ok(Attempt::Held(grant(100))), Next::Take(grant(100))),
            (Ok(Attempt::Busy(busy(1))), Next::Refuse(Refused::Busy(busy(1)))),
            (Err(failed(ErrorKind::Unreachable)), Next::Refuse(Refused::Failed(failed(ErrorKind::Unreachable)))),
            (Err(failed(ErrorKind::Denied)), Next::Refuse(Refused::Failed(failed(ErrorKind::Denied)))),
        ] {
            let (waiting, nexts, told) = played(Wait::No, vec![answer]);
            assert_eq!((nexts, told), (vec![next], vec![]));
            assert_eq!(waiting.queue(), Queue::Pass);
        }
    }

    #[test]
    fn a_waiter_listens_rides_out_what_may_pass_and_gives_up_what_may_not() {
        let news = |busy| WaitNews::Busy(busy);
        let trouble = WaitNews::Trouble(Trouble::Said("no".to_owned()));
        let refused = |kind| Next::Refuse(Refused::Failed(failed(kind)));
        for (answers, nexts, told) in [
            (
                vec![Ok(Attempt::Busy(busy(2))), Ok(Attempt::Busy(busy(1)))],
                vec![Next::Listen, Next::Listen],
                vec![news(busy(2)), news(busy(1))],
            ),
            // First contact.
            (vec![Err(failed(ErrorKind::Unavailable))], vec![refused(ErrorKind::Unavailable)], vec![]),
            (
                vec![
                    Ok(Attempt::Busy(busy(1))),
                    Err(failed(ErrorKind::Unreachable)),
                    Err(failed(ErrorKind::Unavailable)),
                    Ok(Attempt::Held(grant(100))),
                ],
                vec![Next::Listen, Next::Pause(0), Next::Pause(1), Next::Take(grant(100))],
                vec![news(busy(1)), trouble.clone(), trouble.clone()],
            ),
            (
                vec![Ok(Attempt::Busy(busy(1))), Err(failed(ErrorKind::Denied))],
                vec![Next::Listen, refused(ErrorKind::Denied)],
                vec![news(busy(1))],
            ),
        ] {
            let (waiting, did, said) = played(Wait::Forever, answers);
            assert_eq!((did, said, waiting.queue()), (nexts, told, Queue::Join));
        }
    }

    #[test]
    fn failures_in_a_row_are_counted_until_a_change_is_heard() {
        let (mut waiting, nexts, _) =
            played(Wait::Forever, vec![Ok(Attempt::Busy(busy(1))), Err(failed(ErrorKind::Unavailable))]);
        assert_eq!(nexts[1], Next::Pause(0));
        assert_eq!(waiting.listened(Some(Err(failed(ErrorKind::Unavailable)))), Next::Pause(1));
        assert_eq!(waiting.listened(Some(Ok(()))), Next::Again);
        assert_eq!(waiting.listened(Some(Err(failed(ErrorKind::Unreachable)))), Next::Pause(0));
        assert_eq!(waiting.listened(None), Next::Again);
        let denied = failed(ErrorKind::Denied);
        assert_eq!(waiting.listened(Some(Err(denied.clone()))), Next::Refuse(Refused::Failed(denied)));
    }

    #[test]
    fn late_grants_are_asked_for_again_more_often_by_a_waiter() {
        let late = || Ok(Attempt::Held(grant(80)));
        let too_slow =
            Next::Refuse(Refused::Failed(Failed { kind: ErrorKind::Unavailable, trouble: Trouble::TooSlow }));
        let (_, nexts, _) = played(Wait::Forever, vec![late(), late()]);
        assert_eq!(nexts, [Next::Again, too_slow.clone()]);
        let answers = std::iter::once(Ok(Attempt::Busy(busy(1)))).chain(std::iter::repeat_with(late).take(8));
        let (_, nexts, _) = played(Wait::Forever, answers.collect());
        assert_eq!(nexts[1], Next::Again);
        assert_eq!(nexts[2..8], [0, 1, 2, 3, 4, 5].map(Next::Pause));
        assert_eq!(nexts[8], too_slow);
        // One that finds it busy again begins anew.
        let first = [late(), Ok(Attempt::Busy(busy(1)))].into_iter();
        let (_, nexts, _) = played(Wait::Forever, first.chain(std::iter::repeat_with(late).take(7)).collect());
        assert_eq!(nexts[8], Next::Pause(5));
    }

    #[test]
    fn a_wait_that_has_run_out_ends_with_what_a_last_look_sees() {
        let trouble = Trouble::Said("no".to_owned());
        let queued = || vec![Ok(Attempt::Busy(busy(2)))];
        let troubled = || vec![Ok(Attempt::Busy(busy(2))), Err(failed(ErrorKind::Unavailable))];
        for (answers, seen, end) in [
            (queued(), Some(Attempt::Held(grant(100))), Ok(grant(100))),
            (queued(), Some(Attempt::Held(grant(80))), Err(Refused::Busy(busy(2)))),
            (queued(), Some(Attempt::Busy(busy(1))), Err(Refused::Busy(busy(1)))),
            (queued(), None, Err(Refused::Busy(busy(2)))),
            (troubled(), Some(Attempt::Busy(busy(1))), Err(Refused::Busy(busy(1)))),
            (troubled(), Some(Attempt::Held(grant(100))), Ok(grant(100))),
            (troubled(), None, Err(Refused::Trouble(trouble))),
        ] {
            let (waiting, ..) = played(Wait::Until(at(100)), answers);
            assert!(waiting.is_over(at(100)) && !waiting.is_over(at(99)));
            assert_eq!(waiting.last_look(seen, at(100)), end);
        }
        let (waiting, ..) = played(Wait::Until(at(100)), vec![Ok(Attempt::Held(grant(80)))]);
        assert!(!waiting.is_over(at(200)), "nobody has said who holds it");
        let (waiting, ..) = played(Wait::Forever, queued());
        assert!(!waiting.is_over(at(u32::MAX)));
    }

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
