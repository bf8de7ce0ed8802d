/*!
The connection to the primary, replaced if it breaks or an answer is overdue. Explains failures on it in words.
*/

use std::time::Duration;

use crate::backend::error::Error;
use crate::backend::sql::answers::{self, Look, Row};
use crate::backend::sql::errors;
use crate::backend::sql::found::Found;
use crate::backend::sql::link::{Asked, Failure, Link, Said, Servers, open};
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::template::lines;
use crate::backend::sql::turn::{Watch, glances};
use crate::clock::{Instant, before, sleep_until};

/// The number of immediate repeats of a transaction that lost against another one.
const REPEATS: usize = 3;
/// The grace period for an answer after the end of a wait.
const OVERDUE: Duration = Duration::from_secs(2);
/// The time for which a holder listens at a stretch.
const LONG: Duration = Duration::from_secs(86_400);
/// The interval at which a holder looks for a request to stop if the server does not notify it.
const BETWEEN_GLANCES: Duration = Duration::from_secs(1);

/// The request that may be unanswered on a connection, which decides what may follow on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outstanding {
    /// Every request has been answered.
    Nothing,
    /// A request: the server executes the next one after it.
    Request,
    /// A request, such as a release, behind which the next one may have to wait for long.
    Blocker,
}

/// A connection to the primary, which may be missing.
#[derive(Debug)]
pub(crate) struct Connection<L> {
    servers: Servers,
    /// The table of locks, in the schema where it was found or is assumed to be.
    table: Table,
    /// The server's last report about the tables.
    found: Option<Found>,
    open: Option<Open<L>>,
}

/// An open connection, and the state of the requests on it.
#[derive(Debug)]
struct Open<L> {
    link: L,
    outstanding: Outstanding,
    /// `true` if the last request may have left a failed transaction open.
    is_aborted: bool,
    /// The tables that are known to be what they must be.
    known: Tables,
}

/// The reason why a request failed.
#[derive(Debug)]
pub(crate) enum Unasked<S> {
    /// The server answered with this error, here also in dlock's words.
    Said(S, Error),
    /// The table is in another schema than requested, now in [`Connection::table`]. Nothing was done.
    Elsewhere(Error),
    /// Any other failure.
    Failed(Error),
}

impl<S> From<Unasked<S>> for Error {
    fn from(unasked: Unasked<S>) -> Self {
        match unasked {
            Unasked::Said(_, error) | Unasked::Elsewhere(error) | Unasked::Failed(error) => error,
        }
    }
}

impl<L: Link> Connection<L> {
    /// Creates a connection to the primary of `servers`, which is not made yet, for the locks in `table`.
    pub(crate) fn new(servers: Servers, table: Table) -> Self {
        Self { servers, table, found: None, open: None }
    }

