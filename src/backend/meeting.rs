/*!
Meeting points: latches and barriers. They are independent of the lock of the same name.

A latch remembers for a time the names that have arrived, and its failure. A barrier remembers nothing: it opens when
enough parties wait there at the same moment. Rounds have no number: each arrival has its own id, and a party that sees
enough live marks marks just these as open. A party may pass if its own mark is open; if its mark is gone, it was
counted as dead.

Each backend implements the traits here; the rule of a barrier is in [`rule`].
*/

pub(crate) mod records;
pub(crate) mod rule;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::holder::Owner;
use crate::key::{Key, Namespace};

/// The maximum number of names that waiters are told.
pub(crate) const TOLD: usize = 8;

/// Returns the error if the marks at `key` were changed by others each time before this dlock could act on them.
pub(crate) fn contended(key: &Key) -> Error {
    Error::unavailable(format!("the marks of {key} change faster than they can be read"))
}

/// One dlock at a latch or a barrier.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// The name of the latch or barrier.
    pub key: Key,
    /// The prefix of the name on a shared server.
    pub namespace: Namespace,
    /// The id of this dlock: random, and new for every process. It makes every request repeatable.
    pub id: Owner,
    /// The name under which it takes part.
    pub name: String,
    /// The time that a mark at a barrier outlives its dlock if that dies.
    pub lease: Duration,
}

/// A latch, as one look shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// Number of names that have arrived.
    pub count: u64,
    /// Some of these names.
    pub names: Vec<String>,
    /// The failure, if the latch has failed.
    pub failure: Option<LatchFailure>,
}

/// The turnout at a latch or a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turnout {
    /// Number of names that are there.
    pub count: u64,
    /// The names of some of them.
    pub names: Vec<String>,
}

impl Turnout {
    /// Returns the turnout of all these names.
    #[must_use]
    pub(crate) fn of(names: Vec<String>) -> Self {
        Self { count: names.len().try_into().unwrap_or(u64::MAX), names }
    }
}

/// The failure of a latch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LatchFailure {
    /// The name of the party that reported it.
    pub by: String,
    /// The reason; may be empty.
    pub reason: String,
}

impl LatchFailure {
    /// Returns the stored text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        // A struct of texts always serializes.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Reads a stored text. A malformed text is a failure, too, with the text as its reason.
    #[must_use]
    pub(crate) fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text)
            .unwrap_or_else(|_| Self { by: String::new(), reason: String::from_utf8_lossy(text).into_owned() })
    }
}

/// One dlock at a latch.
///
/// As with a [`Contender`](crate::backend::contract::contender::Contender), every future may be dropped at any point,
/// every request may be repeated, time-outs and retries are up to the caller, and only [`Latch::changed`] waits.
#[async_trait::async_trait(?Send)]
pub(crate) trait Latch {
    /// Makes sure that there is a connection; does nothing if there is one. The requests below are sent on it.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Records the arrival of our name, valid for `keep` from now on. A name that has arrived before still counts once.
    async fn arrive(&mut self, keep: Duration) -> Result<(), Error>;

    /// Lets the latch fail, for `keep` from now on.
    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error>;

    /// Forgets all names and the failure.
    async fn forget(&mut self) -> Result<(), Error>;

    /// Looks at it, and keeps this waiter known if the service must know its waiters. Returns at most `told` names.
    async fn look(&mut self, told: usize) -> Result<Arrivals, Error>;

    /// Resolves when it is worth looking again, in time for the next look that keeps us known. Call it after a look.
    async fn changed(&mut self) -> Result<(), Error>;

    /// Ends all that we have at the service, except names and failure. Best effort; connects by itself if need be.
    async fn close(&mut self);
}

/// A barrier, as one look shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// We wait with others; has the sorted names of all, ours among them.
    Waiting(Vec<String>),
    /// The barrier has opened for us.
    Open,
    /// A newer process waits under our name.
    Replaced,
    /// Our mark is gone: we were counted as dead.
    Gone,
    /// Others wait for another number of parties, and nothing is left of our arrival.
    OtherParties {
        /// The other number of parties.
        parties: u32,
        /// The names of the others.
        names: Vec<String>,
    },
}

/// One dlock at a barrier.
///
/// As with a [`Contender`](crate::backend::contract::contender::Contender), every future may be dropped at any point,
/// every request may be repeated, time-outs and retries are up to the caller, and only [`Barrier::changed`] waits.
#[async_trait::async_trait(?Send)]
pub(crate) trait Barrier {
    /// Makes sure that there is a connection; does nothing if there is one. [`Barrier::arrive`], [`Barrier::look`] and
    /// [`Barrier::changed`] use it.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Makes our mark unless it exists, and opens the barrier if that is the last one. Call it until it has been
    /// answered once.
    async fn arrive(&mut self) -> Result<Gathering, Error>;

    /// Looks, extends the lease of our mark, and opens the barrier if all are there; never makes a mark.
    async fn look(&mut self) -> Result<Gathering, Error>;

    /// Resolves when it is worth looking again, in time to extend the lease. Call it after a look.
    async fn changed(&mut self) -> Result<(), Error>;

    /// Removes our mark unless it is open; returns `true` if it is. May also follow an arrival whose answer was lost;
    /// connects by itself if need be.
    async fn withdraw(&mut self) -> Result<bool, Error>;

    /// Removes our mark, open or not, and ends our presence at the service. Best effort; connects by itself if need be.
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
