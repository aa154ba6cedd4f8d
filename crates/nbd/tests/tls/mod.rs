//! Volumes served under TLS, to a client that uses rustls.

use crate::client::string;
use crate::{All, Stand};
use nbd::abi::{INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, cmd, opt, rep};
use nbd::{Error, Exports, Listener, Server, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An authority, the certificates that it has signed, and a folder for the server.
struct Papers {
    ca: Issuer<'static, KeyPair>,
    ca_pem: String,
    dir: PathBuf,
}

/// A certificate and its key, in the format of files.
struct Paper {
    cert: String,
    key: String,
    serial: rcgen::SerialNumber,
}

impl Papers {
    fn new(dir: &Path) -> Papers {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_pem = params.self_signed(&key).unwrap().pem();
        let papers = Papers { ca: Issuer::new(params, key), ca_pem, dir: dir.to_owned() };
        let own = papers.sign(1);
        fs::write(dir.join("server-cert.pem"), own.cert).unwrap();
        fs::write(dir.join("server-key.pem"), own.key).unwrap();
        papers
    }

    fn sign(&self, serial: u64) -> Paper {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.serial_number = Some(serial.into());
        let cert = params.signed_by(&key, &self.ca).unwrap();
        Paper { cert: cert.pem(), key: key.serialize_pem(), serial: serial.into() }
    }

    /// Requires certificates of clients from now on.
    fn ask(&self) {
        fs::write(self.dir.join("ca-cert.pem"), &self.ca_pem).unwrap();
    }

    fn revoke(&self, paper: &Paper) {
        let revoked = rcgen::RevokedCertParams {
            serial_number: paper.serial.clone(),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(4000, 1, 1),
            crl_number: 1u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.ca).unwrap().pem().unwrap();
        fs::write(self.dir.join("ca-crl.pem"), list).unwrap();
    }
}

struct Served {
    stand: Stand,
    server: Server,
    papers: Papers,
    dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let papers = Papers::new(dir.path());
        Served { stand: Stand::new(), server: Server::start().unwrap(), papers, dir }
    }

    /// Listens with the present certificates.
    fn listen(&self, name: &str) -> (Listener, PathBuf) {
        let exports: Arc<dyn Exports> = Arc::new(All(Arc::clone(&self.stand.volumes)));
        let path = self.dir.path().join(name);
        let tls = Tls::from_dir(self.dir.path()).unwrap();
        (self.server.listen_unix(&path, exports, Some(tls)).unwrap(), path)
    }
}

