//! A minimal reader of pools on one disk: newest uberblock, MOS, object sets of file systems.

use arc::Cache;
use device::{Device, FileDevice, Mode};
use dmu::Objset;
use dmu::zap::Zap;
use ondisk::label::{uberblock_count, uberblock_offset, uberblock_shift};
use ondisk::{Ashift, Blkptr, DmuType, Guid, ObjNum, Uberblock};
use std::path::Path;
use std::sync::Arc;
use vdev::{Tree, VdevConfig, VdevKind};
use zio::{ReadOptions, Zio};

/// The newest uberblock of the first label.
pub fn uberblock(device: &FileDevice, ashift: Ashift) -> Uberblock {
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
    let mos = Objset::open(cache, 0, &Blkptr::decode(&ub.rootbp).unwrap(), ReadOptions::demand()).unwrap();
    if let Some(salt) = salt(&mos) {
        mos.cache().zio().set_salt(&salt);
    }
    mos
}

/// The salt of the checksums of a pool, if it has one.
pub fn salt(mos: &Objset) -> Option<[u8; 32]> {
    let directory = Zap::open(&mos.dnode(ObjNum(1)).unwrap()).unwrap();
    let salt = directory.lookup(b"org.illumos:checksum_salt").unwrap()?;
    Some(salt.as_bytes().unwrap().try_into().unwrap())
}

/// The object sets with a master node of all file systems and snapshots, by dataset object.
pub fn filesystems(mos: &Objset) -> Vec<(u64, Objset)> {
    mos.objects(ObjNum(1))
        .map(|d| d.unwrap())
        .filter(|d| d.bonus_kind() == DmuType::DSL_DATASET)
        .filter_map(|d| {
            // `ds_bp` of `dsl_dataset_phys_t` is the block pointer at byte 128.
            let bp = Blkptr::decode(&d.bonus()[128..256]).unwrap();
            if bp.is_hole() {
                return None;
            }
            let os = Objset::open(mos.cache().clone(), d.object().0, &bp, ReadOptions::demand()).unwrap();
            let master = match os.dnode(ObjNum(1)) {
                Ok(m) => Some(m).filter(|m| m.kind() == DmuType::MASTER_NODE)?,
                Err(dmu::Error::Read(zio::Error::Key { .. })) => return None,
                Err(dmu::Error::NoSuchObject { .. }) => return None,
                Err(e) => panic!("dataset {}: {e}", d.object()),
            };
            Zap::open(&master).unwrap().lookup_u64(b"ROOT").unwrap()?;
            Some((d.object().0, os))
        })
        .collect()
}
