/*!
One session and the nodes it has in a lock's directory: single requests, and what is known when their answers are lost.

Requests of one session are executed in the order in which they were sent, also those whose answers nobody waits for any
more; and what an abandoned connection still delivers is refused, because the session has moved to the next one.
*/

mod clock;
mod holds;
mod watches;

use std::time::Duration;

use ::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteResult, Stat, StateWatcher};

use crate::backend::zookeeper::directories::{self, MADE_BY_DLOCK};
use crate::backend::zookeeper::hold::{OwnHold, SeenHold};
use crate::backend::zookeeper::names::{Directory, Names};
use crate::backend::zookeeper::nodes::{Pair, Placed, Write, absent, is_refusal};
use crate::backend::zookeeper::own::OwnWatch;
use crate::backend::zookeeper::session::clock::ServerClock;
use crate::backend::zookeeper::timeline::Timeline;
use crate::backend::zookeeper::traffic::Traffic;
use crate::backend::zookeeper::tunnel::Tunnel;
use crate::backend::{Claim, Error, Lease};
use crate::clock::{Instant, before, wall_millis};

/// A lock is renewed whenever this fraction of a session has passed (one sixth).
const RENEWALS: u32 = 6;
/// A waiter sends a heartbeat whenever this fraction of a session has passed (one twelfth).
const HEARTBEATS: u32 = 12;
/// Which part of a session may have gone by since what is proven before that is worth another connection. Without delays
/// it is at most a quarter of a session and the time between two renewals.
const OLD: u32 = 2;
/// How long a session may take to close: a server closes it itself when nobody hears from us.
const CLOSE: Duration = Duration::from_millis(200);

/// A session, and what it has in one lock's directory.
#[derive(Debug)]
pub(super) struct Session {
    /// Where the lock is.
    pub directory: Directory,
    /// How our nodes are called.
    pub names: Names,
    /// What is known of them.
    pub placed: Placed,
    /// Since when the lock is ours, in milliseconds since 1970 by the server's clock.
    pub held_since: Option<u64>,
    /// The name of the node whose end is worth another look.
    pub predecessor: Option<String>,
    /// How many entries the queue had at the last look.
    pub entries: u64,
    /// Whether only one of them was before ours.
    pub is_next: bool,
    /// The minimum hold of an earlier holder, as the last look at the queue has seen it.
    pub seen_hold: SeenHold,
    /// Another's minimum hold that alone is in our way: the version of its node, and when it is over.
    pub waits_out: Option<(i32, Instant)>,
    /// When another's minimum hold is over, while that alone is in our way.
    pub free_at: Option<Instant>,
    /// Our own minimum hold.
    pub own_hold: OwnHold,
    /// The watches on our nodes, while the lock is ours.
    own_watch: Option<OwnWatch>,
    /// Whether it asked for something to be made.
    pub used: bool,
    /// Whether the nodes that were made last are counted; see [`Session::count`].
    counted: bool,
    /// The text that our nodes are made with.
    data: String,
    acls: Acls<'static>,
    client: Client,
    tunnel: Tunnel,
    length: Duration,
    traffic: Traffic,
    clock: Option<ServerClock>,
}

impl Session {
    /// A session that the library has just opened through `tunnel`, in answer to a request that was sent after `asked`.
    pub(super) fn new(
        claim: &Claim,
        directory: Directory,
        client: Client,
        tunnel: Tunnel,
        asked: Instant,
        acls: Acls<'static>,
    ) -> Self {
        let length = client.session_timeout();
        let mut session = Self {
            directory,
            names: Names::of(&claim.owner),
            placed: Placed::Nowhere,
            held_since: None,
            predecessor: None,
            entries: 0,
            is_next: false,
            seen_hold: SeenHold::Not,
            waits_out: None,
            free_at: None,
            own_hold: OwnHold::Unasked,
            own_watch: None,
            used: false,
            counted: false,
            data: format!("{}{}", claim.prefix(), claim.about.rest()),
            acls,
            client,
            tunnel,
            length,
            traffic: Traffic::new(Timeline::new(length, asked)),
            clock: None,
        };
        session.note_connection();
        session
    }

