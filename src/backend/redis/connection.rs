/*!
The connection to one server: made anew where it broke or an answer is overdue, and its errors in words.
*/

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind, Value};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::super::{Error, Kind};
use super::stream::Bounded;

/// The port that redis listens on by default.
pub(crate) const DEFAULT_PORT: u16 = 6379;

/// One server, and who we are there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its name or address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// The number of the database.
    pub database: u32,
    /// The user, for a server with an access control list.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redis://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') { write!(f, "[{}]", self.host) } else { f.write_str(&self.host) }?;
        write!(f, ":{}", self.port)?;
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

/// Without the password, which must not reach a log by way of a debug print either.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

/// A connection to `server`, or the lack of one.
#[derive(Debug)]
pub(super) struct Connection {
    server: Server,
    link: Option<Link>,
}

#[derive(Debug)]
struct Link {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
    /// The same socket again, for [`Link::forget`].
    socket: OwnedFd,
    outstanding: Outstanding,
}

/// What may still be unanswered on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outstanding {
    Nothing,
    /// A request: what is sent after it is executed after it.
    Request,
    /// A blocking wait or a release: what is sent after it may wait for long.
    Blocker,
}

impl Link {
    /// Lets go of a connection whose last request is to be repeated on another: what the network has not delivered yet
    /// must not arrive later, when the lock has been given back and nobody is left to keep it.
    fn forget(self) {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        let _ = nix::sys::socket::setsockopt(&self.socket, nix::sys::socket::sockopt::Linger, &at_once);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Not connected yet.
    pub(super) fn new(server: Server) -> Self {
        Self { server, link: None }
    }

    /// Makes sure that there is a connection on which nothing is unanswered.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        if self.link.as_ref().is_none_or(|link| link.outstanding != Outstanding::Nothing) {
            if let Some(link) = self.link.take() {
                link.forget();
            }
            self.link = Some(self.open().await?);
        }
        Ok(())
    }

    /// Makes sure that there is a connection for what must be executed last. After an unanswered request the same one
    /// keeps the order, whenever the server gets to it; only behind a blocking wait there is no getting through.
    pub(super) async fn connect_in_order(&mut self) -> Result<(), Error> {
        if self.link.as_ref().is_none_or(|link| link.outstanding == Outstanding::Blocker) {
            self.link = None;
            self.link = Some(self.open().await?);
        }
        Ok(())
    }

    async fn open(&self) -> Result<Link, Error> {
        let server = &self.server;
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(Kind::Unreachable, format!("could not reach {server}: {error}; is it running there?"))
        };
        let address = (server.host.as_str(), server.port);
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        // Requests are small and wait for their answers: Nagle's algorithm only delays them.
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name().set_db(i64::from(server.database));
        if let Some(user) = &server.user {
            info = info.set_username(user);
        }
        if let Some(password) = &server.password {
            info = info.set_password(password);
        }
        let socket = stream.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, Bounded::new(stream), config)
            .await
            .map_err(|error| self.explain(&error))?;
        Ok(Link { connection, driver: tokio::spawn(driver), socket, outstanding: Outstanding::Nothing })
    }

    /// Sends one request and waits for its answer. When this future is dropped, what it sent stays noted.
    pub(super) async fn ask(&mut self, command: &Cmd, outstanding: Outstanding) -> Result<Value, Error> {
        let Some(link) = &mut self.link else {
            return Err(Error::unavailable(format!("there is no connection to {}", self.server)));
        };
        link.outstanding = outstanding;
        let answer = link.connection.send_packed_command(command).await.and_then(Value::extract_error);
        match answer {
            Ok(value) => {
                link.outstanding = Outstanding::Nothing;
                Ok(value)
            }
            Err(error) => {
                // A server's own "no" leaves the connection in order; anything else does not.
                if error.code().is_some() {
                    link.outstanding = Outstanding::Nothing;
                } else {
                    self.link = None;
                }
                Err(self.explain(&error))
            }
        }
    }

    fn explain(&self, error: &RedisError) -> Error {
        let server = &self.server;
        let text = crate::holder::shown(error.to_string().as_bytes()).to_string();
        let denied = matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm))
                || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
            // What a server that wants a password says to a request as large as a script.
            || text.contains("unauthenticated")
            // What a script says of a user who may not run its commands or use its keys.
            || text.contains("No permissions") || text.contains("user executing the script");
        let text =
            if denied && self.server.password.is_none() { format!("no password was given ({text})") } else { text };
        if denied {
            let hint = "check the user and password (redis://user:password@host, or --user and --password-file); \
                        inside another dlock run use --password-file, because DLOCK_PASSWORD is not passed on";
            return Error::new(Kind::Denied, format!("{server} refused the credentials: {text}; {hint}"));
        }
        let hint = match error.code() {
            Some("LOADING") => "it is still loading its data",
            Some("READONLY") => "it is a replica: name the master",
            Some("MISCONF") => "it cannot save its data: see its log",
            Some("OOM") => "it is out of memory: see its maxmemory",
            Some("CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN") => "its cluster is not complete",
            Some(_) => "see the server's documentation",
            None if matches!(error.kind(), ErrorKind::Parse | ErrorKind::UnexpectedReturnType) => {
                "is it a redis server?"
            }
            None => "is a redis server running there?",
        };
        Error::unavailable(format!("{server} did not do as asked: {text}; {hint}"))
    }

    /// An answer that no lock server gives.
    pub(super) fn nonsense(&self) -> Error {
        let server = &self.server;
        Error::unavailable(format!("{server} gave an answer that makes no sense; is it a redis server?"))
    }

    /// No answer at all.
    pub(super) fn silence(&self) -> Error {
        Error::unavailable(format!("{} does not answer", self.server))
    }
}
