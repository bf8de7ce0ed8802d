/*!
Looks at locks without touching them: the observations, as data, and the trait that each backend implements.

No look takes a lock, joins a queue or extends a lease, and the right to read is enough.
*/

mod meetings;
mod names;

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use crate::backend::error::{Error, ErrorKind};
pub(crate) use crate::backend::survey::meetings::{Kind, Meetings};
pub(crate) use crate::backend::survey::names::{Names, Smallest};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::holder::{Holder, Published};
use crate::key::Key;
use crate::lock::admission::Mode;

/// The time limit of one request of a look.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// The error text if locks cannot be broken.
const NOT_BROKEN_HERE: &str = "locks cannot be broken here";
/// The maximum number of holders, and of waiters, that are read of one lock.
pub(crate) const MOST: usize = 1000;
/// The largest lead of a clock that does not count as wrong, in milliseconds.
const SKEW: u64 = 2000;

/// The state of a lock, as far as it can be determined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody holds it; waiters may be about to take it.
    #[default]
    Free,
    /// It is held.
    Held,
    /// Something that is not a lock occupies its name; has a description of it.
    Blocked(String),
    /// Some servers have a holder, but no majority has the same one.
    Contested,
    /// The service does not tell.
    Unknown,
}

impl State {
    /// Returns its name in JSON documents.
    #[must_use]
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Blocked(_) => "blocked",
            Self::Contested => "contested",
            Self::Unknown => "unknown",
        }
    }
}

/// The rest of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Milliseconds, unless it is renewed.
    Millis(u64),
    /// Until somebody deletes it.
    Forever,
}

/// A holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    /// The party's identity, with what it publishes.
    pub who: Holder,
    /// The bytes that distinguish a party of another program, unless its text does: a key, a node, a process.
    pub mark: Vec<u8>,
    /// The mode in which it holds or wants the lock; `None` if that is not known.
    pub mode: Option<Mode>,
    /// The number of its slot.
    pub slot: Option<u32>,
    /// The fencing token.
    pub token: Option<u64>,
    /// The time since which it holds the lock or waits for it, in milliseconds since 1970.
    pub since: Option<u64>,
    /// The rest of its lease; `None` if the service does not tell, or if there is no lease.
    pub left: Option<Left>,
    /// The last renewal of its lease, in milliseconds since 1970, if the service tells that.
    pub renewed: Option<u64>,
    /// The user of a process on this host.
    pub user: Option<String>,
    /// `true` if its process exists; `None` if that cannot be determined from here.
    pub alive: Option<bool>,
    /// `true` if it belongs to this user, on this host and in this PID namespace.
    pub is_own: bool,
    /// The request to stop that was made to it.
    pub asked: Option<Ask>,
}

impl Party {
    /// Returns this party, with what it publishes itself if it is a dlock.
    #[must_use]
    pub(crate) fn new(who: Holder, mark: impl Into<Vec<u8>>) -> Self {
        let said = match &who {
            Holder::Dlock(published) => (**published).clone(),
            _ => Published::default(),
        };
        let mode = if matches!(who, Holder::Dlock(_)) { said.mode() } else { Some(Mode::Exclusive) };
        Self {
            who,
            mark: mark.into(),
            mode,
            slot: said.slot,
            token: said.token,
            since: said.since,
            left: None,
            renewed: None,
            user: None,
            alive: None,
            is_own: false,
            asked: None,
        }
    }

    /// Returns this party with the given rest of its lease.
    #[must_use]
    pub(crate) fn lasting(self, left: Option<Left>) -> Self {
        Self { left, ..self }
    }

    /// Returns the time that it has held the lock or waited; `None` if `since` is later than clock skew explains.
    #[must_use]
    pub(crate) fn age(&self, now: u64) -> Option<u64> {
        self.since.filter(|since| *since <= now.saturating_add(SKEW)).map(|since| now.saturating_sub(since))
    }

    /// Returns what it publishes, if it is a dlock.
    #[must_use]
    pub(crate) fn published(&self) -> Option<&Published> {
        match &self.who {
            Holder::Dlock(published) => Some(published),
            _ => None,
        }
    }

