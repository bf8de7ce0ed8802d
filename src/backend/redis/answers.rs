/*!
The meaning of a server's answers. An answer in a form that the scripts never give is malformed; above all, it is not a
grant.
*/

use ::redis::Value;

use crate::backend::contract::contender::{OtherSlots, Released, TOKEN_LIMIT};
use crate::backend::redis::damage::Damage;
use crate::holder::done::Done;
use crate::holder::{Holder, Published};

/// The answer to `attempt.lua`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempted {
    /// The lock is ours, with this token and in this slot.
    Granted(u64, Option<u32>),
    /// An outer run holds it.
    Outer(Box<Published>),
    /// Others use the lock with another number of slots.
    OtherSlots(OtherSlots),
    /// A command has already succeeded in the period.
    Done(Box<Done>),
    /// Another client holds the lock, or is ahead in the queue.
    Busy(Blocker),
    /// A side key is unusable, and nothing was done.
    Damaged(Damage),
}

/// The reason why an attempt was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocker {
    /// The holder.
    pub holder: Holder,
    /// Number of its co-holders.
    pub beside: u64,
    /// Milliseconds until another look is worthwhile, because a hold ends; negative if there is no such end.
    pub pttl: i64,
    /// Our position in the queue; 0 if we are not in it.
    pub position: i64,
    /// The server's time in milliseconds since 1970.
    pub now: u64,
}

/// Reads the answer to `attempt.lua`; `None` if it is malformed.
pub(super) fn attempted(answer: &Value) -> Option<Attempted> {
    let Value::Array(answer) = answer else { return None };
    match answer.as_slice() {
        [Value::Int(1), granted, slot] => Some(Attempted::Granted(token(granted)?, number(slot)?.try_into().ok())),
        outer @ [Value::Int(4), ..] => held_by_outer(outer).map(Attempted::Outer),
        other @ [Value::Int(5), ..] => other_slots(other).map(Attempted::OtherSlots),
        done @ [Value::Int(6), ..] => done_already(done).map(Attempted::Done),
        damaged @ [Value::Int(2 | 3), ..] => damage(damaged).map(Attempted::Damaged),
        [Value::Int(0), kind, value, pttl, position, now, beside] => {
            let holder = match (bytes(kind)?, bytes(value)?) {
                (b"none", _) => Holder::Nobody,
                (b"string", value) => Holder::read(value),
                (other, _) => Holder::InTheWay(format!("a redis {} at the lock's key", String::from_utf8_lossy(other))),
            };
            let (pttl, position, now) = (number(pttl)?, number(position)?, text_of(now)?.parse().ok()?);
            let beside = number(beside)?.try_into().ok()?;
            Some(Attempted::Busy(Blocker { holder, beside, pttl, position, now }))
        }
        _ => None,
    }
}

/// Reads an answer that names an outer run as the holder; `None` if it is malformed.
pub(in crate::backend) fn held_by_outer(answer: &[Value]) -> Option<Box<Published>> {
    let [Value::Int(4), outer] = answer else { return None };
    match Holder::read(bytes(outer)?) {
        Holder::Dlock(outer) => Some(outer),
        _ => None,
    }
}

/// Reads an answer that reports another number of slots in use; `None` if it is malformed.
pub(in crate::backend) fn other_slots(answer: &[Value]) -> Option<OtherSlots> {
    let [Value::Int(5), slots, text, now] = answer else { return None };
    let (slots, now) = (number(slots)?.try_into().ok()?, text_of(now)?.parse().ok()?);
    let holder = match bytes(text)? {
        b"" => Holder::Unknown,
        text => Holder::read(text),
    };
    Some(OtherSlots { slots, holder, now })
}

/// Reads an answer that reports an earlier success in the period; `None` if it is malformed.
pub(in crate::backend) fn done_already(answer: &[Value]) -> Option<Box<Done>> {
    let [Value::Int(6), text] = answer else { return None };
    Done::read(bytes(text)?).map(Box::new)
}

