//! The vdev tree with its statistics.
//!
//! # Theory
//! The shape of the tree is that in memory, which the states belong to. So a query shows each vdev
//! once, with its state, even while a transaction group that changes the shape is being written.
//! All other facts about a vdev are from the configuration on disk.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};

use ondisk::{Guid, ObjNum, PoolConfig, VdevConfig, VdevKind};
use pool::metaslab::{Class, TopVdev, VdevSpace};
use spa::engine::{WorkKind, WorkStat};
use spa::import::AuxVdev;
use spa::{DeviceLocation, Spa};
use vdev::{DRAID_RESERVE, VdevAux, VdevInfo, VdevState};

use crate::view::states;
use api::{LeafWork, RebuildStat, RebuildState, Vdev, VdevStat, WorkState};

/// The size of a label. A device is used in units of that.
const LABEL: u64 = 256 << 10;
/// The bytes of labels and boot area at both ends of a device (`VDEV_LABEL_START_SIZE`,
/// `VDEV_LABEL_END_SIZE`).
pub const LABELS: u64 = 4 * LABEL + (7 << 19);

/// All facts for showing the vdevs of a pool.
pub struct VdevFacts<'a> {
    spa: &'a Spa,
    shape: &'a VdevConfig,
    /// The configuration on disk of each vdev.
    known: HashMap<Guid, &'a VdevConfig>,
    states: HashMap<u64, &'a VdevInfo>,
    sizes: HashMap<u64, u64>,
    /// Whether initialization and TRIM can run. Their state is unknown in a read-only pool
    /// (`vdev_trim_restart`).
    works: bool,
    /// The top-level vdevs with space, and how full they are.
    pub tops: HashMap<u64, (TopVdev, VdevSpace, u64)>,
}

impl<'a> VdevFacts<'a> {
    /// Reads the space maps' headers of a pool.
    ///
    /// `tree` is its tree, `info` the tree's present state, and `config` its configuration.
    /// `readonly` says whether the pool is read-only.
    ///
    /// # Errors
    /// * [`pool::Error`]: a top-level vdev's space maps can't be read.
    pub fn of(
        spa: &'a Spa,
        (tree, info): (&'a vdev::Tree, &'a VdevInfo),
        config: &'a PoolConfig,
        readonly: bool,
    ) -> pool::Result<Self> {
        let mut tops = HashMap::new();
        for top in spa.top_vdevs()? {
            let space = spa.mos().vdev_space(&top)?;
            let pinned = spa.mos().checkpoint_space(&top)?;
            tops.insert(u64::from(top.id.0), (top, space, pinned));
        }
        let mut states = HashMap::new();
        index(info, &mut states);
        let sizes = tree.devices().map(|(guid, d)| (guid.0, d.size() / LABEL * LABEL)).collect();
        let known = config.vdev_tree.iter().flat_map(VdevConfig::walk).map(|v| (v.guid, v)).collect();
        Ok(Self { spa, shape: tree.config(), known, states, sizes, works: !readonly, tops })
    }

    /// The root vdev, with everything below it.
    ///
    /// # Errors
    /// * [`pool::Error`]: the ZAP of a vdev can't be read.
    pub fn root(&self) -> pool::Result<Vdev> {
        let mut root = self.vdev(self.shape, 0, 0)?;
        for (top, space, pinned) in self.tops.values().filter(|t| t.0.class != Class::Log) {
            let s = &mut root.stat;
            s.space = s.space.saturating_add(space.space);
            s.alloc = s.alloc.saturating_add(space.alloc);
            s.dspace = s.dspace.saturating_add(top.deflate(space.space));
            s.checkpoint_space = s.checkpoint_space.saturating_add(*pinned);
        }
        for top in &mut root.children {
            if let Some((of, ..)) = self.tops.get(&top.id) {
                replaceable(top, of.ms_count() << of.ms_shift);
            }
        }
        Ok(root)
    }

