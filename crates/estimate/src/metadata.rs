//! Dnodes, and what an empty file system has.
//!
//! # Theory
//! The dnodes of the tree are made with the attributes of its files, 32 in a block, and compressed.
//! Object numbers and checksums are made up.

use crate::directory::Taken;
use crate::origin::{File, Other};
use crate::pointers::{Noise, Pointers, pointer};
use crate::rule::{self, Space};
use ondisk::blkptr::{Body, Embedded};
use ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_MIN_SIZE, DnodeFlags};
use ondisk::sa::{Attr, SaRegistry};
use ondisk::{BlkId, Blkptr, CompressKind, DmuType, DnodePhys, Level, Lsize};
use std::borrow::Cow;

/// Objects of an empty file system: master node, attributes, unlinked files, quotas.
const OWN_OBJECTS: usize = 7;
/// Blocks of metadata of an empty file system in bytes, packed to whole sectors: the object set,
/// and the ZAPs of system attributes.
const OWN_PACKED: [u64; 4] = [512, 2048, 2048, 2048];
/// The same, of blocks that are too small to be packed.
const OWN_SMALL: [u64; 2] = [1024, 1024];
/// Levels of the block tree of dnodes, which every file system has from the beginning.
const DNODE_LEVELS: u64 = 6;

/// What the only pointer of a dnode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Hole,
    Embedded(u8),
    Stored,
}

/// A file's tree of blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Bytes of a block.
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    /// Bytes on devices.
    pub(crate) used: u64,
    pub(crate) first: First,
}

/// Fills blocks of dnodes.
#[derive(Debug)]
pub(crate) struct Dnodes {
    sector: u64,
    block: Vec<u8>,
    /// Complete blocks.
    blocks: u64,
    space: Space,
    /// What complete file systems take.
    ended: Space,
    registry: SaRegistry,
    noise: Noise,
    /// Where the next block of the pool would begin.
    offset: u64,
    scratch: Vec<u8>,
}

impl Dnodes {
    pub(crate) fn new(sector: u64) -> Dnodes {
        let mut registry = SaRegistry::new();
        registry.register_known(|_| false);
        let (noise, block, scratch) = (Noise(1), Vec::new(), Vec::new());
        let (space, ended) = (Space::default(), Space::default());
        let mut dnodes =
            Dnodes { sector, block, blocks: 0, space, ended, registry, noise, offset: 1 << 24, scratch };
        dnodes.begin();
        dnodes
    }

    /// Begins a file system.
    fn begin(&mut self) {
        for _ in 0..OWN_OBJECTS {
            let mut dnode = empty(DmuType::MASTER_NODE);
            dnode.blkptrs = vec![self.pointer(512, First::Stored)];
            self.push(&dnode);
        }
    }

    /// Adds a regular file.
    pub(crate) fn file(&mut self, file: &File, shape: &Shape) {
        let bonus = self.bonus(file, 1, file.size, None);
        self.object(DmuType::PLAIN_FILE_CONTENTS, shape, bonus);
    }

    /// Adds a directory with this number of names.
    pub(crate) fn directory(&mut self, file: &File, count: u64, taken: &Taken) {
        let Taken { space, block, blocks } = *taken;
        self.space.add(space);
        // What an embedded block holds compresses no further.
        let first = if space.asize == 0 { First::Embedded(100) } else { First::Stored };
        let bonus = self.bonus(file, 2, count + 2, None);
        self.object(DmuType::DIRECTORY_CONTENTS, &Shape { block, blocks, used: space.asize, first }, bonus);
    }

    /// Adds something without blocks.
    pub(crate) fn other(&mut self, file: &File, kind: Other) {
        // The name of a link stands for its target.
        let target = (kind == Other::Symlink).then(|| {
            let noise = &mut self.noise;
            (0..file.size.min(256)).map(|_| b'a' + (noise.next() % 26) as u8).collect::<Vec<u8>>()
        });
        let bonus = self.bonus(file, 1, file.size, target.as_deref());
        let shape = Shape { block: 512, blocks: 1, used: 0, first: First::Hole };
        self.object(DmuType::PLAIN_FILE_CONTENTS, &shape, bonus);
    }

    fn pointer(&mut self, lsize: u64, first: First) -> Blkptr {
        match first {
            First::Hole => Blkptr::HOLE,
            First::Embedded(payload) => {
                let noise = &mut self.noise;
                let bytes: Vec<u8> = (0..payload).map(|_| noise.next() as u8).collect();
                let body = Embedded::new(CompressKind::Lz4, &bytes).map_or(Body::Hole, Body::Embedded);
                let (bp, _) = pointer(DmuType::PLAIN_FILE_CONTENTS, lsize, 512, 0, noise);
                Blkptr { level: Level(0), lsize: Lsize(lsize), body, ..bp }
            }
            First::Stored => {
                let psize = lsize.next_multiple_of(self.sector);
                let kind = DmuType::PLAIN_FILE_CONTENTS;
                let (bp, end) = pointer(kind, lsize, psize, self.offset, &mut self.noise);
                self.offset = end;
                bp
            }
        }
    }

