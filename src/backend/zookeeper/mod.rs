/*!
ZooKeeper: two ephemeral sequential nodes in `/NS/KEY`, made in one request, one as Curator spells it and one as kazoo
does; the smallest sequence number holds, and each contender watches the one before it; who holds watches its own nodes.

A lock lives as long as its session, and each claim has a session of its own. The leader alone decides when a session
ends, and a follower tells it late that we are alive: [`timeline`] says what an answer proves.
*/

mod directories;
mod driver;
mod ensemble;
mod errors;
mod frames;
mod names;
mod own;
mod session;
mod timeline;
mod traffic;
mod tunnel;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::zookeeper_client::{Client, Error as ZkError};

pub(crate) use self::driver::DRIVER;
use self::ensemble::Ensemble;
use self::errors::About;
use self::names::{Directory, Rival, Standing, is_worn_out, sequence, standing};
use self::session::{Placed, Session, Write, acls};
use self::tunnel::Tunnel;
use crate::backend::net::location::{Location, nested_hint};
use crate::backend::net::tls::Tls;
use crate::backend::{Attempt, Busy, Claim, Contender, Error, Grant, Queue, Released, Renewal, Service};
use crate::clock::{Alarm, Instant};
use crate::holder::Holder;

/// The longest session that can be asked for.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);
/// How many descriptors must be free: three for the library itself, five for one connection and its way to a server, and
/// timers.
const DESCRIPTORS: usize = 12;
/// How many bytes it needs at first besides its thread's stack, with some to spare.
const MEMORY: usize = 1024 * 1024;
/// How often one attempt looks again because what it saw changed under its eyes.
const LOOKS: usize = 16;

/// The locks of one ZooKeeper ensemble.
#[derive(Debug)]
pub(crate) struct ZookeeperService {
    location: Location,
    tls: Option<Tls>,
}

impl ZookeeperService {
    /// The locks of the ensemble at `location`, whose path stands before every lock's; not connected yet.
    #[must_use]
    pub(crate) fn new(location: Location, tls: Option<Tls>) -> Self {
        Self { location, tls }
    }
}

impl Service for ZookeeperService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let ensemble = Arc::new(Ensemble::new(self.location.clone(), self.tls.clone()));
        Box::new(ZookeeperContender { claim, ensemble, opening: None, session: None, released: None })
    }
}

/// One claim at one ZooKeeper ensemble.
#[derive(Debug)]
struct ZookeeperContender {
    claim: Claim,
    ensemble: Arc<Ensemble>,
    opening: Option<Opening>,
    session: Option<Session>,
    /// What came of the last release, until the next attempt.
    released: Option<Released>,
}

/// A session that the library is about to open.
struct Opening {
    tunnel: Tunnel,
    /// Taken before the library was asked.
    asked: Instant,
    client: Pin<Box<dyn Future<Output = Result<Client, ZkError>>>>,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({})", self.tunnel.address())
    }
}

impl ZookeeperContender {
    fn location(&self) -> &Location {
        self.ensemble.location()
    }

    /// Who we are, as ZooKeeper's `digest` scheme has it.
    fn login(&self) -> Result<Option<String>, Error> {
        let login = &self.location().login;
        let lacks = |what| errors::half_login(self.location(), what);
        match (&login.user, &login.password) {
            (None, None) => Ok(None),
            (Some(user), Some(password)) => Ok(Some(format!("{user}:{password}"))),
            (Some(_), None) => Err(lacks("password")),
            (None, Some(_)) => Err(lacks("user")),
        }
    }

    /// Makes sure that there is a live session.
    async fn open(&mut self) -> Result<(), Error> {
        if self.session.as_ref().is_some_and(|session| session.end().is_none()) {
            return Ok(());
        }
        let directory = Directory::of(&self.location().path, &self.claim)
            .map_err(|reason| errors::unspeakable(self.location(), &reason))?;
        let login = self.login()?;
        let opening =
            if let Some(opening) = self.opening.take() { opening } else { self.begin(login.as_deref()).await? };
        // It stays there when this future is dropped.
        let opening = self.opening.insert(opening);
        let opened = tokio::select! {
            biased;
            opened = &mut opening.client => Ok(opened),
            failed = opening.tunnel.failed() => Err(failed),
        };
        let Some(Opening { tunnel, asked, .. }) = self.opening.take() else { return Err(self.vanished()) };
        let client = opened?.map_err(|error| self.explain_with(&error, tunnel.reason()))?;
        let session = Session::new(&self.claim, directory, client, tunnel, asked, acls(login.is_some()));
        self.session = Some(session);
        Ok(())
    }

