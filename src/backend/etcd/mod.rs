/*!
etcd: the keys below `NS/KEY/`, one for each who wants the lock, named after its lease. The one with the lowest create
revision holds the lock and each other one watches the one before it, as Go's `concurrency.Mutex`, `etcdctl lock` and
the server's own lock service do it.

This is that recipe on keys, leases and watches, not the server's lock service, which in some versions grants a lock
whose lease has ended. What ownership rests on is always a linearizable read that shows our own key in first place.
*/

mod link;

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, KeyValue, LeaseGrantOptions, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchFilterType, WatchOptions, WatchStream,
};

use self::link::{Cluster, LEASE_KNOWN, NO_LEASE};
use super::location::Location;
use super::queue::{Entry, Place, place};
use super::tls::Tls;
use super::{Attempt, Backend, Busy, Claim, Error, Grant, Kind, Lease, Queue, Released, Renewal};
use crate::clock::{Instant, before, sleep_until};
use crate::holder::Holder;

/// The port that etcd listens on by default.
pub(super) const DEFAULT_PORT: u16 = 2379;

/// How often who waits shows that it is alive: this part of its lease.
const SIGNS_OF_LIFE: u32 = 3;
/// How long the answer to that may take: this part of its lease.
const SIGN_ANSWERED: u32 = 6;

/// The locks of one etcd cluster.
pub(crate) struct EtcdBackend {
    cluster: Cluster,
    session: Option<Session>,
}

/// What is at the cluster for one claim.
struct Session {
    /// The lease's id, made from the owner's: a grant can be asked for twice and is one.
    lease: i64,
    /// Our key.
    key: String,
    /// When the last confirmed request was sent that began or extended the lease.
    sent: Instant,
    /// The granted length; none before the answer.
    ttl: Option<Duration>,
    /// Our key's create revision; none before the answer.
    created: Option<i64>,
    /// The token, once the lock is ours: the same for every further attempt.
    token: Option<u64>,
    /// The watch on the key before ours.
    watch: Option<Watch>,
    /// The key before ours, and the revision at which it was seen.
    predecessor: Option<(String, i64)>,
    /// It has been tried to take all this away.
    withdrawing: bool,
}

/// A watch on one key.
struct Watch {
    key: String,
    /// The connection that it came by: one that was given up is silent for ever.
    link: u64,
    stream: WatchStream,
    /// The server has said that it watches.
    works: bool,
}

/// What one look at the queue shows.
struct Look {
    /// The revision of the cluster at that moment.
    revision: i64,
    own: Option<KeyValue>,
    first: Option<KeyValue>,
    entries: Vec<KeyValue>,
}

/// What every key of the lock begins with.
fn prefix(claim: &Claim) -> String {
    format!("{}/", claim.namespace.join('/', &claim.key))
}

/// The lease that belongs to an owner: positive, and never 0, which means "choose one".
fn lease_of(claim: &Claim) -> i64 {
    let digits = claim.owner.as_str().get(..16).unwrap_or_default();
    let number = u64::from_str_radix(digits, 16).unwrap_or_default() >> 1;
    i64::try_from(number).unwrap_or_default().max(1)
}

/// Milliseconds since 1970, by this machine's clock: etcd tells none.
fn wall_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or_default()
}

/// What is published; the token is known only once the lock is ours.
fn value(claim: &Claim, token: Option<u64>, since: u64) -> String {
    let token = token.map_or_else(String::new, |token| format!("\"token\":{token},"));
    format!("{}{token}\"since\":{since},{}", claim.owner.prefix(), claim.about.rest())
}

/// What reads the queue: our own key, the holder's with its value, and the names of all, which are short: a queue of
/// thousands fits into one answer.
fn look(prefix: &str, own: &str) -> Vec<TxnOp> {
    let oldest_first = || GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    vec![
        TxnOp::get(own, Some(GetOptions::new().with_keys_only())),
        TxnOp::get(prefix, Some(oldest_first().with_limit(1))),
        TxnOp::get(prefix, Some(oldest_first().with_keys_only())),
    ]
}

