//! TLS, for listeners that require it.
//!
//! # Theory
//! A folder has the certificates of a listener, under the names that qemu, libvirt and nbdkit use:
//!
//! | file | content |
//! |---|---|
//! | `server-cert.pem`, `server-key.pem` | the certificate and key of the listener |
//! | `ca-cert.pem` | optional: the authority that must have signed a client's certificate |
//! | `ca-crl.pem` | optional: the certificates that the authority has revoked |
//!
//! Without `ca-cert.pem` any client is accepted. Before the connection is encrypted, a listener
//! with certificates accepts only STARTTLS and an abort.
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

/// Why certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or its content can't be decoded.
    #[error("{}", file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// A file holds no certificate, key or revocation list.
    #[error("{} holds no certificate", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
    },
    /// Key and certificate don't match, or are of an unknown kind.
    #[error("the certificate of {} can't be used", dir.display())]
    Unusable {
        /// The folder of the certificates.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The authority for client certificates can't be used.
    #[error("the authority of {} can't be used", dir.display())]
    Authority {
        /// The folder of the certificates.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: VerifierBuilderError,
    },
}

/// The certificates of a listener.
#[derive(Clone)]
pub struct Tls {
    dir: PathBuf,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Loads certificates from a folder. Later changes of the files have no effect.
    ///
    /// # Errors
    /// [`Error::Tls`], with:
    ///
    /// * [`TlsError::File`]: a file can't be read or decoded.
    /// * [`TlsError::Empty`]: a file holds no certificate or revocation list.
    /// * [`TlsError::Unusable`]: key and certificate don't match, or are of an unknown kind.
    /// * [`TlsError::Authority`]: the authority for client certificates can't be used.
    pub fn from_dir(dir: &Path) -> Result<Tls> {
        let config = config(dir).map_err(|error| Error::Tls(Arc::new(error)))?;
        Ok(Tls { dir: dir.to_owned(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// The folder of the certificates.
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

/// Whether a file exists. If that can't be determined, or the file is a link to nothing, clients
/// are not accepted unchecked.
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
