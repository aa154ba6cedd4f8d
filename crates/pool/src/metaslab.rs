//! Metaslabs: which space of a top-level vdev is allocated.
//!
//! # Theory
//! The space of a top-level vdev is divided into metaslabs of equal size. Each has a space map,
//! unless it was never used. With `log_spacemap`, pool-wide logs hold the changes of recent txgs
//! instead. A metaslab's own map ends before its *unflushed txg*. The logs of that txg and of later
//! ones hold the rest. A load replays both. A range that is allocated twice, or freed while free,
//! is corrupt.

use crate::range::RangeSet;
use crate::spacemap::{MapStep, SpaceMap};
use crate::{Error, Mos, Result};
use ondisk::bytes::le64;
use ondisk::config::{VdevConfig, VdevKind};
use ondisk::spacemap::{MapType, SpaceMapPhys};
use ondisk::{Ashift, Corrupt, ObjNum, Txg, VdevId, mos};
use std::collections::BTreeMap;

/// The purpose of a top-level vdev's space (`metaslab_class_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Data and metadata.
    Normal,
    /// Intent logs.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
}

/// The properties of a top-level vdev that this crate needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopVdev {
    /// Its number.
    pub id: VdevId,
    /// log2 of its sector size, which is the unit of its space maps (`vdev_ashift`).
    pub ashift: Ashift,
    /// Its allocatable bytes (`vdev_asize`).
    pub asize: u64,
    /// The object that holds the numbers of its space maps (`vdev_ms_array`).
    pub ms_array: ObjNum,
    /// log2 of the size of a metaslab (`vdev_ms_shift`).
    pub ms_shift: u8,
    /// Metaslabs begin and end at multiples of this (`vdev_draid_metaslab_init`). It is the width
    /// of a draid group, otherwise 1.
    pub quantum: u64,
    /// The purpose of its space.
    pub class: Class,
    /// The number of disks for a block's data, without parity (`vdev_get_ndisks -
    /// vdev_get_nparity`). 1 for a mirror.
    pub data_disks: u64,
    /// Its ZAP, if it has one (`vdev_top_zap`).
    pub top_zap: Option<ObjNum>,
    /// The usable part of its space, in 1/512 (`vdev_deflate_ratio`). See [`deflate_ratio`].
    pub deflate_ratio: u64,
    /// True if it takes no new blocks (`vdev_noalloc`, or being removed).
    pub non_allocating: bool,
}

/// The deflate ratio of a vdev on which a 128 KiB block takes `asize` bytes
/// (`vdev_set_deflate_ratio`).
pub fn deflate_ratio(asize: u64) -> u64 {
    (1u64 << 17).checked_div(asize >> 9).unwrap_or(512)
}

/// Most metaslabs of a vdev. OpenZFS creates at most 131072.
const MAX_METASLABS: u64 = 1 << 22;

/// Most entries of all log space maps.
///
/// OpenZFS flushes when its entries take a gigabyte of memory (`zfs_unflushed_max_mem_amt`), at 72
/// bytes each. A log also keeps entries that later ones have undone.
const MAX_LOG_ENTRIES: u64 = 1 << 26;

impl TopVdev {
    /// A top-level vdev from the config in the MOS. `None` if it has no metaslabs: a hole, or a
    /// removed device.
    ///
    /// `asize` is what a block of 128 KiB takes on it.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if it would have too many
    /// metaslabs.
    pub fn from_config(mos: &Mos, config: &VdevConfig, asize: u64) -> Result<Option<Self>> {
        let shift = config.metaslab_shift.filter(|s| (9..63).contains(s));
        let (Some(ashift), Some(size), Some(ms_array), Some(shift)) =
            (config.ashift, config.asize, config.metaslab_array, shift)
        else {
            return Ok(None);
        };
        if matches!(config.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing) {
            return Ok(None);
        }
        let bias = match config.top_zap {
            Some(zap) => mos.string(zap, mos::VDEV_TOP_ALLOCATION_BIAS)?,
            None => None,
        };
        let class = match bias.as_deref() {
            _ if config.is_log => Class::Log,
            Some("log") => Class::Log,
            Some("special") => Class::Special,
            Some("dedup") => Class::Dedup,
            _ => Class::Normal,
        };
        let count = size >> shift;
        if count > MAX_METASLABS {
            let source = Corrupt::Range { what: "vdev", field: "metaslabs", value: count };
            return Err(Error::Corrupt { object: ms_array, source });
        }
        Ok(Some(Self {
            id: VdevId(config.id as u32),
            ashift,
            asize: size,
            ms_array,
            ms_shift: shift as u8,
            quantum: match (&config.draid, config.nparity) {
                (Some(d), Some(p)) => d.ndata.saturating_add(p).clamp(1, 1 << 16) << ashift.0.min(16),
                _ => 1,
            },
            class,
            data_disks: match (&config.draid, config.nparity) {
                (Some(d), _) => d.ndata,
                (None, Some(p)) => (config.children.len() as u64).saturating_sub(p),
                (None, None) => 1,
            }
            .max(1),
            top_zap: config.top_zap,
            deflate_ratio: if mos.deflates()? { deflate_ratio(asize) } else { 512 },
            non_allocating: config.non_allocating || config.removing,
        }))
    }