impl Look {
    /// Reads the answers to the last three operations of a transaction.
    fn read(answer: &TxnResponse) -> Option<Self> {
        // The library takes for granted that each of them is there.
        if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
            return None;
        }
        let revision = answer.header()?.revision();
        let mut gets = answer.op_responses().into_iter().filter_map(|operation| match operation {
            TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        let mut next = || gets.next().map(|mut get: GetResponse| get.take_kvs());
        let (own, first, entries) = (next()?, next()?, next()?);
        Some(Self { revision, own: own.into_iter().next(), first: first.into_iter().next(), entries })
    }

    /// Who is in the way, of those whose keys are older than ours.
    fn holder(&self, prefix: &str, predecessor: Option<&Entry>) -> Holder {
        let stray = |kv: &KeyValue| !is_lock(kv, prefix);
        let before = predecessor.and_then(|entry| self.entries.iter().find(|kv| kv.key() == entry.name.as_bytes()));
        if let Some(stray) = self.first.as_ref().filter(|kv| stray(kv)).or(before.filter(|kv| stray(kv))) {
            let what = if stray.lease() == 0 { "without a lease" } else { "that is no lock" };
            return Holder::InTheWay(format!("the key {}, a key {what}", String::from_utf8_lossy(stray.key())));
        }
        match &self.first {
            None => Holder::Nobody,
            // Other clients publish nothing; the key at least names the lease.
            Some(first) if first.value().is_empty() => {
                Holder::Foreign(format!("key {}", String::from_utf8_lossy(first.key())).into_bytes())
            }
            Some(first) => Holder::read(first.value()),
        }
    }
}

/// Whether a key below the lock's prefix is what a lock's client makes: named after its lease in hexadecimal.
fn is_lock(kv: &KeyValue, prefix: &str) -> bool {
    let name = kv.key().strip_prefix(prefix.as_bytes()).unwrap_or_default();
    kv.lease() != 0 && !name.is_empty() && name.iter().all(u8::is_ascii_hexdigit)
}

/// Whether the service says that there is no such lease.
fn is_no_lease(error: &Error) -> bool {
    error.to_string().contains(NO_LEASE)
}

/// Whether it says that the lease to be granted is there already.
fn is_lease_known(error: &Error) -> bool {
    error.to_string().contains(LEASE_KNOWN)
}

impl EtcdBackend {
    /// A backend that has not connected yet.
    #[must_use]
    pub(super) fn new(location: Location, tls: Option<Tls>) -> Self {
        Self { cluster: Cluster::new(location, tls), session: None }
    }

    /// Makes sure that there is a lease, and that it has been extended lately.
    async fn keep_session(&mut self, claim: &Claim) -> Result<(), Error> {
        let session = self.session.get_or_insert_with(|| {
            let lease = lease_of(claim);
            Session {
                lease,
                key: format!("{}{lease:x}", prefix(claim)),
                sent: Instant::now(),
                ttl: None,
                created: None,
                token: None,
                watch: None,
                predecessor: None,
                withdrawing: false,
            }
        });
        let lease = session.lease;
        let Some(ttl) = session.ttl else { return self.grant_lease(claim, lease).await };
        let sent = Instant::now();
        // Who asks again for what is ours already found too little left of it.
        if session.token.is_none() && sent < session.sent + ttl / SIGNS_OF_LIFE {
            return Ok(());
        }
        match self.cluster.ask(|mut client| async move { client.lease_keep_alive(lease).await }).await {
            Ok(_) => {
                if let Some(session) = &mut self.session {
                    session.sent = sent;
                }
                Ok(())
            }
            // Our place in the queue went with it: this is a new beginning.
            Err(error) if is_no_lease(&error) => {
                self.session = None;
                Box::pin(self.keep_session(claim)).await
            }
            Err(error) => Err(error),
        }
    }

