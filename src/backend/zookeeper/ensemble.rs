/*!
The servers of one ensemble, tried in turn for a connection, so that a dead server costs little time.
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

/// The time that a server has to accept a connection before the next one is tried as well.
const STAGGER: Duration = Duration::from_millis(250);

/// The servers of an ensemble, any of which will do.
pub(super) struct Ensemble {
    location: Location,
    tls: Option<Tls>,
    /// The index of the server to try first next time.
    next: AtomicUsize,
}

/// One server, by its name in messages.
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
    /// Creates the ensemble at `location`. It tries a random server first, so that many clients share the load.
    pub(super) fn new(location: Location, tls: Option<Tls>) -> Self {
        let next = AtomicUsize::new(random_first(location.addresses.len()));
        Self { location, tls, next }
    }

    /// Returns the number of servers.
    pub(super) fn len(&self) -> usize {
        self.location.addresses.len()
    }

    /// Returns the location: the addresses, the login and the chroot.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Connects to a server, starting with the one after the last that was used; the error says why none can be
    /// reached. Has no timeout.
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

    /// Connects to the server at the index `place` only. Has no timeout.
    pub(super) async fn dial_at(&self, place: usize) -> Result<Wire, Error> {
        Wire::dial(&self.server(place), &self.location.addresses[place], self.tls.as_ref()).await
    }

    /// Returns the index of the server that [`Ensemble::dial`] last connected to.
    pub(super) fn in_use(&self) -> usize {
        (self.next.load(Ordering::Relaxed) + self.len() - 1) % self.len()
    }

    fn server(&self, place: usize) -> Server {
        Server { name: format!("{}://{}", self.location.scheme, self.location.addresses[place]) }
    }
}
