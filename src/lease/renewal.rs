/*!
The times at which a lease is renewed, a failed renewal is retried, and the lease is given up: pure decisions from
what happened and what time it is. [`crate::lease::keeper`] carries them out.
*/

use std::time::Duration;

use crate::backend::contract::contender::{Lease, Renewal};
use crate::clock::Instant;
use crate::holder::ask::Ask;
use crate::lease::timing::Schedule;

/// The shortest time between a renewal and the next one that is made because the service reported a change.
const NEXT_EARLY: Duration = Duration::from_millis(100);

/// The result of the last renewal that was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unconfirmed {
    /// It was not tried: dlock itself was stopped, or got no processor time.
    NotTried,
    /// There was no answer.
    Silence,
    /// The backend failed; its reason.
    Said(String),
}

/// An event in the life of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseNews {
    /// It was renewed.
    Extended(Schedule),
    /// A renewal has failed, after one that had not; it is tried again.
    Trouble(Unconfirmed),
    /// The service has noticed something that could make its locks unsafe.
    Warning(String),
    /// The holder was asked to stop. The lock is kept until it is given back.
    Asked(Ask),
    /// The service says that this owner does not hold the lock. This is final.
    NotMine(String),
    /// The outer run that kept the lock has ended. This is final.
    OuterEnded,
    /// The process that keeps the lock of a handle has ended, or is about to give it back. This is final.
    KeeperEnded,
    /// It is time to stop the command, and no renewal was confirmed. This is final.
    Unrenewed {
        /// The time at which the last confirmed request was sent.
        since: Instant,
        /// The result of the last try.
        last: Unconfirmed,
    },
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ask the service, and wait for its answer until this instant.
    Ask(Instant),
    /// The lease is lost, for this reason.
    GiveUp(LeaseNews),
}

/// The renewals of one lease.
#[derive(Clone, Debug)]
pub(crate) struct Renewals {
    schedule: Schedule,
    due: Instant,
    /// The time at which the last confirmed renewal was sent; `None` before the first.
    renewed: Option<Instant>,
    /// The number of failures since the last confirmed renewal.
    failures: u32,
    last: Unconfirmed,
}

impl Renewals {
    /// Starts the renewals of a lease as it was granted; `renew_every` is the time from one request to the next.
    #[must_use]
    pub(crate) fn new(schedule: Schedule, renew_every: Duration) -> Self {
        let due = schedule.sent + schedule.renew_after(renew_every);
        Self { schedule, due, renewed: None, failures: 0, last: Unconfirmed::NotTried }
    }

    /// Returns the instant of the next action.
    #[must_use]
    pub(crate) fn next(&self) -> Instant {
        self.due.min(self.schedule.stop_at())
    }

    /// Returns `true` to listen for changes of the lock until [`Renewals::next`]: from the first renewal on, so that a
    /// short command costs no more, and not while renewals fail, because they are retried soon.
    #[must_use]
    pub(crate) fn listens(&self) -> bool {
        self.renewed.is_some() && self.failures == 0
    }

    /// Notes that the service reported a change of the lock at `now`: the next renewal is due at once, but at least
    /// [`NEXT_EARLY`] after the last one.
    pub(crate) fn disturbed(&mut self, now: Instant) {
        let soon = self.renewed.map_or(now, |renewed| now.max(renewed + NEXT_EARLY));
        self.due = self.due.min(soon);
    }

    /// Returns the action at `now`, when [`Renewals::next`] has come.
    #[must_use]
    pub(crate) fn turn(&self, now: Instant) -> Turn {
        if now >= self.schedule.stop_at() {
            return Turn::GiveUp(LeaseNews::Unrenewed { since: self.schedule.sent, last: self.last.clone() });
        }
        Turn::Ask(now + self.schedule.request_timeout(now))
    }

