//! The stored form of blocks that somebody else keeps, as on cache devices.

use codec::checksum::Checksummer;
use codec::compress::{self, ZstdLevel};
use device::{AlignedBuf, Block};
use ondisk::{Blkptr, CompressKind, DmuType};

use crate::read::has_mac;
use crate::{Bookmark, Error, Opened, Result, Zio};

/// Makes the stored form of a block again of what the object sees, padded to `room` bytes: if what comes out is what the pointer's checksum says. What is encrypted, or of the other byte
/// order, is not made again.
pub fn stored_again(bp: &Blkptr, plain: &Block, checksums: &Checksummer, room: usize) -> Option<Block> {
    let s = bp.stored()?;
    let psize = usize::try_from(s.psize.0).ok().filter(|psize| *psize <= room)?;
    if bp.is_encrypted() || bp.order != ondisk::ByteOrder::Little {
        return None;
    }
    let packed = match s.compress {
        CompressKind::Off if plain.len() == psize && psize == room => None,
        CompressKind::Off if plain.len() == psize => Some(AlignedBuf::padded(plain, room)),
        CompressKind::Off => return None,
        kind => {
            let mut buf = AlignedBuf::zeroed(room);
            let len = compress::compress(kind, ZstdLevel::default(), plain, &mut buf[..psize])?;
            buf[len..].fill(0);
            Some(buf)
        }
    };
    checked(bp, packed.map_or_else(|| plain.clone(), AlignedBuf::freeze), checksums)
}

/// The stored form of a block of its packed bytes ([`Opened::packed`]), padded to `room` bytes: if they are what the pointer's checksum says, which those of an encrypted block are not.
pub fn stored_of(bp: &Blkptr, packed: &Block, checksums: &Checksummer, room: usize) -> Option<Block> {
    let psize = bp.stored()?.psize.0;
    if packed.len() as u64 != psize || packed.len() > room {
        return None;
    }
    let whole = packed.len() == room;
    let bytes = if whole { packed.clone() } else { AlignedBuf::padded(packed, room).freeze() };
    checked(bp, bytes, checksums)
}

/// These bytes, of which the beginning should be a block as stored, if it is.
fn checked(bp: &Blkptr, bytes: Block, checksums: &Checksummer) -> Option<Block> {
    let s = bp.stored()?;
    let stored = bytes.get(..usize::try_from(s.psize.0).ok()?)?;
    let sum = codec::checksum::Checksum(s.sum);
    checksums.verify(s.checksum, bp.order, stored, sum, has_mac(bp, s)).ok()?;
    Some(bytes)
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
