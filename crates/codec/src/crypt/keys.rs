//! Wrapping keys, and the keys of a dataset that they wrap.

use super::aead::{Cipher, cipher, wrapping};
use super::mac::{ObjsetMacs, objset_macs};
use super::split::{Split, dnode_block, zil_block};
use super::{CryptoSuite, IV_LEN, KeyVersion, MAC_LEN, SALT_LEN};
use crate::{Error, Result};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use ondisk::blkptr::CryptParams;
use ondisk::crypto_key::{HMAC_KEY_LEN, MASTER_KEY_MAX_LEN};
use ondisk::objset::{LOCAL_MAC, PORTABLE_MAC};
use ondisk::{ByteOrder, Corrupt, DmuType, Guid};
use parking_lot::{Mutex, RwLock};
use sha1::Sha1;
use sha2::Sha512;
use std::sync::Arc;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a wrapping key, and the most bytes of a master key (`WRAPPING_KEY_LEN`).
const KEY_LEN: usize = MASTER_KEY_MAX_LEN;
/// Most PBKDF2 iterations that are accepted: about a minute. OpenZFS's default is 350,000, and a
/// hostile pool could demand years.
const ITERATIONS_MAX: u64 = 100_000_000;
/// Number of blocks that share one salt (`ZFS_CURRENT_MAX_SALT_USES`).
///
/// An IV of 96 random bits must not occur twice under one key.
pub const SALT_USES: u64 = 400_000_000;
/// Number of block keys that are kept ready.
///
/// A dataset gets a new salt every 400 million blocks, and each time its key is loaded. Only
/// deduplicated blocks have a salt each.
const READY_MAX: usize = 16;

/// The key of the user, which wraps a dataset's keys (`dsl_wrapping_key_t`).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct WrappingKey([u8; KEY_LEN]);

impl std::fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WrappingKey(..)")
    }
}

impl WrappingKey {
    /// `keyformat=raw`: the key itself (`ZFS_KEYFORMAT_RAW`).
    pub fn from_raw(key: [u8; KEY_LEN]) -> Self {
        Self(key)
    }

    /// `keyformat=hex`: 64 hexadecimal digits of either case (`ZFS_KEYFORMAT_HEX`).
    ///
    /// # Errors
    /// * [`Error::HexKey`]: `digits` is anything else.
    pub fn from_hex(digits: &[u8]) -> Result<Self> {
        let (pairs, odd) = digits.as_chunks::<2>();
        if pairs.len() != KEY_LEN || !odd.is_empty() {
            return Err(Error::HexKey);
        }
        let nibble = |d: u8| char::from(d).to_digit(16).ok_or(Error::HexKey);
        let mut key = Self([0; KEY_LEN]);
        for (byte, [hi, lo]) in key.0.iter_mut().zip(pairs) {
            *byte = (nibble(*hi)? << 4 | nibble(*lo)?) as u8;
        }
        Ok(key)
    }

    /// `keyformat=passphrase`: PBKDF2 with HMAC-SHA1 over the passphrase
    /// (`ZFS_KEYFORMAT_PASSPHRASE`).
    ///
    /// `salt` is the property `pbkdf2salt` (used as little-endian bytes), and `iterations` is
    /// `pbkdf2iters`.
    ///
    /// # Errors
    /// * [`Error::Iterations`]: `iterations` is 0 or above 100 million.
    pub fn from_passphrase(passphrase: &[u8], salt: u64, iterations: u64) -> Result<Self> {
        let rounds = u32::try_from(iterations).ok().filter(|n| *n > 0 && iterations <= ITERATIONS_MAX);
        let rounds = rounds.ok_or(Error::Iterations { iterations })?;
        let mut key = Self([0; KEY_LEN]);
        pbkdf2::pbkdf2_hmac::<Sha1>(passphrase, &salt.to_le_bytes(), rounds, &mut key.0);
        Ok(key)
    }

