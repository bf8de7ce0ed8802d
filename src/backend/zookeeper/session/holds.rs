/*!
The node that keeps a lock taken after it was used: see [`hold`](crate::backend::zookeeper::hold).
*/

use std::time::Duration;

use ::zookeeper_client::{CreateMode, Error as ZkError};

use crate::backend::zookeeper::hold::{Hold, OwnHold};
use crate::backend::zookeeper::nodes::{Pair, absent};
use crate::backend::zookeeper::session::{HEARTBEATS, Session};
use crate::clock::{Instant, sleep_until};

impl Session {
    /// The minimum hold of an earlier holder, over or not.
    pub(in crate::backend::zookeeper) async fn read_hold(&mut self) -> Result<Option<Hold>, ZkError> {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let answer = client.get_data(&self.directory.beside()).await;
        self.traffic.end(sent, false, &answer);
        Ok(absent(answer)?.and_then(|(data, stat)| Hold::read(&data, &stat)))
    }

    /// Writes down that the lock, which is ours by the nodes of `pair`, is to be held for `min_hold` from now on, with the
    /// published `text`. Once is enough.
    pub(in crate::backend::zookeeper) async fn write_hold(
        &mut self,
        pair: &Pair,
        text: &str,
        min_hold: Duration,
    ) -> Result<(), ZkError> {
        if matches!(self.own_hold, OwnHold::Until(_)) {
            return Ok(());
        }
        let (client, path) = (self.client.clone(), self.directory.beside());
        let data = Hold::text(text);
        let mut create = true;
        self.own_hold = OwnHold::Asked;
        loop {
            let mut writer = client.new_multi_writer();
            for name in [&pair.curator, &pair.kazoo] {
                writer.add_check_version(&self.directory.node(name), -1)?;
            }
            if create {
                writer.add_create(&path, data.as_bytes(), &CreateMode::Persistent.with_acls(self.acls))?;
            } else {
                writer.add_set_data(&path, data.as_bytes(), None)?;
            }
            let sent = self.traffic.begin();
            let written = writer.commit().await.map_err(ZkError::from);
            self.traffic.end(sent, true, &written);
            match written {
                Ok(_) => {
                    self.own_hold = OwnHold::Until(Instant::now() + min_hold);
                    return Ok(());
                }
                Err(ZkError::NodeExists) if create => create = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// The time at the servers, in milliseconds since 1970, as they date a write to our own node; none where the answer makes no
    /// sense.
    pub(in crate::backend::zookeeper) async fn ask_time(&mut self, pair: &Pair) -> Result<Option<u64>, ZkError> {
        let text = self.data.clone();
        Ok(self.renew(pair, &text).await?.and_then(|stat| stat.mtime.try_into().ok()))
    }

    /// Removes what says that the owner `id` holds the lock for a time, also where the answer to its writing was lost.
    pub(in crate::backend::zookeeper) async fn end_hold(&mut self, id: &str) -> Result<(), ZkError> {
        match self.read_hold().await?.filter(|hold| hold.is_of(id)) {
            Some(hold) => self.remove_hold(hold.version).await,
            None => Ok(()),
        }
    }

    /// Removes the node where it still says what it said in this `version`.
    pub(in crate::backend::zookeeper) async fn remove_hold(&mut self, version: i32) -> Result<(), ZkError> {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let removed = client.delete(&self.directory.beside(), Some(version)).await;
        self.traffic.end(sent, true, &removed);
        match removed {
            Err(ZkError::NoNode | ZkError::BadVersion) => Ok(()),
            removed => removed,
        }
    }

    /// Waits for the end of another's hold, as far as the next sign of life is not due before.
    pub(super) async fn wait_out(&self, over: Instant) {
        sleep_until(over.min(Instant::now() + self.length / HEARTBEATS)).await;
    }
}
