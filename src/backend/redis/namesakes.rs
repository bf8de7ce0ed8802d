/*!
Names with several addresses. These may all belong to one server, to a master and its replicas, or to independent
servers. In the last case, each client would lock on the server that it happens to reach, without excluding others.

The check runs on a new connection, if the name has several addresses and the last check was not of the same address. It
waits only for addresses that answer about as fast as the one in use: a dead address must not delay anyone.
*/

use std::net::SocketAddr;
use std::time::Duration;

use ::redis::{Cmd, Value};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::error::Error;
use crate::backend::redis::answers::text_of;
use crate::backend::redis::connection::{Connection, Outstanding};
use crate::backend::redis::errors;
use crate::clock::{Instant, before};

/// The time limit for the other addresses: a multiple of the time that our own connection took, but at least the second
/// value.
const TIMES: u32 = 4;
const AT_LEAST: Duration = Duration::from_millis(10);
/// The replication id of a server that had no earlier master.
const NO_MASTER: &str = "0000000000000000000000000000000000000000";

/// The ids that distinguish a server from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Identity {
    /// The id of the process, new at each start.
    run: String,
    /// The ids of the data, which a master and its replicas share: the present one, and that before the last failover.
    data: Vec<String>,
}

impl Identity {
    /// Reads the answers to [`questions`]; `None` if they have no ids.
    fn read(server: &Value, replication: &Value) -> Option<Self> {
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(|value| value.trim().to_owned())
        };
        let (server, replication) = (text_of(server)?, text_of(replication)?);
        let data = ["master_replid", "master_replid2"].iter().filter_map(|name| field(replication, name));
        let data: Vec<String> = data.filter(|id| id != NO_MASTER && !id.is_empty()).collect();
        (!data.is_empty()).then_some(())?;
        Some(Self { run: field(server, "run_id")?, data })
    }

    /// Returns `true` if both are the same server or have the same data.
    fn is_related(&self, other: &Self) -> bool {
        self.run == other.run || self.data.iter().any(|id| other.data.contains(id))
    }
}

fn questions() -> [Cmd; 2] {
    ["server", "replication"].map(|section| {
        let mut info = ::redis::cmd("INFO");
        info.arg(section);
        info
    })
}

async fn identity(connection: &mut Connection) -> Option<Identity> {
    let [server, replication] = questions();
    let (server, replication) = connection.ask_also(&server, &[replication], Outstanding::Request).await.ok()?;
    Identity::read(&server, replication.first()?)
}

/// The server behind a name, as the last check found it.
#[derive(Debug, Default)]
pub(super) struct Namesakes {
    home: Option<SocketAddr>,
    identity: Option<Identity>,
}

impl Namesakes {
    /// Checks where a new `connection`, made in the time `took`, leads. Fails permanently if another address of the
    /// same name leads to an independent server, and temporarily if the connection leads to another server than before.
    /// Ignores addresses that do not answer in time. Waits for this server's answer without a limit.
    pub(super) async fn look(&mut self, connection: &mut Connection, took: Duration) -> Result<(), Error> {
        let ways = connection.ways();
        if ways.others.is_empty() || self.home.is_some() && self.home == ways.taken {
            return Ok(());
        }
        let server = connection.server().clone();
        let ours = match identity(connection).await {
            Some(ours) => ours,
            None if self.identity.is_none() => return Ok(()),
            // Without its identity, it may be another server than before.
            None => return Err(connection.silence()),
        };
        let limit = Instant::now() + AT_LEAST.max(took * TIMES);
        let mut asking: FuturesUnordered<_> =
            ways.others.into_iter().map(|address| ask(Connection::at(server.clone(), address), address)).collect();
        let mut is_home = self.home.is_none();
        while let Ok(Some(answer)) = before(limit, asking.next()).await {
            let Some((address, other)) = answer else { continue };
            if !other.is_related(&ours) {
                return Err(errors::several_servers(&server, address));
            }
            is_home |= self.home == Some(address);
        }
        if !is_home && self.identity.as_ref().is_some_and(|before| !before.is_related(&ours)) {
            return Err(errors::another_server(&server));
        }
        (self.home, self.identity) = (ways.taken, Some(ours));
        Ok(())
    }
}

async fn ask(mut connection: Connection, address: SocketAddr) -> Option<(SocketAddr, Identity)> {
    connection.connect().await.ok()?;
    Some((address, identity(&mut connection).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(run: &str, replid: &str, before: &str) -> Option<Identity> {
        let text = |text: String| Value::BulkString(text.into_bytes());
        let server = text(format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{run}\r\ntcp_port:6379\r\n"));
        let replication =
            text(format!("# Replication\r\nrole:master\r\nmaster_replid:{replid}\r\nmaster_replid2:{before}\r\n"));
        Identity::read(&server, &replication)
    }

    #[test]
    fn servers_are_related_that_are_one_or_share_their_data() {
        let master = server("r1", "d1", NO_MASTER).expect("whole");
        for (other, related) in [
            (server("r1", "d1", NO_MASTER), true),
            // A replica; one that was made the master; a former master that has become its replica.
            (server("r2", "d1", NO_MASTER), true),
            (server("r2", "d2", "d1"), true),
            // One that has no earlier master either, and one that had another.
            (server("r2", "d2", NO_MASTER), false),
            (server("r2", "d2", "d3"), false),
        ] {
            let other = other.expect("whole");
            assert_eq!((master.is_related(&other), other.is_related(&master)), (related, related), "{other:?}");
        }
    }

    #[test]
    fn a_server_that_does_not_say_who_it_is_counts_for_nothing() {
        assert_eq!(Identity::read(&Value::Nil, &Value::Nil), None);
        let text = Value::BulkString(b"run_id:r1\r\n".to_vec());
        assert_eq!(Identity::read(&text, &Value::BulkString(Vec::new())), None);
        assert_eq!(Identity::read(&Value::BulkString(Vec::new()), &text), None);
    }
}
