/*!
Our nodes in the queue: creates them together with a look, writes to them, and removes them.
*/

use ::zookeeper_client::{CreateMode, Error as ZkError, MultiWriteResult, MultiWriter, Stat};

use crate::backend::zookeeper::directories::{self, OF_LOCK};
use crate::backend::zookeeper::hold::Listed;
use crate::backend::zookeeper::nodes::{Placed, Triple, Write, absent, is_refusal};
use crate::backend::zookeeper::session::Session;
use crate::backend::zookeeper::session::clock::ServerClock;
use crate::backend::zookeeper::texts;
use crate::clock::Instant;

/// The maximum number of attempts to enter a slot while somebody else writes to our node.
const ENTRIES: usize = 4;

/// The names of a directory's children; `None` if there is no such directory.
type Children = Option<Vec<String>>;

impl Session {
    /// Sends `write` and lists the lock's children after it, both in one round trip.
    pub(in crate::backend::zookeeper) async fn look(
        &mut self,
        write: Write,
    ) -> (Result<(), ZkError>, Result<Children, ZkError>) {
        let client = self.client.clone();
        let mut writer = client.new_multi_writer();
        if let Err(error) = self.prepare(&mut writer, write) {
            return (Err(error.clone()), Err(error));
        }
        let creates = matches!(write, Write::Create | Write::CreateAll);
        if creates {
            self.placed = Placed::Unsure;
            self.used = true;
            self.counted = false;
        }
        let sent = self.traffic.begin();
        let paths = if write == Write::CreateAll { self.directory.ancestry() } else { Vec::new() };
        let keeper = self.keeper.clone().filter(|_| write == Write::CreateAll);
        let made = directories::make(&client, &paths, directories::OF_LOCK, keeper.as_deref(), self.acls);
        let own = self.directory.path();
        let beside = self.directory.beside();
        // Requested after the list: a contender that left before that has recorded its hold by then.
        let may_enter = creates || self.position == Some(1);
        let holds = async { if may_enter { Some(client.get_children(&beside).await) } else { None } };
        let (made, written, listed, holds) = tokio::join!(made, writer.commit(), client.get_children(own), holds);
        self.listed_holds = match holds.map(absent) {
            Some(Ok(Some((names, _)))) => Listed::Names(names),
            Some(Ok(None)) => Listed::Nowhere,
            Some(Err(_)) | None => Listed::Unknown,
        };
        // An error in creating the directories explains why no nodes could be created in them.
        let written = written.map_err(ZkError::from).map_err(|error| made.err().unwrap_or(error));
        self.traffic.end(sent, write != Write::Nothing, &written);
        self.traffic.end(sent, false, &listed);
        let written = match (creates, written) {
            (true, Ok(results)) => {
                self.placed = self.made(sent, results).await;
                self.counted = true;
                if listed.as_ref().is_ok_and(|(_, stat)| directories::may_be_ours(stat)) {
                    // The answer does not matter.
                    drop(client.set_data(self.directory.path(), OF_LOCK, None));
                }
                Ok(())
            }
            (true, Err(error)) => {
                if is_refusal(&error) {
                    self.placed = Placed::Nowhere;
                }
                Err(error)
            }
            (false, written) => written.map(drop),
        };
        (written, absent(listed).map(|listed| listed.map(|(children, _)| children)))
    }

    /// Adds the operations of `write`.
    fn prepare(&self, writer: &mut MultiWriter<'_>, write: Write) -> Result<(), ZkError> {
        match (write, &self.placed) {
            (Write::Create | Write::CreateAll, _) => {
                let options = CreateMode::EphemeralSequential.with_acls(self.acls);
                let mut paths = self.names.all().into_iter().map(|name| self.directory.node(name));
                paths.try_for_each(|path| writer.add_create(&path, self.data.as_bytes(), &options))
            }
            (Write::Confirm, Placed::At(triple)) => self.check(writer, &triple.all()),
            (Write::Nothing | Write::Confirm, _) => Ok(()),
        }
    }

    /// Adds a check that nodes of these names exist.
    pub(super) fn check(&self, writer: &mut MultiWriter<'_>, names: &[&str]) -> Result<(), ZkError> {
        names.iter().try_for_each(|name| writer.add_check_version(&self.directory.node(name), -1))
    }

    /// Reads the results of creating our nodes.
    async fn made(&mut self, sent: Instant, results: Vec<MultiWriteResult>) -> Placed {
        let [
            MultiWriteResult::Create { path: first, stat },
            MultiWriteResult::Create { path: middle, .. },
            MultiWriteResult::Create { path: last, .. },
        ] = results.as_slice()
        else {
            return Placed::Unsure;
        };
        let names = [first, middle, last].map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
        if !names.iter().zip(self.names.all()).all(|(name, ours)| name.starts_with(ours)) {
            return Placed::Unsure;
        }
        // Some servers omit the status in the answer.
        let stat = if stat.is_invalid() { self.stat(&names[0]).await.ok().flatten() } else { Some(*stat) };
        match stat {
            Some(stat) => self.placed_at(sent, names, &stat),
            None => Placed::Unsure,
        }
    }

