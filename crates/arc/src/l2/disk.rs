//! One cache device.

use super::index::List;
use super::write_hand::WriteHand;
use crate::tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE;
use codec::checksum::embedded::{self, Verifier};
use codec::checksum::fletcher4;
use codec::compress::{self, ZstdLevel};
use device::{AlignedBuf, Device};
use observe::Counter;
use observe::lock::{Condvar, Mutex, RwLock};
use observe::work::{self, Wait};
use ondisk::l2arc::{
    DevHeader, L2ARC_HDR_OFFSET, L2ARC_HDR_SIZE, L2ARC_LOG_BLK_MAX_ENTRIES, L2ARC_LOG_BLK_SIZE, LogBlock,
    LogEntry, LogPointer,
};
use ondisk::{Ashift, ByteOrder, CompressKind, Guid, SPA_MAXBLOCKSIZE};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vdev::{ByClass, ClassSnapshot, IoType, Priority, TreeCell};
use zio::Remaker;

/// Bytes of the labels at the end of a device, and of one label.
const LABELS_AT_END: u64 = 2 * LABEL;
const LABEL: u64 = 256 << 10;

/// A cache device of a pool (`l2arc_dev_t`).
#[derive(Clone)]
pub struct CacheDevice {
    /// The pool's guid.
    pub pool: Guid,
    /// The device's guid.
    pub guid: Guid,
    /// Its sector shift.
    pub ashift: Ashift,
    /// The device itself.
    pub device: Arc<dyn Device>,
}

/// What one cache device holds and has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheDeviceStats {
    /// Bytes for blocks.
    pub space: u64,
    /// Bytes of these in use.
    pub alloc: u64,
    /// Reads and writes.
    pub ops: [u64; 2],
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Reads and writes that failed.
    pub errors: [u64; 2],
    /// Blocks read whose checksum was wrong.
    pub checksum_errors: u64,
    /// It failed, and is not used until it is online again.
    pub failed: bool,
    /// Its operations by class and type, those that there were.
    pub classes: Vec<ClassSnapshot>,
    /// Nanoseconds since it came into use.
    pub age_ns: u64,
}

/// A device failed, or is no longer used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed;

/// A cache device in use.
pub(crate) struct Disk {
    /// The number of its pool in the store.
    pub(crate) pool: u32,
    pool_guid: AtomicU64,
    pub(crate) guid: Guid,
    ashift: Ashift,
    /// `None` once it is no longer used, so that other references to the disk do not keep it open.
    device: RwLock<Option<Arc<dyn Device>>>,
    pub(crate) remaker: Remaker,
    pub(crate) trees: TreeCell,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) list: List,
    /// Bytes in use, of blocks and of the log.
    pub(crate) alloc: AtomicU64,
    space: u64,
    /// It is no longer used.
    pub(crate) gone: AtomicBool,
    /// It failed.
    pub(crate) failed: AtomicBool,
    /// Its contents are being restored, and nothing is written meanwhile.
    rebuilding: Mutex<bool>,
    rebuilt: Condvar,
    /// It is being written to.
    pub(crate) busy: AtomicBool,
    /// The header has an old pool guid.
    stale: AtomicBool,
    by_class: ByClass,
    since: Instant,
    errors: [Counter; 2],
    pub(crate) checksum_errors: Counter,
}

/// State of the writer of a device.
pub(crate) struct Writer {
    pub(crate) write_hand: WriteHand,
    /// Entries of each log block; 0 if nothing is logged.
    pub(crate) log_entries: usize,
    /// The entries of the next log block.
    pub(crate) log: Vec<LogEntry>,
    /// The valid log blocks, the newest last.
    pub(crate) logs: VecDeque<LogPointer>,
    /// The newest log block, and the one before it, valid or not.
    pub(crate) newest: [LogPointer; 2],
    /// The header's fields about trimming.
    trim: [u64; 2],
}

