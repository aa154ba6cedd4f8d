//! Keys from the web: `keylocation=https://…` and `http://…`.
//!
//! # Theory
//! The command sends one GET in HTTP/1.0, so that the answer is never in chunks. It follows
//! redirections, but never from TLS to plain HTTP. The answer is limited in bytes and time.
//!
//! Environment variables set the certificates, as in `fetch(3)` and OpenZFS: `SSL_CA_CERT_FILE`,
//! `SSL_CA_CERT_PATH`, `SSL_CLIENT_CERT_FILE`, `SSL_CLIENT_KEY_FILE`.
//!
//! A self-signed certificate is accepted if the user named it as trusted. rustls requires a
//! certificate to be signed by another one; OpenSSL, and so OpenZFS, does not. It must be that very
//! certificate, valid now and for the requested host: see `trust`.

mod trust;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time limit for the whole exchange (`CURLOPT_TIMEOUT_MS`).
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of an answer, headers included. No key is nearly as long.
const ANSWER_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
const REDIRECTIONS_MAX: u32 = 10;
/// Where systems keep the certificates that they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not valid.
    #[error("Invalid URL {0}")]
    Address(String),
    /// The exchange failed.
    ///
    /// The server can't be reached, or its certificate is not trusted. Or its answer is malformed,
    /// cut off, too long or too late. Or a redirection leads to plain HTTP or to no address, or
    /// there are too many of them.
    #[error("Failed to connect to {url}: {source}")]
    Connect {
        /// The requested address.
        url: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server answered with a status other than success.
    #[error("Couldn't GET {url}: {status}")]
    Status {
        /// The requested address.
        url: String,
        /// The status code.
        status: u16,
    },
}

/// Where to find certificates.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// Authorities in a file (`SSL_CA_CERT_FILE`).
    pub file: Option<PathBuf>,
    /// Authorities in the files of a folder (`SSL_CA_CERT_PATH`).
    pub folder: Option<PathBuf>,
    /// The certificate that the client presents (`SSL_CLIENT_CERT_FILE`).
    pub own: Option<PathBuf>,
    /// The client's key (`SSL_CLIENT_KEY_FILE`). If not set, it is in the certificate's file.
    pub own_key: Option<PathBuf>,
}

impl Certificates {
    /// The certificates that the environment sets.
    pub fn of(env: fn(&str) -> Option<String>) -> Self {
        let path = |name| env(name).map(PathBuf::from);
        Self {
            file: path("SSL_CA_CERT_FILE"),
            folder: path("SSL_CA_CERT_PATH"),
            own: path("SSL_CLIENT_CERT_FILE"),
            own_key: path("SSL_CLIENT_KEY_FILE"),
        }
    }

    /// The trusted authorities.
    fn trusted(&self) -> io::Result<Vec<CertificateDer<'static>>> {
        let mut all = Vec::new();
        if let Some(file) = &self.file {
            all.extend(certificates(file)?);
        }
        if let Some(folder) = &self.folder {
            for entry in std::fs::read_dir(folder).map_err(|e| naming(folder, &e))? {
                let path = entry?.path();
                if path.is_file() {
                    all.extend(certificates(&path).unwrap_or_default());
                }
            }
        }
        if self.file.is_none() && self.folder.is_none() {
            let bundle = BUNDLES.map(Path::new).into_iter().find(|bundle| bundle.exists());
            let bundle =
                bundle.ok_or_else(|| io::Error::other("no certificates of authorities are installed"))?;
            all.extend(certificates(bundle)?);
        }
        Ok(all)
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = trust::Verifier::new(self.trusted()?, &provider)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some(own) = &self.own else { return Ok(config.with_no_client_auth()) };
        let key = self.own_key.as_ref().unwrap_or(own);
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| naming(key, &e))?;
        config.with_client_auth_cert(certificates(own)?, secret).map_err(|e| naming(own, &e))
    }
}

fn naming(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(api::plain(&format!("{}: {error}", path.display())))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    all.map_err(|e| naming(path, &e))
}

/// An address, split into its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Url {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return None,
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?),
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let port = if port.is_empty() { if tls { 443 } else { 80 } } else { port.parse().ok()? };
        let plain = |s: &str| s.bytes().all(|b| b.is_ascii_graphic());
        if host.is_empty() || host.contains('@') || !plain(host) || !plain(path) {
            return None;
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Some(Self { tls, host: host.to_owned(), port, path: format!("{slash}{path}") })
    }

    /// The address that a redirection leads to. `None` if that is plain HTTP after TLS, or not
    /// valid.
    fn follow(&self, location: &str) -> Option<Self> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(Self { path: location.to_owned(), ..self.clone() });
        }
        Self::parse(location).filter(|to| to.tls || !self.tls)
    }
}

