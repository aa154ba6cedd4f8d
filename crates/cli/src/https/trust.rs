//! The verification of a server's certificate.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::io;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Verifies as rustls does. Also accepts a certificate that is itself among the trusted ones.
#[derive(Debug)]
pub(super) struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// A verifier that trusts these certificates.
    ///
    /// # Errors
    /// An [`io::Error`]: rustls can use none of them as a root.
    pub(super) fn new(
        trusted: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        Ok(Self { chains: chains.build().map_err(io::Error::other)?, trusted })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.chains.verify_server_cert(own, others, name, ocsp, now);
        if verified.is_err() && self.trusted.iter().any(|one| one == own) && is_for(own, name, now) {
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Whether a certificate is valid now and names this host.
///
/// The host must be among its alternative names, or be its common name if it has none.
pub(super) fn is_for(cert: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> bool {
    let Ok((_, cert)) = X509Certificate::from_der(cert) else { return false };
    let validity = cert.validity();
    let at = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if at < validity.not_before.timestamp() || at > validity.not_after.timestamp() {
        return false;
    }
    let Ok(names) = cert.subject_alternative_name() else { return false };
    let host = name.to_str();
    if let Some(names) = names {
        return names.value.general_names.iter().any(|one| match (one, name) {
            (GeneralName::DNSName(dns), ServerName::DnsName(_)) => dns.eq_ignore_ascii_case(&host),
            (GeneralName::IPAddress(bytes), ServerName::IpAddress(ip)) => match std::net::IpAddr::from(*ip) {
                std::net::IpAddr::V4(ip) => ip.octets() == **bytes,
                std::net::IpAddr::V6(ip) => ip.octets() == **bytes,
            },
            _ => false,
        });
    }
    let mut common = cert.subject().iter_common_name().filter_map(|one| one.as_str().ok());
    common.any(|one| one.eq_ignore_ascii_case(&host))
}
