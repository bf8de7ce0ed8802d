/*!
A lock that stays taken after its use (`--min-hold`): a persistent node `/NS/KEY%dlock/OWNER` in a directory next to the
lock's gives the holder and the length of the hold, and its creation time the start. Only dlock looks there.

Each holder has its own node, because co-holders may each keep the lock. A minimum hold precedes all other entries.
*/

use std::time::Duration;

use ::zookeeper_client::Stat;

use crate::clock::Instant;
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;

/// A minimum hold, which may be over already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    published: Published,
    /// The length of the hold, in milliseconds.
    length: u64,
    /// The end of the hold, in milliseconds since 1970 by the servers' clock.
    until: u64,
}

/// The nodes of minimum holds, as a look has listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Listed {
    /// There is no list: it was not requested, the request failed, or the list was used.
    #[default]
    Unknown,
    /// The directory for them does not exist.
    Nowhere,
    /// The names of the nodes.
    Names(Vec<String>),
}

/// A minimum hold, with its end by this host's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MinimumHold {
    /// The hold, with its owner.
    pub hold: Hold,
    /// The end of the hold.
    pub over: Instant,
}

impl Hold {
    /// Reads the hold from a node with `data` and `stat`. Returns `None` if the node describes no hold.
    pub(super) fn read(data: &[u8], stat: &Stat) -> Option<Self> {
        let Holder::Dlock(published) = Holder::read(data) else { return None };
        let length = published.hold?;
        let until = u64::try_from(stat.ctime).ok()?.saturating_add(length);
        Some(Self { published: *published, length, until })
    }

    /// Returns the owner's id, which is also the name of the node.
    pub(super) fn owner(&self) -> &str {
        &self.published.id
    }

    /// Returns the end of the hold, in milliseconds since 1970 by the servers' clock.
    pub(super) fn until(&self) -> u64 {
        self.until
    }

    /// Returns the mode in which the lock is kept; exclusive if it is unknown.
    pub(super) fn mode(&self) -> Mode {
        self.published.mode().unwrap_or_default()
    }

    /// Returns the slot that is kept, if any.
    pub(super) fn slot(&self) -> Option<u32> {
        self.published.slot
    }

    /// Returns the time left at `now` (milliseconds since 1970 by the servers' clock), at most the whole length.
    pub(super) fn left(&self, now: u64) -> Duration {
        Duration::from_millis(self.until.saturating_sub(now).min(self.length))
    }

    /// Returns the holder, whose command has finished, with the end of the hold.
    pub(super) fn holder(&self) -> Holder {
        let (until, done) = (Some(self.until), true);
        Holder::Dlock(Box::new(Published { until, done, ..self.published.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a status of which only the creation time matters.
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
