/*!
The sentence for every event of latches and barriers. It does not know where they are written.
*/

use std::time::Duration;

use humantime::format_duration;

use crate::lease::waiting::Trouble;
use crate::meeting::news::{News, Turnout};
use crate::printable::flag;
use crate::report::event::meeting::{Kind, MeetingEvent, Point};

/// Highest number of names in a sentence.
const NAMED: usize = 8;

/// Upper bound for the age of a wait at its first line, even on a busy machine.
const FIRST: Duration = Duration::from_secs(5);

/// Words a problem with the backend at a place.
type InWords = fn(&str, &Trouble) -> String;

/// The sentence for `event`; `trouble` words a problem with a backend.
#[must_use]
pub(super) fn line(event: &MeetingEvent, trouble: InWords) -> String {
    match event {
        MeetingEvent::NoBackendChosen(kind) => format!(
            "no backend was chosen, so this {} is on this host and for this user only (choose with --backend or \
             DLOCK_BACKEND)",
            called(*kind)
        ),
        MeetingEvent::Waiting { point, wanted, news, waited } => {
            format!("waiting for {}: {}{}", named(point), so_far(*waited), state_of(point, *wanted, news, trouble))
        }
        MeetingEvent::Open { point, waited } => format!("{} is open, after {}", named(point), roughly(*waited)),
        MeetingEvent::RanOut { point, within, wanted, turnout } => {
            let there = there(point.kind, *wanted, turnout);
            match within {
                Some(within) => format!("{} did not open within {}: {there}", named(point), format_duration(*within)),
                None => format!("{} is not open: {there}", named(point)),
            }
        }
        MeetingEvent::Unusable { point, within, trouble: what } => {
            let within = within.map(|within| format!(" within {}", format_duration(within))).unwrap_or_default();
            format!("could not use {}{within}: {}", named(point), trouble(&point.place, what))
        }
        MeetingEvent::Failed { point, by, reason } => {
            let by = if by.is_empty() { String::new() } else { format!(", reported by {by}") };
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            {
                let key = flag("--key", point.key.as_str());
                format!("{} has failed{by}{reason}; to clear it: dlock latch{}{key} forget", named(point), point.flags)
            }
        }
        MeetingEvent::Broken { point, names } => {
            format!("{} is broken: {} left or died", named(point), listed(names, names.len() as u64))
        }
        MeetingEvent::Replaced { point, name } => {
            format!("gave up {}: a newer process waits there as {name}; give each party its own --as", named(point))
        }
        MeetingEvent::CountedDead { point, lease: Some(lease) } => format!(
            "lost the place at {}: the service has not heard from this process for {}, or has lost its data",
            named(point),
            format_duration(*lease)
        ),
        MeetingEvent::CountedDead { point, lease: None } => {
            format!("lost the place at {}: its file was removed or replaced", named(point))
        }
        MeetingEvent::OtherParties { point, wanted, parties, names } => format!(
            "{} is in use with --parties {parties} now, by {}; --parties {wanted} is possible when they are gone",
            named(point),
            listed(names, names.len() as u64)
        ),
        MeetingEvent::NotHere { point, reason } => {
            format!("{} has no {}: {reason}", point.place, plural(point.kind))
        }
        MeetingEvent::Done { point, name, keep } => {
            format!("reported {name} as done at {}, remembered for {}", placed(point), format_duration(*keep))
        }
        MeetingEvent::Failing { point, keep } => {
            format!("marked {} as failed, for {}", placed(point), format_duration(*keep))
        }
        MeetingEvent::Forgotten(point) => format!("{} is forgotten", placed(point)),
    }
}

/// The length of a wait, to begin its sentence; empty for the first line, which is written when the wait begins.
pub(super) fn so_far(waited: Duration) -> String {
    let seconds = Duration::from_secs(waited.as_secs());
    if seconds < FIRST { String::new() } else { format!("{} so far; ", format_duration(seconds)) }
}

