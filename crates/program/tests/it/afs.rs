//! The AFS server of a daemon: partitions of its pools, and calls of clients to them. The cell has
//! no database server that answers.

mod adopt;
mod estimate;
mod export;
mod mounted;
mod top;

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, image, said, stuck};
use afs::calls::fileserver::{Call as FileCall, Reply as FileReply};
use afs::calls::volserver::{Call, Name, Reply, attach};
use afs::errors::rx::RX_RESTARTING;
use afs::errors::volser::VOLSERILLEGAL_PARTITION;
use afs::errors::volume::VNOVOL;
use afs::types::{Fid, Unique, Vnode, VolumeId};
use rx::security::rxkad::{Client as Ticket, Key, Keys, SUPERUSER};
use rx::security::{Class, Level, Null};
use rx::{Connection, Endpoint};
use serde_json::Value;

const VOLUME: VolumeId = VolumeId(536_870_912);
const TIME: Duration = Duration::from_secs(30);
/// aes256-cts-hmac-sha1-96.
const ENCTYPE: i32 = 18;
const KEY: [u8; 32] = [9; 32];
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A daemon, and the configuration of a cell.
struct Stand {
    daemon: Daemon,
    dir: tempfile::TempDir,
    ports: [u16; 2],
}

/// Two ports that are free.
fn free_ports() -> [u16; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind((HERE, 0)).expect("a port"));
    sockets.map(|socket| socket.local_addr().expect("an address").port())
}

/// The bytes of a `KeyFileExt` with one key.
fn key_file() -> Vec<u8> {
    let words = [1, 16, 2, 1, ENCTYPE as u32, KEY.len() as u32];
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    bytes.extend(KEY);
    bytes
}

/// The configuration of a cell whose only database server does not exist.
fn configure(config: &Path) {
    fs::create_dir(config).expect("a folder");
    fs::write(config.join("ThisCell"), "made.test\n").expect("a file");
    fs::write(config.join("CellServDB"), ">made.test #made up\n127.0.0.9 #nobody\n").expect("a file");
    fs::write(config.join("KeyFileExt"), key_file()).expect("a file");
}

impl Stand {
    fn new() -> Self {
        Self::with(&[])
    }

    /// With more words on the daemon's command line.
    fn with(words: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = Daemon::start_with(dir.path(), words).expect("the daemon ended");
        let at = dir.path().display();
        fs::create_dir(dir.path().join("dev")).expect("a folder");
        image(&dir.path().join("dev/d0"));
        daemon.good(&format!("zpool create -m none tank {at}/dev/d0"));
        configure(&dir.path().join("cell"));
        Self { daemon, dir, ports: free_ports() }
    }

    fn enable(&self) -> String {
        self.enable_as("a")
    }

    fn enable_as(&self, letters: &str) -> String {
        self.daemon.good(&self.line_to_enable(letters))
    }

    /// Has the partition refused. Returns why.
    fn try_enable(&self) -> String {
        self.bad(&self.line_to_enable("a"))
    }

    fn line_to_enable(&self, letters: &str) -> String {
        let (at, [files, volumes]) = (self.dir.path().display(), self.ports);
        format!(
            "afs enable --create --partition {letters} --config {at}/cell --address {HERE} --port {files} \
             --volume-port {volumes} tank/vicepa"
        )
    }

    /// Imports the pool again.
    fn import(&self) {
        self.daemon.good(&format!("zpool import -d {}/dev tank", self.dir.path().display()));
    }

    fn export_and_import(&self) {
        self.daemon.good("zpool export tank");
        self.import();
    }

    /// Makes the file system of an encrypted partition. Returns the file with its passphrase.
    fn encrypt(&self) -> PathBuf {
        let key = self.dir.path().join("key");
        fs::write(&key, "a passphrase\n").expect("a file");
        self.daemon.good(&format!(
            "zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{} -o canmount=off \
             tank/vicepa",
            key.display()
        ));
        key
    }

