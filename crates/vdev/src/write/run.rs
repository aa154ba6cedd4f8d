//! Contiguous runs: pieces of many blocks that touch on a device, written at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Block, Device, DeviceError, Op};

use super::{Laid, PADDING, Piece, Refused};
use crate::hung::nanos;
use crate::inject::{self, On, Wrong};
use crate::report::Trouble;
use crate::request::{Priority, Request};
use crate::stats::{ClassStats, Io, IoType, Turn};
use crate::tree::{Layout, NodeId, Tree, device_offset};

/// Most bytes in a run (`zfs_vdev_aggregation_limit`).
const RUN_MAX: usize = 1 << 20;
/// Most pieces in a run: the system takes no more buffers in one call.
const PIECES_MAX: usize = 1000;

/// Pieces that follow one another on one device.
#[derive(Debug)]
pub struct Run {
    leaf: NodeId,
    offset: u64,
    /// Each piece with the number of its block.
    pieces: Vec<(usize, Part)>,
    bytes: usize,
}

#[derive(Debug)]
struct Part {
    bytes: Block,
    range: Range<usize>,
    column: usize,
    account: NodeId,
}

impl Run {
    fn new(leaf: NodeId, offset: u64) -> Self {
        Self { leaf, offset, pieces: Vec::new(), bytes: 0 }
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }

    /// Its device, and its offset there.
    pub(super) fn place(&self) -> (NodeId, u64) {
        (self.leaf, self.offset)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the block that its first piece belongs to.
    pub fn first_block(&self) -> usize {
        self.pieces.first().map_or(0, |(block, _)| *block)
    }

    /// Whether it holds nothing, and need not be written.
    pub fn is_padding(&self) -> bool {
        self.pieces.iter().all(|(_, part)| part.column == PADDING)
    }

    fn takes(&self, piece: &Piece) -> bool {
        self.leaf == piece.leaf
            && self.end() == piece.offset
            && self.bytes + piece.range.len() <= RUN_MAX
            && self.pieces.len() < PIECES_MAX
    }
}

/// The runs that write these blocks. Blocks are known by their index in `laid` from here on.
///
/// The runs of one device come in the order of offsets. The devices alternate, so that threads that
/// take one run after another are mostly on different devices.
pub fn join(laid: &[Laid]) -> Vec<Run> {
    let mut all: Vec<(usize, &Piece)> =
        laid.iter().enumerate().flat_map(|(n, l)| l.pieces.iter().map(move |p| (n, p))).collect();
    // The sort is stable: should two blocks name one place, the later one stays.
    all.sort_by_key(|(_, p)| (p.leaf, p.offset));
    let mut runs: Vec<Run> = Vec::new();
    for (block, piece) in all {
        if runs.last().is_none_or(|run| !run.takes(piece)) {
            runs.push(Run::new(piece.leaf, piece.offset));
        }
        let run = runs.last_mut().expect("one was just pushed");
        run.bytes += piece.range.len();
        let Piece { bytes, range, column, account, .. } = piece.clone();
        run.pieces.push((block, Part { bytes, range, column, account }));
    }
    let mut rounds: Vec<(usize, Run)> = Vec::with_capacity(runs.len());
    for run in runs {
        let round =
            rounds.last().filter(|(_, before)| before.leaf == run.leaf).map_or(0, |(round, _)| round + 1);
        rounds.push((round, run));
    }
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, run)| run).collect()
}

/// The same runs grouped by device, each in order.
pub fn by_device(runs: Vec<Run>) -> Vec<Vec<Run>> {
    let mut out: BTreeMap<NodeId, Vec<Run>> = BTreeMap::new();
    runs.into_iter().for_each(|run| out.entry(run.leaf).or_default().push(run));
    out.into_values().collect()
}

