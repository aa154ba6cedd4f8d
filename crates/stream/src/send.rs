//! Sending: the records that describe a snapshot, whole or since another one.
//!
//! # Theory
//! Three stages work at the same time:
//!
//! | stage | module | threads | work |
//! |---|---|---|---|
//! | walk | `walk` | 1 | finds what changed since the origin, in the order of objects and offsets |
//! | read | `read_ahead` | [`READERS`] | reads the blocks of changes |
//! | write | `records` | the caller's | turns changes into records |
//!
//! A block that the cache has is taken from there. Others are read past the cache, since a send
//! uses each once. Blocks that travel as they are stored keep the checksum that the read verified:
//! a stream's checksum is Fletcher-4, and so is that of most blocks, so their bytes are not summed
//! again.
//!
//! # See
//! OpenZFS `dmu_send.c`.

mod lost;
mod read_ahead;
mod records;
mod redact;
pub(crate) mod walk;

use std::io::{self, Write};

use codec::Checksum;
use device::Block;
use dmu::{Dnode, Objset};
use dsl::prop::Value;
use dsl::redact::RedactionList;
use dsl::{Dataset, Partial, Prop};
use observe::{Tunable, Unit};
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::bookmark::BookmarkPhys;
use ondisk::feature::Feature;
use ondisk::nvlist::{self, Nvlist};
use ondisk::objset::ObjsetKind;
use ondisk::replay::{BACKUP_MAGIC, Begin, RECORD_SIZE, features, flags};
use ondisk::{BlkId, Blkptr, ByteOrder, ChecksumKind, CompressKind, Level, ObjNum, SPA_MAXBLOCKSIZE, Txg};
use zio::Bookmark;

use crate::Writer;
pub use lost::{Lost, LostPart};
use read_ahead::Queue;
use records::{OLD_MAX_BLOCK, Payload, Records, embeds, sends_compressed};
use redact::{Lists, Merge};
use walk::{Change, Start, Walk};

/// Threads that read blocks for one stream.
const READERS: usize = 8;
/// The words of a block that can't be read (`zfs_send_corrupt_data`): "zfs badd bloc".
const BAD_BLOCK: u64 = 0x2f5_badd_b10c;

/// Bytes of blocks that may be read ahead of a stream (`zfs_send_queue_length`).
pub static SEND_QUEUE_LENGTH: Tunable = Tunable::new(
    "zfs_send_queue_length",
    16 << 20,
    1 << 20..=1 << 30,
    Unit::Bytes,
    "blocks that are read ahead of a send stream",
);
/// Whether a block that can't be read ends a stream (`zfs_send_corrupt_data`).
pub static SEND_CORRUPT_DATA: Tunable = Tunable::new(
    "zfs_send_corrupt_data",
    0,
    0..=1,
    Unit::Flag,
    "1: send a pattern in place of blocks that can't be read",
);
/// The block size that estimates of a stream's size assume (`zfs_override_estimate_recordsize`).
pub static ESTIMATE_RECORDSIZE: Tunable = Tunable::new(
    "zfs_override_estimate_recordsize",
    0,
    0..=1 << 24,
    Unit::Bytes,
    "block size that estimates of send streams assume; 0: the dataset's",
);

/// All tunables of streams.
pub const TUNABLES: &[&Tunable] = &[&SEND_QUEUE_LENGTH, &SEND_CORRUPT_DATA, &ESTIMATE_RECORDSIZE];

/// The forms that blocks may have in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forms {
    /// Blocks may be larger than 128 KiB (`-L`).
    pub large_blocks: bool,
    /// Small blocks may be embedded as in the pool (`-e`).
    pub embedded: bool,
    /// Blocks are compressed as in the pool (`-c`).
    pub compressed: bool,
    /// Blocks are encrypted as in the pool, and no key is needed (`-w`). For a dataset that is not
    /// encrypted, all the others.
    pub raw: bool,
}

/// What a stream is to contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// What it builds on. Without an origin, it has everything.
    pub origin: Option<Origin>,
    /// The forms that blocks may have.
    pub forms: Forms,
    /// Where it continues an interrupted stream (`-t`).
    pub resume: Option<Resume>,
    /// The redaction list of the blocks that it leaves out (`--redact`).
    pub redact: Option<ObjNum>,
    /// It has what an interrupted receive has left in the dataset, and no END (`--saved`).
    pub saved: bool,
    /// It names only the objects that differ from those of the origin, if that is a snapshot. A
    /// stream has all others too that share a block of dnodes with these, as OpenZFS sends them.
    /// Every receiver takes both. Raw streams have whole blocks of dnodes in any case.
    pub only_differing: bool,
}

