/*!
The records of breaks, for runs that got a lock after a break or lost it by one. They are read once a lock is held if
the user asks for details (`-v`, `--events`), and after a loss. A look that fails or takes long is given up: nothing
depends on it.
*/

use crate::backend::contract::contender::Lease;
use crate::backend::contract::service::Service;
use crate::backend::survey::{Survey, TIMEOUT};
use crate::clock::{Instant, before, wall_millis};
use crate::holder::Owner;
use crate::holder::ask::Ask;
use crate::key::{Key, Keys, Namespace};
use crate::report::Report;
use crate::report::event::Event;
use crate::settings::Connection;

/// Divisor for the share of a lease that a look may take.
const SHARE: u32 = 10;
/// Divisor for the share of a lease that passes before its first renewal.
const RENEWED: u32 = 3;

/// A reader of the records of breaks.
pub(super) struct Traces {
    service: Box<dyn Service>,
    namespace: Namespace,
    /// The ids of the owners of this run.
    own: Vec<String>,
    /// `true` if somebody wants to know of breaks that hit others.
    has_details: bool,
}

/// A lock that was broken.
pub(super) struct Broken {
    key: Key,
    ask: Ask,
}

impl Traces {
    /// Makes a reader of the records at this service that concern these owners. Nothing connects or is sent yet.
    pub(super) fn new(report: &Report, service: Box<dyn Service>, namespace: Namespace, own: &[Owner]) -> Self {
        let own = own.iter().map(|owner| owner.as_str().to_owned()).collect();
        Self { service, namespace, own, has_details: report.has_details() }
    }

    /// Returns the last breaks of the locks `keys`, held by this lease now, if somebody wants to know of them.
    pub(super) async fn of(&self, keys: &Keys, lease: Lease) -> Vec<Broken> {
        let now = Instant::now();
        let limit = match lease {
            Lease::Until { sent, ttl, .. } => (now + ttl / SHARE).min(sent + ttl / RENEWED).min(now + TIMEOUT),
            Lease::Unlimited { .. } => now + TIMEOUT,
        };
        if self.has_details { self.look(keys, limit).await } else { Vec::new() }
    }

    /// Reports who has taken these locks away from this run, which has lost them.
    pub(super) async fn tell_loss(&self, keys: &Keys, report: &Report, connection: &Connection) {
        for Broken { key, ask } in self.look(keys, Instant::now() + TIMEOUT).await {
            if ask.taken && self.own.contains(&ask.stop) {
                report.tell(&Event::TakenAway { lock: connection.lock(key), ask, now: wall_millis() });
            }
        }
    }

    /// Looks until `limit`, over a connection that is closed afterwards.
    async fn look(&self, keys: &Keys, limit: Instant) -> Vec<Broken> {
        let (mut survey, mut found) = (self.service.survey(self.namespace.clone()), Vec::new());
        let looked = async {
            read(survey.as_mut(), keys, &mut found).await;
            survey.close().await;
        };
        let _ = before(limit, looked).await;
        found
    }
}

async fn read(survey: &mut dyn Survey, keys: &Keys, found: &mut Vec<Broken>) {
    if survey.connect().await.is_err() {
        return;
    }
    for key in keys.iter() {
        let Ok(last) = survey.last_break(key).await else { return };
        found.extend(last.map(|ask| Broken { key: key.clone(), ask }));
    }
}

/// Reports these breaks, which hit earlier holders.
pub(super) fn tell(broken: Vec<Broken>, report: &Report, connection: &Connection) {
    for Broken { key, ask } in broken {
        report.tell(&Event::LastBreak { lock: connection.lock(key), ask, now: wall_millis() });
    }
}
