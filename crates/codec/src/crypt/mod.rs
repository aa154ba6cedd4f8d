//! Encryption of datasets: ciphers, keys, and what of each block is secret or authenticated.
//!
//! # Theory
//! A dataset has a random *master key* and an *HMAC key*, stored wrapped (encrypted) by the user's *wrapping key*, which
//! is given raw, as hexadecimal, or made from a passphrase. A block's own key is derived from the master key
//! and the block's salt, so that one key never encrypts too much; IV, salt and MAC are in the block pointer.
//!
//! Scrubbing, and raw streams, must work without any key, so the tree's structure stays readable:
//!
//! | block | protection |
//! |---|---|
//! | level 0 of an encrypted type | all bytes, after compression ([`DataKeys::decrypt`]) |
//! | dnodes | encrypted bonuses are secret; cores, block pointers' portable parts, other bonuses authenticated |
//! | log blocks | records are secret but for their headers and block pointers, which are authenticated |
//! | level 0 of other types | a MAC over the stored bytes ([`DataKeys::verify_mac`]) |
//! | indirect blocks | a keyless digest over the MACs and portable parts of the pointers below ([`verify_indirect`]) |
//! | object sets | two MACs inside: the portable one over the meta dnode, the local one over the accounting dnodes |
//!
//! A block pointer's portable part is what a raw stream carries to another pool: not its place, its checksum or
//! dedup. Everything authenticated is taken in little-endian or in the block's own order, as the
//! format happens to say; each function's text says which.
//!
//! Keys are wiped when dropped.
//!
//! # On disk
//! Two versions exist ([`KeyVersion`]); version 0 masked block pointers differently, and is only read.
//!
//! # Absent
//! Randomness (callers bring salts, IVs and new keys), finding keys, remembering passphrases.
//!
//! # See
//! OpenZFS: `zio_crypt.c`, `dsl_crypt.c`, `libzfs_crypto.c`.

mod aead;
mod keys;
mod mac;
mod split;

#[cfg(test)]
mod tests;

pub use keys::{DataKeys, SALT_USES, WrappedKeys, WrappingKey};
pub use mac::{ObjsetMacs, indirect_mac, verify_indirect};
pub use split::{Split, dnode_block, zil_block, zil_mac};

pub use ondisk::crypto_key::{CryptoSuite, IV_LEN, MAC_LEN};

use crate::{Error, Result};
use ondisk::Corrupt;

/// Bytes of a salt (`ZIO_DATA_SALT_LEN`).
pub const SALT_LEN: usize = 8;

/// Version of a dataset's encryption format (`DSL_CRYPTO_VERSION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyVersion {
    /// From before the format was final: authenticates less. Datasets with it are read-only.
    V0,
    /// The present one (`ZIO_CRYPT_KEY_CURRENT_VERSION`).
    V1,
}

impl KeyVersion {
    /// The version of an on-disk number.
    ///
    /// # Errors
    /// [`Error::Protected`] for numbers that OpenZFS 2.3 doesn't know.
    pub fn from_disk(v: u64) -> Result<Self> {
        match v {
            0 => Ok(Self::V0),
            1 => Ok(Self::V1),
            value => Err(Error::Protected {
                what: "key",
                source: Corrupt::Range { what: "key", field: "version", value },
            }),
        }
    }

    /// The on-disk number.
    pub fn to_disk(self) -> u64 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }
}
