/*!
The requests to a redis server about one lock, and the meaning of the answers. Sending them is left to the callers, as
several servers may get the same requests.
*/

use ::redis::{Cmd, Value};

use crate::backend::redis::answers::{bytes, number, text_of};
use crate::backend::redis::keys::Keys;
use crate::backend::survey::{Left, Location, MOST, Party, Snapshot, State};
use crate::holder::ask::Ask;
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;
use crate::printable::MAX_SHOWN;

/// Maximum number of co-holders that are named in a list.
const FEW: usize = 64;
/// Number of holders or waiters that one request is about; each may publish [`MAX_SHOWN`] bytes.
const TOGETHER: usize = 100;

/// Returns the request with these words.
pub(in crate::backend) fn request(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command
}

/// Returns the requests about one lock; [`Raw::read`] reads the answers. Waiters, and more than [`FEW`] holders, are
/// named only if `whole` is set.
pub(super) fn questions(keys: &Keys, whole: bool) -> Vec<Cmd> {
    let (last_shown, last, few) = ((MAX_SHOWN - 1).to_string(), (MOST - 1).to_string(), (FEW - 1).to_string());
    let (lock, queue, holders) = (keys.lock.as_str(), keys.queue(), keys.holders());
    vec![
        request(&["TIME"]),
        request(&["TYPE", lock]),
        request(&["GETRANGE", lock, "0", &last_shown]),
        request(&["PTTL", lock]),
        request(&["ZCARD", &queue]),
        request(&["ZRANGE", &queue, "0", if whole { &last } else { "-2000000000" }]),
        request(&["ZCARD", &holders]),
        request(&["ZRANGE", &holders, "0", if whole { &last } else { &few }, "WITHSCORES"]),
        request(&["GET", &keys.fence()]),
    ]
}

/// The answers to [`questions`], as far as they are usable: a key of another type has an error as its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Raw {
    /// The server's time in milliseconds since 1970.
    pub now: u64,
    kind: String,
    value: Vec<u8>,
    pttl: i64,
    queued: u64,
    queue: Vec<String>,
    holding: u64,
    /// The id of the dlock whose text is at the lock's key.
    alone: Option<String>,
    /// The ids of the co-holders, and the ends of their holds in milliseconds since 1970.
    holders: Vec<(String, u64)>,
    /// The fencing counter.
    pub fence: Option<u64>,
    /// The texts that these publish.
    details: Vec<Option<Vec<u8>>>,
    /// The requests to stop that were made to them, or to the only holder.
    asked: Vec<Option<Vec<u8>>>,
    /// The details of the waiters.
    waiters: Vec<Waiter>,
}

/// The details of a waiter, from the side keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Waiter {
    /// The time until which it stays in the queue, in milliseconds since 1970.
    alive: Option<u64>,
    /// The name of the mode in which it wants the lock; exclusive if missing.
    mode: Option<String>,
    /// The text that it publishes.
    text: Option<Vec<u8>>,
}

/// Returns the texts in a list, with `None` for each other value.
pub(super) fn texts(value: &Value) -> Vec<Option<&str>> {
    match value {
        Value::Array(values) => values.iter().map(text_of).collect(),
        _ => Vec::new(),
    }
}

fn count(value: &Value) -> u64 {
    number(value).and_then(|number| number.try_into().ok()).unwrap_or_default()
}

impl Raw {
    /// Reads the answers to [`questions`]; `None` if they are malformed.
    pub(super) fn read(answers: &[Value]) -> Option<Self> {
        let [time, kind, value, pttl, queued, queue, holding, holders, fence] = answers else { return None };
        let [Some(seconds), Some(micros)] = texts(time)[..] else { return None };
        let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
        let ends = texts(holders);
        let holders = ends.chunks_exact(2).filter_map(|pair| {
            let end: f64 = pair[1]?.parse().ok()?;
            // Milliseconds since 1970, which dlock writes as whole numbers.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Some((pair[0]?.to_owned(), end.max(0.0) as u64))
        });
        let value = bytes(value).unwrap_or_default().to_vec();
        Some(Self {
            now: seconds.checked_mul(1000)?.checked_add(micros / 1000)?,
            kind: text_of(kind)?.to_owned(),
            alone: Holder::read(&value).id().map(str::to_owned),
            value,
            pttl: number(pttl)?,
            queued: count(queued),
            queue: texts(queue).into_iter().flatten().map(str::to_owned).collect(),
            holding: count(holding),
            holders: holders.collect(),
            fence: text_of(fence).and_then(|fence| fence.parse().ok()),
            details: Vec::new(),
            asked: Vec::new(),
            waiters: Vec::new(),
        })
    }

