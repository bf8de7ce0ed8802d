/*!
The requests to one server, and how its answers are read. The scripts themselves are in the `.lua` files.
*/

use std::time::Duration;

use ::redis::{Cmd, Value};

use crate::backend::redis::answers::{bytes, damage, number, text_of, token};
pub(super) use crate::backend::redis::answers::{released, yes_or_no};
use crate::backend::redis::damage::Damage;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::{concerns, inspection, millis, script};
use crate::backend::{Claim, Used};
use crate::clock::Instant;

macro_rules! with_common {
    ($file:literal) => {
        concat!(include_str!("../redis/value.lua"), include_str!("common.lua"), include_str!($file))
    };
}

const ACQUIRE: &str = with_common!("acquire.lua");
const WRITE_BACK: &str = with_common!("write_back.lua");
const RENEW: &str = with_common!("renew.lua");
const RELEASE: &str = with_common!("release.lua");

/// One attempt of one claim, the same for all servers.
#[derive(Debug)]
pub(super) struct Try {
    lock: String,
    fence: String,
    /// The prefix of the value of every attempt of this owner.
    owner: String,
    /// The attempt's number: a release applies to this attempt and earlier ones, however late it arrives.
    pub(super) number: u64,
    /// The value after the prefix and the number.
    rest: String,
    ttl: String,
    proposal: String,
    min_hold: Duration,
    /// When it began: a server that joins later holds the lock no longer than the others.
    begun: Instant,
}

impl Try {
    /// The attempt `number` of `claim`, at `now` in microseconds since 1970 by the wall clock.
    pub(super) fn new(claim: &Claim, number: u64, now: u64) -> Self {
        let keys = Keys::of(claim);
        Self {
            fence: keys.fence(),
            lock: keys.lock,
            owner: claim.prefix(),
            number,
            // The client's time, so that it is the same on all servers.
            rest: format!("\"since\":{},{}", now / 1000, claim.about.rest()),
            ttl: millis(claim.ttl),
            proposal: now.to_string(),
            min_hold: claim.min_hold,
            begun: Instant::now(),
        }
    }

    /// The request for the vote. `granted` is the attempt's token if a majority has granted it already.
    pub(super) fn acquire(&self, granted: Option<u64>) -> Cmd {
        let passed = granted.map_or(Duration::ZERO, |_| Instant::now().since(self.begun));
        let hold = millis(self.min_hold.saturating_sub(passed));
        let granted = granted.map_or_else(String::new, |token| token.to_string());
        let keys = [self.lock.clone(), self.fence.clone()];
        let number = self.number.to_string();
        script(ACQUIRE, &keys, &[&self.owner, &number, &self.rest, &self.ttl, &self.proposal, &granted, &hold])
    }

    /// The request to raise the counter to `token` where the vote is this attempt's.
    pub(super) fn write_back(&self, token: u64) -> Cmd {
        let keys = [self.lock.clone(), self.fence.clone()];
        script(WRITE_BACK, &keys, &[&self.owner, &self.number.to_string(), &token.to_string()])
    }

    /// The request to extend the vote.
    pub(super) fn renew(&self) -> Cmd {
        script(RENEW, std::slice::from_ref(&self.lock), &[&self.owner, &self.number.to_string(), &self.ttl])
    }

    /// The request to give back the vote of this attempt and of earlier ones.
    pub(super) fn release(&self, used: Used) -> Cmd {
        let used = if used == Used::Yes { "1" } else { "0" };
        script(RELEASE, std::slice::from_ref(&self.lock), &[&self.owner, &self.number.to_string(), used])
    }
}

/// What is at the lock's key on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occupant {
    /// The key's type.
    pub(super) kind: String,
    /// The string there, cut to the part that may be shown.
    pub(super) value: Vec<u8>,
}

/// The answer to [`Try::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Acquired {
    /// The vote is granted, and the counter is this.
    Granted(u64),
    /// Another client holds the lock there.
    Busy {
        /// What is at the lock's key.
        occupant: Occupant,
        /// The remaining time of its lease in milliseconds; negative when it never expires.
        pttl: i64,
    },
    /// The counter is damaged, and nothing was done.
    Damaged(Damage),
}

fn occupant(kind: &Value, value: &Value) -> Option<Occupant> {
    Some(Occupant { kind: text_of(kind)?.to_owned(), value: bytes(value)?.to_vec() })
}

/// Reads the answer to [`Try::acquire`]; `None` when it makes no sense.
pub(super) fn acquired(answer: &Value) -> Option<Acquired> {
    let Value::Array(answer) = answer else { return None };
    match answer.as_slice() {
        [Value::Int(1), count] => Some(Acquired::Granted(token(count)?)),
        damaged @ [Value::Int(2), ..] => damage(damaged).map(Acquired::Damaged),
        [Value::Int(0), kind, value, pttl] => {
            Some(Acquired::Busy { occupant: occupant(kind, value)?, pttl: number(pttl)? })
        }
        _ => None,
    }
}

/// Reads the answer to [`Try::renew`]: extended, or what is at the key instead; `None` when it makes no sense.
pub(super) fn renewed(answer: &Value) -> Option<Result<(), Occupant>> {
    let Value::Array(answer) = answer else { return None };
    match answer.as_slice() {
        [Value::Int(1)] => Some(Ok(())),
        [Value::Int(0), kind, value] => Some(Err(occupant(kind, value)?)),
        _ => None,
    }
}

/// The commands that ask a server for its identity and for settings that make locks unsafe; sent once, in the round
/// trip of the first attempt.
pub(super) fn introduction() -> Vec<Cmd> {
    let mut server = ::redis::cmd("INFO");
    server.arg("server");
    let mut all = vec![server];
    all.extend(inspection());
    all
}

