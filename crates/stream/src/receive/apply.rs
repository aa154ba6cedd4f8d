//! Writing the records of a stream into an object set.
//!
//! # Theory
//! An object of the stream may meet another one under its number. The sender may have freed an
//! object and used its number again. Then kind, slots or pointers of the dnode differ, or the block
//! size or the file's generation. What was there is then freed first.
//!
//! A stream of the other byte order is swapped here. Blocks that arrive compressed are contents of
//! files, which are never swapped.
//!
//! # See
//! OpenZFS `receive_object`, `receive_handle_existing_object`, `flush_write_batch_impl`.

use std::sync::Arc;

use device::{AlignedBuf, Block};
use dmu::{DN_MAX_OBJECT, Dnode, NewObject, Objset, PackedBlock, Tx};
use dsl::keys::KeyStatus;
use dsl::{Need, Owned, ResumePoint};
use ondisk::blkptr::{Body, Embedded};
use ondisk::dnode::DnodePhys;
use ondisk::replay::{
    FreeObjects, OBJECT_SPILL, Object, Record, SPILL_UNMODIFIED, Spill, Write, WriteEmbedded, features, flags,
};
use ondisk::{
    BlkId, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Level, Lsize, ObjNum, SPA_MAXBLOCKSIZE,
    SPA_OLD_MAXBLOCKSIZE, byteswap, mos,
};
use spa::Spa;
use spa::engine::PoolWriter;

use super::queue::Item;
use super::raw::Raw;
use super::touched::Touched;
use super::{Place, ReceiveError, Received, writer};

/// What a record dirties beside its payload: blocks of dnodes, indirect blocks.
const BESIDE: u64 = 32 << 10;
/// Objects that are freed in one transaction.
const FREED_AT_ONCE: usize = 64;
/// Numbers of a range that are looked through within a transaction.
const MOST_NUMBERS: u64 = 1024;

/// Why a record is not written.
pub(super) enum Wrong {
    /// It makes no sense.
    Record(&'static str),
    /// It needs a transaction of its own, for this many bytes. Nothing was done. An OBJECT frees
    /// its blocks from an offset on.
    Large { bytes: u64, from: u64 },
    /// It may free objects, which takes transactions of its own.
    Objects,
    /// The pool fails.
    Pool(dmu::Error),
}

impl From<dmu::Error> for Wrong {
    fn from(error: dmu::Error) -> Self {
        use dmu::Error as E;
        match error {
            E::BonusLength { .. } => Self::Record("its bonus does not fit into its dnode"),
            E::ObjectExists { .. } => Self::Record("it overlaps another object"),
            E::PackedShape { .. } => Self::Record("its compressed block has an impossible size"),
            error => Self::Pool(error),
        }
    }
}

fn wrong<T>(why: &'static str) -> Result<T, Wrong> {
    Err(Wrong::Record(why))
}

pub(super) fn require(sound: bool, why: &'static str) -> Result<(), Wrong> {
    if sound { Ok(()) } else { wrong(why) }
}

/// The object set that a stream goes into.
pub(super) struct Target {
    spa: Arc<Spa>,
    owned: Arc<Owned>,
    pub(super) os: Objset,
    /// [`features`] of the stream.
    pub(super) features: u64,
    /// OBJECT says whether an object has a spill block.
    spill: bool,
    /// The stream is full.
    full: bool,
    /// A full stream goes into a clone.
    clone: bool,
    /// Bytes that were received before.
    before: u64,
    /// Object and offset of the last block.
    last: (u64, u64),
    /// The highest object of the stream.
    highest: u64,
    point: Option<ResumePoint>,
    touched: Touched,
    /// Embedded blocks can't be encrypted.
    encrypted: bool,
    /// The stream is raw.
    pub(super) raw: Option<Raw>,
    /// What the transaction has beside what records usually need.
    spare: u64,
}

impl Target {
    pub(super) fn new(place: &Place, what: &Received) -> Result<Self, ReceiveError> {
        let owned = place.owned.clone().expect("a new place is owned");
        let (live, dataset) = (writer(&place.spa)?, place.dataset()?);
        let resumes = what.begin.features() & features::RESUMING != 0;
        let field = |name| dataset.field_u64(name).map(|n| n.filter(|_| resumes).unwrap_or(0));
        let before = field(mos::DS_RESUME_BYTES)?;
        let full = what.begin.from_guid == 0;
        let encrypted = live.dsl().keys().status(dataset.dir())? != KeyStatus::None;
        let target = Self {
            spa: place.spa.clone(),
            os: owned.objset().clone(),
            owned,
            features: what.begin.features(),
            spill: what.begin.flags & flags::SPILL_BLOCK != 0,
            full,
            clone: full && dataset.origin()?.is_some(),
            before,
            last: (0, 0),
            highest: field(mos::DS_RESUME_OBJECT)?,
            point: None,
            touched: Touched::new(full || resumes || what.raw.is_some()),
            encrypted,
            raw: what.raw.as_ref().map(|keys| Raw::new(keys.objset.max_block)),
            spare: 0,
        };
        if let Some(keys) = &what.raw {
            let tx = target.live()?.tx_for(&target.owned, Need::growing(BESIDE))?;
            target.os.receive_raw(&tx, &keys.objset)?;
        }
        Ok(target)
    }

