/*!
The location of the tables, and checks that statements about them do only what they say.
*/

use postgres_protocol::escape::escape_literal;

use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::template::lines;

const GUARD: &str = include_str!("statements/guard.sql");
const PLACE: &str = include_str!("statements/place.sql");

/// The default schema of tables.
pub(super) const HOME: &str = "public";
/// Makes unqualified names in a transaction refer to the server's own objects only.
pub(super) const NAMES: &str = "SET LOCAL search_path = pg_catalog, pg_temp;\n";

/// Returns the statements that precede a request which uses these tables.
pub(super) fn guard(table: &Table, tables: Tables) -> String {
    filled(GUARD, table, tables)
}

/// Returns the query for problems with these tables.
pub(super) fn question(table: &Table, tables: Tables) -> String {
    filled(PLACE, table, tables)
}

fn filled(text: &str, table: &Table, tables: Tables) -> String {
    let names = table.bare_names(tables);
    let schema = table.schema().unwrap_or(HOME);
    let asked = if table.is_assumed() { format!("\"{}\"", table.bare()) } else { table.lock() };
    lines(text, |place| {
        Some(match place {
            "asked" => escape_literal(&asked),
            "assumed" => table.is_assumed().to_string(),
            "schema" => escape_literal(schema),
            "path" if table.is_assumed() => "pg_catalog.current_schemas(false)::pg_catalog.text".to_owned(),
            "path" => escape_literal(&format!("{{{}}}", escaped(schema))),
            "table" => escape_literal(table.bare()),
            "count" => names.len().to_string(),
            "tables" => {
                let names: Vec<String> = names.iter().map(|name| escape_literal(name)).collect();
                format!("ARRAY[{}]::name[]", names.join(", "))
            }
            // The table that must survive a crash and that no other request inspects.
            "kept" => escape_literal(&table.record_bare()),
            "trusted" => table.is_trusted().to_string(),
            "owner" => owner(table, schema),
            _ => return None,
        })
    })
}

/// Quotes a schema as an element of an array.
fn escaped(schema: &str) -> String {
    format!("\"{}\"", schema.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the condition that the owner of a table may do anything here anyway: a superuser (which is a member of the
/// first one), the database's owner, this role, or, if the URL names the schema, its owner. Membership in the owner
/// does not count: before version 16 everybody can make others members of their own role.
fn owner(table: &Table, schema: &str) -> String {
    let named = if table.is_named() {
        format!(" OR c.relowner = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = {})", escape_literal(schema))
    } else {
        String::new()
    };
    format!(
        "(pg_get_userbyid(c.relowner) = current_user \
         OR c.relowner = (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database()) \
         OR pg_has_role(c.relowner, 10, 'MEMBER'){named})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Until the path is set, only functions with a schema are called.
    #[test]
    fn nothing_is_called_by_the_roles_own_path() {
        let table = Table::shedlock('"');
        for table in [table.clone().assumed_in(HOME), table.found_in("it's").trusted(true)] {
            for text in [guard(&table, Tables::ALL), question(&table, Tables::LOCK)] {
                let (before, after) = text.split_once(NAMES).expect("the path");
                assert!(before.starts_with("BEGIN ") && text.trim_end().ends_with("COMMIT;"), "{text}");
                let called = before.match_indices('(').map(|(at, _)| &before[..at]);
                for call in called.filter(|call| call.ends_with(|last: char| last.is_alphanumeric())) {
                    let word = call.rsplit(|one: char| one.is_whitespace() || one == '(').next().expect("a word");
                    assert!(word.starts_with("pg_catalog."), "{word}: {before}");
                }
                assert!(!before.contains(['=', '|', '+', '<']), "an operator: {before}");
                assert!(!after.contains('{'), "{text}");
            }
        }
    }
}
