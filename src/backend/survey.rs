/*!
Looking at locks without touching them: what was seen, as data, and the trait behind which each backend looks.

No look takes a lock, joins a queue or extends a lease, and the right to read is enough.
*/

mod names;

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

pub(crate) use crate::backend::survey::names::{Names, Smallest};
use crate::backend::{Error, ErrorKind};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::holder::{Holder, Published};
use crate::key::Key;
use crate::lock::admission::Mode;

/// How long one request of a look may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// What is said where locks cannot be broken.
const NOT_BROKEN_HERE: &str = "locks cannot be broken here";
/// How many holders and how many waiters of one lock are read at most.
pub(crate) const MOST: usize = 1000;
/// How far ahead a clock may be that is not taken for wrong, in milliseconds.
const SKEW: u64 = 2000;

/// Whether a lock is free, as far as can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody holds it; waiters may be about to take it.
    #[default]
    Free,
    /// It is held.
    Held,
    /// Something that is not a lock occupies its name; a description of it.
    Blocked(String),
    /// Some servers have a holder, but no majority has the same one.
    Contested,
    /// The service does not tell.
    Unknown,
}

impl State {
    /// How it is called in JSON documents.
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

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// That long, unless it is renewed; in milliseconds.
    Millis(u64),
    /// As long as somebody does not delete it.
    Forever,
}

/// A holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    /// Who it is, with what it publishes.
    pub who: Holder,
    /// What makes another program's one of a kind, where that is not its text: a key, a node, a process.
    pub mark: Vec<u8>,
    /// How it holds or wants the lock; none where that is not known.
    pub mode: Option<Mode>,
    /// The number of its slot.
    pub slot: Option<u32>,
    /// The fencing token.
    pub token: Option<u64>,
    /// Since when it holds the lock or waits for it, in milliseconds since 1970.
    pub since: Option<u64>,
    /// How long its lease lasts; none where the service does not tell, or there is no lease.
    pub left: Option<Left>,
    /// When its lease was last renewed, in milliseconds since 1970, where the service tells that.
    pub renewed: Option<u64>,
    /// The user of a process on this host.
    pub user: Option<String>,
    /// Whether its process exists; none where that cannot be told from here.
    pub alive: Option<bool>,
    /// Whether it is of this user, on this host and in this PID namespace.
    pub is_own: bool,
    /// The request to stop that was made to it.
    pub asked: Option<Ask>,
}

impl Party {
    /// This one, with what it publishes itself, if it is a dlock.
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

    /// This one with so much left of its lease.
    #[must_use]
    pub(crate) fn lasting(self, left: Option<Left>) -> Self {
        Self { left, ..self }
    }

    /// How long it has held the lock or waited for it; none where it says a time to come, beyond what clocks differ by.
    #[must_use]
    pub(crate) fn age(&self, now: u64) -> Option<u64> {
        self.since.filter(|since| *since <= now.saturating_add(SKEW)).map(|since| now.saturating_sub(since))
    }

    /// What it publishes, if it is a dlock.
    #[must_use]
    pub(crate) fn published(&self) -> Option<&Published> {
        match &self.who {
            Holder::Dlock(published) => Some(published),
            _ => None,
        }
    }

    /// Whether it can be asked to stop: a dlock that uses the lock and heeds requests.
    #[must_use]
    pub(crate) fn can_be_asked(&self) -> bool {
        self.published().is_some_and(|published| published.about.stop && !published.done)
    }

    /// Whether it has finished, and the lock only stays taken (`--min-hold`).
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.published().is_some_and(|published| published.done)
    }

    /// Its id: the owner's, or for another program one that is made of what distinguishes it.
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

/// What one of several servers says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// The server.
    pub server: String,
    /// `free`, `held`, `blocked`, or `unknown` where it did not answer.
    pub state: &'static str,
    /// The id of the holder there.
    pub id: Option<String>,
}

/// One lock, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Where it is.
    pub spot: Spot,
    /// Whether it is free.
    pub state: State,
    /// Those who hold it, at most [`MOST`], the oldest first.
    pub holders: Vec<Party>,
    /// How many hold it.
    pub held_by: u64,
    /// The waiters, at most [`MOST`], the next one first.
    pub queue: Vec<Party>,
    /// How many wait.
    pub waiting: u64,
    /// The time in milliseconds since 1970, by the service's clock where it has one.
    pub now: u64,
    /// What each server says, where servers vote.
    pub votes: Option<Vec<Vote>>,
    /// What an administrator runs to free a lock that never expires, where that is not to delete what is at its place.
    pub remedy: Option<String>,
    /// Whether its waiters are in no queue, and so cannot be seen.
    pub has_no_queue: bool,
    /// The last break of this lock, if it is not long ago and was asked for.
    pub last_break: Option<Ask>,
    /// The last success under this lock of a run with `--once-per`, if that was asked for.
    pub last_success: Option<Done>,
}

impl Seen {
    /// A lock at this place that nobody holds.
    #[must_use]
    pub(crate) fn free(spot: Spot, now: u64) -> Self {
        Self { spot, now, ..Self::default() }
    }

    /// This lock with those who hold it. It is held if there are any.
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

    /// This lock with its waiters, of whom there are `count`.
    #[must_use]
    pub(crate) fn awaited_by(mut self, queue: Vec<Party>, count: u64) -> Self {
        self.waiting = count.max(queue.len() as u64);
        self.queue = queue;
        self.queue.truncate(MOST);
        for waiter in &mut self.queue {
            if let Holder::Dlock(published) = &mut waiter.who {
                // Until it gets the lock, it is a process.
                published.about.handle = false;
            }
        }
        self
    }

