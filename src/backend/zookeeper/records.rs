/*!
The records of latches and barriers at ZooKeeper: see [`records`](crate::backend::meeting::records). They are nodes in a
directory next to that of the lock, `/NS/KEY%latch%dlock` or `/NS/KEY%meet%dlock`. No encoded key has a bare `%`, so this
is no other lock's directory.

Those of a latch are persistent, and begin with the time for which they count, in milliseconds. The servers' clock
measures it, which a look reads by writing to the directory.

Those of a barrier are ephemeral. Each one that is made also writes to the directory, so that its version shows whether
that has happened since a look. A request that opens a barrier names that version and those of the nodes: it fails as a
whole if anything has changed.
*/

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher, Stat};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::meeting::records::{Moment, Page, Record, Records};
use crate::backend::meeting::rule::Mark;
use crate::backend::meeting::{Meeting, contended};
use crate::backend::survey::Kind;
use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::directories::{self, MADE_BY_DLOCK};
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::nodes::{absent, acls};
use crate::clock::{Instant, sleep_until};

/// The maximum number of tries in a row to write while others create or remove the same node.
const TRIES: usize = 64;
/// The number of nodes to read or remove at once.
const AT_ONCE: usize = 100;

/// Encodes a name as a node's name.
fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// Returns the name of the record whose node has this name.
fn decoded(node: &str) -> String {
    percent_decode_str(node).decode_utf8_lossy().into_owned()
}

/// Resolves when the watched node has changed, or when the session has ended; never without a watcher.
async fn event(watcher: Option<OneshotWatcher>) {
    match watcher {
        Some(watcher) => drop(watcher.changed().await),
        None => std::future::pending().await,
    }
}

/// Returns the time for which a latch's record counts, in milliseconds, and its text; `None` if this is none.
fn kept(data: &[u8]) -> Option<(u64, &str)> {
    let (life, text) = std::str::from_utf8(data).ok()?.split_once(' ')?;
    Some((life.parse().ok()?, text))
}

/// Returns the time until which a node with this data counts, in milliseconds since 1970 by the servers' clock; `None`
/// if it is no node of a latch.
pub(super) fn counts_until(data: &[u8], stat: &Stat) -> Option<u64> {
    let (life, _) = kept(data)?;
    Some(u64::try_from(stat.mtime).unwrap_or_default().saturating_add(life))
}

/// Returns `true` if another client was faster; the next look then shows the new state.
fn is_late(error: &ZkError) -> bool {
    matches!(error, ZkError::BadVersion | ZkError::NoNode | ZkError::NodeExists)
}

/// Returns a barrier's nodes in the order in which to read them: if our own, the last one, is not open yet, no party
/// whose node was missing has passed and gone.
fn own_last(mut nodes: Vec<String>, own: &str) -> Vec<String> {
    nodes.sort_by_key(|node| node == own);
    nodes
}

/// Returns a latch's nodes in the order in which to remove them: its failure goes last, so that it never opens because
/// only the failure was removed.
fn last_first(mut nodes: Vec<String>) -> Vec<String> {
    nodes.sort_unstable_by(|one, other| other.cmp(one));
    nodes
}

/// A change to a node, by its path.
enum Change {
    /// Fails unless the node has this version.
    Check(String, i32),
    Create(String, String),
    /// Replaces the data, in this version.
    Set(String, String, i32),
    /// Raises the version of a directory.
    Touch(String),
    Delete(String, Option<i32>),
}

/// What the last look has found.
#[derive(Default)]
struct Seen {
    /// The directory's version; `None` if it does not exist.
    directory: Option<i32>,
    /// The last change to each node, and its version, for the records of a barrier.
    nodes: HashMap<String, (i64, i32)>,
    /// The time until which each node without a text counts, and its version, for the records of a latch. Until then it
    /// need not be read again.
    ends: HashMap<String, (u64, i64)>,
}

/// The records of one latch or barrier, for one dlock and its session.
pub(super) struct ZookeeperRecords {
    /// Opens and closes the session.
    contender: ZookeeperContender,
    meeting: Meeting,
    kind: Kind,
    /// `true` if directories may have been created.
    has_written: bool,
    seen: Seen,
    /// Reports that a node comes or goes.
    children: Option<OneshotWatcher>,
    /// Reports that our own node is changed.
    own: Option<OneshotWatcher>,
}