    /// The number of its metaslabs (`vdev_ms_count`).
    pub fn ms_count(&self) -> u64 {
        if self.ms_shift == 0 { 0 } else { self.asize.checked_shr(self.ms_shift.into()).unwrap_or(0) }
    }

    /// The start and size of metaslab `id`.
    pub fn metaslab(&self, id: u64) -> (u64, u64) {
        let (start, end) = (id << self.ms_shift, (id + 1) << self.ms_shift);
        let start = start.next_multiple_of(self.quantum).min(end);
        (start, (end - start) / self.quantum * self.quantum)
    }

    /// The bytes in all its metaslabs.
    pub fn space(&self) -> u64 {
        if self.quantum == 1 {
            return self.ms_count() << self.ms_shift;
        }
        (0..self.ms_count()).map(|id| self.metaslab(id).1).sum()
    }

    /// The bytes of `space` as file systems see them (`vdev_deflated_space`).
    pub fn deflate(&self, space: u64) -> u64 {
        (space >> 9).saturating_mul(self.deflate_ratio)
    }
}

/// A metaslab as it is on disk, with its logged changes.
#[derive(Debug, Clone)]
pub struct Metaslab {
    /// Its number in the vdev.
    pub id: u64,
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The object of its space map, if it ever had one.
    pub object: Option<ObjNum>,
    /// The header of the space map.
    pub phys: Option<SpaceMapPhys>,
    /// The first txg whose changes are in logs, with `log_spacemap` (`ms_unflushed_txg`).
    pub unflushed_txg: Option<Txg>,
    /// The allocated ranges.
    pub allocated: RangeSet,
    /// Net bytes that logged changes allocate. The sum of the space map does not include them.
    pub unflushed: i64,
    /// log2 of the unit of the space map.
    shift: u8,
}

/// Fragmentation in percent, by the size of free segments from 512 bytes on (`zfs_frag_table`).
const FRAGMENTATION: [u64; 21] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];

impl Metaslab {
    /// The free ranges.
    pub fn free(&self) -> RangeSet {
        self.allocated.gaps(self.start, self.start + self.size)
    }

    /// Fragmentation in percent, from the histogram of the space map
    /// (`metaslab_set_fragmentation`). `None` without a histogram.
    pub fn fragmentation(&self) -> Option<u64> {
        fragmentation(self.phys.as_ref(), self.shift)
    }
}

/// As [`Metaslab::fragmentation`], from the header of a space map. A metaslab without space map is
/// not fragmented.
pub fn fragmentation(phys: Option<&SpaceMapPhys>, shift: u8) -> Option<u64> {
    let Some(phys) = phys else { return Some(0) };
    if !phys.have_histogram {
        return None;
    }
    let (mut total, mut sum) = (0u128, 0u128);
    for (i, &n) in phys.histogram.iter().enumerate() {
        let row = (usize::from(shift).saturating_sub(9) + i).min(FRAGMENTATION.len() - 1);
        let space = u128::from(n) << (i + usize::from(shift)).min(63);
        total = total.saturating_add(space);
        sum = sum.saturating_add(space.saturating_mul(FRAGMENTATION[row].into()));
    }
    Some(sum.checked_div(total).unwrap_or(0) as u64)
}

/// A change of a metaslab in a log space map.
#[derive(Debug, Clone, Copy)]
struct Change {
    txg: u64,
    kind: MapType,
    start: u64,
    end: u64,
}

/// The changes in all log space maps, by vdev and metaslab, in order.
#[derive(Debug, Default)]
pub struct LogChanges(BTreeMap<(u32, u64), Vec<Change>>);

