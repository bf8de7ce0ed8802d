/*!
Meeting points: latches and barriers. They have nothing to do with the lock of the same name.

A latch remembers for a time which names have arrived, and whether it has failed. A barrier remembers nothing: it opens when
enough parties wait there at the same moment. There is no number of the round: each arrival has an id of its own, and what
sees enough live marks of arrivals marks just these as open. Whoever finds its own mark open may go on; whoever finds none
was counted as dead.

The traits here are what each backend implements; the rule of a barrier is in [`rule`].
*/

pub(crate) mod records;
pub(crate) mod rule;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::holder::Owner;
use crate::key::{Key, Namespace};

/// How many names those who wait are told at most.
pub(crate) const TOLD: usize = 8;

/// The error when what is at `key` was changed by others each time before this dlock could act on it.
pub(crate) fn contended(key: &Key) -> Error {
    Error::unavailable(format!("the marks of {key} change faster than they can be read"))
}

/// One dlock at a latch or a barrier.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// The name of the latch or barrier.
    pub key: Key,
    /// The prefix of its name on a shared server.
    pub namespace: Namespace,
    /// The id of this dlock: random, and new for every process. It is what makes every request repeatable.
    pub id: Owner,
    /// The name under which it takes part.
    pub name: String,
    /// How long its mark at a barrier outlives a dlock that is dead.
    pub lease: Duration,
}

/// A latch as one look shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// How many names have arrived.
    pub count: u64,
    /// Some of these names.
    pub names: Vec<String>,
    /// Whether it has failed.
    pub failure: Option<LatchFailure>,
}

/// That a latch has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LatchFailure {
    /// The name of who said so.
    pub by: String,
    /// Why; may be empty.
    pub reason: String,
}

impl LatchFailure {
    /// The text that is kept.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        // A struct of texts always serializes.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Reads a text that is kept. One that cannot be understood is a failure too, with the text as its reason.
    #[must_use]
    pub(crate) fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text)
            .unwrap_or_else(|_| Self { by: String::new(), reason: String::from_utf8_lossy(text).into_owned() })
    }
}

/// One dlock at a latch.
///
/// As with a [`Contender`](crate::backend::Contender), every future may be dropped at any point, every request may be
/// repeated, time-outs and retries are the caller's, and nothing waits but [`Latch::changed`].
#[async_trait::async_trait(?Send)]
pub(crate) trait Latch {
    /// Makes sure that there is a connection; does nothing when there is one. The requests below are sent on it.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Our name arrives, for as long as `keep` from now on. A name that is there already is there once.
    async fn arrive(&mut self, keep: Duration) -> Result<(), Error>;

    /// Lets it fail, for as long as `keep` from now on.
    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error>;

    /// Forgets all names and the failure.
    async fn forget(&mut self) -> Result<(), Error>;

    /// Looks at it, and keeps this waiter known where the service has to know its waiters. At most so many names are `told`.
    async fn look(&mut self, told: usize) -> Result<Arrivals, Error>;

    /// After a look: resolves when it is worth looking again, which is in time for the next look that keeps us known.
    async fn changed(&mut self) -> Result<(), Error>;

    /// Ends what we have at the service, but for the names and the failure. Best effort; connects by itself if need be.
    async fn close(&mut self);
}

/// A barrier as one look shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// We wait with others; the names of all, ours among them, in their order.
    Waiting(Vec<String>),
    /// It has opened for us.
    Open,
    /// A newer process waits under our name.
    Replaced,
    /// Our mark is gone: we were counted as dead.
    Gone,
    /// Others wait for another number of parties, and nothing is left of our arrival.
    OtherParties {
        /// That number.
        parties: u32,
        /// Their names.
        names: Vec<String>,
    },
}

/// One dlock at a barrier.
///
/// As with a [`Contender`](crate::backend::Contender), every future may be dropped at any point, every request may be
/// repeated, time-outs and retries are the caller's, and nothing waits but [`Barrier::changed`].
#[async_trait::async_trait(?Send)]
pub(crate) trait Barrier {
    /// Makes sure that there is a connection; does nothing when there is one. [`Barrier::arrive`], [`Barrier::look`] and
    /// [`Barrier::changed`] use it.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Makes our mark, unless it is there, and opens the barrier if that is the last one. To be called until it was answered
    /// once.
    async fn arrive(&mut self) -> Result<Gathering, Error>;

    /// Looks, extends the lease of our mark, and opens the barrier if all are there; never makes a mark.
    async fn look(&mut self) -> Result<Gathering, Error>;

    /// After a look: resolves when it is worth looking again, which is in time to extend the lease.
    async fn changed(&mut self) -> Result<(), Error>;

    /// Takes our mark away, unless it is open: says whether it is. Legal also after an arrival whose answer was lost; connects
    /// by itself if need be.
    async fn withdraw(&mut self) -> Result<bool, Error>;

    /// Takes away our mark, open or not, and ends what we have at the service. Best effort; connects by itself if need be.
    async fn close(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_back_and_what_is_none_of_ours_is_one_too() {
        let failure = LatchFailure { by: "unit".to_owned(), reason: "3 tests\n\"red\"".to_owned() };
        assert_eq!(LatchFailure::read(failure.text().as_bytes()), failure);
        assert_eq!(LatchFailure::read(br#"{"v":2,"by":"a","keep":7}"#).by, "a");
        let odd = LatchFailure::read(b"\xffbroken");
        assert_eq!((odd.by.as_str(), odd.reason.as_str()), ("", "\u{fffd}broken"));
    }
}
