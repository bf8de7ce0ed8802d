/*!
One redis server: a plain string at the lock's key that expires, created only if there is none and deleted only by
its owner, as every client with the documented pattern does it.

Beside it, under keys that no user can name, stand a queue (first come, first served) and the fencing counter. A
release wakes the head of the queue through a list of its own; only the head looks after foreign holders, who announce
nothing, and after expiry. The scripts are in the `.lua` files; each can be repeated without harm.

ACL: a user needs the commands of the scripts, EVAL and BLPOP on the key patterns `NS:*` and `{NS:*`.
*/

mod stream;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind, Value};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use self::stream::Bounded;
use super::{Attempt, Backend, Busy, Claim, Error, Grant, Kind, Lease, Queue, Released, Renewal};
use crate::clock::{Instant, before};
use crate::holder::Holder;

/// The port that redis listens on by default.
pub(crate) const DEFAULT_PORT: u16 = 6379;

const ATTEMPT: &str = concat!(include_str!("queue.lua"), include_str!("attempt.lua"));
const RENEW: &str = concat!(include_str!("queue.lua"), include_str!("renew.lua"));
const RELEASE: &str = concat!(include_str!("queue.lua"), include_str!("release.lua"));

/// The longest time that a dead waiter counts as alive, however long the leases are.
const MAX_PATIENCE: Duration = Duration::from_secs(30);
/// How often the head of the queue looks after a foreign holder, who announces nothing.
const FOREIGN_POLL: Duration = Duration::from_millis(100);
/// How long after a key's expiry the head looks, so that it has really gone.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// How much longer than asked a blocking wait may stay unanswered before the connection counts as dead.
const WAKE_SLACK: Duration = Duration::from_secs(2);

/// How long a waiter counts as alive after its last sign of life: with a sign every third of it, a waiter that died
/// delays the others by at most two thirds of a ttl.
fn patience(ttl: Duration) -> Duration {
    MAX_PATIENCE.min(ttl / 2)
}

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

/// The locks of one redis server.
#[derive(Debug)]
pub(crate) struct RedisBackend {
    server: Server,
    link: Option<Link>,
    /// How long the next [`Backend::changed`] waits at most.
    look_again: Duration,
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
enum Outstanding {
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

/// The names of a lock's keys. All of one lock carry the same hash tag, so that a cluster keeps them together.
struct Keys {
    lock: String,
    side: String,
}

impl Keys {
    fn of(claim: &Claim) -> Self {
        let lock = claim.namespace.join(':', &claim.key);
        let tagged = lock.split_once('{').is_some_and(|(_, rest)| rest.find('}').is_some_and(|end| end > 0));
        // A control character: no user's key can be one of ours.
        let side = if tagged { format!("{lock}\u{1}") } else { format!("{{{lock}}}\u{1}") };
        Self { lock, side }
    }

    fn queue(&self) -> String {
        format!("{}queue", self.side)
    }

    fn alive(&self) -> String {
        format!("{}alive", self.side)
    }

    fn fence(&self) -> String {
        format!("{}fence", self.side)
    }

