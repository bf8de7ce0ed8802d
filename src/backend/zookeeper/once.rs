/*!
The last period in which a command has succeeded (`--once-per`): a persistent node next to those of minimum holds,
`/NS/KEY%dlock/once-LENGTH`, with the length of the periods in milliseconds. The request that removes our nodes writes
it. It counts for two periods by the servers' clock, which dates it, and can be looked up for at least 30 days.
*/

use crate::backend::contract::contender::{Attempt, Queue, Used};
use crate::backend::error::Error;
use crate::backend::error::unrecorded;
use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::nodes::{Placed, is_refusal};
use crate::holder::done::Done;

impl ZookeeperContender {
    /// Takes the lock if it is free, or else stays in the queue if told to, unless the claim's period is done.
    pub(super) async fn take_once(&mut self, queue: Queue) -> Result<Attempt, Error> {
        self.open().await?;
        let is_new = self.session.as_ref().is_some_and(|session| session.placed == Placed::Nowhere);
        // Inside another run, the first check is whether that run has the lock.
        if is_new
            && self.claim.outer.is_empty()
            && let Some(done) = self.done().await?
        {
            return Ok(Attempt::Done(done));
        }
        self.take_or_queue(queue).await
    }

    /// Returns the success in the claim's period; `None` if there is none yet, or if the claim has no period.
    ///
    /// Before we have nodes, the servers' time is unknown. Then a period counts by this host's clock, and only if it is
    /// not further from the recorded one than a correct clock can be; it is checked again with the grant.
    pub(super) async fn done(&mut self) -> Result<Option<Box<Done>>, Error> {
        let Some(once) = self.claim.once_per else { return Ok(None) };
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let read = session.read_record(once.period().length).await;
        let Some((data, stat)) = read.map_err(|error| self.explain(&error))? else { return Ok(None) };
        self.has_record = true;
        let (Some(done), Ok(at)) = (Done::read(&data), u64::try_from(stat.mtime)) else { return Ok(None) };
        let done = Done { at, ..done };
        let Some(session) = &mut self.session else { return Err(self.vanished()) };
        let counts = match session.server_time() {
            Some(now) if !done.is_kept(now) => {
                session.remove_record(done.length, stat.version).await;
                self.has_record = false;
                false
            }
            Some(now) if !done.is_remembered(now) => false,
            Some(now) => done.covers(once.by(now)),
            None => done.covers(once.period()) && done.period <= once.period().number.saturating_add(1),
        };
        Ok(counts.then(|| Box::new(done)))
    }

    /// Removes our nodes, wherever they are known to be, and records that the command has succeeded, if that is to be
    /// recorded. Returns `false` if nodes or the session were gone already.
    pub(super) async fn leave_after(&mut self, used: Used) -> Result<bool, Error> {
        let left = self.leave_and_record(used).await;
        // The end of a session also closes its connection, so the answer to a pending request does not come.
        if left.is_err()
            && let Some(session) = &mut self.session
            && session.connect().await.is_ok()
            && session.end().is_some()
        {
            return Ok(false);
        }
        left
    }

    async fn leave_and_record(&mut self, used: Used) -> Result<bool, Error> {
        let Some(once) = self.claim.once_per.filter(|_| used == Used::Success) else { return self.leave().await };
        let Some(session) = &mut self.session else { return Ok(false) };
        let Placed::At(triple) = session.placed.clone() else { return self.leave().await };
        session.count().await;
        let now = session.now();
        let period = once.by(now);
        let text = self.claim.done(period, now).text();
        match session.remove_with_record(&triple, period.length, &text, self.has_record).await {
            Ok(true) => {
                session.placed = Placed::Nowhere;
                Ok(true)
            }
            Ok(false) => self.leave().await,
            Err(error) if is_refusal(&error) => {
                let reason = self.explain(&error);
                self.warnings.push(unrecorded(&reason));
                self.leave().await
            }
            Err(error) => Err(self.explain(&error)),
        }
    }
}
