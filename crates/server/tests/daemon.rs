//! The life of a daemon, with real processes. This program runs the tests, and with the argument
//! `serve` it is the daemon.
//!
//! The fake service behind the daemon has no pools:
//!
//! * `import` of pool N, for N from 1 on, makes it hold the number N.
//! * `export` makes it release the number.
//! * `import` of pool 99 blocks its caller until pool 98 is imported.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail and speak as tests do")]

#[path = "daemon/limits.rs"]
mod limits;
#[path = "../../nbd/tests/client/mod.rs"]
mod nbd_client;

use api::client::Socket;
use api::run_dir::RunDir;
use api::*;
use nbd_client::Client as Nbd;
use server::daemon::{self, DaemonService};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A service that holds numbers instead of pools.
#[derive(Default)]
struct Numbers {
    held: Mutex<BTreeSet<u64>>,
    changed: Condvar,
    mount: Mutex<Option<fuse::Mount>>,
}

impl FakeService for Numbers {
    fn pool_names(&self, _: &Caller) -> Result<Vec<String>, Error> {
        Ok(self.held.lock().unwrap().iter().map(u64::to_string).collect())
    }

    fn import(&self, _: &Caller, request: &ImportRequest) -> Result<ImportOutcome, Error> {
        let mut held = self.held.lock().unwrap();
        held.insert(request.guid);
        self.changed.notify_all();
        while request.guid == 99 && !held.contains(&98) {
            held = self.changed.wait(held).unwrap();
        }
        if let Some(target) = request.new_name.as_deref() {
            let workers = Arc::new(fuse::Workers::start("fuse-test", 1).unwrap());
            let options =
                fuse::Options { source: "test".into(), read_only: true, ..fuse::Options::default() };
            let tree = Arc::new(tree::Empty);
            *self.mount.lock().unwrap() =
                Some(fuse::Mount::new(&workers, tree, Path::new(target), &options).unwrap());
        }
        Ok(ImportOutcome { name: request.guid.to_string(), ..ImportOutcome::default() })
    }

    fn export(&self, _: &Caller, request: &ExportRequest) -> Result<(), Error> {
        let number = request.name.parse().unwrap_or_default();
        if self.held.lock().unwrap().remove(&number) {
            return Ok(());
        }
        Err(Error::new(&request.name, Reason::NoSuchPool))
    }
}

impl server::telemetry::tree::Counters for Numbers {
    fn kstat_names(&self) -> Vec<(Option<String>, String)> {
        Vec::new()
    }

    fn kstat(&self, _: Option<&str>, _: &str) -> Option<Kstat> {
        None
    }
}

impl DaemonService for Numbers {
    fn stats(self: Arc<Self>, at: &Path) -> Result<fuse::Mount, fuse::Error> {
        server::telemetry::tree::mount(self, at, false)
    }

    fn is_empty(&self) -> bool {
        self.held.lock().unwrap().is_empty()
    }

    fn close(&self, _: Duration) -> Vec<Error> {
        self.held.lock().unwrap().clear();
        Vec::new()
    }
}

mod tree {
    use fuse::tree::*;
    use rustix::io::Errno;

    /// An empty file system.
    pub struct Empty;

    impl FileTree for Empty {
        fn root(&self) -> Node {
            Node(34)
        }
        fn lookup(&self, _: Node, _: &[u8]) -> Result<Attr, Errno> {
            Err(Errno::NOENT)
        }
        fn attr(&self, node: Node) -> Result<Attr, Errno> {
            let time = Time::default();
            Ok(Attr {
                node,
                ino: node.0,
                generation: 0,
                parent: node,
                mode: 0o040_755,
                nlink: 2,
                uid: 0,
                gid: 0,
                rdev: (0, 0),
                size: 2,
                blocks: 0,
                blksize: 512,
                atime: time,
                mtime: time,
                ctime: time,
                btime: time,
                settled: true,
            })
        }
        fn readlink(&self, _: Node) -> Result<Vec<u8>, Errno> {
            Err(Errno::INVAL)
        }
        fn read(&self, _: Node, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
            Err(Errno::ISDIR)
        }
        fn readdir(&self, _: Node, _: u64, _: usize) -> Result<Vec<Entry>, Errno> {
            Ok(Vec::new())
        }
        fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
            Err(Errno::NODATA)
        }
        fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
            Ok(Vec::new())
        }
        fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
            Ok(Statfs::default())
        }
        fn seek(&self, _: Node, _: u64, _: Seek) -> Result<u64, Errno> {
            Err(Errno::NXIO)
        }
        fn flags(&self, _: Node) -> Result<Flags, Errno> {
            Ok(Flags::default())
        }
    }
}

