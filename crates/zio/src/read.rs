//! Reading a block.

use crate::keys::KeyCell;
use crate::suspend::Reason;
use crate::write::{DeferredWrites, Unflushed};
use crate::{
    Bookmark, Clones, Damage, Dedup, Entropy, Error, IoFlags, KeySource, ReadOptions, Remaker, Result, Space,
    Suspension, Workers,
};
use codec::checksum::embedded::{self, Verifier};
use codec::checksum::{Checksum, Checksummer};
use codec::crypt::DataKeys;
use device::{AlignedBuf, Block, Sparse};
use observe::lock::{Mutex, RwLock};
use ondisk::blkptr::{Body, Stored};
use ondisk::version::{SPA_VERSION_DITTO_BLOCKS, SPA_VERSION_FEATURES};
use ondisk::{
    Blkptr, ByteOrder, ChecksumKind, CompressKind, Corrupt, DmuType, Dva, Psize, SPA_MINBLOCKSHIFT, Txg,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vdev::{Tree, TreeCell, inject};

/// The pipeline of one pool.
///
/// # Locks
/// Checksummer and keys are set rarely, at import and when keys are loaded. A read clones the
/// references that it needs, and holds no lock while it reads.
pub struct Zio {
    tree: TreeCell,
    checksummer: RwLock<Arc<Checksummer>>,
    keys: KeyCell,
    space: RwLock<Option<Arc<dyn Space>>>,
    workers: RwLock<Arc<Workers>>,
    entropy: RwLock<Arc<dyn Entropy>>,
    dedup: RwLock<Option<Arc<dyn Dedup>>>,
    /// Held while a block is looked up in the dedup table, placed and entered, since batches may be
    /// written at the same time.
    pub(crate) sharing: Mutex<()>,
    clones: RwLock<Option<Arc<dyn Clones>>>,
    suspension: Arc<Suspension>,
    damage: Damage,
    unhealed: Damage,
    /// What devices were given and may not hold durably yet.
    pub(crate) unflushed: Mutex<Unflushed>,
    /// Metadata that is written with the rest of its txg.
    pub(crate) held: DeferredWrites,
    pub(crate) closed_ranges: vdev::ClosedRanges,
    /// The pool's version.
    version: AtomicU64,
}

/// A block that was read.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Its contents, as the object sees them. Of indirect blocks and blocks of dnodes, the zeros at
    /// the end may be left out.
    pub block: Sparse,
    /// The verified and decrypted bytes from which it was decompressed. Decompressing them as its
    /// pointer says gives the block again. `None` if the block is not compressed, or of the other
    /// byte order.
    pub packed: Option<Block>,
}

impl From<Block> for Opened {
    fn from(block: Block) -> Self {
        Self { block: block.into(), packed: None }
    }
}

/// How much of a block a reader gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Perhaps without the zeros at its end, if it is of a kind that may be mostly zeros.
    Start,
}

/// No source of randomness.
struct Unset;

impl Entropy for Unset {
    fn fill(&self, _: &mut [u8]) {
        panic!("a pool with encrypted datasets is written with a source of randomness");
    }
}

/// One place to fetch.
pub(crate) struct Fetch<'a> {
    pub(crate) dva: &'a Dva,
    pub(crate) size: usize,
    pub(crate) birth: Txg,
    pub(crate) bookmark: &'a Bookmark,
    /// It is not known whether the block was ever written. So wrong bytes count no error
    /// (`ZIO_FLAG_SPECULATIVE`).
    pub(crate) speculative: bool,
    pub(crate) options: &'a ReadOptions,
}

impl Zio {
    /// A pipeline over these vdevs, with the salt of a pool without one, and without keys.
    pub fn new(tree: impl Into<TreeCell>) -> Zio {
        Zio {
            tree: tree.into(),
            checksummer: RwLock::new(Arc::new(Checksummer::new(&[0; 32]))),
            keys: KeyCell::default(),
            space: RwLock::new(None),
            workers: RwLock::new(Arc::new(Workers::new("zio", 1))),
            entropy: RwLock::new(Arc::new(Unset)),
            dedup: RwLock::new(None),
            sharing: Mutex::new(()),
            clones: RwLock::new(None),
            suspension: Arc::default(),
            damage: Damage::default(),
            unhealed: Damage::default(),
            unflushed: Mutex::default(),
            held: DeferredWrites::default(),
            closed_ranges: vdev::ClosedRanges::default(),
            version: AtomicU64::new(SPA_VERSION_FEATURES),
        }
    }

