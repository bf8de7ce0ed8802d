/*!
How the lock of an episode is held: alone, or by several together. It is a dimension of the matrix: a cell whose service is
called `redis-shared` or `redis-slots` is the same fault on the same service, with other holders.
*/

use serde::{Deserialize, Serialize};

use crate::support::dlock::Dlock;
use crate::support::mode_witness::{HELD_AS, Mode};

/// How many slots there are: fewer than holders and waiters together.
const SLOTS: u32 = 3;

/// How holders hold the lock of an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Held {
    /// Exclusively, as all locks are held by default.
    #[default]
    Alone,
    /// With `--shared`, one or two others beside the holder.
    Shared,
    /// With `--slots`, one or two others beside the holder.
    Slots,
}

impl Held {
    /// What is added to the name of a service.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Shared => "-shared",
            Self::Slots => "-slots",
        }
    }

    /// How it is called above a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Shared => "shared",
            Self::Slots => "one of three slots",
        }
    }

    /// The options of a run that wants the lock as the holders have it: for runs inside of others, to which the variables
    /// are not passed on.
    pub fn options(self) -> String {
        match self {
            Self::Alone => String::new(),
            Self::Shared => "--shared".to_owned(),
            Self::Slots => format!("--slots {SLOTS}"),
        }
    }

    /// This dlock, wanting the lock as the holders have it. It is told by variables, so it may have its command already.
    pub fn wanted_by(self, dlock: Dlock) -> Dlock {
        let (mode, dlock) = match self {
            Self::Alone => return dlock,
            Self::Shared => (Mode::Shared, dlock.env("DLOCK_SHARED", "1")),
            Self::Slots => (Mode::Slots(SLOTS), dlock.env("DLOCK_SLOTS", SLOTS.to_string())),
        };
        dlock.env(HELD_AS, mode.word())
    }
}
