/*!
The content of a lock file: the fencing counter, who holds the lock, and until when it stays taken.
*/

use std::time::Duration;

use crate::backend::TOKEN_LIMIT;
use crate::backend::file::errors;
use crate::backend::file::kept::{Kept, millis};
use crate::clock::wall_millis;
use crate::holder::Holder;

/// The highest token that is granted. A counter that has reached it is damaged: it would leave no room for the next one.
pub(super) const HIGHEST: u64 = TOKEN_LIMIT - 2;

/// The first bytes of every lock file that dlock has written.
pub(super) const MARK: &str = "dlock:1 ";

/// The content of a lock file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// The last token, 0 when there was none; none when the counter is damaged: not a number, or so large that it leaves
    /// no room for another token.
    pub counter: Option<u64>,
    /// What the holder has published about itself; empty for none.
    pub holder: Vec<u8>,
    /// Until when the lock stays taken, if longer than it is in use.
    pub kept: Option<Kept>,
}

impl Content {
    /// Reads a lock file: an empty one, as `flock(1)` makes it, or one that dlock has written. Anything else is foreign
    /// data and an error.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        if content.is_empty() {
            return Ok(Self { counter: Some(0), holder: Vec::new(), kept: None });
        }
        let Some(content) = content.strip_prefix(MARK.as_bytes()) else {
            return Err(errors::NOT_OURS.to_owned());
        };
        let mut lines = content.split(|&byte| byte == b'\n');
        let counter = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
        let holder = lines.next().unwrap_or_default().to_vec();
        let kept = lines.next().and_then(Kept::parse);
        Ok(Self { counter: counter.filter(|counter| *counter < HIGHEST), holder, kept })
    }

    /// Where an earlier run keeps the lock taken although it does not use it any more: that run, and how long. Only while
    /// the kernel does not say that it still runs.
    pub(super) fn finished(&self) -> Option<(Holder, Duration)> {
        let left = self.kept.as_ref()?.left()?;
        let mut published = match Holder::read(&self.holder) {
            Holder::Dlock(published) => *published,
            _ => return Some((Holder::Unknown, left)),
        };
        (published.done, published.until) = (true, Some(wall_millis().saturating_add(millis(left))));
        Some((Holder::Dlock(Box::new(published)), left))
    }

    /// The token for the next holder, which `next` makes of the counter and the clock. The error says how to mend what
    /// prevents it.
    pub(super) fn token(&self, next: impl FnOnce(u64) -> u64) -> Result<u64, String> {
        let token = next(self.counter.ok_or(errors::DAMAGED)?);
        // The counter leaves room, so only the clock can be what does not.
        if token <= HIGHEST { Ok(token) } else { Err(errors::WRONG_CLOCK.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn contents() {
        let content = |counter, holder: &[u8]| Ok(Content { counter, holder: holder.to_vec(), kept: None });
        let whole = b"dlock:1 0000000000000000017\n{}\nrest of a longer one";
        assert_eq!(Content::parse(whole), content(Some(17), b"{}"));
        assert_eq!(Content::parse(b""), content(Some(0), b""));
        assert_eq!(Content::parse(b"dlock:1 garbage\n{}\n"), content(None, b"{}"), "its holder is still known");
        assert!(Content::parse(b"4711\n").is_err());
    }

    #[test]
    fn a_damaged_counter_is_known_as_such() {
        for (counter, read) in [
            ("0", Some(0)),
            ("0001795190000000123", Some(1_795_190_000_000_123)),
            ("9007199254740989", Some(TOKEN_LIMIT - 3)),
            ("9007199254740990", None),
            ("9007199254740992", None),
            ("18446744073709551615", None),
            ("18446744073709551616", None),
            ("-1", None),
            ("17x", None),
            ("", None),
        ] {
            let content = Content::parse(format!("{MARK}{counter}\n").as_bytes());
            assert_eq!(content.map(|content| content.counter), Ok(read), "{counter}");
        }
    }

    #[test]
    fn a_token_is_granted_or_what_prevents_it_is_told() {
        let clock = 1_795_190_000_000_000;
        for (counter, clock, token) in [
            (Some(0), clock, Ok(clock)),
            // A host that boots without a clock.
            (Some(clock), 7, Ok(clock + 1)),
            (Some(HIGHEST - 1), clock, Ok(HIGHEST)),
            (None, clock, Err(errors::DAMAGED)),
            (Some(17), HIGHEST, Ok(HIGHEST)),
            (Some(17), HIGHEST + 1, Err(errors::WRONG_CLOCK)),
        ] {
            let content = Content { counter, holder: Vec::new(), kept: None };
            let granted = content.token(|counter| clock.max(counter + 1));
            assert_eq!(granted, token.map_err(str::to_owned), "{counter:?} at {clock}");
        }
    }

    #[test]
    fn whatever_a_lock_file_holds_leaves_room_for_a_token_or_is_left_alone() {
        const PIECES: &str = "dlock:1 |dlock|0000001795190000000|9007199254740991|18446744073709551615|-1| |\n|{}";
        let text = (any::<bool>(), made_of(PIECES))
            .prop_map(|(ours, text)| if ours { format!("{MARK}{text}") } else { text }.into_bytes());
        holds(2000, prop_oneof![3 => text, 1 => any::<Vec<u8>>()], |bytes| {
            match Content::parse(&bytes) {
                Ok(content) => {
                    prop_assert!(content.counter.is_none_or(|counter| counter < HIGHEST));
                    prop_assert!(bytes.is_empty() || bytes.starts_with(MARK.as_bytes()));
                    prop_assert!(!content.holder.contains(&b'\n'));
                }
                Err(_) => prop_assert!(!bytes.is_empty() && !bytes.starts_with(MARK.as_bytes())),
            }
            Ok(())
        });
    }

    #[test]
    fn what_is_written_down_is_read_back_also_before_the_rest_of_a_longer_text() {
        let holder = "[^\n]{0,40}";
        holds(500, (0..HIGHEST, holder, any::<String>()), |(counter, holder, rest)| {
            let content = Content::parse(format!("{MARK}{counter:019}\n{holder}\n{rest}").as_bytes());
            let content = content.map(|content| (content.counter, content.holder));
            prop_assert_eq!(content, Ok((Some(counter), holder.into_bytes())));
            Ok(())
        });
    }
}
