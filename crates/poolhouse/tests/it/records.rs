//! Log records of kinds that this implementation never writes. The tests put them into a log, as
//! ports of other systems would, and replay them.

use poolhouse::dsl::ops::create::Create as CreateDataset;
use poolhouse::ondisk::acl::Who;
use poolhouse::ondisk::zil::{AclLog, Create, FileId, RecordBody, Setattr, TxKind, Write, Xvattr};
use poolhouse::ondisk::{BlkId, Blkptr, Level, ObjNum, Txg};
use poolhouse::spa::create::VdevShape;
use poolhouse::spa::engine::LogHandle;
use poolhouse::zil::{Bytes, Missing, Source};
use poolhouse::zpl::{FileType, NewFileSystem, Pflags};
use poolhouse::{OpenOptions, Pool, dmu};
use std::path::Path;
use std::sync::Arc;

/// A source without data: all records carry their data.
struct Nothing;

impl Source for Nothing {
    fn data(&self, _: ObjNum, _: u64, _: usize) -> Result<Bytes, Missing> {
        Err(Missing::Unreadable)
    }
}

const FS: &str = "tank/fs";
/// Bytes of a block.
const BLOCK: usize = 128 << 10;
/// Objects that the records create.
const FILE: u64 = 200;
const DIR: u64 = 201;
const HIDDEN: u64 = 202;
const ATTRIBUTE: u64 = 203;
const PLAIN: u64 = 204;

fn new(object: u64, doid: u64, mode: u64, name: &[u8]) -> Create {
    Create {
        doid,
        foid: FileId { object, slots: 1 },
        mode,
        uid: 1000,
        gid: 100,
        gen_: 77,
        crtime: [1_600_000_000, 5],
        rdev: 0,
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: name.to_vec(),
        link: None,
    }
}

/// The entries of an ACL: who, mask, flags, kind.
fn acl(entries: &[(u32, u32, u16, u16)]) -> AclLog {
    let raw = |e: &(u32, u32, u16, u16)| {
        let (who, mask) = (e.0.to_le_bytes(), e.1.to_le_bytes());
        [&who[..], &mask, &e.2.to_le_bytes(), &e.3.to_le_bytes()].concat()
    };
    let aces = entries.iter().flat_map(raw).collect();
    AclLog { count: entries.len() as u64, flags: 0, aces, fuids: Vec::new(), domains: Vec::new() }
}

fn xvattr(wanted: u32, attrs: u64) -> Xvattr {
    Xvattr { bitmap: vec![wanted, 0, 0], attrs, crtime: [1_500_000_000, 7], scanstamp: [0; 32] }
}

fn write(foid: u64, offset: u64, data: &[u8]) -> RecordBody {
    RecordBody::Write(Write { foid, offset, length: data.len() as u64, blkptr: None, data: data.to_vec() })
}

const READ: u32 = 0x1;
const WRITE: u32 = 0x2 | 0x4;
const EXECUTE: u32 = 0x20;
const OWNER: u16 = 0x1000;
const GROUP: u16 = 0x2040;
const EVERYONE: u16 = 0x4000;

fn records(root: u64) -> Vec<(TxKind, RecordBody)> {
    let allow = [(0, READ | WRITE, OWNER, 0), (1001, READ, 0, 0), (0, READ, GROUP, 0), (0, 0, EVERYONE, 0)];
    let file = Create { acl: Some(acl(&allow)), ..new(FILE, root, 0o100_640, b"file") };
    let dir = Create { xvattr: Some(xvattr(0x101, 0x100)), ..new(DIR, root, 0o040_755, b"dir") };
    let deny = [(0, WRITE, EVERYONE, 1), (0, READ | WRITE | EXECUTE, EVERYONE, 0)];
    let written = Write { foid: PLAIN, offset: 100, length: 400, blkptr: None, data: Vec::new() };
    let attrs = Setattr {
        foid: PLAIN,
        mask: 1 | 1 << 5 | 1 << 31,
        mode: 0o100_604,
        uid: 0,
        gid: 0,
        size: 0,
        atime: [0, 0],
        mtime: [1_400_000_000, 9],
        xvattr: Some(xvattr(0x100, 0x100)),
        domains: Vec::new(),
    };
    vec![
        (TxKind::CreateAcl, RecordBody::Create(file)),
        (TxKind::MkdirAttr, RecordBody::Create(dir)),
        (TxKind::Create, RecordBody::Create(new(PLAIN, DIR, 0o100_644, b"plain"))),
        (TxKind::Write, write(PLAIN, 0, &[7; 300])),
        (TxKind::Write2, RecordBody::Write(written)),
        (TxKind::Mkxattr, RecordBody::Create(new(HIDDEN, PLAIN, 0o041_777, b""))),
        (TxKind::Create, RecordBody::Create(new(ATTRIBUTE, HIDDEN, 0o100_644, b"user.note"))),
        (TxKind::Write, write(ATTRIBUTE, 0, b"attributed")),
        (TxKind::Setattr, RecordBody::Setattr(attrs)),
        (TxKind::Truncate, RecordBody::Truncate { foid: PLAIN, offset: 600, length: 100 }),
        (TxKind::Acl, RecordBody::Acl { foid: DIR, acl: acl(&deny) }),
        (TxKind::AclV0, RecordBody::Acl { foid: PLAIN, acl: acl(&allow) }),
        // A write to an object that does not exist, as a record may follow the removal of its file.
        (TxKind::Write, write(9999, 0, b"nobody")),
    ]
}

