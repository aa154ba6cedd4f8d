//! The second stage of a write: finding places, in the order of the requests.

use super::prepare::Sealed;
use crate::dedup::Found;
use crate::{Bookmark, ReadOptions, Result, Want, Zio};
use device::Block;
use ondisk::blkptr::{Body, Stored};
use ondisk::{Blkptr, ChecksumKind, CompressKind, Dva, Lsize, Psize, Txg};
use std::collections::HashMap;

/// Bytes for one place.
pub(super) struct Bound {
    /// Number of their request.
    pub(super) req: usize,
    /// The txg in which the bytes are born: a device that misses them has missed it.
    pub(super) txg: Txg,
    pub(super) dva: Dva,
    pub(super) bytes: Block,
}

/// The properties by which the dedup table identifies equal blocks (`ddt_key_t`).
#[derive(PartialEq, Eq, Hash)]
struct Key {
    checksum: ChecksumKind,
    sum: [u64; 4],
    lsize: Lsize,
    psize: Psize,
    compress: CompressKind,
    crypt: bool,
}

/// What a batch has allocated and will write.
#[derive(Default)]
pub(super) struct Batch {
    /// Allocated for it, with the number of the request, and not entered in the dedup table.
    allocated: Vec<(usize, Dva)>,
    pub(super) bound: Vec<Bound>,
    /// Pointers that it entered in the dedup table, with the number of the request and the new
    /// places.
    entered: Vec<(usize, Blkptr, Vec<Dva>)>,
    /// Allocated for it and found bad. Given back when the batch is done, so that it does not get
    /// these places again.
    spoiled: Vec<Dva>,
    /// Contents of blocks that are in the table and not on the devices yet.
    unwritten: HashMap<Key, Block>,
}

/// A block that needs space.
pub(super) struct Need<'a> {
    pub(super) req: usize,
    pub(super) want: Want,
    pub(super) bookmark: Bookmark,
    pub(super) bytes: &'a Block,
    pub(super) checksum: ChecksumKind,
    /// Half of the checksum of its gang header is reserved for a MAC.
    pub(super) mac: bool,
}

impl Zio {
    /// Finds a place for a block; returns its pointer.
    pub(super) fn place(&self, batch: &mut Batch, req: usize, sealed: &Sealed) -> Result<Blkptr> {
        let Sealed { bytes, mut pointer, want, bookmark, old, data, verify } = sealed.clone();
        let s = *pointer.stored().expect("a sealed block is one that is stored");
        let mac = crate::read::has_mac(&pointer, &s);
        let need = Need { req, want, bookmark, bytes: &bytes, checksum: s.checksum, mac };
        if let Some(old) = old {
            if let Ok(dvas) = self.overwrite(batch, &need, &old) {
                put(&mut pointer, |s| s.dvas = dvas);
                return Ok(pointer);
            }
            // A gang block whose header can't be read is left. It is freed with the pointer to it.
            batch.unbind(req);
        }
        if s.dedup {
            return self.share(batch, &need, pointer, &data.whole(), verify);
        }
        let dvas = self.allocate(batch, &need)?;
        put(&mut pointer, |s| s.dvas = dvas);
        Ok(pointer)
    }

    /// Reuses the places of a block of this txg.
    fn overwrite(&self, batch: &mut Batch, need: &Need<'_>, old: &Blkptr) -> Result<[Option<Dva>; 3]> {
        let s = old.stored().expect("only a stored block has places");
        if old.is_gang() {
            self.rewrite_gang(batch, need, old)?;
        } else {
            batch.bind(need.req, need.want.txg, &s.dvas, need.bytes);
        }
        Ok(s.dvas)
    }

    /// Allocates, contiguously or as a gang, and adds the writes of the bytes.
    pub(super) fn allocate(&self, batch: &mut Batch, need: &Need<'_>) -> Result<[Option<Dva>; 3]> {
        match self.space().allocate(&need.want) {
            Ok(dvas) => {
                batch.take(need.req, &dvas);
                batch.bind(need.req, need.want.txg, &dvas, need.bytes);
                Ok(dvas)
            }
            Err(_) => self.write_gang(batch, need, 0),
        }
    }

