/*!
Barriers at etcd: the keys `NS/KEY␁meet/NAME`, one mark for each party, with a lease that the party extends. Decisions
based on a look are carried out in a transaction that fails if anything relevant has changed since.
*/

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, TxnOp};

use crate::backend::error::Error;
use crate::backend::etcd::meeting::{Participant, name};
use crate::backend::meeting::rule::{Mark, Step, step};
use crate::backend::meeting::{Barrier, Gathering, contended};
use crate::clock::Instant;

/// Maximum number of looks while concurrent changes invalidate each one before it can be acted on.
const LOOKS: usize = 64;

/// One party at a barrier.
pub(super) struct EtcdBarrier {
    visitor: Participant,
    parties: u32,
    /// The time at which the last request that extended our lease was sent.
    extended: Option<Instant>,
}

impl EtcdBarrier {
    /// A party at a barrier that opens for this number of `parties`.
    pub(super) fn new(visitor: Participant, parties: u32) -> Self {
        Self { visitor, parties, extended: None }
    }

    fn own(&self) -> Mark {
        let meeting = &self.visitor.meeting;
        Mark {
            name: meeting.name.clone(),
            id: meeting.id.as_str().to_owned(),
            parties: self.parties,
            ..Mark::default()
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.visitor.place)
    }

    /// Compares that `key` was not written since the last look, whether or not it exists.
    fn unwritten(&self, key: &str) -> Compare {
        Compare::mod_revision(key, CompareOp::Less, self.visitor.seen + 1)
    }

    /// Reads all marks, each with the revision of its last write as its order.
    async fn marks(&mut self) -> Result<Vec<Mark>, Error> {
        let prefix = self.key("");
        let read = self.visitor.read(vec![TxnOp::get(prefix.as_str(), Some(GetOptions::new().with_prefix()))]).await?;
        let keys = read.into_iter().flat_map(|(keys, _)| keys);
        let mark = |key: KeyValue| {
            let mark = Mark::read(&name(&prefix, key.key()), key.value())?;
            Some(Mark { order: key.mod_revision(), ..mark })
        };
        Ok(keys.filter_map(mark).collect())
    }

    /// Opens the barrier for all `waiting` parties, unless one has left or another has arrived since the last look.
    async fn open(&mut self, waiting: impl Iterator<Item = &Mark> + Clone) -> Result<(), Error> {
        let still_there = |mark: &Mark| Compare::mod_revision(self.key(&mark.name), CompareOp::Equal, mark.order);
        let mut unchanged: Vec<Compare> = waiting.clone().map(still_there).collect();
        unchanged.push(self.unwritten(&self.visitor.place).with_prefix());
        // Each mark stays bound to its party's lease.
        let opened = |mark: &Mark| {
            let options = PutOptions::new().with_ignore_lease();
            TxnOp::put(self.key(&mark.name), mark.opened().text(), Some(options))
        };
        let opened = waiting.map(opened).collect();
        self.visitor.commit(unchanged, opened).await.map(drop)
    }

    /// Looks and carries out the steps that the rule asks for, until there is a result to report.
    async fn gather(&mut self, arrives: bool) -> Result<Gathering, Error> {
        let own = self.own();
        for _ in 0..LOOKS {
            let marks = self.marks().await?;
            let key = self.key(&own.name);
            // The next look shows whether the transaction went through.
            match step(&marks, &own, arrives) {
                Step::Tell(gathering) => return Ok(gathering),
                Step::Join => {
                    let options = PutOptions::new().with_lease(self.visitor.lease);
                    let put = TxnOp::put(key.as_str(), own.text(), Some(options));
                    self.visitor.commit(vec![self.unwritten(&key)], vec![put]).await?;
                }
                Step::Leave(gathering) => {
                    let unwritten = vec![self.unwritten(&key)];
                    if self.visitor.commit(unwritten, vec![TxnOp::delete(key, None)]).await? {
                        return Ok(gathering);
                    }
                }
                Step::Open => self.open(marks.iter().filter(|mark| mark.waits_with(&own))).await?,
            }
        }
        Err(contended(&self.visitor.meeting.key))
    }
}

#[async_trait::async_trait(?Send)]
impl Barrier for EtcdBarrier {
    async fn connect(&mut self) -> Result<(), Error> {
        self.visitor.cluster.connect().await
    }

    async fn arrive(&mut self) -> Result<Gathering, Error> {
        let sent = Instant::now();
        self.visitor.keep_lease(self.visitor.meeting.lease).await?;
        self.extended = Some(sent);
        self.gather(true).await
    }

    async fn look(&mut self) -> Result<Gathering, Error> {
        let (now, enough) = (Instant::now(), self.visitor.meeting.lease / 6);
        // Each arrival causes a look, but not every look needs to extend the lease.
        if self.extended.is_none_or(|extended| now >= extended + enough) {
            if !self.visitor.extend().await? {
                // Our mark has ended with its lease.
                return Ok(Gathering::Gone);
            }
            self.extended = Some(now);
        }
        self.gather(false).await
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.visitor.changed(self.visitor.meeting.lease / 3).await
    }

    async fn withdraw(&mut self) -> Result<bool, Error> {
        self.visitor.cluster.connect().await?;
        let own = self.own();
        for _ in 0..LOOKS {
            let there = self.marks().await?.into_iter().find(|mark| mark.name == own.name && mark.id == own.id);
            let Some(mark) = there else { return Ok(false) };
            if mark.open {
                return Ok(true);
            }
            let key = self.key(&own.name);
            let unwritten = vec![self.unwritten(&key)];
            if self.visitor.commit(unwritten, vec![TxnOp::delete(key, None)]).await? {
                return Ok(false);
            }
        }
        Err(contended(&self.visitor.meeting.key))
    }

    async fn close(&mut self) {
        if self.visitor.cluster.connect().await.is_ok() {
            // If this fails, the mark disappears when its lease ends.
            let _ = self.visitor.revoke(self.visitor.lease).await;
        }
    }
}
