/*!
Locks on one redis server: a plain string with an expiry at the lock's key, created only if the key does not exist and
deleted only by its owner, as in all clients that follow the documented pattern.

A lock with several holders (shared, or slots) has a string at its key too, as long as there is a holder.

Side keys, which no user can name, store these holders, the queue of waiters (first come, first served), the fencing
counter, and the last period in which a command has succeeded (`--once-per`). A client that enters, leaves or releases
wakes the head of the queue through its wake list if the head may enter then. Only the head polls, for expiry and for
foreign holders, which announce nothing. The scripts are in the `.lua` files; each may be repeated without harm.

The rights that a user needs are in [`rights`].
*/

pub(super) mod answers;
mod breaking;
pub(super) mod connection;
pub(super) mod damage;
mod driver;
mod errors;
pub(super) mod facts;
pub(super) mod inspect;
pub(super) mod keys;
pub(super) mod listener;
pub(super) mod meeting;
mod namesakes;
pub(super) mod probes;
pub(super) mod raw;
pub(super) mod rights;
mod safety;
mod script;
mod sentinel;

use std::time::Duration;

use ::redis::Value;

use self::answers::{Attempted, Blocker};
use self::connection::Outstanding;
pub(super) use self::connection::Server;
pub(crate) use self::driver::{DRIVER, PORT, database};
use self::inspect::RedisSurvey;
use self::keys::Keys;
use self::listener::Listener;
use self::meeting::{Participant, RedisBarrier, RedisLatch};
use self::probes::{RedisProbes, Watchers};
use self::rights::Rights;
pub(super) use self::safety::{inspection, warnings};
pub(super) use self::script::{condense, condensed, millis, script, script_of};
use self::sentinel::{Master, Sentinels};
use crate::backend::contract::claim::{Claim, Once};
use crate::backend::contract::contender::{
    Adopted, Attempt, Busy, Contender, Grant, Lease, Queue, Released, Renewal, Used,
};
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::contract::service::Service;
use crate::backend::error::Error;
use crate::backend::meeting::{Barrier, Latch, Meeting};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::survey::Survey;
use crate::clock::{Instant, before, sleep_until};
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::key::Namespace;

const ATTEMPT: &str = script_of!("value.lua" "group.lua" "counter.lua" "entering.lua" "queue.lua" "attempt.lua");
/// An attempt of a claim with a period. Other claims avoid the cost of this longer text, which servers hash for each
/// request.
const ATTEMPT_ONCE: &str =
    script_of!("value.lua" "group.lua" "counter.lua" "entering.lua" "queue.lua" "once.lua" "attempt.lua");
const RENEW: &str = script_of!("value.lua" "group.lua" "renew.lua");
const RELEASE: &str = script_of!("value.lua" "group.lua" "queue.lua" "release.lua");
const RELEASE_ONCE: &str = script_of!("value.lua" "group.lua" "queue.lua" "once.lua" "release.lua");

/// The maximum time that a dead waiter stays in the queue, however long the leases are.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the head of the queue polls while a foreign holder, which announces nothing, has the lock.
const FOREIGN_POLL: Duration = Duration::from_millis(100);
/// The time from a key's expiry to the head's next look, so that the key is certainly gone.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// The minimum time between two looks at a lock, whatever the server answers.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// The extra time that a blocking wait may take before the connection counts as dead.
const WAKE_SLACK: Duration = Duration::from_secs(2);
/// The maximum time for replicas to confirm a write.
const MAX_REPLICATION: Duration = Duration::from_secs(1);

/// Returns the time that a waiter stays in the queue after its last heartbeat. With a heartbeat every third of this
/// time, a dead waiter delays the others by at most two thirds of a ttl.
fn heartbeat_ttl(ttl: Duration) -> Duration {
    MAX_TIMEOUT.min(ttl / 2)
}

/// The locks of one redis server.
#[derive(Debug)]
pub(crate) struct RedisService {
    place: Home,
    /// Number of replicas that must confirm every grant and renewal.
    replicas: u32,
}

