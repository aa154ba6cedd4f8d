//! From changes to records.
//!
//! # Theory
//! Neighbouring holes become one FREE, and neighbouring numbers without an object one FREEOBJECTS.
//! So such a record is held back until a change follows that does not continue it.
//!
//! # See
//! OpenZFS `do_dump`.

use std::io::{self, Write};

use codec::Checksum;
use device::Block;
use ondisk::blkptr::{Blkptr, Body, Stored};
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE, DnodeFlags, DnodePhys};
use ondisk::replay::{
    self, CHECKSUM_DEDUP, Crypt, Free, FreeObjects, OBJECT_SPILL, Object, ObjectRange, RAW_BYTESWAP, Record,
    Redact, SPILL_UNMODIFIED, Spill, WriteEmbedded,
};
use ondisk::{BlkId, ByteOrder, ChecksumKind, CompressKind, DmuType, ObjNum, SPA_MINBLOCKSHIFT, Txg};

use super::walk::Change;
use crate::Writer;

/// The largest block that streams have without `large_blocks` (`SPA_OLD_MAXBLOCKSIZE`).
pub(super) const OLD_MAX_BLOCK: u32 = 128 << 10;
/// Length of a FREE without an end (`DMU_OBJECT_END`).
const TO_THE_END: u64 = u64::MAX;
/// A checksum that says nothing (`ZIO_CHECKSUM_OFF`).
const NO_CHECKSUM: u8 = ChecksumKind::Off as u8;
const UNREAD: &str = "blocks are read before their records are written";

/// The contents of a block, as the stream has them.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    pub(super) block: Block,
    /// How many bytes of the block it is.
    pub(super) len: usize,
    /// Fletcher-4 of these bytes, where the pool has it already.
    pub(super) sum: Option<Checksum>,
    /// It stands for a block that can't be read, and is plain whatever the form of that block.
    pub(super) stands_in: bool,
}

impl Payload {
    /// A whole block.
    pub(super) fn whole(block: Block, sum: Option<Checksum>) -> Self {
        Self { len: block.len(), block, sum, stands_in: false }
    }

    fn bytes(&self) -> &[u8] {
        &self.block[..self.len]
    }
}

/// Writes the records of one snapshot.
pub(super) struct Records<'a, W> {
    pub(super) writer: &'a mut Writer<W>,
    pub(super) to_guid: u64,
    /// [`replay::features`].
    pub(super) features: u64,
    /// The txg of the origin.
    pub(super) since: Txg,
    /// The first number that no object has, of all blocks of dnodes.
    pub(super) objects: u64,
    /// A record that the next change may continue.
    pub(super) held: Option<Record>,
}