    /// Returns the requests for the details of the holders and waiters, to be sent one after another.
    pub(super) fn further(&self, keys: &Keys) -> Vec<Cmd> {
        let of = |key: &str, ids: &[&String]| {
            let mut command = request(&["HMGET", key]);
            for id in ids {
                command.arg(id);
            }
            command
        };
        let holding = self.holding();
        let waiters: Vec<&String> = self.queue.iter().collect();
        let (details, stop, side) = (keys.details(), keys.stop(), [keys.alive(), keys.modes(), keys.who()]);
        let holders = if self.holders.is_empty() { &[][..] } else { &holding };
        let mut commands: Vec<Cmd> = holders.chunks(TOGETHER).map(|ids| of(&details, ids)).collect();
        commands.extend(holding.chunks(TOGETHER).map(|ids| of(&stop, ids)));
        commands.extend(waiters.chunks(TOGETHER).flat_map(|ids| side.iter().map(move |key| of(key, ids))));
        commands
    }

    /// Returns the ids of the possible holders.
    fn holding(&self) -> Vec<&String> {
        if self.holders.is_empty() {
            self.alone.iter().collect()
        } else {
            self.holders.iter().map(|(id, _)| id).collect()
        }
    }

    /// Returns `party`, number `at` of the possible holders, with the request to stop that was made to it.
    fn asked(&self, at: usize, party: Party) -> Party {
        let request = self.asked.get(at).and_then(Option::as_ref);
        let asked = request.and_then(|request| Ask::read(request, party.who.id()?));
        Party { asked, ..party }
    }

    /// Adds the answers to [`Self::further`].
    pub(super) fn learn(&mut self, answers: &[Value]) {
        let list = |value: Option<&Value>| match value {
            Some(Value::Array(values)) => values.iter().map(|value| bytes(value).map(<[u8]>::to_vec)).collect(),
            _ => Vec::new(),
        };
        let many = |count: usize| count.div_ceil(TOGETHER);
        let (details, rest) = answers.split_at(many(self.holders.len()).min(answers.len()));
        let (asked, waiters) = rest.split_at(many(self.holding().len()).min(rest.len()));
        self.details = details.iter().flat_map(|answer| list(Some(answer))).collect();
        self.asked = asked.iter().flat_map(|answer| list(Some(answer))).collect();
        let text = |text: Option<Vec<u8>>| String::from_utf8(text?).ok();
        let waiter = |((alive, mode), who)| Waiter {
            alive: text(alive).and_then(|at| at.parse().ok()),
            mode: text(mode),
            text: who,
        };
        let some = |answers: &[Value]| {
            let [alive, modes, who] = [0, 1, 2].map(|at| list(answers.get(at)));
            alive.into_iter().zip(modes).zip(who).map(waiter).collect::<Vec<Waiter>>()
        };
        self.waiters = waiters.chunks(3).flat_map(some).collect();
    }

    /// Returns the lock at this place, as the answers show it.
    pub(in crate::backend) fn seen(&self, location: Location) -> Snapshot {
        let seen = Snapshot::free(location, self.now);
        let seen = match self.kind.as_str() {
            "none" => seen,
            "string" => self.held(seen),
            other => {
                let state = State::Blocked(format!("a redis {other} at the lock's key"));
                Snapshot { state, ..seen }
            }
        };
        let queue: Vec<Party> = self.queue.iter().enumerate().filter_map(|(at, id)| self.waiter(at, id)).collect();
        let dead = if self.waiters.is_empty() { 0 } else { self.queue.len() - queue.len() };
        seen.awaited_by(queue, self.queued.saturating_sub(dead as u64))
    }

    /// Returns this lock with its holders, by the string at its key and the list of co-holders.
    fn held(&self, seen: Snapshot) -> Snapshot {
        let who = Holder::read(&self.value);
        let group = match &who {
            Holder::Dlock(published) => published.mode().filter(|mode| *mode != Mode::Exclusive),
            _ => None,
        };
        let Some(mode) = group.filter(|_| !self.holders.is_empty()) else {
            let left = u64::try_from(self.pttl).map_or(Left::Forever, Left::Millis);
            return seen.held_by(vec![self.asked(0, Party::new(who, "").lasting(Some(left)))], 1);
        };
        let party = |(at, (id, end)): (usize, &(String, u64))| {
            let left = end.checked_sub(self.now).filter(|left| *left > 0)?;
            let text = self.details.get(at).and_then(Option::as_ref);
            let party = of_group(id, mode, text.map(Vec::as_slice)).lasting(Some(Left::Millis(left)));
            Some(self.asked(at, party))
        };
        let holders: Vec<Party> = self.holders.iter().enumerate().filter_map(party).collect();
        let over = self.holders.len() - holders.len();
        let mut seen = seen.held_by(holders, self.holding.saturating_sub(over as u64));
        seen.holders.sort_by_key(|party| (party.slot, party.since));
        seen
    }

