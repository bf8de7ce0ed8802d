/*!
One connection to a server that takes writes: making it, and the messages that the server sends unasked.
*/

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};

use crate::backend::error::Error;
use crate::backend::net::bounded::Bounded;
use crate::backend::net::location::nested_hint;
use crate::backend::net::tls::{Tls, refused};
use crate::backend::net::wire::{Address, Choice, Refusal, Wire, forget};
use crate::backend::postgres::errors::{self, About, failure};
use crate::backend::postgres::frames::{Frames, Process, Sound};
use crate::backend::postgres::place;
use crate::backend::sql::answers::{Look, Row};
use crate::backend::sql::errors as common;
use crate::backend::sql::link::{self, Asked, Auth, Purpose, Servers};
use crate::backend::sql::table::{Table, Tables};
use crate::clock::{Instant, before};

type Failure = link::Failure<errors::Said>;

/// The protocol's request for TLS: its length, and a number that is no version.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The code of warnings, and the routine of the server that warns when it confirms a commit without having waited for
/// its replicas.
const WARNING: &str = "01000";
const REPLICATION: &str = "SyncRepWaitForLSN";

/// Returns the client library's configuration for a login to one of the servers.
fn config(servers: &Servers) -> Config {
    let mut config = Config::new();
    config.user(&servers.user).dbname(&servers.database).application_name("dlock").ssl_mode(SslMode::Disable);
    if let Some(password) = &servers.location.login.password {
        config.password(password);
    }
    config
}

/// Describes a failure at the server called `name`.
fn explain(servers: &Servers, name: &str, refusal: &Refusal, failure: &Failure) -> Error {
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

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    /// The server's name in messages.
    name: String,
    /// Another descriptor of its socket, for [`forget`].
    socket: OwnedFd,
    refusal: Refusal,
    /// The process that has taken the connection, according to the server.
    process: Process,
    unasked: Arc<Unasked>,
    /// `true` if the server notifies us here.
    is_listening: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The messages that a server sends unasked.
#[derive(Debug, Default)]
struct Unasked {
    /// Notified by a notification, and when the connection ends.
    notified: Notify,
    said: Mutex<Said>,
}

/// The content of these messages so far.
#[derive(Debug, Default)]
struct Said {
    /// `true` if a commit was confirmed without the replicas since this was last reset.
    is_unreplicated: bool,
    end: End,
}

/// The end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum End {
    /// It has not ended.
    #[default]
    Open,
    /// It ended without a message.
    Silent,
    /// It ended with this failure.
    Said(Failure),
}

