//! The slice of a rebuild before a txg: copying, in the order of the vdev's space.
//!
//! # Theory
//! One thread closes stretches to other writes, and reads them. Another writes them to the devices
//! that lack them, and opens them again. So the devices that are read and those that are written
//! work at the same time, each from one end to the other. Both take several stretches together, so
//! that all devices of a stretch work at once. A stretch of a dRAID is skipped if it lies on no
//! device that lacks anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use device::Block;
use ondisk::scan::RebuildPhys;
use ondisk::{Guid, Txg, VdevId};
use vdev::{ClosedRange, Priority, Request, StretchError};

use crate::scan::Scans;
use crate::scan::rebuild::{End, REBUILD_MAX_SEGMENT, REBUILD_VDEV_LIMIT};

/// Unused space between stretches that is copied too: that takes less time than a seek.
const GAP: u64 = 128 << 10;
/// If a stretch can't be read as a whole, it is read in ranges of so many bytes of each device.
const PIECE: u64 = 64 << 10;
/// Most stretches that are read ahead.
const AHEAD: u64 = 16;
/// Most stretches that are read or written together.
const TOGETHER: usize = 8;
/// Most bytes of the vdev's space that are read together.
const TOGETHER_BYTES: u64 = 32 << 20;

/// The result of a slice of one vdev.
#[derive(Debug, Default)]
struct Copied {
    /// Everything below is copied.
    position: u64,
    scanned: u64,
    issued: u64,
    skipped: u64,
    rebuilt: u64,
    errors: u64,
    /// Devices that did not get everything: parts of a distributed spare lie on every device, also
    /// on an absent one.
    behind: BTreeSet<Guid>,
    end: Option<End>,
}

/// A stretch on its way from the reading thread to the writing one.
struct Stretch<'a> {
    end: u64,
    /// Bytes of it that are in use.
    used: u64,
    pieces: Vec<(u64, Block)>,
    /// Ranges that could not be read.
    failed: u64,
    /// Absent devices with a part in it.
    away: Vec<Guid>,
    closed: Option<ClosedRange<'a>>,
}

impl Stretch<'_> {
    fn new(end: u64, used: u64, failed: u64) -> Self {
        Self { end, used, pieces: Vec::new(), failed, away: Vec::new(), closed: None }
    }
}

/// How the reading thread ended.
enum Came {
    End,
    Stop,
    /// No device has what is needed.
    Nothing,
}

/// Copies one vdev.
struct Lane<'a> {
    scans: &'a Scans,
    vdev: VdevId,
    from: u64,
    since: Instant,
    long: Duration,
    /// How it yields to foreground I/O.
    request: &'a Request,
    /// Most stretches; 0 is no limit.
    most: u64,
}

