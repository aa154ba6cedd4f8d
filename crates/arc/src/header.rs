//! The header of one block (`arc_buf_hdr_t`).

use crate::forms::Forms;
use crate::recipe::RECIPE_OVERHEAD;
use device::Block;
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::{
    Asize, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Level, Lsize, Offset, Psize, Txg,
    VdevId,
};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Memory of a block beyond its bytes: its header, the references to it, and the allocator's
/// overhead.
pub(crate) const HELD_OVERHEAD: u64 = 256;
/// Memory of the header of a ghost, with the references to it.
pub(crate) const GHOST_OVERHEAD: u64 = 176;
/// Additional memory of a block that is held in both forms: the second allocation, and the
/// reference to it.
pub(crate) const BOTH_OVERHEAD: u64 = 64;

/// The name of a block: its pool, its first copy, and the txg that wrote it.
///
/// The name of a block that needs a key also has the object set with the key. It is kept small,
/// since thousands of idle file systems have a dozen small blocks each in the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    hash: u64,
    offset: u64,
    birth: u64,
    sum: [u64; 4],
    /// The object set for which a block was decrypted or its MAC checked. Another object set may
    /// lead to the block, such as a snapshot, or any dataset of a hostile pool. It then needs the
    /// key itself.
    keyed_by: u64,
    pub(crate) pool: u32,
    vdev: u32,
    /// Compressed and logical sectors less one, and the level: a hostile pool can name one place in
    /// two ways.
    psize: u16,
    lsize: u16,
    level: u8,
    kind: u8,
    /// How it is stored: compressor, checksum, and flag bits.
    how: u16,
}

/// The parts of [`Key::how`].
const CHECKSUM_SHIFT: u32 = 7;
/// It has a MAC, or is encrypted (the pointer's encryption bit).
const CRYPT: u16 = 1 << 11;
/// It is of the other byte order.
const FOREIGN: u16 = 1 << 12;
/// Its dataset does not want it on cache devices. Other datasets that lead to the block may, so
/// this is not part of its name.
const NOT_FOR_L2: u16 = 1 << 13;
/// It stands for the block with any checksum: the lists of blocks that are to be freed don't have
/// it.
const ANY_SUM: u16 = 1 << 14;

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let place = |k: &Key| (k.hash, k.offset, k.birth, k.keyed_by, k.pool, k.vdev);
        let shape = |k: &Key| (k.psize, k.lsize, k.level, k.kind, k.how & !(NOT_FOR_L2 | ANY_SUM));
        place(self) == place(other)
            && shape(self) == shape(other)
            && (self.sum == other.sum || (self.how | other.how) & ANY_SUM != 0)
    }
}

impl Eq for Key {}

/// For blocks that need no key: no object set has this number.
const NO_KEY: u64 = u64::MAX;
/// The place holds a gang header. No offset has this bit.
const GANG: u64 = 1 << 63;

/// Blocks within the same 64 KiB share these bits of the hash, which choose a lock
/// ([`Key::bucket`]).
///
/// The blocks of an object are mostly read, evicted and freed in sequence. So they find the lock
/// and its table still in the processor's cache.
const NEAR_SHIFT: u32 = 16;
const BUCKET_SHIFT: u32 = 40;
const BUCKET: u64 = 0xffff << BUCKET_SHIFT;

fn sectors_less_one(bytes: u64) -> u16 {
    // As many bits as a pointer has.
    ((bytes >> 9).wrapping_sub(1) & 0xffff) as u16
}

impl Key {
    /// The name of a stored block that is read for this object set. `None` for other blocks, which
    /// are not worth caching.
    pub(crate) fn of(bp: &Blkptr, objset: u64, pool: u32, seed: &impl BuildHasher) -> Option<Key> {
        let s = bp.stored()?;
        let dva = s.dvas[0]?;
        let keyed = bp.is_encrypted() || bp.is_authenticated();
        // A checksum that is not verified names nothing. A hostile pool could name one place with
        // any number of them.
        let unverified = matches!(s.checksum, ChecksumKind::Off | ChecksumKind::Noparity) && !s.crypt;
        let mut key = Key {
            hash: 0,
            offset: dva.offset.0 | if dva.gang { GANG } else { 0 },
            birth: s.phys_birth.0,
            sum: if unverified { [0; 4] } else { s.sum },
            keyed_by: if keyed { objset } else { NO_KEY },
            pool,
            vdev: dva.vdev.0,
            psize: sectors_less_one(s.psize.0),
            lsize: sectors_less_one(bp.lsize.0),
            level: bp.level.0,
            kind: bp.kind.to_disk(),
            how: s.compress as u16
                | (s.checksum as u16) << CHECKSUM_SHIFT
                | if s.crypt { CRYPT } else { 0 }
                | if bp.order == ByteOrder::Big { FOREIGN } else { 0 },
        };
        // Without the checksum ([`ANY_SUM`]). One place can have only one that is right, but a
        // hostile pool can give it many shapes.
        let shape = (key.psize, key.lsize, key.level, key.kind, key.how);
        let own = seed.hash_one((key.offset, key.birth ^ u64::from(key.vdev) << 40, key.keyed_by, shape));
        let near = seed.hash_one(key.offset >> NEAR_SHIFT ^ u64::from(key.vdev) << 40);
        key.hash = own & !BUCKET | near & BUCKET;
        Some(key)
    }

