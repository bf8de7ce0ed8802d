/*!
The lease and key of one claim: creates them, keeps them alive during the wait, and removes them; publishes the holder.
*/

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, LeaseGrantOptions, PutOptions, ResponseHeader, Txn, TxnOp,
};

use crate::backend::contract::claim::Claim;
use crate::backend::contract::claim::Known;
use crate::backend::contract::contender::{Released, Used};
use crate::backend::error::{Error, ErrorKind};
use crate::backend::etcd::contender::{EtcdContender, SIGN_ANSWERED, SIGNS_OF_LIFE, Session};
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::names::{HOLD, hold_lease_of, key, lease_of, prefix};
use crate::backend::etcd::own::{self, Extended};
use crate::clock::{Instant, before, millis, wall_millis};

/// A duration in whole seconds, etcd's unit, rounded up.
pub(super) fn seconds(length: Duration) -> i64 {
    i64::try_from(length.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// The value to publish; the token and the slot are known only once we hold the lock.
pub(super) fn value(claim: &Claim, token: Option<u64>, slot: Option<u32>, since: u64) -> String {
    let until = || since.saturating_add(millis(claim.min_hold));
    let until = if claim.min_hold.is_zero() { None } else { Some(until()) };
    claim.text(Known { token, slot, since: Some(since), until })
}

/// Puts `value` into the key created at the revision `created`, if that still exists, so that it keeps its place.
/// Always with a lease: a key without one would never expire.
fn put_again(key: &str, created: i64, value: String, lease: i64) -> Txn {
    let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
    let unchanged = Compare::create_revision(key, CompareOp::Equal, created);
    Txn::new().when([unchanged]).and_then([put])
}

impl Session {
    /// The initial state of `claim` at the cluster: as far as known, it has nothing there yet.
    pub(super) fn new(claim: &Claim) -> Self {
        let lease = lease_of(claim.owner.as_str());
        Self {
            lease,
            key: key(&prefix(claim), lease, claim.mode),
            sent: Instant::now(),
            ttl: None,
            created: None,
            token: None,
            slot: None,
            awaits: None,
            watch: None,
            told: None,
            news_at: Instant::now(),
            renewed: None,
            own_watch: None,
            withdrawing: false,
            holds: false,
        }
    }

    /// Notes that a member says that it has extended the lease, by a request sent at this time. A leader that has been
    /// replaced and does not know it says so too: only a linearizable look shows that it still leads.
    fn kept_alive(&mut self, sent: Instant) {
        self.sent = sent;
        self.told = None;
    }
}

impl EtcdContender {
    /// Ensures that there is a lease, and that it has been extended lately.
    pub(super) async fn keep_session(&mut self) -> Result<(), Error> {
        let claim = &self.claim;
        let session = self.session.get_or_insert_with(|| Session::new(claim));
        let lease = session.lease;
        let Some(ttl) = session.ttl else { return self.grant_lease(lease).await };
        let sent = Instant::now();
        // A lock that we hold already is requested again only if too little of its lease is left.
        if session.token.is_none() && sent < session.sent + ttl / SIGNS_OF_LIFE {
            return Ok(());
        }
        match self.cluster.ask(|mut client| async move { client.lease_keep_alive(lease).await }).await {
            Ok((keeper, _)) => {
                self.cluster.same_lease(lease, keeper.id())?;
                if let Some(session) = &mut self.session {
                    session.kept_alive(sent);
                }
                Ok(())
            }
            // Our place in the queue ended with the lease: start over.
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
            // An earlier request was carried out, and its answer was lost.
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
        let ttl = u64::try_from(ttl).ok().filter(|&ttl| ttl > 0).ok_or_else(|| self.cluster.malformed())?;
        if let Some(session) = &mut self.session {
            session.sent = sent;
            session.ttl = Some(Duration::from_secs(ttl));
        }
        Ok(())
    }

    /// Keeps our place for the claim's minimum hold from now on, whatever happens to our own key. The second key keeps
    /// its create revision, and with it the place.
    pub(super) async fn hold_on(&mut self) -> Result<(), Error> {
        let Some(session) = self.session.as_ref().filter(|session| !session.holds) else { return Ok(()) };
        let (true, Some(created), Some(token)) = (!self.claim.min_hold.is_zero(), session.created, session.token)
        else {
            return Ok(());
        };
        let (key, lease) = (format!("{}{HOLD}", session.key), hold_lease_of(self.claim.owner.as_str()));
        let (seconds, options) = (seconds(self.claim.min_hold), LeaseGrantOptions::new().with_id(lease));
        match self.cluster.ask(|mut client| async move { client.lease_grant(seconds, Some(options)).await }).await {
            Ok(granted) => self.cluster.same_lease(lease, granted.id())?,
            // An earlier request was carried out, and its answer was lost.
            Err(Fault::LeaseKnown(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
        let slot = self.session.as_ref().and_then(|session| session.slot);
        let put = put_again(&key, created, value(&self.claim, Some(token), slot, wall_millis()), lease);
        let answer = self.cluster.ask(|mut client| async move { client.txn(put).await }).await?;
        if !answer.succeeded() {
            // Deleted, or expired already after a lost answer: the next attempt starts over.
            self.withdraw(Used::No).await?;
            return Err(errors::taken_away(&key));
        }
        if let Some(session) = &mut self.session {
            session.holds = true;
        }
        Ok(())
    }

    /// Gives up our place after our own key, unless the lock was used. Returns `true` if the place is kept.
    pub(super) async fn end_hold(&mut self, key: &str, used: Used) -> Result<bool, Error> {
        if self.claim.min_hold.is_zero() {
            return Ok(false);
        }
        let key = format!("{key}{HOLD}");
        if used != Used::No {
            let options = GetOptions::new().with_keys_only();
            let read = self.cluster.ask(|mut client| async move { client.get(key, Some(options)).await }).await?;
            return Ok(!read.kvs().is_empty());
        }
        self.cluster.ask(|mut client| async move { client.delete(key, None).await }).await?;
        self.revoke(hold_lease_of(self.claim.owner.as_str())).await?;
        Ok(false)
    }

    /// Sends a waiter's heartbeat. Returns `true` if its place in the queue still exists.
    pub(super) async fn show_life(&mut self) -> Result<bool, Error> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let Some(ttl) = session.ttl else { return Ok(false) };
        let extending = own::extend(&mut self.cluster, session.lease, &session.key, None, None);
        let extended = before(Instant::now() + ttl / SIGN_ANSWERED, extending).await;
        let extended = extended.map_err(|_| self.cluster.silence())??;
        let Extended::Lease { sent, own, .. } = extended else { return Ok(false) };
        session.sent = sent;
        Ok(own.is_some_and(|own| Some(own.create_revision()) == session.created))
    }

    /// Publishes the token and the start of the hold after a wait: the first value was written when the wait began.
    pub(super) fn publish(&self, token: u64) {
        let (Some(mut client), Some(session)) = (self.cluster.client(), &self.session) else { return };
        let Some(created) = session.created else { return };
        let value = value(&self.claim, Some(token), session.slot, wall_millis());
        let put = put_again(&session.key, created, value, session.lease);
        tokio::spawn(async move { client.txn(put).await });
    }

    /// Records in our key that we have entered, in this slot if the lock has slots: contenders behind us may wait for
    /// that. Returns the revision of this write; `None` if our key is gone.
    pub(super) async fn say_entered(&mut self, token: Option<u64>, slot: Option<u32>) -> Result<Option<i64>, Error> {
        let Some(session) = &self.session else { return Ok(None) };
        let Some(created) = session.created else { return Ok(None) };
        let put = put_again(&session.key, created, value(&self.claim, token, slot, wall_millis()), session.lease);
        match self.cluster.ask(|mut client| async move { client.txn(put).await }).await {
            Ok(answer) if answer.succeeded() => {
                let revision = answer.header().map(ResponseHeader::revision);
                revision.map(Some).ok_or_else(|| self.cluster.malformed())
            }
            Ok(_) | Err(Fault::NoLease(_)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Removes our key and lease, and our second key too unless it is to stay for the minimum hold.
    pub(super) async fn withdraw(&mut self, used: Used) -> Result<Released, Error> {
        let is_recorded = self.free_with_record(used).await?;
        let Some(session) = &mut self.session else { return Ok(Released::NotMine) };
        (session.watch, session.told) = (None, None);
        let (key, lease, created) = (session.key.clone(), session.lease, session.created);
        let own = key.clone();
        if std::mem::replace(&mut session.withdrawing, true) {
            // The last attempt got no answer, and this one may get none either: revoke the lease first.
            self.revoke(lease).await?;
        }
        let (deleted, ours) = if is_recorded { (true, true) } else { self.delete(key, created).await? };
        match self.revoke(lease).await {
            Ok(()) => {}
            // The lock is free; the empty lease expires by itself.
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

    /// Deletes our key, created at the revision `created`. Returns whether a key existed, and whether that was ours.
    async fn delete(&mut self, key: String, created: Option<i64>) -> Result<(bool, bool), Error> {
        let options = Some(DeleteOptions::new().with_prev_key());
        match self.cluster.ask(|mut client| async move { client.delete(key, options).await }).await {
            // It may have been deleted and made again: then nobody needs it, and others may have held the lock.
            Ok(answer) => {
                let is_ours = |kv: &KeyValue| created.is_none_or(|created| kv.create_revision() == created);
                Ok((answer.deleted() > 0, answer.prev_kvs().iter().any(is_ours)))
            }
            // A user without the right to delete has no key there, but may have leases.
            Err(Fault::Failed(error)) if error.kind == ErrorKind::Denied => Ok((false, false)),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Revokes one of our leases, if it exists.
    pub(super) async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        match self.cluster.ask(|mut client| async move { client.lease_revoke(lease).await }).await {
            Ok(_) | Err(Fault::NoLease(_)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Holder;
    use crate::lock::admission::Mode;

    #[test]
    fn the_look_after_a_heartbeat_asks_the_leader() {
        let mut session = Session::new(&Claim::example("dlock", "job").expect("names"));
        session.told = Some(7);
        session.kept_alive(Instant::now());
        assert_eq!(session.told, None);
    }

    #[test]
    fn what_is_published_says_how_the_lock_is_held() {
        for (mode, hold, token, slot, until) in [
            ("exclusive", 0, None, None, None),
            ("exclusive", 2, Some(9), None, Some(2007)),
            ("shared", 0, Some(9), None, None),
            ("slots5", 2, Some(9), Some(4), Some(2007)),
        ] {
            let claim = Claim {
                mode: Mode::read(mode).expect("a mode"),
                min_hold: Duration::from_secs(hold),
                ..Claim::example("dlock", "job").expect("names")
            };
            let value = value(&claim, token, slot, 7);
            let Holder::Dlock(published) = Holder::read(value.as_bytes()) else { panic!("{value}") };
            assert_eq!((published.mode(), published.slot, published.token), (Some(claim.mode), slot, token));
            assert_eq!((published.since, published.until), (Some(7), until));
        }
    }
}