    /// Why the session has ended for good, if it has.
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

    /// The library's client, for requests that have nothing to do with the lock.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Why there is no connection, or why the last one ended, as far as it is known.
    pub(super) fn reason(&self) -> Option<String> {
        self.tunnel.reason()
    }

    /// Makes sure that there is a connection on which nothing is overdue, as long as the session has not ended.
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

    /// Every connection is a sign of life that reached the leader, and its server may grant less than the first one.
    pub(super) fn note_connection(&mut self) {
        if let Some(connected) = self.tunnel.connected() {
            self.traffic.timeline.connected(connected.sent);
            self.length = self.length.min(connected.session);
        }
    }

    /// The lease as what has been answered so far proves it.
    pub(super) fn lease(&self) -> Lease {
        let ttl = self.length;
        Lease::Until { sent: self.traffic.timeline.proven(), ttl, renew_every: ttl / RENEWALS }
    }

    /// Makes what is proven young again, where answers came late: a connect request counts from when it was sent, while
    /// renewals need a quarter of a session to count.
    pub(super) async fn refresh(&mut self) -> Result<(), Error> {
        if Instant::now().since(self.traffic.timeline.proven()) > self.length / OLD {
            self.tunnel.switch();
            // The lock is ours all the same: the caller must not take this for nothing having been sent.
            return self.connect().await.map_err(Error::unavailable);
        }
        Ok(())
    }

    /// Whether a waiter's next heartbeat is due.
    pub(super) fn is_stale(&self) -> bool {
        Instant::now().since(self.traffic.timeline.proven()) > self.length / HEARTBEATS
    }

    /// "Now" in milliseconds since 1970, by the server's clock where we know it.
    pub(super) fn now(&self) -> u64 {
        self.clock.as_ref().map_or_else(wall_millis, ServerClock::now)
    }

