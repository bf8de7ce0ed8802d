/*!
Showing foreign text safely: what other programs have written must not disturb a terminal or fill a log.
*/

use std::fmt;

/// How much of another program's text is shown, in bytes.
pub(crate) const MAX_SHOWN: usize = 4096;

/// Foreign bytes, safe to show: control characters, bidirectional overrides and invalid UTF-8 are escaped, and the text
/// is cut to 4 KiB.
#[must_use]
pub(crate) fn shown(text: &[u8]) -> impl fmt::Display + '_ {
    Shown(text)
}

struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = MAX_SHOWN - '…'.len_utf8();
        let mut put = |f: &mut fmt::Formatter<'_>, piece: &str| {
            let fits = piece.len() <= room;
            room = room.saturating_sub(piece.len());
            f.write_str(if fits { piece } else { "…" })?;
            Ok::<_, fmt::Error>(fits)
        };
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                let piece =
                    if is_unsafe(character) { character.escape_default().to_string() } else { character.to_string() };
                if !put(f, &piece)? {
                    return Ok(());
                }
            }
            for byte in chunk.invalid() {
                if !put(f, &format!("\\x{byte:02x}"))? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Control characters, line and paragraph separators, and those that reorder or hide the text around them.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_is_bounded_whatever_it_is() {
        for text in [vec![b'x'; 10_000], vec![0xff; 10_000], "ü\u{202e}".repeat(5_000).into_bytes()] {
            let line = shown(&text).to_string();
            assert!(line.len() <= MAX_SHOWN, "{}", line.len());
            assert!(line.ends_with('…') && !line.chars().any(is_unsafe));
        }
    }
}