    /// The configuration on disk of a vdev in the tree.
    ///
    /// A new vdev is not there yet, nor one that has taken over another's guid. Then this returns
    /// `shape`.
    fn known<'c>(&'c self, shape: &'c VdevConfig) -> &'c VdevConfig {
        self.known.get(&shape.guid).filter(|known| known.kind == shape.kind).map_or(shape, |known| known)
    }

    // The recursion is as deep as the tree, which is limited when it is built.
    fn vdev(&self, shape: &VdevConfig, depth: usize, ashift: u64) -> pool::Result<Vdev> {
        let config = self.known(shape);
        let mut v = Vdev { id: shape.id, ..from_config(config) };
        if let Some(info) = self.states.get(&config.guid.0) {
            v.path = info.path.as_ref().map(|p| String::from_utf8_lossy(p).into_owned()).or(v.path);
            counters(&mut v.stat, info);
        }
        // The vdevs below a top-level vdev have its sector size.
        let ashift = config.ashift.map_or(ashift, |a| u64::from(a.0));
        v.stat.configured_ashift = if depth == 0 { 0 } else { ashift };
        for c in &shape.children {
            v.children.push(self.vdev(c, depth + 1, ashift)?);
        }
        v.stat.pspace = match config.kind {
            VdevKind::DraidSpare => self.spare_size(config),
            _ => self.sizes.get(&config.guid.0).copied().unwrap_or(0),
        };
        if depth == 1
            && let Some((top, space, pinned)) = self.tops.get(&shape.id)
        {
            self.top(&mut v, top, space, *pinned)?;
            v.stat.esize = self.spa.room_to_grow(config);
        }
        if let (Some(zap), true) = (config.leaf_zap, self.works && shape.children.is_empty()) {
            match self.spa.writer() {
                Some(live) => {
                    v.stat.initialize =
                        work_of(live.initialize_trim().stat(config.guid, WorkKind::Initialize));
                    v.stat.trim = work_of(live.initialize_trim().stat(config.guid, WorkKind::Trim));
                }
                None => {
                    v.stat.initialize = self.work(zap, "com.delphix:vdev_initialize")?;
                    v.stat.trim = self.work(zap, "org.zfsonlinux:vdev_trim")?;
                }
            }
        }
        if matches!(config.kind, VdevKind::Disk | VdevKind::File) {
            v.stat.trim_notsup = !self.spa.tree().could_trim(config.guid);
            v.stat.initialize_errors = v.stat.initialize.errors;
        }
        v.stat.noalloc = config.non_allocating;
        v.stat.removing = config.removing;
        v.stat.resilver_deferred = config.resilver_defer;
        Ok(v)
    }

    fn top(&self, v: &mut Vdev, top: &TopVdev, space: &VdevSpace, pinned: u64) -> pool::Result<()> {
        let s = &mut v.stat;
        (s.space, s.alloc, s.fragmentation) = (space.space, space.alloc, space.fragmentation);
        (s.dspace, s.checkpoint_space) = (top.deflate(space.space), pinned);
        match top.class {
            Class::Log => v.is_log = true,
            Class::Special => v.alloc_bias = Some("special".into()),
            Class::Dedup => v.alloc_bias = Some("dedup".into()),
            Class::Normal => {}
        }
        if let Some(zap) = top.top_zap {
            let active = self.spa.writer().and_then(|live| live.scans().rebuild_stat(top.id));
            let phys = match active {
                Some(active) => Some(active.phys),
                None => self.spa.mos().rebuild(zap)?,
            };
            v.rebuild = phys.map(|r| RebuildStat {
                state: match r.state {
                    1 => RebuildState::Active,
                    2 => RebuildState::Canceled,
                    3 => RebuildState::Complete,
                    _ => RebuildState::None,
                },
                start_time: r.start_time,
                end_time: r.end_time,
                scan_time_ms: r.scan_time_ms,
                bytes_scanned: r.bytes_scanned,
                bytes_issued: r.bytes_issued,
                bytes_rebuilt: r.bytes_rebuilt,
                bytes_est: r.bytes_est,
                errors: r.errors,
                pass_time_ms: active.map_or(0, |a| a.pass_ms),
                pass_bytes_scanned: active.map_or(0, |a| a.pass_scanned),
                pass_bytes_issued: active.map_or(0, |a| a.pass_issued),
                pass_bytes_skipped: active.map_or(0, |a| a.pass_skipped),
            });
        }
        Ok(())
    }

