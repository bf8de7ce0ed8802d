/*!
The client library's way to the servers. The library offers no hook for a connection, does not bound what it reads, and
cannot use dlock's TLS: so it connects to a listener on this host, as its only server, and the tunnel carries the
traffic to a real one.

The tunnel chooses the server, and another one if the first one's answer is overdue; it pings a server that leaves a
request unanswered; it passes on only well-formed replies; and it knows why there is no connection, and when the request
that began the current one was sent.
*/

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{SockaddrIn, getpeername, getsockname};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::task::JoinHandle;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::wire::{Wire, forget};
use crate::backend::zookeeper::ensemble::{Ensemble, Server};
use crate::backend::zookeeper::errors;
use crate::backend::zookeeper::frames::{self, ConnectReply, Unanswered};
use crate::clock::{Instant, before, pause, within};

/// The delay after no server could be used.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// The time that a server has to answer the connect request before another one is asked: a fraction of the session, and
/// its bounds. Doubled whenever none of them has answered.
const WELCOME_SHARE: u32 = 12;
const WELCOME_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The maximum number of times that the time for a welcome is doubled.
const MAX_DOUBLINGS: u32 = 5;
/// The time that a server that owes an answer may be silent before it is sent a ping.
///
/// From ZooKeeper 3.6.0 to 3.8.0, the servers of an ensemble lose a wake-up now and then (ZOOKEEPER-4537): a request
/// that is done then stays unanswered until another one reaches them, which on a quiet server is never in time.
const NUDGE: Duration = Duration::from_millis(100);

/// A session on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connected {
    /// An instant before the connect request was sent.
    pub sent: Instant,
    /// The session's length, as the server granted it.
    pub session: Duration,
}

/// The reason why there is no connection.
#[derive(Clone, Debug)]
struct Failure {
    kind: ErrorKind,
    reason: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { kind: error.kind, reason: error.to_string() }
    }
}

/// The state of the tunnel.
#[derive(Clone, Debug, Default)]
struct Status {
    /// The connection, once a server has welcomed us on it.
    connected: Option<Connected>,
    /// The number of times that all servers were tried without success.
    failures: u64,
    /// The reason why there is no connection, or why the last one ended.
    failure: Option<Failure>,
    /// The number of times that another server was requested.
    switches: u64,
}

/// The state that the tunnel shares with its users.
#[derive(Debug)]
struct Shared {
    ensemble: Arc<Ensemble>,
    status: watch::Sender<Status>,
}

impl Shared {
    fn fail(&self, error: Error, all: bool) {
        self.status.send_modify(|status| {
            status.failures += u64::from(all);
            status.failure = Some(error.into());
        });
    }
}

/// A listener on this host that carries one connection of this process to one of the servers. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Tunnel {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tunnel {
    /// Opens a tunnel; nothing is sent yet.
    pub(super) async fn open(ensemble: Arc<Ensemble>) -> io::Result<Self> {
        let listener = match TcpListener::bind((next_address(), 0)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { ensemble, status: watch::Sender::new(Status::default()) });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, task })
    }

    /// Returns the address that the library connects to.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the connection, if a server has welcomed us on it.
    pub(super) fn connected(&self) -> Option<Connected> {
        self.shared.status.borrow().connected
    }

    /// Resolves when a server has welcomed us, or fails when all have been tried without success since this call.
    pub(super) async fn welcomed(&self) -> Result<Connected, Error> {
        let mut status = self.shared.status.subscribe();
        let failures = status.borrow().failures;
        let settled = status.wait_for(|status| status.connected.is_some() || status.failures > failures).await;
        let settled = settled.map(|status| status.clone()).unwrap_or_default();
        settled.connected.ok_or_else(|| self.why(&settled))
    }

    /// Resolves, with the reason, when all servers have been tried without success since this call.
    pub(super) async fn failed(&self) -> Error {
        let mut status = self.shared.status.subscribe();
        let failures = status.borrow().failures;
        let failed = status.wait_for(|status| status.failures > failures).await;
        let failed = failed.map(|status| status.clone()).unwrap_or_default();
        self.why(&failed)
    }

    /// Returns the reason why there is no connection, or why the last one ended, if it is known.
    pub(super) fn reason(&self) -> Option<String> {
        self.shared.status.borrow().failure.as_ref().map(|failure| failure.reason.clone())
    }

    /// Gives up the connection on which an answer is overdue, and goes to another server.
    pub(super) fn switch(&self) {
        self.shared.status.send_modify(|status| {
            status.switches += 1;
            status.connected = None;
        });
    }

    fn why(&self, status: &Status) -> Error {
        match &status.failure {
            Some(failure) => Error::new(failure.kind, &failure.reason),
            None => errors::no_connection(self.shared.ensemble.location()),
        }
    }
}

