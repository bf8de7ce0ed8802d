/*!
The statements of looks at MySQL and MariaDB databases: see [`looks`](crate::backend::sql::looks).
*/

use crate::backend::mysql::probed;
use crate::backend::mysql::texts::{SURE, literal};
use crate::backend::sql::breaking::BreakStatements;
use crate::backend::sql::dialect::RecordStatements;
use crate::backend::sql::looks::Looks;

/// The statements of looks.
pub(super) const LOOKS: Looks = Looks {
    greeting: include_str!("statements/survey/greeting.sql"),
    names_of: "",
    begin: include_str!("statements/survey/begin.sql"),
    look: include_str!("statements/survey/look.sql"),
    now: "UTC_TIMESTAMP(3)",
    probe: include_str!("statements/probe.sql"),
    told: probed::told,
    literal,
    value,
};

/// The statements for breaking locks and requesting stops.
pub(super) const BREAKING: BreakStatements = BreakStatements {
    begin: include_str!("statements/breaking/begin.sql"),
    ask: include_str!("statements/breaking/ask.sql"),
    tell: "",
    take: include_str!("statements/breaking/take.sql"),
    member: include_str!("statements/breaking/member.sql"),
    foreign: include_str!("statements/breaking/foreign.sql"),
    trace: include_str!("statements/breaking/trace.sql"),
    // `begin` limits waits for row locks to one second, the shortest possible limit.
    hurry: "",
    wake: "",
    looks: LOOKS,
};

/// The statements about records.
pub(super) const RECORDS: RecordStatements = RecordStatements {
    listen: "",
    extend: include_str!("statements/records/extend.sql"),
    read: include_str!("statements/records/read.sql"),
    place: include_str!("statements/records/place.sql"),
    put: include_str!("statements/records/put.sql"),
    amend: include_str!("statements/records/amend.sql"),
    clear: "DELETE r FROM {record} r WHERE {here};",
    // A cluster can end the transaction without an error just before its commit.
    made: "SELECT 'made' FROM DUAL WHERE @dlock AND {count} = (SELECT COUNT(*) FROM {record} r \
           WHERE {here} AND r.record IN ({keys}) AND r.version >= @dlock_version);",
    sweep: include_str!("statements/records/sweep.sql"),
    wake: "",
    glance: include_str!("statements/records/glance.sql"),
    at: |micros| match micros {
        Some(micros) => format!("TIMESTAMPADD(MICROSECOND, {micros}, TIMESTAMP '1970-01-01 00:00:00')"),
        None => "UTC_TIMESTAMP(3)".to_owned(),
    },
};

/// The value of a placeholder.
fn value(place: &str) -> Option<String> {
    let millis = |time: &str| format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {time}) DIV 1000");
    // The time of the look, not that of the statement.
    let now = "CAST(@dlock_now AS DATETIME(6))";
    Some(match place {
        "now" => now.to_owned(),
        // An end in the past, even if a column rounds.
        "ended" => "UTC_TIMESTAMP(3)".to_owned(),
        "time" => millis(now),
        "sure" => SURE.to_owned(),
        "since" => millis("s.locked_at"),
        "until" => millis("s.lock_until"),
        "member_since" | "waiter_since" => millis("t.since"),
        "member_until" => millis("t.until"),
        // Bytes, so that the table's collation does not matter.
        "bytes" => "CAST(CONVERT(s.name USING utf8mb4) AS BINARY)".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::mysql::statements::Statements;
    use crate::backend::sql::records::check;
    use crate::backend::sql::table::Table;

    #[test]
    fn every_place_has_a_value_and_nothing_is_written() {
        let begins = [
            "SET @dlock_work = ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;",
            "SET @dlock_now = UTC_TIMESTAMP(6);",
        ];
        LOOKS.check('`', &begins);
    }

    #[test]
    fn every_place_of_a_change_has_a_value() {
        BREAKING.check();
    }

    #[test]
    fn what_rests_on_an_earlier_decision_asks_whether_the_transaction_goes_on() {
        assert!(RECORDS.made.contains("@dlock AND") && RECORDS.made.contains("r.version >= @dlock_version"));
        let breaking = [BREAKING.ask, BREAKING.take, BREAKING.member, BREAKING.foreign];
        for text in breaking.into_iter().chain([RECORDS.put, RECORDS.amend]) {
            assert!(text.contains("{sure}"), "{text}");
            for statement in text.split(";\n").filter(|one| one.contains("AND @dlock") || one.contains("WHERE @dlock"))
            {
                assert!(statement.contains("@dlock AND {sure}"), "{statement}");
            }
        }
    }

    #[test]
    fn every_place_of_a_statement_about_records_has_a_value() {
        check::<Statements>(Table::shedlock('`'));
    }
}
