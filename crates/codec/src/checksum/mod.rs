//! Block checksums: from bytes to the four words in a block pointer.
//!
//! # Theory
//! A block pointer has 256 bits of checksum. They are four 64-bit words in the byte order of the
//! block's writer.
//!
//! * Fletcher sums add up words as the writer's machine saw them. So they take the byte order as an
//!   argument.
//! * The hashes run over bytes and yield 32 bytes, which the writer stored as they were. As words,
//!   they have the writer's byte order.
//! * The words of SHA-256 are always big-endian, because the first implementation made them so.
//!
//! Skein, Edon-R and BLAKE3 have a secret salt of the pool as their key. So an attacker can't
//! prepare blocks with the same checksum. [`Checksummer::new`] does the work that depends on the
//! salt alone once.
//!
//! Labels, gang headers and log blocks have no block pointer for their checksum. They carry it
//! inside: see [`embedded`]. Blocks of encrypted datasets give half of the checksum to the MAC of
//! the encryption: see [`Checksum::under_mac`].
//!
//! # See
//! OpenZFS: `zio_checksum.c`, `sha2_zfs.c`, `skein_zfs.c`, `edonr_zfs.c`, `blake3_zfs.c`.

mod edonr;
pub mod embedded;
mod fletcher;
mod skein;

#[cfg(test)]
mod tests;

pub use fletcher::Fletcher4;

use crate::{Error, Result};
use edonr::EdonrMac;
use ondisk::{ByteOrder, ChecksumKind};
use sha2::{Digest, Sha256, Sha512_256};
use skein::SkeinMac;

/// A 256-bit checksum as in a block pointer (`zio_cksum_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Checksum(pub [u64; 4]);

impl Checksum {
    /// The checksum in the pointers of blocks without one.
    pub const ZERO: Self = Self([0; 4]);

    /// Decodes 32 stored bytes to words.
    pub fn from_bytes(order: ByteOrder, bytes: &[u8; 32]) -> Self {
        let mut words = [0; 4];
        for (word, raw) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = match order {
                ByteOrder::Little => u64::from_le_bytes(*raw),
                ByteOrder::Big => u64::from_be_bytes(*raw),
            };
        }
        Self(words)
    }

    /// Encodes the words as 32 bytes to store.
    pub fn to_bytes(self, order: ByteOrder) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (word, raw) in self.0.iter().zip(bytes.as_chunks_mut::<8>().0) {
            *raw = match order {
                ByteOrder::Little => word.to_le_bytes(),
                ByteOrder::Big => word.to_be_bytes(),
            };
        }
        bytes
    }

    /// The part of a computed checksum that remains beside a MAC: its first two words
    /// (`zio_checksum_handle_crypt`).
    ///
    /// Each block of an encrypted object (the crypt bit of its block pointer) shares the four words
    /// with a MAC. Object sets don't, because they carry their MACs inside. Weak sums are folded
    /// first, because their entropy is distributed unevenly.
    pub fn under_mac(self, kind: ChecksumKind) -> Self {
        let [a, b, c, d] = self.0;
        if is_strong(kind) { Self([a, b, 0, 0]) } else { Self([a ^ c, b ^ d, 0, 0]) }
    }

    /// The MAC in the last two words of an encrypted block's checksum, as the 16 bytes of the
    /// cipher's tag (`zio_crypt_decode_mac_bp`).
    ///
    /// `order` is the byte order of the block.
    pub fn mac(self, order: ByteOrder) -> [u8; 16] {
        let mut mac = [0; 16];
        mac.copy_from_slice(&self.to_bytes(order)[16..]);
        mac
    }

    /// This checksum with `mac` in its last two words (`zio_crypt_encode_mac_bp`).
    #[must_use]
    pub fn with_mac(self, order: ByteOrder, mac: &[u8; 16]) -> Self {
        let mut bytes = self.to_bytes(order);
        bytes[16..].copy_from_slice(mac);
        Self::from_bytes(order, &bytes)
    }

    /// Compares this stored checksum with `actual`, which `kind` computed over a block's bytes.
    ///
    /// With `mac`, it compares only the part that [`Checksum::under_mac`] leaves. The cipher checks
    /// the MAC.
    ///
    /// # Errors
    /// * [`Error::Mismatch`]: the compared words differ. The error has these words.
    pub fn check(self, kind: ChecksumKind, actual: Checksum, mac: bool) -> Result<()> {
        let (expected, actual) =
            if mac { (Self([self.0[0], self.0[1], 0, 0]), actual.under_mac(kind)) } else { (self, actual) };
        if expected == actual { Ok(()) } else { Err(Error::Mismatch { kind, expected, actual }) }
    }
}

impl std::fmt::Display for Checksum {
    /// As `zdb` prints it: four hexadecimal words with colons between them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:x}:{b:x}:{c:x}:{d:x}")
    }
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({self})")
    }
}