    /// The version of the pool (`spa_version`), which limits what may be written. Until it is set,
    /// the version with features.
    pub fn pool_version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Sets the version of the pool.
    pub fn set_pool_version(&self, version: u64) {
        self.version.store(version, Relaxed);
    }

    /// Most copies of a block (`spa_max_replication`).
    pub(crate) fn most_copies(&self) -> u8 {
        if self.pool_version() < SPA_VERSION_DITTO_BLOCKS { 1 } else { 3 }
    }

    /// The suspension state of the pool.
    pub fn suspension(&self) -> &Arc<Suspension> {
        &self.suspension
    }

    /// Keeps a thread that copies space between devices apart from writers of log blocks and
    /// repairs there.
    pub fn closed_ranges(&self) -> &vdev::ClosedRanges {
        &self.closed_ranges
    }

    /// The blocks that were found damaged and are not in the log yet.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Blocks that were read, though a copy or column on a device is wrong or can't be read.
    ///
    /// A pointer may be many txgs old when it is used for a read, and its place may then hold
    /// another block. So a read repairs nothing. A thread that knows the block is still in its
    /// place [heals](Zio::heal) it.
    pub fn unhealed(&self) -> &Damage {
        &self.unhealed
    }

    /// Sets the dedup table. Without one, nothing is deduplicated.
    pub fn set_dedup(&self, table: Arc<dyn Dedup>) {
        *self.dedup.write() = Some(table);
    }

    /// Sets the table of cloned blocks.
    pub fn set_clones(&self, table: Arc<dyn Clones>) {
        *self.clones.write() = Some(table);
    }

    pub(crate) fn dedup(&self) -> Option<Arc<dyn Dedup>> {
        self.dedup.read().clone()
    }

    pub(crate) fn clones(&self) -> Option<Arc<dyn Clones>> {
        self.clones.read().clone()
    }

    /// Sets the source of salts and initialisation vectors. Without one, nothing can be encrypted.
    pub fn set_entropy(&self, entropy: Arc<dyn Entropy>) {
        *self.entropy.write() = entropy;
    }

    /// Sets the allocator. Without one, nothing can be written.
    pub fn set_space(&self, space: Arc<dyn Space>) {
        *self.space.write() = Some(space);
    }

    /// Sets the threads for batches of writes. Until then, the caller's thread does all.
    pub fn set_workers(&self, workers: Arc<Workers>) {
        *self.workers.write() = workers;
    }

    /// The allocator.
    ///
    /// # Panics
    /// If no allocator has been set ([`Zio::set_space`]).
    pub fn space(&self) -> Arc<dyn Space> {
        self.space.read().clone().expect("a pool that is written has an allocator")
    }

    /// The threads for batches of writes.
    pub fn workers(&self) -> Arc<Workers> {
        self.workers.read().clone()
    }

    pub(crate) fn entropy(&self) -> Arc<dyn Entropy> {
        self.entropy.read().clone()
    }

    pub(crate) fn checksummer(&self) -> Arc<Checksummer> {
        self.checksummer.read().clone()
    }

    pub(crate) fn key_source(&self) -> Option<Arc<dyn KeySource>> {
        self.keys.get()
    }

    /// What restores the stored form of this pool's blocks.
    pub fn remaker(&self) -> Remaker {
        Remaker::new(self.checksummer(), self.keys.clone())
    }

    /// A limit of steps for walks of metadata: the number of sectors of the devices.
    ///
    /// There can't be more distinct blocks than sectors. A walk that has taken more steps goes in a
    /// circle, or through a tree with shared branches.
    pub fn walk_limit(&self) -> u64 {
        self.tree().devices().map(|(_, d)| d.size() >> SPA_MINBLOCKSHIFT).fold(0, u64::saturating_add)
    }

    /// The vdevs.
    pub fn tree(&self) -> Arc<Tree> {
        self.tree.get()
    }

    /// The cell with the vdev tree, in which the tree can be replaced.
    pub fn trees(&self) -> &TreeCell {
        &self.tree
    }

    /// Sets the salt of the salted checksums (`org.illumos:checksum_salt` of the MOS directory).
    pub fn set_salt(&self, salt: &[u8; 32]) {
        *self.checksummer.write() = Arc::new(Checksummer::new(salt));
    }

