/*!
One session and its nodes in a lock's directory: single requests, and what is known if their answers are lost.

Requests of one session are executed in the order in which they were sent, including those whose answers nobody awaits
any more. A server refuses what an abandoned connection still delivers, because the session has moved to the next one.
*/

mod asking;
mod clock;
mod holds;
mod placing;
mod records;
mod watches;

use std::collections::BTreeMap;
use std::time::Duration;

use ::zookeeper_client::{Acls, Client, Error as ZkError, Stat, StateWatcher};
use futures_util::future::join_all;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Lease;
use crate::backend::contract::probing::SCRATCH;
use crate::backend::error::Error;
use crate::backend::zookeeper::directories;
use crate::backend::zookeeper::hold::{Listed, MinimumHold};
use crate::backend::zookeeper::line::Awaited;
use crate::backend::zookeeper::names::{Directory, Names};
use crate::backend::zookeeper::nodes::{Placed, absent, acls};
use crate::backend::zookeeper::own::OwnWatch;
use crate::backend::zookeeper::session::clock::ServerClock;
pub(super) use crate::backend::zookeeper::session::records::{BROKEN, is_of_periods, is_record};
use crate::backend::zookeeper::texts;
use crate::backend::zookeeper::timeline::Timeline;
use crate::backend::zookeeper::traffic::Traffic;
use crate::backend::zookeeper::tunnel::Tunnel;
use crate::clock::{Instant, before, wall_millis};
use crate::holder::ask::Ask;

/// A lock is renewed whenever this fraction of a session has passed (one sixth).
const RENEWALS: u32 = 6;
/// A waiter sends a heartbeat whenever this fraction of a session has passed (one twelfth).
const HEARTBEATS: u32 = 12;
/// The fraction of a session that may pass since the proven instant before a new connection is worth it (one half).
/// Without delays it is at most a quarter of a session and the time between two renewals.
const OLD: u32 = 2;
/// The time that a session may take to close: a server closes it itself when it does not hear from us.
const CLOSE: Duration = Duration::from_millis(200);
/// The number of nodes to read together.
const TOGETHER: usize = 100;

/// A node's data and status.
type Content = (Vec<u8>, Stat);

/// A session, and its nodes in one lock's directory.
#[derive(Debug)]
pub(super) struct Session {
    /// The lock's directory.
    pub directory: Directory,
    /// The names of our nodes, without their sequence numbers.
    pub names: Names,
    /// The state of our nodes.
    pub placed: Placed,
    /// The time since which we hold the lock, in milliseconds since 1970 by the server's clock.
    pub held_since: Option<u64>,
    /// The event that is worth another look.
    pub awaited: Option<Awaited>,
    /// The end of a minimum hold that is in our way, which is worth another look too.
    pub free_at: Option<Instant>,
    /// The number of contenders, as last counted.
    pub entries: u64,
    /// Our position among the waiters at the last look, 1 for the next.
    pub position: Option<u64>,
    /// The known slots, also our own, keyed by last node; a slot does not change once it is entered.
    pub entered: BTreeMap<String, u32>,
    /// The nodes of minimum holds, as the last look has listed them.
    listed_holds: Listed,
    /// The minimum holds that have been read, by the names of their nodes.
    known_holds: BTreeMap<String, MinimumHold>,
    /// An instant at which our own minimum hold is certainly over, once it is recorded.
    pub own_hold: Option<Instant>,
    /// Set once a request to record our minimum hold may have been sent.
    pub hold_asked: bool,
    /// The watches on our nodes, while the lock is ours.
    own_watch: Option<OwnWatch>,
    /// The content of the node for requests to stop, as the last renewal has read it.
    stop_request: Option<Content>,
    /// Set once the session has requested that something be created.
    pub used: bool,
    /// Set if the nodes that were created last are counted; see [`Session::count`].
    counted: bool,
    /// The data that our nodes are created with.
    data: String,
    acls: Acls<'static>,
    /// The path of the node that keeps the namespace for its user, if there is to be one: see [`directories`].
    keeper: Option<String>,
    client: Client,
    tunnel: Tunnel,
    length: Duration,
    traffic: Traffic,
    clock: Option<ServerClock>,
}

impl Session {
    /// Wraps a session that the library has just opened through `tunnel`, by a request that was sent after `asked`.
    pub(super) fn new(
        claim: &Claim,
        directory: Directory,
        client: Client,
        tunnel: Tunnel,
        asked: Instant,
        has_user: bool,
    ) -> Self {
        let length = client.session_timeout();
        // A check leaves nothing behind.
        let keeps = has_user && !claim.key.as_str().starts_with(SCRATCH);
        let keeper = directory.keeper().filter(|_| keeps);
        let mut session = Self {
            directory,
            names: Names::of(&claim.owner, claim.mode),
            placed: Placed::Nowhere,
            held_since: None,
            awaited: None,
            free_at: None,
            entries: 0,
            position: None,
            entered: BTreeMap::new(),
            listed_holds: Listed::Unknown,
            known_holds: BTreeMap::new(),
            own_hold: None,
            hold_asked: false,
            own_watch: None,
            stop_request: None,
            used: false,
            counted: false,
            data: texts::waiting(claim),
            acls: acls(has_user),
            keeper,
            client,
            tunnel,
            length,
            traffic: Traffic::new(Timeline::new(length, asked)),
            clock: None,
        };
        session.note_connection();
        session
    }

