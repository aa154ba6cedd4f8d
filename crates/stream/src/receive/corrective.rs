//! Corrective receives (`zfs receive -c`): damaged blocks of a snapshot that exists are written
//! again, from a stream of the same snapshot.
//!
//! # Theory
//! Only a block that can't be read for its checksum is touched. Its bytes in the stream are brought
//! into the form in which the pool stores it, and only if they have the checksum of its pointer are
//! they written to its places. So the checksum decides: a wrong stream changes nothing, but a
//! hostile one can be made to fit a weak checksum such as Fletcher-4.
//!
//! What arrives compressed or raw is used as it is. Plain bytes have to be compressed as they were
//! when the block was written, which only the same compressor can do.
//!
//! # Life
//! The snapshot is held, so that its blocks stay where they are.
//!
//! # See
//! OpenZFS `do_corrective_recv`.

use std::io::Read;
use std::sync::Arc;

use codec::compress::{ZstdLevel, zstd_header};
use device::Block;
use dsl::Dataset;
use dsl::keys::KeyStatus;
use observe::{Tunable, Unit};
use ondisk::replay::{Record, Write, features};
use ondisk::{BlkId, Blkptr, CompressKind, DmuType, Level, ObjNum};
use spa::Spa;
use zio::{Bookmark, ReadOptions};

use super::{ReceiveError, Start, apply, writer};
use crate::{Error, Packet, Reader, check::State};

/// Whether a corrective receive goes on after a block that it can't restore, and takes streams of
/// other snapshots (`zfs_recv_best_effort_corrective`).
pub static BEST_EFFORT_CORRECTIVE: Tunable = Tunable::new(
    "zfs_recv_best_effort_corrective",
    0,
    0..=1,
    Unit::Flag,
    "1: a corrective receive goes on after blocks that it can't restore",
);

/// What a corrective receive did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Corrected {
    /// The length of the stream.
    pub bytes: u64,
    /// How many blocks were restored.
    pub blocks: u64,
}

/// Restores damaged blocks of a snapshot from a stream.
///
/// # Errors
/// What was restored before an error stays.
///
/// * [`ReceiveError::Stream`], [`ReceiveError::Record`]: the stream is damaged or malformed.
/// * [`ReceiveError::Incompatible`]: it is a stream of another snapshot, or its blocks have other
///   sizes than the snapshot's.
/// * [`ReceiveError::NotRestored`]: a damaged block can't be made of what the stream has.
/// * [`ReceiveError::Feature`]: it is of a kind that this release can't receive.
/// * [`ReceiveError::Refused`]: the snapshot does not exist, or its key is not loaded.
/// * [`ReceiveError::Pool`]: the pool can't be read or written for another reason than a checksum.
pub fn correct(spa: &Arc<Spa>, source: impl Read, name: &str) -> Result<Corrected, ReceiveError> {
    let (mut reader, mut state) = (Reader::new(source), State::default());
    let start = Start::read(&mut reader, &mut state)?;
    let live = writer(spa)?;
    if !matches!(dsl::Name::parse(name)?.tail, dsl::Tail::Snapshot(_)) {
        let why = dsl::Refusal::NotSnapshot;
        return Err(dsl::Error::Refused { name: name.to_owned(), why }.into());
    }
    let (snapshot, _hold) = spa.read(|| {
        let snapshot = live.dsl().dataset(name)?;
        let hold = live.dsl().heads().long_hold(snapshot.object().0);
        Ok::<_, dsl::Error>((snapshot, hold))
    })?;
    let mut healing = Healing::new(spa, &snapshot, &start)?;
    loop {
        let at = reader.position();
        let Some(packet) = reader.next_packet()? else {
            return Err(Error::Truncated { record: state.records, at }.into());
        };
        if state.take(&packet)?.is_some() {
            return Ok(Corrected { bytes: reader.position(), blocks: healing.blocks });
        }
        if let Record::Write(write) = &packet.record {
            healing.block(write, &packet)?;
        }
    }
}

struct Healing<'a> {
    spa: &'a Spa,
    os: dmu::Objset,
    raw: bool,
    /// The zstd level of the last block that was made of plain bytes.
    level: ZstdLevel,
    blocks: u64,
}

impl<'a> Healing<'a> {
    fn new(spa: &'a Spa, snapshot: &Dataset, start: &Start) -> Result<Self, ReceiveError> {
        let (best_effort, has) = (BEST_EFFORT_CORRECTIVE.get() != 0, start.begin.features());
        if !best_effort && snapshot.phys().guid != start.begin.to_guid {
            return Err(ReceiveError::Incompatible("it is of another snapshot"));
        }
        let raw = has & features::RAW != 0;
        let wrong = |why| Err(ReceiveError::Record { record: 0, at: 0, why });
        match snapshot.dsl().keys().status(snapshot.dir())? {
            KeyStatus::None if raw && start.list.has("crypt_keydata") => {
                return wrong("it is raw, and the snapshot is not encrypted");
            }
            KeyStatus::None => {}
            _ if has & features::EMBED_DATA != 0 => {
                return wrong("an encrypted snapshot has no embedded blocks");
            }
            KeyStatus::Unavailable if !raw => {
                let (name, why) = (snapshot.name(), dsl::KeyRefusal::NotLoaded);
                return Err(dsl::Error::Key { name, why }.into());
            }
            _ => {}
        }
        let empty = || ReceiveError::Incompatible("the snapshot has no contents");
        let os = snapshot.objset()?.ok_or_else(empty)?;
        Ok(Self { spa, os, raw, level: ZstdLevel::DEFAULT, blocks: 0 })
    }

