//! `poolhouse afs export`: dumps of the volumes of a pool that is not imported.

use std::collections::BTreeMap;

use afs::acl::Acl;
use afs::dir::{Builder, Directory, Entry};
use afs::dump::{Attributes, Event, Header, Reader, Span, VnodeRecord, VolumeHeader, Writer};
use afs::types::{DataVersion, Date, PrincipalId, RestoreCookie, VnodeType};
use afs::wire::Chars;

use super::mounted::{create, open_to_all};
use super::*;

const OTHER: VolumeId = VolumeId(VOLUME.0 + 10);
const BACKUP: VolumeId = VolumeId(VOLUME.0 + 2);
const AGAIN: VolumeId = VolumeId(VOLUME.0 + 20);
/// The type of a backup volume (`BACKVOL`).
const KIND: i32 = 2;
pub(super) const NOISE: usize = 300_000;

pub(super) type Vnodes = BTreeMap<Vnode, (VnodeRecord, Vec<u8>)>;

pub(super) fn record(vnode: u32, kind: VnodeType, parent: u32, links: u16, data: &[u8]) -> VnodeRecord {
    let attributes = Attributes {
        kind,
        link_count: links,
        data_version: DataVersion(vnode + 5),
        modify_time: Date(1_600_000_000),
        author: PrincipalId(7),
        owner: PrincipalId(1000),
        group: 0,
        mode: 0o640,
        parent: Vnode(parent),
        server_modify_time: Date(1_600_000_000),
        acl: (kind == VnodeType::Directory).then(|| Acl::of_new_volume().to_raw()),
        length: Some(data.len() as u64),
    };
    VnodeRecord { vnode: Vnode(vnode), unique: Unique(vnode), attributes: Some(attributes) }
}

pub(super) fn directory(vnode: u32, parent: u32, names: &[(&[u8], u32)]) -> Vec<u8> {
    let own = |number: u32| (Vnode(number), Unique(number));
    let mut blob = Builder::new(own(vnode), own(parent));
    for (name, vnode) in names {
        blob.add(Entry { name, vnode: Vnode(*vnode), unique: Unique(*vnode) }).expect("an entry");
    }
    blob.finish()
}

/// The dump of a volume with a directory, a link, a small file and a large one.
pub(super) fn made(id: VolumeId, seed: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    let name = b"made".to_vec();
    let header = Header { volume: id, name: name.clone(), spans: vec![Span::default()] };
    writer.header(&header).expect("a header");
    let volume = VolumeHeader { id, version: 1, name, in_service: true, blessed: true, ..Default::default() };
    writer.volume(&volume).expect("a header");
    let root = directory(1, 1, &[(b"d", 3), (b"noise", 4), (b"mount", 6)]);
    let below = directory(3, 1, &[(b"letter\n1", 2)]);
    let noise = testpools::noise(seed, NOISE);
    for (vnode, kind, parent, links, data) in [
        (1, VnodeType::Directory, 0, 3, &root[..]),
        (3, VnodeType::Directory, 1, 2, &below),
        (2, VnodeType::File, 3, 1, b"dear all"),
        (4, VnodeType::File, 1, 1, &noise),
        (6, VnodeType::Symlink, 1, 1, b"#root.cell."),
    ] {
        writer.vnode(&record(vnode, kind, parent, links, data)).expect("a vnode");
        writer.data(data).expect("data");
    }
    writer.end().expect("an end")
}

/// The vnodes of a dump; of directories, the sorted entries.
pub(super) fn vnodes(dump: &[u8]) -> Vnodes {
    let mut all = Vnodes::new();
    let (mut reader, mut last) = (Reader::new(dump), Vnode(0));
    loop {
        match reader.next_event().expect("a whole dump") {
            Event::Vnode(record) => {
                last = record.vnode;
                all.insert(last, (*record, Vec::new()));
            }
            Event::Data(data) => all.get_mut(&last).expect("a vnode").1.extend_from_slice(data),
            Event::End => break,
            Event::Header(_) | Event::Volume(_) => {}
        }
    }
    for (record, data) in all.values_mut().filter(|(record, _)| record.vnode.is_directory()) {
        if record.attributes.is_none() {
            continue;
        }
        let directory = Directory::new(data).expect("a directory");
        let mut entries: Vec<String> = directory.entries().map(|entry| format!("{entry:?}")).collect();
        entries.sort();
        *data = entries.join("\n").into_bytes();
    }
    all
}