    /// The checksum functions with the pool's salt.
    pub fn checksums(&self) -> Arc<Checksummer> {
        self.checksummer()
    }

    /// Sets the source of keys.
    pub fn set_keys(&self, keys: Arc<dyn KeySource>) {
        self.keys.set(keys);
    }

    /// Reads a block: verified, decrypted, decompressed, in the native byte order (`zio_read`). A
    /// hole reads as zeros.
    ///
    /// # Errors
    /// Of several copies, the error is about the first, unless a later one could be read and has a
    /// wrong checksum.
    ///
    /// * [`Error::Place`]: the pointer names a place that no block can have.
    /// * [`Error::Io`]: too many devices are missing or failed.
    /// * [`Error::Checksum`]: copies were read, and none has the right checksum.
    /// * [`Error::Decode`]: the checksum matches, and the bytes can't be decrypted, authenticated
    ///   or decompressed.
    /// * [`Error::Corrupt`]: the pointer, the gang tree or the contents are invalid.
    /// * [`Error::Key`]: the block is encrypted, and its key is not loaded.
    /// * [`Error::Redacted`]: the block was left out of a redacted stream.
    pub fn read(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> Result<Block> {
        self.read_as(bp, bookmark, options, Extent::Whole).map(|opened| opened.block.into_head())
    }

    /// Reads a block like [`Zio::read`], and also returns the compressed bytes. See
    /// [`Opened::block`].
    ///
    /// # Errors
    /// Those of [`Zio::read`].
    pub fn read_packed(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> Result<Opened> {
        self.read_as(bp, bookmark, options, Extent::Start)
    }

    fn read_as(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        options: &ReadOptions,
        extent: Extent,
    ) -> Result<Opened> {
        self.read_opened(bp, bookmark, options, extent).inspect_err(|e| {
            if !options.has(IoFlags::SPECULATIVE) && !options.has(IoFlags::MAY_BE_STALE) {
                self.judge(bp, bookmark, e, options);
            }
        })
    }

    /// Records a block that can't be read as damaged, unless it may have been freed.
    fn judge(&self, bp: &Blkptr, bookmark: &Bookmark, error: &Error, options: &ReadOptions) {
        if !options.has(IoFlags::MAY_BE_FREED) {
            self.damage.judge(bp, bookmark, error);
        }
    }

    fn read_opened(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        options: &ReadOptions,
        extent: Extent,
    ) -> Result<Opened> {
        match &bp.body {
            Body::Hole => Ok(AlignedBuf::zeroed(bp.lsize.0 as usize).freeze().into()),
            Body::Redacted => Err(Error::Redacted { bookmark: *bookmark }),
            Body::Embedded(e) => {
                let out = self.unpack(bp, e.compress, e.payload(), bookmark)?;
                self.native(bp, out, bookmark).map(Opened::from)
            }
            Body::Stored(s) => {
                // Before the read, so that a locked dataset costs none.
                let keys = if bp.is_encrypted() { Some(self.keys(bookmark)?) } else { None };
                let raw = self.fetch_stored(bp, s, bookmark, options)?;
                self.open_verified(bp, s, (raw, extent), keys, bookmark)
            }
        }
    }

    /// From verified stored bytes to the block that the object sees. With `keys` it is decrypted.
    pub(crate) fn open_verified(
        &self,
        bp: &Blkptr,
        s: &Stored,
        (mut raw, extent): (AlignedBuf, Extent),
        keys: Option<Arc<DataKeys>>,
        bookmark: &Bookmark,
    ) -> Result<Opened> {
        if let Some(keys) = keys {
            // A log block's pointer was written before its block was: the MAC is in the block.
            let mac = match bp.kind {
                DmuType::INTENT_LOG => codec::crypt::zil_mac(&raw),
                _ => Ok(Checksum(s.sum).mac(bp.order)),
            };
            let mac = mac.map_err(|source| Error::Decode { bookmark: *bookmark, source })?;
            if self.baffles(bp, bookmark, inject::Bad::Decrypt) {
                let source = codec::Error::Mac { what: "block" };
                return Err(Error::Decode { bookmark: *bookmark, source });
            }
            keys.decrypt(bp.kind, bp.order, &s.crypt_params, &mac, &mut raw)
                .map_err(|source| Error::Decode { bookmark: *bookmark, source })?;
        }
        self.decode(bp, s, (raw, extent), bookmark)
    }

    /// Reads a block like [`Zio::read`], without decrypting it.
    ///
    /// All of a dnode block except its bonuses is unencrypted. That is enough to walk an encrypted
    /// dataset without its key.
    ///
    /// # Errors
    /// Those of [`Zio::read`] except [`Error::Key`]. [`Error::Decode`] also means that ciphertext
    /// could not be decompressed.
    pub fn read_undecrypted(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> Result<Block> {
        match &bp.body {
            Body::Stored(s) if bp.is_encrypted() => {
                let raw = self.fetch_stored(bp, s, bookmark, options);
                let raw = raw.inspect_err(|e| self.judge(bp, bookmark, e, options))?;
                // Ciphertext that can't be decompressed is no damage.
                let opened = self.decode(bp, s, (raw, Extent::Whole), bookmark)?;
                Ok(opened.block.into_head())
            }
            _ => self.read(bp, bookmark, options),
        }
    }

    /// The verified stored bytes of a block, neither decrypted nor decompressed (`ZIO_FLAG_RAW`).
    /// For raw sends and scrubs.
    ///
    /// # Errors
    /// Those of [`Zio::read`] except [`Error::Key`] and [`Error::Decode`].
    pub fn read_raw(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> Result<Block> {
        match &bp.body {
            Body::Stored(s) => {
                let raw = self.fetch_stored(bp, s, bookmark, options);
                Ok(raw.inspect_err(|e| self.judge(bp, bookmark, e, options))?.freeze())
            }
            Body::Embedded(e) => Ok(Block::copy_of(e.payload())),
            Body::Hole | Body::Redacted => self.read(bp, bookmark, options),
        }
    }

    /// Reads like [`Zio::read_raw`], where it is not known whether the block was ever written
    /// (`ZIO_FLAG_SPECULATIVE`). If it can't be read, that is not recorded as damage.
    ///
    /// # Errors
    /// Those of [`Zio::read_raw`].
    pub fn read_perhaps(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> Result<Block> {
        match &bp.body {
            Body::Stored(s) => Ok(self.fetch_stored(bp, s, bookmark, options)?.freeze()),
            Body::Embedded(_) | Body::Hole | Body::Redacted => self.read_raw(bp, bookmark, options),
        }
    }

    /// The verified stored bytes of the first good copy.
    pub(crate) fn fetch_stored(
        &self,
        bp: &Blkptr,
        s: &Stored,
        bm: &Bookmark,
        options: &ReadOptions,
    ) -> Result<AlignedBuf> {
        loop {
            let fetched = self.any_copy(bp, s, bm, options, |dva, options| match dva.gang {
                true => self.read_gang(bp, s, dva, bm, options),
                false => self.fetch_copy(bp, s, dva, bm, options),
            });
            let Err(failure) = fetched else { return fetched };
            if !must_succeed(bp, &failure, options) {
                return Err(failure);
            }
            // The damage list names the block, so that the administrator can find the cause.
            self.damage.judge(bp, bm, &failure);
            if !self.suspension.wait(Reason::Io) {
                return Err(failure);
            }
        }
    }

    /// The verified bytes of one copy that is no gang block.
    pub(crate) fn fetch_copy(
        &self,
        bp: &Blkptr,
        s: &Stored,
        dva: &Dva,
        bm: &Bookmark,
        options: &ReadOptions,
    ) -> Result<AlignedBuf> {
        // A log's chain names the next block, which a crash may leave unwritten.
        let speculative = bp.kind == DmuType::INTENT_LOG || options.has(IoFlags::SPECULATIVE);
        let (size, birth) = (s.psize.0 as usize, s.phys_birth);
        let fetch = Fetch { dva, size, birth, bookmark: bm, speculative, options };
        match self.spoiled(bp, s, dva, bm) {
            Some(false) => {
                if !options.has(IoFlags::SPECULATIVE) && !options.has(IoFlags::MAY_BE_FREED) {
                    self.tree().charge_reads(dva.vdev, dva.offset.0, s.psize, s.phys_birth);
                }
                Err(Error::Io { bookmark: *bm, dva: *dva, unread: 1, source: None })
            }
            Some(true) => self.fetch(&fetch, |_| {
                let actual = Checksum(s.sum.map(|word| !word));
                Err(codec::Error::Mismatch { kind: s.checksum, expected: Checksum(s.sum), actual })
            }),
            None => self.fetch(&fetch, |buf| self.verify(bp, s, buf)),
        }
    }

    /// The injected fault of this copy of the block, if there is one ([`inject`]).
    pub(crate) fn spoiled(&self, bp: &Blkptr, s: &Stored, dva: &Dva, bm: &Bookmark) -> Option<bool> {
        let copy = || s.copies().position(|one| one == dva).unwrap_or(0);
        inject::spoil(|| self.tree().root_guid(), &place(bp, bm), copy)
    }

    /// Whether an injected fault of this kind strikes the block, though it was read.
    fn baffles(&self, bp: &Blkptr, bm: &Bookmark, way: inject::Bad) -> bool {
        inject::baffles(|| self.tree().root_guid(), &place(bp, bm), way)
    }

    /// The result of `read` for the first copy with which it succeeds.
    ///
    /// If the pointer might have been stale, it then is not, and the devices of the copies before
    /// are at fault. So these are read once more, without that flag.
    pub(crate) fn any_copy<T>(
        &self,
        bp: &Blkptr,
        s: &Stored,
        bm: &Bookmark,
        options: &ReadOptions,
        mut read: impl FnMut(&Dva, &ReadOptions) -> Result<T>,
    ) -> Result<T> {
        if s.psize.0 > bp.lsize.0 {
            let source = Corrupt::Range { what: "block pointer", field: "psize", value: s.psize.0 };
            return Err(Error::Corrupt { bookmark: *bm, source });
        }
        let unverified = matches!(s.checksum, ChecksumKind::Off | ChecksumKind::Noparity) && !s.crypt;
        if unverified && options.has(IoFlags::MAY_BE_FREED) {
            let why = "it has no checksum, so another block could be read for it";
            let source = Corrupt::Shape { what: "block pointer", why };
            return Err(Error::Corrupt { bookmark: *bm, source });
        }
        loop {
            let mut failure = None;
            let mut wrong = false;
            for (before, dva) in s.copies().enumerate() {
                let got = read(dva, options);
                wrong |= matches!(got, Err(Error::Checksum { .. } | Error::Io { source: Some(_), .. }));
                match got {
                    Ok(got) => {
                        if wrong {
                            self.note_unhealed(bm, s.phys_birth, options);
                        }
                        let may_be_freed = options.has(IoFlags::MAY_BE_FREED);
                        if wrong && options.has(IoFlags::MAY_BE_STALE) && !may_be_freed {
                            let sure = options.without(IoFlags::MAY_BE_STALE);
                            s.copies().take(before).for_each(|dva| drop(read(dva, &sure)));
                        }
                        return Ok(got);
                    }
                    // The first copy's failure is reported, unless a later copy was readable and
                    // has a wrong checksum.
                    Err(e) if failure.is_none() || matches!(e, Error::Checksum { .. }) => failure = Some(e),
                    Err(_) => {}
                }
            }
            let failure = failure.expect("a stored block has a first copy");
            if !(self.is_gone(&failure, bp, s, bm, options) && self.suspension.wait(Reason::Io)) {
                return Err(failure);
            }
        }
    }

    /// Records, by its physical birth, a block that was read though something is wrong on a device.
    fn note_unhealed(&self, bm: &Bookmark, birth: Txg, options: &ReadOptions) {
        if !(options.has(IoFlags::SPECULATIVE) || options.has(IoFlags::SCRUBBED_NEXT)) {
            self.unhealed.note(bm, birth);
        }
    }

    /// Whether a read of a sync failed because devices are missing, or by an injected fault. Both
    /// may end later.
    fn is_gone(
        &self,
        failure: &Error,
        bp: &Blkptr,
        s: &Stored,
        bm: &Bookmark,
        options: &ReadOptions,
    ) -> bool {
        let failed = options.has(IoFlags::MUST_SUCCEED) && matches!(failure, Error::Io { .. });
        let asked = || inject::is_asked(|| self.tree().root_guid(), &place(bp, bm));
        failed && (s.copies().any(|dva| !self.tree().probe(dva.vdev)) || asked())
    }

    /// Requests candidates from the vdevs until one passes `verify`.
    pub(crate) fn fetch(
        &self,
        f: &Fetch<'_>,
        verify: impl Fn(&[u8]) -> codec::Result<()>,
    ) -> Result<AlignedBuf> {
        let (bookmark, dva) = (*f.bookmark, *f.dva);
        if let Some(held) = self.held.at(&dva, f.size)
            && verify(&held).is_ok()
        {
            return Ok(AlignedBuf::copy_of(&held));
        }
        let (tree, options) = (self.tree(), f.options);
        let mut attempts = tree
            .attempts(dva.vdev, dva.offset.0, Psize(f.size as u64), f.birth, &options.request)
            .map_err(|source| Error::Place { bookmark, dva, source })?;
        let mut wrong = None;
        for buf in attempts.by_ref() {
            match verify(&buf) {
                Ok(()) if options.has(IoFlags::SCRUBBED_NEXT) => {
                    let _ = attempts.let_be();
                    return Ok(buf);
                }
                Ok(()) => {
                    // A device that is only missing would be recorded with every read; its DTL
                    // covers that.
                    let damaged = wrong.is_some() || attempts.failure().io.is_some();
                    if options.has(IoFlags::MAY_BE_FREED) {
                        // Other places may hold another block by now: no device is at fault. The
                        // repair looks the block up again.
                        let _ = attempts.let_be();
                    } else {
                        attempts.settle(Some(&buf));
                    }
                    if damaged && !f.speculative {
                        self.note_unhealed(&bookmark, f.birth, options);
                    }
                    return Ok(buf);
                }
                // The place may hold another block by now. So nothing is repaired, and no error is
                // counted. A later read that needs the block does both.
                Err(_) if options.has(IoFlags::SPECULATIVE) => break,
                Err(e) => wrong = Some(e),
            }
        }
        // Another block may be there by now; then no device is at fault.
        let may_be_other = [IoFlags::MAY_BE_STALE, IoFlags::MAY_BE_FREED];
        let unsure = f.speculative || may_be_other.into_iter().any(|flag| options.has(flag));
        let failure = if unsure { attempts.let_be() } else { attempts.give_up() };
        Err(match wrong {
            Some(source) => Error::Checksum { bookmark, dva, source },
            None => Error::Io { bookmark, dva, unread: failure.unread, source: failure.io.map(Arc::new) },
        })
    }

    /// The space that a copy of so many bytes takes.
    pub(crate) fn place_of(&self, dva: &Dva, size: u64) -> vdev::VdevRange {
        let asize = self.tree().psize_to_asize(dva.vdev, Psize(size), Txg(0)).map_or(dva.asize.0, |a| a.0);
        (dva.vdev, dva.offset.0..dva.offset.0.saturating_add(asize.max(dva.asize.0)))
    }

    /// Checks the stored bytes against the pointer.
    pub(crate) fn verify(&self, bp: &Blkptr, s: &Stored, buf: &[u8]) -> codec::Result<()> {
        match s.checksum {
            ChecksumKind::Off | ChecksumKind::Noparity => Ok(()),
            // Log blocks contain their checksum. The words in the pointer bind them to their place
            // in the chain.
            ChecksumKind::Zilog => {
                embedded::verify(&Verifier::Zilog(Checksum(s.sum)), buf, s.crypt).map(|_| ())
            }
            ChecksumKind::Zilog2 => {
                embedded::verify(&Verifier::Zilog2(Checksum(s.sum)), buf, s.crypt).map(|_| ())
            }
            kind => {
                let checksummer = self.checksummer.read().clone();
                checksummer.verify(kind, bp.order, buf, Checksum(s.sum), has_mac(bp, s))
            }
        }
    }

    /// From decrypted stored bytes to the block that the object sees.
    pub(crate) fn decode(
        &self,
        bp: &Blkptr,
        s: &Stored,
        (raw, extent): (AlignedBuf, Extent),
        bm: &Bookmark,
    ) -> Result<Opened> {
        let bad_mac = |source| Error::Decode { bookmark: *bm, source };
        let mac = Checksum(s.sum).mac(bp.order);
        if bp.is_authenticated() && bp.kind != DmuType::OBJSET {
            // Without keys, a block that holds no secret is still readable, as in OpenZFS: locked
            // datasets are listed and their blocks counted.
            if let Ok(keys) = self.keys(bm) {
                keys.verify_mac(&raw, &mac).map_err(bad_mac)?;
            }
        }
        let (plain, packed) = match s.compress {
            CompressKind::Off if raw.len() as u64 == bp.lsize.0 => (raw, None),
            kind if self.baffles(bp, bm, inject::Bad::Decompress) => {
                let (psize, lsize) = (raw.len(), bp.lsize.0 as usize);
                let source = Corrupt::Shape { what: "block", why: "somebody asked for it to be" };
                return Err(bad_mac(codec::Error::Decompress { kind, psize, lsize, source }));
            }
            kind if extent == Extent::Start && may_be_mostly_zeros(bp) => {
                let block = self.unpack_start(bp, kind, &raw, bm)?;
                return Ok(Opened { block, packed: Some(raw.freeze()) });
            }
            kind => (self.unpack(bp, kind, &raw, bm)?, Some(raw)),
        };
        if bp.has_indirect_mac() {
            codec::crypt::verify_indirect(bp.order, &plain, &mac).map_err(bad_mac)?;
        }
        if bp.is_authenticated()
            && bp.kind == DmuType::OBJSET
            && let Ok(keys) = self.keys(bm)
        {
            keys.verify_objset(bp.order, &plain).map_err(bad_mac)?;
        }
        // Bytes of the other order would have to be swapped again.
        let packed = packed.filter(|_| bp.order == ByteOrder::Little).map(AlignedBuf::freeze);
        Ok(Opened { block: self.native(bp, plain, bm)?.into(), packed })
    }

    pub(crate) fn keys(&self, bm: &Bookmark) -> Result<Arc<DataKeys>> {
        self.keys.keys(bm.objset).map_err(|source| Error::Key { bookmark: *bm, source })
    }

    /// Decompresses into a block of exactly the logical size.
    fn unpack(&self, bp: &Blkptr, kind: CompressKind, raw: &[u8], bm: &Bookmark) -> Result<AlignedBuf> {
        let mut out = AlignedBuf::for_overwrite(bp.lsize.0 as usize);
        codec::compress::decompress(kind, raw, &mut out)
            .map_err(|source| Error::Decode { bookmark: *bm, source })?;
        Ok(out)
    }

    /// Decompresses like [`Self::unpack`]. Zeros at the end may be left out.
    fn unpack_start(&self, bp: &Blkptr, kind: CompressKind, raw: &[u8], bm: &Bookmark) -> Result<Sparse> {
        let mut out = AlignedBuf::for_overwrite(bp.lsize.0 as usize);
        let start = codec::compress::decompress_start(kind, raw, &mut out);
        let start = start.map_err(|source| Error::Decode { bookmark: *bm, source })?;
        Ok(Sparse::starting(out, start))
    }

    /// Converts a block of the other byte order to the native one.
    fn native(&self, bp: &Blkptr, mut buf: AlignedBuf, bm: &Bookmark) -> Result<Block> {
        if bp.order == ByteOrder::Big {
            ondisk::byteswap::block(bp.kind, bp.level, &mut buf)
                .map_err(|source| Error::Corrupt { bookmark: *bm, source })?;
        }
        Ok(buf.freeze())
    }
}

/// Whether a block may be mostly zeros, and can be known without them: MACs are over the whole
/// block, and bytes of the other order are swapped in a whole one.
fn may_be_mostly_zeros(bp: &Blkptr) -> bool {
    let is_plain = bp.order == ByteOrder::Little && !bp.has_indirect_mac();
    is_plain && (bp.level.0 > 0 || bp.kind == DmuType::DNODE)
}

/// Whether a sync needs the read that failed, and the read may succeed once the devices are
/// repaired.
fn must_succeed(bp: &Blkptr, failure: &Error, options: &ReadOptions) -> bool {
    // A log's chain ends with a block that can't be read.
    let needed = options.has(IoFlags::MUST_SUCCEED)
        && !options.has(IoFlags::CAN_FAIL)
        && bp.kind != DmuType::INTENT_LOG;
    needed
        && !options.has(IoFlags::SPECULATIVE)
        && !options.has(IoFlags::MAY_BE_STALE)
        && !options.has(IoFlags::MAY_BE_FREED)
        && matches!(failure, Error::Io { .. } | Error::Checksum { .. })
}

/// The block in the terms of injected faults.
fn place(bp: &Blkptr, bm: &Bookmark) -> inject::InjectedBlock {
    let (object, level, blkid) = (bm.object.0, bm.level.0, bm.blkid.0);
    inject::InjectedBlock { objset: bm.objset, object, level, blkid, kind: bp.kind }
}

/// Whether half of a block's checksum is a MAC. Object sets have their MACs inside.
pub(crate) fn has_mac(bp: &Blkptr, s: &Stored) -> bool {
    s.crypt && bp.kind != DmuType::OBJSET
}
