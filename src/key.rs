/*!
Lock names: the rules for them, and the encoding by which no name nests in another or leaves its directory at a backend.
*/

use std::ffi::OsStr;
use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

use crate::printable::in_quotes;

/// The longest key, in bytes.
pub(crate) const MAX_KEY: usize = 512;
/// The longest namespace, in bytes.
const MAX_NAMESPACE: usize = 200;
/// The longest encoded key that is used as a file name without hashing, in bytes; with `.lock` it stays below
/// `NAME_MAX`.
const MAX_FILE_STEM: usize = 200;

/// The maximum number of locks that one run can hold.
pub(crate) const MOST_KEYS: usize = 16;

/// A valid lock name: 1 to 512 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// Checks `name`. The error says what is wrong with it and what to do.
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

    /// Returns the key as every backend encodes it: `/`, `%` and a leading dot are percent-encoded, everything else is
    /// unchanged. Different keys never have the same encoding.
    #[must_use]
    pub(crate) fn encoded(&self) -> String {
        encoded(&self.0)
    }

    /// Returns the name of the lock file: the encoded key and `.lock`. An encoded key over 200 bytes is cut and ends in
    /// its SHA-256 after `%~`, which no encoded key can contain, so that no other key has the same file name.
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

    /// Returns the key as the user wrote it.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Encodes the beginning of a key as every backend does.
#[must_use]
pub(crate) fn encoded(beginning: &str) -> String {
    let encoded = beginning.replace('%', "%25").replace('/', "%2F");
    match encoded.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => encoded,
    }
}

/// For messages: in quotes as a shell takes them, so that a name does not run into the sentence.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_quotes(&self.0))
    }
}

/// The names of the locks that one run holds: one or several, each once, in the order in which the user has named them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    first: Key,
    others: Vec<Key>,
}

impl Keys {
    /// Makes a list of these names without repetitions; `None` if there are none.
    #[must_use]
    pub(crate) fn of(names: impl IntoIterator<Item = Key>) -> Option<Self> {
        let mut names = names.into_iter();
        let mut keys = Self::from(names.next()?);
        for name in names {
            if keys.iter().all(|key| *key != name) {
                keys.others.push(name);
            }
        }
        Some(keys)
    }

    /// Returns the first name.
    #[must_use]
    pub(crate) fn first(&self) -> &Key {
        &self.first
    }

    /// Returns all names, in the user's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns the number of names: at least 1.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        1 + self.others.len()
    }
}

/// One name alone.
impl From<Key> for Keys {
    fn from(key: Key) -> Self {
        Self { first: key, others: Vec::new() }
    }
}

/// For messages, as a list: `a, 'b c'`.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.others.iter().try_for_each(|key| write!(f, ", {key}"))
    }
}

