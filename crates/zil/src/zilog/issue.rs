//! Taking records, filling blocks, and writing them.

use super::chain::{BlockState, Chain, ChainBlock, MIN_BLOCK, seq_of};
use super::early::{BatchInput, EarlyBlocks};
use super::fill::{Draft, Laid, Piece, What, lay_out};
use super::pending::{Body, Itx};
use super::{Carry, Zilog};
use crate::{Error, Missing, Result, Source};
use dmu::Tx;
use ondisk::blkptr::Body as BpBody;
use ondisk::zil::{LR_WRITE_SIZE, ZIL_CHAIN_SIZE, ZilHeader};
use ondisk::{Blkptr, ObjNum, Psize, Txg, VdevId};
use std::collections::BTreeSet;
use std::time::Instant;
use zio::EarlyWrite;

/// Bytes of data that are gathered and written at a time.
const BATCH: u64 = 1 << 20;
/// Data that is not copied may be this many times as much.
const EARLY_SHARE: u64 = 8;

/// The turn of filling blocks; dropping it passes the turn on.
struct Turn<'a>(&'a Zilog);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut chain = self.0.chain.lock();
        chain.issuing = false;
        chain.waiting.follow();
        Chain::wake(chain);
    }
}

/// Blocks that are being written. They count as failed if this is dropped before the write
/// succeeds.
struct Flight<'a> {
    log: &'a Zilog,
    id: u64,
    txg: Txg,
    seqs: std::ops::RangeInclusive<u64>,
    early: EarlyBlocks,
    well: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.well {
            // This must happen before the txg may sync.
            self.early.displace();
        }
        let mut chain = self.log.chain.lock();
        chain.land(self.id, self.txg, self.seqs.clone(), self.well, Instant::now());
        Chain::wake(chain);
        self.log.landed.notify_all();
    }
}

impl Zilog {
    /// Takes the ordered records, or continues with records taken before, and makes some of them
    /// durable. The caller has set `issuing`.
    pub(super) fn issue(&self, source: &dyn Source) -> Result<()> {
        let turn = Turn(self);
        let mut carry = self.carry.lock();
        let synced = self.groups.synced();
        let mut pending = self.pending.lock();
        if let Some(txg) = pending.barred(synced) {
            drop((pending, carry, turn));
            self.counters.commit_group_waits.inc();
            return self.groups.wait(txg);
        }
        if carry.records.is_empty() {
            pending.takes += 1;
            carry.take = pending.takes;
            carry.records = pending.take(synced);
        }
        drop(pending);
        let pieces = self.gather(&mut carry, source);
        if pieces.is_empty() {
            if carry.records.is_empty() {
                self.chain.lock().pass(carry.take, Instant::now());
            }
            return Ok(());
        }
        let result = match self.last_block() {
            Some(first) => self.fill(&mut carry, first, pieces),
            None => self.create().map(|()| Filled::Gone),
        };
        let flight = match result {
            Ok(Filled::Some(flight)) => flight,
            // The caller must wait for a txg first.
            Ok(Filled::Later) => return Ok(()),
            // All records of the take have synced, or their committers wait for a txg.
            Ok(Filled::Gone) => {
                carry.records.clear();
                self.chain.lock().pass(carry.take, Instant::now());
                return Ok(());
            }
            Err(e) => {
                self.drop_taken(&mut carry);
                return Err(e);
            }
        };
        drop(carry);
        drop(turn);
        self.fly(flight);
        Ok(())
    }

    /// Gives up the records of this take. The chain ends before them, because later records rely on
    /// them. Commits wait for their txg.
    fn drop_taken(&self, carry: &mut Carry) {
        carry.records.clear();
        let mut chain = self.chain.lock();
        chain.taken = carry.take;
        chain.fail();
        drop(chain);
        // The chain may be gone before the txg has synced.
        self.owe(self.groups.open());
    }