/// The ranges in order; those near each other are joined.
fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges.iter().copied() {
        match out.last_mut() {
            Some(last) if start.saturating_sub(last.1) <= GAP => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// The parts of ranges between two places.
fn within(ranges: &[(u64, u64)], start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = ranges.partition_point(|(_, e)| *e <= start);
    let those = ranges[first..].iter().take_while(move |(s, _)| *s < end);
    those.map(move |(s, e)| (start.max(*s), end.min(*e)))
}

impl<'a> Lane<'a> {
    fn stops(&self, done: u64) -> bool {
        let over = self.since.elapsed() >= self.long || self.most != 0 && done >= self.most;
        over || self.scans.is_called_off(self.since)
    }

    fn run(&self) -> Copied {
        let mut copied = Copied { position: self.from, ..Copied::default() };
        if self.scans.core.tree().behind_in(self.vdev).is_empty() {
            copied.end = Some(End::Canceled);
            return copied;
        }
        let ahead = (REBUILD_VDEV_LIMIT.get() / REBUILD_MAX_SEGMENT.get().max(1)).clamp(1, AHEAD);
        let (send, take) = sync_channel(ahead as usize);
        let came = std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("rebuild-ahead".into());
            let reader = reader.spawn_scoped(scope, move || self.read_on(&send));
            self.write_all(&take, &mut copied);
            reader.expect("the system has room for a thread").join().expect("a panic ends the program")
        });
        copied.end = match came {
            Came::End => Some(End::Complete),
            Came::Stop => None,
            Came::Nothing => Some(End::Canceled),
        };
        copied
    }

    /// Reads what is in use, from the rebuild's position on.
    fn read_on(&self, send: &SyncSender<Stretch<'a>>) -> Came {
        let scans = self.scans;
        let segment = REBUILD_MAX_SEGMENT.get();
        let mut done = 0;
        for (id, ms) in (0..).zip(scans.core.allocator.metaslab_figures(self.vdev)) {
            let until = ms.start + ms.size;
            if until <= self.from {
                continue;
            }
            let Ok(used) = scans.core.allocator.allocated_on_disk(self.vdev, id) else {
                // What is in use there is unknown: it is skipped, and no device's DTL is cleared.
                if !scans.core.tree().is_whole() {
                    return Came::Stop;
                }
                let _ = send.send(Stretch::new(until, 0, 1));
                continue;
            };
            let all: Vec<(u64, u64)> = used.iter().collect();
            let used: Vec<(u64, u64)> = within(&all, self.from, until).collect();
            let mut batch = Vec::new();
            for (start, end) in joined(&used) {
                let mut at = start;
                while at < end {
                    if done > 0 && self.stops(done) {
                        return self.read_batch(&mut batch, &used, send).err().unwrap_or(Came::Stop);
                    }
                    let len = scans.core.tree().stretch(self.vdev, at, end - at, segment).max(1);
                    batch.push((at, len));
                    (at, done) = (at + len, done + 1);
                    let bytes: u64 = batch.iter().map(|(_, len)| len).sum();
                    if (batch.len() >= TOGETHER || bytes >= TOGETHER_BYTES)
                        && let Err(came) = self.read_batch(&mut batch, &used, send)
                    {
                        return came;
                    }
                }
            }
            if let Err(came) = self.read_batch(&mut batch, &used, send) {
                return came;
            }
        }
        Came::End
    }

    /// Reads stretches, given by place and size, and sends them on.
    fn read_batch(
        &self,
        batch: &mut Vec<(u64, u64)>,
        used: &[(u64, u64)],
        send: &SyncSender<Stretch<'a>>,
    ) -> Result<(), Came> {
        let batch = std::mem::take(batch);
        let tree = self.scans.core.tree();
        let mut stretches = Vec::with_capacity(batch.len());
        let mut lacked = Vec::new();
        for (at, len) in batch {
            let used = within(used, at, at + len).map(|(s, e)| e - s).sum();
            let mut stretch = Stretch::new(at + len, used, 0);
            // Reading reports a stretch that can't be laid out.
            let (lacks, away) =
                tree.lacks_of_stretch(self.vdev, at, len).unwrap_or_else(|_| (true, Vec::new()));
            if lacks {
                stretch.closed =
                    Some(self.scans.core.cache.zio().closed_ranges().close(self.vdev, at..at + len));
                lacked.push((at, len));
            } else {
                stretch.away = away;
            }
            stretches.push((at, stretch));
        }
        let fetched = Arc::new(tree.fetch_stretches(self.vdev, &lacked, self.request));
        let request = self.request.with_fetched(fetched);
        for (at, mut stretch) in stretches {
            if stretch.closed.is_some() {
                self.read(at, &mut stretch, used, &request)?;
            }
            // The writing thread ends only when this sender does.
            let _ = send.send(stretch);
        }
        Ok(())
    }

    /// Reads one stretch; if that fails, the ranges of it that are in use.
    fn read(
        &self,
        start: u64,
        stretch: &mut Stretch<'a>,
        used: &[(u64, u64)],
        request: &Request,
    ) -> Result<(), Came> {
        let (scans, end) = (self.scans, stretch.end);
        let tree = scans.core.tree();
        if let Ok(block) = tree.read_stretch(self.vdev, start, end - start, request) {
            stretch.pieces.push((start, block));
            return Ok(());
        }
        for (start, end) in within(used, start, end) {
            let mut at = start;
            while at < end {
                let len = tree.stretch(self.vdev, at, end - at, PIECE).max(1);
                match tree.read_stretch(self.vdev, at, len, request) {
                    Ok(block) => stretch.pieces.push((at, block)),
                    // Failures because of absent devices mean nothing.
                    Err(_) if !scans.core.tree().is_whole() => return Err(Came::Stop),
                    Err(StretchError::Unread { source: None, .. }) => return Err(Came::Nothing),
                    Err(_) => stretch.failed += 1,
                }
                at += len;
            }
        }
        Ok(())
    }

    fn write_all(&self, take: &Receiver<Stretch<'a>>, copied: &mut Copied) {
        while let Ok(first) = take.recv() {
            let batch: Vec<Stretch<'_>> =
                std::iter::once(first).chain(take.try_iter().take(TOGETHER - 1)).collect();
            let pieces = batch.iter().flat_map(|stretch| &stretch.pieces);
            let pieces: Vec<(u64, &Block)> = pieces.map(|(at, block)| (*at, block)).collect();
            let filled = self.scans.core.tree().fill_stretches(self.vdev, &pieces, self.request);
            let mut filled = filled.into_iter();
            for stretch in &batch {
                let mut lacked = stretch.failed > 0;
                copied.errors += stretch.failed;
                for done in filled.by_ref().take(stretch.pieces.len()) {
                    let Ok(done) = done else {
                        copied.errors += 1;
                        continue;
                    };
                    copied.rebuilt += done.repaired;
                    copied.errors += u64::from(done.refused > 0);
                    lacked |= done.repaired > 0 || done.refused > 0;
                    copied.behind.extend(done.behind);
                }
                copied.behind.extend(&stretch.away);
                copied.scanned += stretch.used;
                let sum = if lacked { &mut copied.issued } else { &mut copied.skipped };
                *sum += stretch.used;
                copied.position = stretch.end;
            }
        }
    }
}