impl Disk {
    /// `None` if the device is too small to hold anything.
    pub(crate) fn new(spec: CacheDevice, pool: u32, remaker: Remaker, trees: TreeCell) -> Option<Disk> {
        let sector = 1u64 << spec.ashift.0.clamp(9, 16);
        let start = L2ARC_HDR_OFFSET + sector.max(L2ARC_HDR_SIZE as u64);
        let end = (spec.device.size() / LABEL * LABEL).checked_sub(LABELS_AT_END)?;
        if end < start + SPA_MAXBLOCKSIZE {
            return None;
        }
        // Small devices are not worth a log (`l2arc_rebuild_dev`).
        let blocks = usize::try_from((end - start) / SPA_MAXBLOCKSIZE).unwrap_or(usize::MAX);
        let worth = end >= L2ARC_REBUILD_BLOCKS_MIN_L2SIZE.get();
        let writer = Writer {
            write_hand: WriteHand::new(start, end),
            log_entries: if worth { blocks.min(L2ARC_LOG_BLK_MAX_ENTRIES) } else { 0 },
            log: Vec::new(),
            logs: VecDeque::new(),
            newest: Default::default(),
            trim: [0; 2],
        };
        Some(Disk {
            pool,
            pool_guid: AtomicU64::new(spec.pool.0),
            guid: spec.guid,
            ashift: spec.ashift,
            device: RwLock::new(Some(spec.device)),
            remaker,
            trees,
            writer: Mutex::new(writer),
            list: List::default(),
            alloc: AtomicU64::new(0),
            space: end - start,
            gone: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            // Until its header has been read, nothing may overwrite what it points at.
            rebuilding: Mutex::new(true),
            rebuilt: Condvar::new(),
            busy: AtomicBool::new(false),
            stale: AtomicBool::new(false),
            by_class: ByClass::default(),
            since: Instant::now(),
            errors: Default::default(),
            checksum_errors: Counter::default(),
        })
    }

    fn pool_guid(&self) -> Guid {
        Guid(self.pool_guid.load(Ordering::Relaxed))
    }

    /// Records a new guid of its pool. The next feed writes the header, so that a change of the
    /// guid does not wait for it.
    pub(crate) fn renamed(&self, pool: Guid) {
        self.pool_guid.store(pool.0, Ordering::Relaxed);
        self.stale.store(true, Ordering::Release);
    }

