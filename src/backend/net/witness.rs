/*!
Records whether the server of one connection has proved its identity.
*/

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Times for which a certificate is verified again: after the days that a renewal takes, and the end of the year 9999.
const SOON: Duration = Duration::from_secs(14 * 86_400);
const NEVER: Duration = Duration::from_secs(253_402_300_799);

/// The end of the validity of the certificate that was accepted last, for the checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<Mutex<Option<Duration>>>);

impl Noted {
    /// The end in seconds since 1970; `None` if no certificate was accepted.
    pub(crate) fn ends(&self) -> Option<u64> {
        self.0.lock().ok()?.map(|ends| ends.as_secs())
    }
}

/// Lets the library verify certificates, and remembers for one connection whether the server has signed with the key of
/// a trusted one.
#[derive(Debug)]
pub(super) struct Witness {
    verifier: Arc<WebPkiServerVerifier>,
    proof: AtomicBool,
    noted: Option<Noted>,
}

impl Witness {
    /// A witness that has seen no proof yet.
    pub(super) fn new(verifier: Arc<WebPkiServerVerifier>, noted: Option<Noted>) -> Self {
        Self { verifier, proof: AtomicBool::new(false), noted }
    }

    /// Returns `true` if the server has proved its identity.
    pub(super) fn has_seen_proof(&self) -> bool {
        self.proof.load(Ordering::Relaxed)
    }

    /// Notes the result of a signature check, which takes place only after the certificate was accepted.
    fn saw(&self, verified: Result<HandshakeSignatureValid, Error>) -> Result<HandshakeSignatureValid, Error> {
        self.proof.store(verified.is_ok(), Ordering::Relaxed);
        verified
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verify =
            |at: UnixTime| self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, at);
        let verified = verify(now)?;
        if let Some(noted) = &self.noted
            && let Ok(mut ends) = noted.0.lock()
        {
            // The library reports the end of the first certificate in the chain that has expired by then.
            let later = [now.as_secs() + SOON.as_secs(), NEVER.as_secs()].map(Duration::from_secs);
            let ended = later.into_iter().find_map(|at| ended(&verify(UnixTime::since_unix_epoch(at)).err()?));
            *ends = Some(ended.unwrap_or(NEVER));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.saw(self.verifier.verify_tls12_signature(message, cert, dss))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.saw(self.verifier.verify_tls13_signature(message, cert, dss))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The end of a certificate's validity, if the error says that it has expired.
fn ended(error: &Error) -> Option<Duration> {
    match error {
        Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            Some(Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    }
}
