use super::*;
use crate::backend::survey::{Kind, Location, Meetings, Successes};
use crate::holder::ask::Ask;

const NOW: u64 = 1_795_298_868_323;

fn place() -> LookedAt {
    LookedAt { backend: "redis://locks".to_owned(), namespace: "dlock".to_owned(), table: None }
}

fn seen() -> Snapshot {
    let text = r#"{"v":1,"id":"e457","token":1795298745323320,"since":1795298745323,"host":"web1","user":"deploy",
        "pid":4711,"program":"backup.sh","ttl":30000,"reason":"nightly load","stop":true}"#;
    let holder = Party::new(Holder::read(text.as_bytes()), "").lasting(Some(Left::Millis(17_000)));
    let asked = Some(Ask::new("e457", "alice@ops1", None, NOW - 4000));
    let holder = Party { asked, ..holder };
    let waiter = Party::new(Holder::read(br#"{"v":1,"id":"2015","since":1795298806323}"#), "");
    let seen = Snapshot::free(Location::read("backup", "dlock:backup"), NOW);
    seen.held_by(vec![holder], 1).awaited_by(vec![waiter], 1)
}

/// The document of a list that is written in these parts.
fn list(parts: &[&[Snapshot]], total: Option<u64>, cut: bool) -> String {
    let mut listing = listing::Listing::new(NOW);
    let mut text: String = parts.iter().map(|locks| listing.part(locks, &place())).collect();
    let mut met = Meetings::of_latches("");
    met.add(Kind::Latch, Location::read("nightly", "dlock:nightly"));
    text += &listing.end(&place(), Some(&Successes::default()), Some(&met), total, cut);
    text
}

#[test]
fn a_status_word_for_word() {
    let person = r#""host":"web1","user":"deploy","pid":4711,"program":"backup.sh","reason":"nightly load","job":null"#;
    let holder = format!(
        r#"{{"kind":"dlock","id":"e457","token":1795298745323320,"slot":null,{person},"since":"2026-11-21T22:05:45.323Z","held_ms":123000,"kept_until":null,"finished":false,"ttl_ms":30000,"delay_ms":null,"ttl_left_ms":17000,"expires":true,"renewed":null,"alive":null,"self":false,"handle":false,"text":null,"asked":{{"by":"alice@ops1","reason":null,"at":"2026-11-21T22:07:44.323Z"}},"can_be_asked":true}}"#
    );
    let waiter = r#"{"position":1,"kind":"dlock","id":"2015","mode":"exclusive","host":null,"user":null,"pid":null,"program":null,"reason":null,"job":null,"since":"2026-11-21T22:06:46.323Z","waiting_ms":62000,"alive":null,"self":false,"text":null}"#;
    let lock = format!(
        r#"{{"v":1,"backend":"redis://locks","namespace":"dlock","table":null,"time":"2026-11-21T22:07:48.323Z","key":"backup","place":"dlock:backup","state":"held","blocked_by":null,"mode":"exclusive","slots":null,"holder":{holder},"held_by":1,"holders":[{holder}],"waiting":1"#
    );
    let expected =
        format!(r#"{lock},"queue":[{waiter}],"queue_cut":false,"last_break":null,"last_success":null,"votes":null}}"#);
    assert_eq!(status(&seen(), &place()), expected.clone() + "\n");
    let trace = Ask::new("2014", "alice@ops1", Some("restore"), NOW - 4000).to("ci@web1, pid 7 (backup.sh)", true);
    let broken = r#""last_break":{"by":"alice@ops1","reason":"restore","at":"2026-11-21T22:07:44.323Z","holder":"ci@web1, pid 7 (backup.sh)","holder_id":"2014","taken":true}"#;
    let seen = || seen().broken_by(Some(trace.clone()));
    assert_eq!(status(&seen(), &place()), expected.replace(r#""last_break":null"#, broken) + "\n");
    let expected = format!(
        r#"{{"v":1,"backend":"redis://locks","namespace":"dlock","time":"2026-11-21T22:07:48.323Z","locks":[{lock},"votes":null}}],"total":7,"cut":true,"last_successes":[],"latches":[{{"key":"nightly","place":"dlock:nightly"}}],"barriers":null}}"#
    );
    assert_eq!(list(&[&[seen()]], Some(7), true), expected + "\n");
    // In several parts, and in none.
    let two = news_and_all(&list(&[&[seen(), seen()], &[], &[seen()]], None, false));
    assert_eq!((two["locks"].as_array().map(Vec::len), &two["total"]), (Some(3), &serde_json::Value::Null));
    assert_eq!(trouble("x\ny", 69), "{\"v\":1,\"error\":{\"message\":\"x\\ny\",\"exit\":69}}\n");
}

#[test]
fn every_field_of_every_document_is_explained_and_always_there() {
    let names =
        |value: &serde_json::Value| -> Vec<String> { value.as_object().expect("an object").keys().cloned().collect() };
    let explained = |table: &[(&str, &str)]| -> Vec<String> {
        let mut names: Vec<String> = table.iter().map(|(name, _)| (*name).to_owned()).collect();
        names.sort();
        names
    };
    let foreign = Party::new(Holder::Foreign(b"x".to_vec()), "").lasting(Some(Left::Forever));
    let process = Party::new(Holder::Process(7, "flock".to_owned()), "");
    for holder in [seen().holders[0].clone(), foreign, process] {
        let seen = Snapshot::free(Location::default(), 0).held_by(vec![holder.clone()], 1).awaited_by(vec![holder], 1);
        let document = news_and_all(&status(&seen, &place()));
        assert_eq!(names(&document), explained(LOCK));
        assert_eq!(names(&document["holder"]), explained(HOLDER));
        assert_eq!(names(&document["queue"][0]), explained(WAITER));
    }
    assert_eq!(names(&news_and_all(&list(&[], None, false))), explained(LIST));
}

fn news_and_all(document: &str) -> serde_json::Value {
    serde_json::from_str(document).expect("a document")
}

#[test]
fn what_only_counts_is_no_news() {
    let document = |change: fn(&mut Snapshot)| {
        let mut seen = seen();
        change(&mut seen);
        news(&status(&seen, &place()))
    };
    let first = document(|_| {});
    assert_eq!(first, document(|seen| seen.now += 1000));
    assert_eq!(first, document(|seen| seen.holders[0].left = Some(Left::Millis(1))));
    assert_ne!(first, document(|seen| seen.waiting = 2));
    assert_ne!(first, document(|seen| seen.holders[0].token = None));
    assert_ne!(first, document(|seen| seen.holders[0].alive = Some(false)));
}

#[test]
fn foreign_text_is_cut_and_made_text() {
    assert_eq!(text(b"a\xffb"), "a\u{fffd}b");
    assert_eq!(text(&"é".repeat(4000).into_bytes()).len(), MAX_SHOWN);
    assert_eq!((moment(0).as_deref(), moment(u64::MAX)), (Some("1970-01-01T00:00:00.000Z"), None));
}

#[test]
fn numbers_that_make_no_sense_are_null() {
    let seen = |since: u64, number: u64| {
        let text = format!(
            r#"{{"v":1,"id":"a","pid":-5,"token":{number},"ttl":{number},"delay":{number},"since":{since},"hold":{number}}}"#
        );
        let party = Party::new(Holder::read(text.as_bytes()), "").lasting(Some(Left::Millis(number)));
        let seen = Snapshot::free(Location::default(), NOW).held_by(vec![party.clone()], 1).awaited_by(vec![party], 1);
        news_and_all(&status(&seen, &place()))
    };
    let odd = seen(NOW + 60_000, 1 << 53);
    for field in ["token", "ttl_ms", "delay_ms", "ttl_left_ms", "pid", "held_ms"] {
        assert!(odd["holder"][field].is_null(), "{field}: {odd}");
    }
    assert!(odd["queue"][0]["waiting_ms"].is_null() && odd["holder"]["since"].is_string(), "{odd}");
    let late = seen(u64::MAX / 2, (1 << 53) - 1);
    assert!(late["holder"]["since"].is_null() && late["holder"]["held_ms"].is_null(), "{late}");
    assert!(late["holder"]["kept_until"].is_null() && late["holder"]["token"] == (1_u64 << 53) - 1, "{late}");
    // Clocks differ a little.
    assert_eq!(seen(NOW + 1500, 7)["holder"]["held_ms"], 0);
}

#[test]
fn what_is_not_safe_to_show_is_escaped_and_read_back() {
    for (text, expected) in [
        ("k\u{202e}x", r#""k\u202ex""#),
        ("\u{9b}2J\"\\\n", r#""\u009b2J\"\\\n""#),
        ("\u{e0041}", r#""\udb40\udc41""#),
        ("Größe 👍", "\"Größe 👍\""),
    ] {
        assert_eq!(json(&text), expected);
        assert_eq!(serde_json::from_str::<String>(expected).expect("a text"), text);
    }
}