/// Where a stream continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The object.
    pub object: ObjNum,
    /// The offset in the object, in bytes.
    pub offset: u64,
    /// Bytes that were received before, which its estimated size lacks.
    pub bytes: u64,
}

/// What a stream builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The snapshot, as a bookmark.
    mark: BookmarkPhys,
    /// Whether it is a snapshot of another dataset, so that the stream creates a clone.
    clone: bool,
    /// The object of the snapshot. `None`: it is a bookmark.
    snapshot: Option<ObjNum>,
    /// The snapshot is redacted.
    is_redacted: bool,
}

impl Origin {
    /// A snapshot in the past of `dataset`.
    ///
    /// # Errors
    /// * [`SendError::NotEarlier`]: it is not in its past.
    /// * [`SendError::Dataset`]: an origin can't be read.
    pub fn of_snapshot(dataset: &Dataset, snapshot: &Dataset) -> Result<Self, SendError> {
        let ivset_guid = snapshot.field_u64(ondisk::mos::DS_IVSET_GUID)?.unwrap_or(0);
        let (is_redacted, snapshot_object) = (snapshot.redacted_for()?.is_some(), Some(snapshot.object()));
        let mark = BookmarkPhys { ivset_guid, ..snapshot.as_bookmark() };
        Ok(Self { is_redacted, snapshot: snapshot_object, ..Self::at(dataset, snapshot, mark)? })
    }

    /// A bookmark of the head `of`. A redaction bookmark may be one of `dataset` itself: the stream
    /// has what a redacted one has left out.
    ///
    /// # Errors
    /// Those of [`Origin::of_snapshot`].
    pub fn of_bookmark(dataset: &Dataset, of: &Dataset, bookmark: &BookmarkPhys) -> Result<Self, SendError> {
        Self::at(dataset, of, *bookmark)
    }

    /// When it was made.
    pub fn txg(&self) -> Txg {
        Txg(self.mark.creation_txg)
    }

    /// The object of the redaction list that the bookmark has.
    pub fn redaction_list(&self) -> Option<ObjNum> {
        Some(ObjNum(self.mark.redaction_obj)).filter(|object| object.0 != 0)
    }

    fn at(dataset: &Dataset, of: &Dataset, mark: BookmarkPhys) -> Result<Self, SendError> {
        let itself = mark.redaction_obj != 0 && mark.guid == dataset.phys().guid;
        if !itself && !dataset.is_after_txg(of, Txg(mark.creation_txg))? {
            return Err(SendError::NotEarlier);
        }
        Ok(Self {
            mark,
            clone: dataset.dir().object() != of.dir().object(),
            snapshot: None,
            is_redacted: false,
        })
    }
}

/// Why a snapshot was not sent, or not whole.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The dataset can't be read, or its key is not loaded.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// The origin is not in the past of what is sent (`EXDEV`).
    #[error("not an earlier snapshot from the same fs")]
    NotEarlier,
    /// A redaction list is not complete (`EINVAL`).
    #[error("incomplete redaction bookmark provided")]
    Incomplete,
    /// No interrupted receive has left anything (`EINVAL`).
    #[error("{0} has no partially received state")]
    NotPartial(String),
    /// The dataset is encrypted in a way that no raw stream has (errata 3 and 4).
    #[error("it was encrypted by an old version, in a form that raw streams can't have")]
    OldKeys,
    /// It has no contents.
    #[error("{0} has no contents")]
    Empty(String),
    /// It has micro ZAPs above 128 KiB, which streams have only with `-L`
    /// (`ZFS_ERR_STREAM_LARGE_MICROZAP`).
    #[error(
        "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to generate stream"
    )]
    LargeMicrozap,
    /// Metadata of the snapshot can't be read.
    #[error(transparent)]
    Walk(dmu::Error),
    /// A block can't be read.
    #[error("object {object}, offset {offset}")]
    Block {
        /// The object.
        object: ObjNum,
        /// Where the block begins in the object, in bytes.
        offset: u64,
        /// Why.
        source: zio::Error,
    },
    /// The stream can't be written.
    #[error("the stream can't be written")]
    Write(#[source] io::Error),
}

