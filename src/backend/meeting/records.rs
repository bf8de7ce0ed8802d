/*!
Latches and barriers made of small texts beside a lock, for a service that can change several at once, all or nothing,
if they are unchanged since they were read. [`Records`] is the service's part; everything else is here.

The records of a latch are the names that have arrived and the failure, each with its own time to keep. Those of a
barrier are the marks of its parties, each under the party's name, kept for its lease; the rule is in
[`rule`](crate::backend::meeting::rule).
*/

use std::time::Duration;

use crate::backend::error::Error;
use crate::backend::meeting::rule::{Mark, Step, step, to_open};
use crate::backend::meeting::{Arrivals, Barrier, Gathering, Latch, LatchFailure, Meeting, contended};

/// The prefix of a record's name for an arrival.
const ARRIVED: &str = "n";
/// The name of a failure's record, which sorts before those of arrivals.
const FAILURE: &str = "f";
/// Number of times that a look is repeated because the records have changed before it could act.
const LOOKS: usize = 64;
/// The longest time after which a waiter looks again without a notification.
const AGAIN: Duration = Duration::from_secs(10);

/// A text under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The record's name, which is unique in its place.
    pub name: String,
    /// The text.
    pub text: String,
    /// The number of the change that wrote it; later changes have larger numbers.
    pub version: i64,
}

/// A point in a service's history, with which later changes are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The number of the last change there.
    pub version: i64,
    /// The service's time, in microseconds since 1970.
    pub micros: i64,
}

/// The records of one place that have not expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The first records, in the order of their names.
    pub records: Vec<Record>,
    /// Number of all records.
    pub count: u64,
    /// The moment of the look.
    pub moment: Moment,
}

/// The records of one latch or barrier at one service. As with a [`Latch`], every future may be dropped at any point,
/// and every request may be repeated.
#[async_trait::async_trait(?Send)]
pub(crate) trait Records {
    /// Returns the participant and the meeting point.
    fn meeting(&self) -> &Meeting;

    /// Makes sure that there is a connection; does nothing if there is one.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Makes sure that there is a connection on which requests come after all earlier ones.
    async fn connect_in_order(&mut self) -> Result<(), Error> {
        self.connect().await
    }

    /// Reads the first `most` records. If this dlock's record is among them, it lasts for most of a lease from now on.
    async fn read(&mut self, most: usize) -> Result<Page, Error>;

    /// Writes a record in place of an older one; returns `true` if it was written. With `seen`, it lasts for `life`
    /// from that moment on, and is written only if no record of that name was written since, nor removed by this dlock;
    /// otherwise it lasts for `life` from now on, and is always written. With a `life` of zero, the record is removed.
    async fn put(&mut self, name: &str, text: &str, life: Duration, seen: Option<Moment>) -> Result<bool, Error>;

    /// Replaces the texts of these `records`, which were last read at the moment `seen`, if none of them has changed
    /// since; returns `true` if that was done. They do not last longer for that.
    async fn amend(&mut self, records: &[Record], seen: Moment) -> Result<bool, Error>;

    /// Removes all records: at once, or the last ones by name first, so that a latch's failure goes last.
    async fn clear(&mut self) -> Result<(), Error>;

    /// Resolves when something has changed since the last read, and after `at_most`.
    async fn changed(&mut self, at_most: Duration) -> Result<(), Error>;

    /// Returns `true` if [`Records::close`] also removes this dlock's record at a barrier, even one that is on its way.
    fn close_removes(&self) -> bool {
        false
    }

    /// Ends everything at the service that is tied to this process. Best effort; connects by itself if need be.
    async fn close(&mut self) {}
}

/// One dlock at a latch.
pub(crate) struct RecordedLatch(pub Box<dyn Records>);

#[async_trait::async_trait(?Send)]
impl Latch for RecordedLatch {
    async fn connect(&mut self) -> Result<(), Error> {
        self.0.connect().await
    }

    async fn arrive(&mut self, keep: Duration) -> Result<(), Error> {
        let name = format!("{ARRIVED}{}", self.0.meeting().name);
        self.0.put(&name, "", keep, None).await.map(drop)
    }

    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error> {
        self.0.put(FAILURE, &failure.text(), keep, None).await.map(drop)
    }

    async fn forget(&mut self) -> Result<(), Error> {
        self.0.clear().await
    }

