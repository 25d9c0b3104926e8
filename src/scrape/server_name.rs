//! TLS to an address whose certificate holds a name: pods have addresses, their certificates mostly have DNS names alone.
//!
//! The certificate is checked in full, against the configured name instead of the URL's host: the same chain, the same
//! dates, the same signatures. What Prometheus calls `tls_config.server_name`, but for the SNI extension, which never
//! carries an address and so isn't sent (RFC 6066, section 3).

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::credentials::{ClientError, problem};

/// A file and its content.
pub(super) struct Pem<'a> {
    pub(super) path: &'a Path,
    pub(super) content: &'a [u8],
}

/// TLS that trusts `ca` alone and expects `name`, whatever host it dials; `identity` holds a client certificate's chain
/// and its key.
///
/// # Errors
/// When a file isn't what it should be.
pub(super) fn expecting(
    name: &str,
    ca: &Pem<'_>,
    identity: Option<&Pem<'_>>,
) -> Result<ClientConfig, ClientError> {
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| ClientError::Tls(format!("serverName {name:?} is no DNS name")))?;
    let mut roots = RootCertStore::empty();
    for certificate in chain(ca)? {
        roots.add(certificate).map_err(|_| problem(ca.path, "a certificate in it can't be trusted"))?;
    }
    let by_chain = WebPkiServerVerifier::builder(Arc::new(roots))
        .build()
        .map_err(|error| problem(ca.path, &error.to_string()))?;
    let builder = ClientConfig::builder()
        // Dangerous where a verifier checks less. This one checks all that the standard one checks.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ByName { by_chain, name }));
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(identity.content)
        .map_err(|_| problem(identity.path, "no usable certificate and key in this file and its key file"))?;
    builder
        .with_client_auth_cert(chain(identity)?, key)
        .map_err(|error| problem(identity.path, &error.to_string()))
}

fn chain(pem: &Pem<'_>) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.content).collect();
    let certificates = certificates.map_err(|_| problem(pem.path, "not a PEM bundle of certificates"))?;
    if certificates.is_empty() {
        return Err(problem(pem.path, "no certificate in the file"));
    }
    Ok(certificates)
}

/// The standard verifier, asked about another name.
#[derive(Debug)]
struct ByName {
    by_chain: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for ByName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _dialled: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.by_chain.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_chain.supported_verify_schemes()
    }
}
