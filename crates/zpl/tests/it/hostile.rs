//! Pools with valid checksums and one damaged block: no operation panics or runs forever.

use crate::common::pool::try_mos;
use dmu::Objset;
use fuzzing::graft::Graft;
use fuzzing::mutate::{Rng, mutate};
use ondisk::kind::ByteSwap;
use ondisk::{Blkptr, DmuType, ObjNum};
use std::collections::{BTreeMap, BTreeSet};
use zpl::{DirCookie, Error, FileSystem, FileType, SpaceKind};

/// Most objects, and entries of one directory, that a small pool with one damaged block may show.
/// More means a cycle.
const LIMIT: usize = 20_000;

/// Every object set that a dataset names and that opens despite other damage.
fn surviving(mos: &Objset) -> Vec<Objset> {
    mos.objects(ObjNum(1))
        .filter_map(|d| d.ok())
        .filter(|d| d.bonus_kind() == DmuType::DSL_DATASET && d.bonus().len() >= 256)
        .filter_map(|d| {
            let bp = Blkptr::decode(&d.bonus()[128..256]).ok()?;
            Objset::open(mos.cache().clone(), d.object().0, &bp, zio::ReadOptions::demand()).ok()
        })
        .collect()
}

/// Calls every query of a file. The results don't matter.
fn ask(fs: &FileSystem, object: ObjNum) -> Result<(), Error> {
    let node = fs.node(object)?;
    let _ = (node.acl(), node.xattrs(), node.readlink(), fs.object_path(object));
    let mut buf = vec![0; 8192];
    for at in [0, node.attr().size / 2, node.attr().size.saturating_sub(1), u64::MAX - 1] {
        let _ = (node.read(at, &mut buf), node.seek_data(at), node.seek_hole(at));
    }
    if node.attr().kind == FileType::Directory {
        let _ = (node.lookup_entry(b"README", true), node.lookup_entry(&[0xc3; 400], false));
    }
    Ok(())
}

/// Walks a file system from its root, into each directory once.
fn explore(fs: &FileSystem) -> usize {
    let mut seen = BTreeSet::from([fs.root()]);
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        let _ = ask(fs, dir);
        let Ok(entries) = fs.read_dir(dir, DirCookie::START) else { continue };
        for (i, e) in entries.enumerate() {
            assert!(i < LIMIT, "a directory doesn't end");
            let Ok(e) = e else { continue };
            if !seen.insert(e.object) {
                continue;
            }
            if fs.node(e.object).is_ok_and(|n| n.attr().kind == FileType::Directory) {
                todo.push(e.object);
            } else {
                let _ = ask(fs, e.object);
            }
        }
    }
    let _ = (fs.unlinked(), fs.domains(), fs.space(SpaceKind::UserUsed), fs.space(SpaceKind::GroupQuota));
    seen.len()
}

/// True for the blocks of file systems, except the contents of files.
fn is_ours(kind: DmuType) -> bool {
    kind.is_metadata() && matches!(kind.byteswap(), ByteSwap::Zap | ByteSwap::Dnode | ByteSwap::Acl)
        || kind == DmuType::SA
}

/// Damages and reads one pool in rounds; the environment variables `ROUNDS` and `SEED` override the
/// defaults.
fn rounds(name: &str, seed: u64) {
    let number = |var: &str| std::env::var(var).ok().map(|v| v.parse::<u64>().unwrap());
    let rounds = number("ROUNDS").unwrap_or(25) as usize;
    let seed = number("SEED").unwrap_or(seed);
    let mut graft = Graft::open(&testkit::load(name));
    let ours: Vec<usize> =
        graft.nodes().iter().enumerate().filter(|(_, n)| is_ours(n.kind())).map(|(i, _)| i).collect();
    assert!(ours.len() > 20);
    let mut rng = Rng::new(seed);
    let mut explored = 0;
    for round in 0..rounds {
        println!("{name}: seed {seed}, round {round}");
        let index = ours[rng.below(ours.len())];
        let mut contents = graft.nodes()[index].contents().to_vec();
        let len = contents.len();
        mutate(&mut rng, &mut contents);
        // A block's length is in its pointer, so only its contents can be wrong.
        contents.resize(len, 0);
        graft.apply(BTreeMap::from([(index, contents)]));
        if let Ok(mos) = try_mos(&graft.image()) {
            for os in surviving(&mos) {
                explored += FileSystem::open(&os).map_or(0, |fs| explore(&fs));
            }
        }
        graft.undo();
    }
    assert!(explored > rounds * 10, "too little was reached: {explored}");
}

/// Goal: a damaged block is harmless in file systems with system attributes, long names and
/// normalization.
#[test]
fn one_wrong_block_with_system_attributes() {
    rounds("longname", 1);
}

/// Goal: a damaged block is harmless in file systems of ZPL 1, with znodes.
#[test]
fn one_wrong_block_with_znodes() {
    rounds("v1", 2);
}
