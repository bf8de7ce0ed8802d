/*!
ZooKeeper: three ephemeral sequential nodes in `/NS/KEY`, created in one request and named as by Curator and kazoo
([`names`]). The order of their numbers is the [line](mod@line), which decides who holds the lock and which nodes each
waiter watches; a holder watches its own nodes.

A lock lives as long as its session, and each claim has its own session. The leader alone decides when a session ends,
and a follower passes our heartbeats on late: see [`timeline`] for what an answer proves.
*/

mod breaking;
mod configuration;
mod contender;
mod directories;
mod driver;
mod ensemble;
mod errors;
mod finding;
mod frames;
mod hold;
mod inspect;
mod line;
mod membership;
mod names;
mod nodes;
mod once;
mod opening;
mod own;
mod probes;
mod queueing;
mod records;
mod seen;
mod session;
mod texts;
mod timeline;
mod traffic;
mod tunnel;

use ::zookeeper_client::Error as ZkError;

use self::contender::ZookeeperContender;
pub(crate) use self::driver::DRIVER;
use self::ensemble::Ensemble;
use self::inspect::ZookeeperSurvey;
use self::nodes::{Placed, is_refusal};
use self::probes::ZookeeperProbes;
use self::records::ZookeeperRecords;
use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Attempt, Contender, Queue, Released, Renewal, Used};
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::contract::service::Service;
use crate::backend::error::Error;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::Records;
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::survey::{Kind, Survey};
use crate::clock::Instant;
use crate::key::Namespace;

/// The locks of one ZooKeeper ensemble.
#[derive(Debug)]
pub(crate) struct ZookeeperService {
    location: Location,
    tls: Option<Tls>,
}

impl ZookeeperService {
    /// Creates the service for the ensemble at `location`, whose path is the prefix of every lock's; not connected yet.
    #[must_use]
    pub(crate) fn new(location: Location, tls: Option<Tls>) -> Self {
        Self { location, tls }
    }
}

impl Service for ZookeeperService {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let ensemble = Ensemble::new(self.location.clone(), self.tls.clone());
        Box::new(ZookeeperContender::new(claim, ensemble))
    }

    fn records(&self, meeting: Meeting, kind: Kind) -> Option<Box<dyn Records>> {
        let ensemble = Ensemble::new(self.location.clone(), self.tls.clone());
        Some(Box::new(ZookeeperRecords::new(ensemble, meeting, kind)))
    }

    fn survey(&self, namespace: Namespace) -> Box<dyn Survey> {
        Box::new(ZookeeperSurvey::new(Ensemble::new(self.location.clone(), self.tls.clone()), namespace))
    }

    fn probes(&self, parameters: CheckParameters) -> Box<dyn Probes> {
        Box::new(ZookeeperProbes::new(
            Ensemble::new(self.location.clone(), self.tls.clone()),
            self.tls.clone(),
            &parameters,
        ))
    }
}

#[async_trait::async_trait(?Send)]
impl Contender for ZookeeperContender {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn ignore_outer(&mut self) {
        self.claim.outer.clear();
    }

    async fn connect(&mut self) -> Result<(), Error> {
        match &mut self.session {
            Some(session) if session.end().is_none() => session.connect().await,
            // The next renewal reports that the lock is lost.
            Some(session) if session.held_since.is_some() => Ok(()),
            _ => self.open().await,
        }
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        self.released = None;
        let attempted = self.take_once(queue).await;
        // A session without a place in the queue is of no use, and would stay at the server for a while.
        let is_over = match &attempted {
            Ok(Attempt::Held(_)) => false,
            Ok(_) => self.session.as_ref().is_some_and(|session| session.placed == Placed::Nowhere),
            Err(error) => !error.is_transient(),
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
        let Placed::At(triple) = session.placed.clone() else {
            return Ok(Renewal::NotMine("its nodes are gone from the server".to_owned()));
        };
        let Some(token) = triple.token() else { return Err(errors::no_token(self.ensemble.location(), triple.czxid)) };
        let since = session.held_since.unwrap_or_else(|| session.now());
        session.held_since = Some(since);
        let text = texts::holding(&self.claim, token, since, session.slot());
        let renewed = session.renew(&triple, &text).await;
        match renewed {
            Ok(Some(stat)) if session.is_own(&stat) => {
                session.note_connection();
                session.refresh().await?;
                let asked = session.asked(self.claim.owner.as_str());
                Ok(Renewal::of(session.lease(), asked))
            }
            Ok(Some(_)) => Ok(Renewal::NotMine("its node is another session's".to_owned())),
            Ok(None) => Err(errors::malformed(self.location())),
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

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        self.opening = None;
        let Some(session) = self.session.as_mut() else {
            return Ok(self.released.unwrap_or(Released::NotMine));
        };
        let released = if let Some(released) = self.released {
            released
        } else {
            let held = session.held_since.is_some();
            session.connect().await?;
            let kept = session.own_hold.filter(|&over| used != Used::No && Instant::now() < over);
            if kept.is_none() && session.hold_asked {
                // Done first: the next holder reads it when our nodes are gone.
                let ended = session.end_hold(self.claim.owner.as_str()).await;
                if let Err(error) = ended
                    && used == Used::No
                    && !is_refusal(&error)
                {
                    return Err(self.explain(&error));
                }
            }
            let gone = session.end().is_none() && self.leave_after(used).await?;
            match (held && gone, kept) {
                (true, Some(_)) => Released::Kept,
                (true, None) => Released::Freed,
                (false, _) => Released::NotMine,
            }
        };
        self.released = Some(released);
        self.close().await;
        Ok(released)
    }
}
