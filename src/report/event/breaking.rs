/*!
Events about breaking a lock.
*/

use std::time::Duration;

use crate::holder::Holder;
use crate::key::Key;

/// The reason why a holder cannot be asked to stop.
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
    /// Another holder has the lock, and nothing was done.
    Another {
        /// The lock.
        key: Key,
        /// The holder.
        holder: Holder,
        /// The owner id of that holder.
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
        /// The reason.
        why: Deaf,
        /// `true` if the lock can be taken away.
        can_be_taken: bool,
    },
    /// The user did not confirm the break.
    Declined {
        /// The lock.
        key: Key,
        /// `true` if the user had to confirm by typing the lock's name.
        typed: bool,
    },
    /// The holder was asked to stop.
    Asked {
        /// The holder, as people call it.
        who: String,
        /// Longest time until it notices.
        notices: Option<Duration>,
        /// Time that it gives its command to end.
        stops: Option<Duration>,
    },
    /// This holder, in words, has ended without giving the lock back.
    Dead(String),
    /// That owner no longer uses the lock.
    Gone {
        /// The lock.
        key: Key,
        /// Time that this took, if it was asked.
        after: Option<Duration>,
        /// The present holder.
        next: Option<Holder>,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
    },
    /// It still holds the lock after the wait.
    StillHeld {
        /// The lock.
        key: Key,
        /// Length of the wait.
        within: Duration,
        /// `true` if the lock can be taken away.
        can_be_taken: bool,
    },
    /// The lock was taken away.
    Taken {
        /// The lock.
        key: Key,
        /// The holder that lost it.
        holder: Holder,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
        /// Longest time until that holder notices; `None` if unknown.
        within: Option<Duration>,
        /// Longest time for which that holder can go on if it is frozen, if that is longer.
        frozen: Option<Duration>,
    },
    /// The break could not be recorded for later looks at the lock.
    Untraced {
        /// The lock.
        key: Key,
        /// The reason.
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
    /// Returns `true` if it is only reported, and does not make dlock fail.
    #[must_use]
    pub(crate) fn is_note(&self) -> bool {
        matches!(
            self,
            Self::Nothing(_) | Self::Asked { .. } | Self::Untraced { .. } | Self::Gone { .. } | Self::Taken { .. }
        )
    }
}
