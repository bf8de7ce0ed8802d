/*!
A contender's place in the queue: takes it, looks at the queue, and leaves it.
*/

use std::time::Duration;

use ::zookeeper_client::Error as ZkError;

use crate::backend::contract::contender::{Attempt, Busy, Grant, OtherSlots, Queue};
use crate::backend::error::Error;
use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::errors;
use crate::backend::zookeeper::line::{Behind, QueueView, Rival, Standing, Who};
use crate::backend::zookeeper::names::is_worn_out;
use crate::backend::zookeeper::nodes::{Placed, Write};
use crate::backend::zookeeper::texts;
use crate::clock::{Instant, before};
use crate::holder::{Holder, Published};

/// The maximum number of looks of one attempt while the queue keeps changing.
const LOOKS: usize = 16;
/// The time that an attempt that must not wait still waits for the contender before it to say which slot it has.
const ENTERING: Duration = Duration::from_millis(500);

/// The result of one look at the queue.
enum QueueLook {
    /// There is no directory for the queue.
    NoDirectory,
    /// Another look is needed: something was changed, or is to be.
    Changed,
    /// The queue, and `true` if there is a directory.
    QueueView(QueueView, bool),
}

impl ZookeeperContender {
    /// Takes the lock if it is free, or else stays in the queue if told to.
    pub(super) async fn take_or_queue(&mut self, queue: Queue) -> Result<Attempt, Error> {
        self.open().await?;
        // Nodes that were created only to see whether the lock is free are removed if it is not.
        let mut only_to_see = false;
        // Nothing may be created if another number of slots is in use, or inside a run that holds the lock.
        let looks_first = self.claim.mode.slots().is_some() || !self.claim.outer.is_empty();
        let mut create = queue == Queue::Join && !looks_first;
        let mut no_directory = false;
        // Must end within the time that the caller gives an attempt.
        let deadline = Instant::now() + ENTERING.min(self.claim.ttl / 6);
        for _ in 0..LOOKS {
            let Some(session) = &mut self.session else { return Err(self.vanished()) };
            let write = match session.placed {
                Placed::Nowhere if no_directory => Write::CreateAll,
                Placed::Nowhere if create => Write::Create,
                Placed::At(_) if session.is_stale() => Write::Confirm,
                _ => Write::Nothing,
            };
            only_to_see |= matches!(write, Write::Create | Write::CreateAll) && queue == Queue::Pass;
            let seen = self.look(write).await?;
            no_directory = matches!(seen, QueueLook::NoDirectory);
            let QueueLook::QueueView(mut line, has_directory) = seen else { continue };
            if let Some(outer) = self.outer(&line).await? {
                return Ok(Attempt::Outer(outer));
            }
            // Looking at the minimum holds first costs less than making a directory, and more than making nodes in one.
            match self.standing(&mut line, looks_first || !has_directory).await? {
                Some(Standing::Enters { slot }) => {
                    if let Some(done) = self.done().await? {
                        self.leave().await?;
                        return Ok(Attempt::Done(done));
                    }
                    return self.granted(write, slot).await.map(Attempt::Held);
                }
                Some(Standing::OtherSlots { slots, by }) => return self.refused(slots, &by).await,
                Some(Standing::ConnectReply) => (create, no_directory) = (true, !has_directory),
                Some(Standing::Behind(behind)) if behind.position.is_none() && queue == Queue::Join => {
                    (create, no_directory) = (true, !has_directory);
                }
                Some(Standing::Behind(behind)) => {
                    let waits = behind.is_entering && queue == Queue::Pass && Instant::now() < deadline;
                    let busy = if waits { None } else { Some(self.busy(&behind, only_to_see).await?) };
                    self.await_end_of(behind);
                    let Some(busy) = busy else {
                        self.wait_until(deadline).await?;
                        continue;
                    };
                    if only_to_see {
                        self.leave().await?;
                    }
                    return Ok(Attempt::Busy(busy));
                }
                // A contender left meanwhile.
                None | Some(Standing::Unknown(_)) => {}
            }
        }
        Err(errors::no_place(self.location()))
    }

