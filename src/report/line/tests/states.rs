/*!
Tests of the state of a wait, as a terminal shows it.
*/

use super::*;

/// On a narrow terminal, the least important part is cut off.
#[test]
fn on_a_terminal_what_changes_comes_first() {
    let published = |text: &str| Holder::read(text.as_bytes());
    let full = r#"{"v":1,"id":"x","token":9,"since":1000,"host":"web1","user":"deploy","pid":4711,"program":"backup.sh","reason":"nightly load"}"#;
    let bare = r#"{"v":1,"id":"x","host":"web1","user":"deploy","pid":4711}"#;
    let handle = r#"{"v":1,"id":"x","host":"web1","user":"deploy","pid":4711,"handle":true}"#;
    let flock = || Holder::Process(7, "flock".to_owned());
    let told = |event: &Event| state(event).expect("a state");
    for (holder, position, expected) in [
        (
            published(full),
            Some(2),
            "waiting 12s, 1 ahead of you; held 2m 3s by deploy@web1, pid 4711 (backup.sh): nightly load",
        ),
        (
            published(full),
            Some(1),
            "waiting 12s, you are next; held 2m 3s by deploy@web1, pid 4711 (backup.sh): nightly load",
        ),
        (published(bare), None, "waiting 12s; held by deploy@web1, pid 4711"),
        (published(handle), None, "waiting 12s; held by deploy@web1, taken by dlock acquire"),
        (flock(), Some(3), "waiting 12s, 2 ahead of you; held by flock (pid 7)"),
        (flock(), Some(11), "waiting 12s, 10 ahead of you; held by flock (pid 7)"),
        (flock(), Some(21), "waiting 12s, 20 ahead of you; held by flock (pid 7)"),
        (flock(), Some(1000), "waiting 12s, 999 ahead of you; held by flock (pid 7)"),
    ] {
        let held = Blocker::Held { holder, beside: 0, now: 124_000, position, queued: false };
        assert_eq!(told(&waiting(held)), ("'k'".to_owned(), expected.to_owned()));
    }
    for (mode, beside, expected) in [
        ("slots3", 2, "3 of 3 slots taken, one for 2m 3s by deploy@web1, pid 4711: load"),
        ("slots3", 0, "1 of 3 slots taken, one for 2m 3s by deploy@web1, pid 4711: load"),
        ("shared", 2, "held by 3 readers, one for 2m 3s: deploy@web1, pid 4711: load"),
        ("shared", 0, "held shared 2m 3s by deploy@web1, pid 4711: load"),
        ("later", 0, "held 2m 3s by deploy@web1, pid 4711: load"),
    ] {
        let holder = published(&format!(
            r#"{{"v":1,"id":"x","mode":"{mode}","since":1000,"host":"web1","user":"deploy","pid":4711,"reason":"load"}}"#
        ));
        let why = Blocker::Held { holder, beside, now: 124_000, position: Some(2), queued: false };
        assert_eq!(told(&waiting(why)).1, format!("waiting 12s, 1 ahead of you; {expected}"));
    }
    let done = published(r#"{"v":1,"id":"x","done":true,"until":125000,"host":"web1","user":"deploy","pid":4711}"#);
    let why = Blocker::Held { holder: done, beside: 0, now: 124_000, position: None, queued: false };
    let kept = "finished; kept until 1970-01-01T00:02:05Z (another 1s, --min-hold)";
    assert_eq!(told(&waiting(why)).1, format!("waiting 12s; held by deploy@web1, pid 4711, {kept}"));
    let trouble = waiting(Blocker::Trouble(Trouble::Said("it is down".to_owned())));
    assert_eq!(told(&trouble).1, "waiting 12s; it is down");
}
