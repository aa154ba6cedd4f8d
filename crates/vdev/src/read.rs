//! Reading one range of one child: choosing among its copies, reading the device, counting.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{Device, DeviceError, Op};
use ondisk::{Psize, Txg, VdevId};

use crate::hung::nanos;
use crate::inject::{self, On, Wrong};
use crate::report::Trouble;
use crate::request::Request;
use crate::stats::{Io, IoType};
use crate::tree::{Layout, NodeId, Tree, device_offset};

/// Reads within this many bytes go to the same child of a mirror, if the children are otherwise
/// equal (`vdev_mirror_shift`).
const MIRROR_SHIFT: u32 = 21;
/// Most vdevs visited for the copies of one range.
const MAX_VISITS: u32 = 1024;

/// One place where bytes can be read: a leaf, and whether it has missed the txg that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) leaf: NodeId,
    pub(crate) stale: bool,
}

impl Tree {
    /// Counts read errors against the devices that hold the copies of a block, though no read
    /// failed. For injected faults.
    pub fn charge_reads(&self, vdev: VdevId, offset: u64, size: Psize, birth: Txg) {
        let Ok(top) = self.top(vdev) else { return };
        for copy in self.copies(top, offset, birth) {
            self.node(copy.leaf).stats.read_errors.inc();
            self.failed(copy.leaf, Trouble::Read, Some((device_offset(offset), size.0)), None);
        }
    }

    /// Every readable copy of what `node` holds at `offset`, the best first.
    ///
    /// Copies that missed nothing come first, the least busy ahead. Stale ones come last, since
    /// their bytes may be right by luck.
    pub(crate) fn copies(&self, node: NodeId, offset: u64, birth: Txg) -> Vec<Copy> {
        let mut out = Vec::new();
        self.gather(node, offset, birth, false, &mut { MAX_VISITS }, &mut out);
        let fresh = out.iter().filter(|c| !c.stale).count();
        if out.len() > 1 {
            // Among equals the offset decides: near reads go to one device, and far ones spread.
            let turn = (offset >> MIRROR_SHIFT) as usize;
            let at = device_offset(offset);
            let mut keyed: Vec<_> = out
                .iter()
                .enumerate()
                .map(|(i, c)| {
                    let rotated = (i + out.len() - turn % out.len()) % out.len();
                    ((c.stale, self.load(c.leaf, at), rotated), *c)
                })
                .collect();
            keyed.sort_unstable_by_key(|(key, _)| *key);
            out = keyed.into_iter().map(|(_, c)| c).collect();
            debug_assert!(out[..fresh].iter().all(|c| !c.stale));
        }
        out
    }

    // As deep as the tree, whose depth was checked when it was built. But in a hostile
    // configuration a distributed spare may lead to itself. Hence the budget.
    fn gather(
        &self,
        id: NodeId,
        offset: u64,
        birth: Txg,
        stale: bool,
        budget: &mut u32,
        out: &mut Vec<Copy>,
    ) {
        let node = self.node(id);
        if !node.readable() || *budget == 0 {
            return;
        }
        *budget -= 1;
        let stale = stale || node.missed(birth);
        match &node.layout {
            Layout::Leaf(Some(_)) => out.push(Copy { leaf: id, stale }),
            Layout::Mirrored => {
                for child in &node.children {
                    self.gather(*child, offset, birth, stale, budget, out);
                }
            }
            Layout::DraidSpare { draid, spare } => {
                let top = self.node(*draid);
                if let Layout::Draid(geometry) = &top.layout {
                    let child = top.children[geometry.spare_child(*spare, offset)];
                    self.gather(child, offset, birth, stale, budget, out);
                }
            }
            Layout::Leaf(None)
            | Layout::Raidz(_)
            | Layout::Draid(_)
            | Layout::Indirect(_)
            | Layout::Absent
            | Layout::Root => {}
        }
    }

    /// How busy a leaf is for a read at `offset` of its device (`vdev_mirror_load` of media that
    /// don't rotate).
    ///
    /// Its operations under way, and one more when it would have to seek.
    fn load(&self, leaf: NodeId, offset: u64) -> u32 {
        let node = self.node(leaf);
        let seek = node.last_end.load(Relaxed) != offset;
        node.in_flight.load(Relaxed).saturating_add(seek.into())
    }

