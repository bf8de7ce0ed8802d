/*!
Opens a session with an ensemble, without a time limit.
*/

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::zookeeper_client::{Client, Error as ZkError};

use crate::backend::error::Error;
use crate::backend::net::location::Location;
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::errors;
use crate::backend::zookeeper::tunnel::Tunnel;
use crate::clock::{Alarm, Instant};

/// The number of descriptors that must be free: three for the library itself, five for one connection through the
/// tunnel, and some for timers.
const DESCRIPTORS: usize = 12;

/// The memory in bytes that the library needs at first, in addition to its thread's stack, with a margin.
const MEMORY: usize = 1024 * 1024;

/// A session that the library is about to open.
pub(super) struct Opening {
    /// The library's way to the servers.
    pub tunnel: Tunnel,
    /// An instant before the library was asked.
    pub asked: Instant,
    client: Pin<Box<dyn Future<Output = Result<Client, ZkError>>>>,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({})", self.tunnel.address())
    }
}

/// Returns the login in the form of ZooKeeper's `digest` scheme. Fails if only one half is given.
pub(super) fn login(location: &Location) -> Result<Option<String>, Error> {
    let lacks = |what| errors::half_login(location, what);
    match (&location.login.user, &location.login.password) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(format!("{user}:{password}"))),
        (Some(_), None) => Err(lacks("password")),
        (None, Some(_)) => Err(lacks("user")),
    }
}

impl Opening {
    /// Asks the library for a session of this length.
    pub(super) async fn begin(ensemble: &Arc<Ensemble>, length: Duration) -> Result<Self, Error> {
        let login = login(ensemble.location())?;
        room_for_library().map_err(|error| errors::no_room(&error))?;
        let tunnel = Tunnel::open(Arc::clone(ensemble)).await.map_err(|error| errors::no_listener(&error))?;
        let mut connector = Client::connector().with_session_timeout(length);
        if let Some(login) = login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        let (asked, address) = (Instant::now(), tunnel.address());
        let client = Box::pin(async move { connector.connect(&address).await });
        Ok(Self { tunnel, asked, client })
    }

    /// Waits for the session, or for an error that keeps it from being opened.
    pub(super) async fn opened(&mut self) -> Result<Result<Client, ZkError>, Error> {
        tokio::select! {
            biased;
            opened = &mut self.client => Ok(opened),
            failed = self.tunnel.failed() => Err(failed),
        }
    }
}

/// Checks that there are enough descriptors, memory, and a thread with a stack like that of the library's own: the
/// library panics without them.
fn room_for_library() -> io::Result<()> {
    let descriptors: Result<Vec<Alarm>, _> = (0..DESCRIPTORS).map(|_| Alarm::new()).collect();
    drop(descriptors?);
    let mut memory: Vec<u8> = Vec::new();
    memory.try_reserve_exact(MEMORY).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let thread = std::thread::Builder::new().spawn(|| {})?;
    // It does nothing that could fail.
    let _ = thread.join();
    // Kept until now, so that there is room for both it and the stack.
    drop(memory);
    Ok(())
}