    /// A hash of it that an attacker can't predict.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of its bucket, from other bits than those that the table of a bucket uses.
    pub(crate) fn bucket(&self) -> usize {
        (self.hash >> BUCKET_SHIFT & 0xffff) as usize
    }

    /// Bytes of the block.
    pub(crate) fn lsize(&self) -> usize {
        (usize::from(self.lsize) + 1) << 9
    }

    /// Top-level vdev and offset of the first copy. The offset has the bit of gang blocks.
    pub(crate) fn place(&self) -> (u32, u64) {
        (self.vdev, self.offset)
    }

    /// The txg that wrote it.
    pub(crate) fn birth(&self) -> u64 {
        self.birth
    }

    /// Stored size in bytes.
    pub(crate) fn psize(&self) -> u64 {
        (u64::from(self.psize) + 1) << 9
    }

    /// Its compressor.
    pub(crate) fn compress(&self) -> CompressKind {
        CompressKind::from_disk((self.how & 0x7f) as u8).unwrap_or(CompressKind::Off)
    }

    /// Whether a block may be mostly zeros: indirect blocks of small objects, and blocks of few
    /// dnodes. Thousands of datasets have several of each.
    pub(crate) fn is_mostly_free(&self) -> bool {
        self.level > 0 || self.kind == DmuType::DNODE.to_disk()
    }

    fn checksum(&self) -> ChecksumKind {
        ChecksumKind::from_disk((self.how >> CHECKSUM_SHIFT & 0xf) as u8).unwrap_or(ChecksumKind::Off)
    }

    /// Whether it has a MAC, or is encrypted.
    pub(crate) fn is_protected(&self) -> bool {
        self.how & CRYPT != 0
    }

    /// Marks it as unwanted on cache devices, for all readers by this name.
    pub(crate) fn keep_from_l2(&mut self) {
        self.how |= NOT_FOR_L2;
    }

    /// The same, but with any checksum.
    pub(crate) fn with_any_sum(mut self) -> Key {
        self.how |= ANY_SUM;
        self
    }

    /// Whether it may be written to a cache device.
    pub(crate) fn is_for_l2(&self) -> bool {
        self.how & NOT_FOR_L2 == 0 && self.can_be_stored_again()
    }

    /// Whether its stored form can be restored from memory, and verified. Not for a gang block,
    /// whose parts are not known here.
    fn can_be_stored_again(&self) -> bool {
        self.is_verified() && self.offset & GANG == 0 && self.how & FOREIGN == 0 && self.psize <= self.lsize
    }

