use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::key::{Key, Keys};

const AT: Moment = Moment { wall: 1_795_298_868_323, boot: 77 };

fn run() -> Run {
    let of = str::to_owned;
    let (key, backend, namespace) = (of("backup"), of("redis://locks:6379"), of("dlock"));
    Run {
        key,
        owner: of("e457"),
        backend,
        namespace,
        pid: 4710,
        host: of("web1"),
        user: of("deploy"),
        program: of("backup.sh"),
    }
}

fn read(line: &str) -> Value {
    assert!(line.ends_with('\n') && line.len() <= LONGEST, "{} bytes: {line}", line.len());
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn dlock(reason: &str) -> Holder {
    let text = format!(
        r#"{{"v":1,"id":"2015","token":7,"since":1795298745323,"host":"web1","user":"deploy","pid":4711,"program":"backup.sh","reason":"{reason}"}}"#
    );
    Holder::read(text.as_bytes())
}

fn waiting(holder: &Holder) -> Entry {
    let (lock, holder) = ("backup".to_owned(), HolderOf::of(holder, AT.wall));
    Entry::Waiting { lock, holder, held_by: 1, blocked_by: None, position: Some(2), waited_ms: 12 }
}

/// One of each kind.
fn entries() -> Vec<Entry> {
    let of = |text: &str| text.to_owned();
    let keys = Keys::of(["a", "b"].map(|key| Key::parse(key.as_ref()).expect("a key"))).expect("two");
    vec![
        waiting(&dlock("load")),
        Entry::acquired(&keys, &[7, 9], None, Some(Duration::from_secs(30))).after(Duration::from_millis(5), false),
        Entry::LastBreak {
            lock: of("b"),
            last: BreakOf::of(
                Ask::new("2015", "alice@ops1", Some("restore"), AT.wall).to("ci@web1, pid 7 (backup.sh)", true),
            ),
        },
        Entry::Refused { why: Why::Done, lock: of("backup"), holder: None, error: of("skipped") },
        Entry::Started { command_pid: 4711, program: of("backup.sh") },
        Entry::Renewed { ttl_ms: 30_000 },
        Entry::Trouble { error: of("it is down") },
        Entry::Asked { by: of("alice@ops1"), reason: None },
        Entry::Lost { reason: of("it is gone") },
        Entry::Stopping { signal: "TERM", cause: Cause::MaxRun },
        Entry::Exited { code: Some(3), signal: None, error: None, ran_ms: 8 },
        Entry::Released { freed: true },
        Entry::End { exit: 3, error: None, outcome: Some("ran"), waited_ms: Some(1), ran_ms: Some(7), total_ms: 9 },
    ]
}

#[test]
fn lines_word_for_word() {
    let head = |event: &str, dropped: u64| {
        format!(
            r#"{{"v":1,"event":"{event}","time":"2026-11-21T22:07:48.323Z","boot_ms":77,"key":"backup","owner":"e457","backend":"redis://locks:6379","namespace":"dlock","pid":4710,"host":"web1","user":"deploy","command":"backup.sh","dropped":{dropped},"#
        )
    };
    let holder = r#"{"kind":"dlock","id":"2015","token":7,"slot":null,"host":"web1","user":"deploy","pid":4711,"program":"backup.sh","reason":"load","job":null,"since":"2026-11-21T22:05:45.323Z","held_ms":123000,"text":null}"#;
    let expected = [
        format!(r#""lock":"backup","holder":{holder},"held_by":1,"blocked_by":null,"position":2,"waited_ms":12"#),
        r#""token":7,"ttl_ms":30000,"waited_ms":5,"slot":null,"keys":["a","b"],"tokens":[7,9],"covered":false"#
            .to_owned(),
        r#""lock":"b","by":"alice@ops1","reason":"restore","at":"2026-11-21T22:07:48.323Z","holder":"ci@web1, pid 7 (backup.sh)","holder_id":"2015","taken":true"#
            .to_owned(),
        r#""why":"done","lock":"backup","holder":null,"error":"skipped""#.to_owned(),
        r#""command_pid":4711,"program":"backup.sh""#.to_owned(),
        r#""ttl_ms":30000"#.to_owned(),
        r#""error":"it is down""#.to_owned(),
        r#""by":"alice@ops1","reason":null"#.to_owned(),
        r#""reason":"it is gone""#.to_owned(),
        r#""signal":"TERM","cause":"max-run""#.to_owned(),
        r#""code":3,"signal":null,"error":null,"ran_ms":8"#.to_owned(),
        r#""freed":true"#.to_owned(),
        r#""exit":3,"error":null,"outcome":"ran","waited_ms":1,"ran_ms":7,"total_ms":9"#.to_owned(),
    ];
    assert_eq!(entries().len(), expected.len());
    for (number, (entry, expected)) in entries().into_iter().zip(expected).enumerate() {
        let (name, dropped) = (entry.name(), number as u64);
        assert_eq!(line(&run(), AT, dropped, entry), format!("{}{expected}}}\n", head(name, dropped)));
    }
}

#[test]
fn every_field_of_every_event_is_explained_and_always_there() {
    let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let sorted = |fields: Vec<&str>| {
        let mut fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
        fields.sort();
        fields
    };
    let explained: Vec<&str> = EVENTS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(entries().iter().map(Entry::name).collect::<Vec<_>>(), explained);
    for (entry, (_, _, fields)) in entries().into_iter().zip(EVENTS) {
        let all = EVENT.iter().chain(*fields).map(|(name, _)| *name).collect();
        assert_eq!(names(&read(&line(&run(), AT, 0, entry))), sorted(all));
    }
    for holder in [dlock("x"), Holder::Foreign(b"x\xff".to_vec()), Holder::Process(7, "flock".to_owned())] {
        let document = read(&line(&run(), AT, 0, waiting(&holder)));
        assert_eq!(names(&document["holder"]), sorted(EVENT_HOLDER.iter().map(|(name, _)| *name).collect()));
    }
    for nobody in [Holder::Nobody, Holder::Unknown, Holder::InTheWay("a list".to_owned())] {
        assert!(read(&line(&run(), AT, 0, waiting(&nobody)))["holder"].is_null());
    }
}

#[test]
fn no_line_is_longer_than_a_pipe_takes_at_once() {
    for long in ["x".repeat(9000), "\"".repeat(9000), "ü\u{1}".repeat(4500)] {
        let trouble = read(&line(&run(), AT, 0, Entry::Trouble { error: long.clone() }));
        assert!(trouble["error"].as_str().is_some_and(|error| error.ends_with('…') && error.len() > 250), "{trouble}");
        let value = Holder::Foreign(long.clone().into_bytes());
        let run = Run { backend: long.clone(), ..run() };
        assert_eq!(read(&line(&run, AT, 0, waiting(&value)))["key"], "backup");
        let refused = Entry::Refused { why: Why::Held, lock: "k".to_owned(), holder: None, error: long };
        assert_eq!(read(&line(&run, AT, 0, refused))["why"], "held");
    }
    // The names of locks are cut last.
    let key = |number: usize| Key::parse(format!("{number}{}", "\"".repeat(500)).as_ref()).expect("a key");
    let few = Keys::of((0..2).map(key)).expect("some");
    let document = read(&line(&run(), AT, 0, Entry::acquired(&few, &[7, 9], None, None)));
    assert_eq!(document["keys"][1], key(1).as_str());
    let many = Keys::of((0..16).map(key)).expect("some");
    let run = Run { key: key(0).as_str().to_owned(), namespace: "n".repeat(512), ..run() };
    let document = read(&line(&run, AT, u64::MAX, Entry::acquired(&many, &[1 << 52; 16], None, None)));
    assert_eq!((document["keys"].as_array().map(Vec::len), &document["tokens"][15]), (Some(16), &(1_u64 << 52).into()));
}
