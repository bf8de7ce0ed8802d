/*!
The traces of breaks, for the next holders of the locks: looked for once a lock is held, and only where somebody wants to know
more than that (`-v`, `--events`). A look that fails or takes long is left: nothing depends on it.
*/

use std::time::Duration;

use crate::backend::survey::{PATIENCE, Survey};
use crate::backend::{Lease, Service};
use crate::clock::within;
use crate::holder::ask::Ask;
use crate::key::{Key, Keys, Namespace};
use crate::report::Report;
use crate::report::event::Event;
use crate::settings::Connection;

/// Which part of a lease a look may take: one of so many.
const SHARE: u32 = 10;
/// How long it may take to end a look.
const CLOSE: Duration = Duration::from_millis(200);

/// What looks for the traces of breaks; nothing where nobody wants to know of them.
pub(super) struct Traces(Option<Box<dyn Survey>>);

/// A lock that was broken.
pub(super) struct Broken {
    key: Key,
    trace: Ask,
    /// "Now" in milliseconds since 1970 by the clock of the service.
    now: u64,
}

impl Traces {
    /// The traces at this service. Nothing is sent, and nothing connects yet.
    pub(super) fn new(report: &Report, service: &dyn Service, namespace: &Namespace) -> Self {
        Self(report.has_details().then(|| service.survey(namespace.clone())))
    }

    /// Those of the locks with these names, which are held by this lease now.
    pub(super) async fn of(&mut self, keys: &Keys, lease: Lease) -> Vec<Broken> {
        let Some(mut survey) = self.0.take() else { return Vec::new() };
        let limit = match lease {
            Lease::Until { ttl, .. } => PATIENCE.min(ttl / SHARE),
            Lease::Unlimited { .. } => PATIENCE,
        };
        let mut found = Vec::new();
        let _ = within(limit, look(survey.as_mut(), keys, &mut found)).await;
        let _ = within(limit.min(CLOSE), survey.close()).await;
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

/// Tells of these breaks.
pub(super) fn tell(broken: Vec<Broken>, report: &Report, connection: &Connection) {
    for Broken { key, trace, now } in broken {
        report.tell(&Event::Broken { lock: connection.lock(key), trace, now });
    }
}
