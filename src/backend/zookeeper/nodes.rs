/*!
A contender's three nodes: what is known of them, what is asked of them, and what an answer about a node means.
*/

use ::zookeeper_client::{Acls, Error as ZkError};

use crate::backend;
use crate::backend::zookeeper::names::sequence;

/// How many nodes each dlock has in a lock's directory.
pub(super) const EACH: i32 = 3;

/// Our three nodes, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Triple {
    /// The one for Curator's mutex; renewals write to it.
    pub first: String,
    /// The one for Curator's read/write lock.
    pub middle: String,
    /// The one for kazoo; dlocks watch it, and who enters a slot writes to it.
    pub last: String,
    /// The number of the transaction that made them, from which the fencing token comes.
    pub czxid: i64,
}

impl Triple {
    /// All of them, in the order of their sequence numbers.
    pub(super) fn all(&self) -> [&str; 3] {
        [&self.first, &self.middle, &self.last]
    }

    /// The fencing token; none where a server has made the number up or its data are damaged.
    pub(super) fn token(&self) -> Option<u64> {
        backend::token(self.czxid)
    }

    /// The largest of the sequence numbers.
    pub(super) fn sequence(&self) -> i64 {
        self.all().into_iter().map(|name| sequence(name).unwrap_or(i64::MAX)).max().unwrap_or(i64::MAX)
    }
}

/// What is known of our nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// There are none.
    Nowhere,
    /// They were asked for, and the answer has not been seen.
    Unsure,
    /// These were made by this session.
    At(Triple),
}

/// A write that travels with a look at the queue, before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// None.
    Nothing,
    /// Our nodes are made.
    Create,
    /// Our nodes are made, and before them the directories that are not there.
    CreateAll,
    /// Our nodes are confirmed by the leader.
    Confirm,
}

/// The access list of new nodes: for their user alone where that is `known` to the servers, else for anybody.
pub(super) fn acls(known: bool) -> Acls<'static> {
    if known { Acls::creator_all() } else { Acls::anyone_all() }
}

/// A node that is not there is an answer.
pub(super) fn absent<T>(answer: Result<T, ZkError>) -> Result<Option<T>, ZkError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error is a server's own "no": nothing was done, and nothing will be.
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