    /// Sends `write`, looks at the queue, and puts right whatever calls for another look.
    async fn look(&mut self, write: Write) -> Result<QueueLook, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let (written, listed) = session.look(write).await;
        match written {
            Err(ZkError::NoNode) if matches!(write, Write::Create | Write::CreateAll) => {
                return Ok(QueueLook::NoDirectory);
            }
            // The look shows what is missing.
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(self.explain(&error)),
        }
        let listed = listed.map_err(|error| self.explain(&error))?;
        let (has_directory, children) = (listed.is_some(), listed.unwrap_or_default());
        if !self.find_own(&children).await.map_err(|error| self.explain(&error))? {
            return Ok(QueueLook::Changed);
        }
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        if let Placed::At(triple) = &session.placed
            && is_worn_out(triple.sequence())
        {
            let path = session.directory.path().to_owned();
            self.leave().await?;
            return Err(errors::worn_out(self.location(), &path));
        }
        let line = QueueView::read(&children, &session.names, &session.entered);
        (session.awaited, session.free_at) = (None, None);
        (session.entries, session.entered) = (line.count(), line.entered());
        Ok(QueueLook::QueueView(line, has_directory))
    }

    /// Returns the published text of an outer run, if one holds the lock and we have no place in the queue.
    async fn outer(&mut self, line: &QueueView) -> Result<Option<Box<Published>>, Error> {
        let is_nowhere = self.session.as_ref().is_some_and(|session| session.placed == Placed::Nowhere);
        let Some(outer) = line.holder_among(&self.claim.outer).filter(|_| is_nowhere) else {
            // None of them can get it while it waits for us: later looks need not check.
            self.claim.outer.clear();
            return Ok(None);
        };
        match self.holder(&Who::Rival(outer)).await? {
            Holder::Dlock(published) if self.claim.outer.contains(&published.id) => Ok(Some(published)),
            _ => Ok(None),
        }
    }

    /// Returns our standing in `line`, and reads all that is needed for that; `None` if a contender left meanwhile.
    /// Minimum holds count for a contender that is not in the queue yet only if it `is_careful` or wants a slot.
    async fn standing(&mut self, line: &mut QueueView, is_careful: bool) -> Result<Option<Standing>, Error> {
        let has_slots = self.claim.mode.slots().is_some();
        loop {
            let standing = line.standing();
            let read = match &standing {
                Standing::Unknown(rivals) => self.read_slots(line, rivals).await,
                Standing::Enters { .. } if !line.knows_holds() => self.read_holds(line).await,
                Standing::ConnectReply if is_careful && !line.knows_holds() => self.read_holds(line).await,
                // Behind others, a minimum hold is not in the way yet, but its number of slots may differ.
                Standing::Behind(Behind { position: None, .. }) if has_slots && !line.knows_holds() => {
                    self.read_holds(line).await
                }
                _ => return Ok(Some(standing)),
            };
            if !read.map_err(|error| self.explain(&error))? {
                return Ok(None);
            }
        }
    }

    /// Reads the slots that these have entered. Returns `false` if one of them is gone.
    async fn read_slots(&mut self, line: &mut QueueView, rivals: &[Rival]) -> Result<bool, ZkError> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let paths: Vec<String> = rivals.iter().map(|rival| session.directory.node(&rival.last)).collect();
        let read = session.read_all(&paths).await?;
        let mut all = true;
        for (rival, read) in rivals.iter().zip(read) {
            match read {
                Some((data, _)) => line.tell(rival, texts::slot(&data)),
                None => all = false,
            }
        }
        session.entered = line.entered();
        Ok(all)
    }

    /// Reads the minimum holds that are not over. Returns `false` without a session.
    async fn read_holds(&mut self, line: &mut QueueView) -> Result<bool, ZkError> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let holds = session.holds(self.claim.owner.as_str()).await?;
        line.keep(holds);
        Ok(true)
    }

    /// Completes the grant of the lock, in this slot if there are slots.
    async fn granted(&mut self, write: Write, slot: Option<u32>) -> Result<Grant, Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let Placed::At(triple) = session.placed.clone() else { return Err(self.vanished()) };
        let Some(token) = triple.token() else { return Err(errors::no_token(self.ensemble.location(), triple.czxid)) };
        // After a wait, a holder publishes since when it holds the lock; without one, its nodes say it.
        let since = session.held_since.unwrap_or_else(|| session.now());
        let slot = match slot.filter(|_| session.slot().is_none()) {
            Some(free) => {
                let text = texts::holding(&self.claim, token, since, slot);
                let entered = session.enter(&triple, free, &text).await;
                let entered = entered.map_err(|error| self.explain(&error))?;
                Some(entered.ok_or_else(|| errors::no_place(self.location()))?)
            }
            None => slot,
        };
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        session.note_connection();
        session.refresh().await?;
        session.held_since = Some(since);
        let text = texts::holding(&self.claim, token, since, slot);
        if slot.is_none() && !matches!(write, Write::Create | Write::CreateAll) {
            session.publish(&triple, &text);
        }
        let (owner, min_hold) = (self.claim.owner.as_str(), self.claim.min_hold);
        if !min_hold.is_zero() {
            match session.write_hold(&triple, owner, &text, min_hold).await {
                Ok(()) => {}
                Err(ZkError::NoNode) => return Err(errors::no_place(self.location())),
                Err(error) => return Err(self.explain(&error)),
            }
        }
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        Ok(Grant { token, slot, lease: session.lease() })
    }

    /// Describes what is in our way, for waiters; without our position if we do not keep our place.
    async fn busy(&mut self, behind: &Behind, only_to_see: bool) -> Result<Busy, Error> {
        let holder = self.holder(&behind.holder).await?;
        let Some(session) = &self.session else { return Err(self.vanished()) };
        let position = behind.position.filter(|_| !only_to_see);
        Ok(Busy { holder, beside: behind.beside, position, now: session.now() })
    }

    /// Gives up because another number of slots is in use, and removes our nodes.
    async fn refused(&mut self, slots: u32, by: &Who) -> Result<Attempt, Error> {
        let holder = self.holder(by).await?;
        self.leave().await?;
        let Some(session) = &self.session else { return Err(self.vanished()) };
        Ok(Attempt::OtherSlots(OtherSlots { slots, holder, now: session.now() }))
    }

    /// Reads what a holder has published.
    async fn holder(&mut self, who: &Who) -> Result<Holder, Error> {
        let rival = match who {
            Who::MinimumHold(hold) => return Ok(hold.holder()),
            Who::Rival(rival) => rival,
        };
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let read = session.read(&rival.first).await;
        Ok(match read.map_err(|error| self.explain(&error))? {
            None => Holder::Nobody,
            Some((_, stat)) if stat.ephemeral_owner == 0 => {
                Holder::InTheWay(format!("the node {}, which no session owns", rival.first))
            }
            Some((data, stat)) => match Holder::read(&data) {
                Holder::Dlock(mut published) => {
                    // One that never waited leaves these to the status of its node.
                    published.token = published.token.or(stat.czxid.try_into().ok());
                    published.since = published.since.or(stat.ctime.try_into().ok());
                    Holder::Dlock(published)
                }
                other => other,
            },
        })
    }

    /// Records the event that is worth another look.
    fn await_end_of(&mut self, behind: Behind) {
        if let Some(session) = &mut self.session {
            session.position = behind.position;
            (session.awaited, session.free_at) = (behind.awaited, behind.until);
        }
    }

    /// Waits for the recorded event, but no longer than until `end`.
    async fn wait_until(&mut self, end: Instant) -> Result<(), Error> {
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let waited = before(end, session.wait()).await;
        match waited {
            Ok(waited) => waited.map_err(|error| self.explain(&error)),
            Err(_) => Ok(()),
        }
    }

    /// Removes our nodes, wherever they are known to be. Returns `true` if all of them were there.
    pub(super) async fn leave(&mut self) -> Result<bool, Error> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let left = match session.placed.clone() {
            Placed::Nowhere => Ok(false),
            Placed::At(triple) => {
                session.count().await;
                session.remove(&triple.all()).await
            }
            Placed::Unsure => match session.look(Write::Nothing).await.1 {
                Err(error) => Err(error),
                Ok(children) => {
                    let (names, children) = (session.names.clone(), children.unwrap_or_default());
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