/// The server that keeps the locks.
#[derive(Debug)]
enum Home {
    /// The server that the URL names.
    Server(Server),
    /// The master that sentinels name.
    Master {
        /// The sentinels.
        location: Location,
        /// The name under which they know the master.
        name: String,
        /// The number of the database at the master.
        database: u32,
        tls: Option<Tls>,
    },
}

/// One claim at one redis server.
#[derive(Debug)]
struct RedisContender {
    claim: Claim,
    connection: Master,
    /// Number of replicas that must confirm every grant and renewal.
    replicas: u32,
    /// `true` once the server has been asked for settings that make locks unsafe.
    inspected: bool,
    warnings: Vec<String>,
    /// The maximum time that the next [`Contender::changed`] waits.
    look_again: Duration,
    /// The time at which the last attempt was sent.
    looked: Instant,
    /// The listener for break requests, from the first renewal on.
    listener: Option<Listener>,
}

impl RedisService {
    /// Returns the locks of `server`; not connected yet. This many `replicas` must confirm every grant and renewal.
    #[must_use]
    pub(super) fn new(server: Server, replicas: u32) -> Self {
        Self { place: Home::Server(server), replicas }
    }

    /// Returns the locks of the master that the sentinels at `location` call `name`; not connected yet. This many
    /// `replicas` must confirm every grant and renewal.
    #[must_use]
    pub(super) fn with_sentinels(
        location: Location,
        name: String,
        database: u32,
        tls: Option<Tls>,
        replicas: u32,
    ) -> Self {
        Self { place: Home::Master { location, name, database, tls }, replicas }
    }

    /// Returns the connection for the lock of `claim`, or for a latch or barrier of its name; not made yet.
    fn master(&self, claim: &Claim) -> Master {
        let rights = Rights::for_locks(claim, rights::SINGLE);
        self.with(if self.replicas == 0 { rights } else { rights.and("+wait") })
    }

    /// Returns the connection for a user who needs these rights at the server; not made yet.
    fn with(&self, rights: Rights) -> Master {
        match &self.place {
            Home::Server(server) => Master::named(server.clone().needing(rights)),
            Home::Master { location, name, database, tls } => {
                Master::of(Sentinels::new(location.clone(), name.clone(), *database, tls.clone(), rights))
            }
        }
    }

    /// Returns a participant of a latch or barrier; not connected yet.
    fn visitor(&self, meeting: Meeting) -> Participant {
        Participant::new(self.master(&Claim::like(&meeting)), meeting, self.replicas)
    }
}

impl Service for RedisService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        Box::new(RedisContender {
            connection: self.master(&claim),
            claim,
            replicas: self.replicas,
            inspected: false,
            warnings: Vec::new(),
            look_again: FOREIGN_POLL,
            looked: Instant::now(),
            listener: None,
        })
    }

    fn latch(&self, meeting: Meeting) -> Result<Box<dyn Latch>, &'static str> {
        Ok(Box::new(RedisLatch(self.visitor(meeting))))
    }

    fn barrier(&self, meeting: Meeting, parties: u32) -> Result<Box<dyn Barrier>, &'static str> {
        Ok(Box::new(RedisBarrier::new(self.visitor(meeting), parties)))
    }

    fn survey(&self, namespace: Namespace) -> Box<dyn Survey> {
        let way = self.with(Rights::for_all_locks(&namespace, rights::LOOK));
        Box::new(RedisSurvey::by(way, namespace))
    }

    fn probes(&self, parameters: CheckParameters) -> Box<dyn Probes> {
        let watchers = match &self.place {
            Home::Server(_) => None,
            Home::Master { location, name, tls, .. } => Some(Watchers::new(location, name, tls.as_ref())),
        };
        let way = self.with(RedisProbes::rights(&parameters.namespace));
        Box::new(RedisProbes::by(way, watchers, self.replicas, parameters.namespace))
    }
}