    /// Unwraps a dataset's keys (`zio_crypt_key_unwrap`).
    ///
    /// # Errors
    /// * [`Error::WrongKey`]: another key has wrapped them, or they were changed.
    pub fn unwrap(&self, wrapped: &WrappedKeys) -> Result<DataKeys> {
        let WrappedKeys { suite, version, guid, .. } = *wrapped;
        let master_len = suite.key_len();
        let mut message = Zeroizing::new([0; KEY_LEN + HMAC_KEY_LEN]);
        let message = &mut message[..master_len + HMAC_KEY_LEN];
        message[..master_len].copy_from_slice(&wrapped.master[..master_len]);
        message[master_len..].copy_from_slice(&wrapped.hmac);
        let cipher = cipher(wrapping(suite), &self.0);
        let (aad, aad_len) = wrapping_aad(suite, version, guid);
        if !cipher.open(&wrapped.iv, &aad[..aad_len], message, &wrapped.mac) {
            return Err(Error::WrongKey);
        }
        let mut hmac = Zeroizing::new([0; HMAC_KEY_LEN]);
        hmac.copy_from_slice(&message[master_len..]);
        Ok(DataKeys::new(suite, version, guid, &message[..master_len], &hmac))
    }

    /// Wraps a dataset's keys under an IV that this key has never used (`zio_crypt_key_wrap`).
    pub fn wrap(&self, keys: &DataKeys, iv: [u8; IV_LEN]) -> WrappedKeys {
        let DataKeys { suite, version, guid, .. } = *keys;
        let master_len = suite.key_len();
        let mut message = Zeroizing::new([0; KEY_LEN + HMAC_KEY_LEN]);
        let message = &mut message[..master_len + HMAC_KEY_LEN];
        message[..master_len].copy_from_slice(&keys.master[..master_len]);
        message[master_len..].copy_from_slice(&*keys.hmac_key);
        let cipher = cipher(wrapping(suite), &self.0);
        let (aad, aad_len) = wrapping_aad(suite, version, guid);
        let mac = cipher.seal(&iv, &aad[..aad_len], message).expect("96 bytes are few for any mode");
        let mut wrapped = WrappedKeys { suite, version, guid, iv, mac, master: [0; 32], hmac: [0; 64] };
        wrapped.master[..master_len].copy_from_slice(&message[..master_len]);
        wrapped.hmac.copy_from_slice(&message[master_len..]);
        wrapped
    }
}

/// The data to which the wrapping binds the keys, as little-endian words; version 0 binds them only
/// to the guid.
fn wrapping_aad(suite: CryptoSuite, version: KeyVersion, guid: Guid) -> ([u8; 24], usize) {
    let mut aad = [0; 24];
    aad[..8].copy_from_slice(&guid.0.to_le_bytes());
    aad[8..16].copy_from_slice(&(suite as u64).to_le_bytes());
    aad[16..].copy_from_slice(&version.to_disk().to_le_bytes());
    (aad, if version == KeyVersion::V0 { 8 } else { 24 })
}

/// A dataset's keys as the DSL crypto key object stores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrappedKeys {
    /// Algorithm of the dataset (`DSL_CRYPTO_SUITE`).
    pub suite: CryptoSuite,
    /// Version of the encryption format (`DSL_CRYPTO_VERSION`).
    pub version: KeyVersion,
    /// Guid of the keys (`DSL_CRYPTO_GUID`).
    pub guid: Guid,
    /// Initialisation vector of the wrapping (`DSL_CRYPTO_IV`).
    pub iv: [u8; IV_LEN],
    /// MAC of the wrapping (`DSL_CRYPTO_MAC`).
    pub mac: [u8; MAC_LEN],
    /// Wrapped master key, padded with zeros (`DSL_CRYPTO_MASTER_KEY_1`).
    pub master: [u8; KEY_LEN],
    /// Wrapped HMAC key (`DSL_CRYPTO_HMAC_KEY_1`).
    pub hmac: [u8; HMAC_KEY_LEN],
}

/// A salt and the cipher of its key.
type Ready = ([u8; SALT_LEN], Arc<dyn Cipher>);

/// A dataset's unwrapped keys, which threads share (`zio_crypt_key_t`).
pub struct DataKeys {
    suite: CryptoSuite,
    version: KeyVersion,
    guid: Guid,
    master: Zeroizing<[u8; KEY_LEN]>,
    hmac_key: Zeroizing<[u8; HMAC_KEY_LEN]>,
    hmac: Hmac<Sha512>,
    /// Ciphers of recent salts, oldest first.
    ready: RwLock<Vec<Ready>>,
    /// Salt of the blocks that are being written, and the number of blocks that may still use it.
    salt: Mutex<([u8; SALT_LEN], u64)>,
}

