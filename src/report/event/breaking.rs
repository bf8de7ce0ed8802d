/*!
What there is to report about breaking a lock.
*/

use std::time::Duration;

use crate::holder::Holder;
use crate::key::Key;

/// Why a holder cannot be asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deaf {
    /// It is another program.
    Foreign,
    /// It is another program on this host, with this process id and name.
    Process(i32, String),
    /// It is a dlock that does not heed requests.
    Older,
    /// Its process has ended, and it holds the lock by its handle.
    Handle,
    /// It has finished, and the lock only stays taken.
    Finished,
    /// Its dlock has ended, and its command goes on with the lock, which has no lease.
    Ended,
}

/// Something about breaking a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BreakEvent {
    /// The lock is free.
    Nothing(Key),
    /// Several holders' ids begin with what was given.
    Several(String),
    /// Somebody else holds the lock, and nothing was done.
    Another {
        /// The lock.
        key: Key,
        /// Who holds it.
        holder: Holder,
        /// The id of that one.
        owner: String,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
    },
    /// It is not known who holds the lock, and nothing was done.
    Unclear(Key),
    /// The holder cannot be asked, and nothing was done.
    Deaf {
        /// The lock.
        key: Key,
        /// Why not.
        why: Deaf,
        /// Whether the lock can be taken away.
        can_be_taken: bool,
    },
    /// The user has said no.
    Declined {
        /// The lock.
        key: Key,
        /// Whether its name was to be typed.
        typed: bool,
    },
    /// The holder was asked to stop.
    Asked {
        /// The holder, as people call it.
        who: String,
        /// How soon it notices, at most.
        notices: Option<Duration>,
        /// How long it gives its command to end.
        stops: Option<Duration>,
    },
    /// The holder, whom people call so, has ended without giving the lock back.
    Dead(String),
    /// That owner does not use the lock any more.
    Gone {
        /// The lock.
        key: Key,
        /// After how long, if it was asked.
        after: Option<Duration>,
        /// Who holds the lock now.
        next: Option<Holder>,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
    },
    /// It still holds the lock after the wait.
    StillHeld {
        /// The lock.
        key: Key,
        /// How long the wait was.
        within: Duration,
        /// Whether the lock can be taken away.
        can_be_taken: bool,
    },
    /// The lock was taken away.
    Taken {
        /// The lock.
        key: Key,
        /// From whom.
        holder: Holder,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
        /// How soon that one notices, at most; none where nobody knows.
        within: Option<Duration>,
        /// How long that one can go on if it is frozen, if that is longer.
        frozen: Option<Duration>,
    },
    /// The break could not be recorded for those who look at the lock later.
    Untraced {
        /// The lock.
        key: Key,
        /// Why not.
        reason: String,
    },
    /// The service has failed.
    Failed {
        /// The lock.
        key: Key,
        /// Its reason.
        reason: String,
    },
}

impl BreakEvent {
    /// Whether it is only told, and does not end dlock without success.
    #[must_use]
    pub(crate) fn is_note(&self) -> bool {
        matches!(
            self,
            Self::Nothing(_) | Self::Asked { .. } | Self::Untraced { .. } | Self::Gone { .. } | Self::Taken { .. }
        )
    }
}
