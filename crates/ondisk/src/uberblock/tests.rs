use proptest::prelude::*;

use super::*;

/// The slot of transaction group 419 of a pool that OpenZFS 2.3.2 wrote.
const SLOT: &[u8] = include_bytes!("../../tests/data/uberblock-single-lz4-419.bin");

/// Goal: a real uberblock decodes to what `zdb -u` printed of it.
#[test]
fn real_uberblock() {
    let ub = Uberblock::decode(SLOT).unwrap();
    assert_eq!((ub.version, ub.txg, ub.guid_sum), (5000, Txg(419), 11_793_879_363_278_848_114));
    assert_eq!((ub.timestamp, ub.checkpoint_txg, ub.software_version), (1_795_288_814, Txg(0), 5000));
    assert_eq!(ub.mmp.unwrap().delay_ns, 0);
    assert_eq!(ub.mmp.unwrap().valid_bits(), 0);
    assert_eq!(ub.raidz_reflow, RaidzReflow::default());
    let bp = crate::Blkptr::decode(&ub.rootbp).unwrap();
    let dva: Vec<_> = bp.stored().unwrap().copies().map(|d| (d.vdev.0, d.offset.0)).collect();
    assert_eq!(dva, [(0, 0x419_ae00), (0, 0x23f_9e00), (0, 0x60a_6800)]);
}

/// Goal: the same uberblock in the other byte order decodes to the same fields.
#[test]
fn foreign_uberblock() {
    let mut slot = SLOT.to_vec();
    bytes::swap64(&mut slot);
    let ub = Uberblock::decode(&slot).unwrap();
    assert_eq!(ub.order, ByteOrder::Big);
    assert_eq!(Uberblock { order: ByteOrder::Little, ..ub }, Uberblock::decode(SLOT).unwrap());
}

/// Goal: multihost fields decode as OpenZFS packs them, and only if their bit says that they are
/// valid.
#[test]
fn multihost_fields() {
    let mmp = Mmp { delay_ns: 1, config: 10 << 48 | 3 << 32 | 1000 << 8 | 7 };
    assert_eq!((mmp.interval_ms(), mmp.seq(), mmp.fail_intervals()), (Some(1000), Some(3), Some(10)));
    let off = Mmp { config: mmp.config & !7, ..mmp };
    assert_eq!((off.interval_ms(), off.seq(), off.fail_intervals()), (None, None, None));
}

/// Goal: of two uberblocks the one with the higher txg is newer, then the later, then the later
/// within a second.
#[test]
fn newer_goes_by_txg_time_and_sequence() {
    let a = Uberblock::decode(SLOT).unwrap();
    let b = Uberblock { txg: Txg(420), timestamp: 0, ..a.clone() };
    assert_eq!(b.newer(&a), Ordering::Greater);
    let c = Uberblock { timestamp: a.timestamp + 1, ..a.clone() };
    assert_eq!(c.newer(&a), Ordering::Greater);
    let d = Uberblock { mmp: Some(Mmp { delay_ns: 0, config: 1 << 32 | 2 }), ..a.clone() };
    assert_eq!(d.newer(&a), Ordering::Greater);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: no damage to a slot makes its decoder panic.
    #[test]
    fn damaged_slots_never_panic(edits in prop::collection::vec((0usize..256, any::<u8>()), 1..20), cut in 0usize..1024) {
        let mut slot = SLOT.to_vec();
        for (at, b) in edits {
            slot[at] = b;
        }
        let _ = Uberblock::decode(&slot);
        let _ = Uberblock::decode(&slot[..cut]);
    }
}
