/*!
The events of a run, each with its data as documents have it.
*/

use std::time::Duration;

use serde::Serialize;

use crate::backend::survey::Party;
use crate::holder::Holder;
use crate::key::{Key, Keys};
use crate::schema::{BreakOf, Person, exact, foreign, kind, moment, person};

/// An event, with its data.
#[derive(Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Entry {
    /// Others hold a lock.
    Waiting {
        /// Its name.
        lock: String,
        /// The holder.
        holder: Option<Box<HolderOf>>,
        /// Number of holders.
        held_by: u64,
        /// The blocker, if it is not a lock.
        blocked_by: Option<String>,
        /// The place in the queue.
        position: Option<u64>,
        /// Time waited so far, in milliseconds.
        waited_ms: u64,
    },
    /// The locks are held.
    Acquired {
        /// The fencing token of the first one.
        token: Option<u64>,
        /// The lease, in milliseconds.
        ttl_ms: Option<u64>,
        /// Time that it took to acquire them, in milliseconds.
        waited_ms: u64,
        /// The slot.
        slot: Option<u32>,
        /// The names of all locks.
        keys: Vec<String>,
        /// The fencing tokens of all locks.
        tokens: Vec<u64>,
        /// `true` if an outer run holds them.
        covered: bool,
    },
    /// A lock that is held now, or was held, was broken not long ago.
    LastBreak {
        /// Its name.
        lock: String,
        /// The break, with its author, time and reason.
        #[serde(flatten)]
        last: BreakOf,
    },
    /// The locks are not acquired.
    Refused {
        /// The reason, as a word.
        why: Why,
        /// The lock.
        lock: String,
        /// The holder.
        holder: Option<Box<HolderOf>>,
        /// The reason, in words.
        error: String,
    },
    /// The command has been started.
    Started {
        /// Its process id.
        command_pid: i32,
        /// Its name.
        program: String,
    },
    /// The lease was extended.
    Renewed {
        /// Its length, in milliseconds.
        ttl_ms: u64,
    },
    /// A request has failed.
    Trouble {
        /// The error.
        error: String,
    },
    /// The holder was asked to stop.
    Asked {
        /// The author of the request.
        by: String,
        /// The reason.
        reason: Option<String>,
    },
    /// The lock is lost.
    Lost {
        /// The reason to consider it lost.
        reason: String,
    },
    /// The command is stopped.
    Stopping {
        /// The signal.
        signal: &'static str,
        /// The cause.
        cause: Cause,
    },
    /// The command has ended.
    Exited {
        /// Its exit code.
        code: Option<u8>,
        /// The signal that ended it.
        signal: Option<String>,
        /// The reason why it could not be executed.
        error: Option<String>,
        /// Time that it ran, in milliseconds.
        ran_ms: u64,
    },
    /// The locks are no longer needed.
    Released {
        /// `true` if others can have them.
        freed: bool,
    },
    /// dlock ends.
    End {
        /// Its exit code.
        exit: u8,
        /// The error that it reported.
        error: Option<String>,
        /// The outcome, in a word.
        outcome: Option<&'static str>,
        /// Time that it took to acquire the lock, in milliseconds.
        waited_ms: Option<u64>,
        /// Time that the command ran, in milliseconds.
        ran_ms: Option<u64>,
        /// Time that dlock ran, in milliseconds.
        total_ms: u64,
    },
}

/// The reason why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Why {
    /// Others hold it.
    Held,
    /// A command has succeeded in the period already.
    Done,
    /// It is in use with another number of slots.
    Slots,
    /// The handle in the environment holds it.
    Handle,
    /// The backend fails.
    Backend,
}

/// The reason why a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Its lock is lost.
    Lost,
    /// The holder was asked to stop.
    Asked,
    /// It has run for long enough.
    MaxRun,
    /// It has ended, and what it left behind is stopped.
    Leftovers,
    /// It has ended, and a run that its lock covers is stopped.
    Nested,
    /// The guard was killed.
    Guard,
}

