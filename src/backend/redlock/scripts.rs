/*!
The requests to one server, and the readers of its answers. The scripts themselves are in the `.lua` files.
*/

use std::time::Duration;

use ::redis::{Cmd, Value};

use crate::backend::contract::claim::{Claim, Once};
use crate::backend::contract::contender::{OtherSlots, Queue, Used};
use crate::backend::redis::answers::{bytes, damage, done_already, held_by_outer, number, other_slots, text_of, token};
pub(super) use crate::backend::redis::answers::{released, yes_or_no};
use crate::backend::redis::damage::Damage;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::{millis, script, script_of};
use crate::clock::Instant;
use crate::holder::Published;
use crate::holder::done::Done;
use crate::lock::admission::Mode;

/// The time for which servers let nobody join a group after the last look of a writer that waits for its end.
const INTENT: Duration = Duration::from_millis(1500);

const ACQUIRE: &str = script_of!(
    "../redis/value.lua" "../redis/group.lua" "../redis/counter.lua" "../redis/entering.lua" "common.lua" "acquire.lua"
);
/// A request for the vote by a claim with a period. Other claims avoid the cost of this longer text, which servers hash
/// for each request.
const ACQUIRE_ONCE: &str = script_of!(
    "../redis/value.lua" "../redis/group.lua" "../redis/counter.lua" "../redis/entering.lua" "../redis/once.lua"
    "common.lua" "acquire.lua"
);
const WRITE_BACK: &str =
    script_of!("../redis/value.lua" "../redis/group.lua" "../redis/counter.lua" "common.lua" "write_back.lua");
const RENEW: &str = script_of!("../redis/value.lua" "../redis/group.lua" "common.lua" "renew.lua");
const RELEASE: &str = script_of!("../redis/value.lua" "../redis/group.lua" "common.lua" "release.lua");
const RELEASE_ONCE: &str =
    script_of!("../redis/value.lua" "../redis/group.lua" "../redis/once.lua" "common.lua" "release.lua");

/// The extent of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// The vote: there were too few votes, and the lock is still wanted.
    Vote,
    /// Everything: the lock is no longer wanted. It was used, or not.
    All(Used),
}

/// One attempt of one claim, the same for all servers.
#[derive(Debug)]
pub(super) struct Try {
    /// The lock's keys, in the order that the scripts expect; write-backs need the first four.
    keys: Vec<String>,
    /// The keys that renewals need.
    renewed: Vec<String>,
    /// The list that a release writes to.
    released: String,
    /// The prefix of the text of every attempt of this owner.
    owner: String,
    /// The owner's id.
    id: String,
    /// The attempt's number: a release applies to this attempt and earlier ones, however late it arrives.
    pub(super) number: u64,
    /// The text after the prefix and the server's additions.
    rest: String,
    ttl: String,
    proposal: String,
    min_hold: Duration,
    mode: Mode,
    /// The slot that it asks for, the same one on all servers.
    pub(super) slot: Option<u32>,
    queue: Queue,
    /// The ids of the owners of the outer runs.
    outer: String,
    /// The period in which the command runs only if none has succeeded yet.
    once_per: Option<Once>,
    /// The end of the text that servers record after a success.
    done: String,
    /// The time at which it began: a server that joins later holds the lock no longer than the others.
    begun: Instant,
}

impl Try {
    /// Returns the attempt `number` of `claim`, at `now` in microseconds since 1970 by the wall clock, for this `slot`
    /// if it has slots.
    pub(super) fn new(claim: &Claim, number: u64, now: u64, slot: Option<u32>, queue: Queue) -> Self {
        let keys = Keys::of(claim);
        Self {
            keys: keys.voting(),
            renewed: keys.renewed(),
            released: keys.released(),
            owner: claim.prefix(),
            id: claim.owner.as_str().to_owned(),
            number,
            // The client's time, so that it is the same on all servers.
            rest: format!("\"since\":{},{}", now / 1000, claim.about.rest()),
            ttl: millis(claim.ttl),
            proposal: now.to_string(),
            min_hold: claim.min_hold,
            mode: claim.mode,
            slot,
            queue,
            outer: claim.outer.join(" "),
            once_per: claim.once_per,
            done: claim.once_per.map(|once| claim.done(once.period(), 0).end()).unwrap_or_default(),
            begun: Instant::now(),
        }
    }

    /// Returns `true` if servers where it finds a group let nobody join that group until this client has had its turn.
    pub(super) fn announces(&self) -> bool {
        self.mode == Mode::Exclusive && self.queue == Queue::Join
    }

    /// Returns `true` if this server, which refused it, keeps others out for it.
    pub(super) fn is_announced(&self, blocker: &Blocker) -> bool {
        blocker.writer.as_ref() == Some(&self.id)
    }

