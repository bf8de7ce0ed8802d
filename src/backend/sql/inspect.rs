/*!
Looks at locks in a database by read-only requests, and sends breaks and requests to stop.
[`looks`](crate::backend::sql::looks) has the statements of looks, and [`seen`] interprets the rows.
*/

use crate::backend::error::{Error, ErrorKind};
use crate::backend::sql::answers::{self, Row};
use crate::backend::sql::breaking::Act;
use crate::backend::sql::connection::{Connection, Outstanding, Unasked};
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::found::Found;
use crate::backend::sql::link::{Link, Said};
use crate::backend::sql::looks::{Depth, PAGE};
use crate::backend::sql::seen::{SeenRow, columns_of, other_name, seen};
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::{errors, name};
use crate::backend::survey::{
    Kind, Left, Location, MOST, Meetings, Names, Party, Smallest, Snapshot, State, Successes, Survey, TIMEOUT,
};
use crate::clock::{wall_millis, within};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::key::{Key, Namespace};

/// The number of locks that are read together, and of holders of each.
const TOGETHER: usize = 50;
const FEW: usize = 64;

/// The result of a request.
type Asked<D> = Result<Vec<Row>, Unasked<<<D as Dialect>::Link as Link>::Said>>;

/// A look at the locks in one database.
pub(super) struct SqlSurvey<D: Dialect> {
    connection: Connection<D::Link>,
    namespace: Namespace,
    /// The error that kept the last break from being recorded.
    untraced: Option<Error>,
    /// The error if the role may not read the records of breaks and of successes.
    refused: Option<String>,
}

impl<D: Dialect> SqlSurvey<D> {
    /// Creates a look at the locks of this namespace on this connection, which need not be made yet.
    pub(super) fn new(connection: Connection<D::Link>, namespace: Namespace) -> Self {
        Self { connection, namespace, untraced: None, refused: None }
    }

    /// Returns the server's answer to a request that uses these tables; asks again if they are in another schema.
    async fn ask(&mut self, request: impl Fn(&Table) -> String, tables: Tables) -> Asked<D> {
        let mut asked = self.ask_once(&request, tables).await;
        if matches!(asked, Err(Unasked::Elsewhere(_))) {
            asked = self.ask_once(&request, tables).await;
        }
        asked
    }

    async fn ask_once(&mut self, request: &impl Fn(&Table) -> String, tables: Tables) -> Asked<D> {
        let request = request(self.connection.table());
        let asked = within(TIMEOUT, self.connection.ask(&request, tables, Outstanding::Request)).await;
        asked.unwrap_or_else(|_| Err(Unasked::Failed(errors::silence(&self.connection.name()))))
    }

    /// Adds the statement that frees the lock, if the lock never expires.
    fn with_remedy(&self, mut seen: Snapshot) -> Snapshot {
        if seen.holders.iter().any(|holder| holder.left == Some(Left::Forever)) {
            seen.remedy = Some(D::LOOKS.remedy(self.connection.table(), &seen.location.place));
        }
        seen
    }

    /// Returns the place of this lock, its rows and the server's time, also if the database takes two names as equal.
    async fn read_one(&mut self, key: &Key, depth: Depth) -> Result<(Location, Vec<SeenRow>, u64), Error> {
        let mut location = Location::of(key, name::row(&self.namespace, key));
        let (mut lines, mut now) = self.read(std::slice::from_ref(&location), depth).await?;
        if let Some(other) = other_name(&lines, &location) {
            location.place = other;
            (lines, now) = self.read(std::slice::from_ref(&location), depth).await?;
        }
        Ok((location, lines, now))
    }

