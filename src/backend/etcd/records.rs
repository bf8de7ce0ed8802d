/*!
The records of latches and barriers at etcd: see [`records`](crate::backend::meeting::records). They are the keys
`NS/KEY␁latch/NAME` and `NS/KEY␁meet/NAME`: no lock's, because a control character follows the lock's name, and no name
contains one. Each has its writer's lease, and the parties of a barrier extend theirs. The revision of a key's last
write is its version.
*/

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, LeaseGrantOptions, LeaseTimeToLiveOptions,
    PutOptions, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchStream,
};
use futures_util::future::join_all;

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::lease_of;
use crate::backend::etcd::session::seconds;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::{Moment, Page, Record, Records};
use crate::clock::{Instant, before};

/// The number of former records whose leases are ended at the same time.
const AT_ONCE: usize = 50;
/// Time limit for opening a watch.
const WATCHED: Duration = Duration::from_secs(2);

/// The records of one latch or barrier, for one dlock.
pub(super) struct EtcdRecords {
    cluster: Cluster,
    meeting: Meeting,
    /// The prefix of the records' keys.
    prefix: String,
    /// Our lease.
    lease: i64,
    /// The time at which our lease was last granted or extended; `None` if it has ended.
    granted: Option<Instant>,
    /// `true` if a record that stays may have been written under our lease, perhaps in place of an older one.
    stays: bool,
    /// The revision of the last read.
    seen: i64,
    /// The watch on changes, and the number of its connection, without which it reports nothing more.
    watch: Option<(WatchStream, u64)>,
}

impl EtcdRecords {
    /// The records of a latch or barrier; `what` names it in the keys. Not connected yet.
    pub(super) fn new(cluster: Cluster, meeting: Meeting, what: &str) -> Self {
        let claim = Claim::like(&meeting);
        let prefix = format!("{}\u{1}{what}/", claim.namespace.join('/', &claim.key));
        let lease = lease_of(meeting.id.as_str());
        Self { cluster, meeting, prefix, lease, granted: None, stays: false, seen: 0, watch: None }
    }

    /// Grants our lease, or restarts it if it exists; it lasts for at least the `length` of its grant.
    async fn keep_lease(&mut self, length: Duration) -> Result<(), Error> {
        self.granted = Some(Instant::now());
        let (lease, options) = (self.lease, LeaseGrantOptions::new().with_id(self.lease));
        let length = seconds(length);
        match self.cluster.ask(|mut client| async move { client.lease_grant(length, Some(options)).await }).await {
            Ok(granted) => self.cluster.same_lease(lease, granted.id()),
            Err(Fault::LeaseKnown(_)) => self.extend().await,
            Err(fault) => Err(fault.into()),
        }
    }

    /// Extends our lease, if it has not ended.
    async fn extend(&mut self) -> Result<(), Error> {
        let (lease, now) = (self.lease, Instant::now());
        let asked = self.cluster.ask(|mut client| async move { client.lease_keep_alive(lease).await });
        self.granted = match asked.await {
            Ok((keeper, _)) => self.cluster.same_lease(lease, keeper.id()).map(|()| Some(now))?,
            Err(Fault::NoLease(_)) => None,
            Err(fault) => return Err(fault.into()),
        };
        Ok(())
    }

    /// Revokes a lease, which deletes all keys bound to it.
    async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        match self.cluster.ask(|mut client| async move { client.lease_revoke(lease).await }).await {
            Ok(_) | Err(Fault::NoLease(_)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Revokes the leases of former records, except those to which other keys are bound. If this fails, they expire by
    /// themselves.
    async fn end_leases_of(&mut self, former: &[KeyValue]) {
        let leases: Vec<i64> = former.iter().map(KeyValue::lease).filter(|&it| it != 0 && it != self.lease).collect();
        let end = |mut client: Client, lease: i64| async move {
            let options = LeaseTimeToLiveOptions::new().with_keys();
            if client.lease_time_to_live(lease, Some(options)).await.is_ok_and(|found| found.keys().is_empty()) {
                let _ = client.lease_revoke(lease).await;
            }
        };
        for some in leases.chunks(AT_ONCE) {
            let Some(client) = self.cluster.client() else { return };
            join_all(some.iter().map(|&lease| end(client.clone(), lease))).await;
        }
    }

    /// Puts these texts, all or none, if all of `unchanged` holds. Returns the former records; `None` if it does not.
    async fn put_all(&mut self, unchanged: Vec<Compare>, puts: Vec<TxnOp>) -> Result<Option<Vec<KeyValue>>, Fault> {
        let transaction = Txn::new().when(unchanged).and_then(puts);
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        // The library assumes that all responses are present.
        if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
            return Err(self.cluster.malformed().into());
        }
        let former = answer.op_responses().into_iter().filter_map(|operation| match operation {
            TxnOpResponse::Put(mut put) => put.take_prev_key(),
            _ => None,
        });
        Ok(answer.succeeded().then(|| former.collect()))
    }
}

#[async_trait::async_trait(?Send)]
impl Records for EtcdRecords {
    fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.cluster.connect().await
    }

