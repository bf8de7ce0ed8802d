/*!
Connections to servers by TCP, a local socket, or TLS over TCP, and reasons for failures. Knows no lock service.

Every connection of every backend is made here, so that certificates and error messages are the same for all.
*/

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::race::{Pace, race};
use crate::backend::net::tls::{Tls, alert};

/// Time for which one address of a name is tried alone before the next one is tried as well.
const STAGGER: Duration = Duration::from_millis(50);

/// The address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// A host's name or address, and a TCP port.
    Tcp(String, u16),
    /// The path of a socket on this host.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A byte stream in both directions.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to a server.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    socket: OwnedFd,
    ways: Ways,
    refusal: Refusal,
    /// A client certificate was given for this connection.
    certified: bool,
    /// The first bytes that the server has sent, at most as many as [`HTTP`] has.
    first: Vec<u8>,
}

/// The addresses of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    /// The address that the connection goes to.
    pub taken: Option<SocketAddr>,
    /// All other addresses of the name.
    pub others: Vec<SocketAddr>,
}

/// The choice among the addresses of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The address that answers first.
    Any,
    /// This address, unless it fails or does not answer soon.
    Rather(SocketAddr),
    /// This address; the name is not resolved.
    Only(SocketAddr),
}

/// The server's refusal of our certificate, once it arrives: with TLS 1.3 that is after the handshake, and the
/// protocols above only report a closed connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusal(Arc<Mutex<Option<String>>>);

impl Refusal {
    /// The server's refusal, in words.
    pub(crate) fn said(&self) -> Option<String> {
        self.0.lock().ok()?.clone()
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// Connects to `address`, with TLS if `tls` is given. There is no time limit.
    ///
    /// Errors call the server `name`.
    pub(crate) async fn dial(
        name: &(dyn fmt::Display + Sync),
        address: &Address,
        tls: Option<&Tls>,
    ) -> Result<Self, Error> {
        Self::dial_to(Choice::Any, name, address, tls).await
    }

    /// Connects to `address`, with TLS if `tls` is given; `choice` selects among the addresses of its name. There is no
    /// time limit.
    ///
    /// Errors call the server `name`.
    pub(crate) async fn dial_to(
        choice: Choice,
        name: &(dyn fmt::Display + Sync),
        address: &Address,
        tls: Option<&Tls>,
    ) -> Result<Self, Error> {
        let unreachable = |error: &io::Error| unreachable(error, name);
        let (host, port) = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)
                    .await
                    .map_err(|error| if path.is_dir() { is_directory(name) } else { unreachable(&error) })?;
                let socket = stream.as_fd().try_clone_to_owned().map_err(|error| unreachable(&error))?;
                let (ways, refusal) = (Ways::default(), Refusal::default());
                return Ok(Self {
                    stream: Box::new(stream),
                    socket,
                    ways,
                    refusal,
                    certified: false,
                    first: Vec::new(),
                });
            }
            Address::Tcp(host, port) => (host.as_str(), *port),
        };
        let (stream, ways) = connect(host, port, choice).await.map_err(|error| unreachable(&error))?;
        // Requests are small and wait for their answers: Nagle's algorithm would only delay them.
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let socket = stream.as_fd().try_clone_to_owned().map_err(|error| unreachable(&error))?;
        let refusal = Refusal::default();
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(name, host, stream).await?),
        };
        Ok(Self { stream, socket, ways, refusal, certified: tls.is_some_and(Tls::is_certified), first: Vec::new() })
    }

    /// Encrypts a connection to `address` that began in plain text, for protocols that switch to TLS. Everything that
    /// the server has sent before its handshake must have been read.
    ///
    /// Errors call the server `name`.
    pub(crate) async fn secure(
        self,
        name: &(dyn fmt::Display + Sync),
        address: &Address,
        tls: &Tls,
    ) -> Result<Self, Error> {
        let host = match address {
            Address::Tcp(host, _) => host.as_str(),
            Address::Unix(_) => "localhost",
        };
        let Self { stream, socket, ways, refusal, .. } = self;
        let stream = Box::new(tls.connect(name, host, stream).await?);
        Ok(Self { stream, socket, ways, refusal, certified: tls.is_certified(), first: Vec::new() })
    }

    /// A duplicate of the socket, for options that are set at the end of a connection.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// The address that the connection goes to, and the others of its name.
    pub(crate) fn ways(&self) -> &Ways {
        &self.ways
    }

    /// Handles a write that failed with `error`: waits for the server's last words, which may be its refusal, and which
    /// have come already or come with the end of the connection.
    fn last_words<T>(&mut self, context: &mut Context<'_>, error: io::Error) -> Poll<io::Result<T>> {
        let mut bytes = [0; 256];
        match Pin::new(self).poll_read(context, &mut ReadBuf::new(&mut bytes)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(Err(error)),
        }
    }

    /// Access to the server's refusal of our certificate, even after the connection has ended.
    pub(crate) fn refusal(&self) -> Refusal {
        self.refusal.clone()
    }
}