/// Reads an answer that reports an unusable side key; `None` if it is malformed.
pub(in crate::backend) fn damage(answer: &[Value]) -> Option<Damage> {
    match answer {
        [Value::Int(2), key, kind, text] => Some(Damage::new(text_of(key)?, text_of(kind)?, Some(bytes(text)?))),
        [Value::Int(3), key, kind] => Some(Damage::new(text_of(key)?, text_of(kind)?, None)),
        _ => None,
    }
}

/// Reads the answer to `renew.lua`: extended, perhaps with a request to stop, or not, with a description of what is at
/// the key instead; `None` if it is malformed.
pub(super) fn renewed(answer: &Value) -> Option<Result<Option<Vec<u8>>, String>> {
    let Value::Array(answer) = answer else { return None };
    match answer.as_slice() {
        [Value::Int(1)] => Some(Ok(None)),
        [Value::Int(2), request] => Some(Ok(Some(bytes(request)?.to_vec()))),
        [Value::Int(0), kind, value] => Some(Err(match (bytes(kind), bytes(value)) {
            (Some(b"none"), _) => "its key is gone from the server".to_owned(),
            (Some(b"string"), Some(value)) => {
                // Without its age, because this host's clock is not the one that granted it.
                format!("its key is {}", Holder::read(value).describe(0))
            }
            _ => "something else is at its key".to_owned(),
        })),
        _ => None,
    }
}

/// Reads an answer that is 1 for yes and 0 for no; `None` if it is neither.
pub(in crate::backend) fn yes_or_no(answer: &Value) -> Option<bool> {
    match answer {
        Value::Int(1) => Some(true),
        Value::Int(0) => Some(false),
        _ => None,
    }
}

/// Reads the answer to `release.lua`; `None` if it is malformed.
pub(in crate::backend) fn released(answer: &Value) -> Option<Released> {
    match answer {
        Value::Int(0) => Some(Released::NotMine),
        Value::Int(1) => Some(Released::Freed),
        Value::Int(2) => Some(Released::Kept),
        _ => None,
    }
}

/// Reads a fencing token, which the scripts return as text. Rejects one that is too large: its counter is damaged.
pub(in crate::backend) fn token(value: &Value) -> Option<u64> {
    text_of(value)?.parse().ok().filter(|token| *token < TOKEN_LIMIT)
}

pub(in crate::backend) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

pub(in crate::backend) fn text_of(value: &Value) -> Option<&str> {
    std::str::from_utf8(bytes(value)?).ok()
}

pub(in crate::backend) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Arbitrary answers of servers, for the tests of all code that reads answers.
#[cfg(test)]
pub(in crate::backend) mod any {
    use ::redis::{Value, parse_redis_value};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use crate::property::{made_of, one_of};

    /// Words with a meaning in some answer.
    const WORDS: &str = "\
        none|string|list|17|0|-1|9007199254740991|9007199254740992|18446744073709551615|1e300|+3|\
        |{\"v\":1,\"id\":\"x\",|{\"v\":1,\"period\":7,\"length\":1}|}|ip|port|flags|config-epoch|127.0.0.1|6379|o_down|master|slave|run_id:abc\r\n\
        |maxmemory|maxmemory-policy|allkeys-lru|appendonly|appendfsync|always|yes|\u{1b}[2J|\n";

    /// Names of fields, which precede their values.
    const FIELDS: &str = "ip|port|flags|config-epoch|maxmemory|maxmemory-policy|appendonly|appendfsync";

    /// Pieces of answers in the wire format.
    const ON_THE_WAY: &str = "*|$|:|+|-|%|~|#t|_|,|0|1|2|-1|9999999999|\r\n|\r\n|ab";

