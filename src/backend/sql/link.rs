/*!
The common part of connections to one server that takes writes: finding the server, and the possible outcomes of a
request.
*/

use std::time::Duration;

use crate::backend::error::{Error, ErrorKind, reasons};
use crate::backend::net::bounded::Allowance;
use crate::backend::net::location::Location;
use crate::backend::net::race::{Pace, race};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::Address;
use crate::backend::sql::answers::{Look, Row};
use crate::backend::sql::table::{Table, Tables};
use crate::clock::{Instant, sleep_until};

/// The time for which one server is tried alone before the next one is tried as well.
const SHARE: Duration = Duration::from_millis(700);

/// The servers, and the credentials for them.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// Their addresses; the path is the database.
    pub location: Location,
    /// The role under which dlock logs in.
    pub user: String,
    /// The name of the database.
    pub database: String,
    /// The TLS settings, if TLS is requested.
    pub tls: Option<Tls>,
    /// The authentication method that they must use; `None` for any sound one.
    pub auth: Option<Auth>,
    /// The purpose of the connection.
    pub purpose: Purpose,
}

/// The only authentication method that a server may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// SCRAM-SHA-256, by which the server also proves that it knows the password.
    Scram,
}

impl Auth {
    /// Reads the value of `auth` in a URL.
    pub(crate) fn read(value: &str) -> Result<Self, String> {
        match value {
            "scram" | "scram-sha-256" => Ok(Self::Scram),
            _ => Err("auth is scram: SCRAM-SHA-256 and nothing else".to_owned()),
        }
    }
}

/// The purpose of a connection, which decides what the server must be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To take locks: the server must take writes.
    Locks,
    /// To let processes meet: the server must take writes, and its answers may be about many parties.
    Meetings,
    /// To look at locks: the server must be the one that takes writes, but the role may be read-only.
    Looks,
}

impl Purpose {
    /// Returns how much a server may send in answer to a request.
    pub(crate) fn allowance(self) -> Allowance {
        let allowance = Allowance::default();
        if self != Self::Locks {
            allowance.for_looks();
        }
        allowance
    }
}

impl Servers {
    /// Returns `true` if the traffic to them is plain text over a network.
    pub(crate) fn is_plain(&self) -> bool {
        let is_tcp = self.location.addresses.iter().any(|address| matches!(address, Address::Tcp(..)));
        self.tls.is_none() && is_tcp
    }

    /// Returns `true` if nobody else can read the traffic to the server at `address`.
    pub(crate) fn is_private(&self, address: &Address) -> bool {
        self.tls.is_some() || matches!(address, Address::Unix(_))
    }

    /// Returns the name of one of them, as a URL has it.
    pub(crate) fn one(&self, address: &Address) -> String {
        let addresses = vec![address.clone()];
        match address {
            Address::Tcp(..) => Location { addresses, ..self.location.clone() }.to_string(),
            Address::Unix(_) => Location { addresses, path: String::new(), ..self.location.clone() }.to_string(),
        }
    }
}

/// The properties of a server's error that decide what to do next.
pub(crate) trait Said {
    /// Returns `true` if a table or its schema is missing.
    fn is_missing_table(&self) -> bool;
    /// Returns `true` if another dlock has made the table at the same time.
    fn is_made_by_others(&self) -> bool;
    /// Returns `true` if the role may not or cannot make a table.
    fn forbids_tables(&self) -> bool;
    /// Returns `true` if the transaction lost against another one, and is to be repeated at once.
    fn is_repeated(&self) -> bool;
    /// Returns `true` if the server does not take writes, so that another one must be looked for.
    fn is_standby(&self) -> bool;
    /// Returns `true` if the connection is over.
    fn is_fatal(&self) -> bool;
}

/// A request or a connection that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure<S> {
    /// The server answered with an error.
    Said(S),
    /// There was no answer, or a malformed one; in the words of the library.
    Broke(String),
}

/// The reason why there is no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked<S> {
    /// The request failed.
    Failed(Failure<S>),
    /// The request was carried out without the replicas.
    Unreplicated,
    /// The answer is malformed.
    Malformed,
}

/// A connection to one server.
#[async_trait::async_trait(?Send)]
pub(crate) trait Link: std::fmt::Debug + Sized {
    /// The errors of its servers.
    type Said: Said;
    /// The name of the product, for users.
    const PRODUCT: &'static str;

    /// Connects to one server and logs in. Fails if it takes no writes, which a single server (not `several`) may
    /// report only later, and if it is already known that the tables cannot be relied on.
    async fn open(servers: &Servers, table: &Table, address: &Address, several: bool) -> Result<Self, Error>;

    /// Returns the server's name in messages.
    fn name(&self) -> &str;

    /// Returns `true` if requests can be sent, as far as is known.
    fn is_open(&self) -> bool;

    /// Returns statements to precede a request that uses these tables. They fail, as for a missing table, if a table is
    /// not as expected; their rows begin with `guard`. Empty if that is known once there is a connection.
    fn guard(_table: &Table, _tables: Tables) -> String {
        String::new()
    }

    /// Returns the query for problems with these tables of `table`: see [`Found`](crate::backend::sql::found::Found).
    fn place(_table: &Table, _tables: Tables) -> String {
        String::new()
    }

    /// Closes the connection so that nothing that is still on its way arrives.
    fn forget(self);

    /// Sends one request, and waits for the whole answer to it.
    async fn ask(&mut self, text: &str) -> Result<Vec<Row>, Asked<Self::Said>>;

    /// Describes a failure.
    fn explain(&self, servers: &Servers, failure: &Failure<Self::Said>) -> Error;

    /// Discards notifications that have arrived: the next request sees what they were about.
    fn forget_notifications(&self) {}

    /// Returns `true` if the server notifies us here, or never does.
    fn is_listening(&self) -> bool {
        true
    }

    /// Notes that the server notifies us on this connection from now on.
    fn listens(&mut self) {}

    /// Returns `true` if the server's answer shows that notifications do not arrive here.
    fn is_poll_only(&self, _look: &Look) -> bool {
        false
    }

    /// Waits for a notification until `until`. Fails if the connection has ended, with `None` if it did so silently.
    async fn notified(&mut self, until: Instant) -> Result<(), Option<Failure<Self::Said>>> {
        sleep_until(until).await;
        Ok(())
    }
}

/// Connects to the first of the servers that takes writes.
pub(crate) async fn open<L: Link>(servers: &Servers, table: &Table) -> Result<L, Error> {
    let addresses = servers.location.addresses.iter();
    let several = servers.location.addresses.len() > 1;
    let one = |address| L::open(servers, table, address, several);
    match race(addresses, Pace::Eager(SHARE), one, |_| false).await {
        Ok(link) => Ok(link),
        Err(mut errors) if errors.len() == 1 => Err(errors.remove(0)),
        Err(errors) => {
            let kind = ErrorKind::of_several(errors.iter().map(|error| error.kind), 1);
            Err(Error::new(kind, reasons(&errors)))
        }
    }
}