/// The error if the socket of the server called `name` is a directory.
fn is_directory(name: &dyn fmt::Display) -> Error {
    let remedy = "name the socket in it, such as .s.PGSQL.5432 or redis.sock";
    Error::new(ErrorKind::Mistaken, format!("could not reach {name}: that is a directory; {remedy}"))
}

/// The kind of the error where a limit allows no more threads.
const NO_THREAD: io::ErrorKind = io::ErrorKind::WouldBlock;

/// The error for a failed connection to the server called `name`; a name that does not resolve has its own message.
fn unreachable(error: &io::Error, name: &dyn fmt::Display) -> Error {
    let text = error.to_string();
    // The system's message without the error number, in lower case for the middle of a sentence.
    let text = text.split(" (os error").next().unwrap_or_default();
    let lower = |text: &str| {
        let mut letters = text.chars();
        letters.next().map(|first| first.to_lowercase().chain(letters).collect::<String>()).unwrap_or_default()
    };
    // The resolver's errors have no specific kind.
    let Some(reason) = text.strip_prefix("failed to lookup address information: ") else {
        // A limit of this process is not temporary, unlike an outage of the server.
        let (kind, hint) = match error.raw_os_error() {
            Some(libc::EMFILE) => (ErrorKind::Mistaken, "raise the limit (ulimit -n)"),
            None if error.kind() == NO_THREAD => (ErrorKind::Unreachable, "raise the limit (ulimit -u)"),
            _ => (ErrorKind::Unreachable, "is it running there?"),
        };
        return Error::new(kind, format!("could not reach {name}: {}; {hint}", lower(text)));
    };
    let reason = lower(reason);
    // All other errors, such as a name server that does not answer, may be temporary.
    let is_unknown =
        ["not known", "does not resolve", "no address associated"].iter().any(|text| reason.contains(text));
    let (kind, hint) = if is_unknown {
        (ErrorKind::Mistaken, "is the host's name right?")
    } else {
        (ErrorKind::Unreachable, "does the name server answer?")
    };
    Error::new(kind, format!("could not resolve the name of {name}: {reason}; {hint}"))
}

/// Connects to one of the addresses of `host`.
async fn connect(host: &str, port: u16, choice: Choice) -> io::Result<(TcpStream, Ways)> {
    let mut addresses: Vec<SocketAddr> = match choice {
        Choice::Only(address) => vec![address],
        Choice::Any | Choice::Rather(_) => addresses_of(host, port).await?,
    };
    // The others keep the resolver's order.
    addresses.sort_by_key(|address| choice != Choice::Rather(*address));
    connect_to_any(addresses, STAGGER).await
}

/// Looks up the addresses of `host`: a name in a thread, because the resolver waits. It is a thread of its own, because
/// tokio panics where it cannot start one of its threads.
async fn addresses_of(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, found) = tokio::sync::oneshot::channel();
    let host = host.to_owned();
    let resolver = std::thread::Builder::new().spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs();
        // Nobody listens any more if the connection was given up.
        let _ = sender.send(addresses.map(Vec::from_iter));
    });
    resolver.map_err(|_| io::Error::new(NO_THREAD, "no thread could be started to look up its name"))?;
    found.await.unwrap_or_else(|_| Err(io::Error::other("looking up its name broke off")))
}

