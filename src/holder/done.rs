/*!
The record of a command that has succeeded in a period (`--once-per`), and its reader: JSON that begins with
`{"v":1,"period":…,`, which a redis script reads.
*/

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holder::About;
use crate::lock::period::Period;
use crate::printable::{moment, shown};

/// The number of characters that are recorded of the names of host and user.
const NAME: usize = 64;

/// The record of a command that has succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    /// The format's version.
    pub v: u32,
    /// The number of the period.
    pub period: u64,
    /// The length of the period in milliseconds.
    pub length: u64,
    /// The time of the record, in milliseconds since 1970.
    pub at: u64,
    /// The host's name.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The process id of its dlock.
    pub pid: i32,
}

impl Done {
    /// Records that a command of this run has succeeded in `period`, at the time `at` in milliseconds since 1970.
    #[must_use]
    pub(crate) fn by(about: &About, period: Period, at: u64) -> Self {
        let cut = |name: &str| name.chars().take(NAME).collect();
        let (host, user) = (cut(&about.host), cut(&about.user));
        Self { v: 1, period: period.number, length: period.length, at, host, user, pid: about.pid }
    }

    /// Reads a record; `None` if the text is something else.
    #[must_use]
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|done: &Self| done.v >= 1 && done.length > 0)
    }

    /// Returns the text of the record.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        // A struct of texts and numbers always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the end of [`Done::text`], from the host's name on, for a server that fills in the rest.
    #[must_use]
    pub(crate) fn end(&self) -> String {
        let text = self.text();
        let begins = text.find("\"host\"").unwrap_or(text.len());
        text[begins..].to_owned()
    }

    /// Returns `true` if nothing is left to do in `period`: a command has succeeded in that one or a later one.
    #[must_use]
    pub(crate) fn covers(&self, period: Period) -> bool {
        self.length == period.length && self.period >= period.number
    }

    /// Returns `true` if it still counts at `now` in milliseconds since 1970, by the clock that dated it: for two
    /// periods. One from the future counts as long, so that a wrong clock does no more harm than that.
    #[must_use]
    pub(crate) fn is_remembered(&self, now: u64) -> bool {
        self.at.abs_diff(now) <= self.length.saturating_mul(2)
    }

    /// Returns `true` if it is still to be found at `now`, although it may no longer count: see [`Period::kept`].
    #[must_use]
    pub(crate) fn is_kept(&self, now: u64) -> bool {
        let kept = Period { number: self.period, length: self.length }.kept();
        u128::from(self.at.abs_diff(now)) <= kept.as_millis()
    }

    /// Returns who did it and its age, by a clock that says it is `now`: `3h ago by …, at …`, safe for a terminal.
    #[must_use]
    pub(crate) fn described_at(&self, now: u64) -> String {
        let age = Duration::from_secs(now.saturating_sub(self.at) / 1000);
        format!("{} ago {}", humantime::format_duration(age), self.describe())
    }

    /// Returns `true` if its age is at most `length`, by a clock that says it is `now`.
    #[must_use]
    pub(crate) fn is_within(&self, length: Duration, now: u64) -> bool {
        u128::from(now.saturating_sub(self.at)) <= length.as_millis()
    }

    /// Returns who did it and the time, in words: `by …, at …`, safe for a terminal.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        let at = moment(self.at).map(|at| format!(", at {at}")).unwrap_or_default();
        let (user, host) = (shown(self.user.as_bytes()), shown(self.host.as_bytes()));
        format!("by {user}@{host}, pid {}{at}", self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Done {
        let about = About { host: "web1".to_owned(), user: "deploy".to_owned(), pid: 7, ..About::default() };
        Done::by(&about, Period { number: 490_885, length: 3_600_000 }, 1_767_186_000_500)
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        let text = done().text();
        let end = r#""host":"web1","user":"deploy","pid":7}"#;
        assert_eq!(text, format!(r#"{{"v":1,"period":490885,"length":3600000,"at":1767186000500,{end}"#));
        assert_eq!(done().end(), end);
        assert_eq!(Done::read(text.as_bytes()), Some(done()));
        let newer = text.replace("\"pid\"", "\"shiny\":[1],\"pid\"");
        assert_eq!(Done::read(newer.as_bytes()), Some(done()));
        assert_eq!(done().describe(), "by deploy@web1, pid 7, at 2025-12-31T13:00:00Z");
        for other in ["", "x", "{}", "[]", r#"{"v":1,"period":5}"#, r#"{"period":5,"length":1}"#, r#"{"v":1,"id":"x"}"#]
        {
            assert_eq!(Done::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn how_long_ago_it_was_is_told_and_compared() {
        let at = done().at;
        for (now, age, within) in [
            (at, "0s", true),
            (at + 3_600_000, "1h", true),
            (at + 3_600_001, "1h", false),
            (at + 90_061_000, "1day 1h 1m 1s", false),
            // By a clock that is behind.
            (at - 5000, "0s", true),
        ] {
            assert_eq!(done().described_at(now), format!("{age} ago by deploy@web1, pid 7, at 2025-12-31T13:00:00Z"));
            assert_eq!(done().is_within(Duration::from_secs(3600), now), within, "{now}");
        }
    }

    #[test]
    fn names_are_cut_and_upset_no_terminal() {
        let odd = About { host: "\u{1b}[2J\"é".repeat(100), user: "\n".repeat(100), ..About::default() };
        let done = Done::by(&odd, Period { number: 1, length: 1 }, u64::MAX);
        assert_eq!((done.host.chars().count(), done.user.len()), (NAME, NAME));
        assert!(done.end().starts_with("\"host\":") && Done::read(done.text().as_bytes()).as_ref() == Some(&done));
        assert!(!done.describe().contains(char::is_control), "{:?}", done.describe());
    }

    #[test]
    fn a_later_period_covers_earlier_ones_of_the_same_length_for_two_periods() {
        let period = |number, length| Period { number, length };
        for (asked, covered) in [
            (period(490_884, 3_600_000), true),
            (period(490_885, 3_600_000), true),
            (period(490_886, 3_600_000), false),
            (period(490_885, 60_000), false),
        ] {
            assert_eq!(done().covers(asked), covered, "{asked:?}");
        }
        let at = done().at;
        for (now, remembered) in [
            (at, true),
            (at + 7_200_000, true),
            (at + 7_200_001, false),
            // A clock that was set back since then.
            (at - 7_200_000, true),
            (at - 7_200_001, false),
        ] {
            assert_eq!(done().is_remembered(now), remembered, "{now}");
            assert!(done().is_kept(now), "{now}");
        }
        let days = 30 * 24 * 3_600_000;
        assert_eq!((done().is_kept(at + days), done().is_kept(at + days + 1)), (true, false));
    }
}