    /// This lock with its last break. A request to a holder that still uses the lock is that holder's, and no break yet.
    #[must_use]
    pub(crate) fn broken_by(self, last_break: Option<Ask>) -> Self {
        let is_open = |ask: &Ask| {
            let mut users = self.holders.iter().filter(|party| !party.is_done());
            !ask.taken && users.any(|party| party.id() == ask.stop)
        };
        Self { last_break: last_break.filter(|ask| !is_open(ask)), ..self }
    }

    /// How it is held; none where nobody holds it, or that is not known.
    #[must_use]
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.holders.first()?.mode
    }

    /// Whether nobody uses it any more, and it only stays taken (`--min-hold`).
    #[must_use]
    pub(crate) fn is_only_kept(&self) -> bool {
        !self.holders.is_empty() && self.holders.iter().all(Party::is_done)
    }
}

/// Where a lock is: its name, and how that is spelled at the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    /// The name, as users give it; none where it cannot be told from how it is spelled.
    pub key: Option<String>,
    /// The exact name at the service.
    pub place: String,
}

impl Spot {
    /// The lock with this key, which is spelled like that.
    #[must_use]
    pub(crate) fn of(key: &Key, place: impl Into<String>) -> Self {
        Self { key: Some(key.as_str().to_owned()), place: place.into() }
    }

    /// The lock at this place, where `encoded` is how a key is spelled there.
    #[must_use]
    pub(crate) fn read(encoded: &str, place: impl Into<String>) -> Self {
        Self { key: decoded(encoded), place: place.into() }
    }

    /// What users call it, as far as it is known.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.place)
    }
}

/// The last success under each of several locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Successes(BTreeMap<Spot, Done>);

impl Successes {
    /// One more success under the lock at this place, unless a later one is known.
    pub(crate) fn add(&mut self, spot: Spot, done: Done) {
        let last = self.0.entry(spot).or_default();
        if done.at > last.at {
            *last = done;
        }
    }

    /// The successes, by the names of the locks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Spot, &Done)> {
        self.0.iter()
    }
}

impl IntoIterator for Successes {
    type Item = (Spot, Done);
    type IntoIter = std::collections::btree_map::IntoIter<Spot, Done>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The key that is encoded like this; none where no key is.
#[must_use]
pub(crate) fn decoded(encoded: &str) -> Option<String> {
    let name = percent_decode_str(encoded).decode_utf8().ok()?.into_owned();
    let key = Key::parse(name.as_ref()).ok()?;
    (key.encoded() == encoded).then_some(name)
}

/// What is at a service, for those who look. No method takes a lock, waits for one or extends one, and each request has a
/// time limit of [`TIMEOUT`]. Every future may be dropped at any point.
#[async_trait::async_trait(?Send)]
pub(crate) trait Survey {
    /// Makes sure that there is a connection; does nothing when there is one.
    async fn connect(&mut self) -> Result<(), Error>;

    /// The exact place at which it looks, where its URL leaves that open.
    fn place(&self) -> Option<String> {
        None
    }

    /// The table that has the locks, with its schema, once it has been looked at; none where locks are in no table.
    fn table(&self) -> Option<String> {
        None
    }

    /// Whether the service may hide locks of others from those who look.
    fn hides(&self) -> bool {
        false
    }

    /// One lock, at one moment.
    async fn look(&mut self, key: &Key) -> Result<Seen, Error>;

    /// The last break of this lock, if it is not long ago and may be read.
    async fn last_break(&mut self, _key: &Key) -> Result<Option<Ask>, Error> {
        Ok(None)
    }

    /// The last command that has succeeded under this lock in a run with `--once-per`, as far as that is still recorded.
    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error>;

    /// The last success under each lock whose name begins with `prefix`, held or free, as far as that is still recorded.
    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error>;

    /// Those locks whose names begin with `prefix` and that are held or blocked: the `most` smallest ones, or all.
    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error>;

    /// These locks without their queues, not at one moment. Those that are free by now are left out.
    async fn look_at(&mut self, spots: &[Spot]) -> Result<Vec<Seen>, Error>;

    /// Resolves when the service says that something has happened to a lock since the last look at it. Never resolves where
    /// it cannot say so.
    async fn changed(&mut self, _key: &Key) {
        std::future::pending::<()>().await;
    }

    /// Puts the request beside the lock, if this party holds it at that moment; false where it does not. The holder hears of
    /// it, stops its command and gives the lock back; no other owner heeds it. The same text stays as the last break.
    async fn ask_to_stop(&mut self, _key: &Key, _party: &Party, _ask: &Ask) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Unusable, NOT_BROKEN_HERE))
    }

    /// Takes the lock away from this party, if it holds it at that moment; false where it does not. Nobody else's hold is
    /// touched. `ask` stays as the last break.
    async fn take_away(&mut self, _key: &Key, _party: &Party, _ask: &Ask) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Unusable, NOT_BROKEN_HERE))
    }

    /// Why the last break that was made here could not be recorded; none where it was.
    fn untraced(&mut self) -> Option<Error> {
        None
    }

    /// Closes what the service would otherwise keep open for a time.
    async fn close(&mut self) {}
}

#[cfg(test)]
mod tests;