/// The state of a wait, for one line on a terminal: the name of what is waited for, and the rest, which may be cut at
/// its end and therefore begins with what changes. Other events have no state.
#[must_use]
pub(super) fn state(event: &MeetingEvent, trouble: InWords) -> Option<(String, String)> {
    let MeetingEvent::Waiting { point, wanted, news, waited } = event else { return None };
    let waited = format_duration(Duration::from_secs(waited.as_secs()));
    Some((point.key.to_string(), format!("waiting {waited}; {}", state_of(point, *wanted, news, trouble))))
}

fn state_of(point: &Point, wanted: u64, news: &News, trouble: InWords) -> String {
    match news {
        News::Turnout(turnout) => there(point.kind, wanted, turnout),
        News::Trouble(what) => trouble(&point.place, what),
    }
}

fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::Latch => "latch",
        Kind::Barrier => "barrier",
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Latch => "latches",
        Kind::Barrier => "barriers",
    }
}

fn named(point: &Point) -> String {
    format!("{} {}", called(point.kind), point.key)
}

fn placed(point: &Point) -> String {
    format!("{} at {}", named(point), point.place)
}

/// The number of those that are there, out of `wanted`, with their names.
fn there(kind: Kind, wanted: u64, turnout: &Turnout) -> String {
    let state = match kind {
        Kind::Latch => "done",
        Kind::Barrier => "here",
    };
    let verb = if turnout.count == 1 { "is" } else { "are" };
    if turnout.count == 0 {
        return format!("none of {wanted} is {state}");
    }
    let names = listed(&turnout.names, turnout.count);
    format!("{} of {wanted} {verb} {state} ({names})", turnout.count)
}