/// Returns a loopback address for the next listener: 127.0.0.1 first, and another one each time, so that a library
/// whose own listener is gone does not reach one that has got its port.
fn next_address() -> Ipv4Addr {
    static LISTENERS: AtomicU16 = AtomicU16::new(1);
    let [high, low] = LISTENERS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Ipv4Addr::new(127, 0, high, low)
}

/// Accepts the library's connections; the newest one counts.
async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut carrying = pin!(None);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) if is_our_own(peer, listener.local_addr()) => {
                    carrying.set(Some(carry(stream, Arc::clone(&shared))));
                }
                // Another process on this host, which has no business on our connection.
                Ok(_) => {}
                Err(_) => pause(TRY_AGAIN).await,
            },
            () = async {
                match carrying.as_mut().as_pin_mut() {
                    Some(carrying) => carrying.await,
                    None => std::future::pending().await,
                }
            } => carrying.set(None),
        }
    }
}

/// Returns `true` if the other end of an accepted connection is a socket of this process.
fn is_our_own(peer: SocketAddr, listener: io::Result<SocketAddr>) -> bool {
    let (SocketAddr::V4(peer), Ok(SocketAddr::V4(listener))) = (peer, listener) else { return false };
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return false };
    let numbers = descriptors.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let connects = |socket: RawFd| {
        getsockname::<SockaddrIn>(socket).is_ok_and(|name| name == SockaddrIn::from(peer))
            && getpeername::<SockaddrIn>(socket).is_ok_and(|name| name == SockaddrIn::from(listener))
    };
    numbers.into_iter().any(connects)
}

/// Carries one connection of the library until it ends or another server is asked for.
async fn carry(mut library: TcpStream, shared: Arc<Shared>) {
    let _ = library.set_nodelay(true);
    let mut status = shared.status.subscribe();
    let switches = status.borrow().switches;
    let ended = tokio::select! {
        ended = connect_and_relay(&mut library, &shared) => ended,
        _ = status.wait_for(|status| status.switches != switches) => Ok(()),
    };
    shared.status.send_modify(|status| {
        status.connected = None;
        if let Err(error) = ended {
            status.failure = Some(error.into());
        }
    });
}

