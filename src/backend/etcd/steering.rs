/*!
What whoever intervenes asks of a cluster: that a request to stop is put beside a lock, or that the lock is taken away. Each is
one transaction that compares the revision at which the holder's key was made.
*/

use etcd_client::{Client, Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp};

use crate::backend::Error;
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{HOLD, stem};
use crate::backend::survey::PATIENCE;
use crate::clock::within;
use crate::holder::ask::{Ask, REMEMBERED};

/// A holder's key, as it was seen.
pub(super) struct Mark {
    /// The key.
    pub key: String,
    /// The revision at which it was made.
    pub created: i64,
    /// The lease that it is bound to.
    pub lease: i64,
}

impl Mark {
    fn is_there(&self) -> Compare {
        Compare::create_revision(self.key.clone(), CompareOp::Equal, self.created)
    }
}

/// Puts `ask` into the key `stop`, bound to the holder's own lease, if that holder is still there, and leaves it in `trace`.
pub(super) async fn put(
    cluster: &mut Cluster,
    mark: &Mark,
    ask: &Ask,
    stop: String,
    trace: String,
) -> Result<bool, Error> {
    let put = TxnOp::put(stop, ask.text(), Some(PutOptions::new().with_lease(mark.lease)));
    change(cluster, mark, vec![put], ask, trace).await
}

/// Deletes the keys of the holder, if it is still there, and leaves `ask` in `trace`. The holder's lease stays: other locks may
/// rest on it.
pub(super) async fn take(cluster: &mut Cluster, mark: &Mark, ask: &Ask, trace: String) -> Result<bool, Error> {
    let own = stem(&mark.key);
    let delete = [own.to_owned(), format!("{own}{HOLD}")].map(|key| TxnOp::delete(key, None::<DeleteOptions>));
    change(cluster, mark, delete.into(), ask, trace).await
}

/// Makes this change, if the holder is still there, and puts `ask` into the key `trace`, bound to a lease of its own.
async fn change(
    cluster: &mut Cluster,
    mark: &Mark,
    change: Vec<TxnOp>,
    ask: &Ask,
    trace: String,
) -> Result<bool, Error> {
    let length = i64::try_from(REMEMBERED / 1000).unwrap_or(i64::MAX);
    let lease = asked(cluster, |mut client| async move { client.lease_grant(length, None).await }).await?.id();
    let stays = TxnOp::put(trace, ask.text(), Some(PutOptions::new().with_lease(lease)));
    let change = Txn::new().when([mark.is_there()]).and_then([change, vec![stays]].concat());
    let changed = match asked(cluster, |mut client| async move { client.txn(change).await }).await {
        Ok(answer) => Ok(answer.succeeded()),
        // With it the holder's key is gone.
        Err(Fault::NoLease(_)) => Ok(false),
        Err(fault) => Err(fault.into()),
    };
    if matches!(changed, Ok(false)) {
        // It has nothing to keep.
        let _ = asked(cluster, |mut client| async move { client.lease_revoke(lease).await }).await;
    }
    changed
}

async fn asked<T, F: Future<Output = Result<T, etcd_client::Error>>>(
    cluster: &mut Cluster,
    request: impl FnOnce(Client) -> F,
) -> Result<T, Fault> {
    let asked = within(PATIENCE, cluster.ask(request)).await;
    asked.unwrap_or_else(|_| Err(Fault::from(errors::silence())))
}