    /// Generates an answer: often a nearly correct one, sometimes an arbitrary one, or one parsed from arbitrary bytes.
    pub(in crate::backend) fn answer() -> impl Strategy<Value = Value> {
        let word = || {
            prop_oneof![
                4 => one_of(WORDS).prop_map(|word| Value::BulkString(word.into())),
                2 => select(vec![0, 1, -1, 2, i64::MIN, i64::MAX]).prop_map(Value::Int),
                1 => one_of(WORDS).prop_map(|word| Value::SimpleString(word.to_owned())),
                1 => any::<Vec<u8>>().prop_map(Value::BulkString),
                1 => any::<i64>().prop_map(Value::Int),
                1 => select(vec![Value::Nil, Value::Okay, Value::Boolean(true), Value::Double(1.0)]),
            ]
        };
        let nested = word().prop_recursive(4, 32, 8, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..8).prop_map(Value::Array),
                vec(inner.clone(), 0..8).prop_map(Value::Set),
                vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
            ]
        });
        let bytes = prop_oneof![any::<Vec<u8>>(), made_of(ON_THE_WAY).prop_map(String::into_bytes)];
        prop_oneof![
            4 => (select(vec![0, 1, 2, 3, 4, 5, 6]), vec(word(), 0..7)).prop_map(|(first, rest)| {
                Value::Array(std::iter::once(Value::Int(first)).chain(rest).collect())
            }),
            2 => vec(word(), 0..10).prop_map(Value::Array),
            2 => vec((one_of(FIELDS), word()), 0..7).prop_map(|pairs| {
                let pair = |(name, value): (&str, Value)| [Value::BulkString(name.into()), value];
                Value::Array(pairs.into_iter().flat_map(pair).collect())
            }),
            2 => nested,
            1 => bytes.prop_map(|bytes| parse_redis_value(&bytes).unwrap_or(Value::Nil)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::holds;

    #[test]
    fn only_an_answer_of_the_right_form_is_a_grant() {
        holds(4000, any::answer(), |answer| {
            if let Some(Attempted::Granted(token, slot)) = attempted(&answer) {
                let Value::Array(parts) = &answer else { return Err(TestCaseError::fail("no list")) };
                prop_assert!(parts.len() == 3 && parts[0] == Value::Int(1), "{parts:?}");
                let Value::Int(number) = parts[2] else { return Err(TestCaseError::fail("no slot")) };
                prop_assert_eq!(slot, u32::try_from(number).ok());
                prop_assert!(token < 1 << 53 && text_of(&parts[1]).is_some_and(|text| text.parse() == Ok(token)));
            }
            prop_assert_eq!(renewed(&answer) == Some(Ok(None)), answer == Value::Array(vec![Value::Int(1)]));
            prop_assert_eq!(yes_or_no(&answer) == Some(true), answer == Value::Int(1));
            prop_assert_eq!(released(&answer).is_some(), matches!(answer, Value::Int(0..=2)));
            Ok(())
        });
    }

    #[test]
    fn what_is_in_the_way_can_be_told() {
        holds(2000, any::answer(), |answer| {
            let busy = match attempted(&answer) {
                Some(Attempted::Busy(blocker)) => Some(blocker.holder.describe(blocker.now)),
                Some(Attempted::Damaged(damage)) => Some(damage.to_string()),
                Some(Attempted::OtherSlots(other)) => Some(other.holder.describe(other.now)),
                Some(Attempted::Done(done)) => Some(done.describe()),
                Some(Attempted::Outer(outer)) => Some(Holder::Dlock(outer).describe(0)),
                Some(Attempted::Granted(..)) | None => None,
            };
            let lost = renewed(&answer).and_then(Result::err);
            let warnings = crate::backend::redis::warnings(&[answer.clone(), answer]);
            for line in busy.into_iter().chain(lost).chain(warnings) {
                prop_assert!(!line.contains(char::is_control), "{line:?}");
            }
            Ok(())
        });
    }

    #[test]
    fn a_token_of_a_damaged_counter_is_no_grant() {
        for (text, expected) in [("9007199254740991", Some(TOKEN_LIMIT - 1)), ("9007199254740992", None)] {
            assert_eq!(token(&Value::BulkString(text.into())), expected);
        }
    }
}
