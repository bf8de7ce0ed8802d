/*!
One redis server: a plain string at the lock's key that expires, created only if there is none and deleted only by
its owner, as every client with the documented pattern does it.

Beside it, under keys that no user can name, stand a queue (first come, first served) and the fencing counter. A
release wakes the head of the queue through a list of its own; only the head looks after foreign holders, who announce
nothing, and after expiry. The scripts are in the `.lua` files; each can be repeated without harm.

ACL: a user needs the commands of the scripts, EVAL and BLPOP on the key patterns `NS:*` and `{NS:*`.
*/

mod connection;
mod keys;
mod stream;

use std::time::Duration;

use ::redis::{Cmd, Value};

use self::connection::{Connection, Outstanding};
pub(crate) use self::connection::{DEFAULT_PORT, Server};
use self::keys::Keys;
use super::{Attempt, Backend, Busy, Claim, Error, Grant, Lease, Queue, Released, Renewal};
use crate::clock::{Instant, before};
use crate::holder::Holder;

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

/// The locks of one redis server.
#[derive(Debug)]
pub(crate) struct RedisBackend {
    connection: Connection,
    /// How long the next [`Backend::changed`] waits at most.
    look_again: Duration,
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
        Self { connection: Connection::new(server), look_again: FOREIGN_POLL }
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
        self.connection.connect().await
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
        let answer = self.connection.ask(&command, Outstanding::Request).await?;
        let Value::Array(answer) = answer else { return Err(self.connection.nonsense()) };
        match answer.as_slice() {
            [Value::Int(1), granted] => {
                let token = token(granted).ok_or_else(|| self.connection.nonsense())?;
                Ok(Attempt::Held(Grant { token, lease: Lease::until(sent, claim.ttl) }))
            }
            [Value::Int(0), ..] => {
                self.read_busy(claim, &answer).map(Attempt::Busy).ok_or_else(|| self.connection.nonsense())
            }
            _ => Err(self.connection.nonsense()),
        }
    }

    async fn changed(&mut self, claim: &Claim) -> Result<(), Error> {
        let keys = Keys::of(claim);
        // Redis counts in milliseconds and takes zero for ever.
        let wait = self.look_again.max(Duration::from_millis(10));
        let mut command = ::redis::cmd("BLPOP");
        command.arg(format!("{}{}", keys.wakes(), claim.owner.as_str())).arg(format!("{:.3}", wait.as_secs_f64()));
        let answered =
            before(Instant::now() + wait + WAKE_SLACK, self.connection.ask(&command, Outstanding::Blocker)).await;
        match answered {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(self.connection.silence()),
        }
    }

    async fn renew(&mut self, claim: &Claim) -> Result<Renewal, Error> {
        let keys = Keys::of(claim);
        let command = script(RENEW, &[keys.lock], &[&claim.owner.prefix(), &millis(claim.ttl)]);
        let sent = Instant::now();
        let answer = self.connection.ask(&command, Outstanding::Request).await?;
        let Value::Array(answer) = answer else { return Err(self.connection.nonsense()) };
        match answer.as_slice() {
            [Value::Int(1)] => Ok(Renewal::Extended(Lease::until(sent, claim.ttl))),
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
            _ => Err(self.connection.nonsense()),
        }
    }

    async fn release(&mut self, claim: &Claim) -> Result<Released, Error> {
        self.connection.connect_in_order().await?;
        let keys = Keys::of(claim);
        let command = script(
            RELEASE,
            &[keys.lock.clone(), keys.queue(), keys.alive()],
            &[claim.owner.as_str(), &claim.owner.prefix(), &keys.wakes()],
        );
        match self.connection.ask(&command, Outstanding::Blocker).await? {
            Value::Int(1) => Ok(Released::Freed),
            Value::Int(0) => Ok(Released::NotMine),
            _ => Err(self.connection.nonsense()),
        }
    }
}
