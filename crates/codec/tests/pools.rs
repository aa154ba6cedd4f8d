//! Every block of real pools, checked and unpacked with this room and `ondisk` alone.
//!
//! A walk from the best uberblock through all object sets of the MOS reads every block pointer that there is, once.
//! A pool of one disk needs no vdev logic: a DVA's offset is a file offset behind the front labels.

#![allow(clippy::unwrap_used, reason = "a test, whose helpers are functions too")]

use codec::checksum::embedded::{self, Verifier};
use codec::{Checksum, Checksummer, compress};
use ondisk::blkptr::{Blkptr, Body, Dva, Stored};
use ondisk::dnode::DnodePhys;
use ondisk::gang::decode_gang_header;
use ondisk::objset::ObjsetPhys;
use ondisk::{CompressKind, DmuType};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where allocatable space begins: behind two labels and the boot block.
const DATA_START: u64 = 4 << 20;

struct Walk {
    image: File,
    sums: Checksummer,
    seen: HashSet<(u64, u64)>,
    /// Blocks by checksum, by compressor, by what they are.
    count: BTreeMap<String, usize>,
    repacked: usize,
}

impl Walk {
    fn new(image: File, salt: &str) -> Self {
        let salt: Vec<u8> =
            (0..64).step_by(2).map(|i| u8::from_str_radix(&salt[i..i + 2], 16).unwrap()).collect();
        Self {
            image,
            sums: Checksummer::new(salt.as_slice().try_into().unwrap()),
            seen: HashSet::new(),
            count: BTreeMap::new(),
            repacked: 0,
        }
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        self.image.read_exact_at(&mut buf, offset).unwrap();
        buf
    }

    fn tick(&mut self, what: &str) {
        *self.count.entry(what.to_owned()).or_default() += 1;
    }

    /// The root pointer of the newest uberblock that verifies; every slot that holds one must.
    fn root(&mut self) -> Blkptr {
        const SLOT: usize = 1024;
        let mut best: Option<(u64, Blkptr)> = None;
        for slot in 0..128u64 {
            let offset = (128 << 10) + slot * SLOT as u64;
            let block = self.bytes(offset, SLOT);
            if ondisk::bytes::le64(&block, 0) != 0x00ba_b10c {
                continue;
            }
            embedded::verify(&Verifier::Label { offset }, &block, false).unwrap();
            embedded::verify(&Verifier::Label { offset: offset + 1 }, &block, false).unwrap_err();
            self.tick("uberblock");
            let txg = ondisk::bytes::le64(&block, 16);
            if best.as_ref().is_none_or(|(t, _)| *t < txg) {
                best = Some((txg, Blkptr::decode(&block[40..168]).unwrap()));
            }
        }
        best.unwrap().1
    }

    /// The stored bytes of a copy, gang blocks put together, and checked.
    fn stored(&mut self, bp: &Blkptr, s: &Stored, dva: &Dva) -> Vec<u8> {
        let mac = s.crypt && bp.kind != DmuType::OBJSET;
        let data = if dva.gang {
            self.gang(bp, s, dva)
        } else {
            self.bytes(DATA_START + dva.offset.0, s.psize.0 as usize)
        };
        self.sums.verify(s.checksum, bp.order, &data, Checksum(s.sum), mac).unwrap();
        data
    }

    fn gang(&mut self, bp: &Blkptr, s: &Stored, dva: &Dva) -> Vec<u8> {
        let mac = s.crypt && bp.kind != DmuType::OBJSET;
        let header = self.bytes(DATA_START + dva.offset.0, 512);
        let first = s.dvas[0].unwrap();
        let verifier =
            Verifier::GangHeader { vdev: first.vdev.0.into(), offset: first.offset.0, birth: s.phys_birth.0 };
        embedded::verify(&verifier, &header, mac).unwrap();
        self.tick("gang header");
        let mut data = Vec::new();
        for child in decode_gang_header(&header).unwrap() {
            let c = *child.stored().unwrap();
            for d in c.copies() {
                let piece = self.stored(&child, &c, d);
                if d == c.copies().next().unwrap() {
                    data.extend(piece);
                }
            }
        }
        data
    }

    /// The block's bytes in full, or `None` for holes, blocks seen before, and encrypted ones.
    fn block(&mut self, bp: &Blkptr) -> Option<Vec<u8>> {
        let (packed, kind) = match &bp.body {
            Body::Hole | Body::Redacted => return None,
            Body::Embedded(e) => {
                self.tick("embedded");
                (e.payload().to_vec(), e.compress)
            }
            Body::Stored(s) => {
                let at = s.dvas[0].unwrap();
                if !self.seen.insert((at.offset.0, s.phys_birth.0)) {
                    return None;
                }
                self.tick(&format!("checksum {}", s.checksum.name()));
                let copies: Vec<Vec<u8>> = s.copies().map(|d| self.stored(bp, s, d)).collect();
                assert!(copies.iter().all(|c| *c == copies[0]));
                if bp.is_encrypted() && bp.kind != DmuType::DNODE {
                    self.tick("encrypted");
                    return None;
                }
                (copies[0].clone(), s.compress)
            }
        };
        self.tick(&format!("compress {}", kind.name()));
        let mut data = vec![0xa5; bp.lsize.0 as usize];
        compress::decompress(kind, &packed, &mut data).unwrap_or_else(|e| panic!("{e:?} {bp:?}"));
        self.repack(kind, &packed, &data);
        Some(data)
    }

