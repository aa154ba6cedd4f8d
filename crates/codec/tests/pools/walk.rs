//! A walk from the newest uberblock through all object sets of the MOS, which reads every block
//! pointer once.
//!
//! A pool of one disk needs no vdev logic: a DVA's offset is a file offset behind the front labels.

use crate::keys::{Keys, zap};
use codec::checksum::embedded::{self, Verifier};
use codec::crypt::{self, DataKeys};
use codec::{Checksum, Checksummer, compress};
use ondisk::blkptr::{Blkptr, Body, Dva, Stored};
use ondisk::dnode::DnodePhys;
use ondisk::gang::decode_gang_header;
use ondisk::kind::ByteSwap;
use ondisk::objset::ObjsetPhys;
use ondisk::{CompressKind, DmuType};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Start of the allocatable space, after two labels and the boot block.
const DATA_START: u64 = 4 << 20;

/// Level-0 blocks by their number.
type Blocks = Vec<(u64, Vec<u8>)>;

pub struct Walk {
    image: File,
    sums: Checksummer,
    keys: Keys,
    /// Keys of the dataset that is being walked; none in the MOS.
    data_keys: Option<Rc<DataKeys>>,
    seen: HashSet<(u64, u64)>,
    /// Number of blocks by checksum, by compressor and by kind.
    pub count: BTreeMap<String, usize>,
    pub repacked: usize,
}