impl std::fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataKeys")
            .field("suite", &self.suite)
            .field("version", &self.version)
            .field("guid", &self.guid)
            .finish_non_exhaustive()
    }
}

impl DataKeys {
    /// Keys from their bytes; those of a new dataset are random (`zio_crypt_key_init`).
    ///
    /// # Panics
    /// If `master` doesn't have the suite's length.
    pub fn new(
        suite: CryptoSuite,
        version: KeyVersion,
        guid: Guid,
        master: &[u8],
        hmac_key: &[u8; HMAC_KEY_LEN],
    ) -> Self {
        assert_eq!(master.len(), suite.key_len(), "a master key has its suite's length");
        let mut keys = Self {
            suite,
            version,
            guid,
            master: Zeroizing::new([0; KEY_LEN]),
            hmac_key: Zeroizing::new(*hmac_key),
            hmac: Hmac::new_from_slice(hmac_key).expect("HMAC takes keys of any length"),
            ready: RwLock::new(Vec::new()),
            salt: Mutex::new(([0; SALT_LEN], 0)),
        };
        keys.master[..master.len()].copy_from_slice(master);
        keys
    }

    /// The cipher suite of the dataset.
    pub fn suite(&self) -> CryptoSuite {
        self.suite
    }

    /// The version of the encryption format.
    pub fn version(&self) -> KeyVersion {
        self.version
    }

    /// The guid to which the wrapped keys are bound.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Decrypts a stored block of `kind` and `order` in place (`zio_do_crypt_data`).
    ///
    /// The block is an object's block before its decompression, a block of dnodes, or a log block,
    /// whose MAC is [`zil_mac`](super::zil_mac).
    ///
    /// # Errors
    /// * [`Error::Mac`]: the block is not what was encrypted. Its content is then undefined.
    /// * [`Error::Protected`]: a block of dnodes or a log block has a fault that [`dnode_block`] or
    ///   [`zil_block`] lists.
    pub fn decrypt(
        &self,
        kind: DmuType,
        order: ByteOrder,
        params: &CryptParams,
        mac: &[u8; MAC_LEN],
        block: &mut [u8],
    ) -> Result<()> {
        let cipher = self.cipher(&params.salt);
        let opened = match self.split(kind, order, block)? {
            None => cipher.open(&params.iv, &[], block, mac),
            Some(split) => {
                let mut message = Zeroizing::new(split.gather(block));
                let opened = cipher.open(&params.iv, &split.aad, &mut message, mac);
                if opened {
                    split.scatter(&message, block);
                    block[split.end..].fill(0);
                }
                opened
            }
        };
        if opened { Ok(()) } else { Err(Error::Mac { what: "block" }) }
    }

    /// Encrypts a little-endian block of `kind` in place, and returns its MAC
    /// (`zio_do_crypt_data`).
    ///
    /// The IV and salt must never have been used together.
    ///
    /// # Errors
    /// * [`Error::Protected`]: the block is too long for the cipher's mode, or it has a fault that
    ///   [`dnode_block`] or [`zil_block`] lists.
    pub fn encrypt(&self, kind: DmuType, params: &CryptParams, block: &mut [u8]) -> Result<[u8; MAC_LEN]> {
        let cipher = self.cipher(&params.salt);
        let mac = match self.split(kind, ByteOrder::Little, block)? {
            None => cipher.seal(&params.iv, &[], block),
            Some(split) => {
                let mut message = Zeroizing::new(split.gather(block));
                let mac = cipher.seal(&params.iv, &split.aad, &mut message);
                split.scatter(&message, block);
                block[split.end..].fill(0);
                mac
            }
        };
        let what = "block";
        let source = Corrupt::Shape { what, why: "it is too long for the cipher's mode" };
        mac.ok_or(Error::Protected { what, source })
    }

    /// The secret and authenticated parts of a block; `None` if all of it is secret.
    fn split(&self, kind: DmuType, order: ByteOrder, block: &[u8]) -> Result<Option<Split>> {
        Ok(match kind {
            DmuType::DNODE => Some(dnode_block(self.version, order, block)?),
            DmuType::INTENT_LOG => Some(zil_block(order, block)?),
            _ => None,
        })
    }