    async fn read(&mut self, most: usize) -> Result<Page, Error> {
        // Each arrival causes a look, but not every look needs to extend the lease.
        if self.granted.is_some_and(|granted| Instant::now() >= granted + self.meeting.lease / 6) {
            self.extend().await?;
        }
        // No limit is 0.
        let options = GetOptions::new().with_prefix().with_limit(i64::try_from(most).unwrap_or_default());
        let prefix = self.prefix.clone();
        let asked = self.cluster.ask(|mut client| async move { client.get(prefix, Some(options)).await });
        let answer = asked.await?;
        self.seen = answer.header().ok_or_else(|| self.cluster.malformed())?.revision();
        let record = |kv: &KeyValue| {
            let name = kv.key().strip_prefix(self.prefix.as_bytes())?;
            let [name, text] = [name, kv.value()].map(|text| String::from_utf8_lossy(text).into_owned());
            Some(Record { name, text, version: kv.mod_revision() })
        };
        Ok(Page {
            records: answer.kvs().iter().filter_map(record).collect(),
            count: u64::try_from(answer.count()).unwrap_or_default(),
            moment: Moment { version: self.seen, micros: 0 },
        })
    }

    /// A record to be removed is first emptied, so that a request which has seen less fails, and then ends with its
    /// lease.
    async fn put(&mut self, name: &str, text: &str, life: Duration, seen: Option<Moment>) -> Result<bool, Error> {
        let removes = life.is_zero();
        if !removes {
            self.keep_lease(life).await?;
        }
        let key = format!("{}{name}", self.prefix);
        let unwritten = |seen: Moment| Compare::mod_revision(key.as_str(), CompareOp::Less, seen.version + 1);
        let options = PutOptions::new().with_lease(self.lease).with_prev_key();
        self.stays |= seen.is_none();
        let put = TxnOp::put(key.as_str(), if removes { "" } else { text }, Some(options));
        match self.put_all(seen.map(unwritten).into_iter().collect(), vec![put]).await {
            Ok(None) => return Ok(false),
            Ok(Some(_)) if removes => {
                self.revoke(self.lease).await?;
                self.granted = None;
            }
            Ok(Some(former)) if seen.is_none() => self.end_leases_of(&former).await,
            Ok(Some(_)) => {}
            // Our record has ended with its lease.
            Err(Fault::NoLease(_)) if removes => {}
            Err(fault) => return Err(fault.into()),
        }
        Ok(true)
    }

    async fn amend(&mut self, records: &[Record], _seen: Moment) -> Result<bool, Error> {
        let key = |record: &Record| format!("{}{}", self.prefix, record.name);
        let unchanged = |record: &Record| Compare::mod_revision(key(record), CompareOp::Equal, record.version);
        let options = PutOptions::new().with_ignore_lease();
        let put = |record: &Record| TxnOp::put(key(record), record.text.as_str(), Some(options.clone()));
        let (unchanged, puts) = (records.iter().map(unchanged).collect(), records.iter().map(put).collect());
        Ok(self.put_all(unchanged, puts).await?.is_some())
    }

    async fn clear(&mut self) -> Result<(), Error> {
        let (prefix, options) = (self.prefix.clone(), DeleteOptions::new().with_prefix().with_prev_key());
        let asked = self.cluster.ask(|mut client| async move { client.delete(prefix, Some(options)).await });
        let former = asked.await?.take_prev_kvs();
        self.end_leases_of(&former).await;
        Ok(())
    }

    async fn changed(&mut self, at_most: Duration) -> Result<(), Error> {
        let link = self.cluster.links();
        let known = self.watch.take().filter(|(_, of)| *of == link);
        let mut works = known.is_some();
        let mut stream = if let Some((stream, _)) = known {
            stream
        } else {
            let options = WatchOptions::new().with_prefix().with_start_revision(self.seen + 1);
            let prefix = self.prefix.clone();
            let opened = self.cluster.ask(|mut client| async move { client.watch(prefix, Some(options)).await });
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

    fn close_removes(&self) -> bool {
        true
    }

    /// Revokes our lease, unless a record is to stay: a request that needs it and arrives later fails.
    async fn close(&mut self) {
        if self.granted.take().is_some() && !self.stays && self.cluster.connect().await.is_ok() {
            // If this fails, it expires by itself.
            let _ = self.revoke(self.lease).await;
        }
    }
}
