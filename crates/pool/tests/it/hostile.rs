//! Pools with valid checksums and a dnode with a wrong length. Every read must end.

use crate::common::open;
use fuzzing::graft::Graft;
use ondisk::{DmuType, ObjNum};
use std::collections::BTreeMap;

/// Applies `change` to a dnode of the MOS.
fn graft_dnode(graft: &mut Graft, object: ObjNum, change: impl Fn(&mut [u8])) {
    let images = [graft.image()];
    let bonus = open(&images).mos.objset().dnode(object).unwrap().bonus().to_vec();
    let at = (object.0 % 32) as usize * 512;
    let holds = |contents: &[u8]| {
        let pointers = contents.get(at + 3).copied().map_or(1, usize::from);
        contents.get(at + 64 + pointers * 128..).is_some_and(|b| b.starts_with(&bonus))
    };
    let found = graft.nodes().iter().position(|n| n.kind() == DmuType::DNODE && holds(n.contents()));
    let index = found.expect("the dnode is in a block");
    let mut contents = graft.nodes()[index].contents().to_vec();
    change(&mut contents[at..at + 512]);
    graft.apply(BTreeMap::from([(index, contents)]));
}

/// Goal: a dedup log or a space map that claims 2^60 bytes, of which nearly all are holes, is
/// corrupt.
#[test]
fn logs_without_end() {
    let mut graft = Graft::open(&testkit::load("dedup-fast"));
    let images = [graft.image()];
    let opened = open(&images);
    let log = opened.mos.ddts(&|_| 0).unwrap().iter().flat_map(|d| &d.logs).map(|l| l.object).next().unwrap();
    let map = opened
        .vdevs()
        .iter()
        .flat_map(|v| opened.mos.metaslab_objects(v).unwrap())
        .find(|o| *o != 0)
        .unwrap();
    drop(opened);
    // In both objects the length is the second word of the bonus.
    let endless = |raw: &mut [u8]| {
        let length = 64 + usize::from(raw[3]) * 128 + 8;
        raw[length..length + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
        raw[16..24].copy_from_slice(&(1u64 << 52).to_le_bytes());
    };
    graft_dnode(&mut graft, log, endless);
    let opened = open(&images);
    assert!(opened.mos.ddts(&|_| 0).is_err());
    drop(opened);
    graft.undo();
    graft_dnode(&mut graft, ObjNum(map), endless);
    let map = pool::spacemap::SpaceMap::open(&open(&images).mos, ObjNum(map), 0, 1 << 40, 9).unwrap();
    assert!(map.walk(|_| Ok(())).is_err());
}