async fn connect_and_relay(library: &mut TcpStream, shared: &Shared) -> Result<(), Error> {
    let ensemble = &shared.ensemble;
    let Ok(Some(request)) = frames::read(library).await else { return Ok(()) };
    let asked = Duration::from_millis(frames::asked_session(&request).unwrap_or_default());
    let timeout = (asked / WELCOME_SHARE).clamp(WELCOME_BOUNDS.0, WELCOME_BOUNDS.1);
    for failed in 0.. {
        let (mut server, name) = match ensemble.dial().await {
            Ok(dialed) => dialed,
            Err(error) => {
                shared.fail(error, true);
                pause(TRY_AGAIN).await;
                continue;
            }
        };
        let abandoned = Abandoned::new(&server);
        let sent = Instant::now();
        let rounds = u32::try_from(failed / ensemble.len()).unwrap_or(u32::MAX).min(MAX_DOUBLINGS);
        let limit = if ensemble.len() == 1 { Duration::MAX } else { timeout * (1 << rounds) };
        match before(sent + limit, be_welcomed(&mut server, &request)).await {
            Ok(Ok((answer, welcome))) => {
                if let ConnectReply::Session(millis) = welcome {
                    let session = Duration::from_millis(millis.into());
                    shared.status.send_modify(|status| status.connected = Some(Connected { sent, session }));
                }
                if library.write_all(&answer).await.is_err() {
                    return Ok(());
                }
                return relay(library, server, &name, abandoned).await;
            }
            unwelcome => {
                let reason = match unwelcome {
                    Ok(Err(error)) => errors::unwelcome(&name, &error, server.refusal().said().as_deref()),
                    _ => errors::no_welcome(&name),
                };
                let all = (failed + 1) % ensemble.len() == 0;
                shared.fail(reason, all);
                if all {
                    pause(TRY_AGAIN).await;
                }
            }
        }
    }
    Ok(())
}

/// Sends the connect request, and waits for its answer.
async fn be_welcomed(server: &mut Wire, request: &[u8]) -> io::Result<(Vec<u8>, ConnectReply)> {
    send(server, request).await?;
    let answer = frames::read(server).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let welcome = frames::welcome(&answer)?;
    Ok((answer, welcome))
}

/// Carries frames both ways until one side ends.
async fn relay(library: &mut TcpStream, server: Wire, name: &Server, mut abandoned: Abandoned) -> Result<(), Error> {
    let refusal = server.refusal();
    let (mut from_library, mut to_library) = library.split();
    let (mut from_server, to_server) = tokio::io::split(server);
    // A frame goes out whole before the next one.
    let to_server = AsyncMutex::new(to_server);
    let unanswered = Mutex::new(Unanswered::default());
    let unanswered = || unanswered.lock().unwrap_or_else(PoisonError::into_inner);
    let passed = Notify::new();
    let up = async {
        // The library closes its end when its session is closed, and when it gives the connection up.
        while let Ok(Some(frame)) = frames::read(&mut from_library).await {
            unanswered().note(&frame)?;
            passed.notify_one();
            send(&mut *to_server.lock().await, &frame).await?;
        }
        Ok(())
    };
    let down = async {
        while let Some(frame) = frames::read_within(&mut from_server, || unanswered().longest()).await? {
            let is_awaited = unanswered().check(&frame)?;
            passed.notify_one();
            if is_awaited && to_library.write_all(&frame).await.is_err() {
                return Ok(());
            }
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let nudge = async {
        let mut timeout = NUDGE;
        loop {
            if !unanswered().any_of_library() {
                passed.notified().await;
            } else if within(timeout, passed.notified()).await.is_err() {
                let mut to_server = to_server.lock().await;
                unanswered().note_own_ping()?;
                send(&mut *to_server, &frames::ping()).await?;
                // A server that is only slow is pinged less and less often.
                timeout = timeout.saturating_mul(2);
                continue;
            }
            timeout = NUDGE;
        }
    };
    let ended = tokio::select! {
        ended = up => ended,
        ended = down => ended,
        ended = nudge => ended,
    };
    if !unanswered().any() {
        abandoned.nothing();
    }
    ended.map_err(|error: io::Error| errors::ended(name, &error, refusal.said().as_deref()))
}

async fn send(server: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    server.write_all(frame).await?;
    server.flush().await
}

/// A server's socket, whose connection is reset if it is dropped while an answer is owed: see [`forget`].
struct Abandoned(Option<std::os::fd::OwnedFd>);

impl Abandoned {
    fn new(server: &Wire) -> Self {
        Self(server.socket().ok())
    }

    /// Records that no answer is owed: the connection may end in an orderly way.
    fn nothing(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            forget(socket);
        }
    }
}
