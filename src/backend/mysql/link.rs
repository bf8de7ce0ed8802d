/*!
Connects to one server that takes writes.
*/

use std::os::fd::{AsRawFd, OwnedFd};

use futures_util::FutureExt;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::BufReader;

use crate::backend::error::Error;
use crate::backend::mysql::errors::{self, About, Said};
use crate::backend::mysql::login::{Credentials, Greeting, log_in};
use crate::backend::mysql::packets::Packets;
use crate::backend::mysql::texts::literal;
use crate::backend::net::bounded::Bounded;
use crate::backend::net::location::nested_hint;
use crate::backend::net::tls::refused;
use crate::backend::net::wire::{Address, Choice, Refusal, Wire, forget};
use crate::backend::sql::answers::{self, Row};
use crate::backend::sql::errors as common;
use crate::backend::sql::found::Found;
use crate::backend::sql::link::{self, Asked, Failure, Servers};
use crate::backend::sql::table::{Table, Tables};

/// The stream that carries the packets, buffered and bounded.
type Stream = BufReader<Bounded<Wire>>;

/// A connection to a server that takes writes.
#[derive(Debug)]
pub(super) struct Link {
    packets: Packets<Stream>,
    /// The server's name in messages.
    name: String,
    /// Another descriptor of its socket.
    socket: OwnedFd,
    refusal: Refusal,
    /// An answer is outstanding.
    is_asked: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Without this packet, the server would count an aborted connection.
        if !self.is_asked {
            let _ = self.packets.quit().now_or_never();
        }
    }
}

/// Explains a failure at the server called `name`.
fn explain(servers: &Servers, name: &str, refusal: &Refusal, failure: &Failure<Said>) -> Error {
    if let Some(said) = refusal.said() {
        return refused(&name, &said);
    }
    let about = About {
        name: &name,
        has_password: servers.location.login.password.is_some(),
        is_plain: servers.is_plain(),
        nested: nested_hint(),
        user: &servers.user,
    };
    errors::explain(failure, about)
}

/// The request that checks that the server takes writes, and that the tables are plain ones: a view can call functions
/// of its creator, and a trigger can change what is written. Only users who may create triggers see them.
fn opening(table: &Table) -> String {
    let schema = table.schema().map_or_else(|| "DATABASE()".to_owned(), literal);
    let names = table.bare_names(Tables::ALL);
    // Every table is named by a constant: for anything else, the server opens all tables of the database.
    let fault = |name: &String| {
        let name = literal(name);
        format!(
            "SELECT CONCAT('kind ', t.TABLE_NAME) AS fault FROM information_schema.TABLES t \
             WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {name} AND t.TABLE_TYPE <> 'BASE TABLE' UNION ALL \
             SELECT CONCAT('trigger ', g.EVENT_OBJECT_TABLE) FROM information_schema.TRIGGERS g \
             WHERE g.EVENT_OBJECT_SCHEMA = {schema} AND g.EVENT_OBJECT_TABLE = {name}"
        )
    };
    let record = literal(&table.record_bare());
    let engine = format!(
        "SELECT CONCAT('engine ', t.TABLE_NAME) FROM information_schema.TABLES t \
         WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {record} AND t.ENGINE <> 'InnoDB'"
    );
    let faults = names.iter().map(fault).chain([engine]).collect::<Vec<_>>().join(" UNION ALL ");
    format!(
        "SELECT IF(@@global.read_only IN ('0', 'OFF'), 'writes', 'reads');\n\
         SELECT 'place', {schema}, NULL, '', 'f', NULL, NULL, (SELECT MIN(f.fault) FROM ({faults}) f), 'f', 't';\n"
    )
}

#[async_trait::async_trait(?Send)]
impl link::Link for Link {
    type Said = Said;
    const PRODUCT: &'static str = "MySQL";

    async fn open(servers: &Servers, table: &Table, address: &Address, _several: bool) -> Result<Self, Error> {
        let name = servers.one(address);
        let wire = Wire::dial_to(Choice::Any, &name, address, None).await?;
        let socket = wire.socket().map_err(|error| common::no_socket(&name, &error))?;
        let plain = wire.refusal();
        let mut packets = Packets::new(wire);
        let greeting =
            Greeting::read(&mut packets).await.map_err(|failure| explain(servers, &name, &plain, &failure))?;
        let (mut wire, packets) = match &servers.tls {
            None => packets.into_parts(),
            Some(_) if !greeting.has_tls() => return Err(errors::no_tls(&name)),
            Some(_) => {
                let asked = packets.write(&Greeting::tls_request()).await;
                asked.map_err(|error| common::ended_before_tls(&name, &error))?;
                packets.into_parts()
            }
        };
        if let Some(tls) = &servers.tls {
            wire = wire.secure(&name, address, tls).await?;
        }
        let refusal = wire.refusal();
        let stream = BufReader::new(Bounded::new(wire, servers.purpose.allowance()));
        let mut link = Self { packets: packets.resume(stream), name, socket, refusal, is_asked: true };
        let credentials = Credentials {
            user: &servers.user,
            password: servers.location.login.password.as_deref().unwrap_or_default(),
            database: &servers.database,
            is_tls: servers.tls.is_some(),
            is_local: matches!(address, Address::Unix(_)),
        };
        let logged_in = log_in(&mut link.packets, greeting, credentials).await;
        logged_in.map_err(|failure| explain(servers, &link.name, &link.refusal, &failure))?;
        let rows = match link.ask(&opening(table)).await {
            Ok(rows) => rows,
            Err(Asked::Failed(failure)) => return Err(explain(servers, &link.name, &link.refusal, &failure)),
            Err(Asked::Unreplicated | Asked::Malformed) => return Err(common::malformed(&link.name, Self::PRODUCT)),
        };
        if rows.first().is_none_or(|row| row[..] != [Some("writes".to_owned())]) {
            return Err(common::standby(&link.name));
        }
        let found = answers::of(&rows, "place").and_then(|row| Found::read(&row));
        let found = found.ok_or_else(|| common::malformed(&link.name, Self::PRODUCT))?;
        found.refusal(table, &link.name).map_or(Ok(link), Err)
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Returns `false` if the socket is readable: unasked, a server sends nothing but the end of the connection.
    fn is_open(&self) -> bool {
        let quiet = recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        quiet == Err(Errno::EAGAIN)
    }

    fn forget(mut self) {
        self.is_asked = true;
        forget(&self.socket);
    }

    async fn ask(&mut self, text: &str) -> Result<Vec<Row>, Asked<Said>> {
        self.is_asked = true;
        let answered = self.packets.ask(text).await;
        self.is_asked = matches!(answered, Err(Failure::Broke(_)));
        answered.map_err(Asked::Failed)
    }

    fn explain(&self, servers: &Servers, failure: &Failure<Said>) -> Error {
        explain(servers, &self.name, &self.refusal, failure)
    }
}