    /// The MAC over an authenticated block's stored bytes (`zio_crypt_do_hmac`).
    pub fn mac(&self, stored: &[u8]) -> [u8; MAC_LEN] {
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&self.hmac_of(stored)[..MAC_LEN]);
        mac
    }

    /// Verifies the MAC over an authenticated block's stored bytes (`zio_crypt_do_hmac`).
    ///
    /// # Errors
    /// * [`Error::Mac`]: the MAC does not match.
    pub fn verify_mac(&self, stored: &[u8], mac: &[u8; MAC_LEN]) -> Result<()> {
        let hmac = self.hmac.clone().chain_update(stored);
        hmac.verify_truncated_left(mac).map_err(|_| Error::Mac { what: "authenticated block" })
    }

    /// Computes the MACs of an object set of `order` (`zio_crypt_do_objset_hmacs`).
    ///
    /// # Errors
    /// * [`Error::Protected`]: the object set has none of the three sizes, or one of its dnodes is
    ///   impossible:
    ///   * it takes more than one slot
    ///   * its pointers don't fit into it
    ///   * a pointer has embedded data
    pub fn objset_macs(&self, order: ByteOrder, objset: &[u8]) -> Result<ObjsetMacs> {
        objset_macs(&self.hmac, self.version, order, objset)
    }

    /// Verifies the MACs in an object set of `order`.
    ///
    /// If accounting is incomplete, the local MAC doesn't count: it is computed anew with the
    /// accounting.
    ///
    /// # Errors
    /// * [`Error::Mac`]: one of the MACs does not match.
    /// * [`Error::Protected`]: the object set has a fault that [`DataKeys::objset_macs`] lists.
    pub fn verify_objset(&self, order: ByteOrder, objset: &[u8]) -> Result<()> {
        let macs = self.objset_macs(order, objset)?;
        if objset[PORTABLE_MAC] != macs.portable {
            return Err(Error::Mac { what: "object set" });
        }
        if macs.local != [0; 32] && objset[LOCAL_MAC] != macs.local {
            return Err(Error::Mac { what: "object set's accounting" });
        }
        Ok(())
    }

    /// The salt for a block that is about to be written (`zio_crypt_key_get_salt`).
    ///
    /// `fresh` makes one when the keys were just loaded, and again after [`SALT_USES`] blocks.
    pub fn salt(&self, fresh: impl FnOnce(&mut [u8; SALT_LEN])) -> [u8; SALT_LEN] {
        let mut current = self.salt.lock();
        let (salt, left) = &mut *current;
        if *left == 0 {
            fresh(salt);
            *left = SALT_USES;
        }
        *left -= 1;
        *salt
    }

    /// Salt and IV of a block for dedup, which depend on its contents only
    /// (`zio_crypt_generate_iv_salt_dedup`).
    ///
    /// So equal blocks encrypt to equal blocks.
    pub fn dedup_params(&self, packed: &[u8]) -> CryptParams {
        let digest = self.hmac_of(packed);
        let mut params = CryptParams { salt: [0; SALT_LEN], iv: [0; IV_LEN] };
        params.salt.copy_from_slice(&digest[..SALT_LEN]);
        params.iv.copy_from_slice(&digest[SALT_LEN..SALT_LEN + IV_LEN]);
        params
    }

    fn hmac_of(&self, data: &[u8]) -> [u8; 64] {
        self.hmac.clone().chain_update(data).finalize().into_bytes().into()
    }

    /// The cipher of a salt's key: HKDF-SHA512 of the master key, without an HKDF salt, with the
    /// block's salt as info.
    fn cipher(&self, salt: &[u8; SALT_LEN]) -> Arc<dyn Cipher> {
        let find = |ready: &[Ready]| {
            ready.iter().find(|(have, _)| have == salt).map(|(_, cipher)| Arc::clone(cipher))
        };
        if let Some(cipher) = find(&self.ready.read()) {
            return cipher;
        }
        let len = self.suite.key_len();
        let mut key = Zeroizing::new([0; KEY_LEN]);
        Hkdf::<Sha512>::new(None, &self.master[..len])
            .expand(salt, &mut key[..len])
            .expect("HKDF-SHA512 yields far more than 32 bytes");
        let cipher: Arc<dyn Cipher> = Arc::from(cipher(self.suite, &key[..len]));
        let mut ready = self.ready.write();
        if let Some(theirs) = find(&ready) {
            return theirs;
        }
        if ready.len() == READY_MAX {
            ready.remove(0);
        }
        ready.push((*salt, Arc::clone(&cipher)));
        cipher
    }
}
