//! Damaged and hostile pools.

use codec::checksum::embedded::{Verifier, seal};

use crate::import::tests::*;

/// Overwrites the three copies of the block that a pool's newest uberblock points to, on a pool of
/// one disk.
fn break_newest_mos(image: &Path) -> Txg {
    let spa = load(&[image]);
    let bp = ondisk::Blkptr::decode(&spa.uberblock().rootbp).unwrap();
    let file = OpenOptions::new().write(true).open(image).unwrap();
    for dva in bp.stored().unwrap().copies() {
        file.write_all_at(&[0xa5; 512], dva.offset.0 + ondisk::label::LABEL_START_SIZE).unwrap();
    }
    spa.uberblock().txg
}

/// Goal: if the newest MOS can't be read, the import fails, reports an older state, and opens it on
/// request.
#[test]
fn rewind_past_a_broken_mos() {
    let copy = testkit::fixture_copy("checkpoint");
    let newest = break_newest_mos(&copy.images()[0]);
    let failure = try_import(copy.images(), &sharing()).unwrap_err();
    assert!(matches!(failure.error, SpaError::Mos { .. }), "{failure:?}");
    assert_eq!(failure.used.unwrap().0, newest);
    let older = failure.rewind.expect("an older state");
    assert!(older.txg < newest);
    // All attempts of the rewind share one claim, so that an owner does not refuse itself.
    let owner = Options { claim: Claim::Own, rewind: Rewind::Recover, ..Options::default() };
    let spa = try_import(copy.images(), &owner).unwrap();
    assert_eq!((spa.uberblock().txg, spa.log_dropped()), (older.txg, true));
    drop(spa);
    let spa = try_import(copy.images(), &Options { max_txg: Some(older.txg), ..sharing() }).unwrap();
    assert_eq!(spa.uberblock().txg, older.txg);
    let status = examine(&candidate(copy.images()), &sharing(), &our_host(), &NoWait).status;
    assert_eq!(status, PoolStatus::CorruptPool);
}

/// Goal: a label that names another pool or another device makes that device corrupt, not part of
/// the pool.
#[test]
fn foreign_labels() {
    let copy = testkit::fixture_copy("mirror2");
    relabel(&copy.images()[1], |nv| nv.set("pool_guid", ondisk::Value::Uint64(77)));
    let found = discover(copy.images());
    assert_eq!(found.pools.len(), 2);
    let ours = found.pools.iter().find(|p| p.guid.0 != 77).unwrap();
    let spa = import(ours, &sharing(), &their_host(), &NoWait).unwrap();
    assert_eq!(spa.tree().state().0, VdevState::Degraded);
}

/// Goal: whatever a label with a valid checksum says, finding and opening the pool returns a value.
#[test]
fn hostile_labels_never_panic() {
    let copy = testkit::fixture_copy("raidz3-7");
    let original = copy.images()[0].with_extension("orig");
    std::fs::copy(&copy.images()[0], &original).unwrap();
    let whole = FileDevice::open(&original, Mode::Peek).unwrap();
    let mut part = vec![0; PHYS_SIZE as usize];
    whole.read_at(&mut part, PHYS_OFFSET).unwrap();
    let used = Nvlist::decode(&part).unwrap().encode_xdr().len();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for _ in 0..150 {
        let mut bytes = part.clone();
        for _ in 0..=next(3) {
            bytes[4 + next(used - 4)] = [0, 1, 0x7f, 0xff, next(256) as u8][next(5)];
        }
        let file = OpenOptions::new().write(true).open(&copy.images()[0]).unwrap();
        for l in 0..LABELS {
            let offset = label_offset(whole.size(), l).unwrap() + PHYS_OFFSET;
            seal(&Verifier::Label { offset }, &mut bytes, None).unwrap();
            file.write_all_at(&bytes, offset).unwrap();
        }
        // The damaged label alone, and together with intact ones.
        for images in [&copy.images()[..1], copy.images()] {
            for pool in discover(images).pools {
                let options = Options { skip_mmp: true, force: true, ..sharing() };
                drop(import(&pool, &options, &our_host(), &NoWait));
            }
        }
    }
}

/// Goal: a rewind skips a state with damaged metadata, even if it can be opened.
#[test]
fn rewind_past_damaged_metadata() {
    let copy = testkit::fixture_copy("checkpoint");
    let image = &copy.images()[0];
    let spa = load(&[image]);
    // A block that only the newest state has and that an import doesn't read.
    let newest = spa.uberblock().txg;
    let recent = spa
        .mos()
        .objset()
        .objects(ObjNum(1))
        .map(Result::unwrap)
        .filter(|d| d.kind() == ondisk::DmuType::SPACE_MAP)
        .filter_map(|d| d.bp(ondisk::Level(0), ondisk::BlkId(0)).ok())
        .find(|bp| bp.stored().is_some() && bp.birth == newest)
        .expect("some object was written last");
    drop(spa);
    let file = OpenOptions::new().write(true).open(image).unwrap();
    for dva in recent.stored().unwrap().copies() {
        file.write_all_at(&[0xa5; 512], dva.offset.0 + ondisk::label::LABEL_START_SIZE).unwrap();
    }
    assert_eq!(load(&[image]).uberblock().txg, newest, "a plain import doesn't look");
    let spa = try_import(&[image], &Options { rewind: Rewind::Recover, ..sharing() }).unwrap();
    assert!(spa.uberblock().txg < newest);
}
