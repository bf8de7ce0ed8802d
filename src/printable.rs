/*!
Shows foreign text safely: the text of another program must not disturb a terminal or fill a log. Also shows times, in
UTC or in this host's time zone.
*/

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unicode_width::UnicodeWidthChar;

/// The maximum number of bytes shown of another program's text.
pub(crate) const MAX_SHOWN: usize = 4096;

/// Makes foreign bytes safe to show: control, format and bidirectional characters and invalid UTF-8 are escaped, and
/// the text is cut to 4 KiB.
#[must_use]
pub(crate) fn shown(text: &[u8]) -> impl fmt::Display + '_ {
    Shown(text)
}

/// Returns a flag with its value as a shell takes them, safe to show, with a space in front.
#[must_use]
pub(crate) fn flag(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!(" {name}{between}{}", quoted(value))
}

/// Returns a text as a shell takes it, safe to show, in quotes if it needs them.
#[must_use]
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&byte);
    let is_bare = !text.is_empty() && text.len() < MAX_SHOWN && text.bytes().all(is_plain);
    if is_bare { text.to_owned() } else { in_quotes(text) }
}

/// Returns a text in quotes as a shell takes them, safe to show: characters that are not safe to show are octal escapes
/// in `$'…'`, which mean the same in every locale. Other text is cut as [`shown`] cuts it.
#[must_use]
pub(crate) fn in_quotes(text: &str) -> String {
    if !text.chars().any(is_unsafe) {
        return format!("'{}'", shown(text.as_bytes()).to_string().replace('\'', "'\\''"));
    }
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '\'' | '\\' => escaped.extend(['\\', character]),
            character if is_unsafe(character) => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a String cannot fail.
                    let _ = write!(escaped, "\\{byte:03o}");
                }
            }
            character => escaped.push(character),
        }
    }
    format!("$'{escaped}'")
}

struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = MAX_SHOWN - '…'.len_utf8();
        // Writes as much as fits of a text, or nothing of one that must not be cut; `false` if that is not all.
        let mut put = |f: &mut fmt::Formatter<'_>, piece: &str, can_be_cut: bool| {
            if piece.len() <= room {
                room -= piece.len();
                f.write_str(piece)?;
                return Ok(true);
            }
            let end = (0..=room).rev().find(|&end| can_be_cut && piece.is_char_boundary(end)).unwrap_or(0);
            write!(f, "{}…", &piece[..end])?;
            Ok(false)
        };
        for chunk in self.0.utf8_chunks() {
            for piece in chunk.valid().split_inclusive(is_unsafe) {
                let safe = piece.trim_end_matches(is_unsafe);
                let escaped = piece[safe.len()..].escape_default();
                if !put(f, safe, true)? || safe != piece && !put(f, &escaped.to_string(), false)? {
                    return Ok(());
                }
            }
            for byte in chunk.invalid() {
                if !put(f, &format!("\\x{byte:02x}"), false)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Returns the `known` name that `typed` was probably meant to be: it begins with it, or differs by a slip or two.
#[must_use]
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = typed.chars().count();
    // Two slips leave nothing of a word of three letters.
    let most = if length < 2 { 0 } else { (length / 3).clamp(1, 2) };
    let differences = |known: &str| match strsim::osa_distance(typed, known) {
        _ if length > 2 && known.starts_with(typed) => 0,
        differences => differences,
    };
    let likest = known.into_iter().map(|known| (differences(known), known)).min()?;
    (likest.0 <= most).then_some(likest.1)
}

/// Returns as much of the beginning of `text` as fits into this many columns of a terminal.
#[must_use]
pub(crate) fn fitting(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let ends = text.char_indices().find(|(_, character)| {
        used += character.width().unwrap_or(0);
        used > columns
    });
    ends.map_or(text, |(end, _)| &text[..end])
}

/// Returns as much of the beginning of `text` as fits into this many columns, with an ellipsis if it is cut.
#[must_use]
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if fitting(text, columns).len() == text.len() {
        return text.to_owned();
    }
    format!("{}…", fitting(text, columns.saturating_sub(1)))
}

