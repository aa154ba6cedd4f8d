//! Other users, a shell and a full file system can't disturb a daemon.

use super::{Stand, raw};
use api::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// Most bytes that all log messages of a test may take: some hundreds of lines.
const LOG_MAX: u64 = 256 << 10;

/// A request with a path so long that the daemon must neither log nor repeat it.
pub fn long_request() -> String {
    format!("GET /v1/{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "a".repeat(60_000))
}

/// Sends this request `times` times, each on its own connection. Errors don't matter.
pub fn flood(socket: &Path, request: &str, times: usize) {
    use std::io::{Read, Write};
    for _ in 0..times {
        let mut stream = UnixStream::connect(socket).unwrap();
        // The daemon may have closed the connection before it read the request.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Goal: 1,200 requests with very long names, and as many refused ones, do no harm: the daemon
/// answers, and its log stays small.
pub fn messages_of_strangers_are_bounded() {
    let stand = Stand::new();
    stand.import(3).unwrap();
    let pid = stand.daemon_pid();
    flood(&stand.place().socket(), &long_request(), 1200);
    // Without root there is no other user, and the owner's requests are not refused.
    let strange = Command::new("setpriv").args(["--reuid=61012", "--clear-groups", "true"]).status();
    if strange.is_ok_and(|status| status.success()) {
        for path in [stand.dir.path(), stand.place().dir()] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(stand.place().socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
        let program = stand.dir.path().join("stranger");
        testkit::copy_program(std::env::current_exe().unwrap(), &program);
        for method in ["import", "none"] {
            let flooded = Command::new("setpriv")
                .args(["--reuid=61012", "--clear-groups"])
                .args([program.as_os_str(), "flood".as_ref(), stand.place().socket().as_os_str()])
                .arg(method)
                .status();
            assert!(flooded.unwrap().success());
        }
        std::fs::set_permissions(stand.place().dir(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let log = std::fs::read_to_string(stand.place().log()).unwrap();
        assert!(log.lines().filter(|line| line.contains("refused")).count() < 1000, "each is logged");
    } else {
        println!("no stranger in this test: it takes root and setpriv");
    }
    let log = std::fs::metadata(stand.place().log()).unwrap().len();
    assert!(log < LOG_MAX, "{log} bytes of messages");
    assert_eq!(stand.client().pool_names().unwrap(), ["3"]);
    assert_eq!(stand.daemon_pid(), pid);
}

/// Goal: a daemon starts, serves and ends also if its log can't be opened or written.
pub fn a_log_that_fails_is_no_end() {
    for full in [true, false] {
        let stand = Stand::new();
        stand.place().prepare().unwrap();
        if full {
            std::os::unix::fs::symlink("/dev/full", stand.place().log()).unwrap();
        } else {
            std::fs::create_dir(stand.place().log()).unwrap();
        }
        stand.import(3).unwrap();
        let pid = stand.daemon_pid();
        flood(&stand.place().socket(), "GET /v1/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 3);
        assert_eq!(stand.client().pool_names().unwrap(), ["3"]);
        assert_eq!(stand.daemon_pid(), pid);
        stand.export(3).unwrap();
        stand.wait_for_the_end();
    }
}

/// Goal: a daemon inherits neither the limits nor the open files of the shell whose command started
/// it. A limit that can't be raised does not end it.
pub fn nothing_of_the_shell_is_inherited() {
    for hard in [false, true] {
        let stand = Stand::new();
        stand.place().prepare().unwrap();
        let locked = stand.dir.path().join("locked");
        let soft = if hard { "" } else { "-S" };
        let script = format!(
            r#"exec 9>"$2"; ulimit {soft} -f 0; ulimit -S -t 1000; ulimit -S -n 100; exec nice "$0" import "$1""#
        );
        let ran = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .args([stand.place().dir(), &locked])
            .status();
        assert!(ran.unwrap().success());
        let pid = stand.daemon_pid();
        let proc = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        let limits = std::fs::read_to_string(proc.join("limits")).unwrap();
        let limit = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(limit("Max cpu time"), "unlimited");
        assert_ne!(limit("Max open files"), "100");
        if !hard {
            assert_eq!(limit("Max file size"), "unlimited");
        }
        let files = std::fs::read_dir(proc.join("fd")).unwrap();
        let open: Vec<_> = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok()).collect();
        assert!(open.iter().all(|file| *file != locked), "{open:?}");
        // The daemon logs each request. The messages don't fit if the limit could not be raised.
        flood(&stand.place().socket(), "GET /v1/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 3);
        assert_eq!(stand.client().pool_names().unwrap(), ["3"]);
        assert_eq!(stand.daemon_pid(), pid);
    }
}

/// Goal: a reply that is too long for one piece reaches the client whole.
pub fn long_answers_come_in_chunks() {
    let mut stand = Stand::new();
    stand.real = true;
    let fixture = testkit::load("mirror2").copy();
    let scan = ScanRequest { paths: fixture.images().to_vec(), ..ScanRequest::default() };
    let guid = stand.client().scan(&scan).unwrap().pools[0].pool.guid;
    let request = ImportRequest { guid, scan, force: true, ..ImportRequest::default() };
    stand.client().import(&request).unwrap();
    for number in 0..24 {
        let made = DatasetChange::Create {
            name: format!("xmirror2/made{number}"),
            kind: DatasetKind::Filesystem,
            props: vec![("mountpoint".into(), "none".into())],
            sparse: false,
            parents: false,
            key: None,
            mount: false,
        };
        stand.client().change(&made).unwrap();
    }
    let kinds = vec![DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
    let query = DatasetQuery { kinds, props: PropSelect::All, ..DatasetQuery::default() };
    let answered = stand.client().datasets(&query).unwrap();
    let body = serde_json::json!({ "query": query }).to_string();
    let head = format!("Host: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    let stream = UnixStream::connect(stand.place().socket()).unwrap();
    let text = raw(stream, &format!("POST /v1/datasets HTTP/1.1\r\n{head}\r\n{body}"));
    assert!(text.contains("transfer-encoding: chunked\r\n"), "{}", &text[..200]);
    let sizes = serde_json::to_string(&answered).unwrap().len();
    assert!(text.len() > sizes, "{sizes}, {}", text.len());
    assert!(answered.datasets.iter().all(|dataset| dataset.props.len() > 10));
    stand.client().export(&ExportRequest { name: "xmirror2".into(), ..ExportRequest::default() }).unwrap();
}
