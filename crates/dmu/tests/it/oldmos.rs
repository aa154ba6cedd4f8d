//! A MOS that OpenZFS made, whose indirect blocks are larger than those of new pools, with more
//! objects than one of these blocks reaches.

use crate::common;
use crate::judge::{ASHIFT, Sink, cache, put_uberblock, run_zdb};

use dmu::{NewObject, Objset, Tx};
use ondisk::{Blkptr, DmuType, Level, ObjNum, Txg};
use std::collections::BTreeMap;
use std::path::Path;
use zio::ReadOptions;

/// Objects below a level-1 block of 128 KiB: 1,024 blocks of 32 dnodes.
const SPAN: u64 = 1 << 15;
/// Objects that are made in each transaction group.
const EACH: u64 = 20_000;

/// The objects that the test made, with the word in their bonus.
type Made = BTreeMap<ObjNum, u64>;

fn make(mos: &Objset, tx: &Tx, made: &mut Made, count: u64) {
    for _ in 0..count {
        let word = made.last_key_value().map_or(0, |(last, _)| last.0) + made.len() as u64;
        let spec = NewObject::new(DmuType::UINT8_METADATA);
        let spec = spec.with_bonus(DmuType::UINT64_METADATA, word.to_le_bytes().to_vec());
        let object = mos.create_object(tx, &spec).unwrap().object();
        assert_eq!(made.insert(object, word), None, "object {object} was not free");
    }
}

/// Checks that an object set has exactly these objects.
fn check(mos: &Objset, before: &[ObjNum], made: &Made) {
    let listed: Vec<ObjNum> = mos.objects(ObjNum(1)).map(|dnode| dnode.unwrap().object()).collect();
    let mut expected: Vec<ObjNum> = before.iter().chain(made.keys()).copied().collect();
    expected.sort_unstable();
    assert!(listed == expected, "{} objects, not {}", listed.len(), expected.len());
    for (object, word) in made {
        assert_eq!(mos.dnode(*object).unwrap().bonus(), word.to_le_bytes(), "object {object}");
    }
}

/// Goal: objects of an old MOS are allocated and found behind its first indirect block, and again
/// before it after many were freed there. It keeps the size of its blocks, also when it is opened
/// anew, and `zdb` finds the objects.
#[test]
fn objects_beyond_the_first_indirect_block() {
    let fx = testkit::find("single-lz4").expect("bundled");
    let copy = fx.copy();
    let image = copy.images()[0].clone();
    let ub = common::uberblock(&device::FileDevice::open(&image, device::Mode::Peek).unwrap(), ASHIFT);
    let cache = cache(&image, &common::salt(&common::mos(&image)).unwrap());
    let open = |root: &Blkptr| Objset::open_live(cache.clone(), 0, root, ReadOptions::demand()).unwrap();
    let mut root = Blkptr::decode(&ub.rootbp).unwrap();
    let before: Vec<ObjNum> = open(&root).objects(ObjNum(1)).map(|dnode| dnode.unwrap().object()).collect();
    let mut made = Made::new();
    for step in 1..=5 {
        let (mos, tx) = (open(&root), Tx::new(Txg(ub.txg.0 + step), None));
        let meta = mos.meta_dnode();
        assert_eq!((meta.phys().indblkshift, meta.block_size()), (17, 16 << 10));
        let known = made.clone();
        match step {
            1 | 2 => make(&mos, &tx, &mut made, EACH),
            4 => {
                for object in known.range(..ObjNum(EACH / 2)).map(|(object, _)| *object) {
                    mos.free_object(&tx, object).unwrap();
                    made.remove(&object);
                }
            }
            _ => make(&mos, &tx, &mut made, 100),
        }
        let last = known.last_key_value().map_or(0, |(last, _)| last.0);
        let mut new = made.keys().filter(|object| !known.contains_key(object)).map(|object| object.0);
        match step {
            1 => assert!(new.all(|object| object < SPAN)),
            // The search of the third begins at the second indirect block.
            2 | 3 => assert!(new.all(|object| object > last)),
            4 => assert_eq!(new.next(), None),
            // There is space again.
            _ => assert!(new.all(|object| object < EACH / 2)),
        }
        check(&mos, &before, &made);
        root = mos.sync(&tx, 1, &mut Sink, &cache.zio().workers()).unwrap();
        drop((mos, meta));
        cache.purge();
        check(&Objset::open(cache.clone(), 0, &root, ReadOptions::demand()).unwrap(), &before, &made);
    }
    let mos = open(&root);
    assert!(made.keys().any(|object| object.0 > SPAN) && mos.meta_dnode().max_blkid().0 >= SPAN / 32);
    assert!(mos.meta_dnode().bp(Level(1), ondisk::BlkId(1)).unwrap().stored().is_some());
    drop((mos, cache));
    put_uberblock(&image, &root, Txg(ub.txg.0 + 5), &ub);
    let Some(tools) = std::env::var_os("ORACLE_TOOLS") else { return };
    let zdb = |args: &[&str]| run_zdb(Path::new(&tools), copy.dir(), args, true).0;
    let last = made.last_key_value().unwrap().0.to_string();
    let text = zdb(&["-dddd", fx.pool(), &last]);
    assert!(text.contains(&format!("{last:>10}    1    16K    512")), "{text}");
    let text = zdb(&["-L", "-bcc", fx.pool()]);
    assert!(!text.contains("error"), "{text}");
}