/// A directory for a daemon, which is terminated at the end of the test.
struct Stand {
    dir: tempfile::TempDir,
    /// True if the daemon holds pools rather than numbers.
    real: bool,
}

impl Stand {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), real: false }
    }

    fn place(&self) -> RunDir {
        RunDir::at(&self.dir.path().join("run"))
    }

    fn client(&self) -> Client<Socket> {
        let program = std::env::current_exe().unwrap();
        let absent: Box<dyn Service> = if self.real {
            Box::new(server::service::LocalService::new())
        } else {
            Box::new(Numbers::default())
        };
        if self.real {
            // This file tells the daemon that starts.
            self.place().prepare().unwrap();
            std::fs::write(self.place().dir().join("real"), "").unwrap();
        }
        Socket::at(self.place(), program, absent).client()
    }

    fn import(&self, guid: u64) -> Result<ImportOutcome, Error> {
        self.client().import(&ImportRequest { guid, ..ImportRequest::default() })
    }

    fn export(&self, guid: u64) -> Result<(), Error> {
        self.client().export(&ExportRequest { name: guid.to_string(), ..ExportRequest::default() })
    }

    /// Waits until the daemon of this directory has ended.
    fn wait_for_the_end(&self) {
        let lock = std::fs::File::open(self.place().dir().join("daemon.lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    }

    fn daemon_pid(&self) -> rustix::process::Pid {
        let stream = UnixStream::connect(self.place().socket()).unwrap();
        rustix::net::sockopt::socket_peercred(&stream).unwrap().pid
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Ok(stream) = UnixStream::connect(self.place().socket()) {
            raw(stream, "POST /v1/shutdown HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            self.wait_for_the_end();
        }
    }
}

fn raw(mut stream: UnixStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Goal: queries alone start no daemon, but an import does. The daemon keeps its imports, and exits
/// with its socket after the last export.
fn lives_from_the_first_import_to_the_last_export() {
    let stand = Stand::new();
    assert_eq!(stand.client().pool_names().unwrap(), [""; 0]);
    assert!(!stand.place().socket().exists());
    assert_eq!(stand.import(7).unwrap().name, "7");
    stand.import(8).unwrap();
    assert_eq!(stand.client().pool_names().unwrap(), ["7", "8"]);
    assert_eq!(stand.export(9).unwrap_err().reason, Reason::NoSuchPool);
    stand.export(7).unwrap();
    assert_eq!(stand.client().pool_names().unwrap(), ["8"]);
    stand.export(8).unwrap();
    stand.wait_for_the_end();
    assert!(!stand.place().socket().exists());
    assert_eq!(stand.client().pool_names().unwrap(), [""; 0]);
    stand.import(5).unwrap();
}

/// Goal: many concurrent commands that each need a daemon share one, which holds the imports of
/// all.
fn commands_at_once_share_one_daemon() {
    let stand = Stand::new();
    std::thread::scope(|scope| {
        for number in 1..=8 {
            let stand = &stand;
            scope.spawn(move || stand.import(number).unwrap());
        }
    });
    assert_eq!(stand.client().pool_names().unwrap().len(), 8);
}

/// Goal: a slow request blocks no other. It ends here only because another request completes
/// meanwhile.
fn a_slow_request_blocks_no_other() {
    let stand = Stand::new();
    stand.import(1).unwrap();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| stand.import(99).unwrap());
        stand.import(98).unwrap();
        slow.join().unwrap();
    });
}

/// A new dataset with one property. A volume is sparse.
fn new_dataset(name: &str, kind: DatasetKind, prop: (&str, &str)) -> DatasetChange {
    DatasetChange::Create {
        name: name.into(),
        kind,
        props: vec![(prop.0.into(), prop.1.into())],
        sparse: kind == DatasetKind::Volume,
        parents: false,
        key: None,
        mount: false,
    }
}

/// Whether each file system is mounted.
fn mounted(stand: &Stand) -> Vec<bool> {
    let props = PropSelect::Named(vec!["mounted".into(), "mountpoint".into()]);
    let query = DatasetQuery { kinds: vec![DatasetKind::Filesystem], props, ..DatasetQuery::default() };
    let DatasetList { datasets, failures } = stand.client().datasets(&query).unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(datasets.iter().any(|dataset| dataset.name == "xmirror2/made"));
    datasets.iter().map(|dataset| dataset.number("mounted") == Some(1)).collect()
}

/// The files of the fixture are in its mount below this directory.
fn files_are_there(stand: &Stand, altroot: &Path) {
    let mounts = stand.client().mounts().unwrap();
    let mount = mounts.iter().find(|mount| mount.dataset == "xmirror2").unwrap();
    assert!(Path::new(&mount.mountpoint).starts_with(altroot));
    let below: Vec<_> = mounts.iter().map(|mount| Path::new(&mount.mountpoint)).collect();
    let manifests = testkit::load("mirror2").manifests();
    let manifest = manifests.iter().find(|m| m.dataset == "xmirror2" && m.variant.is_none()).unwrap();
    for entry in manifest.entries().iter().filter(|entry| entry.sha256.is_some()) {
        let path = Path::new(&mount.mountpoint).join(std::ffi::OsStr::from_bytes(&entry.path));
        if below.iter().filter(|mount| path.starts_with(mount)).count() == 1 {
            assert_eq!(std::fs::read(&path).unwrap().len() as u64, entry.size);
        }
    }
}

/// Goal: the daemon imports, mounts and exports real pools.
///
/// * Scans find them, and invalid imports are refused.
/// * A pool is imported below an altroot, mounted, read and listed with its mounts.
/// * Meanwhile it can't be imported elsewhere.
/// * The export unmounts it, and the daemon exits.
/// * A terminated daemon releases a pool in use.
fn real_pools_come_and_go() {
    let mut stand = Stand::new();
    stand.real = true;
    let fixture = testkit::load("mirror2").copy();
    let altroot = stand.dir.path().join("root");
    let scan = ScanRequest { paths: fixture.images().to_vec(), ..ScanRequest::default() };
    let found = stand.client().scan(&scan).unwrap().pools;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].pool.name, "xmirror2");
    let guid = found[0].pool.guid;
    let request = |props: &[(&str, &str)]| ImportRequest {
        guid,
        scan: scan.clone(),
        props: props.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        force: true,
        ..ImportRequest::default()
    };
    let import =
        |props: &[(&str, &str)]| stand.client().import(&request(props)).map_err(|error| error.reason);
    assert_eq!(import(&[("readonly", "x")]), Err(Reason::BadProperty { property: "readonly".into() }));
    let nobody = ImportRequest { guid: guid ^ 1, ..request(&[]) };
    assert_eq!(stand.client().import(&nobody).unwrap_err().reason, Reason::NoSuchImport);
    // The dataset is created here. The imports that follow find it again.
    let at = ("altroot", altroot.to_str().unwrap());
    assert_eq!(import(&[at]).unwrap().name, "xmirror2");
    let made = new_dataset("xmirror2/made", DatasetKind::Filesystem, ("mountpoint", "/made"));
    stand.client().change(&made).unwrap();
    stand.client().export(&ExportRequest { name: "xmirror2".into(), ..ExportRequest::default() }).unwrap();
    stand.wait_for_the_end();
    let asked = [("readonly", "on"), at];
    assert_eq!(import(&asked).unwrap().name, "xmirror2");
    assert_eq!(import(&asked), Err(Reason::PoolExists));
    let renamed = ImportRequest { new_name: Some("twin".into()), ..request(&asked) };
    assert_eq!(stand.client().import(&renamed).unwrap_err().reason, Reason::DevicesInUse);
    assert!(stand.client().scan(&scan).unwrap().pools.is_empty(), "it is imported");
    assert_eq!(stand.client().pool_names().unwrap(), ["xmirror2"]);
    let pool = stand.client().pool("xmirror2", &PoolQuery { props: true, ..PoolQuery::default() }).unwrap();
    assert_eq!((pool.guid, pool.state), (guid, PoolState::Active));
    assert!(mounted(&stand).iter().all(|is| !is));
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok() {
        let report = stand.client().mount(&MountRequest::default()).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(mounted(&stand).iter().all(|is| *is));
        assert_eq!(stand.client().mounts().unwrap().len() as u64, report.mounted);
        files_are_there(&stand, &altroot);
    } else {
        println!("no mount in this test: /dev/fuse can't be opened here");
    }
    let export = ExportRequest { name: "xmirror2".into(), ..ExportRequest::default() };
    stand.client().export(&export).unwrap();
    stand.wait_for_the_end();
    let left = || fuse::system::table().unwrap().iter().filter(|m| m.target.starts_with(&altroot)).count();
    assert_eq!(left(), 0);

    assert_eq!(import(&asked).unwrap().name, "xmirror2");
    stand.client().mount(&MountRequest::default()).unwrap();
    let user = stand.client().mounts().unwrap().first().map(|m| std::fs::File::open(&m.mountpoint).unwrap());
    rustix::process::kill_process(stand.daemon_pid(), rustix::process::Signal::TERM).unwrap();
    stand.wait_for_the_end();
    assert_eq!(left(), 0);
    drop(user);
}

