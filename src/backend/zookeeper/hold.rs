/*!
A lock that stays taken after it was used (`--min-hold`): a persistent node beside the lock's directory, `/NS/KEY%dlock`,
says who had it and for how long, and its time of modification since when. Only dlock looks there.

No key has a bare `%` in its spelling, so this is no other lock's directory.
*/

use std::time::Duration;

use ::zookeeper_client::{Error as ZkError, Stat};
use serde::Deserialize;

use crate::backend::zookeeper::nodes::absent;
use crate::clock::Instant;
use crate::holder::{Holder, Published};

/// What the node says: a list, of which only the first entry counts so far.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    holds: Vec<Published>,
}

/// What a look has seen of an earlier holder's minimum hold.
#[derive(Debug, Default)]
pub(super) enum SeenHold {
    /// Nothing that counts: the answer did not come, or was used.
    #[default]
    Not,
    /// This is what the node said, if there was one.
    Read(Option<Hold>),
}

impl SeenHold {
    /// What an answer from the node says; none where it was not asked.
    pub(super) fn of(answer: Option<Result<(Vec<u8>, Stat), ZkError>>) -> Self {
        match answer.map(absent) {
            Some(Ok(read)) => Self::Read(read.and_then(|(data, stat)| Hold::read(&data, &stat))),
            Some(Err(_)) | None => Self::Not,
        }
    }
}

/// How far our own minimum hold is written down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum OwnHold {
    /// It was not asked for.
    #[default]
    Unasked,
    /// It was asked for, and there was no answer.
    Asked,
    /// It is written down, and certainly over at this instant.
    Until(Instant),
}

/// A minimum hold that may be over or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    published: Box<Published>,
    /// In milliseconds.
    length: u64,
    /// When it is over, in milliseconds since 1970 by the servers' clock.
    until: u64,
    /// The node's version when it said this.
    pub version: i32,
}

impl Hold {
    /// What a node with `data` and `stat` says; none where it says nothing that is known.
    pub(super) fn read(data: &[u8], stat: &Stat) -> Option<Self> {
        let record: Record = serde_json::from_slice(data).ok()?;
        let published = Box::new(record.holds.into_iter().next()?);
        let length = published.hold?;
        let until = u64::try_from(stat.mtime).ok()?.saturating_add(length);
        Some(Self { published, length, until, version: stat.version })
    }

    /// What the node says of the holder that has published `text`.
    pub(super) fn text(text: &str) -> String {
        format!("{{\"v\":1,\"holds\":[{text}]}}")
    }

    /// Whether it is that of the owner `id`.
    pub(super) fn is_of(&self, id: &str) -> bool {
        self.published.id == id
    }

    /// How long it lasts from `now` on, in milliseconds since 1970 by the servers' clock, and never longer than as a whole;
    /// none when it is over.
    pub(super) fn left(&self, now: u64) -> Option<Duration> {
        let left = self.until.saturating_sub(now).min(self.length);
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// Who keeps the lock taken.
    pub(super) fn holder(self) -> Holder {
        let mut published = self.published;
        (published.until, published.done) = (Some(self.until), true);
        Holder::Dlock(published)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(mtime: i64) -> Stat {
        // Any status will do but for its time.
        Stat {
            czxid: 5,
            mzxid: 5,
            pzxid: 5,
            ctime: mtime,
            mtime,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        }
    }

    #[test]
    fn a_hold_lasts_from_the_time_at_which_it_was_written() {
        let text = Hold::text(r#"{"v":1,"hold":40000,"id":"ab","token":7,"since":1,"pid":9}"#);
        let hold = Hold::read(text.as_bytes(), &stat(100_000)).expect("a hold");
        assert!(hold.is_of("ab") && !hold.is_of("abc"));
        for (now, left) in [(100_000, Some(40_000)), (139_999, Some(1)), (140_000, None), (1, Some(40_000))] {
            assert_eq!(hold.left(now), left.map(Duration::from_millis), "{now}");
        }
        let line = hold.holder().describe(120_000);
        assert!(line.ends_with("finished; kept until 1970-01-01T00:02:20Z (another 20s, --min-hold)"), "{line}");
    }

    #[test]
    fn what_is_no_hold_holds_nothing() {
        for data in ["", "x", "{}", r#"{"v":1,"holds":[]}"#, r#"{"v":1,"holds":[{"id":"ab"}]}"#, r#"{"holds":7}"#] {
            assert_eq!(Hold::read(data.as_bytes(), &stat(5)), None, "{data}");
        }
        let text = Hold::text(r#"{"hold":1,"id":"ab"}"#);
        assert_eq!(Hold::read(text.as_bytes(), &stat(-5)), None);
    }
}
