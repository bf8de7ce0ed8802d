/*!
The table of locks, and dlock's own next to it: their names, and the statements that make them.
*/

use std::fmt;

use crate::backend::sql::template::{lines, statements};

/// The table that ShedLock uses by default.
const SHEDLOCK: &str = "shedlock";
/// The names of dlock's own tables, next to that one.
const HOLDER: &str = "dlock_holder";
const MEMBER: &str = "dlock_member";
const QUEUE: &str = "dlock_queue";
const ONCE: &str = "dlock_once";
const RECORD: &str = "dlock_record";
/// The longest name of a table: together with the names of dlock's own tables, it stays within the 63 bytes of a name.
const LONGEST: usize = 50;

/// The name of the table of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    schema: Option<String>,
    origin: Origin,
    /// `true` if the URL says to use the table no matter who made it.
    is_trusted: bool,
    name: String,
    /// The database's quote character on both sides of a name.
    quote: char,
}

/// The source of a table's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The URL names it, or names none and nothing is known yet.
    Url,
    /// It is the usual schema of tables; the server has the last word.
    Assumed,
    /// The server has found the table there.
    Found,
}

/// A set of tables: those that a request uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables(u8);

impl Tables {
    /// None of them.
    pub(crate) const NONE: Self = Self(0);
    /// The table of locks.
    pub(crate) const LOCK: Self = Self(1);
    /// The table of successes in periods, and of breaks.
    pub(crate) const ONCE: Self = Self(16);
    /// The tables that every lock uses: the first four.
    pub(crate) const LOCKS: Self = Self(15);
    /// The table of the records of latches and barriers.
    pub(crate) const RECORD: Self = Self(32);
    /// All of them.
    pub(crate) const ALL: Self = Self(63);

    /// Returns `true` if all of `others` are among them.
    #[must_use]
    pub(crate) fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these and `others`.
    #[must_use]
    pub(crate) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
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
    /// Returns ShedLock's default table, in a database that has `quote` on both sides of a name.
    pub(crate) fn shedlock(quote: char) -> Self {
        Self { schema: None, origin: Origin::Url, is_trusted: false, name: SHEDLOCK.to_owned(), quote }
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
        let (schema, name) = (schema.map(str::to_owned), name.to_owned());
        Ok(Self { schema, origin: Origin::Url, is_trusted: false, name, quote })
    }

    /// Returns this table, which may be used no matter who made it if it `is_trusted`.
    pub(crate) fn trusted(self, is_trusted: bool) -> Self {
        Self { is_trusted, ..self }
    }

    /// Returns this table in the most likely schema, if the URL names none.
    pub(crate) fn assumed_in(self, schema: &str) -> Self {
        if self.schema.is_some() {
            return self;
        }
        Self { schema: Some(schema.to_owned()), origin: Origin::Assumed, ..self }
    }

    /// Returns this table in the schema in which the server has found it, or in which it is to be made.
    pub(crate) fn found_in(self, schema: &str) -> Self {
        let origin = if self.origin == Origin::Url { Origin::Url } else { Origin::Found };
        Self { schema: Some(schema.to_owned()), origin, ..self }
    }

    /// Returns `true` if the URL names its schema.
    pub(crate) fn is_named(&self) -> bool {
        self.origin == Origin::Url && self.schema.is_some()
    }

    /// Returns `true` if its schema is only assumed.
    pub(crate) fn is_assumed(&self) -> bool {
        self.origin == Origin::Assumed
    }

    /// Returns `true` if it may be used no matter who made it.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Returns the table's name in a URL; `None` if a URL need not name it.
    pub(crate) fn parameter(&self) -> Option<String> {
        if self.origin == Origin::Assumed {
            return (self.name != SHEDLOCK).then(|| self.name.clone());
        }
        (self.schema.is_some() || self.name != SHEDLOCK).then(|| self.to_string())
    }

    /// Returns the names of these tables, without the schema and without quotes.
    pub(crate) fn bare_names(&self, tables: Tables) -> Vec<String> {
        let all = std::iter::once(self.name.clone()).chain(self.own_bare()).enumerate();
        all.filter(|(at, _)| tables.has(Tables(1 << at))).map(|(_, name)| name).collect()
    }

    /// Returns the names of dlock's own tables, without the schema and without quotes.
    pub(crate) fn own_bare(&self) -> [String; 5] {
        [HOLDER, MEMBER, QUEUE, ONCE, RECORD].map(|name| self.own_name(name))
    }

    /// Returns the name of the table of co-holders, without the schema and without quotes.
    pub(crate) fn member_bare(&self) -> String {
        self.own_name(MEMBER)
    }

    /// Returns the name of the table of the records of latches and barriers, without the schema and without quotes.
    pub(crate) fn record_bare(&self) -> String {
        self.own_name(RECORD)
    }

    /// Returns the table of locks, as statements name it.
    pub(crate) fn lock(&self) -> String {
        self.quoted(&self.name)
    }

    /// Returns the table of tokens and of holders' metadata.
    pub(crate) fn holder(&self) -> String {
        self.own(HOLDER)
    }

    /// Returns the table of co-holders.
    pub(crate) fn member(&self) -> String {
        self.own(MEMBER)
    }

    /// Returns the table of successes in periods, and of breaks.
    pub(crate) fn once(&self) -> String {
        self.own(ONCE)
    }

    /// Returns the table of the records of latches and barriers.
    pub(crate) fn record(&self) -> String {
        self.own(RECORD)
    }

    /// Returns the table of waiters.
    pub(crate) fn queue(&self) -> String {
        self.own(QUEUE)
    }

    /// Returns one of dlock's own tables. If the table of locks does not have the default name, its name comes first,
    /// so that the locks of two tables in one schema have nothing in common.
    fn own(&self, name: &str) -> String {
        self.quoted(&self.own_name(name))
    }

    fn own_name(&self, name: &str) -> String {
        if self.name == SHEDLOCK { name.to_owned() } else { format!("{}_{name}", self.name) }
    }

    fn quoted(&self, name: &str) -> String {
        // A schema that the server has found may have any name.
        let escaped = |name: &str| name.replace(self.quote, &self.quote.to_string().repeat(2));
        let quoted = |name: &str| format!("{0}{1}{0}", self.quote, escaped(name));
        self.schema.iter().map(|schema| quoted(schema) + ".").collect::<String>() + &quoted(name)
    }

    /// Returns the schema, if one is named.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the name without the schema.
    pub(crate) fn bare(&self) -> &str {
        &self.name
    }

    /// Returns the statements of `tables` that make the missing tables, one table each.
    pub(crate) fn statements(&self, tables: &str) -> Vec<String> {
        let text = lines(tables, |place| match place {
            "lock" => Some(self.lock()),
            "holder" => Some(self.holder()),
            "member" => Some(self.member()),
            "queue" => Some(self.queue()),
            "once" => Some(self.once()),
            "record" => Some(self.record()),
            _ => None,
        });
        statements(&text)
    }

    /// Returns the statements that an administrator runs if dlock may not make the tables: those of `tables`, and the
    /// grants for `role`, as statements name it.
    pub(crate) fn script(&self, tables: &str, role: &str) -> String {
        let (lock, holder) = (self.lock(), self.holder());
        let (member, queue, once, record) = (self.member(), self.queue(), self.once(), self.record());
        let grants = [
            ("SELECT, INSERT, UPDATE", &[lock, holder, once][..]),
            ("SELECT, INSERT, UPDATE, DELETE", &[member, queue, record]),
        ];
        let mut script = self.statements(tables).join("\n") + "\n";
        for (rights, tables) in grants {
            // Some databases grant rights on one table at a time.
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