impl<W: Write> Records<'_, W> {
    /// Writes what a change says. `payload` is the content of its block, if it has one.
    pub(super) fn change(&mut self, change: &Change, payload: Option<&Payload>) -> io::Result<()> {
        let to_guid = self.to_guid;
        match change {
            Change::NoObjects { first, count } => self.no_objects(*first, *count),
            Change::Hole { object, offset, length } => {
                self.hold(Record::Free(Free { object: object.0, offset: *offset, length: *length, to_guid }))
            }
            Change::Redacted { object, offset, length } => self.hold(Record::Redact(Redact {
                object: object.0,
                offset: *offset,
                length: *length,
                to_guid,
            })),
            Change::Dnodes { first, slots, bp } => {
                let (crypt, flags) = (crypt_of(bp), byteswap_of(bp));
                let range = ObjectRange { first: *first, slots: *slots, to_guid, crypt, flags };
                self.write(&Record::ObjectRange(range), &[], None)
            }
            Change::Object { object, dnode, slots, at } => self.object(*object, dnode, &slots[*at..]),
            Change::Data { object, blkid, size, kind, bp } => {
                self.data(&Place { object: *object, blkid: *blkid, size: *size, kind: *kind }, bp, payload)
            }
            Change::Spill { object, bp } => self.spill(*object, bp, payload),
            Change::Lost(_) => Ok(()),
        }
    }

    /// Writes the record that is held back.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self.held.take() {
            Some(record) => self.writer.write(&record, &[]),
            None => Ok(()),
        }
    }

    fn write(&mut self, record: &Record, payload: &[u8], sum: Option<&Checksum>) -> io::Result<()> {
        self.flush()?;
        self.writer.write_summed(record, payload, sum)
    }

    /// Holds a record back, joined with the one before if it continues that.
    fn hold(&mut self, next: Record) -> io::Result<()> {
        if let Some(held) = &mut self.held
            && continues(held, &next)
        {
            return Ok(());
        }
        self.flush()?;
        self.held = Some(next);
        Ok(())
    }

    fn no_objects(&mut self, first: u64, count: u64) -> io::Result<()> {
        // Old receivers take forever over numbers that no object can have.
        if first >= self.objects {
            return Ok(());
        }
        let count = count.min(self.objects - first);
        self.hold(Record::FreeObjects(FreeObjects { first, count, to_guid: self.to_guid }))
    }

    fn object(&mut self, object: ObjNum, dnode: &DnodePhys, slots: &[u8]) -> io::Result<()> {
        let large = self.features & replay::features::LARGE_BLOCKS != 0;
        let block_size = if large { dnode.datablksz } else { dnode.datablksz.min(OLD_MAX_BLOCK) };
        let mut record = Object {
            object: object.0,
            kind: dnode.kind.to_disk().into(),
            bonus_type: dnode.bonus_kind.to_disk().into(),
            block_size,
            bonus_len: dnode.bonus.len() as u32,
            checksum_type: dnode.checksum,
            compress: dnode.compress,
            dn_slots: dnode.extra_slots + 1,
            flags: if dnode.flags.has(DnodeFlags::SPILL) { OBJECT_SPILL } else { 0 },
            raw_bonus_len: 0,
            to_guid: self.to_guid,
            indirect_shift: 0,
            levels: 0,
            block_pointers: 0,
            max_block: 0,
        };
        let bonus = DNODE_CORE_SIZE + dnode.blkptrs.len() * ondisk::blkptr::BLKPTR_SIZE;
        let mut length = dnode.bonus.len().next_multiple_of(8);
        if self.features & replay::features::RAW != 0 {
            record.max_block = dnode.maxblkid.0;
            record.indirect_shift = dnode.indblkshift;
            record.levels = dnode.nlevels;
            record.block_pointers = dnode.blkptrs.len() as u8;
            // All of the space behind the pointers is encrypted, not only what the bonus uses.
            if length != 0 {
                let spill = if dnode.spill.is_some() { ondisk::blkptr::BLKPTR_SIZE } else { 0 };
                length = dnode.num_slots() * DNODE_MIN_SIZE - bonus - spill;
                record.raw_bonus_len = length as u32;
            }
        }
        self.write(&Record::Object(record), &slots[bonus..bonus + length], None)?;
        let size = u64::from(dnode.datablksz);
        let offset = dnode.maxblkid.0.wrapping_add(1).wrapping_mul(size);
        let (object, to_guid) = (object.0, self.to_guid);
        let end = Free { object, offset, length: TO_THE_END, to_guid };
        self.write(&Record::Free(end), &[], None)
    }

    fn data(&mut self, at: &Place, bp: &Blkptr, payload: Option<&Payload>) -> io::Result<()> {
        if let Some(embedded) = embeds(bp, self.features) {
            let bytes = embedded.payload();
            let mut padded = [0; 112];
            padded[..bytes.len()].copy_from_slice(bytes);
            let record = WriteEmbedded {
                object: at.object.0,
                offset: at.offset(),
                length: at.size.into(),
                to_guid: self.to_guid,
                compression: embedded.compress as u8,
                embedded_type: 0,
                logical_size: bp.lsize.0 as u32,
                physical_size: bytes.len() as u32,
            };
            let length = bytes.len().next_multiple_of(8);
            return self.write(&Record::WriteEmbedded(record), &padded[..length], None);
        }
        let payload = payload.expect(UNREAD);
        if self.splits(at.size) {
            for (i, part) in payload.bytes().chunks(OLD_MAX_BLOCK as usize).enumerate() {
                let offset = at.offset() + u64::from(OLD_MAX_BLOCK) * i as u64;
                let record = self.plain_write(at, offset, part.len());
                self.write(&Record::Write(record), part, None)?;
            }
            return Ok(());
        }
        let record = match payload.stands_in {
            true => self.plain_write(at, at.offset(), at.size as usize),
            false => self.whole_write(at, bp),
        };
        self.write(&Record::Write(record), payload.bytes(), payload.sum.as_ref())
    }

    fn splits(&self, size: u32) -> bool {
        size > OLD_MAX_BLOCK && self.features & replay::features::LARGE_BLOCKS == 0
    }

    /// A WRITE of plain bytes, without the checksum that the block has in the pool.
    fn plain_write(&self, at: &Place, offset: u64, length: usize) -> replay::Write {
        replay::Write {
            object: at.object.0,
            kind: at.kind.to_disk().into(),
            offset,
            logical_size: length as u64,
            to_guid: self.to_guid,
            checksum_type: NO_CHECKSUM,
            flags: 0,
            compression: 0,
            key_checksum: [0; 4],
            key_prop: 0,
            compressed_size: 0,
            crypt: Crypt::default(),
        }
    }

    fn whole_write(&self, at: &Place, bp: &Blkptr) -> replay::Write {
        let mut record = self.plain_write(at, at.offset(), at.size as usize);
        let Some(stored) = bp.stored() else { return record };
        let raw = self.features & replay::features::RAW != 0;
        if raw {
            record.flags |= byteswap_of(bp);
            record.crypt = crypt_of(bp);
        }
        if raw || sends_compressed(bp, at.size, self.features) {
            record.compression = stored.compress as u8;
            record.compressed_size = stored.psize.0;
        }
        let protected = bp.is_encrypted() || bp.is_authenticated();
        if raw || !protected {
            record.checksum_type = stored.checksum as u8;
            record.flags |= if is_dedup_checksum(stored.checksum) { CHECKSUM_DEDUP } else { 0 };
            record.key_checksum = stored.sum;
            record.key_prop = key_prop(bp, stored, protected);
        }
        record
    }

    /// Writes a spill block.
    fn spill(&mut self, object: ObjNum, bp: &Blkptr, payload: Option<&Payload>) -> io::Result<()> {
        let payload = payload.expect(UNREAD);
        let mut record = Spill {
            object: object.0,
            length: bp.lsize.0,
            to_guid: self.to_guid,
            flags: if bp.birth <= self.since { SPILL_UNMODIFIED } else { 0 },
            compression: 0,
            compressed_size: 0,
            crypt: Crypt::default(),
            kind: 0,
        };
        if let Some(stored) = bp.stored().filter(|_| self.features & replay::features::RAW != 0) {
            record.flags |= byteswap_of(bp);
            record.compression = stored.compress as u8;
            record.compressed_size = stored.psize.0;
            record.crypt = crypt_of(bp);
        }
        self.write(&Record::Spill(record), payload.bytes(), payload.sum.as_ref())
    }
}