    /// Whether its header has to be written even without new blocks.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.swap(false, Ordering::AcqRel)
    }

    /// Whether a block can begin at this address: all writes begin at a sector.
    pub(crate) fn is_aligned(&self, daddr: u64) -> bool {
        daddr.is_multiple_of(self.sector())
    }

    fn sector(&self) -> u64 {
        1 << self.ashift.0.clamp(9, 16)
    }

    /// Bytes in whole sectors.
    pub(crate) fn round(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.sector())
    }

    /// Whether it can be read.
    pub(crate) fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && !self.failed.load(Ordering::Acquire)
    }

    /// Whether it can be written.
    pub(crate) fn takes_blocks(&self) -> bool {
        self.is_there() && !self.is_rebuilding()
    }

    /// Whether its contents are being restored.
    fn is_rebuilding(&self) -> bool {
        *self.rebuilding.lock()
    }

    pub(crate) fn end_rebuild(&self) {
        *self.rebuilding.lock() = false;
        self.rebuilt.notify_all();
    }

    /// Waits until its contents have been restored, or can't be.
    pub(crate) fn await_rebuilt(&self) {
        let mut rebuilding = self.rebuilding.lock();
        while *rebuilding {
            self.rebuilt.wait(&mut rebuilding);
        }
    }

    /// Releases the device. Writes have ended.
    pub(crate) fn close(&self) {
        *self.device.write() = None;
    }

    fn device(&self) -> Result<Arc<dyn Device>, Failed> {
        self.device.read().clone().ok_or(Failed)
    }

    fn note(&self, write: usize, result: device::Result<()>) -> Result<(), Failed> {
        result.map_err(|_| {
            self.errors[write].inc();
            Failed
        })
    }

    /// Reads bytes, in whole sectors.
    pub(crate) fn read(&self, daddr: u64, len: u64, class: Priority) -> Result<AlignedBuf, Failed> {
        let mut buf = AlignedBuf::zeroed(self.round(len) as usize);
        let (device, bytes) = (self.device()?, buf.len() as u64);
        let _waiting = work::wait(Wait::Read, self.guid.0);
        let read = || device.read_at(&mut buf, daddr);
        self.note(0, self.by_class.count((class, IoType::Read), bytes, false, read))?;
        buf.truncate(len as usize);
        Ok(buf)
    }

    /// Writes bytes that fill whole sectors, one after the other.
    pub(crate) fn write(&self, bufs: &[&[u8]], daddr: u64) -> Result<(), Failed> {
        let (device, bytes) = (self.device()?, bufs.iter().map(|b| b.len() as u64).sum());
        let _waiting = work::wait(Wait::Write, self.guid.0);
        let write = || device.write_vectored_at(bufs, daddr);
        // No caller waits for it.
        let class = (Priority::AsyncWrite, IoType::Write);
        self.note(1, self.by_class.count(class, bytes, bufs.len() > 1, write))
    }

    /// Handles a failed write: if the device can't be read either, it is no longer used.
    pub(crate) fn suspect(&self) {
        if self.read(L2ARC_HDR_OFFSET, self.sector(), Priority::SyncRead).is_err() {
            self.failed.store(true, Ordering::Release);
        }
    }

    /// Reads the header, if its checksum matches and it is this device's.
    pub(crate) fn read_header(&self) -> HeaderRead {
        let Ok(raw) = self.read(L2ARC_HDR_OFFSET, self.sector(), Priority::SyncRead) else {
            return HeaderRead::Unread;
        };
        if embedded::verify(&Verifier::Label { offset: L2ARC_HDR_OFFSET }, &raw, false).is_err() {
            return HeaderRead::Unread;
        }
        let Ok(header) = DevHeader::decode(&raw) else { return HeaderRead::Unsupported };
        let writer = self.writer.lock();
        let same = header.pool == self.pool_guid()
            && header.vdev == self.guid
            && header.log_entries == writer.log_entries as u64
            && header.end == writer.write_hand.end
            && (writer.write_hand.start..=writer.write_hand.end).contains(&header.evict);
        if same { HeaderRead::Ours(Box::new(header)) } else { HeaderRead::Unsupported }
    }

    /// Writes the header.
    pub(crate) fn write_header(&self, writer: &Writer) -> Result<(), Failed> {
        let header = DevHeader {
            pool: self.pool_guid(),
            vdev: self.guid,
            log_entries: writer.log_entries as u64,
            evict: writer.write_hand.evict,
            first: writer.write_hand.first,
            start: writer.write_hand.start,
            end: writer.write_hand.end,
            newest: writer.newest,
            log_asize: writer.logs.iter().map(|l| l.asize).sum(),
            log_count: writer.logs.len() as u64,
            trim: writer.trim,
        };
        let mut sector = AlignedBuf::zeroed(self.sector() as usize);
        sector[..L2ARC_HDR_SIZE].copy_from_slice(&header.encode());
        let sealed = embedded::seal(&Verifier::Label { offset: L2ARC_HDR_OFFSET }, &mut sector, None);
        sealed.expect("a sector has room for the trailer");
        self.write(&[&sector], L2ARC_HDR_OFFSET)
    }

    /// Continues from the writer's state in a header.
    pub(crate) fn resume(&self, writer: &mut Writer, header: &DevHeader) -> bool {
        let newest = &header.newest[0];
        let logged = newest.daddr.saturating_add(newest.asize).max(writer.write_hand.start);
        let Some(write_hand) = writer.write_hand.resumed(logged, header.evict, header.first) else {
            return false;
        };
        (writer.write_hand, writer.newest, writer.trim) = (write_hand, header.newest, header.trim);
        true
    }

    /// Reads a log block, verified and decompressed. `Err(true)` if it could not be read,
    /// `Err(false)` if the contents do not match the pointer.
    pub(crate) fn read_log(&self, log: &LogPointer, log_entries: usize) -> Result<LogBlock, bool> {
        let raw = self.read(log.daddr, log.asize, Priority::AsyncRead).map_err(|_| true)?;
        if fletcher4(ByteOrder::Little, &raw).0 != log.sum && fletcher4(ByteOrder::Big, &raw).0 != log.sum {
            return Err(false);
        }
        let mut out = vec![0; L2ARC_LOG_BLK_SIZE];
        let kind = if log.packed { CompressKind::Lz4 } else { CompressKind::Off };
        compress::decompress(kind, &raw, &mut out).map_err(|_| false)?;
        LogBlock::decode(&out, log_entries as u64).map_err(|_| false)
    }

    /// Writes the full log block at the hand (`l2arc_log_blk_commit`); returns its size there.
    pub(crate) fn commit_log(&self, writer: &mut Writer) -> Result<u64, Failed> {
        let entries = std::mem::take(&mut writer.log);
        let payload_start = entries.first().map_or(writer.write_hand.hand, |e| e.daddr);
        let payload_asize = entries.iter().map(|e| self.round(e.psize.0)).sum();
        let plain = LogBlock { prev: writer.newest[1], entries }.encode();
        let mut scratch = vec![0; L2ARC_LOG_BLK_SIZE];
        let packed = compress::compress(CompressKind::Lz4, ZstdLevel::default(), &plain, &mut scratch)
            .map(|len| (len, self.round(len as u64) as usize))
            .filter(|(_, asize)| *asize < L2ARC_LOG_BLK_SIZE);
        let bytes = match packed {
            Some((len, asize)) => AlignedBuf::padded(&scratch[..len], asize),
            None => AlignedBuf::copy_of(&plain),
        };
        let pointer = LogPointer {
            daddr: writer.write_hand.hand,
            payload_asize,
            payload_start,
            asize: bytes.len() as u64,
            packed: packed.is_some(),
            sum: fletcher4(ByteOrder::Little, &bytes).0,
        };
        writer.write_hand.hand += pointer.asize;
        self.write(&[&bytes], pointer.daddr)?;
        writer.newest = [pointer, writer.newest[0]];
        writer.logs.push_back(pointer);
        self.alloc.fetch_add(pointer.asize, Ordering::Relaxed);
        Ok(pointer.asize)
    }

    /// Drops the log blocks that were given up, or of which some entries were.
    pub(crate) fn drop_logs(&self, writer: &mut Writer) -> u64 {
        let mut gone = 0;
        while let Some(oldest) = writer.logs.front().filter(|l| !writer.write_hand.valid(l)) {
            gone += oldest.asize;
            self.alloc.fetch_sub(oldest.asize, Ordering::Relaxed);
            writer.logs.pop_front();
        }
        gone
    }

    pub(crate) fn stats(&self) -> CacheDeviceStats {
        let done = [IoType::Read, IoType::Write].map(|io| self.by_class.done(io));
        CacheDeviceStats {
            space: self.space,
            alloc: self.alloc.load(Ordering::Relaxed),
            ops: done.map(|(ops, _)| ops),
            bytes: done.map(|(_, bytes)| bytes),
            errors: [0, 1].map(|n| self.errors[n].get()),
            checksum_errors: self.checksum_errors.get(),
            failed: self.failed.load(Ordering::Relaxed),
            classes: self.by_class.snapshot(),
            age_ns: u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// The outcome of reading a header.
pub(crate) enum HeaderRead {
    Ours(Box<DevHeader>),
    /// It belongs to another device, or has another layout.
    Unsupported,
    /// There is none.
    Unread,
}