    /// Returns the reason why the session has ended for good, if it has.
    pub(super) fn end(&self) -> Option<&'static str> {
        use ::zookeeper_client::SessionState::{
            AuthFailed, Closed, ConnectedReadOnly, Disconnected, Expired, SyncConnected,
        };
        match self.client.state() {
            Disconnected | SyncConnected | ConnectedReadOnly => None,
            Expired => Some("its session has expired"),
            AuthFailed => Some("the server refused the credentials"),
            Closed => Some("its session was closed"),
        }
    }

    /// Returns the library's client, for requests that have nothing to do with the lock.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the reason why there is no connection, or why the last one ended, if it is known.
    pub(super) fn reason(&self) -> Option<String> {
        self.tunnel.reason()
    }

    /// Waits for a connection on which nothing is overdue, as long as the session has not ended.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.traffic.overdue) {
            self.tunnel.switch();
        }
        let mut state = self.client.state_watcher();
        while self.end().is_none() {
            tokio::select! {
                biased;
                welcomed = self.tunnel.welcomed() => {
                    welcomed?;
                    break;
                }
                _ = state.changed() => {}
            }
        }
        self.note_connection();
        Ok(())
    }

    /// Records the connection: a sign of life that reached the leader. Its server may grant less than the first one.
    pub(super) fn note_connection(&mut self) {
        if let Some(connected) = self.tunnel.connected() {
            self.traffic.timeline.connected(connected.sent);
            self.length = self.length.min(connected.session);
        }
    }

    /// Returns the lease that the answers so far prove.
    pub(super) fn lease(&self) -> Lease {
        let ttl = self.length;
        Lease::Until { sent: self.traffic.timeline.proven(), ttl, renew_every: ttl / RENEWALS }
    }

    /// Reconnects if late answers have let the proven instant become old: a connect request counts from when it was
    /// sent, while renewals need a quarter of a session to count.
    pub(super) async fn refresh(&mut self) -> Result<(), Error> {
        if Instant::now().since(self.traffic.timeline.proven()) > self.length / OLD {
            self.tunnel.switch();
            // The lock is ours all the same: the caller must not conclude that nothing was sent.
            return self.connect().await.map_err(Error::unavailable);
        }
        Ok(())
    }

    /// Returns `true` if a waiter's next heartbeat is due.
    pub(super) fn is_stale(&self) -> bool {
        Instant::now().since(self.traffic.timeline.proven()) > self.length / HEARTBEATS
    }

    /// Returns the time in milliseconds since 1970 by the server's clock; `None` if that is not known yet.
    pub(super) fn server_time(&self) -> Option<u64> {
        self.clock.as_ref().map(ServerClock::now)
    }

    /// Returns the time in milliseconds since 1970, by the server's clock if it is known.
    pub(super) fn now(&self) -> u64 {
        self.server_time().unwrap_or_else(wall_millis)
    }

    /// Returns the slot that we have entered, if any.
    pub(super) fn slot(&self) -> Option<u32> {
        match &self.placed {
            Placed::At(triple) => self.entered.get(&triple.last).copied(),
            Placed::Nowhere | Placed::Unsure => None,
        }
    }

    /// Returns the request to stop that was made to this owner, as the last renewal has read it.
    pub(super) fn asked(&self, owner: &str) -> Option<Ask> {
        self.stop_request.as_ref().and_then(|(data, _)| Ask::read(data, owner))
    }

    /// Returns `true` if a node belongs to this session.
    pub(super) fn is_own(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.client.session_id().0
    }

    /// Returns the status of a node in the lock's directory; `None` if it does not exist.
    pub(super) async fn stat(&mut self, name: &str) -> Result<Option<Stat>, ZkError> {
        let path = self.directory.node(name);
        self.stat_at(&path).await
    }

    async fn stat_at(&mut self, path: &str) -> Result<Option<Stat>, ZkError> {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let answer = client.check_stat(path).await;
        self.traffic.end(sent, false, &answer);
        answer
    }

    /// Reads a node's data and status; `None` if it does not exist.
    pub(super) async fn read(&mut self, name: &str) -> Result<Option<Content>, ZkError> {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let answer = client.get_data(&self.directory.node(name)).await;
        self.traffic.end(sent, false, &answer);
        absent(answer)
    }

    /// Reads the data and status of the nodes at these paths, in that order; `None` stands for a missing one.
    pub(super) async fn read_all(&mut self, paths: &[String]) -> Result<Vec<Option<Content>>, ZkError> {
        let client = self.client.clone();
        let mut read = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER) {
            let sent = self.traffic.begin();
            for answer in join_all(paths.iter().map(|path| client.get_data(path))).await {
                self.traffic.end(sent, false, &answer);
                read.push(absent(answer)?);
            }
        }
        Ok(read)
    }

    /// Removes the directories that dlock created, from this one upwards, as long as they are empty: see
    /// [`directories::remove`].
    pub(super) async fn remove_directories(&mut self) {
        directories::remove(&self.client, &self.directory, self.keeper.is_some(), &mut self.traffic).await;
    }

    /// Counts our nodes in the lock's directory, unless that was done when they were created. It was not if nobody
    /// waited for the answer to the request that created them.
    pub(super) async fn count(&mut self) {
        if !self.counted {
            directories::count(&self.client, &self.directory, &mut self.counted, &mut self.traffic).await;
        }
    }

    /// Closes the session, which removes its nodes at once.
    pub(super) async fn close(self) {
        let Self { client, tunnel, .. } = self;
        let state = client.state_watcher();
        drop(client);
        let _ = before(Instant::now() + CLOSE, closed(state)).await;
        drop(tunnel);
    }
}

async fn closed(mut state: StateWatcher) {
    while !state.peek_state().is_terminated() {
        state.changed().await;
    }
}