    /// Whether it is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.is_protected()
            && self.level == 0
            && DmuType::from_disk(self.kind).is_ok_and(DmuType::is_encrypted)
    }

    /// Whether restoring its stored form needs a [`Recipe`](crate::recipe::Recipe). `packed` says
    /// whether its compressed form is held.
    pub(crate) fn needs_recipe(&self, packed: bool) -> bool {
        self.is_encrypted() || self.compress() == CompressKind::Zstd && !packed
    }

    /// The object set that has the keys of an encrypted block.
    pub(crate) fn keyed_by(&self) -> u64 {
        self.keyed_by
    }

    /// Whether its pointer's checksum alone identifies its bytes.
    pub(crate) fn is_verified(&self) -> bool {
        !matches!(
            self.checksum(),
            ChecksumKind::Inherit
                | ChecksumKind::On
                | ChecksumKind::Off
                | ChecksumKind::Noparity
                | ChecksumKind::Label
                | ChecksumKind::GangHeader
                | ChecksumKind::Zilog
                | ChecksumKind::Zilog2
        )
    }

    /// Its pointer, as far as known: without the other copies, its allocated size, and what only
    /// encryption needs.
    pub(crate) fn pointer(&self) -> Blkptr {
        let (gang, offset) = (self.offset & GANG != 0, Offset(self.offset & !GANG));
        let dva = Dva { vdev: VdevId(self.vdev), offset, asize: Asize(0), gang };
        let stored = Stored {
            dvas: [Some(dva), None, None],
            psize: Psize(self.psize()),
            compress: self.compress(),
            checksum: self.checksum(),
            sum: self.sum,
            phys_birth: Txg(self.birth),
            fill: 0,
            dedup: false,
            crypt: self.is_protected(),
            crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
        };
        Blkptr {
            kind: DmuType::from_disk(self.kind).unwrap_or(DmuType::NONE),
            level: Level(self.level),
            lsize: Lsize(self.lsize() as u64),
            birth: Txg(self.birth),
            order: if self.how & FOREIGN == 0 { ByteOrder::Little } else { ByteOrder::Big },
            body: Body::Stored(stored),
        }
    }

    /// 1 for metadata, 0 for data.
    pub(crate) fn kind(&self) -> usize {
        usize::from(self.level > 0 || DmuType::from_disk(self.kind).map_or(true, DmuType::is_metadata))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The state of a header. It changes in this order, skipping some, and never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Used once (`arc_mru`).
    Mru,
    /// Used again (`arc_mfu`).
    Mfu,
    /// Was used once, and evicted (`arc_mru_ghost`).
    MruGhost,
    /// Was used again, and evicted (`arc_mfu_ghost`).
    MfuGhost,
    /// In no list.
    Gone,
}

impl State {
    pub(crate) const LISTS: usize = 8;

    /// The list of this state and type.
    pub(crate) fn list(self, kind: usize) -> usize {
        self as usize * 2 + kind
    }

    pub(crate) fn is_ghost(self) -> bool {
        matches!(self, State::MruGhost | State::MfuGhost)
    }
}

/// The header of a block; see the module. Everything that changes does so under the lock of its
/// bucket; only a sweep of a list reads the state without.
pub(crate) struct Header {
    pub(crate) key: Key,
    pub(crate) forms: Forms<Block>,
    /// Bytes that are held, or were.
    bytes: AtomicU32,
    /// Its state, and when it was first used, in ticks. Both change under the lock of the bucket.
    life: AtomicU16,
    sublist: AtomicU8,
    /// [`USED`], [`AHEAD`], [`WARM`], [`BOTH`], and the marks of cache devices.
    marks: AtomicU8,
}

/// Milliseconds of a tick, as a shift, of the first use of a block.
const TICK_SHIFT: u32 = 4;
/// The bits of [`Header::life`] that are the state.
///
/// The others count ticks, and start again after two minutes. A block that is used again just then
/// may once be taken for one used just before.
const STATE_BITS: u32 = 3;
const STATE: u16 = (1 << STATE_BITS) - 1;

fn ticks(now_ms: u32) -> u16 {
    ((now_ms >> TICK_SHIFT) as u16) << STATE_BITS
}

/// It may be written to a cache device (`ARC_FLAG_L2CACHE`).
const FOR_L2: u8 = 16;
/// It is being written to one (`ARC_FLAG_L2_WRITING`).
const WRITING: u8 = 32;
/// Used since the eviction last examined it.
const USED: u8 = 1;
/// Read ahead, and not used yet (`ARC_FLAG_PREFETCH`).
const AHEAD: u8 = 2;
/// Used since the release of plain forms last examined it.
const WARM: u8 = 4;
/// Held in both forms.
const BOTH: u8 = 8;
/// It has a recipe.
const RECIPE: u8 = 64;