    /// Asks the library for a session.
    async fn begin(&self, login: Option<&str>) -> Result<Opening, Error> {
        room_for_library().map_err(|error| errors::no_room(&error))?;
        let tunnel = Tunnel::open(Arc::clone(&self.ensemble)).await.map_err(|error| errors::no_listener(&error))?;
        let mut connector = Client::connector().with_session_timeout(self.claim.ttl.min(MAX_SESSION));
        if let Some(login) = login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        let (asked, address) = (Instant::now(), tunnel.address());
        let client = Box::pin(async move { connector.connect(&address).await });
        Ok(Opening { tunnel, asked, client })
    }

    fn vanished(&self) -> Error {
        errors::vanished(self.location())
    }

    fn explain(&self, error: &ZkError) -> Error {
        self.explain_with(error, self.session.as_ref().and_then(Session::reason))
    }

    /// An error of the library in words; `reason` is why the connection ended, where it did.
    fn explain_with(&self, error: &ZkError, reason: Option<String>) -> Error {
        let location = self.location();
        let about = About {
            place: location,
            has_user: location.login.user.is_some(),
            directory: self.session.as_ref().map(|session| session.directory.path()),
            nested: nested_hint(),
        };
        errors::explain(error, reason, about)
    }
}

/// Whether there are enough descriptors, memory, and a thread with a stack like that of the library's own, which panics
/// where there are none.
fn room_for_library() -> io::Result<()> {
    let descriptors: Result<Vec<Alarm>, _> = (0..DESCRIPTORS).map(|_| Alarm::new()).collect();
    drop(descriptors?);
    let mut memory: Vec<u8> = Vec::new();
    memory.try_reserve_exact(MEMORY).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let thread = std::thread::Builder::new().spawn(|| {})?;
    // It does nothing that could fail.
    let _ = thread.join();
    // Kept until now, so that it is free besides the stack.
    drop(memory);
    Ok(())
}

/// What one look at the queue came to.
enum Seen {
    /// There is no directory to queue in.
    NoDirectory,
    /// It must be looked at again: something was changed, or is to be.
    Changed,
    /// Our place is the first one.
    First,
    /// Somebody else's is.
    Behind(Rival, Option<u64>),
}

impl ZookeeperContender {
    async fn take_or_queue(&mut self, queue: Queue) -> Result<Attempt, Error> {
        self.open().await?;
        // Nodes that were made only to see whether the lock is free are taken away when it is not.
        let mut only_to_see = false;
        let mut create = queue == Queue::Join;
        let mut no_directory = false;
        for _ in 0..LOOKS {
            let Some(session) = &mut self.session else { return Err(self.vanished()) };
            let write = match session.placed {
                Placed::Nowhere if no_directory => Write::CreateAll,
                Placed::Nowhere if create => Write::Create,
                Placed::At(_) if session.is_stale() => Write::Confirm,
                _ => Write::Nothing,
            };
            only_to_see |= matches!(write, Write::Create | Write::CreateAll) && queue == Queue::Pass;
            no_directory = false;
            match self.look(write).await? {
                Seen::NoDirectory => no_directory = true,
                Seen::Changed => create |= queue == Queue::Join || write == Write::Nothing,
                Seen::First => return self.granted(write).await.map(Attempt::Held),
                Seen::Behind(holder, position) => {
                    let busy = self.busy(&holder, position.filter(|_| !only_to_see)).await?;
                    if only_to_see {
                        self.leave().await?;
                    }
                    return Ok(Attempt::Busy(busy));
                }
            }
        }
        Err(errors::no_place(self.location()))
    }