impl LogChanges {
    /// Reads all log space maps (`spa_ld_log_spacemaps`).
    ///
    /// `vdevs` are the concrete top-level vdevs. Changes of others are skipped.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if an entry leaves its vdev
    /// or crosses metaslabs, or if there are too many.
    pub fn read(mos: &Mos, vdevs: &[TopVdev]) -> Result<Self> {
        let mut out = Self::default();
        let mut left = MAX_LOG_ENTRIES;
        for (txg, object) in mos.log_spacemaps()? {
            let bad = Error::corrupt(object);
            let map = SpaceMap::open(mos, object, 0, u64::MAX >> 1, 9)?;
            map.walk(|step| {
                let MapStep::Range(r) = step else { return Ok(()) };
                let vdev = r.vdev.ok_or_else(|| {
                    bad(Corrupt::Shape { what: "log space map", why: "an entry without vdev" })
                })?;
                let Some(vd) = vdevs.iter().find(|v| v.id.0 == vdev) else { return Ok(()) };
                let ms = r.start >> vd.ms_shift.min(63);
                if ms >= vd.ms_count() || (r.end - 1) >> vd.ms_shift != ms {
                    return Err(bad(Corrupt::Range {
                        what: "log space map",
                        field: "offset",
                        value: r.start,
                    }));
                }
                let change = Change { txg, kind: r.kind, start: r.start, end: r.end };
                left = left.checked_sub(1).ok_or_else(|| {
                    bad(Corrupt::Shape { what: "log space map", why: "the logs have absurdly many entries" })
                })?;
                out.0.entry((vdev, ms)).or_default().push(change);
                Ok(())
            })?;
        }
        Ok(out)
    }

    /// The net changes of a metaslab in the logs of `first` and later txgs: ranges that become
    /// allocated, and ranges that become free.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: a range is allocated twice or freed twice in a row.
    pub fn net(&self, vd: &TopVdev, id: u64, first: Txg) -> Result<(RangeSet, RangeSet)> {
        let (mut added, mut removed) = (RangeSet::new(), RangeSet::new());
        for c in self.0.get(&(vd.id.0, id)).into_iter().flatten().filter(|c| c.txg >= first.0) {
            let fits = match c.kind {
                MapType::Alloc => removed.undo_or_add(&mut added, c.start, c.end),
                MapType::Free => added.undo_or_add(&mut removed, c.start, c.end),
            };
            if !fits {
                let why = "a range is allocated or freed twice";
                let source = Corrupt::Shape { what: "log space map", why };
                return Err(Error::Corrupt { object: vd.ms_array, source });
            }
        }
        Ok((added, removed))
    }
}

impl Mos {
    /// The log space maps by txg (`DMU_POOL_LOG_SPACEMAP_ZAP`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if a name is no txg.
    pub fn log_spacemaps(&self) -> Result<BTreeMap<u64, ObjNum>> {
        let Some(zap) = self.dir(mos::LOG_SPACEMAP_ZAP)? else { return Ok(BTreeMap::new()) };
        let bad = Error::corrupt(zap);
        let mut out = BTreeMap::new();
        for e in self.entries(zap)? {
            let e = e?;
            let name = e.name_lossy();
            let txg = u64::from_str_radix(&name, 16)
                .map_err(|_| bad(Corrupt::Shape { what: "log space map ZAP", why: "a name is no txg" }))?;
            if let Some(object) = e.value.first() {
                out.insert(txg, ObjNum(object));
            }
        }
        Ok(out)
    }

    /// The objects of the space maps of a vdev's metaslabs, in order. 0 for a metaslab that was
    /// never used.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if the vdev would have too
    /// many metaslabs.
    pub fn metaslab_objects(&self, vd: &TopVdev) -> Result<Vec<u64>> {
        let count = vd.ms_count();
        if count > MAX_METASLABS {
            let source = Corrupt::Range { what: "vdev", field: "metaslabs", value: count };
            return Err(Error::Corrupt { object: vd.ms_array, source });
        }
        let dn = self.objset().dnode(vd.ms_array)?;
        let mut buf = vec![0; count as usize * 8];
        dn.read_at(0, &mut buf)?;
        Ok((0..count as usize).map(|i| le64(&buf, i * 8)).collect())
    }

