use proptest::prelude::*;

use super::*;
use crate::property::{holds, made_of};

#[test]
fn a_spelling_is_turned_back_where_a_key_is_spelled_so() {
    for (encoded, key) in [
        ("job", Some("job")),
        ("a%2Fb", Some("a/b")),
        ("100%25", Some("100%")),
        ("%2Ehidden", Some(".hidden")),
        ("a.b", Some("a.b")),
        // Not the spelling of a key: no user can name it.
        ("a/b", None),
        ("100%", None),
        (".hidden", None),
        ("%61", None),
        ("a%2fb", None),
        ("%FF", None),
        ("", None),
    ] {
        assert_eq!(decoded(encoded).as_deref(), key, "{encoded}");
    }
    holds(1000, made_of("a|b|.|/|%|%2F|%25|ü|{|}| "), |name| {
        if let Ok(key) = Key::parse(name.as_ref()) {
            prop_assert_eq!(decoded(&key.encoded()), Some(name));
        }
        Ok(())
    });
}

#[test]
fn the_smallest_names_are_kept() {
    let names = |most: Option<usize>| {
        let mut smallest = Smallest::new(most);
        for name in ["c", "a", "d", "b", "a"] {
            smallest.add(Location::read(name, name));
        }
        let names = smallest.names(Some(4));
        (names.found.iter().map(|location| location.place.clone()).collect::<String>(), names.is_cut)
    };
    assert_eq!(names(None), ("abcd".to_owned(), false));
    assert_eq!(names(Some(4)), ("abcd".to_owned(), false));
    assert_eq!(names(Some(2)), ("ab".to_owned(), true));
}

#[test]
fn whoever_has_no_id_gets_one_from_what_distinguishes_it() {
    let text = |text: &str| Party::new(Holder::read(text.as_bytes()), "");
    assert_eq!(text(r#"{"v":1,"id":"ab"}"#).id(), "ab");
    let (one, other) = (text("one").id(), text("other").id());
    assert!(one.starts_with("foreign:") && one.len() == 20 && one != other, "{one}");
    let process = |pid: i32| Party::new(Holder::Process(pid, "flock".to_owned()), format!("{pid} 4711")).id();
    assert!(process(7) == process(7) && process(7) != process(8));
}

#[test]
fn a_request_to_somebody_who_still_uses_the_lock_is_no_break_yet() {
    let ask = || Some(Ask::new("ab", "a@b", None, 7));
    let party = |text: &str| Party::new(Holder::read(text.as_bytes()), "");
    let (user, done) = (party(r#"{"v":1,"id":"ab"}"#), party(r#"{"v":1,"done":true,"id":"ab"}"#));
    let other = party(r#"{"v":1,"id":"cd"}"#);
    let broken = |holders: &[&Party], trace: Option<Ask>| {
        let seen =
            Snapshot::free(Location::default(), 9).held_by(holders.iter().map(|&party| party.clone()).collect(), 0);
        seen.broken_by(trace).last_break.is_some()
    };
    for (holders, expected) in
        [(&[][..], true), (&[&user], false), (&[&other, &user], false), (&[&done], true), (&[&other], true)]
    {
        assert_eq!(broken(holders, ask()), expected, "{holders:?}");
        assert!(!broken(holders, None));
    }
    assert!(broken(&[&user], ask().map(|ask| ask.to("x", true))), "it was taken away");
}
