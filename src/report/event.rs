/*!
Everything that dlock reports, as data. A family of events has its sentences beside it; those of the other events are in
[`line`](mod@crate::report::line).

Reasons from a backend or the system are text, because only they know them, and so is what is wrong with a command line.
*/

mod breaking;
pub(crate) mod handle;
pub(in crate::report) mod lack;
mod look;
pub(crate) mod meeting;

use std::time::Duration;

pub(crate) use self::breaking::{BreakEvent, Unaskable};
pub(crate) use self::look::Look;
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::key::{Key, Keys};
use crate::lease::renewal::Unconfirmed;
use crate::lease::waiting::Trouble;
use crate::lock::admission::Mode;
use crate::report::event::handle::HandleEvent;
pub(crate) use crate::report::event::lack::{Lack, Step};
use crate::report::event::meeting::MeetingEvent;

/// A lock, or several that are held as one, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Its name, or all of their names.
    pub key: Keys,
    /// The URL of its backend, without a password.
    pub place: String,
    /// The connection flags of this command line, for a suggested one: empty, or with a leading space.
    pub flags: String,
}

impl Lock {
    /// Returns this lock with `table` added to its place, if the table is known.
    pub(crate) fn in_table(self, table: Option<&str>) -> Self {
        Self { place: place_in(&self.place, table), ..self }
    }
}

/// Returns the place of locks for people: that of their backend, with the table if the URL does not name it.
#[must_use]
pub(crate) fn place_in(backend: &str, table: Option<&str>) -> String {
    match table {
        Some(table) if !backend.contains(&format!("table={table}")) => format!("{backend} (table {table})"),
        _ => backend.to_owned(),
    }
}

