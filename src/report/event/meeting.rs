/*!
What dlock reports of latches and barriers, as data.
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
    /// Which of the two it is.
    pub kind: Kind,
    /// Its name.
    pub key: Key,
    /// The URL of its backend, without a password.
    pub place: String,
    /// The options that lead another command there, for a line to type.
    pub flags: String,
}

/// Something that dlock reports of a latch or a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MeetingEvent {
    /// No backend was chosen, so it is on this host and for this user only.
    NoBackendChosen(Kind),
    /// dlock waits until enough are there.
    Waiting {
        /// The latch or barrier.
        point: Point,
        /// For how many it waits.
        wanted: u64,
        /// The latest news.
        news: News,
        /// How long it has waited.
        waited: Duration,
    },
    /// Enough are there.
    Open {
        /// The latch or barrier.
        point: Point,
        /// How long it has waited.
        waited: Duration,
    },
    /// The wait ran out.
    RanOut {
        /// The latch or barrier.
        point: Point,
        /// How long dlock waited; `None` if it only looked.
        within: Option<Duration>,
        /// For how many it waited.
        wanted: u64,
        /// Who is there.
        turnout: Turnout,
    },
    /// The backend fails.
    Unusable {
        /// The latch or barrier.
        point: Point,
        /// How long dlock waited, if the wait ran out.
        within: Option<Duration>,
        /// What is wrong.
        trouble: Trouble,
    },
    /// The latch has failed.
    Failed {
        /// The latch.
        point: Point,
        /// The name of who said so; may be empty.
        by: String,
        /// Why; may be empty.
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
        /// How long it may be silent; `None` where there are no leases.
        lease: Option<Duration>,
    },
    /// Others wait at the barrier for another number of parties.
    OtherParties {
        /// The barrier.
        point: Point,
        /// For how many we would wait.
        wanted: u64,
        /// For how many they wait.
        parties: u32,
        /// Their names.
        names: Vec<String>,
    },
    /// There is no such thing at this backend; the reason.
    NotHere {
        /// The latch or barrier.
        point: Point,
        /// Why not.
        reason: &'static str,
    },
    /// The name was reported as done at the latch.
    Done {
        /// The latch.
        point: Point,
        /// The name.
        name: String,
        /// For how long that is kept.
        keep: Duration,
    },
    /// The latch was let fail.
    Failing {
        /// The latch.
        point: Point,
        /// For how long that is kept.
        keep: Duration,
    },
    /// The latch was forgotten.
    Forgotten(Point),
}
