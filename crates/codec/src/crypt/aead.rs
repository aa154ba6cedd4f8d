//! The ciphers behind one trait, so that a faster library can replace one of them.

use super::{IV_LEN, MAC_LEN};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aead::{AeadInOut, KeyInit};
use ccm::Ccm;
use ondisk::crypto_key::CryptoSuite;

/// The suite with the same mode that wraps keys: a wrapping key always has 256 bits.
pub(super) fn wrapping(suite: CryptoSuite) -> CryptoSuite {
    use CryptoSuite::*;
    match suite {
        Aes128Ccm | Aes192Ccm | Aes256Ccm => Aes256Ccm,
        Aes128Gcm | Aes192Gcm | Aes256Gcm => Aes256Gcm,
    }
}

/// The cipher of a suite for a key of the suite's length.
///
/// # Panics
/// If the key has another length.
pub(super) fn cipher(suite: CryptoSuite, key: &[u8]) -> Box<dyn Cipher> {
    const WHY: &str = "the key has the suite's length";
    match suite {
        CryptoSuite::Aes128Ccm => Box::new(Ccm::<Aes128, U16, U12>::new_from_slice(key).expect(WHY)),
        CryptoSuite::Aes192Ccm => Box::new(Ccm::<Aes192, U16, U12>::new_from_slice(key).expect(WHY)),
        CryptoSuite::Aes256Ccm => Box::new(Ccm::<Aes256, U16, U12>::new_from_slice(key).expect(WHY)),
        CryptoSuite::Aes128Gcm => Box::new(AesGcm::<Aes128, U12>::new_from_slice(key).expect(WHY)),
        CryptoSuite::Aes192Gcm => Box::new(AesGcm::<Aes192, U12>::new_from_slice(key).expect(WHY)),
        CryptoSuite::Aes256Gcm => Box::new(AesGcm::<Aes256, U12>::new_from_slice(key).expect(WHY)),
    }
}

/// Authenticated encryption in place with one key.
pub(super) trait Cipher: Send + Sync {
    /// Encrypts `data`, and returns the MAC over it and `aad`.
    ///
    /// `None` if there are more data than the mode can take.
    fn seal(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8]) -> Option<[u8; MAC_LEN]>;

    /// Decrypts `data`; false if the MAC does not match, with `data` unchanged or wiped.
    fn open(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8], mac: &[u8; MAC_LEN]) -> bool;
}

impl<T> Cipher for T
where
    T: AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync,
{
    fn seal(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8]) -> Option<[u8; MAC_LEN]> {
        self.encrypt_inout_detached(&(*iv).into(), aad, data.into()).ok().map(Into::into)
    }

    fn open(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8], mac: &[u8; MAC_LEN]) -> bool {
        self.decrypt_inout_detached(&(*iv).into(), aad, data.into(), &(*mac).into()).is_ok()
    }
}
