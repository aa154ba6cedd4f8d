//! One attempt to load a pool, step by step.

use std::sync::Arc;

use arc::Cache;
use dmu::Objset;
use observe::{Tunable, Unit};
use ondisk::config::{AllocBias, PoolState};
use ondisk::spacemap::MapType;
use ondisk::uberblock::ScratchState;
use ondisk::{
    Blkptr, Corrupt, Guid, ObjNum, PoolConfig, RootedConfig, Txg, Uberblock, VdevConfig, VdevId, VdevKind,
    mos,
};
use pool::Mos;
use pool::config::Features;
use pool::spacemap::{MapStep, SpaceMap};
use vdev::{Reflow, Tree, TxgRanges, VdevInfo, VdevState};
use zio::{ReadOptions, Zio};

use crate::aux_devices::Asides;
use crate::import::devices::{Devices, Trust, top_level_leaves};
use crate::import::uberblock::{Selected, leaves, select};
use crate::import::{Claim, Clock, Options, aux, features, mmp};
use crate::pool_core::state::Synced;
use crate::{Candidate, Errata, Failure, Host, Spa, SpaError};

/// Most repeats of a load for devices that appear late. Fewer than the top-level vdevs that hold
/// the newest uberblock (`SPA_SYNC_MIN_VDEVS`).
const MAX_RELOADS: usize = 2;
/// Missing top-level vdevs with which a pool can be opened for reading (`zfs_max_missing_tvds`).
pub static MISSING_TOPS: Tunable = Tunable::new(
    "zfs_max_missing_tvds",
    0,
    0..=u32::MAX as u64,
    Unit::Count,
    "most missing top-level vdevs with which a pool imports read-only",
);
/// Most txg ranges that one device may have missed.
const MAX_DTL_RANGES: usize = 1 << 22;
/// `com.datto:encryption` and `com.datto:bookmark_v2`: the first without the second is a known
/// defect.
const ENCRYPTION: &str = "com.datto:encryption";
const BOOKMARK_V2: &str = "com.datto:bookmark_v2";

/// What a load is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To import (`SPA_LOAD_IMPORT`).
    Import,
    /// To report what could be imported (`SPA_LOAD_TRYIMPORT`).
    Examine,
}

/// The inputs of an attempt.
#[derive(Clone, Copy)]
pub(super) struct Loader<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) options: &'a Options,
    pub(super) host: &'a Host,
    pub(super) clock: &'a dyn Clock,
    pub(super) purpose: Purpose,
}

/// The progress of an attempt; kept if it fails, for the report.
#[derive(Default)]
pub(super) struct Progress {
    /// The last tree that was opened.
    pub(super) tree: Option<Arc<Tree>>,
    /// The uberblock that was chosen.
    pub(super) uberblock: Option<Uberblock>,
    /// The MOS's config, once read.
    pub(super) config: Option<PoolConfig>,
}

impl Progress {
    pub(super) fn failure(&self, error: SpaError) -> Failure {
        let tree = self.tree.as_ref().map(|t| {
            let mut info = t.describe();
            if let Some(aux) = error.root_aux() {
                (info.state, info.aux) = (VdevState::CantOpen, aux);
            }
            info
        });
        let used = self.uberblock.as_ref().map(|u| (u.txg, u.timestamp));
        Failure { error, tree, used, rewind: None }
    }
}

/// A tree, its config, and the MOS read through it.
struct Opened {
    config: PoolConfig,
    root: VdevConfig,
    tree: Arc<Tree>,
    cache: Arc<Cache>,
    mos: Mos,
    uberblock: Uberblock,
    /// Txg of the newest uberblock on any device, even if it is too new.
    newest: Txg,
}

pub(super) fn in_mos(what: &'static str) -> impl Fn(pool::Error) -> SpaError {
    move |source| SpaError::Mos { what, source }
}

/// Forgets faults that were detected elsewhere or are temporary. The config marks a fault that a
/// user made permanent (`vdev_alloc`).
// Recursion as deep as the tree, whose depth the decoder has checked.
fn forgive(vdev: &mut VdevConfig) {
    if vdev.aux_state.as_deref() != Some("external") {
        vdev.faulted = false;
    }
    vdev.children.iter_mut().for_each(forgive);
}