    /// Returns the table of locks, as requests name it.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Returns `true` if the table is known to be in the schema of [`Self::table`].
    pub(crate) fn located(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.known != Tables::NONE) || !self.table.is_assumed()
    }

    /// Returns the server's last report about the tables.
    pub(crate) fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// Sets the schema in which missing tables are made.
    pub(crate) fn make_in(&mut self, schema: &str) {
        self.table = self.table.clone().found_in(schema);
    }

    /// Returns the servers.
    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Returns the name of the connected server, or of all servers if there is no connection.
    pub(crate) fn name(&self) -> String {
        self.open.as_ref().map_or_else(|| self.servers.location.to_string(), |open| open.link.name().to_owned())
    }

    /// Closes the connection: the next request needs a new one.
    pub(crate) fn hang_up(&mut self) {
        self.open = None;
    }

    /// Makes sure that there is a connection on which nothing is unanswered; returns `true` if it is new.
    pub(crate) async fn connect(&mut self) -> Result<bool, Error> {
        let is_ready = |open: &Open<L>| open.outstanding == Outstanding::Nothing && open.link.is_open();
        if !self.open.as_ref().is_some_and(is_ready) {
            if let Some(open) = self.open.take() {
                open.link.forget();
            }
            self.dial().await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Makes sure that there is a connection for a request that must be executed last; returns `true` if it is new.
    /// After an unanswered request the same connection keeps the order, however late the server is; a connection with
    /// an unanswered release is replaced.
    pub(crate) async fn connect_in_order(&mut self) -> Result<bool, Error> {
        let is_there = |open: &Open<L>| open.outstanding != Outstanding::Blocker && open.link.is_open();
        if !self.open.as_ref().is_some_and(is_there) {
            self.open = None;
            self.dial().await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn dial(&mut self) -> Result<(), Error> {
        let link: L = open(&self.servers, &self.table).await?;
        let (outstanding, known) = (Outstanding::Nothing, Tables::NONE);
        self.open = Some(Open { link, outstanding, is_aborted: false, known });
        Ok(())
    }

    /// Returns `true` if the server's answer shows that notifications do not arrive here.
    pub(crate) fn is_poll_only(&self, look: &Look) -> bool {
        self.open.as_ref().is_some_and(|open| open.link.is_poll_only(look))
    }

    /// Returns `true` if the server notifies us on this connection, or never does.
    pub(crate) fn is_listening(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.link.is_listening())
    }

    /// Notes that the server notifies us on this connection from now on.
    pub(crate) fn listens(&mut self) {
        if let Some(open) = &mut self.open {
            open.link.listens();
        }
    }

    /// Discards notifications that have arrived: the next request sees what they were about.
    pub(crate) fn forget_notifications(&self) {
        if let Some(open) = &self.open {
            open.link.forget_notifications();
        }
    }

    /// Waits for a notification, but not beyond `until`.
    pub(crate) async fn notified(&mut self, until: Instant) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Err(errors::no_connection(&self.name())) };
        let error = match open.link.notified(until).await {
            Ok(()) => return Ok(()),
            Err(None) => errors::hung_up(&open.link.name()),
            Err(Some(failure)) => open.link.explain(&self.servers, &failure),
        };
        self.open = None;
        Err(error)
    }

    /// Waits for the event of `watch`, which we have awaited since `since`, but not beyond `until`; returns `true` if
    /// it has happened.
    pub(crate) async fn watched(&mut self, watch: &Watch, since: Instant, until: Instant) -> Result<bool, Error> {
        let watched = async {
            match watch {
                Watch::Gone { request, .. } => self.gone(request, until).await,
                Watch::Room { request } => self.room(request, since, until).await,
            }
        };
        // A silent server is given up, as with every request.
        if let Ok(watched) = before(until + OVERDUE, watched).await {
            return watched;
        }
        let error = errors::hung_up(&self.name());
        self.open = None;
        Err(error)
    }

    /// Waits until a holder may have been asked to stop: until the answer to `request` has a row or, without a request,
    /// until a notification. Returns `false` if that cannot be found out.
    pub(crate) async fn asked(&mut self, request: Option<&str>) -> bool {
        let Some(request) = request else {
            return self.is_listening() && self.notified(Instant::now() + LONG).await.is_ok();
        };
        loop {
            sleep_until(Instant::now() + BETWEEN_GLANCES).await;
            match self.ask(request, Tables::NONE, Outstanding::Request).await {
                Ok(rows) if rows.is_empty() => {}
                answered => return answered.is_ok(),
            }
        }
    }

    async fn gone(&mut self, request: &str, until: Instant) -> Result<bool, Error> {
        let wait = until.since(Instant::now()).as_secs_f32();
        let request = lines(request, |place| (place == "wait").then(|| format!("{wait:.3}")));
        let is_gone = answers::is_gone(&self.ask(&request, Tables::NONE, Outstanding::Blocker).await?);
        if !is_gone {
            sleep_until(until).await;
        }
        Ok(is_gone)
    }

    async fn room(&mut self, request: &str, since: Instant, until: Instant) -> Result<bool, Error> {
        while Instant::now() < until {
            let now = Instant::now();
            sleep_until(until.min(now + glances(now.since(since)))).await;
            if !self.ask(request, Tables::NONE, Outstanding::Request).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends one request, which uses these `tables`, and waits for its answer. If this future is dropped, the request
    /// stays noted as unanswered.
    pub(crate) async fn ask(
        &mut self,
        text: &str,
        tables: Tables,
        outstanding: Outstanding,
    ) -> Result<Vec<Row>, Unasked<L::Said>> {
        let mut repeats = 0;
        loop {
            match self.ask_once(text, tables, outstanding).await {
                Err(Unasked::Said(said, _)) if said.is_repeated() && repeats < REPEATS => repeats += 1,
                result => return result,
            }
        }
    }

    /// Sends a request once, if the tables are what it takes them for.
    async fn ask_once(
        &mut self,
        text: &str,
        tables: Tables,
        outstanding: Outstanding,
    ) -> Result<Vec<Row>, Unasked<L::Said>> {
        // The other tables are in the schema of the table of locks.
        let tables = if tables == Tables::NONE { tables } else { tables.and(Tables::LOCK) };
        let is_known = |open: &Open<L>| open.known.has(tables);
        if self.open.as_ref().is_some_and(is_known) {
            return self.send(text, outstanding).await;
        }
        match self.send(&(L::guard(&self.table, tables) + text), outstanding).await {
            Ok(mut rows) => {
                self.know(tables);
                rows.retain(|row| row.first().is_none_or(|first| first.as_deref() != Some("guard")));
                Ok(rows)
            }
            Err(Unasked::Said(said, error)) if said.is_missing_table() => {
                let asked_in = self.table.schema().map(str::to_owned);
                if !self.find(tables).await? {
                    return Err(Unasked::Said(said, error));
                }
                if self.table.schema() != asked_in.as_deref() {
                    return Err(Unasked::Elsewhere(error));
                }
                self.send(text, outstanding).await
            }
            failed => failed,
        }
    }

    /// Asks the server about the tables; `None` if it cannot be asked.
    pub(crate) async fn look_into(&mut self) -> Result<Option<&Found>, Error> {
        self.find(Tables::LOCKS).await?;
        Ok(self.found.as_ref())
    }

    fn know(&mut self, tables: Tables) {
        if let Some(open) = &mut self.open {
            open.known = open.known.and(tables);
        }
    }

    /// Finds out where the tables are; returns `true` if all of them exist. Fails if they cannot be relied on.
    async fn find(&mut self, tables: Tables) -> Result<bool, Unasked<L::Said>> {
        let question = L::place(&self.table, tables);
        if question.is_empty() {
            return Ok(false);
        }
        let rows = self.send(&question, Outstanding::Request).await?;
        let found = answers::of(&rows, "place").and_then(|row| Found::read(&row));
        let name = self.name();
        let Some(found) = found else { return Err(Unasked::Failed(errors::malformed(&name, L::PRODUCT))) };
        let refusal = found.refusal(&self.table, &name);
        let is_whole = found.is_whole;
        if let Some(schema) = &found.schema {
            self.table = self.table.clone().found_in(schema);
        }
        self.found = Some(found);
        if let Some(refusal) = refusal {
            return Err(Unasked::Failed(refusal));
        }
        if is_whole {
            self.know(tables);
        }
        Ok(is_whole)
    }

    async fn send(&mut self, text: &str, outstanding: Outstanding) -> Result<Vec<Row>, Unasked<L::Said>> {
        let Some(open) = &mut self.open else {
            return Err(Unasked::Failed(errors::no_connection(&self.servers.location)));
        };
        open.outstanding = outstanding;
        // A failed transaction is still open. Rolling back is no error if there is none.
        let roll_back = if std::mem::replace(&mut open.is_aborted, true) { "ROLLBACK;\n" } else { "" };
        let failure = match open.link.ask(&format!("{roll_back}{text}")).await {
            Err(Asked::Failed(failure)) => failure,
            answered => {
                open.outstanding = Outstanding::Nothing;
                open.is_aborted = false;
                let name = &open.link.name().to_owned();
                return match answered {
                    Ok(rows) => Ok(rows),
                    Err(Asked::Unreplicated) => Err(Unasked::Failed(errors::unreplicated(name))),
                    Err(Asked::Malformed | Asked::Failed(_)) => {
                        Err(Unasked::Failed(errors::malformed(name, L::PRODUCT)))
                    }
                };
            }
        };
        let error = open.link.explain(&self.servers, &failure);
        match failure {
            // An error answered by the server leaves the connection intact. A server that has become a standby is the
            // wrong one to ask.
            Failure::Said(said) if !said.is_fatal() && !said.is_standby() => {
                open.outstanding = Outstanding::Nothing;
                Err(Unasked::Said(said, error))
            }
            Failure::Said(said) => {
                self.open = None;
                Err(Unasked::Said(said, error))
            }
            Failure::Broke(_) => {
                self.open = None;
                Err(Unasked::Failed(error))
            }
        }
    }
}
