/*!
Looking at the locks in a database by requests that only read. What is asked is in [`looks`](crate::backend::sql::looks), and
what the rows mean is decided in [`seen`].
*/

use crate::backend::sql::answers::{self, Row};
use crate::backend::sql::connection::{Connection, Outstanding, Unasked};
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::link::{Link, Said};
use crate::backend::sql::looks::{Depth, PAGE};
use crate::backend::sql::seen::{Line, columns_of, other_name, seen};
use crate::backend::sql::steering::Act;
use crate::backend::sql::table::Table;
use crate::backend::sql::{errors, name};
use crate::backend::survey::{Left, MOST, Names, PATIENCE, Party, Seen, Smallest, Spot, State, Survey};
use crate::backend::{Error, ErrorKind};
use crate::clock::{wall_millis, within};
use crate::holder::ask::Ask;
use crate::key::{Key, Namespace};

/// How many locks are read together, and how many holders of each.
const TOGETHER: usize = 50;
const FEW: usize = 64;

/// A look at the locks in one database.
pub(super) struct SqlSurvey<D: Dialect> {
    connection: Connection<D::Link>,
    table: Table,
    namespace: Namespace,
    /// Why the last break could not be recorded.
    untraced: Option<Error>,
    /// Whether the role may not read the records of breaks.
    is_refused: bool,
}

impl<D: Dialect> SqlSurvey<D> {
    /// Looks at the locks of this namespace by this connection, which need not be made yet.
    pub(super) fn new(connection: Connection<D::Link>, table: Table, namespace: Namespace) -> Self {
        Self { connection, table, namespace, untraced: None, is_refused: false }
    }

    /// What the server answers to one request.
    async fn ask(&mut self, request: &str) -> Result<Vec<Row>, Unasked<<D::Link as Link>::Said>> {
        let asked = within(PATIENCE, self.connection.ask(request, Outstanding::Request)).await;
        asked.unwrap_or_else(|_| Err(Unasked::Failed(errors::silence(&self.connection.name()))))
    }

    /// What the server answers to the first of these requests whose tables are all there. Where there are none, there are no
    /// locks.
    async fn ask_for_some(&mut self, choice: &[String]) -> Result<Vec<Row>, Error> {
        for request in choice {
            match self.ask(request).await {
                Err(Unasked::Said(said, _)) if said.is_missing_table() => {}
                answered => return Ok(answered?),
            }
        }
        Ok(Vec::new())
    }

    /// This lock, with the statement that frees it where it never expires.
    fn with_remedy(&self, mut seen: Seen) -> Seen {
        if seen.holders.iter().any(|holder| holder.left == Some(Left::Forever)) {
            seen.remedy = Some(D::LOOKS.remedy(&self.table, &seen.spot.place));
        }
        seen
    }

    /// The rows about this lock with the server's time, and where it is, also where the database takes two names as one.
    async fn read_one(&mut self, key: &Key, depth: Depth) -> Result<(Spot, Vec<Line>, u64), Error> {
        let mut spot = Spot::of(key, name::row(&self.namespace, key));
        let (mut lines, mut now) = self.read(std::slice::from_ref(&spot), depth).await?;
        if let Some(other) = other_name(&lines, &spot) {
            spot.place = other;
            (lines, now) = self.read(std::slice::from_ref(&spot), depth).await?;
        }
        Ok((spot, lines, now))
    }

    /// Makes one change, and then tells whom it concerns, which is a hint: whether anything was changed. The first of the two
    /// requests also records it; a role that may not do that breaks locks all the same.
    async fn change(&mut self, [traced, untraced]: &[String; 2], then: &str) -> Result<bool, Error> {
        self.untraced = None;
        let rows = match self.ask(traced).await {
            Ok(rows) => rows,
            // Also where others keep the table of the record locked. If that is not what it was about, it fails again.
            Err(Unasked::Said(said, error)) if !said.is_fatal() && !said.is_standby() => {
                let rows = self.ask(untraced).await?;
                self.untraced = Some(error);
                rows
            }
            Err(failed) => return Err(failed.into()),
        };
        let is_done = answers::of(&rows, "done").is_some();
        if is_done && !then.is_empty() {
            let _ = self.ask(then).await;
        }
        Ok(is_done)
    }

    /// The error for an answer that makes no sense.
    fn nonsense(&self) -> Error {
        errors::nonsense(&self.connection.name(), D::Link::PRODUCT)
    }

