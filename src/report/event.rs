/*!
Everything that dlock reports, as data. The [sentences](mod@crate::report::line) are made elsewhere.

Reasons from a backend or the system are text, because only they know them, and so is what is wrong with a command line.
*/

mod breaking;
pub(crate) mod handle;
mod lack;
mod look;
pub(crate) mod meeting;

use std::time::Duration;

pub(crate) use self::breaking::{BreakEvent, Deaf};
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

/// A lock, for people; or several that are held as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Its name, or all of their names.
    pub key: Keys,
    /// The URL of its backend, without a password.
    pub place: String,
    /// The flags with which this command line names the backend, for another one: empty, or with a space in front.
    pub flags: String,
}

impl Lock {
    /// This one, in this table where it is known that it is in one.
    pub(crate) fn in_table(self, table: Option<&str>) -> Self {
        Self { place: place_in(&self.place, table), ..self }
    }
}

/// The place of locks, for people: that of their backend, with their table where that does not say it.
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
        /// What is wrong with it.
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
        /// What was tried.
        step: Step,
        /// Why it failed.
        reason: Lack,
    },
    /// What `--events` names could not be opened.
    NoJournal {
        /// What it names.
        sink: String,
        /// The system's reason.
        reason: String,
    },
    /// What the config file for all users names for `--events` could not be opened: dlock goes on without it.
    Unlogged {
        /// What it names.
        sink: String,
        /// The system's reason.
        reason: String,
    },
    /// What `--events` names did not take a line.
    LinesLost {
        /// What it names.
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
    /// The service has something about it that could make its locks unsafe.
    Concern {
        /// The lock.
        lock: Lock,
        /// What it is, in the backend's words.
        concern: String,
    },
    /// dlock waits for the lock.
    Waiting {
        /// The lock.
        lock: Lock,
        /// Why not.
        why: Hindrance,
        /// How long it has waited.
        waited: Duration,
    },
    /// A wait that was shown on a terminal has ended with the lock.
    GotIt {
        /// The lock's name.
        key: Keys,
        /// How long it has waited.
        waited: Duration,
    },
    /// The lock was not acquired.
    NotAcquired {
        /// The lock.
        lock: Lock,
        /// How long dlock waited, if the wait ran out.
        within: Option<Duration>,
        /// Why not.
        why: Hindrance,
    },
    /// The lock is in use with another number of slots.
    OtherSlots {
        /// The lock.
        lock: Lock,
        /// The number that was asked for.
        wanted: u32,
        /// The number in use.
        slots: u32,
        /// Who uses it.
        holder: Holder,
        /// "Now" in milliseconds since 1970 by the clock that granted the lock.
        now: u64,
    },
    /// A command has succeeded in this run's period already (`--once-per`), and the run is skipped.
    AlreadyDone {
        /// The lock.
        lock: Lock,
        /// Who did it, and when.
        done: Box<Done>,
    },
    /// A run that is to succeed once per period is inside of a run that holds the lock; the lock's name.
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
    /// The lock is held by an outer run whose guard cannot be reached; the system's reason, `None` if there is no answer.
    OuterGuardUnreachable(Option<String>),
    /// A run is the command of a run with the same command line, again and again; the lock's name.
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
        /// How it is held.
        mode: Mode,
        /// The slot, where the lock has slots.
        slot: Option<u32>,
        /// The granted lease; `None` for a lock without one.
        ttl: Option<Duration>,
        /// How long it took to acquire.
        waited: Duration,
    },
    /// Not long ago, somebody has broken the lock, which is held now.
    LastBreak {
        /// The lock.
        lock: Lock,
        /// Who did, when and why.
        ask: Ask,
        /// "Now" in milliseconds since 1970 by this host's clock.
        now: u64,
    },
    /// The lock was lost because somebody has taken it away.
    TakenAway {
        /// The lock.
        lock: Lock,
        /// Who did, when and why.
        ask: Ask,
        /// "Now" in milliseconds since 1970 by this host's clock.
        now: u64,
    },
    /// A renewal has failed, and is tried again.
    NotRenewed {
        /// The lock.
        lock: Lock,
        /// What came of it.
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
        /// Why not.
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
    /// The control group has used up its CPU quota, and the command would be stopped earlier than at the lease's deadline.
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
        /// How that is known.
        how: Loss,
        /// The command's name.
        program: String,
        /// Whether the command goes on without the lock (`--on-lost ignore`) instead of being stopped.
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
    /// When the command ended, this run did not hold the lock any more.
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
    /// The lock is not needed any more, and stays taken for a time.
    Kept {
        /// The lock's name.
        key: Keys,
        /// How long, counted from when it was granted (`--min-hold`).
        min_hold: Duration,
    },
    /// The lock is not given back, because something of the command may still run.
    NotReleased {
        /// The lock's name.
        key: Keys,
        /// A process that could not be stopped; `None` if processes cannot be listed.
        process: Option<i32>,
        /// Whether the lock will expire.
        expires: bool,
    },
    /// The lock could not be given back.
    ReleaseFailed {
        /// The lock.
        lock: Lock,
        /// Why not.
        reason: Trouble,
        /// How long it will last at most; `None` for a lock without a lease.
        ttl: Option<Duration>,
        /// Whether the success of the command was to be recorded with it.
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

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// Another holder has it.
    Held {
        /// The holder.
        holder: Holder,
        /// How many others hold it together with that one.
        beside: u64,
        /// "Now" in milliseconds since 1970 by the clock that granted the lock.
        now: u64,
        /// This waiter's place in the queue, 1 for the next; `None` outside of a queue.
        position: Option<u64>,
        /// Whether it is others ahead in the queue that keep this run from holding it together with them.
        queued: bool,
    },
    /// The backend fails.
    Trouble(Trouble),
}

/// Why a command did not run.
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

/// How it is known that a lock is lost.
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
