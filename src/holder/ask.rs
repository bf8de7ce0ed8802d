/*!
A request to the holder of a lock to stop its command and give the lock back. It is put beside the lock, and names the owner
for whom it is meant: every other holder ignores it.
*/

use serde::{Deserialize, Serialize};

/// How long the texts in a request may be, in bytes.
const MAX_TEXT: usize = 512;

/// A request to stop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ask {
    /// The format's version.
    pub v: u32,
    /// The id of the owner that is to stop.
    pub stop: String,
    /// Who asks, as `user@host`, which anybody can claim.
    pub by: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub at: u64,
}

impl Ask {
    /// A request by `by` at the time `at`, in milliseconds since 1970, to the owner with this id. Long texts are cut.
    #[must_use]
    pub(crate) fn new(owner: &str, by: &str, reason: Option<&str>, at: u64) -> Self {
        Self { v: 1, stop: owner.to_owned(), by: cut(by), reason: reason.map(cut), at }
    }

    /// The request as it is put beside the lock.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        // A struct of texts and numbers always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a request; none where this is not one, or one to another owner.
    #[must_use]
    pub(crate) fn read(text: &[u8], owner: &str) -> Option<Self> {
        let ask: Self = serde_json::from_slice(text).ok()?;
        (ask.v >= 1 && !owner.is_empty() && ask.stop == owner).then_some(Self {
            by: cut(&ask.by),
            reason: ask.reason.as_deref().map(cut),
            ..ask
        })
    }

    /// Who asks and why, in words that follow the name of what was asked: `alice@ops1 asked it to stop: restore first`.
    #[must_use]
    pub(crate) fn words(&self) -> String {
        self.told("")
    }

    /// The words, as [`words`](Self::words) has them, with how long ago that was, by a clock that says it is `now`.
    #[must_use]
    pub(crate) fn words_at(&self, now: u64) -> String {
        let ago = std::time::Duration::from_secs(now.saturating_sub(self.at) / 1000);
        self.told(&format!(" {} ago", humantime::format_duration(ago)))
    }

    fn told(&self, when: &str) -> String {
        let who = if self.by.is_empty() { "somebody" } else { &self.by };
        let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{who} asked it to stop{when}{why}")
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
    }
}