    /// Runs a command that must fail. Returns what it says.
    fn bad(&self, line: &str) -> String {
        let ran = self.daemon.ran(line);
        assert_eq!(ran.status.code(), Some(1), "{line}: {}", said(&ran));
        said(&ran)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.daemon.good(line)).expect("JSON")
    }

    /// Mounts a volume that is not served, where mounting is possible.
    fn mounted_read_only(&self, volume: &str) {
        let at = self.dir.path().join("mnt");
        self.daemon.good(&format!("zfs set mountpoint={} {volume}", at.display()));
        let mounted = self.daemon.ran(&format!("zfs mount {volume}"));
        if !mounted.status.success() {
            eprintln!("nothing can be mounted here: {}", said(&mounted));
            return;
        }
        let written = fs::write(at.join("file"), "x").expect_err("a volume is read-only");
        assert_eq!(written.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let why = self.bad("afs enable --partition a tank/vicepa");
        assert!(why.contains(&format!("zfs unmount {volume}")), "{why}");
        self.daemon.good(&format!("zfs unmount {volume}"));
    }

    fn connect(&self, service: u16, class: &dyn Class) -> (Endpoint, Connection) {
        let endpoint = Endpoint::bind(SocketAddrV4::new(HERE, 0), rx::Options::default());
        let endpoint = endpoint.expect("an endpoint");
        let port = self.ports[usize::from(service == 4)];
        let connection = endpoint.connect(SocketAddrV4::new(HERE, port), service, class);
        (endpoint, connection.expect("a connection"))
    }

    /// A call of an administrator's program with the cell's key.
    fn operate(&self, call: &Call) -> Result<Reply, rx::Error> {
        let bytes = self.operate_raw(call, &[])?;
        Ok(Reply::decode(call.opcode(), &bytes).expect("a reply"))
    }

    /// The bytes that answer such a call, which is followed by data.
    fn operate_raw(&self, call: &Call, data: &[u8]) -> Result<Vec<u8>, rx::Error> {
        let keys = Arc::new(Keys::fixed(vec![Key::new(1, ENCTYPE, &KEY)]));
        let class = Ticket::local(&keys, SUPERUSER, Level::Clear).expect("a ticket");
        let (_endpoint, connection) = self.connect(4, &class);
        connection.call([&call.request(), data].concat(), TIME)
    }

    /// Makes a volume, as `vos create` does.
    fn create(&self) {
        let name = Name::new("made").expect("a name");
        let call = Call::CreateVolume { partition: 0, name, kind: 0, parent: VolumeId(0), volume: VOLUME };
        let Ok(Reply::CreateVolume(made)) = self.operate(&call) else { panic!("no volume is made") };
        let transaction = made.transaction;
        self.operate(&Call::SetFlags { transaction, flags: 0 }).expect("it is set");
        self.operate(&Call::EndTrans { transaction }).expect("it ends");
    }

    /// The code for the root directory of a volume that is not here.
    fn code_of(&self, volume: VolumeId) -> i32 {
        match self.status_of(volume) {
            Err(rx::Error::Aborted { code }) => code,
            other => panic!("{other:?}"),
        }
    }

    /// The status of the volume's root directory, by an anonymous client.
    fn status(&self) -> Result<FileReply, rx::Error> {
        self.status_of(VOLUME)
    }

    fn status_of(&self, volume: VolumeId) -> Result<FileReply, rx::Error> {
        let (_endpoint, connection) = self.connect(1, &Null);
        let call = FileCall::FetchStatus { fid: Fid { volume, vnode: Vnode(1), unique: Unique(1) } };
        let bytes = connection.call(call.request(), TIME)?;
        Ok(FileReply::decode(call.opcode(), &bytes).expect("a reply"))
    }
}

