/*!
What a contender at etcd knows: its claim, the way to the cluster, and what it has there.
*/

use std::time::Duration;

use etcd_client::WatchStream;

use crate::backend::Claim;
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::own::OwnWatch;
use crate::clock::Instant;
use crate::lock::admission::Watch;

/// A waiter sends a heartbeat whenever this fraction of its lease has passed (one third).
pub(super) const SIGNS_OF_LIFE: u32 = 3;
/// How long the answer to a heartbeat may take: this fraction of the lease (one sixth).
pub(super) const SIGN_ANSWERED: u32 = 6;

/// One claim at one etcd cluster.
pub(super) struct EtcdContender {
    pub claim: Claim,
    pub cluster: Cluster,
    pub session: Option<Session>,
    /// Whether the server's version was looked at in this run.
    pub inspected: bool,
    pub concerns: Vec<String>,
}

/// What is at the cluster for one claim.
pub(super) struct Session {
    /// The lease's id, made from the owner's: a grant can be asked for twice and is one.
    pub lease: i64,
    /// Our key.
    pub key: String,
    /// When the last confirmed request was sent that began or extended the lease.
    pub sent: Instant,
    /// The granted length; none before the answer.
    pub ttl: Option<Duration>,
    /// Our key's create revision; none before the answer.
    pub created: Option<i64>,
    /// The token, once the lock is ours: the same for every further attempt.
    pub token: Option<u64>,
    /// The slot, once one is ours.
    pub slot: Option<u32>,
    /// What we wait for, and the revision of the look that showed it.
    pub awaits: Option<(Watch, i64)>,
    /// The watch on that.
    pub watch: Option<Watched>,
    /// When a waiter looks again at who holds the lock, although nothing has happened to what it waits for.
    pub news_at: Instant,
    /// The revision at which our key was last seen by a renewal.
    pub renewed: Option<i64>,
    /// The watches on our own key and on requests to stop, while the lock is ours.
    pub own_watch: Option<[OwnWatch; 2]>,
    /// It has been tried to take all this away.
    pub withdrawing: bool,
    /// Our place stays taken for the claim's minimum hold.
    pub holds: bool,
}

/// A watch at the server.
pub(super) struct Watched {
    /// What is watched.
    pub what: Watch,
    /// The connection that it came by: a watch says nothing more once its connection was given up.
    pub link: u64,
    pub stream: WatchStream,
    /// The server has said that it watches.
    pub works: bool,
}