    /// LZJB and ZLE must come out as OpenZFS wrote them; the others must survive a round trip.
    fn repack(&mut self, kind: CompressKind, packed: &[u8], data: &[u8]) {
        let level = match kind {
            CompressKind::Zstd => compress::zstd_header(packed).unwrap().level,
            _ => compress::ZstdLevel::default(),
        };
        if kind == CompressKind::Off || level.zstd() > 9 {
            return;
        }
        let mut again = vec![0; compress::max_size(kind, 512, 512, data.len())];
        let len = compress::compress(kind, level, data, &mut again);
        if kind == CompressKind::Lzjb || kind == CompressKind::Zle {
            let len = len.unwrap();
            assert!(again[..len] == packed[..len] && packed[len..].iter().all(|b| *b == 0), "{kind:?}");
            self.repacked += 1;
        } else if let Some(len) = len {
            let mut twice = vec![0; data.len()];
            compress::decompress(kind, &again[..len], &mut twice).unwrap();
            assert!(twice == data, "{kind:?}");
            self.repacked += 1;
        }
    }

    fn tree(&mut self, bp: &Blkptr, found: &mut Vec<Blkptr>) {
        let Some(data) = self.block(bp) else { return };
        if bp.level.0 > 0 {
            for raw in data.chunks_exact(128) {
                self.tree(&Blkptr::decode(raw).unwrap(), found);
            }
        } else if bp.kind == DmuType::DNODE {
            let mut at = 0;
            while at < data.len() {
                let slots = DnodePhys::slots(&data[at..]).unwrap();
                if let Some(dnode) = DnodePhys::decode(&data[at..]).unwrap() {
                    self.dnode(&dnode, found);
                }
                at += 512 * slots;
            }
        } else if bp.kind == DmuType::OBJSET {
            let objset = ObjsetPhys::decode(&data).unwrap();
            let extra = [objset.userused, objset.groupused, objset.projectused];
            for dnode in std::iter::once(&objset.meta_dnode).chain(extra.iter().flatten()) {
                self.dnode(dnode, found);
            }
        }
    }

    fn dnode(&mut self, dnode: &DnodePhys, found: &mut Vec<Blkptr>) {
        for bp in dnode.blkptrs.iter().chain(&dnode.spill) {
            self.tree(bp, found);
        }
        if dnode.bonus_kind == DmuType::DSL_DATASET {
            // `ds_bp` of `dsl_dataset_phys_t`.
            found.push(Blkptr::decode(&dnode.bonus[128..256]).unwrap());
        }
    }

    fn pool(&mut self) {
        let root = self.root();
        let mut datasets = Vec::new();
        self.tree(&root, &mut datasets);
        for objset in &datasets {
            self.tree(objset, &mut Vec::new());
        }
    }
}

fn walk(name: &str, salt: &str) -> Option<Walk> {
    let dir = std::env::var_os("FIXTURE_IMAGES")?;
    let image = File::open(std::path::Path::new(&dir).join(name).join("d0.img")).unwrap();
    let mut walk = Walk::new(image, salt);
    walk.pool();
    Some(walk)
}

/// Goal: each checksum function and each compressor that a pool can use agrees with what OpenZFS wrote.
#[test]
fn single_disk_with_every_checksum_and_compressor() {
    let salt = "2ac1b53b44d97f738dd8a8a7ff12d436c0426275c28c86a8d9baee29e0ee3c03";
    let Some(walk) = walk("single-lz4", salt) else { return };
    for kind in ["fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3", "off"] {
        assert!(walk.count.contains_key(&format!("checksum {kind}")), "no {kind}");
    }
    for kind in ["uncompressed", "lzjb", "gzip-1", "gzip-9", "zle", "lz4", "zstd"] {
        assert!(walk.count.contains_key(&format!("compress {kind}")), "no {kind}");
    }
    assert!(walk.repacked > 1000);
}

/// Goal: checksums that share their words with a MAC verify, and so do the MACs' indirect blocks.
#[test]
fn encrypted() {
    let salt = "281a2c1084d4e11e7b7cfa647b1822c02b0893830a0db7df16e3904fd0fd7b0f";
    let Some(walk) = walk("encrypted", salt) else { return };
    assert!(walk.count["encrypted"] > 100);
}

/// Goal: gang headers, nested ones, ones with copies and encrypted ones verify.
#[test]
fn gang_blocks() {
    let Some(walk) = walk("gang", &"00".repeat(32)) else { return };
    assert!(walk.count["gang header"] > 100);
}
