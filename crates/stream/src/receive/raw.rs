//! Writing the records of a raw stream.
//!
//! # Theory
//! Without the key nothing can be decrypted, nor can a MAC be made. So all is written as it was
//! stored, and each object gets the very shape that it had at the sender ([`dmu::RawObject`]).
//!
//! An OBJECT_RANGE says how a block of dnodes is encrypted, and comes before its OBJECTs. It counts
//! from the first of these on, so that a block without any dnode stays a hole.
//!
//! # Absent
//! Streams of datasets of the other byte order.
//!
//! # See
//! OpenZFS `receive_object_range`, `receive_object`.

use dmu::{Dnode, NewObject, PackedBlock, RawObject, Tx};
use ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_MIN_SIZE};
use ondisk::replay::{Crypt, Free, OBJECT_SPILL, Object, ObjectRange, RAW_BYTESWAP, Spill, Write, features};
use ondisk::{BlkId, ByteOrder, ChecksumKind, CompressKind, ObjNum};
use zio::Encrypted;

use super::apply::{Target, Wrong, require};
use super::queue::Item;

/// Objects in a block of dnodes.
const PER_BLOCK: u64 = (DNODE_BLOCK_SIZE / DNODE_MIN_SIZE) as u64;

const ORDER: &str = "encrypted blocks of the other byte order are not in this release";

/// What the stream has said.
pub(super) struct Raw {
    /// The last block of dnodes.
    max: u64,
    /// The block of dnodes that was announced last, by its first object.
    range: Option<(u64, Encrypted)>,
    /// The last object, and its last block.
    last: (u64, u64),
}

impl Raw {
    pub(super) fn new(max: u64) -> Self {
        Self { max, range: None, last: (0, 0) }
    }
}

fn encrypted(crypt: &Crypt) -> Encrypted {
    let Crypt { salt, iv, mac } = *crypt;
    Encrypted { params: ondisk::blkptr::CryptParams { salt, iv }, mac }
}

impl Target {
    pub(super) fn raw_range(&mut self, r: &ObjectRange) -> Result<(), Wrong> {
        let Some(raw) = &mut self.raw else {
            return Err(Wrong::Record("only raw streams have such a record"));
        };
        let whole = r.slots == PER_BLOCK && r.first.is_multiple_of(PER_BLOCK);
        require(whole && r.first / PER_BLOCK <= raw.max, "it is no block of dnodes")?;
        require(r.flags == 0, ORDER)?;
        raw.range = Some((r.first, encrypted(&r.crypt)));
        Ok(())
    }

    pub(super) fn raw_object(&mut self, tx: &Tx, r: &Object, item: &Item) -> Result<(), Wrong> {
        let first = r.object / PER_BLOCK * PER_BLOCK;
        let range = self.raw.as_ref().and_then(|raw| raw.range).filter(|(of, _)| *of == first);
        let (_, crypt) = range.ok_or(Wrong::Record("its block of dnodes was not announced"))?;
        require(item.order == ByteOrder::Little, ORDER)?;
        let (new, shape) = self.raw_shape(r, item)?;
        let (checksum, compress) = (checksum(r.checksum_type)?, self.raw_compressor(r.compress)?);
        match self.find(r.object)? {
            Some(old) if is_alike(&old, &new, &shape) => self.raw_change(tx, &old, r, (&new, &shape))?,
            old => self.claim(tx, old.as_ref(), ObjNum(r.object), &new)?,
        }
        let dnode = self.existing(r.object)?;
        dnode.set_checksum(tx, checksum)?;
        dnode.set_compress(tx, compress)?;
        dnode.set_raw(tx, &shape)?;
        self.os.encrypt_dnodes(tx, BlkId(first / PER_BLOCK), crypt)?;
        if let Some(raw) = &mut self.raw {
            raw.last = (r.object, r.max_block);
        }
        Ok(())
    }

    /// A compressor that the stream allows.
    fn raw_compressor(&self, number: u8) -> Result<CompressKind, Wrong> {
        let kind = CompressKind::from_disk(number).map_err(|_| Wrong::Record("its compressor is unknown"))?;
        let needs = match kind {
            CompressKind::Lz4 => features::LZ4,
            CompressKind::Zstd => features::ZSTD,
            _ => 0,
        };
        require(self.features & needs == needs, "its stream allows no such compression")?;
        Ok(kind)
    }

    /// A block as another pool stored it.
    fn packed(&self, compression: u8, crypt: &Crypt, item: &Item) -> Result<PackedBlock, Wrong> {
        require(item.order == ByteOrder::Little, ORDER)?;
        // Zero in a stream means that the block is not compressed.
        let compress = match compression {
            0 => CompressKind::Off,
            n => self.raw_compressor(n)?,
        };
        let bytes = item.payload.clone();
        Ok(PackedBlock { bytes, compress, encrypted: Some(encrypted(crypt)) })
    }

