//! Who a client is: its address or process, and what its certificate says.

use observe::clients::{Connection, Key, Kind, Who};
use std::sync::Arc;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// The most bytes of a subject that are kept.
const SUBJECT_MAX: usize = 256;

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    who: Who,
    subject: Option<Arc<str>>,
}

impl Peer {
    /// The process that connected to this socket.
    ///
    /// # Errors
    /// Any errno of getsockopt(2).
    pub(crate) fn of_unix(socket: &UnixStream) -> std::io::Result<Self> {
        let cred = socket.peer_cred()?;
        // A process of another namespace has no number here.
        let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        Ok(Self { who: Who::Process { pid, start: 0, uid: cred.uid() }, subject: None })
    }

    /// The host that connected to this socket.
    ///
    /// # Errors
    /// `ENOTCONN`: the connection is over.
    pub(crate) fn of_tcp(socket: &TcpStream) -> std::io::Result<Self> {
        Ok(Self { who: Who::Address(socket.peer_addr()?.ip().to_canonical()), subject: None })
    }

    /// Notes the certificates that the client has proved to be its own.
    pub(crate) fn prove(&mut self, certificates: Option<&[CertificateDer<'_>]>) {
        let own = certificates.and_then(|all| all.first());
        self.subject = own.and_then(|certificate| subject(certificate)).map(Arc::from);
    }

    /// Begins to count what the client does with an export.
    pub(crate) fn connect(self, export: &str) -> Connection {
        let (kind, export) = (Kind::Nbd, Some(Arc::from(export)));
        Connection::new(Key { kind, who: self.who, export, subject: self.subject })
    }
}

/// The subject of a certificate.
fn subject(certificate: &[u8]) -> Option<String> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let mut subject = parsed.subject().to_string();
    subject.truncate(subject.floor_char_boundary(SUBJECT_MAX));
    (!subject.is_empty()).then_some(subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    /// Goal: the subject of a certificate is found, and cut where a character ends. Other bytes
    /// have none.
    #[test]
    fn subjects() {
        let made = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        assert_eq!(subject(&made("vm8223")).as_deref(), Some("CN=vm8223"));
        let long = subject(&made(&"ä".repeat(200))).unwrap();
        assert_eq!((long.len(), long.starts_with("CN=ää")), (SUBJECT_MAX - 1, true));
        assert_eq!(subject(b"no certificate"), None);
        let mut peer = Peer { who: Who::User(1), subject: None };
        peer.prove(Some(&[CertificateDer::from(made("a"))]));
        assert_eq!(peer.subject.as_deref(), Some("CN=a"));
        peer.prove(None);
        assert_eq!(peer.subject, None);
    }
}
