/*!
The way to a server: TCP, a local socket, or TLS over TCP, and why it could not be gone. Knows no lock service.

Every connection of every backend is made here, so that time-outs, certificates and error messages are the same for
all. There is no way from TLS to plain text.
*/

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::{Error, Kind};
use crate::clock::{Instant, sleep_until};

/// How long one address of a name is tried alone before the next one is tried as well.
const STAGGER: Duration = Duration::from_millis(50);

/// Where a server listens.
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

/// What the user says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificates of the authorities to trust instead of the system's (PEM).
    pub ca: Option<PathBuf>,
    /// Our own certificate, with those between it and its authority (PEM).
    pub cert: Option<PathBuf>,
    /// The private key of our certificate (PEM).
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must be for, where it is not the one in the URL.
    pub server_name: Option<String>,
}

impl TlsFiles {
    /// Whether the user said nothing.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How to speak TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
    /// Whether there is a certificate of our own.
    certified: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files. The error names the option to mend.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &files.ca {
            for certificate in certificates("--tls-ca", path)? {
                roots.add(certificate).map_err(|error| unreadable("--tls-ca", path, &error))?;
            }
        } else {
            // A store with one odd certificate is as good as one without it; an empty one is not.
            let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                return Err(
                    "this system has no certificate authorities that it trusts: name one with --tls-ca FILE, or \
                            install the package ca-certificates"
                        .to_owned(),
                );
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("could not set up TLS: {error}"))?
            .with_root_certificates(roots);
        let mut config = match (&files.cert, &files.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates("--tls-cert", cert)?;
                let key_der =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("--tls-key", key, &error))?;
                builder
                    .with_client_auth_cert(chain, key_der)
                    .map_err(|error| format!("--tls-cert and --tls-key do not fit together: {error}"))?
            }
            (Some(_), None) => return Err("--tls-cert needs --tls-key FILE with its private key".to_owned()),
            (None, Some(_)) => return Err("--tls-key needs --tls-cert FILE with its certificate".to_owned()),
        };
        // Each process connects once: a ticket for the next time is of no use.
        config.resumption = rustls::client::Resumption::disabled();
        let server_name = match &files.server_name {
            None => None,
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|_| format!("--tls-server-name: {name:?} is neither a host name nor an address"))?,
            ),
        };
        let certified = files.cert.is_some();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name, certified })
    }

    /// The same, offering `protocol` in the handshake (ALPN).
    #[must_use]
    pub(crate) fn offering(mut self, protocol: &[u8]) -> Self {
        let mut config = self.connector.config().as_ref().clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        self.connector = TlsConnector::from(Arc::new(config));
        self
    }
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(unreadable(option, path, &"it holds no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(option, path, &error)),
    }
}

fn unreadable(option: &str, path: &Path, reason: &dyn fmt::Display) -> String {
    format!("{option}: could not read {}: {reason}; name a readable PEM file", path.display())
}

/// Anything that carries bytes both ways.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    socket: OwnedFd,
    refusal: Refusal,
    /// Whether it has been shown a certificate of ours.
    certified: bool,
}