impl Header {
    pub(crate) fn new(key: Key, plain: Block, packed: Option<Block>, state: State, now_ms: u32) -> Header {
        let bytes = plain.len() + packed.as_ref().map_or(0, |packed| packed.len());
        Header {
            key,
            bytes: AtomicU32::new(u32::try_from(bytes).unwrap_or(u32::MAX)),
            forms: Forms::new(plain, packed),
            life: AtomicU16::new(ticks(now_ms) | state as u16),
            sublist: AtomicU8::new(0),
            marks: AtomicU8::new(if key.is_for_l2() { FOR_L2 } else { 0 }),
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.life.load(Ordering::Acquire) & STATE {
            0 => State::Mru,
            1 => State::Mfu,
            2 => State::MruGhost,
            3 => State::MfuGhost,
            _ => State::Gone,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        let since = self.life.load(Ordering::Relaxed) & !STATE;
        self.life.store(since | state as u16, Ordering::Release);
    }

    pub(crate) fn sublist(&self) -> usize {
        self.sublist.load(Ordering::Relaxed).into()
    }

    pub(crate) fn set_sublist(&self, sublist: usize) {
        self.sublist.store(u8::try_from(sublist).expect("there are not so many"), Ordering::Relaxed);
    }

    /// Bytes that are held, or were.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).into()
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// The memory that it takes while it holds something. Its bucket is locked.
    pub(crate) fn room(&self) -> u64 {
        let both = if self.is_both() { BOTH_OVERHEAD } else { 0 };
        let recipe = if self.has_recipe() { RECIPE_OVERHEAD } else { 0 };
        self.bytes() + HELD_OVERHEAD + both + recipe
    }

    /// Whether its bucket has a recipe of it. Changes under the lock of the bucket, together with
    /// the recipes.
    pub(crate) fn has_recipe(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & RECIPE != 0
    }

    pub(crate) fn set_recipe(&self) {
        self.marks.fetch_or(RECIPE, Ordering::Relaxed);
    }

    /// Returns whether there was one.
    pub(crate) fn unset_recipe(&self) -> bool {
        self.marks.fetch_and(!RECIPE, Ordering::Relaxed) & RECIPE != 0
    }

    /// Whether it holds both forms. Changes under the lock of the bucket.
    pub(crate) fn is_both(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & BOTH != 0
    }

    pub(crate) fn set_both(&self) {
        self.marks.fetch_or(BOTH, Ordering::Relaxed);
    }

    pub(crate) fn unset_both(&self) {
        self.marks.fetch_and(!BOTH, Ordering::Relaxed);
    }

    /// Whether it may be written to a cache device.
    pub(crate) fn for_l2(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & (FOR_L2 | WRITING) == FOR_L2
    }

    /// Marks that it can't be written to one.
    pub(crate) fn not_for_l2(&self) {
        self.marks.fetch_and(!FOR_L2, Ordering::Relaxed);
    }

    /// Whether it is being written to one. Changes under the lock of the bucket.
    pub(crate) fn is_writing(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & WRITING != 0
    }

    pub(crate) fn set_writing(&self, writing: bool) {
        match writing {
            true => self.marks.fetch_or(WRITING, Ordering::Relaxed),
            false => self.marks.fetch_and(!WRITING, Ordering::Relaxed),
        };
    }

    /// Milliseconds since its first use, roughly.
    pub(crate) fn age_ms(&self, now_ms: u32) -> u32 {
        let since = self.life.load(Ordering::Relaxed) & !STATE;
        u32::from(ticks(now_ms).wrapping_sub(since) >> STATE_BITS) << TICK_SHIFT
    }

    /// Marks it as used. Does not write if it is marked already.
    pub(crate) fn mark(&self) {
        const BY_ALL: u8 = USED | WARM;
        if self.marks.load(Ordering::Relaxed) & BY_ALL != BY_ALL {
            self.marks.fetch_or(BY_ALL, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call, made by the release of plain forms.
    pub(crate) fn unmark_warm(&self) -> bool {
        self.marks.fetch_and(!WARM, Ordering::Relaxed) & WARM != 0
    }

    /// Whether it was used since the last call.
    pub(crate) fn unmark(&self) -> bool {
        self.marks.fetch_and(!USED, Ordering::Relaxed) & USED != 0
    }

    /// Marks it as read ahead, and not used yet.
    pub(crate) fn mark_ahead(&self) {
        self.marks.fetch_or(AHEAD, Ordering::Relaxed);
    }

    /// Whether it was read ahead, and not used yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & AHEAD != 0
    }

    /// Records the first use of a block that was read ahead.
    pub(crate) fn wanted(&self, now_ms: u32) {
        self.marks.fetch_and(!AHEAD, Ordering::Relaxed);
        let state = self.life.load(Ordering::Relaxed) & STATE;
        self.life.store(ticks(now_ms) | state, Ordering::Release);
    }
}

/// A header in the table, found by its key.
#[derive(Clone)]
pub(crate) struct Entry(pub(crate) Arc<Header>);

impl Borrow<Key> for Entry {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Hash::hash(&self.0.key, state);
    }
}

/// The hash of a hash is itself.
#[derive(Default)]
pub(crate) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

// Each block in the cache has one, and a hit by a hand must touch only one cache line of it.
const _: () = assert!(size_of::<Header>() + 16 <= 128);
