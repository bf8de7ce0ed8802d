/*!
The contract of a lock: [`Contender`], which every service implements, and what its calls return.
*/

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::error::{Error, ErrorKind};
use crate::clock::Instant;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::holder::{Holder, Published};

/// Upper bound of fencing tokens: every program counts exactly up to this number, even a script of redis. A larger
/// number comes from a damaged counter, and two grants could get the same one.
pub(in crate::backend) const TOKEN_LIMIT: u64 = 1 << 53;

/// The reason why a lock there has no handle.
pub(crate) const NO_HANDLES: &str = "a lock there ends with the process that holds it";

/// Returns the fencing token for a number that a server itself counts up; `None` if it cannot be a token.
pub(in crate::backend) fn token(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..TOKEN_LIMIT).contains(number))
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The fencing token: larger than that of every earlier holder that excludes this one.
    pub token: u64,
    /// The number of the slot, which no other holder has at the same time; `None` if the mode has no slots.
    pub slot: Option<u32>,
    /// The length of the grant, and the way to find out that it is lost.
    pub lease: Lease,
}

/// The way in which a grant ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The server ends it `ttl` after it received the request, which was not before `sent`.
    Until {
        /// Taken before the request was sent.
        sent: Instant,
        /// The time that the server granted.
        ttl: Duration,
        /// The interval from sending one renewal to sending the next.
        renew_every: Duration,
    },
    /// It lasts as long as the process. Check at this interval that the lock is still what it was.
    Unlimited {
        /// The time between two checks.
        check: Duration,
    },
}

impl Lease {
    /// Returns a lease of `ttl` from the request that was sent at `sent`, to be renewed every third of it.
    #[must_use]
    pub(crate) fn until(sent: Instant, ttl: Duration) -> Self {
        Self::Until { sent, ttl, renew_every: ttl / 3 }
    }

    /// Returns the part of it that a command may count on, if the lock is to stay taken for `delay` after that.
    #[must_use]
    pub(crate) fn less(self, delay: Duration) -> Self {
        match self {
            Self::Until { sent, ttl, renew_every } if !delay.is_zero() => {
                let left = ttl.saturating_sub(delay);
                Self::Until { sent, ttl: left, renew_every: renew_every.min(left / 3) }
            }
            whole => whole,
        }
    }
}

/// A grant to a process that has ended, as far as it is known besides its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// The fencing token.
    pub token: u64,
    /// The number of the attempt that was granted, if the service counts attempts.
    pub attempt: Option<u64>,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The lock is ours.
    Held(Grant),
    /// Another owner has it, or others are ahead of us.
    Busy(Busy),
    /// An outer run of this one holds it, and nothing was requested.
    Outer(Box<Published>),
    /// Others hold it or wait for it with another number of slots, and nothing is left of the attempt.
    OtherSlots(OtherSlots),
    /// A command has already succeeded in the claim's period, and nothing is left of the attempt.
    Done(Box<Done>),
    /// Of several locks that are taken one after the other, not all are ours yet: the next attempt continues. No
    /// service returns this; see [`several`](crate::lease::several).
    Partly,
    /// Nothing was requested, as the service lacks what locks need there: [`connect`](Contender::connect) creates it.
    Unprepared,
}

/// The reason why a lock is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// One of the holders.
    pub holder: Holder,
    /// Number of its co-holders.
    pub beside: u64,
    /// Our position in the queue, 1 for the next; `None` if we are not in a queue.
    pub position: Option<u64>,
    /// "Now" in milliseconds since 1970 by the clock that granted the lock.
    pub now: u64,
}

/// A number of slots other than the requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherSlots {
    /// The number that others use.
    pub slots: u32,
    /// One of the holders or waiters that use it, as far as it is known.
    pub holder: Holder,
    /// "Now" in milliseconds since 1970 by the clock that granted the lock.
    pub now: u64,
}

/// The behavior of an attempt that finds the lock busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// It joins the queue, and stays in it until it holds the lock or [`Contender::release`] is called.
    Join,
    /// It leaves no trace.
    Pass,
}

/// The result of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lock is ours for a new term.
    Extended(Lease),
    /// The lock is ours for a new term, and its owner was asked to stop and to release it.
    Asked(Lease, Box<Ask>),
    /// The service says that the lock is not ours. This is final; the text has the known reason.
    NotMine(String),
}

impl Renewal {
    /// Returns the new term, with the request to stop if there is one.
    #[must_use]
    pub(crate) fn of(lease: Lease, asked: Option<Ask>) -> Self {
        match asked {
            Some(ask) => Self::Asked(lease, Box::new(ask)),
            None => Self::Extended(lease),
        }
    }

    /// Returns the request to stop, if there is one.
    #[must_use]
    pub(crate) fn asked(&self) -> Option<&Ask> {
        match self {
            Self::Asked(_, ask) => Some(ask),
            Self::Extended(_) | Self::NotMine(_) => None,
        }
    }
}

/// The use of a lock until its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Used {
    /// None: no command was started under it, or we only waited for it. It is freed at once.
    No,
    /// A command ran under it. It stays taken until the claim's `min_hold` is over.
    Yes,
    /// A command ran under it, as with `Yes`, and succeeded: if the claim has a period, that is recorded together with
    /// the release.
    Success,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// It was ours and is free.
    Freed,
    /// It was ours and is no longer used, but stays taken until the claim's `min_hold` is over.
    Kept,
    /// It was not ours (any more).
    NotMine,
}

