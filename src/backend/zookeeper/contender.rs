/*!
What a contender at ZooKeeper knows, and the session that it opens and closes.
*/

use std::sync::Arc;
use std::time::Duration;

use ::zookeeper_client::Error as ZkError;

use crate::backend::net::location::{Location, nested_hint};
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::errors::{self, About};
use crate::backend::zookeeper::membership;
use crate::backend::zookeeper::names::Directory;
use crate::backend::zookeeper::opening::{Opening, login};
use crate::backend::zookeeper::session::Session;
use crate::backend::{Claim, Error, Released};
use crate::clock::Instant;

/// The longest session that can be asked for.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);

/// One claim at one ZooKeeper ensemble.
#[derive(Debug)]
pub(super) struct ZookeeperContender {
    pub claim: Claim,
    pub ensemble: Arc<Ensemble>,
    pub opening: Option<Opening>,
    pub session: Option<Session>,
    /// Whether the servers were compared since the session was opened: see [`membership`].
    compared: bool,
    /// What came of the last release, until the next attempt.
    pub released: Option<Released>,
    /// Whether there was a record of the claim's periods when it was last looked for.
    pub has_record: bool,
    pub concerns: Vec<String>,
}

impl ZookeeperContender {
    /// Contends for `claim` at this ensemble; not connected yet.
    pub(super) fn new(claim: Claim, ensemble: Ensemble) -> Self {
        Self {
            claim,
            ensemble: Arc::new(ensemble),
            opening: None,
            session: None,
            compared: false,
            released: None,
            has_record: false,
            concerns: Vec::new(),
        }
    }

    /// Where the ensemble is.
    pub(super) fn location(&self) -> &Location {
        self.ensemble.location()
    }

    /// Makes sure that there is a live session, with a server of the only ensemble that the URL names.
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
        // It stays there when this future is dropped.
        let opened = self.opening.insert(opening).opened().await;
        let Some(Opening { tunnel, asked, .. }) = self.opening.take() else { return Err(self.vanished()) };
        let client = opened?.map_err(|error| self.explain_with(&error, tunnel.reason()))?;
        let session = Session::new(&self.claim, directory, client, tunnel, asked, login.is_some());
        self.session = Some(session);
        self.compared = false;
        Ok(())
    }

    /// That there is no session, although there was one a moment ago.
    pub(super) fn vanished(&self) -> Error {
        errors::vanished(self.location())
    }

    /// An error of the library in words, with what the session knows of the reason.
    pub(super) fn explain(&self, error: &ZkError) -> Error {
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

    /// Closes the session, and takes away the directories that nobody uses any more.
    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| session.used && session.end().is_none()) {
            session.remove_directories().await;
        }
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}