    /// A look at the lock's children, after `write`: both in one round trip. A directory that is not there has none.
    pub(super) async fn look(&mut self, write: Write) -> (Result<(), ZkError>, Result<Vec<String>, ZkError>) {
        let client = self.client.clone();
        let mut writer = client.new_multi_writer();
        let prepared = match (write, &self.placed) {
            (Write::Create | Write::CreateAll, _) => {
                let options = CreateMode::EphemeralSequential.with_acls(self.acls);
                let names = [&self.names.curator, &self.names.kazoo];
                let mut paths = names.into_iter().map(|name| self.directory.node(name));
                paths.try_for_each(|path| writer.add_create(&path, self.data.as_bytes(), &options))
            }
            (Write::Confirm, Placed::At(pair)) => {
                let mut paths = [&pair.curator, &pair.kazoo].into_iter().map(|name| self.directory.node(name));
                paths.try_for_each(|path| writer.add_check_version(&path, -1))
            }
            (Write::Nothing | Write::Confirm, _) => Ok(()),
        };
        if let Err(error) = prepared {
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
        let made = directories::make(&client, &paths, self.acls);
        let own = self.directory.path();
        let beside = self.directory.beside();
        // Asked for after the list: whoever left it before has written down its hold by then.
        let may_be_first = creates || self.is_next;
        let hold = async { if may_be_first { Some(client.get_data(&beside).await) } else { None } };
        let (made, written, listed, hold) = tokio::join!(made, writer.commit(), client.get_children(own), hold);
        self.seen_hold = SeenHold::of(hold);
        // What is wrong with the directories is why there could be no nodes in them.
        let written = written.map_err(ZkError::from).map_err(|error| made.err().unwrap_or(error));
        self.traffic.end(sent, write != Write::Nothing, &written);
        self.traffic.end(sent, false, &listed);
        let written = match (creates, written) {
            (true, Ok(results)) => {
                self.placed = self.made(sent, results).await;
                self.counted = true;
                if listed.as_ref().is_ok_and(|(_, stat)| directories::may_be_ours(stat)) {
                    // Nothing hangs on the answer.
                    drop(client.set_data(self.directory.path(), MADE_BY_DLOCK, None));
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
        (written, absent(listed).map(|listed| listed.map_or_else(Vec::new, |(children, _)| children)))
    }

    /// Reads what came of making our nodes.
    async fn made(&mut self, sent: Instant, results: Vec<MultiWriteResult>) -> Placed {
        let [MultiWriteResult::Create { path: curator, stat }, MultiWriteResult::Create { path: kazoo, .. }] =
            results.as_slice()
        else {
            return Placed::Unsure;
        };
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let (curator, kazoo) = (name(curator), name(kazoo));
        if !curator.starts_with(&self.names.curator) || !kazoo.starts_with(&self.names.kazoo) {
            return Placed::Unsure;
        }
        // Some servers forget the status in the answer.
        let stat = if stat.is_invalid() { self.stat(&curator).await.ok().flatten() } else { Some(*stat) };
        match stat {
            Some(stat) => self.placed_at(sent, curator, kazoo, &stat),
            None => Placed::Unsure,
        }
    }

    /// Our nodes of these names, if `stat`, which is one's status, says that they are this session's.
    pub(super) fn placed_at(&mut self, sent: Instant, curator: String, kazoo: String, stat: &Stat) -> Placed {
        let Ok(millis) = stat.ctime.try_into() else { return Placed::Unsure };
        if !self.is_own(stat) {
            return Placed::Unsure;
        }
        self.clock = self.clock.or(Some(ServerClock { millis, at: sent }));
        Placed::At(Pair { curator, kazoo, czxid: stat.czxid })
    }

    /// Whether a node is this session's.
    pub(super) fn is_own(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.client.session_id().0
    }

    /// The status of a node in the lock's directory; none when it is not there.
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

    /// What a node says, and its status; none when it is not there.
    pub(super) async fn read(&mut self, name: &str) -> Result<Option<(Vec<u8>, Stat)>, ZkError> {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let answer = client.get_data(&self.directory.node(name)).await;
        self.traffic.end(sent, false, &answer);
        absent(answer)
    }

    /// Removes the directories that a dlock made, from this one upwards, as far as they are empty: see
    /// [`directories::remove`].
    pub(super) async fn remove_directories(&mut self) {
        directories::remove(&self.client, &self.directory, &mut self.traffic).await;
    }

    /// Counts our two nodes in the lock's directory, where that has not been done when they were made: it is done then,
    /// but for those that were made by a request whose answer nobody waited for.
    pub(super) async fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            directories::count(&self.client, &self.directory, &mut self.traffic).await;
        }
    }

    /// Removes nodes, all at once or, where one is gone already, one by one; says whether all were there.
    pub(super) async fn remove(&mut self, names: &[&str]) -> Result<bool, ZkError> {
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

    /// Publishes `text` on our first node, and confirms that both are there. Says what the first one's status is then.
    pub(super) async fn renew(&mut self, pair: &Pair, text: &str) -> Result<Option<Stat>, ZkError> {
        let client = self.client.clone();
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&self.directory.node(&pair.curator), text.as_bytes(), None)?;
        // Not written to: its watchers would wake for nothing.
        writer.add_check_version(&self.directory.node(&pair.kazoo), -1)?;
        let sent = self.traffic.begin();
        let written = writer.commit().await.map_err(ZkError::from);
        self.traffic.end(sent, true, &written);
        match written?.first() {
            Some(MultiWriteResult::SetData { stat }) => Ok(Some(*stat)),
            _ => Ok(None),
        }
    }

    /// Publishes `text` on both nodes without waiting for the answer: nothing hangs on it.
    pub(super) fn publish(&self, pair: &Pair, text: &str) {
        let mut writer = self.client.new_multi_writer();
        let mut paths = [&pair.curator, &pair.kazoo].into_iter().map(|name| self.directory.node(name));
        if paths.try_for_each(|path| writer.add_set_data(&path, text.as_bytes(), None)).is_ok() {
            drop(writer.commit());
        }
    }

    /// Closes the session: what it has is gone at once.
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
