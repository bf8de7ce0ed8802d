/*!
A request to the holder of a lock to stop its command and release the lock. It is stored beside the lock, and names the
owner for whom it is meant: every other holder ignores it.

The same text stays as a trace of the break, even if the lock was taken away without a request: later holders of the
lock, and everyone who looks at it, can read who broke it, to whose loss, when and why.
*/

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holder::moment;

/// The maximum length of the texts in a request, in bytes.
const MAX_TEXT: usize = 512;

/// The time for which the trace of a break is shown, in milliseconds: a week, so that a weekly job's next run finds it.
pub(crate) const REMEMBERED: u64 = 7 * 24 * 3600 * 1000;
/// The maximum lead of the clock of whoever broke a lock, in milliseconds.
const SKEW: u64 = 24 * 3600 * 1000;

/// A request to stop, and the trace that it leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ask {
    /// The format's version.
    pub v: u32,
    /// The id of the owner that is to stop.
    pub stop: String,
    /// The author, as `user@host`, which anybody can claim.
    pub by: String,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time of the request, in milliseconds since 1970.
    pub at: u64,
    /// The holder of the lock, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `true` if the lock was taken away, and its holder not asked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

impl Ask {
    /// Makes a request by `by` at the time `at`, in milliseconds since 1970, to this owner. Long texts are cut.
    #[must_use]
    pub(crate) fn new(owner: &str, by: &str, reason: Option<&str>, at: u64) -> Self {
        let (by, reason) = (cut(by), reason.filter(|reason| !reason.is_empty()).map(cut));
        Self { v: 1, stop: owner.to_owned(), by, reason, at, from: None, taken: false }
    }

    /// Adds the holder that this request is for; `taken` says that the lock is taken away without a request.
    #[must_use]
    pub(crate) fn to(self, holder: &str, taken: bool) -> Self {
        Self { from: Some(cut(holder)), taken, ..self }
    }

    /// Returns the request as it is put beside the lock.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        // A struct of texts and numbers always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a request; `None` if the text is not one, or is for another owner.
    #[must_use]
    pub(crate) fn read(text: &[u8], owner: &str) -> Option<Self> {
        Self::parse(text).filter(|ask| !ask.taken && ask.stop == owner)
    }

    /// Reads the trace of a break at the time `now`, in milliseconds since 1970; `None` if the text is not one, or its
    /// time is over.
    #[must_use]
    pub(crate) fn read_trace(text: &[u8], now: u64) -> Option<Self> {
        let is_told = |ask: &Self| (ask.at.saturating_sub(SKEW)..ask.at.saturating_add(REMEMBERED)).contains(&now);
        Self::parse(text).filter(is_told)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let ask: Self = serde_json::from_slice(text).ok()?;
        (ask.v >= 1 && !ask.stop.is_empty()).then(|| Self {
            by: cut(&ask.by),
            reason: ask.reason.as_deref().map(cut),
            from: ask.from.as_deref().map(cut),
            ..ask
        })
    }

    /// Returns who asks and why, in words that follow a name: `alice@ops1 asked it to stop: restore first`.
    #[must_use]
    pub(crate) fn words(&self) -> String {
        self.told("asked it to stop")
    }

    /// Returns the words of [`words`](Self::words) with their age, by a clock that says it is `now`.
    #[must_use]
    pub(crate) fn words_at(&self, now: u64) -> String {
        self.told(&format!("asked it to stop {} ago", self.age(now)))
    }

    /// Returns the trace in words, by a clock that says it is `now`: `9h ago (2026-11-23T16:23:03Z) alice@ops1 asked
    /// ci@web1, pid 7 (backup.sh), to stop, reason: restore first`.
    #[must_use]
    pub(crate) fn trace_at(&self, now: u64) -> String {
        let what = match (self.taken, self.from.as_ref()) {
            (false, Some(from)) => format!("asked {from}, to stop"),
            (false, None) => "asked its holder to stop".to_owned(),
            (true, Some(from)) => format!("took it away from {from}"),
            (true, None) => "took it away".to_owned(),
        };
        format!("{} {} {what}{}", self.when(now), self.who(), self.why())
    }

    /// Returns who took the lock away, as of `now`: `alice@ops1 4s ago (2026-11-23T16:23:03Z), reason: restore`.
    #[must_use]
    pub(crate) fn doer_at(&self, now: u64) -> String {
        format!("{} {}{}", self.who(), self.when(now), self.why())
    }

    fn when(&self, now: u64) -> String {
        let at = moment(self.at).map(|at| format!(" ({at})")).unwrap_or_default();
        format!("{} ago{at}", self.age(now))
    }

