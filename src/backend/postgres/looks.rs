/*!
The statements of looks at a PostgreSQL database: see [`looks`](crate::backend::sql::looks).
*/

use postgres_protocol::escape::escape_literal;

use crate::backend::postgres::place::NAMES;
use crate::backend::postgres::probed;
use crate::backend::postgres::texts::{MICROS, NOW};
use crate::backend::sql::breaking::BreakStatements;
use crate::backend::sql::dialect::RecordStatements;
use crate::backend::sql::looks::Looks;

/// The statements of looks.
pub(super) const LOOKS: Looks = Looks {
    greeting: "",
    names_of: NAMES,
    begin: include_str!("statements/survey/begin.sql"),
    look: include_str!("statements/survey/look.sql"),
    now: "timezone('utc', now())",
    probe: include_str!("statements/probe.sql"),
    told: probed::told,
    literal: escape_literal,
    value,
};

/// The statements of requests to stop and of breaks.
pub(super) const BREAKING: BreakStatements = BreakStatements {
    begin: include_str!("statements/breaking/begin.sql"),
    ask: include_str!("statements/breaking/ask.sql"),
    tell: include_str!("statements/breaking/tell.sql"),
    take: include_str!("statements/breaking/take.sql"),
    member: include_str!("statements/breaking/member.sql"),
    foreign: include_str!("statements/breaking/foreign.sql"),
    trace: include_str!("statements/breaking/trace.sql"),
    hurry: "SET LOCAL lock_timeout = 200;\n",
    wake: include_str!("statements/wake.sql"),
    looks: LOOKS,
};

/// The statements about records.
pub(super) const RECORDS: RecordStatements = RecordStatements {
    listen: "LISTEN {channel};",
    extend: include_str!("statements/records/extend.sql"),
    read: include_str!("statements/records/read.sql"),
    place: include_str!("statements/records/place.sql"),
    put: include_str!("statements/records/put.sql"),
    amend: include_str!("statements/records/amend.sql"),
    clear: "DELETE FROM {record} r WHERE {here};",
    made: "",
    sweep: include_str!("statements/records/sweep.sql"),
    wake: "SELECT pg_notify('{channel}', '');",
    glance: "",
    at: |micros| match micros {
        Some(micros) => format!("(timestamp 'epoch' + {micros} * interval '1 microsecond')"),
        None => NOW.to_owned(),
    },
};

/// Returns the value of a placeholder.
fn value(place: &str) -> Option<String> {
    let millis =
        |column: &str| format!("CASE WHEN isfinite({column}) THEN (extract(epoch FROM {column}) * 1000)::bigint END");
    Some(match place {
        "now" => NOW.to_owned(),
        "time" => format!("{MICROS} / 1000"),
        // The database's own collation does not matter.
        "bytes" => "s.name COLLATE \"C\"".to_owned(),
        "since" => millis("s.locked_at"),
        "until" => millis("s.lock_until"),
        "member_since" | "waiter_since" => millis("t.since"),
        "member_until" => millis("t.until"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::postgres::statements::Statements;
    use crate::backend::sql::records::check;
    use crate::backend::sql::table::Table;

    #[test]
    fn every_place_has_a_value_and_nothing_is_written() {
        let begins =
            ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;", NAMES.trim_end(), "SET LOCAL statement_timeout = "];
        LOOKS.check('"', &begins);
    }

    #[test]
    fn every_place_of_a_change_has_a_value() {
        BREAKING.check();
    }

    #[test]
    fn every_place_of_a_statement_about_records_has_a_value() {
        check::<Statements>(Table::shedlock('"'));
    }
}
