/*!
The document of `dlock check --json`, and the meaning of its fields.
*/

use serde::Serialize;

use crate::backend::contract::probing::{Finding, Verdict};
use crate::schema::{VERSION, line, text};

/// The fields of the document: name, meaning.
pub(crate) const CHECKED: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    ("backend", "the URL of the backend, without a password"),
    (
        "origin",
        "where the URL comes from: flag, the name of a variable, a line of a config file (/etc/dlock/config.toml:3), or default",
    ),
    ("result", "ok, warn (locks work, and something could make them unsafe) or fail (they do not work)"),
    ("probes", "what was found, in this order; see PROBES"),
    ("latency", "how long renewals of a lock took; null for file:, and where no lock could be taken. See LATENCY"),
];

/// The fields of a probe: name, meaning.
pub(crate) const PROBE: &[(&str, &str)] = &[
    (
        "name",
        "host, cpu, reach, tls, identity, lock, latency, version, master, role, eviction, persistence, replicas, servers, cluster, lease, \
         clock, pooler, connections, table, directory; one may occur several times",
    ),
    ("result", "ok, warn, fail or skip (it could not be found out)"),
    ("server", "the server that it is about; null for the service as a whole"),
    ("text", "what was found"),
    ("remedy", "what to do about it"),
];

/// The fields of the latency: name, meaning.
pub(crate) const LATENCY: &[(&str, &str)] = &[
    ("count", "how many renewals were made"),
    ("median_us", "the median of their lengths, in microseconds"),
    ("worst_us", "the longest of them"),
    ("samples_us", "all of them, in their order"),
];

#[derive(Serialize)]
struct Checked<'a> {
    v: u32,
    backend: &'a str,
    origin: &'a str,
    result: &'static str,
    probes: Vec<Probe>,
    latency: Option<Latency<'a>>,
}

#[derive(Serialize)]
struct Probe {
    name: &'static str,
    result: &'static str,
    server: Option<String>,
    text: String,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Latency<'a> {
    count: usize,
    median_us: u64,
    worst_us: u64,
    samples_us: &'a [u64],
}

/// Returns the median of these lengths (the upper of two middle ones) and the longest; `None` if there are none.
#[must_use]
pub(crate) fn middle_and_worst(samples: &[u64]) -> Option<(u64, u64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    Some((*sorted.get(sorted.len() / 2)?, *sorted.last()?))
}

/// The document of a check of this backend; `origin` is the source of its URL.
#[must_use]
pub(crate) fn checked(backend: &str, origin: &str, findings: &[Finding], samples: &[u64]) -> String {
    let probe = |finding: &Finding| Probe {
        name: finding.probe,
        result: finding.verdict.name(),
        server: finding.server.as_deref().map(|server| text(server.as_bytes())),
        text: text(finding.text.as_bytes()),
        remedy: finding.remedy.as_deref().map(|remedy| text(remedy.as_bytes())),
    };
    let has = |wanted: fn(&Verdict) -> bool| findings.iter().any(|finding| wanted(&finding.verdict));
    let result = match () {
        () if has(|verdict| matches!(verdict, Verdict::Fail(_))) => "fail",
        () if has(|verdict| *verdict == Verdict::Warn) => "warn",
        () => "ok",
    };
    let latency = middle_and_worst(samples).map(|(median_us, worst_us)| Latency {
        count: samples.len(),
        median_us,
        worst_us,
        samples_us: samples,
    });
    line(&Checked { v: VERSION, backend, origin, result, probes: findings.iter().map(probe).collect(), latency })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::error::ErrorKind;

    #[test]
    fn a_check_word_for_word_with_every_field_explained() {
        let findings = [
            Finding::ok("reach", "127.0.0.1:6379, connected in 0.4ms").at(&"locks:6379"),
            Finding::warn("persistence", "appendonly is off", "set appendonly yes"),
            Finding::skip("eviction", "CONFIG GET is not allowed", ""),
        ];
        let document = checked("redis://locks:6379", "DLOCK_BACKEND", &findings, &[300, 2400, 310, 290]);
        let expected = r#"{"v":1,"backend":"redis://locks:6379","origin":"DLOCK_BACKEND","result":"warn","probes":[{"name":"reach","result":"ok","server":"locks:6379","text":"127.0.0.1:6379, connected in 0.4ms","remedy":null},{"name":"persistence","result":"warn","server":null,"text":"appendonly is off","remedy":"set appendonly yes"},{"name":"eviction","result":"skip","server":null,"text":"CONFIG GET is not allowed","remedy":null}],"latency":{"count":4,"median_us":310,"worst_us":2400,"samples_us":[300,2400,310,290]}}"#;
        assert_eq!(document, format!("{expected}\n"));
        let value: serde_json::Value = serde_json::from_str(&document).expect("a document");
        for (value, explained) in [(&value, CHECKED), (&value["probes"][0], PROBE), (&value["latency"], LATENCY)] {
            let mut names: Vec<&str> = explained.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            assert_eq!(value.as_object().expect("an object").keys().collect::<Vec<_>>(), names);
        }
        let failed = [Finding::fail("lock", ErrorKind::Denied, "refused", "give a password")];
        let document = checked("file:", "default", &failed, &[]);
        let expected = r#"{"v":1,"backend":"file:","origin":"default","result":"fail","probes":[{"name":"lock","result":"fail","server":null,"text":"refused","remedy":"give a password"}],"latency":null}"#;
        assert_eq!(document, format!("{expected}\n"));
        assert!(checked("file:", "default", &[], &[]).contains(r#""result":"ok""#));
    }
}
