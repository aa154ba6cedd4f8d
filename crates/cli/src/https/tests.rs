use super::trust::is_for;
use super::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use rustls::pki_types::UnixTime;
use rustls::{ServerConfig, ServerConnection};
use std::net::TcpListener;

/// A self-signed certificate for a host by its common name alone, as `openssl req -x509 -subj
/// /CN=…` makes it.
fn own(host: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, host);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.self_signed(&key).expect("a certificate"), key)
}

/// Starts a server that answers this many connections once each, by path. Returns its port and
/// thread.
fn serve(cert: &rcgen::Certificate, key: &KeyPair, times: usize) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let secret = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], secret)
        .expect("a certificate");
    let config = Arc::new(config);
    let thread = std::thread::spawn(move || {
        for _ in 0..times {
            let (tcp, _) = listener.accept().expect("a client");
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut line = StreamOwned::new(session, tcp);
            let (mut asked, mut part) = (Vec::new(), [0; 1024]);
            while !asked.ends_with(b"\r\n\r\n") {
                // A client that doesn't trust the certificate disconnects.
                let Ok(n @ 1..) = line.read(&mut part) else { break };
                asked.extend_from_slice(&part[..n]);
            }
            if asked.is_empty() {
                continue;
            }
            let text = String::from_utf8_lossy(&asked).into_owned();
            let answer = match text.split(' ').nth(1) {
                Some("/key") => "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\npassword\n",
                Some("/open") => "HTTP/1.0 200 OK\r\n\r\npassword",
                Some("/moved") => "HTTP/1.0 302 Found\r\nLocation: /key\r\n\r\n",
                Some("/clear") => "HTTP/1.0 302 Found\r\nLocation: http://localhost/key\r\n\r\n",
                _ => "HTTP/1.0 404 Not Found\r\n\r\nnothing",
            };
            line.write_all(answer.as_bytes()).expect("it listens");
            line.conn.send_close_notify();
            line.flush().expect("it listens");
        }
    });
    (port, thread)
}

/// Goal: a key comes over TLS from a server whose certificate, or its signer's, is trusted.
/// Redirections never lead to plain HTTP. A missing answer, a bad one and an untrusted server are
/// errors that name the address.
#[test]
fn keys_come_over_tls() {
    let dir = tempfile::tempdir().expect("a folder");
    let (cert, key) = own("localhost");
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, cert.pem()).expect("a file");
    let (port, thread) = serve(&cert, &key, 6);
    let with = Certificates { file: Some(file), ..Certificates::default() };
    let fetch = |path: &str, with: &Certificates| {
        get(&format!("https://localhost:{port}{path}"), with).map_err(|e| e.to_string())
    };
    assert_eq!(fetch("/key", &with).as_deref(), Ok(&b"password\n"[..]));
    assert_eq!(fetch("/open", &with).as_deref(), Ok(&b"password"[..]));
    assert_eq!(fetch("/moved", &with).as_deref(), Ok(&b"password\n"[..]));
    assert_eq!(fetch("/none", &with), Err(format!("Couldn't GET https://localhost:{port}/none: 404")));
    let clear = fetch("/clear", &with).expect_err("in the clear");
    assert!(clear.ends_with("it leads to http://localhost/key"), "{clear}");
    thread.join().expect("it served");
    // Another server's certificate with the same name.
    let (stranger, _) = own("localhost");
    let other = dir.path().join("other.pem");
    std::fs::write(&other, stranger.pem()).expect("a file");
    let (port, thread) = serve(&cert, &key, 1);
    let with = Certificates { file: Some(other), ..Certificates::default() };
    let refused = get(&format!("https://localhost:{port}/key"), &with).expect_err("a stranger").to_string();
    assert!(
        refused.starts_with(&format!("Failed to connect to https://localhost:{port}/key: ")),
        "{refused}"
    );
    thread.join().expect("it went");
}

/// Goal: a certificate counts for the host that it names, and only while it is valid.
#[test]
fn certificates_name_hosts() {
    let (cert, _) = own("localhost");
    let name = |host: &str| ServerName::try_from(host.to_owned()).expect("a name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_795_300_000));
    assert!(is_for(cert.der(), &name("LOCALHOST"), now));
    assert!(!is_for(cert.der(), &name("example.org"), now));
    assert!(!is_for(cert.der(), &name("localhost"), UnixTime::since_unix_epoch(Duration::ZERO)));
    let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, "localhost");
    let named = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
    assert!(is_for(named.der(), &name("a.example"), now));
    assert!(!is_for(named.der(), &name("localhost"), now), "its alternative names go before");
}

/// Goal: addresses are parsed, and invalid ones refused. Redirections never leave TLS.
#[test]
fn addresses() {
    let url = |tls, host: &str, port, path: &str| {
        Some(Url { tls, host: host.to_owned(), port, path: path.to_owned() })
    };
    assert_eq!(Url::parse("https://a.b/c?d#e"), url(true, "a.b", 443, "/c?d"));
    assert_eq!(Url::parse("http://a:81"), url(false, "a", 81, "/"));
    assert_eq!(Url::parse("https://[::1]:8443/k"), url(true, "::1", 8443, "/k"));
    for bad in
        ["ftp://a/", "https://", "https:///k", "https://a:x/", "https://u@a/", "https://a/ b", "https://[::1"]
    {
        assert_eq!(Url::parse(bad), None, "{bad}");
    }
    let at = Url::parse("https://a/b").expect("an address");
    assert_eq!(at.follow("/c"), url(true, "a", 443, "/c"));
    assert_eq!(at.follow("http://a/c"), None);
}

/// Goal: an answer is accepted when all of it has arrived, and not before.
#[test]
fn answers_are_whole() {
    let read = |text: &str, ended| read_answer(text.as_bytes(), ended).expect("it is HTTP").map(|a| a.body);
    assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true), None);
    assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd", false), Some(b"abc".to_vec()));
    assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nab", false), None);
    assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nab", true), Some(b"ab".to_vec()));
    assert_eq!(read("HTTP/1.1 200", true), None);
    assert!(read_answer(b"SSH-2.0-x\r\n", false).is_err());
}
