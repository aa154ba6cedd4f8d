//! Changes of ZAPs.
//!
//! # Theory
//! A ZAP begins as a micro ZAP. Its block grows by a sector when its slots are used up. It becomes
//! a fat ZAP when a name or value doesn't fit into a slot, or when its block would exceed 128 KiB.
//! It then stays fat.

use super::{Match, Normalization, Shape, Shared, State, Value, View, Wanted, Zap, hash_key};
use crate::zap::fat::FatKey;
use crate::zap::room::{Add, most_chunks};
use crate::{Dnode, Error, NewObject, Objset, Result, Tx};
use observe::lock::RwLockWriteGuard;
use ondisk::zap::{MICRO_NAME_MAX, MicroZapMut, ZAP_MAXNAMELEN, ZAP_MAXVALUELEN, ZapFlags};
use ondisk::{BlkId, DmuType, ObjNum};

/// Bytes of a block of a fat ZAP (`fzap_default_block_shift`).
pub(super) const FAT_BLOCK: u32 = 1 << 14;
/// Longest name with its NUL, except in directories (`ZAP_MAXNAMELEN`).
pub(super) const NAME_MAX: usize = 256;

/// What a write expects of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// The entry must not exist.
    Add,
    /// The entry may exist.
    Update,
    /// The entry doesn't exist, and gets this differentiator.
    Move(u32),
}

impl Zap {
    /// Creates a ZAP in a new object (`zap_create`, `zap_create_flags`).
    ///
    /// Without flags, it begins as a micro ZAP. With flags, it is a fat ZAP, in blocks of the size
    /// in `spec` or of 16 KiB.
    ///
    /// # Errors
    /// The errors of [`Objset::create_object`].
    pub fn create(
        os: &Objset,
        tx: &Tx,
        spec: &NewObject,
        norm: Normalization,
        flags: ZapFlags,
    ) -> Result<Zap> {
        let dn = os.create_object(tx, &sized(spec, flags))?;
        Self::init(os, tx, &dn, norm, flags)
    }

    /// As [`Zap::create`], under a given number (`zap_create_claim`).
    ///
    /// # Errors
    /// The errors of [`Objset::claim_object`].
    pub fn create_claim(
        os: &Objset,
        tx: &Tx,
        object: ObjNum,
        spec: &NewObject,
        norm: Normalization,
        flags: ZapFlags,
    ) -> Result<Zap> {
        let dn = os.claim_object(tx, object, &sized(spec, flags))?;
        Self::init(os, tx, &dn, norm, flags)
    }

    /// Creates a fat ZAP in blocks of `block` bytes, under this number. It is as if a micro ZAP had
    /// grown.
    ///
    /// # Errors
    /// The errors of [`Objset::claim_object`].
    ///
    /// # Panics
    /// If `block` is no power of two of at least a sector.
    pub fn create_fat(os: &Objset, tx: &Tx, block: u32, kind: DmuType, object: ObjNum) -> Result<Zap> {
        let dn = os.claim_object(tx, object, &NewObject { block_size: block, ..NewObject::new(kind) })?;
        let salt = salt(os.id(), dn.object(), tx);
        super::fat::init(tx, &dn, salt, Normalization::NONE, ZapFlags::default())?;
        Zap::open(&dn)
    }

    /// Creates a micro ZAP with all defaults, in a new object of this type.
    ///
    /// # Errors
    /// The errors of [`Objset::create_object`].
    pub fn create_kind(os: &Objset, tx: &Tx, kind: DmuType) -> Result<Zap> {
        Self::create(os, tx, &NewObject::new(kind), Normalization::NONE, ZapFlags::default())
    }