impl ZookeeperRecords {
    /// Creates the records of this kind; not connected yet.
    pub(super) fn new(ensemble: Ensemble, meeting: Meeting, kind: Kind) -> Self {
        let contender = ZookeeperContender::new(Claim::like(&meeting), ensemble);
        Self { contender, meeting, kind, has_written: false, seen: Seen::default(), children: None, own: None }
    }

    /// Sends `request` in our session, and returns the servers' answer.
    async fn ask<T, F>(&mut self, request: impl FnOnce(Client) -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        match &mut self.contender.session {
            Some(session) => session.ask(request).await,
            None => Err(ZkError::SessionExpired),
        }
    }

    /// Explains an error of the library.
    fn explain(&self, error: &ZkError) -> Error {
        self.contender.explain(error)
    }

    /// Returns the access list for new nodes.
    fn acls(&self) -> Acls<'static> {
        acls(self.has_user())
    }

    /// Returns `true` if we have a user there, for whom the namespace is kept.
    fn has_user(&self) -> bool {
        self.contender.location().login.user.is_some()
    }

    /// Returns the directories above ours, from the root downwards.
    fn above(&self) -> Vec<String> {
        let mut above = self.contender.session.as_ref().map(|session| session.directory.ancestry()).unwrap_or_default();
        above.pop();
        above
    }

    /// Returns the path of our directory; empty without a session.
    fn directory(&self) -> String {
        let what = if self.kind == Kind::Latch { "latch" } else { "meet" };
        let session = self.contender.session.as_ref();
        session.map(|session| session.directory.meeting(what)).unwrap_or_default()
    }

    /// Returns the path of a node in our directory.
    fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.directory())
    }

    /// Creates our directory, and the missing ones above it.
    async fn make(&mut self) -> Result<(), ZkError> {
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
    async fn touch(&mut self) -> Result<Stat, ZkError> {
        for _ in 0..TRIES {
            let path = self.directory();
            match self.ask(|client| async move { client.set_data(&path, MADE_BY_DLOCK, None).await }).await {
                Err(ZkError::NoNode) => self.make().await?,
                touched => return touched,
            }
        }
        Err(ZkError::NoNode)
    }

    /// Returns the nodes in our directory, and watches it.
    async fn list(&mut self) -> Result<Vec<String>, ZkError> {
        let path = self.directory();
        let listed = self.ask(|client| async move { client.get_and_watch_children(&path).await }).await;
        let (nodes, _, watcher) = listed?;
        self.children = Some(watcher);
        Ok(nodes)
    }

    /// Reads these nodes, each with its data and status. Missing ones are left out.
    async fn read_nodes(&mut self, nodes: &[String]) -> Result<Vec<(String, Vec<u8>, Stat)>, ZkError> {
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

    /// Makes these changes, all or none.
    async fn commit(&mut self, changes: Vec<Change>) -> Result<(), ZkError> {
        let mode = if self.kind == Kind::Latch { CreateMode::Persistent } else { CreateMode::Ephemeral };
        let options = mode.with_acls(self.acls());
        self.has_written = true;
        let asked = self.ask(|client| async move {
            let mut writer = client.new_multi_writer();
            for change in &changes {
                match change {
                    Change::Check(path, version) => writer.add_check_version(path, *version)?,
                    Change::Create(path, data) => writer.add_create(path, data.as_bytes(), &options)?,
                    Change::Set(path, data, version) => writer.add_set_data(path, data.as_bytes(), Some(*version))?,
                    Change::Touch(path) => writer.add_set_data(path, MADE_BY_DLOCK, None)?,
                    Change::Delete(path, version) => writer.add_delete(path, *version)?,
                }
            }
            writer.commit().await.map_err(ZkError::from).map(drop)
        });
        asked.await
    }

    /// Makes these changes to what the last look has found; returns `false` if another client was faster.
    async fn commit_seen(&mut self, changes: Vec<Change>) -> Result<bool, Error> {
        match self.commit(changes).await {
            Ok(()) => Ok(true),
            Err(error) if is_late(&error) => Ok(false),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Writes a latch's record in place of an older one; returns `false` if others keep changing it.
    async fn keep(&mut self, path: &str, data: &str) -> Result<bool, ZkError> {
        let mut replaces = false;
        for _ in 0..TRIES {
            // In one request, so that a waiter is notified: a write to a node would not wake it.
            let delete = replaces.then(|| Change::Delete(path.to_owned(), None));
            let create = Change::Create(path.to_owned(), data.to_owned());
            match self.commit(delete.into_iter().chain([create]).collect()).await {
                Ok(()) => return Ok(true),
                Err(ZkError::NodeExists) => replaces = true,
                Err(ZkError::NoNode) if replaces => replaces = false,
                Err(ZkError::NoNode) => self.make().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads the records of a latch that count now.
    async fn arrivals(&mut self) -> Result<Vec<Record>, ZkError> {
        let now = u64::try_from(self.touch().await?.mtime).unwrap_or_default();
        let nodes: BTreeSet<String> = self.list().await?.into_iter().collect();
        self.seen.ends.retain(|node, (until, _)| *until > now && nodes.contains(node));
        let unread: Vec<String> = nodes.into_iter().filter(|node| !self.seen.ends.contains_key(node)).collect();
        let mut records = Vec::new();
        for (node, data, stat) in self.read_nodes(&unread).await? {
            let (Some(until), Some((_, text))) = (counts_until(&data, &stat), kept(&data)) else { continue };
            if until <= now {
                continue;
            }
            if text.is_empty() {
                self.seen.ends.insert(node, (until, stat.mzxid));
            } else {
                records.push(Record { name: decoded(&node), text: text.to_owned(), version: stat.mzxid });
            }
        }
        let ends = self.seen.ends.iter();
        let record = |(node, (_, version)): (&String, &(u64, i64))| Record {
            name: decoded(node),
            text: String::new(),
            version: *version,
        };
        records.extend(ends.map(record));
        Ok(records)
    }

    /// Reads the records of a barrier.
    async fn marks(&mut self) -> Result<Vec<Record>, ZkError> {
        self.seen = Seen::default();
        let path = self.directory();
        let Some(directory) = self.ask(|client| async move { client.check_stat(&path).await }).await? else {
            return Ok(Vec::new());
        };
        // The version is read before the nodes, so that none of them is older; our own node is watched before it is
        // read, so that no change is missed.
        self.seen.directory = Some(directory.version);
        let own = encoded(&self.meeting.name);
        let path = self.node(&own);
        let watched = self.ask(|client| async move { client.get_and_watch_data(&path).await }).await;
        self.own = absent(watched)?.map(|(_, _, watcher)| watcher);
        let nodes = own_last(absent(self.list().await)?.unwrap_or_default(), &own);
        let mut records = Vec::new();
        for (node, data, stat) in self.read_nodes(&nodes).await? {
            let name = decoded(&node);
            self.seen.nodes.insert(node, (stat.mzxid, stat.version));
            let is_waiting_as_us = |mark: Mark| mark.id == self.meeting.id.as_str() && !mark.open;
            // One of an earlier session of ours is about to disappear.
            if !Mark::read(&name, &data).is_some_and(is_waiting_as_us)
                || self.contender.session.as_ref().is_some_and(|session| session.is_own(&stat))
            {
                records.push(Record { name, text: String::from_utf8_lossy(&data).into_owned(), version: stat.mzxid });
            }
        }
        Ok(records)
    }

    /// Removes all nodes in our directory.
    async fn remove_all(&mut self) -> Result<(), ZkError> {
        let Some(nodes) = absent(self.list().await)? else { return Ok(()) };
        self.has_written = true;
        for some in last_first(nodes).chunks(AT_ONCE) {
            let paths: Vec<String> = some.iter().map(|node| self.node(node)).collect();
            let removed = self.ask(|client| async move {
                // The servers execute the requests of a session in their order.
                let asked: Vec<_> = paths.iter().map(|path| client.delete(path, None)).collect();
                futures_util::future::join_all(asked).await.into_iter().try_for_each(|one| absent(one).map(drop))
            });
            removed.await?;
        }
        Ok(())
    }

    /// Removes our own node at a barrier.
    async fn remove_own(&mut self) -> Result<(), ZkError> {
        let node = encoded(&self.meeting.name);
        let read = self.read_nodes(std::slice::from_ref(&node)).await?;
        let is_own = |stat: &Stat| self.contender.session.as_ref().is_some_and(|session| session.is_own(stat));
        if let Some((_, _, stat)) = read.into_iter().find(|(_, _, stat)| is_own(stat)) {
            let path = self.node(&node);
            absent(self.ask(|client| async move { client.delete(&path, Some(stat.version)).await }).await)?;
        }
        Ok(())
    }
}

#[async_trait::async_trait(?Send)]
impl Records for ZookeeperRecords {
    fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    /// Opens a session unless one is live. A new session has no nodes.
    async fn connect(&mut self) -> Result<(), Error> {
        match &mut self.contender.session {
            Some(session) if session.end().is_none() => session.connect().await,
            _ => self.contender.open().await,
        }
    }

    async fn read(&mut self, most: usize) -> Result<Page, Error> {
        let read = if self.kind == Kind::Latch { self.arrivals().await } else { self.marks().await };
        let mut records = read.map_err(|error| self.explain(&error))?;
        records.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let count = records.len().try_into().unwrap_or(u64::MAX);
        records.truncate(most);
        Ok(Page { records, count, moment: Moment::default() })
    }

    async fn put(&mut self, name: &str, text: &str, life: Duration, seen: Option<Moment>) -> Result<bool, Error> {
        let node = encoded(name);
        let path = self.node(&node);
        if seen.is_none() {
            let done = self.keep(&path, &format!("{} {text}", life.as_millis())).await;
            let is_done = done.map_err(|error| self.explain(&error))?;
            return if is_done { Ok(true) } else { Err(contended(&self.meeting.key)) };
        }
        let (there, removes) = (self.seen.nodes.get(&node).copied(), life.is_zero());
        if removes && there.is_none() {
            return Ok(true);
        }
        if self.seen.directory.is_none() {
            return match self.make().await {
                Err(error) if !is_late(&error) => Err(self.explain(&error)),
                _ => Ok(false),
            };
        }
        // A node that was made anew has the first version again.
        let asked = path.clone();
        let now = self.ask(|client| async move { client.check_stat(&asked).await }).await;
        if now.map_err(|error| self.explain(&error))?.map(|stat| stat.mzxid) != there.map(|(change, _)| change) {
            return Ok(false);
        }
        let delete = there.map(|(_, version)| Change::Delete(path.clone(), Some(version)));
        let make = [Change::Touch(self.directory()), Change::Create(path, text.to_owned())];
        let make = make.into_iter().filter(|_| !removes);
        self.commit_seen(delete.into_iter().chain(make).collect()).await
    }

    async fn amend(&mut self, records: &[Record], _seen: Moment) -> Result<bool, Error> {
        let Some(version) = self.seen.directory else { return Ok(false) };
        let mut changes = vec![Change::Check(self.directory(), version)];
        for record in records {
            let node = encoded(&record.name);
            let Some((_, version)) = self.seen.nodes.get(&node) else { return Ok(false) };
            changes.push(Change::Set(self.node(&node), record.text.clone(), *version));
        }
        self.commit_seen(changes).await
    }

    async fn clear(&mut self) -> Result<(), Error> {
        self.remove_all().await.map_err(|error| self.explain(&error))
    }

    async fn changed(&mut self, at_most: Duration) -> Result<(), Error> {
        let (children, own) = (self.children.take(), self.own.take());
        tokio::select! {
            () = event(children) => {}
            () = event(own) => {}
            () = sleep_until(Instant::now() + at_most) => {}
        }
        Ok(())
    }

    fn close_removes(&self) -> bool {
        true
    }

    /// Removes our node at a barrier, our directory and, without a user, those above it that dlock created, as long as
    /// they are empty. Ends the session. Whatever cannot be removed is left.
    async fn close(&mut self) {
        (self.children, self.own) = (None, None);
        if self.kind == Kind::Barrier && self.has_written {
            // If this fails, it ends with the session.
            let _ = self.remove_own().await;
        }
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

    #[test]
    fn our_own_mark_is_read_last() {
        assert_eq!(own_last(["b", "a", "c"].map(str::to_owned).to_vec(), "b"), ["a", "c", "b"]);
    }

    #[test]
    fn a_failure_is_removed_last() {
        assert_eq!(last_first(["nb", "f", "na"].map(str::to_owned).to_vec()), ["nb", "na", "f"]);
    }

    #[test]
    fn what_is_kept_is_read_back() {
        assert_eq!(kept(b"7 {\"by\": \"unit\"}"), Some((7, "{\"by\": \"unit\"}")));
        assert_eq!(kept(b"7 "), Some((7, "")));
        for other in [&b""[..], b"7", b"x 7", b"\xff 7", br#"{"keep":7}"#] {
            assert_eq!(kept(other), None);
        }
    }
}