/// Goal: without any database server, a daemon serves anonymous clients and the cell's own key. It
/// says what it serves, and serves it again after a restart and after a crash.
#[test]
fn served_without_databases() {
    let mut stand = Stand::new();
    assert_eq!(stand.enable(), "tank/vicepa is served as /vicepa\n");
    stand.create();
    stand.status().expect("an anonymous client is served");
    let status = stand.json("afs status -j");
    let (server, partition) = (&status["server"], &status["partitions"]["tank/vicepa"]);
    assert_eq!((&server["cell"], &server["keys"][0]), (&"made.test".into(), &"1".into()));
    assert_eq!((&partition["served"], &partition["volumes"]), (&true.into(), &1.into()), "{status}");
    // The registration is attempted by a thread of its own.
    assert_eq!(
        (&server["registered"], &server["files"]),
        (&false.into(), &format!("127.0.0.1:{}", stand.ports[0]).into())
    );
    let volumes = stand.json("afs volumes -j");
    let volume = &volumes["volumes"][VOLUME.0.to_string()];
    assert_eq!((&volume["name"], &volume["state"]), (&"made".into(), &"online".into()), "{volumes}");
    let clients = stand.json("afs clients -j");
    assert_eq!(clients["clients"].as_object().map(serde_json::Map::len), Some(1), "{clients}");
    assert_eq!(stand.daemon.good("afs locks -H"), "");
    stand.daemon.signal("TERM");
    assert!(stand.daemon.ended().success());
    assert!(stand.status().is_err());
    for end in ["KILL", "TERM"] {
        stand.daemon = Daemon::start(stand.dir.path());
        stand.import();
        stand.status().expect("it is served again");
        stand.daemon.signal(end);
        stand.daemon.ended();
    }
}

/// Goal: the report has the space that 'zfs get' shows, by number and by name, and a total.
#[test]
fn report() {
    let stand = Stand::new();
    stand.enable();
    stand.create();
    stand.daemon.good("zpool sync tank");
    let dataset = format!("tank/vicepa/{}", VOLUME.0);
    let names = "refcompressratio,logicalreferenced,referenced,used,logicalused";
    let want = stand.daemon.good(&format!("zfs get -Hp -o value {names} {dataset}"));
    let want: Vec<&str> = want.lines().collect();
    for line in [
        "afs report -Hp".to_owned(),
        format!("afs report -Hp {}", VOLUME.0),
        "afs report -Hp made".to_owned(),
    ] {
        let told = stand.daemon.good(&line);
        let cells: Vec<&str> = told.trim_end().split('\t').collect();
        assert_eq!(cells[1..3], ["made", "RW"], "{line}: {told}");
        assert_eq!(cells[4..9], [want[1], want[2], want[3], want[0], &dataset], "{line}: {told}");
    }
    let shown = stand.json("afs report -j");
    let (volume, total) = (&shown["volumes"][VOLUME.0.to_string()], &shown["total"]);
    assert_eq!((&volume["name"], &volume["type"]), (&"made".into(), &"RW".into()), "{shown}");
    assert_eq!(total["logicalused"].to_string(), want[4], "{shown}");
    assert_eq!((&total["volumes"], &total["used"]), (&1.into(), &volume["used"]), "{shown}");
    let why = stand.bad("afs report nope");
    assert!(why.contains("cannot report on 'nope': no volume has this number or name"), "{why}");
}

/// Goal: an export waits for no client, and names the transaction that is in its way. Then the
/// partition is served as before.
#[test]
fn exports_and_transactions() {
    let stand = Stand::new();
    stand.enable();
    stand.create();
    // The pool's GUID may change: its partitions stay its own.
    stand.daemon.good("zpool reguid tank");
    let call = Call::TransCreate { volume: VOLUME, partition: 0, flags: attach::OFFLINE };
    let Ok(Reply::TransCreate(transaction)) = stand.operate(&call) else { panic!("no transaction") };
    let way_out = format!("vos endtrans -server HOST -transaction {transaction}");
    for line in ["zpool export tank", "zpool export -f tank", "zpool destroy tank", "afs disable tank/vicepa"]
    {
        let why = stand.bad(line);
        assert!(why.contains(&format!("volume {VOLUME} is in transaction {transaction}")), "{line}: {why}");
        assert!(why.contains(&way_out), "{line}: {why}");
    }
    let listed = stand.daemon.good("afs volumes -H");
    assert!(listed.contains("\ttransaction\t"), "{listed}");
    stand.operate(&Call::EndTrans { transaction }).expect("it ends");
    stand.status().expect("it is served still");
    stand.daemon.good("zpool export tank");
    assert!(stand.status().is_err());
    stand.import();
    stand.status().expect("it is served again");
    // By force, transactions end too.
    assert!(stand.operate(&call).is_ok());
    stand.daemon.good("afs disable -f tank/vicepa");
    stand.daemon.good("zpool export tank");
    stand.import();
    let none = "no partitions; 'poolhouse afs enable' makes a file system one\n";
    assert_eq!(stand.daemon.good("afs status"), none);
}