    /// Returns the request for the vote. `granted` is the attempt's token if a majority has already granted it.
    pub(super) fn acquire(&self, granted: Option<u64>) -> Cmd {
        let passed = granted.map_or(Duration::ZERO, |_| Instant::now().since(self.begun));
        let hold = millis(self.min_hold.saturating_sub(passed));
        let intent = if granted.is_none() && self.announces() { INTENT } else { Duration::ZERO };
        let outer = if granted.is_none() { self.outer.as_str() } else { "" };
        let granted = granted.map_or_else(String::new, |token| token.to_string());
        let slot = self.slot.map_or_else(|| "-1".to_owned(), |slot| slot.to_string());
        let (number, mode, intent) = (self.number.to_string(), self.mode.name(), millis(intent));
        // A majority knew of no success: the other servers only add their votes.
        let period = self.once_per.filter(|_| granted.is_empty()).map(Once::arguments);
        let mut arguments = vec![self.owner.as_str(), &number, &self.rest, &self.ttl, &self.proposal, &granted];
        arguments.extend([hold.as_str(), &mode, &slot, &intent, outer]);
        arguments.extend(period.iter().flatten().map(String::as_str));
        script(if period.is_some() { ACQUIRE_ONCE } else { ACQUIRE }, &self.keys, &arguments)
    }

    /// Returns the request to raise the counter to `token` if the vote is this attempt's.
    pub(super) fn write_back(&self, token: u64) -> Cmd {
        let (number, token) = (self.number.to_string(), token.to_string());
        script(WRITE_BACK, &self.keys[..4], &[&self.owner, &number, &token, &self.mode.name()])
    }

    /// Returns the request to extend the vote.
    pub(super) fn renew(&self) -> Cmd {
        let prefix = format!("{}\"try\":{},", self.owner, self.number);
        script(RENEW, &self.renewed, &[&prefix, &self.ttl, &self.mode.name()])
    }

    /// Returns the request to give back the vote of this attempt and of earlier ones and, with `lets_in`, to let in
    /// others that were kept out for it.
    pub(super) fn release(&self, what: Return, lets_in: bool) -> Cmd {
        let flag = |set: bool| if set { "1" } else { "0" };
        let used = match what {
            Return::Vote => "",
            Return::All(used) => flag(used != Used::No),
        };
        let (number, mode) = (self.number.to_string(), self.mode.name());
        let keys: Vec<String> = self.keys.iter().chain([&self.released]).cloned().collect();
        let period = self.once_per.filter(|_| what == Return::All(Used::Success)).map(Once::arguments);
        let mut arguments = vec![self.owner.as_str(), &number, used, &mode, flag(lets_in)];
        let Some(period) = period else { return script(RELEASE, &keys, &arguments) };
        arguments.extend(period.iter().map(String::as_str).chain([self.done.as_str()]));
        script(RELEASE_ONCE, &keys, &arguments)
    }
}

/// The value of the lock's key on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occupant {
    /// The key's type.
    pub(super) kind: String,
    /// The string there, cut to the part that may be shown.
    pub(super) value: Vec<u8>,
}

/// The reason why a server refuses its vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocker {
    /// The value of the lock's key; with the same number of slots, the text of the requested slot's holder.
    pub(super) occupant: Occupant,
    /// Milliseconds until another look is worthwhile; negative if nothing expires.
    pub(super) left: i64,
    /// Number of its co-holders there.
    pub(super) beside: u64,
    /// The id of the writer for which the server keeps others out.
    pub(super) writer: Option<String>,
    /// The slots that are taken there, if the lock has the same number of slots there.
    pub(super) taken: Vec<u32>,
}

/// The answer to [`Try::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Acquired {
    /// The vote is granted, with this counter.
    Granted(u64),
    /// Another client holds the lock there, or goes first.
    Busy(Blocker),
    /// An outer run holds the lock.
    Outer(Box<Published>),
    /// Others hold the lock with another number of slots.
    OtherSlots(OtherSlots),
    /// A command has already succeeded in the period, as far as this server knows.
    Done(Box<Done>),
    /// A side key is unusable, and nothing was done.
    Damaged(Damage),
}

fn occupant(kind: &Value, value: &Value) -> Option<Occupant> {
    Some(Occupant { kind: text_of(kind)?.to_owned(), value: bytes(value)?.to_vec() })
}

