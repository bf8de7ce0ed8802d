/*!
The problems of the table of locks and of the server.
*/

use crate::backend::error::Error;
use crate::backend::mysql::texts::literal;
use crate::backend::sql::answers::{Row, of};
use crate::backend::sql::errors::bad_table;
use crate::backend::sql::table::Table;
use crate::printable::shown;

/// The value of a placeholder in the request.
pub(super) fn value(place: &str, table: &Table) -> Option<String> {
    let schema = || table.schema().map_or_else(|| "DATABASE()".to_owned(), literal);
    Some(match place {
        "schema" => schema(),
        "table" => literal(table.bare()),
        "members" => literal(&table.member_bare()),
        "engines" => table
            .own_bare()
            .map(|name| {
                format!(
                    "SELECT TABLE_NAME name, ENGINE engine FROM information_schema.TABLES \
                     WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
                    schema(),
                    literal(&name)
                )
            })
            .join(" UNION ALL "),
        _ => return None,
    })
}

/// The problems that could make the locks in `table` unsafe; `None` if they were not requested. Fails for a table that
/// would not keep locks. Errors call the server `name`.
pub(super) fn warnings(rows: &[Row], table: &Table, name: &str) -> Result<Option<Vec<String>>, Error> {
    let Some(row) = of(rows, "inspect") else { return Ok(None) };
    let [_, engine, times, flushes, zone, key, beside, coarse] = row[..] else { return Ok(None) };
    let lock = table.lock();
    let Some(engine) = engine else {
        let what = format!("{table} is a view, and not a table");
        return Err(bad_table(&name, &what, "name the table itself with ?table="));
    };
    if !engine.eq_ignore_ascii_case("innodb") {
        let what = format!("the table {table} has the engine {}, which has no transactions", shown(engine.as_bytes()));
        return Err(bad_table(&name, &what, &format!("ALTER TABLE {lock} ENGINE=InnoDB;")));
    }
    if !matches!(key, Some("PRI" | "UNI")) {
        let what = format!("the table {table} may have several rows for one lock");
        return Err(bad_table(&name, &what, &format!("ALTER TABLE {lock} ADD PRIMARY KEY (name);")));
    }
    if let Some(beside) = beside {
        let beside = shown(beside.as_bytes());
        let what = format!("the table {beside} has an engine without transactions");
        return Err(bad_table(&name, &what, &format!("ALTER TABLE {beside} ENGINE=InnoDB;")));
    }
    if let Some(coarse) = coarse {
        let coarse = shown(coarse.as_bytes());
        let what = format!("the column until of {coarse} does not keep milliseconds");
        return Err(bad_table(&name, &what, &format!("ALTER TABLE {coarse} MODIFY until DATETIME(3) NOT NULL;")));
    }
    let mut warnings = Vec::new();
    let times = times.unwrap_or_default().split(',').filter_map(|column| column.split_once(' '));
    for (column, kind) in times {
        if !matches!(kind, "datetime 3" | "datetime 4" | "datetime 5" | "datetime 6" | "timestamp 3" | "timestamp 6") {
            let (column, kind) = (shown(column.as_bytes()), shown(kind.as_bytes()));
            let what = format!("the column {column} of {table} is a {kind}, which does not keep milliseconds");
            let remedy = format!("ALTER TABLE {lock} MODIFY {column} DATETIME(3) NOT NULL;");
            return Err(bad_table(&name, &what, &remedy));
        }
        if kind.starts_with("timestamp") && zone == Some("other") && warnings.is_empty() {
            warnings.push(format!(
                "the columns of {table} are TIMESTAMP, and the server's time zone is not UTC: all programs must use the same \
                 time zone, and none works in the hour that it skips in spring; ALTER TABLE {lock} MODIFY lock_until \
                 DATETIME(3) NOT NULL, MODIFY locked_at DATETIME(3) NOT NULL"
            ));
        }
    }
    if flushes == Some("later") {
        warnings.push(
            "the server runs with innodb_flush_log_at_trx_commit other than 1: it may lose locks when it crashes"
                .to_owned(),
        );
    }
    Ok(Some(warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_the_statements_have_them() {
        let table = Table::shedlock('`');
        let good = "lock_until datetime 3,locked_at datetime 6";
        for (fields, expected) in [
            (["InnoDB", good, "each", "utc"], Ok(0)),
            (["InnoDB", good, "later", "other"], Ok(1)),
            (["InnoDB", "lock_until timestamp 3,locked_at timestamp 3", "each", "utc"], Ok(0)),
            (["InnoDB", "lock_until timestamp 3,locked_at timestamp 3", "each", "other"], Ok(1)),
            (["MyISAM", good, "each", "utc"], Err("mend it by: ALTER TABLE `shedlock` ENGINE=InnoDB;")),
            (["InnoDB", "lock_until datetime 0", "each", "utc"], Err("MODIFY lock_until DATETIME(3) NOT NULL;")),
            (["InnoDB", "lock_until bigint ", "each", "utc"], Err("is a bigint , which")),
        ] {
            let row = [&["inspect"], &fields[..], &["PRI", "", ""]]
                .concat()
                .iter()
                .map(|field| Some((*field).to_owned()).filter(|field| !field.is_empty()))
                .collect();
            match (warnings(&[row], &table, "S"), expected) {
                (Ok(told), Ok(expected)) => assert_eq!(told.map(|told| told.len()), Some(expected), "{fields:?}"),
                (Err(told), Err(expected)) => assert!(told.to_string().contains(expected), "{told}"),
                (told, _) => panic!("{fields:?}: {told:?}"),
            }
        }
        assert_eq!(warnings(&[], &table, "S").ok(), Some(None));
    }
}
