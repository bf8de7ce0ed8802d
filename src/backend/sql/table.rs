/*!
The table of locks, and dlock's own next to it: their names, and the statements that make them.
*/

use std::fmt;

use crate::backend::sql::template::{lines, statements};

/// The table that ShedLock uses by default.
const SHEDLOCK: &str = "shedlock";
/// What dlock's own tables are called next to that one.
const HOLDER: &str = "dlock_holder";
const MEMBER: &str = "dlock_member";
const QUEUE: &str = "dlock_queue";
const ONCE: &str = "dlock_once";
/// The longest name of a table: with the names of dlock's own behind it, it stays below the 63 bytes that a name has.
const LONGEST: usize = 50;

/// The name of the table of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    schema: Option<String>,
    name: String,
    /// What the database has on both sides of a name.
    quote: char,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Table {
    /// The table that ShedLock uses by default, in a database that has `quote` on both sides of a name.
    pub(crate) fn shedlock(quote: char) -> Self {
        Self { schema: None, name: SHEDLOCK.to_owned(), quote }
    }

    /// Reads `[schema.]name`.
    pub(crate) fn parse(text: &str, quote: char) -> Result<Self, String> {
        let (schema, name) = text.split_once('.').map_or((None, text), |(schema, name)| (Some(schema), name));
        let is_name = |part: &str| {
            (1..=LONGEST).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !is_name(name) || schema.is_some_and(|schema| !is_name(schema)) {
            return Err(format!(
                "table must be [schema.]name of letters, digits and _, at most {LONGEST} characters each"
            ));
        }
        Ok(Self { schema: schema.map(str::to_owned), name: name.to_owned(), quote })
    }

    /// Whether it is the one that ShedLock uses by default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::shedlock(self.quote)
    }

    /// The names of dlock's own tables, without the schema and without quotes.
    pub(crate) fn own_bare(&self) -> [String; 4] {
        [HOLDER, MEMBER, QUEUE, ONCE].map(|name| self.own_name(name))
    }

    /// The name of the table of those who hold a lock together, without the schema and without quotes.
    pub(crate) fn member_bare(&self) -> String {
        self.own_name(MEMBER)
    }

    /// The table of locks, as statements name it.
    pub(crate) fn lock(&self) -> String {
        self.quoted(&self.name)
    }

    /// The table of tokens and of what holders publish.
    pub(crate) fn holder(&self) -> String {
        self.own(HOLDER)
    }

    /// The table of those who hold a lock together.
    pub(crate) fn member(&self) -> String {
        self.own(MEMBER)
    }

    /// The table of periods in which a command has succeeded.
    pub(crate) fn once(&self) -> String {
        self.own(ONCE)
    }

    /// The table of waiters.
    pub(crate) fn queue(&self) -> String {
        self.own(QUEUE)
    }

    /// A table of dlock's own. Next to another table than the default it has that one's name too, so that the locks of two
    /// tables in one schema have nothing in common.
    fn own(&self, name: &str) -> String {
        self.quoted(&self.own_name(name))
    }

    fn own_name(&self, name: &str) -> String {
        if self.name == SHEDLOCK { name.to_owned() } else { format!("{}_{name}", self.name) }
    }

    fn quoted(&self, name: &str) -> String {
        // There is nothing in a name that could be taken for a quote.
        let quoted = |name: &str| format!("{0}{name}{0}", self.quote);
        self.schema.iter().map(|schema| quoted(schema) + ".").collect::<String>() + &quoted(name)
    }

    /// The schema, where one is named.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The name without the schema.
    pub(crate) fn bare(&self) -> &str {
        &self.name
    }

    /// The statements of `tables` that make the tables which are missing, one table each.
    pub(crate) fn statements(&self, tables: &str) -> Vec<String> {
        let text = lines(tables, |place| match place {
            "lock" => Some(self.lock()),
            "holder" => Some(self.holder()),
            "member" => Some(self.member()),
            "queue" => Some(self.queue()),
            "once" => Some(self.once()),
            _ => None,
        });
        statements(&text)
    }

    /// The statements that an administrator runs where dlock may not make the tables: those of `tables`, and what `role`, as
    /// statements name it, needs.
    pub(crate) fn script(&self, tables: &str, role: &str) -> String {
        let (lock, holder) = (self.lock(), self.holder());
        let (member, queue, once) = (self.member(), self.queue(), self.once());
        let grants = [
            ("SELECT, INSERT, UPDATE", &[lock, holder, once][..]),
            ("SELECT, INSERT, UPDATE, DELETE", &[member, queue]),
        ];
        let mut script = self.statements(tables).join("\n") + "\n";
        for (rights, tables) in grants {
            // Some databases grant on one table at a time.
            let tables = if self.quote == '"' { vec![tables.join(", ")] } else { tables.to_vec() };
            script.extend(tables.iter().map(|table| format!("GRANT {rights} ON {table} TO {role};\n")));
        }
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_by_plain_words() {
        for (text, lock, holder) in [
            ("shedlock", "\"shedlock\"", "\"dlock_holder\""),
            ("s.shedlock", "\"s\".\"shedlock\"", "\"s\".\"dlock_holder\""),
            ("Own_1", "\"Own_1\"", "\"Own_1_dlock_holder\""),
        ] {
            let table = Table::parse(text, '"').expect(text);
            assert_eq!(
                (table.lock(), table.holder(), table.to_string()),
                (lock.to_owned(), holder.to_owned(), text.to_owned())
            );
        }
        let quoted = Table::parse("a.b", '`').expect("valid");
        assert_eq!((quoted.lock(), quoted.schema(), quoted.bare()), ("`a`.`b`".to_owned(), Some("a"), "b"));
        for bad in ["", ".", "a.", ".a", "a.b.c", "a-b", "ü", "a\"b", "a b", &"x".repeat(51)] {
            assert!(Table::parse(bad, '"').is_err(), "{bad}");
        }
    }
}