    /// Returns `true` if it can be asked to stop: a dlock that uses the lock and honors requests.
    #[must_use]
    pub(crate) fn can_be_asked(&self) -> bool {
        self.published().is_some_and(|published| published.about.stop && !published.done)
    }

    /// Returns `true` if it has finished, and the lock only stays taken (`--min-hold`).
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.published().is_some_and(|published| published.done)
    }

    /// Returns its id: the owner's, or for another program a digest of what distinguishes it.
    #[must_use]
    pub(crate) fn id(&self) -> String {
        if let Some(published) = self.published() {
            return published.id.clone();
        }
        let text = match &self.who {
            Holder::Foreign(text) if self.mark.is_empty() => text,
            _ => &self.mark,
        };
        let digest = Sha256::digest(text);
        digest[..6].iter().fold("foreign:".to_owned(), |id, byte| format!("{id}{byte:02x}"))
    }
}

/// The answer of one of several servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// The server's name.
    pub server: String,
    /// `free`, `held`, `blocked`, or `unknown` if it did not answer.
    pub state: &'static str,
    /// The id of the holder there.
    pub id: Option<String>,
}

/// One lock, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The place of the lock.
    pub location: Location,
    /// The state of the lock.
    pub state: State,
    /// The holders, at most [`MOST`], the oldest first.
    pub holders: Vec<Party>,
    /// Number of holders.
    pub held_by: u64,
    /// The waiters, at most [`MOST`], the next one first.
    pub queue: Vec<Party>,
    /// Number of waiters.
    pub waiting: u64,
    /// The time in milliseconds since 1970, by the service's clock if it has one.
    pub now: u64,
    /// The answer of each server, if servers vote.
    pub votes: Option<Vec<Vote>>,
    /// The command that frees a lock that never expires, unless that is to delete what is at its place.
    pub remedy: Option<String>,
    /// `true` if its waiters are not in a queue, and so cannot be seen.
    pub has_no_queue: bool,
    /// The last break of this lock, if it is recent and was requested.
    pub last_break: Option<Ask>,
    /// The last success under this lock of a run with `--once-per`, if that was requested.
    pub last_success: Option<Done>,
}

impl Snapshot {
    /// Returns a free lock at this place.
    #[must_use]
    pub(crate) fn free(location: Location, now: u64) -> Self {
        Self { location, now, ..Self::default() }
    }

    /// Returns this lock with its holders, at least `count`. It is held if there are any.
    #[must_use]
    pub(crate) fn held_by(mut self, holders: Vec<Party>, count: u64) -> Self {
        if !holders.is_empty() {
            self.state = State::Held;
        }
        self.held_by = count.max(holders.len() as u64);
        self.holders = holders;
        self.holders.truncate(MOST);
        self
    }

    /// Returns this lock with its waiters, at least `count`.
    #[must_use]
    pub(crate) fn awaited_by(mut self, queue: Vec<Party>, count: u64) -> Self {
        self.waiting = count.max(queue.len() as u64);
        self.queue = queue;
        self.queue.truncate(MOST);
        for waiter in &mut self.queue {
            if let Holder::Dlock(published) = &mut waiter.who {
                // A waiter is a process until it gets the lock.
                published.about.handle = false;
            }
        }
        self
    }

    /// Returns this lock with its last break. A request to a holder that still uses the lock is not a break yet.
    #[must_use]
    pub(crate) fn broken_by(self, last_break: Option<Ask>) -> Self {
        let is_open = |ask: &Ask| {
            let mut users = self.holders.iter().filter(|party| !party.is_done());
            !ask.taken && users.any(|party| party.id() == ask.stop)
        };
        Self { last_break: last_break.filter(|ask| !is_open(ask)), ..self }
    }

    /// Returns the mode in which it is held; `None` if it has no holder, or if that is not known.
    #[must_use]
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.holders.first()?.mode
    }

    /// Returns `true` if it is no longer used, and only stays taken (`--min-hold`).
    #[must_use]
    pub(crate) fn is_only_kept(&self) -> bool {
        !self.holders.is_empty() && self.holders.iter().all(Party::is_done)
    }
}

/// The location of a lock: its name, and the spelling at the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// The name, as users write it; `None` if it cannot be derived from the spelling.
    pub key: Option<String>,
    /// The exact name at the service.
    pub place: String,
}