/// Goal: the volumes of an encrypted partition are encrypted. They are served while the key is
/// loaded, and the status says what is missing. Meanwhile clients and `vos` wait for them, and for
/// no others.
#[test]
fn encrypted_partition() {
    let stand = Stand::new();
    stand.encrypt();
    stand.enable();
    stand.create();
    stand.status().expect("it is served");
    let encryption = stand.daemon.good(&format!("zfs get -H -o value encryption tank/vicepa/{VOLUME}"));
    assert_eq!(encryption, "aes-256-gcm\n");
    let refused = stand.daemon.ran("zfs unload-key tank/vicepa");
    assert!(!refused.status.success() && said(&refused).contains("AFS serves"), "{}", said(&refused));
    stand.daemon.good("afs enable --create --partition b tank/vicepb");
    stand.export_and_import();
    assert_eq!(stand.code_of(VOLUME), RX_RESTARTING);
    assert_eq!(stand.code_of(VolumeId(VOLUME.0 + 1)), VNOVOL);
    for (partition, code) in [(0, RX_RESTARTING), (2, VOLSERILLEGAL_PARTITION)] {
        match stand.operate(&Call::ListOneVolume { partition, volume: VOLUME }) {
            Err(rx::Error::Aborted { code: found }) => assert_eq!(found, code),
            other => panic!("{other:?}"),
        }
    }
    let partition = &stand.json("afs status -j")["partitions"]["tank/vicepa"];
    assert_eq!(partition["served"], false, "{partition}");
    assert!(partition["problem"].to_string().contains("key"), "{partition}");
    let why = stand.bad("afs enable --partition a tank/vicepa");
    assert!(why.contains("key not loaded"), "{why}");
    assert_eq!(stand.code_of(VOLUME), RX_RESTARTING);
    stand.daemon.good("zfs load-key tank/vicepa");
    stand.status().expect("it is served again");
    stand.daemon.good("zpool export tank");
    stand.daemon.good(&format!("zpool import -l -d {}/dev tank", stand.dir.path().display()));
    stand.status().expect("it is served again");
    stand.export_and_import();
    assert_eq!(stand.code_of(VOLUME), RX_RESTARTING);
    stand.daemon.good("zfs rename tank/vicepa tank/moved");
    assert_eq!(stand.json("afs status -j")["partitions"]["tank/moved"]["served"], false);
    assert_eq!(stand.code_of(VOLUME), RX_RESTARTING);
    stand.daemon.good("zfs destroy -r tank/moved");
    assert_eq!(stand.code_of(VOLUME), VNOVOL);
}