    /// Makes records of a take, with their data or the blocks that have it. It stops after one
    /// batch, or at data that can't be read.
    fn gather(&self, carry: &mut Carry, source: &dyn Source) -> Vec<BatchInput> {
        let (synced, open) = (self.groups.synced(), self.groups.open());
        let (mut out, mut room) = (Vec::new(), BATCH);
        while room > 0
            && let Some(Itx { txg, body }) = carry.records.pop_front()
        {
            if txg <= synced {
                continue;
            }
            let what = match body {
                Body::Whole(raw) => What::Whole(raw),
                Body::Clones(raw) => What::Clones(raw),
                Body::Data { object, offset, length } => {
                    let block = if txg == open {
                        self.early_block(source, (object, offset, length), txg)
                    } else {
                        None
                    };
                    let now = block.as_ref().map_or(length.min(room.max(MIN_BLOCK)), |(_, now)| *now);
                    if now < length {
                        let (offset, length) = (offset + now, length - now);
                        carry.records.push_front(Itx { txg, body: Body::Data { object, offset, length } });
                    }
                    if let Some((Some(block), length)) = block {
                        room = room.saturating_sub(now / EARLY_SHARE);
                        out.push(BatchInput::Block { object, offset, length, block });
                        continue;
                    }
                    let len = usize::try_from(now).expect("a batch fits into memory");
                    let bytes = match source.data(ObjNum(object), offset, len) {
                        Ok(bytes) => bytes,
                        Err(Missing::Gone) => continue,
                        // Later records may rely on this one.
                        Err(Missing::Unreadable) => {
                            self.owe(txg);
                            carry
                                .records
                                .push_front(Itx { txg, body: Body::Data { object, offset, length: now } });
                            break;
                        }
                    };
                    self.counters.itx_needcopy_count.inc();
                    self.counters.itx_needcopy_bytes.add(now);
                    What::Data { object, offset, bytes }
                }
            };
            let taken = match &what {
                What::Whole(raw) | What::Clones(raw) => raw.len(),
                What::Data { bytes, .. } => LR_WRITE_SIZE + bytes.len(),
            };
            room = room.saturating_sub(taken as u64);
            out.push(BatchInput::Piece(Piece { txg, what }));
        }
        out
    }

    /// The empty block at the end of the chain, if there is a chain.
    fn last_block(&self) -> Option<Blkptr> {
        let chain = self.chain.lock();
        chain.blocks.back().filter(|b| b.state == BlockState::Next).map(|b| b.bp)
    }

    fn allocate(&self, tx: &Tx, size: u64, words: [u64; 4]) -> zio::Result<Blkptr> {
        let encrypted = self.os.root_bp().stored().is_some_and(|s| s.crypt);
        let devices = !self.policy().throughput;
        let zio = self.os.cache().zio();
        let mut bp = zio.allocate_log(tx.txg(), Psize(size), self.os.id(), encrypted, devices)?;
        if let BpBody::Stored(s) = &mut bp.body {
            s.sum = words;
        }
        Ok(bp)
    }

    /// Begins a chain: allocates its first block, and waits for the txg that writes the header.
    /// That txg also makes everything taken durable.
    fn create(&self) -> Result<()> {
        let ready = {
            let chain = self.chain.lock();
            chain.blocks.is_empty() && !chain.broken && !chain.closing
        };
        // An earlier log is still there, or will be until its txg has synced.
        let taken = !ZilHeader::decode(&self.os.phys().zil_header).is_ok_and(|h| h.log.is_hole());
        // An object set that was never written does not say yet whether it is encrypted.
        if !ready || taken || self.os.root_bp().is_hole() {
            return self.wait_group();
        }
        let tx = self.groups.hold()?;
        let txg = tx.txg();
        self.os.touch(&tx).map_err(|source| Error::Dmu { objset: self.os.id(), source })?;
        let guid = [(self.random)(), (self.random)()];
        if let Ok(bp) = self.allocate(&tx, MIN_BLOCK, [guid[0], guid[1], self.os.id(), 1]) {
            let mut chain = self.chain.lock();
            chain.guid = guid;
            chain.has_sa_xattrs = self.sa_xattrs.is_some();
            chain.blocks.push_back(ChainBlock {
                bp,
                alloc_txg: txg,
                max_txg: Txg(0),
                state: BlockState::Next,
            });
            drop(chain);
            // The header is written with the txg, and so is the feature that records in the chain
            // may need.
            if let Some(uses) = &self.sa_xattrs {
                uses(true);
            }
        }
        drop(tx);
        self.counters.commit_group_waits.inc();
        self.groups.wait(txg)
    }

    /// Puts back a record whose txg is no longer open, if such a record may be logged only while
    /// its txg is open. Everything after it is put back too, because it may rely on it.
    fn put_back_late(&self, carry: &mut Carry, gathered: &mut Vec<BatchInput>, now: Txg) {
        let late = |g: &BatchInput| match g {
            BatchInput::Piece(Piece { txg, what: What::Clones(_) }) if *txg != now => Some(*txg),
            _ => None,
        };
        let Some((at, txg)) = gathered.iter().enumerate().find_map(|(at, g)| Some((at, late(g)?))) else {
            return;
        };
        self.owe(txg);
        for one in gathered.drain(at..).rev() {
            carry.records.push_front(one.into_itx());
        }
    }

