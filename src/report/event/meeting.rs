/*!
Events about latches and barriers, as data.
*/

use std::time::Duration;

use crate::key::Key;
use crate::lease::waiting::Trouble;
use crate::meeting::news::{News, Turnout};

/// A latch or a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A latch.
    Latch,
    /// A barrier.
    Barrier,
}

/// A latch or a barrier, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Latch or barrier.
    pub kind: Kind,
    /// Its name.
    pub key: Key,
    /// The URL of its backend, without a password.
    pub place: String,
    /// The connection options for a suggested command line.
    pub flags: String,
}

/// Something that dlock reports of a latch or a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MeetingEvent {
    /// No backend was chosen, so it is on this host and for this user only.
    NoBackendChosen(Kind),
    /// dlock waits until enough names or parties are there.
    Waiting {
        /// The latch or barrier.
        point: Point,
        /// The number that it waits for.
        wanted: u64,
        /// The latest news.
        news: News,
        /// Time waited so far.
        waited: Duration,
    },
    /// Enough names or parties are there.
    Open {
        /// The latch or barrier.
        point: Point,
        /// Time waited in total.
        waited: Duration,
    },
    /// The wait ran out.
    RanOut {
        /// The latch or barrier.
        point: Point,
        /// Time waited; `None` if dlock only looked.
        within: Option<Duration>,
        /// The number that it waited for.
        wanted: u64,
        /// Those that are there.
        turnout: Turnout,
    },
    /// The backend fails.
    Unusable {
        /// The latch or barrier.
        point: Point,
        /// Time waited, if the wait ran out.
        within: Option<Duration>,
        /// The problem.
        trouble: Trouble,
    },
    /// The latch has failed.
    Failed {
        /// The latch.
        point: Point,
        /// The name of the reporter; may be empty.
        by: String,
        /// The reason; may be empty.
        reason: String,
    },
    /// Parties that waited at the barrier with this one have gone; their names.
    Broken {
        /// The barrier.
        point: Point,
        /// Their names.
        names: Vec<String>,
    },
    /// A newer process waits at the barrier under our name.
    Replaced {
        /// The barrier.
        point: Point,
        /// The name.
        name: String,
    },
    /// This process was counted as dead.
    CountedDead {
        /// The barrier.
        point: Point,
        /// The longest silence allowed; `None` where there are no leases.
        lease: Option<Duration>,
    },
    /// Others wait at the barrier for another number of parties.
    OtherParties {
        /// The barrier.
        point: Point,
        /// The number of parties that this process wants.
        wanted: u64,
        /// The number of parties that they wait for.
        parties: u32,
        /// Their names.
        names: Vec<String>,
    },
    /// The backend does not support this kind.
    NotHere {
        /// The latch or barrier.
        point: Point,
        /// The reason.
        reason: &'static str,
    },
    /// The name was reported as done at the latch.
    Done {
        /// The latch.
        point: Point,
        /// The name.
        name: String,
        /// Time for which this is remembered.
        keep: Duration,
    },
    /// The latch was marked as failed.
    Failing {
        /// The latch.
        point: Point,
        /// Time for which this is remembered.
        keep: Duration,
    },
    /// The latch was forgotten.
    Forgotten(Point),
}
