/*!
The lock services. Each is one folder behind the traits [`Service`] and [`Contender`], whose comments are the contract,
with a `DRIVER` that is listed in [`registry`]; what they share knows nothing of leases being kept or of processes.
*/

mod claim;
#[cfg(test)]
mod conformance;
pub(crate) mod driver;
pub(crate) mod error;
mod etcd;
mod file;
pub(crate) mod meeting;
mod mysql;
pub(crate) mod net;
mod postgres;
pub(crate) mod probing;
mod redis;
mod redlock;
pub(crate) mod registry;
pub(crate) mod sql;
pub(crate) mod survey;
pub(crate) mod url;
mod zookeeper;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub(crate) use crate::backend::claim::{Claim, Once};
pub(crate) use crate::backend::error::{Error, ErrorKind};
use crate::backend::meeting::{Barrier, Latch, Meeting};
use crate::backend::net::tls::TlsFiles;
use crate::backend::probing::{Probes, Wish};
use crate::backend::survey::Survey;
use crate::clock::Instant;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::holder::{Holder, Published};
use crate::key::Namespace;

/// What the user says about the way to the servers, in addition to the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Certificates and keys.
    pub tls: TlsFiles,
    /// How many replicas must confirm every grant and renewal; 0 for none.
    pub replicas: u32,
    /// Whether servers that could forget a fencing counter are refused.
    pub strict_fencing: bool,
}

/// Fencing tokens are smaller: this is how far every program counts exactly, also a script of redis. A larger number is
/// a damaged counter's, and two grants could come by the same one.
const TOKEN_LIMIT: u64 = 1 << 53;

/// Why a lock there has no handle.
pub(crate) const NO_HANDLES: &str = "a lock there ends with the process that holds it";

/// A number that a server counts up by itself as a fencing token; none where it cannot be one.
fn token(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..TOKEN_LIMIT).contains(number))
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The fencing token: larger than that of every earlier holder that excludes this one.
    pub token: u64,
    /// The number of the slot, which no other holder has at the same time; none where the mode has no slots.
    pub slot: Option<u32>,
    /// How long it is held, and how one finds out that it is lost.
    pub lease: Lease,
}

/// How a grant ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The server ends it `ttl` after it heard of us, which was not before `sent`.
    Until {
        /// Taken before the request was sent.
        sent: Instant,
        /// What the server granted.
        ttl: Duration,
        /// How long after one renewal was sent the next one is due.
        renew_every: Duration,
    },
    /// It lasts as long as the process. Look at this interval whether the lock is still what it was.
    Unlimited {
        /// Between two looks.
        check: Duration,
    },
}

impl Lease {
    /// A lease of `ttl` from the request that was sent at `sent`, to be renewed every third of it.
    #[must_use]
    pub(crate) fn until(sent: Instant, ttl: Duration) -> Self {
        Self::Until { sent, ttl, renew_every: ttl / 3 }
    }

    /// The part of it that a command may count on, where the lock is to stay taken for `delay` after that.
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

/// What is known of a grant to a process that has ended, besides its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// The fencing token.
    pub token: u64,
    /// The number of the attempt that was granted, where the service counts attempts.
    pub attempt: Option<u64>,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The lock is ours.
    Held(Grant),
    /// Another owner has it, or others are before us.
    Busy(Busy),
    /// A run around this one holds it, and nothing was asked for.
    Outer(Box<Published>),
    /// Others hold it or wait for it with another number of slots, and nothing is left of the attempt.
    OtherSlots(OtherSlots),
    /// A command has succeeded in the claim's period already, and nothing is left of the attempt.
    Done(Box<Done>),
    /// Of several locks that are taken one after the other, not all are ours yet: the next attempt goes on. No service says
    /// so; see [`several`](crate::lease::several).
    Partly,
    /// Nothing was asked for, because the service lacks what locks need there: the next [`connect`](Contender::connect) makes it.
    Unprepared,
}

