//! `poolhouse web`: a daemon's numbers reach the page, and a browser draws them.

use crate::daemon::{Daemon, command, image};
use cli::manual::WEB;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A daemon with a pool, and a page.
struct Served {
    daemon: Daemon,
    dir: tempfile::TempDir,
    page: Child,
    /// The URL of the page, with its token.
    url: String,
}

/// A file name that would be markup.
const MARKUP: &str = "<img src=x onerror=document.title='run'>";

impl Served {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = Daemon::start(dir.path());
        image(&dir.path().join("d0"));
        let device = dir.path().join("devices").join(MARKUP);
        fs::create_dir(device.parent().expect("a folder")).expect("a folder");
        image(&device);
        let made = command(dir.path(), "zpool create -m none tank mirror")
            .args([dir.path().join("d0"), device])
            .output()
            .expect("it runs");
        assert!(made.status.success(), "{}", crate::daemon::said(&made));
        daemon.good("zfs create tank/home");
        let mut page =
            command(dir.path(), "web").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
        let mut url = String::new();
        BufReader::new(page.stdout.take().expect("a pipe")).read_line(&mut url).expect("a line");
        Self { daemon, dir, page, url: url.trim_end().to_owned() }
    }

    fn token(&self) -> &str {
        self.url.split("#token=").nth(1).expect("a token")
    }

    /// The answer to a request with a token: its status, and the text after its head.
    fn ask(&self, method: &str, arguments: &str, token: &str) -> (String, String) {
        let address = self.url.trim_start_matches("http://").split('/').next().expect("an address");
        let mut stream = TcpStream::connect(address).expect("a page");
        let request = format!(
            "POST /v1/{method} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{arguments}",
            arguments.len()
        );
        stream.write_all(request.as_bytes()).expect("it takes a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).expect("a status").to_owned(), body.to_owned())
    }

    fn good(&self, method: &str, arguments: &str) -> Value {
        let (status, body) = self.ask(method, arguments, self.token());
        assert_eq!(status, "200", "{body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.page.kill());
        drop(self.page.wait());
    }
}

/// Goal: what the daemon answers reaches the page, for those with the token alone, and a refusal of
/// the daemon arrives as one. Nothing can be changed.
#[test]
fn answers() {
    let served = Served::new();
    assert_eq!(served.good("pool_names", "{}")["ok"], serde_json::json!(["tank"]));
    let pool = served.good("pool", r#"{"name":"tank","query":{"io":true}}"#);
    let disks = &pool["ok"]["root"]["children"][0]["children"];
    assert_eq!(disks[0]["path"].as_str(), served.dir.path().join("d0").to_str());
    assert_eq!(disks[0]["stat"]["state"], "healthy");
    let query = r#"{"query":{"kinds":["filesystem"],"props":{"named":["used"]}}}"#;
    let datasets = served.good("datasets", query);
    assert_eq!(datasets["ok"]["datasets"].as_array().map(Vec::len), Some(2), "{datasets}");
    assert!(served.good("pool", r#"{"name":"other","query":{}}"#)["error"].is_object());
    assert_eq!(served.ask("pool_names", "{}", &"0".repeat(64)).0, "401");
    assert_eq!(served.ask("pool_names", "{}", "").0, "401");
    let change = r#"{"name":"tank","change":"clear"}"#;
    assert_eq!(served.ask("change_pool", change, served.token()).0, "404");
    assert_eq!(served.ask("shutdown", "{}", served.token()).0, "404");
}

/// Goal: the help has the synopsis of the manual page; addresses of other machines are refused.
#[test]
fn command_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let help = command(dir.path(), "help web").output().expect("it runs");
    let text = String::from_utf8(help.stdout).expect("text");
    assert!(text.starts_with(&format!("usage: {WEB}\n")), "{text}");
    let refused = command(dir.path(), "web -l 0.0.0.0:9135").output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not on the loopback interface"));
}

/// A browser without a window, if one is installed.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium-headless-shell", "chromium", "google-chrome"];
    names
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()))
}

/// Goal: a browser draws pool, devices, datasets and charts from the daemon's answers, loads
/// nothing from elsewhere, and shows a name with markup as text.
#[test]
fn in_a_browser() {
    let Some(browser) = browser() else {
        eprintln!("skipped: there is no chromium-headless-shell, chromium or google-chrome");
        return;
    };
    let served = Served::new();
    let home = served.dir.path().join("browser");
    let run = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", home.display()))
        .arg("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1")
        .args(["--enable-logging=stderr", "--v=0", &served.url])
        .output()
        .expect("it runs");
    let (page, log) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let told: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(told.is_empty(), "the browser complains: {told:?}");
    assert!(page.contains("Live. The numbers are of the last second"), "{page}");
    assert!(
        page.contains("<span>tank</span>") && page.contains("ONLINE") && page.contains("mirror-0"),
        "{page}"
    );
    assert!(page.contains("tank/home") && page.contains("2 of 2 shown, 2 in all"), "{page}");
    assert!(page.matches("<canvas").count() >= 7, "{page}");
    assert!(page.contains("&lt;img src=x onerror=") && !page.contains("<img"), "{page}");
    assert!(page.contains("<title>Poolhouse</title>") && !page.contains(served.token()), "{page}");
    assert!(served.daemon.good("zpool list -H -o name").contains("tank"));
}
