/*!
Latches on a majority of independent redis servers, each of which stores the same data as a single one would.

Names are only ever added: a name that a majority has confirmed is on at least one server of every other majority, so
the union of any majority's answers has all names that have arrived. So every server has to forget them. A barrier needs
one place that decides, and is not possible here.
*/

use std::collections::BTreeSet;
use std::time::Duration;

use ::redis::Cmd;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::error::Error;
use crate::backend::meeting::{Arrivals, Latch, LatchFailure, Meeting};
use crate::backend::redis::Server;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::meeting::{Ask, LatchAnswer, latch_answer, latch_request};
use crate::backend::redlock::errors::{self, Failures};
use crate::backend::redlock::quorum::majority;
use crate::clock::{Instant, before, sleep_until};

/// The reason why there is no barrier here.
pub(super) const NO_BARRIER: &str = "a barrier needs one server that decides when all parties are there, and redlock:// has \
                                     several; use redis://, etcd:// or zk://";

/// The time limit for the answer of one server.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for the slower servers once a majority has answered.
const REST: Duration = Duration::from_millis(100);
/// The interval from one look of a waiter to the next.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum number of names that are reported as digests: more than can be waited for.
const DIGESTS: u32 = 1000;

/// One dlock at a latch on these servers.
#[derive(Debug)]
pub(super) struct RedlockLatch {
    connections: Vec<Connection>,
    meeting: Meeting,
    /// The time at which the last look began.
    looked: Instant,
}

/// Combines the answers of several servers, with at most this many names.
fn union(told: &[LatchAnswer], most_names: usize) -> Arrivals {
    let digests: BTreeSet<&str> = told.iter().flat_map(|told| &told.digests).map(String::as_str).collect();
    let names: BTreeSet<&str> = told.iter().flat_map(|told| &told.arrivals.names).map(String::as_str).collect();
    // A server reports only so many digests, but the number of all names.
    let most = told.iter().map(|told| told.arrivals.count).max().unwrap_or_default();
    Arrivals {
        count: most.max(digests.len().try_into().unwrap_or(u64::MAX)),
        names: names.into_iter().take(most_names).map(str::to_owned).collect(),
        failure: told.iter().find_map(|told| told.arrivals.failure.clone()),
    }
}

impl RedlockLatch {
    /// Returns a participant of the latch on these servers; not connected yet.
    pub(super) fn new(servers: Vec<Server>, meeting: Meeting) -> Self {
        Self { connections: servers.into_iter().map(Connection::new).collect(), meeting, looked: Instant::now() }
    }

    /// Returns the servers' answers; fails if less than a majority answers, and for [`Ask::Forget`] unless all answer.
    async fn ask(&mut self, ask: Ask<'_>) -> Result<Vec<LatchAnswer>, Error> {
        let command = &latch_request(&self.meeting, ask);
        let all = self.connections.len();
        let needed = if matches!(ask, Ask::Forget) { all } else { majority(all) };
        let asking = self.connections.iter_mut().map(|connection| one(connection, command));
        let mut asking: FuturesUnordered<_> = asking.collect();
        let (mut told, mut failures, mut limit) = (Vec::new(), Failures::new(), None);
        loop {
            let next = match limit {
                Some(limit) => before(limit, asking.next()).await.unwrap_or_default(),
                None => asking.next().await,
            };
            match next {
                Some(Ok(answer)) => told.push(answer),
                Some(Err(error)) => drop(failures.insert(failures.len(), errors::failed(&error))),
                None => break,
            }
            if told.len() >= needed {
                limit = limit.or(Some(Instant::now() + REST));
            } else if failures.len() > all - majority(all) {
                break;
            }
        }
        if told.len() >= needed {
            Ok(told)
        } else if told.len() >= majority(all) {
            Err(errors::not_forgotten(&failures, all))
        } else {
            Err(errors::no_majority(&failures, all))
        }
    }
}

/// Returns the answer of one server.
async fn one(connection: &mut Connection, command: &Cmd) -> Result<LatchAnswer, Error> {
    let asked = async {
        connection.connect().await?;
        // An answer with many names is longer than one about a lock.
        connection.ask_all(std::slice::from_ref(command)).await
    };
    let answered = before(Instant::now() + TIMEOUT, asked).await;
    let answers = answered.unwrap_or_else(|_| Err(connection.silence()))?;
    answers.first().and_then(latch_answer).ok_or_else(|| connection.malformed())
}

#[async_trait::async_trait(?Send)]
impl Latch for RedlockLatch {
    /// Does nothing: each connection is made with a request to its server.
    async fn connect(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn arrive(&mut self, keep: Duration) -> Result<(), Error> {
        self.ask(Ask::Arrive(keep)).await.map(drop)
    }

    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error> {
        self.ask(Ask::Fail(failure, keep)).await.map(drop)
    }

    async fn forget(&mut self) -> Result<(), Error> {
        self.ask(Ask::Forget).await.map(drop)
    }

    async fn look(&mut self, told: usize) -> Result<Arrivals, Error> {
        self.looked = Instant::now();
        self.ask(Ask::Look(Duration::ZERO, told, DIGESTS)).await.map(|answers| union(&answers, told))
    }

    async fn changed(&mut self) -> Result<(), Error> {
        sleep_until(self.looked + LOOK).await;
        Ok(())
    }

    /// Does nothing: the servers keep nothing about a waiter.
    async fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: &str, failure: Option<&str>) -> LatchAnswer {
        let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        let count = names.len().try_into().expect("few");
        let failure = failure.map(|by| LatchFailure { by: by.to_owned(), reason: String::new() });
        LatchAnswer { digests: names.clone(), arrivals: Arrivals { count, names, failure } }
    }

    #[test]
    fn every_name_counts_that_one_server_has() {
        for (servers, count) in [(&["", ""][..], 0), (&["a", ""], 1), (&["a b", "b c"], 3), (&["a b c", "b"], 3)] {
            let servers: Vec<LatchAnswer> = servers.iter().map(|names| told(names, None)).collect();
            let arrivals = union(&servers, 9);
            assert_eq!(
                (arrivals.count, arrivals.names.len(), arrivals.failure),
                (count, usize::try_from(count).expect("few"), None)
            );
        }
        let full = LatchAnswer {
            arrivals: Arrivals { count: 5000, ..Arrivals::default() },
            digests: vec!["x".to_owned(); 1000],
        };
        assert_eq!(union(&[full, told("a", None)], 9).count, 5000);
        let failed = union(&[told("a", None), told("", Some("b"))], 9);
        assert_eq!(failed.failure.map(|failure| failure.by), Some("b".to_owned()));
    }
}