    /// Writes a block only if the dedup table doesn't have it (`zio_ddt_write`).
    fn share(
        &self,
        batch: &mut Batch,
        need: &Need<'_>,
        mut pointer: Blkptr,
        data: &Block,
        verify: bool,
    ) -> Result<Blkptr> {
        let txg = need.want.txg;
        let s = *pointer.stored().expect("a sealed block is one that is stored");
        let key = key(&pointer, &s);
        let table = self.dedup();
        // Two batches with the same new block would both give it a place, and the table would lose
        // one.
        let _one = self.sharing.lock();
        let found = table.as_ref().map_or(Found::Full, |t| t.find(txg, &pointer, need.want.copies));
        let (have, phys_birth) = match found {
            Found::Have { dvas, phys_birth } => (dvas, phys_birth),
            Found::New | Found::Full => ([None; 3], txg),
        };
        let count = have.iter().flatten().count();
        let collides = || {
            let mut theirs = pointer;
            put(&mut theirs, |s| (s.dvas, s.phys_birth) = (have, phys_birth));
            match batch.unwritten.get(&key) {
                Some(other) => other != data,
                // A block that can't be read can't be shared.
                None => self
                    .read(&theirs, &need.bookmark, &ReadOptions::sync())
                    .map_or(true, |other| other != *data),
            }
        };
        let Some(table) = table.filter(|_| found != Found::Full && !(verify && count > 0 && collides()))
        else {
            let dvas = self.allocate(batch, need)?;
            put(&mut pointer, |s| (s.dvas, s.dedup) = (dvas, false));
            return Ok(pointer);
        };
        let missing = usize::from(need.want.copies).saturating_sub(count);
        let mut dvas = have;
        let mut new = Vec::new();
        if missing > 0 {
            let before = batch.allocated.len();
            let need = Need { want: Want { copies: missing as u8, ..need.want }, ..*need };
            let more = self.allocate(batch, &need)?;
            // From here on the table gives them back.
            new = batch.allocated.split_off(before).into_iter().map(|(_, dva)| dva).collect();
            let mut rest = more.into_iter().flatten();
            for free in dvas.iter_mut().filter(|d| d.is_none()) {
                *free = rest.next();
            }
        }
        put(&mut pointer, |s| (s.dvas, s.phys_birth) = (dvas, phys_birth));
        table.enter(txg, &pointer);
        batch.entered.push((need.req, pointer, new));
        batch.unwritten.entry(key).or_insert_with(|| data.clone());
        Ok(pointer)
    }

    /// Gives back everything that a failed batch has allocated.
    pub(super) fn undo(&self, txg: Txg, batch: &Batch) {
        let space = self.space();
        self.spoil(batch.allocated.iter().map(|(_, dva)| dva).chain(&batch.spoiled));
        batch.allocated.iter().for_each(|(_, dva)| space.unallocate(dva, txg));
        batch.spoiled.iter().for_each(|dva| space.unallocate(dva, txg));
        if let Some(table) = self.dedup() {
            self.spoil(batch.entered.iter().flat_map(|(_, _, new)| new));
            batch.entered.iter().rev().for_each(|(_, bp, new)| table.revoke(txg, bp, new));
        }
    }

    /// Undoes the placement of some requests, in rising order, which are to be placed elsewhere.
    pub(super) fn displace(&self, txg: Txg, batch: &mut Batch, reqs: &[usize]) {
        let gone = |req: usize| reqs.binary_search(&req).is_ok();
        batch.bound.retain(|b| !gone(b.req));
        let (bad, good) = std::mem::take(&mut batch.allocated).into_iter().partition(|(req, _)| gone(*req));
        batch.allocated = good;
        batch.spoiled.extend(Vec::into_iter(bad).map(|(_, dva): (usize, Dva)| dva));
        let (bad, good): (Vec<_>, Vec<_>) =
            std::mem::take(&mut batch.entered).into_iter().partition(|(req, ..)| gone(*req));
        batch.entered = good;
        if let Some(table) = self.dedup().filter(|_| !bad.is_empty()) {
            self.spoil(bad.iter().flat_map(|(_, _, new)| new));
            bad.iter().rev().for_each(|(_, bp, new)| table.revoke(txg, bp, new));
            batch.unwritten.clear();
        }
    }

    /// Gives back the places that were found bad: the batch is done, or the pool was cleared.
    pub(super) fn give_back_spoiled(&self, txg: Txg, batch: &mut Batch) {
        let space = self.space();
        self.spoil(&batch.spoiled);
        batch.spoiled.drain(..).for_each(|dva| space.unallocate(&dva, txg));
    }
}

impl Batch {
    /// Records places that were allocated for a request.
    pub(super) fn take(&mut self, req: usize, dvas: &[Option<Dva>; 3]) {
        self.allocated.extend(dvas.iter().flatten().map(|dva| (req, *dva)));
    }

    /// Drops the writes of a request.
    fn unbind(&mut self, req: usize) {
        self.bound.retain(|b| b.req != req);
    }

    /// Whether other blocks may share what any of these requests wrote.
    pub(super) fn shares(&self, reqs: &[usize]) -> bool {
        self.entered.iter().any(|(req, ..)| reqs.binary_search(req).is_ok())
    }

    /// Adds a write of the bytes to each of these places.
    pub(super) fn bind(&mut self, req: usize, txg: Txg, dvas: &[Option<Dva>; 3], bytes: &Block) {
        let bound = |dva: &Dva| Bound { req, txg, dva: *dva, bytes: bytes.clone() };
        self.bound.extend(dvas.iter().flatten().map(bound));
    }
}

fn key(bp: &Blkptr, s: &Stored) -> Key {
    Key {
        checksum: s.checksum,
        sum: s.sum,
        lsize: bp.lsize,
        psize: s.psize,
        compress: s.compress,
        crypt: s.crypt,
    }
}

pub(super) fn put(bp: &mut Blkptr, change: impl FnOnce(&mut Stored)) {
    if let Body::Stored(s) = &mut bp.body {
        change(s);
    }
}
