/*!
A session at a database for clients that change something: the connection, its requests, and the creation of missing
tables.
*/

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::net::wire::Address;
use crate::backend::sql::answers::Row;
use crate::backend::sql::connection::{Connection, Outstanding, Unasked};
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::link::{Link, Said, Servers};
use crate::backend::sql::table::Tables;
use crate::backend::sql::template::lines;
use crate::backend::sql::turn::heartbeat_ttl;
use crate::backend::sql::{errors, place};
use crate::printable::flag;

/// The number of attempts to make the tables: another client may remove them at the same time.
const TRIES: usize = 4;

/// The result of a request.
pub(super) type Asked<D> = Result<Vec<Row>, Unasked<<<D as Dialect>::Link as Link>::Said>>;

/// A session, and the statements for one claim.
#[derive(Debug)]
pub(super) struct Session<D: Dialect> {
    /// The connection, which need not be made yet.
    pub connection: Connection<D::Link>,
    /// The statements.
    pub statements: D,
    lack: MissingTables,
}

/// The missing tables, as far as a session knows.
#[derive(Debug, Default)]
struct MissingTables {
    /// `true` if the last request found one missing.
    missing: bool,
    /// The number of times they were made since a request last found all of them.
    made: usize,
}

/// Returns the command with which an administrator runs statements at the first server, by host or by socket.
fn client([host, socket]: [&str; 2], servers: &Servers) -> String {
    let address = servers.location.addresses.first();
    let template = if matches!(address, Some(Address::Unix(_))) { socket } else { host };
    lines(template, |place| {
        Some(match (place, address?) {
            ("database", _) => flag("", &servers.database).trim_start().to_owned(),
            ("host", Address::Tcp(host, _)) => flag("-h", host),
            ("port", Address::Tcp(_, port)) => port.to_string(),
            ("socket", Address::Unix(path)) => flag("-S", path.to_str()?),
            ("directory", Address::Unix(path)) => flag("-h", path.parent()?.to_str()?),
            ("port", Address::Unix(path)) => path.extension()?.to_str()?.to_owned(),
            _ => return None,
        })
    })
}

impl<D: Dialect> Session<D> {
    /// Creates a session for `claim` on this connection, which need not be made yet.
    pub(super) fn new(claim: &Claim, connection: Connection<D::Link>) -> Self {
        let statements = D::new(connection.table().clone(), claim, heartbeat_ttl(claim.ttl));
        Self { connection, statements, lack: MissingTables::default() }
    }

    /// Makes sure that there is a connection on which nothing is unanswered, and makes the tables if they are missing.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        if self.connection.connect().await? {
            self.greet().await?;
        }
        self.make_tables().await
    }

    /// Makes sure that there is a connection for a request that must be executed last.
    pub(super) async fn connect_in_order(&mut self) -> Result<(), Error> {
        if self.connection.connect_in_order().await? {
            self.greet().await?;
        }
        Ok(())
    }

    /// Sends the first request of a new connection.
    async fn greet(&mut self) -> Result<(), Error> {
        let greeting = self.statements.greeting();
        if !greeting.is_empty() {
            self.connection.ask(&greeting, Tables::NONE, Outstanding::Request).await?;
        }
        Ok(())
    }

    /// Sends a request of these statements, which uses these tables; repeats it if they are in another schema.
    pub(super) async fn ask(
        &mut self,
        text: impl Fn(&D) -> String,
        tables: Tables,
        outstanding: Outstanding,
    ) -> Asked<D> {
        let asked = self.connection.ask(&text(&self.statements), tables, outstanding).await;
        self.statements.use_table(self.connection.table());
        match asked {
            Err(Unasked::Elsewhere(_)) => self.connection.ask(&text(&self.statements), tables, outstanding).await,
            asked => asked,
        }
    }

    /// Notes whether a table is `missing`, which the next [`Self::make_tables`] makes.
    pub(super) fn lacks(&mut self, missing: bool) {
        self.lack.missing = missing;
        if !missing {
            self.lack.made = 0;
        }
    }

    /// Returns the error for a malformed answer.
    pub(super) fn malformed(&self) -> Error {
        errors::malformed(&self.connection.name(), D::Link::PRODUCT)
    }

    /// Makes the missing tables. That may take longer than other requests, because it writes to the disk many times.
    pub(super) async fn make_tables(&mut self) -> Result<(), Error> {
        if !self.lack.missing {
            return Ok(());
        }
        if self.lack.made == TRIES {
            return Err(self.malformed());
        }
        self.lack.made += 1;
        self.choose_schema()?;
        for statement in self.statements.tables() {
            match self.connection.ask(&statement, Tables::NONE, Outstanding::Request).await {
                Ok(_) => {}
                Err(Unasked::Said(said, _)) if said.is_made_by_others() => {}
                Err(Unasked::Said(said, error)) if said.forbids_tables() => {
                    let servers = self.connection.servers();
                    let url = place::url(servers, self.statements.table());
                    let client = client(D::CLIENT, servers);
                    let run = format!("dlock generate {} --backend '{url}' | {client}", D::GENERATE);
                    return Err(errors::no_tables(&self.connection.name(), &servers.user, &error, &run));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.lack.missing = false;
        Ok(())
    }

    /// Chooses the schema for the tables: that of the table of locks or, if it is missing, the role's default. Fails if
    /// the default is the role's own schema, whose locks no other role sees: those need a URL that names it.
    fn choose_schema(&mut self) -> Result<(), Error> {
        let Some(found) = self.connection.found().filter(|_| !self.connection.table().is_named()) else {
            return Ok(());
        };
        let Some(home) = found.home.as_ref().filter(|_| found.schema.is_none()) else { return Ok(()) };
        if found.is_own(home) {
            let table = self.connection.table().clone().found_in(home);
            return Err(errors::own_schema(&self.connection.name(), &table));
        }
        let home = home.clone();
        self.connection.make_in(&home);
        self.statements.use_table(self.connection.table());
        Ok(())
    }
}
