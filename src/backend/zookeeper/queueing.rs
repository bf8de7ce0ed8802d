/*!
A contender's place in the queue: taken, looked at, found again after lost answers, and left.
*/

use ::zookeeper_client::Error as ZkError;

use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::errors;
use crate::backend::zookeeper::hold::SeenHold;
use crate::backend::zookeeper::names::{Rival, Standing, is_worn_out, sequence, standing};
use crate::backend::zookeeper::nodes::{Placed, Write};
use crate::backend::{Attempt, Busy, Error, Grant, Queue};
use crate::clock::Instant;
use crate::holder::Holder;

/// How often one attempt looks again because what it saw changed under its eyes.
const LOOKS: usize = 16;

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
    /// Takes the lock where it is free, and else stays in the queue if told to.
    pub(super) async fn take_or_queue(&mut self, queue: Queue) -> Result<Attempt, Error> {
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
                Seen::First => {
                    let Some(busy) = self.kept(queue).await? else {
                        return self.granted(write).await.map(Attempt::Held);
                    };
                    if only_to_see {
                        self.leave().await?;
                    }
                    return Ok(Attempt::Busy(busy));
                }
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
        (session.predecessor, session.free_at) = (None, None);
        session.entries = u64::try_from(children.len() / 2).unwrap_or(u64::MAX);
        Ok(match standing(&children, &session.names) {
            Standing::First => Seen::First,
            Standing::Behind { holder, predecessor, position } => {
                (session.predecessor, session.is_next) = (Some(predecessor.last), position == 1);
                Seen::Behind(holder, Some(position))
            }
            Standing::Missing { holder: Some(holder) } => Seen::Behind(holder, None),
            Standing::Missing { holder: None } => Seen::Changed,
        })
    }

    /// Finds our nodes among `children`, and removes what is left of earlier ones; false when another look is needed.
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

    /// Whether an earlier holder keeps the lock taken, although our place is the first one.
    async fn kept(&mut self, queue: Queue) -> Result<Option<Busy>, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let seen = match std::mem::take(&mut session.seen_hold) {
            SeenHold::Read(seen) => Ok(seen),
            SeenHold::Not => session.read_hold().await,
        };
        let hold = seen.map_err(|error| self.explain(&error))?;
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let Some(hold) = hold.filter(|hold| !hold.is_of(self.claim.owner.as_str())) else { return Ok(None) };
        let Placed::At(pair) = session.placed.clone() else { return Err(self.vanished()) };
        let asked = session.ask_time(&pair).await;
        let now = match asked {
            Ok(Some(now)) => now,
            Ok(None) => return Err(errors::nonsense(self.location())),
            Err(ZkError::NoNode) => return Err(errors::no_place(self.location())),
            Err(error) => return Err(self.explain(&error)),
        };
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let Some(left) = hold.left(now) else {
            // Nothing depends on it: others see when it is over.
            let _ = session.remove_hold(hold.version).await;
            return Ok(None);
        };
        // A clock that is set back meanwhile must not make it longer.
        let over = Instant::now() + left;
        let known = session.waits_out.filter(|(version, _)| *version == hold.version).map(|(_, over)| over);
        let over = known.map_or(over, |known| known.min(over));
        (session.waits_out, session.free_at) = (Some((hold.version, over)), Some(over));
        if Instant::now() >= over {
            return Ok(None);
        }
        let position = (queue == Queue::Join).then_some(1);
        Ok(Some(Busy { holder: hold.holder(), position, now }))
    }

    /// The lock is ours.
    async fn granted(&mut self, write: Write) -> Result<Grant, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let Placed::At(pair) = session.placed.clone() else { return Err(self.vanished()) };
        let Some(token) = pair.token() else { return Err(errors::no_token(self.ensemble.location(), pair.czxid)) };
        session.note_connection();
        session.refresh().await?;
        // After a wait, a holder says since when it holds the lock; without one, its nodes say it.
        let since = *session.held_since.get_or_insert(session.now());
        if !matches!(write, Write::Create | Write::CreateAll) {
            session.publish(&pair, &self.claim.text(token, since));
        }
        let min_hold = self.claim.min_hold;
        if !min_hold.is_zero() {
            match session.write_hold(&pair, &self.claim.text(token, since), min_hold).await {
                Ok(()) => {}
                Err(ZkError::NoNode) => return Err(errors::no_place(self.location())),
                Err(error) => return Err(self.explain(&error)),
            }
        }
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        Ok(Grant { token, lease: session.lease() })
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
    pub(super) async fn leave(&mut self) -> Result<bool, Error> {
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
}
