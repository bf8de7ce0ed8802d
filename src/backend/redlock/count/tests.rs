use std::num::NonZeroU32;

use super::*;
use crate::backend::error::ErrorKind;
use crate::backend::redlock::errors::Failure;

const X: Mode = Mode::Exclusive;
const S: Mode = Mode::Shared;

fn slots(slots: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(slots).expect("a slot"))
}

fn blocker(value: String) -> Blocker {
    let kind = if value.is_empty() { "none" } else { "string" };
    let occupant = Occupant { kind: kind.to_owned(), value: value.into_bytes() };
    Blocker { occupant, left: 70, beside: 0, writer: None, taken: Vec::new() }
}

/// Held exclusively by this owner.
fn alone(id: &str) -> Blocker {
    blocker(format!(r#"{{"v":1,"id":"{id}","user":"u"}}"#))
}

/// Held by `count` co-holders, one of which has this id.
fn together(mode: Mode, id: &str, count: u64) -> Blocker {
    let text = format!(r#"{{"v":1,"mode":"{}","id":"{id}","user":"u"}}"#, mode.name());
    Blocker { beside: count - 1, ..blocker(text) }
}

/// Slots with these numbers are taken; this owner has the requested one.
fn taken(id: &str, numbers: &[u32]) -> Blocker {
    Blocker { taken: numbers.to_vec(), ..together(slots(3), id, numbers.len() as u64) }
}

/// Returns the blocker with a writer that goes first.
fn behind(blocker: Blocker) -> Blocker {
    Blocker { writer: Some("w".to_owned()), ..blocker }
}

fn busy(blocker: Blocker) -> Answer {
    Answer::Acquired(Acquired::Busy(blocker), None)
}

fn granted() -> Answer {
    Answer::Acquired(Acquired::Granted(7), None)
}

fn outer(id: &str) -> Answer {
    let outer = Published { v: 1, id: id.to_owned(), ..Published::default() };
    Answer::Acquired(Acquired::Outer(Box::new(outer)), None)
}

fn done(period: u64) -> Answer {
    Answer::Acquired(Acquired::Done(Box::new(Done { period, ..Done::default() })), None)
}

fn other(number: u32) -> Answer {
    let other = OtherSlots { slots: number, holder: Holder::Unknown, now: 5 };
    Answer::Acquired(Acquired::OtherSlots(other), None)
}

fn failed() -> Answer {
    Answer::Failed(Failure { kind: ErrorKind::Unavailable, reason: String::new(), unfit: false })
}

fn count(mode: Mode, servers: usize, answers: Vec<Answer>) -> Count {
    let mut count = Count::new(mode, servers);
    for (voter, answer) in answers.into_iter().enumerate() {
        count.add(Event { voter, round: 1, answer });
    }
    count
}

/// Summarizes a refusal: the number of votes in the way, or the slots that may be free.
fn told(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Outer(outer) => format!("outer {}", outer.id),
        Refusal::Done(done) => format!("done in {}", done.period),
        Refusal::OtherSlots(other) => format!("{} slots", other.slots),
        Refusal::Elsewhere(_, free) => format!("elsewhere {free:?}"),
        Refusal::Held(in_the_way) => format!("held by {}", in_the_way.votes),
        Refusal::Split(in_the_way) => format!("split, {}", in_the_way.votes),
    }
}

#[test]
fn why_an_attempt_failed() {
    let n = slots(3);
    for (mode, servers, answers, expected) in [
        (X, 3, vec![busy(alone("a")), busy(alone("a"))], "held by 2"),
        (X, 3, vec![busy(alone("a")), busy(alone("b")), granted()], "split, 1"),
        (X, 3, vec![busy(alone("a")), failed(), granted()], "split, 1"),
        (X, 3, vec![busy(blocker("theirs".to_owned())), busy(blocker("theirs".to_owned()))], "held by 2"),
        (X, 3, vec![busy(blocker("theirs".to_owned())), busy(blocker("others".to_owned()))], "split, 1"),
        // Each server names another reader.
        (X, 3, vec![busy(together(S, "a", 2)), busy(together(S, "b", 2))], "held by 2"),
        (X, 3, vec![busy(together(S, "a", 2)), busy(together(n, "b", 2))], "split, 1"),
        (S, 3, vec![busy(alone("a")), busy(together(n, "b", 1))], "split, 1"),
        (S, 3, vec![busy(together(n, "a", 1)), busy(together(n, "b", 1))], "held by 2"),
        // A writer waits, even where nobody holds the lock at the moment.
        (S, 3, vec![busy(behind(together(S, "a", 2))), busy(behind(blocker(String::new())))], "held by 2"),
        (S, 3, vec![busy(behind(together(S, "a", 2))), busy(alone("a")), granted()], "split, 1"),
        (n, 3, vec![busy(behind(taken("a", &[0]))), busy(behind(taken("a", &[0])))], "held by 2"),
        // The requested slot is taken, and others may be free.
        (n, 3, vec![busy(taken("a", &[1])), busy(taken("a", &[1])), granted()], "elsewhere [0, 2]"),
        (n, 3, vec![busy(taken("a", &[0, 1])), busy(taken("a", &[0, 1]))], "elsewhere [2]"),
        (n, 3, vec![busy(taken("a", &[0, 1, 2])), busy(taken("a", &[0, 1, 2]))], "held by 2"),
        (n, 3, vec![busy(taken("a", &[0, 1, 2])), busy(taken("b", &[0, 1, 2])), granted()], "split, 1"),
        (n, 3, vec![busy(taken("a", &[0])), busy(alone("b")), granted()], "elsewhere [1, 2]"),
        (n, 3, vec![busy(taken("a", &[0])), failed(), busy(taken("a", &[0]))], "elsewhere [1, 2]"),
        (n, 3, vec![busy(taken("a", &[0])), failed(), granted()], "elsewhere [1, 2]"),
        (n, 3, vec![busy(alone("a")), busy(alone("a"))], "held by 2"),
        // Another number of slots is reported if it prevents a majority.
        (n, 3, vec![other(5), other(5)], "5 slots"),
        (n, 3, vec![other(5), busy(alone("a"))], "split, 1"),
        (n, 5, vec![other(5), other(5), busy(alone("a"))], "split, 1"),
        (n, 4, vec![other(5), other(5)], "5 slots"),
        (n, 3, vec![other(5), failed(), granted()], "split, 0"),
        // One server that knows the outer run is enough.
        (S, 3, vec![outer("o"), granted(), busy(alone("a"))], "outer o"),
        (X, 3, vec![outer("o"), outer("o")], "outer o"),
        (n, 3, vec![outer("o"), other(5), other(5)], "outer o"),
        // So is one server that knows of a success.
        (X, 3, vec![done(7), granted(), busy(alone("a"))], "done in 7"),
        (X, 3, vec![done(7), done(7)], "done in 7"),
        (X, 3, vec![done(7), outer("o")], "outer o"),
    ] {
        let shown = format!("{mode:?} {answers:?}");
        assert_eq!(told(&count(mode, servers, answers).refusal()), expected, "{shown}");
    }
}

#[test]
fn who_leads_when_several_split_the_votes() {
    let n = slots(3);
    for (mode, id, answers, expected) in [
        (X, "a", vec![granted(), granted(), busy(alone("b")), busy(alone("c")), failed()], true),
        (X, "b", vec![granted(), granted(), busy(alone("a")), busy(alone("a")), failed()], false),
        (X, "a", vec![granted(), granted(), busy(alone("b")), busy(alone("b")), failed()], true),
        (X, "a", vec![granted(), busy(alone("b")), busy(alone("b"))], false),
        (X, "a", vec![granted(), busy(blocker("theirs".to_owned())), failed()], false),
        (X, "a", vec![granted(), failed(), failed()], false),
        // A writer before readers, readers before slots, slots among themselves by id.
        (X, "b", vec![granted(), busy(together(S, "a", 1)), failed()], true),
        (S, "a", vec![granted(), busy(alone("b")), failed()], false),
        (S, "a", vec![granted(), granted(), busy(alone("b")), busy(alone("c")), failed()], true),
        (S, "b", vec![granted(), busy(together(n, "a", 1)), failed()], true),
        (n, "a", vec![granted(), busy(together(S, "b", 1)), failed()], false),
        (n, "a", vec![granted(), busy(alone("b")), failed()], false),
        (n, "a", vec![granted(), busy(taken("b", &[0])), failed()], true),
        (n, "b", vec![granted(), busy(taken("a", &[0])), failed()], false),
        (n, "a", vec![granted(), granted(), busy(taken("b", &[0])), busy(taken("c", &[0])), failed()], true),
        // No attempt leads against a waiting writer or an outer run.
        (S, "a", vec![granted(), granted(), busy(behind(together(S, "b", 1))), failed(), failed()], false),
        (X, "a", vec![granted(), granted(), busy(alone("b")), outer("o"), failed()], false),
    ] {
        let shown = format!("{mode:?} {id} {answers:?}");
        assert_eq!(count(mode, answers.len(), answers).leads(id), expected, "{shown}");
    }
}

#[test]
fn whoever_refused_is_asked_again() {
    let mut count = count(X, 4, vec![busy(alone("a")), granted(), failed(), busy(together(S, "b", 1))]);
    assert_eq!(count.ask_again(), [0, 3]);
    assert_eq!(count.votes, [Vote::Pending, Vote::Granted(7), Vote::Lost, Vote::Pending]);
    assert_eq!(told(&count.refusal()), "split, 0");
}

#[test]
fn the_holder_is_one_of_those_with_the_most_votes() {
    let last = Blocker { left: -1, ..together(S, "b", 1) };
    let answers = vec![busy(together(S, "a", 4)), busy(last), busy(alone("x"))];
    let Refusal::Held(in_the_way) = count(X, 3, answers).refusal() else { panic!("held by readers") };
    assert_eq!((in_the_way.holder.id(), in_the_way.beside, in_the_way.left), (Some("a"), 3, Some(70)));
    let hash = Occupant { kind: "hash".to_owned(), value: Vec::new() };
    let hash = Blocker { occupant: hash, ..alone("") };
    let Refusal::Held(in_the_way) = count(S, 3, vec![busy(hash.clone()), busy(hash)]).refusal() else { panic!("held") };
    assert_eq!(in_the_way.holder.describe(0), "blocked by a redis hash at the lock's key");
    let waits = behind(blocker(String::new()));
    let Refusal::Held(in_the_way) = count(S, 3, vec![busy(waits.clone()), busy(waits)]).refusal() else {
        panic!("held")
    };
    assert_eq!(in_the_way.holder, Holder::Nobody);
}