/// Writes the stream of a snapshot, or of a head that does not change meanwhile (`dmu_send`).
///
/// # Errors
/// The stream ends where the error occurs, without an END.
///
/// * [`SendError::Dataset`]: the dataset can't be opened; for an encrypted one, perhaps for want of
///   its key.
/// * [`SendError::Incomplete`]: a redaction list is not complete.
/// * [`SendError::NotPartial`]: with [`Options::saved`], there is no such state.
/// * [`SendError::OldKeys`]: with [`Forms::raw`], its keys are of an old version.
/// * [`SendError::Empty`]: it is the head of a dataset without contents.
/// * [`SendError::LargeMicrozap`]: [`Forms::large_blocks`] is needed.
/// * [`SendError::Walk`]: metadata can't be read or are corrupt.
/// * [`SendError::Block`]: a block can't be read, and [`SEND_CORRUPT_DATA`] is 0, or the stream is
///   raw.
/// * [`SendError::Write`]: the error of the sink.
pub fn send<W: Write>(dataset: &Dataset, options: &Options, sink: W) -> Result<(), SendError> {
    stream(dataset, options, sink, Special::default())
}

/// Writes the stream of a damaged snapshot, without what can't be read ([`LostPart`]). Lost bytes
/// of a file are a hole in the stream. `lost` gets each part.
///
/// In a raw stream nothing can be left out: the contents of an object are authenticated as a whole.
///
/// # Errors
/// Those of [`send`]. For streams that are not raw, [`SendError::Block`] does not occur, and
/// [`SendError::Walk`] only if the walk goes in circles.
pub fn send_readable<W: Write>(
    dataset: &Dataset,
    options: &Options,
    sink: W,
    lost: &mut dyn FnMut(&Lost),
) -> Result<(), SendError> {
    let lost: Listener<'_> = if options.forms.raw { None } else { Some(lost) };
    stream(dataset, options, sink, Special { lost, ..Special::default() })
}

/// Gets what is left out, if anything may be.
type Listener<'a> = Option<&'a mut dyn FnMut(&Lost)>;

/// How a stream differs from that of [`send`].
#[derive(Default)]
struct Special<'a> {
    /// Stands for the content of each block, if only sizes count.
    zeros: Option<&'a Block>,
    /// What can't be read is left out, and reported here.
    lost: Listener<'a>,
}

fn stream<W: Write>(
    dataset: &Dataset,
    options: &Options,
    sink: W,
    special: Special<'_>,
) -> Result<(), SendError> {
    let Special { zeros, lost } = special;
    let os = dataset.objset()?.ok_or_else(|| SendError::Empty(dataset.name()))?;
    // A receive that was interrupted before the first object begins anew.
    let begun = options.resume.filter(|resume| (resume.object.0, resume.offset) != (0, 0));
    let options = &Options { resume: begun, ..*options };
    let origin = options.origin.as_ref();
    let features = features_of(dataset, &os, options)?;
    let partial = match options.saved {
        true => Some(dataset.partial()?.ok_or_else(|| SendError::NotPartial(dataset.name()))?),
        false => None,
    };
    let begin = begin(dataset, &os, (origin, partial), features);
    let lists = Lists::open(dataset, options)?;
    let list = list(dataset, options, features, &lists)?;
    let start = start(&os, options.resume)?;
    let mut writer = Writer::new(sink, ByteOrder::Little);
    writer.begin(&begin, &list).map_err(SendError::Write)?;
    let meta = os.phys().meta_dnode.clone();
    let slots = (u64::from(meta.datablksz) >> ondisk::dnode::DNODE_SHIFT).max(1);
    let mut records = Records {
        writer: &mut writer,
        to_guid: begin.to_guid,
        features,
        since: Txg(origin.map_or(0, |o| o.mark.creation_txg)),
        objects: meta.maxblkid.0.saturating_add(1).saturating_mul(slots),
        held: None,
    };
    let before = dnodes_before(dataset, options);
    body(&Blocks { os: &os, features, zeros, lists, before }, start, (&mut records, lost))?;
    records.flush().map_err(SendError::Write)?;
    // Without an END, the receiver knows that the snapshot is not whole.
    if options.saved { Ok(()) } else { writer.end(begin.to_guid).map_err(SendError::Write) }
}

