//! Block checksums: from bytes to the four words that a block pointer carries.
//!
//! # Theory
//! A block pointer holds 256 bits of checksum as four 64-bit words in the pointer's own byte order, and the words
//! come from a block written by a machine of that order. Fletcher sums add up words as that machine saw them, so
//! they take the order as an input. The hashes run over bytes and yield 32 of them; the writer stored these
//! as they were, so as words they read in its order: one rule for all but SHA-256, whose words are
//! big-endian everywhere, since the first implementation made them so.
//!
//! Skein, Edon-R and BLAKE3 are keyed with a secret salt of the pool, so that nobody can prepare colliding blocks.
//! The work that depends on the salt alone is done once, in [`Checksummer::new`].
//!
//! Some blocks have no block pointer that could hold their checksum (labels, gang headers, log blocks); they carry it
//! inside: see [`embedded`].
//!
//! Blocks of encrypted datasets give half of the checksum to the MAC of the encryption: see [`Checksum::under_mac`].
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

/// A 256-bit checksum as a block pointer holds it (`zio_cksum_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Checksum(pub [u64; 4]);

impl Checksum {
    /// The checksum of blocks that have none.
    pub const ZERO: Self = Self([0; 4]);

    /// The words that 32 stored bytes stand for.
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

    /// The 32 bytes that store these words.
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

    /// What is left of a computed checksum when `kind` shares the four words with a MAC: the first two words
    /// (`zio_checksum_handle_crypt`).
    ///
    /// This is so for every block of an encrypted object (the crypt bit of its block pointer) but object sets, which
    /// carry their MACs inside. Weak sums are folded first, because their entropy is spread unevenly.
    pub fn under_mac(self, kind: ChecksumKind) -> Self {
        let [a, b, c, d] = self.0;
        if is_strong(kind) { Self([a, b, 0, 0]) } else { Self([a ^ c, b ^ d, 0, 0]) }
    }

    /// The MAC that the checksum of an encrypted block of `order` carries in its last two words, as the 16 bytes of
    /// the cipher's tag (`zio_crypt_decode_mac_bp`).
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

    /// `Ok` if `actual`, computed over a block's bytes by `kind`, is this stored checksum. With `mac` only what
    /// [`Checksum::under_mac`] leaves is compared; the MAC is for the cipher to check.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the words that were compared.
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

/// SHA-256 as OpenZFS stores it: big-endian words whatever the machine.
pub fn sha256(data: &[u8]) -> Checksum {
    Checksum::from_bytes(ByteOrder::Big, &Sha256::digest(data).into())
}

/// SHA-512/256 of a block written in `order`.
pub fn sha512(order: ByteOrder, data: &[u8]) -> Checksum {
    Checksum::from_bytes(order, &Sha512_256::digest(data).into())
}

/// Fletcher-2 of a block written in `order`: sums over pairs of 64-bit words.
///
/// # Panics
/// When `data` is not a whole number of 16-byte pairs: blocks are multiples of 512 bytes.
pub fn fletcher2(order: ByteOrder, data: &[u8]) -> Checksum {
    let mut sum = fletcher::Fletcher2::new(order);
    sum.append(data);
    sum.finish()
}

/// Fletcher-4 of a block written in `order`: sums over 32-bit words.
///
/// # Panics
/// When `data` is not a whole number of 4-byte words: blocks are multiples of 512 bytes.
pub fn fletcher4(order: ByteOrder, data: &[u8]) -> Checksum {
    let mut sum = Fletcher4::new(order);
    sum.append(data);
    sum.finish()
}

/// The checksum functions of one pool, with the work that its salt needs already done.
///
/// Immutable, so threads share it freely.
pub struct Checksummer {
    skein: SkeinMac,
    edonr: EdonrMac,
    blake3: blake3::Hasher,
}

impl std::fmt::Debug for Checksummer {
    /// Without the salt's traces, which are a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checksummer").finish_non_exhaustive()
    }
}

impl Checksummer {
    /// For a pool with this salt (`org.illumos:checksum_salt` in the MOS directory; pools without one use no salted
    /// function, and any value will do).
    pub fn new(salt: &[u8; 32]) -> Self {
        Self {
            skein: SkeinMac::new(salt),
            edonr: EdonrMac::new(salt),
            blake3: blake3::Hasher::new_keyed(salt),
        }
    }

    /// The checksum of `data` as a block pointer of `order` holds it. `Off` and `Noparity` yield zeros, which is what
    /// their block pointers hold.
    ///
    /// # Errors
    /// [`Error::ChecksumKind`] for kinds that name no function and for embedded ones, which [`embedded`] handles.
    ///
    /// # Panics
    /// When a Fletcher sum is asked of data that is not a multiple of 16 bytes.
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

    /// Checks `data` against the checksum that its block pointer holds; `mac` as in [`Checksum::check`].
    ///
    /// # Errors
    /// [`Error::Mismatch`], and those of [`Checksummer::compute`].
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
