//! TLS, for listeners that want it of their clients.
//!
//! # Theory
//! Who a listener is and whom it lets in is in a folder of certificates, under the names that qemu, libvirt and nbdkit give them: `server-cert.pem` and
//! `server-key.pem` say who it is; where there is a `ca-cert.pem`, clients show a certificate that is signed by it, and is not in `ca-crl.pem` if there is one; where there is
//! none, whoever reaches the listener is let in. A listener that has certificates speaks of nothing before the connection is encrypted.
//!
//! # Absent
//! Pre-shared keys, which the library doesn't have.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Why certificates are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or holds nothing that could be used.
    #[error("{}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("{} holds no certificate", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// Key and certificate don't go together, or are of a kind that is not known.
    #[error("the certificate of {} can't be used", dir.display())]
    Unusable {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// What clients are checked with can't be used.
    #[error("the authority of {} can't be used", dir.display())]
    Authority {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: VerifierBuilderError,
    },
}

/// Certificates of a listener.
#[derive(Clone)]
pub struct Tls {
    dir: PathBuf,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Takes certificates from a folder. What is changed there later has no effect.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn from_dir(dir: &Path) -> Result<Tls> {
        let config = config(dir).map_err(|error| Error::Tls(Arc::new(error)))?;
        Ok(Tls { dir: dir.to_owned(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

fn config(dir: &Path) -> std::result::Result<ServerConfig, TlsError> {
    let unusable = |source| TlsError::Unusable { dir: dir.to_owned(), source };
    let chain = certificates(&dir.join("server-cert.pem"))?;
    let file = dir.join("server-key.pem");
    let key = PrivateKeyDer::from_pem_file(&file).map_err(|source| TlsError::File { file, source })?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let authority = dir.join("ca-cert.pem");
    let builder = if is_there(&authority)? {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&authority)? {
            roots.add(certificate).map_err(unusable)?;
        }
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let revoked = dir.join("ca-crl.pem");
        if is_there(&revoked)? {
            verifier = verifier.with_crls(lists(&revoked)?);
        }
        let verifier = verifier.build();
        builder.with_client_cert_verifier(
            verifier.map_err(|source| TlsError::Authority { dir: dir.to_owned(), source })?,
        )
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(chain, key).map_err(unusable)
}

/// Whether there is such a file. One that can't be looked at, or a link to nothing, is no reason to let everybody in.
fn is_there(file: &Path) -> std::result::Result<bool, TlsError> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(TlsError::File { file: file.to_owned(), source: pem::Error::Io(error) }),
    }
}

fn certificates(file: &Path) -> std::result::Result<Vec<CertificateDer<'static>>, TlsError> {
    all(file)
}

fn lists(file: &Path) -> std::result::Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    all(file)
}

fn all<T: PemObject>(file: &Path) -> std::result::Result<Vec<T>, TlsError> {
    let found = T::pem_file_iter(file).and_then(|items| items.collect::<std::result::Result<Vec<_>, _>>());
    let found = found.map_err(|source| TlsError::File { file: file.to_owned(), source })?;
    if found.is_empty() {
        return Err(TlsError::Empty { file: file.to_owned() });
    }
    Ok(found)
}