/// The dnodes of the origin, with [`Options::only_differing`], if they can be read.
fn dnodes_before(dataset: &Dataset, options: &Options) -> Option<Dnode> {
    let origin = options.origin.filter(|_| options.only_differing && !options.forms.raw);
    // A receiver has less of a redacted one.
    let snapshot = origin.filter(|origin| !origin.is_redacted).and_then(|origin| origin.snapshot);
    let (origin, snapshot) = origin.zip(snapshot)?;
    let dnodes = || {
        let snapshot = dataset.dsl().by_object(snapshot)?;
        // It may be gone, and its number be another's.
        let is_it = snapshot.phys().guid == origin.mark.guid;
        let os = if is_it { snapshot.objset()? } else { None };
        Ok::<_, dsl::Error>(os.map(|os| os.meta_dnode()))
    };
    // Without them, all objects are named that share a block of dnodes with a change.
    dnodes().ok().flatten()
}

/// About how many bytes a stream will have (`dmu_send_estimate_fast`).
///
/// It follows from the space that was written since the origin, as if all blocks had the dataset's
/// block size. Without that figure, and with redaction lists, the block tree is walked. Then the
/// size is exact.
///
/// # Errors
/// Those of [`send`], except for blocks of data.
pub fn estimate(dataset: &Dataset, options: &Options) -> Result<u64, SendError> {
    let phys = dataset.phys();
    let written = match &options.origin {
        _ if options.redact.is_some() => None,
        Some(origin) if origin.redaction_list().is_some() => None,
        None => Some((phys.compressed_bytes, phys.uncompressed_bytes)),
        Some(origin) => dataset.written_since(&origin.mark)?.map(|s| (s.comp, s.uncomp)),
    };
    let Some((compressed, uncompressed)) = written else {
        let mut size = Counter(0);
        let zeros = Block::zeroed(SPA_MAXBLOCKSIZE as usize);
        stream(dataset, options, &mut size, Special { zeros: Some(&zeros), lost: None })?;
        return Ok(size.0);
    };
    let forms = options.forms;
    let block_size = match ESTIMATE_RECORDSIZE.get() {
        0 => block_size(dataset)?.max(1),
        size => size,
    };
    let blocks = uncompressed / block_size;
    let data = if forms.compressed || forms.raw { compressed } else { uncompressed };
    let records = RECORD_SIZE as u64;
    Ok(data
        .saturating_sub(blocks.saturating_mul(BLKPTR_SIZE as u64))
        .saturating_add(blocks.saturating_add(2).saturating_mul(records))
        .saturating_sub(options.resume.map_or(0, |resume| resume.bytes)))
}

/// The size that most blocks of a dataset have: `recordsize` or `volblocksize`.
fn block_size(dataset: &Dataset) -> Result<u64, SendError> {
    if let Some((_, size)) = dataset.volume()? {
        return Ok(size);
    }
    let recordsize = Prop::by_name("recordsize").expect("it is in the table");
    // A snapshot has the property only through its head.
    let head = dataset.dir().head()?;
    match head.map(|head| head.property(recordsize)).transpose()?.flatten().map(|p| p.value) {
        Some(Value::Number(size)) => Ok(size),
        _ => Ok(OLD_MAX_BLOCK.into()),
    }
}

