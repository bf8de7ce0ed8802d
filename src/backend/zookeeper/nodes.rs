/*!
A contender's three nodes: their state, the writes to them, and the meaning of answers about a node.
*/

use ::zookeeper_client::{Acls, Error as ZkError};

use crate::backend::contract::contender::token;
use crate::backend::zookeeper::names::sequence;

/// The number of nodes that each dlock has in a lock's directory.
pub(super) const EACH: i32 = 3;

/// Our three nodes, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Triple {
    /// The one for Curator's mutex; renewals write to it.
    pub first: String,
    /// The one for Curator's read/write lock.
    pub middle: String,
    /// The one for kazoo; dlocks watch it, and entering a slot writes to it.
    pub last: String,
    /// The number of the transaction that created them, from which the fencing token comes.
    pub czxid: i64,
}

impl Triple {
    /// Returns all three, in the order of their sequence numbers.
    pub(super) fn all(&self) -> [&str; 3] {
        [&self.first, &self.middle, &self.last]
    }

    /// Returns the fencing token; `None` if the server has made the number up or its data are damaged.
    pub(super) fn token(&self) -> Option<u64> {
        token(self.czxid)
    }

    /// Returns the largest of the sequence numbers.
    pub(super) fn sequence(&self) -> i64 {
        self.all().into_iter().map(|name| sequence(name).unwrap_or(i64::MAX)).max().unwrap_or(i64::MAX)
    }
}

/// The state of our nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// There are none.
    Nowhere,
    /// They were requested, and the answer has not been seen.
    Unsure,
    /// This session created these.
    At(Triple),
}

/// A write that is sent with a look at the queue, before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// No write.
    Nothing,
    /// Creates our nodes.
    Create,
    /// Creates our nodes, and before them the missing directories.
    CreateAll,
    /// Has the leader confirm our nodes.
    Confirm,
}

/// Returns the access list for new nodes: for their user alone if the servers know it (`known`), else for anybody.
pub(super) fn acls(known: bool) -> Acls<'static> {
    if known { Acls::creator_all() } else { Acls::anyone_all() }
}

/// Turns the error for a missing node into `None`.
pub(super) fn absent<T>(answer: Result<T, ZkError>) -> Result<Option<T>, ZkError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `true` if the error is a server's own refusal: nothing was done, and nothing will be.
pub(super) fn is_refusal(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::NoNode
            | ZkError::NoAuth
            | ZkError::InvalidAcl
            | ZkError::NoChildrenForEphemerals
            | ZkError::QuotaExceeded
            | ZkError::SessionExpired
    )
}
