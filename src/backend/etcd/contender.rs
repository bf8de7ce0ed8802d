/*!
The state of a contender at etcd: its claim, its access to the cluster, and its entry there.
*/

use std::time::Duration;

use etcd_client::WatchStream;

use crate::backend::contract::claim::Claim;
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::own::OwnWatch;
use crate::clock::Instant;
use crate::lock::admission::Watch;

/// A waiter sends a heartbeat whenever this fraction of its lease has passed (one third).
pub(super) const SIGNS_OF_LIFE: u32 = 3;
/// The answer to a heartbeat may take this fraction of the lease (one sixth).
pub(super) const SIGN_ANSWERED: u32 = 6;

/// One claim at one etcd cluster.
pub(super) struct EtcdContender {
    pub claim: Claim,
    pub cluster: Cluster,
    pub session: Option<Session>,
    /// The server's version has been checked in this run.
    pub inspected: bool,
    pub warnings: Vec<String>,
}

/// The state of one claim at the cluster.
pub(super) struct Session {
    /// The lease's id, derived from the owner's id, so that a repeated grant request creates no second lease.
    pub lease: i64,
    /// Our key.
    pub key: String,
    /// The time at which the last confirmed request that granted or extended the lease was sent.
    pub sent: Instant,
    /// The granted length; `None` before the answer.
    pub ttl: Option<Duration>,
    /// Our key's create revision; `None` before the answer.
    pub created: Option<i64>,
    /// The token, once we hold the lock: the same for every further attempt.
    pub token: Option<u64>,
    /// The slot, once we hold one.
    pub slot: Option<u32>,
    /// The event that we wait for, and the revision of the look that it follows from.
    pub awaits: Option<(Watch, i64)>,
    /// The watch for that event.
    pub watch: Option<Watched>,
    /// The revision of what a member has just told us: that our key exists, or that the event has happened. The next
    /// look takes it.
    pub told: Option<i64>,
    /// The time at which a waiter looks for a new holder even if its watch has reported nothing.
    pub news_at: Instant,
    /// The revision at which our key was last seen by a renewal.
    pub renewed: Option<i64>,
    /// The watches on our own key and on requests to stop, while we hold the lock.
    pub own_watch: Option<[OwnWatch; 2]>,
    /// A withdrawal has been tried.
    pub withdrawing: bool,
    /// Our place is kept for the claim's minimum hold.
    pub holds: bool,
}

/// A watch at the server.
pub(super) struct Watched {
    /// The event that is watched for.
    pub what: Watch,
    /// The number of its connection: a watch reports nothing more once its connection was dropped.
    pub link: u64,
    pub stream: WatchStream,
    /// The server has confirmed the watch.
    pub works: bool,
}
