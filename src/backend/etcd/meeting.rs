/*!
The common part of latches and barriers at etcd: their keys are no lock's, because a control character follows the
lock's name, and no name contains one.
*/

use std::time::Duration;

use etcd_client::{Compare, KeyValue, LeaseGrantOptions, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchStream};

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::lease_of;
use crate::backend::meeting::Meeting;
use crate::clock::{Instant, before};

/// Time limit for opening a watch.
const WATCHED: Duration = Duration::from_secs(2);
/// The control character between a lock's key and the name of a record beside it.
pub(super) const BESIDE: char = '\u{1}';

/// The name at the end of a key below `prefix`.
pub(super) fn name(prefix: &str, key: &[u8]) -> String {
    String::from_utf8_lossy(key.strip_prefix(prefix.as_bytes()).unwrap_or(key)).into_owned()
}

/// One participant of a latch or barrier, with its access to the cluster.
pub(super) struct Participant {
    pub cluster: Cluster,
    /// The participant and its latch or barrier.
    pub meeting: Meeting,
    /// The prefix of all keys of the latch or barrier.
    pub place: String,
    /// Our lease.
    pub lease: i64,
    /// The revision of the last look.
    pub seen: i64,
    /// The watch on changes, and the number of its connection, without which it reports nothing more.
    watch: Option<(WatchStream, u64)>,
}

impl Participant {
    /// A participant of a latch or barrier; `what` names it in the keys beside the lock. Not connected yet.
    pub(super) fn new(cluster: Cluster, meeting: Meeting, what: &str) -> Self {
        let claim = Claim::like(&meeting);
        let place = format!("{}{BESIDE}{what}", claim.namespace.join('/', &claim.key));
        let lease = lease_of(meeting.id.as_str());
        Self { cluster, meeting, place, lease, seen: 0, watch: None }
    }

    /// Grants our lease, or restarts it if it exists; it lasts for at least the `length` of its grant.
    pub(super) async fn keep_lease(&mut self, length: Duration) -> Result<(), Error> {
        // etcd counts leases in whole seconds.
        let seconds = i64::try_from(length.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let (lease, options) = (self.lease, LeaseGrantOptions::new().with_id(self.lease));
        let asked = self.cluster.ask(|mut client| async move { client.lease_grant(seconds, Some(options)).await });
        match asked.await {
            Ok(granted) => self.cluster.same_lease(lease, granted.id()),
            // The lease exists already.
            Err(Fault::LeaseKnown(_)) => self.extend().await.map(drop),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Extends our lease. Returns `false` if it does not exist.
    pub(super) async fn extend(&mut self) -> Result<bool, Error> {
        let lease = self.lease;
        match self.cluster.ask(|mut client| async move { client.lease_keep_alive(lease).await }).await {
            Ok((keeper, _)) => self.cluster.same_lease(lease, keeper.id()).map(|()| true),
            Err(Fault::NoLease(_)) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Revokes a lease, which deletes all keys bound to it.
    pub(super) async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        match self.cluster.ask(|mut client| async move { client.lease_revoke(lease).await }).await {
            Ok(_) | Err(Fault::NoLease(_)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Reads all ranges at one revision. Returns the keys of each, and the number of keys in the range.
    pub(super) async fn read(&mut self, operations: Vec<TxnOp>) -> Result<Vec<(Vec<KeyValue>, i64)>, Error> {
        let transaction = Txn::new().and_then(operations);
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        // The library assumes that all responses are present.
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

    /// Carries out all `operations` if all of `unchanged` holds. Returns `true` if it did.
    pub(super) async fn commit(&mut self, unchanged: Vec<Compare>, operations: Vec<TxnOp>) -> Result<bool, Error> {
        let transaction = Txn::new().when(unchanged).and_then(operations);
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        Ok(answer.succeeded())
    }

    /// Resolves when one of the keys was changed after the last look, or after `at_most` at the latest.
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
                // Compacted, or the member is gone: a look shows the current state.
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
