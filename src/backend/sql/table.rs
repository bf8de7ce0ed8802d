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
const RECORD: &str = "dlock_record";
/// The longest name of a table: with the names of dlock's own behind it, it stays below the 63 bytes that a name has.
const LONGEST: usize = 50;

/// The name of the table of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    schema: Option<String>,
    origin: Origin,
    /// Whether the URL says that the table may be used whoever has made it.
    is_trusted: bool,
    name: String,
    /// What the database has on both sides of a name.
    quote: char,
}

/// Where the schema of a table is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The URL names it, or names none and nothing is known yet.
    Url,
    /// It is where tables usually are; the server has the last word.
    Assumed,
    /// The server has found the table there.
    Found,
}

/// Some of the tables: those that a request uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables(u8);

impl Tables {
    /// None of them.
    pub(crate) const NONE: Self = Self(0);
    /// The table of locks.
    pub(crate) const LOCK: Self = Self(1);
    /// The table of periods and breaks.
    pub(crate) const ONCE: Self = Self(16);
    /// Those that every lock uses: the first ones.
    pub(crate) const LOCKS: Self = Self(15);
    /// The table of what latches and barriers remember.
    pub(crate) const RECORD: Self = Self(32);
    /// All of them.
    pub(crate) const ALL: Self = Self(63);

    /// Whether all of `others` are among them.
    #[must_use]
    pub(crate) fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These and `others`.
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
    /// The table that ShedLock uses by default, in a database that has `quote` on both sides of a name.
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

    /// This table, which may be used whoever has made it if it `is_trusted`.
    pub(crate) fn trusted(self, is_trusted: bool) -> Self {
        Self { is_trusted, ..self }
    }

    /// This table in the schema that is most likely where the URL names none.
    pub(crate) fn assumed_in(self, schema: &str) -> Self {
        if self.schema.is_some() {
            return self;
        }
        Self { schema: Some(schema.to_owned()), origin: Origin::Assumed, ..self }
    }

    /// This table in the schema in which the server has found it, or in which it is to be made.
    pub(crate) fn found_in(self, schema: &str) -> Self {
        let origin = if self.origin == Origin::Url { Origin::Url } else { Origin::Found };
        Self { schema: Some(schema.to_owned()), origin, ..self }
    }

    /// Whether the URL names its schema.
    pub(crate) fn is_named(&self) -> bool {
        self.origin == Origin::Url && self.schema.is_some()
    }

    /// Whether it is only assumed in which schema it is.
    pub(crate) fn is_assumed(&self) -> bool {
        self.origin == Origin::Assumed
    }

    /// Whether it may be used whoever has made it.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// How a URL names it; none where that is not needed.
    pub(crate) fn parameter(&self) -> Option<String> {
        if self.origin == Origin::Assumed {
            return (self.name != SHEDLOCK).then(|| self.name.clone());
        }
        (self.schema.is_some() || self.name != SHEDLOCK).then(|| self.to_string())
    }

    /// The names of these tables, without the schema and without quotes.
    pub(crate) fn bare_names(&self, tables: Tables) -> Vec<String> {
        let all = std::iter::once(self.name.clone()).chain(self.own_bare()).enumerate();
        all.filter(|(at, _)| tables.has(Tables(1 << at))).map(|(_, name)| name).collect()
    }

    /// The names of dlock's own tables, without the schema and without quotes.
    pub(crate) fn own_bare(&self) -> [String; 5] {
        [HOLDER, MEMBER, QUEUE, ONCE, RECORD].map(|name| self.own_name(name))
    }

    /// The name of the table of those who hold a lock together, without the schema and without quotes.
    pub(crate) fn member_bare(&self) -> String {
        self.own_name(MEMBER)
    }

    /// The name of the table of what latches and barriers remember, without the schema and without quotes.
    pub(crate) fn record_bare(&self) -> String {
        self.own_name(RECORD)
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

    /// The table of what latches and barriers remember.
    pub(crate) fn record(&self) -> String {
        self.own(RECORD)
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
        // A schema that the server has found may be called anything.
        let escaped = |name: &str| name.replace(self.quote, &self.quote.to_string().repeat(2));
        let quoted = |name: &str| format!("{0}{1}{0}", self.quote, escaped(name));
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
            "record" => Some(self.record()),
            _ => None,
        });
        statements(&text)
    }

    /// The statements that an administrator runs where dlock may not make the tables: those of `tables`, and what `role`, as
    /// statements name it, needs.
    pub(crate) fn script(&self, tables: &str, role: &str) -> String {
        let (lock, holder) = (self.lock(), self.holder());
        let (member, queue, once, record) = (self.member(), self.queue(), self.once(), self.record());
        let grants = [
            ("SELECT, INSERT, UPDATE", &[lock, holder, once][..]),
            ("SELECT, INSERT, UPDATE, DELETE", &[member, queue, record]),
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
