/*!
Evaluates what a MySQL or MariaDB server reports about itself, for the safety of locks.
*/

use crate::backend::contract::probing::{Finding, clock, counted, version};
use crate::backend::error::ErrorKind;
use crate::backend::sql::answers::{Row, of};
use crate::backend::sql::told::{ServerReport, connections, number};
use crate::printable::shown;

/// The oldest versions of MySQL and MariaDB that are supported.
const MYSQL: [u64; 2] = [5, 7];
const MARIADB: [u64; 2] = [10, 2];

/// Judges a server by this answer, which came at `here` milliseconds by this host's clock; `None` if it is malformed.
pub(super) fn told(rows: &[Row], here: u64) -> Option<ServerReport> {
    let row = of(rows, "probe")?;
    let [_, version, flushes, logs, syncs, now, most] = row[..] else { return None };
    let status = |names: &[&str]| {
        let row = rows.iter().find(|row| {
            let name = row.first().and_then(Option::as_deref).unwrap_or_default();
            names.iter().any(|known| known.eq_ignore_ascii_case(name))
        });
        row.and_then(|row| row.get(1)?.as_deref())
    };
    let semi = status(&["Rpl_semi_sync_master_status", "Rpl_semi_sync_source_status"]) == Some("ON");
    let cluster = number(status(&["wsrep_cluster_size"])).unwrap_or_default();
    let mut findings = vec![
        release(version?),
        persistence(flushes?, matches!(logs, Some("1" | "ON")), syncs?),
        replicas(number(status(&["Slaves_connected"])), semi, cluster),
    ];
    findings.extend(connections(number(status(&["Threads_connected"])), number(most)));
    findings.push(clock(number(now)?, here));
    Some(ServerReport { findings, process: None })
}

fn release(told: &str) -> Finding {
    let numbers = version(told);
    let is_mariadb = told.contains("MariaDB");
    let (product, oldest) = if is_mariadb { ("MariaDB", MARIADB) } else { ("MySQL", MYSQL) };
    let number = told.split('-').next().unwrap_or_default();
    let text = format!("{product} {}", shown(number.as_bytes()));
    match numbers.as_slice() {
        [first, second, ..] if [*first, *second] < oldest => {
            let remedy = format!("use version {}.{} or newer", oldest[0], oldest[1]);
            Finding::fail("version", ErrorKind::Unusable, format!("{text} is too old"), remedy)
        }
        _ => Finding::ok("version", text),
    }
}

fn persistence(flushes: &str, logs: bool, syncs: &str) -> Finding {
    if flushes != "1" {
        let text = format!(
            "innodb_flush_log_at_trx_commit is {}: locks may be lost when it crashes",
            shown(flushes.as_bytes())
        );
        return Finding::warn("persistence", text, "set it to 1");
    }
    if logs && syncs != "1" {
        let text = format!("sync_binlog is {}: its replicas may miss locks when it crashes", shown(syncs.as_bytes()));
        return Finding::warn("persistence", text, "set it to 1");
    }
    Finding::ok("persistence", "innodb_flush_log_at_trx_commit is 1")
}

fn replicas(count: Option<u64>, semi: bool, cluster: u64) -> Finding {
    if cluster > 1 {
        let text = format!(
            "a cluster of {}: its nodes grant together",
            counted(usize::try_from(cluster).unwrap_or(0), "node")
        );
        return Finding::ok("replicas", text);
    }
    let Some(count) = count else {
        return Finding::skip("replicas", "the server does not tell", "if it has replicas, a failover may lose locks");
    };
    let have = counted(usize::try_from(count).unwrap_or(usize::MAX), "replica");
    match (count, semi) {
        (0, _) => Finding::ok("replicas", "none"),
        (_, true) => Finding::ok("replicas", format!("{have}, semi-synchronous")),
        (_, false) => {
            let text = format!("{have} that no grant waits for: a failover may lose locks");
            Finding::warn("replicas", text, "use semi-synchronous replication, or a Galera cluster")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_worth() {
        let names = ["version", "persistence", "replicas", "connections", "clock"];
        let row = |fields: &[&str]| -> Row { fields.iter().map(|field| Some((*field).to_owned())).collect() };
        for (version, flushes, logs, syncs, status, expected) in [
            ("10.11.19-MariaDB", "1", "0", "0", &[("SLAVES_CONNECTED", "0")][..], ["ok"; 5]),
            ("10.11.19-MariaDB", "2", "0", "0", &[("Slaves_connected", "1")], ["ok", "warn", "warn", "ok", "ok"]),
            (
                "10.1.3-MariaDB",
                "1",
                "1",
                "0",
                &[("Slaves_connected", "1"), ("Rpl_semi_sync_master_status", "ON")],
                ["fail", "warn", "ok", "ok", "ok"],
            ),
            ("9.7.4", "1", "1", "1", &[], ["ok", "ok", "skip", "ok", "ok"]),
            ("5.6.1-log", "1", "1", "1", &[("wsrep_cluster_size", "3")], ["fail", "ok", "ok", "ok", "ok"]),
        ] {
            let mut rows = vec![row(&["probe", version, flushes, logs, syncs, "1000", "100"])];
            rows.extend(status.iter().map(|(name, value)| row(&[name, value])));
            rows.push(row(&["Threads_connected", "5"]));
            let told = told(&rows, 1500).expect("an answer");
            let found: Vec<_> = told.findings.iter().map(|finding| (finding.probe, finding.verdict.name())).collect();
            assert_eq!(found, names.into_iter().zip(expected).collect::<Vec<_>>(), "{version}");
        }
        assert!(told(&[], 0).is_none() && told(&[row(&["probe"])], 0).is_none());
    }
}