impl Tree {
    /// Writes a run, and counts the operation and its failure. Returns the pieces that were
    /// refused.
    ///
    /// If the run fails, its pieces are tried one by one, so that one bad sector costs one block
    /// its copy. If the device fails altogether, it is given up, and no piece is tried.
    pub fn issue(&self, run: &Run, request: &Request) -> Vec<Refused> {
        let refuse = |(block, part): &(usize, Part), source| Refused {
            block: *block,
            column: part.column,
            leaf: run.leaf,
            account: part.account,
            len: part.range.len(),
            source,
        };
        // Given up since the run was laid out. Each further try might wait for the device's whole
        // timeout.
        if !self.writable(run.leaf) {
            return run.pieces.iter().map(|piece| refuse(piece, None)).collect();
        }
        let bufs: Vec<&[u8]> = run.pieces.iter().map(|(_, p)| &p.bytes[p.range.clone()]).collect();
        let whole = self.write_leaf(run.leaf, run.offset, &bufs, request);
        let mut refused = Vec::new();
        let Err(source) = whole else { return refused };
        self.suspect(run.leaf);
        if run.pieces.len() == 1 || !self.writable(run.leaf) {
            return run.pieces.iter().map(|piece| refuse(piece, Some(Arc::clone(&source)))).collect();
        }
        let mut offset = run.offset;
        for (piece, bytes) in run.pieces.iter().zip(&bufs) {
            if let Err(source) = self.write_leaf(run.leaf, offset, &[*bytes], request) {
                refused.push(refuse(piece, Some(source)));
            }
            offset += bytes.len() as u64;
        }
        refused
    }

    /// Writes to a leaf, and counts the operation and its failure. In the background, waits for its
    /// turn.
    pub(super) fn write_leaf(
        &self,
        leaf: NodeId,
        offset: u64,
        bufs: &[&[u8]],
        request: &Request,
    ) -> Result<(), Arc<DeviceError>> {
        let node = self.node(leaf);
        let Layout::Leaf(Some(device)) = &node.layout else {
            unreachable!("a piece was made for a leaf that has a device, and it stays so");
        };
        let class = node.stats.by_class.of(request.priority(), IoType::Write);
        if request.is_paced() {
            class.wait();
        }
        let of = |turn| (request.priority(), class, turn);
        let write = |turn| self.write_now(leaf, &**device, offset, bufs, of(turn));
        node.precedence.run_part(request.pace(), 0, write)
    }

    fn write_now(
        &self,
        leaf: NodeId,
        device: &dyn Device,
        offset: u64,
        bufs: &[&[u8]],
        (priority, class, turn): (Priority, &ClassStats, Turn),
    ) -> Result<(), Arc<DeviceError>> {
        let node = self.node(leaf);
        let at = device_offset(offset);
        node.in_flight.fetch_add(1, Relaxed);
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        class.begin(len as u64, bufs.len() > 1, turn);
        let begun = node.underway.begin(node.guid, Op::Write, at, len as u64);
        let done = match inject::strike(|| self.root_guid(), node.guid, On::Write) {
            Some(Wrong::Error(code)) => Err(inject::error(code, Op::Write, device.name(), at, len as u64)),
            Some(Wrong::Noop) => Ok(()),
            _ => device.write_vectored_at(bufs, at),
        };
        let took = begun.took();
        drop(begun);
        self.timed(leaf, took, (at, len as u64));
        node.in_flight.fetch_sub(1, Relaxed);
        node.last_end.store(at.saturating_add(len as u64), Relaxed);
        class.end(nanos(took), done.is_ok().then_some(len as u64), turn);
        let (what, failed) = (Some((priority, IoType::Write)), done.as_ref().err());
        Io { device: node.guid, what, offset: at, bytes: len as u64, took, failed }.show();
        if let Err(why) = &done {
            node.stats.write_errors.inc();
            self.failed(leaf, Trouble::Write, Some((at, len as u64)), Some(why));
        }
        done.map_err(Arc::new)
    }
}
