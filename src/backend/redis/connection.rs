/*!
The connection to one server. It is replaced when it breaks or an answer is overdue. Its errors are in dlock's words.
*/

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, RedisResult, Value};
use tokio::task::JoinHandle;

use crate::backend::error::Error;
use crate::backend::net::bounded::{Allowance, Bounded};
use crate::backend::net::location::{Location, Login, nested_hint};
use crate::backend::net::tls::{Tls, refused};
use crate::backend::net::wire::{Address, Choice, Refusal, Ways, Wire, forget};
use crate::backend::redis::damage::Damage;
use crate::backend::redis::errors::{self, About};
use crate::backend::redis::rights::Rights;
use crate::backend::redis::script::Known;

/// One server, and the credentials for it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    address: Address,
    login: Login,
    database: u32,
    tls: Option<Tls>,
    /// Its name in messages.
    name: String,
    /// The rights that the user needs there.
    rights: Rights,
}

impl Server {
    /// Returns the server at `address`; `scheme` is only for messages.
    pub(crate) fn new(scheme: &'static str, address: &Address, login: &Login, database: u32, tls: Option<Tls>) -> Self {
        let location = Location { scheme, login: login.clone(), addresses: vec![address.clone()], path: String::new() };
        let name = location.with_database(database);
        Self { address: address.clone(), login: login.clone(), database, tls, name, rights: Rights::default() }
    }

    /// Returns this server with the rights that the user needs there, for error messages.
    pub(in crate::backend) fn needing(self, rights: Rights) -> Self {
        let rights = if self.database == 0 { rights } else { rights.and("+select") };
        Self { rights, ..self }
    }

    /// Returns its address.
    pub(in crate::backend) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns our credentials for it.
    pub(in crate::backend) fn login(&self) -> &Login {
        &self.login
    }

    /// Returns its TLS settings; `None` if TLS is not used.
    pub(in crate::backend) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A connection to `server`, made or not.
#[derive(Debug)]
pub(in crate::backend) struct Connection {
    server: Server,
    /// The choice among the server's addresses: once a connection was made, its address is preferred.
    choice: Choice,
    link: Option<Link>,
    /// `true` once a request was answered: a redis server is there.
    has_answered: bool,
}

#[derive(Debug)]
struct Link {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
    /// A duplicate descriptor of its socket, for [`forget`].
    socket: OwnedFd,
    ways: Ways,
    refusal: Refusal,
    allowance: Allowance,
    outstanding: Outstanding,
    known: Known,
}

/// The last unanswered request on a connection, which decides what may follow on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Outstanding {
    /// Every request has been answered.
    Nothing,
    /// A request: the server executes the next one right after it.
    Request,
    /// A blocking wait or a release: the next request may have to wait for long.
    Blocker,
}

/// Sends the credentials for `server` and selects its database, in one round trip.
async fn log_in(server: &Server, connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let Server { login, database, .. } = server;
    let select = (*database != 0).then(|| ::redis::cmd("SELECT").arg(database).take());
    // A user without a password is logged in with an empty one, not as the default user.
    let none = login.user.as_ref().map(|_| String::new());
    let Some(password) = login.password.as_ref().or(none.as_ref()) else {
        return send(connection.clone(), select.as_ref()).await;
    };
    let auth = ::redis::cmd("AUTH").arg(login.user.as_ref()).arg(password).take();
    let sent = tokio::join!(send(connection.clone(), Some(&auth)), send(connection.clone(), select.as_ref()));
    match sent {
        // Servers before version 6 have no users.
        (Err(error), _) if login.user.is_some() && error.to_string().contains("wrong number of arguments") => {
            let auth = ::redis::cmd("AUTH").arg(password).take();
            send(connection.clone(), Some(&auth)).await?;
            send(connection.clone(), select.as_ref()).await
        }
        (authenticated, selected) => authenticated.and(selected),
    }
}

