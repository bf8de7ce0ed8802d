/*!
Making the tables where they are missing.
*/

use crate::backend::Error;
use crate::backend::net::wire::Address;
use crate::backend::sql::connection::{Outstanding, Unasked};
use crate::backend::sql::contender::SqlContender;
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::link::{Said, Servers};
use crate::backend::sql::table::Tables;
use crate::backend::sql::template::lines;
use crate::backend::sql::{errors, place};
use crate::printable::flag;

/// How often the tables are made: another client may remove them at the same time.
const TRIES: usize = 4;

/// How an administrator runs statements at the first of `servers`, with the client for hosts or the one for sockets.
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

impl<D: Dialect> SqlContender<D> {
    /// Makes the tables that are missing. That may take longer than other requests do: it writes to the disk many times.
    pub(super) async fn make_tables(&mut self) -> Result<(), Error> {
        if !self.tables.missing {
            return Ok(());
        }
        if self.tables.made == TRIES {
            return Err(self.nonsense());
        }
        self.tables.made += 1;
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
        self.tables.missing = false;
        Ok(())
    }

    /// The tables are made where they would be without a schema, or next to the table of locks, if that is there. A schema of the
    /// role's own has locks that no other role sees: there only if the URL names it.
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