    /// Returns the waiter with this id; `None` if it is not alive.
    fn waiter(&self, at: usize, id: &str) -> Option<Party> {
        let unknown = Waiter { alive: Some(self.now), ..Waiter::default() };
        let waiter = self.waiters.get(at).unwrap_or(&unknown);
        waiter.alive.filter(|alive| *alive >= self.now)?;
        let mode = waiter.mode.as_deref().map_or(Some(Mode::Exclusive), Mode::read);
        let mut party = of_group(id, mode.unwrap_or_default(), waiter.text.as_deref());
        party.mode = mode;
        Some(party)
    }
}

/// Returns the dlock with this id, which holds or wants the lock in this mode and publishes this text, if known.
fn of_group(id: &str, mode: Mode, text: Option<&[u8]>) -> Party {
    let said = match text.map(Holder::read) {
        Some(Holder::Dlock(said)) if said.id == id => *said,
        _ => Published { v: 1, id: id.to_owned(), ..Published::default() },
    };
    Party::new(Holder::Dlock(Box::new(Published { mode: Some(mode.name()), ..said })), "")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;

    use super::*;
    use crate::backend::redis::answers::any;
    use crate::property::holds;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn list(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| bulk(text)).collect())
    }

    /// Returns the answers for a lock with this value, and these holders and waiters.
    fn raw(value: &str, holders: &[&str], queue: &[&str]) -> Raw {
        let kind = if value.is_empty() { "none" } else { "string" };
        let answers = [
            list(&["100", "5000"]),
            Value::SimpleString(kind.to_owned()),
            bulk(value),
            Value::Int(if value.is_empty() { -2 } else { 1500 }),
            Value::Int(queue.len().try_into().expect("few")),
            list(queue),
            Value::Int((holders.len() / 2).try_into().expect("few")),
            list(holders),
            bulk("17"),
        ];
        Raw::read(&answers).expect("answers")
    }

    #[test]
    fn who_holds_a_lock_and_who_waits_follows_from_its_keys() {
        let ids = |parties: &[Party]| parties.iter().map(Party::id).collect::<Vec<_>>().join(" ");
        let exclusive = raw(r#"{"v":1,"id":"a","token":5}"#, &[], &[]).seen(Location::default());
        assert_eq!((ids(&exclusive.holders).as_str(), exclusive.holders[0].left), ("a", Some(Left::Millis(1500))));
        assert_eq!((exclusive.now, exclusive.state), (100_005, State::Held));
        // The second one's hold is over.
        let group = r#"{"v":1,"mode":"slots3","id":"a"}"#;
        let mut shared = raw(group, &["a", "100900", "b", "100005", "c", "101000"], &["w", "x"]);
        assert_eq!(shared.further(&Keys::at("k".to_owned())).len(), 5);
        shared.learn(&[
            list(&[r#"{"v":1,"id":"a","slot":2}"#, "", r#"{"v":1,"id":"c","slot":0}"#]),
            list(&[r#"{"v":1,"stop":"a","by":"x@y","at":1}"#, "", r#"{"v":1,"stop":"a","by":"x@y","at":1}"#]),
            list(&["100004", "100005"]),
            Value::Array(vec![Value::Nil, bulk("shared")]),
            Value::Array(vec![Value::Nil, bulk(r#"{"v":1,"id":"x","host":"h"}"#)]),
        ]);
        let seen = shared.seen(Location::default());
        assert_eq!((ids(&seen.holders).as_str(), seen.held_by), ("c a", 2));
        assert_eq!(seen.mode().and_then(Mode::slots), Some(3));
        // A request is for the owner that it names.
        let asked = |at: usize| seen.holders[at].asked.as_ref().map(|ask| ask.by.as_str());
        assert_eq!((asked(0), asked(1)), (None, Some("x@y")));
        // A waiter whose heartbeat is missing no longer waits.
        assert_eq!((ids(&seen.queue).as_str(), seen.waiting), ("x", 1));
        assert_eq!(seen.queue[0].mode, Some(Mode::Shared));
        assert_eq!(raw("", &["a", "100900"], &[]).seen(Location::default()).state, State::Free);
        // If the side keys of a group are gone, the text still names one holder.
        assert_eq!(ids(&raw(group, &[], &[]).seen(Location::default()).holders), "a");
    }

    #[test]
    fn whatever_a_server_answers_is_read_without_a_panic() {
        holds(4000, (vec(any::answer(), 0..12), vec(any::answer(), 0..6)), |(answers, further)| {
            if let Some(mut raw) = Raw::read(&answers) {
                raw.learn(&further);
                let seen = raw.seen(Location::default());
                assert!(seen.holders.len() as u64 <= seen.held_by && seen.queue.len() as u64 <= seen.waiting);
            }
            Ok(())
        });
    }
}