    /// The size of a distributed spare: that of the smallest device that it is spread over.
    fn spare_size(&self, config: &VdevConfig) -> u64 {
        let Some((top, _)) = config.draid_spare else { return 0 };
        let draid = self.shape.children.iter().find(|c| c.guid == top);
        let sizes = draid.iter().flat_map(|d| &d.children).filter_map(|c| self.sizes.get(&c.guid.0));
        sizes.copied().min().unwrap_or(0)
    }

    /// The progress of a leaf's initialization or TRIM, from its ZAP.
    fn work(&self, zap: ObjNum, what: &str) -> pool::Result<LeafWork> {
        let read = |tail: &str| self.spa.mos().u64(zap, &format!("{what}_{tail}"));
        let state = match read("state")? {
            Some(1) => WorkState::Active,
            Some(2) => WorkState::Canceled,
            Some(3) => WorkState::Suspended,
            Some(4) => WorkState::Complete,
            _ => WorkState::None,
        };
        Ok(LeafWork { state, action_time: read("action_time")?.unwrap_or(0), ..LeafWork::default() })
    }

    /// A hot spare or cache device.
    ///
    /// # Errors
    /// * [`pool::Error`]: its ZAP can't be read.
    pub fn auxiliary(&self, a: &AuxVdev, cache: bool) -> pool::Result<Vdev> {
        let mut v = from_config(&a.config);
        (v.stat.state, v.stat.aux) = (states::state(a.state), states::aux(a.aux));
        // A spare that replaces a device is in the tree.
        if let Some(info) = self.states.get(&a.config.guid.0).filter(|_| !cache) {
            (v.stat.state, v.stat.aux) = (states::state(info.state), api::VdevAux::Spared);
        }
        v.is_spare = !cache;
        v.stat.trim_notsup = a.config.kind == VdevKind::DraidSpare;
        v.stat.pspace = match (a.config.kind, &a.place) {
            (VdevKind::DraidSpare, _) => self.spare_size(&a.config),
            (_, Some(place)) => size_of(place) / LABEL * LABEL,
            (_, None) => 0,
        };
        if cache {
            // The header's sector is not for data.
            let header = 1u64 << a.config.ashift.map_or(9, |s| s.0.min(16));
            v.stat.space = v.stat.pspace.saturating_sub(LABELS).saturating_sub(header);
            v.stat.fragmentation = Some(0);
            if let Some(used) = self.spa.cache().device_stats(a.config.guid) {
                let s = &mut v.stat;
                (s.space, s.alloc) = (used.space, used.alloc.min(used.space));
                (s.ops[1], s.ops[2]) = (used.ops[0], used.ops[1]);
                (s.bytes[1], s.bytes[2]) = (used.bytes[0], used.bytes[1]);
                [s.read_errors, s.write_errors] = used.errors;
                s.checksum_errors = used.checksum_errors;
                if used.failed {
                    (s.state, s.aux) = (states::state(VdevState::Faulted), states::aux(VdevAux::ErrExceeded));
                }
            }
        }
        if let Some(zap) = a.config.leaf_zap.filter(|_| self.works) {
            v.stat.trim = self.work(zap, "org.zfsonlinux:vdev_trim")?;
        }
        Ok(v)
    }
}