    /// One look at the queue after `write`, with everything that calls for another one set right.
    async fn look(&mut self, write: Write) -> Result<Seen, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let (written, listed) = session.look(write).await;
        match written {
            Err(ZkError::NoNode) if matches!(write, Write::Create | Write::CreateAll) => return Ok(Seen::NoDirectory),
            // The look shows what is missing.
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(self.explain(&error)),
        }
        let children = listed.map_err(|error| self.explain(&error))?;
        if !self.find_own(&children).await.map_err(|error| self.explain(&error))? {
            return Ok(Seen::Changed);
        }
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        if let Placed::At(pair) = &session.placed
            && is_worn_out(pair.sequence())
        {
            let path = session.directory.path().to_owned();
            self.leave().await?;
            return Err(errors::worn_out(self.location(), &path));
        }
        session.predecessor = None;
        session.entries = u64::try_from(children.len() / 2).unwrap_or(u64::MAX);
        Ok(match standing(&children, &session.names) {
            Standing::First => Seen::First,
            Standing::Behind { holder, predecessor, position } => {
                session.predecessor = Some(predecessor.last);
                Seen::Behind(holder, Some(position))
            }
            Standing::Missing { holder: Some(holder) } => Seen::Behind(holder, None),
            Standing::Missing { holder: None } => Seen::Changed,
        })
    }

    /// Finds our nodes among `children`, and removes what is left of others of ours; false when another look is needed.
    async fn find_own(&mut self, children: &[String]) -> Result<bool, ZkError> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let mut own: Vec<&str> =
            children.iter().map(String::as_str).filter(|name| session.names.are_of(name)).collect();
        own.sort_unstable_by_key(|name| sequence(name));
        if let Placed::At(pair) = session.placed.clone() {
            let is_ours = |name: &&str| *name == pair.curator || *name == pair.kazoo;
            if own.iter().filter(|name| is_ours(name)).count() == 2 {
                own.retain(|name| !is_ours(name));
                if !own.is_empty() {
                    session.remove(&own).await?;
                }
                return Ok(own.is_empty());
            }
            // Somebody removed one: what foreign clients of its kind do not see any more is no place.
            session.placed = Placed::Nowhere;
            if !own.is_empty() {
                session.remove(&own).await?;
            }
            return Ok(false);
        }
        // A look after the request shows what came of it.
        session.placed = Placed::Nowhere;
        if own.is_empty() {
            return Ok(true);
        }
        // The answer of the request that made them was lost, or they are an earlier session's. Those are never ours: they
        // are about to go.
        let sent = Instant::now();
        let first = |prefix: &str| own.iter().find(|name| name.starts_with(prefix)).map(|name| (*name).to_owned());
        if let (Some(curator), Some(kazoo)) = (first(&session.names.curator), first(&session.names.kazoo))
            && let (Some(stat), Some(other)) = (session.stat(&curator).await?, session.stat(&kazoo).await?)
            && stat.czxid == other.czxid
        {
            session.placed = session.placed_at(sent, curator, kazoo, &stat);
        }
        let Placed::At(pair) = session.placed.clone() else {
            session.remove(&own).await?;
            return Ok(false);
        };
        own.retain(|name| *name != pair.curator && *name != pair.kazoo);
        if !own.is_empty() {
            session.remove(&own).await?;
        }
        Ok(own.is_empty())
    }

    /// The lock is ours.
    async fn granted(&mut self, write: Write) -> Result<Grant, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let Placed::At(pair) = session.placed.clone() else { return Err(self.vanished()) };
        session.note_connection();
        session.refresh().await?;
        // One who has waited says since when it holds; for one who has not, its nodes say it.
        let since = *session.held_since.get_or_insert(session.now());
        if !matches!(write, Write::Create | Write::CreateAll) {
            session.publish(&pair, &self.claim.about.text(&self.claim.owner, pair.czxid, since));
        }
        Ok(Grant { token: pair.czxid, lease: session.lease() })
    }

    async fn busy(&mut self, holder: &Rival, position: Option<u64>) -> Result<Busy, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let read = session.read(&holder.first).await;
        let now = session.now();
        let holder = match read.map_err(|error| self.explain(&error))? {
            None => Holder::Nobody,
            Some((_, stat)) if stat.ephemeral_owner == 0 => {
                Holder::InTheWay(format!("the node {}, which no session owns", holder.first))
            }
            Some((data, stat)) => match Holder::read(&data) {
                Holder::Dlock(mut published) => {
                    // One that never waited has nothing to add to what its node says.
                    published.token = published.token.or(stat.czxid.try_into().ok());
                    published.since = published.since.or(stat.ctime.try_into().ok());
                    Holder::Dlock(published)
                }
                other => other,
            },
        };
        Ok(Busy { holder, position, now })
    }

    /// Removes our nodes, wherever they are known to be.
    async fn leave(&mut self) -> Result<bool, Error> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let left = match session.placed.clone() {
            Placed::Nowhere => Ok(false),
            Placed::At(pair) => {
                session.count().await;
                session.remove(&[&pair.curator, &pair.kazoo]).await
            }
            Placed::Unsure => match session.look(Write::Nothing).await.1 {
                Err(error) => Err(error),
                Ok(children) => {
                    let names = session.names.clone();
                    let own: Vec<&str> =
                        children.iter().map(String::as_str).filter(|name| names.are_of(name)).collect();
                    if own.is_empty() {
                        Ok(false)
                    } else {
                        session.count().await;
                        session.remove(&own).await
                    }
                }
            },
        };
        let left = left.map_err(|error| self.explain(&error))?;
        if let Some(session) = &mut self.session {
            session.placed = Placed::Nowhere;
        }
        Ok(left)
    }

    /// Closes the session, and takes away the directories that nobody uses any more.
    async fn close(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| session.used && session.end().is_none()) {
            session.remove_directories().await;
        }
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

