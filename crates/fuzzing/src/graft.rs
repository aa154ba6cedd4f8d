//! Changes to blocks of a real pool under right checksums, so that the decoders see them.
//!
//! # Theory
//! The checksum of a block detects a flipped bit in an image. So random flips test only checksums.
//!
//! This module changes a block's *contents*, decompressed as a reader sees them. It adds the change
//! to the pool as a copy-on-write file system would:
//!
//! 1. It writes the new contents, uncompressed, to free space.
//! 2. It puts a pointer to them, with a new checksum, into the contents of the parent block, and
//!    writes that in the same way.
//! 3. At the top it writes the uberblock to all four labels, with new checksums.
//!
//! The resulting pool has right checksums everywhere, and wrong contents in the changed blocks.
//!
//! # Life
//! [`Graft::open`] walks the pool once and keeps its tree of blocks. [`Graft::apply`] writes a set
//! of changes. [`Graft::undo`] reverts them. One pool serves thousands of rounds.
//!
//! # Absent
//! * Pools with several devices or with large sectors.
//! * Encrypted blocks, as their MACs would need keys.
//! * Space maps: they don't have the grafted blocks. Only a reader that allocates would notice.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::checksum::embedded::{self, Verifier};
use codec::checksum::fletcher4;
use device::{Device, FileDevice, Mode};
use ondisk::blkptr::{BLKPTR_SIZE, Body, CryptParams, Stored};
use ondisk::label::{LABELS, label_offset, uberblock_count, uberblock_offset, uberblock_shift};
use ondisk::{
    Ashift, Asize, BlkId, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Guid, Level, ObjNum,
    Offset, Psize, Uberblock, VdevConfig, VdevId,
};
use testkit::{Fixture, FixtureCopy};
use zio::{Bookmark, ReadOptions, Zio};

/// Offset of the pointer to the MOS in an uberblock (`ub_rootbp`).
const ROOTBP: usize = 40;
/// Bytes before the space in which DVAs count: two labels and the boot area.
const FRONT: u64 = 4 << 20;
/// Bytes of free space at the end of the device for grafted blocks.
const ROOM: u64 = 24 << 20;
/// The sector size of the supported pools.
const ASHIFT: Ashift = Ashift(9);
/// `DMU_OT_DSL_DATASET`, and the offset of the object set's pointer in its bonus buffer (`ds_bp`).
const DSL_DATASET: u8 = 16;
const DS_BP: usize = 128;

/// A block that the uberblock reaches, with its contents as a reader sees them.
#[derive(Debug)]
pub struct Node {
    bp: Blkptr,
    contents: Vec<u8>,
    /// The block with the pointer to this one, and the offset of the pointer. `None` under the
    /// uberblock.
    parent: Option<(usize, usize)>,
}

impl Node {
    /// The type of the object that the block belongs to.
    pub fn kind(&self) -> DmuType {
        self.bp.kind
    }

    /// The contents of the block, decompressed.
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }
}

/// A private copy of a pool on one device, and its tree of blocks.
#[derive(Debug)]
pub struct Graft {
    copy: FixtureCopy,
    file: File,
    size: u64,
    nodes: Vec<Node>,
    uberblock: Vec<u8>,
    uberblock_at: u64,
    undo: Vec<(u64, Vec<u8>)>,
}

fn newest_uberblock(file: &File, ashift: Ashift) -> (Vec<u8>, u64) {
    let shift = uberblock_shift(ashift);
    (0..uberblock_count(shift))
        .map(|slot| uberblock_offset(shift, slot))
        .filter_map(|at| {
            let mut bytes = vec![0; 1 << shift];
            file.read_exact_at(&mut bytes, at).ok()?;
            Uberblock::decode(&bytes).ok().map(|ub| (ub, bytes, at))
        })
        .max_by(|a, b| a.0.newer(&b.0))
        .map(|(_, bytes, at)| (bytes, at))
        .expect("the fixture has an uberblock")
}

fn pipeline(image: &Path, ashift: Ashift) -> Zio {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image, Mode::Peek).expect("the copy is ours"));
    let mut root = VdevConfig::new(ondisk::VdevKind::Root, Guid(1));
    let mut leaf = VdevConfig::new(ondisk::VdevKind::File, Guid(2));
    leaf.ashift = Some(ashift);
    root.children = vec![leaf];
    let tree = vdev::Tree::open(&root, &mut |_| Ok(device.clone())).expect("one plain device");
    Zio::new(Arc::new(tree))
}