fn log_all(log: &LogHandle, tx: &dmu::Tx, records: &[(TxKind, RecordBody)]) {
    records.iter().for_each(|(kind, body)| log.log_names(tx, *kind, false, body));
    log.commit(None, &Nothing).unwrap();
}

/// The images of a pool with these records in its log. None of them has taken effect.
fn crashed(records: &dyn Fn(u64) -> Vec<(TxKind, RecordBody)>) -> tempfile::TempDir {
    crashed_with(&|root, _| records(root))
}

/// As `crashed`, with a block full of noise that the records can name.
fn crashed_with(records: &dyn Fn(u64, Blkptr) -> Vec<(TxKind, RecordBody)>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 128 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
    let live = pool.spa().writer().unwrap();
    let contents = Arc::new(NewFileSystem::new((1_000_000, 0)));
    let (name, props) = (FS.to_owned(), Vec::new());
    live.run(Box::new(CreateDataset { name, contents, props, crypt: None, enforce_limits: false })).unwrap();
    let owned = testpools::own(live, FS);
    let log = live.logs().open(&owned);
    // The first commit waits for its txg to sync, and begins a chain.
    log_all(&log, &live.tx(0).unwrap(), &[]);
    log_all_alone(&log, live);
    let noise = testpools::write_file(live, &owned, &testpools::noise(1, BLOCK)).unwrap();
    live.sync_all().unwrap();
    let block = owned.objset().dnode(noise).unwrap().bp(Level(0), BlkId(0)).unwrap();
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    let root = pool.dataset(FS).unwrap().filesystem().unwrap().root().0;
    log_all(&log, &hold, &records(root, block));
    let to = tempfile::tempdir().unwrap();
    let done =
        std::process::Command::new("cp").arg("--sparse=always").arg(&images[0]).arg(to.path()).status();
    assert!(done.unwrap().success());
    to
}

/// Logs a record that changes nothing, in its own transaction group.
fn log_all_alone(log: &LogHandle, live: &poolhouse::spa::engine::PoolWriter) {
    let tx = live.tx(0).unwrap();
    let nothing =
        RecordBody::Write(Write { foid: 9999, offset: 0, length: 8, blkptr: None, data: vec![0; 8] });
    log.log_names(&tx, TxKind::Write, false, &nothing);
    drop(tx);
    log.commit(None, &Nothing).unwrap();
}

fn import(dir: &Path) -> Pool {
    let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    Pool::open(&[dir], &options).unwrap()
}

/// Goal: replay applies these records as OpenZFS would: ACLs and optional attributes, hidden
/// directories, and writes whose block came otherwise.
#[test]
fn rare_kinds() {
    let dir = crashed(&records);
    if let Some(keep) = std::env::var_os("KEEP") {
        std::process::Command::new("cp").arg("-r").arg(dir.path()).arg(keep).status().unwrap();
    }
    let pool = import(dir.path());
    let dataset = pool.dataset(FS).unwrap();
    let done = pool.replay(dataset.dsl()).unwrap().unwrap();
    assert!(done.ended.is_none(), "{:?}", done.ended);
    assert_eq!(done.records, records(0).len() as u64);
    drop(dataset);
    let dataset = pool.dataset(FS).unwrap();
    let fs = dataset.filesystem().unwrap();
    let at = |path: &str| fs.resolve_link(path.as_bytes()).unwrap();

    let file = at("file");
    let a = file.attr();
    assert_eq!((a.object, a.generation, a.mode, a.uid.0, a.gid.0), (ObjNum(FILE), 77, 0o100_640, 1000, 100));
    assert_eq!((a.crtime.secs, a.mtime.secs), (1_600_000_000, 1_600_000_000));
    let acl = file.acl().unwrap();
    let who: Vec<Who> = acl.aces.iter().map(|e| e.who).collect();
    assert_eq!(who, [Who::Owner, Who::User(1001), Who::OwningGroup, Who::Everyone]);
    assert!(!acl.trivial);

    let sub = at("dir");
    let a = sub.attr();
    assert_eq!((a.kind, a.crtime.secs, a.mode & 0o777), (FileType::Directory, 1_500_000_000, 0o555));
    assert!(a.pflags.has(Pflags::NODUMP));

    let plain = at("dir/plain");
    let a = plain.attr();
    assert_eq!((a.size, a.mode & 0o777), (700, 0o640));
    assert!(a.pflags.has(Pflags::NODUMP));
    let mut bytes = vec![1; 700];
    assert_eq!(plain.read(0, &mut bytes).unwrap(), 700);
    assert!(bytes[..300].iter().all(|b| *b == 7) && bytes[300..].iter().all(|b| *b == 0));
    assert_eq!(plain.xattrs().unwrap()[&b"user.note"[..]], b"attributed");
    assert_eq!(a.xattr_dir, Some(ObjNum(HIDDEN)));
    drop((file, sub, plain, fs, dataset));
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir.path(), "tank");
    if let Some(keep) = std::env::var_os("KEEP") {
        let keep = Path::new(&keep).with_extension("replayed");
        std::process::Command::new("cp").arg("-r").arg(dir.path()).arg(keep).status().unwrap();
    }
}