    async fn grant_lease(&mut self, claim: &Claim, lease: i64) -> Result<(), Error> {
        // Whole seconds are all there is: rather longer than asked.
        let seconds = i64::try_from(claim.ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let sent = Instant::now();
        let options = LeaseGrantOptions::new().with_id(lease);
        let granted =
            self.cluster.ask(|mut client| async move { client.lease_grant(seconds, Some(options)).await }).await;
        let (sent, ttl) = match granted {
            Ok(granted) => (sent, granted.ttl()),
            // An earlier request was done, and its answer was lost.
            Err(error) if is_lease_known(&error) => {
                let sent = Instant::now();
                let asked = self.cluster.ask(|mut client| async move {
                    client.lease_keep_alive(lease).await?;
                    client.lease_time_to_live(lease, None).await
                });
                (sent, asked.await?.granted_ttl())
            }
            Err(error) => return Err(error),
        };
        let ttl = u64::try_from(ttl).ok().filter(|&ttl| ttl > 0).ok_or_else(|| self.cluster.nonsense())?;
        if let Some(session) = &mut self.session {
            session.sent = sent;
            session.ttl = Some(Duration::from_secs(ttl));
        }
        Ok(())
    }

    /// Reads the queue, and puts our key into it where `put` says so and it is not there.
    async fn look(&mut self, claim: &Claim, key: &str, put: Option<i64>) -> Result<Look, Error> {
        let (prefix, key) = (prefix(claim), key.to_owned());
        let transaction = match put {
            None => Txn::new().and_then(look(&prefix, &key)),
            Some(lease) => {
                let value = value(claim, None, wall_clock());
                let mut put = vec![TxnOp::put(key.as_str(), value, Some(PutOptions::new().with_lease(lease)))];
                put.extend(look(&prefix, &key));
                Txn::new()
                    .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
                    .and_then(put)
                    .or_else(look(&prefix, &key))
            }
        };
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        Look::read(&answer).ok_or_else(|| self.cluster.nonsense())
    }

    /// Reads the queue with our key in it.
    async fn look_in_queue(&mut self, claim: &Claim) -> Result<Look, Error> {
        for _ in 0..2 {
            self.keep_session(claim).await?;
            let Some(session) = &self.session else { continue };
            let (key, lease, created) = (session.key.clone(), session.lease, session.created);
            // A look alone is no write, and all that is needed once the key is there.
            if created.is_some() {
                let look = self.look(claim, &key, None).await?;
                if look.own.as_ref().map(KeyValue::create_revision) == created {
                    return Ok(look);
                }
            }
            match self.look(claim, &key, Some(lease)).await {
                Ok(look) => {
                    let created = look.own.as_ref().map(KeyValue::create_revision);
                    let session = self.session.as_mut().ok_or_else(|| self.cluster.nonsense())?;
                    if session.created != created {
                        (session.created, session.token) = (created, None);
                    }
                    return Ok(look);
                }
                // It ended between the two requests: once more from the beginning.
                Err(error) if is_no_lease(&error) => self.session = None,
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable(format!("the lease of {} ends faster than it can be used", claim.key)))
    }

    /// What `look` means for us.
    fn judge(&mut self, claim: &Claim, look: &Look) -> Result<Attempt, Error> {
        let prefix = prefix(claim);
        let session = self.session.as_mut();
        let own = session.as_ref().map(|session| session.key.clone().into_bytes());
        let entries: Vec<Entry> = look
            .entries
            .iter()
            .map(|kv| Entry { order: kv.create_revision(), name: String::from_utf8_lossy(kv.key()).into_owned() })
            .collect();
        let is_ours = |entry: &Entry| own.as_ref().is_some_and(|own| entry.name.as_bytes() == own);
        let now = wall_clock();
        match (place(&entries, is_ours), session) {
            (Place::First, Some(session)) => {
                let Some(ttl) = session.ttl else { return Err(self.cluster.nonsense()) };
                let waited = session.predecessor.take().is_some();
                session.watch = None;
                let token = match session.token {
                    Some(token) => token,
                    None => u64::try_from(look.revision).map_err(|_| self.cluster.nonsense())?,
                };
                session.token = Some(token);
                let (key, lease, created, sent) = (session.key.clone(), session.lease, session.created, session.sent);
                if waited {
                    self.publish(claim, key, lease, created, token);
                }
                Ok(Attempt::Held(Grant { token, lease: Lease::until(sent, ttl) }))
            }
            (Place::Behind { predecessor, position, .. }, Some(session)) => {
                let holder = look.holder(&prefix, Some(&predecessor));
                session.predecessor = Some((predecessor.name, look.revision));
                Ok(Attempt::Busy(Busy { holder, position: Some(position), now }))
            }
            (Place::Missing, None) => {
                Ok(Attempt::Busy(Busy { holder: look.holder(&prefix, None), position: None, now }))
            }
            (Place::First | Place::Behind { .. } | Place::Missing, _) => Err(self.cluster.nonsense()),
        }
    }

    /// Publishes, beside what follows, since when a lock is held that had to be waited for: the first value was written
    /// when the wait began.
    fn publish(&self, claim: &Claim, key: String, lease: i64, created: Option<i64>, token: u64) {
        let (Some(mut client), Some(created)) = (self.cluster.client(), created) else { return };
        // Always with the lease: a value without one would stay for ever.
        let put = TxnOp::put(
            key.as_str(),
            value(claim, Some(token), wall_clock()),
            Some(PutOptions::new().with_lease(lease)),
        );
        let unchanged = Compare::create_revision(key, CompareOp::Equal, created);
        tokio::spawn(async move { client.txn(Txn::new().when([unchanged]).and_then([put])).await });
    }

    /// Takes our key and lease away.
    async fn withdraw(&mut self) -> Result<Released, Error> {
        let Some(session) = &mut self.session else { return Ok(Released::NotMine) };
        session.watch = None;
        let (key, lease, created) = (session.key.clone(), session.lease, session.created);
        if std::mem::replace(&mut session.withdrawing, true) {
            // The last try got no answer, and this one may get none either: the lease must not be left to later.
            self.revoke(lease).await?;
        }
        let options = Some(DeleteOptions::new().with_prev_key());
        let asked = self.cluster.ask(|mut client| async move { client.delete(key, options.clone()).await });
        let (deleted, ours) = match asked.await {
            // Somebody may have deleted it and made it again: it is of no use to anybody, and others may have held the lock.
            Ok(answer) => {
                let is_ours = |kv: &KeyValue| created.is_none_or(|created| kv.create_revision() == created);
                (answer.deleted() > 0, answer.prev_kvs().iter().any(is_ours))
            }
            // Who may not do that has no key there, but leases are for everybody.
            Err(error) if error.kind == Kind::Denied => (false, false),
            Err(error) => return Err(error),
        };
        match self.revoke(lease).await {
            Ok(()) => {}
            // The lock is free; the empty lease ends by itself.
            Err(_) if deleted => {}
            Err(error) => return Err(error),
        }
        self.session = None;
        Ok(if ours { Released::Freed } else { Released::NotMine })
    }

    /// Ends our lease, if there is one.
    async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        match self.cluster.ask(|mut client| async move { client.lease_revoke(lease).await }).await {
            Ok(_) => Ok(()),
            Err(error) if is_no_lease(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for EtcdBackend {
    async fn connect(&mut self) -> Result<(), Error> {
        self.cluster.connect().await
    }

    async fn attempt(&mut self, claim: &Claim, queue: Queue) -> Result<Attempt, Error> {
        let passes = queue == Queue::Pass && self.session.is_none();
        if passes {
            let look = self.look(claim, &prefix(claim), None).await?;
            if look.first.is_some() {
                return self.judge(claim, &look);
            }
        }
        let look = self.look_in_queue(claim).await?;
        let attempt = self.judge(claim, &look)?;
        if passes && matches!(attempt, Attempt::Busy(_)) {
            self.withdraw().await?;
        }
        Ok(attempt)
    }

    async fn changed(&mut self, _claim: &Claim) -> Result<(), Error> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let (Some((predecessor, revision)), Some(ttl)) = (session.predecessor.clone(), session.ttl) else {
            return Ok(());
        };
        // Then it is time for a sign of life, and for a look at who holds the lock by now.
        let sign_of_life = session.sent + ttl / SIGNS_OF_LIFE;
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
                Err(_) => return Err(Error::unavailable("the member of etcd that was asked does not answer")),
            }
        };
        let Some(session) = &mut self.session else { return Ok(()) };
        let watch = session.watch.insert(watch);
        loop {
            let message = tokio::select! {
                biased;
                message = watch.stream.message() => message,
                () = sleep_until(sign_of_life) => return Ok(()),
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
                    return if worked { Ok(()) } else { Err(Error::unavailable("etcd ended a watch before it began")) };
                }
            }
        }
    }

    async fn renew(&mut self, _claim: &Claim) -> Result<Renewal, Error> {
        let Some(Session { lease, key, created, ttl: Some(ttl), .. }) = &self.session else {
            return Err(Error::unavailable("there is no lock to renew"));
        };
        let (lease, created, ttl, key) = (*lease, *created, *ttl, key.clone());
        let sent = Instant::now();
        let asked = self.cluster.ask(|mut client| async move {
            let mut reader = client.clone();
            // The lease alone proves nothing of the key, which anybody may delete.
            tokio::try_join!(client.lease_keep_alive(lease), reader.get(key, Some(GetOptions::new().with_keys_only())))
        });
        let own = match asked.await {
            Ok((_, mut own)) => own.take_kvs().into_iter().next(),
            Err(error) if is_no_lease(&error) => {
                return Ok(Renewal::NotMine("its lease has ended at the server or was revoked".to_owned()));
            }
            Err(error) => return Err(error),
        };
        Ok(match own {
            None => Renewal::NotMine("its key is gone from the server".to_owned()),
            Some(own) if Some(own.create_revision()) != created => {
                Renewal::NotMine("its key was deleted and made again by somebody else".to_owned())
            }
            Some(own) if own.lease() != lease => {
                Renewal::NotMine("its key was overwritten and is not bound to the lease any more".to_owned())
            }
            Some(_) => {
                if let Some(session) = &mut self.session {
                    session.sent = sent;
                }
                Renewal::Extended(Lease::until(sent, ttl))
            }
        })
    }

    async fn release(&mut self, _claim: &Claim) -> Result<Released, Error> {
        if self.session.is_none() {
            return Ok(Released::NotMine);
        }
        self.cluster.connect().await?;
        self.withdraw().await
    }
}