/// Sends `command`, if there is one; fails if the server answers with an error.
async fn send(mut connection: MultiplexedConnection, command: Option<&Cmd>) -> RedisResult<()> {
    match command {
        Some(command) => connection.send_packed_command(command).await.and_then(Value::extract_error).map(drop),
        None => Ok(()),
    }
}

impl Link {
    /// Sends one request and waits for its answer. A script that the server has run before on this connection is called
    /// by its digest; if the server refuses that, for whatever reason, this script and all later ones are sent as text.
    async fn run(&mut self, command: &Cmd) -> RedisResult<Value> {
        if let Some(call) = self.known.call(command) {
            match self.connection.send_packed_command(&call).await.and_then(Value::extract_error) {
                Err(error) if error.code().is_some() => self.known.refused(),
                answered => return answered,
            }
        }
        let answer = self.connection.send_packed_command(command).await.and_then(Value::extract_error)?;
        self.known.learn(command);
        Ok(answer)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Returns a connection to `server`; not connected yet.
    pub(in crate::backend) fn new(server: Server) -> Self {
        Self { server, choice: Choice::Any, link: None, has_answered: false }
    }

    /// Returns a connection to `server` that uses only this address of its name; not connected yet.
    pub(super) fn at(server: Server, address: SocketAddr) -> Self {
        Self { server, choice: Choice::Only(address), link: None, has_answered: false }
    }

    /// Returns the server at the other end.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Sets the rights that the user needs there from now on, for error messages.
    pub(in crate::backend) fn need(&mut self, rights: &Rights) {
        self.server = self.server.clone().needing(rights.clone());
    }

    /// Returns the address that the connection uses, and the other addresses of the server's name.
    pub(super) fn ways(&self) -> Ways {
        self.link.as_ref().map(|link| link.ways.clone()).unwrap_or_default()
    }

    /// Closes the connection: the next request needs a new one.
    pub(super) fn hang_up(&mut self) {
        self.link = None;
    }

    /// Returns `true` if there is a connection without an unanswered request.
    pub(in crate::backend) fn is_ready(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.outstanding == Outstanding::Nothing)
    }