    /// Returns our nodes of these names, if `stat`, the status of one of them, says that they are this session's.
    pub(in crate::backend::zookeeper) fn placed_at(
        &mut self,
        sent: Instant,
        names: [String; 3],
        stat: &Stat,
    ) -> Placed {
        let Ok(millis) = stat.ctime.try_into() else { return Placed::Unsure };
        if !self.is_own(stat) {
            return Placed::Unsure;
        }
        self.clock = self.clock.or(Some(ServerClock { millis, at: sent }));
        let [first, middle, last] = names;
        Placed::At(Triple { first, middle, last, czxid: stat.czxid })
    }

    /// Removes nodes, all at once or, if one is gone already, one by one. Returns `true` if all of them were there.
    pub(in crate::backend::zookeeper) async fn remove(&mut self, names: &[&str]) -> Result<bool, ZkError> {
        let client = self.client.clone();
        let paths: Vec<String> = names.iter().map(|name| self.directory.node(name)).collect();
        let mut writer = client.new_multi_writer();
        paths.iter().try_for_each(|path| writer.add_delete(path, None))?;
        let sent = self.traffic.begin();
        let removed = writer.commit().await.map_err(ZkError::from);
        self.traffic.end(sent, true, &removed);
        match removed {
            Ok(_) => return Ok(true),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error),
        }
        for path in &paths {
            let sent = self.traffic.begin();
            let removed = client.delete(path, None).await;
            self.traffic.end(sent, true, &removed);
            absent(removed)?;
        }
        Ok(false)
    }

    /// Publishes `text` on our first node, and confirms that the others exist. Returns the first one's new status, and
    /// records a request to stop.
    pub(in crate::backend::zookeeper) async fn renew(
        &mut self,
        triple: &Triple,
        text: &str,
    ) -> Result<Option<Stat>, ZkError> {
        let client = self.client.clone();
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&self.directory.node(&triple.first), text.as_bytes(), None)?;
        // Not written to: that would wake their watchers for nothing.
        self.check(&mut writer, &[&triple.middle, &triple.last])?;
        // Requests to stop are written to the middle one.
        let middle = self.directory.node(&triple.middle);
        let sent = self.traffic.begin();
        let (written, read) = tokio::join!(writer.commit(), client.get_data(&middle));
        let written = written.map_err(ZkError::from);
        self.traffic.end(sent, false, &read);
        self.traffic.end(sent, true, &written);
        self.stop_request = read.ok();
        match written?.first() {
            Some(MultiWriteResult::SetData { stat }) => Ok(Some(*stat)),
            _ => Ok(None),
        }
    }

    /// Publishes `text` on our first node without waiting for the answer, which does not matter.
    pub(in crate::backend::zookeeper) fn publish(&self, triple: &Triple, text: &str) {
        drop(self.client.set_data(&self.directory.node(&triple.first), text.as_bytes(), None));
    }

    /// Enters `slot`: publishes `text`, which names it, on our first and last node. Returns our slot: another one if an
    /// earlier request, whose answer was lost, has entered that; `None` if our nodes are gone or kept changing.
    pub(in crate::backend::zookeeper) async fn enter(
        &mut self,
        triple: &Triple,
        slot: u32,
        text: &str,
    ) -> Result<Option<u32>, ZkError> {
        let client = self.client.clone();
        // Others rely on the slot that a node has once named, so it must never name another one. Our last node is
        // written to only here.
        let mut version = 0;
        for _ in 0..ENTRIES {
            let mut writer = client.new_multi_writer();
            self.check(&mut writer, &[&triple.middle])?;
            writer.add_set_data(&self.directory.node(&triple.first), text.as_bytes(), None)?;
            writer.add_set_data(&self.directory.node(&triple.last), text.as_bytes(), Some(version))?;
            let sent = self.traffic.begin();
            let written = writer.commit().await.map_err(ZkError::from);
            self.traffic.end(sent, true, &written);
            let entered = match written {
                Ok(_) => Some(slot),
                Err(ZkError::BadVersion) => {
                    let Some((data, stat)) = self.read(&triple.last).await? else { return Ok(None) };
                    version = stat.version;
                    texts::slot(&data)
                }
                Err(error) => return absent(Err(error)),
            };
            if let Some(slot) = entered {
                self.entered.insert(triple.last.clone(), slot);
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }
}
