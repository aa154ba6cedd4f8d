//! New file systems, created in memory.

use crate::pools as common;

use dmu::{Objset, Tx};
use ondisk::objset::{ObjsetFlags, ObjsetKind};
use ondisk::{ObjNum, Txg};
use zpl::{FileSystem, NewFileSystem};

/// Goal: the attributes of the root directory are, byte for byte, those of a root that OpenZFS 2.3
/// created at these times.
///
/// Its size, its links and its number differ, because that root had grown.
#[test]
fn root_as_openzfs_makes_it() {
    let o = common::open(&testkit::fixture("single-lz4"));
    let tx = Tx::new(Txg(4), None);
    let os = Objset::create_live(
        o.cache.clone(),
        1,
        ObjsetKind::Zfs,
        ObjsetFlags(1),
        &tx,
        zio::ReadOptions::demand(),
    );
    NewFileSystem::new((0x6b01_ec45, 0x17de_339c)).fill(&os, &tx).unwrap();
    let fs = FileSystem::open(&os).unwrap();
    let root = fs.root();
    let mut made = os.dnode(root).unwrap().bonus().to_vec();
    made[48..56].copy_from_slice(&34u64.to_le_bytes());
    let hex = "5a502f0002041800ed41000000000000020000000000000004000000000000000000000000000000\
               000000000000000022000000000000004401000008040000\
               45ec016b000000009c33de170000000045ec016b000000009c33de1700000000\
               45ec016b000000009c33de170000000045ec016b000000009c33de1700000000\
               0200000000000000030000000000000000000010ff011e0000004020a900120000000040a9001200";
    let want: Vec<u8> =
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    assert_eq!(made, want);
    assert!(os.dnode(ObjNum(1)).is_ok());
}
