//! Names in the ZAP that wraps a dataset's master key (`dsl_crypto_key_phys`).
//!
//! # On disk
//! `DSL_DIR` objects point to it with [`FIELD`]. The wrapping key's own parameters (`keyformat`, `pbkdf2iters`, `pbkdf2salt`,
//! `keylocation`) are ordinary properties of the encryption root, next to these.

use crate::{Corrupt, Result};

/// Field of a DSL directory's ZAP that names the key object (`DD_FIELD_CRYPTO_KEY_OBJ`).
pub const FIELD: &str = "com.datto:crypto_key_obj";
/// Algorithm, as [`CryptoSuite`].
pub const SUITE: &str = "DSL_CRYPTO_SUITE";
/// Guid, part of the authenticated data.
pub const GUID: &str = "DSL_CRYPTO_GUID";
/// Initialisation vector of the wrapping, [`IV_LEN`] bytes.
pub const IV: &str = "DSL_CRYPTO_IV";
/// Tag of the wrapping, [`MAC_LEN`] bytes.
pub const MAC: &str = "DSL_CRYPTO_MAC";
/// Wrapped master key, [`MASTER_KEY_MAX_LEN`] bytes.
pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
/// Wrapped HMAC key, [`HMAC_KEY_LEN`] bytes.
pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
/// DSL directory object of the encryption root.
pub const ROOT_DDOBJ: &str = "DSL_CRYPTO_ROOT_DDOBJ";
/// How many datasets share the key.
pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
/// Version of the authenticated data; absent is 0.
pub const VERSION: &str = "DSL_CRYPTO_VERSION";

/// Bytes of an initialisation vector (`WRAPPING_IV_LEN`).
pub const IV_LEN: usize = 12;
/// Bytes of a tag (`WRAPPING_MAC_LEN`).
pub const MAC_LEN: usize = 16;
/// Bytes kept for the master key (`MASTER_KEY_MAX_LEN`).
pub const MASTER_KEY_MAX_LEN: usize = 32;
/// Bytes of the HMAC key (`SHA512_HMAC_KEYLEN`).
pub const HMAC_KEY_LEN: usize = 64;

/// Encryption algorithm of a dataset (`enum zio_encrypt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CryptoSuite {
    /// AES-128 in CCM.
    Aes128Ccm = 3,
    /// AES-192 in CCM.
    Aes192Ccm = 4,
    /// AES-256 in CCM.
    Aes256Ccm = 5,
    /// AES-128 in GCM.
    Aes128Gcm = 6,
    /// AES-192 in GCM.
    Aes192Gcm = 7,
    /// AES-256 in GCM, the default.
    Aes256Gcm = 8,
}

impl CryptoSuite {
    /// The suite of an on-disk number.
    ///
    /// # Errors
    /// [`Corrupt::Range`].
    pub fn from_disk(v: u64) -> Result<Self> {
        Ok(match v {
            3 => Self::Aes128Ccm,
            4 => Self::Aes192Ccm,
            5 => Self::Aes256Ccm,
            6 => Self::Aes128Gcm,
            7 => Self::Aes192Gcm,
            8 => Self::Aes256Gcm,
            _ => return Err(Corrupt::Range { what: "crypto key", field: "suite", value: v }),
        })
    }

    /// Bytes of its key.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes192Ccm | Self::Aes192Gcm => 24,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// The name that the `encryption` property shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Ccm => "aes-128-ccm",
            Self::Aes192Ccm => "aes-192-ccm",
            Self::Aes256Ccm => "aes-256-ccm",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
        }
    }
}