/// What a server said of itself; nothing where it refuses to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Introduction {
    /// The id of the server, the same under all of its names.
    pub(super) run_id: Option<String>,
    /// Whether it is a replica, whose votes are its master's.
    pub(super) is_replica: bool,
    /// Settings that make locks unsafe there, for one warning each.
    pub(super) concerns: Vec<String>,
}

/// Reads the answers to [`introduction`].
pub(super) fn introduced(answers: &[Value]) -> Introduction {
    let mut lines = answers.first().and_then(text_of).unwrap_or_default().lines();
    let run_id = lines.find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned());
    let role = match answers.get(2) {
        Some(Value::Array(role)) => role.first().and_then(text_of),
        _ => None,
    };
    // Without the role: a replica is refused here, not warned about.
    let limits = answers.get(1..2).unwrap_or_default();
    Introduction {
        run_id: run_id.filter(|id| !id.is_empty()),
        is_replica: role == Some("slave"),
        concerns: concerns(limits),
    }
}

/// The command that asks whether the server keeps its data when it is killed.
pub(super) fn durability() -> Cmd {
    let mut command = ::redis::cmd("CONFIG");
    command.arg("GET").arg("append*");
    command
}

/// Reads the answer to [`durability`]: the setting that is missing, in words. Unknown settings count as missing.
pub(super) fn lacks_durability(answer: &Value) -> Option<String> {
    let pairs: Vec<(&str, &str)> = match answer {
        Value::Array(list) => {
            let texts: Vec<&str> = list.iter().map(|value| text_of(value).unwrap_or_default()).collect();
            texts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
        }
        Value::Map(map) => map
            .iter()
            .map(|(name, value)| (text_of(name).unwrap_or_default(), text_of(value).unwrap_or_default()))
            .collect(),
        _ => Vec::new(),
    };
    for (name, wanted) in [("appendonly", "yes"), ("appendfsync", "always")] {
        let found = pairs.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
        if found != Some(wanted) {
            return Some(format!("its {name} is {} and not {wanted}", found.unwrap_or("unknown")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::backend::redis::answers::any;
    use crate::property::holds;

    fn texts(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect())
    }

    #[test]
    fn only_a_server_that_syncs_always_is_durable() {
        for (answer, lacks) in [
            (&["appendonly", "yes", "appendfilename", "x", "appendfsync", "always"][..], None),
            (&["appendonly", "no", "appendfsync", "always"], Some("its appendonly is no and not yes")),
            (&["appendonly", "yes", "appendfsync", "everysec"], Some("its appendfsync is everysec and not always")),
            (&["appendonly", "yes"], Some("its appendfsync is unknown and not always")),
            (&[], Some("its appendonly is unknown and not yes")),
        ] {
            assert_eq!(lacks_durability(&texts(answer)).as_deref(), lacks, "{answer:?}");
        }
        assert!(lacks_durability(&Value::Nil).is_some());
    }

    #[test]
    fn only_an_answer_of_the_right_form_is_a_vote() {
        holds(4000, any::answer(), |answer| {
            if let Some(Acquired::Granted(count)) = acquired(&answer) {
                let Value::Array(parts) = &answer else { return Err(TestCaseError::fail("no list")) };
                prop_assert!(parts.len() == 2 && parts[0] == Value::Int(1), "{parts:?}");
                prop_assert!(count < 1 << 53 && text_of(&parts[1]).is_some_and(|text| text.parse() == Ok(count)));
            }
            prop_assert_eq!(renewed(&answer) == Some(Ok(())), answer == Value::Array(vec![Value::Int(1)]));
            Ok(())
        });
    }

    #[test]
    fn whatever_a_server_says_of_itself_it_is_trusted_only_for_the_right_words() {
        holds(2000, vec(any::answer(), 0..4), |answers| {
            let said = introduced(&answers);
            prop_assert!(said.concerns.iter().all(|concern| !concern.contains(char::is_control)), "{said:?}");
            for answer in &answers {
                let all = format!("{answer:?}");
                let trusted = lacks_durability(answer).is_none();
                prop_assert!(!trusted || ["appendonly", "appendfsync"].iter().all(|name| all.contains(name)), "{all}");
            }
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
            odd(vec![integer(0), word("string"), integer(1), integer(1)]),
            odd(vec![integer(0), word("string"), word("x")]),
            odd(vec![integer(2), word("1")]),
            odd(vec![integer(3), word("a"), word("b")]),
        ] {
            assert_eq!(acquired(&answer), None, "{answer:?}");
        }
        assert_eq!(acquired(&odd(vec![integer(1), word("17")])), Some(Acquired::Granted(17)));
    }

    #[test]
    fn a_server_is_known_by_its_run_id_and_its_role() {
        let word = |word: &str| Value::BulkString(word.as_bytes().to_vec());
        let info = word("# Server\r\nredis_version:7\r\nrun_id:0123abcd\r\ntcp_port:6379\r\n");
        let limits = texts(&["maxmemory", "100", "maxmemory-policy", "allkeys-lru"]);
        let said = introduced(&[info.clone(), limits, texts(&["master", "0"])]);
        assert_eq!((said.run_id.as_deref(), said.is_replica, said.concerns.len()), (Some("0123abcd"), false, 1));
        assert!(introduced(&[info, Value::Nil, texts(&["slave", "127.0.0.1"])]).is_replica);
        assert_eq!(introduced(&[Value::Nil, Value::Nil, Value::Nil]), Introduction::default());
        assert_eq!(introduced(&[]), Introduction::default());
    }
}
