//! The search for leaks: compares the allocated space with the space that blocks use.
//!
//! # Theory
//! The space maps, with their logs, say what is allocated. The block pointers say what is used.
//! Both must be equal.
//!
//! 1. [`LeakCheck::load`] loads every allocated segment.
//! 2. [`LeakCheck::claim`] removes the segments of a block. The caller claims each block once,
//!    however many references it has.
//! 3. [`LeakCheck::finish`] returns the segments that are left: they leaked.
//!
//! A claim fails if the segments are missing: the space is free, or belongs to another block.
//!
//! * A gang block claims its headers and its members.
//! * A block on a removed device claims the space to which that device was mapped.
//! * Space that only a checkpoint refers to is left out: it has been freed since.
//!
//! # Locks
//! One mutex per vdev, held while a segment is removed; another guards the list of failed claims.
//!
//! # Absent
//! During a device removal, part of the space is copied, and both copies are allocated.
//! [`LeakCheck::load`] then returns `None`.
//!
//! # See
//! OpenZFS `zdb_leak_init`, `zdb_leak_fini` in `cmd/zdb/zdb.c`, `metaslab_claim`.

use observe::lock::Mutex;
use ondisk::blkptr::Stored;
use ondisk::indirect::MappingEntry;
use ondisk::spacemap::MapType;
use ondisk::{BlkId, Blkptr, Dva, Level, ObjNum, Psize, SPA_MINBLOCKSHIFT, VdevId, VdevKind, mos};
use pool::metaslab::{Class, LogChanges, TopVdev};
use pool::range::RangeSet;
use pool::spacemap::{MapStep, SpaceMap};
use spa::Spa;
use std::collections::HashMap;
use zio::{Bookmark, ReadOptions, Zio};

#[cfg(test)]
mod tests;

/// Bytes of a gang header (`SPA_GANGBLOCKSIZE`).
const GANG_HEADER: Psize = Psize(512);
/// Limit of the depth of a gang tree, and of the chain of removed devices.
const MAX_DEPTH: u32 = 12;
/// Length limit of the list of failed claims; further ones are only counted.
const MAX_WRONG: usize = 10_000;
/// A vdev with more metaslabs than this lends one to the intent log (`zfs_embedded_slog_min_ms`).
const EMBEDDED_SLOG_MIN_MS: u64 = 64;

/// A claim that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong {
    /// The copy of the block, or of a member of its gang tree.
    pub dva: Dva,
    /// Whether the segments are unknown: a gang header or the vdev's geometry can't be read.
    pub unreadable: bool,
}