/// Something that dlock reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// dlock has a bug; the message of the panic.
    Bug(String),
    /// The command line was not understood.
    CommandLine {
        /// The mistake.
        mistake: String,
        /// The command whose help says more, if the mistake names nothing better.
        help: Option<String>,
    },
    /// The settings are wrong, or do not go together; what is wrong and what to do.
    Settings(String),
    /// There is no manual page for this subcommand.
    NoSuchPage(String),
    /// A subcommand was named for something that is not a manual page.
    OnlyPagesHaveSubcommands,
    /// Writing to standard output failed; the system's reason.
    OutputFailed(String),
    /// Something about a look at locks.
    Look(Look),
    /// Something about breaking a lock.
    Break(BreakEvent),
    /// Something that supervising a command needs is missing. No command was started.
    Lacking {
        /// The step that failed.
        step: Step,
        /// The reason.
        reason: Lack,
    },
    /// The destination of `--events` could not be opened.
    NoJournal {
        /// The destination, as `--events` names it.
        sink: String,
        /// The system's reason.
        reason: String,
    },
    /// The destination of `--events` in the config file for all users could not be opened: dlock goes on without it.
    Unlogged {
        /// The destination, as the config file names it.
        sink: String,
        /// The system's reason.
        reason: String,
    },
    /// The destination of `--events` did not take a line.
    LinesLost {
        /// The destination, as `--events` names it.
        sink: String,
        /// The system's reason.
        reason: String,
    },
    /// No backend was chosen, so the lock holds on this host and for this user only.
    NoBackendChosen,
    /// Other users may read or write the file with the password; the file's name.
    PasswordExposed(String),
    /// The password of a config file is for other servers than those that are used, and is not sent to them.
    PasswordWithheld {
        /// The option, with the file and the line.
        origin: String,
        /// The URL of the servers that it is for.
        belongs_to: String,
        /// The URL of the servers that do not get it.
        place: String,
    },
    /// The environment has variables of this form that dlock does not know.
    UnknownVariables {
        /// Their names.
        names: Vec<String>,
        /// The variable that was probably meant, if there is only one name.
        meant: Option<String>,
    },
    /// The service has a property that could make its locks unsafe.
    Warning {
        /// The lock.
        lock: Lock,
        /// The warning, in the backend's words.
        warning: String,
    },
    /// dlock waits for the lock.
    Waiting {
        /// The lock.
        lock: Lock,
        /// The reason.
        why: Blocker,
        /// Time waited so far.
        waited: Duration,
    },
    /// A wait that was shown on a terminal has ended with the lock.
    GotIt {
        /// The lock's name.
        key: Keys,
        /// Time waited in total.
        waited: Duration,
    },
    /// The lock was not acquired.
    NotAcquired {
        /// The lock.
        lock: Lock,
        /// Time waited, if the wait ran out.
        within: Option<Duration>,
        /// The reason.
        why: Blocker,
    },
    /// The lock is in use with another number of slots.
    OtherSlots {
        /// The lock.
        lock: Lock,
        /// The number that was asked for.
        wanted: u32,
        /// The number in use.
        slots: u32,
        /// A holder or a waiter that uses it.
        holder: Holder,
        /// "Now" in milliseconds since 1970 by the clock that granted the lock.
        now: u64,
    },
    /// A command has succeeded in this run's period already (`--once-per`), and the run is skipped.
    AlreadyDone {
        /// The lock.
        lock: Lock,
        /// The recorded success: its author and its time.
        done: Box<Done>,
    },
    /// A run that is to succeed once per period is nested in a run that holds the lock; the lock's name.
    OnceInside(Key),
    /// The lock is held by an outer run, in a mode that does not cover the one that is wanted.
    Upgrade {
        /// The lock's name.
        key: Key,
        /// The outer run's mode.
        outer: Mode,
        /// The mode that is wanted.
        wanted: Mode,
    },
    /// The lock is held by an outer run that cannot be watched, because it is in another PID namespace.
    OuterElsewhere,
    /// The lock is held by an outer run whose guard is unreachable; the system's reason, `None` if it does not answer.
    OuterGuardUnreachable(Option<String>),
    /// A run is the command of a run with the same command line, repeatedly; the lock's name.
    StartsItself(Key),
    /// The lock is held by an outer run whose guard may open no more descriptors; the lock's name.
    OuterFull(Key),
    /// The lock is held by an outer run that cannot be watched, for this errno.
    OuterUnwatchable(i32),
    /// The lock is held.
    Acquired {
        /// The lock.
        lock: Lock,
        /// The fencing token of each lock.
        tokens: Vec<u64>,
        /// The mode in which it is held.
        mode: Mode,
        /// The slot, if the lock has slots.
        slot: Option<u32>,
        /// The granted lease; `None` for a lock without one.
        ttl: Option<Duration>,
        /// Time that it took to acquire the lock.
        waited: Duration,
    },
    /// The lock, which is held now, was broken not long ago.
    LastBreak {
        /// The lock.
        lock: Lock,
        /// The request that broke it, with its author, time and reason.
        ask: Ask,
        /// "Now" in milliseconds since 1970 by this host's clock.
        now: u64,
    },
    /// The lock was lost because it was taken away.
    TakenAway {
        /// The lock.
        lock: Lock,
        /// The request that took it away, with its author, time and reason.
        ask: Ask,
        /// "Now" in milliseconds since 1970 by this host's clock.
        now: u64,
    },
    /// A renewal has failed, and will be tried again.
    NotRenewed {
        /// The lock.
        lock: Lock,
        /// The result of that renewal.
        last: Unconfirmed,
    },
    /// A renewal was confirmed after others had failed.
    RenewedAgain(Lock),
    /// The lock is held by an outer run, and the command runs under it.
    Covered(Keys),
    /// The granted lease is so short that the command has less time to end than `--kill-after` asks for.
    ShortGrace {
        /// The lock.
        lock: Lock,
        /// The time between SIGTERM and SIGKILL.
        kill_after: Duration,
        /// The granted lease.
        ttl: Duration,
    },
    /// The command could not be run.
    NotRun {
        /// The command as it was given.
        program: String,
        /// The reason.
        reason: NotRun,
    },
    /// The command is suspended, and its lock cannot be renewed.
    Suspended {
        /// The lock's name.
        key: Keys,
        /// The command's name.
        program: String,
        /// The time after which it is stopped unless it is continued.
        stopped_in: Duration,
    },
    /// The control group has used up its CPU quota: the command would be stopped before the deadline of the lease.
    Throttled {
        /// The lock.
        lock: Lock,
        /// The command's name.
        program: String,
        /// The time by which it would be stopped earlier.
        earlier: Duration,
    },
    /// `--max-run` has run out; the command is stopped.
    MaxRun {
        /// The command's name.
        program: String,
        /// The longest time that it may run.
        max_run: Duration,
    },
    /// The command has ended, and the processes that it left behind are stopped.
    StoppingLeftovers {
        /// The command's name.
        program: String,
    },
    /// The command has ended, and a nested run that its lock covers is stopped.
    StoppingNested {
        /// The lock's name.
        key: Keys,
        /// The command's name.
        program: String,
    },
    /// The lock is lost while the command runs.
    Lost {
        /// The lock.
        lock: Lock,
        /// The reason to consider it lost.
        how: Loss,
        /// The command's name.
        program: String,
        /// `true` if the command goes on without the lock (`--on-lost ignore`) instead of being stopped.
        goes_on: bool,
    },
    /// The holder was asked to stop, and the command goes on (`--on-lost ignore`).
    AskedAndGoesOn {
        /// The lock.
        lock: Lock,
        /// The request.
        ask: Ask,
        /// The command's name.
        program: String,
    },
    /// This run no longer held the lock at the end of the command.
    LostBeforeTheEnd {
        /// The lock.
        lock: Lock,
        /// The command's name.
        program: String,
    },
    /// The outer run that held the lock ended before the command did.
    OuterEnded {
        /// The lock.
        lock: Lock,
        /// The command's name.
        program: String,
    },
    /// The lock was given back.
    Released(Keys),
    /// The lock is no longer needed, and stays taken for a time.
    Kept {
        /// The lock's name.
        key: Keys,
        /// The time for which it stays taken, counted from the grant (`--min-hold`).
        min_hold: Duration,
    },
    /// The lock is not given back, because something of the command may still run.
    NotReleased {
        /// The lock's name.
        key: Keys,
        /// What may still run.
        left: Left,
        /// `true` if the lock will expire on its own.
        expires: bool,
    },
    /// The lock could not be given back.
    ReleaseFailed {
        /// The lock.
        lock: Lock,
        /// The reason.
        reason: Trouble,
        /// Longest time until it expires; `None` for a lock without a lease.
        ttl: Option<Duration>,
        /// `true` if the release was to record the success of the command.
        unrecorded: bool,
    },
    /// The guard was killed, and the command was stopped.
    GuardKilled(Keys),
    /// dlock itself was killed; reported by the guard, which stops the command.
    DlockKilled {
        /// The lock.
        lock: Lock,
        /// The command's name.
        program: String,
    },
    /// Something about a lock that is held by its handle.
    Handle(HandleEvent),
    /// Something about a latch or a barrier.
    Meeting(MeetingEvent),
}

