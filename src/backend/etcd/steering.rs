/*!
What whoever intervenes asks of a cluster: that a request to stop is put beside a lock, or that the lock is taken away. Each is
one transaction that compares the revision at which the holder's key was made.
*/

use etcd_client::{Client, Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp};

use crate::backend::etcd::errors::Fault;
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{HOLD, stem};
use crate::backend::survey::TIMEOUT;
use crate::backend::{Error, ErrorKind};
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

/// What came of a change.
pub(super) enum Changed {
    /// The holder's key is gone, and nothing was done.
    Nothing,
    /// It was made, and recorded.
    Done,
    /// It was made; why it was not recorded.
    Untraced(Error),
}

/// Puts `ask` into the key `stop`, bound to the holder's own lease, if that holder is still there, and keeps it in `record`.
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

/// Deletes the keys of the holder, if it is still there, and keeps `ask` in `record`. The holder's lease stays: other locks may
/// rest on it.
pub(super) async fn take(cluster: &mut Cluster, mark: &Mark, ask: &Ask, record: String) -> Result<Changed, Error> {
    let own = stem(&mark.key);
    let delete = [own.to_owned(), format!("{own}{HOLD}")].map(|key| TxnOp::delete(key, None::<DeleteOptions>));
    change(cluster, mark, delete.into(), ask, record).await
}

/// Makes this change, if the holder is still there, and puts `ask` into the key `record`, bound to a lease of its own. Where that
/// is refused, because the role lacks the right or the database is full, the change is made without it.
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
        // With it the holder's key is gone.
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

/// Makes this change and its record in one transaction: whether the holder was still there.
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
    // Where no answer came, it may keep the record.
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
