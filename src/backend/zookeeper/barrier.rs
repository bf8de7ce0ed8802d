/*!
Barriers at ZooKeeper: a directory with an ephemeral node for each party, its mark.

Each arrival also writes to the directory, so that its version shows whether a party has arrived since a look. A request
that depends on a look names that version and those of the marks: it fails as a whole if anything has changed.
*/

use ::zookeeper_client::{CreateMode, Error as ZkError, OneshotWatcher};

use crate::backend::error::Error;
use crate::backend::meeting::rule::{Mark, Step, step};
use crate::backend::meeting::{Barrier, Gathering, contended};
use crate::backend::zookeeper::directories::MADE_BY_DLOCK;
use crate::backend::zookeeper::meeting::{LOOK, LOOKS, Participant, decoded, encoded, event};
use crate::backend::zookeeper::nodes::absent;
use crate::clock::{Instant, sleep_until};

/// Returns `true` if another client was faster; the next look then shows the new state.
fn is_late(error: &ZkError) -> bool {
    matches!(error, ZkError::BadVersion | ZkError::NoNode | ZkError::NodeExists)
}

/// A mark as read from the directory.
struct SeenMark {
    mark: Mark,
    /// The name of its node.
    node: String,
    version: i32,
}

/// One party at a barrier.
pub(super) struct ZookeeperBarrier {
    visitor: Participant,
    parties: u32,
    /// The watch on the directory, which reports that a party comes or goes.
    children: Option<OneshotWatcher>,
    /// The watch on our own mark, which reports that it is opened.
    own: Option<OneshotWatcher>,
}

impl ZookeeperBarrier {
    /// Creates one party of a barrier for this number of `parties`.
    pub(super) fn new(visitor: Participant, parties: u32) -> Self {
        Self { visitor, parties, children: None, own: None }
    }

    fn mark(&self) -> Mark {
        let meeting = &self.visitor.meeting;
        Mark {
            name: meeting.name.clone(),
            id: meeting.id.as_str().to_owned(),
            parties: self.parties,
            ..Mark::default()
        }
    }

    /// Watches our own node, if it exists.
    async fn watch_own(&mut self) -> Result<(), ZkError> {
        let path = self.visitor.node(&encoded(&self.visitor.meeting.name));
        let watched = self.visitor.ask(|client| async move { client.get_and_watch_data(&path).await }).await;
        self.own = absent(watched)?.map(|(_, _, watcher)| watcher);
        Ok(())
    }

    /// Reads the directory's version, and after it the live marks, so that none of them is older than that version.
    /// Returns `None` if there is no directory.
    async fn marks(&mut self) -> Result<Option<(i32, Vec<SeenMark>)>, ZkError> {
        let path = self.visitor.directory();
        let asked = self.visitor.ask(|client| async move { client.check_stat(&path).await }).await;
        let Some(directory) = asked? else { return Ok(None) };
        // Set before the marks are read, so that no change to our mark is missed.
        self.watch_own().await?;
        let Some((nodes, watcher)) = absent(self.visitor.list().await)? else { return Ok(None) };
        self.children = Some(watcher);
        let id = self.visitor.meeting.id.as_str().to_owned();
        let mut all = Vec::new();
        for (node, data, stat) in self.visitor.read(&nodes).await? {
            let Some(mark) = Mark::read(&decoded(&node), &data) else { continue };
            let session = self.visitor.contender.session.as_ref();
            // A mark of an earlier session of ours is about to disappear.
            if mark.id != id || session.is_some_and(|session| session.is_own(&stat)) {
                all.push(SeenMark { mark: Mark { order: stat.czxid, ..mark }, node, version: stat.version });
            }
        }
        Ok(Some((directory.version, all)))
    }

    /// Creates our mark, replacing an older one under our name. The request also changes the directory's version.
    async fn join(&mut self) -> Result<(), ZkError> {
        let (directory, own) = (self.visitor.directory(), self.mark());
        let path = self.visitor.node(&encoded(&own.name));
        let acls = self.visitor.acls();
        self.visitor.has_written = true;
        let joined = self.visitor.ask(|client| async move {
            let before = client.check_stat(&path).await?;
            let mut writer = client.new_multi_writer();
            writer.add_set_data(&directory, MADE_BY_DLOCK, None)?;
            if let Some(before) = before {
                writer.add_delete(&path, Some(before.version))?;
            }
            writer.add_create(&path, own.text().as_bytes(), &CreateMode::Ephemeral.with_acls(acls))?;
            writer.commit().await.map_err(ZkError::from).map(drop)
        });
        joined.await
    }