impl Stand {
    pub(super) fn begin(&self, volume: VolumeId) -> i32 {
        let call = Call::TransCreate { volume, partition: 0, flags: attach::OFFLINE };
        let Ok(Reply::TransCreate(transaction)) = self.operate(&call) else { panic!("no transaction") };
        transaction
    }

    pub(super) fn end(&self, transaction: i32) {
        self.operate(&Call::SetFlags { transaction, flags: 0 }).expect("it is set");
        self.operate(&Call::EndTrans { transaction }).expect("it ends");
    }

    /// Makes a volume of a dump, as `vos restore` does.
    pub(super) fn restore(&self, volume: VolumeId, name: &str, dump: &[u8]) {
        let call = Call::CreateVolume {
            partition: 0,
            name: Name::new(name).expect("a name"),
            kind: 0,
            parent: VolumeId(0),
            volume,
        };
        let Ok(Reply::CreateVolume(made)) = self.operate(&call) else { panic!("no volume is made") };
        let transaction = made.transaction;
        let cookie =
            RestoreCookie { name: Chars::new(name.as_bytes()), parent: volume, ..RestoreCookie::default() };
        self.operate_raw(&Call::Restore { transaction, flags: 0, cookie }, dump).expect("it is restored");
        self.end(transaction);
    }

    /// The dump that `vos dump` would get.
    pub(super) fn dump(&self, volume: VolumeId) -> Vec<u8> {
        let transaction = self.begin(volume);
        let dump = self.operate_raw(&Call::Dump { transaction, since: Date(0) }, &[]).expect("a dump");
        self.end(transaction);
        dump
    }

    /// Makes two volumes, and the backup volume of the first one. Then nothing holds the pool.
    fn two_volumes_and_a_clone(&self) {
        self.serve_two_volumes_and_a_clone();
        self.daemon.good("zpool export tank");
    }

    /// Makes two volumes, and the backup volume of the first one, which are served.
    pub(super) fn serve_two_volumes_and_a_clone(&self) {
        self.enable();
        self.restore(VOLUME, "home", &made(VOLUME, 1));
        self.restore(OTHER, "other", &made(OTHER, 2));
        let transaction = self.begin(VOLUME);
        let name = Name::new("home.backup").expect("a name");
        let call = Call::Clone { transaction, purge: VolumeId(0), kind: KIND, name, volume: BACKUP };
        self.operate(&call).expect("a clone");
        self.end(transaction);
        self.end(self.begin(BACKUP));
    }

    /// A command that exports into a folder. Returns its exit code, and what it says.
    fn export(&self, folder: &str, options: &str, volumes: &str) -> (i32, String) {
        let at = self.dir.path().display();
        let ran = self.daemon.ran(&format!("afs export -d {at}/dev {options} tank {at}/{folder} {volumes}"));
        (ran.status.code().expect("a code"), said(&ran))
    }