impl RedisContender {
    /// Waits until enough replicas have confirmed the last write of this connection, but no longer than `timeout`.
    async fn replicate(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.replicas == 0 {
            return Ok(());
        }
        let timeout = MAX_REPLICATION.min(timeout);
        let mut command = ::redis::cmd("WAIT");
        command.arg(self.replicas).arg(millis(timeout));
        match self.connection.ask(&command, Outstanding::Blocker).await? {
            Value::Int(confirmed) if confirmed >= i64::from(self.replicas) => Ok(()),
            Value::Int(confirmed) => Err(errors::unconfirmed(confirmed, self.replicas, timeout)),
            _ => Err(self.connection.malformed()),
        }
    }

    /// Extends the key to the minimum hold, before the lock is used.
    async fn hold_on(&mut self) -> Result<Lease, Error> {
        match self.renew().await? {
            Renewal::Extended(lease) | Renewal::Asked(lease, _) => Ok(lease),
            Renewal::NotMine(why) => Err(Error::unavailable(why)),
        }
    }

    /// Converts the blocker to the report for waiters, and decides when to look again.
    fn busy(&mut self, blocker: Blocker) -> Busy {
        let Blocker { holder, beside, pttl, position, now } = blocker;
        let holder = match holder {
            // The lock stays taken until the key is deleted by hand: tell waiters which key.
            Holder::Foreign(mark) if pttl < 0 => {
                let lock = Keys::of(&self.claim).lock;
                let what = format!(" (redis key {lock}, which never expires: delete it if its owner is gone)");
                Holder::Foreign([mark, what.into_bytes()].concat())
            }
            holder => holder,
        };
        let sign_of_life = heartbeat_ttl(self.claim.ttl) / 3;
        self.look_again = if position == 1 && holder != Holder::Nobody {
            let expiry = u64::try_from(pttl).map(|ms| Duration::from_millis(ms) + AFTER_EXPIRY).ok();
            let poll = if holder.id().is_none() { FOREIGN_POLL } else { sign_of_life };
            poll.min(sign_of_life).min(expiry.unwrap_or(poll))
        } else {
            sign_of_life
        };
        let position = u64::try_from(position).ok().filter(|&position| position > 0);
        Busy { holder, beside, position, now }
    }
}

/// Returns the request for an attempt.
fn attempting(claim: &Claim, queue: Queue) -> ::redis::Cmd {
    let keys = Keys::of(claim);
    let (ttl, heartbeat_ttl, hold) = (millis(claim.ttl), millis(heartbeat_ttl(claim.ttl)), millis(claim.min_hold));
    let join = if queue == Queue::Join { "1" } else { "0" };
    let (prefix, rest, wakes) = (claim.prefix(), claim.about.rest(), keys.wakes());
    let (mode, outer, period) = (claim.mode.name(), claim.outer.join(" "), claim.once_per.map(Once::arguments));
    let mut arguments = vec![claim.owner.as_str(), &prefix, &rest, &ttl, &heartbeat_ttl, join];
    arguments.extend([wakes.as_str(), &hold, &mode, &outer]);
    arguments.extend(period.iter().flatten().map(String::as_str));
    let text = if period.is_some() { ATTEMPT_ONCE } else { ATTEMPT };
    script(text, &keys.single(), &arguments)
}

/// Returns the request for a renewal.
fn renewing(claim: &Claim) -> ::redis::Cmd {
    // At most ten words: a server that requires a password closes the connection on longer requests, without an answer.
    script(RENEW, &Keys::of(claim).renewed(), &[&claim.prefix(), &millis(claim.ttl), &claim.mode.name()])
}

/// Returns the request for a release.
fn releasing(claim: &Claim, used: Used) -> ::redis::Cmd {
    let keys = Keys::of(claim);
    let (prefix, wakes, mode) = (claim.prefix(), keys.wakes(), claim.mode.name());
    let is_used = if used == Used::No { "0" } else { "1" };
    let success = claim.once_per.filter(|_| used == Used::Success).map(|once| claim.success(once));
    let mut arguments = vec![claim.owner.as_str(), &prefix, &wakes, is_used, &mode];
    arguments.extend(success.iter().flatten().map(String::as_str));
    let text = if success.is_some() { RELEASE_ONCE } else { RELEASE };
    script(text, &keys.single(), &arguments)
}

