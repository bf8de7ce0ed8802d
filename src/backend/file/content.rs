/*!
The content of a lock file: the fencing counter, and who holds the lock.
*/

use crate::backend::TOKEN_LIMIT;
use crate::backend::file::errors;

/// The first bytes of every lock file that dlock has written.
pub(super) const MARK: &str = "dlock:1 ";

/// The content of a lock file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The last token.
    pub counter: u64,
    /// What the holder has published about itself; empty for none.
    pub holder: Vec<u8>,
}

impl Content {
    /// Reads a lock file: an empty one, as `flock(1)` makes it, or one that dlock has written. Anything else is foreign
    /// data and an error.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        if content.is_empty() {
            return Ok(Self::default());
        }
        let Some(content) = content.strip_prefix(MARK.as_bytes()) else {
            return Err(errors::NOT_OURS.to_owned());
        };
        let mut lines = content.split(|&byte| byte == b'\n');
        let counter = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
        let holder = lines.next().unwrap_or_default().to_vec();
        // A damaged counter is made good by the clock. One that leaves no room for a next token is damaged too.
        let counter = counter.filter(|counter| *counter < TOKEN_LIMIT - 1).unwrap_or_default();
        Ok(Self { counter, holder })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn contents() {
        let ours = Content { counter: 17, holder: b"{}".to_vec() };
        assert_eq!(Content::parse(b"dlock:1 0000000000000000017\n{}\nrest of a longer one"), Ok(ours));
        assert_eq!(Content::parse(b""), Ok(Content::default()));
        assert_eq!(Content::parse(b"dlock:1 garbage"), Ok(Content::default()));
        assert!(Content::parse(b"4711\n").is_err());
    }

    #[test]
    fn a_counter_without_room_for_a_next_token_is_made_good() {
        for (counter, read) in [(TOKEN_LIMIT - 2, TOKEN_LIMIT - 2), (TOKEN_LIMIT - 1, 0), (u64::MAX, 0)] {
            let content = Content::parse(format!("{MARK}{counter:019}\n").as_bytes());
            assert_eq!(content.map(|content| content.counter), Ok(read));
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
                    prop_assert!(content.counter + 1 < TOKEN_LIMIT);
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
        holds(500, (0..TOKEN_LIMIT - 1, holder, any::<String>()), |(counter, holder, rest)| {
            let content = Content::parse(format!("{MARK}{counter:019}\n{holder}\n{rest}").as_bytes());
            prop_assert_eq!(content, Ok(Content { counter, holder: holder.into_bytes() }));
            Ok(())
        });
    }
}
