/*!
The differences between databases: their statements and connections. Each statement may be repeated without harm.
*/

use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Used;
use crate::backend::error::Error;
use crate::backend::sql::answers::{Look, Row};
use crate::backend::sql::breaking::BreakStatements;
use crate::backend::sql::link::Link;
use crate::backend::sql::looks::Looks;
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::turn::{Blocker, Watch};
use crate::backend::sql::values::Values;

/// The extra parts of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct With {
    /// Joins the queue first, or stays in it.
    pub queue: bool,
    /// Listens for the wake-up first.
    pub listen: bool,
    /// Looks for problems of the table and the server.
    pub inspect: bool,
}

/// Statements about records at one kind of database. `{here}` is the condition that a record `r` is of our place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordStatements {
    /// Listens for changes; empty if they are polled for.
    pub listen: &'static str,
    /// Extends our own record, and shortens those that would last too long because the clock was set back.
    pub extend: &'static str,
    /// Reads the records.
    pub read: &'static str,
    /// Locks the row of the place, and counts the change.
    pub place: &'static str,
    /// Writes a record.
    pub put: &'static str,
    /// Writes new texts for records.
    pub amend: &'static str,
    /// Removes all records.
    pub clear: &'static str,
    /// Answers `made` after the commit if a change was made; empty if the change itself does.
    pub made: &'static str,
    /// Removes records that ended long ago, wherever they are.
    pub sweep: &'static str,
    /// Wakes the listeners; empty if there are none.
    pub wake: &'static str,
    /// Answers with a row if something has changed; empty if there are notifications.
    pub glance: &'static str,
    /// Formats an instant, in microseconds since 1970, as a time; `None` is now.
    pub at: fn(Option<i64>) -> String,
}

/// The statements for one claim at one kind of database.
pub(crate) trait Dialect: std::fmt::Debug + Sized + 'static {
    /// A connection to such a database.
    type Link: Link;
    /// The default schema of tables; `None` if it is the database that the URL names.
    const HOME: Option<&'static str> = None;
    /// The statements of looks at such a database.
    const LOOKS: Looks;
    /// The statements of requests to stop and of breaks.
    const BREAKING: BreakStatements;
    /// The statements about the records of latches and barriers.
    const RECORDS: RecordStatements;
    /// The name of such a database for `dlock generate`.
    const GENERATE: &'static str;
    /// The clients with which an administrator runs the output of that: for a host and for a socket.
    const CLIENT: [&'static str; 2];

    /// Creates the statements for `claim` on `table`. A waiter stays queued for `heartbeat_ttl` after a heartbeat.
    fn new(table: Table, claim: &Claim, heartbeat_ttl: Duration) -> Self;

    /// From now on, an outer run counts like any other holder.
    fn ignore_outer(&mut self);

    /// Returns the values of the placeholders in statements.
    fn values(&self) -> &Values;

    /// Returns the values of the placeholders in statements, to be changed.
    fn values_mut(&mut self) -> &mut Values;

    /// Returns the table of locks.
    fn table(&self) -> &Table {
        &self.values().table
    }

    /// Uses this table from now on.
    fn use_table(&mut self, table: &Table) {
        self.values_mut().table = table.clone();
    }

    /// Returns the tables that requests use.
    fn uses(&self) -> Tables {
        self.values().uses()
    }

    /// Returns the name of the row, as a literal.
    fn name(&self) -> &str {
        &self.values().name
    }

    /// Returns the first request on every new connection; empty if there is none.
    fn greeting(&self) -> String {
        String::new()
    }

    /// Returns these statements as their own transaction, with `own` for the placeholders that no other statement has.
    fn request(&self, text: &str, own: &dyn Fn(&str) -> Option<String>) -> String;

    /// Returns an attempt to take the lock. Joining the queue is its own transaction, which ends before the lock is
    /// looked at: of a waiter that joins and a holder that leaves, one sees the other.
    fn attempt(&self, with: With) -> String;

    /// Makes the lock's row.
    fn row(&self) -> String;

    /// Extends the lock, and looks at it. With `listen`, listens for requests to stop first.
    fn renew(&self, listen: bool) -> String;

    /// Returns the query for a request to stop; `None` if the server notifies us of it.
    fn asked(&self) -> Option<String> {
        None
    }

    /// Releases the lock, leaves the queue, and wakes the next in line.
    fn release(&self, used: Used) -> String;

    /// Keeps the place in the queue for a waiter that hangs up, and wakes the next in line.
    fn away(&self) -> String;

    /// Returns the statements that make the missing tables, one table each.
    fn tables(&self) -> Vec<String>;

    /// Returns how long the lock is ours from the arrival of the request on, as stored in the table; `None` if that is
    /// as long as requested.
    fn stored(&self, _look: &Look) -> Option<Duration> {
        None
    }

    /// Returns reasons why locks may be unsafe, as found out about the table and the server; `None` if that was not
    /// asked. Fails for a table that would not keep locks. Errors call the server `name`.
    fn inspected(&self, rows: &[Row], name: &str) -> Result<Option<Vec<String>>, Error>;

    /// Switches to the row of `look` if the database takes its name and the requested one as equal, and returns a
    /// warning about that; `None` if the row is the requested one.
    fn renamed(&mut self, _look: &Look) -> Option<String> {
        None
    }

    /// Returns the name of the row in use, if the database may take two names as equal.
    fn kept_as(&self) -> Option<&str> {
        None
    }

    /// Returns how to wait for the blocker; `None` if the server notifies us.
    fn watch(&self, _blocker: Blocker) -> Option<Watch> {
        None
    }
}