/// Sets the least size of a replacement of a vdev, and of each below it (`vdev_get_min_asize`).
// The recursion is as deep as the tree, which is limited when it is built.
fn replaceable(v: &mut Vdev, least: u64) {
    let children = v.children.len() as u64;
    let disks = children.saturating_sub(v.draid_nspares).max(1);
    let below = match v.kind.as_str() {
        "raidz" => least.div_ceil(children.max(1)),
        "draid" => DRAID_RESERVE + least.div_ceil(disks),
        _ => least,
    };
    v.stat.rsize = if children == 0 { least + LABELS } else { least };
    v.children.iter_mut().for_each(|c| replaceable(c, below));
}

/// The background work of a device, from the engine.
fn work_of(stat: WorkStat) -> LeafWork {
    use spa::engine::WorkState as E;
    let state = match stat.state {
        E::None => WorkState::None,
        E::Active => WorkState::Active,
        E::Canceled => WorkState::Canceled,
        E::Suspended => WorkState::Suspended,
        E::Complete => WorkState::Complete,
    };
    LeafWork {
        state,
        action_time: stat.action_time,
        bytes_done: stat.done,
        bytes_est: stat.estimate,
        errors: stat.errors,
    }
}

/// The size of a device in bytes; 0 if it is unknown.
fn size_of(place: &DeviceLocation) -> u64 {
    match &place.partition {
        Some(p) => p.size,
        None => File::open(&place.path).and_then(|mut f| f.seek(SeekFrom::End(0))).unwrap_or(0),
    }
}

fn index<'a>(v: &'a VdevInfo, into: &mut HashMap<u64, &'a VdevInfo>) {
    into.insert(v.guid.0, v);
    v.children.iter().for_each(|c| index(c, into));
}

/// Updates the states and counters of a tree.
pub fn refresh(root: &mut Vdev, info: &VdevInfo) {
    fn walk(v: &mut Vdev, states: &HashMap<u64, &VdevInfo>) {
        if let Some(info) = states.get(&v.guid) {
            counters(&mut v.stat, info);
        }
        v.children.iter_mut().for_each(|child| walk(child, states));
    }
    let mut states = HashMap::new();
    index(info, &mut states);
    walk(root, &states);
}

/// Sets the state and counters of a vdev.
pub fn counters(s: &mut VdevStat, info: &VdevInfo) {
    (s.state, s.aux) = (states::state(info.state), states::aux(info.aux));
    (s.read_errors, s.write_errors) = (info.stats.read_errors, info.stats.write_errors);
    s.checksum_errors = info.stats.checksum_errors;
    s.slow_ios = info.stats.slow_ios;
    (s.self_healed, s.scan_processed) = (info.stats.self_healed, info.stats.scan_repaired);
    (s.ops[1], s.ops[2]) = (info.stats.read_ops, info.stats.write_ops);
    (s.bytes[1], s.bytes[2]) = (info.stats.read_bytes, info.stats.write_bytes);
    (s.ops[5], s.bytes[5]) = (info.stats.trim_ops, info.stats.trim_bytes);
    s.configured_ashift = u64::from(info.ashift);
}

/// A vdev with the facts of its configuration only.
pub fn from_config(c: &VdevConfig) -> Vdev {
    let text = |t: &Option<Vec<u8>>| t.as_ref().map(|p| String::from_utf8_lossy(p).into_owned());
    let draid = c.draid.as_ref();
    Vdev {
        kind: c.kind.name().into(),
        id: c.id,
        guid: c.guid.0,
        path: text(&c.path),
        phys_path: text(&c.phys_path),
        devid: text(&c.devid),
        whole_disk: c.whole_disk.unwrap_or(false),
        not_present: c.not_present,
        is_log: c.is_log,
        is_hole: c.is_hole || c.kind == VdevKind::Hole,
        is_spare: c.is_spare,
        alloc_bias: c.alloc_bias.filter(|_| !c.is_log).map(|b| states::bias(b).to_owned()),
        nparity: c.nparity.unwrap_or(0),
        draid_ndata: draid.map_or(0, |d| d.ndata),
        draid_nspares: draid.map_or(0, |d| d.nspares),
        ..Vdev::default()
    }
}
