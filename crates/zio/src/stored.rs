//! The stored form of blocks that are kept elsewhere, as on cache devices.

use codec::checksum::{Checksum, Checksummer};
use codec::compress::{self, ZstdLevel};
use device::{AlignedBuf, Block};
use ondisk::blkptr::Stored;
use ondisk::{Blkptr, ByteOrder, CompressKind, DmuType};
use std::sync::Arc;

use crate::keys::KeyCell;
use crate::read::Extent;
use crate::read::has_mac;
use crate::{Bookmark, Error, Opened, Result, Zio};

/// Restores the stored form of a pool's blocks from memory: compressed and encrypted as their
/// pointers say (`l2arc_apply_transforms`).
///
/// All of that is reproducible, given the zstd level, and a block's salt and initialisation vector.
/// The pointer's checksum shows whether it was. Otherwise nothing is returned.
pub struct Remaker {
    checksums: Arc<Checksummer>,
    keys: KeyCell,
}

impl Remaker {
    pub(crate) fn new(checksums: Arc<Checksummer>, keys: KeyCell) -> Remaker {
        Remaker { checksums, keys }
    }

    /// The stored form of a block, from what the object sees, padded to `room` bytes.
    ///
    /// `objset` is the object set whose keys encrypt it, if it is encrypted. `level` is its zstd
    /// level, if it has one. `None` if the bytes differ, the key is not loaded, or the block is of
    /// the other byte order.
    pub fn of_plain(
        &self,
        bp: &Blkptr,
        objset: u64,
        level: ZstdLevel,
        plain: &Block,
        room: usize,
    ) -> Option<Block> {
        let (s, psize) = measure(bp, room)?;
        if bp.order != ByteOrder::Little {
            return None;
        }
        let buf = match s.compress {
            CompressKind::Off if plain.len() != psize => return None,
            CompressKind::Off if psize == room && !bp.is_encrypted() => {
                return self.checked(bp, s, plain.clone());
            }
            CompressKind::Off => AlignedBuf::padded(plain, room),
            kind => {
                // With the same space as in the first compression: how a slow zstd level is first
                // tried depends on it.
                let mut buf = AlignedBuf::zeroed(room.max(plain.len()));
                let len = compress::compress(kind, level, plain, &mut buf).filter(|len| *len <= psize)?;
                buf[len..].fill(0);
                buf.truncate(room);
                buf
            }
        };
        self.sealed(bp, s, objset, buf)
    }

    /// The stored form of a block, from its compressed bytes, not encrypted ([`Opened::packed`]);
    /// otherwise like [`Remaker::of_plain`].
    pub fn of_packed(&self, bp: &Blkptr, objset: u64, packed: &Block, room: usize) -> Option<Block> {
        let (s, psize) = measure(bp, room)?;
        if packed.len() != psize {
            return None;
        }
        if psize == room && !bp.is_encrypted() {
            return self.checked(bp, s, packed.clone());
        }
        self.sealed(bp, s, objset, AlignedBuf::padded(packed, room))
    }

    /// Encrypts if needed, and verifies the result.
    fn sealed(&self, bp: &Blkptr, s: &Stored, objset: u64, mut buf: AlignedBuf) -> Option<Block> {
        if bp.is_encrypted() {
            let keys = self.keys.keys(objset).ok()?;
            let stored = buf.get_mut(..usize::try_from(s.psize.0).ok()?)?;
            let mac = keys.encrypt(bp.kind, &s.crypt_params, stored).ok()?;
            // A block that was encrypted with another key must not pass.
            if mac != Checksum(s.sum).mac(bp.order) {
                return None;
            }
        }
        self.checked(bp, s, buf.freeze())
    }

    /// The beginning of these bytes, if it is the block as stored.
    fn checked(&self, bp: &Blkptr, s: &Stored, bytes: Block) -> Option<Block> {
        let stored = bytes.get(..usize::try_from(s.psize.0).ok()?)?;
        self.checksums.verify(s.checksum, bp.order, stored, Checksum(s.sum), has_mac(bp, s)).ok()?;
        Some(bytes)
    }
}

/// How a block is stored according to its pointer, with its stored size, if that fits into `room`.
fn measure(bp: &Blkptr, room: usize) -> Option<(&Stored, usize)> {
    let s = bp.stored()?;
    Some((s, usize::try_from(s.psize.0).ok().filter(|psize| *psize <= room)?))
}

impl Zio {
    /// A block from its stored bytes, which were kept elsewhere: verified with the pointer's
    /// checksum, decrypted, decompressed, in the native byte order.
    ///
    /// Wrong bytes are no damage of the pool. For a block without a checksum any bytes pass, so
    /// callers must not use this for one.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: the bytes are of another size, the block is a log block or has no
    ///   place, or its contents are invalid.
    /// * [`Error::Checksum`]: the bytes are not the block's.
    /// * [`Error::Decode`]: the bytes can't be decrypted, authenticated or decompressed.
    /// * [`Error::Key`]: the block is encrypted, and its key is not loaded.
    pub fn open_stored(&self, bp: &Blkptr, raw: AlignedBuf, bookmark: &Bookmark) -> Result<Opened> {
        let Some(s) = bp.stored().filter(|s| s.psize.0 == raw.len() as u64 && bp.kind != DmuType::INTENT_LOG)
        else {
            let why = "what was kept of it has another size";
            let source = ondisk::Corrupt::Shape { what: "block", why };
            return Err(Error::Corrupt { bookmark: *bookmark, source });
        };
        self.verify(bp, s, &raw).map_err(|source| Error::Checksum {
            bookmark: *bookmark,
            dva: s.dvas[0].expect("a stored block has a first copy"),
            source,
        })?;
        let keys = if bp.is_encrypted() { Some(self.keys(bookmark)?) } else { None };
        self.open_verified(bp, s, (raw, Extent::Start), keys, bookmark)
    }
}
