/*!
The steps towards a supervised command, and the reasons why they fail.
*/

use std::time::Duration;

use crate::supervise::protocol::Unfit;

/// A step on the way to a supervised command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Making an owner id.
    OwnerId,
    /// Laying out the command's arguments and environment.
    Command,
    /// Taking over the signals.
    Signals,
    /// Becoming the parent of orphans.
    Subreaper,
    /// Naming the guard's socket.
    GuardName,
    /// Starting the guard.
    Guard,
    /// Starting the process that keeps the lock.
    Keeper,
    /// Finding out whether a command can be supervised here.
    Supervision,
    /// Starting the event loop.
    EventLoop,
    /// Starting the thread that writes the events.
    Journal,
    /// Watching the signals.
    WatchSignals,
    /// Watching the guard.
    WatchGuard,
}

/// The reason why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The reason that the system gives.
    System(String),
    /// No process could be made, for this errno.
    NoProcess(i32),
    /// The environment does not allow it.
    Unfit(Unfit),
    /// The guard did not start within this time.
    SlowGuard(Duration),
}