/// Counts what is written to it.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the records between BEGIN and END.
fn body<W: Write>(
    blocks: &Blocks<'_>,
    start: Start,
    (records, lost): (&mut Records<'_, W>, Listener<'_>),
) -> Result<(), SendError> {
    let queue = Queue::new(SEND_QUEUE_LENGTH.get() as usize);
    let (os, since, skips) = (blocks.os, records.since, lost.is_some());
    let walk = || {
        let mut out = |change: Change| {
            let needs_block = blocks.reads(&change);
            queue.push(change, needs_block)
        };
        let mut merge = match Merge::new(os, since, &blocks.lists, start, &mut out) {
            Ok(merge) => merge,
            Err(error) => return queue.end(Err(Some(error))),
        };
        let mut emit = |change: Change| merge.change(change);
        let done = Walk {
            cache: os.cache(),
            objset: os.id(),
            since,
            start,
            raw: blocks.features & features::RAW != 0,
            behind: false,
            before: blocks.before.as_ref(),
            options: os.options().clone(),
            skips,
            steps: os.cache().zio().walk_limit(),
            emit: &mut emit,
        }
        .run(&os.phys().meta_dnode);
        queue.end(merge.end(done));
    };
    let read = || queue.serve(|change| blocks.read(change));
    std::thread::scope(|scope| {
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let mut begun = thread("send-walk").spawn_scoped(scope, walk).map(drop);
        for n in 0..READERS {
            let reader = thread("send-read").spawn_scoped(scope, read).map(drop);
            // Fewer threads do the same work, only slower.
            if n == 0 {
                begun = begun.and(reader);
            }
        }
        let written = begun.map_err(SendError::Write).and_then(|()| write_all(&queue, records, lost));
        queue.cancel();
        written
    })
}

/// Writes the records of all changes. What can't be read is reported to `lost` and left out.
fn write_all<W: Write>(
    queue: &Queue,
    records: &mut Records<'_, W>,
    mut lost: Listener<'_>,
) -> Result<(), SendError> {
    let (features, increment) = (records.features, records.since > Txg(0));
    // Of this object the stream has no more.
    let mut left_out = None;
    loop {
        let batch = queue.next().map_err(SendError::Walk)?;
        if batch.is_empty() {
            return Ok(());
        }
        for (change, block) in batch {
            if left_out.is_some() && left_out == object_of(&change) {
                continue;
            }
            let found = match (change, block) {
                (Change::Lost(found), _) => Err(*found),
                (change, Some(Err(why))) if lost.is_some() => Err(Lost::block_of(&change, why)),
                sound => Ok(sound),
            };
            let (change, block) = match found {
                Ok(sound) => sound,
                Err(found) => {
                    if let Some(lost) = &mut lost {
                        lost(&found);
                    }
                    if let LostPart::Object { object } = found.part {
                        left_out = Some(object);
                    }
                    if let Some(instead) = found.instead(increment) {
                        records.change(&instead, None).map_err(SendError::Write)?;
                    }
                    continue;
                }
            };
            let payload = block.map(|block| block.or_else(|e| stand_in(&change, features, e))).transpose()?;
            records.change(&change, payload.as_ref()).map_err(SendError::Write)?;
        }
    }
}

/// The object whose contents a change describes.
fn object_of(change: &Change) -> Option<ObjNum> {
    match change {
        Change::Hole { object, .. }
        | Change::Redacted { object, .. }
        | Change::Data { object, .. }
        | Change::Spill { object, .. } => Some(*object),
        Change::Lost(lost) => match lost.part {
            LostPart::Bytes { object, .. } | LostPart::Object { object } | LostPart::Spill { object } => {
                Some(object)
            }
            LostPart::Objects { .. } => None,
        },
        Change::Dnodes { .. } | Change::Object { .. } | Change::NoObjects { .. } => None,
    }
}

/// What is sent in place of a block that can't be read. Nothing can stand for an encrypted block.
fn stand_in(change: &Change, features: u64, source: zio::Error) -> Result<Payload, SendError> {
    let (object, offset, size) = match change {
        Change::Data { object, blkid, size, .. } => {
            (*object, blkid.0.saturating_mul((*size).into()), *size as usize)
        }
        Change::Spill { object, bp } => (*object, 0, bp.lsize.0 as usize),
        _ => unreachable!("only these have blocks"),
    };
    if SEND_CORRUPT_DATA.get() == 0 || features & features::RAW != 0 {
        return Err(SendError::Block { object, offset, source });
    }
    let bytes: Vec<u8> = BAD_BLOCK.to_le_bytes().into_iter().cycle().take(size).collect();
    Ok(Payload { stands_in: true, ..Payload::whole(Block::copy_of(&bytes), None) })
}

/// Reads blocks in the form that the stream has them.
struct Blocks<'a> {
    os: &'a Objset,
    features: u64,
    /// Stands for the content of each block, if only sizes count.
    zeros: Option<&'a Block>,
    lists: Lists,
    /// The dnodes of the origin, if objects that are as there are left out.
    before: Option<Dnode>,
}

