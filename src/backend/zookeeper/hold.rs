/*!
A lock that stays taken after it was used (`--min-hold`): a persistent node in a directory next to the lock's,
`/NS/KEY%dlock/OWNER`, says who had it and for how long, and its time of creation since when. Only dlock looks there.

Each holder has a node of its own, because those who hold a lock together may each keep it. What keeps a lock counts as an
entry of the queue before all others.
*/

use std::time::Duration;

use ::zookeeper_client::Stat;

use crate::clock::Instant;
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;

/// A minimum hold that may be over or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    published: Published,
    /// In milliseconds.
    length: u64,
    /// When it is over, in milliseconds since 1970 by the servers' clock.
    until: u64,
}

/// The nodes that keep a lock taken, as a look has listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Listed {
    /// There is no such list: the answer did not come, or the list was used.
    #[default]
    Unknown,
    /// There is no directory for them.
    Nowhere,
    /// These are their names.
    Names(Vec<String>),
}

/// A minimum hold, and when it is over by this host's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Whose it is.
    pub hold: Hold,
    /// When it is over.
    pub over: Instant,
}

impl Hold {
    /// What a node with `data` and `stat` says; none where it says nothing that is known.
    pub(super) fn read(data: &[u8], stat: &Stat) -> Option<Self> {
        let Holder::Dlock(published) = Holder::read(data) else { return None };
        let length = published.hold?;
        let until = u64::try_from(stat.ctime).ok()?.saturating_add(length);
        Some(Self { published: *published, length, until })
    }

    /// The id of the owner whose hold it is; also the name of its node.
    pub(super) fn owner(&self) -> &str {
        &self.published.id
    }

    /// When it is over, in milliseconds since 1970 by the servers' clock.
    pub(super) fn until(&self) -> u64 {
        self.until
    }

    /// How the lock is kept; alone, where that is not known.
    pub(super) fn mode(&self) -> Mode {
        self.published.mode().unwrap_or_default()
    }

    /// The slot that is kept.
    pub(super) fn slot(&self) -> Option<u32> {
        self.published.slot
    }

    /// How long it lasts from `now` on, in milliseconds since 1970 by the servers' clock, and never longer than as a whole.
    pub(super) fn left(&self, now: u64) -> Duration {
        Duration::from_millis(self.until.saturating_sub(now).min(self.length))
    }

    /// Who keeps the lock taken.
    pub(super) fn holder(&self) -> Holder {
        let (until, done) = (Some(self.until), true);
        Holder::Dlock(Box::new(Published { until, done, ..self.published.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A status that says only when the node was made.
    fn stat(ctime: i64) -> Stat {
        Stat {
            czxid: 5,
            mzxid: 5,
            pzxid: 5,
            ctime,
            mtime: ctime + 1_000_000,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        }
    }

    #[test]
    fn a_hold_lasts_from_the_time_at_which_its_node_was_made() {
        let text = r#"{"v":1,"hold":40000,"id":"ab","token":7,"since":1,"mode":"slots3","slot":2,"pid":9}"#;
        let hold = Hold::read(text.as_bytes(), &stat(100_000)).expect("a hold");
        assert_eq!((hold.owner(), hold.mode().slots(), hold.slot()), ("ab", Some(3), Some(2)));
        for (now, left) in [(100_000, 40_000), (139_999, 1), (140_000, 0), (u64::MAX, 0), (1, 40_000)] {
            assert_eq!(hold.left(now), Duration::from_millis(left), "{now}");
        }
        let line = hold.holder().describe(120_000);
        assert!(line.ends_with("finished; kept until 1970-01-01T00:02:20Z (another 20s, --min-hold)"), "{line}");
    }

    #[test]
    fn a_mode_that_is_not_known_keeps_everybody_out() {
        for (mode, expected) in
            [("", Mode::Exclusive), (r#""mode":"shiny","#, Mode::Exclusive), (r#""mode":"shared","#, Mode::Shared)]
        {
            let text = format!(r#"{{"v":2,"hold":1,{mode}"id":"ab"}}"#);
            assert_eq!(Hold::read(text.as_bytes(), &stat(5)).map(|hold| hold.mode()), Some(expected), "{mode}");
        }
    }

    #[test]
    fn what_is_no_hold_holds_nothing() {
        for data in ["", "x", "{}", r#"{"v":1,"id":"ab"}"#, r#"{"v":1,"hold":5}"#, r#"{"hold":7,"id":"ab"}"#] {
            assert_eq!(Hold::read(data.as_bytes(), &stat(5)), None, "{data}");
        }
        assert_eq!(Hold::read(br#"{"v":1,"hold":1,"id":"ab"}"#, &stat(-5)), None);
    }
}
