/*!
etcd: the keys below `NS/KEY/`, one for each contender, named after its lease. The one with the lowest create revision
holds the lock and each other one watches the one before it, as with Go's `concurrency.Mutex`, `etcdctl lock` and the
server's own lock service. Contenders that share the lock say so in their keys' names, see [`names`], and those other
clients wait for each of them; [`standing`] decides which of them hold the lock together.

While it holds the lock, a dlock also watches its own key, so that it learns at once if the key is removed.

This is that recipe on keys, leases and watches, not the server's lock service, which in some versions grants a lock
whose lease has ended. Ownership always rests on a read that shows our own key in first place, or behind only those with
which it shares the lock: a linearizable one, or one of a member's own state, if that is no older than what a member has
just told us of our key or of those before it. The latter can miss only that somebody has deleted our key since.
*/

mod adopt;
mod breaking;
mod contender;
mod driver;
mod errors;
mod inspect;
mod link;
mod look;
mod names;
mod once;
mod own;
mod probes;
mod records;
mod session;
mod standing;
mod version;
mod watches;

use std::time::Duration;

use etcd_client::KeyValue;

use self::contender::{EtcdContender, SIGN_ANSWERED, SIGNS_OF_LIFE};
pub(crate) use self::driver::DRIVER;
use self::errors::Fault;
use self::inspect::EtcdSurvey;
use self::link::Cluster;
use self::look::{LockQueue, Look};
use self::names::prefix;
use self::own::Extended;
use self::probes::EtcdProbes;
use self::records::EtcdRecords;
use self::session::value;
use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{
    Adopted, Attempt, Busy, Contender, Grant, Lease, OtherSlots, Queue, Released, Renewal, Used, token,
};
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::contract::service::Service;
use crate::backend::error::Error;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::Records;
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::survey::{Kind, Survey};
use crate::clock::{Instant, before, wall_millis};
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::key::Namespace;
use crate::lock::admission::{Mode, QueuePlace, Watch};
use crate::lock::news::news_every;

/// Maximum number of times that one attempt starts over because its lease or key was removed.
const JOINS: usize = 4;
/// Maximum time that an attempt that does not wait gives entries before it to enter; at most a sixth of the lease.
const ENTERING: Duration = Duration::from_millis(500);
/// Maximum time that the first renewal waits for the server's version; at most this fraction of the lease (1/20).
const VERSION: Duration = Duration::from_millis(200);
const VERSION_SHARE: u32 = 20;

/// The locks of one etcd cluster.
#[derive(Debug)]
pub(crate) struct EtcdService {
    location: Location,
    tls: Option<Tls>,
}

impl EtcdService {
    /// The locks of the cluster at `location`; not connected yet.
    #[must_use]
    pub(super) fn new(location: Location, tls: Option<Tls>) -> Self {
        Self { location, tls }
    }
}

impl Service for EtcdService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let cluster = Cluster::new(self.location.clone(), self.tls.clone(), names::namespace(&claim));
        Box::new(EtcdContender { claim, cluster, session: None, inspected: false, warnings: Vec::new() })
    }

    fn records(&self, meeting: Meeting, kind: Kind) -> Option<Box<dyn Records>> {
        let keys = names::namespace(&Claim::like(&meeting));
        let cluster = Cluster::new(self.location.clone(), self.tls.clone(), keys);
        let what = if kind == Kind::Latch { "latch" } else { "meet" };
        Some(Box::new(EtcdRecords::new(cluster, meeting, what)))
    }

    fn survey(&self, namespace: Namespace) -> Box<dyn Survey> {
        let keys = namespace.prefix('/');
        let cluster = Cluster::new(self.location.clone(), self.tls.clone(), keys);
        Box::new(EtcdSurvey::new(cluster, namespace))
    }

    fn probes(&self, parameters: CheckParameters) -> Box<dyn Probes> {
        Box::new(EtcdProbes::new(&self.location, self.tls.clone(), &parameters))
    }
}

