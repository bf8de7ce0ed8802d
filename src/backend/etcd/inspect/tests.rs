use etcd_client::proto::PbKeyValue;

use super::*;

fn kv(key: &str, created: i64, lease: i64, value: &str) -> KeyValue {
    let (key, value) = (format!("dlock/a/{key}").into(), value.into());
    KeyValue(PbKeyValue { key, create_revision: created, lease, value, ..PbKeyValue::default() })
}

fn dlock(id: &str, rest: &str) -> String {
    format!(r#"{{"v":1,"id":"{id}"{rest}}}"#)
}

#[test]
fn who_holds_a_lock_and_who_waits_follows_from_its_keys() {
    let slot = |id: &str, slot: u32| dlock(id, &format!(r#","slot":{slot}"#));
    for (what, keys, expected) in [
        ("nobody", vec![], ""),
        ("one", vec![kv("6", 4, 7, &dlock("a", ""))], "a|"),
        ("another program", vec![kv("6", 4, 7, ""), kv("7", 5, 7, &dlock("b", ""))], "foreign|b"),
        ("the oldest", vec![kv("6", 9, 7, &dlock("a", "")), kv("7", 5, 7, &dlock("b", ""))], "b|a"),
        (
            "readers, and a writer between them",
            vec![
                kv("1.shared", 1, 7, &dlock("a", "")),
                kv("2.shared", 2, 7, &dlock("b", "")),
                kv("3", 3, 7, &dlock("c", "")),
                kv("4.shared", 4, 7, &dlock("d", "")),
            ],
            "a b|c d",
        ),
        (
            "slots, of which one is not entered yet",
            vec![
                kv("1.slots3", 1, 7, &slot("a", 1)),
                kv("2.slots3", 2, 7, &slot("b", 0)),
                kv("3.slots3", 3, 7, &dlock("c", "")),
                kv("4.slots3", 4, 7, &dlock("d", "")),
            ],
            "a b|c d",
        ),
        (
            "one that is kept, both keys of another",
            vec![
                kv("1.hold", 1, 7, &dlock("a", "")),
                kv("2", 2, 7, &dlock("b", "")),
                kv("2.hold", 2, 8, &dlock("b", "")),
            ],
            "a done|b",
        ),
        ("another lock", vec![kv("key/6", 4, 7, &dlock("a", ""))], ""),
    ] {
        let (mut line, holding) = line(&keys, "dlock/a/");
        let queue = line.split_off(holding);
        let told = |line: &[Contender]| {
            let told = line.iter().map(|one| {
                let done = if one.party.is_done() { " done" } else { "" };
                one.party.published().map_or("foreign".to_owned(), |said| format!("{}{done}", said.id))
            });
            told.collect::<Vec<_>>().join(" ")
        };
        let expected = if expected.is_empty() { "|" } else { expected };
        assert_eq!(format!("{}|{}", told(&line), told(&queue)), expected, "{what}");
    }
    let (stray, _) = line(&[kv("config", 4, 0, "x")], "dlock/a/");
    assert_eq!(stray[0].stray.as_deref(), Some("the key dlock/a/config, a key without a lease"));
}

#[test]
fn a_range_ends_after_everything_that_begins_like_it() {
    for (prefix, end) in [(&b"dlock/"[..], &b"dlock0"[..]), (b"a\xff", b"b"), (b"\xff", &[0]), (b"", &[0])] {
        assert_eq!(after(prefix), end);
    }
}
