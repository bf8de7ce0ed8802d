/*!
Latches at etcd: the keys `NS/KEY␁latch/NAME`, one for each name that has arrived, and `NS/KEY␁latch␁failed`, each with
a lease that lasts as long as it is kept.
*/

use std::time::Duration;

use etcd_client::{DeleteOptions, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, TxnOp};
use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::backend::etcd::meeting::{BESIDE, Participant, name};
use crate::backend::etcd::names::lease_of;
use crate::backend::meeting::{Arrivals, Latch, LatchFailure};

/// Interval at which a waiter looks again if no change is reported.
const LOOK: Duration = Duration::from_secs(10);

/// The record of one arrived name, or of a failure.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct LatchRecord {
    /// The writer's id, from which its lease is derived.
    id: String,
    #[serde(flatten)]
    failure: LatchFailure,
}

/// The lease of a key if it was granted for this key; `None` for another client's, to which other keys may be bound.
fn own_lease(key: &KeyValue) -> Option<i64> {
    let kept: LatchRecord = serde_json::from_slice(key.value()).ok()?;
    (!kept.id.is_empty() && key.lease() == lease_of(&kept.id)).then_some(key.lease())
}

/// One process at a latch.
pub(super) struct EtcdLatch {
    visitor: Participant,
    /// Our lease may exist without a key that needs it.
    is_loose: bool,
}

impl EtcdLatch {
    /// A latch at which nothing was read or written yet.
    pub(super) fn new(visitor: Participant) -> Self {
        Self { visitor, is_loose: false }
    }

    fn failed(&self) -> String {
        format!("{}{BESIDE}failed", self.visitor.place)
    }

    /// Writes `failure` to `key` for the time `keep`, and revokes the lease of a record that dlock wrote there before.
    async fn write(&mut self, key: String, failure: LatchFailure, keep: Duration) -> Result<(), Error> {
        let visitor = &mut self.visitor;
        self.is_loose = true;
        visitor.keep_lease(keep).await?;
        let kept = LatchRecord { id: visitor.meeting.id.as_str().to_owned(), failure };
        // A struct of texts always serializes.
        let text = serde_json::to_string(&kept).unwrap_or_default();
        let options = PutOptions::new().with_lease(visitor.lease).with_prev_key();
        let asked = visitor.cluster.ask(|mut client| async move { client.put(key, text, Some(options)).await });
        let earlier = asked.await?.take_prev_key();
        self.is_loose = false;
        if let Some(lease) = earlier.as_ref().and_then(own_lease).filter(|&lease| lease != visitor.lease) {
            // No key is bound to it any more. If this fails, it expires by itself.
            let _ = visitor.revoke(lease).await;
        }
        Ok(())
    }
}

#[async_trait::async_trait(?Send)]
impl Latch for EtcdLatch {
    async fn connect(&mut self) -> Result<(), Error> {
        self.visitor.cluster.connect().await
    }

    async fn arrive(&mut self, keep: Duration) -> Result<(), Error> {
        let key = format!("{}/{}", self.visitor.place, self.visitor.meeting.name);
        self.write(key, LatchFailure::default(), keep).await
    }

    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error> {
        self.write(self.failed(), failure.clone(), keep).await
    }

    async fn forget(&mut self) -> Result<(), Error> {
        let (place, options) = (self.visitor.place.clone(), DeleteOptions::new().with_prefix().with_prev_key());
        let asked = self.visitor.cluster.ask(|mut client| async move { client.delete(place, Some(options)).await });
        let gone = asked.await?.take_prev_kvs();
        for lease in gone.iter().filter_map(own_lease) {
            // If this fails, it expires by itself.
            let _ = self.visitor.revoke(lease).await;
        }
        Ok(())
    }

    async fn look(&mut self, told: usize) -> Result<Arrivals, Error> {
        let prefix = format!("{}/", self.visitor.place);
        let told = i64::try_from(told).unwrap_or(i64::MAX);
        let oldest = GetOptions::new().with_prefix().with_keys_only().with_limit(told);
        let oldest = oldest.with_sort(SortTarget::Create, SortOrder::Ascend);
        let read =
            self.visitor.read(vec![TxnOp::get(prefix.as_str(), Some(oldest)), TxnOp::get(self.failed(), None)]).await?;
        let [(names, count), (failed, _)] = read.as_slice() else { return Err(self.visitor.cluster.malformed()) };
        let failure = failed.first().map(|failed| LatchFailure::read(failed.value()));
        let names = names.iter().map(|key| name(&prefix, key.key())).collect();
        Ok(Arrivals { count: u64::try_from(*count).unwrap_or_default(), names, failure })
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.visitor.changed(LOOK).await
    }

    /// Revokes a lease that no key needs; the servers keep no state for a process that only looks.
    async fn close(&mut self) {
        if self.is_loose && self.visitor.cluster.connect().await.is_ok() {
            // If this fails, it expires by itself.
            let _ = self.visitor.revoke(self.visitor.lease).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_says_whose_it_is_and_is_a_failure_to_those_who_read_one() {
        let failure = LatchFailure { by: "unit".to_owned(), reason: "red".to_owned() };
        let text = serde_json::to_string(&LatchRecord { id: "1f".to_owned(), failure: failure.clone() }).expect("text");
        assert_eq!(LatchFailure::read(text.as_bytes()), failure);
        assert_eq!(serde_json::from_slice::<LatchRecord>(text.as_bytes()).expect("kept").id, "1f");
    }
}