/// Goal: a command that loads the key of a partition for itself does not serve it, and its end does
/// not take the key from a partition that is served since.
#[test]
fn key_of_a_command() {
    let stand = Stand::new();
    let key = stand.encrypt();
    let names = stand.dir.path().join("names");
    fs::create_dir(&names).expect("a folder");
    for number in 0..1500 {
        fs::write(names.join(format!("{number:04}{}", "x".repeat(150))), "").expect("a file");
    }
    stand.daemon.good("zfs create tank/vicepa/names");
    stand.daemon.good(&format!("cp -r {} tank/vicepa/names:/", names.display()));
    stand.enable();
    stand.create();
    let line = format!("ls -k tank/vicepa={} tank/vicepa/names:/names", key.display());
    for serve in ["zfs load-key tank/vicepa".to_owned(), stand.line_to_enable("a")] {
        stand.export_and_import();
        let reader = stuck(stand.dir.path(), &line);
        stand.status().expect_err("the key is the command's");
        stand.daemon.good(&serve);
        stand.status().expect("it is served");
        let listed = reader.wait_with_output().expect("its output");
        assert!(listed.status.success() && listed.stdout.len() > 1500 * 150);
        stand.daemon.good("afs disable tank/vicepa");
        // The daemon notices the end of the command a moment later.
        let since = Instant::now();
        let unloaded = loop {
            let unloaded = stand.daemon.ran("zfs unload-key tank/vicepa");
            if !said(&unloaded).contains("in use by") || since.elapsed() > TIME {
                break unloaded;
            }
        };
        assert!(unloaded.status.success(), "{serve}: {}", said(&unloaded));
    }
}

/// Goal: what the server has is not mounted, moved or destroyed beside it, and errors name what to
/// do.
#[test]
fn what_is_served_stays() {
    let stand = Stand::new();
    stand.enable();
    stand.create();
    let volume = format!("tank/vicepa/{VOLUME}");
    for line in [
        "zfs mount tank/vicepa".to_owned(),
        format!("zfs destroy {volume}"),
        format!("zfs rename {volume} tank/other"),
        format!("ls {volume}:"),
        "zfs destroy -r tank/vicepa".to_owned(),
        "zfs rename tank/vicepa tank/other".to_owned(),
    ] {
        let why = stand.bad(&line);
        assert!(
            why.contains("AFS serves") && why.contains("poolhouse afs disable tank/vicepa"),
            "{line}: {why}"
        );
    }
    stand.daemon.good("zfs mount -a");
    stand.daemon.good(&format!("zfs snapshot {volume}@daily"));
    // What would pass for a volume.
    stand.daemon.good("zfs create -o mountpoint=none tank/other");
    for line in [
        "zfs create tank/vicepa/7".to_owned(),
        format!("zfs create {volume}/below"),
        format!("zfs clone {volume}@daily tank/vicepa/7"),
        "zfs rename tank/other tank/vicepa/7".to_owned(),
    ] {
        let why = stand.bad(&line);
        assert!(why.contains("vos create"), "{line}: {why}");
    }
    stand.daemon.good("zfs destroy tank/other");
    stand.daemon.good(&format!("ls {volume}@daily:"));
    // A promoted clone would take the volume's clones along.
    stand.daemon.good(&format!("zfs clone -o canmount=off {volume}@daily tank/copy"));
    let why = stand.bad("zfs promote tank/copy");
    assert!(why.contains("poolhouse afs disable tank/vicepa"), "{why}");
    stand.daemon.good("zfs destroy tank/copy");
    stand.daemon.good(&format!("zfs destroy {volume}@daily"));
    stand.status().expect("it is served still");
    stand.daemon.good("afs disable tank/vicepa");
    stand.daemon.good(&format!("ls {volume}:"));
    stand.mounted_read_only(&volume);
    stand.daemon.good(&format!("zfs destroy {volume}"));
    stand.enable_as("b");
    match stand.status() {
        Err(rx::Error::Aborted { code: VNOVOL }) => {}
        other => panic!("{other:?}"),
    }
}

