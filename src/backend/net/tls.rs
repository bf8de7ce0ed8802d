/*!
TLS: the trusted authorities, our certificate, and the reason why either side was not accepted. rustls on ring; there is
no way from TLS to plain text.
*/

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::backend::error::{Error, ErrorKind};
pub(crate) use crate::backend::net::witness::Noted;
use crate::backend::net::witness::Witness;

/// The user's TLS options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificates of the authorities to trust instead of the system's (PEM).
    pub ca: Option<Pem>,
    /// The client certificate, for servers that require one, followed by its intermediate certificates (PEM).
    pub cert: Option<Pem>,
    /// The private key of the client certificate (PEM).
    pub key: Option<Pem>,
    /// The name that the server's certificate must be for, if it is not the one in the URL.
    pub server_name: Option<String>,
}

/// A PEM file that was read, perhaps with a private key in it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pem {
    /// The file's path.
    pub path: PathBuf,
    /// The file's content.
    pub bytes: Vec<u8>,
}

/// Omits the content, which may be a private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.path.display())
    }
}

/// The settings for TLS connections.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// The verifier of server certificates.
    verifier: Arc<WebPkiServerVerifier>,
    server_name: Option<ServerName<'static>>,
    /// A client certificate was given.
    certified: bool,
    /// The place to note the end of the validity of a server's certificate.
    noted: Option<Noted>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads certificates and keys from the files. The error names the option to correct.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &files.ca {
            for certificate in certificates("--tls-ca", pem)? {
                roots.add(certificate).map_err(|error| unreadable("--tls-ca", pem, &error))?;
            }
        } else {
            // Certificates that cannot be parsed are skipped, but an empty store is useless.
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
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| format!("could not set up TLS: {error}"))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("could not set up TLS: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<WebPkiServerVerifier>::clone(&verifier));
        let mut config = match (&files.cert, &files.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates("--tls-cert", cert)?;
                let key_der =
                    PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| unreadable("--tls-key", key, &error))?;
                builder.with_client_auth_cert(chain, key_der).map_err(|error| {
                    if error.to_string().contains("UnsupportedCertVersion") {
                        format!("--tls-cert: {} is of version 1: make one of version 3", cert.path.display())
                    } else {
                        format!("--tls-cert and --tls-key do not fit together: {error}")
                    }
                })?
            }
            (Some(_), None) => return Err("--tls-cert needs --tls-key FILE with its private key".to_owned()),
            (None, Some(_)) => return Err("--tls-key needs --tls-cert FILE with its certificate".to_owned()),
        };
        // Each process connects once: session tickets are of no use.
        config.resumption = rustls::client::Resumption::disabled();
        let server_name = match &files.server_name {
            None => None,
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|_| format!("--tls-server-name: {name:?} is neither a host name nor an address"))?,
            ),
        };
        let certified = files.cert.is_some();
        Ok(Self { config: Arc::new(config), verifier, server_name, certified, noted: None })
    }

    /// These settings, with a handshake that offers `protocol` (ALPN).
    #[must_use]
    pub(crate) fn offering(mut self, protocol: &[u8]) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![protocol.to_vec()];
        self
    }

    /// These settings, for connections that note the end of the validity of a server's certificate.
    #[must_use]
    pub(crate) fn noting(&self, noted: Noted) -> Self {
        Self { noted: Some(noted), ..self.clone() }
    }

    /// Returns `true` if a client certificate was given.
    #[must_use]
    pub(super) fn is_certified(&self) -> bool {
        self.certified
    }

    /// Encrypts a connection to `host`, which errors call `name`.
    pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        name: &(dyn fmt::Display + Sync),
        host: &str,
        stream: S,
    ) -> Result<TlsStream<S>, Error> {
        let expected = match &self.server_name {
            Some(expected) => expected.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|error| {
                Error::new(ErrorKind::Unreachable, format!("could not reach {name} by TLS: {error}"))
            })?,
        };
        let host = expected.to_str().into_owned();
        let witness = Arc::new(Witness::new(Arc::clone(&self.verifier), self.noted.clone()));
        let mut config = self.config.as_ref().clone();
        config.dangerous().set_certificate_verifier(Arc::<Witness>::clone(&witness));
        let connected = TlsConnector::from(Arc::new(config)).connect(expected, stream).await;
        connected.map_err(|error| explain(&error, name, &host, self.certified, witness.has_seen_proof()))
    }
}

