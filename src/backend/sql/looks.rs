/*!
The requests of a look at the locks in a database: read-only statements in one transaction, which sees all locks at one
moment. The dialect has the statements; their placeholders are filled here.
*/

use std::time::Duration;

use crate::backend::sql::answers::Row;
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::template::lines;
use crate::backend::sql::told::ServerReport;
use crate::backend::survey::Location;

/// The number of names read at a time.
pub(crate) const PAGE: usize = 3000;
/// The bytes of holders' metadata, and as many of each lock's waiters, that one request reads; the others are read
/// without their metadata.
const ROOM: usize = 500_000;
/// The limit on the server's work for one statement: a little less than the time-out of the answer.
const WORK: Duration = Duration::from_millis(1800);

/// Asks for the time.
const TIME: &str = include_str!("statements/time.sql");
/// Asks for locks if only the table of locks exists, so that neither tokens nor waiters are known.
const FOREIGN: &str = include_str!("statements/foreign.sql");
/// Asks for the names of locks that are held.
const HELD: &str = include_str!("statements/names.sql");
/// Asks for the record of a lock's last break.
const TRACE: &str = include_str!("statements/trace.sql");
/// Asks for the last success under a lock.
const DONE: &str = include_str!("statements/done.sql");
/// Asks for the last successes under many locks.
const ALL_DONE: &str = include_str!("statements/all_done.sql");
/// Asks for the latches and barriers in use.
const MET: &str = include_str!("statements/met.sql");

/// The statements of looks that each kind of database has its own of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    /// The first request on every new connection; empty if there is none.
    pub greeting: &'static str,
    /// Follows the beginning of a transaction, so that names mean the server's own objects; empty if they always do.
    pub names_of: &'static str,
    /// Begins a transaction that only reads.
    pub begin: &'static str,
    /// Asks for locks with their holders and waiters.
    pub look: &'static str,
    /// The current time in UTC, as people would write it in a statement.
    pub now: &'static str,
    /// Asks the server about itself.
    pub probe: &'static str,
    /// Evaluates the answer to that, with this host's clock in milliseconds since 1970; `None` if it is malformed.
    pub told: fn(&[Row], u64) -> Option<ServerReport>,
    /// Quotes a text as a literal.
    pub literal: fn(&str) -> String,
    /// Returns the value of a placeholder that is the same in each request.
    pub value: fn(&str) -> Option<String>,
}

/// The limits on what is read of each lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    /// The number of holders.
    pub holders: usize,
    /// The number of waiters.
    pub waiters: usize,
}

impl Looks {
    /// Returns the requests for the locks of these rows, best first: each next one does without some of the tables.
    pub(crate) fn locks(&self, table: &Table, locations: &[Location], depth: Depth) -> [(String, Tables); 3] {
        let names: Vec<String> = locations.iter().map(|location| (self.literal)(&location.place)).collect();
        let request = |text: &str| {
            self.request(&format!("{TIME}\n{text}"), table, |place| {
                Some(match place {
                    "names" => names.join(", "),
                    "holders" => depth.holders.to_string(),
                    "waiters" => depth.waiters.to_string(),
                    "room" => ROOM.to_string(),
                    _ => return None,
                })
            })
        };
        [(self.look, Tables::LOCKS), (FOREIGN, Tables::LOCK), ("", Tables::NONE)]
            .map(|(text, tables)| (request(text), tables))
    }

    /// Returns the request for the next names of held locks that begin with `begins` and come after `after`.
    pub(crate) fn names(&self, table: &Table, begins: &str, after: &str) -> String {
        self.page(HELD, table, begins, after)
    }

    /// Returns the request for the last successes under the next locks that begin with `begins` and come after `after`.
    pub(crate) fn all_done(&self, table: &Table, begins: &str, after: &str) -> String {
        self.page(ALL_DONE, table, begins, after)
    }

    /// Returns the request for the next latches and barriers in use that begin with `begins` and come after `after`.
    pub(crate) fn met(&self, table: &Table, begins: &str, after: &str) -> String {
        self.page(MET, table, begins, after)
    }

