/*!
Unusable side keys: a damaged fencing counter, or a key of another type than dlock keeps there. The scripts find them
before they write anything.
*/

use std::fmt;
use std::fmt::Write;

use crate::backend::contract::contender::TOKEN_LIMIT;
use crate::printable::shown;

/// An unusable side key. Displayed with its name, the damage, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::backend) struct Damage {
    /// The name of the key.
    key: String,
    /// Its type at the server.
    kind: String,
    /// The beginning of the string that should be a fencing counter; `None` if the key is of a wrong type.
    counter: Option<Vec<u8>>,
}

impl Damage {
    /// Returns the damage to a key of this type; `counter` is the beginning of a string that should be a counter.
    pub(super) fn new(key: &str, kind: &str, counter: Option<&[u8]>) -> Self {
        let counter = counter.filter(|_| kind == "string").map(<[u8]>::to_vec);
        Self { key: key.to_owned(), kind: kind.to_owned(), counter }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = quoted(&self.key);
        match &self.counter {
            None => write!(
                f,
                "its key {key} holds a {}, which is not dlock's; move that away, or run DEL {key} in redis-cli",
                shown(self.kind.as_bytes())
            ),
            Some(counter) => {
                let number = std::str::from_utf8(counter).ok().filter(|text| is_decimal(text));
                let (why, first) = match number.map(str::parse::<u64>) {
                    None => ("is not a number", ""),
                    // The token after it must be below the limit too.
                    Some(Ok(number)) if number < TOKEN_LIMIT - 2 => {
                        ("is more than a year ahead of the server's clock", "set that right, or ")
                    }
                    Some(_) => ("is too large", ""),
                };
                let counter = shown(counter);
                write!(
                    f,
                    "its fencing counter is damaged: the key {key} holds \"{counter}\", which {why}; {first}run DEL {key} in \
                     redis-cli, and tokens begin with the server's time again"
                )
            }
        }
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns `key` in the double-quoted form that redis-cli reads.
fn quoted(key: &str) -> String {
    let mut text = String::new();
    for character in key.chars() {
        // Writing to a String cannot fail.
        let _ = match character {
            '"' | '\\' => write!(text, "\\{character}"),
            '\0'..='\x1f' | '\x7f' => write!(text, "\\x{:02x}", u32::from(character)),
            other => write!(text, "{other}"),
        };
    }
    format!("\"{}\"", shown(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(key: &str, kind: &str, counter: Option<&str>) -> String {
        Damage::new(key, kind, counter.map(str::as_bytes)).to_string()
    }

    #[test]
    fn what_is_wrong_and_how_to_mend_it() {
        const KEY: &str = "{d:job}\u{1}fence";
        const QUOTED: &str = "\"{d:job}\\x01fence\"";
        for (counter, why) in [
            ("abc", "is not a number; "),
            ("", "is not a number; "),
            ("-1", "is not a number; "),
            ("+1", "is not a number; "),
            ("1e9", "is not a number; "),
            ("9007199254740989", "is more than a year ahead of the server's clock; set that right, or "),
            ("9007199254740990", "is too large; "),
            ("99999999999999999999999999", "is too large; "),
        ] {
            let expected = format!(
                "its fencing counter is damaged: the key {QUOTED} holds \"{counter}\", which {why}run DEL {QUOTED} in \
                 redis-cli, and tokens begin with the server's time again"
            );
            assert_eq!(told(KEY, "string", Some(counter)), expected);
        }
        for (kind, counter) in [("list", Some("")), ("string", None)] {
            let expected = format!(
                "its key {QUOTED} holds a {kind}, which is not dlock's; move that away, or run DEL {QUOTED} in redis-cli"
            );
            assert_eq!(told(KEY, kind, counter), expected);
        }
        assert_eq!(quoted("a\"b\\\n"), "\"a\\\"b\\\\\\x0a\"");
    }
}