/// Why a lock is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Who has it.
    pub holder: Holder,
    /// How many others hold it together with that one.
    pub beside: u64,
    /// Our place in the queue, 1 for the next; none when we are not in a queue.
    pub position: Option<u64>,
    /// "Now" in milliseconds since 1970 by the clock that granted the lock.
    pub now: u64,
}

/// A number of slots that is not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherSlots {
    /// The number that others use.
    pub slots: u32,
    /// One of them, as far as it is known.
    pub holder: Holder,
    /// "Now" in milliseconds since 1970 by the clock that granted the lock.
    pub now: u64,
}

/// Whether an attempt that finds the lock busy joins the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// It does, and stays in it until it holds the lock or [`Contender::release`] is called.
    Join,
    /// It leaves no trace.
    Pass,
}

/// What came of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lock is ours for a new term.
    Extended(Lease),
    /// The lock is ours for a new term, and its owner was asked to stop and to give it back.
    Asked(Lease, Box<Ask>),
    /// The service says that the lock is not ours. This is final; the text says what is known of the reason.
    NotMine(String),
}

impl Renewal {
    /// The new term, with the request to stop if there is one.
    #[must_use]
    pub(crate) fn of(lease: Lease, asked: Option<Ask>) -> Self {
        match asked {
            Some(ask) => Self::Asked(lease, Box::new(ask)),
            None => Self::Extended(lease),
        }
    }

    /// The request to stop, if there is one.
    #[must_use]
    pub(crate) fn asked(&self) -> Option<&Ask> {
        match self {
            Self::Asked(_, ask) => Some(ask),
            Self::Extended(_) | Self::NotMine(_) => None,
        }
    }
}

/// What a lock that is given back was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Used {
    /// Nothing: no command was started under it, or we only waited for it. It is freed at once.
    No,
    /// A command ran under it. It stays taken until the claim's `min_hold` is over.
    Yes,
    /// A command ran under it, as with `Yes`, and succeeded: where the claim has a period, that is recorded together with the
    /// release.
    Success,
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// It was ours and is free.
    Freed,
    /// It was ours and is not used any more, but stays taken until the claim's `min_hold` is over.
    Kept,
    /// It was not ours (any more).
    NotMine,
}

/// A lock service, as one URL names it.
pub(crate) trait Service: fmt::Debug {
    /// A contender for what `claim` asks for. Nothing is sent, and nothing connects yet.
    fn contend(&self, claim: Claim) -> Box<dyn Contender>;

    /// The latch of `meeting`, or why there is none here. Nothing is sent, and nothing connects yet.
    fn latch(&self, meeting: Meeting) -> Result<Box<dyn Latch>, &'static str>;

    /// The barrier of `meeting` for so many `parties`, or why there is none here. Nothing is sent, and nothing connects yet.
    fn barrier(&self, meeting: Meeting, parties: u32) -> Result<Box<dyn Barrier>, &'static str>;

    /// A look at the locks in this namespace. Nothing is sent, and nothing connects yet.
    fn survey(&self, namespace: Namespace) -> Box<dyn Survey>;

    /// What finds out whether this service keeps its promises to runs that `wish` for this. Nothing is sent, and nothing
    /// connects yet.
    fn probes(&self, wish: Wish) -> Box<dyn Probes>;
}

/// One claim at a lock service: three verbs and an event.
///
/// A contender serves its claim alone: connections, places in a queue and what is known of lost answers belong to it, and
/// it may take the lock again after it has given it back. Only a contender for [several](crate::lease::several) locks has
/// more than one claim.
///
/// Every future may be dropped at any point; the next call then works on what is known. Implementations bound the
/// memory that a hostile service can make them use. They never print or exit.
///
/// Time-outs and retries are the caller's: `lease` bounds each call, decides whether a call that failed is made
/// again, and sleeps in between. A contender waits for no other reason than these, and never for long:
///
/// * [`Contender::changed`] and [`Contender::disturbed`] exist to wait, and end in time for the next sign of life.
/// * Within one attempt, where the service's own recipe asks for it: redlock lets a moment pass before it asks again
///   where the votes were split, a lookup in a queue is repeated when the queue changed under it.
/// * In the background, where something must go on while nobody calls: redlock's voters and ZooKeeper's tunnel dial,
///   bound each answer in time, and dial again. They end when the contender is dropped.
#[async_trait::async_trait(?Send)]
pub(crate) trait Contender {
    /// What it contends for; of several locks, the one to which the last attempt came.
    fn claim(&self) -> &Claim;

