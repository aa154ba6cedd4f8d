//! `poolhouse afs report --estimate`: what volumes would take with other records and compressors.

use afs::dump::{Header, Span, VolumeHeader, Writer};
use afs::types::VnodeType;
use api::files::{Denied, Files, Opening, Visit};
use api::run_dir::RunDir;
use std::io::Write;

use super::export::{NOISE, directory, record, spoil};
use super::*;

#[path = "../../../../estimate/tests/it/tree.rs"]
mod tree;

/// How far metadata may differ between a directory and a volume, in percent of it: times and modes
/// are others.
const MADE_OFF: u64 = 1;
/// How far the metadata of the pool may be off, in percent of it: object numbers and checksums are
/// others, and the vnodes of files are even.
const POOL_OFF: u64 = 5;

/// The vnodes of a dump that has a tree.
#[derive(Default)]
struct Vnodes {
    folders: Vec<(u32, u32, u16, Vec<u8>)>,
    files: Vec<(u32, VnodeType, u32, Vec<u8>)>,
}

impl Vnodes {
    /// Adds a directory and all below it. Returns its vnode.
    fn add(&mut self, from: &Path, parent: u32) -> u32 {
        let own = 2 * self.folders.len() as u32 + 1;
        self.folders.push((own, parent, 2, Vec::new()));
        let at = self.folders.len() - 1;
        let mut entries: Vec<_> = fs::read_dir(from).expect("a folder").map(|e| e.expect("a name")).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let (mut names, mut below) = (Vec::new(), 0);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
            let vnode = if kind.is_dir() {
                below += 1;
                self.add(&path, own)
            } else {
                let (kind, data) = match kind.is_symlink() {
                    true => (
                        VnodeType::Symlink,
                        fs::read_link(&path).expect("a link").display().to_string().into(),
                    ),
                    false => (VnodeType::File, fs::read(&path).expect("a file")),
                };
                let vnode = 2 * (self.files.len() as u32 + 1);
                self.files.push((vnode, kind, own, data));
                vnode
            };
            names.push((entry.file_name().into_encoded_bytes(), vnode));
        }
        let names: Vec<(&[u8], u32)> = names.iter().map(|(name, vnode)| (&name[..], *vnode)).collect();
        self.folders[at].2 += below;
        self.folders[at].3 = directory(own, parent.max(1), &names);
        own
    }
}

/// The dump of a volume that has a tree.
fn dump_of(id: VolumeId, name: &str, from: &Path) -> Vec<u8> {
    let mut vnodes = Vnodes::default();
    vnodes.add(from, 0);
    let mut writer = Writer::new(Vec::new());
    let name = name.as_bytes().to_vec();
    let header = Header { volume: id, name: name.clone(), spans: vec![Span::default()] };
    writer.header(&header).expect("a header");
    let volume = VolumeHeader { id, version: 1, name, in_service: true, blessed: true, ..Default::default() };
    writer.volume(&volume).expect("a header");
    for (vnode, parent, links, data) in &vnodes.folders {
        writer.vnode(&record(*vnode, VnodeType::Directory, *parent, *links, data)).expect("a vnode");
        writer.data(data).expect("data");
    }
    for (vnode, kind, parent, data) in &vnodes.files {
        writer.vnode(&record(*vnode, *kind, *parent, 1, data)).expect("a vnode");
        writer.data(data).expect("data");
    }
    writer.end().expect("an end")
}

fn of<'a>(estimate: &'a Value, record: &str, compressor: &str) -> &'a Value {
    &estimate["recordsizes"][record][compressor]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

impl Stand {
    fn estimate(&self, options: &str) -> Value {
        self.json(&format!("afs report --estimate -j {options}"))["estimate"].clone()
    }

    fn used(&self, volume: VolumeId) -> u64 {
        let line = format!("zfs get -Hp -o value used tank/vicepa/{volume}");
        self.daemon.good(&line).trim().parse().expect("a number")
    }