impl EtcdContender {
    /// Looks at the queue with our key in it. Also returns `true` if the key was only put there now.
    async fn look_in_queue(&mut self) -> Result<(Look, bool), Error> {
        let mut just_joined = false;
        for _ in 0..JOINS {
            self.keep_session().await?;
            let Some(session) = &mut self.session else { continue };
            let (key, lease) = (session.key.clone(), session.lease);
            let mut line = LockQueue::of(&self.claim, &mut self.cluster);
            let Some(created) = session.created else {
                let (value, holds) = (value(&self.claim, None, None, wall_millis()), !self.claim.min_hold.is_zero());
                match line.join(&key, value, lease, holds).await {
                    Ok(look) => {
                        session.created = look.own.as_ref().map(KeyValue::create_revision);
                        just_joined = true;
                        if look.is_first() && look.is_bound_to(lease) {
                            return Ok((look, just_joined));
                        }
                        session.told = session.created.map(|_| look.revision);
                        if look.own.is_none() {
                            // The second key of an earlier attempt is in the way.
                            self.end_hold(&key, Used::No).await?;
                        }
                    }
                    // The lease ended between the two requests: start over.
                    Err(Fault::NoLease(_)) => self.session = None,
                    Err(fault) => return Err(fault.into()),
                }
                continue;
            };
            // Once the key exists, a look without a write is enough.
            let look = line.look(&key, created, session.told.take()).await?;
            if look.own.as_ref().map(KeyValue::create_revision) == Some(created) {
                if look.is_bound_to(lease) {
                    return Ok((look, just_joined));
                }
                // Overwritten: it would not end with our lease.
                self.withdraw(Used::No).await?;
                continue;
            }
            (session.created, session.token, session.slot) = (None, None, None);
        }
        Err(errors::too_short_lived(&self.claim.key))
    }

    /// Interprets `look` for our key, which is in the queue; `None` if the key has disappeared while we entered.
    async fn judge(&mut self, look: &Look, just_joined: bool) -> Result<Option<Attempt>, Error> {
        let (Some(session), Some(own)) = (&mut self.session, &look.own) else { return Err(self.cluster.malformed()) };
        let Some(ttl) = session.ttl else { return Err(self.cluster.malformed()) };
        if !(1..=look.revision).contains(&own.create_revision()) {
            return Err(self.cluster.malformed());
        }
        let slot = match look.view.place() {
            // No entry can come before ours any more.
            _ if session.token.is_some() && self.claim.mode != Mode::Exclusive => session.slot,
            QueuePlace::Enters { slot } => slot,
            QueuePlace::Behind { watch, .. } => {
                let awaited = if let Watch::Gone(entry) = &watch { Some(entry) } else { None };
                let busy = look.busy(&prefix(&self.claim), awaited, just_joined);
                session.awaits = Some((watch, look.revision));
                session.news_at = Instant::now() + news_every(ttl / SIGNS_OF_LIFE, look.count);
                return Ok(Some(Attempt::Busy(busy)));
            }
            QueuePlace::OtherSlots(slots) => return Ok(Some(self.other_slots(look, slots))),
            QueuePlace::Missing => return Err(self.cluster.malformed()),
        };
        if look.view.before.is_empty()
            && look.first.as_ref().is_none_or(|first| first.create_revision() < own.create_revision())
        {
            return Err(self.cluster.malformed());
        }
        session.watch = None;
        let waited = session.awaits.is_some();
        let (sent, known) = (session.sent, session.token);
        let token = match known {
            Some(token) => token,
            None => match self.enter(look, slot).await? {
                Some(token) => token,
                None => return Ok(None),
            },
        };
        if let Some(session) = &mut self.session {
            (session.token, session.slot, session.awaits) = (Some(token), slot, None);
        }
        if waited && self.claim.mode == Mode::Exclusive {
            self.publish(token);
        }
        Ok(Some(Attempt::Held(Grant { token, slot, lease: Lease::until(sent, ttl) })))
    }

    /// Enters the lock, in this slot if it has slots, and returns the token; `None` if our key is gone.
    async fn enter(&mut self, look: &Look, slot: Option<u32>) -> Result<Option<u64>, Error> {
        let revision = match slot {
            // Recorded already, by a request whose answer was lost.
            Some(_) if look.view.slot == slot => look.own.as_ref().map_or(0, KeyValue::mod_revision),
            // The next contender enters only after this write: no two have the same slot, and tokens increase.
            Some(_) => match self.say_entered(None, slot).await? {
                Some(revision) => revision,
                None => return Ok(None),
            },
            None => look.revision,
        };
        let token = token(revision).ok_or_else(|| self.cluster.no_token(revision))?;
        // Readers far behind us do not see the entries before ours, and wait for this write.
        let is_unclear = self.claim.mode == Mode::Shared && !look.was_always_first();
        if is_unclear && self.say_entered(Some(token), None).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(token))
    }

    /// The answer if others use the lock with another number of `slots`.
    fn other_slots(&self, look: &Look, slots: u32) -> Attempt {
        let is_first = look.view.first.as_ref().is_some_and(|first| first.mode.slots() == Some(slots));
        let holder = if is_first { look.holder(&prefix(&self.claim), None) } else { Holder::Unknown };
        Attempt::OtherSlots(OtherSlots { slots, holder, now: wall_millis() })
    }

    /// The answer to an attempt before it writes anything: an outer run holds the lock, the lock is in use with another
    /// number of slots, or the attempt `passes` and would not get the lock at once. `None` if the attempt may go on.
    async fn peek(&mut self, passes: bool) -> Result<Option<Attempt>, Error> {
        let (look, outer) = LockQueue::of(&self.claim, &mut self.cluster).peek(&self.claim.outer).await?;
        if let Some(outer) = outer {
            return Ok(Some(Attempt::Outer(outer)));
        }
        // No outer run can acquire the lock while it waits for us.
        self.ignore_outer();
        if let QueuePlace::OtherSlots(slots) = look.view.place() {
            return Ok(Some(self.other_slots(&look, slots)));
        }
        if !passes || look.view.is_entering() {
            return Ok(None);
        }
        let busy = look.busy(&prefix(&self.claim), None, false);
        Ok(Some(Attempt::Busy(Busy { position: None, ..busy })))
    }

    /// Looks at the queue with our key in it, and enters the lock if possible. Also returns `true` if only entries that
    /// are about to enter keep us out.
    async fn stand(&mut self) -> Result<(Attempt, bool), Error> {
        for _ in 0..JOINS {
            let (look, just_joined) = self.look_in_queue().await?;
            if let Some(attempt) = self.judge(&look, just_joined).await? {
                return Ok((attempt, look.view.is_entering()));
            }
        }
        Err(errors::too_short_lived(&self.claim.key))
    }
}