impl Walk {
    pub fn new(image: File, keys: Keys) -> Self {
        Self {
            image,
            sums: Checksummer::new(&[0; 32]),
            keys,
            data_keys: None,
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

    /// The root pointer of the newest uberblock that verifies. Every slot with an uberblock must
    /// verify.
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

    /// The verified stored bytes of a copy; gang blocks are assembled.
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

    /// The whole contents of a block; `None` for holes and blocks read before.
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
                let mut copies: Vec<Vec<u8>> = s.copies().map(|d| self.stored(bp, s, d)).collect();
                assert!(copies.iter().all(|c| *c == copies[0]));
                let mut data = copies.swap_remove(0);
                self.decrypt(bp, s, &mut data);
                (data, s.compress)
            }
        };
        self.tick(&format!("compress {}", kind.name()));
        let mut data = vec![0xa5; bp.lsize.0 as usize];
        compress::decompress(kind, &packed, &mut data).unwrap_or_else(|e| panic!("{e:?} {bp:?}"));
        self.repack(kind, &packed, &data);
        self.authenticate(bp, &data);
        Some(data)
    }

    /// Checks the MAC of stored bytes and decrypts them. Encrypting them again must yield the
    /// stored bytes.
    fn decrypt(&mut self, bp: &Blkptr, s: &Stored, data: &mut [u8]) {
        let mac = Checksum(s.sum).mac(bp.order);
        if bp.is_encrypted() {
            let keys = self.data_keys.clone().expect("an encrypted block is in an encrypted dataset");
            let stored = data.to_vec();
            keys.decrypt(bp.kind, bp.order, &s.crypt_params, &mac, data).unwrap();
            let mut again = data.to_vec();
            assert_eq!(keys.encrypt(bp.kind, &s.crypt_params, &mut again).unwrap(), mac);
            assert!(again == stored);
            again[0] ^= 1;
            assert!(keys.decrypt(bp.kind, bp.order, &s.crypt_params, &mac, &mut again).is_err());
            if s.dedup {
                assert_eq!(keys.dedup_params(data), s.crypt_params);
                self.tick("encrypted for dedup");
            }
            self.tick(&format!("{} {}", keys.suite().name(), bp.kind.name()));
        } else if bp.is_authenticated() && bp.kind != DmuType::OBJSET {
            let keys = self.data_keys.clone().unwrap();
            keys.verify_mac(data, &mac).unwrap();
            keys.verify_mac(&data[1..], &mac).unwrap_err();
            self.tick("authenticated");
        }
    }

    /// Checks the MACs over uncompressed bytes.
    fn authenticate(&mut self, bp: &Blkptr, data: &[u8]) {
        if bp.has_indirect_mac() {
            let mac = Checksum(bp.stored().unwrap().sum).mac(bp.order);
            crypt::verify_indirect(bp.order, data, &mac).unwrap();
            self.tick("indirect MAC");
        } else if bp.is_authenticated() && bp.kind == DmuType::OBJSET {
            let keys = self.data_keys.clone().unwrap();
            keys.verify_objset(bp.order, data).unwrap();
            let macs = keys.objset_macs(bp.order, data).unwrap();
            self.tick(if macs.local == [0; 32] { "objset, no local MAC" } else { "objset, both MACs" });
            let mut bad = data.to_vec();
            bad[16] ^= 1;
            keys.verify_objset(bp.order, &bad).unwrap_err();
        }
    }

    /// LZJB and ZLE must pack to OpenZFS's bytes; the other compressors must survive a round trip.
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

    /// Walks a tree and collects its level-0 blocks, except those read before.
    fn tree(&mut self, bp: &Blkptr, blkid: u64, found: &mut Blocks) {
        let Some(data) = self.block(bp) else { return };
        if bp.level.0 == 0 {
            found.push((blkid, data));
            return;
        }
        let fanout = data.len() as u64 / 128;
        for (i, raw) in data.chunks_exact(128).enumerate() {
            self.tree(&Blkptr::decode(raw).unwrap(), blkid * fanout + i as u64, found);
        }
    }

    fn dnode(&mut self, dnode: &DnodePhys) -> Blocks {
        let mut blocks = Blocks::new();
        for (i, bp) in dnode.blkptrs.iter().enumerate() {
            self.tree(bp, i as u64, &mut blocks);
        }
        if let Some(bp) = &dnode.spill {
            self.tree(bp, 0, &mut Blocks::new());
        }
        blocks
    }

    /// Walks an object set, and calls `each` for each object with its blocks.
    fn objset(&mut self, bp: &Blkptr, mut each: impl FnMut(&mut Self, u64, &DnodePhys, Blocks)) {
        let mut root = Blocks::new();
        self.tree(bp, 0, &mut root);
        let Some((_, raw)) = root.first() else { return };
        let objset = ObjsetPhys::decode(raw).unwrap();
        self.log(&objset.zil_header);
        for dnode in [&objset.userused, &objset.groupused, &objset.projectused].into_iter().flatten() {
            self.dnode(dnode);
        }
        for (blkid, data) in self.dnode(&objset.meta_dnode) {
            let mut at = 0;
            while at < data.len() {
                let slots = DnodePhys::slots(&data[at..]).unwrap();
                if let Some(dnode) = DnodePhys::decode(&data[at..]).unwrap() {
                    let blocks = self.dnode(&dnode);
                    each(self, (blkid * data.len() as u64 + at as u64) / 512, &dnode, blocks);
                }
                at += 512 * slots;
            }
        }
    }

    /// Reads the log blocks of an object set's header, up to the first that doesn't verify, which
    /// is the end of the chain.
    fn log(&mut self, header: &[u8; 192]) {
        let mut next = Blkptr::decode(&header[16..144]).unwrap();
        while let Some(s) = next.stored().copied() {
            let data = self.bytes(DATA_START + s.dvas[0].unwrap().offset.0, s.psize.0 as usize);
            let verifier = Verifier::Zilog2(Checksum(s.sum));
            if embedded::verify(&verifier, &data, s.crypt).is_err() {
                return;
            }
            self.tick("log block");
            let (stored, mut data) = (data.clone(), data);
            let used = ondisk::bytes::le64(&data, 136) as usize;
            if s.crypt {
                let keys = self.data_keys.clone().unwrap();
                let mac = crypt::zil_mac(&data).unwrap();
                keys.decrypt(next.kind, next.order, &s.crypt_params, &mac, &mut data).unwrap();
                let mut again = data.clone();
                assert_eq!(keys.encrypt(next.kind, &s.crypt_params, &mut again).unwrap(), mac);
                assert!(again[..used] == stored[..used]);
                self.tick("log block, encrypted");
            }
            let mut again = data.clone();
            embedded::seal(&verifier, &mut again, None).unwrap();
            if !s.crypt {
                assert!(again == stored);
            }
            next = Blkptr::decode(&data[8..136]).unwrap();
        }
    }

    pub fn pool(&mut self) {
        let root = self.root();
        let mut datasets = Vec::new();
        self.objset(&root, |walk, number, dnode, blocks| {
            if dnode.kind.byteswap() == ByteSwap::Zap && blocks.iter().any(|(id, _)| *id == 0) {
                let blocks: Vec<Vec<u8>> = blocks.into_iter().map(|(_, data)| data).collect();
                walk.keys.zaps.insert(number, zap(&blocks));
            }
            if dnode.bonus_kind == DmuType::DSL_DATASET {
                // `ds_dir_obj` and `ds_bp` of `dsl_dataset_phys_t`.
                let dir = ondisk::bytes::le64(&dnode.bonus, 0);
                datasets.push((dir, Blkptr::decode(&dnode.bonus[128..256]).unwrap()));
            }
        });
        self.sums = Checksummer::new(&self.keys.checksum_salt());
        for (dir, objset) in &datasets {
            self.data_keys = self.keys.of_dir(*dir);
            self.objset(objset, |_, _, _, _| {});
        }
    }
}