/// Goal: after a kill, the next command finds the socket dead and starts a daemon. The stale mount
/// is gone.
fn a_killed_daemon_is_cleaned_up_after() {
    let stand = Stand::new();
    let target = stand.place().dir().join("mnt");
    stand.place().prepare().unwrap();
    std::fs::create_dir(&target).unwrap();
    let mounts = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !mounts {
        println!("no mount in this test: /dev/fuse can't be opened here");
    }
    let new_name = mounts.then(|| target.to_str().unwrap().to_owned());
    stand.client().import(&ImportRequest { guid: 3, new_name, ..ImportRequest::default() }).unwrap();
    assert_eq!(fuse::system::is_mounted(&target).unwrap(), mounts);
    rustix::process::kill_process(stand.daemon_pid(), rustix::process::Signal::KILL).unwrap();
    stand.wait_for_the_end();
    assert!(stand.place().socket().exists());
    assert_eq!(fuse::system::is_mounted(&target).unwrap(), mounts);
    assert_eq!(stand.client().pool_names().unwrap(), [""; 0]);
    stand.import(4).unwrap();
    assert_eq!(stand.client().pool_names().unwrap(), ["4"]);
    assert!(!fuse::system::is_mounted(&target).unwrap());
}

/// Goal: a terminated daemon removes its socket and releases its lock.
fn a_terminated_daemon_ends_cleanly() {
    let stand = Stand::new();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        stand.import(3).unwrap();
        rustix::process::kill_process(stand.daemon_pid(), signal).unwrap();
        stand.wait_for_the_end();
        assert!(!stand.place().socket().exists());
    }
}

