/*!
One connection to a server that takes writes, as far as all databases have it in common: finding the server, and what a
request can come to.
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

/// How long one server is tried alone before the next one is tried as well.
const SHARE: Duration = Duration::from_millis(700);

/// The servers, and the credentials for them.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// Where they are; the path is the database.
    pub location: Location,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// How to speak TLS, where it is asked for.
    pub tls: Option<Tls>,
    /// How they must let us prove who we are; none for any way that is sound.
    pub auth: Option<Auth>,
    /// What they are asked.
    pub purpose: Purpose,
}

/// The one way in which a server must let us prove who we are.
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

/// What a server is asked, and so what it must be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To take locks: it must take writes.
    Locks,
    /// To let processes meet: it must take writes, and may tell of many.
    Meetings,
    /// What there is: it must be the one that takes writes, but the role may be one that can only read.
    Looks,
}

impl Purpose {
    /// How much a server may send in answer to a request.
    pub(crate) fn allowance(self) -> Allowance {
        let allowance = Allowance::default();
        if self != Self::Locks {
            allowance.for_looks();
        }
        allowance
    }
}

impl Servers {
    /// Whether what travels to them is plain text over a network.
    pub(crate) fn is_plain(&self) -> bool {
        let is_tcp = self.location.addresses.iter().any(|address| matches!(address, Address::Tcp(..)));
        self.tls.is_none() && is_tcp
    }

    /// Whether nobody else reads what travels to the one at `address`.
    pub(crate) fn is_private(&self, address: &Address) -> bool {
        self.tls.is_some() || matches!(address, Address::Unix(_))
    }

    /// One of them as a URL names it.
    pub(crate) fn one(&self, address: &Address) -> String {
        let addresses = vec![address.clone()];
        match address {
            Address::Tcp(..) => Location { addresses, ..self.location.clone() }.to_string(),
            Address::Unix(_) => Location { addresses, path: String::new(), ..self.location.clone() }.to_string(),
        }
    }
}

/// What decides what comes after an error that a server answered.
pub(crate) trait Said {
    /// Whether a table or its schema is missing.
    fn is_missing_table(&self) -> bool;
    /// Whether another dlock has made the table at the same time.
    fn is_made_by_others(&self) -> bool;
    /// Whether the role may not make a table, or cannot.
    fn forbids_tables(&self) -> bool;
    /// Whether the transaction lost against another one, and is repeated at once.
    fn is_repeated(&self) -> bool;
    /// Whether the server does not take writes, so that another one must be looked for.
    fn is_standby(&self) -> bool;
    /// Whether the connection is over.
    fn is_fatal(&self) -> bool;
}

/// A request or a connection that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure<S> {
    /// The server answered with an error.
    Said(S),
    /// There was no answer, or none that makes sense: the library's words.
    Broke(String),
}

/// Why there is no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked<S> {
    /// The request failed.
    Failed(Failure<S>),
    /// It was done without the replicas.
    Unreplicated,
    /// The answer makes no sense.
    Malformed,
}

/// A connection.
#[async_trait::async_trait(?Send)]
pub(crate) trait Link: std::fmt::Debug + Sized {
    /// The errors of its servers.
    type Said: Said;
    /// The name of the product, for users.
    const PRODUCT: &'static str;

    /// Connects to one server and logs in; fails where it takes no writes, as far as one of `several` is known to, and where it
    /// is known already that the tables cannot be relied on.
    async fn open(servers: &Servers, table: &Table, address: &Address, several: bool) -> Result<Self, Error>;

    /// The server's name in messages.
    fn name(&self) -> &str;

    /// Whether requests can be sent on it, as far as is known.
    fn is_open(&self) -> bool;

    /// What goes in front of a request that uses these tables of `table`, and fails as for a missing table where they are not what
    /// the request takes them for; the rows that it answers begin with `guard`. Empty where that is known once there is a connection.
    fn guard(_table: &Table, _tables: Tables) -> String {
        String::new()
    }

    /// Asks what is wrong with these tables of `table`: see [`Found`](crate::backend::sql::found::Found).
    fn place(_table: &Table, _tables: Tables) -> String {
        String::new()
    }

    /// Lets go of it so that nothing that is still on its way arrives.
    fn forget(self);

    /// Sends one request, and waits for the whole answer to it.
    async fn ask(&mut self, text: &str) -> Result<Vec<Row>, Asked<Self::Said>>;

    /// Puts a failure into words.
    fn explain(&self, servers: &Servers, failure: &Failure<Self::Said>) -> Error;

    /// Forgets notifications that have come: what is asked next sees what they were about.
    fn forget_notifications(&self) {}

    /// Whether the server notifies us here, or never does.
    fn is_listening(&self) -> bool {
        true
    }

    /// Notes that the server notifies us on this connection from now on.
    fn listens(&mut self) {}

    /// Whether notifications would not arrive here, by what the server answered.
    fn is_deaf(&self, _look: &Look) -> bool {
        false
    }

    /// Waits for a notification, but not beyond `until`. Fails where the connection has ended; none where it did so silently.
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
