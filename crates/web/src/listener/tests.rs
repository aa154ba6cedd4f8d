//! What the server answers, and its limits.

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server whose daemon repeats what it is sent.
struct Server {
    address: SocketAddr,
    token: String,
    /// The methods that reached the daemon.
    reached: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let reached = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&reached);
        let forward: Forward = Arc::new(move |method, arguments| {
            keep.lock().expect("whole").push(method.to_owned());
            match arguments {
                b"\"gone\"" => Err("the daemon's socket".to_owned()),
                _ => Ok(arguments.to_vec()),
            }
        });
        let (address, token) = Self::with(forward, TIMEOUT);
        Self { address, token, reached }
    }

    /// Serves for the rest of the process.
    fn with(forward: Forward, timeout: Duration) -> (SocketAddr, String) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let token = Token::new().expect("random");
        let text = token.text().to_owned();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let shared = Shared { token, forward, at_work: Semaphore::new(AT_WORK), timeout };
            runtime.block_on(accept(listener, shared, std::future::pending()))
        });
        (address, text)
    }

    /// The answer to a request: its status, and all of its text.
    fn ask(&self, head: &str, body: &str) -> (u16, String) {
        ask(self.address, head, body)
    }

    /// A request of the page for a method.
    fn call(&self, method: &str, body: &str) -> (u16, String) {
        let token = &self.token;
        let head =
            format!("POST /v1/{method}\nAuthorization: Bearer {token}\nContent-Type: application/json");
        self.ask(&head, body)
    }
}

fn ask(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a server");
    let (first, fields) = head.split_once('\n').unwrap_or((head, ""));
    let mut text = format!("{first} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !fields.contains("Host: ") {
        text += &format!("Host: {address}\r\n");
    }
    fields.lines().for_each(|field| text += &format!("{field}\r\n"));
    // A server that refuses does not read everything.
    drop(stream.write_all(format!("{text}\r\n{body}").as_bytes()));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), answer)
}

/// Goal: the page and its files need no token, and each answer has the policy.
#[test]
fn files() {
    let server = Server::start();
    for asset in assets::ASSETS.iter().chain([&assets::PAGE]) {
        let (status, text) = server.ask(&format!("GET {}", asset.path), "");
        assert_eq!(status, 200, "{}", asset.path);
        assert!(text.ends_with(asset.text) && text.contains(asset.kind), "{}", asset.path);
        assert!(text.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{text}");
        assert!(text.contains("x-content-type-options: nosniff") && text.contains("cache-control: no-store"));
    }
    let (status, text) = server.ask("HEAD /app.js", "");
    assert!(status == 200 && text.ends_with("\r\n\r\n"), "{text}");
    assert_eq!(server.ask("POST /", "x").0, 405);
    assert_eq!(server.ask("GET /../Cargo.toml", "").0, 401, "without a token, nothing says what exists");
}

/// Goal: a request of the page reaches the daemon with its arguments, and no other does.
#[test]
fn requests() {
    let server = Server::start();
    let (status, text) = server.call("top", r#"{"query":{"view":"ops"}}"#);
    assert!(status == 200 && text.ends_with(r#"{"query":{"view":"ops"}}"#), "{text}");
    assert!(text.contains("content-security-policy: "), "{text}");
    let (status, text) = server.call("pool", "\"gone\"");
    assert!(status == 502 && text.ends_with("the daemon's socket"), "{text}");
    assert_eq!(*server.reached.lock().expect("whole"), ["top", "pool"]);

    let json = "Content-Type: application/json";
    let token = format!("Authorization: Bearer {}", server.token);
    for (head, body, expected) in [
        (format!("POST /v1/top\n{json}"), "{}", 401),
        (format!("POST /v1/top\n{json}\nAuthorization: Bearer {:064}", 0), "{}", 401),
        (format!("POST /v1/top?token={}\n{json}", server.token), "{}", 401),
        (format!("POST /v1/top\n{json}\n{token}\nOrigin: http://other.example"), "{}", 403),
        (format!("POST /v1/top\n{json}\n{token}\nSec-Fetch-Site: cross-site"), "{}", 403),
        (format!("POST /v1/top\n{json}\n{token}\nHost: rebound.example"), "{}", 403),
        ("GET /\nHost: rebound.example".to_owned(), "", 403),
        (format!("POST /v1/change_pool\n{json}\n{token}"), "{}", 404),
        (format!("POST /v1/trace\n{json}\n{token}"), "{}", 404),
        (format!("POST /v1/shutdown\n{json}\n{token}"), "{}", 404),
        (format!("GET /v1/top\n{token}"), "", 405),
        (format!("POST /v1/top\n{token}\nContent-Type: text/plain"), "{}", 415),
        (format!("POST /v1/top\n{token}"), "{}", 415),
        (format!("OPTIONS /v1/top\n{token}"), "", 405),
    ] {
        assert_eq!(server.ask(&head, body).0, expected, "{head}");
    }
    assert_eq!(server.call("top", &" ".repeat(REQUEST_MAX + 1)).0, 413);
    assert_eq!(server.reached.lock().expect("whole").len(), 2);
}

/// Goal: more connections than the limit are closed at once, and those that send nothing end.
#[test]
fn connections_have_a_limit() {
    let forward: Forward = Arc::new(|_, _| Ok(Vec::new()));
    let (address, _) = Server::with(forward, Duration::from_millis(300));
    let mut silent: Vec<_> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(address).expect("a server")).collect();
    // The server accepts in order, so this one is beyond the limit.
    let mut further = TcpStream::connect(address).expect("a server");
    assert_eq!(further.read(&mut [0; 1]).unwrap_or(0), 0);
    for stream in &mut silent {
        drop(stream.read_to_end(&mut Vec::new()));
    }
    let answered = std::iter::repeat_with(|| ask(address, "GET /", "").0).find(|status| *status == 200);
    assert_eq!(answered, Some(200));
}

/// Goal: the daemon works on few requests of the page at a time; the others wait.
#[test]
fn few_at_work() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak) = (Arc::clone(&now), Arc::clone(&most));
    let gate = Arc::new(std::sync::Barrier::new(AT_WORK));
    let forward: Forward = Arc::new(move |_, _| {
        peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // As many as may work meet here; one more would be counted.
        gate.wait();
        count.fetch_sub(1, Ordering::SeqCst);
        Ok(b"{}".to_vec())
    });
    let (address, token) = Server::with(forward, TIMEOUT);
    let server = Server { address, token, reached: Arc::default() };
    std::thread::scope(|scope| {
        for _ in 0..4 * AT_WORK {
            scope.spawn(|| assert_eq!(server.call("top", "{}").0, 200));
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), AT_WORK);
}