    /// A served volume with the tree of the tests of `poolhouse estimate`. Returns the tree.
    fn with_tree(&self) -> PathBuf {
        let from = self.dir.path().join("tree");
        fs::create_dir(&from).expect("a folder");
        tree::make(&from);
        // A file of AFS has its names in one directory.
        fs::remove_file(from.join("sparse/one")).expect("removed");
        self.enable();
        self.restore(VOLUME, "made", &dump_of(VOLUME, "made", &from));
        self.daemon.good("zpool sync tank");
        self.daemon.good("zpool sync tank");
        from
    }
}

/// Goal: the estimate for the present setting is what the volume uses. For all settings, its data
/// are those of an estimate of the same files in a directory, and its metadata nearly are.
#[test]
fn truth() {
    let stand = Stand::new();
    let from = stand.with_tree();
    // The pool lies on a file, with sectors of 512 bytes.
    let options = "-a 9 --sample all -r 16K,128K,1M -c lz4,zstd,gzip-1";
    let volume = stand.estimate(&format!("{options} made"));
    let tree = stand.json(&format!("estimate -j {options} {}", from.display()));
    for (name, value) in tree.as_object().expect("an object") {
        assert!(name == "output_version" || volume.get(name).is_some(), "{name} is missing: {volume}");
        if ["files", "directories", "others", "bytes", "failures"].contains(&name.as_str()) {
            assert_eq!(&volume[name], value, "{name}");
        }
    }
    assert_eq!((&volume["exact"], &volume["volumes"]), (&true.into(), &1.into()), "{volume}");
    for record in ["16384", "131072", "1048576"] {
        for compressor in ["lz4", "zstd", "gzip-1"] {
            let (own, other) = (of(&volume, record, compressor), of(&tree, record, compressor));
            let data = |row: &Value| number(&row["size"]) - number(&row["metadata"]);
            let metadata = |row: &Value| number(&row["metadata"]);
            assert_eq!(data(own), data(other), "{record} {compressor}: {own}, {other}");
            let off = metadata(own).abs_diff(metadata(other)) * 100;
            assert!(off <= MADE_OFF * metadata(other), "{record} {compressor}: {own}, {other}");
        }
    }
    let (used, row) = (stand.used(VOLUME), of(&volume, "131072", "lz4"));
    let most = POOL_OFF * number(&row["metadata"]) / 100;
    assert!(used.abs_diff(number(&row["size"])) <= most, "{used}: {row}");
    // A sample has an interval.
    for seed in 1..=3 {
        let part = stand.estimate(&format!("-a 9 --sample 3M --seed {seed} -r 128K -c lz4 made"));
        assert!(number(&part["read"]) < 6 << 20 && number(&part["draws"]) > 8, "{part}");
        let row = of(&part, "131072", "lz4");
        assert!(number(&row["error"]) > 0, "{row}");
        assert!(used.abs_diff(number(&row["size"])) <= number(&row["error"]) + most, "{used}: {row}");
    }
}

/// Goal: without names, all volumes are summed up, and a clone only if it is named. What is read is
/// not in use: a transaction that has a volume for itself does not matter.
#[test]
fn sums() {
    let stand = Stand::new();
    stand.serve_two_volumes_and_a_clone();
    stand.daemon.good("zpool sync tank");
    let (first, clone, other) = (VOLUME, VolumeId(VOLUME.0 + 2), VolumeId(VOLUME.0 + 10));
    let size = |options: &str| {
        let found = stand.estimate(&format!("--sample all -r 128K -c lz4 {options}"));
        (number(&found["volumes"]), number(&of(&found, "131072", "lz4")["size"]))
    };
    let each = size(&first.to_string());
    let all = size("");
    assert_eq!(all, (2, each.1 + size("other").1));
    assert_eq!(size(&clone.to_string()), each, "the clone has the same files");
    assert_eq!(size("--partition b"), (0, 0));
    let transaction = stand.begin(other);
    assert_eq!(size(""), all);
    stand.end(transaction);

    // Text: the report, and below it the table.
    let svg = stand.dir.path().join("chart.svg");
    let text = stand.daemon.good(&format!("afs report --estimate -r 16K -c off,lz4 --svg {}", svg.display()));
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no '{part}': {text}"));
    assert!(at(" total ") < at("4 files, 4 directories, 2 others"), "{text}");
    assert!(at("everything was read") < at("RECORDSIZE  COMPRESSION"), "{text}");
    let drawn = fs::read_to_string(svg).expect("a chart");
    assert!(drawn.contains("Estimated space of home, other") && drawn.ends_with("</svg>\n"), "{drawn}");
    let rows = stand.daemon.good("afs report --estimate -H -r 16K -c off,lz4 home");
    assert_eq!(rows.lines().map(|row| row.split('\t').count()).collect::<Vec<_>>(), [6, 6], "{rows}");
}