fn greeted(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    let mut hello = [0; 18];
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(hello[..16], [INIT_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat());
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    stream
}

fn put(stream: &mut impl Write, option: u32, data: &[u8]) {
    let head = [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
    stream.write_all(&[&head.concat(), data].concat()).unwrap();
    stream.flush().unwrap();
}

/// Reads one message that answers an option.
fn message(stream: &mut impl Read, option: u32) -> std::io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    assert_eq!(head[..8], OPTION_REPLY_MAGIC.to_be_bytes());
    assert_eq!(number(8), option);
    let mut body = vec![0; number(16) as usize];
    stream.read_exact(&mut body)?;
    Ok((number(12), body))
}

type Secure = StreamOwned<ClientConnection, UnixStream>;

/// Encrypts a connection, and shows the server the client's certificate.
fn secured(mut stream: UnixStream, papers: &Papers, who: Option<&Paper>) -> Secure {
    put(&mut stream, opt::STARTTLS, b"");
    assert_eq!(message(&mut stream, opt::STARTTLS).unwrap().0, rep::ACK);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(papers.ca_pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match who {
        None => config.with_no_client_auth(),
        Some(who) => {
            let chain = vec![CertificateDer::from_pem_slice(who.cert.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(who.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Selects an export. Returns its size or the error.
fn go(stream: &mut Secure, name: &str) -> std::io::Result<Result<u64, u32>> {
    let choice = [&string(name)[..], &[0, 0]].concat();
    let head =
        [&OPTION_MAGIC.to_be_bytes()[..], &opt::GO.to_be_bytes(), &(choice.len() as u32).to_be_bytes()];
    stream.write_all(&[&head.concat(), &choice[..]].concat())?;
    let mut size = 0;
    loop {
        match message(stream, opt::GO)? {
            (rep::ACK, _) => return Ok(Ok(size)),
            (rep::INFO, body) if body[..2] == [0, 0] => {
                size = u64::from_be_bytes(body[2..10].try_into().unwrap());
            }
            (rep::INFO, _) => {}
            (error, _) => return Ok(Err(error)),
        }
    }
}

/// Sends a request, and reads its simple reply with this much data.
fn ask(stream: &mut Secure, command: u16, offset: u64, len: u32, data: &[u8], read: usize) -> Vec<u8> {
    let cookie = [7; 8];
    let head = [
        &REQUEST_MAGIC.to_be_bytes()[..],
        &[0, 0],
        &command.to_be_bytes(),
        &cookie,
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ];
    stream.write_all(&head.concat()).unwrap();
    let mut answer = vec![0; 16 + read];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[4..8], [0; 4]);
    assert_eq!(answer[8..16], cookie);
    answer.split_off(16)
}

/// Goal: under TLS everything works as without, megabytes included. Before TLS all is refused, and
/// the end of a connection is one of TLS.
#[test]
fn encrypted() {
    let served = Served::new();
    let (_listener, path) = served.listen("sock");
    let mut stream = greeted(&path);
    for option in [opt::LIST, opt::GO, opt::STRUCTURED_REPLY, 99] {
        let data = if option == opt::GO { [&string("tank/v")[..], &[0, 0]].concat() } else { Vec::new() };
        put(&mut stream, option, &data);
        assert_eq!(message(&mut stream, option).unwrap().0, rep::ERR_TLS_REQD, "{option}");
    }
    let mut stream = secured(stream, &served.papers, None);
    put(&mut stream, opt::STARTTLS, b"");
    assert_eq!(message(&mut stream, opt::STARTTLS).unwrap().0, rep::ERR_INVALID);
    assert_eq!(go(&mut stream, "tank/none").unwrap(), Err(rep::ERR_UNKNOWN));
    assert_eq!(go(&mut stream, "tank/v").unwrap(), Ok(8 << 20));
    let noise: Vec<u8> = (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    ask(&mut stream, cmd::WRITE, 777, noise.len() as u32, &noise, 0);
    assert!(ask(&mut stream, cmd::READ, 777, noise.len() as u32, b"", noise.len()) == noise);
    let bye = [&REQUEST_MAGIC.to_be_bytes()[..], &[0, 0], &cmd::DISC.to_be_bytes(), &[0; 20]].concat();
    stream.write_all(&bye).unwrap();
    // Without a TLS shutdown this would be an error.
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    // The oldest way to select an export can be refused only by a disconnect.
    let mut stream = greeted(&path);
    put(&mut stream, opt::EXPORT_NAME, b"tank/v");
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

/// Goal: with an authority, only clients with a certificate that it signed and did not revoke are
/// accepted. Others learn nothing of exports.
#[test]
fn only_who_is_signed() {
    let served = Served::new();
    served.papers.ask();
    let (good, bad) = (served.papers.sign(10), served.papers.sign(11));
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Papers::new(elsewhere.path()).sign(10);
    let (_first, before) = served.listen("before");
    served.papers.revoke(&bad);
    let (_second, after) = served.listen("after");
    let enters = |path: &Path, who: Option<&Paper>| {
        let mut stream = secured(greeted(path), &served.papers, who);
        matches!(go(&mut stream, "tank/v"), Ok(Ok(size)) if size == 8 << 20)
    };
    assert!(enters(&before, Some(&good)) && enters(&before, Some(&bad)));
    assert!(enters(&after, Some(&good)) && !enters(&after, Some(&bad)));
    assert!(!enters(&before, None) && !enters(&before, Some(&stranger)));
}

/// Goal: bytes sent in the clear right after STARTTLS are not taken for encrypted ones.
#[test]
fn nothing_is_slipped_in() {
    let served = Served::new();
    let (_listener, path) = served.listen("sock");
    let mut stream = greeted(&path);
    let head = |option: u32| [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&[head(opt::STARTTLS), head(opt::LIST)].concat()).unwrap();
    // The answer to STARTTLS may still arrive, but nothing after it.
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    assert!(read.is_err() || rest.len() <= 20, "{rest:?}");
}

/// Goal: missing, empty or mismatched certificates are refused by name when the listener is
/// created.
#[test]
fn bad_papers() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |word: &str| {
        let Err(Error::Tls(error)) = Tls::from_dir(dir.path()) else { panic!("{word} was taken") };
        assert!(error.to_string().contains(word), "{error}");
    };
    refused("server-cert.pem");
    let papers = Papers::new(dir.path());
    assert!(Tls::from_dir(dir.path()).is_ok());
    fs::write(dir.path().join("server-key.pem"), papers.sign(3).key).unwrap();
    refused("the certificate of");
    fs::remove_file(dir.path().join("server-key.pem")).unwrap();
    refused("server-key.pem");
    Papers::new(dir.path());
    fs::write(dir.path().join("ca-cert.pem"), b"nothing").unwrap();
    refused("ca-cert.pem");
    // A link to nothing must not disable the check of clients.
    fs::remove_file(dir.path().join("ca-cert.pem")).unwrap();
    std::os::unix::fs::symlink("gone", dir.path().join("ca-cert.pem")).unwrap();
    refused("ca-cert.pem");
}