/// One claim at a lock service: three verbs and an event.
///
/// A contender serves its claim alone: connections, places in a queue and knowledge of lost answers belong to it, and
/// it may take the lock again after a release. Only a contender for [several](crate::lease::several) locks has more
/// than one claim.
///
/// Every future may be dropped at any point; the next call then continues from what is known. Implementations bound the
/// memory that a hostile service can make them use. They never print or exit.
///
/// Time-outs and retries are up to the caller: `lease` bounds each call, decides whether a failed call is repeated, and
/// sleeps in between. A contender waits only for these reasons, and never for long:
///
/// * [`Contender::changed`] and [`Contender::disturbed`] exist to wait, and end in time for the next sign of life.
/// * Within one attempt, where the service's own recipe asks for it: redlock lets a moment pass before it asks again
///   where the votes were split, a lookup in a queue is repeated when the queue changed under it.
/// * In the background, where something must go on while nobody calls: redlock's voters, listeners on redis and
///   ZooKeeper's tunnel dial, bound each answer in time, and dial again. They end when the contender is dropped.
#[async_trait::async_trait(?Send)]
pub(crate) trait Contender {
    /// Returns its claim; of several locks, the claim on the one that the last attempt reached.
    fn claim(&self) -> &Claim;

    /// Makes later attempts ignore whether an outer run of this one holds the lock.
    fn ignore_outer(&mut self);

    /// Skips the lock of [`Contender::claim`], one of several, from now on: the outer run that the last attempt met
    /// holds it for this one, with this fencing token.
    fn skip_held_by_outer(&mut self, _token: u64) {}

    /// Returns the fencing tokens of several locks that are held as one, [skipped](Contender::skip_held_by_outer) ones
    /// too, in the user's order of their keys. Empty for a single lock, whose grant has its token.
    fn tokens(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the name under which the service keeps the lock, known after an attempt; `None` if two keys are never
    /// one lock. Two contenders of one service with the same name contend for the same lock, whatever their keys.
    fn kept_as(&self) -> Option<&str> {
        None
    }

    /// Returns the table of the lock, with its schema, known after an attempt; `None` if locks are not in a table.
    fn table(&self) -> Option<String> {
        None
    }

    /// Makes sure that there is a connection; does nothing if there is one. Requests are sent on this connection only.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Makes this contender, which has made no attempt, the holder of a lock that was granted to another contender with
    /// the same owner, and whose lease is as long as the claim says. Nothing is taken, extended or created: the first
    /// [`Contender::renew`] shows whether the lock is still held. Fails if a lock ends with the process that holds it.
    async fn adopt(&mut self, _held: &Adopted) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unusable, NO_HANDLES.to_owned()))
    }

    /// Returns the number of the granted attempt, for [`Contender::adopt`], if the service counts attempts.
    fn granted_attempt(&self) -> Option<u64> {
        None
    }

    /// Returns `true` if others have held this [adopted](Contender::adopt) lock, which is free now, since it was
    /// granted. Returns `false` also if the service cannot tell.
    async fn passed_on(&mut self, _held: &Adopted) -> Result<bool, Error> {
        Ok(false)
    }

    /// Tries once to take the lock, and joins the queue if told to. Repeating it is safe even if an answer was lost: a
    /// lock that is ours already is granted again, with the same token, and a place in the queue is kept. If the
    /// claim's period is done, nothing is granted; that is checked before queueing and again with the grant.
    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error>;

    /// Resolves when it is worth trying again, after a busy [`Contender::attempt`] that joined the queue.
    async fn changed(&mut self) -> Result<(), Error>;

    /// Extends a lock that is held, and never creates one that is gone.
    async fn renew(&mut self) -> Result<Renewal, Error>;

    /// Resolves when the service itself reports a change to what the lock rests on, while the lock is held, after a
    /// [`Contender::renew`] that extended it. That decides nothing, but is worth another renewal at once. Never
    /// resolves if the service cannot report it, or if no report can arrive before the next renewal.
    async fn disturbed(&mut self) {
        std::future::pending::<()>().await;
    }

    /// Releases the lock and leaves the queue. May be called at any time and any number of times, even after an attempt
    /// whose answer was lost. Never touches another owner's hold. A used lock is [kept](Released::Kept) as long as the
    /// claim says, and no renewal revives it. If a success could not be recorded, [`Contender::warnings`] says so.
    async fn release(&mut self, used: Used) -> Result<Released, Error>;

    /// Returns what could make the locks of this service unsafe, as far as it has been noticed since the last call, for
    /// one warning each.
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the descriptor through which the kernel keeps the lock, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the descriptors through which the kernel keeps the locks that are held: that of a single lock, or one
    /// for each of several.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptor().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_not_counted_on_and_renewals_come_in_time_for_the_rest() {
        let (sent, seconds) = (Instant::from_nanos(7), Duration::from_secs);
        let lease = |ttl, renew_every| Lease::Until { sent, ttl: seconds(ttl), renew_every: seconds(renew_every) };
        for (whole, delay, left) in [
            (lease(30, 10), 0, lease(30, 10)),
            (lease(36, 12), 6, lease(30, 10)),
            // A lease that is renewed more often anyway.
            (lease(35, 5), 5, lease(30, 5)),
            (lease(5, 1), 9, lease(0, 0)),
        ] {
            assert_eq!(whole.less(seconds(delay)), left, "{whole:?} {delay}");
        }
        let file = Lease::Unlimited { check: seconds(1) };
        assert_eq!(file.less(seconds(9)), file);
    }

    #[test]
    fn a_token_is_a_number_from_1_up_to_what_every_program_counts_exactly() {
        const MOST: i64 = (1 << 53) - 1;
        for (number, expected) in [
            (1, Some(1)),
            (MOST, Some((1 << 53) - 1)),
            (0, None),
            (-1, None),
            (i64::MIN, None),
            (MOST + 1, None),
            (i64::MAX, None),
        ] {
            assert_eq!(token(number), expected, "{number}");
        }
    }
}