/// Offsets of the block pointers in the contents of a block of this `kind` and `level`.
fn pointers(kind: DmuType, level: Level, contents: &[u8]) -> Vec<usize> {
    if level.0 > 0 {
        return (0..contents.len() / BLKPTR_SIZE).map(|i| i * BLKPTR_SIZE).collect();
    }
    let dnodes: Vec<usize> = match kind {
        DmuType::OBJSET => [0, 1024, 1536, 2048].into_iter().filter(|o| o + 512 <= contents.len()).collect(),
        DmuType::DNODE => {
            let mut found = Vec::new();
            let mut at = 0;
            while at + 512 <= contents.len() {
                found.push(at);
                at += 512 * (1 + usize::from(contents[at + 12]));
            }
            found
        }
        _ => Vec::new(),
    };
    let mut found = Vec::new();
    for at in dnodes {
        let dnode = &contents[at..];
        let [kind, _, _, pointers, bonus, .., flags] = dnode[..8] else { continue };
        if kind == 0 {
            continue;
        }
        found.extend((0..usize::from(pointers)).map(|i| at + 64 + i * BLKPTR_SIZE));
        if flags & 4 != 0 {
            found.push(at + 512 * (1 + usize::from(dnode[12])) - BLKPTR_SIZE);
        }
        if bonus == DSL_DATASET {
            found.push(at + 64 + usize::from(pointers) * BLKPTR_SIZE + DS_BP);
        }
    }
    found.retain(|at| at + BLKPTR_SIZE <= contents.len());
    found
}

impl Graft {
    /// Opens a private copy of a fixture on one device with 512-byte sectors, and walks it.
    ///
    /// # Panics
    /// The fixture has several devices, or the end of its device is not free.
    pub fn open(fixture: &Fixture) -> Graft {
        let copy = fixture.copy();
        assert_eq!(copy.images().len(), 1, "grafting knows pools of one device");
        let image = copy.images()[0].clone();
        let file = OpenOptions::new().read(true).write(true).open(&image).expect("the copy is ours");
        let size = file.metadata().expect("an open file").len();
        let mut room = vec![0; ROOM as usize];
        let label_end = label_offset(size, 2).expect("a device has four labels");
        file.read_exact_at(&mut room, label_end - ROOM).expect("a device is larger than its labels");
        assert!(room.iter().all(|b| *b == 0), "the end of the fixture's device is not free");
        let (uberblock, uberblock_at) = newest_uberblock(&file, ASHIFT);
        let mut graft =
            Graft { copy, file, size, nodes: Vec::new(), uberblock, uberblock_at, undo: Vec::new() };
        graft.walk(&pipeline(&image, ASHIFT));
        graft
    }

    fn walk(&mut self, zio: &Zio) {
        let mut seen = HashSet::new();
        let root = Blkptr::decode(&self.uberblock[ROOTBP..]).expect("the fixture is sound");
        let mut pending = vec![(root, None)];
        while let Some((bp, parent)) = pending.pop() {
            let first = bp.stored().and_then(|s| s.dvas[0]);
            let embedded = matches!(bp.body, Body::Embedded(_));
            let skip = bp.kind == DmuType::PLAIN_FILE_CONTENTS || bp.stored().is_some_and(|s| s.crypt);
            if skip || !(embedded || first.is_some_and(|dva| seen.insert(dva))) {
                continue;
            }
            let bookmark = Bookmark { objset: 0, object: ObjNum(0), level: bp.level, blkid: BlkId(0) };
            // A block whose checksum needs the pool's salt can't be read here. It stays unchanged.
            let Ok(block) = zio.read(&bp, &bookmark, &ReadOptions::demand()) else { continue };
            let (index, contents) = (self.nodes.len(), block.to_vec());
            for at in pointers(bp.kind, bp.level, &contents) {
                if let Ok(child) = Blkptr::decode(&contents[at..]) {
                    pending.push((child, Some((index, at))));
                }
            }
            self.nodes.push(Node { bp, contents, parent });
        }
    }