/// Goal: a partition whose key is not loaded, and what is damaged, are named and left out.
#[test]
fn left_out() {
    let stand = Stand::new();
    stand.serve_two_volumes_and_a_clone();
    let key = stand.dir.path().join("key");
    fs::write(&key, "a passphrase\n").expect("a file");
    let encrypted =
        format!("-o encryption=on -o keyformat=passphrase -o keylocation=file://{}", key.display());
    stand.daemon.good(&format!("zfs create {encrypted} -o canmount=off tank/vicepb"));
    stand.daemon.good("afs enable --partition b tank/vicepb");
    stand.daemon.good("zpool export tank");
    spoil(&stand.dir.path().join("dev/d0"), &testpools::noise(2, NOISE)[..512]);
    stand.import();
    let ran = stand.daemon.ran("afs report --estimate -j --sample all -r 128K -c lz4");
    let why = said(&ran);
    assert_eq!(ran.status.code(), Some(1), "{why}");
    assert!(why.contains("/vicepb (tank/vicepb) is left out: ") && why.contains("key"), "{why}");
    assert!(why.contains("cannot read 'other/noise': "), "{why}");
    let shown: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let estimate = &shown["estimate"];
    assert_eq!(estimate["failures"], 1, "{shown}");
    assert_eq!(estimate["left_out"], Value::Array(Vec::new()), "{shown}");
    assert_eq!(estimate["partitions_left_out"], Value::Array(vec!["/vicepb".into()]), "{shown}");
    // What else the volume has is in block pointers.
    let data = |row: &Value| number(&row["size"]) - number(&row["metadata"]);
    let home = stand.estimate("--sample all -r 128K -c lz4 home");
    assert_eq!(data(of(estimate, "131072", "lz4")), data(of(&home, "131072", "lz4")));
}

/// Goal: an estimate that can't be made leaves the report, also as JSON.
#[test]
fn report_without_estimate() {
    let stand = Stand::new();
    stand.enable();
    let ran = stand.daemon.ran("afs report --estimate -j -a 17");
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).contains("cannot estimate: bad ashift 17"), "{}", said(&ran));
    let shown: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert!(shown.get("volumes").is_some() && shown.get("estimate").is_none(), "{shown}");
}

/// Goal: a volume without checksums is left out by name.
#[test]
fn unverified() {
    let stand = Stand::new();
    stand.serve_two_volumes_and_a_clone();
    stand.daemon.good(&format!("zfs set checksum=off tank/vicepa/{VOLUME}"));
    let ran = stand.daemon.ran("afs report --estimate -j --sample all -r 128K -c lz4");
    let why = said(&ran);
    assert!(ran.status.code() == Some(1) && why.contains("cannot read 'home': "), "{why}");
    assert!(why.contains("blocks have no checksums"), "{why}");
    let shown: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(shown["estimate"]["left_out"], Value::Array(vec!["home".into()]), "{shown}");
    assert_eq!(shown["estimate"]["volumes"], 1, "{shown}");
}

impl Stand {
    fn visit(&self, dataset: &str) -> Result<Visit, Denied> {
        let (dataset, command) = (dataset.to_owned(), "test".to_owned());
        let opening = Opening { dataset, command, beside: true, ..Opening::default() };
        Ok(Visit::open(&RunDir::at(&self.dir.path().join("run")), &opening)?.0)
    }
}

