/*!
Requests to stop and breaks at a cluster: puts a request beside a lock, or takes the lock away. Each is one transaction
that compares the create revision of the holder's key.
*/

use etcd_client::{Client, Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp};

use crate::backend::error::{Error, ErrorKind};
use crate::backend::etcd::errors::Fault;
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{HOLD, stem};
use crate::backend::survey::TIMEOUT;
use crate::clock::within;
use crate::holder::ask::{Ask, REMEMBERED};

/// A holder's key, as last seen.
pub(super) struct Mark {
    /// The key's name.
    pub key: String,
    /// The key's create revision.
    pub created: i64,
    /// The lease that it is bound to.
    pub lease: i64,
}

impl Mark {
    fn is_there(&self) -> Compare {
        Compare::create_revision(self.key.clone(), CompareOp::Equal, self.created)
    }
}

/// The outcome of a change.
pub(super) enum Changed {
    /// The holder's key is gone, and nothing was done.
    Nothing,
    /// The change was made and recorded.
    Done,
    /// The change was made, but not recorded, for this reason.
    Untraced(Error),
}

/// Puts `ask` into the key `stop`, bound to the holder's lease, if the holder still exists, and records it in `record`.
pub(super) async fn put(
    cluster: &mut Cluster,
    mark: &Mark,
    ask: &Ask,
    stop: String,
    record: String,
) -> Result<Changed, Error> {
    let put = TxnOp::put(stop, ask.text(), Some(PutOptions::new().with_lease(mark.lease)));
    change(cluster, mark, vec![put], ask, record).await
}

/// Deletes the keys of the holder, if it still exists, and records `ask` in `record`. The holder's lease stays: other
/// locks may depend on it.
pub(super) async fn take(cluster: &mut Cluster, mark: &Mark, ask: &Ask, record: String) -> Result<Changed, Error> {
    let own = stem(&mark.key);
    let delete = [own.to_owned(), format!("{own}{HOLD}")].map(|key| TxnOp::delete(key, None::<DeleteOptions>));
    change(cluster, mark, delete.into(), ask, record).await
}

/// Makes this change, if the holder still exists, and puts `ask` into the key `record`, bound to its own lease. If that
/// is refused, because the role lacks the right or the database is full, makes the change without the record.
async fn change(
    cluster: &mut Cluster,
    mark: &Mark,
    change: Vec<TxnOp>,
    ask: &Ask,
    record: String,
) -> Result<Changed, Error> {
    let why = match recorded(cluster, mark, change.clone(), ask, record).await {
        Err(Fault::Failed(error)) if matches!(error.kind, ErrorKind::Denied | ErrorKind::Full) => error,
        Ok(is_done) => return Ok(if is_done { Changed::Done } else { Changed::Nothing }),
        // The holder's key is gone with its lease.
        Err(Fault::NoLease(_)) => return Ok(Changed::Nothing),
        Err(fault) => return Err(fault.into()),
    };
    let change = Txn::new().when([mark.is_there()]).and_then(change);
    match asked(cluster, |mut client| async move { client.txn(change).await }).await {
        Ok(answer) if answer.succeeded() => Ok(Changed::Untraced(why)),
        Ok(_) | Err(Fault::NoLease(_)) => Ok(Changed::Nothing),
        Err(fault) => Err(fault.into()),
    }
}

/// Makes this change and its record in one transaction. Returns `true` if the holder still existed.
async fn recorded(
    cluster: &mut Cluster,
    mark: &Mark,
    change: Vec<TxnOp>,
    ask: &Ask,
    record: String,
) -> Result<bool, Fault> {
    let length = i64::try_from(REMEMBERED / 1000).unwrap_or(i64::MAX);
    let lease = asked(cluster, |mut client| async move { client.lease_grant(length, None).await }).await?.id();
    let put = TxnOp::put(record, ask.text(), Some(PutOptions::new().with_lease(lease)));
    let change = Txn::new().when([mark.is_there()]).and_then([change, vec![put]].concat());
    let changed = asked(cluster, |mut client| async move { client.txn(change).await }).await;
    let is_done = changed.map(|answer| answer.succeeded());
    // If no answer came, the record may exist, bound to the new lease.
    let keeps_nothing = match &is_done {
        Ok(is_done) => !is_done,
        Err(Fault::NoLease(_) | Fault::LeaseKnown(_)) => true,
        Err(Fault::Failed(error)) => matches!(error.kind, ErrorKind::Denied | ErrorKind::Full),
    };
    if keeps_nothing {
        let _ = asked(cluster, |mut client| async move { client.lease_revoke(lease).await }).await;
    }
    is_done
}

async fn asked<T, F: Future<Output = Result<T, etcd_client::Error>>>(
    cluster: &mut Cluster,
    request: impl FnOnce(Client) -> F,
) -> Result<T, Fault> {
    let asked = within(TIMEOUT, cluster.ask(request)).await;
    asked.unwrap_or_else(|_| Err(Fault::from(cluster.silence())))
}