/// A connection, with or without TLS.
trait Line: Read + Write {}
impl<T: Read + Write> Line for T {}

/// Fetches what is at an address (`get_key_material_https`).
///
/// # Errors
/// * [`Error::Address`]: `url` is not an address of HTTP or HTTPS.
/// * [`Error::Connect`]: the server can't be reached or is not trusted, or its answer can't be
///   used.
/// * [`Error::Status`]: the server answered with another status than success.
pub fn get(url: &str, certificates: &Certificates) -> Result<Vec<u8>, Error> {
    let deadline = Instant::now() + TIMEOUT;
    let failed = |source| Error::Connect { url: url.to_owned(), source };
    let mut at = Url::parse(url).ok_or_else(|| Error::Address(url.to_owned()))?;
    for _ in 0..REDIRECTIONS_MAX {
        let answer = ask(&at, certificates, deadline).map_err(failed)?;
        match (answer.status, &answer.location) {
            (200..300, _) => return Ok(answer.body),
            (300..400, Some(location)) => {
                let to = at.follow(location);
                let nowhere = || failed(io::Error::other(format!("it leads to {location}")));
                at = to.ok_or_else(nowhere)?;
            }
            (status, _) => return Err(Error::Status { url: url.to_owned(), status }),
        }
    }
    Err(failed(io::Error::other("too many redirections")))
}

/// A server's answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

fn ask(at: &Url, certificates: &Certificates, deadline: Instant) -> io::Result<Answer> {
    let tcp = connect(at, deadline)?;
    let mut line: Box<dyn Line> = if at.tls {
        let name = ServerName::try_from(at.host.clone()).map_err(io::Error::other)?;
        let session =
            ClientConnection::new(Arc::new(certificates.config()?), name).map_err(io::Error::other)?;
        Box::new(StreamOwned::new(session, tcp.try_clone()?))
    } else {
        Box::new(tcp.try_clone()?)
    };
    let host = if at.host.contains(':') { format!("[{}]", at.host) } else { at.host.clone() };
    let usual = at.port == if at.tls { 443 } else { 80 };
    let host = if usual { host } else { format!("{host}:{}", at.port) };
    let version = env!("CARGO_PKG_VERSION");
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: poolhouse/{version}\r\nAccept: */*\r\n\r\n",
        at.path
    );
    line.write_all(request.as_bytes())?;
    line.flush()?;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        tcp.set_read_timeout(Some(left(deadline)?))?;
        match line.read(&mut part) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // Some servers end TLS without a close notification. The length shows whether the
            // answer is complete.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(e),
        }
        if bytes.len() > ANSWER_MAX {
            return Err(io::Error::other("the answer is too long for a key"));
        }
        if let Some(answer) = read_answer(&bytes, false)? {
            return Ok(answer);
        }
    }
    read_answer(&bytes, true)?.ok_or_else(|| io::Error::other("the answer is cut off"))
}

/// Parses an answer if it is complete.
///
/// It is complete after as many bytes as it declares. Without a declared length, it is complete
/// when the connection ends.
fn read_answer(bytes: &[u8], ended: bool) -> io::Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(start) = parsed else { return Ok(None) };
    let header = |name: &str| {
        let found = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.map(|h| String::from_utf8_lossy(h.value).trim().to_owned())
    };
    let body = &bytes[start..];
    let body = match header("content-length") {
        Some(length) => {
            let length: usize = length.parse().map_err(io::Error::other)?;
            match body.get(..length) {
                Some(body) => body,
                None => return Ok(None),
            }
        }
        None if ended => body,
        None => return Ok(None),
    };
    let status = head.code.unwrap_or(0);
    Ok(Some(Answer { status, location: header("location"), body: body.to_vec() }))
}

/// Connects to the first of a host's addresses that accepts.
fn connect(at: &Url, deadline: Instant) -> io::Result<TcpStream> {
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (at.host.as_str(), at.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(tcp) => {
                tcp.set_read_timeout(Some(left(deadline)?))?;
                tcp.set_write_timeout(Some(left(deadline)?))?;
                return Ok(tcp);
            }
            Err(e) => why = e,
        }
    }
    Err(why)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests;