    /// Restores the block of a record, if it is damaged.
    fn block(&mut self, write: &Write, packet: &Packet<'_>) -> Result<(), ReceiveError> {
        let best_effort = BEST_EFFORT_CORRECTIVE.get() != 0;
        let dnode = match self.os.dnode_undecrypted(ObjNum(write.object)) {
            // The object is one of another snapshot.
            Err(dmu::Error::NoSuchObject { .. }) if best_effort => return Ok(()),
            dnode => dnode?,
        };
        let size = dnode.block_size().max(1);
        let blkid = BlkId(write.offset / size);
        let bp = dnode.bp(Level(0), blkid)?;
        let at = Bookmark { objset: self.os.id(), object: ObjNum(write.object), level: Level(0), blkid };
        if bp.stored().is_none() || !self.is_damaged(&bp, &at)? {
            return Ok(());
        }
        if write.logical_size != size || !write.offset.is_multiple_of(size) {
            if best_effort {
                return Ok(());
            }
            return Err(ReceiveError::Incompatible("its blocks have other sizes than those of the snapshot"));
        }
        let restored = match self.stored(&bp, &at, (write, packet), dnode.kind())? {
            Some(stored) => self.os.cache().zio().restore(&bp, &stored, &at, &ReadOptions::demand()),
            None => false,
        };
        if restored {
            self.spa.forget_damage(&[(at, bp.birth)]);
            self.blocks += 1;
        } else if !best_effort {
            return Err(ReceiveError::NotRestored { object: at.object, offset: write.offset });
        }
        Ok(())
    }

    /// Whether a block was read and has a wrong checksum.
    fn is_damaged(&self, bp: &Blkptr, at: &Bookmark) -> Result<bool, ReceiveError> {
        match self.os.cache().zio().read_perhaps(bp, at, &ReadOptions::demand()) {
            Ok(_) => Ok(false),
            Err(zio::Error::Checksum { .. }) => Ok(true),
            Err(error) => Err(ReceiveError::pool(error)),
        }
    }

    /// The stored form of a block, from the payload of its record.
    fn stored(
        &mut self,
        bp: &Blkptr,
        at: &Bookmark,
        (write, packet): (&Write, &Packet<'_>),
        kind: DmuType,
    ) -> Result<Option<Block>, ReceiveError> {
        let payload = packet.payload;
        let Some(stored) = bp.stored() else { return Ok(None) };
        let psize = stored.psize.0 as usize;
        let sent = match write.compression {
            0 => CompressKind::Off,
            kind => CompressKind::from_disk(kind).unwrap_or(CompressKind::Off),
        };
        if self.raw {
            return Ok((payload.len() == psize).then(|| Block::copy_of(payload)));
        }
        let remaker = self.os.cache().zio().remaker();
        let packed = sent == stored.compress && write.compressed_size == stored.psize.0;
        if packed && payload.len() == psize {
            let packed = Block::copy_of(payload);
            if let Some(found) = remaker.of_packed(bp, at.objset, &packed, psize) {
                return Ok(Some(found));
            }
        }
        let plain = match sent {
            CompressKind::Off => apply::native(packet.order, kind, &Block::copy_of(payload)),
            sent => apply::unpack(sent, payload, write.logical_size),
        };
        let plain = plain.map_err(|wrong| about(packet, wrong))?;
        let sent_level = (sent == CompressKind::Zstd).then(|| zstd_header(payload).ok()).flatten();
        let first = sent_level.map_or(self.level, |header| header.level);
        let all: &mut dyn Iterator<Item = ZstdLevel> = match stored.compress {
            CompressKind::Zstd => &mut (0..=u8::MAX).filter_map(ZstdLevel::from_disk),
            _ => &mut std::iter::empty(),
        };
        for level in std::iter::once(first).chain(all) {
            if let Some(found) = remaker.of_plain(bp, at.objset, level, &plain, psize) {
                self.level = level;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// What is wrong with a record.
fn about(packet: &Packet<'_>, wrong: apply::Wrong) -> ReceiveError {
    let why = match wrong {
        apply::Wrong::Record(why) => why,
        apply::Wrong::Large { .. } => "it is too large",
        apply::Wrong::Objects => "it may free objects",
        apply::Wrong::Pool(error) => return error.into(),
    };
    ReceiveError::Record { record: packet.number, at: packet.at, why }
}