impl Loader<'_> {
    /// The devices for all attempts of an import.
    pub(super) fn devices(&self) -> Devices {
        Devices::new(&self.candidate.members, self.options.mode(), self.options.layer.clone())
    }

    /// Loads the newest state that is not newer than `max` (`spa_load_impl`).
    pub(super) fn load(
        &self,
        devices: &Devices,
        max: Txg,
        extreme: bool,
        progress: &mut Progress,
    ) -> Result<Spa, SpaError> {
        let mut opened = self.open_trusted(devices, max, extreme, progress)?;
        if self.options.checkpoint {
            let checkpoint = checkpoint(&opened.mos)?.ok_or(SpaError::NoCheckpoint)?;
            progress.uberblock = Some(checkpoint.clone());
            let mos = self.open_mos(&opened.tree, &checkpoint)?;
            let newest = opened.newest;
            opened = Opened { newest, ..self.trusted(devices, mos, checkpoint, extreme, progress)? };
        }
        self.finish(devices, opened)
    }

    /// From the labels' config to the trusted one (`spa_ld_mos_with_trusted_config`).
    fn open_trusted(
        &self,
        devices: &Devices,
        max: Txg,
        extreme: bool,
        progress: &mut Progress,
    ) -> Result<Opened, SpaError> {
        let labels = &self.candidate.config;
        let mut root = labels.vdev_tree.clone().ok_or(SpaError::NoLabel)?;
        // A vdev that no label describes may be a removed one; the MOS decides. Until then it
        // counts as a hole, neither healthy nor failed (`vdev_missing_open` pretends to succeed).
        for top in root.children.iter_mut().filter(|t| t.kind == VdevKind::Missing) {
            top.kind = VdevKind::Hole;
        }
        let tree = self
            .open_tree(&root, devices, Trust::Labels { pool: self.candidate.guid }, progress)?
            .map_err(SpaError::Config)?;
        let mut opened = {
            let found = select(&leaves(&tree, &root), max, extreme).ok_or(SpaError::NoUberblock)?;
            progress.uberblock = Some(found.uberblock.clone());
            self.check_activity(&tree, &root, &found, max)?;
            self.check_label(&found)?;
            let mos = self.open_mos(&tree, &found.uberblock)?;
            let opened = self.trusted(devices, mos, found.uberblock, extreme, progress)?;
            Opened { newest: found.newest.max(opened.newest), ..opened }
        };
        for _ in 0..MAX_RELOADS {
            // Devices that only the trusted config names may have a newer state.
            let best = select(&leaves(&opened.tree, &opened.root), max, extreme);
            let newest = best.as_ref().map_or(opened.newest, |s| s.newest.max(opened.newest));
            opened.newest = newest;
            let Some(found) = best.filter(|s| s.uberblock.newer(&opened.uberblock).is_gt()) else { break };
            progress.uberblock = Some(found.uberblock.clone());
            self.check_label(&found)?;
            let mos = self.open_mos(&opened.tree, &found.uberblock)?;
            opened = self.trusted(devices, mos, found.uberblock, extreme, progress)?;
            opened.newest = opened.newest.max(newest);
        }
        Ok(opened)
    }

    /// Builds a tree and opens its devices. The inner error is about the config.
    fn open_tree(
        &self,
        root: &VdevConfig,
        devices: &Devices,
        trust: Trust,
        progress: &mut Progress,
    ) -> Result<Result<Arc<Tree>, vdev::VdevError>, SpaError> {
        let tops = top_level_leaves(root);
        let (Trust::Labels { pool } | Trust::Mos { pool, .. }) = trust;
        devices.look_for_splits(root, pool);
        let opened = Tree::open(root, &mut |leaf| devices.open(leaf, tops.contains(&leaf.guid), trust));
        let tree = match opened {
            Ok(tree) => Arc::new(tree.lacking(MISSING_TOPS.get() as usize)),
            Err(e) => return Ok(Err(e)),
        };
        progress.tree = Some(tree.clone());
        if let Some(busy) = devices.take_busy() {
            return Err(SpaError::InUse(busy));
        }
        let (state, aux) = tree.state();
        if state <= VdevState::CantOpen {
            return Err(SpaError::CantOpen { aux });
        }
        Ok(Ok(tree))
    }

    /// Refuses a pool that another host writes to.
    fn check_activity(
        &self,
        tree: &Arc<Tree>,
        root: &VdevConfig,
        found: &Selected,
        max: Txg,
    ) -> Result<(), SpaError> {
        let label = found.label.as_ref();
        let (ub, before) = (&found.uberblock, self.options.seen);
        if self.options.skip_mmp || !mmp::required(ub, label, self.candidate.state, self.host, before) {
            return Ok(());
        }
        if ub.mmp.is_some_and(|m| m.delay_ns != 0) && self.host.hostid == 0 {
            return Err(SpaError::NoHostid);
        }
        let devices = leaves(tree, root);
        mmp::watch(ub, self.clock, || {
            let now = select(&devices, max, true)?;
            Some((now.uberblock, now.label))
        })
    }

    /// Refuses versions and features that make the MOS unreadable.
    fn check_label(&self, found: &Selected) -> Result<(), SpaError> {
        let version = found.uberblock.version;
        if !features::version_supported(version) {
            return Err(SpaError::Version { version });
        }
        if version < features::SPA_VERSION_FEATURES {
            return Ok(());
        }
        let label = found.label.as_ref().ok_or(SpaError::NoLabel)?;
        if !label.nvlist.has("features_for_read") {
            return Err(SpaError::NoLabel);
        }
        features::check_label(label)
    }

    fn open_mos(&self, tree: &Arc<Tree>, ub: &Uberblock) -> Result<(Arc<Cache>, Mos), SpaError> {
        let in_scratch = ub.raidz_reflow.scratch == ScratchState::Valid;
        tree.set_reflow(Reflow { offset: ub.raidz_reflow.offset, in_scratch });
        let what = "the meta object set";
        let bp = Blkptr::decode(&ub.rootbp).map_err(|source| SpaError::Corrupt { what, source })?;
        let zio = Zio::new(tree.clone());
        zio.set_pool_version(ub.version);
        let cache = Arc::new(Cache::new(zio, self.options.cache.clone()));
        let os =
            Objset::open(cache.clone(), 0, &bp, ReadOptions::demand()).map_err(|e| in_mos(what)(e.into()))?;
        let mos = Mos::open(os).map_err(in_mos("the MOS directory"))?;
        Ok((cache, mos))
    }

    /// Replaces the tree by that of the MOS's config (`spa_ld_trusted_config`).
    fn trusted(
        &self,
        devices: &Devices,
        (_, mos): (Arc<Cache>, Mos),
        uberblock: Uberblock,
        extreme: bool,
        progress: &mut Progress,
    ) -> Result<Opened, SpaError> {
        let what = "the pool's config";
        let nvlist = mos.config().map_err(in_mos(what))?;
        let corrupt = |source| SpaError::Corrupt { what, source };
        let mut config = PoolConfig::from_nvlist(&nvlist).map_err(corrupt)?;
        progress.config = Some(config.clone());
        self.check_owner(&config, &uberblock)?;
        let mut root = config.vdev_tree.take().ok_or(SpaError::NoLabel)?;
        self.complete(&mut root, &mos, devices)?;
        let pool = config.pool_guid.unwrap_or(self.candidate.guid);
        let newest = if extreme || self.options.checkpoint { Txg(u64::MAX) } else { uberblock.txg };
        let tree = self
            .open_tree(&root, devices, Trust::Mos { pool, newest }, progress)?
            .map_err(SpaError::TrustedConfig)?;
        self.check_logs(&tree)?;
        let found = root.walk().fold(Guid(0), |sum, v| Guid(sum.0.wrapping_add(v.guid.0)));
        if found.0 != uberblock.guid_sum {
            return Err(SpaError::BadGuidSum { found, expected: Guid(uberblock.guid_sum) });
        }
        let (cache, mos) = self.open_mos(&tree, &uberblock)?;
        config.vdev_tree = Some(root.clone());
        let newest = uberblock.txg;
        Ok(Opened { config, root, tree, cache, mos, uberblock, newest })
    }

    /// Refuses a pool that another host did not export, unless forced
    /// (`zfs_force_import_required`).
    fn check_owner(&self, config: &PoolConfig, ub: &Uberblock) -> Result<(), SpaError> {
        if self.purpose == Purpose::Examine
            || self.options.force
            || self.candidate.state == PoolState::Exported
        {
            return Ok(());
        }
        let of = |c: &PoolConfig| c.hostid.map(|id| (id, c.hostname.clone()));
        let (hostid, hostname) = of(config).or_else(|| of(&self.candidate.config)).unwrap_or((0, None));
        if hostid == u64::from(self.host.hostid) {
            return Ok(());
        }
        Err(SpaError::ForceRequired { hostname, hostid, timestamp: ub.timestamp })
    }

    /// Adds to the trusted tree what its config lacks: where the devices were found, and the
    /// allocation classes.
    fn complete(&self, root: &mut VdevConfig, mos: &Mos, devices: &Devices) -> Result<(), SpaError> {
        for top in &mut root.children {
            if let Some(zap) = top.top_zap {
                let bias = mos.string(zap, mos::VDEV_TOP_ALLOCATION_BIAS);
                top.alloc_bias = match bias.map_err(in_mos("a vdev's ZAP"))?.as_deref() {
                    Some("log") => Some(AllocBias::Log),
                    Some("special") => Some(AllocBias::Special),
                    Some("dedup") => Some(AllocBias::Dedup),
                    _ => None,
                };
            }
        }
        forgive(root);
        set_paths(root, devices);
        Ok(())
    }

    /// Refuses a pool without its log devices, unless the options allow that
    /// (`spa_check_for_missing_logs`).
    fn check_logs(&self, tree: &Tree) -> Result<(), SpaError> {
        if self.options.missing_log {
            return Ok(());
        }
        let logs: Vec<VdevInfo> = missing_logs(tree);
        if logs.is_empty() { Ok(()) } else { Err(SpaError::MissingLogs { logs }) }
    }

    /// The steps after the trusted tree.
    fn finish(&self, devices: &Devices, opened: Opened) -> Result<Spa, SpaError> {
        let Opened { config, root, tree, cache, mos, uberblock, newest } = opened;
        furnish(&cache, &tree, &root, &mos)?;
        let features = if uberblock.version >= features::SPA_VERSION_FEATURES {
            mos.features().map_err(in_mos("the features"))?
        } else {
            Features::default()
        };
        features::check_mos(&mos, &features)?;
        self.check_multihost(&mos)?;
        load_dtls(&tree, &root, &mos)?;
        let auxiliary: Vec<_> =
            self.candidate.auxiliary.iter().chain(&self.candidate.members).cloned().collect();
        let defect = features.is_enabled(ENCRYPTION) && !features.is_enabled(BOOKMARK_V2);
        let errata = if defect { Some(Errata::Zol8308Encryption) } else { Errata::from_disk(config.errata) };
        // The space of its logs may have been reused since the checkpoint. A crash during a rewind
        // to the checkpoint leaves its uberblock too.
        let rewound = self.options.max_txg.is_some() || uberblock.checkpoint_txg.0 != 0;
        let name = self.options.name.as_ref().unwrap_or(&self.candidate.name).clone();
        let kept_name = if self.options.temporary { self.candidate.name.clone() } else { name.clone() };
        let mut spares = aux::load(&mos, mos::SPARES, &auxiliary)?;
        let mut l2cache = aux::load(&mos, mos::L2CACHE, &auxiliary)?;
        let owns = self.purpose == Purpose::Import && self.options.claim == Claim::Own;
        let aside = match owns {
            true => aux::hold(spares.iter_mut().chain(&mut l2cache), devices),
            false => Asides::new(),
        };
        Ok(Spa {
            name,
            kept_name,
            candidate: self.candidate.clone(),
            spares,
            l2cache,
            aside,
            checkpoint: checkpoint(&mos)?,
            log_dropped: rewound || !missing_logs(&tree).is_empty(),
            loaded: Synced { uberblock, config: Arc::new(rooted(config)?), features: Arc::new(features) },
            _ahead: self.options.read_ahead.then(|| cache.begin_prefetch()),
            cache,
            mos,
            newest,
            errata,
            writer: None,
        })
    }

    /// Refuses a pool with `multihost=on` on a host without a hostid.
    fn check_multihost(&self, mos: &Mos) -> Result<(), SpaError> {
        if self.options.skip_mmp || self.host.hostid != 0 {
            return Ok(());
        }
        let Some(props) = mos.dir(mos::PROPS).map_err(in_mos("the pool's properties"))? else {
            return Ok(());
        };
        let on = mos.u64(props, "multihost").map_err(in_mos("the pool's properties"))?;
        if on.unwrap_or(0) != 0 { Err(SpaError::NoHostid) } else { Ok(()) }
    }
}