#[async_trait::async_trait(?Send)]
impl Contender for ZookeeperContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    async fn connect(&mut self) -> Result<(), Error> {
        match &mut self.session {
            Some(session) if session.end().is_none() => session.connect().await,
            // The next renewal says that it is lost.
            Some(session) if session.held_since.is_some() => Ok(()),
            _ => self.open().await,
        }
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        self.released = None;
        let attempted = self.take_or_queue(queue).await;
        // A session without a place in the queue is of no use, and would stay at the server for a while.
        let is_over = match &attempted {
            Ok(Attempt::Held(_)) => false,
            Ok(Attempt::Busy(_)) => self.session.as_ref().is_some_and(|session| session.placed == Placed::Nowhere),
            Err(error) => !error.may_pass(),
        };
        if is_over {
            self.close().await;
        }
        attempted
    }

    async fn changed(&mut self) -> Result<(), Error> {
        match &mut self.session {
            Some(session) if session.end().is_none() => {
                let waited = session.wait().await;
                waited.map_err(|error| self.explain(&error))
            }
            // The next attempt queues anew.
            _ => Ok(()),
        }
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let Some(session) = self.session.as_mut() else {
            return Ok(Renewal::NotMine("it has no session".to_owned()));
        };
        if let Some(end) = session.end() {
            return Ok(Renewal::NotMine(end.to_owned()));
        }
        let Placed::At(pair) = session.placed.clone() else {
            return Ok(Renewal::NotMine("its nodes are gone from the server".to_owned()));
        };
        let since = *session.held_since.get_or_insert(session.now());
        let text = self.claim.about.text(&self.claim.owner, pair.czxid, since);
        let renewed = session.renew(&pair, &text).await;
        match renewed {
            Ok(Some(stat)) if session.is_own(&stat) => {
                session.note_connection();
                session.refresh().await?;
                Ok(Renewal::Extended(session.lease()))
            }
            Ok(Some(_)) => Ok(Renewal::NotMine("its node is another session's".to_owned())),
            Ok(None) => Err(errors::nonsense(self.location())),
            Err(ZkError::NoNode) => Ok(Renewal::NotMine("its node is gone from the server".to_owned())),
            Err(error) => match session.end() {
                Some(end) => Ok(Renewal::NotMine(end.to_owned())),
                None => Err(self.explain(&error)),
            },
        }
    }

    async fn disturbed(&mut self) {
        match &mut self.session {
            Some(session) => session.disturbed().await,
            None => std::future::pending().await,
        }
    }

    async fn release(&mut self) -> Result<Released, Error> {
        self.opening = None;
        let Some(session) = self.session.as_mut() else {
            return Ok(self.released.unwrap_or(Released::NotMine));
        };
        let released = if let Some(released) = self.released {
            released
        } else {
            let held = session.held_since.is_some();
            session.connect().await?;
            let gone = session.end().is_none() && self.leave().await?;
            if held && gone { Released::Freed } else { Released::NotMine }
        };
        self.released = Some(released);
        self.close().await;
        Ok(released)
    }
}
