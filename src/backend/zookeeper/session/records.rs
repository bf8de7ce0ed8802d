/*!
The node that records the last success in a period: see [`once`](crate::backend::zookeeper::once).
*/

use ::zookeeper_client::{CreateMode, Error as ZkError, MultiWriteError};

use crate::backend::zookeeper::nodes::{Triple, absent};
use crate::backend::zookeeper::session::{Content, Session};

/// The prefix of the names of such nodes, before the length of the periods. No owner's id begins like this.
const NAME: &str = "once-";
/// The name of the node with the trace of the last break.
pub(in crate::backend::zookeeper) const BROKEN: &str = "once-broken";
/// The maximum number of attempts to write a record whose node or directory comes or goes meanwhile.
const TRIES: usize = 8;

/// Returns `true` if a node has the record for periods of some length.
pub(in crate::backend::zookeeper) fn is_of_periods(name: &str) -> bool {
    name.strip_prefix(NAME).is_some_and(|length| length.parse::<u64>().is_ok())
}

/// Returns `true` if a node next to those of minimum holds has such a name, and so holds nothing.
pub(in crate::backend::zookeeper) fn is_record(name: &str) -> bool {
    name.starts_with(NAME)
}

impl Session {
    /// Returns the path of the node for periods of this length in milliseconds.
    fn record(&self, length: u64) -> String {
        self.directory.hold(&format!("{NAME}{length}"))
    }

    /// Reads the record for periods of this length in milliseconds, with its node's status; `None` if there is none.
    pub(in crate::backend::zookeeper) async fn read_record(&mut self, length: u64) -> Result<Option<Content>, ZkError> {
        let (client, path) = (self.client.clone(), self.record(length));
        let sent = self.traffic.begin();
        let answer = client.get_data(&path).await;
        self.traffic.end(sent, false, &answer);
        absent(answer)
    }

    /// Removes the record for periods of this length, which was last read in this `version`, and the directory if it is
    /// empty. Errors do not matter: others see for themselves what no longer counts.
    pub(in crate::backend::zookeeper) async fn remove_record(&mut self, length: u64, version: i32) {
        let (client, path, directory) = (self.client.clone(), self.record(length), self.directory.beside());
        for (path, version) in [(path, Some(version)), (directory, None)] {
            let sent = self.traffic.begin();
            let removed = client.delete(&path, version).await;
            self.traffic.end(sent, true, &removed);
        }
    }

    /// Removes the nodes of `triple` and, in the same request, records `text` for periods of this length; `is_there` if
    /// a record was there at the last look. Returns `false`, with nothing done, if one of our nodes is gone.
    pub(in crate::backend::zookeeper) async fn remove_with_record(
        &mut self,
        triple: &Triple,
        length: u64,
        text: &str,
        is_there: bool,
    ) -> Result<bool, ZkError> {
        let (client, options) = (self.client.clone(), CreateMode::Persistent.with_acls(self.acls));
        let (directory, path) = (self.directory.beside(), self.record(length));
        let (mut makes_directory, mut makes_node) = (!is_there, !is_there);
        for _ in 0..TRIES {
            let mut writer = client.new_multi_writer();
            if makes_directory {
                writer.add_create(&directory, b"", &options)?;
            }
            if makes_node {
                writer.add_create(&path, text.as_bytes(), &options)?;
            } else {
                writer.add_set_data(&path, text.as_bytes(), None)?;
            }
            for name in triple.all() {
                writer.add_delete(&self.directory.node(name), None)?;
            }
            let sent = self.traffic.begin();
            let written = writer.commit().await.map(drop);
            self.traffic.end(sent, true, &written.clone().map_err(ZkError::from));
            let (index, why) = match written {
                Ok(()) => return Ok(true),
                Err(MultiWriteError::OperationFailed { index, source }) => (index, source),
                Err(error) => return Err(error.into()),
            };
            let record = usize::from(makes_directory);
            match why {
                ZkError::NodeExists if makes_directory && index == 0 => makes_directory = false,
                ZkError::NodeExists if index == record => makes_node = false,
                ZkError::NoNode if index == record && makes_node => makes_directory = true,
                ZkError::NoNode if index == record => makes_node = true,
                ZkError::NoNode => return Ok(false),
                error => return Err(error),
            }
        }
        Err(ZkError::NoNode)
    }
}