fn set_paths(v: &mut VdevConfig, devices: &Devices) {
    if matches!(v.kind, VdevKind::Disk | VdevKind::File)
        && let Some(place) = devices.place(v.guid)
    {
        v.path = Some(place.to_string().into_bytes());
    }
    v.children.iter_mut().for_each(|c| set_paths(c, devices));
}

fn missing_logs(tree: &Tree) -> Vec<VdevInfo> {
    let tops = tree.describe().children;
    tops.into_iter().filter(|t| t.is_log && t.state == VdevState::CantOpen).collect()
}

/// The uberblock of the pool's checkpoint (`spa_ld_read_checkpoint_txg`).
fn checkpoint(mos: &Mos) -> Result<Option<Uberblock>, SpaError> {
    let what = "the checkpoint's uberblock";
    let Some(words) = mos.checkpoint().map_err(in_mos(what))? else { return Ok(None) };
    crate::checkpoint::decode(&words).map(Some).map_err(|source| SpaError::Corrupt { what, source })
}

/// Gives the tree the mappings of removed devices, last removed first (`spa_remove_init`). A
/// mapping lies only on devices that were removed after its own.
fn load_mappings(tree: &Tree, root: &VdevConfig, mos: &Mos) -> Result<(), SpaError> {
    let removed =
        |id: u64| root.children.get(usize::try_from(id).ok()?).filter(|top| top.kind == VdevKind::Indirect);
    if !root.children.iter().any(|t| t.kind == VdevKind::Indirect) {
        return Ok(());
    }
    let state = mos.removing().map_err(in_mos("the state of device removal"))?;
    let mut todo: Vec<&VdevConfig> = Vec::new();
    let mut next = state.map(|s| s.prev_indirect_vdev).and_then(removed);
    while let Some(top) = next.filter(|top| !todo.iter().any(|t| t.id == top.id)) {
        todo.push(top);
        next = top.prev_indirect_vdev.and_then(removed);
    }
    let rest = root.children.iter().filter(|t| t.kind == VdevKind::Indirect);
    let rest: Vec<_> = rest.filter(|t| !todo.iter().any(|u| u.id == t.id)).collect();
    for top in todo.into_iter().chain(rest) {
        let Some(object) = top.indirect_object else { continue };
        let mapping = mos.indirect_mapping(object).map_err(in_mos("the mapping of a removed device"))?;
        tree.set_indirect_mapping(VdevId(top.id as u32), mapping.entries)
            .map_err(|source| SpaError::Mapping { object, source })?;
    }
    Ok(())
}

