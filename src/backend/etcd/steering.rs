/*!
What whoever intervenes asks of a cluster: that a request to stop is put beside a lock, or that the lock is taken away. Each is
one transaction that compares the revision at which the holder's key was made.
*/

use etcd_client::{Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp};

use crate::backend::Error;
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{HOLD, stem};
use crate::backend::survey::PATIENCE;
use crate::clock::within;
use crate::holder::ask::Ask;

/// The key of a holder, as it was seen.
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

/// Puts `ask` into the key `stop`, bound to the holder's own lease, if that holder is still there.
pub(super) async fn put(cluster: &mut Cluster, mark: &Mark, stop: String, ask: &Ask) -> Result<bool, Error> {
    let put = TxnOp::put(stop, ask.text(), Some(PutOptions::new().with_lease(mark.lease)));
    done(cluster, Txn::new().when([mark.is_there()]).and_then([put])).await
}

/// Deletes the keys of the holder, if it is still there. Its lease stays: other locks may rest on it.
pub(super) async fn take(cluster: &mut Cluster, mark: &Mark) -> Result<bool, Error> {
    let own = stem(&mark.key);
    let delete = [own.to_owned(), format!("{own}{HOLD}")].map(|key| TxnOp::delete(key, None::<DeleteOptions>));
    done(cluster, Txn::new().when([mark.is_there()]).and_then(delete)).await
}

async fn done(cluster: &mut Cluster, change: Txn) -> Result<bool, Error> {
    let asked = within(PATIENCE, cluster.ask(|mut client| async move { client.txn(change).await })).await;
    match asked.unwrap_or_else(|_| Err(Fault::from(errors::silence()))) {
        Ok(answer) => Ok(answer.succeeded()),
        // With it the holder's key is gone.
        Err(Fault::NoLease(_)) => Ok(false),
        Err(fault) => Err(fault.into()),
    }
}
