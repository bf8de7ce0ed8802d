/*!
Events about latches and barriers, as data.
*/

use std::time::Duration;

use humantime::format_duration;

use crate::backend::meeting::Turnout;
use crate::key::Key;
use crate::lease::waiting::Trouble;
use crate::printable::flag;
use crate::report::level::Level;
use crate::report::words::{roughly, so_far, trouble};

/// Highest number of names in a sentence.
const NAMED: usize = 8;

/// A latch or a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A latch.
    Latch,
    /// A barrier.
    Barrier,
}

/// A latch or a barrier, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Latch or barrier.
    pub kind: Kind,
    /// Its name.
    pub key: Key,
    /// The URL of its backend, without a password.
    pub place: String,
    /// The connection options for a suggested command line.
    pub flags: String,
}

/// Something that dlock reports of a latch or a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MeetingEvent {
    /// No backend was chosen, so it is on this host and for this user only.
    NoBackendChosen(Kind),
    /// dlock waits until enough names or parties are there.
    Waiting {
        /// The latch or barrier.
        point: Point,
        /// The number that it waits for.
        wanted: u64,
        /// The latest news.
        news: Result<Turnout, Trouble>,
        /// Time waited so far.
        waited: Duration,
    },
    /// Enough names or parties are there.
    Open {
        /// The latch or barrier.
        point: Point,
        /// Time waited in total.
        waited: Duration,
    },
    /// The wait ran out.
    RanOut {
        /// The latch or barrier.
        point: Point,
        /// Time waited; `None` if dlock only looked.
        within: Option<Duration>,
        /// The number that it waited for.
        wanted: u64,
        /// Those that are there.
        turnout: Turnout,
    },
    /// The backend fails.
    Unusable {
        /// The latch or barrier.
        point: Point,
        /// Time waited, if the wait ran out.
        within: Option<Duration>,
        /// The problem.
        trouble: Trouble,
    },
    /// The latch has failed.
    Failed {
        /// The latch.
        point: Point,
        /// The name of the reporter; may be empty.
        by: String,
        /// The reason; may be empty.
        reason: String,
    },
    /// Parties that waited at the barrier with this one have gone; their names.
    Broken {
        /// The barrier.
        point: Point,
        /// Their names.
        names: Vec<String>,
    },
    /// A newer process waits at the barrier under our name.
    Replaced {
        /// The barrier.
        point: Point,
        /// The name.
        name: String,
    },
    /// This process was counted as dead.
    CountedDead {
        /// The barrier.
        point: Point,
        /// The longest silence allowed; `None` where there are no leases.
        lease: Option<Duration>,
    },
    /// Others wait at the barrier for another number of parties.
    OtherParties {
        /// The barrier.
        point: Point,
        /// The number of parties that this process wants.
        wanted: u64,
        /// The number of parties that they wait for.
        parties: u32,
        /// Their names.
        names: Vec<String>,
    },
    /// The backend does not support this kind.
    NotHere {
        /// The latch or barrier.
        point: Point,
        /// The reason.
        reason: &'static str,
    },
    /// The name was reported as done at the latch.
    Done {
        /// The latch.
        point: Point,
        /// The name.
        name: String,
        /// Time for which this is remembered.
        keep: Duration,
    },
    /// The latch was marked as failed.
    Failing {
        /// The latch.
        point: Point,
        /// Time for which this is remembered.
        keep: Duration,
    },
    /// The latch was forgotten.
    Forgotten(Point),
}

impl MeetingEvent {
    /// Returns the verbosity at which it is reported.
    #[must_use]
    pub(in crate::report) fn level(&self) -> Level {
        match self {
            Self::Waiting { .. } => Level::State,
            Self::NoBackendChosen(_) => Level::Note,
            Self::Open { .. } | Self::Done { .. } | Self::Failing { .. } | Self::Forgotten(_) => Level::Detail,
            Self::RanOut { .. }
            | Self::Unusable { .. }
            | Self::Failed { .. }
            | Self::Broken { .. }
            | Self::Replaced { .. }
            | Self::CountedDead { .. }
            | Self::OtherParties { .. }
            | Self::NotHere { .. } => Level::Warning,
        }
    }