    fn file(&self, name: &str) -> Vec<u8> {
        let path = self.dir.path().join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The names in a folder.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join(folder)).expect("a folder");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> = entries.map(|it| name(it).into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// The lines of volumes in the index of a folder.
    fn index(&self, folder: &str) -> Vec<String> {
        let text = String::from_utf8(self.file(&format!("{folder}/index.txt"))).expect("text");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }
}

/// Goal: the dumps have all of the volumes and clones, and a volume that is restored from one is
/// the same again. Files that exist stay, unless the user says otherwise.
#[test]
fn volumes_come_back() {
    let stand = Stand::new();
    stand.two_volumes_and_a_clone();
    let (code, text) = stand.export("out", "", "");
    assert_eq!(code, 0, "{text}");
    // Nothing else: a pool that was exported has no intent log.
    let summary =
        format!("{}/out: 3 dumps, 0 of them damaged; 0 volumes not exported\n", stand.dir.path().display());
    assert_eq!(text, summary);
    let file = |id: VolumeId| format!("{id}.dump");
    assert_eq!(stand.names("out"), [&file(VOLUME), &file(BACKUP), &file(OTHER), "index.txt"]);
    let line = |id: VolumeId, name: &str, kind: &str, parent: VolumeId| {
        let bytes = stand.file(&format!("out/{id}.dump")).len();
        format!("{id}\t{name}\t{kind}\t{parent}\t/vicepa\twhole\t{bytes}\t{id}.dump")
    };
    assert_eq!(
        stand.index("out"),
        [
            line(VOLUME, "home", "RW", VOLUME),
            line(BACKUP, "home.backup", "BK", VOLUME),
            line(OTHER, "other", "RW", OTHER)
        ]
    );
    let original = vnodes(&made(VOLUME, 1));
    let dumps = [VOLUME, BACKUP, OTHER].map(|id| stand.file(&format!("out/{}", file(id))));
    assert!(vnodes(&dumps[0]) == original && vnodes(&dumps[1]) == original);
    assert!(vnodes(&dumps[2]) == vnodes(&made(OTHER, 2)) && vnodes(&dumps[2]) != original);
    // An index is not replaced, and neither is a dump.
    for remove in ["out/none", "out/index.txt"] {
        let _ = fs::remove_file(stand.dir.path().join(remove));
        let (code, text) = stand.export("out", "", "");
        assert!(code == 1 && text.contains("it exists: choose another folder, or replace"), "{text}");
    }
    assert_eq!(stand.export("out", "-f", "").0, 0);
    // Chosen ones, by name and number; and one that does not exist.
    let (code, text) = stand.export("some", "", &format!("other {BACKUP} nothing"));
    assert!(code == 1 && text.contains("nothing: there is no such volume"), "{text}");
    assert_eq!(stand.names("some"), [&file(BACKUP), &file(OTHER), "index.txt"]);
    // An increment names all vnodes, and has those that changed, and the directories.
    let (code, text) = stand.export("later", "--since=1900000000", "home");
    assert_eq!(code, 0, "{text}");
    let increment = vnodes(&stand.file(&format!("later/{VOLUME}.increment.dump")));
    let whole: Vec<u32> =
        increment.iter().filter(|(_, it)| it.0.attributes.is_some()).map(|it| it.0.0).collect();
    assert!(whole == [1, 3] && increment.keys().eq(original.keys()), "{whole:?}");
    stand.import();
    let (code, text) = stand.export("held", "", "");
    assert!(code == 1 && text.contains("--peek"), "{text}");
    let at = stand.dir.path().display();
    let text = stand.bad(&format!("afs export tank {at}/held"));
    assert!(text.contains("the daemon of this user holds the pool: use `vos dump`"), "{text}");
    stand.restore(AGAIN, "again", &dumps[0]);
    assert!(vnodes(&stand.dump(AGAIN)) == original);
}

/// Overwrites a sector of a file whose contents are known, in the image of the pool.
pub(super) fn spoil(image: &Path, part: &[u8]) {
    let mut bytes = fs::read(image).expect("an image");
    let at = bytes.windows(part.len()).position(|window| window == part).expect("the file is not compressed");
    bytes[at..at + part.len()].fill(0xa5);
    fs::write(image, bytes).expect("an image");
}

/// Goal: a damaged file is named, with the bytes that are lost. The dump has all the rest, and
/// neither its name nor the index nor the exit code lets it pass for a whole one.
#[test]
fn damage_is_named() {
    let stand = Stand::new();
    stand.two_volumes_and_a_clone();
    spoil(&stand.dir.path().join("dev/d0"), &testpools::noise(1, NOISE)[200_000..200_512]);
    let (code, text) = stand.export("out", "", "");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("/out: 3 dumps, 2 of them damaged; 0 volumes not exported\n"), "{text}");
    let lost = ":/noise (vnode 4): bytes 131072 to 262143, which are zeros: ";
    for dataset in [format!("{VOLUME}"), format!("{VOLUME}@{BACKUP}")] {
        let line = format!("poolhouse afs export: tank/vicepa/{dataset}{lost}");
        assert!(text.contains(&line), "{text}");
    }
    let mut names: Vec<String> = [VOLUME, BACKUP]
        .iter()
        .flat_map(|id| [format!("{id}.damaged.dump"), format!("{id}.lost.txt")])
        .collect();
    names.extend([format!("{OTHER}.dump"), "index.txt".to_owned()]);
    assert_eq!(stand.names("out"), names);
    let listed = String::from_utf8(stand.file(&format!("out/{VOLUME}.lost.txt"))).expect("text");
    assert!(listed.starts_with(&format!("{VOLUME}{lost}")) && listed.lines().count() == 1, "{listed}");
    let states: Vec<String> =
        stand.index("out").iter().map(|line| line.split('\t').nth(5).expect("a state").to_owned()).collect();
    assert_eq!(states, ["damaged", "damaged", "whole"]);
    let mut expected = vnodes(&made(VOLUME, 1));
    expected.get_mut(&Vnode(4)).expect("the file").1[131_072..262_144].fill(0);
    let dump = stand.file(&format!("out/{VOLUME}.damaged.dump"));
    assert!(vnodes(&dump) == expected);
    // An increment would delete what is lost here where it is still good.
    let (code, text) = stand.export("later", "--since=1500000000", "home");
    assert!(code == 1 && text.contains("export it without --since"), "{text}");
    assert_eq!(stand.names("later"), ["index.txt"]);
    stand.import();
    stand.restore(AGAIN, "again", &dump);
    assert!(vnodes(&stand.dump(AGAIN)) == expected);
}

