//! `poolhouse top` over a daemon that serves AFS, with calls that the test makes.

use super::*;
use std::collections::BTreeMap;

/// The rows of a view.
fn rows(stand: &Stand, options: &str) -> Vec<Value> {
    stand.json(&format!("top -j {options}"))["rows"].as_array().expect("rows").clone()
}

/// The numbers of one column by the call's name.
fn of_calls(stand: &Stand, service: &str, column: &str) -> BTreeMap<String, u64> {
    let rows = rows(stand, "-v calls");
    let of_service = rows.iter().filter(|row| row["service"] == service);
    let pair = |row: &Value| Some((row["call"].as_str()?.to_owned(), row[column].as_u64()?));
    of_service.filter_map(pair).collect()
}

/// Goal: after known calls, the view has exactly these, failed ones too, with their codes.
#[test]
fn calls() {
    let stand = Stand::new();
    let why = stand.bad("top -v calls");
    assert!(why.contains("no AFS server") && why.contains("poolhouse afs enable"), "{why}");
    stand.enable();
    assert!(rows(&stand, "-v calls").is_empty());
    stand.create();
    for _ in 0..5 {
        stand.status().expect("it is served");
    }
    for _ in 0..3 {
        assert_eq!(stand.code_of(VolumeId(VOLUME.0 + 1)), VNOVOL);
    }
    let count = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of_calls(&stand, "file", "calls"), count(&[("FetchStatus", 8)]));
    assert_eq!(of_calls(&stand, "file", "errors"), count(&[("FetchStatus", 3)]));
    let made = count(&[("CreateVolume", 1), ("EndTrans", 1), ("SetFlags", 1)]);
    assert_eq!(of_calls(&stand, "volume", "calls"), made);
    // The test's clients serve no calls, so each can't say who it is, and can't be reset.
    let asked = of_calls(&stand, "client", "errors");
    let names = ["InitCallBackState", "TellMeAboutYourself", "WhoAreYou"];
    assert_eq!(asked.keys().collect::<Vec<_>>(), names, "{asked:?}");
    let row = rows(&stand, "-v calls").into_iter().find(|row| row["call"] == "FetchStatus").expect("a row");
    let number = |key: &str| row[key].as_u64().expect("a number");
    assert_eq!(row["codes"], "VNOVOL 3", "{row}");
    assert!(0 < number("p50_ns") && number("p50_ns") <= number("p99_ns"), "{row}");
    assert!(number("p99_ns") <= number("max_ns") && number("mean_ns") <= number("max_ns"), "{row}");
    let text = stand.daemon.good("top --call FetchStatus");
    assert!(text.contains("FetchStatus of service file: 8\n"), "{text}");
}

/// A call on a file of the volume, by an authenticated user.
fn call_as(stand: &Stand, user: &str, call: &FileCall) -> Result<Vec<u8>, rx::Error> {
    let keys = Arc::new(Keys::fixed(vec![Key::new(1, ENCTYPE, &KEY)]));
    let class = Ticket::local(&keys, user, Level::Clear).expect("a ticket");
    let (_endpoint, connection) = stand.connect(1, &class);
    connection.call(call.request(), TIME)
}

/// Goal: clients, volumes and partitions have what the calls of the test did, in totals and in an
/// interval.
#[test]
fn clients_and_volumes() {
    let stand = Stand::new();
    stand.enable();
    stand.create();
    stand.status().expect("it is served");
    let top = Fid { volume: VOLUME, vnode: Vnode(1), unique: Unique(1) };
    let fetch = FileCall::FetchData64 { fid: top, position: 0, length: 1 << 20 };
    // The cell's own key is no administrator of files, and anyone may look up in no directory.
    call_as(&stand, SUPERUSER, &fetch).expect_err("it has no rights");
    let clients = rows(&stand, "-v afs-clients");
    let user = |row: &Value| row["user"].as_str().unwrap_or("-").to_owned();
    let seen: Vec<(String, u64, u64, u64)> = clients
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().expect("a number");
            (user(row), number("status"), number("fetch"), number("errors"))
        })
        .collect();
    let mut sorted = seen.clone();
    sorted.sort();
    assert_eq!(sorted, [("-".to_owned(), 1, 0, 0), (SUPERUSER.to_owned(), 0, 1, 1)]);
    let volumes = rows(&stand, "-v volumes");
    assert_eq!((volumes.len(), &volumes[0]["name"]), (1, &"made".into()), "{volumes:?}");
    let number = |key: &str| volumes[0][key].as_u64().expect("a number");
    assert_eq!((number("volume"), number("operations")), (u64::from(VOLUME.0), 2));
    let attach = rows(&stand, "-v attach");
    assert_eq!((&attach[0]["partition"], &attach[0]["attached"]), (&"/vicepa".into(), &1.into()));
    assert!(attach[0]["opens"].as_u64() >= Some(1), "{attach:?}");
    // In an interval there is only what happens in it.
    let quiet = stand.json("top -j -v volumes 0.1 1");
    assert_eq!((&quiet["rows"], &quiet["sums"][0]["operations"]), (&Value::Array(vec![]), &0.into()));
    stand.daemon.good("top -v locks");
}

