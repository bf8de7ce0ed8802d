/*!
Whether the server at the other end of one connection has proved who it is.
*/

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Lets the library decide about certificates, and remembers for one connection whether the server has signed with the key
/// of one that is trusted.
#[derive(Debug)]
pub(super) struct Witness {
    verifier: Arc<WebPkiServerVerifier>,
    proof: AtomicBool,
}

impl Witness {
    /// Has seen nothing yet.
    pub(super) fn new(verifier: Arc<WebPkiServerVerifier>) -> Self {
        Self { verifier, proof: AtomicBool::new(false) }
    }

    /// Whether the server has proved who it is.
    pub(super) fn has_seen_proof(&self) -> bool {
        self.proof.load(Ordering::Relaxed)
    }

    /// A signature is asked for after the certificate was found good, and not otherwise.
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
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
