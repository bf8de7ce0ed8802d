/*!
The state of a contender at ZooKeeper, and the session that it opens and closes.
*/

use std::sync::Arc;
use std::time::Duration;

use ::zookeeper_client::Error as ZkError;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Released;
use crate::backend::error::Error;
use crate::backend::net::location::{Location, nested_hint};
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::errors::{self, About};
use crate::backend::zookeeper::membership;
use crate::backend::zookeeper::names::Directory;
use crate::backend::zookeeper::opening::{Opening, login};
use crate::backend::zookeeper::session::Session;
use crate::clock::Instant;

/// The longest session that a client can ask for.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);

/// One claim at one ZooKeeper ensemble.
#[derive(Debug)]
pub(super) struct ZookeeperContender {
    pub claim: Claim,
    pub ensemble: Arc<Ensemble>,
    pub opening: Option<Opening>,
    pub session: Option<Session>,
    /// Set once the servers have been compared in this session: see [`membership`].
    compared: bool,
    /// The result of the last release, until the next attempt.
    pub released: Option<Released>,
    /// Set if there was a record of the claim's periods when it was last looked for.
    pub has_record: bool,
    pub warnings: Vec<String>,
}

impl ZookeeperContender {
    /// Creates a contender for `claim` at this ensemble; not connected yet.
    pub(super) fn new(claim: Claim, ensemble: Ensemble) -> Self {
        Self {
            claim,
            ensemble: Arc::new(ensemble),
            opening: None,
            session: None,
            compared: false,
            released: None,
            has_record: false,
            warnings: Vec::new(),
        }
    }

    /// Returns the location of the ensemble.
    pub(super) fn location(&self) -> &Location {
        self.ensemble.location()
    }

    /// Opens a session unless one is live. Fails if servers of the URL are found to belong to different ensembles.
    pub(super) async fn open(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        self.open_session().await?;
        let opened = Instant::now().since(begun);
        if let Some(session) = self.session.as_ref().filter(|_| !self.compared) {
            if let Err(error) = membership::one_ensemble(&self.ensemble, session.client(), opened).await {
                self.close().await;
                return Err(error);
            }
            self.compared = true;
        }
        Ok(())
    }

    async fn open_session(&mut self) -> Result<(), Error> {
        if self.session.as_ref().is_some_and(|session| session.end().is_none()) {
            return Ok(());
        }
        let directory = Directory::of(&self.location().path, &self.claim)
            .map_err(|reason| errors::invalid_name(self.location(), &reason))?;
        let login = login(self.location())?;
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => Opening::begin(&self.ensemble, self.claim.ttl.min(MAX_SESSION)).await?,
        };
        // It stays in `self.opening` if this future is dropped.
        let opened = self.opening.insert(opening).opened().await;
        let Some(Opening { tunnel, asked, .. }) = self.opening.take() else { return Err(self.vanished()) };
        let client = opened?.map_err(|error| self.explain_with(&error, tunnel.reason()))?;
        let session = Session::new(&self.claim, directory, client, tunnel, asked, login.is_some());
        self.session = Some(session);
        self.compared = false;
        Ok(())
    }

    /// Returns the error for a session that is gone although there was one a moment ago.
    pub(super) fn vanished(&self) -> Error {
        errors::vanished(self.location())
    }

    /// Explains an error of the library, with the reason that the session knows.
    pub(super) fn explain(&self, error: &ZkError) -> Error {
        self.explain_with(error, self.session.as_ref().and_then(Session::reason))
    }

    /// Explains an error of the library; `reason` says why the connection ended, if it did.
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

    /// Closes the session, and removes the directories that are no longer used.
    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| session.used && session.end().is_none()) {
            session.remove_directories().await;
        }
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}
