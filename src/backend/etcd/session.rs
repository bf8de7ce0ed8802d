/*!
A lease and a key at the cluster for one claim: made, kept alive during the wait, published, and taken away.
*/

use std::time::Duration;

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, LeaseGrantOptions, PutOptions, Txn, TxnOp};

use crate::backend::etcd::contender::{EtcdContender, SIGN_ANSWERED, SIGNS_OF_LIFE, Session};
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::look::{HOLD, prefix};
use crate::backend::etcd::own::{self, Extended};
use crate::backend::{Claim, Error, ErrorKind, Released, Used};
use crate::clock::{Instant, before, wall_millis};

/// The lease that belongs to an owner.
fn lease_of(claim: &Claim) -> i64 {
    lease(claim.owner.as_str().get(..16))
}

/// The lease for the minimum hold of an owner.
fn hold_lease_of(claim: &Claim) -> i64 {
    lease(claim.owner.as_str().get(16..))
}

/// The lease with this number, positive, and never 0, which means "choose one".
fn lease(digits: Option<&str>) -> i64 {
    let number = u64::from_str_radix(digits.unwrap_or_default(), 16).unwrap_or_default() >> 1;
    i64::try_from(number).unwrap_or_default().max(1)
}

/// A length of time as etcd has it: whole seconds are all there is, so rather longer than asked.
fn seconds(length: Duration) -> i64 {
    i64::try_from(length.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// What is published; the token is known only once the lock is ours.
pub(super) fn value(claim: &Claim, token: Option<u64>, since: u64) -> String {
    let token = token.map_or_else(String::new, |token| format!("\"token\":{token},"));
    let until = since.saturating_add(u64::try_from(claim.min_hold.as_millis()).unwrap_or(u64::MAX));
    let until = if claim.min_hold.is_zero() { String::new() } else { format!("\"until\":{until},") };
    format!("{}{token}\"since\":{since},{until}{}", claim.prefix(), claim.about.rest())
}

impl EtcdContender {
    /// Makes sure that there is a lease, and that it has been extended lately.
    pub(super) async fn keep_session(&mut self) -> Result<(), Error> {
        let claim = &self.claim;
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
                news_at: Instant::now(),
                renewed: None,
                own_watch: None,
                withdrawing: false,
                holds: false,
            }
        });
        let lease = session.lease;
        let Some(ttl) = session.ttl else { return self.grant_lease(lease).await };
        let sent = Instant::now();
        // A lock that is ours already is asked for again only where too little is left of its lease.
        if session.token.is_none() && sent < session.sent + ttl / SIGNS_OF_LIFE {
            return Ok(());
        }
        match self.cluster.ask(|mut client| async move { client.lease_keep_alive(lease).await }).await {
            Ok((keeper, _)) => {
                self.cluster.same_lease(lease, keeper.id())?;
                if let Some(session) = &mut self.session {
                    session.sent = sent;
                }
                Ok(())
            }
            // Our place in the queue went with it: this is a new beginning.
            Err(Fault::NoLease(_)) => {
                self.session = None;
                Box::pin(self.keep_session()).await
            }
            Err(fault) => Err(fault.into()),
        }
    }

    async fn grant_lease(&mut self, lease: i64) -> Result<(), Error> {
        let seconds = seconds(self.claim.ttl);
        let sent = Instant::now();
        let options = LeaseGrantOptions::new().with_id(lease);
        let granted =
            self.cluster.ask(|mut client| async move { client.lease_grant(seconds, Some(options)).await }).await;
        let (sent, ttl) = match granted {
            Ok(granted) => {
                self.cluster.same_lease(lease, granted.id())?;
                (sent, granted.ttl())
            }
            // An earlier request was done, and its answer was lost.
            Err(Fault::LeaseKnown(_)) => {
                let sent = Instant::now();
                let asked = self.cluster.ask(|mut client| async move {
                    client.lease_keep_alive(lease).await?;
                    client.lease_time_to_live(lease, None).await
                });
                let known = asked.await?;
                self.cluster.same_lease(lease, known.id())?;
                (sent, known.granted_ttl())
            }
            Err(fault) => return Err(fault.into()),
        };
        let ttl = u64::try_from(ttl).ok().filter(|&ttl| ttl > 0).ok_or_else(|| self.cluster.nonsense())?;
        if let Some(session) = &mut self.session {
            session.sent = sent;
            session.ttl = Some(Duration::from_secs(ttl));
        }
        Ok(())
    }

    /// Lets our place stay taken for the claim's minimum hold from now on, whatever becomes of our own key. The second key
    /// keeps its create revision, and with it the place.
    pub(super) async fn hold_on(&mut self) -> Result<(), Error> {
        let Some(session) = self.session.as_ref().filter(|session| !session.holds) else { return Ok(()) };
        let (true, Some(created), Some(token)) = (!self.claim.min_hold.is_zero(), session.created, session.token)
        else {
            return Ok(());
        };
        let (key, lease) = (format!("{}{HOLD}", session.key), hold_lease_of(&self.claim));
        let (seconds, options) = (seconds(self.claim.min_hold), LeaseGrantOptions::new().with_id(lease));
        match self.cluster.ask(|mut client| async move { client.lease_grant(seconds, Some(options)).await }).await {
            Ok(granted) => self.cluster.same_lease(lease, granted.id())?,
            // An earlier request was done, and its answer was lost.
            Err(Fault::LeaseKnown(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
        let value = value(&self.claim, Some(token), wall_millis());
        let put = TxnOp::put(key.as_str(), value, Some(PutOptions::new().with_lease(lease)));
        let unchanged = Compare::create_revision(key.as_str(), CompareOp::Equal, created);
        let transaction = Txn::new().when([unchanged]).and_then([put]);
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        if !answer.succeeded() {
            // Deleted, or over already after an answer that was lost: the next attempt begins anew.
            self.withdraw(Used::No).await?;
            return Err(errors::taken_away(&key));
        }
        if let Some(session) = &mut self.session {
            session.holds = true;
        }
        Ok(())
    }

    /// What is left of our place when our own key is gone: it stays where that is wanted, and goes otherwise.
    pub(super) async fn end_hold(&mut self, key: &str, used: Used) -> Result<bool, Error> {
        if self.claim.min_hold.is_zero() {
            return Ok(false);
        }
        let key = format!("{key}{HOLD}");
        if used == Used::Yes {
            let options = GetOptions::new().with_keys_only();
            let read = self.cluster.ask(|mut client| async move { client.get(key, Some(options)).await }).await?;
            return Ok(!read.kvs().is_empty());
        }
        self.cluster.ask(|mut client| async move { client.delete(key, None).await }).await?;
        self.revoke(hold_lease_of(&self.claim)).await?;
        Ok(false)
    }

    /// Sends a waiter's heartbeat; says whether its place in the queue is still there.
    pub(super) async fn show_life(&mut self) -> Result<bool, Error> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let Some(ttl) = session.ttl else { return Ok(false) };
        let extending = own::extend(&mut self.cluster, session.lease, &session.key, None);
        let extended = before(Instant::now() + ttl / SIGN_ANSWERED, extending).await;
        let extended = extended.map_err(|_| errors::silence())??;
        let Extended::Lease { sent, own, .. } = extended else { return Ok(false) };
        session.sent = sent;
        Ok(own.is_some_and(|own| Some(own.create_revision()) == session.created))
    }

    /// Publishes the token, and since when the lock is held, after a wait: the first value was written when that began.
    pub(super) fn publish(&self, key: String, lease: i64, created: Option<i64>, token: u64) {
        let (Some(mut client), Some(created)) = (self.cluster.client(), created) else { return };
        // Always with the lease: a value without one would never go away.
        let put = TxnOp::put(
            key.as_str(),
            value(&self.claim, Some(token), wall_millis()),
            Some(PutOptions::new().with_lease(lease)),
        );
        let unchanged = Compare::create_revision(key, CompareOp::Equal, created);
        tokio::spawn(async move { client.txn(Txn::new().when([unchanged]).and_then([put])).await });
    }

    /// Takes our key and lease away, and unless it is to stay for the minimum hold, our second key.
    pub(super) async fn withdraw(&mut self, used: Used) -> Result<Released, Error> {
        let Some(session) = &mut self.session else { return Ok(Released::NotMine) };
        session.watch = None;
        let (key, lease, created) = (session.key.clone(), session.lease, session.created);
        let own = key.clone();
        if std::mem::replace(&mut session.withdrawing, true) {
            // The last try got no answer, and this one may get none either: the lease must not be left to later.
            self.revoke(lease).await?;
        }
        let options = Some(DeleteOptions::new().with_prev_key());
        let asked = self.cluster.ask(|mut client| async move { client.delete(key, options.clone()).await });
        let (deleted, ours) = match asked.await {
            // It may have been deleted and made again: it is of no use to anybody, and others may have held the lock.
            Ok(answer) => {
                let is_ours = |kv: &KeyValue| created.is_none_or(|created| kv.create_revision() == created);
                (answer.deleted() > 0, answer.prev_kvs().iter().any(is_ours))
            }
            // A user without the right to do that has no key there, but may have leases.
            Err(Fault::Failed(error)) if error.kind == ErrorKind::Denied => (false, false),
            Err(fault) => return Err(fault.into()),
        };
        match self.revoke(lease).await {
            Ok(()) => {}
            // The lock is free; the empty lease ends by itself.
            Err(_) if deleted => {}
            Err(error) => return Err(error),
        }
        let is_kept = self.end_hold(&own, used).await?;
        self.session = None;
        Ok(match (ours, is_kept) {
            (true, true) => Released::Kept,
            (true, false) => Released::Freed,
            (false, _) => Released::NotMine,
        })
    }

    /// Ends our lease, if there is one.
    async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        match self.cluster.ask(|mut client| async move { client.lease_revoke(lease).await }).await {
            Ok(_) | Err(Fault::NoLease(_)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }
}
