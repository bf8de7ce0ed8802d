/*!
Latches on one host: a file with the names that have arrived, and the latch's failure, if any. Entries past their time
to keep do not count; `forget` removes the file.
*/

use std::fs::File;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::backend::file::errors;
use crate::backend::file::meeting::{Board, is_ours, read, write};
use crate::backend::meeting::{Arrivals, Latch, LatchFailure};
use crate::clock::wall_millis;

/// The content of a latch's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// The names that have arrived, oldest first. The field's name in the file is older.
    #[serde(rename = "downs")]
    arrivals: Vec<Arrival>,
    /// The failure, if the latch has failed.
    failed: Option<Failed>,
}

/// A name that has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Arrival {
    name: String,
    /// The end of its validity, in milliseconds since 1970.
    until: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Failed {
    #[serde(flatten)]
    failure: LatchFailure,
    /// The end of its validity, in milliseconds since 1970.
    until: u64,
}

impl Record {
    /// Drops entries that no longer count at `now`.
    fn at(mut self, now: u64) -> Self {
        self.arrivals.retain(|arrival| arrival.until > now);
        self.failed = self.failed.filter(|failed| failed.until > now);
        self
    }

    /// Records the arrival of `name`, valid until this time.
    fn put(&mut self, name: &str, until: u64) {
        match self.arrivals.iter_mut().find(|arrival| arrival.name == name) {
            Some(arrival) => arrival.until = until,
            None => self.arrivals.push(Arrival { name: name.to_owned(), until }),
        }
    }

    /// Returns the arrivals as one look reports them, with at most `most` names.
    fn told(self, most: usize) -> Arrivals {
        Arrivals {
            count: self.arrivals.len().try_into().unwrap_or(u64::MAX),
            names: self.arrivals.into_iter().take(most).map(|arrival| arrival.name).collect(),
            failure: self.failed.map(|failed| failed.failure),
        }
    }
}

/// Returns `true` if the file is that of a latch with a name or a failure that counts.
pub(super) fn is_in_use(file: &File) -> bool {
    // A writer may have been in the middle of its work.
    let record = read::<Record>(file).or_else(|_| read(file)).map(|record| record.at(wall_millis()));
    record.is_ok_and(|record| record.failed.is_some() || !record.arrivals.is_empty())
}

/// One dlock at a latch.
#[derive(Debug)]
pub(super) struct FileLatch(pub Board);

impl FileLatch {
    /// Changes the content of the file.
    async fn change(&mut self, keep: Duration, change: impl FnOnce(&mut Record, u64)) -> Result<(), Error> {
        let now = wall_millis();
        let until = now.saturating_add(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
        let work = |file: &std::fs::File| {
            let mut record = read::<Record>(file)?.at(now);
            change(&mut record, until);
            write(file, &record)
        };
        self.0.with(true, work).await.map(drop)
    }
}

#[async_trait::async_trait(?Send)]
impl Latch for FileLatch {
    async fn connect(&mut self) -> Result<(), Error> {
        self.0.find()
    }

    async fn arrive(&mut self, keep: Duration) -> Result<(), Error> {
        let name = self.0.meeting.name.clone();
        self.change(keep, |record, until| record.put(&name, until)).await
    }

    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error> {
        let failure = failure.clone();
        self.change(keep, |record, until| record.failed = Some(Failed { failure, until })).await
    }

    async fn forget(&mut self) -> Result<(), Error> {
        self.0.find()?;
        if self.0.is_there() {
            let forget = |file: &File| match is_ours(file) {
                Ok(true) => write(file, &Record::default()).map(|()| true),
                Ok(false) => Err(errors::NOT_OURS.to_owned()),
                Err(error) => Err(errors::unread(&error)),
            };
            self.0.with_or_without(forget).await
        } else {
            Ok(())
        }
    }

    async fn look(&mut self, told: usize) -> Result<Arrivals, Error> {
        let record = self.0.with(false, read::<Record>).await?.unwrap_or_default();
        Ok(record.at(wall_millis()).told(told))
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.0.changed().await;
        Ok(())
    }

    /// Does nothing: the file does not record who looks.
    async fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_once_and_for_as_long_as_it_is_kept() {
        let mut record = Record::default();
        record.put("a", 10);
        record.put("b", 20);
        record.put("a", 15);
        for (now, count, names) in [(0, 2, &["a", "b"][..]), (14, 2, &["a", "b"]), (15, 1, &["b"]), (20, 0, &[])] {
            let told = record.clone().at(now).told(9);
            assert_eq!(
                (told.count, told.names.iter().map(String::as_str).collect::<Vec<_>>()),
                (count, names.to_vec())
            );
        }
        record.failed =
            Some(Failed { failure: LatchFailure { by: "a".to_owned(), ..LatchFailure::default() }, until: 10 });
        let text = serde_json::to_string(&record).expect("text");
        assert_eq!(serde_json::from_str::<Record>(&text).expect("record"), record);
        assert_eq!(record.clone().at(9).told(9).failure.map(|failure| failure.by), Some("a".to_owned()));
        assert_eq!(record.at(10).told(9).failure, None);
    }
}
