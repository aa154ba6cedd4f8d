//! Changing ZAPs.
//!
//! # Theory
//! A ZAP begins as a micro one, whose block grows by a sector when its slots are used up. A name or value that doesn't fit into a slot, or
//! a block of 128 KiB, makes it a fat one, which it stays.

use super::{Match, Normalization, Shape, Shared, State, Value, View, Wanted, Zap, hash_key};
use crate::zap::fat::FatKey;
use crate::{Dnode, Error, NewObject, Objset, Result, Tx};
use ondisk::zap::{MICRO_NAME_MAX, MicroZapMut, ZAP_MAXNAMELEN, ZAP_MAXVALUELEN, ZapFlags};
use ondisk::{BlkId, DmuType, ObjNum};
use parking_lot::RwLockWriteGuard;

/// Bytes of a fat ZAP's block (`fzap_default_block_shift`).
const FAT_BLOCK: u32 = 1 << 14;
/// Longest name, with its NUL, of all but directories (`ZAP_MAXNAMELEN`).
const NAME_MAX: usize = 256;

/// What to do when the entry is or isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It must not be there.
    Add,
    /// It may be there.
    Update,
    /// It isn't there, and has this differentiator.
    Move(u32),
}

impl Zap {
    /// A new ZAP in a new object (`zap_create`, `zap_create_flags`). Without flags it is a micro one at first; with flags a fat one, of
    /// the blocks that `spec` says, or 16 KiB.
    ///
    /// # Errors
    /// As [`Objset::create_object`].
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

    /// As [`Zap::create`], under this number (`zap_create_claim`).
    ///
    /// # Errors
    /// As [`Objset::claim_object`].
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

    /// A micro ZAP with all defaults in a new object of this type.
    ///
    /// # Errors
    /// As [`Objset::create_object`].
    pub fn create_kind(os: &Objset, tx: &Tx, kind: DmuType) -> Result<Zap> {
        Self::create(os, tx, &NewObject::new(kind), Normalization::NONE, ZapFlags::default())
    }

    /// Makes an object that holds nothing but its bonus a ZAP (`dmu_object_zapify`); nothing happens to one that is one already.
    ///
    /// # Errors
    /// As [`Zap::open`]; as changing the object fails.
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
            self.upgrade(tx, v)?;
        }
        let wanted = Wanted::new(name, Match::Exact, v.norm);
        self.put_fat(tx, v, &FatKey::name(v.hash_name(name), wanted), value, how)
    }

    /// Adds an entry; names are compared byte for byte (`zap_add`).
    ///
    /// # Errors
    /// [`Error::EntryExists`]; [`Error::EntryName`], [`Error::EntryValue`], [`Error::ZapFull`] if it can't be; as reading fails.
    pub fn add(&self, tx: &Tx, name: &[u8], value: &Value) -> Result<()> {
        let v = &mut *self.change()?;
        self.put(tx, v, name, value, Put::Add)
    }

    /// Adds an entry or changes the value of the one there is (`zap_update`).
    ///
    /// # Errors
    /// As [`Zap::add`], but for the entry that is there.
    pub fn update(&self, tx: &Tx, name: &[u8], value: &Value) -> Result<()> {
        let v = &mut *self.change()?;
        self.put(tx, v, name, value, Put::Update)
    }

    /// Removes the entry of exactly this name (`zap_remove`).
    ///
    /// # Errors
    /// [`Error::NoEntry`]; as reading fails.
    pub fn remove(&self, tx: &Tx, name: &[u8]) -> Result<()> {
        self.remove_matching(tx, name, Match::Exact)
    }

    /// Removes the first entry that matches `name` in this way (`zap_remove_norm`).
    ///
    /// # Errors
    /// As [`Zap::remove`].
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

    /// Adds `delta` to a value of one word; an entry is made where there was none, and goes when its value becomes 0
    /// (`zap_increment`).
    ///
    /// # Errors
    /// As [`Zap::update`]; [`Error::Corrupt`] if the value is not one word.
    pub fn increment(&self, tx: &Tx, name: &[u8], delta: i64) -> Result<()> {
        if delta == 0 {
            return Ok(());
        }
        let v = &mut *self.change()?;
        let old = match self.lookup_in(v, name, Match::Exact)? {
            Some((_, value)) => Some(value.as_u64().ok_or_else(|| self.corrupt(super::NOT_A_WORD))?),
            None => None,
        };
        match old.unwrap_or(0).wrapping_add_signed(delta) {
            0 if old.is_some() => self.take(tx, v, name, Match::Exact),
            0 => Ok(()),
            new => self.put(tx, v, name, &Value::word(new), Put::Update),
        }
    }

    /// Adds an entry under a key of words (`zap_add_uint64`).
    ///
    /// # Errors
    /// As [`Zap::add`].
    pub fn add_words(&self, tx: &Tx, key: &[u64], value: &Value) -> Result<()> {
        self.put_words(tx, key, value, Put::Add)
    }

    /// Adds an entry under a key of words, or changes its value (`zap_update_uint64`).
    ///
    /// # Errors
    /// As [`Zap::update`].
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
    /// As [`Zap::remove`].
    pub fn remove_words(&self, tx: &Tx, key: &[u64]) -> Result<()> {
        let v = &mut *self.change()?;
        let key = self.words(v, key)?;
        self.remove_fat(tx, v, &key)
    }

    /// Makes a micro ZAP a fat one.
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

/// What a ZAP's object is like: a fat one has blocks of its own size from the start.
fn sized(spec: &NewObject, flags: ZapFlags) -> NewObject {
    let fat = !flags.is_empty() && spec.block_size == 0;
    NewObject { block_size: if fat { FAT_BLOCK } else { spec.block_size }, ..spec.clone() }
}

/// What is stirred into the hashes of a new ZAP, so that names which meet in one ZAP don't in another. OpenZFS takes it from
/// addresses; a run here is a function of its input.
fn salt(objset: u64, object: ObjNum, tx: &Tx) -> u64 {
    let seed = [objset, object.0, tx.txg().0].into_iter();
    let mixed = seed.fold(0x9e37_79b9_7f4a_7c15_u64, |h, w| {
        let h = (h ^ w).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (h ^ h >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
    });
    (mixed ^ mixed >> 32) | 1
}