#[async_trait::async_trait(?Send)]
impl Contender for RedisContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn ignore_outer(&mut self) {
        self.claim.outer.clear();
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.connection.connect().await
    }

    async fn adopt(&mut self, _held: &Adopted) -> Result<(), Error> {
        Ok(())
    }

    async fn passed_on(&mut self, held: &Adopted) -> Result<bool, Error> {
        let mut command = ::redis::cmd("GET");
        command.arg(Keys::of(&self.claim).fence());
        let counter = self.connection.ask(&command, Outstanding::Request).await?;
        Ok(answers::token(&counter).is_some_and(|counter| counter > held.token))
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        let command = attempting(&self.claim, queue);
        let sent = Instant::now();
        self.looked = sent;
        let also = if self.inspected { Vec::new() } else { inspection() };
        let (answer, about_server) = self.connection.ask_master(&command, &also).await?;
        if !also.is_empty() {
            self.inspected = true;
            self.warnings = warnings(&about_server);
        }
        match answers::attempted(&answer).ok_or_else(|| self.connection.malformed())? {
            Attempted::Granted(token, slot) => {
                self.replicate(self.claim.ttl / 10).await?;
                let lease = Lease::until(sent, self.claim.ttl);
                let lease = if self.claim.min_hold.is_zero() { lease } else { self.hold_on().await? };
                Ok(Attempt::Held(Grant { token, slot, lease }))
            }
            Attempted::Outer(outer) => Ok(Attempt::Outer(outer)),
            Attempted::OtherSlots(other) => Ok(Attempt::OtherSlots(other)),
            Attempted::Done(done) => Ok(Attempt::Done(done)),
            Attempted::Busy(blocker) => Ok(Attempt::Busy(self.busy(blocker))),
            Attempted::Damaged(damage) => Err(self.connection.damaged(&damage)),
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        let keys = Keys::of(&self.claim);
        // Redis counts in milliseconds, and zero means no time-out.
        let wait = self.look_again.max(BETWEEN_LOOKS);
        let mut command = ::redis::cmd("BLPOP");
        command.arg(format!("{}{}", keys.wakes(), self.claim.owner.as_str())).arg(format!("{:.3}", wait.as_secs_f64()));
        let answered =
            before(Instant::now() + wait + WAKE_SLACK, self.connection.ask(&command, Outstanding::Blocker)).await;
        answered.unwrap_or_else(|_| Err(self.connection.silence()))?;
        sleep_until(self.looked + BETWEEN_LOOKS).await;
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let command = renewing(&self.claim);
        let sent = Instant::now();
        let (answer, _) = self.connection.ask_master(&command, &[]).await?;
        match answers::renewed(&answer).ok_or_else(|| self.connection.malformed())? {
            Ok(request) => {
                // Short enough for the answer to arrive before the request times out; there are further tries.
                self.replicate(self.claim.ttl / 20).await?;
                let asked = request.and_then(|request| Ask::read(&request, self.claim.owner.as_str()));
                Ok(Renewal::of(Lease::until(sent, self.claim.ttl), asked))
            }
            Err(why) => Ok(Renewal::NotMine(why)),
        }
    }

    async fn disturbed(&mut self) {
        let list = Keys::of(&self.claim).listener(self.claim.owner.as_str());
        Listener::hear(&mut self.listener, self.connection.server(), list).await;
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        self.connection.connect_in_order().await?;
        let command = releasing(&self.claim, used);
        let answer = self.connection.ask(&command, Outstanding::Blocker).await?;
        answers::released(&answer).ok_or_else(|| self.connection.malformed())
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_sent_without_what_is_for_readers_only_and_needs_no_rights_but_those_that_are_told() {
        let script =
            condensed!("-- What it does.\nlocal a = 1\n\n  -- Why.\n  a = a - -1\nreturn '-- not a comment'\n");
        assert_eq!(script, "local a = 1\na = a - -1\nreturn '-- not a comment'");
        for script in [ATTEMPT, ATTEMPT_ONCE, RENEW, RELEASE, RELEASE_ONCE] {
            assert!(script.lines().all(|line| !line.contains("--")), "{script}");
            assert_eq!(rights::lacking(rights::SINGLE, script), Vec::<String>::new());
        }
    }
}