    /// Returns its sentence.
    #[must_use]
    pub(in crate::report) fn line(&self) -> String {
        match self {
            Self::NoBackendChosen(kind) => format!(
                "no backend was chosen, so this {} is on this host and for this user only (choose with --backend or \
                 DLOCK_BACKEND)",
                called(*kind)
            ),
            Self::Waiting { point, wanted, news, waited } => {
                format!("waiting for {}: {}{}", named(point), so_far(*waited), state_of(point, *wanted, news))
            }
            Self::Open { point, waited } => format!("{} is open, after {}", named(point), roughly(*waited)),
            Self::RanOut { point, within, wanted, turnout } => {
                let there = there(point.kind, *wanted, turnout);
                match within {
                    Some(within) => {
                        format!("{} did not open within {}: {there}", named(point), format_duration(*within))
                    }
                    None => format!("{} is not open: {there}", named(point)),
                }
            }
            Self::Unusable { point, within, trouble: what } => {
                let within = within.map(|within| format!(" within {}", format_duration(within))).unwrap_or_default();
                format!("could not use {}{within}: {}", named(point), trouble(&point.place, what))
            }
            Self::Failed { point, by, reason } => {
                let by = if by.is_empty() { String::new() } else { format!(", reported by {by}") };
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                {
                    let key = flag("--key", point.key.as_str());
                    format!(
                        "{} has failed{by}{reason}; clear it with: dlock latch{}{key} forget",
                        named(point),
                        point.flags
                    )
                }
            }
            Self::Broken { point, names } => {
                format!("{} is broken: {} left or died", named(point), listed(names, names.len() as u64))
            }
            Self::Replaced { point, name } => {
                format!("gave up {}: a newer process waits there as {name}; give each party its own --as", named(point))
            }
            Self::CountedDead { point, lease: Some(lease) } => format!(
                "lost the place at {}: the service has not heard from this process for {}, or has lost its data",
                named(point),
                format_duration(*lease)
            ),
            Self::CountedDead { point, lease: None } => {
                format!("lost the place at {}: its file was removed or replaced", named(point))
            }
            Self::OtherParties { point, wanted, parties, names } => format!(
                "{} is in use with --parties {parties} now, by {}; --parties {wanted} can be used once they have left",
                named(point),
                listed(names, names.len() as u64)
            ),
            Self::NotHere { point, reason } => {
                format!("{} has no {}: {reason}", point.place, plural(point.kind))
            }
            Self::Done { point, name, keep } => {
                format!("reported {name} as done at {}, remembered for {}", placed(point), format_duration(*keep))
            }
            Self::Failing { point, keep } => {
                format!("marked {} as failed, for {}", placed(point), format_duration(*keep))
            }
            Self::Forgotten(point) => format!("cleared {}", placed(point)),
        }
    }

    /// Returns the state of a wait, for one line on a terminal: the name of what is waited for, and the rest, which may
    /// be cut at its end and therefore begins with what changes. Other events have no state.
    #[must_use]
    pub(in crate::report) fn state(&self) -> Option<(String, String)> {
        let Self::Waiting { point, wanted, news, waited } = self else { return None };
        let waited = format_duration(Duration::from_secs(waited.as_secs()));
        Some((point.key.to_string(), format!("waiting {waited}; {}", state_of(point, *wanted, news))))
    }
}

fn state_of(point: &Point, wanted: u64, news: &Result<Turnout, Trouble>) -> String {
    match news {
        Ok(turnout) => there(point.kind, wanted, turnout),
        Err(what) => trouble(&point.place, what),
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
        event.line()
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
        let news = Ok(turnout.clone());
        let waiting = MeetingEvent::Waiting { point: latch.clone(), wanted: 2, news, waited: 90 * second };
        assert_eq!(told(&waiting), "waiting for latch 'k': 1m 30s so far; 1 of 2 is done (a)");
        let (name, rest) = waiting.state().expect("a state");
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
                "could not use latch 'k' within 5s: the backend does not answer",
            ),
            (
                MeetingEvent::Unusable { point: barrier, within: None, trouble },
                "could not use barrier 'k': the backend does not answer",
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
                "latch 'k' has failed, reported by unit: 3 tests are red; clear it with: dlock latch -b redis://h --key k forget",
            ),
            (failed("", ""), "latch 'k' has failed; clear it with: dlock latch -b redis://h --key k forget"),
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
                "barrier 'k' is in use with --parties 3 now, by a and b; --parties 4 can be used once they have left",
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
            (MeetingEvent::Forgotten(latch), "cleared latch 'k' at redis://h"),
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