impl Blocks<'_> {
    /// Whether the record of a change has the content of a block.
    fn reads(&self, change: &Change) -> bool {
        match change {
            Change::Data { bp, .. } => embeds(bp, self.features).is_none(),
            Change::Spill { .. } => true,
            _ => false,
        }
    }

    fn read(&self, change: &Change) -> zio::Result<Payload> {
        let (object, blkid, bp, compressed) = match change {
            Change::Data { object, blkid, size, bp, .. } => {
                (*object, *blkid, bp, sends_compressed(bp, *size, self.features))
            }
            Change::Spill { object, bp } => (*object, dmu::SPILL_BLKID, bp, false),
            _ => unreachable!("only these have blocks"),
        };
        let at = Bookmark { objset: self.os.id(), object, level: Level(0), blkid };
        let (cache, options) = (self.os.cache(), self.os.options());
        let zio = cache.zio();
        let raw = self.features & features::RAW != 0;
        if let Some(zeros) = self.zeros {
            let sent = if compressed || raw { bp.stored().map_or(0, |s| s.psize.0) } else { bp.lsize.0 };
            let whole = Payload::whole(zeros.clone(), Some(Checksum::default()));
            return Ok(Payload { len: sent as usize, ..whole });
        }
        if raw {
            return Ok(Payload::whole(zio.read_raw(bp, &at, options)?, None));
        }
        let block = match compressed {
            // What was decrypted and is still compressed.
            true if bp.is_encrypted() => {
                let opened = zio.read_packed(bp, &at, options)?;
                return Ok(Payload::whole(opened.packed.unwrap_or_else(|| opened.block.whole()), None));
            }
            true => zio.read_raw(bp, &at, options)?,
            false if cache.holds(bp, at.objset) => cache.read(bp, &at, options)?,
            false => zio.read(bp, &at, options)?,
        };
        let as_stored = compressed || is_stored_plain(bp);
        Ok(Payload::whole(block, if as_stored { stored_sum(bp) } else { None }))
    }
}

/// Whether a block's contents are what its devices hold.
fn is_stored_plain(bp: &Blkptr) -> bool {
    bp.stored().is_some_and(|s| s.compress == CompressKind::Off) && bp.order == ByteOrder::Little
}

/// Fletcher-4 of a block's stored bytes, if its pointer has that.
fn stored_sum(bp: &Blkptr) -> Option<Checksum> {
    let stored = bp.stored()?;
    // Half of an encrypted or authenticated block's checksum is its MAC.
    let ok = stored.checksum == ChecksumKind::Fletcher4 && !stored.crypt && !bp.is_gang();
    ok.then_some(Checksum(stored.sum))
}

/// The features of a stream (`setup_featureflags`).
fn features_of(dataset: &Dataset, os: &Objset, options: &Options) -> Result<u64, SendError> {
    let forms = options.forms;
    let uses = |name: &str| -> Result<bool, SendError> {
        let feature = Feature::by_name(name).expect("the name is in the table");
        Ok(dataset.field(feature.guid)?.is_some())
    };
    let pool_uses = |name: &str| -> Result<bool, SendError> {
        let feature = Feature::by_name(name).expect("the name is in the table");
        match dataset.dsl().mos().feature_refcount(feature) {
            // Pools of the old versions have no features.
            Err(pool::Error::Missing { .. }) => Ok(false),
            users => Ok(users.map_err(dsl::Error::from)?.is_some_and(|n| n > 0)),
        }
    };
    let encrypted = dataset.dir().encryption_root()?.is_some();
    let forms = match forms.raw {
        true => Forms { large_blocks: true, embedded: true, compressed: true, raw: true },
        false => forms,
    };
    let mut out = 0;
    let mut set = |on: bool, feature: u64| out |= if on { feature } else { 0 };
    let sa = os.kind() == ObjsetKind::Zfs && dataset.master_node("VERSION")?.is_some_and(|v| v >= 5);
    set(sa, features::SA_SPILL);
    let large = forms.large_blocks && uses("large_blocks")?;
    set(large, features::LARGE_BLOCKS);
    let embedded = forms.embedded && !encrypted && pool_uses("embedded_data")?;
    set(embedded, features::EMBED_DATA);
    set(forms.compressed, features::COMPRESSED);
    set(forms.raw && encrypted, features::RAW);
    set((embedded || forms.compressed) && pool_uses("lz4_compress")?, features::LZ4);
    set(forms.compressed && uses("zstd_compress")?, features::ZSTD);
    set(options.resume.is_some(), features::RESUMING);
    set(options.redact.is_some(), features::REDACTED);
    set(uses("large_dnode")?, features::LARGE_DNODE);
    set(uses("longname")?, features::LONGNAME);
    let microzap = uses("large_microzap")?;
    set(microzap, features::LARGE_MICROZAP);
    if microzap && !large {
        return Err(SendError::LargeMicrozap);
    }
    Ok(out)
}