    /// Walks the pool again, with the applied changes.
    pub fn rewalk(&mut self) {
        (self.uberblock, self.uberblock_at) = newest_uberblock(&self.file, ASHIFT);
        self.nodes.clear();
        self.walk(&pipeline(&self.image(), ASHIFT));
    }

    /// The blocks, parents before children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The image of the pool.
    pub fn image(&self) -> PathBuf {
        self.copy.images()[0].clone()
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut old = vec![0; bytes.len()];
        self.file.read_exact_at(&mut old, offset).expect("within the device");
        self.file.write_all_at(bytes, offset).expect("within the device");
        self.undo.push((offset, old));
    }

    /// Gives the blocks with these numbers new contents of the same lengths.
    ///
    /// A block that no longer fits in the free space stays unchanged.
    ///
    /// # Panics
    /// A number is not that of a block, or the image can't be written.
    pub fn apply(&mut self, mut changed: BTreeMap<usize, Vec<u8>>) {
        let start = label_offset(self.size, 2).expect("a device has four labels") - ROOM;
        let mut next = start;
        let mut root = None;
        for (index, contents) in &mut changed {
            contents.resize(self.nodes[*index].contents.len(), 0);
        }
        // Parents have lower numbers than their children. So each block is complete when its turn
        // comes.
        while let Some((index, mut contents)) = changed.pop_last() {
            let node = &self.nodes[index];
            contents.resize(contents.len().next_multiple_of(512), 0);
            let len = contents.len() as u64;
            if next + len > start + ROOM {
                continue;
            }
            let bp = place(&node.bp, next - FRONT, &contents);
            match node.parent {
                Some((parent, at)) => {
                    let above = changed.entry(parent).or_insert_with(|| self.nodes[parent].contents.clone());
                    above[at..at + BLKPTR_SIZE].copy_from_slice(&bp.encode());
                }
                None => root = Some(bp),
            }
            self.write(next, &contents);
            next += len;
        }
        if let Some(root) = root {
            self.set_root(&root);
        }
    }

    /// Replaces byte strings that occur once in the pool with others of the same length.
    ///
    /// Examples are the bonus buffer of a dnode, or an entry of a map.
    ///
    /// # Panics
    /// The lengths differ, or a byte string does not occur in exactly one block.
    pub fn replace(&mut self, changes: &[(&[u8], &[u8])]) {
        let mut changed: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (old, new) in changes {
            assert_eq!(old.len(), new.len());
            let mut found = self.nodes.iter().enumerate().filter_map(|(index, node)| {
                let at = node.contents.windows(old.len()).position(|bytes| bytes == *old)?;
                Some((index, at))
            });
            let (index, at) = found.next().expect("the bytes are in the pool");
            assert!(found.next().is_none(), "the bytes are in more than one block");
            let contents = changed.entry(index).or_insert_with(|| self.nodes[index].contents.clone());
            contents[at..at + new.len()].copy_from_slice(new);
        }
        self.apply(changed);
    }

    fn set_root(&mut self, root: &Blkptr) {
        for label in 0..LABELS {
            let offset =
                label_offset(self.size, label).expect("a device has four labels") + self.uberblock_at;
            let mut slot = self.uberblock.clone();
            slot[ROOTBP..ROOTBP + BLKPTR_SIZE].copy_from_slice(&root.encode());
            embedded::seal(&Verifier::Label { offset }, &mut slot, None).expect("a slot has room");
            self.write(offset, &slot);
        }
    }

    /// Reverts all applied changes.
    pub fn undo(&mut self) {
        while let Some((offset, old)) = self.undo.pop() {
            self.file.write_all_at(&old, offset).expect("it could be written before");
        }
    }
}

/// The pointer `old`, changed to point to `contents`, stored uncompressed at `offset` of the only
/// vdev.
fn place(old: &Blkptr, offset: u64, contents: &[u8]) -> Blkptr {
    let len = contents.len() as u64;
    let dva = Dva { vdev: VdevId(0), offset: Offset(offset), asize: Asize(len), gang: false };
    let (fill, phys_birth) = old.stored().map_or((1, old.birth), |s| (s.fill, s.phys_birth));
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(len),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Fletcher4,
        sum: fletcher4(ByteOrder::Little, contents).0,
        phys_birth,
        fill,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr { lsize: ondisk::Lsize(len), order: ByteOrder::Little, body: Body::Stored(stored), ..*old }
}