impl Scans {
    /// Copies what devices lack, for a while. The only caller is the sync thread, before its txg
    /// changes anything.
    pub(crate) fn rebuild_slice(&self, txg: Txg) {
        if !self.is_rebuilding_now() || self.core.cache.zio().suspension().reason().is_some() {
            return;
        }
        let due: Vec<(VdevId, RebuildPhys)> = {
            let all = self.rebuilds.all.lock();
            let due = all.iter().filter(|(_, r)| r.begins <= txg && r.end.is_none());
            due.map(|(vdev, r)| (*vdev, r.phys)).collect()
        };
        if due.is_empty() {
            return;
        }
        let long = self.scan.long(zio::ExamineKind::Resilver);
        let most = self.scan.slice_blocks.load(Ordering::Relaxed);
        let before = self.here();
        let since = Instant::now();
        let request = &Request::paced(Priority::Rebuild, self.pace(since, long));
        let copied: Vec<(VdevId, Copied)> = std::thread::scope(|scope| {
            let lane = |(vdev, phys): (VdevId, RebuildPhys)| {
                let lane = Lane { scans: self, vdev, from: phys.last_offset, since, long, request, most };
                let thread = std::thread::Builder::new().name("rebuild".into());
                let thread = thread.spawn_scoped(scope, move || lane.run());
                (vdev, thread.expect("the system has room for a thread"))
            };
            let lanes: Vec<_> = due.into_iter().map(lane).collect();
            let join = |(vdev, lane): (VdevId, std::thread::ScopedJoinHandle<'_, Copied>)| {
                (vdev, lane.join().expect("a panic ends the program"))
            };
            lanes.into_iter().map(join).collect()
        });
        let after = self.here();
        let mut all = self.rebuilds.all.lock();
        for (vdev, copied) in copied {
            let Some(r) = all.get_mut(&vdev) else { continue };
            let were_here = r.present.len();
            let got_all =
                |guid: &Guid| before.contains(guid) && after.contains(guid) && !copied.behind.contains(guid);
            r.present.retain(got_all);
            if r.present.len() < were_here {
                self.core.tree().passed_by(&r.present, txg);
            }
            let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
            r.phys.last_offset = copied.position;
            add(&mut r.phys.bytes_scanned, copied.scanned);
            add(&mut r.phys.bytes_issued, copied.issued);
            add(&mut r.phys.bytes_rebuilt, copied.rebuilt);
            add(&mut r.phys.errors, copied.errors);
            r.phys.bytes_est = r.phys.bytes_est.max(r.phys.bytes_scanned);
            add(&mut r.pass.scanned, copied.scanned);
            add(&mut r.pass.issued, copied.issued);
            add(&mut r.pass.skipped, copied.skipped);
            r.phys.scan_time_ms = r.pass.before_ms.saturating_add(r.pass.ms());
            (r.dirty, r.end) = (true, copied.end);
        }
    }
}

#[cfg(test)]
mod tests;
