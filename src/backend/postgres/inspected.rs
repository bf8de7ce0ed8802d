/*!
The problems of the table of locks and of the server.
*/

use crate::backend::error::{Error, ErrorKind};
use crate::backend::sql::answers::{Row, of};
use crate::backend::sql::errors::bad_table;
use crate::backend::sql::table::Table;
use crate::printable::shown;

/// The result of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inspected {
    /// `true` if the server makes sure that confirmed changes survive.
    fsync: bool,
    /// `true` if the table survives a crash.
    is_logged: bool,
    /// The time columns, each with its type.
    times: Vec<(String, String)>,
    /// One of dlock's own tables that does not survive a crash.
    unlogged: Option<String>,
    /// The type of the column with the ends of co-holders.
    ends: Option<String>,
    /// One of dlock's own tables that the role may not write.
    unwritable: Option<String>,
}

/// Returns reasons why the locks in `table` may be unsafe; `None` if that was not asked. Fails for a table that would
/// not keep locks. Errors call the server `name`.
pub(super) fn warnings(rows: &[Row], table: &Table, name: &str) -> Result<Option<Vec<String>>, Error> {
    let Some(inspected) = inspected(rows) else { return Ok(None) };
    let lock = table.lock();
    if let Some(unwritable) = &inspected.unwritable {
        let hint = "dlock generate postgres prints what to grant";
        let unwritable = shown(unwritable.as_bytes());
        return Err(Error::new(
            ErrorKind::Denied,
            format!("{name}: the role lacks the right to INSERT and UPDATE in the table {unwritable}; {hint}"),
        ));
    }
    for (column, kind) in &inspected.times {
        if !kind.starts_with("timestamp") || !kind.ends_with("without time zone") {
            let (column, kind) = (shown(column.as_bytes()), shown(kind.as_bytes()));
            let what = format!("the column {column} of {table} is a {kind}");
            let remedy =
                format!("ALTER TABLE {lock} ALTER COLUMN {column} TYPE timestamp USING {column} AT TIME ZONE 'UTC';");
            return Err(bad_table(&name, &what, &remedy));
        }
    }
    if !inspected.is_logged {
        let what = format!("the table {table} does not survive a crash of the server");
        return Err(bad_table(&name, &what, &format!("ALTER TABLE {lock} SET LOGGED;")));
    }
    if let Some(unlogged) = &inspected.unlogged {
        let unlogged = shown(unlogged.as_bytes());
        let what = format!("the table {unlogged} does not survive a crash of the server");
        return Err(bad_table(&name, &what, &format!("ALTER TABLE {unlogged} SET LOGGED;")));
    }
    if let Some(kind) = inspected.ends.as_ref().filter(|kind| !kind.ends_with("without time zone")) {
        let (member, kind) = (table.member(), shown(kind.as_bytes()));
        let what = format!("the column until of {member} is a {kind}");
        let remedy = format!("ALTER TABLE {member} ALTER COLUMN until TYPE timestamp USING until AT TIME ZONE 'UTC';");
        return Err(bad_table(&name, &what, &remedy));
    }
    let unsafe_disk = "the server runs with fsync = off: it may lose locks when its machine crashes";
    Ok(Some(if inspected.fsync { Vec::new() } else { vec![unsafe_disk.to_owned()] }))
}

/// Reads the inspection in an answer; `None` if that was not asked.
fn inspected(rows: &[Row]) -> Option<Inspected> {
    let [_, fsync, persistence, times, unlogged, ends, unwritable] = of(rows, "inspect")?[..] else { return None };
    let times = times?.split(',').filter_map(|column| column.split_once(' '));
    Some(Inspected {
        fsync: fsync? != "off",
        is_logged: persistence? == "p",
        times: times.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect(),
        unlogged: unlogged.map(str::to_owned),
        ends: ends.map(str::to_owned),
        unwritable: unwritable.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_the_statements_have_them() {
        let beside = |fsync: &str, logged: &str, times: &str, beside: [&str; 3]| {
            let first = ["inspect", fsync, logged, times].map(|field| Some(field.to_owned()));
            let beside = beside.map(|field| Some(field.to_owned()).filter(|field| !field.is_empty()));
            [&first[..], &beside].concat()
        };
        let row = |fsync: &str, logged: &str, times: &str| beside(fsync, logged, times, [""; 3]);
        let table = Table::shedlock('"');
        let good = "lock_until timestamp(3) without time zone,locked_at timestamp without time zone";
        for (row, expected) in [
            (row("on", "p", good), Ok(Some(0))),
            (row("off", "p", good), Ok(Some(1))),
            (row("on", "u", good), Err("SET LOGGED;")),
            (row("on", "p", "lock_until timestamp with time zone"), Err("AT TIME ZONE 'UTC';")),
            (beside("on", "p", good, ["", "timestamp(0) without time zone", ""]), Ok(Some(0))),
            (beside("on", "p", good, ["dlock_once", "", ""]), Err("ALTER TABLE dlock_once SET LOGGED;")),
            (beside("on", "p", good, ["", "timestamp with time zone", ""]), Err("COLUMN until TYPE timestamp")),
            (beside("on", "p", good, ["", "", "dlock_once"]), Err("INSERT and UPDATE in the table dlock_once")),
            (row("on", "p", "lock_until text"), Err("is a text; mend it by: ALTER TABLE")),
        ] {
            match (warnings(std::slice::from_ref(&row), &table, "S"), expected) {
                (Ok(told), Ok(expected)) => assert_eq!(told.map(|told| told.len()), expected, "{row:?}"),
                (Err(told), Err(expected)) => assert!(told.to_string().contains(expected), "{told}"),
                (told, _) => panic!("{row:?}: {told:?}"),
            }
        }
        assert_eq!(warnings(&[], &table, "S").ok(), Some(None));
    }
}
