//! A map is read once, until it changes.

use super::*;
use ondisk::BlkId;

/// A dnode without contents, distinguished by its last block.
fn dnode(version: u64) -> DnodePhys {
    let mut raw = [0; 512];
    // A ZAP of one level with one pointer.
    (raw[0], raw[1], raw[2], raw[3]) = (1, 17, 1, 1);
    raw[8] = 1;
    let phys = DnodePhys::decode(&raw).unwrap().unwrap();
    DnodePhys { maxblkid: BlkId(version), ..phys }
}

/// Goal: ten thousand names need one reading of the map; a changed map is read again; the number of
/// maps is bounded.
#[test]
fn one_look_for_many_names() {
    let reversed = Reversed::default();
    let mut looks = 0;
    let mut name = |map: u64, version, object| {
        let all = || {
            looks += 1;
            Ok((0..10_000).map(|n| (format!("{version}-{n}"), ObjNum(n))).collect())
        };
        let found = reversed.name((ObjNum(map), &dnode(version)), ObjNum(object), all).unwrap();
        (found, looks)
    };
    for object in 0..10_000 {
        assert_eq!(name(1, 0, object), (Some(format!("0-{object}")), 1));
    }
    assert_eq!(name(1, 0, 10_000), (None, 1));
    assert_eq!(name(1, 7, 5), (Some("7-5".to_owned()), 2));
    for map in 2..100 {
        name(map, 0, 1);
    }
    assert_eq!(name(1, 7, 5).1, 101, "the oldest map was given up");
    assert!(reversed.0.lock().len() <= MAPS);
}