/// Goal: only its owner can use the socket. Another user with access to it may run queries, and
/// nothing else.
fn strangers_are_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let stand = Stand::new();
    stand.import(3).unwrap();
    assert_eq!(std::fs::metadata(stand.place().socket()).unwrap().mode() & 0o777, 0o600);
    let probe = Command::new("setpriv").args(["--reuid=65534", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("no stranger in this test: it takes root and setpriv");
        return;
    }
    for path in [stand.dir.path(), stand.place().dir()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(stand.place().socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let program = stand.dir.path().join("stranger");
    testkit::copy_program(std::env::current_exe().unwrap(), &program);
    let ask = |method: &str| {
        let out = Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups"])
            .args([program.as_os_str(), "ask".as_ref(), stand.place().socket().as_os_str(), method.as_ref()])
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let looked = ask("pool_names");
    assert!(looked.starts_with("HTTP/1.1 200") && looked.ends_with(r#"{"ok":["3"]}"#), "{looked}");
    for method in ["import", "export", "shutdown"] {
        let refused = ask(method);
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("permission"), "{refused}");
    }
    assert!(ask("nonsense").starts_with("HTTP/1.1 404"));
    std::fs::set_permissions(stand.place().dir(), std::fs::Permissions::from_mode(0o700)).unwrap();
}

const BLOCK: u64 = 4096;
/// Blocks of a quarter of the volume.
const BLOCKS: u64 = 512;

/// Writes blocks of quarter `n` of a volume, with a flush now and then, until the daemon ends.
///
/// Keeps the last values sent in `sent`, and those of the last flush in `flushed`. Reports each
/// flush.
fn write_and_flush(
    mut c: Nbd,
    n: usize,
    round: u8,
    flushed: &mut [u8],
    sent: &mut [u8],
    tell: &std::sync::mpsc::Sender<()>,
) {
    for turn in 0.. {
        let at = (turn * 7919 + n) % BLOCKS as usize;
        sent[at] = sent[at].wrapping_add(round) | 1;
        let offset = (n as u64 * BLOCKS + at as u64) * BLOCK;
        let done = c.try_ask(nbd::abi::cmd::WRITE, offset, &[sent[at]; BLOCK as usize]);
        if done.is_err() {
            return;
        }
        if turn % 5 == 4 {
            if c.try_ask(nbd::abi::cmd::FLUSH, 0, b"").is_err() {
                return;
            }
            flushed.copy_from_slice(sent);
            tell.send(()).unwrap();
        }
    }
}

/// Goal: flushed writes survive a kill of the daemon, three times in a row.
///
/// Four clients each write to a quarter of a volume and flush now and then. The next daemon shows
/// all flushed data. A later write may be there, or not. It may also be there in part: its record
/// can lie in two log blocks, of which a crash leaves the first (`zil_lwb_commit`).
fn what_was_flushed_outlives_the_daemon() {
    let mut stand = Stand::new();
    stand.real = true;
    let image = stand.dir.path().join("d0.img");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let leaf = Vdev { kind: "file".into(), path: Some(image.display().to_string()), ..Vdev::default() };
    let layout = Layout { tops: vec![leaf], ..Layout::default() };
    let root_props = vec![("mountpoint".to_owned(), "none".to_owned())];
    let pool = CreatePool { name: "tank".into(), layout, root_props, ..CreatePool::default() };
    stand.client().create_pool(&pool).unwrap();
    let size = (4 * BLOCKS * BLOCK).to_string();
    let made = new_dataset("tank/v", DatasetKind::Volume, ("volsize", &size));
    stand.client().change(&made).unwrap();
    let socket = stand.place().volumes();
    // The last value of each block before a completed flush, and the last value of all.
    let (mut flushed, mut sent) = (vec![0u8; 4 * BLOCKS as usize], vec![0u8; 4 * BLOCKS as usize]);
    for round in 1..=3u8 {
        let pid = stand.daemon_pid();
        let quarters = flushed.chunks_mut(BLOCKS as usize).zip(sent.chunks_mut(BLOCKS as usize));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for (n, (flushed, sent)) in quarters.enumerate() {
                let (c, tell) = (Nbd::of(&socket, "tank/v"), tell.clone());
                scope.spawn(move || write_and_flush(c, n, round, flushed, sent, &tell));
            }
            told.iter().take(400).for_each(drop);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        stand.wait_for_the_end();
        let scan = ScanRequest { paths: vec![image.clone()], ..ScanRequest::default() };
        let guid = stand.client().scan(&scan).unwrap().pools[0].pool.guid;
        let request = ImportRequest { guid, scan, force: true, ..ImportRequest::default() };
        stand.client().import(&request).unwrap();
        let mut c = Nbd::of(&socket, "tank/v");
        for (n, (flushed, sent)) in flushed.iter_mut().zip(&mut sent).enumerate() {
            let block = c.read(n as u64 * BLOCK, BLOCK as u32);
            let torn = block.iter().any(|byte| *byte != block[0]);
            let lost = torn || block[0] != *flushed;
            // A block with later writes may have any of their values.
            assert!(!lost || *sent != *flushed, "round {round}: block {n} lost what was flushed");
            if torn {
                c.write(n as u64 * BLOCK, &vec![block[0]; BLOCK as usize]);
            }
            (*flushed, *sent) = (block[0], block[0]);
        }
        c.flush();
        c.bye();
    }
}

/// Goal: invalid requests get HTTP errors, and the daemon keeps running.
fn nonsense_is_answered() {
    let stand = Stand::new();
    stand.import(3).unwrap();
    let ask = |request: &str| raw(UnixStream::connect(stand.place().socket()).unwrap(), request);
    let head = "Host: x\r\nConnection: close\r\n";
    assert!(ask("\0\0\0\0\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(ask(&format!("GET / HTTP/1.1\r\n{head}\r\n")).starts_with("HTTP/1.1 404"));
    assert!(ask(&format!("DELETE /v1/pool HTTP/1.1\r\n{head}\r\n")).starts_with("HTTP/1.1 400"));
    assert!(ask(&format!("POST /v1/none HTTP/1.1\r\n{head}\r\n")).starts_with("HTTP/1.1 404"));
    let body = format!("POST /v1/import HTTP/1.1\r\n{head}Content-Length: 3\r\n\r\n[1]");
    assert!(ask(&body).starts_with("HTTP/1.1 400"));
    let huge = format!("POST /v1/import HTTP/1.1\r\n{head}Content-Length: 99999999999\r\n\r\n");
    assert!(ask(&huge).starts_with("HTTP/1.1 400"));
    assert_eq!(stand.client().pool_names().unwrap(), ["3"]);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("serve") => {
            assert_eq!(args[2..4], ["--background", "--run-dir"]);
            let place = RunDir::at(Path::new(&args[4]));
            let options = daemon::Options { background: true, ..daemon::Options::at(place) };
            let real = options.place.dir().join("real").exists();
            let service: Arc<dyn DaemonService> =
                if real { server::service::shared(Vec::new()) } else { Arc::new(Numbers::default()) };
            daemon::run(&options, service).unwrap();
        }
        Some("ask") => {
            let stream = UnixStream::connect(&args[2]).unwrap();
            let request = format!("GET /v1/{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", args[3]);
            print!("{}", raw(stream, &request));
        }
        Some("flood") => {
            let request = format!("GET /v1/{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", args[3]);
            limits::flood(Path::new(&args[2]), &request, 1200);
        }
        // A command that starts a daemon.
        Some("import") => {
            let program = std::env::current_exe().unwrap();
            let absent = Box::new(Numbers::default());
            let client = Socket::at(RunDir::at(Path::new(&args[2])), program, absent).client();
            client.import(&ImportRequest { guid: 3, ..ImportRequest::default() }).unwrap();
        }
        _ => {
            let tests: [(&str, fn()); 13] = [
                ("messages_of_strangers_are_bounded", limits::messages_of_strangers_are_bounded),
                ("a_log_that_fails_is_no_end", limits::a_log_that_fails_is_no_end),
                ("nothing_of_the_shell_is_inherited", limits::nothing_of_the_shell_is_inherited),
                ("long_answers_come_in_chunks", limits::long_answers_come_in_chunks),
                ("real_pools_come_and_go", real_pools_come_and_go),
                (
                    "lives_from_the_first_import_to_the_last_export",
                    lives_from_the_first_import_to_the_last_export,
                ),
                ("commands_at_once_share_one_daemon", commands_at_once_share_one_daemon),
                ("a_slow_request_blocks_no_other", a_slow_request_blocks_no_other),
                ("a_killed_daemon_is_cleaned_up_after", a_killed_daemon_is_cleaned_up_after),
                ("a_terminated_daemon_ends_cleanly", a_terminated_daemon_ends_cleanly),
                ("strangers_are_refused", strangers_are_refused),
                ("nonsense_is_answered", nonsense_is_answered),
                ("what_was_flushed_outlives_the_daemon", what_was_flushed_outlives_the_daemon),
            ];
            // The options of the usual test harness that test runners pass.
            let has = |option: &str| args.iter().any(|arg| arg == option);
            if has("--list") {
                let names = tests.iter().filter(|_| !has("--ignored"));
                names.for_each(|(name, _)| println!("{name}: test"));
                return;
            }
            let filter = args.iter().skip(1).find(|word| !word.starts_with('-')).map_or("", String::as_str);
            let is = |name: &str| if has("--exact") { name == filter } else { name.contains(filter) };
            for (name, test) in tests.iter().filter(|(name, _)| is(name)) {
                test();
                println!("test {name} ... ok");
            }
        }
    }
}