    async fn look(&mut self, told: usize) -> Result<Arrivals, Error> {
        let Page { records, count, .. } = self.0.read(told.saturating_add(1)).await?;
        let failed = records.iter().find(|record| record.name == FAILURE);
        let names = records.iter().filter_map(|record| record.name.strip_prefix(ARRIVED));
        Ok(Arrivals {
            count: count.saturating_sub(failed.is_some().into()),
            names: names.take(told).map(str::to_owned).collect(),
            failure: failed.map(|failed| LatchFailure::read(failed.text.as_bytes())),
        })
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.0.changed(AGAIN).await
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

/// One party at a barrier.
pub(crate) struct RecordedBarrier {
    records: Box<dyn Records>,
    own: Mark,
    /// `true` if our mark may have been made.
    has_come: bool,
    /// `true` if a request that makes it may still be on its way.
    is_coming: bool,
}

impl Mark {
    /// Returns the mark in a record; `None` if it has none.
    fn of(record: &Record) -> Option<Self> {
        Some(Self { order: record.version, ..Self::read(&record.name, record.text.as_bytes())? })
    }

    /// Returns its record.
    fn record(&self) -> Record {
        Record { name: self.name.clone(), text: self.text(), version: self.order }
    }
}

impl RecordedBarrier {
    /// Returns a party that waits for this number of `parties`.
    pub(crate) fn new(records: Box<dyn Records>, parties: u32) -> Self {
        let meeting = records.meeting();
        let (name, id) = (meeting.name.clone(), meeting.id.as_str().to_owned());
        Self { records, own: Mark { name, id, parties, ..Mark::default() }, has_come: false, is_coming: false }
    }

    /// Returns the marks that are alive.
    async fn marks(&mut self) -> Result<(Vec<Mark>, Moment), Error> {
        let Page { records, moment, .. } = self.records.read(usize::MAX).await?;
        Ok((records.iter().filter_map(Mark::of).collect(), moment))
    }

    /// Removes our record, even one that is still on its way, unless it has changed since it was `seen`.
    async fn remove(&mut self, seen: Moment) -> Result<bool, Error> {
        self.records.put(&self.own.name, "", Duration::ZERO, Some(seen)).await
    }

    /// Looks until there is something to report, and takes the necessary steps before.
    async fn gather(&mut self, arrives: bool) -> Result<Gathering, Error> {
        for _ in 0..LOOKS {
            let (marks, seen) = self.marks().await?;
            // The next look shows whether it was done.
            match step(&marks, &self.own, arrives) {
                Step::Tell(gathering) => return Ok(gathering),
                Step::Join => {
                    (self.has_come, self.is_coming) = (true, true);
                    let lease = self.records.meeting().lease;
                    self.records.put(&self.own.name, &self.own.text(), lease, Some(seen)).await?;
                    self.is_coming = false;
                }
                Step::Leave(gathering) => {
                    if self.remove(seen).await? {
                        return Ok(gathering);
                    }
                }
                Step::Open => {
                    let opened: Vec<_> = to_open(&marks, &self.own).map(|mark| mark.opened().record()).collect();
                    self.records.amend(&opened, seen).await?;
                }
            }
        }
        Err(contended(&self.records.meeting().key))
    }

    /// Removes our mark. An open mark stays unless `open` is `true`; returns `true` if it stays.
    async fn take_away(&mut self, open: bool) -> Result<bool, Error> {
        if !self.has_come {
            return Ok(false);
        }
        self.records.connect_in_order().await?;
        for _ in 0..LOOKS {
            let (marks, seen) = self.marks().await?;
            let is_done = match marks.iter().find(|mark| mark.name == self.own.name) {
                Some(mark) if mark.id == self.own.id && mark.open && !open => return Ok(true),
                // A newer process has its place. Our arrival, if it is still on its way, finds that it was overtaken.
                Some(mark) if mark.id != self.own.id => {
                    !self.is_coming
                        || self.records.close_removes()
                        || self.records.amend(&[mark.record()], seen).await?
                }
                _ => self.remove(seen).await?,
            };
            if is_done {
                self.has_come = false;
                return Ok(false);
            }
        }
        Err(contended(&self.records.meeting().key))
    }
}

#[async_trait::async_trait(?Send)]
impl Barrier for RecordedBarrier {
    async fn connect(&mut self) -> Result<(), Error> {
        self.records.connect().await
    }

    async fn arrive(&mut self) -> Result<Gathering, Error> {
        self.gather(true).await
    }

    async fn look(&mut self) -> Result<Gathering, Error> {
        self.gather(false).await
    }

    async fn changed(&mut self) -> Result<(), Error> {
        let lease = self.records.meeting().lease;
        self.records.changed(AGAIN.min(lease / 3)).await
    }

    async fn withdraw(&mut self) -> Result<bool, Error> {
        self.take_away(false).await
    }

    async fn close(&mut self) {
        if !self.records.close_removes() {
            // If this fails, the mark ends with its lease.
            let _ = self.take_away(true).await;
        }
        self.records.close().await;
    }
}

#[cfg(test)]
mod tests;