impl Location {
    /// Returns the location of the lock with this key, at this place.
    #[must_use]
    pub(crate) fn of(key: &Key, place: impl Into<String>) -> Self {
        Self { key: Some(key.as_str().to_owned()), place: place.into() }
    }

    /// Returns the location of the lock at this place, where `encoded` is the spelling of its key.
    #[must_use]
    pub(crate) fn read(encoded: &str, place: impl Into<String>) -> Self {
        Self { key: decoded(encoded), place: place.into() }
    }

    /// Returns the name that users know, if it is known, and the place otherwise.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.place)
    }
}

/// The last success under each of several locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Successes(BTreeMap<Location, Done>);

impl Successes {
    /// Adds a success under the lock at this place, unless a later one is known.
    pub(crate) fn add(&mut self, location: Location, done: Done) {
        let last = self.0.entry(location).or_default();
        if done.at > last.at {
            *last = done;
        }
    }

    /// Lists the successes, by the names of the locks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Location, &Done)> {
        self.0.iter()
    }
}

impl IntoIterator for Successes {
    type Item = (Location, Done);
    type IntoIter = std::collections::btree_map::IntoIter<Location, Done>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Returns the key with this encoding; `None` if there is no such key.
#[must_use]
pub(crate) fn decoded(encoded: &str) -> Option<String> {
    let name = percent_decode_str(encoded).decode_utf8().ok()?.into_owned();
    let key = Key::parse(name.as_ref()).ok()?;
    (key.encoded() == encoded).then_some(name)
}

/// A read-only view of a service. No method takes a lock, waits for one or extends one, and each request has a time
/// limit of [`TIMEOUT`]. Every future may be dropped at any point.
#[async_trait::async_trait(?Send)]
pub(crate) trait Survey {
    /// Makes sure that there is a connection; does nothing if there is one.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Returns the exact place of the locks, if the URL leaves that open.
    fn place(&self) -> Option<String> {
        None
    }

    /// Returns the table of the locks, with its schema, once it has been looked at; `None` if locks are not in a table.
    fn table(&self) -> Option<String> {
        None
    }

    /// Returns `true` if the service may hide locks of others from this user.
    fn hides(&self) -> bool {
        false
    }

    /// Looks at one lock, at one moment.
    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error>;

    /// Returns the last break of this lock, if it is recent and may be read.
    async fn last_break(&mut self, _key: &Key) -> Result<Option<Ask>, Error> {
        Ok(None)
    }

    /// Returns the last success under this lock of a run with `--once-per`, if it is still recorded.
    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error>;

    /// Returns the last success under each lock whose name begins with `prefix`, held or free, if it is still recorded.
    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error>;

    /// Returns the latches and barriers in use whose names begin with `prefix`.
    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error>;

    /// Returns the held or blocked locks whose names begin with `prefix`: the `most` smallest ones, or all.
    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error>;

    /// Looks at these locks without their queues, not at one moment. Those that are free by now are left out.
    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error>;

    /// Resolves when the service reports that something has happened to a lock since the last look at it. Never
    /// resolves if it cannot report that.
    async fn changed(&mut self, _key: &Key) {
        std::future::pending::<()>().await;
    }

    /// Puts the request beside the lock if this party holds it now; returns `false` if not. The holder receives it,
    /// stops its command and releases the lock; no other owner honors it. The same text stays as the last break.
    async fn ask_to_stop(&mut self, _key: &Key, _party: &Party, _ask: &Ask) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Unusable, NOT_BROKEN_HERE))
    }

    /// Takes the lock away from this party if it holds it at that moment; returns `false` if not. No other hold is
    /// touched. `ask` stays as the last break.
    async fn take_away(&mut self, _key: &Key, _party: &Party, _ask: &Ask) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Unusable, NOT_BROKEN_HERE))
    }

    /// Returns the reason why the last break made here could not be recorded; `None` if it was recorded.
    fn untraced(&mut self) -> Option<Error> {
        None
    }

    /// Closes what the service would otherwise keep open for a time.
    async fn close(&mut self) {}
}

#[cfg(test)]
mod tests;
