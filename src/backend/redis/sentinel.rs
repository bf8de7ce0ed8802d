/*!
Finds the master through redis sentinels, and keeps a connection to it.

The master is the one that a majority of the sentinels in the URL names: a single sentinel that lies, or has missed a
failover, decides nothing. A grant or a renewal counts only if the sentinels, asked at the same time, still name the
server that gave it: a master that is cut off from them keeps answering until it notices.
*/

use std::net::{IpAddr, SocketAddr};

use ::redis::{Cmd, Value};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::location::{Location, Login};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::Address;
use crate::backend::redis::answers::text_of;
use crate::backend::redis::connection::{Connection, Outstanding, Server};
use crate::backend::redis::damage::Damage;
use crate::backend::redis::errors;
use crate::backend::redis::namesakes::Namesakes;
use crate::backend::redis::rights::{Rights, SENTINEL};
use crate::clock::Instant;

/// The sentinels of one master.
#[derive(Debug)]
pub(super) struct Sentinels {
    /// The name under which they know the master.
    name: String,
    /// Their addresses, as given in the URL.
    location: Location,
    database: u32,
    tls: Option<Tls>,
    /// The rights that the user needs at the master.
    rights: Rights,
    connections: Vec<Connection>,
}

/// The statement of one sentinel about the master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    master: Address,
    /// `true` if the sentinels consider it dead, or a failover is in progress.
    leaving: bool,
}

/// The result of the sentinels' answers so far.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Agreement {
    /// Enough sentinels name this master.
    On(Address),
    /// Not decided yet.
    Open,
    /// Too few sentinels can still name the same one.
    None,
}

/// Decides whether `needed` sentinels agree on a master, if these were `named` and this many answers are `pending`.
fn agreement(named: &[Address], pending: usize, needed: usize) -> Agreement {
    let votes = |master: &Address| named.iter().filter(|other| *other == master).count();
    match named.iter().max_by_key(|master| votes(master)) {
        Some(master) if votes(master) >= needed => Agreement::On(master.clone()),
        most if most.map_or(0, votes) + pending >= needed => Agreement::Open,
        _ => Agreement::None,
    }
}

