//! The keys of a pool's datasets, from the pool's own objects.

use codec::crypt::{CryptoSuite, DataKeys, KeyVersion, WrappedKeys, WrappingKey};
use ondisk::zap::{BlockType, Leaf, MicroZap};
use ondisk::{Guid, crypto_key};
use std::collections::HashMap;
use std::rc::Rc;

/// Maps a name to the big-endian bytes of the value.
pub type Zap = HashMap<String, Vec<u8>>;

/// The entries of a ZAP object, from all of its blocks.
pub fn zap(blocks: &[Vec<u8>]) -> Zap {
    let mut entries = Zap::new();
    let name = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    match BlockType::of(&blocks[0]).unwrap() {
        BlockType::Micro => {
            for entry in MicroZap::parse(&blocks[0]).unwrap().entries() {
                let entry = entry.unwrap();
                entries.insert(name(entry.name), entry.value.to_be_bytes().to_vec());
            }
        }
        BlockType::Header => {
            for leaf in blocks[1..].iter().filter_map(|b| Leaf::parse(b).ok()) {
                for e in leaf.entries().unwrap() {
                    // Dedup tables have keys of words.
                    let Ok(raw) = leaf.name(&e) else { continue };
                    entries.insert(name(&raw), leaf.value(&e).unwrap());
                }
            }
        }
    }
    entries
}

pub struct Keys {
    /// The ZAPs of the MOS, by object number.
    pub zaps: HashMap<u64, Zap>,
    open: HashMap<u64, Rc<DataKeys>>,
    /// Passphrase keys by salt and iterations, because making one takes long.
    made: HashMap<(u64, u64), WrappingKey>,
    given: Vec<WrappingKey>,
}

fn number(zap: &Zap, name: &str) -> Option<u64> {
    Some(u64::from_be_bytes(zap.get(name)?.as_slice().try_into().unwrap()))
}

fn bytes<const N: usize>(zap: &Zap, name: &str) -> [u8; N] {
    zap[name].as_slice().try_into().unwrap()
}

impl Keys {
    pub fn new(given: Vec<WrappingKey>) -> Self {
        Self { zaps: HashMap::new(), open: HashMap::new(), made: HashMap::new(), given }
    }

    /// The pool's checksum salt; zeros if the pool has none yet.
    pub fn checksum_salt(&self) -> [u8; 32] {
        self.zaps[&1].get("org.illumos:checksum_salt").map_or([0; 32], |s| s.as_slice().try_into().unwrap())
    }

    /// The keys of the datasets below a DSL directory, if they are encrypted.
    pub fn of_dir(&mut self, dir: u64) -> Option<Rc<DataKeys>> {
        let object = number(self.zaps.get(&dir)?, crypto_key::FIELD)?;
        if let Some(keys) = self.open.get(&object) {
            return Some(Rc::clone(keys));
        }
        let zap = self.zaps[&object].clone();
        let wrapped = WrappedKeys {
            suite: CryptoSuite::from_disk(number(&zap, crypto_key::SUITE).unwrap()).unwrap(),
            version: KeyVersion::from_disk(number(&zap, crypto_key::VERSION).unwrap()).unwrap(),
            guid: Guid(number(&zap, crypto_key::GUID).unwrap()),
            iv: bytes(&zap, crypto_key::IV),
            mac: bytes(&zap, crypto_key::MAC),
            master: bytes(&zap, crypto_key::MASTER_KEY),
            hmac: bytes(&zap, crypto_key::HMAC_KEY),
        };
        let salt = number(&zap, "pbkdf2salt").unwrap_or(0);
        let keys = Rc::new(self.unwrap(&wrapped, salt, number(&zap, "pbkdf2iters").unwrap_or(0)));
        self.open.insert(object, Rc::clone(&keys));
        Some(keys)
    }

    /// Unwraps the keys with the right key of the user.
    ///
    /// Checks that no other key unwraps them, and that wrapping them again yields the same bytes.
    fn unwrap(&mut self, wrapped: &WrappedKeys, salt: u64, iters: u64) -> DataKeys {
        let mut candidates = self.given.clone();
        if iters != 0 {
            let made = self
                .made
                .entry((salt, iters))
                .or_insert_with(|| WrappingKey::from_passphrase(b"correct horse", salt, iters).unwrap());
            candidates.push(made.clone());
        }
        let mut open = candidates.iter().filter_map(|key| Some((key, key.unwrap(wrapped).ok()?)));
        let (key, keys) = open.next().expect("one of the keys opens the dataset");
        assert!(open.next().is_none());
        assert_eq!(key.wrap(&keys, wrapped.iv), *wrapped);
        keys
    }
}
