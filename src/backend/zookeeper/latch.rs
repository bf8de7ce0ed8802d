/*!
Latches at ZooKeeper: a directory with a persistent node for each name that has arrived, and one for a failure.

Their age is measured by the servers' clock, which a look reads by writing to the directory. Expired nodes do not count;
`forget` removes all nodes.
*/

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ::zookeeper_client::{CreateMode, Error as ZkError, OneshotWatcher, Stat};
use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::backend::meeting::{Arrivals, Latch, LatchFailure, contended};
use crate::backend::zookeeper::meeting::{LOOK, LOOKS, Participant, decoded, encoded, event};
use crate::backend::zookeeper::nodes::absent;
use crate::clock::{Instant, sleep_until};

/// The name of the failure's node; no encoded name has a bare `!`.
const FAILURE: &str = "!failed";

/// The data of a latch's node.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ArrivalNode {
    /// The time for which the node counts, in milliseconds.
    keep: u64,
    #[serde(flatten)]
    failure: LatchFailure,
}

/// Returns the time until which a node with this data counts, in milliseconds since 1970 by the servers' clock; `None`
/// if it is no node of a latch.
pub(super) fn counts_until(data: &[u8], stat: &Stat) -> Option<u64> {
    let kept = serde_json::from_slice::<ArrivalNode>(data).ok()?;
    Some(u64::try_from(stat.mtime).unwrap_or_default().saturating_add(kept.keep))
}

/// One dlock at a latch.
pub(super) struct ZookeeperLatch {
    visitor: Participant,
    /// The expiry of each node that was read, in milliseconds since 1970 by the servers' clock.
    known: HashMap<String, u64>,
    watcher: Option<OneshotWatcher>,
}

impl ZookeeperLatch {
    /// Creates a latch that has not been looked at yet.
    pub(super) fn new(visitor: Participant) -> Self {
        Self { visitor, known: HashMap::new(), watcher: None }
    }

    /// Creates the node of this name, replacing an existing one.
    async fn write(&mut self, node: &str, failure: LatchFailure, keep: Duration) -> Result<(), Error> {
        let kept = ArrivalNode { keep: u64::try_from(keep.as_millis()).unwrap_or(u64::MAX), failure };
        // A struct of texts and numbers always serializes.
        let data = serde_json::to_vec(&kept).unwrap_or_default();
        let acls = self.visitor.acls();
        let mut replaces = false;
        for _ in 0..LOOKS {
            let (path, data) = (self.visitor.node(node), data.clone());
            let written = self.visitor.ask(|client| async move {
                let mut writer = client.new_multi_writer();
                if replaces {
                    // In one request, so that a waiter is notified: a write to a node would not wake it.
                    writer.add_delete(&path, None)?;
                }
                writer.add_create(&path, &data, &CreateMode::Persistent.with_acls(acls))?;
                writer.commit().await.map_err(ZkError::from)
            });
            match written.await {
                Ok(_) => return Ok(()),
                Err(ZkError::NodeExists) => replaces = true,
                Err(ZkError::NoNode) if replaces => replaces = false,
                Err(ZkError::NoNode) => self.visitor.make().await.map_err(|error| self.visitor.explain(&error))?,
                Err(error) => return Err(self.visitor.explain(&error)),
            }
        }
        Err(contended(&self.visitor.meeting.key))
    }

    async fn look_at_nodes(&mut self, told: usize) -> Result<Arrivals, ZkError> {
        let touched = self.visitor.touch().await?;
        let now = u64::try_from(touched.mtime).unwrap_or_default();
        let (nodes, watcher) = self.visitor.list().await?;
        self.watcher = Some(watcher);
        let there: BTreeSet<&String> = nodes.iter().collect();
        self.known.retain(|node, until| there.contains(node) && *until > now);
        // The failure is read each time, for its reason.
        let unknown: Vec<String> =
            nodes.into_iter().filter(|node| node == FAILURE || !self.known.contains_key(node)).collect();
        let mut failure = None;
        for (node, data, stat) in self.visitor.read(&unknown).await? {
            let Ok(kept) = serde_json::from_slice::<ArrivalNode>(&data) else { continue };
            let until = u64::try_from(stat.mtime).unwrap_or_default().saturating_add(kept.keep);
            if until <= now {
                continue;
            }
            if node == FAILURE {
                failure = Some(kept.failure);
            } else {
                self.known.insert(node, until);
            }
        }
        let mut names: Vec<String> = self.known.keys().map(|node| decoded(node)).collect();
        names.sort_unstable();
        let count = names.len().try_into().unwrap_or(u64::MAX);
        names.truncate(told);
        Ok(Arrivals { count, names, failure })
    }

    async fn remove_all(&mut self) -> Result<(), ZkError> {
        let nodes = match self.visitor.list().await {
            Err(ZkError::NoNode) => return Ok(()),
            listed => listed?.0,
        };
        for node in nodes {
            let path = self.visitor.node(&node);
            absent(self.visitor.ask(|client| async move { client.delete(&path, None).await }).await)?;
        }
        self.visitor.has_written = true;
        Ok(())
    }
}

#[async_trait::async_trait(?Send)]
impl Latch for ZookeeperLatch {
    async fn connect(&mut self) -> Result<(), Error> {
        self.visitor.connect().await
    }

    async fn arrive(&mut self, keep: Duration) -> Result<(), Error> {
        let node = encoded(&self.visitor.meeting.name);
        self.write(&node, LatchFailure::default(), keep).await
    }

    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error> {
        self.write(FAILURE, failure.clone(), keep).await
    }

    async fn forget(&mut self) -> Result<(), Error> {
        self.remove_all().await.map_err(|error| self.visitor.explain(&error))
    }

    async fn look(&mut self, told: usize) -> Result<Arrivals, Error> {
        self.look_at_nodes(told).await.map_err(|error| self.visitor.explain(&error))
    }

    async fn changed(&mut self) -> Result<(), Error> {
        let watcher = self.watcher.take();
        tokio::select! {
            () = event(watcher) => {}
            () = sleep_until(Instant::now() + LOOK) => {}
        }
        Ok(())
    }

    async fn close(&mut self) {
        self.watcher = None;
        self.visitor.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back() {
        let failure = LatchFailure { by: "unit".to_owned(), reason: "red".to_owned() };
        let text = serde_json::to_string(&ArrivalNode { keep: 7, failure: failure.clone() }).expect("text");
        let kept: ArrivalNode = serde_json::from_str(&text).expect("kept");
        assert_eq!((kept.keep, kept.failure), (7, failure));
    }
}
