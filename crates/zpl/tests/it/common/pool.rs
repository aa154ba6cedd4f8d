//! A minimal reader of pools on one disk: newest uberblock, MOS, file systems by name.

use arc::Cache;
use device::{Device, FileDevice, Mode};
use dmu::Objset;
use dmu::zap::Zap;
use ondisk::bytes::le64;
use ondisk::label::{uberblock_count, uberblock_offset, uberblock_shift};
use ondisk::objset::ObjsetKind;
use ondisk::{Ashift, Blkptr, Guid, ObjNum, Uberblock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vdev::{Tree, VdevConfig, VdevKind};
use zio::{ReadOptions, Zio};

/// The newest uberblock of the first label.
fn uberblock(device: &FileDevice, ashift: Ashift) -> Uberblock {
    let shift = uberblock_shift(ashift);
    (0..uberblock_count(shift))
        .filter_map(|slot| {
            let mut buf = vec![0; 1 << shift];
            device.read_at(&mut buf, uberblock_offset(shift, slot)).unwrap();
            Uberblock::decode(&buf).ok()
        })
        .max_by(Uberblock::newer)
        .expect("a pool has an uberblock")
}

/// The MOS of a pool on one disk with small sectors.
pub fn mos(image: &Path) -> Objset {
    try_mos(image).unwrap()
}

/// As `mos`, for a MOS that may be damaged itself.
pub fn try_mos(image: &Path) -> dmu::Result<Objset> {
    let ashift = Ashift(9);
    let device = FileDevice::open(image, Mode::Peek).unwrap();
    let ub = uberblock(&device, ashift);
    let device: Arc<dyn Device> = Arc::new(device);
    let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
    let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
    leaf.ashift = Some(ashift);
    root.children = vec![leaf];
    let tree = Tree::open(&root, &mut |_| Ok(device.clone())).unwrap();
    let cache = Arc::new(Cache::new(Zio::new(Arc::new(tree)), 64 << 20));
    let mos = Objset::open(cache, 0, &Blkptr::decode(&ub.rootbp).unwrap(), ReadOptions::demand())?;
    let directory = Zap::open(&mos.dnode(ObjNum(1))?)?;
    if let Some(salt) = directory.lookup(b"org.illumos:checksum_salt")? {
        mos.cache().zio().set_salt(salt.as_bytes().unwrap().try_into().unwrap());
    }
    Ok(mos)
}

/// The object sets of all file systems and their snapshots, by full name.
pub fn filesystems(pool: &str, mos: &Objset) -> BTreeMap<String, Objset> {
    let directory = Zap::open(&mos.dnode(ObjNum(1)).unwrap()).unwrap();
    let root = directory.lookup_u64(b"root_dataset").unwrap().unwrap();
    let mut out = BTreeMap::new();
    let mut todo = vec![(pool.to_owned(), ObjNum(root))];
    while let Some((name, dir)) = todo.pop() {
        let dir = mos.dnode(dir).unwrap();
        // dsl_dir_phys_t: head dataset at byte 8, children at 32.
        let head = ObjNum(le64(dir.bonus(), 8));
        for e in
            entries(mos, le64(dir.bonus(), 32)).filter(|(n, _)| !n.starts_with('$') && !n.starts_with('%'))
        {
            todo.push((format!("{name}/{}", e.0), ObjNum(e.1)));
        }
        if head.0 == 0 {
            continue;
        }
        // dsl_dataset_phys_t: names of snapshots at byte 32.
        let snaps = le64(mos.dnode(head).unwrap().bonus(), 32);
        out.extend(open(mos, head).map(|os| (name.clone(), os)));
        for (snap, obj) in entries(mos, snaps) {
            out.extend(open(mos, ObjNum(obj)).map(|os| (format!("{name}@{snap}"), os)));
        }
    }
    out
}

fn entries(mos: &Objset, zap: u64) -> impl Iterator<Item = (String, u64)> {
    let zap = Zap::open(&mos.dnode(ObjNum(zap)).unwrap()).unwrap();
    zap.entries()
        .map(|e| e.unwrap())
        .map(|e| (String::from_utf8(e.name().to_vec()).unwrap(), e.value.as_u64().unwrap()))
        .collect::<Vec<_>>()
        .into_iter()
}

/// The object set of a dataset, if it is a file system that opens without a key.
fn open(mos: &Objset, dataset: ObjNum) -> Option<Objset> {
    let ds = mos.dnode(dataset).unwrap();
    let bp = Blkptr::decode(&ds.bonus()[128..256]).unwrap();
    let os = Objset::open(mos.cache().clone(), dataset.0, &bp, ReadOptions::demand()).unwrap();
    match os.dnode(ObjNum(1)) {
        Ok(_) => (os.kind() == ObjsetKind::Zfs).then_some(os),
        Err(dmu::Error::Read(zio::Error::Key { .. })) => None,
        Err(e) => panic!("dataset {dataset}: {e}"),
    }
}
