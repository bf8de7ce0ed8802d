/*!
Tests of the sentences about locks that several hold together.
*/

use super::*;
use crate::holder::done::Done;

fn other_slots(holder: Holder) -> Event {
    Event::OtherSlots { lock: lock(), wanted: 5, slots: 3, holder, now: 124_000 }
}

fn upgrade(outer: Mode, wanted: Mode) -> Event {
    Event::Upgrade { key: named("k"), outer, wanted }
}

fn done() -> Done {
    let (host, user) = ("web1".to_owned(), "deploy".to_owned());
    Done { v: 1, period: 3, length: 5_400_000, at: 9_000, host, user, pid: 7 }
}

/// The sentences about how a lock is held, and about one whose command has succeeded in this period.
pub(super) fn holds() -> Vec<(Event, &'static str)> {
    let acquired = |mode, slot| {
        let waited = Duration::from_micros(3200);
        Event::Acquired { lock: lock(), tokens: vec![42], mode, slot, ttl: None, waited }
    };
    vec![
        (acquired(Mode::Shared, None), "acquired 'k' at redis://h:6379, token 42, shared, after 3ms"),
        (
            acquired(Mode::read("slots3").expect("a mode"), Some(0)),
            "acquired 'k' at redis://h:6379, token 42, slot 0 of 3, after 3ms",
        ),
        (
            Event::AlreadyDone { lock: lock(), done: Box::new(done()) },
            "skipped: 'k' at redis://h:6379 was done in this period (--once-per 1h 30m) by deploy@web1, pid 7, at \
             1970-01-01T00:00:09Z",
        ),
        (
            Event::OnceInside(named("k")),
            "'k' is held by the outer dlock run, which alone knows whether its command succeeds: use --once-per there",
        ),
    ]
}

/// The sentences about a lock that is held otherwise than it is wanted.
pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    use Mode::{Exclusive, Shared};
    let slots = |slots: u32| Mode::read(&format!("slots{slots}")).expect("a mode");
    let reader =
        Holder::read(br#"{"v":1,"id":"x","mode":"shared","since":1000,"host":"web1","user":"deploy","pid":7}"#);
    let three = Holder::read(br#"{"v":1,"id":"x","mode":"slots3","since":1000,"host":"web1","user":"deploy","pid":7}"#);
    let read = |beside| {
        let holder = reader.clone();
        Blocker::Held { holder, beside, now: 124_000, position: Some(1), queued: false }
    };
    let holder = reader.clone();
    let queued = Blocker::Held { holder, beside: 1, now: 124_000, position: None, queued: true };
    vec![
        (
            waiting(read(0)),
            "waiting for 'k': 12s so far; held shared by deploy@web1, pid 7, since 1970-01-01T00:00:01Z (2m 3s); you are next",
        ),
        (
            waiting(read(2)),
            "waiting for 'k': 12s so far; held by 3 readers, among them deploy@web1, pid 7, since 1970-01-01T00:00:01Z (2m 3s); you are \
             next",
        ),
        (
            refused(None, queued),
            "did not get 'k': held by 2 readers, among them deploy@web1, pid 7, since 1970-01-01T00:00:01Z (2m 3s); others wait \
             for it ahead of this run; see dlock status --key k",
        ),
        (
            other_slots(three),
            "'k' at redis://h:6379 is in use with --slots 3 (by deploy@web1, pid 7, since 1970-01-01T00:00:01Z (2m 3s)): \
             --slots 5 is possible once nobody holds it or waits for it",
        ),
        (
            other_slots(Holder::Unknown),
            "'k' at redis://h:6379 is in use with --slots 3: --slots 5 is possible once nobody holds it or waits for it",
        ),
        (
            upgrade(Shared, Exclusive),
            "'k' is held with --shared by the outer dlock run, so this one could never get it: use --exclusive in \
             the outer run, or another key here",
        ),
        (
            upgrade(Shared, slots(2)),
            "'k' is held with --shared by the outer dlock run, so this one could never get it: use --slots 2 in \
             the outer run, or another key here",
        ),
        (
            upgrade(slots(3), Shared),
            "'k' is held with --slots 3 by the outer dlock run, so this one could never get it: use --shared in \
             the outer run, or another key here",
        ),
    ]
}
