/*!
etcd: the keys below `NS/KEY/`, one for each contender, named after its lease. The one with the lowest create
revision holds the lock and each other one watches the one before it, as Go's `concurrency.Mutex`, `etcdctl lock` and
the server's own lock service do it.

While it holds the lock, a dlock watches its own key too, so that it hears at once when the key is taken away.

This is that recipe on keys, leases and watches, not the server's lock service, which in some versions grants a lock
whose lease has ended. What ownership rests on is always a linearizable read that shows our own key in first place.
*/

mod contender;
mod driver;
mod errors;
mod link;
mod look;
mod own;
mod session;
mod version;

use std::time::Duration;

use etcd_client::{KeyValue, WatchFilterType, WatchOptions};

use self::contender::{EtcdContender, SIGN_ANSWERED, SIGNS_OF_LIFE, Watch};
pub(crate) use self::driver::DRIVER;
use self::errors::Fault;
use self::link::Cluster;
use self::look::{Line, Look, prefix};
use self::own::{Extended, OwnWatch};
use self::session::value;
use crate::backend;
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::{Attempt, Busy, Claim, Contender, Error, Grant, Lease, Queue, Released, Renewal, Service, Used};
use crate::clock::{Instant, before, sleep_until, wall_millis};
use crate::lock::news::news_every;

/// How often one attempt begins anew because what it made was taken away.
const JOINS: usize = 4;
/// How long the first renewal waits for the server's version at most, and for which part of the lease.
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
        let cluster = Cluster::new(self.location.clone(), self.tls.clone(), look::namespace(&claim));
        Box::new(EtcdContender { claim, cluster, session: None, inspected: false, concerns: Vec::new() })
    }
}

impl EtcdContender {
    /// Looks at the queue with our key in it; also says whether that was put there only now.
    async fn look_in_queue(&mut self) -> Result<(Look, bool), Error> {
        let mut just_joined = false;
        for _ in 0..JOINS {
            self.keep_session().await?;
            let Some(session) = &mut self.session else { continue };
            let (key, lease) = (session.key.clone(), session.lease);
            let mut line = Line::of(&self.claim, &mut self.cluster);
            let Some(created) = session.created else {
                match line
                    .join(&key, value(&self.claim, None, wall_millis()), lease, !self.claim.min_hold.is_zero())
                    .await
                {
                    Ok(look) => {
                        session.created = look.own.as_ref().map(KeyValue::create_revision);
                        just_joined = true;
                        if look.is_ours() && look.is_bound_to(lease) {
                            return Ok((look, just_joined));
                        }
                        if look.own.is_none() {
                            // The second key of an earlier try is in the way.
                            self.end_hold(&key, Used::No).await?;
                        }
                    }
                    // It ended between the two requests: once more from the beginning.
                    Err(Fault::NoLease(_)) => self.session = None,
                    Err(fault) => return Err(fault.into()),
                }
                continue;
            };
            // A look alone is no write, and all that is needed once the key is there.
            let look = line.look(&key, created).await?;
            if look.own.as_ref().map(KeyValue::create_revision) == Some(created) {
                if look.is_bound_to(lease) {
                    return Ok((look, just_joined));
                }
                // Overwritten: it would stay when we are gone.
                self.withdraw(Used::No).await?;
                continue;
            }
            (session.created, session.token) = (None, None);
        }
        Err(errors::too_short_lived(&self.claim.key))
    }

    /// What `look` means for us, whose key is in the queue.
    fn judge(&mut self, look: &Look, just_joined: bool) -> Result<Attempt, Error> {
        let (Some(session), Some(own)) = (&mut self.session, &look.own) else { return Err(self.cluster.nonsense()) };
        let Some(ttl) = session.ttl else { return Err(self.cluster.nonsense()) };
        if !(1..=look.revision).contains(&own.create_revision()) {
            return Err(self.cluster.nonsense());
        }
        if !look.is_ours() {
            let predecessor = look.before.first().ok_or_else(|| self.cluster.nonsense())?;
            session.predecessor = Some((String::from_utf8_lossy(predecessor.key()).into_owned(), look.revision));
            session.news_at = Instant::now() + news_every(ttl / SIGNS_OF_LIFE, look.count);
            let (holder, position) = (look.holder(&prefix(&self.claim)), look.position(just_joined));
            return Ok(Attempt::Busy(Busy { holder, position, now: wall_millis() }));
        }
        if look.first.as_ref().is_none_or(|first| first.create_revision() < own.create_revision()) {
            return Err(self.cluster.nonsense());
        }
        let waited = session.predecessor.take().is_some();
        session.watch = None;
        let token = match session.token {
            Some(token) => token,
            None => backend::token(look.revision).ok_or_else(|| self.cluster.no_token(look.revision))?,
        };
        session.token = Some(token);
        let (key, lease, created, sent) = (session.key.clone(), session.lease, session.created, session.sent);
        if waited {
            self.publish(key, lease, created, token);
        }
        Ok(Attempt::Held(Grant { token, lease: Lease::until(sent, ttl) }))
    }