/// Goal: records with owners of domains that the file system does not know don't end a replay. The
/// owner becomes `nobody`, as in OpenZFS on Linux.
#[test]
fn owners_of_domains() {
    const OF_DOMAIN: u64 = 1 << 32 | 500;
    let dir = crashed(&|root| {
        let domains = vec![b"S-1-5-21-1".to_vec()];
        let file = Create { uid: OF_DOMAIN, domains: domains.clone(), ..new(FILE, root, 0o100_640, b"file") };
        let chown = Setattr {
            foid: PLAIN,
            mask: 1 << 2,
            mode: 0,
            uid: 0,
            gid: OF_DOMAIN,
            size: 0,
            atime: [0, 0],
            mtime: [0, 0],
            xvattr: None,
            domains,
        };
        vec![
            (TxKind::Create, RecordBody::Create(file)),
            (TxKind::Create, RecordBody::Create(new(PLAIN, root, 0o100_644, b"plain"))),
            (TxKind::Setattr, RecordBody::Setattr(chown)),
        ]
    });
    let pool = import(dir.path());
    let dataset = pool.dataset(FS).unwrap();
    let done = pool.replay(dataset.dsl()).unwrap().unwrap();
    assert!(done.ended.is_none(), "{:?}", done.ended);
    drop(dataset);
    let fs = pool.dataset(FS).unwrap().filesystem().unwrap();
    let owners = |name: &str| {
        let a = *fs.resolve_link(name.as_bytes()).unwrap().attr();
        (a.uid.0, a.gid.0)
    };
    assert_eq!(owners("file"), (u32::MAX.into(), 100));
    assert_eq!(owners("plain"), (1000, u32::MAX.into()));
}

/// Goal: a named block may hold bytes of an uncommitted write after the end of its file. When the
/// file grows, these read as zeros.
///
/// A record that says that they are the file's keeps them.
#[test]
fn behind_the_end() {
    let dir = crashed_with(&|root, block| {
        let write = |foid, offset, length, blkptr| {
            RecordBody::Write(Write { foid, offset, length, blkptr, data: Vec::new() })
        };
        vec![
            (TxKind::Create, RecordBody::Create(new(PLAIN, root, 0o100_644, b"plain"))),
            (TxKind::Write, write(PLAIN, 100, 1000, Some(block))),
            (TxKind::Truncate, RecordBody::Truncate { foid: PLAIN, offset: 5000, length: 0 }),
            (TxKind::Create, RecordBody::Create(new(FILE, root, 0o100_644, b"file"))),
            (TxKind::Write, write(FILE, 0, 1000, Some(block))),
            (TxKind::Write2, write(FILE, 1000, 2000, None)),
        ]
    });
    let pool = import(dir.path());
    let done = pool.replay(pool.dataset(FS).unwrap().dsl()).unwrap().unwrap();
    assert!(done.ended.is_none(), "{:?}", done.ended);
    let fs = pool.dataset(FS).unwrap().filesystem().unwrap();
    let contents = |name: &str, size: usize| {
        let node = fs.resolve_link(name.as_bytes()).unwrap();
        let mut bytes = vec![1; size];
        assert_eq!((node.attr().size, node.read(0, &mut bytes).unwrap()), (size as u64, size));
        bytes
    };
    let (noise, plain) = (testpools::noise(1, BLOCK), contents("plain", 5000));
    assert!(plain[..1100] == noise[..1100] && plain[1100..].iter().all(|b| *b == 0));
    assert!(contents("file", 3000) == noise[..3000]);
}

/// Goal: an impossible record ends a replay, which reports it. The records before it are applied,
/// and the log is gone.
#[test]
fn ends_at_what_cannot_be() {
    let dir = crashed(&|root| {
        let mut all = records(root);
        all.truncate(4);
        all.insert(3, (TxKind::Create, RecordBody::Create(new(300, DIR, 0o100_644, b"plain"))));
        all
    });
    let pool = import(dir.path());
    let dataset = pool.dataset(FS).unwrap();
    let done = pool.replay(dataset.dsl()).unwrap().unwrap();
    assert_eq!(done.records, 3);
    assert!(done.ended.unwrap().to_string().contains("TX_CREATE"));
    drop(dataset);
    let dataset = pool.dataset(FS).unwrap();
    let fs = dataset.filesystem().unwrap();
    assert_eq!(fs.resolve_link(b"dir/plain").unwrap().attr().size, 0);
    assert!(pool.replay(dataset.dsl()).unwrap().is_none());
    drop((fs, dataset));
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir.path(), "tank");
}