    fn bonus(&mut self, file: &File, links: u64, size: u64, target: Option<&[u8]>) -> Vec<u8> {
        let word = |n: u64| Cow::<[u8]>::Owned(n.to_le_bytes().to_vec());
        let time = |t: [u64; 2]| Cow::<[u8]>::Owned(t.map(u64::to_le_bytes).concat());
        let born = [1_700_000_000 + self.blocks, self.noise.next() % 1_000_000_000];
        // Three entries that are equal to the mode.
        let aces: Vec<u8> = [0x1000u32, 0x2040, 0x4000]
            .iter()
            .flat_map(|who| (who << 16).to_le_bytes().into_iter().chain(0x1e_01ffu32.to_le_bytes()))
            .collect();
        let mut all = vec![
            (Attr::Mode, word(file.mode.into())),
            (Attr::Size, word(size)),
            (Attr::Gen, word(20 + self.blocks / 64)),
            (Attr::Uid, word(file.uid.into())),
            (Attr::Gid, word(file.gid.into())),
            (Attr::Parent, word(34)),
            (Attr::Flags, word(0x400_0080_0144)),
            (Attr::Atime, time(file.times[0])),
            (Attr::Mtime, time(file.times[1])),
            (Attr::Ctime, time(born)),
            (Attr::Crtime, time(born)),
            (Attr::Links, word(links)),
            (Attr::Projid, word(0)),
            (Attr::DaclCount, word(3)),
            (Attr::DaclAces, aces.into()),
        ];
        all.extend(target.map(|target| (Attr::Symlink, target.into())));
        let attrs: Vec<_> =
            all.into_iter().filter_map(|(attr, value)| Some((self.registry.num(attr)?, value))).collect();
        let mut bonus = self.registry.pack(2, &attrs);
        bonus.truncate(DNODE_MIN_SIZE - 64 - 128);
        bonus
    }

    fn object(&mut self, kind: DmuType, shape: &Shape, bonus: Vec<u8>) {
        let multi = shape.blocks > 1;
        let lsize = if multi { 128 << 10 } else { shape.block.max(512) };
        let mut levels = 1;
        let mut blocks = shape.blocks;
        while blocks > 1 {
            (blocks, levels) = (blocks.div_ceil(1024), levels + 1);
        }
        let dnode = DnodePhys {
            nlevels: levels,
            bonus_kind: DmuType::SA,
            datablksz: shape.block.max(512) as u32,
            maxblkid: BlkId(shape.blocks.saturating_sub(1)),
            used_bytes: shape.used,
            blkptrs: vec![self.pointer(lsize, shape.first)],
            bonus,
            ..empty(kind)
        };
        self.push(&dnode);
    }

    fn push(&mut self, dnode: &DnodePhys) {
        self.block.extend_from_slice(&dnode.encode());
        if self.block.len() == DNODE_BLOCK_SIZE {
            self.seal();
        }
    }

    fn seal(&mut self) {
        self.block.resize(DNODE_BLOCK_SIZE, 0);
        let psize = rule::metadata(self.sector, &self.block, false, &mut self.scratch).unwrap_or(0);
        self.space.metadata(self.sector, psize);
        self.blocks += 1;
        self.block.clear();
    }

    /// Ends a file system. What follows is in another one.
    pub(crate) fn end(&mut self) {
        if !self.block.is_empty() {
            self.seal();
        }
        let mut space = std::mem::take(&mut self.space);
        let mut pointers = Pointers::new(self.sector, DNODE_BLOCK_SIZE as u64, true);
        space.add(pointers.whole(self.blocks));
        let (mut blocks, mut levels) = (std::mem::take(&mut self.blocks), 1);
        while blocks > 1 {
            (blocks, levels) = (blocks.div_ceil(1024), levels + 1);
        }
        for _ in levels..DNODE_LEVELS {
            space.metadata(self.sector, self.sector);
        }
        for psize in OWN_PACKED {
            space.metadata(self.sector, psize.next_multiple_of(self.sector));
        }
        for psize in OWN_SMALL {
            space.metadata(self.sector, psize);
        }
        self.ended.add(space);
        self.begin();
    }

    /// What all metadata of the file systems that have ended takes, without files' indirect blocks.
    pub(crate) fn finish(self) -> Space {
        self.ended
    }
}

fn empty(kind: DmuType) -> DnodePhys {
    DnodePhys {
        kind,
        indblkshift: 17,
        nlevels: 1,
        bonus_kind: DmuType::NONE,
        checksum: 0,
        compress: 0,
        flags: DnodeFlags(DnodeFlags::USED_BYTES | DnodeFlags::USERUSED_ACCOUNTED),
        datablksz: 512,
        extra_slots: 0,
        maxblkid: BlkId(0),
        used_bytes: 512,
        blkptrs: vec![Blkptr::HOLE],
        bonus: Vec::new(),
        spill: None,
    }
}
