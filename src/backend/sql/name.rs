/*!
The name of a lock's row, which has at most 64 characters.
*/

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::backend::contract::claim::Claim;
use crate::backend::survey::Location;
use crate::key::{Key, Namespace, encoded};

/// The number of characters that fit into the column.
const MOST: usize = 64;
/// The mark before the digest of a name that was cut.
const CUT: &str = "%~";
/// The number of characters of a longer name that stay.
const KEPT: usize = 30;

/// Returns the name of the row for the lock of `claim`; see [`row`].
#[must_use]
pub(crate) fn of(claim: &Claim) -> String {
    row(&claim.namespace, &claim.key)
}

/// Returns the namespace, a colon and the encoded key. Without a namespace it is the key as it is, unless that contains
/// `%~`: a job of ShedLock has the same name here.
///
/// A space at the end of an encoded name is `%20`, because some databases ignore it. A name of more than 64 characters
/// is cut, and ends in `%~` and 16 bytes of its SHA-256: no encoded key has `%~`, so no other lock has this row.
#[must_use]
pub(crate) fn row(namespace: &Namespace, key: &Key) -> String {
    let joined = namespace.join(':', key);
    let name = match joined.strip_suffix(' ') {
        _ if is_plain(namespace, key.as_str()) => key.as_str().to_owned(),
        Some(rest) => format!("{rest}%20"),
        None => joined,
    };
    if name.chars().count() <= MOST {
        return name;
    }
    let kept: String = name.chars().take(KEPT).collect();
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take((MOST - KEPT - 2) / 2).fold(kept + CUT, |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns `true` if a name is used as it is: without a namespace, unless it looks like the end of a name that was cut.
fn is_plain(namespace: &Namespace, name: &str) -> bool {
    namespace.is_empty() && !name.contains(CUT)
}

/// Returns the beginning of the row names for all keys that begin with `prefix`.
#[must_use]
pub(crate) fn beginning(namespace: &Namespace, prefix: &str) -> String {
    if is_plain(namespace, prefix) { prefix.to_owned() } else { namespace.prefix(':') + &encoded(prefix) }
}

/// Returns the lock whose row is called `name`; `None` in another namespace. The key of a cut name is unknown.
#[must_use]
pub(crate) fn location(namespace: &Namespace, name: &str) -> Option<Location> {
    if is_plain(namespace, name) {
        // Other programs have names that are not keys.
        let key = Key::parse(name.as_ref()).ok().map(|key| key.as_str().to_owned());
        return Some(Location { key, place: name.to_owned() });
    }
    let encoded = name.strip_prefix(&namespace.prefix(':'))?;
    let encoded = encoded.strip_suffix("%20").map_or_else(|| encoded.to_owned(), |rest| format!("{rest} "));
    Some(Location::read(&encoded, name))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    fn name(namespace: &str, key: &str) -> Option<String> {
        Some(row(&Namespace::parse(namespace).ok()?, &Key::parse(OsStr::new(key)).ok()?))
    }

    #[test]
    fn names_are_those_of_the_locks() {
        for (namespace, key, expected) in [
            ("dlock", "job", "dlock:job"),
            ("", "job", "job"),
            ("", "a/b", "a/b"),
            ("", ".a%", ".a%"),
            ("", "job ", "job "),
            ("n", "a/b", "n:a%2Fb"),
            ("n", "job ", "n:job%20"),
            ("n", "job  ", "n:job %20"),
            ("n", "a b", "n:a b"),
        ] {
            assert_eq!(name(namespace, key).expect("valid"), expected);
        }
        for (namespace, name, key) in [
            ("dlock", "dlock:job", Some(Some("job"))),
            ("dlock", "other:job", None),
            ("n", "n:job%20", Some(Some("job "))),
            ("n", "n:a%2Fb", Some(Some("a/b"))),
            ("n", "n:job%", Some(None)),
            ("n", "n:job%~0123", Some(None)),
            ("", "job%20", Some(Some("job%20"))),
            ("", "a/b", Some(Some("a/b"))),
            ("", "job%~0123", Some(None)),
            ("", "a\nb", Some(None)),
        ] {
            let location = location(&Namespace::parse(namespace).expect("valid"), name);
            assert_eq!(location.as_ref().map(|location| location.key.as_deref()), key, "{name}");
            assert!(location.is_none_or(|location| location.place == name));
        }
        for (namespace, prefix, expected) in
            [("n", "a/", "n:a%2F"), ("n", "", "n:"), ("", "a/%", "a/%"), ("", "", ""), ("", "%~", "%25~")]
        {
            assert_eq!(beginning(&Namespace::parse(namespace).expect("valid"), prefix), expected);
        }
        let whole = "x".repeat(64);
        assert_eq!(name("", &whole).as_deref(), Some(whole.as_str()));
        let cut = name("", &"ü".repeat(65)).expect("valid");
        assert!(cut.starts_with(&("ü".repeat(30) + "%~")) && cut.chars().count() == 64, "{cut}");
        assert_ne!(name("", &"x".repeat(65)), name("", &"x".repeat(66)));
    }

    #[test]
    fn two_locks_never_have_the_same_row() {
        const PIECES: &str = "a|b|:|/|%|%~| |  |%20|ü";
        let long = ("[a-c:%~ ]", 20..80_usize).prop_map(|(piece, times)| piece.repeat(times));
        let text = || prop_oneof![3 => made_of(PIECES), 1 => long.clone()];
        holds(3000, (text(), text(), text(), text(), any::<bool>()), |(namespace, key, other, third, forged)| {
            let Some(one) = name(&namespace, &key) else { return Ok(()) };
            let third = if forged { one.clone() } else { third };
            let Some(two) = name(&other, &third) else { return Ok(()) };
            prop_assert!(one.chars().count() <= MOST && (namespace.is_empty() || !one.ends_with(' ')), "{one:?}");
            let joined = |namespace: &str, key: &str| {
                let parsed = Key::parse(OsStr::new(key)).expect("valid");
                let whole = Namespace::parse(namespace).expect("valid").join(':', &parsed);
                if namespace.is_empty() && !key.contains(CUT) {
                    key.to_owned()
                } else {
                    whole.strip_suffix(' ').map_or(whole.clone(), |rest| format!("{rest}%20"))
                }
            };
            prop_assert_eq!(one == two, joined(&namespace, &key) == joined(&other, &third));
            Ok(())
        });
    }
}