/// The holder of a lock.
#[derive(Clone, Serialize)]
pub(crate) struct HolderOf {
    kind: &'static str,
    id: Option<String>,
    token: Option<u64>,
    slot: Option<u32>,
    #[serde(flatten)]
    person: Person,
    since: Option<String>,
    held_ms: Option<u64>,
    text: Option<String>,
}

impl HolderOf {
    /// Returns this holder at `now` by the clock that granted the lock; `None` if no holder is known.
    #[must_use]
    pub(crate) fn of(holder: &Holder, now: u64) -> Option<Box<Self>> {
        if matches!(holder, Holder::Nobody | Holder::Unknown | Holder::InTheWay(_)) {
            return None;
        }
        let party = Party::new(holder.clone(), "");
        Some(Box::new(Self {
            kind: kind(&party),
            id: party.published().map(|said| said.id.clone()),
            token: exact(party.token),
            slot: party.slot,
            person: person(&party),
            since: party.since.and_then(moment),
            held_ms: party.age(now),
            text: foreign(&party),
        }))
    }

    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let Person { host, user, program, reason, job, .. } = &mut self.person;
        [&mut self.id, &mut self.text, host, user, program, reason, job].into_iter().flatten()
    }
}

impl Entry {
    /// The locks with these `keys` and `tokens` are held.
    #[must_use]
    pub(crate) fn acquired(keys: &Keys, tokens: &[u64], slot: Option<u32>, ttl: Option<Duration>) -> Self {
        Self::Acquired {
            token: tokens.first().copied(),
            ttl_ms: ttl.map(millis),
            waited_ms: 0,
            slot,
            keys: keys.iter().map(|key: &Key| key.as_str().to_owned()).collect(),
            tokens: tokens.to_vec(),
            covered: false,
        }
    }

    /// Adds to an `acquired` entry the time that it took to acquire the locks, and whether an outer run holds them.
    #[must_use]
    pub(crate) fn after(mut self, length: Duration, is_covered: bool) -> Self {
        if let Self::Acquired { waited_ms, covered, .. } = &mut self {
            (*waited_ms, *covered) = (millis(length), is_covered);
        }
        self
    }

    /// The name of the event.
    #[must_use]
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Acquired { .. } => "acquired",
            Self::LastBreak { .. } => "last_break",
            Self::Refused { .. } => "refused",
            Self::Started { .. } => "started",
            Self::Renewed { .. } => "renewed",
            Self::Trouble { .. } => "trouble",
            Self::Asked { .. } => "asked",
            Self::Lost { .. } => "lost",
            Self::Stopping { .. } => "stopping",
            Self::Exited { .. } => "exited",
            Self::Released { .. } => "released",
            Self::End { .. } => "end",
        }
    }

    /// All its texts that may be long, but not those that name a lock.
    pub(super) fn texts(&mut self) -> Vec<&mut String> {
        match self {
            Self::Waiting { holder, blocked_by, .. } => {
                holder.iter_mut().flat_map(|holder| holder.texts()).chain(blocked_by).collect()
            }
            Self::Refused { holder, error, .. } => {
                holder.iter_mut().flat_map(|holder| holder.texts()).chain([error]).collect()
            }
            Self::Started { program: text, .. } | Self::Trouble { error: text } | Self::Lost { reason: text } => {
                vec![text]
            }
            Self::Asked { by, reason } => reason.iter_mut().chain([by]).collect(),
            Self::LastBreak { last, .. } => last.texts().collect(),
            Self::Exited { error, .. } | Self::End { error, .. } => error.iter_mut().collect(),
            Self::Acquired { .. } | Self::Renewed { .. } | Self::Stopping { .. } | Self::Released { .. } => Vec::new(),
        }
    }

    /// The names of locks in it.
    pub(super) fn names(&mut self) -> Vec<&mut String> {
        match self {
            Self::Waiting { lock, .. } | Self::LastBreak { lock, .. } | Self::Refused { lock, .. } => vec![lock],
            Self::Acquired { keys, .. } => keys.iter_mut().collect(),
            _ => Vec::new(),
        }
    }
}

/// A length in whole milliseconds.
#[must_use]
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