    fn live(&self) -> Result<&PoolWriter, ReceiveError> {
        writer(&self.spa)
    }

    /// Writes records, in one transaction as far as possible.
    pub(super) fn write(&mut self, batch: &[Item]) -> Result<(), ReceiveError> {
        let mut rest = batch;
        self.spare = 0;
        while let [first, others @ ..] = rest {
            rest = match &first.record {
                Record::FreeObjects(range) => {
                    self.free_range(range, (first.number, first.at))?;
                    others
                }
                _ => self.some(rest)?,
            };
        }
        Ok(())
    }

    /// Writes records in one transaction, up to one that needs another or none. Returns what is
    /// left.
    fn some<'a>(&mut self, items: &'a [Item]) -> Result<&'a [Item], ReceiveError> {
        // One that needs much is alone.
        let items_now = if self.spare > 0 { &items[..1] } else { items };
        let bytes = items_now.iter().map(|item| item.dirties() + BESIDE).sum::<u64>() + self.spare;
        let is_free = |item: &Item| matches!(item.record, Record::Free(_) | Record::FreeObjects(_));
        let frees = self.spare == 0 && items_now.iter().all(is_free);
        let need = if frees { Need::netfree(bytes) } else { Need::growing(bytes) };
        let tx = self.live()?.tx_for(&self.owned, need)?;
        let mut done = 0;
        let written = items_now.iter().try_for_each(|item| self.one(&tx, item).inspect(|()| done += 1));
        // What came before a record that fails is in the transaction.
        if let Some(point) = self.point {
            self.live()?.dsl().heads().set_resume_point(self.owned.object(), &tx, point);
        }
        drop(tx);
        self.spare = 0;
        let failed = items.get(done);
        match (written, failed) {
            (Err(Wrong::Large { bytes, from }), Some(item)) => {
                self.spare = bytes;
                self.free_ahead(item, from)?;
            }
            (Err(Wrong::Record(why)), Some(item)) => {
                return Err(ReceiveError::Record { record: item.number, at: item.at, why });
            }
            (Err(Wrong::Pool(error)), _) => return Err(error.into()),
            (Err(Wrong::Objects), _) | (Ok(()), _) | (Err(_), None) => {}
        }
        Ok(&items[done..])
    }

    /// Frees most of what a record frees, in as many transactions as that takes.
    fn free_ahead(&mut self, item: &Item, from: u64) -> Result<(), ReceiveError> {
        let (object, offset, len) = match &item.record {
            Record::Free(r) => (r.object, r.offset, r.length),
            Record::Object(r) => (r.object, from, u64::MAX),
            _ => return Ok(()),
        };
        match self.os.dnode_undecrypted(ObjNum(object)) {
            Ok(dnode) => self.free_pieces(&dnode, offset, len),
            Err(dmu::Error::NoSuchObject { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Frees a range but for its last piece (`dmu_free_long_range`).
    fn free_pieces(&self, dnode: &Dnode, offset: u64, len: u64) -> Result<(), ReceiveError> {
        let mut pieces = dnode.pieces(offset, len)?;
        while let Some(piece) = pieces.next_piece()?
            && !piece.last
        {
            let tx = self.live()?.tx_for(&self.owned, Need::netfree(BESIDE + 2 * dnode.block_size()))?;
            dnode.free_range(&tx, piece.offset, piece.len)?;
            let txg = tx.txg();
            drop(tx);
            // The blocks of a txg that are freed are in memory until it is synced.
            self.live()?.txgs().wait_synced(txg)?;
        }
        Ok(())
    }

    /// Refuses what needs more than the transaction has.
    fn check_spare(&self, bytes: u64) -> Result<(), Wrong> {
        if self.spare >= bytes { Ok(()) } else { Err(Wrong::Large { bytes, from: 0 }) }
    }

    /// Refuses to free a large object in a transaction beside others.
    pub(super) fn check_freed(&self, dnode: &Dnode) -> Result<(), Wrong> {
        if dnode.nlevels() > 1 { self.check_spare(BESIDE) } else { Ok(()) }
    }

    /// Ends a stream of which all records were written. Returns the objects that it had.
    pub(super) fn end(self) -> Result<Touched, ReceiveError> {
        // The stream says nothing about objects behind its last.
        if self.clone {
            self.free_objects(self.highest + 1, u64::MAX)?;
        }
        Ok(self.touched)
    }

    fn one(&mut self, tx: &Tx, item: &Item) -> Result<(), Wrong> {
        let at = match &item.record {
            Record::Object(r) => {
                self.object(tx, r, item)?;
                (r.object, 0)
            }
            Record::Write(r) => {
                self.touched.note(r.object);
                self.data(tx, r, item)?;
                (r.object, r.offset)
            }
            Record::WriteEmbedded(r) => {
                self.touched.note(r.object);
                self.embedded(tx, r, item)?;
                (r.object, r.offset)
            }
            Record::Free(r) => {
                let whole = r.length == u64::MAX || r.offset.checked_add(r.length).is_some();
                require(whole, "its range is impossible")?;
                let dnode = self.existing(r.object)?;
                let size = dnode.block_size();
                let to_the_end = r.length == u64::MAX;
                if !r.offset.is_multiple_of(size) || !(to_the_end || r.length.is_multiple_of(size)) {
                    require(self.raw.is_none(), "it frees a part of an encrypted block")?;
                    self.check_spare(2 * size)?;
                }
                self.check_freed(&dnode)?;
                // Each object is followed by one that frees what is behind its last block.
                if r.offset <= dnode.max_blkid().0.saturating_mul(size).saturating_add(size - 1) {
                    self.touched.note(r.object);
                }
                return self.free_blocks(tx, &dnode, r);
            }
            Record::Spill(r) => {
                self.touched.note(r.object);
                return self.spill_block(tx, r, item);
            }
            Record::ObjectRange(r) => return self.raw_range(r),
            Record::WriteByRef(_) => return wrong("only deduplicated streams have such a record"),
            Record::FreeObjects(r) => return self.no_objects(r),
            Record::Begin(_) | Record::End(_) | Record::Redact(_) => {
                return wrong("it is out of place");
            }
        };
        let (object, offset) = at;
        self.point = Some(ResumePoint { object, offset, bytes: self.before.saturating_add(item.end) });
        Ok(())
    }

    /// The object of a record, if there is one.
    pub(super) fn find(&mut self, object: u64) -> Result<Option<Dnode>, Wrong> {
        require((1..DN_MAX_OBJECT).contains(&object), "it has an impossible object number")?;
        self.highest = self.highest.max(object);
        match self.os.dnode_undecrypted(ObjNum(object)) {
            Ok(dnode) => Ok(Some(dnode)),
            Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn existing(&mut self, object: u64) -> Result<Dnode, Wrong> {
        self.find(object)?.ok_or(Wrong::Record("its object does not exist"))
    }

    fn object(&mut self, tx: &Tx, r: &Object, item: &Item) -> Result<(), Wrong> {
        if self.raw.is_some() {
            return self.raw_object(tx, r, item);
        }
        let new = self.new_object(r, item)?;
        let (checksum, compress) = forms(r)?;
        let old = self.find(r.object)?;
        if old.as_ref().is_some_and(|old| self.is_as_before(old, r, &new, (checksum, compress))) {
            return Ok(());
        }
        self.touched.note_dnode(r.object, new.slots);
        if old
            .as_ref()
            .is_none_or(|old| !is_alike(old, &new) || old.block_size() != u64::from(new.block_size))
        {
            // Its data are freed.
            self.touched.note(r.object);
        }
        match old {
            Some(old) if is_alike(&old, &new) => self.change(tx, &old, r, &new)?,
            old => self.claim(tx, old.as_ref(), ObjNum(r.object), &new)?,
        }
        let dnode = self.existing(r.object)?;
        dnode.set_checksum(tx, checksum)?;
        Ok(dnode.set_compress(tx, compress)?)
    }

    /// Makes a new object, in place of another one and of those that its dnode covers.
    pub(super) fn claim(
        &mut self,
        tx: &Tx,
        old: Option<&Dnode>,
        object: ObjNum,
        new: &NewObject,
    ) -> Result<(), Wrong> {
        if let Some(old) = old {
            self.check_freed(old)?;
            self.os.free_object(tx, object)?;
        }
        for covered in (1..u64::from(new.slots)).map(|slot| object.0 + slot) {
            if let Some(dnode) = self.find(covered)? {
                self.check_freed(&dnode)?;
                self.os.free_object(tx, ObjNum(covered))?;
            }
        }
        self.highest = self.highest.max(object.0);
        self.os.claim_object(tx, object, new)?;
        Ok(())
    }

    /// What an OBJECT says.
    fn new_object(&self, r: &Object, item: &Item) -> Result<NewObject, Wrong> {
        let (kind, bonus_kind, slots) = self.kinds(r)?;
        let raw = [u64::from(r.raw_bonus_len), r.levels.into(), r.indirect_shift.into()];
        require(raw == [0; 3] && r.block_pointers == 0, "it has fields of raw streams")?;
        let spills = r.flags & OBJECT_SPILL != 0;
        let mut bonus = item.payload.get(..r.bonus_len as usize).unwrap_or_default().to_vec();
        swap(item.order, bonus_kind, &mut bonus)?;
        check_owner(bonus_kind, &bonus)?;
        let least = (1 + usize::from(spills)) * ondisk::blkptr::BLKPTR_SIZE;
        let fits = bonus.len() + least <= DnodePhys::tail_len(slots.into());
        require(fits, "its bonus does not fit into its dnode")?;
        Ok(NewObject { kind, block_size: r.block_size, indblkshift: 0, bonus_kind, bonus, slots })
    }

    /// The types and the slots that an OBJECT says, which are possible.
    pub(super) fn kinds(&self, r: &Object) -> Result<(DmuType, DmuType, u8), Wrong> {
        let kind = |n: u32| u8::try_from(n).ok().and_then(|n| DmuType::from_disk(n).ok());
        let kinds = kind(r.kind).zip(kind(r.bonus_type));
        let (kind, bonus_kind) = kinds.ok_or(Wrong::Record("it has an unknown type"))?;
        // These tell how their bytes are encrypted and traversed.
        let plain = |kind| ![DmuType::DNODE, DmuType::OBJSET, DmuType::INTENT_LOG].contains(&kind);
        let known = kind != DmuType::NONE && plain(kind) && plain(bonus_kind);
        require(known, "no object of a dataset has its type")?;
        self.check_size(r.block_size.into())?;
        let slots = r.dn_slots.max(1);
        let most = if self.features & features::LARGE_DNODE == 0 { 1 } else { 32 };
        require(slots <= most, "its dnode is too large")?;
        let spills = r.flags & OBJECT_SPILL != 0;
        require(r.flags & !OBJECT_SPILL == 0 && (self.spill || !spills), "it has unknown flags")?;
        Ok((kind, bonus_kind, slots))
    }

    /// Whether a block can have this size here.
    fn check_size(&self, size: u64) -> Result<(), Wrong> {
        let large = self.features & (features::LARGE_BLOCKS | features::LARGE_MICROZAP) != 0;
        let most = if large { SPA_MAXBLOCKSIZE } else { SPA_OLD_MAXBLOCKSIZE };
        require(size.is_multiple_of(512) && (512..=most).contains(&size), "it has an impossible block size")
    }

    /// Changes an object that may be the same as before.
    fn change(&self, tx: &Tx, old: &Dnode, r: &Object, new: &NewObject) -> Result<(), Wrong> {
        let size = old.block_size();
        if u64::from(new.block_size) != size {
            let grows = self.grows(old, new)?;
            require(!grows || u64::from(new.block_size) > size, "its blocks become smaller")?;
            if !grows {
                self.check_freed(old)?;
                old.free_range(tx, 0, u64::MAX)?;
                old.set_block_size(tx, new.block_size)?;
            }
        }
        let bonus = (old.bonus_kind(), old.bonus().len()) == (new.bonus_kind, new.bonus.len());
        let same = bonus && u64::from(new.block_size) == size;
        // Old senders don't say whether there is a spill block. They send it again if need be.
        if r.flags & OBJECT_SPILL == 0 && (self.spill || !same) && old.phys().spill.is_some() {
            old.set_spill(tx, None)?;
        }
        Ok(old.set_bonus(tx, new.bonus_kind, &new.bonus)?)
    }

    /// Whether an OBJECT changes nothing of an object. An increment has all objects of a block of
    /// dnodes if one of them has changed.
    fn is_as_before(
        &self,
        old: &Dnode,
        r: &Object,
        new: &NewObject,
        forms: (ChecksumKind, CompressKind),
    ) -> bool {
        let phys = old.phys();
        let has_spill = !self.spill || (r.flags & OBJECT_SPILL != 0) == phys.spill.is_some();
        has_spill
            && is_alike(old, new)
            && old.block_size() == u64::from(new.block_size)
            && (old.bonus_kind(), old.bonus()) == (new.bonus_kind, &new.bonus[..])
            && (phys.checksum, phys.compress) == (forms.0 as u8, forms.1 as u8)
    }

    /// Whether an object of another block size is the same file as before, of which a stream with
    /// larger blocks has only some. Its blocks then keep their size.
    fn grows(&self, old: &Dnode, new: &NewObject) -> Result<bool, Wrong> {
        if self.full || new.kind != DmuType::PLAIN_FILE_CONTENTS || old.max_blkid() == BlkId(0) {
            return Ok(false);
        }
        let malformed = |_| Wrong::Record("its bonus is malformed");
        let was = dmu::generation(old.bonus_kind(), old.bonus()).map_err(malformed)?;
        let is = dmu::generation(new.bonus_kind, &new.bonus).map_err(malformed)?;
        Ok(was == is)
    }

    fn data(&mut self, tx: &Tx, r: &Write, item: &Item) -> Result<(), Wrong> {
        let at = (r.object, r.offset);
        require(at >= self.last, "it comes after a later block")?;
        let dnode = self.existing(r.object)?;
        self.last = at;
        let size = dnode.block_size();
        if self.raw.is_some() {
            return self.raw_data(tx, &dnode, r, item);
        }
        let end = r.offset.checked_add(r.logical_size).filter(|end| *end <= i64::MAX as u64);
        require(end.is_some(), "its offset is impossible")?;
        let compress = self.compressor(r.compression)?;
        let kind = dnode.kind();
        if r.logical_size != size {
            // It is larger if the dataset once received smaller blocks. It is the smaller rest of a
            // large block that the sender has split.
            self.check_size(r.logical_size)?;
            self.check_spare(2 * r.logical_size.max(size) + size)?;
            require(kind == DmuType::PLAIN_FILE_CONTENTS, "its size is not that of its object's blocks")?;
            let plain = unpack(compress, &item.payload, r.logical_size)?;
            return Ok(dnode.write_at(tx, r.offset, &plain)?);
        }
        require(r.offset.is_multiple_of(size), "its offset is impossible")?;
        let blkid = BlkId(r.offset / size);
        if compress != CompressKind::Off && kind.is_metadata() {
            // `zstream recompress` makes these. Here, metadata has a compressor of its own.
            let plain = unpack(compress, &item.payload, size)?;
            return Ok(dnode.write_block(tx, blkid, native(item.order, kind, &plain)?)?);
        }
        if compress != CompressKind::Off {
            let bytes = item.payload.clone();
            return Ok(dnode.write_packed(tx, blkid, PackedBlock { bytes, compress, encrypted: None })?);
        }
        Ok(dnode.write_block(tx, blkid, native(item.order, kind, &item.payload)?)?)
    }

    /// The compressor of a block, which the stream must allow.
    fn compressor(&self, number: u8) -> Result<CompressKind, Wrong> {
        if number == 0 {
            return Ok(CompressKind::Off);
        }
        let kind = CompressKind::from_disk(number).ok();
        let needs = match kind {
            Some(CompressKind::Lz4) => features::COMPRESSED | features::LZ4,
            Some(CompressKind::Zstd) => features::COMPRESSED | features::ZSTD,
            _ => features::COMPRESSED,
        };
        let allowed = self.features & needs == needs;
        kind.filter(|_| allowed).ok_or(Wrong::Record("its stream allows no such compression"))
    }

    fn embedded(&mut self, tx: &Tx, r: &WriteEmbedded, item: &Item) -> Result<(), Wrong> {
        require(self.raw.is_none(), "raw streams have no embedded blocks")?;
        let dnode = self.existing(r.object)?;
        let size = dnode.block_size();
        if r.length < 1 << 32 && r.offset == (dmu::SPILL_BLKID.0).wrapping_mul(r.length) {
            return self.embedded_spill(tx, &dnode, r, item);
        }
        let whole = r.offset.is_multiple_of(size) && r.length == size && u64::from(r.logical_size) == size;
        let fits = r.offset.checked_add(size).is_some_and(|end| end <= i64::MAX as u64);
        require(whole && fits && r.embedded_type == 0, "it is no embedded block of its object")?;
        require(self.features & features::EMBED_DATA != 0, "its stream has no embedded blocks")?;
        let compress = CompressKind::from_disk(r.compression).ok();
        let payload = item.payload.get(..r.physical_size as usize).unwrap_or_default();
        let embedded = compress.and_then(|compress| Some((compress, Embedded::new(compress, payload)?)));
        let (compress, embedded) = embedded.ok_or(Wrong::Record("it is no embedded block"))?;
        let (kind, blkid) = (dnode.kind(), BlkId(r.offset / size));
        let plain = unpack(compress, payload, size)?;
        let foreign = match compress {
            CompressKind::Zstd => self.features & features::ZSTD == 0,
            CompressKind::Lz4 => self.features & features::LZ4 == 0,
            _ => false,
        };
        if self.encrypted || foreign || kind.is_metadata() && item.order != ByteOrder::Little {
            // Written plain, it is embedded again if the pool embeds such blocks.
            return Ok(dnode.write_block(tx, blkid, native(item.order, kind, &plain)?)?);
        }
        let (level, lsize, birth, order) = (Level(0), Lsize(size), tx.txg(), ByteOrder::Little);
        let body = Body::Embedded(embedded);
        Ok(dnode.clone_pointers(tx, blkid, &[Blkptr { kind, level, lsize, birth, order, body }])?)
    }

    /// A spill block in the record of a data block, at an impossible place. So OpenZFS 2.3 and 2.4
    /// send those that are embedded.
    fn embedded_spill(&self, tx: &Tx, dnode: &Dnode, r: &WriteEmbedded, item: &Item) -> Result<(), Wrong> {
        self.check_size(r.logical_size.into())?;
        let payload = item.payload.get(..r.physical_size as usize).unwrap_or_default();
        let compress = CompressKind::from_disk(r.compression).map_err(|_| Wrong::Record("it is no block"))?;
        let plain = unpack(compress, payload, r.logical_size.into())?;
        self.set_spill(tx, dnode, &native(item.order, dnode.bonus_kind(), &plain)?)
    }

    fn spill_block(&mut self, tx: &Tx, r: &Spill, item: &Item) -> Result<(), Wrong> {
        self.check_size(r.length)?;
        let found = self.find(r.object)?;
        // It is there for receivers that don't know the flag of OBJECT, and for objects that were
        // made anew here, such as raw ones of another block size.
        let is_there = found.as_ref().is_none_or(|dnode| dnode.phys().spill.is_some());
        if self.spill && r.flags & SPILL_UNMODIFIED != 0 && is_there {
            return Ok(());
        }
        let dnode = found.ok_or(Wrong::Record("its object does not exist"))?;
        if self.raw.is_some() {
            return self.raw_spill(tx, &dnode, r, item);
        }
        require(r.compression == 0 && item.payload.len() as u64 == r.length, "it has fields of raw streams")?;
        self.set_spill(tx, &dnode, &native(item.order, dnode.bonus_kind(), &item.payload)?)
    }

    fn set_spill(&self, tx: &Tx, dnode: &Dnode, block: &Block) -> Result<(), Wrong> {
        require(dnode.bonus_kind() == DmuType::SA, "only system attributes have spill blocks")?;
        check_owner(DmuType::SA, block)?;
        Ok(dnode.set_spill(tx, Some(block))?)
    }

    fn free_range(&mut self, r: &FreeObjects, (record, at): (u64, u64)) -> Result<(), ReceiveError> {
        let why = "its range is impossible";
        let end = r.first.checked_add(r.count).ok_or(ReceiveError::Record { record, at, why })?;
        if self.free_objects(r.first, end)? {
            self.touched.note_range(r.first, end - 1);
        }
        Ok(())
    }

    /// Finds no objects in a range that is to have none. Between the objects of an increment are
    /// many such ranges.
    fn no_objects(&self, r: &FreeObjects) -> Result<(), Wrong> {
        let end = r.first.checked_add(r.count).filter(|_| r.count <= MOST_NUMBERS).ok_or(Wrong::Objects)?;
        match self.os.objects_undecrypted(ObjNum(r.first)).until(ObjNum(end)).next() {
            None => Ok(()),
            Some(_) => Err(Wrong::Objects),
        }
    }

    /// Frees the objects of a range, some in each transaction. False if it has none.
    fn free_objects(&self, first: u64, end: u64) -> Result<bool, ReceiveError> {
        let mut next = first.max(1);
        while next < end.min(DN_MAX_OBJECT) {
            let found = self.os.objects_undecrypted(ObjNum(next)).until(ObjNum(end)).take(FREED_AT_ONCE);
            let found = found.collect::<dmu::Result<Vec<Dnode>>>()?;
            for large in found.iter().filter(|dnode| dnode.nlevels() > 1) {
                self.free_pieces(large, 0, u64::MAX)?;
            }
            let gone: Vec<u64> = found.iter().map(|dnode| dnode.object().0).collect();
            let Some(last) = gone.last() else { break };
            let tx = self.live()?.tx_for(&self.owned, Need::netfree(gone.len() as u64 * BESIDE))?;
            gone.iter().try_for_each(|object| self.os.free_object(&tx, ObjNum(*object)))?;
            next = last + 1;
        }
        Ok(next > first.max(1))
    }
}

/// Whether the dnode of an object can become that of a new one without being freed.
fn is_alike(old: &Dnode, new: &NewObject) -> bool {
    let (phys, slots) = (old.phys(), usize::from(new.slots));
    let pointers = DnodePhys::pointers_beside(slots, new.bonus_kind, new.bonus.len());
    old.kind() == new.kind && phys.num_slots() == slots && phys.blkptrs.len() <= pointers
}

/// The checksum and the compressor of an object's blocks, if it has its own.
///
/// Those that a pool may lack are replaced by those of the dataset. No sender has them.
fn forms(r: &Object) -> Result<(ChecksumKind, CompressKind), Wrong> {
    use ChecksumKind as C;
    let kinds = ChecksumKind::from_disk(r.checksum_type).ok().zip(CompressKind::from_disk(r.compress).ok());
    let (checksum, compress) = kinds.ok_or(Wrong::Record("its checksum or compressor is unknown"))?;
    let checksum = match checksum {
        C::Label | C::GangHeader | C::Zilog | C::Zilog2 | C::Noparity => {
            return wrong("its checksum is none for data");
        }
        C::Sha512 | C::Skein | C::Edonr | C::Blake3 => C::Inherit,
        other => other,
    };
    let compress = match compress {
        CompressKind::Zstd | CompressKind::Lz4 => CompressKind::Inherit,
        other => other,
    };
    Ok((checksum, compress))
}

/// Whether the owners of a file can be counted, which a transaction group can't refuse later.
fn check_owner(kind: DmuType, bonus: &[u8]) -> Result<(), Wrong> {
    dmu::check_owner(kind, bonus).map_err(|_| Wrong::Record("its owners can't be read"))
}

/// Swaps bytes of the other byte order.
fn swap(order: ByteOrder, kind: DmuType, bytes: &mut [u8]) -> Result<(), Wrong> {
    if order == ByteOrder::Little || bytes.is_empty() {
        return Ok(());
    }
    byteswap::block(kind, Level(0), bytes).map_err(|_| Wrong::Record("it can't be swapped"))
}

/// A block in the native byte order.
pub(super) fn native(order: ByteOrder, kind: DmuType, bytes: &Block) -> Result<Block, Wrong> {
    if order == ByteOrder::Little {
        return Ok(bytes.clone());
    }
    let mut buf = AlignedBuf::padded(bytes, bytes.len());
    swap(order, kind, &mut buf)?;
    Ok(buf.freeze())
}

/// The contents of a block.
pub(super) fn unpack(compress: CompressKind, bytes: &[u8], size: u64) -> Result<Block, Wrong> {
    let mut buf = AlignedBuf::for_overwrite(size as usize);
    let unpacked = codec::compress::decompress(compress, bytes, &mut buf);
    unpacked.map_err(|_| Wrong::Record("it can't be decompressed"))?;
    Ok(buf.freeze())
}
