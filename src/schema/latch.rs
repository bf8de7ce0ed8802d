/*!
The document of `dlock latch show`.
*/

use serde::Serialize;

use crate::backend::meeting::Arrivals;
use crate::schema::{LookedAt, VERSION, line, moment, text};

/// The fields of a latch: name, meaning.
pub(crate) const LATCH: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    ("backend", "the URL of the backend, without a password"),
    ("namespace", "the namespace"),
    ("time", "when it was looked at, by this host's clock"),
    ("key", "the latch's name"),
    ("count", "how many names are done"),
    ("names", "these names, a thousand at most"),
    ("failed", "the failure, as an object with by (who reported it) and reason; null if there is none"),
];

#[derive(Serialize)]
struct Latch<'a> {
    v: u32,
    backend: &'a str,
    namespace: &'a str,
    time: Option<String>,
    key: &'a str,
    count: u64,
    names: Vec<String>,
    failed: Option<Failed>,
}

#[derive(Serialize)]
struct Failed {
    by: String,
    reason: String,
}

/// The document of the latch `key`, as seen `at` this time in milliseconds since 1970.
#[must_use]
pub(crate) fn latch(arrivals: &Arrivals, key: &str, place: &LookedAt, at: u64) -> String {
    line(&Latch {
        v: VERSION,
        backend: &place.backend,
        namespace: &place.namespace,
        time: moment(at),
        key,
        count: arrivals.count,
        names: arrivals.names.iter().map(|name| text(name.as_bytes())).collect(),
        failed: arrivals
            .failure
            .as_ref()
            .map(|failure| Failed { by: text(failure.by.as_bytes()), reason: text(failure.reason.as_bytes()) }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::meeting::LatchFailure;

    #[test]
    fn a_latch_word_for_word() {
        let place = LookedAt { backend: "redis://locks:6379".to_owned(), namespace: "dlock".to_owned(), table: None };
        let failure = LatchFailure { by: "unit".to_owned(), reason: "red".to_owned() };
        let arrivals = Arrivals { count: 2, names: vec!["a".to_owned(), "b".to_owned()], failure: Some(failure) };
        let expected = r#"{"v":1,"backend":"redis://locks:6379","namespace":"dlock","time":"2026-11-21T22:05:45.000Z","key":"k","count":2,"names":["a","b"],"failed":{"by":"unit","reason":"red"}}"#;
        assert_eq!(latch(&arrivals, "k", &place, 1_795_298_745_000), format!("{expected}\n"));
        let names: Vec<&str> = LATCH.iter().map(|(name, _)| *name).collect();
        let document: serde_json::Value = serde_json::from_str(expected).expect("JSON");
        assert!(names.iter().all(|name| document.get(name).is_some()), "{names:?}");
        assert_eq!(document.as_object().map(serde_json::Map::len), Some(names.len()));
    }
}