/// The reason why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// Another holder has it.
    Held {
        /// The holder.
        holder: Holder,
        /// Number of other holders that share it with that one.
        beside: u64,
        /// "Now" in milliseconds since 1970 by the clock that granted the lock.
        now: u64,
        /// This waiter's place in the queue, 1 for the next; `None` outside of a queue.
        position: Option<u64>,
        /// `true` if others ahead in the queue keep this run from sharing the lock with its holders.
        queued: bool,
    },
    /// The backend fails.
    Trouble(Trouble),
}

/// What is left of a command although everything should be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// This process, which dlock may not signal, and perhaps others.
    Refused(i32),
    /// This process, which was sent SIGKILL and has not ended, and perhaps others.
    Living(i32),
    /// Unknown, because the processes cannot be listed.
    Unknown,
}

/// The reason why a command did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// There is no such program.
    NotFound,
    /// It cannot be executed, for this errno.
    NotExecutable(i32),
    /// No process could be made, for this errno.
    NoProcess(i32),
    /// The lease of the lock had almost ended.
    TooLate(Keys),
}

/// The reason to consider a lock lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The service says that this run does not hold it; what is known of the reason.
    NotMine(String),
    /// Its holder was asked to stop and to give it back.
    Asked(Ask),
    /// The outer run that held it has ended.
    OuterEnded,
    /// The process that kept it has ended, or is about to give it back.
    KeeperEnded,
    /// No renewal was confirmed in time.
    Unrenewed {
        /// The time since the last confirmed one.
        silent: Duration,
        /// The result of the last try.
        last: Unconfirmed,
    },
    /// The guard stopped the command at the deadline, and dlock had no time to renew.
    Starved,
}