/// Reads the answer to [`Try::acquire`]; `None` if it is malformed.
pub(super) fn acquired(answer: &Value) -> Option<Acquired> {
    let Value::Array(answer) = answer else { return None };
    match answer.as_slice() {
        [Value::Int(1), count] => Some(Acquired::Granted(token(count)?)),
        damaged @ [Value::Int(2 | 3), ..] => damage(damaged).map(Acquired::Damaged),
        outer @ [Value::Int(4), ..] => held_by_outer(outer).map(Acquired::Outer),
        other @ [Value::Int(5), ..] => other_slots(other).map(Acquired::OtherSlots),
        done @ [Value::Int(6), ..] => done_already(done).map(Acquired::Done),
        [Value::Int(0), kind, value, left, beside, writer, Value::Array(taken)] => {
            let taken = taken.iter().map(|slot| u32::try_from(number(slot)?).ok()).collect::<Option<Vec<u32>>>()?;
            let writer = Some(text_of(writer)?.to_owned()).filter(|writer| !writer.is_empty());
            let (occupant, beside) = (occupant(kind, value)?, number(beside)?.try_into().ok()?);
            Some(Acquired::Busy(Blocker { occupant, left: number(left)?, beside, writer, taken }))
        }
        _ => None,
    }
}

/// Reads the answer to [`Try::renew`]: extended, with any request to stop, or the key's value; `None` if malformed.
pub(super) fn renewed(answer: &Value) -> Option<Result<Option<Vec<u8>>, Occupant>> {
    let Value::Array(answer) = answer else { return None };
    match answer.as_slice() {
        [Value::Int(1)] => Some(Ok(None)),
        [Value::Int(2), request] => Some(Ok(Some(bytes(request)?.to_vec()))),
        [Value::Int(0), kind, value] => Some(Err(occupant(kind, value)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::redis::answers::any;
    use crate::backend::redis::rights::{MAJORITY, lacking};
    use crate::property::holds;

    #[test]
    fn the_scripts_need_no_rights_but_those_that_are_told() {
        for script in [ACQUIRE, ACQUIRE_ONCE, WRITE_BACK, RENEW, RELEASE, RELEASE_ONCE] {
            assert_eq!(lacking(MAJORITY, script), Vec::<String>::new());
        }
    }

    #[test]
    fn only_an_answer_of_the_right_form_is_a_vote() {
        holds(4000, any::answer(), |answer| {
            if let Some(Acquired::Granted(count)) = acquired(&answer) {
                let Value::Array(parts) = &answer else { return Err(TestCaseError::fail("no list")) };
                prop_assert!(parts.len() == 2 && parts[0] == Value::Int(1), "{parts:?}");
                prop_assert!(count < 1 << 53 && text_of(&parts[1]).is_some_and(|text| text.parse() == Ok(count)));
            }
            prop_assert_eq!(renewed(&answer) == Some(Ok(None)), answer == Value::Array(vec![Value::Int(1)]));
            Ok(())
        });
    }

    #[test]
    fn nonsense_is_no_answer() {
        let integer = Value::Int;
        let odd = |parts: Vec<Value>| Value::Array(parts);
        let word = |word: &str| Value::BulkString(word.as_bytes().to_vec());
        for answer in [
            Value::Nil,
            integer(1),
            odd(vec![]),
            odd(vec![integer(1), word("")]),
            odd(vec![integer(1), word("1e300")]),
            odd(vec![integer(1), word("-1")]),
            odd(vec![integer(0), word("string"), word("x"), integer(1)]),
            odd(vec![integer(0), word("string"), word("x"), integer(1), integer(0), word("")]),
            odd(vec![integer(0), word("string"), word("x"), integer(1), integer(0), word(""), integer(1)]),
            odd(vec![integer(0), word("string"), word("x"), integer(1), integer(-1), word(""), odd(vec![])]),
            odd(vec![integer(0), word("string"), word("x"), integer(1), integer(0), word(""), odd(vec![integer(-1)])]),
            odd(vec![integer(2), word("1")]),
            odd(vec![integer(4), word("theirs")]),
            odd(vec![integer(5), integer(3), word("")]),
            odd(vec![integer(6), word("a"), word("b")]),
        ] {
            assert_eq!(acquired(&answer), None, "{answer:?}");
        }
        assert_eq!(acquired(&odd(vec![integer(1), word("17")])), Some(Acquired::Granted(17)));
        let done = Done { v: 1, period: 7, length: 60_000, ..Done::default() };
        assert_eq!(acquired(&odd(vec![integer(6), word(&done.text())])), Some(Acquired::Done(Box::new(done))));
        let answer = |writer, taken: &[i64]| {
            let taken = odd(taken.iter().copied().map(integer).collect());
            odd(vec![integer(0), word("string"), word("x"), integer(-1), integer(2), word(writer), taken])
        };
        let occupant = Occupant { kind: "string".to_owned(), value: b"x".to_vec() };
        let busy = Blocker { occupant, left: -1, beside: 2, writer: None, taken: vec![0, 4] };
        assert_eq!(acquired(&answer("", &[0, 4])), Some(Acquired::Busy(busy.clone())));
        let behind = Blocker { writer: Some("w".to_owned()), taken: Vec::new(), ..busy };
        assert_eq!(acquired(&answer("w", &[])), Some(Acquired::Busy(behind)));
    }
}
