/*!
The handle of a lock that outlives the process that took it: one word, `dlock1_` and JSON in base64url, by which any
later process finds the lock again.

It is an address, not a key: it names the lock, its backend and the owner id by which it is held, and contains no
password. The last field is a checksum of the others, so that a handle that was cut or mistyped names no other lock.
*/

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::holder::Owner;
use crate::key::{Key, Namespace};

/// The beginning of every handle of this version.
const PREFIX: &str = "dlock1_";
/// The longest handle, in bytes.
pub(crate) const MAX_HANDLE: usize = 2048;
/// The longest lease of a handle.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The exclusive upper limit of fencing tokens.
const TOKEN_LIMIT: u64 = 1 << 53;

/// A lock that is held by its handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// The URL of its backend, without a password.
    pub backend: String,
    /// The prefix for every key there.
    pub namespace: Namespace,
    /// The lock's name.
    pub key: Key,
    /// The owner that holds it.
    pub owner: Owner,
    /// The fencing token.
    pub token: u64,
    /// The length of the granted lease.
    pub ttl: Duration,
    /// The number of the granted attempt, if the service counts attempts.
    pub attempt: Option<u64>,
    /// The process that keeps the lock; `None` if nothing renews it.
    pub keeper: Option<Keeper>,
}

impl Handle {
    /// Returns the longest time that the lock lasts if nobody renews it by this handle; `None` if its keeper renews it.
    #[must_use]
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.keeper.is_none().then_some(self.ttl)
    }
}

/// The process that keeps a lock while another one lives, with all that tells it apart from other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keeper {
    /// The host's name, for people.
    #[serde(rename = "h")]
    pub host: String,
    /// The first digits of the kernel's id of the boot.
    #[serde(rename = "b")]
    pub boot: String,
    /// The inode of its PID namespace.
    #[serde(rename = "n")]
    pub namespace: u64,
    /// The process id there.
    #[serde(rename = "p")]
    pub pid: i32,
    /// Its start, in clock ticks after boot.
    #[serde(rename = "s")]
    pub start: u64,
}

/// A handle as in its JSON; the order of the fields is part of the format.
#[derive(Debug, Serialize, Deserialize)]
struct Fields {
    #[serde(rename = "b")]
    backend: String,
    #[serde(rename = "n")]
    namespace: String,
    #[serde(rename = "k")]
    key: String,
    #[serde(rename = "o")]
    owner: String,
    #[serde(rename = "t")]
    token: u64,
    #[serde(rename = "l")]
    ttl: u64,
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u64>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    keeper: Option<Keeper>,
    #[serde(rename = "s", default, skip_serializing_if = "String::is_empty")]
    sum: String,
}

impl Fields {
    /// Fills in the checksum of the fields before it: 8 hexadecimal digits.
    fn summed(mut self) -> Self {
        self.sum.clear();
        let digest = Sha256::digest(self.json());
        self.sum = digest[..4].iter().fold(String::new(), |sum, byte| format!("{sum}{byte:02x}"));
        self
    }