/// Gives a tree and a pipeline what only the MOS has: the mappings of removed devices, and the
/// checksum salt.
pub(crate) fn furnish(cache: &Cache, tree: &Tree, root: &VdevConfig, mos: &Mos) -> Result<(), SpaError> {
    load_mappings(tree, root, mos)?;
    if let Some(salt) = mos.dir_bytes(mos::CHECKSUM_SALT).map_err(in_mos("the checksum salt"))? {
        let what = "the checksum salt";
        let salt = salt.as_slice().try_into().map_err(|_| SpaError::Corrupt {
            what,
            source: ondisk::Corrupt::Range { what, field: "length", value: salt.len() as u64 },
        })?;
        cache.zio().set_salt(salt);
    }
    Ok(())
}

/// Loads the DTL of each device (`vdev_dtl_load`).
fn load_dtls(tree: &Tree, root: &VdevConfig, mos: &Mos) -> Result<(), SpaError> {
    for leaf in root.leaves() {
        let Some(object) = leaf.dtl else { continue };
        let ranges = read_dtl(mos, object).map_err(in_mos("a device's dirty time log"))?;
        // The guid is from the same config as the tree.
        tree.set_dtl(leaf.guid, TxgRanges::new(ranges)).map_err(SpaError::TrustedConfig)?;
    }
    Ok(())
}

/// The txgs that a dirty time log names.
///
/// The log is rewritten from memory each time, so it only adds ranges. A freed range would still be
/// named, which costs only a read of another copy.
fn read_dtl(mos: &Mos, object: ObjNum) -> pool::Result<Vec<(u64, u64)>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let absurd = Corrupt::Shape { what: "dirty time log", why: "it has absurdly many ranges" };
    SpaceMap::open(mos, object, 0, u64::MAX, 0)?.walk(|step| {
        if let MapStep::Range(r) = step
            && r.kind == MapType::Alloc
        {
            if ranges.len() >= MAX_DTL_RANGES {
                return Err(pool::Error::Corrupt { object, source: absurd.clone() });
            }
            match ranges.last_mut() {
                Some(last) if last.1 == r.start => last.1 = r.end,
                _ => ranges.push((r.start, r.end)),
            }
        }
        Ok(())
    })?;
    Ok(ranges)
}

/// The config of a pool, which must have a vdev tree.
fn rooted(config: PoolConfig) -> Result<RootedConfig, SpaError> {
    let what = "the pool's config";
    RootedConfig::try_from(config).map_err(|source| SpaError::Corrupt { what, source })
}