impl Unasked {
    fn said<T>(&self, look: impl FnOnce(&mut Said) -> T) -> T {
        look(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a message of the server.
    fn hear(&self, message: &AsyncMessage) {
        match message {
            AsyncMessage::Notification(_) => self.notified.notify_one(),
            AsyncMessage::Notice(notice)
                if notice.code().code() == WARNING && notice.routine().is_none_or(|part| part == REPLICATION) =>
            {
                self.said(|said| said.is_unreplicated = true);
            }
            _ => {}
        }
    }
}

#[async_trait::async_trait(?Send)]
impl link::Link for Link {
    type Said = errors::Said;
    const PRODUCT: &'static str = "PostgreSQL";

    async fn open(servers: &Servers, _table: &Table, address: &Address, several: bool) -> Result<Self, Error> {
        let name = servers.one(address);
        let wire = Wire::dial_to(Choice::Any, &name, address, None).await?;
        let wire = match &servers.tls {
            Some(tls) => encrypted(wire, &name, address, tls).await?,
            None => wire,
        };
        let socket = wire.socket().map_err(|error| common::no_socket(&name, &error))?;
        let refusal = wire.refusal();
        let sound = Sound { is_private: servers.is_private(address), needs_scram: servers.auth == Some(Auth::Scram) };
        let stream = Frames::new(Bounded::new(wire, servers.purpose.allowance()), sound);
        let process = stream.process();
        let (client, mut connection) = config(servers)
            .connect_raw(stream, NoTls)
            .await
            .map_err(|error| explain(servers, &name, &refusal, &failure(&error)))?;
        let is_on = |parameter: &str| connection.parameter(parameter).map(|value| value == "on");
        let standby = match servers.purpose {
            Purpose::Locks | Purpose::Meetings => {
                said_standby(is_on("in_hot_standby"), is_on("default_transaction_read_only"))
            }
            Purpose::Looks => is_on("in_hot_standby"),
        };
        let unasked = Arc::new(Unasked::default());
        let listener = Arc::clone(&unasked);
        let driver = tokio::spawn(async move {
            let end = loop {
                match std::future::poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(message)) => listener.hear(&message),
                    Some(Err(error)) => break End::Said(failure(&error)),
                    None => break End::Silent,
                }
            };
            listener.said(|said| said.end = end);
            listener.notified.notify_one();
        });
        let mut link = Self { client, driver, name, socket, refusal, process, unasked, is_listening: false };
        let standby = match standby {
            Some(standby) => standby,
            // A single server says so in answer to the first write.
            None if !several && servers.purpose != Purpose::Looks => false,
            None => link.is_read_only(servers).await?,
        };
        if standby { Err(common::standby(&link.name)) } else { Ok(link) }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    fn guard(table: &Table, tables: Tables) -> String {
        place::guard(table, tables)
    }

    fn place(table: &Table, tables: Tables) -> String {
        place::question(table, tables)
    }

    fn forget(self) {
        forget(&self.socket);
    }

    async fn ask(&mut self, text: &str) -> Result<Vec<Row>, Asked<errors::Said>> {
        self.unasked.said(|said| said.is_unreplicated = false);
        match self.client.simple_query(text).await {
            Ok(_) if self.unasked.said(|said| said.is_unreplicated) => Err(Asked::Unreplicated),
            Ok(messages) => rows(&messages).ok_or(Asked::Malformed),
            // The error that ended the connection says more than the fact that it has ended.
            Err(error) => match (failure(&error), self.unasked.said(|said| said.end.clone())) {
                (Failure::Broke(_), End::Said(last)) => Err(Asked::Failed(last)),
                (failure, _) => Err(Asked::Failed(failure)),
            },
        }
    }

    fn explain(&self, servers: &Servers, failure: &Failure) -> Error {
        explain(servers, &self.name, &self.refusal, failure)
    }

    fn forget_notifications(&self) {
        let _ = self.unasked.notified.notified().now_or_never();
    }

    fn is_listening(&self) -> bool {
        self.is_listening
    }

    fn listens(&mut self) {
        self.is_listening = true;
    }

    /// Returns `true` if another process answers than the one that the server named at login: then a pooler is in
    /// between, which swallows notifications.
    fn is_poll_only(&self, look: &Look) -> bool {
        look.process != Some(self.process.number())
    }

    async fn notified(&mut self, until: Instant) -> Result<(), Option<Failure>> {
        let _ = before(until, self.unasked.notified.notified()).await;
        match self.unasked.said(|said| said.end.clone()) {
            End::Open => Ok(()),
            End::Silent => Err(None),
            End::Said(failure) => Err(Some(failure)),
        }
    }
}

impl Link {
    /// Asks a server that did not say so at login whether it is read-only; returns `true` if so.
    async fn is_read_only(&mut self, servers: &Servers) -> Result<bool, Error> {
        let is_on = |row: &Row| row.first().is_some_and(|value| matches!(value.as_deref(), Some("on" | "t")));
        let question = match servers.purpose {
            Purpose::Locks | Purpose::Meetings => "SHOW transaction_read_only",
            Purpose::Looks => "SELECT pg_catalog.pg_is_in_recovery()",
        };
        match link::Link::ask(self, question).await {
            Ok(rows) => Ok(rows.iter().any(is_on)),
            Err(Asked::Failed(failure)) => Err(explain(servers, &self.name, &self.refusal, &failure)),
            Err(Asked::Unreplicated | Asked::Malformed) => Err(common::malformed(&self.name, "PostgreSQL")),
        }
    }
}

/// Returns `true` if a server takes no writes, by its own statements at login; `None` if it did not say enough, such as
/// servers before version 14 and poolers.
fn said_standby(in_hot_standby: Option<bool>, read_only: Option<bool>) -> Option<bool> {
    match (in_hot_standby, read_only) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        (None, _) | (_, None) => None,
    }
}

/// Returns the rows of an answer; `None` if one of them is not text.
fn rows(messages: &[SimpleQueryMessage]) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let field = |index: usize| row.try_get(index).ok().map(|field| field.map(str::to_owned));
            rows.push((0..row.len()).map(field).collect::<Option<Row>>()?);
        }
    }
    Some(rows)
}

/// Asks a server for TLS. Exactly one byte of its answer is read before the handshake, so that nothing injected before
/// it is trusted after it.
async fn encrypted(mut wire: Wire, name: &str, address: &Address, tls: &Tls) -> Result<Wire, Error> {
    let mut answer = [0];
    let agreed = async {
        wire.write_all(&TLS_REQUEST).await?;
        wire.flush().await?;
        wire.read_exact(&mut answer).await
    };
    agreed.await.map_err(|error| common::ended_before_tls(&name, &error))?;
    match answer {
        [b'S'] => wire.secure(&name, address, tls).await,
        [answer] => Err(errors::no_tls(&name, answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_takes_writes_where_it_says_so_twice() {
        for (in_hot_standby, read_only, expected) in [
            (Some(false), Some(false), Some(false)),
            (Some(true), Some(false), Some(true)),
            (Some(false), Some(true), Some(true)),
            (None, Some(true), Some(true)),
            (Some(true), None, Some(true)),
            (None, Some(false), None),
            (Some(false), None, None),
            (None, None, None),
        ] {
            assert_eq!(said_standby(in_hot_standby, read_only), expected, "{in_hot_standby:?} {read_only:?}");
        }
    }
}