/// Goal: on a terminal, a key ends the live view long before its interval does, Ctrl-C too. Other
/// keys don't.
#[test]
fn keys_end_it() {
    use std::io::{Read, Write};
    use std::process::Stdio;
    let dir = tempfile::tempdir().expect("a folder");
    let _daemon = Daemon::start(dir.path());
    let line = format!("{} top -v locks 3600", env!("CARGO_BIN_EXE_poolhouse"));
    for key in [&b"xq"[..], b"\x03"] {
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("POOLHOUSE_RUN_DIR", dir.path().join("run"));
        let Ok(mut child) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            eprintln!("there is no script(1)");
            return;
        };
        let (mut keys, mut screen) =
            (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        // The terminal gives single keys before the first table is there.
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !seen.ends_with(b"MAX ms") {
            assert_eq!(screen.read(&mut byte).expect("output"), 1, "{}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        keys.write_all(key).expect("it reads");
        let since = Instant::now();
        let ended = loop {
            match child.try_wait().expect("a child") {
                Some(ended) => break ended,
                None if since.elapsed() < TIME => std::thread::yield_now(),
                None => {
                    child.kill().expect("a child");
                    panic!("{key:?} does not end it");
                }
            }
        };
        assert!(ended.success(), "{key:?}: {ended}");
    }
}

/// Goal: the view of promises is of the daemon's owners alone. Other users at root's daemon see
/// calls, volumes and clients, and of these no user.
#[test]
fn other_users() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    /// A uid that nothing else on this machine uses.
    const ANN: u32 = 61_031;
    let id = std::process::Command::new("id").arg("-u").output();
    if !id.is_ok_and(|id| id.stdout == b"0\n") {
        eprintln!("only root has a daemon for others");
        return;
    }
    let stand = Stand::with(&["--shared"]);
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    let program = stand.dir.path().join("poolhouse");
    testkit::copy_program(env!("CARGO_BIN_EXE_poolhouse"), &program);
    [stand.dir.path(), &program].into_iter().for_each(open);
    stand.enable();
    stand.create();
    let status = FileCall::FetchStatus { fid: Fid { volume: VOLUME, vnode: Vnode(1), unique: Unique(1) } };
    call_as(&stand, SUPERUSER, &status).expect("it is served");
    let own = stand.daemon.good("top -v afs-clients");
    assert!(own.contains(SUPERUSER), "{own}");
    stand.daemon.good("top -v promises");
    let ran = |line: &str| {
        let mut command = std::process::Command::new(&program);
        command.args(line.split_whitespace()).env("POOLHOUSE_RUN_DIR", stand.dir.path().join("run"));
        command.current_dir("/").uid(ANN).gid(ANN).output().expect("it runs")
    };
    let first = ran("top -v afs-clients -p");
    let theirs = said(&first);
    assert!(first.status.success() && theirs.contains("127.0.0.1:"), "{theirs}");
    assert!(!theirs.contains(SUPERUSER), "{theirs}");
    for view in ["calls", "volumes", "attach", "locks"] {
        let seen = ran(&format!("top -v {view}"));
        assert!(seen.status.success(), "{view}: {}", said(&seen));
    }
    let refused = ran("top -v promises");
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("permission denied"), "{}", said(&refused));
}
