/*!
The servers of one ensemble, and how one of them is reached: in turn, and a dead one costs little.
*/

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::backend::error::Error;
use crate::backend::net::location::Location;
use crate::backend::net::race::{Pace, race, random_first, round};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::Wire;
use crate::backend::zookeeper::errors::no_server;

/// How long one server may take to accept a connection before the next one is tried as well.
const STAGGER: Duration = Duration::from_millis(250);

/// The servers, any of which will do.
pub(super) struct Ensemble {
    location: Location,
    tls: Option<Tls>,
    /// Which one is tried first next time.
    next: AtomicUsize,
}

/// One of them, as messages call it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    name: String,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ensemble({})", self.location)
    }
}

impl Ensemble {
    /// The servers at `location`, of which a random one is tried first: many clients share the load.
    pub(super) fn new(location: Location, tls: Option<Tls>) -> Self {
        let next = AtomicUsize::new(random_first(location.addresses.len()));
        Self { location, tls, next }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.location.addresses.len()
    }

    /// Where they are and who we are there.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Connects to one of them, which is not the one of the last time if there is another; an error says why none can be
    /// reached. Takes as long as it takes.
    pub(super) async fn dial(&self) -> Result<(Wire, Server), Error> {
        let count = self.len();
        let places = round(count, self.next.load(Ordering::Relaxed));
        let dial = |place: usize| async move {
            let server = self.server(place);
            let wire = Wire::dial(&server, &self.location.addresses[place], self.tls.as_ref()).await;
            wire.map(|wire| (place, wire, server))
        };
        match race(places, Pace::Eager(STAGGER), dial, |_| false).await {
            Ok((place, wire, server)) => {
                self.next.store(place + 1, Ordering::Relaxed);
                Ok((wire, server))
            }
            Err(failures) => Err(no_server(failures, &self.location)),
        }
    }

    /// Connects to this one alone. Takes as long as it takes.
    pub(super) async fn dial_at(&self, place: usize) -> Result<Wire, Error> {
        Wire::dial(&self.server(place), &self.location.addresses[place], self.tls.as_ref()).await
    }

    /// Which one [`Ensemble::dial`] has connected to last.
    pub(super) fn in_use(&self) -> usize {
        (self.next.load(Ordering::Relaxed) + self.len() - 1) % self.len()
    }

    fn server(&self, place: usize) -> Server {
        Server { name: format!("{}://{}", self.location.scheme, self.location.addresses[place]) }
    }
}