/// The prefix for every key on a shared server; may be empty.
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

    /// Returns `true` if there is no prefix.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the beginning of the names of all its locks: `NS` and `separator`; empty if the namespace is empty.
    #[must_use]
    pub(crate) fn prefix(&self, separator: char) -> String {
        if self.0.is_empty() { String::new() } else { format!("{}{separator}", self.0) }
    }

    /// Returns the namespace as the user wrote it.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `NS`, `separator` and the encoded key; the bare encoded key if the namespace is empty.
    #[must_use]
    pub(crate) fn join(&self, separator: char, key: &Key) -> String {
        self.prefix(separator) + &key.encoded()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    /// Names that look encoded, try to leave their directory, or are close to the limits of length.
    fn near_names() -> impl Strategy<Value = String> {
        const PIECES: &str = "a|b|.|..|/|%|%2F|%25|%2E|%252F|%~|~|2F| |ü|{a}|\n|\0";
        let long = (150..520_usize, "[a-cü/%.]", "[/%~]?").prop_map(|(length, piece, end)| piece.repeat(length) + &end);
        prop_oneof![3 => made_of(PIECES), 1 => long]
    }

    #[test]
    fn a_key_is_refused_or_spelled_in_one_piece_that_stays_in_its_place() {
        holds(2000, near_names(), |name| {
            let allowed = (1..=MAX_KEY).contains(&name.len()) && !name.contains(char::is_control);
            let parsed = Key::parse(OsStr::new(&name));
            prop_assert_eq!(parsed.is_ok(), allowed);
            for spelling in parsed.iter().flat_map(|key| [key.encoded(), key.file_name()]) {
                prop_assert!(!spelling.is_empty() && !spelling.starts_with('.'), "{}", spelling);
                prop_assert!(!spelling.contains('/') && !spelling.contains(char::is_control), "{}", spelling);
            }
            if let Ok(key) = parsed {
                prop_assert!(key.file_name().len() <= 255 && key.file_name().strip_suffix(".lock").is_some());
                let decoded = percent_encoding::percent_decode_str(&key.encoded()).decode_utf8_lossy().into_owned();
                prop_assert_eq!(decoded, name, "an encoding that cannot be undone is not one to one");
            }
            Ok(())
        });
    }

    /// Two names; the second often looks like an encoding of the first.
    fn pairs() -> impl Strategy<Value = (String, String)> {
        (near_names(), near_names(), 0..6).prop_map(|(one, other, how)| {
            let spelled = Key::parse(OsStr::new(&one)).ok();
            let other = match (how, spelled) {
                (0, Some(key)) => key.encoded(),
                (1, Some(key)) => key.file_name().trim_end_matches(".lock").to_owned(),
                (2, Some(_)) => one.chars().skip(1).collect(),
                (3, Some(_)) => one.clone() + &other,
                _ => other,
            };
            (one, other)
        })
    }

    #[test]
    fn different_keys_never_share_a_spelling() {
        holds(2000, pairs(), |(one, other)| {
            let (Ok(a), Ok(b)) = (Key::parse(OsStr::new(&one)), Key::parse(OsStr::new(&other))) else { return Ok(()) };
            prop_assert_eq!(a.encoded() == b.encoded(), one == other);
            prop_assert_eq!(a.file_name() == b.file_name(), one == other);
            Ok(())
        });
    }

    #[test]
    fn a_namespace_is_one_prefix_for_all_its_keys() {
        holds(1000, (near_names(), pairs()), |(namespace, (one, other))| {
            let allowed = namespace.len() <= MAX_NAMESPACE && !namespace.contains(char::is_control);
            let parsed = Namespace::parse(&namespace);
            prop_assert_eq!(parsed.is_ok(), allowed);
            let (Ok(a), Ok(b)) = (Key::parse(OsStr::new(&one)), Key::parse(OsStr::new(&other))) else { return Ok(()) };
            let Ok(parsed) = parsed else { return Ok(()) };
            for separator in [':', '/'] {
                let (joined, second) = (parsed.join(separator, &a), parsed.join(separator, &b));
                let place = if namespace.is_empty() { String::new() } else { format!("{namespace}{separator}") };
                prop_assert_eq!(joined.strip_prefix(&place), Some(&*a.encoded()));
                prop_assert_eq!(joined == second, one == other);
                // As etcd looks for them: no lock's keys are below those of another.
                prop_assert_eq!(format!("{joined}/").starts_with(&format!("{second}/")), one == other);
            }
            Ok(())
        });
    }

    fn key(name: &str) -> Key {
        Key::parse(OsStr::new(name)).expect("valid")
    }

    #[test]
    fn several_names_are_a_list_without_repetitions_in_the_order_given() {
        let keys = Keys::of(["b", "a", "b", "c", "a"].map(key)).expect("names");
        assert_eq!((keys.to_string().as_str(), keys.count(), keys.first()), ("'b', 'a', 'c'", 3, &key("b")));
        // One word of a sentence, not several.
        assert_eq!(
            Keys::of([key("a b"), key("it's"), key("c/d:e")]).expect("keys").to_string(),
            r"'a b', 'it'\''s', 'c/d:e'"
        );
        assert_eq!(keys.iter().map(Key::as_str).collect::<Vec<_>>(), ["b", "a", "c"]);
        assert_eq!(Keys::of([]), None);
        assert_eq!((Keys::from(key("k")).to_string().as_str(), Keys::from(key("k")).count()), ("'k'", 1));
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