    /// Opens all marks that wait with ours. Fails if one has changed, or if a party came after directory `version`.
    async fn open(&mut self, version: i32, seen: &[SeenMark]) -> Result<(), ZkError> {
        let (directory, own) = (self.visitor.directory(), self.mark());
        let waiting = seen.iter().filter(|seen| seen.mark.waits_with(&own));
        let opened = |seen: &SeenMark| (self.visitor.node(&seen.node), seen.mark.opened().text(), seen.version);
        let opened: Vec<(String, String, i32)> = waiting.map(opened).collect();
        let asked = self.visitor.ask(|client| async move {
            let mut writer = client.new_multi_writer();
            writer.add_check_version(&directory, version)?;
            for (path, text, version) in &opened {
                writer.add_set_data(path, text.as_bytes(), Some(*version))?;
            }
            writer.commit().await.map_err(ZkError::from).map(drop)
        });
        asked.await
    }

    /// Looks, and takes the steps that a look calls for, until there is a result to report.
    async fn gather(&mut self, arrives: bool) -> Result<Gathering, Error> {
        let own = self.mark();
        for _ in 0..LOOKS {
            let looked = self.marks().await.map_err(|error| self.visitor.explain(&error))?;
            let (version, seen) = looked.unwrap_or_default();
            let marks: Vec<Mark> = seen.iter().map(|seen| seen.mark.clone()).collect();
            let done = match step(&marks, &own, arrives) {
                Step::Tell(gathering) => return Ok(gathering),
                Step::Join => match self.join().await {
                    Err(ZkError::NoNode) => self.visitor.make().await,
                    joined => joined,
                },
                Step::Leave(gathering) => {
                    if !self.take_away(false).await? {
                        return Ok(gathering);
                    }
                    Ok(())
                }
                Step::Open => self.open(version, &seen).await,
            };
            // The next look shows whether it was done.
            if let Err(error) = done
                && !is_late(&error)
            {
                return Err(self.visitor.explain(&error));
            }
        }
        Err(contended(&self.visitor.meeting.key))
    }

    /// Removes our mark, an open one only if `open` is set. Returns `true` if it is kept because it is open.
    async fn take_away(&mut self, open: bool) -> Result<bool, Error> {
        self.visitor.connect().await?;
        let own = self.mark();
        let node = encoded(&own.name);
        for _ in 0..LOOKS {
            let read = self.visitor.read(std::slice::from_ref(&node)).await;
            let read = read.map_err(|error| self.visitor.explain(&error))?;
            let Some((_, data, stat)) = read.into_iter().next() else { return Ok(false) };
            match Mark::read(&own.name, &data).filter(|mark| mark.id == own.id) {
                None => return Ok(false),
                Some(mark) if mark.open && !open => return Ok(true),
                Some(_) => {}
            }
            let path = self.visitor.node(&node);
            let deleted =
                self.visitor.ask(|client| async move { client.delete(&path, Some(stat.version)).await }).await;
            match deleted {
                Err(error) if is_late(&error) => {}
                deleted => return deleted.map(|()| false).map_err(|error| self.visitor.explain(&error)),
            }
        }
        Err(contended(&self.visitor.meeting.key))
    }
}

#[async_trait::async_trait(?Send)]
impl Barrier for ZookeeperBarrier {
    async fn connect(&mut self) -> Result<(), Error> {
        self.visitor.connect().await
    }

    async fn arrive(&mut self) -> Result<Gathering, Error> {
        self.gather(true).await
    }

    async fn look(&mut self) -> Result<Gathering, Error> {
        self.gather(false).await
    }

    async fn changed(&mut self) -> Result<(), Error> {
        let (children, own) = (self.children.take(), self.own.take());
        tokio::select! {
            () = event(children) => {}
            () = event(own) => {}
            () = sleep_until(Instant::now() + LOOK.min(self.visitor.meeting.lease / 3)) => {}
        }
        Ok(())
    }

    async fn withdraw(&mut self) -> Result<bool, Error> {
        self.take_away(false).await
    }

    async fn close(&mut self) {
        (self.children, self.own) = (None, None);
        // If this fails, the mark ends with the session.
        let _ = self.take_away(true).await;
        self.visitor.close().await;
    }
}