/// Which block of which object.
struct Place {
    object: ObjNum,
    blkid: BlkId,
    size: u32,
    kind: DmuType,
}

impl Place {
    fn offset(&self) -> u64 {
        self.blkid.0.wrapping_mul(self.size.into())
    }
}

/// Joins a record with the next one, if that continues it.
fn continues(held: &mut Record, next: &Record) -> bool {
    match (held, next) {
        (Record::FreeObjects(held), Record::FreeObjects(next)) => {
            let ok = held.first.checked_add(held.count) == Some(next.first);
            held.count += if ok { next.count } else { 0 };
            ok
        }
        (Record::Free(held), Record::Free(next)) => {
            let ok = held.object == next.object && held.offset.checked_add(held.length) == Some(next.offset);
            if ok {
                let ends = next.offset.checked_add(next.length).is_some();
                held.length = if ends { held.length + next.length } else { TO_THE_END };
            }
            ok
        }
        (Record::Redact(held), Record::Redact(next)) => {
            let ok = held.object == next.object && held.offset.checked_add(held.length) == Some(next.offset);
            held.length += if ok { next.length } else { 0 };
            ok
        }
        _ => false,
    }
}

/// The embedded data of a data block, if streams of these features may have it (`send_do_embed`).
///
/// Not so if the block has to be split. There OpenZFS's streams have what no receiver accepts.
pub(super) fn embeds(bp: &Blkptr, features: u64) -> Option<&ondisk::blkptr::Embedded> {
    let Body::Embedded(embedded) = &bp.body else { return None };
    let has = |feature| features & feature != 0;
    if bp.lsize.0 > OLD_MAX_BLOCK.into() && !has(replay::features::LARGE_BLOCKS) {
        return None;
    }
    // lz4 came with features; what is before it needs none.
    let old = (embedded.compress as u8) < CompressKind::Lz4 as u8;
    let known = (old || has(replay::features::LZ4))
        && (embedded.compress != CompressKind::Zstd || has(replay::features::ZSTD));
    (known && has(replay::features::EMBED_DATA)).then_some(embedded)
}

/// Whether the payload of a block is compressed as in the pool.
pub(super) fn sends_compressed(bp: &Blkptr, size: u32, features: u64) -> bool {
    let Some(stored) = bp.stored() else { return false };
    let splits = size > OLD_MAX_BLOCK && features & replay::features::LARGE_BLOCKS == 0;
    features & replay::features::COMPRESSED != 0
        && stored.compress != CompressKind::Off
        && !splits
        && bp.order == ByteOrder::Little
        && !bp.kind.is_metadata()
}

/// Whether dedup trusts this checksum (`ZCHECKSUM_FLAG_DEDUP`).
fn is_dedup_checksum(kind: ChecksumKind) -> bool {
    use ChecksumKind::{Blake3, Sha256, Sha512, Skein};
    matches!(kind, Sha256 | Sha512 | Skein | Blake3)
}

/// Sizes and compression of a block, as keys of dedup tables have them (`ddk_prop`).
fn key_prop(bp: &Blkptr, stored: &Stored, protected: bool) -> u64 {
    let sectors = |bytes: u64| (bytes >> SPA_MINBLOCKSHIFT).wrapping_sub(1) & 0xffff;
    sectors(bp.lsize.0)
        | sectors(stored.psize.0) << 16
        | (stored.compress as u64) << 32
        | u64::from(protected) << 39
}

fn crypt_of(bp: &Blkptr) -> Crypt {
    let Some(stored) = bp.stored() else { return Crypt::default() };
    let mac = Checksum(stored.sum).mac(bp.order);
    Crypt { salt: stored.crypt_params.salt, iv: stored.crypt_params.iv, mac }
}

fn byteswap_of(bp: &Blkptr) -> u8 {
    if bp.order == ByteOrder::Big { RAW_BYTESWAP } else { 0 }
}