/// `true` if times are shown in this host's time zone.
static IS_LOCAL: AtomicBool = AtomicBool::new(false);

/// From now on, times are shown in this host's time zone, or else in UTC.
pub(crate) fn show_local_times(is_local: bool) {
    IS_LOCAL.store(is_local, Ordering::Relaxed);
}

/// Formats this time in milliseconds since 1970 to the second; `None` beyond the year 9999, which the formatter
/// refuses: such a time is nonsense anyway.
#[must_use]
pub(crate) fn moment(millis: u64) -> Option<String> {
    let at = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    let at = at.filter(|_| millis < 253_402_300_800_000)?;
    let local = if IS_LOCAL.load(Ordering::Relaxed) { local(millis / 1000) } else { None };
    Some(local.unwrap_or_else(|| humantime::format_rfc3339_seconds(at).to_string()))
}

/// Formats this time in seconds since 1970 in this host's time zone, with its offset from UTC.
fn local(seconds: u64) -> Option<String> {
    let seconds = seconds.try_into().ok()?;
    // SAFETY: a tm of zeros is one, whose name of a zone is null.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of this function; nothing in dlock changes TZ.
    if unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) }.is_null() {
        return None;
    }
    let (date, month) = (tm.tm_mday, tm.tm_mon + 1);
    let (sign, minutes) = (if tm.tm_gmtoff < 0 { '-' } else { '+' }, tm.tm_gmtoff.abs() / 60);
    Some(format!(
        "{:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}{sign}{:02}:{:02}",
        i64::from(tm.tm_year) + 1900,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        minutes / 60,
        minutes % 60
    ))
}

/// Returns `true` for control characters, line and paragraph separators, and invisible characters, which reorder or
/// hide the text around them or make two texts look the same.
#[must_use]
pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_and_reordering_characters_are_escaped_and_all_others_are_shown() {
        for hidden in [
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200f}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e007f}',
            '\u{9b}',
        ] {
            let line = shown(format!("a{hidden}b").as_bytes()).to_string();
            assert_eq!(line, format!("a\\u{{{:x}}}b", u32::from(hidden)));
        }
        for text in ["backup", "Größe", "備份", "résumé e\u{301}", "नमस्ते", "👍", "שלום"] {
            assert_eq!(shown(text.as_bytes()).to_string(), text);
        }
    }

    #[test]
    fn a_shell_reads_a_flag_back_whatever_is_in_its_value() {
        let texts =
            ["backup", "a b", "it's", "-x", "k\u{202e}x", "\u{200b}7'\\\t", "", "\u{e0041}$(id)`", "Größe", "a!b"];
        for text in texts {
            let line = flag("--key", text);
            assert!(!line.chars().any(is_unsafe), "{line}");
            let script = format!("printf %s{}", line.replacen("--key", "", 1).replacen(" =", " ", 1));
            let read = std::process::Command::new("bash").arg("-c").arg(&script).output().expect("bash");
            assert_eq!(String::from_utf8_lossy(&read.stdout), text, "{script}");
        }
    }

    #[test]
    fn widths_are_counted_in_columns() {
        for (text, columns, expected) in [
            ("backup", 10, "backup"),
            ("backup", 4, "back"),
            ("備份任務", 8, "備份任務"),
            ("備份任務", 7, "備份任"),
            ("備份任務", 1, ""),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}e\u{301}"),
            ("👍👍", 3, "👍"),
            ("", 0, ""),
        ] {
            assert_eq!(fitting(text, columns), expected, "{text} in {columns}");
        }
    }

    #[test]
    fn shown_text_is_bounded_whatever_it_is() {
        for text in [vec![b'x'; 10_000], vec![0xff; 10_000], "ü\u{202e}".repeat(5_000).into_bytes()] {
            let line = shown(&text).to_string();
            assert!(line.len() <= MAX_SHOWN, "{}", line.len());
            assert!(line.ends_with('…') && !line.chars().any(is_unsafe));
        }
        let umlauts = shown("ü".repeat(5_000).as_bytes()).to_string();
        assert_eq!(umlauts, format!("{}…", "ü".repeat((MAX_SHOWN - '…'.len_utf8()) / 2)));
    }
}