    /// From now on it is no matter whether a run around this one holds the lock.
    fn ignore_outer(&mut self);

    /// The run around this one that the last attempt met holds the lock of [`Contender::claim`] for this one, with this fencing
    /// token: of several locks, that one is not asked for any more.
    fn skip_held_by_outer(&mut self, _token: u64) {}

    /// The fencing tokens of several locks that are held as one, in the order in which the user has named their keys; those
    /// that were [passed over](Contender::skip_held_by_outer) too. Empty for a single lock, whose grant has its token.
    fn tokens(&self) -> Vec<u64> {
        Vec::new()
    }

    /// The name under which the service keeps the lock, known after an attempt; none where two keys never are one lock. Two
    /// contenders of one service with the same name contend for the same lock, whatever their keys.
    fn kept_as(&self) -> Option<&str> {
        None
    }

    /// The table that has the lock, with its schema, known after an attempt; none where locks are in no table.
    fn table(&self) -> Option<String> {
        None
    }

    /// Makes sure that there is a connection; does nothing when there is one. Requests are sent on this connection only.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Makes this contender, which has made no attempt, the holder of a lock that was granted to another contender with the
    /// same owner, and whose lease is as long as the claim says. Nothing is taken, extended or made: the first
    /// [`Contender::renew`] says whether the lock is still held. Fails where a lock ends with the process that holds it.
    async fn adopt(&mut self, _held: &Adopted) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unusable, NO_HANDLES.to_owned()))
    }

    /// The number of the attempt that was granted, where the service counts attempts: [`Contender::adopt`] needs it.
    fn granted_attempt(&self) -> Option<u64> {
        None
    }

    /// Of an [adopted](Contender::adopt) lock that is free: whether others have held it since. False also where the service
    /// cannot tell.
    async fn passed_on(&mut self, _held: &Adopted) -> Result<bool, Error> {
        Ok(false)
    }

    /// Tries once to take the lock, and joins the queue if told to. Repeating it is safe also when an answer was lost: a
    /// lock that is ours already is granted again, with the same token, and a place in the queue is kept. Where the claim has
    /// a period that is done, nothing is granted; that is looked at before queueing and again with the grant.
    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error>;

    /// After a busy [`Contender::attempt`] that joined the queue: resolves when it is worth trying again.
    async fn changed(&mut self) -> Result<(), Error>;

    /// Extends a lock that is held, and never creates one that is gone.
    async fn renew(&mut self) -> Result<Renewal, Error>;

    /// While the lock is held, after a [`Contender::renew`] that extended it: resolves when the service says of its own
    /// accord that something has happened to what the lock rests on. That decides nothing; it is worth another renewal at
    /// once. Never resolves where the service cannot say so, and when it cannot be heard before the next renewal.
    async fn disturbed(&mut self) {
        std::future::pending::<()>().await;
    }

    /// Gives the lock back and leaves the queue. Legal at any moment and any number of times, also after an attempt
    /// whose answer was lost. Never touches what another owner has. A lock that was used is [kept](Released::Kept) while the
    /// claim wants it, and no renewal revives it. Where a success could not be recorded, [`Contender::concerns`] says so.
    async fn release(&mut self, used: Used) -> Result<Released, Error>;

    /// What could make the locks of this service unsafe, as far as it has been noticed since the last call: for one
    /// warning each.
    fn concerns(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The descriptor through which the kernel keeps the lock, where there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The descriptors through which the kernel keeps the locks that are held: that of a single lock, or one for each of
    /// several.
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
            // One that is renewed more often all the same.
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