/// A segment that is allocated and that nothing refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// The vdev.
    pub vdev: VdevId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Space of an allocation class (`metaslab_class_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassSpace {
    /// Whether some vdev of the class accepts new blocks.
    pub present: bool,
    /// Allocated bytes by the space maps, without their logs.
    pub alloc: u64,
    /// Bytes in metaslabs.
    pub space: u64,
}

/// Space by allocation class, from the headers of the space maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Classes {
    /// Data (`spa_normal_class`).
    pub normal: ClassSpace,
    /// Separate intent logs (`spa_log_class`).
    pub log: ClassSpace,
    /// Metadata and small blocks (`spa_special_class`).
    pub special: ClassSpace,
    /// Dedup tables (`spa_dedup_class`).
    pub dedup: ClassSpace,
    /// The metaslab that each large normal vdev lends to the intent log (`spa_embedded_log_class`).
    pub embedded_log: ClassSpace,
    /// Net bytes that the space map logs allocate. [`Classes::read`] leaves it at 0.
    pub unflushed: i64,
}

impl Classes {
    /// Reads the headers of all space maps.
    ///
    /// # Errors
    /// * [`pool::Error::Object`]: an object of the MOS can't be read.
    /// * [`pool::Error::Corrupt`]: a vdev has too many metaslabs, or an entry of a ZAP or a header
    ///   of a space map does not decode.
    pub fn read(spa: &Spa) -> pool::Result<Classes> {
        let mut out = Classes::default();
        for top in spa.top_vdevs()? {
            out.add(spa, &top)?;
        }
        Ok(out)
    }

    fn add(&mut self, spa: &Spa, top: &TopVdev) -> pool::Result<()> {
        let mut allocs = Vec::new();
        for (m, object) in spa.mos().metaslab_objects(top)?.into_iter().enumerate() {
            let (start, size) = top.metaslab(m as u64);
            let alloc = match object {
                0 => 0,
                o => SpaceMap::open(spa.mos(), ObjNum(o), start, size, top.ashift.0)?.phys().alloc.max(0)
                    as u64,
            };
            allocs.push((alloc, size));
        }
        let class = match top.class {
            Class::Normal => &mut self.normal,
            Class::Log => &mut self.log,
            Class::Special => &mut self.special,
            Class::Dedup => &mut self.dedup,
        };
        class.present |= !top.non_allocating;
        if top.class == Class::Normal {
            self.embedded_log.present |= !top.non_allocating;
            if allocs.len() as u64 > EMBEDDED_SLOG_MIN_MS {
                // The emptiest metaslab, the first of equals.
                let least = (0..allocs.len()).min_by_key(|i| allocs[*i].0).expect("there are many");
                let (alloc, size) = allocs.remove(least);
                self.embedded_log.alloc += alloc;
                self.embedded_log.space += size;
            }
        }
        let class = match top.class {
            Class::Normal => &mut self.normal,
            Class::Log => &mut self.log,
            Class::Special => &mut self.special,
            Class::Dedup => &mut self.dedup,
        };
        for (alloc, size) in allocs {
            class.alloc = class.alloc.saturating_add(alloc);
            class.space = class.space.saturating_add(size);
        }
        Ok(())
    }

    /// Allocated bytes of all classes, including [`Classes::unflushed`].
    pub fn total(&self) -> u64 {
        let classes = [&self.normal, &self.log, &self.special, &self.dedup, &self.embedded_log];
        let sum = classes.iter().fold(0u64, |n, c| n.saturating_add(c.alloc));
        sum.saturating_add_signed(self.unflushed)
    }
}

/// The allocated segments that no block has claimed yet.
pub struct LeakCheck {
    vdevs: HashMap<VdevId, Mutex<RangeSet>>,
    mappings: HashMap<VdevId, Vec<MappingEntry>>,
    /// Bytes that only the checkpoint refers to.
    pub checkpoint: u64,
    /// Net bytes that the space map logs allocate (`get_unflushed_alloc_space`).
    pub unflushed: i64,
    /// Number of segments of the checkpoint that are not allocated.
    pub checkpoint_wrong: u64,
    wrong: Mutex<(u64, Vec<Wrong>)>,
}

impl LeakCheck {
    /// Loads every allocated segment; `None` during a device removal (`zdb_leak_init`).
    ///
    /// # Errors
    /// * [`pool::Error::Object`]: an object of the MOS can't be read.
    /// * [`pool::Error::Corrupt`]: a space map, its log or a mapping does not decode, or leaves its
    ///   vdev.
    /// * [`pool::Error::Corrupt`]: a space map or its log allocates a range twice, or frees a free
    ///   one.
    pub fn load(spa: &Spa) -> pool::Result<Option<LeakCheck>> {
        /// The state of a removal under way (`DSS_SCANNING`).
        const SCANNING: u64 = 1;
        let mos = spa.mos();
        if mos.removing()?.is_some_and(|r| r.state == SCANNING) {
            return Ok(None);
        }
        let tops = spa.top_vdevs()?;
        let logs = LogChanges::read(mos, &tops)?;
        let mut claims = LeakCheck {
            vdevs: HashMap::new(),
            mappings: HashMap::new(),
            checkpoint: 0,
            unflushed: 0,
            checkpoint_wrong: 0,
            wrong: Mutex::new((0, Vec::new())),
        };
        for top in &tops {
            let mut allocated = RangeSet::new();
            mos.metaslabs(top, &logs, |ms| {
                claims.unflushed += ms.unflushed;
                for (start, end) in ms.allocated.iter() {
                    let fresh = allocated.add(start, end);
                    debug_assert!(fresh, "metaslabs are disjoint");
                }
                Ok(())
            })?;
            claims.leave_out_checkpoint(spa, top, &mut allocated)?;
            claims.vdevs.insert(top.id, Mutex::new(allocated));
        }
        let config = spa.config();
        let tree = config.vdev_tree.as_ref();
        for vdev in tree.map_or(&[][..], |t| &t.children) {
            let removed = vdev.kind == VdevKind::Indirect;
            if let Some(object) = vdev.indirect_object.filter(|o| removed && o.0 != 0) {
                let mapping = mos.indirect_mapping(object)?;
                claims.mappings.insert(VdevId(vdev.id as u32), mapping.entries);
            }
        }
        Ok(Some(claims))
    }

    fn leave_out_checkpoint(
        &mut self,
        spa: &Spa,
        top: &TopVdev,
        allocated: &mut RangeSet,
    ) -> pool::Result<()> {
        let mos = spa.mos();
        let Some(zap) = top.top_zap else { return Ok(()) };
        let Some(object) = mos.u64(zap, mos::VDEV_TOP_POOL_CHECKPOINT_SM)? else { return Ok(()) };
        SpaceMap::open(mos, ObjNum(object), 0, top.asize, top.ashift.0)?.walk(|step| {
            if let MapStep::Range(r) = step {
                if r.kind == MapType::Free && allocated.remove(r.start, r.end) {
                    self.checkpoint += r.end - r.start;
                } else {
                    self.checkpoint_wrong += 1;
                }
            }
            Ok(())
        })
    }

    /// Claims the space of a block, all copies (`metaslab_claim`).
    ///
    /// [`LeakCheck::finish`] reports failed claims.
    pub fn claim(&self, zio: &Zio, bp: &Blkptr) {
        let Some(s) = bp.stored() else { return };
        // No gang tree has more headers than one per sector and one per level.
        let mut headers_left = (s.psize.0 >> SPA_MINBLOCKSHIFT) + u64::from(MAX_DEPTH);
        self.claim_piece(zio, bp, 0, &mut headers_left);
    }

    fn claim_piece(&self, zio: &Zio, bp: &Blkptr, depth: u32, headers_left: &mut u64) {
        let Some(s) = bp.stored() else { return };
        let mut gang = None;
        for dva in s.copies() {
            let size = if dva.gang {
                gang = gang.or(Some(dva));
                match zio.tree().psize_to_asize(dva.vdev, GANG_HEADER, s.phys_birth) {
                    Ok(asize) => asize.0,
                    Err(_) => {
                        self.note(dva, true);
                        continue;
                    }
                }
            } else {
                dva.asize.0
            };
            if !self.take(dva.vdev, dva.offset.0, size, 0) {
                self.note(dva, false);
            }
        }
        let Some(first) = gang else { return };
        let left = headers_left.checked_sub(1).filter(|_| depth <= MAX_DEPTH);
        *headers_left = left.unwrap_or(0);
        match left.and_then(|_| pieces(zio, bp, s)) {
            Some(pieces) => pieces.iter().for_each(|p| self.claim_piece(zio, p, depth + 1, headers_left)),
            None => self.note(first, true),
        }
    }

    /// Removes a segment; false if it is missing.
    fn take(&self, vdev: VdevId, offset: u64, size: u64, depth: u32) -> bool {
        let Some(end) = offset.checked_add(size) else { return false };
        if let Some(mapping) = self.mappings.get(&vdev) {
            return depth < MAX_DEPTH && self.take_mapped(mapping, offset, end, depth);
        }
        self.vdevs.get(&vdev).is_some_and(|set| set.lock().remove(offset, end))
    }

    /// Removes the space to which a segment of a removed vdev was mapped.
    fn take_mapped(&self, mapping: &[MappingEntry], offset: u64, end: u64, depth: u32) -> bool {
        let mut at = offset;
        let first = mapping.partition_point(|e| e.src.0 + e.size <= offset);
        for e in &mapping[first..] {
            if at >= end {
                break;
            }
            if e.src.0 > at {
                return false;
            }
            let within = at - e.src.0;
            let size = (e.size - within).min(end - at);
            if !self.take(e.vdev, e.dst.0 + within, size, depth + 1) {
                return false;
            }
            at += size;
        }
        at >= end
    }

    fn note(&self, dva: &Dva, unreadable: bool) {
        let mut wrong = self.wrong.lock();
        wrong.0 += 1;
        if wrong.1.len() < MAX_WRONG {
            wrong.1.push(Wrong { dva: *dva, unreadable });
        }
    }

    /// Ends the search (`zdb_leak_fini`).
    ///
    /// Returns the leaked segments, the number of failed claims, and the first of these.
    pub fn finish(self) -> (Vec<Leak>, u64, Vec<Wrong>) {
        let mut vdevs: Vec<_> = self.vdevs.into_iter().collect();
        vdevs.sort_by_key(|(id, _)| *id);
        let mut leaks = Vec::new();
        for (vdev, set) in vdevs {
            let set = set.into_inner();
            leaks.extend(set.iter().map(|(start, end)| Leak { vdev, offset: start, size: end - start }));
        }
        let (count, wrong) = self.wrong.into_inner();
        (leaks, count, wrong)
    }
}

/// The members of a gang block, from the first header that can be read.
fn pieces(zio: &Zio, bp: &Blkptr, s: &Stored) -> Option<Vec<Blkptr>> {
    let no_bookmark = Bookmark { objset: 0, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
    let options = ReadOptions::demand();
    s.copies().filter(|d| d.gang).find_map(|d| zio.gang_pieces(bp, s, d, &no_bookmark, &options).ok())
}
