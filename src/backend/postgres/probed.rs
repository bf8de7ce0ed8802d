/*!
Evaluates what a PostgreSQL server reports about itself, for the safety of locks.
*/

use crate::backend::contract::probing::{Finding, clock, counted};
use crate::backend::error::ErrorKind;
use crate::backend::sql::answers::{Row, of};
use crate::backend::sql::told::{ServerReport, connections, number};
use crate::printable::shown;

/// The oldest supported version, as the server counts versions.
const OLDEST: u64 = 100_000;

/// Evaluates a server's answer from the time `here` by this host's clock (ms since 1970); `None` if malformed.
pub(super) fn told(rows: &[Row], here: u64) -> Option<ServerReport> {
    let row = of(rows, "probe")?;
    let [_, release, version, fsync, pages, commits, standbys, replicas, now, process, most, used] = row[..] else {
        return None;
    };
    let mut findings = vec![
        self::version(number(release)?, version?),
        persistence(fsync?, pages?, commits?),
        self::replicas(number(replicas)?, standbys.unwrap_or_default()),
    ];
    findings.extend(connections(number(used), number(most)));
    findings.push(clock(number(now)?, here));
    Some(ServerReport { findings, process: process?.parse().ok() })
}

fn version(release: u64, version: &str) -> Finding {
    let text = format!("PostgreSQL {}", shown(version.as_bytes()));
    if release >= OLDEST {
        return Finding::ok("version", text);
    }
    Finding::fail("version", ErrorKind::Unusable, format!("{text} is too old"), "use version 10 or newer")
}

/// Rates how the server keeps what it has confirmed. Grants are always synchronous, whatever the role's setting is.
fn persistence(fsync: &str, pages: &str, commits: &str) -> Finding {
    if fsync == "off" {
        let text = "fsync is off: locks may be lost when its machine crashes";
        return Finding::warn("persistence", text, "set fsync = on");
    }
    if pages == "off" {
        let text = "full_page_writes is off: its data may be damaged when its machine crashes";
        return Finding::warn("persistence", text, "set full_page_writes = on");
    }
    match commits {
        "off" | "local" => {
            let text =
                format!("fsync is on; synchronous_commit is {commits}, and dlock sets it to on for its own changes");
            Finding::ok("persistence", text)
        }
        _ => Finding::ok("persistence", "fsync and synchronous_commit are on"),
    }
}

fn replicas(replicas: u64, standbys: &str) -> Finding {
    let have = counted(usize::try_from(replicas).unwrap_or(usize::MAX), "standby server");
    match (replicas, standbys) {
        (0, "") => Finding::ok("replicas", "none"),
        (_, "") => {
            let text = format!("{have} that no grant waits for: a failover may lose locks");
            Finding::warn("replicas", text, "set synchronous_standby_names")
        }
        _ => Finding::ok("replicas", format!("{have}, and grants wait for {}", shown(standbys.as_bytes()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::contract::probing::Verdict;

    #[test]
    fn what_a_server_is_worth() {
        let row = |fields: [&str; 6], used: &str| -> Row {
            let [release, fsync, pages, commits, standbys, replicas] = fields;
            let all = ["probe", release, "15.18", fsync, pages, commits, standbys, replicas, "1000", "7", "100", used];
            all.map(|field| Some(field.to_owned())).to_vec()
        };
        let names = ["version", "persistence", "replicas", "connections", "clock"];
        for (fields, used, expected) in [
            (["150018", "on", "on", "on", "", "0"], "5", ["ok"; 5]),
            (["150018", "on", "on", "off", "", "0"], "5", ["ok"; 5]),
            (["90624", "off", "on", "on", "", "1"], "95", ["fail", "warn", "warn", "warn", "ok"]),
            (["180004", "on", "off", "on", "any 1 (a)", "1"], "5", ["ok", "warn", "ok", "ok", "ok"]),
        ] {
            let told = told(&[row(fields, used)], 1500).expect("an answer");
            let found: Vec<_> = told.findings.iter().map(|finding| (finding.probe, finding.verdict.name())).collect();
            assert_eq!(found, names.into_iter().zip(expected).collect::<Vec<_>>(), "{fields:?}");
            assert_eq!(told.process, Some(7));
            for finding in told.findings.iter().filter(|finding| finding.verdict != Verdict::Ok) {
                assert!(finding.remedy.is_some(), "{finding:?}");
            }
        }
        assert!(told(&[], 0).is_none() && told(&[vec![Some("probe".to_owned())]], 0).is_none());
    }
}