/// True for the functions that OpenZFS trusts for dedup (`ZCHECKSUM_FLAG_DEDUP`).
pub fn is_strong(kind: ChecksumKind) -> bool {
    match kind {
        ChecksumKind::Sha256 | ChecksumKind::Sha512 | ChecksumKind::Skein | ChecksumKind::Blake3 => true,
        ChecksumKind::Inherit
        | ChecksumKind::On
        | ChecksumKind::Off
        | ChecksumKind::Label
        | ChecksumKind::GangHeader
        | ChecksumKind::Zilog
        | ChecksumKind::Fletcher2
        | ChecksumKind::Fletcher4
        | ChecksumKind::Zilog2
        | ChecksumKind::Noparity
        | ChecksumKind::Edonr => false,
    }
}

/// SHA-256 as OpenZFS stores it: big-endian words on every machine (`abd_checksum_sha256`).
pub fn sha256(data: &[u8]) -> Checksum {
    Checksum::from_bytes(ByteOrder::Big, &Sha256::digest(data).into())
}

/// SHA-512/256 of a block written in `order` (`abd_checksum_sha512_native`).
pub fn sha512(order: ByteOrder, data: &[u8]) -> Checksum {
    Checksum::from_bytes(order, &Sha512_256::digest(data).into())
}

/// Fletcher-2 of a block written in `order`: sums over pairs of 64-bit words (`fletcher_2_native`).
///
/// # Panics
/// If the length of `data` is not a multiple of 16. Blocks are multiples of 512 bytes.
pub fn fletcher2(order: ByteOrder, data: &[u8]) -> Checksum {
    let mut sum = fletcher::Fletcher2::new(order);
    sum.append(data);
    sum.finish()
}

/// Fletcher-4 of a block written in `order`: sums over 32-bit words (`fletcher_4_native`).
///
/// # Panics
/// If the length of `data` is not a multiple of 4. Blocks are multiples of 512 bytes.
pub fn fletcher4(order: ByteOrder, data: &[u8]) -> Checksum {
    let mut sum = Fletcher4::new(order);
    sum.append(data);
    sum.finish()
}

/// The checksum functions of one pool, with the precomputed state of its salt (`spa_cksum_tmpls`).
///
/// It is immutable, so threads share it freely.
pub struct Checksummer {
    skein: SkeinMac,
    edonr: EdonrMac,
    blake3: blake3::Hasher,
}

impl std::fmt::Debug for Checksummer {
    /// Without the state of the salt, which is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checksummer").finish_non_exhaustive()
    }
}

impl Checksummer {
    /// The functions of a pool with this salt, `org.illumos:checksum_salt` in the directory of the
    /// MOS.
    ///
    /// A pool without a salt uses no salted function, so any value will do.
    pub fn new(salt: &[u8; 32]) -> Self {
        Self {
            skein: SkeinMac::new(salt),
            edonr: EdonrMac::new(salt),
            blake3: blake3::Hasher::new_keyed(salt),
        }
    }

    /// Computes the checksum of `data` as in a block pointer of `order` (`zio_checksum_compute`).
    ///
    /// For `Off` and `Noparity` it is zeros, as in their block pointers.
    ///
    /// # Errors
    /// * [`Error::ChecksumKind`]: `kind` names no function (`Inherit`, `On`), or is an embedded
    ///   checksum, for which [`embedded`] is there.
    ///
    /// # Panics
    /// If the length of `data` is not a multiple of 16 for Fletcher-2, or of 4 for Fletcher-4.
    pub fn compute(&self, kind: ChecksumKind, order: ByteOrder, data: &[u8]) -> Result<Checksum> {
        Ok(match kind {
            ChecksumKind::Off | ChecksumKind::Noparity => Checksum::ZERO,
            ChecksumKind::Fletcher2 => fletcher2(order, data),
            ChecksumKind::Fletcher4 => fletcher4(order, data),
            ChecksumKind::Sha256 => sha256(data),
            ChecksumKind::Sha512 => sha512(order, data),
            ChecksumKind::Skein => Checksum::from_bytes(order, &self.skein.hash(data)),
            ChecksumKind::Edonr => Checksum::from_bytes(order, &self.edonr.hash(data)),
            ChecksumKind::Blake3 => {
                let mut hasher = self.blake3.clone();
                hasher.update(data);
                Checksum::from_bytes(order, hasher.finalize().as_bytes())
            }
            ChecksumKind::Inherit
            | ChecksumKind::On
            | ChecksumKind::Label
            | ChecksumKind::GangHeader
            | ChecksumKind::Zilog
            | ChecksumKind::Zilog2 => return Err(Error::ChecksumKind { kind }),
        })
    }

    /// Verifies `data` against the checksum in its block pointer (`zio_checksum_error`).
    ///
    /// [`Checksum::check`] explains `mac`.
    ///
    /// # Errors
    /// * [`Error::Mismatch`]: the checksum is not that of the bytes.
    /// * [`Error::ChecksumKind`]: `kind` names no function, or is an embedded checksum.
    ///
    /// # Panics
    /// In the cases that [`Checksummer::compute`] lists.
    pub fn verify(
        &self,
        kind: ChecksumKind,
        order: ByteOrder,
        data: &[u8],
        expected: Checksum,
        mac: bool,
    ) -> Result<()> {
        expected.check(kind, self.compute(kind, order, data)?, mac)
    }
}
