/*!
Looks at the locks of a redis server by plain reads, without scripts, so that a read-only user can look.

One transaction reads the keys of a lock; the details of its holders and waiters are read right afterwards. The module
[`raw`](crate::backend::redis::raw) interprets the answers.
*/

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ::redis::{Cmd, Value};

use crate::backend::error::Error;
use crate::backend::redis::answers::{bytes, text_of, yes_or_no};
use crate::backend::redis::breaking;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::raw::{Raw, questions, request, texts};
use crate::backend::redis::rights::{Rights, STEER, escaped};
use crate::backend::redis::sentinel::Master;
use crate::backend::survey::{
    Kind, Location, Meetings, Names, Party, Smallest, Snapshot, State, Successes, Survey, TIMEOUT,
};
use crate::clock::{wall_millis, within};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::key::{Key, Namespace, encoded};

/// Number of keys that the server scans for one request: 1000 take it about 2 ms.
const SCANNED: usize = 1000;
/// Number of locks that are read together.
const TOGETHER: usize = 100;
/// Maximum number of bytes read of the record of a break or a success: more than dlock ever writes.
const RECORD: usize = 16 * 1024;
/// The side keys of latches and barriers, and the ones by which their places are known.
const MEETINGS: [(Kind, &str, &str); 3] =
    [(Kind::Latch, "latch", "latch"), (Kind::Latch, "latch-failure", "latch"), (Kind::Barrier, "meet", "meet")];
/// The end of the names of the keys with the last successes.
const DONE: &str = "\u{1}done";
/// The beginning of the text of every dlock.
const OURS: &[u8] = b"{\"v\":";

/// Returns the requests about each of these locks as one transaction, whose last answer contains all others.
fn transaction(locks: &[&Keys], whole: bool) -> Vec<Cmd> {
    let mut commands = vec![request(&["MULTI"])];
    commands.extend(locks.iter().flat_map(|keys| questions(keys, whole)));
    commands.push(request(&["EXEC"]));
    commands
}

/// The access to one server.
#[async_trait::async_trait(?Send)]
pub(in crate::backend) trait Access {
    /// Makes sure that there is a connection without an unanswered request.
    async fn connect(&mut self) -> Result<(), Error>;
    /// Sends requests in one round trip, see [`Connection::ask_all`].
    async fn ask_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error>;

    /// Sets the rights that the user needs there from now on, for error messages.
    fn need(&mut self, rights: &Rights);
    /// Returns the error for a server that does not answer.
    fn silence(&self) -> Error;
    /// Returns the error for a malformed answer.
    fn malformed(&self) -> Error;
}

/// Implements [`Access`] for a type by its inherent methods of the same names.
macro_rules! way {
    ($way:ty) => {
        #[async_trait::async_trait(?Send)]
        impl Access for $way {
            async fn connect(&mut self) -> Result<(), Error> {
                self.connect().await
            }

            async fn ask_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
                self.ask_all(commands).await
            }

            fn need(&mut self, rights: &Rights) {
                self.need(rights);
            }

            fn silence(&self) -> Error {
                self.silence()
            }

            fn malformed(&self) -> Error {
                self.malformed()
            }
        }
    };
}

way!(Connection);
way!(Master);

/// A view of the locks of one redis server.
pub(in crate::backend) struct RedisSurvey<W> {
    way: W,
    namespace: Namespace,
}

impl<W: Access> RedisSurvey<W> {
    /// Returns a view of the locks in this namespace.
    pub(in crate::backend) fn by(way: W, namespace: Namespace) -> Self {
        Self { way, namespace }
    }

