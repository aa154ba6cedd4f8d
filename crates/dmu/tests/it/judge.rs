//! OpenZFS's `zdb` reads the changes that this crate made to a pool of OpenZFS.
//!
//! The test needs Debian's tools (`scripts/oracle-tools.sh`) in `ORACLE_TOOLS` and passes without
//! them. It changes no space maps, so `zdb` does not check for leaks.

use crate::common;

use arc::Cache;
use codec::checksum::embedded::{Verifier, seal};
use device::{Device, FileDevice, Mode};
use dmu::sa::Sa;
use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Objset, SyncSink, Tx};
use ondisk::dnode::DnodePhys;
use ondisk::label::{label_offset, uberblock_count, uberblock_offset, uberblock_shift};
use ondisk::sa::Attr;
use ondisk::zap::ZapFlags;
use ondisk::{
    Ashift, Blkptr, ChecksumKind, CompressKind, DmuType, Dva, Guid, Level, ObjNum, Offset, Txg, Uberblock,
    VdevId,
};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{Tree, VdevConfig, VdevKind};
use zio::{NoSpace, ReadOptions, Space, Want, WritePolicy, Zio};

/// Bytes at the end of the device that the fixture doesn't use.
const ROOM: u64 = 24 << 20;
pub const ASHIFT: Ashift = Ashift(9);
const LABELS_FRONT: u64 = 4 << 20;
/// Files with layouts of their own: all orders of five attributes.
const FILES: usize = 120;

struct Front {
    tree: Arc<Tree>,
    next: AtomicU64,
}

impl Space for Front {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        let vdev = VdevId(0);
        let asize = self.tree.psize_to_asize(vdev, want.psize, want.txg).map_err(|_| NoSpace)?;
        let place = |_| {
            let offset = Offset(self.next.fetch_add(asize.0, Ordering::Relaxed));
            Dva { vdev, offset, asize, gang: false }
        };
        Ok(std::array::from_fn(|i| (i < usize::from(want.copies)).then_some(i).map(place)))
    }

    fn free(&self, _: &Dva, _: Txg, _: Txg) {}

    fn unallocate(&self, _: &Dva, _: Txg) {}
}

/// Writes metadata twice and data once, as OpenZFS does. Freed blocks stay allocated.
pub struct Sink;

impl SyncSink for Sink {
    fn policy(&self, kind: DmuType, level: Level, _: &DnodePhys) -> WritePolicy {
        let copies = if level.0 > 0 || kind.is_metadata() { 2 } else { 1 };
        let checksum = ChecksumKind::Fletcher4;
        WritePolicy { copies, checksum, compress: CompressKind::Lz4, embed: true, ..WritePolicy::PLAIN }
    }

    fn born(&mut self, _: &Blkptr) {}

    fn kill(&mut self, _: &Blkptr) {}

    fn dsize(&self, bp: &Blkptr) -> u64 {
        bp.stored().map_or(0, |s| s.copies().map(|d| d.asize.0).sum())
    }

    fn hole_birth(&self) -> bool {
        true
    }

    fn large_dnode(&mut self) {}
}

/// The cache of a pool on one disk, opened for writing.
pub fn cache(image: &Path, salt: &[u8; 32]) -> Arc<Cache> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image, Mode::Write).unwrap());
    let mut room = vec![0; ROOM as usize];
    let start = label_offset(device.size(), 2).unwrap() - ROOM;
    device.read_at(&mut room, start).unwrap();
    assert!(room.iter().all(|b| *b == 0), "the fixture uses the end of its device");
    let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
    let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
    leaf.ashift = Some(ASHIFT);
    root.children = vec![leaf];
    let tree = Arc::new(Tree::open(&root, &mut |_| Ok(device.clone())).unwrap());
    let zio = Zio::new(tree.clone());
    zio.set_salt(salt);
    zio.set_space(Arc::new(Front { tree, next: AtomicU64::new(start - LABELS_FRONT) }));
    Arc::new(Cache::new(zio, 64 << 20))
}

pub fn put_uberblock(image: &Path, rootbp: &Blkptr, txg: Txg, of: &Uberblock) {
    let device = FileDevice::open(image, Mode::Write).unwrap();
    let shift = uberblock_shift(ASHIFT);
    let ub = Uberblock { txg, rootbp: rootbp.encode(), ..of.clone() };
    let mut slot = vec![0; 1 << shift];
    let raw = ub.encode();
    slot[..raw.len()].copy_from_slice(&raw);
    let at = uberblock_offset(shift, txg.0 as usize % uberblock_count(shift));
    for label in 0..4 {
        let offset = label_offset(device.size(), label).unwrap() + at;
        seal(&Verifier::Label { offset }, &mut slot, None).unwrap();
        device.write_at(&slot, offset).unwrap();
    }
}