    /// Makes one change about this party, and then sends the hint `then`; returns `true` if anything was changed. If
    /// the change cannot be recorded, it is made all the same and `untraced` is set: recording may be denied.
    async fn change(
        &mut self,
        change: impl Fn(&Table, bool) -> String,
        then: impl Fn(&Table) -> String,
        tables: Tables,
    ) -> Result<bool, Error> {
        self.untraced = None;
        let rows = match self.ask(|table| change(table, true), tables.and(Tables::ONCE)).await {
            Ok(rows) => rows,
            // Others may also have locked the table of records. If the error has another cause, it comes back.
            Err(Unasked::Said(said, error)) if !said.is_fatal() && !said.is_standby() => {
                let rows = self.ask(|table| change(table, false), tables).await?;
                self.untraced = Some(error);
                rows
            }
            Err(failed) => return Err(failed.into()),
        };
        let is_done = answers::of(&rows, "done").is_some();
        if is_done && !then(self.connection.table()).is_empty() {
            let _ = self.ask(then, Tables::LOCKS).await;
        }
        Ok(is_done)
    }

    /// Returns the records of breaks or of successes that this request reads; none if their table is missing. A role
    /// that may not read it does not try again.
    async fn records(&mut self, request: impl Fn(&Table) -> String) -> Result<Vec<Row>, Error> {
        if let Some(error) = &self.refused {
            return Err(Error::new(ErrorKind::Denied, error));
        }
        match self.ask(request, Tables::ONCE).await {
            Err(Unasked::Said(said, _)) if said.is_missing_table() => Ok(Vec::new()),
            Err(unasked) => {
                let error = Error::from(unasked);
                self.refused = (error.kind == ErrorKind::Denied).then(|| error.to_string());
                Err(error)
            }
            Ok(rows) => Ok(rows),
        }
    }

    /// Returns the error for a malformed answer.
    fn malformed(&self) -> Error {
        errors::malformed(&self.connection.name(), D::Link::PRODUCT)
    }

    /// Returns the rows about these locks, and the server's time.
    async fn read(&mut self, locations: &[Location], depth: Depth) -> Result<(Vec<SeenRow>, u64), Error> {
        let mut rows = Vec::new();
        // Use the first of these requests whose tables all exist. If there are no tables, there are no locks.
        for at in 0..3 {
            let tables = D::LOOKS.locks(self.connection.table(), &[], depth)[at].1;
            match self.ask(|table| D::LOOKS.locks(table, locations, depth)[at].0.clone(), tables).await {
                Err(Unasked::Said(said, _)) if said.is_missing_table() => {}
                answered => {
                    rows = answered?;
                    break;
                }
            }
        }
        let now = match rows.first().map(Vec::as_slice) {
            Some([Some(word), Some(now)]) if word == "time" => now.parse().map_err(|_| self.malformed())?,
            _ => return Err(self.malformed()),
        };
        let lines: Option<Vec<SeenRow>> = rows.iter().skip(1).map(|row| SeenRow::read(row)).collect();
        Ok((lines.ok_or_else(|| self.malformed())?, now))
    }
}

/// Returns the name of a lock's row and the last success there, from a row of an answer.
fn success(row: &[Option<String>]) -> Option<(&str, Done)> {
    let [_, Some(name), Some(text)] = row else { return None };
    Some((name, Done::read(text.as_bytes())?))
}

#[async_trait::async_trait(?Send)]
impl<D: Dialect> Survey for SqlSurvey<D> {
    fn table(&self) -> Option<String> {
        self.connection.located().then(|| self.connection.table().to_string())
    }