    async fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let asked = within(TIMEOUT, self.way.ask_all(commands)).await;
        asked.unwrap_or_else(|_| Err(self.way.silence()))
    }

    /// Reads one lock: its keys at one moment, and then the details of its holders and waiters.
    pub(in crate::backend) async fn read(&mut self, keys: &Keys) -> Result<Raw, Error> {
        let answers = self.ask(&transaction(&[keys], true)).await?;
        let mut raw = match answers.last() {
            Some(Value::Array(answers)) => Raw::read(answers).ok_or_else(|| self.way.malformed())?,
            _ => return Err(self.way.malformed()),
        };
        self.learn(&mut raw, keys).await?;
        Ok(raw)
    }

    /// Adds the details of its holders and waiters to a lock. The answers are too long for one round trip.
    async fn learn(&mut self, raw: &mut Raw, keys: &Keys) -> Result<(), Error> {
        let mut answers = Vec::new();
        for command in raw.further(keys) {
            // In a transaction, so that a side key of another type makes only its own answer fail.
            let answer = self.ask(&[request(&["MULTI"]), command, request(&["EXEC"])]).await?;
            let Some(Value::Array(answer)) = answer.into_iter().last() else { return Err(self.way.malformed()) };
            answers.extend(answer);
        }
        raw.learn(&answers);
        Ok(())
    }

    /// Reads the last break of the lock with these keys. Anything else at its place is ignored.
    pub(in crate::backend) async fn record(&mut self, keys: &Keys) -> Result<Option<Ask>, Error> {
        let read = self.texts(&[keys.broken()]).await?.into_iter().flatten().next();
        Ok(read.and_then(|text| Ask::read_trace(&text, wall_millis())))
    }

    /// Reads the last success under the lock with these keys. Anything else at its place is ignored.
    pub(in crate::backend) async fn success(&mut self, keys: &Keys) -> Result<Option<Done>, Error> {
        Ok(self.texts(&[keys.done()]).await?.into_iter().flatten().next().and_then(|text| Done::read(&text)))
    }

    /// Reads the last successes under the locks whose names begin with `prefix`, see [`Survey::last_successes`].
    pub(in crate::backend) async fn successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        let begins = self.namespace.prefix(':');
        let pattern = format!("*{}*{}", escaped(&format!("{begins}{}", encoded(prefix))), DONE);
        let (mut found, mut cursor) = (Successes::default(), "0".to_owned());
        loop {
            let (next, keys) = self.page(&cursor, &pattern).await?;
            for keys in keys.chunks(TOGETHER) {
                let texts = self.texts(keys).await?;
                for (key, text) in keys.iter().zip(texts) {
                    let lock = Keys::lock_of(key, "done");
                    let location = lock.and_then(|lock| Some(Location::read(lock.strip_prefix(&begins)?, lock)));
                    let location =
                        location.filter(|location| location.key.as_ref().is_some_and(|key| key.starts_with(prefix)));
                    if let (Some(location), Some(done)) = (location, text.and_then(|text| Done::read(&text))) {
                        found.add(location, done);
                    }
                }
            }
            cursor = next;
            if cursor == "0" {
                return Ok(found);
            }
        }
    }

    /// Reads the latches and barriers whose names begin with `prefix`, see [`Survey::meetings`]. Their keys expire with
    /// what they keep.
    pub(in crate::backend) async fn meeting_points(&mut self, prefix: &str) -> Result<Meetings, Error> {
        let begins = self.namespace.prefix(':');
        let pattern = format!("*{}*", escaped(&format!("{begins}{}", encoded(prefix))));
        let (mut found, mut cursor) = (Meetings::of(prefix), "0".to_owned());
        loop {
            let (next, keys) = self.page(&cursor, &pattern).await?;
            for key in &keys {
                for (kind, name, place) in MEETINGS {
                    let Some(lock) = Keys::lock_of(key, name) else { continue };
                    let Some(encoded) = lock.strip_prefix(&begins) else { continue };
                    let location = Location::read(encoded, Keys::at(lock.to_owned()).side(place));
                    // A name that is not a valid spelling of a key belongs to another namespace.
                    if location.key.is_some() && found.wants(&location) {
                        found.add(kind, location);
                    }
                }
            }
            cursor = next;
            if cursor == "0" {
                return Ok(found);
            }
        }
    }

    /// Returns the next cursor and the next keys that fit `pattern`.
    async fn page(&mut self, cursor: &str, pattern: &str) -> Result<(String, Vec<String>), Error> {
        let scan = request(&["SCAN", cursor, "MATCH", pattern, "COUNT", &SCANNED.to_string()]);
        let answers = self.ask(&[scan]).await?;
        answers.first().and_then(page).ok_or_else(|| self.way.malformed())
    }

    /// Reads the first [`RECORD`] bytes at each of these keys; `None` for a key that is not a string.
    async fn texts(&mut self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let last = (RECORD - 1).to_string();
        // In a transaction, so that a key of another type makes only its own answer fail.
        let mut commands = vec![request(&["MULTI"])];
        commands.extend(keys.iter().map(|key| request(&["GETRANGE", key, "0", &last])));
        commands.push(request(&["EXEC"]));
        let answers = self.ask(&commands).await?;
        let Some(Value::Array(read)) = answers.last() else { return Err(self.way.malformed()) };
        Ok(read.iter().map(|text| bytes(text).map(<[u8]>::to_vec)).collect())
    }

    /// Reads these locks, without their waiters.
    pub(in crate::backend) async fn read_all(&mut self, locations: &[Location]) -> Result<Vec<Raw>, Error> {
        let mut read = Vec::with_capacity(locations.len());
        for locations in locations.chunks(TOGETHER) {
            let keys: Vec<Keys> = locations.iter().map(|location| Keys::at(location.place.clone())).collect();
            let answers = self.ask(&transaction(&keys.iter().collect::<Vec<_>>(), false)).await?;
            let Some(Value::Array(answers)) = answers.last() else { return Err(self.way.malformed()) };
            let each = answers.len() / locations.len();
            for (keys, answers) in keys.iter().zip(answers.chunks(each.max(1))) {
                let mut raw = Raw::read(answers).ok_or_else(|| self.way.malformed())?;
                self.learn(&mut raw, keys).await?;
                read.push(raw);
            }
        }
        Ok(read)
    }

    /// Returns those of these keys that have the text of a dlock.
    async fn own_among(&mut self, keys: Vec<String>) -> Result<Vec<String>, Error> {
        let last = (OURS.len() - 1).to_string();
        let mut commands = vec![request(&["MULTI"])];
        commands.extend(keys.iter().map(|key| request(&["GETRANGE", key, "0", &last])));
        commands.push(request(&["EXEC"]));
        let answers = self.ask(&commands).await?;
        let Some(Value::Array(texts)) = answers.last() else { return Err(self.way.malformed()) };
        let is_ours = |text: &Value| bytes(text) == Some(OURS);
        Ok(keys.into_iter().zip(texts).filter(|(_, text)| is_ours(text)).map(|(key, _)| key).collect())
    }

    /// Lists the locks whose names begin with `prefix`, see [`Survey::names`].
    pub(in crate::backend) async fn scan(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let begins = self.namespace.prefix(':');
        let pattern = format!("{}*", escaped(&format!("{begins}{}", encoded(prefix))));
        // Without a namespace, only the text of a dlock distinguishes locks from other data.
        let only_own = begins.is_empty();
        let (mut smallest, mut known, mut cursor) = (Smallest::new(most), HashSet::new(), "0".to_owned());
        loop {
            let (next, page) = self.page(&cursor, &pattern).await?;
            // Side keys of a lock with a tag begin like a lock. SCAN may return a key more than once.
            let is_new = |key: &String| !key.contains(char::is_control) && !known.contains(&digest(key));
            let mut keys: Vec<String> = page.into_iter().filter(is_new).collect();
            if only_own && !keys.is_empty() {
                keys = self.own_among(keys).await?;
            }
            for key in keys {
                // A name that is not a valid spelling of a key is no lock of dlock.
                let location = Location::read(key.strip_prefix(&begins).unwrap_or_default(), key.clone());
                if location.key.is_some() && known.insert(digest(&key)) {
                    smallest.add(location);
                }
            }
            cursor = next;
            if cursor == "0" {
                return Ok(Names { only_own, ..smallest.names(Some(known.len() as u64)) });
            }
        }
    }
}