/// Connects to the first of `addresses` that answers. The next one is tried when the one before it has failed or has
/// not answered for `pause`: a name often has an unreachable address, and silence there must not use up all the time.
async fn connect_to_any(mut addresses: Vec<SocketAddr>, pause: Duration) -> io::Result<(TcpStream, Ways)> {
    let attempt =
        |address: SocketAddr| async move { TcpStream::connect(address).await.map(|stream| (stream, address)) };
    match race(addresses.clone(), Pace::Eager(pause), attempt, |_| false).await {
        Ok((stream, taken)) => {
            addresses.retain(|address| *address != taken);
            Ok((stream, Ways { taken: Some(taken), others: addresses }))
        }
        Err(errors) => {
            let none = || io::Error::new(io::ErrorKind::NotFound, "its name has no address");
            Err(errors.into_iter().next_back().unwrap_or_else(none))
        }
    }
}

/// The beginning of a web server's answer. No answer of a lock service begins like this.
const HTTP: &[u8; 4] = b"HTTP";
/// The beginning of a web server's answer to a malformed request.
const PAGE: &[u8; 4] = b"<!DO";

/// Resets a connection on close if its last request is to be repeated on another one: undelivered data must not arrive
/// later, when the lock has been released and nobody is left to keep it.
pub(crate) fn forget(socket: &OwnedFd) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::Linger, &at_once);
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begins = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let missing = HTTP.len() - self.first.len();
        if missing > 0 {
            self.first.extend(buffer.filled()[begins..].iter().take(missing));
            // Named as such: the libraries would report a frame of a wrong size, or a malformed reply.
            if self.first == HTTP || self.first == PAGE {
                let error = "it answered HTTP: another service listens there";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        }
        if let Poll::Ready(Err(error)) = &polled
            && let Some(alert) = alert(error, self.certified)
            && let Ok(mut said) = self.refusal.0.lock()
        {
            *said = Some(alert);
        }
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Err(error)) => self.last_words(context, error),
            polled => polled,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Err(error)) => self.last_words(context, error),
            polled => polled,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::clock::{Instant, before};

    #[test]
    fn why_there_is_no_connection() {
        let lookup = |said: &str| io::Error::other(format!("failed to lookup address information: {said}"));
        for (error, kind, text) in [
            (
                io::Error::from_raw_os_error(libc::ECONNREFUSED),
                ErrorKind::Unreachable,
                "could not reach S: connection refused; is it running there?",
            ),
            (
                io::Error::from_raw_os_error(libc::EMFILE),
                ErrorKind::Mistaken,
                "could not reach S: too many open files; raise the limit (ulimit -n)",
            ),
            (
                lookup("Name or service not known"),
                ErrorKind::Mistaken,
                "could not resolve the name of S: name or service not known; is the host's name right?",
            ),
            (
                lookup("Temporary failure in name resolution"),
                ErrorKind::Unreachable,
                "could not resolve the name of S: temporary failure in name resolution; does the name server answer?",
            ),
        ] {
            let told = unreachable(&error, &"S");
            assert_eq!((told.kind, told.to_string()), (kind, text.to_owned()));
        }
    }

    #[test]
    fn after_an_address_that_refuses_the_next_one_is_tried_at_once() {
        let listening = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let (open, closed) = (listening(), listening());
        let [open_at, closed_at] = [&open, &closed].map(|listener| listener.local_addr().expect("an address"));
        drop(closed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let pause = Duration::from_secs(3600);
        let connected = runtime.block_on(async {
            before(Instant::now() + pause / 60, connect_to_any(vec![closed_at, open_at], pause)).await
        });
        let (_, ways) = connected.expect("it waits").expect("a connection");
        assert_eq!((ways.taken, ways.others), (Some(open_at), vec![closed_at]));
    }
}
