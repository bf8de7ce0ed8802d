/*!
The common part of latches and barriers at ZooKeeper: nodes in a directory next to that of the lock,
`/NS/KEY%latch%dlock` or `/NS/KEY%meet%dlock`. No encoded key has a bare `%`, so this is no other lock's directory.
*/

use std::time::Duration;

use ::zookeeper_client::{Acls, Client, Error as ZkError, OneshotWatcher, Stat};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::meeting::Meeting;
use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::directories::{self, MADE_BY_DLOCK};
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::nodes::{absent, acls};

/// The interval at which a waiter looks again without a notification.
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// The maximum number of looks in a row, if the state keeps changing before it can be acted on.
pub(super) const LOOKS: usize = 64;
/// The number of nodes to read at once.
const AT_ONCE: usize = 100;

/// Encodes a name as a node's name.
pub(super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// Returns the name of the party whose node has this name.
pub(super) fn decoded(node: &str) -> String {
    percent_decode_str(node).decode_utf8_lossy().into_owned()
}

/// Resolves when the watched node has changed, or when the session has ended; never without a watcher.
pub(super) async fn event(watcher: Option<OneshotWatcher>) {
    match watcher {
        Some(watcher) => drop(watcher.changed().await),
        None => std::future::pending().await,
    }
}

/// One dlock, with its session.
pub(super) struct Participant {
    /// Opens and closes the session.
    pub contender: ZookeeperContender,
    /// The meeting, with the party's name and id.
    pub meeting: Meeting,
    /// The name of the meeting's kind in its directory's path.
    what: &'static str,
    /// Set if directories may have been created.
    pub has_written: bool,
}

impl Participant {
    /// Creates a visitor of the `what` directory next to that of the key's lock; not connected yet.
    pub(super) fn new(ensemble: Ensemble, meeting: Meeting, what: &'static str) -> Self {
        let contender = ZookeeperContender::new(Claim::like(&meeting), ensemble);
        Self { contender, meeting, what, has_written: false }
    }

    /// Opens a session unless one is live. A new session has no nodes.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        match &mut self.contender.session {
            Some(session) if session.end().is_none() => session.connect().await,
            _ => self.contender.open().await,
        }
    }

    /// Sends `request` in our session, and returns the servers' answer.
    pub(super) async fn ask<T, F>(&mut self, request: impl FnOnce(Client) -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        match &mut self.contender.session {
            Some(session) => session.ask(request).await,
            None => Err(ZkError::SessionExpired),
        }
    }

    /// Explains an error of the library.
    pub(super) fn explain(&self, error: &ZkError) -> Error {
        self.contender.explain(error)
    }

    /// Returns the access list for new nodes.
    pub(super) fn acls(&self) -> Acls<'static> {
        acls(self.has_user())
    }

    /// Returns `true` if we have a user there, for whom the namespace is kept.
    fn has_user(&self) -> bool {
        self.contender.location().login.user.is_some()
    }

    /// Returns the directories above ours, from the root downwards.
    pub(super) fn above(&self) -> Vec<String> {
        let mut above = self.contender.session.as_ref().map(|session| session.directory.ancestry()).unwrap_or_default();
        above.pop();
        above
    }

    /// Returns the path of our directory; empty without a session.
    pub(super) fn directory(&self) -> String {
        let session = self.contender.session.as_ref();
        session.map(|session| session.directory.meeting(self.what)).unwrap_or_default()
    }

    /// Returns the path of a node in our directory.
    pub(super) fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.directory())
    }

    /// Creates our directory, and the missing ones above it.
    pub(super) async fn make(&mut self) -> Result<(), ZkError> {
        self.has_written = true;
        let paths = [self.above(), vec![self.directory()]].concat();
        let acls = self.acls();
        let session = self.contender.session.as_ref().filter(|_| self.has_user());
        let keeper = session.and_then(|session| session.directory.keeper());
        let make =
            |client| async move { directories::make(&client, &paths, MADE_BY_DLOCK, keeper.as_deref(), acls).await };
        self.ask(make).await
    }

    /// Writes to our directory, and creates it if it is missing. The returned status has the servers' time.
    pub(super) async fn touch(&mut self) -> Result<Stat, ZkError> {
        for _ in 0..LOOKS {
            let path = self.directory();
            match self.ask(|client| async move { client.set_data(&path, MADE_BY_DLOCK, None).await }).await {
                Err(ZkError::NoNode) => self.make().await?,
                touched => return touched,
            }
        }
        Err(ZkError::NoNode)
    }

    /// Returns the nodes in our directory, with a watcher that reports when one comes or goes.
    pub(super) async fn list(&mut self) -> Result<(Vec<String>, OneshotWatcher), ZkError> {
        let path = self.directory();
        let listed = self.ask(|client| async move { client.get_and_watch_children(&path).await }).await;
        listed.map(|(nodes, _, watcher)| (nodes, watcher))
    }

    /// Reads these nodes, each with its data and status. Missing ones are left out.
    pub(super) async fn read(&mut self, nodes: &[String]) -> Result<Vec<(String, Vec<u8>, Stat)>, ZkError> {
        let mut all = Vec::new();
        for some in nodes.chunks(AT_ONCE) {
            let paths: Vec<String> = some.iter().map(|node| self.node(node)).collect();
            let read = self.ask(|client| async move {
                let asked: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
                futures_util::future::join_all(asked).await.into_iter().map(absent).collect::<Result<Vec<_>, _>>()
            });
            let read = read.await?;
            let with_name = |(node, read): (&String, Option<(Vec<u8>, Stat)>)| {
                let (data, stat) = read?;
                Some((node.clone(), data, stat))
            };
            all.extend(some.iter().zip(read).filter_map(with_name));
        }
        Ok(all)
    }

    /// Removes our directory and, without a user, those above it that dlock created, as long as they are empty. Ends
    /// the session. Whatever cannot be removed is left.
    pub(super) async fn close(&mut self) {
        if self.has_written && self.contender.session.as_ref().is_some_and(|session| session.end().is_none()) {
            let above = if self.has_user() { Vec::new() } else { self.above() };
            let directories = [above, vec![self.directory()]].concat();
            for path in directories.into_iter().rev() {
                let removed = self.ask(|client| async move {
                    let (data, stat) = client.get_data(&path).await?;
                    if data != MADE_BY_DLOCK || stat.num_children > 0 {
                        return Err(ZkError::NotEmpty);
                    }
                    client.delete(&path, Some(stat.version)).await
                });
                if removed.await.is_err() {
                    break;
                }
            }
        }
        self.contender.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_node_and_is_read_back() {
        for name in ["unit", "a/b", ".", "..", "%2F", "!failed", "ü 1", "zookeeper"] {
            let node = encoded(name);
            assert!(!node.contains(['/', '.', '!']) && !node.is_empty(), "{node}");
            assert_eq!(decoded(&node), name);
        }
    }
}
