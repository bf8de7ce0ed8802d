/*!
The last period in which a command has succeeded (`--once-per`): a separate key, `NS/KEY` with a control character,
`once:` and the length of the periods in milliseconds. It counts for two periods, and has a lease of at least 30 days.

etcd does not report its time, so the period is that of the asking host's clock.
*/

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};

use crate::backend::contract::contender::Used;
use crate::backend::error::unrecorded;
use crate::backend::error::{Error, ErrorKind};
use crate::backend::etcd::contender::EtcdContender;
use crate::backend::etcd::names::record;
use crate::backend::etcd::session::seconds;
use crate::clock::wall_millis;
use crate::holder::done::Done;
use crate::lock::period::Period;

impl EtcdContender {
    /// The recorded success in the claim's period; `None` if there is none, or if the claim has no period.
    pub(super) async fn done(&mut self) -> Result<Option<Box<Done>>, Error> {
        let Some(once) = self.claim.once_per else { return Ok(None) };
        let (period, key) = (once.period(), record(&self.claim, once.period()));
        let read = self.cluster.ask(|mut client| async move { client.get(key, None).await }).await?;
        let done = read.kvs().first().and_then(|kv| Done::read(kv.value()));
        let counts = |done: &Done| done.covers(period) && done.is_remembered(wall_millis());
        Ok(done.filter(counts).map(Box::new))
    }

    /// Deletes our key and records the success of its command in the same transaction, if it is to be recorded. If this
    /// returns `false`, our key has still to be deleted.
    pub(super) async fn free_with_record(&mut self, used: Used) -> Result<bool, Error> {
        let Some(once) = self.claim.once_per.filter(|_| used == Used::Success) else { return Ok(false) };
        let own = self.session.as_ref().and_then(|session| Some((session.key.clone(), session.created?)));
        let Some((key, created)) = own else { return Ok(false) };
        match self.try_to_record(once.period(), key, created).await {
            Err(error) if error.kind == ErrorKind::Denied => {
                self.warnings.push(unrecorded(&error));
                Ok(false)
            }
            recorded => recorded,
        }
    }

    async fn try_to_record(&mut self, period: Period, key: String, created: i64) -> Result<bool, Error> {
        let seconds = seconds(period.kept());
        let granted = self.cluster.ask(|mut client| async move { client.lease_grant(seconds, None).await }).await?;
        let lease = granted.id();
        let text = self.claim.done(period, wall_millis()).text();
        let put = TxnOp::put(record(&self.claim, period), text, Some(PutOptions::new().with_lease(lease)));
        let unchanged = Compare::create_revision(key.as_str(), CompareOp::Equal, created);
        let free = Txn::new().when([unchanged]).and_then([TxnOp::delete(key, None), put]);
        let freed = self.cluster.ask(|mut client| async move { client.txn(free).await }).await;
        match freed {
            Ok(answer) if answer.succeeded() => Ok(true),
            // Our key is gone, perhaps by an earlier request whose answer was lost: nothing is bound to the new lease.
            Ok(_) => {
                let _ = self.revoke(lease).await;
                Ok(false)
            }
            Err(fault) => Err(fault.into()),
        }
    }
}
