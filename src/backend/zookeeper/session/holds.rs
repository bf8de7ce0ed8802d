/*!
The nodes that keep a lock taken after its use: see [`hold`](crate::backend::zookeeper::hold).
*/

use std::time::Duration;

use ::zookeeper_client::{CreateMode, Error as ZkError, MultiWriteError};
use futures_util::future::join_all;

use crate::backend::zookeeper::hold::{Hold, Listed, MinimumHold};
use crate::backend::zookeeper::nodes::{Triple, absent};
use crate::backend::zookeeper::session::records::is_record;
use crate::backend::zookeeper::session::{Session, TOGETHER};
use crate::clock::Instant;

/// The maximum number of attempts to record a minimum hold whose directory comes or goes meanwhile.
const TRIES: usize = 8;

impl Session {
    /// Returns the minimum holds that are not over, except that of the owner `own`. Removes those that are over.
    pub(in crate::backend::zookeeper) async fn holds(&mut self, own: &str) -> Result<Vec<MinimumHold>, ZkError> {
        let listed = match std::mem::take(&mut self.listed_holds) {
            Listed::Unknown => self.list_holds().await?,
            listed => listed,
        };
        let Listed::Names(mut names) = listed else {
            self.known_holds.clear();
            return Ok(Vec::new());
        };
        let is_empty = names.is_empty();
        names.retain(|name| !is_record(name));
        self.known_holds.retain(|name, _| names.contains(name));
        let is_new = |name: &&String| *name != own && !self.known_holds.contains_key(*name);
        let new: Vec<String> = names.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            self.learn(&new).await?;
        }
        let now = Instant::now();
        let over = self.known_holds.iter().filter(|(_, kept)| kept.over <= now);
        let over: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        self.known_holds.retain(|_, kept| kept.over > now);
        if !over.is_empty() || is_empty {
            self.remove_holds(&over).await;
        }
        Ok(self.known_holds.values().cloned().collect())
    }

    async fn list_holds(&mut self) -> Result<Listed, ZkError> {
        let (client, path) = (self.client.clone(), self.directory.beside());
        let sent = self.traffic.begin();
        let answer = client.get_children(&path).await;
        self.traffic.end(sent, false, &answer);
        Ok(absent(answer)?.map_or(Listed::Nowhere, |(names, _)| Listed::Names(names)))
    }

    /// Reads the nodes of these names, and the servers' time, by which they are dated.
    async fn learn(&mut self, names: &[String]) -> Result<(), ZkError> {
        let paths: Vec<String> = names.iter().map(|name| self.directory.hold(name)).collect();
        let read = self.read_all(&paths).await?;
        let read = paths.iter().zip(names).zip(read).filter_map(|(place, read)| Some((place, read?)));
        let held = read.filter_map(|((path, name), (data, stat))| Some((path, name, Hold::read(&data, &stat)?, data)));
        let held: Vec<(&String, &String, Hold, Vec<u8>)> = held.collect();
        let mut now = None;
        for (path, _, _, data) in &held {
            let client = self.client.clone();
            let sent = self.traffic.begin();
            // Their age counts from their creation, which this does not change.
            let written = client.set_data(path, data, None).await;
            self.traffic.end(sent, true, &written);
            if let Some(stat) = absent(written)? {
                now = Some(u64::try_from(stat.mtime).unwrap_or_default());
                break;
            }
        }
        // If none exists any more, nothing is held.
        let Some(now) = now else { return Ok(()) };
        for (_, name, hold, _) in held {
            let over = Instant::now() + hold.left(now);
            self.known_holds.insert(name.clone(), MinimumHold { hold, over });
        }
        Ok(())
    }

    /// Removes the nodes of these names, and their directory if it is empty. Errors do not matter: others see for
    /// themselves what is over.
    async fn remove_holds(&mut self, names: &[String]) {
        let client = self.client.clone();
        for names in names.chunks(TOGETHER) {
            let sent = self.traffic.begin();
            let removed = join_all(names.iter().map(|name| client.delete(&self.directory.hold(name), None))).await;
            for removed in &removed {
                self.traffic.end(sent, true, removed);
            }
        }
        let sent = self.traffic.begin();
        let removed = client.delete(&self.directory.beside(), None).await;
        self.traffic.end(sent, true, &removed);
    }

    /// Records that the lock, which is ours by the nodes of `triple`, is to be held for `min_hold` from now on, with
    /// the published `text` of the owner `own`. Does nothing if it is known to be recorded.
    pub(in crate::backend::zookeeper) async fn write_hold(
        &mut self,
        triple: &Triple,
        own: &str,
        text: &str,
        min_hold: Duration,
    ) -> Result<(), ZkError> {
        if self.own_hold.is_some() {
            return Ok(());
        }
        let (client, options) = (self.client.clone(), CreateMode::Persistent.with_acls(self.acls));
        let (directory, path) = (self.directory.beside(), self.directory.hold(own));
        let mut makes_directory = self.known_holds.is_empty();
        self.hold_asked = true;
        for _ in 0..TRIES {
            let (mut writer, nodes) = (client.new_multi_writer(), triple.all());
            self.check(&mut writer, &nodes)?;
            if makes_directory {
                writer.add_create(&directory, b"", &options)?;
            }
            writer.add_create(&path, text.as_bytes(), &options)?;
            let sent = self.traffic.begin();
            let written = writer.commit().await.map(drop);
            self.traffic.end(sent, true, &written.clone().map_err(ZkError::from));
            match written {
                Err(MultiWriteError::OperationFailed { index, source: ZkError::NodeExists })
                    if makes_directory && index == nodes.len() =>
                {
                    makes_directory = false;
                }
                Err(MultiWriteError::OperationFailed { index, source: ZkError::NoNode })
                    if !makes_directory && index == nodes.len() =>
                {
                    makes_directory = true;
                }
                // Also if an earlier request has recorded it, and its answer was lost.
                Ok(()) | Err(MultiWriteError::OperationFailed { source: ZkError::NodeExists, .. }) => {
                    self.own_hold = Some(Instant::now() + min_hold);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ZkError::NoNode)
    }

    /// Removes the minimum hold of the owner `own`, even if the answer to the request that recorded it was lost.
    pub(in crate::backend::zookeeper) async fn end_hold(&mut self, own: &str) -> Result<(), ZkError> {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let removed = client.delete(&self.directory.hold(own), None).await;
        self.traffic.end(sent, true, &removed);
        absent(removed)?;
        self.remove_holds(&[]).await;
        Ok(())
    }
}
