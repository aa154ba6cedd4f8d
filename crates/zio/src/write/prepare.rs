//! The first stage of a write: everything that needs no place.

use crate::{
    Bookmark, Compressed, Encrypted, Entropy, Error, IoFlags, KeyError, KeySource, Result, Want, WriteReq,
    Zio,
};
use codec::checksum::Checksummer;
use codec::compress;
use codec::crypt::{IV_LEN, KeyVersion, MAC_LEN};
use device::{AlignedBuf, Block, Sparse};
use ondisk::blkptr::{Body, CryptParams, Embedded, Stored};
use ondisk::objset::{LOCAL_MAC, PORTABLE_MAC};
use ondisk::{Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Lsize, Psize, Txg};
use std::cell::RefCell;
use std::sync::Arc;
use vdev::Tree;

/// What this stage needs from the pool, the same for a whole batch.
pub(super) struct Env {
    txg: Txg,
    checksummer: Arc<Checksummer>,
    keys: Option<Arc<dyn KeySource>>,
    entropy: Arc<dyn Entropy>,
    tree: Arc<Tree>,
    /// Smallest allocation, and the greatest common divisor of all.
    unit: (usize, usize),
    /// Most copies of a block.
    most_copies: u8,
    /// How the allocator reads for it.
    flags: IoFlags,
}

/// The outcome of a request.
pub(super) enum Prepared {
    /// It takes no space: a hole, data in the pointer, or the old block.
    Done(Blkptr),
    /// It needs a place.
    Store(Box<Sealed>),
}

/// A block that lacks only its place.
#[derive(Clone)]
pub(super) struct Sealed {
    /// Its stored bytes, with padding.
    pub(super) bytes: Block,
    /// Its pointer, without places.
    pub(super) pointer: Blkptr,
    pub(super) want: Want,
    pub(super) bookmark: Bookmark,
    /// The old block, whose places this one takes.
    pub(super) old: Option<Blkptr>,
    /// Its contents, and whether to compare them with the block of the dedup table.
    pub(super) data: Sparse,
    pub(super) verify: bool,
}