/// Goal: after a crash, the command says that the intent log may have more than the dump. The dump
/// has the versions that a server would give out after the crash.
#[test]
fn after_a_crash() {
    let mut stand = Stand::new();
    stand.enable();
    stand.daemon.good("zfs set sync=always tank/vicepa");
    stand.create();
    open_to_all(&stand);
    create(&stand, "file");
    stand.daemon.signal("KILL");
    stand.daemon.ended();
    let (code, text) = stand.export("out", "", "");
    let note = format!("tank/vicepa/{VOLUME}: the intent log may have changes that the dump lacks");
    assert!(code == 0 && text.contains(&note), "{text}");
    let dump = vnodes(&stand.file(&format!("out/{VOLUME}.dump")));
    let root = dump[&Vnode::ROOT].0.attributes.as_ref().expect("it is whole");
    assert!(root.data_version.0 >= 1 << 16, "{root:?}");
}

/// Goal: wrong operands and options are refused, with what to do.
#[test]
fn wrong_operands() {
    let stand = Stand::new();
    stand.daemon.good("zpool export tank");
    let at = stand.dir.path().display();
    let (code, text) = stand.export("out", "", "");
    assert!(code == 1 && text.contains("tank: has no partition of AFS: name one"), "{text}");
    let refused = |line: &str, code: i32, why: &str| {
        let ran = stand.daemon.ran(&format!("afs export -d {at}/dev {line}"));
        assert!(ran.status.code() == Some(code) && said(&ran).contains(why), "{line}: {}", said(&ran));
    };
    refused("tank", 2, "missing folder\nusage: poolhouse afs export");
    refused("--since=soon tank out", 2, "invalid date 'soon'");
    refused(&format!("tank@s {at}/x"), 1, "write POOL or POOL/DATASET");
    refused(&format!("tank {at}/no/folder"), 1, "/no/folder: No such file");
    refused(&format!("nothing {at}/x"), 1, "nothing");
    refused(&format!("tank/nothing {at}/x"), 1, "tank/nothing");
}
