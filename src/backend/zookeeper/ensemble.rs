/*!
The servers of one ensemble, and how one of them is reached: in turn, and a dead one costs little.
*/

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::super::location::Location;
use super::super::tls::Tls;
use super::super::wire::Wire;
use super::super::{Error, ErrorKind};

/// How long one server may take to accept a connection before the next one is tried beside it.
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
        let mut random = [0; 2];
        // Without random numbers the first one is as good as any.
        let _ = getrandom::fill(&mut random);
        Self { location, tls, next: AtomicUsize::new(usize::from(u16::from_ne_bytes(random))) }
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
        let (count, first) = (self.len(), self.next.load(Ordering::Relaxed));
        let mut places = (0..count).map(|step| (first + step) % count);
        let dial = |place: usize| async move {
            let address = &self.location.addresses[place];
            let server = Server { name: format!("{}://{address}", self.location.scheme) };
            let wire = Wire::dial(&server, address, self.tls.as_ref()).await;
            wire.map(|wire| (place, wire, server))
        };
        let mut dialing: FuturesUnordered<_> = places.next().into_iter().map(dial).collect();
        let mut failure: Option<Error> = None;
        loop {
            let more = places.len() > 0;
            tokio::select! {
                biased;
                Some(dialed) = dialing.next() => match dialed {
                    Ok((place, wire, server)) => {
                        self.next.store(place + 1, Ordering::Relaxed);
                        return Ok((wire, server));
                    }
                    Err(error) => {
                        if failure.as_ref().is_none_or(|failure| failure.kind != ErrorKind::Denied) {
                            failure = Some(error);
                        }
                        dialing.extend(places.next().map(dial));
                    }
                },
                () = tokio::time::sleep(STAGGER), if more => dialing.extend(places.next().map(dial)),
                else => break,
            }
        }
        let failure = failure.unwrap_or_else(|| Error::new(ErrorKind::Unreachable, "there is no server to connect to"));
        if count == 1 {
            return Err(failure);
        }
        let message = format!("none of the {count} servers of {} can be used; one of them: {failure}", self.location);
        Err(Error::new(failure.kind, message))
    }
}