    pub(super) fn raw_data(&self, tx: &Tx, dnode: &Dnode, r: &Write, item: &Item) -> Result<(), Wrong> {
        let size = dnode.block_size();
        let whole = r.logical_size == size && r.offset.is_multiple_of(size);
        let blkid = BlkId(r.offset / size);
        require(whole && blkid <= dnode.max_blkid(), "it is no block of its object")?;
        require(r.flags & RAW_BYTESWAP == 0, ORDER)?;
        Ok(dnode.write_packed(tx, blkid, self.packed(r.compression, &r.crypt, item)?)?)
    }

    pub(super) fn raw_spill(&self, tx: &Tx, dnode: &Dnode, r: &Spill, item: &Item) -> Result<(), Wrong> {
        require(r.flags & RAW_BYTESWAP == 0, ORDER)?;
        Ok(dnode.set_packed_spill(tx, self.packed(r.compression, &r.crypt, item)?, r.length)?)
    }

    /// What an OBJECT says.
    fn raw_shape(&self, r: &Object, item: &Item) -> Result<(NewObject, RawObject), Wrong> {
        let (kind, bonus_kind, slots) = self.kinds(r)?;
        let bonus = item.payload.get(..r.bonus_len as usize).unwrap_or_default().to_vec();
        let whole = item.payload.len() == r.raw_bonus_len as usize && r.raw_bonus_len >= r.bonus_len;
        require(whole && bonus.len() == r.bonus_len as usize, "its bonus has an impossible length")?;
        let shape = RawObject {
            levels: r.levels,
            indirect_shift: r.indirect_shift,
            pointers: r.block_pointers,
            max_block: r.max_block,
            bonus: item.payload.to_vec(),
        };
        let size = u64::from(r.block_size);
        let ends = r.max_block.checked_add(1).and_then(|blocks| blocks.checked_mul(size));
        let reachable = ends.is_some_and(|end| end <= i64::MAX as u64);
        require(reachable && shape.is_possible(slots), "its tree has an impossible shape")?;
        let (indblkshift, block_size) = (r.indirect_shift, r.block_size);
        Ok((NewObject { kind, block_size, indblkshift, bonus_kind, bonus, slots }, shape))
    }

    /// Changes an object that may be the same as before.
    fn raw_change(
        &mut self,
        tx: &Tx,
        old: &Dnode,
        r: &Object,
        (new, shape): (&NewObject, &RawObject),
    ) -> Result<(), Wrong> {
        if shape.max_block < old.max_blkid().0 {
            let from = (shape.max_block + 1) * old.block_size();
            self.check_freed(old).map_err(|error| match error {
                Wrong::Large { bytes, .. } => Wrong::Large { bytes, from },
                error => error,
            })?;
            old.free_range(tx, from, u64::MAX)?;
        }
        if r.flags & OBJECT_SPILL == 0 && old.phys().spill.is_some() {
            old.set_spill(tx, None)?;
        }
        Ok(old.set_bonus(tx, new.bonus_kind, &new.bonus)?)
    }

    /// Frees blocks of an object.
    pub(super) fn free_blocks(&mut self, tx: &Tx, dnode: &Dnode, r: &Free) -> Result<(), Wrong> {
        dnode.free_range(tx, r.offset, r.length)?;
        match &self.raw {
            // The last block is what the sender says, whatever is freed.
            Some(Raw { last: (object, max), .. }) if *object == r.object => {
                Ok(dnode.set_max_block(tx, BlkId(*max))?)
            }
            Some(_) => Err(Wrong::Record("its object was not announced")),
            None => Ok(()),
        }
    }
}

/// Whether an object can get the shape of another one without being freed.
fn is_alike(old: &Dnode, new: &NewObject, shape: &RawObject) -> bool {
    let phys = old.phys();
    old.kind() == new.kind
        && old.block_size() == u64::from(new.block_size)
        && phys.num_slots() == usize::from(new.slots)
        && phys.blkptrs.len() == usize::from(shape.pointers)
        && (phys.nlevels == 1 || phys.indblkshift == shape.indirect_shift)
        && phys.nlevels <= shape.levels
}

/// The checksum of an object's blocks. Its number is part of what a MAC covers, so that none can
/// take its place. No sender has one that needs a feature.
fn checksum(number: u8) -> Result<ChecksumKind, Wrong> {
    use ChecksumKind as C;
    let kind = C::from_disk(number).map_err(|_| Wrong::Record("its checksum is unknown"))?;
    let plain = matches!(kind, C::Inherit | C::On | C::Off | C::Fletcher2 | C::Fletcher4 | C::Sha256);
    require(plain, "its checksum is none for its blocks")?;
    Ok(kind)
}
