/*!
Phrases that several sentences have in common.
*/

use std::time::Duration;

use humantime::format_duration;

use crate::key::Keys;
use crate::lease::renewal::Unconfirmed;
use crate::lease::waiting::Trouble;

/// Upper bound for the age of a wait at its first line, even on a busy machine.
const FIRST: Duration = Duration::from_secs(5);

/// The words for `one` lock, or those for `several`.
pub(in crate::report) fn either(key: &Keys, one: &'static str, several: &'static str) -> &'static str {
    if key.count() == 1 { one } else { several }
}

/// A length of time for people: in seconds, or in milliseconds below one second.
pub(in crate::report) fn roughly(time: Duration) -> impl std::fmt::Display {
    let whole = Duration::from_secs(time.as_secs());
    format_duration(if whole.is_zero() { Duration::from_millis(time.subsec_millis().into()) } else { whole })
}

/// A time-out for people, rounded: the rest of a wait of 3 s when a request is sent is not exactly 3 s.
pub(in crate::report) fn whole_millis(limit: Duration) -> Duration {
    let step = if limit < Duration::from_millis(100) { 1 } else { 10 };
    let steps = (limit.as_micros() + step * 500) / (step * 1000);
    Duration::from_millis(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

/// The length of a wait, to begin its sentence; empty for the first line, which is written when the wait begins.
pub(in crate::report) fn so_far(waited: Duration) -> String {
    let seconds = Duration::from_secs(waited.as_secs());
    if seconds < FIRST { String::new() } else { format!("{} so far; ", format_duration(seconds)) }
}

/// The sentence about a problem with the backend at `place`.
pub(in crate::report) fn trouble(place: &str, what: &Trouble) -> String {
    match what {
        Trouble::Unreachable(limit) => format!(
            "{place} did not answer within {}; is it stopped or out of reach, is something else listening there, or does \
             only one side speak TLS?",
            format_duration(whole_millis(*limit))
        ),
        Trouble::Unanswered(limit) => {
            format!("{place} did not answer within {}", format_duration(whole_millis(*limit)))
        }
        Trouble::TooSlow => "the backend answers too slowly for this --ttl: use a longer one".to_owned(),
        Trouble::ShortLease { granted, delay, least } => format!(
            "{place} grants a lease of {}, of which --lock-delay {} leaves {}, and at least {} is needed: use a shorter \
             --lock-delay",
            format_duration(*granted),
            format_duration(*delay),
            format_duration(granted.saturating_sub(*delay)),
            format_duration(*least)
        ),
        Trouble::Silent => "the backend does not answer".to_owned(),
        Trouble::Said(text) => text.clone(),
    }
}

/// The `reason` why a lock stays held, and when it ends: within `ttl`, if it has a lease.
pub(in crate::report) fn and_expires(reason: String, ttl: Option<Duration>) -> String {
    let Some(ttl) = ttl else { return reason };
    let (end, the) = if reason.ends_with('?') { ("", "The") } else { (";", "the") };
    format!("{reason}{end} {the} lock will expire on its own within {}", format_duration(ttl))
}

/// The result of the last renewal.
pub(in crate::report) fn unconfirmed(last: &Unconfirmed) -> &str {
    match last {
        Unconfirmed::NotTried => "it was not tried, because dlock itself was stopped or starved",
        Unconfirmed::Silence => "the backend does not answer",
        Unconfirmed::Said(text) => text,
    }
}
