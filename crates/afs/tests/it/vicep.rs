//! Volumes that OpenAFS's servers wrote on a partition, and damage to them.
//!
//! `tests/data/openafs-vicep.tar.zst` has the partition of OpenAFS's file server 1.8.9 after it was
//! stopped, and dumps of the same volumes that its volume server had made before.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use afs::dump::{Event, Reader};
use afs::types::{VnodeType, VolumeId, VolumeType};
use afs::vicep::{Damage, DumpError, Error, Obstacle, Part, Partition, Volume};
use tempfile::TempDir;

const WORK: VolumeId = VolumeId(536_870_917);
const MADE: VolumeId = VolumeId(536_870_913);
/// Where `work` has its special files, and the names of three of them.
const SPECIAL: &str = "AFSIDat/3/3+++U/special";
const INFO: &str = "zzzz5I++++0";
const SMALL: &str = "zzzz9I++++0";
const LARGE: &str = "zzzzDI++++0";

/// A private copy of the partition.
struct Rig {
    dir: TempDir,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/openafs-vicep.tar.zst");
        testkit::unpacked(&archive, dir.path());
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("vicepa").join(name)
    }

    fn special(&self, name: &str) -> PathBuf {
        self.path(&format!("{SPECIAL}/{name}"))
    }

    fn partition(&self) -> Partition {
        Partition::open(&self.path("")).unwrap()
    }

    fn open(&self, id: VolumeId) -> Result<Volume, Error> {
        self.partition().volume(id)
    }

    fn dump_of_openafs(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join("dumps").join(name)).unwrap()
    }

    /// What is damaged in `work`.
    fn damaged(&self) -> Vec<Error> {
        let mut all = Vec::new();
        self.open(WORK).unwrap().check(&mut |error| all.push(error));
        all
    }

    /// The path of the data of a vnode of `work`, which are the only ones of this length.
    fn data(&self, length: u64) -> PathBuf {
        let mut found = Vec::new();
        let mut todo = vec![self.path("AFSIDat/3/3+++U")];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let meta = entry.metadata().unwrap();
                match meta.is_dir() {
                    true if entry.file_name() != "special" => todo.push(entry.path()),
                    false if meta.len() == length => found.push(entry.path()),
                    _ => {}
                }
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

/// The events of a dump, but its header.
fn events(dump: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(dump);
    let (mut all, mut data) = (Vec::new(), Vec::new());
    loop {
        match reader.next_event().unwrap() {
            Event::Data(piece) => data.extend_from_slice(piece),
            Event::Header(_) => {}
            event => {
                let is_end = matches!(event, Event::End);
                // Data come in pieces of any length.
                all.push(format!("{event:?} after {data:?}"));
                data.clear();
                if is_end {
                    return all;
                }
            }
        }
    }
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn set_length(path: &Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Goal: of each volume comes the dump that OpenAFS's volume server makes of it, to the byte of
/// each vnode. Clones share files with their read-write volume.
#[test]
fn dumps_are_those_of_openafs() {
    let rig = Rig::new();
    let partition = rig.partition();
    assert!(!partition.is_locked().unwrap());
    let mut found = 0;
    for id in partition.volumes().unwrap() {
        let volume = partition.volume(id).unwrap();
        let header = &volume.info.header;
        let name = String::from_utf8(header.name.clone()).unwrap();
        assert_eq!(volume.info.obstacle(), None, "{name}");
        let survey = volume.check(&mut |error| panic!("{name}: {error:?}"));
        let dump = volume.dump(Vec::new()).unwrap();
        assert_eq!(dump.len() as u64, survey.bytes, "{name}");
        assert_eq!(survey.vnodes, u64::from(header.file_count), "{name}");
        assert_eq!(events(&dump), events(&rig.dump_of_openafs(&name)), "{name}");
        found += 1;
    }
    assert_eq!(found, 5);
}

/// Goal: what dumps don't have is read too: the group's clones, types and dates.
#[test]
fn what_dumps_lack() {
    let rig = Rig::new();
    let info = |id| rig.open(VolumeId(id)).unwrap().info;
    let work = info(WORK.0);
    assert_eq!((work.backup, work.header.clone), (VolumeId(WORK.0 + 1), VolumeId(WORK.0 + 2)));
    assert_eq!((work.header.quota, work.header.kind), (77777, VolumeType::ReadWrite));
    let (backup, released) = (info(WORK.0 + 1), info(WORK.0 + 2));
    assert_eq!((backup.header.kind, backup.header.parent), (VolumeType::Backup, WORK));
    assert_eq!((released.header.kind, released.header.parent), (VolumeType::ReadOnly, WORK));
    assert_eq!(
        (backup.copy_date, backup.header.backup_date),
        (backup.header.creation_date, work.header.backup_date)
    );
}

/// Goal: a volume that OpenAFS would not attach is not taken: in use, damaged, or half made.
#[test]
fn obstacles() {
    let rig = Rig::new();
    let obstacle = || rig.open(WORK).unwrap().info.obstacle();
    let info = rig.special(INFO);
    write(&info, 44, &[1]);
    assert_eq!(obstacle(), Some(Obstacle::InUse { by: 1 }));
    write(&info, 47, &[1]);
    assert_eq!(obstacle(), Some(Obstacle::NeedsSalvage { value: 1 }));
    write(&info, 73, &[0xd3]);
    assert_eq!(obstacle(), Some(Obstacle::DestroyMe));
    // Of a clone, the field has no meaning.
    let clone = rig.special("zzzz5M++++0");
    write(&clone, 44, &[1]);
    assert_eq!(rig.open(VolumeId(WORK.0 + 1)).unwrap().info.obstacle(), None);
}

/// Goal: each special file that is missing, short, or of another volume is named.
#[test]
fn damaged_special_files() {
    let part = |damage: &dyn Fn(&Rig)| {
        let rig = Rig::new();
        damage(&rig);
        let error = rig.open(WORK).unwrap_err();
        (error.part, error.damage)
    };
    let head = |rig: &Rig| rig.path("V0536870917.vol");
    for (damaged, wanted) in [
        (part(&|rig| set_length(&head(rig), 75)), Part::Head),
        (part(&|rig| write(&head(rig), 8, &[1])), Part::Head),
        (part(&|rig| write(&head(rig), 12, &[0; 4])), Part::Head),
        (part(&|rig| write(&head(rig), 16, &[1])), Part::Head),
        (part(&|rig| fs::remove_file(rig.special(INFO)).unwrap()), Part::Info),
        (part(&|rig| set_length(&rig.special(INFO), 500)), Part::Info),
        (part(&|rig| write(&rig.special(INFO), 52, &[9])), Part::Info),
        (part(&|rig| write(&rig.special(INFO), 12, &[b'x'; 32])), Part::Info),
        (part(&|rig| write(&rig.special(INFO), 296, &[b'x'; 128])), Part::Info),
        (part(&|rig| write(&rig.special(SMALL), 0, &[0; 4])), Part::SmallIndex),
        (part(&|rig| set_length(&rig.special(SMALL), 7)), Part::SmallIndex),
        (part(&|rig| set_length(&rig.special(SMALL), 64 * 5 + 1)), Part::SmallIndex),
        (part(&|rig| set_length(&rig.special(SMALL), 64 << 26)), Part::SmallIndex),
        (part(&|rig| set_length(&rig.special(LARGE), 257)), Part::LargeIndex),
        (part(&|rig| write(&rig.special(LARGE), 4, &[2])), Part::LargeIndex),
    ] {
        assert_eq!(damaged.0, wanted, "{damaged:?}");
    }
}

/// Goal: no link is followed, and what is no regular file is not read.
#[test]
fn links_are_not_followed() {
    let rig = Rig::new();
    let outside = rig.dir.path().join("outside");
    let file = rig.special(INFO);
    fs::rename(&file, &outside).unwrap();
    symlink(&outside, &file).unwrap();
    assert!(matches!(rig.open(WORK).unwrap_err().damage, Damage::NoFile { .. }));
    fs::remove_file(&file).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(rig.open(WORK).unwrap_err().damage, Damage::NoFile { .. }));
    fs::remove_file(&file).unwrap();
    fs::rename(&outside, &file).unwrap();
    // The folder of the group.
    let group = rig.path("AFSIDat/3/3+++U");
    fs::rename(&group, &outside).unwrap();
    symlink(&outside, &group).unwrap();
    assert!(matches!(rig.open(WORK).unwrap_err().damage, Damage::File { .. }));
    fs::remove_file(&group).unwrap();
    fs::rename(&outside, &group).unwrap();
    assert!(rig.damaged().is_empty());
    // The data of a vnode.
    let data = rig.data(1_537_024);
    fs::rename(&data, &outside).unwrap();
    symlink(&outside, &data).unwrap();
    assert!(matches!(&rig.damaged()[..], [Error { part: Part::Vnode(_), damage: Damage::NoFile { .. } }]));
}

/// Goal: a vnode is named whose data are missing, short or long, and a dump ends there.
#[test]
fn damaged_vnodes() {
    let rig = Rig::new();
    let data = rig.data(1_537_024);
    set_length(&data, 1_000_000);
    let found = rig.damaged();
    assert!(
        matches!(found[..], [Error { damage: Damage::Length { found: 1_000_000, wanted: 1_537_024 }, .. }]),
        "{found:?}"
    );
    assert!(rig.open(WORK).unwrap().dump(Vec::new()).is_err());
    set_length(&data, 1_537_025);
    assert_eq!(rig.damaged().len(), 1);
    fs::remove_file(&data).unwrap();
    let text = format!("{:?}", rig.damaged());
    assert!(text.contains("NotFound") && text.contains("Vnode"), "{text}");
}

/// Goal: a record of an index is named that is no vnode, or whose data would be another file.
#[test]
fn damaged_records() {
    let damage = |at: u64, bytes: &[u8]| {
        let rig = Rig::new();
        // The first vnode in use: behind the head of the index.
        let index = File::open(rig.special(SMALL)).unwrap();
        let mut kind = [0];
        let first = (1..length(&rig.special(SMALL)) / 64).find(|number| {
            index.read_exact_at(&mut kind, 64 * number).unwrap();
            kind[0] & 7 != 0
        });
        write(&rig.special(SMALL), 64 * first.unwrap() + at, bytes);
        let mut found = rig.damaged();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0).damage
    };
    assert!(matches!(damage(0, &[2]), Damage::Field { field: "type", .. }));
    assert!(matches!(damage(0, &[7]), Damage::Field { field: "type", .. }));
    assert!(matches!(damage(36, &[0]), Damage::Magic { .. }));
    // Another file: the number, and where it is.
    assert!(matches!(damage(16, &[0xff; 4]), Damage::Field { field: "vn_ino", .. }));
    assert!(matches!(damage(56, &[0xff; 4]), Damage::Field { field: "vn_ino", .. }));
    assert!(matches!(damage(8, &[0xff; 4]), Damage::Field { field: "vn_ino", .. }));
    // Huge lengths.
    assert!(matches!(damage(60, &[0xff; 4]), Damage::Length { .. }));
    assert!(matches!(damage(4, &[0xff; 4]), Damage::Length { .. }));
}

/// Goal: a directory that is none, and an access list with too many entries, are named.
#[test]
fn damaged_directories() {
    let rig = Rig::new();
    // The root is the first record; its list begins behind 64 bytes, and the third word counts.
    write(&rig.special(LARGE), 256 + 64 + 8, &[21]);
    assert!(matches!(rig.damaged()[..], [Error { damage: Damage::Field { .. }, .. }]));
    let rig = Rig::new();
    let mut root = Vec::new();
    let volume = rig.open(MADE).unwrap();
    let dump = volume.dump(Vec::new()).unwrap();
    let mut reader = Reader::new(&dump[..]);
    while let Ok(event) = reader.next_event() {
        match event {
            Event::Vnode(record) if root.is_empty() => {
                assert_eq!(record.attributes.unwrap().kind, VnodeType::Directory);
            }
            Event::Data(piece) => root.extend_from_slice(piece),
            Event::Vnode(_) | Event::End => break,
            _ => {}
        }
    }
    assert_eq!(root.len() % 2048, 0);
    let group = rig.path("AFSIDat/=/=+++U");
    let mut todo = vec![group];
    let mut changed = 0;
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if fs::read(&path).unwrap() == root {
                write(&path, 2, &[0, 0]);
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 1);
    let mut found = Vec::new();
    rig.open(MADE).unwrap().check(&mut |error| found.push(error));
    assert!(matches!(found[..], [Error { damage: Damage::Format(_), .. }]), "{found:?}");
}

/// Goal: a dump has no end if a server begins to use the volume meanwhile.
#[test]
fn changes_during_a_dump() {
    let rig = Rig::new();
    let volume = rig.open(WORK).unwrap();
    let whole = volume.dump(Vec::new()).unwrap();
    write(&rig.special(INFO), 44, &[1]);
    let mut made = Vec::new();
    let error = volume.dump(&mut made).unwrap_err();
    let DumpError::Volume(Error { part: Part::Info, damage: Damage::Changed { .. } }) = error else {
        panic!("{error:?}")
    };
    assert!(made.len() < whole.len());
}

/// Goal: volumes are found that have data, but no head.
#[test]
fn volumes_without_heads() {
    let rig = Rig::new();
    fs::write(rig.path("AFSIDat/README"), "a note").unwrap();
    assert!(rig.partition().headless().unwrap().is_empty());
    fs::remove_file(rig.path("V0536870917.vol")).unwrap();
    fs::remove_file(rig.path("V0536870913.vol")).unwrap();
    symlink("/", rig.path("AFSIDat/3/=")).unwrap();
    assert_eq!(rig.partition().headless().unwrap(), [MADE, WORK]);
}

/// Goal: vnodes that are no tree are found before anything is sent.
#[test]
fn vnodes_that_are_no_tree() {
    let first = |rig: &Rig| {
        let index = fs::read(rig.special(SMALL)).unwrap();
        index.chunks(64).skip(1).position(|record| record[0] & 7 != 0).unwrap() as u64 + 1
    };
    // The count of links, and the parent.
    for (at, bytes) in [(2, [0xff, 0, 0, 0]), (32, [0x55, 0, 0, 0])] {
        let rig = Rig::new();
        let width = if at == 2 { 2 } else { 4 };
        write(&rig.special(SMALL), first(&rig) * 64 + at, &bytes[..width]);
        let found = rig.damaged();
        let [Error { part: Part::Vnode(_), damage }] = &found[..] else { panic!("{found:?}") };
        assert!(matches!(damage, Damage::Tree { .. }), "{damage:?}");
        assert!(damage.advice().contains("-orphans attach"));
    }
    // One that a directory names is not in use.
    let rig = Rig::new();
    write(&rig.special(SMALL), first(&rig) * 64, &[0]);
    assert!(matches!(rig.damaged()[..], [Error { damage: Damage::Tree { .. }, .. }]));
}

/// Where the holder of a lock finds its file.
const HOLD: &str = "VICEP_TEST_HOLD";

/// The other program of [`locks_of_others`].
#[test]
fn holder_of_a_lock() {
    let Some(path) = std::env::var_os(HOLD) else { return };
    let file = File::open(path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    println!("\nheld");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Goal: a server is seen that has volumes for reading alone, and it may lock more meanwhile.
#[test]
fn locks_of_others() {
    let rig = Rig::new();
    let partition = rig.partition();
    let path = rig.path(".volume.lock");
    fs::write(&path, "").unwrap();
    assert!(!partition.is_locked().unwrap());
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["--exact", "vicep::holder_of_a_lock", "--nocapture"]).env(HOLD, &path);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "held"));
    assert!(partition.is_locked().unwrap());
    drop(holder.stdin.take());
    assert!(said.all(|line| line.is_ok()) && holder.wait().unwrap().success());
    assert!(!partition.is_locked().unwrap());
}

/// Goal: a folder that is no partition is refused.
#[test]
fn no_partition() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Partition::open(dir.path()).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    symlink("/", dir.path().join("AFSIDat")).unwrap();
    assert!(Partition::open(dir.path()).is_err());
}