    /// Opens the watch on the key before ours, unless there is one.
    async fn watch(&mut self) -> Result<Option<&mut Watch>, Error> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let (Some((predecessor, revision)), Some(ttl)) = (session.predecessor.clone(), session.ttl) else {
            return Ok(None);
        };
        let link = self.cluster.links();
        let known = session.watch.take().filter(|watch| watch.key == predecessor && watch.link == link);
        let watch = if let Some(watch) = known {
            watch
        } else {
            let key = predecessor.clone();
            let options = WatchOptions::new().with_start_revision(revision + 1).with_filters([WatchFilterType::NoPut]);
            let opened = self.cluster.ask(|mut client| async move { client.watch(predecessor, Some(options)).await });
            match before(Instant::now() + ttl / SIGN_ANSWERED, opened).await {
                Ok(stream) => Watch { key, link, stream: stream?, works: false },
                Err(_) => return Err(errors::silence()),
            }
        };
        Ok(Some(session.watch.insert(watch)))
    }

    /// Resolves when something has happened to our key; none when that cannot be heard.
    async fn event_of_own(&mut self) -> Option<()> {
        let session = self.session.as_mut()?;
        let revision = session.renewed?;
        let known = session.own_watch.take().filter(|watch| watch.link == self.cluster.links());
        let watch = match known {
            Some(watch) => watch,
            None => OwnWatch::open(&self.cluster, &session.key, revision).await?,
        };
        if session.own_watch.insert(watch).event().await {
            return Some(());
        }
        session.own_watch = None;
        None
    }
}

#[async_trait::async_trait(?Send)]
impl Contender for EtcdContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.cluster.connect().await
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        let passes = queue == Queue::Pass && self.session.is_none();
        if passes {
            let look = Line::of(&self.claim, &mut self.cluster).glance().await?;
            if look.first.is_some() {
                let holder = look.holder(&prefix(&self.claim));
                return Ok(Attempt::Busy(Busy { holder, position: None, now: wall_millis() }));
            }
        }
        let (look, just_joined) = self.look_in_queue().await?;
        let attempt = self.judge(&look, just_joined)?;
        match attempt {
            Attempt::Held(_) => self.hold_on().await?,
            Attempt::Busy(_) if passes => {
                self.withdraw(Used::No).await?;
            }
            Attempt::Busy(_) => {}
        }
        Ok(attempt)
    }

    async fn changed(&mut self) -> Result<(), Error> {
        if self.watch().await?.is_none() {
            return Ok(());
        }
        loop {
            let Some(session) = &mut self.session else { return Ok(()) };
            let (Some(watch), Some(ttl)) = (&mut session.watch, session.ttl) else { return Ok(()) };
            let every = ttl / SIGNS_OF_LIFE;
            let sign_of_life = session.sent + every;
            let message = tokio::select! {
                biased;
                message = watch.stream.message() => message,
                () = sleep_until(sign_of_life) => {
                    // An attempt is a sign of life too.
                    if session.news_at < sign_of_life + every || !self.show_life().await? {
                        return Ok(());
                    }
                    continue;
                }
            };
            match message {
                Ok(Some(message)) if message.events().is_empty() && !message.canceled() => watch.works = true,
                Ok(Some(message)) if !message.canceled() => return Ok(()),
                // Compacted, or the member is gone: a look tells what is true.
                ended => {
                    let worked = watch.works || ended.is_ok_and(|message| message.is_some());
                    session.watch = None;
                    self.cluster.drop_link();
                    // At once, but for a way to the server on which no watch ever works.
                    return if worked { Ok(()) } else { Err(errors::no_watch()) };
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let Some(session) = &mut self.session else { return Err(errors::nothing_to_renew()) };
        let Some(ttl) = session.ttl else { return Err(errors::nothing_to_renew()) };
        // Where members were compared, it is known already.
        let known = self.cluster.version().map(str::to_owned);
        let patience = (!self.inspected && known.is_none()).then(|| VERSION.min(ttl / VERSION_SHARE));
        let extended = own::extend(&mut self.cluster, session.lease, &session.key, patience).await?;
        let Extended::Lease { sent, own, revision, version } = extended else {
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
                    self.concerns.extend(version::concern(&version));
                }
                self.inspected = true;
                Renewal::Extended(Lease::until(sent, ttl))
            }
        })
    }

    async fn disturbed(&mut self) {
        if self.event_of_own().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    fn concerns(&mut self) -> Vec<String> {
        std::mem::take(&mut self.concerns)
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        if self.session.is_none() {
            return Ok(Released::NotMine);
        }
        self.cluster.connect().await?;
        self.withdraw(used).await
    }
}
