/*!
What differs between databases: their statements, and how they are connected to. Each statement may be repeated without harm.
*/

use std::time::Duration;

use crate::backend::sql::answers::{Look, Row};
use crate::backend::sql::link::Link;
use crate::backend::sql::looks::Looks;
use crate::backend::sql::steering::Steering;
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::turn::{Obstacle, Watch};
use crate::backend::sql::values::Values;
use crate::backend::{Claim, Error, Used};

/// What goes with an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct With {
    /// Joins the queue first, or stays in it.
    pub queue: bool,
    /// Listens for the wake-up first.
    pub listen: bool,
    /// Looks for what could be wrong with the table and the server.
    pub inspect: bool,
}

/// The statements about records at one kind of database. In `{here}` a record `r` is one of our place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordStatements {
    /// Listens for changes; empty where one looks for them.
    pub listen: &'static str,
    /// Extends our own record, and cuts what would last too long because the clock was set back.
    pub extend: &'static str,
    /// Reads the records.
    pub read: &'static str,
    /// Locks the row of the place, and counts the change.
    pub place: &'static str,
    /// Writes a record.
    pub put: &'static str,
    /// Writes other texts for records.
    pub amend: &'static str,
    /// Removes all records.
    pub clear: &'static str,
    /// Answers `made` if a change was made, after its commit; empty where the change itself does.
    pub made: &'static str,
    /// Removes records that ended long ago, wherever they are.
    pub sweep: &'static str,
    /// Wakes those who listen; empty where nobody does.
    pub wake: &'static str,
    /// Answers with a row if something has changed; empty where one listens for that.
    pub glance: &'static str,
    /// A moment in microseconds since 1970 as a time; none for now.
    pub at: fn(Option<i64>) -> String,
}

/// The statements for one claim at one kind of database.
pub(crate) trait Dialect: std::fmt::Debug + Sized + 'static {
    /// A connection to such a database.
    type Link: Link;
    /// The schema in which tables are by default; none where that is the database that the URL names.
    const HOME: Option<&'static str> = None;
    /// What looks at such a database ask.
    const LOOKS: Looks;
    /// What is asked of such a database by whoever intervenes.
    const STEERING: Steering;
    /// The statements about the records of latches and barriers.
    const RECORDS: RecordStatements;
    /// What `dlock generate` calls such a database.
    const GENERATE: &'static str;
    /// The client with which an administrator runs what that prints, on a host and by a socket.
    const CLIENT: [&'static str; 2];

    /// The statements for `claim` on `table`. A waiter stays in the queue for `heartbeat_ttl` after its last heartbeat.
    fn new(table: Table, claim: &Claim, heartbeat_ttl: Duration) -> Self;

    /// From now on it is no matter whether a run around this one holds the lock.
    fn ignore_outer(&mut self);

    /// What stands in the places of the statements.
    fn values(&self) -> &Values;

    /// What stands in the places of the statements, to be changed.
    fn values_mut(&mut self) -> &mut Values;

    /// The table of locks.
    fn table(&self) -> &Table {
        &self.values().table
    }

    /// Uses this table from now on.
    fn use_table(&mut self, table: &Table) {
        self.values_mut().table = table.clone();
    }

    /// The tables that requests use.
    fn uses(&self) -> Tables {
        self.values().uses()
    }

    /// The name of the row, as a literal.
    fn name(&self) -> &str {
        &self.values().name
    }

    /// What is asked for whenever a connection was made, before anything else; empty for nothing.
    fn greeting(&self) -> String {
        String::new()
    }

    /// These statements as a transaction of their own, with `own` for the places that no other statement has.
    fn request(&self, text: &str, own: &dyn Fn(&str) -> Option<String>) -> String;

    /// An attempt to take the lock. What it joins is a transaction of its own, which has ended before the lock is looked at: of
    /// a waiter and a holder that leaves, one sees the other.
    fn attempt(&self, with: With) -> String;

    /// Makes the lock's row.
    fn row(&self) -> String;

    /// Extends the lock, and looks at it. With `listen`, listens for requests to stop first.
    fn renew(&self, listen: bool) -> String;

    /// Asks whether a request to stop is there; none where the server notifies us of it.
    fn asked(&self) -> Option<String> {
        None
    }

    /// Gives the lock back, leaves the queue, and wakes the next in line.
    fn release(&self, used: Used) -> String;

    /// Keeps the place in the queue for a waiter that hangs up, and wakes the next in line.
    fn away(&self) -> String;

    /// The statements that make the tables which are missing, one table each.
    fn tables(&self) -> Vec<String>;

    /// For how long the lock is ours from the arrival of the request on, by what the table has kept of it; none where that is
    /// what was asked for.
    fn stored(&self, _look: &Look) -> Option<Duration> {
        None
    }

    /// What was found out about the table and the server: what could make locks unsafe; none when it was not asked. Fails for a
    /// table that would not keep locks. Errors call the server `name`.
    fn inspected(&self, rows: &[Row], name: &str) -> Result<Option<Vec<String>>, Error>;

    /// Uses the row of `look` where the database takes its name and the one that was asked for as one: what is to be said about
    /// that. None where the row is the one that was asked for.
    fn renamed(&mut self, _look: &Look) -> Option<String> {
        None
    }

    /// The name of the row that is used, where the database may take two names as one.
    fn kept_as(&self) -> Option<&str> {
        None
    }

    /// How to wait for what keeps us out; none where the server notifies us.
    fn watch(&self, _obstacle: Obstacle) -> Option<Watch> {
        None
    }
}