impl<W: Access> RedisSurvey<W> {
    /// Puts the request beside the lock with these keys, if `party` holds it here; returns `false` if not.
    pub(in crate::backend) async fn put(&mut self, keys: &Keys, party: &Party, ask: &Ask) -> Result<bool, Error> {
        self.steer(breaking::ask(keys, party, ask)).await
    }

    /// Takes the lock with these keys away from `party`, if it holds it here; returns `false` if not. On a `single`
    /// server, the next waiter is woken.
    pub(in crate::backend) async fn take(
        &mut self,
        keys: &Keys,
        party: &Party,
        ask: &Ask,
        single: bool,
    ) -> Result<bool, Error> {
        self.steer(breaking::take(keys, party, ask, single)).await
    }

    async fn steer(&mut self, command: Cmd) -> Result<bool, Error> {
        self.way.need(&Rights::for_all_locks(&self.namespace, STEER));
        let answers = self.ask(&[command]).await?;
        answers.first().and_then(yes_or_no).ok_or_else(|| self.way.malformed())
    }
}

#[async_trait::async_trait(?Send)]
impl<W: Access> Survey for RedisSurvey<W> {
    async fn connect(&mut self) -> Result<(), Error> {
        self.way.connect().await
    }

    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let keys = Keys::at(self.namespace.join(':', key));
        let raw = self.read(&keys).await?;
        Ok(raw.seen(Location::of(key, keys.lock)))
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        self.record(&Keys::at(self.namespace.join(':', key))).await
    }

    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        self.success(&Keys::at(self.namespace.join(':', key))).await
    }

    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        self.successes(prefix).await
    }

    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error> {
        self.meeting_points(prefix).await
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        self.scan(prefix, most).await
    }

    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error> {
        let read = self.read_all(locations).await?;
        let seen = locations.iter().zip(read).map(|(location, raw)| raw.seen(location.clone()));
        Ok(seen.filter(|seen| seen.state != State::Free).collect())
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        self.put(&Keys::at(self.namespace.join(':', key)), party, ask).await
    }

    async fn take_away(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        self.take(&Keys::at(self.namespace.join(':', key)), party, ask, true).await
    }
}

/// Returns the next cursor and the keys in the answer to a SCAN, without keys that are not text: they are no locks.
fn page(answer: &Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = answer else { return None };
    let [cursor, keys @ Value::Array(_)] = parts.as_slice() else { return None };
    Some((text_of(cursor)?.to_owned(), texts(keys).into_iter().flatten().map(str::to_owned).collect()))
}

fn digest(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
