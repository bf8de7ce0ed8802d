/*!
A lock's name: which names are allowed, and how a backend spells one so that it can neither nest nor leave its place.
*/

use std::ffi::OsStr;
use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

/// The longest key, in bytes.
pub(crate) const MAX_KEY: usize = 512;
/// The longest namespace, in bytes.
const MAX_NAMESPACE: usize = 200;
/// The longest encoded key that is a file name as it stands, in bytes; with `.lock` it stays below `NAME_MAX`.
const MAX_FILE_STEM: usize = 200;

/// A valid lock name: 1 to 512 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// Checks `name`; the error says what is wrong with it and what to do.
    pub(crate) fn parse(name: &OsStr) -> Result<Self, String> {
        let name = name.to_str().ok_or("a key must be UTF-8: rename the lock")?;
        if name.is_empty() {
            return Err("a key must not be empty: give the lock a name".to_owned());
        }
        if name.len() > MAX_KEY {
            return Err(format!("a key has at most {MAX_KEY} bytes, this one has {}: shorten it", name.len()));
        }
        if name.chars().any(char::is_control) {
            return Err("a key must not contain control characters: remove them".to_owned());
        }
        Ok(Self(name.to_owned()))
    }

    /// The key as every backend spells it: `/`, `%` and a leading dot percent-encoded, all else as it stands.
    /// Different keys never share a spelling.
    #[must_use]
    pub(crate) fn encoded(&self) -> String {
        let encoded = self.0.replace('%', "%25").replace('/', "%2F");
        match encoded.strip_prefix('.') {
            Some(rest) => format!("%2E{rest}"),
            None => encoded,
        }
    }

    /// The lock file's name: the encoded key and `.lock`. A spelling over 200 bytes is cut and ends in its SHA-256,
    /// after a `%~` that no encoded key can contain, so that it cannot be mistaken for another key's.
    #[must_use]
    pub(crate) fn file_name(&self) -> String {
        let encoded = self.encoded();
        if encoded.len() <= MAX_FILE_STEM {
            return format!("{encoded}.lock");
        }
        let digest = Sha256::digest(encoded.as_bytes()).iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let mut cut = MAX_FILE_STEM - digest.len() - 2;
        while !encoded.is_char_boundary(cut) {
            cut -= 1;
        }
        format!("{}%~{digest}.lock", &encoded[..cut])
    }

    /// The key as the user wrote it.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What stands before every key on a shared server; empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace(String);

impl Namespace {
    /// Checks `name`: at most 200 bytes of UTF-8 without control characters, possibly none at all.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        if name.len() > MAX_NAMESPACE {
            return Err(format!("a namespace has at most {MAX_NAMESPACE} bytes: shorten it"));
        }
        if name.chars().any(char::is_control) {
            return Err("a namespace must not contain control characters: remove them".to_owned());
        }
        Ok(Self(name.to_owned()))
    }

    /// `NS`, `separator` and the encoded key; the bare encoded key when the namespace is empty.
    #[must_use]
    pub(crate) fn join(&self, separator: char, key: &Key) -> String {
        let encoded = key.encoded();
        if self.0.is_empty() { encoded } else { format!("{}{separator}{encoded}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::parse(OsStr::new(name)).expect("valid")
    }

    #[test]
    fn names_stay_in_their_place() {
        for (name, encoded) in [
            ("job", "job"),
            ("..", "%2E."),
            (".hidden", "%2Ehidden"),
            ("a/b", "a%2Fb"),
            ("100%", "100%25"),
            ("%2F", "%252F"),
            ("-x", "-x"),
            ("über {1}", "über {1}"),
        ] {
            assert_eq!(key(name).encoded(), encoded);
            assert_eq!(key(name).file_name(), format!("{encoded}.lock"));
        }
    }

    #[test]
    fn long_file_names_are_hashed_and_cannot_be_forged() {
        let long = "x".repeat(MAX_KEY);
        let name = key(&long).file_name();
        assert!(name.len() <= 205, "{name}");
        assert_ne!(name, key(&long[1..]).file_name());
        let forged = key(name.strip_suffix(".lock").expect("suffix"));
        assert_ne!(forged.file_name(), name);
        assert!(key(&"ü".repeat(200)).file_name().len() <= 205);
    }

    #[test]
    fn bad_names_are_refused() {
        use std::os::unix::ffi::OsStrExt;
        for bad in ["", "a\nb", "a\u{85}b", &"x".repeat(MAX_KEY + 1)] {
            assert!(Key::parse(OsStr::new(bad)).is_err(), "{bad:?}");
        }
        assert!(Key::parse(OsStr::from_bytes(b"\xff")).is_err());
        assert!(Namespace::parse("a\tb").is_err());
        assert_eq!(Namespace::parse("").expect("empty").join(':', &key("k")), "k");
        assert_eq!(Namespace::parse("n").expect("n").join(':', &key("k")), "n:k");
    }
}