    fn hides(&self) -> bool {
        self.connection.found().is_some_and(Found::hides)
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let is_new = self.connection.connect().await?;
        if is_new
            && !D::LOOKS.greeting.is_empty()
            && let Err(error) = self.ask(|_| D::LOOKS.greeting.to_owned(), Tables::NONE).await
        {
            self.connection.hang_up();
            return Err(error.into());
        }
        Ok(())
    }

    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let (location, lines, now) = self.read_one(key, Depth { holders: MOST, waiters: MOST }).await?;
        Ok(self.with_remedy(seen(location, &lines, now)))
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        if self.refused.is_some() {
            return Ok(None);
        }
        let (location, ..) = self.read_one(key, Depth { holders: 1, waiters: 1 }).await?;
        let rows = self.records(|table| D::LOOKS.trace(table, &location.place)).await?;
        let text = answers::of(&rows, "trace").and_then(|row| row.get(1).copied().flatten());
        Ok(text.and_then(|text| Ask::read_trace(text.as_bytes(), wall_millis())))
    }

    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        let name = name::row(&self.namespace, key);
        let rows = self.records(|table| D::LOOKS.done(table, &name)).await?;
        Ok(rows.iter().find_map(|row| success(row)).map(|(_, done)| done))
    }

    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        let begins = name::beginning(&self.namespace, prefix);
        let (mut found, mut last) = (Successes::default(), String::new());
        loop {
            let rows = self.records(|table| D::LOOKS.all_done(table, &begins, &last)).await?;
            for (name, done) in rows.iter().filter_map(|row| success(row)) {
                if let Some(location) = name::location(&self.namespace, name) {
                    found.add(location, done);
                }
            }
            match rows.last().and_then(|row| row.get(1)) {
                Some(Some(name)) if rows.len() == PAGE => last.clone_from(name),
                _ => return Ok(found),
            }
        }
    }

    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error> {
        let begins = name::beginning(&self.namespace, prefix);
        let (mut found, mut last) = (Meetings::of(prefix), String::new());
        loop {
            let rows = match self.ask(|table| D::LOOKS.met(table, &begins, &last), Tables::RECORD).await {
                Err(Unasked::Said(said, _)) if said.is_missing_table() => Vec::new(),
                answered => answered?,
            };
            let is_last = rows.len() < PAGE;
            for row in rows {
                let [_, Some(name), Some(latch), Some(barrier)] = &row[..] else { return Err(self.malformed()) };
                for (kind, _) in [(Kind::Latch, latch), (Kind::Barrier, barrier)].iter().filter(|(_, is)| *is == "1") {
                    if let Some(location) = name::location(&self.namespace, name) {
                        found.add(*kind, location);
                    }
                }
                last.clone_from(name);
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let begins = name::beginning(&self.namespace, prefix);
        let (mut smallest, mut total, mut last) = (Smallest::new(most), 0, String::new());
        loop {
            let rows = match self.ask(|table| D::LOOKS.names(table, &begins, &last), Tables::LOCK).await {
                Err(Unasked::Said(said, _)) if said.is_missing_table() => Vec::new(),
                answered => answered?,
            };
            let is_last = rows.len() < PAGE;
            for row in rows {
                let (Some(Some(name)), 2) = (row.get(1), row.len()) else { return Err(self.malformed()) };
                if let Some(location) = name::location(&self.namespace, name) {
                    total += 1;
                    smallest.add(location);
                }
                last.clone_from(name);
            }
            if is_last {
                return Ok(smallest.names(Some(total)));
            }
        }
    }

    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error> {
        let mut found = Vec::with_capacity(locations.len());
        for locations in locations.chunks(TOGETHER) {
            // The row of the first waiter has the number of waiters.
            let (lines, now) = self.read(locations, Depth { holders: FEW, waiters: 1 }).await?;
            found.extend(locations.iter().map(|location| seen(location.clone(), &lines, now)));
        }
        found.retain(|seen| seen.state != State::Free);
        for seen in &mut found {
            seen.queue.clear();
        }
        Ok(found)
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let (location, ..) = self.read_one(key, Depth { holders: 1, waiters: 1 }).await?;
        let Some(act) = Act::new(&location.place, party) else { return Ok(false) };
        let change = |table: &Table, traced| D::BREAKING.ask(table, &act, ask, traced);
        self.change(change, |table| D::BREAKING.tell(table, &act), Tables::LOCKS).await
    }

    async fn take_away(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let (location, lines, _) = self.read_one(key, Depth { holders: 1, waiters: 1 }).await?;
        let (act, tables) = match columns_of(&lines, &location.place, party) {
            Some(columns) => (Act::foreign(&location.place, columns), Tables::LOCK),
            None => match Act::new(&location.place, party) {
                Some(act) => (act, Tables::LOCKS),
                None => return Ok(false),
            },
        };
        let change = |table: &Table, traced| D::BREAKING.take(table, &act, ask, traced);
        self.change(change, |table| D::BREAKING.wake(table, &act), tables).await
    }

    fn untraced(&mut self) -> Option<Error> {
        self.untraced.take()
    }
}
