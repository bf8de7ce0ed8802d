/*!
The traces of breaks, for those who have a lock after a break or have lost it by one: looked for once a lock is held, where
somebody wants to know more than that (`-v`, `--events`), and after a loss. A look that fails or takes long is left: nothing
depends on it.
*/

use std::time::Duration;

use crate::backend::survey::{PATIENCE, Survey};
use crate::backend::{Lease, Service};
use crate::clock::within;
use crate::holder::Owner;
use crate::holder::ask::Ask;
use crate::key::{Key, Keys, Namespace};
use crate::report::Report;
use crate::report::event::Event;
use crate::settings::Connection;

/// Which part of a lease a look may take: one of so many.
const SHARE: u32 = 10;
/// How long it may take to end a look.
const CLOSE: Duration = Duration::from_millis(200);

/// What looks for the traces of breaks.
pub(super) struct Traces {
    survey: Box<dyn Survey>,
    /// The ids of the owners of this run.
    own: Vec<String>,
    /// Whether somebody wants to know of breaks that hit others.
    has_details: bool,
}

/// A lock that was broken.
pub(super) struct Broken {
    key: Key,
    trace: Ask,
    /// "Now" in milliseconds since 1970 by the clock of the service.
    now: u64,
}

impl Traces {
    /// The traces at this service, of interest to these owners. Nothing is sent, and nothing connects yet.
    pub(super) fn new(report: &Report, service: &dyn Service, namespace: &Namespace, own: &[Owner]) -> Self {
        Self {
            survey: service.survey(namespace.clone()),
            own: own.iter().map(|owner| owner.as_str().to_owned()).collect(),
            has_details: report.has_details(),
        }
    }

    /// Those of the locks with these names, which are held by this lease now, if somebody wants to know of them.
    pub(super) async fn of(&mut self, keys: &Keys, lease: Lease) -> Vec<Broken> {
        if !self.has_details {
            return Vec::new();
        }
        let limit = match lease {
            Lease::Until { ttl, .. } => PATIENCE.min(ttl / SHARE),
            Lease::Unlimited { .. } => PATIENCE,
        };
        self.look(keys, limit).await
    }

    /// Tells who has taken these locks away from this run, which has lost them.
    pub(super) async fn tell_loss(&mut self, keys: &Keys, report: &Report, connection: &Connection) {
        for Broken { key, trace, now } in self.look(keys, PATIENCE).await {
            if trace.taken && self.own.contains(&trace.stop) {
                report.tell(&Event::TakenAway { lock: connection.lock(key), trace, now });
            }
        }
    }

    async fn look(&mut self, keys: &Keys, limit: Duration) -> Vec<Broken> {
        let mut found = Vec::new();
        let _ = within(limit, look(self.survey.as_mut(), keys, &mut found)).await;
        let _ = within(limit.min(CLOSE), self.survey.close()).await;
        found
    }
}

async fn look(survey: &mut dyn Survey, keys: &Keys, found: &mut Vec<Broken>) {
    if survey.connect().await.is_err() {
        return;
    }
    for key in keys.iter() {
        let Ok(seen) = survey.look(key).await else { return };
        found.extend(seen.broken.map(|trace| Broken { key: key.clone(), trace, now: seen.now }));
    }
}

/// Tells of these breaks, which hit earlier holders.
pub(super) fn tell(broken: Vec<Broken>, report: &Report, connection: &Connection) {
    for Broken { key, trace, now } in broken {
        report.tell(&Event::Broken { lock: connection.lock(key), trace, now });
    }
}
