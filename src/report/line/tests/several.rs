/*!
Tests of the sentences about several locks that are held as one.
*/

use super::*;

fn keys() -> Keys {
    Keys::of(["b", "a"].map(named)).expect("names")
}

fn locks() -> Lock {
    Lock { key: keys(), place: "redis://h:6379".to_owned(), flags: String::new() }
}

/// The sentences that differ for several locks.
pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    let acquired = |ttl| Event::Acquired {
        lock: locks(),
        tokens: vec![9, 7],
        mode: Mode::Exclusive,
        slot: None,
        ttl,
        waited: 3 * S,
    };
    let lost = Event::Lost {
        lock: locks(),
        how: Loss::NotMine("its key is gone from the server (a)".to_owned()),
        program: sh(),
        goes_on: false,
    };
    vec![
        (acquired(Some(30 * S)), "acquired 'b', 'a' at redis://h:6379, tokens 9 7, ttl 30s, after 3s"),
        (lost, "lost 'b', 'a' at redis://h:6379: its key is gone from the server (a); stopping sh"),
        (
            Event::LostBeforeTheEnd { lock: locks(), program: sh() },
            "lost 'b', 'a' at redis://h:6379 while sh ran: one of them was not ours any more when it ended",
        ),
        (Event::Covered(keys()), "'b', 'a' are held by the outer dlock run; running under them"),
        (Event::Released(keys()), "released 'b', 'a'"),
        (
            Event::Kept { key: keys(), min_hold: 90 * S },
            "finished; 'b', 'a' stay taken until 1m 30s after they were acquired (--min-hold)",
        ),
        (
            Event::NotReleased { key: keys(), left: Left::Living(7), expires: true },
            "process 7 has not ended after SIGKILL: 'b', 'a' are not released, they will expire on their own",
        ),
        (Event::GuardKilled(keys()), "the guard process was killed, and the command was stopped (locks 'b', 'a')"),
        (
            Event::DlockKilled { lock: locks(), program: sh() },
            "dlock itself was killed: stopping sh, because its locks 'b', 'a' at redis://h:6379 are no longer renewed",
        ),
    ]
}