fn certificates(option: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(&pem.bytes).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if certificates.is_empty() => Err(unreadable(option, pem, &"it holds no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(option, pem, &error)),
    }
}

fn unreadable(option: &str, pem: &Pem, reason: &dyn fmt::Display) -> String {
    format!("{option}: could not read {}: {reason}; name a readable PEM file", pem.path.display())
}

/// The reason of a server that hangs up on a client without a certificate.
const UNCERTIFIED: &str = "it requires a client certificate; give one with --tls-cert and --tls-key";

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The reason if a server refuses our certificate, or, if we are not `certified`, the lack of one.
pub(super) fn alert(error: &io::Error, certified: bool) -> Option<String> {
    use AlertDescription as Alert;
    match tls_error(error)? {
        rustls::Error::AlertReceived(Alert::CertificateRequired) => Some(UNCERTIFIED.to_owned()),
        // Servers with other libraries report a missing certificate like this.
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

/// The error for a server's refusal of our certificate.
pub(crate) fn refused(name: &dyn fmt::Display, said: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("{name} refused the TLS connection: {said}"))
}

/// The reason why a certificate is unacceptable, other than its name, its authority or its dates.
fn unacceptable(reason: &CertificateError) -> String {
    let text = format!("{reason:?}");
    match () {
        () if text.contains("UnsupportedCertVersion") => {
            "its certificate is of version 1: make one of version 3, with a subjectAltName".to_owned()
        }
        () if text.contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority, as self-signed ones often are: \
             make one that is not (CA:FALSE), with a subjectAltName"
                .to_owned()
        }
        () => format!("its certificate is not acceptable: {reason}"),
    }
}

/// Explains a failed handshake. Until the server has `proven` its identity, an alert may come from anybody, and so is
/// no refusal.
fn explain(error: &io::Error, name: &dyn fmt::Display, expected: &str, certified: bool, proven: bool) -> Error {
    if let Some(said) = alert(error, certified).filter(|_| proven) {
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
                format!(
                    "its certificate is not for {expected}; name the one it is for with --tls-server-name (only names in its \
                     subjectAltName count)"
                )
            }
            other => unacceptable(other),
        },
        Some(rustls::Error::AlertReceived(alert)) if !proven => {
            let number = u8::from(*alert);
            format!("it ended the handshake before it had shown who it is (TLS alert {number}); look at its log")
        }
        // Older servers hang up or send a general alert.
        Some(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)) if !certified => {
            return refused(name, &format!("the handshake failed, perhaps because {UNCERTIFIED}"));
        }
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS on this port".to_owned(),
        Some(other) => other.to_string(),
        None => format!("{error}; does it speak TLS on this port?"),
    };
    let kind = match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(_)) => ErrorKind::Mistaken,
        _ => ErrorKind::Unreachable,
    };
    Error::new(kind, format!("could not reach {name} by TLS: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_a_refusal_only_from_a_server_that_has_shown_who_it_is() {
        use AlertDescription as Alert;
        use ErrorKind::{Denied, Unreachable};
        let early = |number: u8| {
            format!(
                "could not reach S by TLS: it ended the handshake before it had shown who it is (TLS alert {number}); look \
                 at its log"
            )
        };
        let refused = |said: &str| format!("S refused the TLS connection: {said}");
        let ours = "it says UnknownCA of our certificate; name one that it trusts with --tls-cert and --tls-key";
        let general = format!("the handshake failed, perhaps because {UNCERTIFIED}");
        for (alert, certified, proven, kind, text) in [
            (Alert::UnknownCA, true, true, Denied, refused(ours)),
            (Alert::UnknownCA, true, false, Unreachable, early(48)),
            (Alert::CertificateRequired, false, true, Denied, refused(UNCERTIFIED)),
            (Alert::CertificateRequired, false, false, Unreachable, early(116)),
            (Alert::AccessDenied, true, false, Unreachable, early(49)),
            (Alert::HandshakeFailure, false, true, Denied, refused(&general)),
            (Alert::HandshakeFailure, false, false, Unreachable, early(40)),
        ] {
            let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert));
            let told = explain(&error, &"S", "host", certified, proven);
            assert_eq!((told.kind, told.to_string()), (kind, text), "{alert:?}");
        }
    }
}