/// Returns `true` if `master` is an address that means a different server on each host.
fn is_local(master: &Address) -> bool {
    let Address::Tcp(host, _) = master else { return true };
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.to_canonical().is_loopback() || address.to_canonical().is_unspecified();
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Returns the sentinel at `address`.
fn watcher(address: &Address, login: &Login, tls: Option<Tls>) -> Server {
    Server::new("sentinel", address, login, 0, tls).needing(Rights::without_keys(SENTINEL))
}

impl Sentinels {
    /// Returns the sentinels at `location`, which watch a master called `name`. There the user needs these `rights`.
    pub(super) fn new(location: Location, name: String, database: u32, tls: Option<Tls>, rights: Rights) -> Self {
        // Many sentinels have no password although their servers require one.
        let connections = location
            .addresses
            .iter()
            .map(|address| Connection::new(watcher(address, &Login::default(), tls.clone())))
            .collect();
        Self { name, location, database, tls, rights, connections }
    }

    /// Returns the server at `address`.
    fn server(&self, address: &Address) -> Server {
        let Location { scheme, login, .. } = &self.location;
        Server::new(scheme, address, login, self.database, self.tls.clone()).needing(self.rights.clone())
    }

    /// Returns the master that a majority of the sentinels names.
    async fn master(&mut self) -> Result<Address, Error> {
        let all = self.connections.len();
        let needed = all / 2 + 1;
        let (name, location, tls) = (&self.name, &self.location, &self.tls);
        let mut asking: FuturesUnordered<_> = self
            .connections
            .iter_mut()
            .zip(&location.addresses)
            .map(|(connection, address)| async move {
                let said = ask(connection, name).await;
                match said {
                    Err(error) if error.kind == ErrorKind::Denied && location.login.password.is_some() => {
                        *connection = Connection::new(watcher(address, &location.login, tls.clone()));
                        ask(connection, name).await
                    }
                    other => other,
                }
            })
            .collect();
        let (mut named, mut errors, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            match agreement(&named, asking.len(), needed) {
                Agreement::On(master) => return Ok(master),
                Agreement::None => break,
                Agreement::Open => {}
            }
            match asking.next().await {
                // A sentinel has one vote, under however many names.
                Some(Ok((Some(peer), _))) if peers.contains(&peer) => errors.push(errors::twin_sentinels(peer)),
                Some(Ok((peer, master))) => {
                    peers.extend(peer);
                    named.push(master);
                }
                Some(Err(error)) => errors.push(error),
                None => break,
            }
        }
        drop(asking);
        if named.len() < needed {
            return Err(errors::too_few_sentinels(name, &errors, all - needed + 1));
        }
        Err(errors::no_agreement(name, &named))
    }
}

/// Asks one sentinel for the master called `name`. Returns the address of the sentinel, and that of the master.
async fn ask(connection: &mut Connection, name: &str) -> Result<(Option<SocketAddr>, Address), Error> {
    connection.connect().await?;
    let peer = connection.ways().taken.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
    let is_here = peer.is_none_or(|peer| is_local(&Address::Tcp(peer.ip().to_string(), 0)));
    let mut command = ::redis::cmd("SENTINEL");
    command.arg("MASTER").arg(name);
    let answer = connection.ask(&command, Outstanding::Request).await?;
    let Value::Array(fields) = &answer else { return Err(connection.malformed()) };
    let statement = read(fields).ok_or_else(|| connection.malformed())?;
    if statement.leaving {
        return Err(errors::master_leaves(&statement.master, name));
    }
    if is_local(&statement.master) && !is_here {
        return Err(errors::local_master(connection.server(), &statement.master, name));
    }
    Ok((peer, statement.master))
}

/// Reads a statement from alternating names and values; `None` if a field is missing or invalid.
fn read(fields: &[Value]) -> Option<Statement> {
    let field = |name: &str| {
        fields.chunks_exact(2).find_map(|pair| (text_of(&pair[0])? == name).then(|| text_of(&pair[1])).flatten())
    };
    let port = field("port")?;
    // Numbers as redis writes them: `parse` would also read "+1".
    let port = port.parse().ok().filter(|number: &u16| number.to_string() == port)?;
    let master = Address::Tcp(field("ip")?.to_owned(), port);
    let leaving = field("flags")?.split(',').any(|flag| flag == "o_down" || flag == "failover_in_progress");
    Some(Statement { master, leaving })
}

/// The connection to the server that keeps the locks: the one in the URL, or the sentinels' master.
#[derive(Debug)]
pub(super) struct Master {
    connection: Connection,
    address: Option<Address>,
    sentinels: Option<Sentinels>,
    /// The check of the addresses of the server's name; `None` for masters, which sentinels name by address.
    namesakes: Option<Namesakes>,
}

impl Master {
    /// Returns a connection to this server; not made yet.
    pub(super) fn named(server: Server) -> Self {
        Self {
            connection: Connection::new(server),
            address: None,
            sentinels: None,
            namesakes: Some(Namesakes::default()),
        }
    }

    /// Returns a connection to the master that the sentinels name; not made yet.
    pub(super) fn of(sentinels: Sentinels) -> Self {
        // A placeholder: the sentinels are asked before anything connects.
        let connection = Connection::new(sentinels.server(&sentinels.location.addresses[0]));
        Self { connection, address: None, sentinels: Some(sentinels), namesakes: None }
    }

    /// Returns the server that keeps the locks, as far as it is known.
    pub(super) fn server(&self) -> &Server {
        self.connection.server()
    }

    /// Sets the rights that the user needs there from now on, for error messages.
    pub(super) fn need(&mut self, rights: &Rights) {
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.rights = rights.clone();
        }
        self.connection.need(rights);
    }

    /// Makes sure that there is a connection to the master without an unanswered request.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        if self.connection.is_ready() {
            return Ok(());
        }
        self.find().await?;
        let begun = Instant::now();
        self.connection.connect().await?;
        if let Some(namesakes) = &mut self.namesakes
            && let Err(error) = namesakes.look(&mut self.connection, Instant::now().since(begun)).await
        {
            self.connection.hang_up();
            return Err(error);
        }
        Ok(())
    }

    /// Makes sure that there is a connection to the master for a request that must be executed last, see
    /// [`Connection::connect_in_order`].
    pub(super) async fn connect_in_order(&mut self) -> Result<(), Error> {
        if !self.connection.is_there() {
            self.find().await?;
        }
        self.connection.connect_in_order().await
    }

    async fn find(&mut self) -> Result<(), Error> {
        if let Some(sentinels) = &mut self.sentinels {
            let master = sentinels.master().await?;
            if self.address.as_ref() != Some(&master) {
                self.connection = Connection::new(sentinels.server(&master));
                self.address = Some(master);
            }
        }
        Ok(())
    }

    /// Sends a request that does not depend on which server is the master, such as a wait or a release.
    pub(super) async fn ask(&mut self, command: &Cmd, outstanding: Outstanding) -> Result<Value, Error> {
        self.connection.ask(command, outstanding).await
    }

    /// Sends a request whose answer counts only if the server is still the master, and further requests with it, see
    /// [`Connection::ask_also`].
    pub(super) async fn ask_master(&mut self, command: &Cmd, also: &[Cmd]) -> Result<(Value, Vec<Value>), Error> {
        let asked = self.connection.ask_also(command, also, Outstanding::Request);
        let Some(sentinels) = &mut self.sentinels else { return asked.await };
        let (master, answer) = tokio::join!(sentinels.master(), asked);
        let (master, answer) = (master?, answer?);
        self.given_by(master).map(|()| answer)
    }

    /// Sends requests whose answers count only if the server is still the master, see [`Connection::ask_all`].
    pub(super) async fn ask_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
        let asked = self.connection.ask_all(commands);
        let Some(sentinels) = &mut self.sentinels else { return asked.await };
        let (master, answers) = tokio::join!(sentinels.master(), asked);
        let (master, answers) = (master?, answers?);
        self.given_by(master).map(|()| answers)
    }

    /// Fails if an answer was not given by this master; the next connection then leads to it.
    fn given_by(&mut self, master: Address) -> Result<(), Error> {
        let Some(sentinels) = self.sentinels.as_ref().filter(|_| self.address.as_ref() != Some(&master)) else {
            return Ok(());
        };
        let error = errors::another_master(&master, &sentinels.name);
        self.connection = Connection::new(sentinels.server(&master));
        self.address = Some(master);
        Err(error)
    }

    /// Returns the error for a malformed answer.
    pub(super) fn malformed(&self) -> Error {
        self.connection.malformed()
    }

    /// Returns the error for an unusable side key.
    pub(super) fn damaged(&self, damage: &Damage) -> Error {
        self.connection.damaged(damage)
    }

    /// Returns the error for a server that does not answer.
    pub(super) fn silence(&self) -> Error {
        self.connection.silence()
    }
}

#[cfg(test)]
mod tests;