/// A list in words of these names, which are some of `count`.
fn listed(names: &[String], count: u64) -> String {
    let told = names.len().min(NAMED);
    let more = count.saturating_sub(told as u64);
    let mut items: Vec<String> = names[..told].to_vec();
    if more > 0 {
        items.push(format!("{more} more"));
    }
    match items.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// A length of time for people: in seconds, or in milliseconds below one second.
fn roughly(time: Duration) -> impl std::fmt::Display {
    let whole = Duration::from_secs(time.as_secs());
    format_duration(if whole.is_zero() { Duration::from_millis(time.subsec_millis().into()) } else { whole })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::key::Key;

    fn point(kind: Kind) -> Point {
        Point {
            kind,
            key: Key::parse(OsStr::new("k")).expect("a key"),
            place: "redis://h".to_owned(),
            flags: " -b redis://h".to_owned(),
        }
    }

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn told(event: &MeetingEvent) -> String {
        line(event, |place, _| format!("TROUBLE at {place}"))
    }

    #[test]
    fn who_is_there_is_told_with_names() {
        for (kind, count, all, expected) in [
            (Kind::Latch, 0, "", "none of 3 is done"),
            (Kind::Latch, 1, "a", "1 of 3 is done (a)"),
            (Kind::Barrier, 2, "a b", "2 of 3 are here (a and b)"),
            (Kind::Latch, 12, "a b c d e f g h", "12 of 3 are done (a, b, c, d, e, f, g, h and 4 more)"),
            (Kind::Barrier, 10, "a b c d e f g h i j", "10 of 3 are here (a, b, c, d, e, f, g, h and 2 more)"),
        ] {
            assert_eq!(there(kind, 3, &Turnout { count, names: names(all) }), expected);
        }
    }

    #[test]
    fn waits_and_their_ends() {
        let (latch, barrier) = (point(Kind::Latch), point(Kind::Barrier));
        let second = Duration::from_secs(1);
        let turnout = Turnout::of(names("a"));
        let news = News::Turnout(turnout.clone());
        let waiting = MeetingEvent::Waiting { point: latch.clone(), wanted: 2, news, waited: 90 * second };
        assert_eq!(told(&waiting), "waiting for latch 'k': 1m 30s so far; 1 of 2 is done (a)");
        let (name, rest) = state(&waiting, |_, _| String::new()).expect("a state");
        assert_eq!((name.as_str(), rest.as_str()), ("'k'", "waiting 1m 30s; 1 of 2 is done (a)"));
        let trouble = Trouble::Silent;
        let within = Some(5 * second);
        for (event, expected) in [
            (MeetingEvent::Open { point: latch.clone(), waited: second * 3 / 2 }, "latch 'k' is open, after 1s"),
            (
                MeetingEvent::RanOut { point: barrier.clone(), within, wanted: 2, turnout: turnout.clone() },
                "barrier 'k' did not open within 5s: 1 of 2 is here (a)",
            ),
            (
                MeetingEvent::RanOut { point: latch.clone(), within: None, wanted: 2, turnout },
                "latch 'k' is not open: 1 of 2 is done (a)",
            ),
            (
                MeetingEvent::Unusable { point: latch.clone(), within, trouble: trouble.clone() },
                "could not use latch 'k' within 5s: TROUBLE at redis://h",
            ),
            (
                MeetingEvent::Unusable { point: barrier, within: None, trouble },
                "could not use barrier 'k': TROUBLE at redis://h",
            ),
        ] {
            assert_eq!(told(&event), expected);
        }
    }

    #[test]
    fn what_is_wrong_with_a_latch_or_a_barrier() {
        let (latch, barrier) = (point(Kind::Latch), point(Kind::Barrier));
        let failed = |by: &str, reason: &str| MeetingEvent::Failed {
            point: latch.clone(),
            by: by.to_owned(),
            reason: reason.to_owned(),
        };
        let lease = Some(Duration::from_secs(30));
        for (event, expected) in [
            (
                failed("unit", "3 tests are red"),
                "latch 'k' has failed, reported by unit: 3 tests are red; to clear it: dlock latch -b redis://h --key k forget",
            ),
            (failed("", ""), "latch 'k' has failed; to clear it: dlock latch -b redis://h --key k forget"),
            (
                MeetingEvent::Broken { point: barrier.clone(), names: names("a b") },
                "barrier 'k' is broken: a and b left or died",
            ),
            (
                MeetingEvent::Replaced { point: barrier.clone(), name: "a".to_owned() },
                "gave up barrier 'k': a newer process waits there as a; give each party its own --as",
            ),
            (
                MeetingEvent::CountedDead { point: barrier.clone(), lease },
                "lost the place at barrier 'k': the service has not heard from this process for 30s, or has lost its data",
            ),
            (
                MeetingEvent::CountedDead { point: barrier.clone(), lease: None },
                "lost the place at barrier 'k': its file was removed or replaced",
            ),
            (
                MeetingEvent::OtherParties { point: barrier.clone(), wanted: 4, parties: 3, names: names("a b") },
                "barrier 'k' is in use with --parties 3 now, by a and b; --parties 4 is possible when they are gone",
            ),
            (MeetingEvent::NotHere { point: barrier, reason: "WHY" }, "redis://h has no barriers: WHY"),
        ] {
            assert_eq!(told(&event), expected);
        }
    }

    #[test]
    fn what_is_told_with_v_and_without_a_backend() {
        let (latch, keep) = (point(Kind::Latch), Duration::from_secs(86400));
        for (event, expected) in [
            (
                MeetingEvent::Done { point: latch.clone(), name: "unit".to_owned(), keep },
                "reported unit as done at latch 'k' at redis://h, remembered for 1day",
            ),
            (MeetingEvent::Failing { point: latch.clone(), keep }, "marked latch 'k' at redis://h as failed, for 1day"),
            (MeetingEvent::Forgotten(latch), "latch 'k' at redis://h is forgotten"),
            (
                MeetingEvent::NoBackendChosen(Kind::Barrier),
                "no backend was chosen, so this barrier is on this host and for this user only (choose with --backend or \
                 DLOCK_BACKEND)",
            ),
        ] {
            assert_eq!(told(&event), expected);
        }
    }
}
