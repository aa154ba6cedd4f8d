//! ZAPs and system attributes of pools that OpenZFS wrote.

use crate::common::{filesystems, mos};
use dmu::zap::{Cookie, Key, Match, Zap};
use dmu::{Dnode, Objset};
use ondisk::kind::ByteSwap;
use ondisk::zap::{FatHeader, Leaf, MicroZap};
use ondisk::{BlkId, DmuType, ObjNum};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The object's ZAP, if the object is a ZAP with contents.
fn zap(dn: &Dnode) -> Option<Zap> {
    let is_zap = dn.kind().byteswap() == ByteSwap::Zap;
    (is_zap && dn.block(BlkId(0)).unwrap().is_some()).then(|| Zap::open(dn).unwrap())
}

/// Checks that a ZAP lists as many entries as it counts, finds each by lookup, and resumes at each
/// cursor position.
fn check(zap: &Zap) -> usize {
    let all: Vec<_> = zap.entries().collect::<Result<_, _>>().unwrap();
    assert_eq!(all.len() as u64, zap.count().unwrap(), "{:?}", zap.dnode());
    let mut seen = BTreeSet::new();
    for (i, e) in all.iter().enumerate() {
        assert!(seen.insert(e.key.clone()), "{:?} lists {:?} twice", zap.dnode(), e.key);
        let found = match &e.key {
            Key::Name(n) => zap.lookup(n).unwrap(),
            Key::Words(w) => zap.lookup_words(w).unwrap(),
        };
        assert_eq!(found.as_ref(), Some(&e.value), "{:?} lost {:?}", zap.dnode(), e.key);
        if let Key::Name(n) = &e.key {
            let matched = zap.lookup_matching(n, Match::NormalizedCase).unwrap();
            assert!(matched.is_some(), "{:?} does not match {:?}", zap.dnode(), e.key);
        }
        if i % 37 == 0 {
            let resumed = zap.cursor_at(e.next).next_entry().unwrap();
            assert_eq!(resumed.as_ref(), all.get(i + 1), "{:?} resumed after {:?}", zap.dnode(), e.key);
        }
    }
    assert!(zap.cursor_at(Cookie::END).next_entry().unwrap().is_none());
    assert_eq!(zap.lookup(b"no such name, surely").unwrap(), None);
    all.len()
}

fn check_all(os: &Objset) -> (usize, usize, usize) {
    let (mut micro, mut fat, mut entries) = (0, 0, 0);
    for dn in os.objects(ObjNum(1)) {
        if let Some(zap) = zap(&dn.unwrap()) {
            entries += check(&zap);
            if zap.is_micro() { micro += 1 } else { fat += 1 }
        }
    }
    (micro, fat, entries)
}

/// Goal: every ZAP of the MOS and of each file system is consistent, in pools with all
/// normalizations, fat directories and DDTs.
#[test]
fn every_zap_of_real_pools() {
    for (name, least) in [("single-lz4", 10_000), ("longname", 100), ("v1", 50), ("dedup-legacy", 100)] {
        let Some(fx) = testkit::find(name) else { continue };
        let mos = mos(&fx.images()[0]);
        let mut sum = check_all(&mos);
        for (_, os) in filesystems(&mos) {
            let (m, f, e) = check_all(&os);
            sum = (sum.0 + m, sum.1 + f, sum.2 + e);
        }
        assert!(sum.2 > least, "{name}: only {sum:?}");
    }
}

/// Goal: the layouts of an object set find the attributes that every file has.
#[test]
fn every_file_has_its_attributes() {
    let fx = testkit::find("single-lz4").expect("bundled");
    let mut files = 0;
    for (_, os) in filesystems(&mos(&fx.images()[0])) {
        let master = Zap::open(&os.dnode(ObjNum(1)).unwrap()).unwrap();
        let attrs = master.lookup_u64(b"SA_ATTRS").unwrap().map(ObjNum);
        let sa = dmu::sa::Sa::load(&os, attrs).unwrap();
        for dn in os.objects(ObjNum(1)) {
            let dn = dn.unwrap();
            if dn.bonus_kind() != DmuType::SA || dn.bonus().iter().all(|b| *b == 0) {
                continue;
            }
            let a = sa.attrs(&dn).unwrap();
            use ondisk::sa::Attr;
            if a.u64(Attr::Mode).unwrap().is_some() {
                for attr in
                    [Attr::Size, Attr::Gen, Attr::Uid, Attr::Gid, Attr::Parent, Attr::Flags, Attr::Links]
                {
                    assert!(a.u64(attr).unwrap().is_some(), "{dn:?} lacks {}", attr.name());
                }
                for attr in [Attr::Atime, Attr::Mtime, Attr::Ctime, Attr::Crtime] {
                    assert!(a.pair(attr).unwrap().unwrap()[1] < 1_000_000_000);
                }
                files += 1;
            }
        }
    }
    assert!(files > 3000, "only {files} files");
}

/// Blocks of real ZAPs of every kind: micro, header, leaf.
fn samples() -> Vec<Vec<u8>> {
    let fx = testkit::find("single-lz4").expect("bundled");
    let mos = mos(&fx.images()[0]);
    let mut out: Vec<Vec<u8>> = Vec::new();
    for os in std::iter::once(mos.clone()).chain(filesystems(&mos).into_iter().take(3).map(|(_, os)| os)) {
        for dn in os.objects(ObjNum(1)) {
            let dn = dn.unwrap();
            if let Some(z) = zap(&dn).filter(|z| z.count().unwrap() > 2 && out.len() < 40) {
                out.push(dn.block(BlkId(0)).unwrap().unwrap().to_vec());
                if !z.is_micro() {
                    out.push(dn.block(BlkId(1)).unwrap().unwrap().to_vec());
                }
            }
        }
    }
    assert!(out.len() > 8);
    out
}

/// Goal: no mutation of a real block makes a decoder panic or loop.
#[test]
fn mutated_blocks_end() {
    let samples = samples();
    let strategy =
        (0..samples.len(), prop::collection::vec((any::<usize>(), any::<u8>()), 1..40), any::<bool>());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    runner
        .run(&strategy, |(i, muts, head)| {
            let mut b = samples[i].clone();
            for (at, v) in muts {
                let at = at % if head { b.len().min(256) } else { b.len() };
                b[at] = v;
            }
            if let Ok(l) = Leaf::parse(&b) {
                for e in l.entries().unwrap_or_default() {
                    let _ = (l.name(&e), l.words_key(&e), l.value(&e), l.entries_of(e.hash));
                }
            }
            if let Ok(z) = MicroZap::parse(&b) {
                z.entries().for_each(drop);
            }
            if let Ok(h) = FatHeader::parse(&b) {
                let _ = (h.embedded(&b, 0), h.external(1, 7), h.index(u64::MAX));
            }
            Ok(())
        })
        .unwrap();
}