    /// Records at `now` the answer to the request that was sent at `asked`. The error is the backend's reason, or
    /// `None` if there was no answer.
    pub(crate) fn answered(
        &mut self,
        asked: Instant,
        now: Instant,
        answer: Result<Renewal, Option<String>>,
    ) -> Option<LeaseNews> {
        match answer {
            // An answer that comes after SIGTERM rescues nothing.
            Ok(
                Renewal::Extended(Lease::Until { sent, ttl, renew_every })
                | Renewal::Asked(Lease::Until { sent, ttl, renew_every }, _),
            ) if now < self.schedule.stop_at() => {
                self.schedule = Schedule { sent, ttl, kill_after: self.schedule.kill_after };
                self.failures = 0;
                self.last = Unconfirmed::NotTried;
                self.due = asked + self.schedule.renew_after(renew_every);
                self.renewed = Some(asked);
                Some(LeaseNews::Extended(self.schedule))
            }
            Ok(Renewal::Extended(_) | Renewal::Asked(..)) => {
                self.due = self.schedule.stop_at();
                None
            }
            Ok(Renewal::NotMine(why)) => Some(LeaseNews::NotMine(why)),
            Err(reason) => {
                // The last reason says more than the silence of later tries, which are short.
                match reason {
                    Some(reason) => self.last = Unconfirmed::Said(reason),
                    None if self.failures == 0 => self.last = Unconfirmed::Silence,
                    None => {}
                }
                self.failures += 1;
                let is_first = self.failures == 1;
                // The first retry comes at once: most failures are a connection that broke.
                self.due = if is_first { asked } else { now + self.schedule.retry_every() };
                is_first.then(|| LeaseNews::Trouble(self.last.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    /// A lease of 30 s that began now, renewed every 10 s, with SIGTERM after 21.95 s.
    fn renewals() -> (Instant, Renewals) {
        let sent = Instant::from_nanos(0) + 100 * S;
        (sent, Renewals::new(Schedule { sent, ttl: 30 * S, kill_after: 5 * S }, 10 * S))
    }

    fn extended(sent: Instant) -> Renewal {
        Renewal::Extended(Lease::until(sent, 30 * S))
    }

    #[test]
    fn each_renewal_is_due_a_third_after_the_one_before_it_was_sent() {
        let (sent, mut renewals) = renewals();
        assert_eq!(renewals.next(), sent + 10 * S);
        assert_eq!(renewals.turn(sent + 10 * S), Turn::Ask(sent + 12 * S));
        let schedule = Schedule { sent: sent + 10 * S, ttl: 30 * S, kill_after: 5 * S };
        let answered = renewals.answered(sent + 10 * S, sent + 11 * S, Ok(extended(sent + 10 * S)));
        assert_eq!((answered, renewals.next()), (Some(LeaseNews::Extended(schedule)), sent + 20 * S));
    }

    #[test]
    fn after_a_failure_it_is_tried_again_at_once_and_then_every_twentieth() {
        let (sent, mut renewals) = renewals();
        let (asked, now) = (sent + 10 * S, sent + 12 * S);
        let trouble = LeaseNews::Trouble(Unconfirmed::Silence);
        assert_eq!(renewals.answered(asked, now, Err(None)), Some(trouble));
        assert!(renewals.next() <= now);
        assert_eq!(renewals.answered(now, now + S, Err(None)), None);
        assert_eq!(renewals.next(), now + S + 1500 * MS);
        // No later than the time of SIGTERM.
        assert_eq!(renewals.answered(sent + 20 * S, sent + 21 * S, Err(None)), None);
        assert_eq!(renewals.next(), sent + 21_950 * MS);
    }

    #[test]
    fn what_happens_to_the_lock_is_heard_from_the_first_renewal_on_and_brings_the_next_one_forward() {
        let (sent, mut renewals) = renewals();
        assert!(!renewals.listens());
        let first = sent + 10 * S;
        renewals.answered(first, first, Ok(extended(first)));
        assert!(renewals.listens());
        // Reported this long after the first renewal, and due this long after it.
        for (answered, due) in [(5 * S, 5 * S), (30 * MS, 100 * MS), (Duration::ZERO, 100 * MS), (11 * S, 10 * S)] {
            let mut disturbed = renewals.clone();
            disturbed.disturbed(first + answered);
            assert_eq!(disturbed.next(), first + due, "{answered:?}");
        }
        renewals.answered(first + S, first + S, Err(None));
        assert!(!renewals.listens());
    }

    #[test]
    fn an_answer_after_sigterm_rescues_nothing() {
        let (sent, mut renewals) = renewals();
        let late = sent + 21_950 * MS;
        assert_eq!(renewals.answered(sent + 20 * S, late, Ok(extended(sent + 20 * S))), None);
        assert_eq!(renewals.next(), late);
        let Turn::GiveUp(LeaseNews::Unrenewed { since, .. }) = renewals.turn(late) else { panic!("asks again") };
        assert_eq!(since, sent);
    }

    #[test]
    fn the_reason_is_what_was_heard_and_not_the_silence_after_it() {
        let (sent, mut renewals) = renewals();
        let reason = |renewals: &Renewals| match renewals.turn(sent + 30 * S) {
            Turn::GiveUp(LeaseNews::Unrenewed { last, .. }) => last,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(&renewals), Unconfirmed::NotTried);
        let refused = Unconfirmed::Said("refused".to_owned());
        for (answered, expected) in [(None, Unconfirmed::Silence), (Some("refused"), refused.clone()), (None, refused)]
        {
            renewals.answered(sent, sent, Err(answered.map(str::to_owned)));
            assert_eq!(reason(&renewals), expected);
        }
        renewals.answered(sent, sent, Ok(extended(sent)));
        assert_eq!(reason(&renewals), Unconfirmed::NotTried);
    }
}