    fn wakes(&self) -> String {
        format!("{}wake:", self.side)
    }
}

fn script(text: &str, keys: &[String], arguments: &[&str]) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    command
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

impl RedisBackend {
    /// A backend that has not connected yet.
    #[must_use]
    pub(crate) fn new(server: Server) -> Self {
        Self { server, link: None, look_again: FOREIGN_POLL }
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
    async fn ask(&mut self, command: &Cmd, outstanding: Outstanding) -> Result<Value, Error> {
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

    fn nonsense(&self) -> Error {
        let server = &self.server;
        Error::unavailable(format!("{server} gave an answer that makes no sense; is it a redis server?"))
    }

    /// Reads the answer of `attempt.lua` that says "busy", and decides when to look again.
    fn read_busy(&mut self, claim: &Claim, answer: &[Value]) -> Option<Busy> {
        let [_, kind, value, pttl, position, now] = answer else { return None };
        let (kind, value) = (bytes(kind)?, bytes(value)?);
        let (pttl, position) = (number(pttl)?, number(position)?);
        let now = std::str::from_utf8(bytes(now)?).ok()?.parse().ok()?;
        let holder = match kind {
            b"none" => Holder::Nobody,
            b"string" => Holder::read(value),
            other => Holder::InTheWay(format!("a redis {} at the lock's key", String::from_utf8_lossy(other))),
        };
        let sign_of_life = patience(claim.ttl) / 3;
        self.look_again = if position == 1 && holder != Holder::Nobody {
            let expiry = u64::try_from(pttl).map(|ms| Duration::from_millis(ms) + AFTER_EXPIRY).ok();
            let poll = if holder.id().is_none() { FOREIGN_POLL } else { sign_of_life };
            poll.min(sign_of_life).min(expiry.unwrap_or(poll))
        } else {
            sign_of_life
        };
        let position = u64::try_from(position).ok().filter(|&position| position > 0);
        Some(Busy { holder, position, now })
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

fn token(value: &Value) -> Option<u64> {
    std::str::from_utf8(bytes(value)?).ok()?.parse().ok()
}

#[async_trait::async_trait(?Send)]
impl Backend for RedisBackend {
    async fn connect(&mut self) -> Result<(), Error> {
        if self.link.as_ref().is_none_or(|link| link.outstanding != Outstanding::Nothing) {
            if let Some(link) = self.link.take() {
                link.forget();
            }
            self.link = Some(self.open().await?);
        }
        Ok(())
    }

    async fn attempt(&mut self, claim: &Claim, queue: Queue) -> Result<Attempt, Error> {
        let keys = Keys::of(claim);
        let (ttl, patience) = (millis(claim.ttl), millis(patience(claim.ttl)));
        let join = if queue == Queue::Join { "1" } else { "0" };
        let command = script(
            ATTEMPT,
            &[keys.lock.clone(), keys.queue(), keys.alive(), keys.fence()],
            &[claim.owner.as_str(), &claim.owner.prefix(), &claim.about.rest(), &ttl, &patience, join, &keys.wakes()],
        );
        let sent = Instant::now();
        let answer = self.ask(&command, Outstanding::Request).await?;
        let Value::Array(answer) = answer else { return Err(self.nonsense()) };
        match answer.as_slice() {
            [Value::Int(1), granted] => {
                let token = token(granted).ok_or_else(|| self.nonsense())?;
                Ok(Attempt::Held(Grant { token, lease: Lease::Until { sent, ttl: claim.ttl } }))
            }
            [Value::Int(0), ..] => self.read_busy(claim, &answer).map(Attempt::Busy).ok_or_else(|| self.nonsense()),
            _ => Err(self.nonsense()),
        }
    }

    async fn changed(&mut self, claim: &Claim) -> Result<(), Error> {
        let keys = Keys::of(claim);
        // Redis counts in milliseconds and takes zero for ever.
        let wait = self.look_again.max(Duration::from_millis(10));
        let mut command = ::redis::cmd("BLPOP");
        command.arg(format!("{}{}", keys.wakes(), claim.owner.as_str())).arg(format!("{:.3}", wait.as_secs_f64()));
        let answered = before(Instant::now() + wait + WAKE_SLACK, self.ask(&command, Outstanding::Blocker)).await;
        match answered {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(Error::unavailable(format!("{} does not answer", self.server))),
        }
    }

    async fn renew(&mut self, claim: &Claim) -> Result<Renewal, Error> {
        let keys = Keys::of(claim);
        let command = script(RENEW, &[keys.lock], &[&claim.owner.prefix(), &millis(claim.ttl)]);
        let sent = Instant::now();
        let answer = self.ask(&command, Outstanding::Request).await?;
        let Value::Array(answer) = answer else { return Err(self.nonsense()) };
        match answer.as_slice() {
            [Value::Int(1)] => Ok(Renewal::Extended(Lease::Until { sent, ttl: claim.ttl })),
            [Value::Int(0), kind, value] => {
                let why = match (bytes(kind), bytes(value)) {
                    (Some(b"none"), _) => "its key is gone from the server".to_owned(),
                    (Some(b"string"), Some(value)) => {
                        // Without the time: this clock may not be the one that granted it.
                        format!("its key is {}", Holder::read(value).describe(0))
                    }
                    _ => "something else is at its key".to_owned(),
                };
                Ok(Renewal::NotMine(why))
            }
            _ => Err(self.nonsense()),
        }
    }

    async fn release(&mut self, claim: &Claim) -> Result<Released, Error> {
        // After an unanswered request the same connection keeps the order: the release comes last, whenever the
        // server gets to it.
        if self.link.as_ref().is_none_or(|link| link.outstanding == Outstanding::Blocker) {
            self.link = None;
            self.link = Some(self.open().await?);
        }
        let keys = Keys::of(claim);
        let command = script(
            RELEASE,
            &[keys.lock.clone(), keys.queue(), keys.alive()],
            &[claim.owner.as_str(), &claim.owner.prefix(), &keys.wakes()],
        );
        match self.ask(&command, Outstanding::Blocker).await? {
            Value::Int(1) => Ok(Released::Freed),
            Value::Int(0) => Ok(Released::NotMine),
            _ => Err(self.nonsense()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::holder::{About, Owner};
    use crate::key::{Key, Namespace};

    fn keys(namespace: &str, key: &str) -> Keys {
        Keys::of(&Claim {
            key: Key::parse(OsStr::new(key)).expect("key"),
            namespace: Namespace::parse(namespace).expect("namespace"),
            owner: Owner::random().expect("random"),
            ttl: Duration::from_secs(30),
            about: About::default(),
        })
    }

    /// What a cluster hashes of a key.
    fn tag(key: &str) -> &str {
        match key.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
            Some((tag, _)) if !tag.is_empty() => tag,
            _ => key,
        }
    }

    #[test]
    fn side_keys_share_the_locks_slot_and_cannot_be_named_by_a_user() {
        for (namespace, key) in
            [("dlock", "job"), ("", "job"), ("dlock", "{a}b"), ("dlock", "x{tag}y"), ("dlock", "a{b")]
        {
            let keys = keys(namespace, key);
            for side in [keys.queue(), keys.alive(), keys.fence(), keys.wakes()] {
                assert_eq!(tag(&side), tag(&keys.lock), "{side:?}");
                assert!(side.chars().any(char::is_control));
            }
        }
        assert_eq!(keys("dlock", "job").lock, "dlock:job");
        assert_eq!(keys("", "job").lock, "job");
    }
}
