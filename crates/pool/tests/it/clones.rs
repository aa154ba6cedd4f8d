//! The block reference table of pools that OpenZFS wrote, changed in memory.

use crate::common::{Opened, open};
use dmu::{Objset, Tx};
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::feature::Feature;
use ondisk::{
    Asize, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Level, Lsize, Offset, Psize, Txg,
    VdevId,
};
use pool::Mos;
use pool::brt::CloneTable;
use std::collections::BTreeMap;
use zio::{Clones, ReadOptions};

fn block(offset: u64) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(offset), asize: Asize(8192), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(8192),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Fletcher4,
        sum: [1; 4],
        phys_birth: Txg(4),
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr {
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        lsize: Lsize(8192),
        birth: Txg(4),
        order: ByteOrder::Little,
        body: Body::Stored(stored),
    }
}

/// The entries by offset, and the sums, of the table of vdev 0.
fn table(mos: &Mos) -> Option<(BTreeMap<u64, u64>, [u64; 3])> {
    let brt = mos.brt(1).unwrap().pop()?;
    let entries = mos.brt_entries(&brt).unwrap().map(|e| e.unwrap()).map(|e| (e.offset, e.refcnt));
    Some((entries.collect(), [brt.phys.totalcount, brt.phys.usedspace, brt.phys.savedspace]))
}

fn live(name: &str) -> Option<(Opened, Mos, CloneTable)> {
    let o = open(testkit::find(name)?.images());
    let os = Objset::open_live(o.cache.clone(), 0, &o.mos.objset().root_bp(), ReadOptions::demand()).unwrap();
    let clones = CloneTable::open(&o.mos, &o.vdevs()).unwrap();
    Some((o, Mos::open(os).unwrap(), clones))
}

/// Goal: clones count from their txg on, and each free removes one before the block itself is
/// freed.
///
/// After the last free, the table is as before. So is the feature's count, also if there was no
/// table.
#[test]
fn clones_come_and_go() {
    let feature = Feature::by_name("block_cloning").unwrap();
    for name in ["single-lz4", "block-clone"] {
        let Some((o, live, clones)) = live(name) else { continue };
        let (before, users) = (table(&o.mos), live.feature_refcount(feature).unwrap());
        let txg = o.txg + 1;
        let tx = Tx::new(Txg(txg), None);
        let blocks: Vec<Blkptr> = (0..50).map(|i| block(512 + i * 65536)).collect();
        for bp in &blocks {
            clones.add(Txg(txg), bp);
            clones.add(Txg(txg), bp);
            clones.add(Txg(txg), bp);
            assert!(clones.withdraw(Txg(txg), bp), "{name}");
            assert!(!clones.withdraw(Txg(txg + 1), bp), "{name}");
        }
        assert!(!clones.sync(&tx, &live).unwrap(), "{name}: they don't count yet");
        clones.begin(Txg(txg)).unwrap();
        assert!(clones.sync(&tx, &live).unwrap() && !clones.sync(&tx, &live).unwrap(), "{name}");
        let (mut want, mut sums) = before.clone().unwrap_or_default();
        want.extend(blocks.iter().map(|bp| (bp.stored().unwrap().dvas[0].unwrap().offset.0, 2)));
        for (sum, more) in sums.iter_mut().zip([50, 50 * 8192, 100 * 8192]) {
            *sum += more;
        }
        assert_eq!(table(&live), Some((want, sums)), "{name}");
        for bp in &blocks {
            let kept = [(); 3].map(|()| clones.release(Txg(txg), bp));
            assert_eq!(kept, [true, true, false], "{name}");
        }
        assert!(clones.sync(&tx, &live).unwrap(), "{name}");
        assert_eq!(table(&live), before, "{name}");
        assert_eq!(live.feature_refcount(feature).unwrap(), users, "{name}");
    }
}

/// Goal: the entries that OpenZFS wrote apply: a block survives as many frees as they count, and
/// then the table is empty.
#[test]
fn entries_of_openzfs_are_heeded() {
    let Some((o, live, clones)) = live("block-clone") else { return };
    let (entries, _) = table(&o.mos).unwrap();
    assert!(entries.len() > 5);
    for (offset, n) in &entries {
        let kept = (0..n + 2).filter(|_| clones.release(Txg(o.txg + 1), &block(*offset))).count();
        assert_eq!(kept as u64, *n);
    }
    assert!(clones.sync(&Tx::new(Txg(o.txg + 1), None), &live).unwrap());
    assert!(table(&live).is_none());
}
