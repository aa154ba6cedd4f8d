//! The stored form of blocks that somebody else keeps, as on cache devices.

use codec::checksum::{Checksum, Checksummer};
use codec::compress::{self, ZstdLevel};
use device::{AlignedBuf, Block};
use ondisk::blkptr::Stored;
use ondisk::{Blkptr, ByteOrder, CompressKind, DmuType};
use std::sync::Arc;

use crate::keys::KeyCell;
use crate::read::has_mac;
use crate::{Bookmark, Error, Opened, Result, Zio};

/// Makes the stored form of a pool's blocks again of what memory holds of them: packed as their pointers say, and encrypted as they say. All of that repeats, given the level of zstd, and a block's
/// salt and initialisation vector; whether it did, the pointer's checksum tells, and what did not is not given out.
pub struct Remaker {
    checksums: Arc<Checksummer>,
    keys: KeyCell,
}

impl Remaker {
    pub(crate) fn new(checksums: Arc<Checksummer>, keys: KeyCell) -> Remaker {
        Remaker { checksums, keys }
    }

    /// The stored form of a block of what the object sees, padded to `room` bytes. `objset` is the one whose keys encrypt it, if it is encrypted, and `level` is that of zstd, if it is packed so. Nothing
    /// if other bytes came out, the key isn't loaded, or the block is of the other byte order.
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
                // With as much room as it had then: how a slow level of zstd is tried first depends on that.
                let mut buf = AlignedBuf::zeroed(room.max(plain.len()));
                let len = compress::compress(kind, level, plain, &mut buf).filter(|len| *len <= psize)?;
                buf[len..].fill(0);
                buf.truncate(room);
                buf
            }
        };
        self.sealed(bp, s, objset, buf)
    }

    /// The stored form of a block of its packed bytes, not encrypted ([`Opened::packed`]), padded to `room` bytes; otherwise as [`Remaker::of_plain`].
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

    /// Encrypts what is to be encrypted, and checks what came out.
    fn sealed(&self, bp: &Blkptr, s: &Stored, objset: u64, mut buf: AlignedBuf) -> Option<Block> {
        if bp.is_encrypted() {
            let keys = self.keys.keys(objset).ok()?;
            let stored = buf.get_mut(..usize::try_from(s.psize.0).ok()?)?;
            let mac = keys.encrypt(bp.kind, &s.crypt_params, stored).ok()?;
            // Another key than the one that it was encrypted with must not be taken for it.
            if mac != Checksum(s.sum).mac(bp.order) {
                return None;
            }
        }
        self.checked(bp, s, buf.freeze())
    }

    /// These bytes, of which the beginning should be a block as stored, if it is.
    fn checked(&self, bp: &Blkptr, s: &Stored, bytes: Block) -> Option<Block> {
        let stored = bytes.get(..usize::try_from(s.psize.0).ok()?)?;
        self.checksums.verify(s.checksum, bp.order, stored, Checksum(s.sum), has_mac(bp, s)).ok()?;
        Some(bytes)
    }
}

/// What a pointer says of how its block is stored, and the bytes that this takes, if there is room for them.
fn measure(bp: &Blkptr, room: usize) -> Option<(&Stored, usize)> {
    let s = bp.stored()?;
    Some((s, usize::try_from(s.psize.0).ok().filter(|psize| *psize <= room)?))
}

impl Zio {
    /// A block of its stored bytes, which somebody kept: verified with the pointer's checksum, decrypted, decompressed, in the native byte order. That they are wrong is no
    /// damage of the pool. Of a block without a checksum everything passes for its bytes: nobody should ask for one.
    ///
    /// # Errors
    /// [`Error::Checksum`] if they are not the block's; those of decrypting and unpacking as [`Zio::read`].
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
        self.open_verified(bp, s, raw, keys, bookmark)
    }
}
