/*!
The texts of scripts, and requests to run one.
*/

use std::time::Duration;

use ::redis::{Arg, Cmd};
use sha1::{Digest, Sha1};

/// A script of these files and an optional end, each of which may use the definitions of those before. It is condensed
/// at compile time.
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

/// Copies a script without its comments and indentation to `place`, as far as there is room, and returns its length.
/// Servers read and hash the whole text of every request.
pub(in crate::backend) const fn condense(text: &str, place: &mut [u8]) -> usize {
    let text = text.as_bytes();
    let (mut length, mut at, mut begins, mut skips) = (0, 0, true, false);
    while at < text.len() {
        let byte = text[at];
        if begins && !byte.is_ascii_whitespace() {
            begins = false;
            skips = byte == b'-' && at + 1 < text.len() && text[at + 1] == b'-';
            // The end of the previous line.
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

/// Returns the request to run a condensed script with these keys and arguments.
pub(in crate::backend) fn script(text: &str, keys: &[String], arguments: &[&str]) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    command
}

/// The scripts that a server has run on one connection, and that can therefore be called by their digests.
#[derive(Debug, Default)]
pub(super) struct Known {
    texts: Vec<Vec<u8>>,
    /// `true` if the server refused a call by digest: it has forgotten the script, or the user lacks the right.
    only_texts: bool,
}

impl Known {
    /// Returns the request that calls the script of `command` by its digest, if the script is known.
    pub(super) fn call(&self, command: &Cmd) -> Option<Cmd> {
        let (text, rest) = parts(command)?;
        if self.only_texts || !self.texts.iter().any(|known| known == text) {
            return None;
        }
        let digest = Sha1::digest(text).iter().fold(String::new(), |digest, byte| digest + &format!("{byte:02x}"));
        let mut call = ::redis::cmd("EVALSHA");
        call.arg(digest);
        for word in rest {
            call.arg(word);
        }
        Some(call)
    }

    /// Records that the server has run the script of `command`, if it has one.
    pub(super) fn learn(&mut self, command: &Cmd) {
        if let Some((text, _)) = parts(command)
            && !self.only_texts
        {
            self.texts.push(text.to_vec());
        }
    }

    /// Records that the server has refused a call by digest: from now on, scripts are sent as text.
    pub(super) fn refused(&mut self) {
        *self = Self { texts: Vec::new(), only_texts: true };
    }
}

/// Returns the text of the script that `command` runs, and the words after it.
fn parts(command: &Cmd) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => &[],
    });
    (words.next()? == b"EVAL").then_some(())?;
    Some((words.next()?, words.collect()))
}

/// Returns the duration in whole milliseconds, as text.
pub(in crate::backend) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
