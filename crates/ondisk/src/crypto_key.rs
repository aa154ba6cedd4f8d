//! Names in the ZAP of a dataset's wrapped keys (`dsl_crypto_key_t`).
//!
//! # On disk
//! A DSL directory names its key object by [`FIELD`]. The parameters of the wrapping key are
//! ordinary properties of the encryption root: `keyformat`, `pbkdf2iters`, `pbkdf2salt`,
//! `keylocation`.

use crate::{Corrupt, Result};
use strum::{FromRepr, IntoStaticStr};

/// Name of the key object in a DSL directory's ZAP (`DD_FIELD_CRYPTO_KEY_OBJ`).
pub const FIELD: &str = "com.datto:crypto_key_obj";
/// Algorithm, a number of [`CryptoSuite`] (`DSL_CRYPTO_KEY_CRYPTO_SUITE`).
pub const SUITE: &str = "DSL_CRYPTO_SUITE";
/// Guid of the key, part of the authenticated data (`DSL_CRYPTO_KEY_GUID`).
pub const GUID: &str = "DSL_CRYPTO_GUID";
/// Initialisation vector of the wrapping, [`IV_LEN`] bytes (`DSL_CRYPTO_KEY_IV`).
pub const IV: &str = "DSL_CRYPTO_IV";
/// Tag of the wrapping, [`MAC_LEN`] bytes (`DSL_CRYPTO_KEY_MAC`).
pub const MAC: &str = "DSL_CRYPTO_MAC";
/// Wrapped master key, [`MASTER_KEY_MAX_LEN`] bytes (`DSL_CRYPTO_KEY_MASTER_KEY`).
pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
/// Wrapped HMAC key, [`HMAC_KEY_LEN`] bytes (`DSL_CRYPTO_KEY_HMAC_KEY`).
pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
/// DSL directory object of the encryption root (`DSL_CRYPTO_KEY_ROOT_DDOBJ`).
pub const ROOT_DDOBJ: &str = "DSL_CRYPTO_ROOT_DDOBJ";
/// Number of datasets that share the key (`DSL_CRYPTO_KEY_REFCOUNT`).
pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
/// Version of the authenticated data; 0 if absent (`DSL_CRYPTO_KEY_VERSION`).
pub const VERSION: &str = "DSL_CRYPTO_VERSION";

/// Bytes of an initialisation vector (`WRAPPING_IV_LEN`).
pub const IV_LEN: usize = 12;
/// Bytes of a tag (`WRAPPING_MAC_LEN`).
pub const MAC_LEN: usize = 16;
/// Bytes of space for the master key (`MASTER_KEY_MAX_LEN`).
pub const MASTER_KEY_MAX_LEN: usize = 32;
/// Bytes of the HMAC key (`SHA512_HMAC_KEYLEN`).
pub const HMAC_KEY_LEN: usize = 64;

/// Encryption algorithm of a dataset (`enum zio_encrypt`, `ZIO_CRYPT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr, IntoStaticStr)]
#[repr(u8)]
pub enum CryptoSuite {
    /// AES-128 in CCM.
    #[strum(serialize = "aes-128-ccm")]
    Aes128Ccm = 3,
    /// AES-192 in CCM.
    #[strum(serialize = "aes-192-ccm")]
    Aes192Ccm = 4,
    /// AES-256 in CCM.
    #[strum(serialize = "aes-256-ccm")]
    Aes256Ccm = 5,
    /// AES-128 in GCM.
    #[strum(serialize = "aes-128-gcm")]
    Aes128Gcm = 6,
    /// AES-192 in GCM.
    #[strum(serialize = "aes-192-gcm")]
    Aes192Gcm = 7,
    /// AES-256 in GCM, the default.
    #[strum(serialize = "aes-256-gcm")]
    Aes256Gcm = 8,
}

impl CryptoSuite {
    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: no suite has this number.
    pub fn from_disk(v: u64) -> Result<Self> {
        let suite = u8::try_from(v).ok().and_then(Self::from_repr);
        suite.ok_or(Corrupt::Range { what: "crypto key", field: "suite", value: v })
    }

    /// Bytes of a key of this suite (`ci_keylen` in `zio_crypt_table`).
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes192Ccm | Self::Aes192Gcm => 24,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// The name that the `encryption` property shows (`ci_name` in `zio_crypt_table`).
    pub fn name(self) -> &'static str {
        self.into()
    }
}