    fn json(&self) -> Vec<u8> {
        // Texts and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Handle {
    /// Reads a handle. The error says what is wrong with it, but does not repeat it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty: did dlock acquire succeed?".to_owned());
        }
        let Some(encoded) = text.strip_prefix(PREFIX) else { return Err(not_a_handle(text)) };
        let damaged = || "it is damaged: copy the whole word that dlock acquire has printed".to_owned();
        if text.len() > MAX_HANDLE {
            return Err(damaged());
        }
        let json = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| damaged())?;
        let fields: Fields = serde_json::from_slice(&json).map_err(|_| damaged())?;
        let sum = fields.sum.clone();
        let fields = fields.summed();
        if fields.sum != sum || fields.json() != json {
            return Err(damaged());
        }
        Self::checked(fields).ok_or_else(damaged)
    }

    fn checked(fields: Fields) -> Option<Self> {
        let ttl = Duration::from_millis(fields.ttl);
        let has_sense = (1..TOKEN_LIMIT).contains(&fields.token) && !ttl.is_zero() && ttl <= MAX_TTL * 2;
        has_sense.then_some(())?;
        Some(Self {
            backend: fields.backend,
            namespace: Namespace::parse(&fields.namespace).ok()?,
            key: Key::parse(fields.key.as_ref()).ok()?,
            owner: Owner::read(&fields.owner)?,
            token: fields.token,
            ttl,
            attempt: fields.attempt,
            keeper: fields.keeper,
        })
    }

    /// Returns the handle as one word: letters, digits, `-` and `_`.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let fields = Fields {
            backend: self.backend.clone(),
            namespace: self.namespace.as_str().to_owned(),
            key: self.key.as_str().to_owned(),
            owner: self.owner.as_str().to_owned(),
            token: self.token,
            ttl: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            attempt: self.attempt,
            keeper: self.keeper.clone(),
            sum: String::new(),
        };
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(fields.summed().json()))
    }

    /// Returns `true` if every handle for this lock is short enough, whatever its numbers are.
    #[must_use]
    pub(crate) fn fits(&self) -> bool {
        let longest = Self { token: TOKEN_LIMIT - 1, ttl: MAX_TTL * 2, attempt: Some(u64::MAX), ..self.clone() };
        longest.text().len() <= MAX_HANDLE
    }
}