    /// Returns `true` if there is a connection without an [`Outstanding::Blocker`], which would delay the next request.
    pub(in crate::backend) fn is_there(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.outstanding != Outstanding::Blocker)
    }

    /// Makes sure that there is a connection without an unanswered request.
    pub(in crate::backend) async fn connect(&mut self) -> Result<(), Error> {
        if !self.is_ready() {
            if let Some(link) = self.link.take() {
                forget(&link.socket);
            }
            self.link = Some(self.open().await?);
        }
        Ok(())
    }

    /// Makes sure that there is a connection for a request that must be executed last. After an unanswered request the
    /// same connection keeps the order, however late the server is; a connection with a blocking wait is replaced.
    pub(in crate::backend) async fn connect_in_order(&mut self) -> Result<(), Error> {
        if !self.is_there() {
            self.link = None;
            self.link = Some(self.open().await?);
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<Link, Error> {
        let server = &self.server;
        let wire = Wire::dial_to(self.choice, server, &server.address, server.tls.as_ref()).await?;
        let ways = wire.ways().clone();
        if let (Choice::Any, Some(taken)) = (self.choice, ways.taken) {
            self.choice = Choice::Rather(taken);
        }
        let socket = wire.socket().map_err(|error| errors::no_socket(server, &error))?;
        let refusal = wire.refusal();
        // Without credentials and database: the library would drop the text of the server's objection to them.
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let allowance = Allowance::default();
        let stream = Bounded::new(wire, allowance.clone());
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| self.explain(&error, &refusal))?;
        let driver = tokio::spawn(driver);
        let outstanding = Outstanding::Nothing;
        let known = Known::default();
        let mut link = Link { connection, driver, socket, ways, refusal, allowance, outstanding, known };
        log_in(server, &mut link.connection).await.map_err(|error| self.explain(&error, &link.refusal))?;
        Ok(link)
    }

    /// Sends one request and waits for its answer. If this future is dropped, the request counts as unanswered.
    pub(in crate::backend) async fn ask(&mut self, command: &Cmd, outstanding: Outstanding) -> Result<Value, Error> {
        self.ask_also(command, &[], outstanding).await.map(|(answer, _)| answer)
    }

    /// Sends one request, and further ones in the same round trip, and waits for all answers. An error is that of the
    /// first request; errors of the others are among their answers. If this future is dropped, the requests count as
    /// unanswered.
    pub(in crate::backend) async fn ask_also(
        &mut self,
        command: &Cmd,
        also: &[Cmd],
        outstanding: Outstanding,
    ) -> Result<(Value, Vec<Value>), Error> {
        let Some(link) = &mut self.link else {
            return Err(errors::no_connection(&self.server));
        };
        link.outstanding = outstanding;
        let further: Vec<_> = also
            .iter()
            .map(|command| {
                let mut connection = link.connection.clone();
                async move { connection.send_packed_command(command).await.unwrap_or(Value::Nil) }
            })
            .collect();
        // Sent separately, so that a failure of the others does not fail the first.
        let (answer, further) = tokio::join!(link.run(command), futures_util::future::join_all(further));
        let answer = answer.map(|answer| (answer, further));
        match answer {
            Ok(answers) => {
                link.outstanding = Outstanding::Nothing;
                self.has_answered = true;
                Ok(answers)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Sends the requests of a look in one round trip and in this order, and waits for all answers. An error is that of
    /// the first request that the server refuses; errors within a transaction are among its answers. If this future is
    /// dropped, the requests count as unanswered.
    pub(in crate::backend) async fn ask_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
        let Some(link) = &mut self.link else {
            return Err(errors::no_connection(&self.server));
        };
        link.outstanding = Outstanding::Request;
        link.allowance.for_looks();
        let mut pipeline = ::redis::pipe();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let answers = link.connection.send_packed_commands(&pipeline, 0, commands.len()).await;
        let whole = |answer: Value| match answer {
            Value::ServerError(error) => Err(RedisError::from(error)),
            answer => Ok(answer),
        };
        let answers: RedisResult<Vec<Value>> = answers.and_then(|answers| answers.into_iter().map(whole).collect());
        match answers {
            Ok(answers) => {
                link.outstanding = Outstanding::Nothing;
                self.has_answered = true;
                Ok(answers)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Records the `error` of a request, and explains it.
    fn failed(&mut self, error: &RedisError) -> Error {
        let refusal = self.link.as_ref().map(|link| link.refusal.clone()).unwrap_or_default();
        // The connection survives an error that the server answered, but no other. After a failover, the name of a
        // server that has become a replica may lead to another server.
        if error.code().is_some_and(|code| code != "READONLY") {
            if let Some(link) = &mut self.link {
                link.outstanding = Outstanding::Nothing;
            }
        } else {
            self.link = None;
        }
        self.explain(error, &refusal)
    }

    fn explain(&self, error: &RedisError, refusal: &Refusal) -> Error {
        let server = &self.server;
        if let Some(said) = refusal.said() {
            return refused(server, &said);
        }
        let about = About {
            name: server,
            has_password: server.login.password.is_some(),
            has_answered: self.has_answered,
            is_plain: server.tls.is_none() && matches!(server.address, Address::Tcp(..)),
            nested: nested_hint(),
            user: server.login.user.as_deref().unwrap_or("default"),
            rights: &server.rights,
        };
        errors::explain(error, about)
    }

    /// Returns the error for a malformed answer.
    pub(in crate::backend) fn malformed(&self) -> Error {
        errors::malformed(&self.server)
    }

    /// Returns the error for an unusable side key.
    pub(in crate::backend) fn damaged(&self, damage: &Damage) -> Error {
        errors::damaged(&self.server, damage)
    }

    /// Returns the error for a server that does not answer.
    pub(in crate::backend) fn silence(&self) -> Error {
        errors::silence(&self.server)
    }
}