/// Goal: a key is not unloaded while a file system is read with it, and the refusal names the
/// reader. A file system that is read can be destroyed all the same, and hinders no other key.
#[test]
fn keys() {
    let stand = Stand::new();
    let key = stand.encrypt();
    let (key, unload) = (key.display(), "zfs unload-key tank/vicepa");
    let mut visit = stand.visit("tank/vicepa").expect("a visit");
    let refused = stand.daemon.ran(unload);
    let (why, user) = (said(&refused), format!("poolhouse test (process {})", std::process::id()));
    assert!(!refused.status.success() && why.contains(&user), "{why}");
    assert!(visit.resolve(b"/", true).is_ok());
    stand.daemon.good(&format!(
        "zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{key} -o canmount=off tank/b"
    ));
    let mut other = stand.visit("tank/b").expect("a visit");
    stand.daemon.good("zfs destroy tank/b");
    let since = Instant::now();
    let gone = loop {
        match other.resolve(b"/", true) {
            Err(gone) => break gone.text,
            Ok(_) => assert!(since.elapsed() < TIME, "it is destroyed"),
        }
    };
    assert!(gone.contains("does not exist"), "{gone}");
    drop(visit);
    let since = Instant::now();
    while !stand.daemon.ran(unload).status.success() {
        assert!(since.elapsed() < TIME, "the visit does not end");
    }
    assert!(matches!(stand.visit("tank/vicepa"), Err(Denied::NoKey { .. })));
}

/// Goal: a file that becomes shorter while it is read, or is removed, has no zeros in place of what
/// is gone. Reads of it fail until it is begun again. A file that grows is read on.
#[test]
fn changing_files() {
    let stand = Stand::new();
    let at = stand.dir.path().join("mnt");
    let made = stand.daemon.ran(&format!("zfs create -o mountpoint={} tank/files", at.display()));
    if !made.status.success() {
        eprintln!("nothing can be mounted here: {}", said(&made));
        return;
    }
    let (one, noise) = (at.join("one"), testpools::noise(1, NOISE));
    fs::write(&one, &noise).expect("written");
    stand.daemon.good("zpool sync tank");
    let mut visit = stand.visit("tank/files").expect("a visit");
    let object = visit.resolve(b"/one", true).expect("a file").object;
    visit.begin(object).expect("begun");
    // Waits until the visit has opened the state in which the file is as long.
    let synced = |visit: &mut Visit, size: Option<usize>| {
        stand.daemon.good("zpool sync tank");
        let since = Instant::now();
        while visit.meta(object).ok().map(|meta| meta.size as usize) != size {
            assert!(since.elapsed() < TIME, "the state stays old");
        }
    };
    let read = |visit: &mut Visit, offset: usize| {
        let mut buf = vec![0; 4096];
        let n = visit.read(offset as u64, &mut buf).map_err(|gap| gap.fault.text)?;
        assert!(n > 0 && buf[..n] == noise[offset..offset + n]);
        Ok::<_, String>(())
    };
    assert_eq!(read(&mut visit, 200_000), Ok(()));
    fs::OpenOptions::new().append(true).open(&one).expect("opened").write_all(b"more").expect("written");
    synced(&mut visit, Some(NOISE + 4));
    assert_eq!(read(&mut visit, 200_000), Ok(()));
    let file = fs::OpenOptions::new().write(true).open(&one).expect("opened");
    file.set_len(150_000).expect("shorter");
    drop(file);
    synced(&mut visit, Some(150_000));
    assert_eq!(read(&mut visit, 200_000), Err("it became shorter meanwhile".to_owned()));
    assert_eq!(read(&mut visit, 0), Err("it became shorter meanwhile".to_owned()));
    visit.begin(object).expect("begun");
    fs::remove_file(&one).expect("removed");
    synced(&mut visit, None);
    assert!(visit.read(0, &mut [0; 4096]).is_err());
    drop(visit);
    stand.daemon.good("zfs unmount tank/files");
}