    /// Returns the request for the next page of names that begin with `begins` and come after `after`.
    fn page(&self, text: &str, table: &Table, begins: &str, after: &str) -> String {
        self.request(text, table, |place| {
            Some(match place {
                "begins" => (self.literal)(begins),
                "after" => (self.literal)(after),
                "page" => PAGE.to_string(),
                _ => return None,
            })
        })
    }

    /// Returns the request for the record of the last break of the lock whose row has this name.
    pub(crate) fn trace(&self, table: &Table, name: &str) -> String {
        self.request(TRACE, table, |place| (place == "name").then(|| (self.literal)(name)))
    }

    /// Returns the request for the last success under the lock whose row has this name.
    pub(crate) fn done(&self, table: &Table, name: &str) -> String {
        self.request(DONE, table, |place| (place == "name").then(|| (self.literal)(name)))
    }

    /// Returns the statement that frees the lock at this place, for an administrator who knows that its owner is gone.
    /// It never deletes the row: the tokens of the lock depend on it.
    #[must_use]
    pub(crate) fn remedy(&self, table: &Table, place: &str) -> String {
        let is_plain = place.chars().all(|one| one.is_alphanumeric() || ":._-/ ".contains(one));
        let name = if is_plain { format!("'{place}'") } else { (self.literal)(place) };
        format!("UPDATE {} SET lock_until = {} WHERE name = {name}", table.lock(), self.now)
    }

    /// Returns these statements as one transaction, with their placeholders filled.
    fn request(&self, statements: &str, table: &Table, own: impl Fn(&str) -> Option<String>) -> String {
        self.filled(&format!("{}{statements}\nCOMMIT;\n", self.begin), table, own)
    }

    /// Returns these statements as one transaction that may change something, with their placeholders filled.
    pub(crate) fn change(&self, text: &str, table: &Table, own: impl Fn(&str) -> Option<String>) -> String {
        self.filled(&format!("START TRANSACTION;\n{}{text}COMMIT;\n", self.names_of), table, own)
    }

    /// Returns this text with its placeholders filled.
    pub(super) fn filled(&self, text: &str, table: &Table, own: impl Fn(&str) -> Option<String>) -> String {
        lines(text, |place| {
            let common = || {
                Some(match place {
                    "lock" => table.lock(),
                    "holder" => table.holder(),
                    "member" => table.member(),
                    "queue" => table.queue(),
                    "once" => table.once(),
                    "record" => table.record(),
                    "work" => WORK.as_millis().to_string(),
                    _ => return None,
                })
            };
            own(place).or_else(common).or_else(|| (self.value)(place))
        })
    }

    /// Asserts that every placeholder has a value and nothing is written; `begins` is how a transaction begins.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn check(&self, quote: char, begins: &[&str]) {
        use crate::backend::sql::template::statements;

        let table = Table::shedlock(quote);
        let location = Location { key: None, place: "dlock:it's {now}".to_owned() };
        let requests = self.locks(&table, std::slice::from_ref(&location), Depth { holders: 7, waiters: 9 });
        let requests = requests.map(|(request, _)| request);
        let others = [
            self.names(&table, "a{b}", "it's {now}"),
            self.all_done(&table, "a{b}", "it's {now}"),
            self.met(&table, "a{b}", "it's {now}"),
            self.trace(&table, &location.place),
            self.done(&table, &location.place),
        ];
        for text in [&requests[..], &others].concat() {
            let parts = statements(&text);
            let [first @ .., last] = &parts[..] else { panic!("{text}") };
            let (before, selects) = first.split_at(begins.len());
            assert!(before.iter().zip(begins).all(|(part, begins)| part.starts_with(begins)), "{before:?}");
            assert!(!selects.is_empty() && selects.iter().all(|part| part.starts_with("SELECT '")), "{selects:?}");
            assert_eq!(last, "COMMIT;");
            let own = ["dlock:it's {now}", "it's {now}", "a{b}"];
            let filled = own.iter().fold(text, |text, own| text.replace(&(self.literal)(own), "TEXT"));
            assert!(!filled.contains('{'), "{filled}");
        }
    }
}
