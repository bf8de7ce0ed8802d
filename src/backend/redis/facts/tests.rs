use proptest::collection::vec;

use super::*;
use crate::backend::contract::probing::Verdict;
use crate::backend::redis::answers::any;
use crate::property::holds;

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn list(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| bulk(word)).collect())
}

/// Returns the facts of a server that answers with these words.
fn said(role: &[&str], replicas: usize, info: &str, memory: &[&str], append: &[&str]) -> Facts {
    let role = if role.is_empty() {
        Value::Nil
    } else {
        Value::Array(vec![bulk(role[0]), Value::Int(7), Value::Array(vec![Value::Nil; replicas])])
    };
    facts(&list(&["1000", "12345"]), &[role, bulk(info), list(memory), list(append)])
}

fn verdicts(facts: &Facts, demand: Demand) -> Vec<(&'static str, &'static str)> {
    facts.findings(demand).iter().map(|finding| (finding.verdict.name(), finding.probe)).collect()
}

#[test]
fn a_server_without_fault_and_one_with_many() {
    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:ab12\r\nloading:0\r\n";
    let good = said(
        &["master"],
        0,
        GOOD,
        &["maxmemory", "0", "maxmemory-policy", "allkeys-lru"],
        &["appendonly", "yes", "appendfsync", "everysec"],
    );
    assert_eq!((good.now, good.run_id()), (Some(1_000_012), Some("ab12")));
    let all =
        |verdict: &'static str| ["version", "role", "eviction", "persistence", "replicas"].map(|name| (verdict, name));
    assert_eq!(verdicts(&good, Demand::default()), all("ok"));
    let bad = said(
        &["slave"],
        1,
        "redis_version:5.0.1\r\n",
        &["maxmemory", "9", "maxmemory-policy", "allkeys-lru"],
        &["appendonly", "no"],
    );
    let expected =
        [("fail", "version"), ("fail", "role"), ("warn", "eviction"), ("warn", "persistence"), ("warn", "replicas")];
    assert_eq!(verdicts(&bad, Demand::default()), expected);
    // A user without further rights.
    assert_eq!(verdicts(&facts(&Value::Nil, &[]), Demand::default()), all("skip"));
    // Without CONFIG, INFO has most of the facts.
    let managed = said(
        &[],
        0,
        "valkey_version:8.0.1\nrole:master\nconnected_slaves:0\nmaxmemory:1\nmaxmemory_policy:noeviction\naof_enabled:1",
        &[],
        &[],
    );
    assert_eq!(verdicts(&managed, Demand::default()), all("ok"));
}

#[test]
fn what_is_asked_of_replicas_and_disk_decides() {
    let facts = |replicas, append: &[&str]| said(&["master"], replicas, "redis_version:7", &[], append);
    let demand = |replicas, strict| Demand { replicas, strict, votes: strict };
    let verdict = |facts: Facts, demand, probe| {
        let findings = facts.findings(demand);
        findings.iter().find(|finding| finding.probe == probe).map(|finding| finding.verdict.name())
    };
    for (replicas, wanted, expected) in [(0, 0, "ok"), (1, 0, "warn"), (1, 1, "ok"), (2, 1, "ok"), (1, 2, "fail")] {
        assert_eq!(verdict(facts(replicas, &[]), demand(wanted, false), "replicas"), Some(expected));
    }
    for (append, plain, strict) in [
        (&["appendonly", "yes", "appendfsync", "always"][..], "ok", "ok"),
        (&["appendonly", "yes", "appendfsync", "everysec"], "ok", "fail"),
        (&["appendonly", "yes", "appendfsync", "no"], "warn", "fail"),
        (&["appendonly", "yes"], "ok", "fail"),
        (&["appendonly", "no", "appendfsync", "always"], "warn", "fail"),
    ] {
        assert_eq!(verdict(facts(0, append), demand(0, false), "persistence"), Some(plain), "{append:?}");
        assert_eq!(verdict(facts(0, append), demand(0, true), "persistence"), Some(strict), "{append:?}");
    }
}

#[test]
fn whatever_a_server_says_is_shown_safely() {
    holds(2000, (any::answer(), vec(any::answer(), 0..5)), |(time, also)| {
        for finding in facts(&time, &also).findings(Demand::default()) {
            proptest::prop_assert!(!finding.text.contains(char::is_control), "{finding:?}");
            proptest::prop_assert!(finding.verdict != Verdict::Skip || finding.remedy.is_some());
        }
        Ok(())
    });
}