    /// Fills blocks from `first` on.
    fn fill(&self, carry: &mut Carry, first: Blkptr, mut gathered: Vec<BatchInput>) -> Result<Filled<'_>> {
        let tx = self.groups.hold()?;
        self.put_back_late(carry, &mut gathered, tx.txg());
        if gathered.is_empty() {
            return Ok(Filled::Later);
        }
        let (pieces, mut early, writes) = self.board(&tx, gathered);
        let (guess, mut seq, guid) = {
            let mut chain = self.chain.lock();
            let bytes: u64 = pieces.iter().map(|p| p.what.len() as u64).sum();
            chain.note_burst(bytes + ZIL_CHAIN_SIZE as u64);
            (chain.guess(), chain.lr_seq, chain.guid)
        };
        let laid = lay_out(first, pieces, &mut seq, guess, |before, size| {
            self.allocate(&tx, size, [guid[0], guid[1], self.os.id(), seq_of(before) + 1])
        });
        let txg = tx.txg();
        let block = |bp, state| ChainBlock { bp, alloc_txg: txg, max_txg: Txg(0), state };
        let mut chain = self.chain.lock();
        let whole = carry.records.is_empty();
        let Laid { full, next } = match laid {
            Ok(laid) if !chain.broken => laid,
            other => {
                let unused = match other {
                    Ok(laid) => laid.full.iter().skip(1).map(|d| d.bp).chain([laid.next]).collect(),
                    Err((_, given)) => given,
                };
                chain.blocks.extend(unused.into_iter().map(|bp| block(bp, BlockState::Failed)));
                drop(chain);
                early.displace();
                self.drop_taken(carry);
                return Ok(Filled::Gone);
            }
        };
        chain.lr_seq = seq;
        let seqs = seq_of(&full[0].bp)..=seq_of(&full[full.len() - 1].bp);
        let last = chain.blocks.back_mut().expect("the first block to fill is there");
        (last.state, last.max_txg) = (BlockState::Flying, full[0].max_txg);
        for draft in &full[1..] {
            chain
                .blocks
                .push_back(ChainBlock { max_txg: draft.max_txg, ..block(draft.bp, BlockState::Flying) });
        }
        chain.blocks.push_back(block(next, BlockState::Next));
        // A take of which records remain does not count yet.
        let take = if whole { carry.take } else { carry.take - 1 };
        chain.taken = take;
        let id = chain.take_off(take, txg, Instant::now());
        drop(chain);
        let flight = Flight { log: self, id, txg, seqs, early, well: false };
        Ok(Filled::Some(Loaded { flight, full, writes }))
    }

    /// Writes blocks and flushes their devices.
    fn fly(&self, loaded: Loaded<'_>) {
        let Loaded { mut flight, full, writes } = loaded;
        let mut vdevs: BTreeSet<VdevId> = BTreeSet::new();
        let mut blocks = Vec::with_capacity(full.len());
        vdevs.extend(
            writes.iter().filter_map(|w| w.pointer().stored()).flat_map(|s| s.copies()).map(|d| d.vdev),
        );
        let zio = self.os.cache().zio();
        let tree = zio.tree();
        for draft in full {
            let first = draft.bp.stored().and_then(|s| s.dvas[0]);
            let on_log = first.is_some_and(|dva| tree.top_spec(dva.vdev).is_ok_and(|top| top.is_log));
            let of = if on_log { &self.counters.slog } else { &self.counters.normal };
            of.wrote(draft.used(), draft.bytes.len() as u64);
            vdevs.extend(draft.bp.stored().into_iter().flat_map(|s| s.copies()).map(|dva| dva.vdev));
            blocks.push((draft.bp, draft.bytes));
        }
        let vdevs: Vec<VdevId> = vdevs.into_iter().collect();
        self.counters.flush_count.inc();
        let mark = zio.flush_mark();
        flight.well = zio.write_logs(self.os.id(), blocks, writes).is_ok()
            && zio.flush_vdevs(&vdevs, flight.txg, mark).is_ok();
    }
}

/// The outcome of filling blocks.
enum Filled<'a> {
    /// Blocks are ready to be written.
    Some(Loaded<'a>),
    /// Nothing was filled: the caller must wait for a txg first. The taken records are still to be
    /// written.
    Later,
    /// Filling failed; committers wait for their txg.
    Gone,
}

/// A flight with its blocks.
struct Loaded<'a> {
    flight: Flight<'a>,
    full: Vec<Draft>,
    writes: Vec<EarlyWrite>,
}
