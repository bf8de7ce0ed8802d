/*!
A server's report about the tables: their schema, and whether untrusted roles could have prepared them so that a
statement does more than it says.
*/

use crate::backend::contract::probing::Finding;
use crate::backend::error::{Error, ErrorKind};
use crate::backend::sql::errors::bad_table;
use crate::backend::sql::table::Table;
use crate::printable::shown;

/// A server's report about the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The schema in which the table of locks is; `None` if there is no such table.
    pub schema: Option<String>,
    /// The schema in which a table without a schema would be made.
    pub home: Option<String>,
    role: String,
    /// `true` if the search path of the role has the role's own schema.
    has_own: bool,
    /// Another schema of the search path that has such a table.
    beside: Option<String>,
    /// Another schema of the database that has such a table, which this role may use.
    elsewhere: Option<String>,
    /// A reason not to rely on a table: a word for the reason, the table and its owner.
    fault: Option<String>,
    /// `true` if row-level security may hide rows from this role.
    hides: bool,
    /// `true` if all requested tables exist.
    pub is_whole: bool,
}

impl Found {
    /// Reads a row; `None` if it does not have the form that the statements give.
    pub(crate) fn read(row: &[Option<&str>]) -> Option<Self> {
        let [_, schema, home, role, has_own, beside, elsewhere, fault, hides, is_whole] = row[..] else { return None };
        let is = |field: Option<&str>| field == Some("t");
        let [schema, home, role, beside, elsewhere, fault] =
            [schema, home, role, beside, elsewhere, fault].map(|field| field.map(str::to_owned));
        let (has_own, hides, is_whole) = (is(has_own), is(hides), is(is_whole));
        Some(Self { schema, home, role: role?, has_own, beside, elsewhere, fault, hides, is_whole })
    }

    /// Returns `true` if this schema is the role's own, so that other roles look for the table elsewhere.
    pub(crate) fn is_own(&self, schema: &str) -> bool {
        self.has_own && schema == self.role
    }

    /// Returns `true` if row-level security may hide locks from this role.
    pub(crate) fn hides(&self) -> bool {
        self.hides
    }

    /// Returns an error if the tables cannot be relied on; it calls the server `name`.
    pub(crate) fn refusal(&self, table: &Table, name: &str) -> Option<Error> {
        let fault = self.fault.as_ref().filter(|_| !table.is_trusted())?;
        let mut words = fault.splitn(3, ' ');
        let (why, what) = (words.next()?, words.next()?);
        let schema = self.schema.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
        let what = shown(format!("{schema}{what}").as_bytes()).to_string();
        let owner = shown(words.next().unwrap_or_default().as_bytes()).to_string();
        if let Some((flaw, change)) = flaw(why) {
            let what = format!("the table {what} {flaw}");
            return Some(bad_table(&name, &what, &format!("ALTER TABLE {} {change};", table.record())));
        }
        let what = match why {
            "owner" => format!("the table {what} is of the role {owner}, which could have prepared it"),
            "kind" => format!("{what} is a view, or another kind of relation than a plain table"),
            "rule" => format!("the table {what} has a rule, which may change what statements do"),
            _ => format!("the table {what} has a trigger, which may change what statements do"),
        };
        let hint = "name the right table with ?table=SCHEMA.NAME, or if this is the one, add trust-table to the URL";
        Some(Error::new(ErrorKind::Unusable, format!("{name}: {what}; {hint}")))
    }

    /// Returns reasons why two roles could use two different tables; `table` is the one in use.
    pub(crate) fn warnings(&self, table: &Table) -> Vec<String> {
        let Some(schema) = self.schema.as_deref().filter(|_| !table.is_named()) else { return Vec::new() };
        let name = format!("?table={}", shown(table.to_string().as_bytes()));
        let table = shown(table.to_string().as_bytes()).to_string();
        let mut warnings = Vec::new();
        if self.is_own(schema) {
            let role = shown(self.role.as_bytes());
            warnings.push(format!(
                "the table {table} is in the schema of the role {role}: other roles have other locks; name it with {name}"
            ));
        }
        if let Some(beside) = &self.beside {
            let beside = shown(beside.as_bytes());
            warnings.push(format!(
                "the locks are in {table}, and the schema {beside} has such a table too: name the right one with {name}"
            ));
        }
        warnings
    }

    /// Returns a check's findings about the tables.
    pub(crate) fn findings(&self, table: &Table) -> Vec<Finding> {
        let mut findings = vec![Finding::ok("table", shown(table.to_string().as_bytes()).to_string())];
        let known = self.beside.is_some() && !table.is_named();
        if let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| !known) {
            let text = format!(
                "the schema {} has such a table too: who uses that one has other locks",
                shown(elsewhere.as_bytes())
            );
            findings.push(Finding::warn("table", text, "name one with ?table=SCHEMA.NAME wherever the locks are used"));
        }
        if self.hides {
            let text = "row-level security may hide locks of others from this role";
            let remedy = "look as a role that its policies let see all rows";
            findings.push(Finding::warn("table", text, remedy));
        }
        findings
    }
}

/// Returns the flaw for which this word stands, and the change that removes it; `None` for other reasons.
fn flaw(word: &str) -> Option<(&'static str, &'static str)> {
    match word {
        "unlogged" => Some(("does not survive a crash of the server", "SET LOGGED")),
        "engine" => Some(("has an engine without transactions", "ENGINE=InnoDB")),
        _ => None,
    }
}
