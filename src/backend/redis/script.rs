/*!
The texts of scripts, and requests to run one.
*/

use std::time::Duration;

use ::redis::Cmd;

/// A script, made of these files and perhaps an end: each may use what those before it define. It is condensed when dlock is
/// built.
macro_rules! script_of {
    ($($file:literal)+ $(; $end:literal)?) => {
        $crate::backend::redis::condensed!(concat!($(include_str!($file)),+ $(, $end)?))
    };
}
pub(in crate::backend) use script_of;

/// The constant `text` of a script, condensed.
macro_rules! condensed {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const LENGTH: usize = $crate::backend::redis::condense(TEXT, &mut []);
        const BYTES: [u8; LENGTH] = {
            let mut bytes = [0; LENGTH];
            $crate::backend::redis::condense(TEXT, &mut bytes);
            bytes
        };
        match std::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => panic!("whole characters are copied"),
        }
    }};
}
pub(in crate::backend) use condensed;

/// Copies a script without its comments and indentation to `place`, as far as there is room, and returns its length: a server
/// reads and hashes the whole text of every request.
pub(in crate::backend) const fn condense(text: &str, place: &mut [u8]) -> usize {
    let text = text.as_bytes();
    let (mut length, mut at, mut begins, mut skips) = (0, 0, true, false);
    while at < text.len() {
        let byte = text[at];
        if begins && !byte.is_ascii_whitespace() {
            begins = false;
            skips = byte == b'-' && at + 1 < text.len() && text[at + 1] == b'-';
            // The end of the line before.
            if !skips && length > 0 {
                put(place, &mut length, b'\n');
            }
        }
        if byte == b'\n' {
            begins = true;
        } else if !begins && !skips {
            put(place, &mut length, byte);
        }
        at += 1;
    }
    length
}

const fn put(place: &mut [u8], length: &mut usize, byte: u8) {
    if *length < place.len() {
        place[*length] = byte;
    }
    *length += 1;
}

/// The request to run a condensed script with these keys and arguments.
pub(in crate::backend) fn script(text: &str, keys: &[String], arguments: &[&str]) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    command
}

/// In whole milliseconds, as text.
pub(in crate::backend) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