/// Goal: a configuration that is missing or wrong is named with its file and what to do. It never
/// fails an import, which then serves nothing and says why.
#[test]
fn wrong_configurations() {
    let stand = Stand::new();
    let cell = stand.dir.path().join("cell");
    let at = stand.dir.path().display();
    let enable = format!("afs enable --create --partition a --config {at}/cell tank/vicepa");
    let file = |name: &str| cell.join(name).display().to_string();
    let before = stand.daemon.good("zfs get -H -o source canmount,poolhouse:afs tank");
    for (name, wrong, advice) in [
        ("KeyFileExt", None, "asetkey"),
        ("KeyFileExt", Some(&b"\0\0\0\0"[..]), "asetkey"),
        ("KeyFileExt", Some(&b"\0\0\0\x01\0"[..]), "asetkey"),
        ("ThisCell", None, "--config"),
        ("ThisCell", Some(b"other.test\n"), "add the cell"),
        ("CellServDB", Some(b">made.test\n10.0.0.1 nobody\n"), "line 2"),
        ("CellServDB", Some(b">made.test\n"), "database server"),
    ] {
        let right = fs::read(cell.join(name)).expect("a file");
        match wrong {
            Some(bytes) => fs::write(cell.join(name), bytes).expect("a file"),
            None => fs::remove_file(cell.join(name)).expect("a file"),
        }
        let why = stand.bad(&enable);
        assert!(why.contains(&cell.display().to_string()) && why.contains(advice), "{name}: {why}");
        assert!(stand.bad("zfs list tank/vicepa").contains("does not exist"), "{name}");
        stand.bad(&format!("afs enable --partition a --config {at}/cell tank"));
        let properties = stand.daemon.good("zfs get -H -o source canmount,poolhouse:afs tank");
        assert_eq!(properties, before, "{name}");
        fs::write(cell.join(name), right).expect("a file");
    }
    stand.enable();
    stand.create();
    stand.daemon.good("zpool export tank");
    fs::remove_file(cell.join("KeyFileExt")).expect("a file");
    stand.import();
    let status = stand.json("afs status -j");
    let problem = status["partitions"]["tank/vicepa"]["problem"].as_str().expect("a problem").to_owned();
    assert!(problem.contains(&file("KeyFileExt")) && status["server"].is_null(), "{status}");
    assert!(stand.daemon.good("afs status").contains("/vicepa    failed"), "{problem}");
    fs::write(cell.join("KeyFileExt"), key_file()).expect("a file");
    stand.daemon.good("afs enable tank/vicepa");
    stand.status().expect("it is served again");
}

/// Goal: options out of their ranges are refused with the range, before anything is changed.
#[test]
fn wrong_options() {
    let stand = Stand::new();
    let usage = |line: &str| {
        let ran = stand.daemon.ran(line);
        assert_eq!(ran.status.code(), Some(2), "{line}: {}", said(&ran));
        said(&ran)
    };
    for (line, why) in [
        ("afs", "missing verb\n"),
        (
            "afs nope",
            "unknown verb 'nope': enable, disable, status, volumes, report, clients, locks, export, adopt\n",
        ),
        ("afs enable", "missing file system argument\n"),
        ("afs enable --port 0 tank", "invalid value '0' of option '--port': choose 1 to 65535\n"),
        (
            "afs enable --volume-port 65536 x",
            "invalid value '65536' of option '--volume-port': choose 1 to 65535\n",
        ),
        ("afs enable --nope tank", "invalid option '--nope'\n"),
        ("afs volumes x", "'x' is no volume: give its number\n"),
        ("afs clients 7", "too many arguments\n"),
        (
            "afs report -s size",
            "invalid column 'size': choose id, name, type, files, logical, refer, used, ratio\n",
        ),
    ] {
        let told = usage(line);
        assert!(told.starts_with(why) && told.contains("usage: poolhouse afs enable"), "{line}: {told}");
    }
    for (line, why) in [
        ("afs enable tank/x", "dataset does not exist"),
        ("afs enable --create tank/x", "--partition is missing: choose a to z, or aa to iv"),
        (
            "afs enable --create --partition iw tank/x",
            "--partition is 'iw', which is no partition: choose a to z, or aa to iv",
        ),
        (
            "afs enable --create --partition a --address host tank/x",
            "--address is 'host', which is no IPv4 address",
        ),
        ("afs enable --create --partition a --port 7005 tank/x", "both services can't have port 7005"),
        ("afs disable tank", "not a partition of AFS"),
    ] {
        let told = stand.bad(line);
        assert!(told.contains(why), "{line}: {told}");
    }
    assert!(stand.bad("zfs list tank/x").contains("does not exist"));
}