    /// For each metaslab, the txg from which on its changes are in logs. Empty without
    /// `log_spacemap`.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn unflushed_txgs(&self, vd: &TopVdev) -> Result<Vec<u64>> {
        let Some(zap) = vd.top_zap else { return Ok(Vec::new()) };
        let Some(obj) = self.u64(zap, mos::VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS)? else { return Ok(Vec::new()) };
        let count = vd.ms_count().min(MAX_METASLABS) as usize;
        let dn = self.objset().dnode(ObjNum(obj))?;
        let mut buf = vec![0; count * 8];
        dn.read_at(0, &mut buf)?;
        Ok((0..count).map(|i| le64(&buf, i * 8)).collect())
    }

    /// Loads metaslab `id` of a vdev (`metaslab_load`).
    ///
    /// `object` and `unflushed` are its elements of [`Mos::metaslab_objects`] and
    /// [`Mos::unflushed_txgs`].
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if a range is allocated
    /// twice or freed while free.
    pub fn load_metaslab(
        &self,
        vd: &TopVdev,
        id: u64,
        object: u64,
        unflushed: Option<u64>,
        logs: &LogChanges,
    ) -> Result<Metaslab> {
        let (start, size) = vd.metaslab(id);
        let mut ms = Metaslab {
            id,
            start,
            size,
            object: (object != 0).then_some(ObjNum(object)),
            phys: None,
            unflushed_txg: unflushed.map(Txg),
            allocated: RangeSet::new(),
            unflushed: 0,
            shift: vd.ashift.0,
        };
        let mut apply = |object: ObjNum, kind, start, end| {
            let fits = match kind {
                MapType::Alloc => ms.allocated.add(start, end),
                MapType::Free => ms.allocated.remove(start, end),
            };
            let why = match kind {
                MapType::Alloc => "a range is allocated twice",
                MapType::Free => "a range is freed while free",
            };
            if fits {
                Ok(())
            } else {
                Err(Error::Corrupt { object, source: Corrupt::Shape { what: "space map", why } })
            }
        };
        if let Some(object) = ms.object {
            let map = SpaceMap::open(self, object, start, size, vd.ashift.0)?;
            map.walk(|step| match step {
                MapStep::Range(r) => apply(object, r.kind, r.start, r.end),
                MapStep::Debug { .. } => Ok(()),
            })?;
            ms.phys = Some(map.phys().clone());
        }
        let first = unflushed.unwrap_or(0);
        let mut net = 0i64;
        for c in logs.0.get(&(vd.id.0, id)).into_iter().flatten().filter(|c| c.txg >= first) {
            apply(ms.object.unwrap_or(vd.ms_array), c.kind, c.start, c.end)?;
            let n = (c.end - c.start) as i64;
            net += if c.kind == MapType::Alloc { n } else { -n };
        }
        ms.unflushed = net;
        Ok(ms)
    }

    /// Loads the metaslabs of a vdev one after another, and passes each to `each`.
    ///
    /// Only one is in memory at a time.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading). [`Error::Corrupt`] also if a range is allocated
    ///   twice or freed while free.
    /// * The errors of `each`.
    pub fn metaslabs(
        &self,
        vd: &TopVdev,
        logs: &LogChanges,
        mut each: impl FnMut(Metaslab) -> Result<()>,
    ) -> Result<()> {
        let unflushed = self.unflushed_txgs(vd)?;
        for (id, object) in self.metaslab_objects(vd)?.into_iter().enumerate() {
            let u = unflushed.get(id).copied().filter(|t| *t != 0);
            each(self.load_metaslab(vd, id as u64, object, u, logs)?)?;
        }
        Ok(())
    }

    /// The space figures of a vdev, from the headers of its space maps alone, as `zpool list` shows
    /// them.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn vdev_space(&self, vd: &TopVdev) -> Result<VdevSpace> {
        let mut out = VdevSpace { space: vd.space(), alloc: 0, fragmentation: None };
        let (mut valid, mut total, mut weighted, mut free_sum) = (0u64, 0u64, 0u128, 0u128);
        for (id, object) in self.metaslab_objects(vd)?.into_iter().enumerate() {
            let (start, size) = vd.metaslab(id as u64);
            let phys = if object == 0 {
                None
            } else {
                Some(SpaceMap::open(self, ObjNum(object), start, size, vd.ashift.0)?.phys().clone())
            };
            total += 1;
            let alloc = phys.as_ref().map_or(0, |p| p.alloc).clamp(0, i64::MAX) as u64;
            out.alloc = out.alloc.saturating_add(alloc);
            if let Some(f) = fragmentation(phys.as_ref(), vd.ashift.0) {
                valid += 1;
                let free = u128::from(size.saturating_sub(alloc) >> 9);
                free_sum += free;
                weighted += free * u128::from(f);
            }
        }
        if valid >= total.div_ceil(2) {
            out.fragmentation = weighted.checked_div(free_sum).map(|f| f as u64);
        }
        Ok(out)
    }
}

/// The space figures of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VdevSpace {
    /// Bytes in metaslabs (SIZE).
    pub space: u64,
    /// Bytes allocated (ALLOC).
    pub alloc: u64,
    /// Fragmentation in percent (FRAG). `None` if it is not known.
    pub fragmentation: Option<u64>,
}