    fn why(&self) -> String {
        self.reason.as_ref().map(|reason| format!(", reason: {reason}")).unwrap_or_default()
    }

    /// Returns the age of the request, in whole seconds.
    fn age(&self, now: u64) -> humantime::FormattedDuration {
        humantime::format_duration(Duration::from_secs(now.saturating_sub(self.at) / 1000))
    }

    fn told(&self, what: &str) -> String {
        let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{} {what}{why}", self.who())
    }

    fn who(&self) -> &str {
        if self.by.is_empty() { "somebody" } else { &self.by }
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_by_the_owner_that_it_names_and_by_nobody_else() {
        let ask = Ask::new("ab", "alice@ops1", Some("restore \"first\""), 7);
        assert_eq!(ask.text(), r#"{"v":1,"stop":"ab","by":"alice@ops1","reason":"restore \"first\"","at":7}"#);
        for (text, owner, is_read) in [
            (ask.text(), "ab", true),
            (ask.text(), "a", false),
            (ask.text(), "abc", false),
            (r#"{"v":1,"stop":"","by":"x"}"#.to_owned(), "", false),
            (r#"{"v":2,"stop":"ab","more":[1]}"#.to_owned(), "ab", true),
            (r#"{"stop":"ab"}"#.to_owned(), "ab", false),
            (r#"{"v":1,"id":"ab"}"#.to_owned(), "ab", false),
            ("ab".to_owned(), "ab", false),
            (String::new(), "ab", false),
        ] {
            assert_eq!(Ask::read(text.as_bytes(), owner).is_some(), is_read, "{text} {owner}");
        }
        assert_eq!(Ask::read(ask.text().as_bytes(), "ab"), Some(ask));
    }

    #[test]
    fn a_trace_is_read_for_a_week_whoever_was_meant() {
        let ask = Ask::new("ab", "alice@ops1", Some("restore"), 2 * SKEW).to("ci@web1, pid 7 (backup.sh)", false);
        for (now, is_told) in [
            (2 * SKEW, true),
            (SKEW, true),
            (SKEW - 1, false),
            (2 * SKEW + REMEMBERED - 1, true),
            (2 * SKEW + REMEMBERED, false),
        ] {
            assert_eq!(Ask::read_trace(ask.text().as_bytes(), now).is_some(), is_told, "{now}");
        }
        for text in ["", "x", "{}", r#"{"v":1,"id":"ab"}"#, r#"{"v":0,"stop":"ab"}"#] {
            assert_eq!(Ask::read_trace(text.as_bytes(), 0), None, "{text}");
        }
        // A trace of a lock that was taken away is no request, even to an owner with the same id.
        let taken = ask.clone().to("ci@web1", true);
        assert!(Ask::read(ask.text().as_bytes(), "ab").is_some() && Ask::read(taken.text().as_bytes(), "ab").is_none());
        assert_eq!(Ask::read_trace(taken.text().as_bytes(), 2 * SKEW), Some(taken));
    }

    #[test]
    fn long_texts_are_cut_where_a_character_ends() {
        let ask = Ask::new("ab", &"ü".repeat(400), Some(&format!("a{}", "ü".repeat(400))), 7);
        assert_eq!((ask.by.len(), ask.reason.as_deref().map(str::len)), (512, Some(511)));
        let forged = ask.text().replace("aü", &"ü".repeat(4000));
        assert_eq!(Ask::read(forged.as_bytes(), "ab").and_then(|ask| Some(ask.reason?.len())), Some(512));
    }

    #[test]
    fn a_request_in_words() {
        let ask = |by: &str, reason: Option<&str>| Ask::new("ab", by, reason, 1000);
        assert_eq!(ask("alice@ops1", Some("maintenance")).words(), "alice@ops1 asked it to stop: maintenance");
        assert_eq!(ask("alice@ops1", None).words_at(5999), "alice@ops1 asked it to stop 4s ago");
        assert_eq!(ask("", None).words_at(0), "somebody asked it to stop 0s ago");
        let trace = |taken| ask("alice@ops1", Some("restore")).to("ci@web1, pid 7 (backup.sh)", taken).trace_at(5000);
        assert_eq!(
            trace(false),
            "4s ago (1970-01-01T00:00:01Z) alice@ops1 asked ci@web1, pid 7 (backup.sh), to stop, reason: restore"
        );
        assert_eq!(
            trace(true),
            "4s ago (1970-01-01T00:00:01Z) alice@ops1 took it away from ci@web1, pid 7 (backup.sh), reason: restore"
        );
        assert_eq!(ask("a@b", None).trace_at(1000), "0s ago (1970-01-01T00:00:01Z) a@b asked its holder to stop");
    }
}