/// Describes the fault of a word that does not begin like a handle of this version.
fn not_a_handle(text: &str) -> String {
    let version = text.strip_prefix("dlock").and_then(|rest| rest.split_once('_')).map(|(version, _)| version);
    let is_newer = version.is_some_and(|version| {
        !version.starts_with('0') && version.len() <= 9 && version.parse().is_ok_and(|version: u32| version > 1)
    });
    if is_newer {
        "it was made by a newer dlock".to_owned()
    } else {
        format!("it is not a handle: dlock acquire prints one, and it begins with {PREFIX}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::holds;

    fn handle() -> Handle {
        Handle {
            backend: "redis://locks:6379".to_owned(),
            namespace: Namespace::parse("dlock").expect("valid"),
            key: Key::parse("backup".as_ref()).expect("valid"),
            owner: Owner::read("e457f1b7a38ab51a0c8ce773f17aabeb").expect("an id"),
            token: 1_795_298_745_323_320,
            ttl: Duration::from_secs(1800),
            attempt: None,
            keeper: None,
        }
    }

    fn keeper() -> Keeper {
        Keeper { host: "web1".to_owned(), boot: "0123abcd".to_owned(), namespace: 4_026_531_836, pid: 812, start: 7 }
    }

    #[test]
    fn a_handle_is_one_word_that_is_read_back() {
        let names = ("[a-z]{3,6}://[a-z0-9.:,/%@]{1,40}", "[ -~ü]{0,20}", "[ -~ü]{1,60}");
        let numbers = (1..TOKEN_LIMIT, 1..=MAX_TTL.as_secs(), proptest::option::of(any::<u64>()));
        holds(1000, (names, numbers, any::<u128>()), |((backend, namespace, key), (token, ttl, attempt), owner)| {
            let handle = Handle {
                backend,
                namespace: Namespace::parse(&namespace).map_err(TestCaseError::fail)?,
                key: Key::parse(key.as_ref()).map_err(TestCaseError::fail)?,
                owner: Owner::read(&format!("{owner:032x}")).ok_or_else(|| TestCaseError::fail("no id"))?,
                token,
                ttl: Duration::from_secs(ttl),
                attempt,
                keeper: attempt.map(|_| keeper()),
            };
            let text = handle.text();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
            prop_assert!(handle.fits() && text.len() <= MAX_HANDLE);
            prop_assert_eq!(Handle::read(&text), Ok(handle));
            Ok(())
        });
    }

    #[test]
    fn the_format_stays_as_it_is() {
        let json = r#"{"b":"redis://locks:6379","n":"dlock","k":"backup","o":"e457f1b7a38ab51a0c8ce773f17aabeb","t":1795298745323320,"l":1800000"#;
        for (handle, more) in [
            (handle(), ""),
            (Handle { attempt: Some(3), ..handle() }, r#","a":3"#),
            (
                Handle { keeper: Some(keeper()), ..handle() },
                r#","p":{"h":"web1","b":"0123abcd","n":4026531836,"p":812,"s":7}"#,
            ),
        ] {
            let text = handle.text();
            let decoded = URL_SAFE_NO_PAD.decode(text.strip_prefix("dlock1_").expect("the prefix")).expect("base64");
            let decoded = String::from_utf8(decoded).expect("text");
            assert!(decoded.starts_with(&format!("{json}{more},\"s\":\"")), "{decoded}");
        }
    }

    #[test]
    fn a_handle_with_any_byte_changed_cut_or_added_is_none() {
        let text = handle().text();
        for at in 0..text.len() {
            for byte in 0..=0x7f_u8 {
                let mut changed = text.clone().into_bytes();
                if std::mem::replace(&mut changed[at], byte) == byte {
                    continue;
                }
                let changed = String::from_utf8(changed).expect("ASCII");
                assert!(Handle::read(&changed).is_err(), "byte {at} is {byte:#x}: {changed}");
            }
            assert!(Handle::read(&text[..at]).is_err(), "cut at {at}");
        }
        for more in ["A", "AA", "=", " ", "\n"] {
            assert!(Handle::read(&(text.clone() + more)).is_err(), "{more:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_without_a_panic() {
        let sealed = |json: &str| {
            let fields: Fields = serde_json::from_str(json).expect("fields");
            format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(fields.summed().json()))
        };
        let with = |token: u64, ttl: u64, owner: &str, key: &str| {
            sealed(&format!(r#"{{"b":"redis://h","n":"d","k":"{key}","o":"{owner}","t":{token},"l":{ttl}}}"#))
        };
        let id = "e457f1b7a38ab51a0c8ce773f17aabeb";
        assert!(Handle::read(&with(1, 1000, id, "job")).is_ok());
        for (token, ttl, owner, key) in [
            (0, 1000, id, "job"),
            (TOKEN_LIMIT, 1000, id, "job"),
            (1, 0, id, "job"),
            (1, u64::MAX, id, "job"),
            (1, 1000, "E457F1B7A38AB51A0C8CE773F17AABEB", "job"),
            (1, 1000, "e457", "job"),
            (1, 1000, id, ""),
            (1, 1000, id, "a\\nb"),
        ] {
            assert!(Handle::read(&with(token, ttl, owner, key)).is_err(), "{token} {ttl} {owner} {key}");
        }
        holds(2000, "(dlock1_)?[A-Za-z0-9_-]{0,80}", |text: String| {
            prop_assert!(Handle::read(&text).is_err());
            Ok(())
        });
        for (text, part) in [
            ("", "empty"),
            ("dlock2_abc", "made by a newer dlock"),
            ("dlock17_", "made by a newer dlock"),
            ("dlock0_abc", "not a handle"),
            ("dlock01_abc", "not a handle"),
            ("dlock_abc", "not a handle"),
            ("(exit 75)", "not a handle"),
            ("dlock1_", "damaged"),
            (&format!("dlock1_{}", "A".repeat(MAX_HANDLE)), "damaged"),
        ] {
            let error = Handle::read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_handle_that_would_be_too_long_is_known_before_the_lock_is_taken() {
        let key = Key::parse("k".repeat(512).as_ref()).expect("valid");
        assert!(Handle { key: key.clone(), ..handle() }.fits());
        assert!(!Handle { key, backend: "redlock://".to_owned() + &"a".repeat(1024), ..handle() }.fits());
    }
}