fn fill_file_system(os: &Objset, txg: Txg) -> [ObjNum; 3] {
    let tx = Tx::new(txg, None);
    let spec = |kind| NewObject::new(kind);
    let plain = ZapFlags::default();
    let big = Zap::create(os, &tx, &spec(DmuType::DIRECTORY_CONTENTS), Normalization::NONE, plain).unwrap();
    for n in 0..20_000u64 {
        big.add(&tx, format!("name {n} in a big directory").as_bytes(), &Value::from(8 << 60 | 4)).unwrap();
    }
    for n in (0..20_000u64).step_by(2) {
        big.remove(&tx, format!("name {n} in a big directory").as_bytes()).unwrap();
    }
    let small = Zap::create(os, &tx, &spec(DmuType::MASTER_NODE), Normalization::NONE, plain).unwrap();
    for n in 0..1000u64 {
        small.add(&tx, format!("n{n}").as_bytes(), &Value::from(n)).unwrap();
    }
    let master = Zap::open(&os.dnode(ObjNum(1)).unwrap()).unwrap();
    let sa = Sa::load(os, master.lookup_u64(b"SA_ATTRS").unwrap().map(ObjNum)).unwrap();
    let file = NewObject { block_size: 131_072, slots: 1, ..spec(DmuType::PLAIN_FILE_CONTENTS) };
    let file = os.create_object(&tx, &file.with_bonus(DmuType::SA, Vec::new())).unwrap();
    let word = |v: u64| v.to_le_bytes();
    let (mode, size, uid, one) = (word(0o100_600), word(1 << 40), word(4711), word(1));
    let attrs: [(Attr, &[u8]); 14] = [
        (Attr::Mode, &mode),
        (Attr::Size, &size),
        (Attr::Gen, &one),
        (Attr::Uid, &uid),
        (Attr::Gid, &uid),
        (Attr::Parent, &word(34)),
        (Attr::Flags, &word(0x4)),
        (Attr::Atime, &[1; 16]),
        (Attr::Mtime, &[1; 16]),
        (Attr::Ctime, &[1; 16]),
        (Attr::Crtime, &[1; 16]),
        (Attr::Links, &one),
        // OpenZFS doesn't use this order, so a new layout is created. The values exceed the bonus
        // buffer.
        (Attr::Dxattr, &[0; 700]),
        (Attr::Symlink, b"nowhere"),
    ];
    sa.replace(&file, &tx, &attrs).unwrap();
    let noise: Vec<u8> = (0..700_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    for at in [0, 5_000_000, 1 << 33, (1 << 40) - 700_000] {
        file.write_at(&tx, at, &noise).unwrap();
    }
    file.free_range(&tx, 1 << 33, 300_000).unwrap();
    for _ in 0..3000 {
        os.create_object(&tx, &spec(DmuType::PLAIN_FILE_CONTENTS)).unwrap();
    }
    [big.dnode().object(), small.dnode().object(), file.object()]
}

/// Attributes that a file may have behind those of each, in orders that OpenZFS doesn't use.
const MORE: [(Attr, &[u8]); 5] = [
    (Attr::Rdev, &[7; 8]),
    (Attr::Xattr, &[0; 8]),
    (Attr::DaclAces, &[5; 12]),
    (Attr::Symlink, b"nowhere"),
    (Attr::Dxattr, &[0; 20]),
];

/// The ZAP of this number.
fn zap(os: &Objset, object: ObjNum) -> Zap {
    Zap::open(&os.dnode(object).unwrap()).unwrap()
}

/// The ZAP that another one names, and its number.
fn named(os: &Objset, of: ObjNum, name: &[u8]) -> ObjNum {
    ObjNum(zap(os, of).lookup_u64(name).unwrap().unwrap())
}

/// Moves the layouts of a file system into a table of blocks of 1 KiB.
fn move_layouts(os: &Objset, txg: Txg) {
    let (tx, master) = (Tx::new(txg, None), ObjNum(1));
    let old = named(os, named(os, master, b"SA_ATTRS"), b"LAYOUTS");
    let is_free = |first: &u64| (*first..first + 3).all(|n| os.is_free_object(ObjNum(n)).unwrap());
    let first = (1..100_000).find(is_free).unwrap();
    let (_, made) = Sa::create(os, &tx, Some(ObjNum(first))).unwrap();
    let table = zap(os, named(os, made, b"LAYOUTS"));
    for layout in zap(os, old).entries().map(Result::unwrap) {
        table.add(&tx, layout.name(), &layout.value).unwrap();
    }
    zap(os, master).update(&tx, b"SA_ATTRS", &Value::from(made.0)).unwrap();
}

/// Makes files in the root directory, each with a layout of its own.
fn fill_layouts(os: &Objset, txg: Txg) {
    let (tx, master) = (Tx::new(txg, None), ObjNum(1));
    let made = named(os, master, b"SA_ATTRS");
    let (sa, root) = (Sa::load(os, Some(made)).unwrap(), named(os, master, b"ROOT"));
    let spec = NewObject { slots: 2, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let word = |v: u64| v.to_le_bytes();
    for file in 0..FILES {
        let dn = os.create_object(&tx, &spec.clone().with_bonus(DmuType::SA, Vec::new())).unwrap();
        let begin = [(Attr::Mode, word(0o100_600)), (Attr::Size, word(0)), (Attr::Gen, word(txg.0))];
        let owners = [Attr::Uid, Attr::Gid].map(|attr| (attr, word(20_000 + file as u64)));
        let place = [(Attr::Parent, word(root.0)), (Attr::Flags, word(0x4))];
        let begin = [&begin[..], &owners, &place].concat();
        let times = [Attr::Atime, Attr::Mtime, Attr::Ctime, Attr::Crtime].map(|attr| (attr, &[1; 16][..]));
        let links = word(1);
        let begin = begin.iter().map(|(attr, value)| (*attr, &value[..]));
        let mut attrs: Vec<(Attr, &[u8])> = begin.chain(times).chain([(Attr::Links, &links[..])]).collect();
        let (mut order, mut left) = (file, MORE.to_vec());
        while !left.is_empty() {
            let of = left.len();
            attrs.push(left.remove(order % of));
            order /= of;
        }
        sa.replace(&dn, &tx, &attrs).unwrap();
        let entry = Value::from(8 << 60 | dn.object().0);
        zap(os, root).add(&tx, format!("layout {file}.").as_bytes(), &entry).unwrap();
    }
    let header = zap(os, named(os, made, b"LAYOUTS")).fat_header().unwrap();
    assert!(header.block_shift == 10 && header.num_leafs > 4, "{header:?}");
}

/// Syncs the file system, then the MOS with its new root and with another ZAP. Returns the root of
/// the MOS.
fn sync_group(mos: &Objset, os: &Objset, dataset: ObjNum, tx: &Tx, step: u64) -> Blkptr {
    let bp = os.sync(tx, 1, &mut Sink, &os.cache().zio().workers()).unwrap();
    let ds = mos.dnode(dataset).unwrap();
    let mut bonus = ds.bonus().to_vec();
    bonus[128..256].copy_from_slice(&bp.encode());
    ds.set_bonus(tx, ds.bonus_kind(), &bonus).unwrap();
    let words = NewObject { block_size: 4096, ..NewObject::new(DmuType::ZAP_METADATA) };
    let words = Zap::create(mos, tx, &words, Normalization::NONE, ZapFlags::WORDS).unwrap();
    for n in 0..2000 {
        words.add_words(tx, &[n, step], &Value::integers(8, &[n; 3])).unwrap();
    }
    mos.sync(tx, 1, &mut Sink, &mos.cache().zio().workers()).unwrap();
    words.update_words(tx, &[1, step], &Value::from(1)).unwrap();
    mos.sync(tx, 2, &mut Sink, &mos.cache().zio().workers()).unwrap()
}

/// Runs `zdb` on the devices in `dir`. It must succeed if and only if `sound`. Returns its output
/// and its messages.
pub fn run_zdb(tools: &Path, dir: &Path, args: &[&str], sound: bool) -> (String, String) {
    let out = Command::new(tools.join("sbin/zdb"))
        .env("LD_LIBRARY_PATH", tools.join("lib/x86_64-linux-gnu"))
        .args(["-e", "-p"])
        .arg(dir)
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&out.stderr).into_owned();
    let end = &text[text.len().saturating_sub(3000)..];
    assert!(out.status.success() == sound, "zdb {args:?}: {wrong}\n{end}");
    (text, wrong)
}

/// Checks that `zdb` has found each file with a layout of its own, and the table that has these.
fn check_layouts(text: &str) {
    for file in 0..FILES {
        let found = format!("\tpath\t/layout {file}.\n\tuid     {}\n", 20_000 + file);
        assert_eq!(text.matches(&found).count(), 1, "{found}");
    }
    let number = |table: &str, of: &str| {
        let (_, rest) = table.split_once(of).unwrap();
        rest.lines().next().unwrap().trim().parse::<usize>().unwrap()
    };
    let tables = text.split("SA attr layouts\n").skip(1);
    let split: Vec<&str> = tables.filter(|table| number(table, "Leaf blocks:") > 4).collect();
    let [table] = split[..] else { panic!("{} tables have many leaves", split.len()) };
    let listed = table.split("\n\n").nth(1).unwrap().matches(" = [ ").count();
    assert!(listed > FILES && listed == number(table, "ZAP entries:"), "{listed}");
}

/// Goal: after two transaction groups that change a file system and the MOS, `zdb` finds all blocks
/// and counts right. It lists the new contents.
#[test]
fn zdb_reads_what_we_wrote() {
    let Some(tools) = std::env::var_os("ORACLE_TOOLS") else { return };
    let fx = testkit::find("single-lz4").expect("bundled");
    let copy = fx.copy();
    let image = copy.images()[0].clone();
    let (ub, salt, id, head) = {
        let mos = common::mos(&image);
        let salt = common::salt(&mos).unwrap();
        let (id, os) = common::filesystems(&mos)
            .into_iter()
            .find(|(id, _)| mos.dnode(ObjNum(*id)).unwrap().bonus()[40..48] == [0; 8])
            .unwrap();
        let ub = common::uberblock(&FileDevice::open(&image, Mode::Peek).unwrap(), ASHIFT);
        (ub, salt, id, os.root_bp())
    };
    let cache = cache(&image, &salt);
    let mos =
        Objset::open_live(cache.clone(), 0, &Blkptr::decode(&ub.rootbp).unwrap(), ReadOptions::demand())
            .unwrap();
    let os = Objset::open_live(cache.clone(), id, &head, ReadOptions::demand()).unwrap();
    let mut made: Option<[ObjNum; 3]> = None;
    let mut last = (ub.txg, Blkptr::HOLE);
    for step in 1..=2u64 {
        let txg = Txg(ub.txg.0 + step);
        let tx = Tx::new(txg, None);
        match made {
            None => {
                made = Some(fill_file_system(&os, txg));
                move_layouts(&os, txg);
            }
            Some([.., file]) => {
                os.dnode(file).unwrap().write_at(&tx, 12_345_678, b"again").unwrap();
                os.dnode(file).unwrap().free_range(&tx, 1 << 39, u64::MAX).unwrap();
                fill_layouts(&os, txg);
            }
        }
        last = (txg, sync_group(&mos, &os, ObjNum(id), &tx, step));
    }
    drop((mos, os, cache));
    let (txg, root) = last;
    put_uberblock(&image, &root, txg, &ub);
    let zdb = |args: &[&str], sound: bool| run_zdb(Path::new(&tools), copy.dir(), args, sound);
    let pool = fx.pool();
    let (text, _) = zdb(&["-u", pool], true);
    assert!(text.contains(&format!("txg = {txg}")), "{text}");
    // `zdb` reads and checks every block.
    let (text, wrong) = zdb(&["-L", "-bcc", pool], true);
    assert!(!text.contains("error") && !wrong.contains("error"), "{text}{wrong}");
    // `zdb -ddddd` fails on the ZAPs that no MOS object refers to.
    let (text, wrong) = zdb(&["-ddddd", pool], false);
    assert!(text.matches("name 19999 in a big directory = ").count() == 1, "{wrong}");
    assert!(!text.contains("name 2 in a big directory"));
    assert!(text.contains("ZAP entries: 10000"));
    check_layouts(&text);
    let all = text + &wrong;
    assert_eq!(all.matches("leaked").count(), 4, "two ZAPs; a file in no directory, twice");
    for bad in ["mismatch", "ERROR", "failed"] {
        let line = all.lines().find(|l| l.contains(bad));
        assert!(line.is_none(), "{}", line.unwrap());
    }
}