    /// Makes a ZAP of an object that holds only its bonus (`dmu_object_zapify`). An object that is
    /// a ZAP already stays as it is.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn zapify(os: &Objset, tx: &Tx, dn: &Dnode) -> Result<Zap> {
        if dn.reload()?.kind() == DmuType::ZAP_METADATA {
            return Zap::open(dn);
        }
        dn.set_kind(tx, DmuType::ZAP_METADATA)?;
        Self::init(os, tx, dn, Normalization::NONE, ZapFlags::default())
    }

    fn init(os: &Objset, tx: &Tx, dn: &Dnode, norm: Normalization, flags: ZapFlags) -> Result<Zap> {
        let salt = salt(os.id(), dn.object(), tx);
        if flags.is_empty() {
            dn.modify_block(tx, BlkId(0), |b| {
                MicroZapMut::init(b, salt, norm.to_disk());
            })?;
        } else {
            super::fat::init(tx, dn, salt, norm, flags)?;
        }
        Zap::open(dn)
    }

    fn change(&self) -> Result<RwLockWriteGuard<'_, View>> {
        match &self.0.state {
            State::Fixed(_) => Err(Error::Fixed { objset: self.0.dn.objset_id() }),
            State::LiveObjset(shared) => Ok(Shared::write(shared)),
        }
    }

    pub(super) fn exists(&self) -> Error {
        Error::EntryExists { objset: self.0.dn.objset_id(), object: self.0.dn.object() }
    }

    pub(super) fn missing(&self) -> Error {
        Error::NoEntry { objset: self.0.dn.objset_id(), object: self.0.dn.object() }
    }

    pub(super) fn full(&self) -> Error {
        Error::ZapFull { objset: self.0.dn.objset_id(), object: self.0.dn.object() }
    }

    pub(super) fn bad_value(&self, len: usize) -> Error {
        Error::EntryValue { objset: self.0.dn.objset_id(), object: self.0.dn.object(), len }
    }

    fn bad_name(&self, len: usize) -> Error {
        Error::EntryName { objset: self.0.dn.objset_id(), object: self.0.dn.object(), len }
    }

    fn check(&self, v: &View, name: &[u8], value: &Value) -> Result<()> {
        let most = if self.0.dn.kind() == DmuType::DIRECTORY_CONTENTS { ZAP_MAXNAMELEN } else { NAME_MAX };
        let words = v.fat_header().is_some_and(|h| h.flags.uint64_key());
        if name.is_empty() || name.len() >= most || name.contains(&0) || words {
            return Err(self.bad_name(name.len()));
        }
        let len = value.len() * usize::from(value.int_size());
        if len > ZAP_MAXVALUELEN { Err(self.bad_value(len)) } else { Ok(()) }
    }

    fn put(&self, tx: &Tx, v: &mut View, name: &[u8], value: &Value, how: Put) -> Result<()> {
        self.check(v, name, value)?;
        if let Shape::Micro { .. } = &v.shape {
            if let Some(word) = value.as_u64().filter(|_| name.len() <= MICRO_NAME_MAX)
                && self.put_micro(tx, v, name, word, how)?
            {
                return Ok(());
            }
            let leaf = most_chunks(FAT_BLOCK as usize);
            if !self.has_room_in(v, &[Add::new(name, value)], (0, leaf))? {
                return Err(self.full());
            }
            self.upgrade(tx, v)?;
        }
        let wanted = Wanted::new(name, Match::Exact, v.norm);
        self.put_fat(tx, v, &FatKey::name(v.hash_name(name), wanted), value, how)
    }

    /// Adds an entry (`zap_add`). Names are compared byte for byte.
    ///
    /// # Errors
    /// * The errors of [changing a ZAP](Error#changing-a-zap).
    /// * [`Error::EntryExists`]: the ZAP has an entry of this name.
    pub fn add(&self, tx: &Tx, name: &[u8], value: &Value) -> Result<()> {
        let v = &mut *self.change()?;
        self.put(tx, v, name, value, Put::Add)
    }

    /// Adds an entry, or changes its value (`zap_update`).
    ///
    /// # Errors
    /// The errors of [changing a ZAP](Error#changing-a-zap).
    pub fn update(&self, tx: &Tx, name: &[u8], value: &Value) -> Result<()> {
        let v = &mut *self.change()?;
        self.put(tx, v, name, value, Put::Update)
    }

    /// Removes the entry of exactly this name (`zap_remove`).
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing).
    /// * [`Error::NoEntry`]: the ZAP has no entry of this name.
    pub fn remove(&self, tx: &Tx, name: &[u8]) -> Result<()> {
        self.remove_matching(tx, name, Match::Exact)
    }

    /// Removes the first entry that matches `name` (`zap_remove_norm`).
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing).
    /// * [`Error::NoEntry`]: no entry matches.
    pub fn remove_matching(&self, tx: &Tx, name: &[u8], how: Match) -> Result<()> {
        let v = &mut *self.change()?;
        self.take(tx, v, name, how)
    }

    fn take(&self, tx: &Tx, v: &mut View, name: &[u8], how: Match) -> Result<()> {
        let wanted = Wanted::new(name, how, v.norm);
        match &v.shape {
            Shape::Micro { .. } => self.remove_micro(tx, v, &wanted),
            Shape::Fat(h) if h.flags.uint64_key() => Err(self.missing()),
            Shape::Fat(_) => self.remove_fat(tx, v, &FatKey::name(v.hash_name(name), wanted)),
        }
    }

    /// Adds `delta` to a value of one word (`zap_increment`).
    ///
    /// A missing entry counts as 0. A value stays at 0 or above, and an entry that becomes 0 is
    /// removed. So a ZAP that lacks an entry never gets a huge value for it.
    ///
    /// # Errors
    /// The errors of [changing a ZAP](Error#changing-a-zap). [`Error::Corrupt`] also if the value
    /// is not one word.
    pub fn increment(&self, tx: &Tx, name: &[u8], delta: i64) -> Result<()> {
        if delta == 0 {
            return Ok(());
        }
        let v = &mut *self.change()?;
        let old = match self.lookup_in(v, name, Match::Exact)? {
            Some((_, value)) => Some(value.as_u64().ok_or_else(|| self.corrupt(super::NOT_A_WORD))?),
            None => None,
        };
        // A count that was once too low is stored as a negative one, and recovers from 0.
        match old.unwrap_or(0).cast_signed().saturating_add(delta).max(0).cast_unsigned() {
            0 if old.is_some() => self.take(tx, v, name, Match::Exact),
            0 => Ok(()),
            new => self.put(tx, v, name, &Value::word(new), Put::Update),
        }
    }

    /// Adds an entry under a key of words (`zap_add_uint64`).
    ///
    /// # Errors
    /// * The errors of [changing a ZAP](Error#changing-a-zap).
    /// * [`Error::EntryExists`]: the ZAP has an entry of this key.
    pub fn add_words(&self, tx: &Tx, key: &[u64], value: &Value) -> Result<()> {
        self.put_words(tx, key, value, Put::Add)
    }

    /// Adds an entry under a key of words, or changes its value (`zap_update_uint64`).
    ///
    /// # Errors
    /// The errors of [changing a ZAP](Error#changing-a-zap).
    pub fn update_words(&self, tx: &Tx, key: &[u64], value: &Value) -> Result<()> {
        self.put_words(tx, key, value, Put::Update)
    }

    fn words<'k>(&self, v: &View, key: &'k [u64]) -> Result<FatKey<'k>> {
        match v.fat_header().filter(|h| h.flags.uint64_key()) {
            Some(h) if !key.is_empty() && key.len() * 8 <= NAME_MAX => {
                Ok(FatKey::words(hash_key(h, key), key))
            }
            _ => Err(self.bad_name(key.len() * 8)),
        }
    }

    fn put_words(&self, tx: &Tx, key: &[u64], value: &Value, how: Put) -> Result<()> {
        let v = &mut *self.change()?;
        let len = value.len() * usize::from(value.int_size());
        if len > ZAP_MAXVALUELEN {
            return Err(self.bad_value(len));
        }
        let key = self.words(v, key)?;
        self.put_fat(tx, v, &key, value, how)
    }

    /// Removes the entry of a key of words (`zap_remove_uint64`).
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing).
    /// * [`Error::EntryName`]: the key is empty or too long, or the keys of this ZAP are names.
    /// * [`Error::NoEntry`]: the ZAP has no entry of this key.
    pub fn remove_words(&self, tx: &Tx, key: &[u64]) -> Result<()> {
        let v = &mut *self.change()?;
        let key = self.words(v, key)?;
        self.remove_fat(tx, v, &key)
    }

    /// Makes a fat ZAP of a micro ZAP (`mzap_upgrade`).
    fn upgrade(&self, tx: &Tx, v: &mut View) -> Result<()> {
        let Shape::Micro { salt, .. } = &v.shape else { return Ok(()) };
        let (salt, dn) = (*salt, &self.0.dn);
        let entries = self.micro_entries(v)?;
        dn.set_block_size(tx, FAT_BLOCK)?;
        v.shape = Shape::Fat(super::fat::init(tx, dn, salt, v.norm, ZapFlags::default())?);
        for (name, value, cd) in entries {
            let wanted = Wanted::new(&name, Match::Exact, v.norm);
            let key = FatKey::name(v.hash_name(&name), wanted);
            self.put_fat(tx, v, &key, &Value::word(value), Put::Move(cd))?;
        }
        Ok(())
    }
}

/// The properties of the object of a new ZAP. A fat ZAP has blocks of its own size from the start.
fn sized(spec: &NewObject, flags: ZapFlags) -> NewObject {
    let fat = !flags.is_empty() && spec.block_size == 0;
    NewObject { block_size: if fat { FAT_BLOCK } else { spec.block_size }, ..spec.clone() }
}

/// The salt for the hashes of a new ZAP, so that names which collide in one ZAP don't in another.
///
/// OpenZFS takes it from addresses. Here it depends on the input alone, so that a run can be
/// repeated.
fn salt(objset: u64, object: ObjNum, tx: &Tx) -> u64 {
    let seed = [objset, object.0, tx.txg().0].into_iter();
    let mixed = seed.fold(0x9e37_79b9_7f4a_7c15_u64, |h, w| {
        let h = (h ^ w).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (h ^ h >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
    });
    (mixed ^ mixed >> 32) | 1
}
