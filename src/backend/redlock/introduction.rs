/*!
The introduction of a server: its identity, its unsafe settings, and the durability of its data.
*/

use ::redis::{Cmd, Value};

use crate::backend::redis::answers::text_of;
use crate::backend::redis::{inspection, warnings};

/// Returns the commands that ask a server for its identity and for settings that make locks unsafe; sent once, in the
/// round trip of the first attempt.
pub(super) fn introduction() -> Vec<Cmd> {
    let mut server = ::redis::cmd("INFO");
    server.arg("server");
    let mut all = vec![server];
    all.extend(inspection());
    all
}

/// The introduction of a server; empty where the server refuses to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Introduction {
    /// The id of the server, the same under all its names.
    pub(super) run_id: Option<String>,
    /// `true` if it is a replica, whose votes are its master's.
    pub(super) is_replica: bool,
    /// Settings that make locks unsafe there, for one warning each.
    pub(super) warnings: Vec<String>,
}

/// Reads the answers to [`introduction`].
pub(super) fn introduced(answers: &[Value]) -> Introduction {
    let mut lines = answers.first().and_then(text_of).unwrap_or_default().lines();
    let run_id = lines.find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned());
    let role = match answers.get(2) {
        Some(Value::Array(role)) => role.first().and_then(text_of),
        _ => None,
    };
    // Without the role, because a replica is refused here, not warned about.
    let limits = answers.get(1..2).unwrap_or_default();
    Introduction {
        run_id: run_id.filter(|id| !id.is_empty()),
        is_replica: role == Some("slave"),
        warnings: warnings(limits),
    }
}

/// Returns the command that asks whether the server keeps its data when it is killed.
pub(super) fn durability() -> Cmd {
    let mut command = ::redis::cmd("CONFIG");
    command.arg("GET").arg("append*");
    command
}

/// Reads the answer to [`durability`]. Returns a missing setting in words, if any; unknown settings count as missing.
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
    fn whatever_a_server_says_of_itself_it_is_trusted_only_for_the_right_words() {
        holds(2000, vec(any::answer(), 0..4), |answers| {
            let said = introduced(&answers);
            prop_assert!(said.warnings.iter().all(|warning| !warning.contains(char::is_control)), "{said:?}");
            for answer in &answers {
                let all = format!("{answer:?}");
                let trusted = lacks_durability(answer).is_none();
                prop_assert!(!trusted || ["appendonly", "appendfsync"].iter().all(|name| all.contains(name)), "{all}");
            }
            Ok(())
        });
    }

    #[test]
    fn a_server_is_known_by_its_run_id_and_its_role() {
        let word = |word: &str| Value::BulkString(word.as_bytes().to_vec());
        let info = word("# Server\r\nredis_version:7\r\nrun_id:0123abcd\r\ntcp_port:6379\r\n");
        let limits = texts(&["maxmemory", "100", "maxmemory-policy", "allkeys-lru"]);
        let said = introduced(&[info.clone(), limits, texts(&["master", "0"])]);
        assert_eq!((said.run_id.as_deref(), said.is_replica, said.warnings.len()), (Some("0123abcd"), false, 1));
        assert!(introduced(&[info, Value::Nil, texts(&["slave", "127.0.0.1"])]).is_replica);
        assert_eq!(introduced(&[Value::Nil, Value::Nil, Value::Nil]), Introduction::default());
        assert_eq!(introduced(&[]), Introduction::default());
    }
}
