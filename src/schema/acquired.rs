/*!
The document of `dlock acquire`.
*/

use std::time::Duration;

use serde::Serialize;

use crate::handle::Handle;
use crate::schema::{VERSION, line, moment};

/// The fields of a lock that was acquired: name, meaning.
pub(crate) const ACQUIRED: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    ("handle", "the handle, for dlock renew, dlock release and dlock run --handle"),
    ("backend", "the URL of the backend, without a password"),
    ("namespace", "the namespace"),
    ("key", "the lock's name"),
    ("owner", "the owner's id"),
    ("token", "the fencing token"),
    ("ttl_ms", "the length of lease that was granted, or null for a lock without one"),
    ("acquired", "when the lock was acquired, by this host's clock"),
    ("expires", "when the lease ends unless it is renewed, by the same clock, or null for a lock without one"),
    ("waited_ms", "how long it took to acquire the lock"),
    ("keeper", "the process that keeps the lock (--while-pid), as an object with its host and pid, or null"),
];

#[derive(Serialize)]
struct Taken<'a> {
    v: u32,
    handle: String,
    backend: &'a str,
    namespace: &'a str,
    key: &'a str,
    owner: &'a str,
    token: u64,
    ttl_ms: Option<u64>,
    acquired: Option<String>,
    expires: Option<String>,
    waited_ms: u64,
    keeper: Option<Keeper<'a>>,
}

#[derive(Serialize)]
struct Keeper<'a> {
    host: &'a str,
    pid: i32,
}

/// The document of a lock that was acquired `at` this time in milliseconds since 1970, after `waited_ms` milliseconds,
/// with this `lease`.
#[must_use]
pub(crate) fn acquired(handle: &Handle, lease: Option<Duration>, at: u64, waited_ms: u64) -> String {
    let ttl_ms = lease.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    line(&Taken {
        v: VERSION,
        handle: handle.text(),
        backend: &handle.backend,
        namespace: handle.namespace.as_str(),
        key: handle.key.as_str(),
        owner: handle.owner.as_str(),
        token: handle.token,
        ttl_ms,
        acquired: moment(at),
        expires: ttl_ms.and_then(|ttl_ms| moment(at.saturating_add(ttl_ms))),
        waited_ms,
        keeper: handle.keeper.as_ref().map(|keeper| Keeper { host: &keeper.host, pid: keeper.pid }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Owner;
    use crate::key::{Key, Namespace};

    #[test]
    fn a_lock_that_was_acquired_word_for_word() {
        let handle = Handle {
            backend: "redis://locks:6379".to_owned(),
            namespace: Namespace::parse("dlock").expect("valid"),
            key: Key::parse("backup".as_ref()).expect("valid"),
            owner: Owner::read("e457f1b7a38ab51a0c8ce773f17aabeb").expect("an id"),
            token: 7,
            ttl: Duration::from_secs(600),
            attempt: None,
            keeper: None,
        };
        let document = acquired(&handle, Some(handle.ttl), 1_795_298_745_323, 12);
        let expected = format!(
            r#"{{"v":1,"handle":"{}","backend":"redis://locks:6379","namespace":"dlock","key":"backup","owner":"e457f1b7a38ab51a0c8ce773f17aabeb","token":7,"ttl_ms":600000,"acquired":"2026-11-21T22:05:45.323Z","expires":"2026-11-21T22:15:45.323Z","waited_ms":12,"keeper":null}}"#,
            handle.text()
        );
        assert_eq!(document, expected + "\n");
        let document: serde_json::Value = serde_json::from_str(&document).expect("a document");
        let mut names: Vec<&str> = ACQUIRED.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert!(document.as_object().expect("an object").keys().eq(names));
    }
}
