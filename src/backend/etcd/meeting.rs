/*!
What latches and barriers at etcd have in common: keys that no lock has, because a control character follows the lock's name,
which none contains.
*/

use std::time::Duration;

use etcd_client::{Compare, KeyValue, LeaseGrantOptions, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchStream};

use crate::backend::Claim;
use crate::backend::error::Error;
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::lease_of;
use crate::backend::meeting::Meeting;
use crate::clock::{Instant, before};

/// How long the beginning of a watch may take.
const WATCHED: Duration = Duration::from_secs(2);
/// The control character between a key and what is next to its lock.
pub(super) const BESIDE: char = '\u{1}';

/// The name at the end of a key below `prefix`.
pub(super) fn name(prefix: &str, key: &[u8]) -> String {
    String::from_utf8_lossy(key.strip_prefix(prefix.as_bytes()).unwrap_or(key)).into_owned()
}

/// The way to the cluster, and who takes part.
pub(super) struct Visitor {
    pub cluster: Cluster,
    /// Who takes part, and in what.
    pub meeting: Meeting,
    /// The beginning of all keys of the latch or barrier.
    pub place: String,
    /// Our lease.
    pub lease: i64,
    /// The revision of the last look.
    pub seen: i64,
    /// What reports changes, and the connection that it came by: it says nothing more once that was given up.
    watch: Option<(WatchStream, u64)>,
}

impl Visitor {
    /// One dlock at what is called `what` beside the lock of its key; not connected yet.
    pub(super) fn new(cluster: Cluster, meeting: Meeting, what: &str) -> Self {
        let claim = Claim::like(&meeting);
        let place = format!("{}{BESIDE}{what}", claim.namespace.join('/', &claim.key));
        let lease = lease_of(meeting.id.as_str());
        Self { cluster, meeting, place, lease, seen: 0, watch: None }
    }

    /// Makes sure that our lease is there, and counts from now; it lasts for `length` at least.
    pub(super) async fn keep_lease(&mut self, length: Duration) -> Result<(), Error> {
        // Whole seconds are all there is.
        let seconds = i64::try_from(length.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let (lease, options) = (self.lease, LeaseGrantOptions::new().with_id(self.lease));
        let asked = self.cluster.ask(|mut client| async move { client.lease_grant(seconds, Some(options)).await });
        match asked.await {
            Ok(granted) => self.cluster.same_lease(lease, granted.id()),
            // It was granted before.
            Err(Fault::LeaseKnown(_)) => self.extend().await.map(drop),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Extends our lease; false where there is none.
    pub(super) async fn extend(&mut self) -> Result<bool, Error> {
        let lease = self.lease;
        match self.cluster.ask(|mut client| async move { client.lease_keep_alive(lease).await }).await {
            Ok((keeper, _)) => self.cluster.same_lease(lease, keeper.id()).map(|()| true),
            Err(Fault::NoLease(_)) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Ends a lease, with all that is bound to it.
    pub(super) async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        match self.cluster.ask(|mut client| async move { client.lease_revoke(lease).await }).await {
            Ok(_) | Err(Fault::NoLease(_)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// What these operations read, all at one revision: the keys of each, and how many there are.
    pub(super) async fn read(&mut self, operations: Vec<TxnOp>) -> Result<Vec<(Vec<KeyValue>, i64)>, Error> {
        let transaction = Txn::new().and_then(operations);
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        // The library takes for granted that each of them is there.
        if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
            return Err(self.cluster.malformed());
        }
        self.seen = answer.header().ok_or_else(|| self.cluster.malformed())?.revision();
        let read = answer.op_responses().into_iter().map(|operation| match operation {
            TxnOpResponse::Get(mut get) => (get.take_kvs(), get.count()),
            _ => (Vec::new(), 0),
        });
        Ok(read.collect())
    }

    /// Does all of `operations` if all of `unchanged` holds; says whether it did.
    pub(super) async fn commit(&mut self, unchanged: Vec<Compare>, operations: Vec<TxnOp>) -> Result<bool, Error> {
        let transaction = Txn::new().when(unchanged).and_then(operations);
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        Ok(answer.succeeded())
    }

    /// Resolves when one of our keys was changed after the last look, and after `at_most`.
    pub(super) async fn changed(&mut self, at_most: Duration) -> Result<(), Error> {
        let link = self.cluster.links();
        let known = self.watch.take().filter(|(_, of)| *of == link);
        let mut works = known.is_some();
        let mut stream = if let Some((stream, _)) = known {
            stream
        } else {
            let options = WatchOptions::new().with_prefix().with_start_revision(self.seen + 1);
            let place = self.place.clone();
            let opened = self.cluster.ask(|mut client| async move { client.watch(place, Some(options)).await });
            match before(Instant::now() + WATCHED, opened).await {
                Ok(stream) => stream?,
                Err(_) => return Err(self.cluster.silence()),
            }
        };
        let end = Instant::now() + at_most;
        loop {
            match before(end, stream.message()).await {
                Ok(Ok(Some(message))) if message.events().is_empty() && !message.canceled() => works = true,
                Err(_) => break,
                Ok(Ok(Some(message))) if !message.canceled() => break,
                // Compacted, or the member is gone: a look tells what is true.
                Ok(_) => {
                    self.cluster.drop_link();
                    return if works { Ok(()) } else { Err(errors::no_watch()) };
                }
            }
        }
        self.watch = Some((stream, link));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_follows_the_place() {
        assert_eq!(name("dlock/k\u{1}latch/", b"dlock/k\x01latch/a/b"), "a/b");
        assert_eq!(name("x/", b"y"), "y");
    }
}