#[async_trait::async_trait(?Send)]
impl Contender for EtcdContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn ignore_outer(&mut self) {
        self.claim.outer.clear();
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.cluster.connect().await
    }

    async fn adopt(&mut self, held: &Adopted) -> Result<(), Error> {
        self.adopt_session(held.token).await
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        let is_new = self.session.is_none();
        // Inside another run, first check whether that run holds the lock.
        if is_new
            && self.claim.outer.is_empty()
            && let Some(done) = self.done().await?
        {
            return Ok(Attempt::Done(done));
        }
        let passes = queue == Queue::Pass && is_new;
        if (passes || is_new && !self.claim.outer.is_empty())
            && let Some(refused) = self.peek(passes).await?
        {
            return Ok(refused);
        }
        let deadline = Instant::now() + ENTERING.min(self.claim.ttl / SIGN_ANSWERED);
        loop {
            let (attempt, is_entering) = self.stand().await?;
            match &attempt {
                Attempt::Held(_) => {
                    if let Some(done) = self.done().await? {
                        self.withdraw(Used::No).await?;
                        return Ok(Attempt::Done(done));
                    }
                    self.hold_on().await?;
                }
                Attempt::Busy(_) if passes => {
                    if is_entering
                        && Instant::now() < deadline
                        && let Ok(listened) = before(deadline, Box::pin(self.hear())).await
                    {
                        listened?;
                        continue;
                    }
                    self.withdraw(Used::No).await?;
                }
                Attempt::OtherSlots(_) => {
                    self.withdraw(Used::No).await?;
                }
                Attempt::Busy(_) | Attempt::Outer(_) | Attempt::Done(_) | Attempt::Partly | Attempt::Unprepared => {}
            }
            return Ok(attempt);
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.hear().await
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let Some(session) = &mut self.session else { return Err(errors::nothing_to_renew()) };
        let Some(ttl) = session.ttl else { return Err(errors::nothing_to_renew()) };
        // Known already if there was a choice of members.
        let known = self.cluster.version().map(str::to_owned);
        let timeout = (!self.inspected && known.is_none()).then(|| VERSION.min(ttl / VERSION_SHARE));
        let stop = names::stop(&self.claim.namespace.prefix('/'), session.lease);
        let extended = own::extend(&mut self.cluster, session.lease, &session.key, Some(&stop), timeout).await?;
        let Extended::Lease { sent, own, asked, revision, version } = extended else {
            return Ok(Renewal::NotMine("its lease has ended at the server or was revoked".to_owned()));
        };
        Ok(match own {
            None => Renewal::NotMine("its key is gone from the server".to_owned()),
            Some(own) if Some(own.create_revision()) != session.created => {
                Renewal::NotMine("its key was deleted and made again by somebody else".to_owned())
            }
            Some(own) if own.lease() != session.lease => {
                Renewal::NotMine("its key was overwritten and is not bound to the lease any more".to_owned())
            }
            Some(_) => {
                session.sent = sent;
                session.renewed = Some(revision);
                if let Some(version) = known.or(version).filter(|_| !self.inspected) {
                    self.warnings.extend(version::warning(&version));
                }
                self.inspected = true;
                let asked = asked.and_then(|asked| Ask::read(&asked, self.claim.owner.as_str()));
                Renewal::of(Lease::until(sent, ttl), asked)
            }
        })
    }

    async fn disturbed(&mut self) {
        if self.event_of_own().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        if self.session.is_none() {
            return Ok(Released::NotMine);
        }
        self.cluster.connect().await?;
        self.withdraw(used).await
    }
}