/// What follows the record that begins a stream, packed: for which snapshots it and its origin are
/// redacted, where it continues, and the keys of a raw stream.
fn list(dataset: &Dataset, options: &Options, features: u64, lists: &Lists) -> Result<Vec<u8>, SendError> {
    let mut list = Nvlist::new();
    let snaps = |list: &Option<RedactionList>| list.as_ref().map(|list| list.snaps().to_vec());
    let redacted = match snaps(&lists.redact) {
        None => dataset.redacted_for()?,
        snaps => snaps,
    };
    let redacted_origin = options.origin.filter(|origin| origin.is_redacted);
    let of_origin = match redacted_origin.and_then(|origin| origin.snapshot) {
        Some(origin) => dataset.dsl().by_object(origin)?.redacted_for()?,
        None => snaps(&lists.earlier),
    };
    for (name, snaps) in [("redact_snaps", redacted), ("redact_from_snaps", of_origin)] {
        if let Some(snaps) = snaps {
            list.set(name, nvlist::Value::Uint64Array(snaps));
        }
    }
    if let Some(resume) = options.resume {
        list.set("resume_object", nvlist::Value::Uint64(resume.object.0));
        list.set("resume_offset", nvlist::Value::Uint64(resume.offset));
    }
    if features & features::RAW != 0 {
        let vectors = options.origin.map_or(0, |origin| origin.mark.ivset_guid);
        let keys = dataset.raw_keys(vectors)?.ok_or(SendError::OldKeys)?;
        list.set("crypt_keydata", nvlist::Value::List(keys));
    }
    Ok(if list.is_empty() { Vec::new() } else { list.encode_native() })
}

/// Where the walk begins.
fn start(os: &Objset, resume: Option<Resume>) -> Result<Start, SendError> {
    let Some(resume) = resume else { return Ok(Start::default()) };
    let object = os.dnode_undecrypted(resume.object).map_err(SendError::Walk)?;
    Ok(Start { object: resume.object, blkid: BlkId(resume.offset / object.block_size().max(1)) })
}

/// The record that begins a stream (`create_begin_record`).
fn begin(
    dataset: &Dataset,
    os: &Objset,
    (origin, partial): (Option<&Origin>, Option<Partial>),
    features: u64,
) -> Begin {
    /// The header type of one stream (`DMU_SUBSTREAM`).
    const SUBSTREAM: u64 = 1;
    let phys = dataset.phys();
    let mut bits = flags::FREERECORDS | flags::SPILL_BLOCK;
    if origin.is_some_and(|o| o.clone) {
        bits |= flags::CLONE;
    }
    if phys.flags & ondisk::dsl::DS_FLAG_CI_DATASET != 0 {
        bits |= flags::CI_DATA;
    }
    let (to_guid, name) = match partial {
        Some(Partial { guid, name }) => (guid, name),
        None if dataset.is_snapshot() => (phys.guid, dataset.name()),
        None => (phys.guid, dataset.name() + "@--head--"),
    };
    let mut to_name = [0; 256];
    // The last byte stays 0.
    let fits = name.len().min(to_name.len() - 1);
    to_name[..fits].copy_from_slice(&name.as_bytes()[..fits]);
    Begin {
        magic: BACKUP_MAGIC,
        version_info: features << Begin::FEATURES_SHIFT | SUBSTREAM,
        creation_time: phys.creation_time,
        objset_type: match os.kind() {
            ObjsetKind::None => 0,
            ObjsetKind::Meta => 1,
            ObjsetKind::Zfs => 2,
            ObjsetKind::Zvol => 3,
            ObjsetKind::Other => 4,
        },
        flags: bits,
        to_guid,
        from_guid: origin.map_or(0, |o| o.mark.guid),
        to_name,
    }
}

#[cfg(test)]
mod tests;