    /// Reads from a leaf, or from the request's fetched ranges if these have all bytes. Counts the
    /// operation and its failure.
    pub(crate) fn read_leaf(
        &self,
        leaf: NodeId,
        offset: u64,
        buf: &mut [u8],
        request: &Request,
    ) -> std::result::Result<(), Unread> {
        if request.fetched().is_some_and(|fetched| fetched.get(self.node(leaf).guid, offset, buf)) {
            return Ok(());
        }
        let node = self.node(leaf);
        let done = self.read_quietly(leaf, offset, buf, false, request);
        if let Err(Unread::Device(why)) = &done {
            node.stats.read_errors.inc();
            let range = (device_offset(offset), buf.len() as u64);
            self.failed(leaf, Trouble::Read, Some(range), Some(why));
            self.suspect_reader(leaf);
        }
        done
    }

    /// Reads likewise, but counts no failure, since the read will be repeated. In the background,
    /// reads wait for their turn, in parts that hold up the foreground only briefly. With `joined`
    /// it is a read of several blocks.
    pub(crate) fn read_quietly(
        &self,
        leaf: NodeId,
        offset: u64,
        buf: &mut [u8],
        joined: bool,
        request: &Request,
    ) -> std::result::Result<(), Unread> {
        let node = self.node(leaf);
        let Layout::Leaf(Some(device)) = &node.layout else { return Err(Unread::NoDevice) };
        let class = node.stats.by_class.of(request.priority(), IoType::Read);
        let mut done = 0;
        loop {
            let left = (buf.len() - done) as u64;
            if request.is_paced() {
                class.wait();
            }
            done += node.precedence.run_part(request.pace(), left, |turn| {
                let part = &mut buf[done..done + turn.bytes as usize];
                class.begin(part.len() as u64, joined, turn);
                let (took, read) = self.read_part(leaf, &**device, offset + done as u64, part);
                class.end(nanos(took), read.is_ok().then_some(part.len() as u64), turn);
                let failed = read.as_ref().err().and_then(Unread::cause);
                let (device, bytes) = (node.guid, part.len() as u64);
                let (what, offset) =
                    (Some((request.priority(), IoType::Read)), device_offset(offset + done as u64));
                Io { device, what, offset, bytes, took, failed }.show();
                read.map(|()| part.len())
            })?;
            if done == buf.len() {
                return Ok(());
            }
        }
    }

    /// Reads from the device of a leaf. Returns how long that took, and the outcome.
    fn read_part(
        &self,
        leaf: NodeId,
        device: &dyn Device,
        offset: u64,
        buf: &mut [u8],
    ) -> (Duration, std::result::Result<(), Unread>) {
        let node = self.node(leaf);
        let at = device_offset(offset);
        node.in_flight.fetch_add(1, Relaxed);
        let begun = node.underway.begin(node.guid, Op::Read, at, buf.len() as u64);
        let done = match inject::strike(|| self.root_guid(), node.guid, On::Read) {
            Some(Wrong::Error(code)) => {
                Err(inject::error(code, Op::Read, device.name(), at, buf.len() as u64))
            }
            struck => device.read_at(buf, at).map(|()| {
                if let (Some(Wrong::Corrupt), Some(byte)) = (struck, buf.first_mut()) {
                    *byte ^= 1;
                }
            }),
        };
        let took = begun.took();
        drop(begun);
        self.timed(leaf, took, (at, buf.len() as u64));
        node.in_flight.fetch_sub(1, Relaxed);
        node.last_end.store(at.saturating_add(buf.len() as u64), Relaxed);
        (took, done.map_err(Unread::Device))
    }
}

/// Why a leaf gave no bytes.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It has no open device.
    NoDevice,
    /// The device failed.
    Device(DeviceError),
}

impl Unread {
    /// How the device failed.
    fn cause(&self) -> Option<&DeviceError> {
        match self {
            Self::NoDevice => None,
            Self::Device(why) => Some(why),
        }
    }
}