/// What the server said against our certificate, once it has: with TLS 1.3 that comes after the handshake, and the
/// protocols above report a closed connection.
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
    /// Connects to `address`, with TLS where `tls` is given. Takes as long as it takes.
    ///
    /// Errors call the server `name`.
    pub(crate) async fn dial(
        name: &(dyn fmt::Display + Sync),
        address: &Address,
        tls: Option<&Tls>,
    ) -> Result<Self, Error> {
        let unreachable = |error: &dyn fmt::Display| {
            let text = error.to_string();
            // The resolver's errors have no kind of their own.
            let hint =
                if text.contains("lookup address") { "is the host's name right?" } else { "is it running there?" };
            Error::new(Kind::Unreachable, format!("could not reach {name}: {text}; {hint}"))
        };
        let (host, port) = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| unreachable(&error))?;
                let socket = stream.as_fd().try_clone_to_owned().map_err(|error| unreachable(&error))?;
                return Ok(Self { stream: Box::new(stream), socket, refusal: Refusal::default(), certified: false });
            }
            Address::Tcp(host, port) => (host.as_str(), *port),
        };
        let stream = connect(host, port).await.map_err(|error| unreachable(&error))?;
        // Requests are small and wait for their answers: Nagle's algorithm only delays them.
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let socket = stream.as_fd().try_clone_to_owned().map_err(|error| unreachable(&error))?;
        let refusal = Refusal::default();
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let expected = match &tls.server_name {
                    Some(expected) => expected.clone(),
                    None => ServerName::try_from(host.to_owned()).map_err(|error| unreachable(&error))?,
                };
                let host = expected.to_str().into_owned();
                let connected = tls.connector.connect(expected, stream).await;
                Box::new(connected.map_err(|error| explain(&error, name, &host, tls.certified))?)
            }
        };
        Ok(Self { stream, socket, refusal, certified: tls.is_some_and(|tls| tls.certified) })
    }

    /// The socket again, for options that are set at the end of a connection.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// After a write that failed with `error`: waits for what the server said before it hung up, which may be the refusal,
    /// and has come already or comes with the news of the end.
    fn last_words<T>(&mut self, context: &mut Context<'_>, error: io::Error) -> Poll<io::Result<T>> {
        let mut bytes = [0; 256];
        match Pin::new(self).poll_read(context, &mut ReadBuf::new(&mut bytes)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(Err(error)),
        }
    }

    /// Where the server's refusal of our certificate can be read, also after the connection has gone.
    pub(crate) fn refusal(&self) -> Refusal {
        self.refusal.clone()
    }
}

/// Connects to whichever of the addresses of `host` answers first, each next one being tried a little later than the
/// one before it: a name often has one that leads nowhere, and silence there must not use up all the time there is.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let mut trying: FuturesUnordered<_> = tokio::net::lookup_host((host, port))
        .await?
        .zip(0u32..)
        .map(|(address, place)| async move {
            if place > 0 {
                sleep_until(begun + STAGGER * place).await;
            }
            TcpStream::connect(address).await
        })
        .collect();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    while let Some(connected) = trying.next().await {
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Lets go of a connection whose last request is to be repeated on another: what the network has not delivered yet
/// must not arrive later, when the lock has been given back and nobody is left to keep it.
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
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
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

/// Why a server that wants to know who we are hangs up.
const UNCERTIFIED: &str = "it wants a certificate of ours; give it with --tls-cert and --tls-key";

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What a server that refuses our certificate (or the lack of one, where we are not `certified`) says.
fn alert(error: &io::Error, certified: bool) -> Option<String> {
    use AlertDescription as Alert;
    match tls_error(error)? {
        rustls::Error::AlertReceived(Alert::CertificateRequired) => Some(UNCERTIFIED.to_owned()),
        // What servers of other libraries say of none at all.
        rustls::Error::AlertReceived(Alert::BadCertificate | Alert::NoCertificate) if !certified => {
            Some(UNCERTIFIED.to_owned())
        }
        rustls::Error::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::NoCertificate),
        ) => {
            Some(format!("it says {alert:?} of our certificate; name one that it trusts with --tls-cert and --tls-key"))
        }
        _ => None,
    }
}

/// A server's refusal of our certificate as an error.
pub(crate) fn refused(name: &dyn fmt::Display, said: &str) -> Error {
    Error::new(Kind::Denied, format!("{name} refused the TLS connection: {said}"))
}

/// A handshake that failed, in words.
fn explain(error: &io::Error, name: &dyn fmt::Display, expected: &str, certified: bool) -> Error {
    if let Some(said) = alert(error, certified) {
        return refused(name, &said);
    }
    let reason = match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            CertificateError::UnknownIssuer => {
                "its certificate is not signed by an authority that is trusted here; name that authority with --tls-ca"
                    .to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; renew it on the server".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; check the clocks".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not for {expected}; name the one it is for with --tls-server-name")
            }
            other => format!("its certificate is not acceptable: {other}"),
        },
        // Older servers hang up or send a general alert.
        Some(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)) if !certified => {
            return refused(name, &format!("the handshake failed, perhaps because {UNCERTIFIED}"));
        }
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS on this port".to_owned(),
        Some(other) => other.to_string(),
        None => format!("{error}; does it speak TLS on this port?"),
    };
    Error::new(Kind::Unreachable, format!("could not reach {name} by TLS: {reason}"))
}