thread_local! {
    /// Memory for compression: the compressed size is known only afterwards.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Zeros, except while a sparse block is spread here.
    static SHEET: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `with` with all bytes of a block. Copies only the bytes that are not implied zeros.
fn spread<R>(data: &Sparse, with: impl FnOnce(&[u8]) -> R) -> R {
    let head = data.head();
    if data.is_whole() {
        return with(head);
    }
    SHEET.with_borrow_mut(|sheet| {
        if sheet.len() < data.len() {
            sheet.resize(data.len(), 0);
        }
        sheet[..head.len()].copy_from_slice(head);
        let done = with(&sheet[..data.len()]);
        sheet[..head.len()].fill(0);
        done
    })
}

/// A block after compression.
enum Packed {
    Zeros,
    Embedded(Embedded),
    Bytes(CompressKind, AlignedBuf),
    Plain,
}

impl Env {
    pub(super) fn of(zio: &Zio, txg: Txg, flags: IoFlags) -> Env {
        let (min, gcd) = zio.tree().alloc_unit();
        Env {
            txg,
            checksummer: zio.checksummer(),
            keys: zio.key_source(),
            entropy: zio.entropy(),
            tree: zio.tree(),
            unit: (min as usize, gcd as usize),
            most_copies: zio.most_copies(),
            flags,
        }
    }

    /// Compresses, encrypts and checksums a block.
    pub(super) fn prepare(&self, mut req: WriteReq) -> Result<Prepared> {
        req.policy.copies = req.policy.copies.min(self.most_copies);
        let old_size = self.rewritable(&req);
        if let Some(Compressed { kind, lsize }) = req.compressed {
            // A MAC covers the ciphertext without anything behind it.
            let bytes = match req.encrypted {
                Some(_) => req.data.whole(),
                None => {
                    let (data, size) = (req.data.whole(), self.round(req.data.len()).min(lsize as usize));
                    if data.len() == size { data } else { AlignedBuf::padded(&data, size).freeze() }
                }
            };
            return self.seal(req, kind, bytes, None);
        }
        let (kind, bytes) = match self.pack(&req, old_size) {
            Packed::Zeros => return Ok(Prepared::Done(self.hole(&req))),
            Packed::Embedded(e) => return Ok(Prepared::Done(self.pointer(&req, Body::Embedded(e)))),
            Packed::Bytes(kind, buf) => (kind, buf.freeze()),
            Packed::Plain => (CompressKind::Off, req.data.whole()),
        };
        self.seal(req, kind, bytes, old_size)
    }

    fn pointer(&self, req: &WriteReq, body: Body) -> Blkptr {
        Blkptr {
            kind: req.kind,
            level: req.level,
            lsize: Lsize(req.lsize()),
            birth: self.txg,
            order: ByteOrder::Little,
            body,
        }
    }

    /// A hole records its birth if there was something before.
    fn hole(&self, req: &WriteReq) -> Blkptr {
        let was = req.old.is_some_and(|bp| bp.birth.0 != 0);
        if was && req.policy.hole_birth { self.pointer(req, Body::Hole) } else { Blkptr::HOLE }
    }

    /// Stored size of the old block, if it may be overwritten.
    fn rewritable(&self, req: &WriteReq) -> Option<usize> {
        let old = req.old.as_ref().filter(|bp| req.in_place && bp.birth == self.txg)?;
        let s = old.stored()?;
        let encrypts = req.policy.encrypt && req.kind.is_encrypted() && req.level.0 == 0;
        let fits = !s.dedup
            && !req.policy.dedup
            && !encrypts
            && s.phys_birth == self.txg
            && s.copies().count() >= usize::from(req.policy.copies);
        fits.then_some(s.psize.0 as usize)
    }

    /// Bytes that a compressed block takes (`zio_roundup_alloc_size`).
    fn round(&self, packed: usize) -> usize {
        let (min, gcd) = self.unit;
        compress::alloc_size(gcd, min, packed)
    }

    fn pack(&self, req: &WriteReq, old_size: Option<usize>) -> Packed {
        let (policy, lsize) = (&req.policy, req.data.len());
        // With keys, blocks of these two types must not be compressed: parts of them are read
        // without keys.
        let bare = policy.encrypt && req.level.0 == 0 && has_fill(req.kind);
        let kind = match policy.compress {
            CompressKind::Off => return Packed::Plain,
            kind if bare && kind != CompressKind::Empty => CompressKind::Empty,
            kind => kind,
        };
        if compress::is_zero(req.data.head()) {
            return Packed::Zeros;
        }
        let (min, gcd) = self.unit;
        if kind == CompressKind::Empty {
            return Packed::Plain;
        }
        let max = compress::max_size(kind, gcd, min, lsize);
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.len() < max {
                scratch.resize(max, 0);
            }
            match spread(&req.data, |data| compress::compress(kind, policy.zstd, data, &mut scratch[..max])) {
                Some(len) if len < lsize => self.packed(req, kind, &scratch[..len], old_size),
                _ => Packed::Plain,
            }
        })
    }

    /// The outcome for a block that was compressed into these bytes.
    fn packed(&self, req: &WriteReq, kind: CompressKind, bytes: &[u8], old_size: Option<usize>) -> Packed {
        let policy = &req.policy;
        let plain = !policy.dedup && !policy.encrypt && policy.embed;
        if plain
            && req.level.0 == 0
            && !has_fill(req.kind)
            && let Some(embedded) = Embedded::new(kind, bytes)
        {
            return Packed::Embedded(embedded);
        }
        let size = self.round(bytes.len());
        // The old place with a little unused space is better than a new place.
        let size = old_size.map_or(size, |old| size.max(old));
        if size < req.data.len() {
            Packed::Bytes(kind, AlignedBuf::padded(bytes, size))
        } else {
            Packed::Plain
        }
    }

    /// Encrypts or authenticates, and checksums.
    fn seal(
        &self,
        req: WriteReq,
        compress: CompressKind,
        bytes: Block,
        old_size: Option<usize>,
    ) -> Result<Prepared> {
        let bookmark = req.bookmark;
        let encode = |source| Error::Encode { bookmark, source };
        let policy = &req.policy;
        let psize = Psize(bytes.len() as u64);
        let Guarded { bytes, mac, crypt_params } = match policy.encrypt {
            true => self.guard(&req, bytes)?,
            false => Guarded { bytes, mac: None, crypt_params: NO_PARAMS },
        };
        let sum = self.checksummer.compute(policy.checksum, ByteOrder::Little, &bytes).map_err(encode)?;
        let sum = match mac {
            Some(mac) => sum.under_mac(policy.checksum).with_mac(ByteOrder::Little, &mac),
            None => sum,
        };
        let stored = Stored {
            dvas: [None; 3],
            psize,
            compress,
            checksum: policy.checksum,
            sum: sum.0,
            phys_birth: self.txg,
            fill: req.fill,
            dedup: policy.dedup,
            crypt: policy.encrypt,
            crypt_params,
        };
        let pointer = self.pointer(&req, Body::Stored(stored));
        if let Some(old) = self.unchanged(&req, &stored) {
            return Ok(Prepared::Done(old));
        }
        // Salt and IV take the place of the third.
        let most = if pointer.is_encrypted() { 2 } else { 3 };
        let want = Want {
            psize,
            copies: policy.copies.clamp(1, most),
            txg: self.txg,
            kind: req.kind,
            level: req.level,
            class: policy.class,
            gang_header: false,
            flags: self.flags,
        };
        let old = req.old.filter(|_| old_size == Some(bytes.len()));
        let verify = policy.verify;
        let data = if verify { plain(req) } else { req.data };
        Ok(Prepared::Store(Box::new(Sealed { bytes, pointer, want, bookmark, old, data, verify })))
    }

    /// Encrypts or authenticates a block of an encrypted object set, depending on its type
    /// (`zio_encrypt`).
    fn guard(&self, req: &WriteReq, bytes: Block) -> Result<Guarded> {
        let bookmark = req.bookmark;
        let encode = |source| Error::Encode { bookmark, source };
        if req.level.0 > 0 {
            // The MAC covers what the pointers below say, not how this block is compressed. It
            // needs no key.
            let mac = codec::crypt::indirect_mac(KeyVersion::V1, ByteOrder::Little, &req.data.whole());
            return Ok(Guarded { bytes, mac: Some(mac.map_err(encode)?), crypt_params: NO_PARAMS });
        }
        if let Some(Encrypted { params, mac }) = req.encrypted {
            return Ok(Guarded { bytes, mac: Some(mac), crypt_params: params });
        }
        let keys = match &self.keys {
            Some(source) => source.keys(bookmark.objset),
            None => Err(KeyError::NotLoaded { objset: bookmark.objset }),
        };
        if req.kind == DmuType::OBJSET && matches!(keys, Err(KeyError::NotLoaded { .. })) {
            // Its MACs stay right as long as only fields outside of them changed, such as the log's
            // header (`os_next_write_raw`). Without keys nothing else can change.
            return Ok(Guarded { bytes, mac: None, crypt_params: NO_PARAMS });
        }
        let keys = keys.map_err(|source| Error::Key { bookmark, source })?;
        if req.kind == DmuType::OBJSET {
            let mut buf = bytes.thaw();
            let macs = keys.objset_macs(ByteOrder::Little, &buf).map_err(encode)?;
            buf[PORTABLE_MAC].copy_from_slice(&macs.portable);
            buf[LOCAL_MAC].copy_from_slice(&macs.local);
            return Ok(Guarded { bytes: buf.freeze(), mac: None, crypt_params: NO_PARAMS });
        }
        if !req.kind.is_encrypted() {
            let mac = Some(keys.mac(&bytes));
            return Ok(Guarded { bytes, mac, crypt_params: NO_PARAMS });
        }
        let crypt_params = match req.policy.dedup {
            true => keys.dedup_params(&bytes),
            false => {
                let mut iv = [0; IV_LEN];
                self.entropy.fill(&mut iv);
                CryptParams { salt: keys.salt(|salt| self.entropy.fill(salt)), iv }
            }
        };
        let mut buf = bytes.thaw();
        let mac = keys.encrypt(req.kind, &crypt_params, &mut buf).map_err(encode)?;
        Ok(Guarded { bytes: buf.freeze(), mac: Some(mac), crypt_params })
    }

    /// The old block, if it is equal except for place and birth (`zio_nop_write`).
    fn unchanged(&self, req: &WriteReq, new: &Stored) -> Option<Blkptr> {
        let (policy, old) = (&req.policy, req.old.as_ref()?);
        let s = old.stored()?;
        let may = policy.nopwrite && req.level.0 == 0 && !policy.dedup && !policy.encrypt && !s.crypt;
        let same = s.checksum == new.checksum
            && resists_collisions(s.checksum)
            && s.sum == new.sum
            && s.compress == new.compress
            && s.psize == new.psize
            && s.dedup == new.dedup
            && old.lsize.0 == req.lsize()
            && old.kind == req.kind
            && old.order == ByteOrder::Little
            && s.copies().count() == usize::from(policy.copies);
        // A block of a removed vdev is written anew, so that it leaves that vdev.
        let concrete = || s.copies().all(|dva| self.tree.holds_blocks(dva.vdev));
        (may && same && concrete()).then_some(*old)
    }
}

/// The contents of a block. Compressed bytes that don't decompress stay as they are: they equal no
/// other block.
fn plain(req: WriteReq) -> Sparse {
    let Some(Compressed { kind, lsize }) = req.compressed else { return req.data };
    let mut buf = AlignedBuf::zeroed(lsize as usize);
    match compress::decompress(kind, &req.data.whole(), &mut buf) {
        Ok(()) => buf.freeze().into(),
        Err(_) => req.data,
    }
}

/// A block after encryption.
struct Guarded {
    bytes: Block,
    mac: Option<[u8; MAC_LEN]>,
    crypt_params: CryptParams,
}

const NO_PARAMS: CryptParams = CryptParams { salt: [0; 8], iv: [0; 12] };

/// Whether equal checksums mean equal blocks (`ZCHECKSUM_FLAG_NOPWRITE`).
fn resists_collisions(kind: ChecksumKind) -> bool {
    kind == ChecksumKind::Edonr || codec::checksum::is_strong(kind)
}

/// Whether pointers of this kind count dnodes, not blocks (`DMU_OT_HAS_FILL`).
fn has_fill(kind: DmuType) -> bool {
    kind == DmuType::DNODE || kind == DmuType::OBJSET
}
