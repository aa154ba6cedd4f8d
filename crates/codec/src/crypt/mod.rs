//! Encryption of datasets: ciphers, keys, and which parts of a block are secret or authenticated.
//!
//! # Theory
//! A dataset has a random *master key* and an *HMAC key*. They are stored wrapped (encrypted) by
//! the user's *wrapping key*. The user gives that key raw, as hexadecimal digits or as a
//! passphrase. A block's own key is derived from the master key and the block's salt, so that no
//! key encrypts too much. IV, salt and MAC are in the block pointer.
//!
//! Scrubs and raw streams must work without any key, so the structure of the tree stays readable:
//!
//! | block | protection |
//! |---|---|
//! | level 0 of an encrypted type | all bytes, after compression ([`DataKeys::decrypt`]) |
//! | dnodes | encrypted bonuses are secret; the rest is authenticated ([`dnode_block`]) |
//! | log blocks | records are secret; headers and pointers are authenticated ([`zil_block`]) |
//! | level 0 of other types | a MAC over the stored bytes ([`DataKeys::verify_mac`]) |
//! | indirect blocks | a keyless digest over the pointers ([`verify_indirect`]) |
//! | object sets | two MACs inside, portable and local ([`ObjsetMacs`]) |
//!
//! The portable part of a block pointer is what a raw stream carries to another pool. Location,
//! checksum and dedup are not portable. Some authenticated data is used in little-endian, some in
//! the block's own byte order, as the format requires. The documentation of each function tells
//! which.
//!
//! Dropped keys are wiped from memory.
//!
//! # On disk
//! There are two versions ([`KeyVersion`]). Version 0 masked block pointers differently, and is
//! only read.
//!
//! # Absent
//! Callers provide randomness: salts, IVs and new keys. Other layers find keys and keep
//! passphrases.
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
    /// A version from before the format was final, which authenticates less. Its datasets are
    /// read-only.
    V0,
    /// The current version (`ZIO_CRYPT_KEY_CURRENT_VERSION`).
    V1,
}

impl KeyVersion {
    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Error::Protected`]: OpenZFS 2.3 has no version with this number.
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

    /// Encodes the on-disk number.
    pub fn to_disk(self) -> u64 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }
}
