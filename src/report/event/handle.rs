/*!
Events about a lock that is held by its handle.
*/

use std::time::Duration;

use crate::key::{Key, Keys};
use crate::lease::waiting::Trouble;

/// Something about a lock that is held by its handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandleEvent {
    /// It was extended.
    Renewed {
        /// The lock's name.
        key: Key,
        /// The length of the lease.
        ttl: Duration,
    },
    /// It could not be extended.
    NotRenewed {
        /// The lock's name.
        key: Key,
        /// The URL of its backend, without a password.
        place: String,
        /// The reason.
        reason: Trouble,
        /// Longest time for which it lasts; `None` if its keeper goes on renewing it.
        ttl: Option<Duration>,
    },
    /// It is no longer held.
    Lost {
        /// The lock's name.
        key: Key,
        /// The known part of the reason, or the present holder.
        why: String,
    },
    /// It is no longer held, and others have held it since.
    PassedOn(Key),
    /// It was to be released but was no longer held, and nobody is known to have held it since.
    NotHeld(Key),
    /// The handle is empty: there is nothing to release.
    Empty,
    /// The lock was to be released, but the handle is inherited from another shell, which goes on with the lock.
    OfAnotherShell {
        /// The lock's name.
        key: Key,
        /// The process id of that shell.
        shell: i32,
    },
    /// The command has ended, and the lock stays held.
    StaysHeld {
        /// The lock's name.
        key: Key,
        /// Time until it expires, unless it is renewed.
        ttl: Duration,
    },
    /// The wanted lock is held by the handle in the environment.
    OwnHandle {
        /// The lock's name.
        key: Keys,
        /// `true` if commands can be run under the handle.
        runs: bool,
    },
    /// A process on another host, or in another container, keeps it.
    KeptElsewhere {
        /// The lock's name.
        key: Key,
        /// The host's name.
        host: String,
    },
    /// The process that keeps it belongs to another user.
    KeptByAnother {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
    },
    /// The process that keeps it cannot be watched, and is not asked to release it.
    KeeperUnseen {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
        /// The system's reason; `None` where /proc does not show the process.
        errno: Option<i32>,
    },
    /// The process that is to keep it does not answer as a keeper does: it is no keeper, or cannot be reached.
    KeeperDeaf {
        /// The lock's name.
        key: Key,
        /// The process that the handle names.
        pid: i32,
    },
    /// A command is to be run under the handle of a lock that is kept on another host, or in another container.
    RunElsewhere {
        /// The lock's name.
        key: Key,
        /// The host's name.
        host: String,
    },
    /// A command is to be run under the handle of a lock that a process of another user keeps.
    RunDenied {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
    },
    /// It was to be released, but a run under its handle goes on.
    RunGoesOn {
        /// The lock's name.
        key: Key,
        /// The run's process.
        pid: i32,
    },
    /// It is to be released as soon as a run under its handle has ended.
    WaitingForRun {
        /// The lock's name.
        key: Key,
        /// The run's process.
        pid: i32,
    },
    /// The process that keeps it was asked to release it, and has not ended in time.
    KeeperStays {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
        /// Length of the wait.
        limit: Duration,
    },
    /// The process that kept it is gone, and has left it held.
    KeeperGone {
        /// The lock's name.
        key: Key,
        /// Longest time for which it lasts.
        ttl: Duration,
    },
    /// The process that was to keep it has ended before the handle was handed over, or while it was.
    NotKept(Key),
    /// The handle would be too long: the lock's name and the URL of the backend are in it.
    TooLong(Key),
}
