/*!
A dlock's own lease and key at the cluster: keeps them, and notices at once if another client changes them.
*/

use std::time::Duration;

use etcd_client::{Client, GetOptions, KeyValue, WatchOptions, WatchStream};

use crate::backend::error::Error;
use crate::backend::etcd::errors::Fault;
use crate::backend::etcd::link::Cluster;
use crate::clock::{Instant, before};

/// The result of an attempt to extend our lease.
pub(super) enum Extended {
    /// There is no such lease.
    NoLease,
    /// It was extended by a request that was sent at `sent`.
    Lease {
        sent: Instant,
        /// Our key afterwards, without its value.
        own: Option<KeyValue>,
        /// The request to stop that was sent to us, unparsed.
        asked: Option<Vec<u8>>,
        /// The revision of the cluster at which the key was read.
        revision: i64,
        /// The server's version, if it was requested and arrived in time.
        version: Option<String>,
    },
}

/// Extends `lease`, and reads `key`, and `stop` if given: the lease alone proves nothing about the key, which anybody
/// may delete. With a `timeout`, also asks the server for its version, and waits at most that long for it.
pub(super) async fn extend(
    cluster: &mut Cluster,
    lease: i64,
    key: &str,
    stop: Option<&str>,
    timeout: Option<Duration>,
) -> Result<Extended, Error> {
    let sent = Instant::now();
    let asked = cluster.ask(|mut client| async move {
        let (mut reader, mut hearer, teller) = (client.clone(), client.clone(), client.clone());
        let extended = async {
            let requests = async {
                match stop {
                    Some(stop) => hearer.get(stop, None).await.map(Some),
                    None => Ok(None),
                }
            };
            let options = GetOptions::new().with_keys_only();
            tokio::try_join!(client.lease_keep_alive(lease), reader.get(key, Some(options)), requests)
        };
        let (extended, version) = tokio::join!(extended, version(teller, sent, timeout));
        extended.map(|((keeper, _), read, requests)| (keeper.id(), read, requests, version))
    });
    // Boxed, as it is too large to be part of every future that awaits it.
    match Box::pin(asked).await {
        Ok((answered, mut read, requests, version)) => {
            cluster.same_lease(lease, answered)?;
            let revision = read.header().map_or(0, etcd_client::ResponseHeader::revision);
            let own = read.take_kvs().into_iter().next();
            let asked = requests.and_then(|requests| requests.kvs().first().map(|kv| kv.value().to_vec()));
            Ok(Extended::Lease { sent, own, asked, revision, version })
        }
        Err(Fault::NoLease(_)) => Ok(Extended::NoLease),
        Err(fault) => Err(fault.into()),
    }
}

/// The server's version; `None` without a `timeout`, or if no answer arrives in time, which is not an error.
async fn version(mut client: Client, sent: Instant, timeout: Option<Duration>) -> Option<String> {
    let status = before(sent + timeout?, client.status()).await.ok()?.ok()?;
    Some(status.version().to_owned())
}

/// A watch on one of our own keys.
pub(super) struct OwnWatch {
    /// The number of its connection: a watch reports nothing more once its connection was dropped.
    pub link: u64,
    stream: WatchStream,
}

impl OwnWatch {
    /// Watches `key` for all changes after `revision`.
    pub(super) async fn open(cluster: &Cluster, key: &str, revision: i64) -> Option<Self> {
        let options = WatchOptions::new().with_start_revision(revision + 1);
        // Nothing depends on the answer, so the connection is kept if none arrives.
        let stream = cluster.client()?.watch(key, Some(options)).await.ok()?;
        Some(Self { link: cluster.links(), stream })
    }

    /// Waits for a change of the key. Returns `false` if the watch has ended.
    pub(super) async fn event(&mut self) -> bool {
        loop {
            match self.stream.message().await {
                Ok(Some(message)) if message.canceled() => return false,
                Ok(Some(message)) if message.events().is_empty() => {}
                Ok(Some(_)) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }
}