    /// The rows about these locks, and the server's time.
    async fn read(&mut self, spots: &[Spot], depth: Depth) -> Result<(Vec<Line>, u64), Error> {
        let rows = self.ask_for_some(&D::LOOKS.locks(&self.table, spots, depth)).await?;
        let now = match rows.first().map(Vec::as_slice) {
            Some([Some(word), Some(now)]) if word == "time" => now.parse().map_err(|_| self.nonsense())?,
            _ => return Err(self.nonsense()),
        };
        let lines: Option<Vec<Line>> = rows.iter().skip(1).map(|row| Line::read(row)).collect();
        Ok((lines.ok_or_else(|| self.nonsense())?, now))
    }
}

#[async_trait::async_trait(?Send)]
impl<D: Dialect> Survey for SqlSurvey<D> {
    async fn connect(&mut self) -> Result<(), Error> {
        let is_new = self.connection.connect().await?;
        if is_new
            && !D::LOOKS.greeting.is_empty()
            && let Err(error) = self.ask(D::LOOKS.greeting).await
        {
            self.connection.hang_up();
            return Err(error.into());
        }
        Ok(())
    }

    async fn look(&mut self, key: &Key) -> Result<Seen, Error> {
        let (spot, lines, now) = self.read_one(key, Depth { holders: MOST, waiters: MOST }).await?;
        Ok(self.with_remedy(seen(spot, &lines, now)))
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        if self.is_refused {
            return Ok(None);
        }
        let (spot, ..) = self.read_one(key, Depth { holders: 1, waiters: 1 }).await?;
        let rows = match self.ask(&D::LOOKS.trace(&self.table, &spot.place)).await {
            Err(Unasked::Said(said, _)) if said.is_missing_table() => return Ok(None),
            Err(unasked) => {
                let error = Error::from(unasked);
                self.is_refused = error.kind == ErrorKind::Denied;
                return Err(error);
            }
            Ok(rows) => rows,
        };
        let text = answers::of(&rows, "trace").and_then(|row| row.get(1).copied().flatten());
        Ok(text.and_then(|text| Ask::read_trace(text.as_bytes(), wall_millis())))
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let begins = name::beginning(&self.namespace, prefix);
        let (mut smallest, mut total, mut last) = (Smallest::new(most), 0, String::new());
        loop {
            let rows = self.ask_for_some(&[D::LOOKS.names(&self.table, &begins, &last)]).await?;
            let is_last = rows.len() < PAGE;
            for row in rows {
                let (Some(Some(name)), 2) = (row.get(1), row.len()) else { return Err(self.nonsense()) };
                if let Some(spot) = name::spot(&self.namespace, name) {
                    total += 1;
                    smallest.add(spot);
                }
                last.clone_from(name);
            }
            if is_last {
                return Ok(smallest.names(Some(total)));
            }
        }
    }

    async fn look_at(&mut self, spots: &[Spot]) -> Result<Vec<Seen>, Error> {
        let mut found = Vec::with_capacity(spots.len());
        for spots in spots.chunks(TOGETHER) {
            // The first waiter says how many there are.
            let (lines, now) = self.read(spots, Depth { holders: FEW, waiters: 1 }).await?;
            found.extend(spots.iter().map(|spot| seen(spot.clone(), &lines, now)));
        }
        found.retain(|seen| seen.state != State::Free);
        for seen in &mut found {
            seen.queue.clear();
        }
        Ok(found)
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let (spot, ..) = self.read_one(key, Depth { holders: 1, waiters: 1 }).await?;
        match Act::new(&self.table, &spot.place, party) {
            Some(act) => {
                let change = [true, false].map(|traced| D::STEERING.ask(&act, ask, traced));
                let tell = D::STEERING.tell(&act);
                self.change(&change, &tell).await
            }
            None => Ok(false),
        }
    }

    async fn take_away(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let (spot, lines, _) = self.read_one(key, Depth { holders: 1, waiters: 1 }).await?;
        let act = match columns_of(&lines, &spot.place, party) {
            Some(columns) => Some(Act::foreign(&self.table, &spot.place, columns)),
            None => Act::new(&self.table, &spot.place, party),
        };
        match act {
            Some(act) => {
                let change = [true, false].map(|traced| D::STEERING.take(&act, ask, traced));
                let wake = D::STEERING.wake(&act);
                self.change(&change, &wake).await
            }
            None => Ok(false),
        }
    }

    fn untraced(&mut self) -> Option<Error> {
        self.untraced.take()
    }
}
