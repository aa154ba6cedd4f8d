//! Attach, replace and detach: a device joins a mirror or takes another's place, or leaves.
//!
//! # Theory
//! Both change one place of the tree. A new device is put beside an old one, below a mirror, a
//! *replacing* or a *spare* vdev. That parent is created if the old device has none. The new device
//! lacks every txg so far, and its dirty time log says so from the start. So it is written at once,
//! and read only where no other device can be.
//!
//! A device that leaves takes its parent along if only one other is left below; the other then
//! takes the parent's place. A replacement is an attach and, when the new device lacks nothing any
//! more, a detach ([`Vdevs::end_replacements`]).
//!
//! # On disk
//! A vdev that takes a top-level place takes over what belongs to that: metaslabs, sizes, ZAP. A
//! vdev that takes its mirror's place also takes its guid, by which all devices know the top-level
//! vdev; `orig_guid` keeps its own.
//!
//! A hot spare in use stays on the list of spares until it has the place for good, when the device
//! is detached. A distributed spare stays listed even then, and is free again when another device
//! has taken the place.
//!
//! # Crash
//! * A new device's labels are those of a device that is being added (txg 0) until the txg that
//!   adds it, as in [`crate::vdev_ops::pool_tasks`]. A hot spare stays one until that txg.
//! * A spare whose device is healthy or replaced is detached in a later txg. The txg with the
//!   reason also records that it may be detached.
//! * The labels of a detached device are made void after the txg that detaches it. Until then the
//!   pool needs them; if that txg is lost, the pool still has the device. (OpenZFS makes them void
//!   before.)
//!
//! # Absent
//! Raidz expansion.
//!
//! # See
//! OpenZFS `spa_vdev_attach`, `vdev_add_parent`, `spa_vdev_detach`, `vdev_remove_parent`,
//! `spa_vdev_resilver_done`.

use std::sync::Arc;

use device::Device;
use dmu::Tx;
use dsl::sync::Event;
use ondisk::config::PoolState;
use ondisk::label::LABELS;
use ondisk::{Ashift, Guid, PoolConfig, RootedConfig, Txg, Uberblock, Value, VdevConfig, VdevId, VdevKind};
use pool::Mos;
use vdev::TxgRanges;
use vdev::label::{LabelWriteError, LabelWriter};

use crate::new_vdevs::geometry::leaf_asize;
use crate::new_vdevs::{
    Claimed, Claimer, LABEL_RESERVE, NewLeaf, TXG_INITIAL, Terms, begin_labels, claim_aux,
};
use crate::pool_core::errors::{LifeError, ShapeError, SyncError};
use crate::pool_core::pool_tasks::Change;
use crate::txg::TXG_SIZE;
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::blank_check::{is_blank, is_spare, says_spare};
use crate::vdev_ops::{error_limits, replicas};
use crate::{Labels, aux_devices};

/// Txgs that may be under way at once (`TXG_CONCURRENT_STATES`).
pub(crate) const CONCURRENT: u64 = TXG_SIZE as u64 - 1;

/// The options of an attach.
pub struct AttachTerms<'a> {
    /// It replaces the other device.
    pub replace: bool,
    /// Rebuild it sequentially (`crate::scan::rebuild`), if its vdev allows that.
    pub sequential: bool,
    /// Take a device whose label names a pool that is not in use.
    pub force: bool,
    /// The pool itself chose the device. Take it only if it is blank where labels go, or if its
    /// label says that it is the intended spare.
    pub unattended: bool,
    /// How devices are opened.
    pub claimer: &'a Claimer<'a>,
}

/// A new child beside an existing vdev.
struct Newcomer {
    /// The guid of the existing vdev.
    old: Guid,
    /// The kind of their parent.
    kind: VdevKind,
    leaf: VdevConfig,
    /// Guid of the parent, if it must be created.
    above: Guid,
    /// Device by guid.
    claimed: Claimed,
    /// All of its labels say that it is the intended hot spare: they need no preparation.
    labelled: bool,
}

fn path_of(leaf: &VdevConfig) -> String {
    String::from_utf8_lossy(leaf.path.as_deref().unwrap_or(b"-")).into_owned()
}

/// Moves what belongs to a top-level vdev from one to another (`vdev_top_transfer`).
fn hand_over(from: &mut VdevConfig, to: &mut VdevConfig) {
    to.ashift = from.ashift.take();
    to.asize = from.asize.take();
    to.metaslab_array = from.metaslab_array.take();
    to.metaslab_shift = from.metaslab_shift.take();
    to.alloc_bias = from.alloc_bias.take();
    to.top_zap = from.top_zap.take();
    to.is_log = std::mem::take(&mut from.is_log);
    to.non_allocating = std::mem::take(&mut from.non_allocating);
    to.removing = std::mem::take(&mut from.removing);
}

/// Puts a vdev with two children in the place of a device (`vdev_add_parent`).
fn put_above(old: &mut VdevConfig, kind: VdevKind, guid: Guid) {
    let mut above = VdevConfig::new(kind, guid);
    (above.id, above.create_txg) = (old.id, old.create_txg);
    hand_over(old, &mut above);
    old.id = 0;
    std::mem::swap(old, &mut above);
    old.children.push(above);
}

/// Puts the only child of a vdev in its place (`vdev_remove_parent`); `top` says whether that is a
/// top-level place.
fn take_place(above: &mut VdevConfig, top: bool) {
    let mut last = above.children.pop().expect("a parent that goes has one child left");
    last.id = above.id;
    hand_over(above, &mut last);
    if top {
        (last.orig_guid, last.guid) = (Some(last.guid), above.guid);
    }
    *above = last;
}

impl Newcomer {
    /// Adds the child to a tree.
    fn join(&self, root: &mut VdevConfig) {
        let parent = replicas::parent_of(root, self.old).expect("it was found there");
        let (above, made) = (parent.guid, parent.kind != self.kind);
        let above = if made { self.above } else { above };
        if made {
            replicas::edit(root, self.old, &mut |old| put_above(old, self.kind, self.above));
        }
        let in_place = |old: &VdevConfig| self.kind != VdevKind::Mirror && old.path == self.leaf.path;
        replicas::edit(root, self.old, &mut |old| {
            if in_place(old)
                && let Some(path) = &mut old.path
            {
                path.extend_from_slice(b"/old");
            }
        });
        replicas::edit(root, above, &mut |above| {
            let id = above.children.len() as u64;
            above.children.push(VdevConfig { id, ..self.leaf.clone() });
        });
    }
}

impl Vdevs {
    /// The kind of the parent of both, if that is allowed.
    fn kind_above(
        &self,
        root: &VdevConfig,
        old: &VdevConfig,
        replace: bool,
        spare: bool,
    ) -> Result<VdevKind, LifeError> {
        let refused = LifeError::Target { guid: old.guid };
        let parent = replicas::parent_of(root, old.guid).ok_or(LifeError::NotLeaf { guid: old.guid })?;
        let top = root.children.iter().find(|top| top.find(old.guid).is_some());
        if spare && top.is_some_and(|top| top.is_log) {
            return Err(refused);
        }
        if !replace {
            let fits = matches!(parent.kind, VdevKind::Mirror | VdevKind::Root);
            return if fits { Ok(VdevKind::Mirror) } else { Err(refused) };
        }
        match parent.kind {
            VdevKind::Spare if old.is_spare && !spare => Err(LifeError::OnlySpare { guid: old.guid }),
            VdevKind::Spare if spare != old.is_spare => Err(refused),
            _ if spare => Ok(VdevKind::Spare),
            _ => Ok(VdevKind::Replacing),
        }
    }

    /// Adds a new child, in the syncing txg.
    fn take_side(&self, tx: &Tx, mut new: Newcomer, how: Joins) -> Result<Change<()>, SyncError> {
        let txg = tx.txg();
        let config = self.core.config_now();
        let mut root = config.root().clone();
        let Some(old) = root.find(new.old).cloned() else {
            let missing = vdev::VdevError::NoSuchGuid { guid: new.old };
            return Ok(Err(LifeError::Shape(missing.into())));
        };
        let allowed = self.may_join(&self.core.sync_mos, &root, &old, how);
        match allowed.and_then(|()| self.kind_above(&root, &old, how.replace, new.leaf.is_spare)) {
            Ok(kind) => new.kind = kind,
            Err(e) => return Ok(Err(e)),
        }
        new.leaf.rebuild_txg = how.sequential.then_some(txg);
        // Pools of old versions have no leaf ZAPs.
        if root.leaves().any(|leaf| leaf.leaf_zap.is_some()) {
            let zap = self
                .core
                .sync_mos
                .create_vdev_zap(tx)
                .map_err(|source| SyncError::Metadata { txg, source })?;
            new.leaf.leaf_zap = Some(zap);
        }
        new.join(&mut root);
        let all = TxgRanges::new([(TXG_INITIAL.0, txg.0.saturating_add(CONCURRENT))]);
        let guid = new.leaf.guid;
        self.core
            .put_tree(&root, &new.claimed, |tree| tree.set_dtl(guid, all))
            .map_err(|source| SyncError::Shape { txg, source })?;
        let top = root.children.iter().find(|top| top.find(guid).is_some()).map(|top| VdevId(top.id as u32));
        self.core.edit_config(|config| config.set_root(root));
        let mut events = Vec::new();
        if let Some(top) = top.filter(|_| how.sequential) {
            self.scans.begin_rebuild(tx, top, &mut events)?;
        }
        let (verb, word) = match (how.replace, new.leaf.is_spare) {
            (true, true) => ("spare in", "for"),
            (true, false) => ("replace", "for"),
            (false, _) => ("attach", "to"),
        };
        let text = format!("{verb} vdev={} {word} vdev={}", path_of(&new.leaf), path_of(&old));
        events.push(Event { what: "vdev attach", dataset: String::new(), object: 0, text });
        Ok(Ok(((), events)))
    }

    /// Whether the pool's scans and rebuilds allow a child to join in this way (`spa_vdev_attach`).
    fn may_join(&self, mos: &Mos, root: &VdevConfig, old: &VdevConfig, how: Joins) -> Result<(), LifeError> {
        match how.sequential {
            true => self.scans.may_rebuild(mos, root, old.guid),
            false if self.scans.rebuilds.any() => Err(LifeError::Rebuilding),
            false => Ok(()),
        }
    }
}

/// How a child joins.
#[derive(Debug, Clone, Copy)]
struct Joins {
    /// It replaces the other.
    replace: bool,
    /// It is rebuilt, rather than resilvered.
    sequential: bool,
}

/// A child that has left.
pub(crate) struct Gone {
    /// The config while it was there.
    config: Arc<RootedConfig>,
    leaf: VdevConfig,
    device: Option<Arc<dyn Device>>,
    /// It is the pool's hot spare again.
    spare: bool,
    /// The last uberblock of which it has all blocks.
    uberblock: Uberblock,
}

impl Gone {
    /// Makes its labels void (`vdev_label_init` with `VDEV_LABEL_REMOVE`).
    pub(crate) fn void_labels(&self) -> Result<(), LabelWriteError> {
        let Some(device) = &self.device else { return Ok(()) };
        if self.spare {
            return crate::vdev_ops::aux_vdevs::label_spare(&**device, &self.leaf, self.config.version);
        }
        let mut label = self.config.to_label(self.leaf.guid, Txg(0)).expect("it was in that config");
        label.set("create_txg", Value::Uint64(0));
        let writer = LabelWriter::of(&**device, self.leaf.guid);
        writer.void_rings(&self.uberblock)?;
        (0..LABELS).try_for_each(|l| writer.config(l, &label))?;
        writer.flush()
    }
}

impl Vdevs {
    /// A device that leaves in the syncing txg; `config` is the last config with it.
    pub(crate) fn gone(&self, config: &Arc<RootedConfig>, leaf: &VdevConfig, spare: bool) -> Gone {
        let tree = self.core.tree();
        let device = tree.devices().find(|(g, _)| *g == leaf.guid).map(|(_, device)| device.clone());
        let device = device.filter(|_| tree.is_writable(leaf.guid));
        let uberblock = self.core.synced.read().uberblock.clone();
        Gone { config: config.clone(), leaf: leaf.clone(), device, spare, uberblock }
    }

    /// Detaches a child, in the syncing txg. With `from`, only from this vdev, a finished
    /// replacement.
    fn let_side_go(&self, tx: &Tx, guid: Guid, from: Option<Guid>) -> Result<Change<Gone>, SyncError> {
        let txg = tx.txg();
        let config = self.core.config_now();
        let root = config.root();
        let missing = || LifeError::Shape(vdev::VdevError::NoSuchGuid { guid }.into());
        let Some(leaf) = root.find(guid).cloned() else { return Ok(Err(missing())) };
        let Some(parent) = replicas::parent_of(root, guid) else { return Ok(Err(missing())) };
        if !leaf.kind.is_leaf() {
            return Ok(Err(LifeError::NotMirror { guid }));
        }
        if from.is_some_and(|from| from != parent.guid) {
            return Ok(Err(LifeError::NoReplicas { guid }));
        }
        if !matches!(parent.kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare) {
            return Ok(Err(LifeError::NotMirror { guid }));
        }
        let tree = self.core.tree();
        if replicas::is_required(&tree, root, guid) {
            return Ok(Err(LifeError::NoReplicas { guid }));
        }
        let gone = self.gone(&config, &leaf, leaf.is_spare);
        let mut changed = root.clone();
        let kept = part(&mut changed, parent, &leaf);
        if let Some(new) = from.and_then(|from| replaced_with_spare(root, from)) {
            // In the same txg: without this record, the spare would stay for good.
            replicas::edit(&mut changed, new, &mut |side| side.unspare = true);
        }
        let shape = |source| SyncError::Shape { txg, source };
        self.core.put_tree(&changed, &Claimed::new(), |_| Ok(())).map_err(shape)?;
        self.core.edit_config(|config| config.set_root(changed));
        self.forget_leaf(tx, &leaf, &kept)?;
        self.works.notice_gone(guid, leaf.path.clone(), "vdev_remove");
        let top = root.children.iter().find(|top| top.find(guid).is_some());
        top.into_iter().for_each(|top| self.scans.end_needless_rebuild(VdevId(top.id as u32)));
        let text = format!("vdev={}", path_of(&leaf));
        let events = vec![Event { what: "detach", dataset: String::new(), object: 0, text }];
        Ok(Ok((gone, events)))
    }

    /// Removes what is kept of a child that has left, and moves what has another guid now.
    fn forget_leaf(&self, tx: &Tx, leaf: &VdevConfig, kept: &Kept) -> Result<(), SyncError> {
        let mut dtls = self.core.dtls.lock();
        dtls.remove(&leaf.guid);
        if let Some((was, is)) = kept.renamed
            && let Some(missed) = dtls.remove(&was)
        {
            dtls.insert(is, missed);
        }
        drop(dtls);
        let mut for_now = self.offline_for_now.lock();
        for_now.remove(&leaf.guid);
        if let Some((was, is)) = kept.renamed
            && for_now.remove(&was)
        {
            for_now.insert(is);
        }
        drop(for_now);
        if let Some(spare) = kept.no_spare_any_more {
            let mut aux = self.core.aux.read().clone();
            aux.spares.retain(|a| a.config.guid != spare);
            self.core.put_aux(tx, &aux)?;
            self.aside.lock().remove(&spare);
        }
        crate::vdev_ops::vdev_objects::forget(&self.core.sync_mos, tx, leaf)
            .map_err(|source| SyncError::Metadata { txg: tx.txg(), source })
    }
}

/// Consequences of a detach.
struct Kept {
    /// A device that took its parent's place, with its guid before and after.
    renamed: Option<(Guid, Guid)>,
    /// A hot spare that is an ordinary device from now on.
    no_spare_any_more: Option<Guid>,
}

/// Removes a child from a tree.
fn part(root: &mut VdevConfig, parent: &VdevConfig, leaf: &VdevConfig) -> Kept {
    let top = root.children.iter().any(|top| top.guid == parent.guid);
    let mut kept = Kept { renamed: None, no_spare_any_more: None };
    replicas::edit(root, parent.guid, &mut |above| {
        if above.kind == VdevKind::Replacing && leaf.id > 0 {
            not_old_any_more(above, leaf);
        }
        let first = above.children.first().is_some_and(|side| side.guid == leaf.guid);
        above.children.retain(|side| side.guid != leaf.guid);
        (0..).zip(&mut above.children).for_each(|(id, side)| side.id = id);
        let more = above.children.len() > 1;
        let last = above.children.last_mut().expect("what it had, another has");
        // A distributed spare cannot be an ordinary device of its own draid. It stays a spare in
        // use while it has this place.
        let ordinary = last.is_spare && last.kind != VdevKind::DraidSpare;
        if above.kind == VdevKind::Spare && first && ordinary {
            (last.is_spare, last.unspare) = (false, more);
            kept.no_spare_any_more = Some(last.guid);
        }
        if let [last] = &mut above.children[..] {
            // The release of the spare has happened.
            last.unspare &= above.kind != VdevKind::Spare;
            kept.renamed = (top && last.kind.is_leaf()).then_some((last.guid, above.guid));
            take_place(above, top);
        }
    });
    kept
}

/// Restores the path of a device that lost it to one in its place, which leaves.
fn not_old_any_more(above: &mut VdevConfig, going: &VdevConfig) {
    let Some(path) = &going.path else { return };
    let old: Vec<u8> = [path, &b"/old"[..]].concat();
    let sisters = above.children.iter_mut().filter(|side| side.guid != going.guid);
    for side in sisters.filter(|side| side.path.as_ref() == Some(&old)) {
        side.path = Some(path.clone());
    }
}

/// The next child that a finished replacement detaches, and its parent
/// (`spa_vdev_resilver_done_hunt`).
fn done_with(tree: &vdev::Tree, root: &VdevConfig) -> Option<(Guid, Guid)> {
    let whole = |side: &VdevConfig| replicas::outage(tree, side, &[]).is_empty();
    let free = |side: &VdevConfig| side.kind.is_leaf() && !replicas::is_required(tree, root, side.guid);
    root.walk().find_map(|vdev| {
        let (first, last) = (vdev.children.first()?, vdev.children.last()?);
        let goes = match vdev.kind {
            VdevKind::Replacing => (whole(last) && free(first)).then_some(first.guid),
            // The device is available again, or has been cleared: its spare is no longer needed.
            VdevKind::Spare if first.unspare && whole(first) && free(last) => Some(last.guid),
            // One of several spares has taken the place for good.
            VdevKind::Spare if last.unspare && whole(last) && free(first) => Some(first.guid),
            // Of several spares one suffices.
            VdevKind::Spare if vdev.children.len() > 2 => {
                let second = &vdev.children[1];
                let spares = second.is_spare && last.is_spare;
                (spares && whole(last) && free(second)).then_some(second.guid)
            }
            _ => None,
        };
        goes.map(|side| (side, vdev.guid))
    })
}

/// The new device of a replacement, if a hot spare stands in for the old one: the spare is released
/// when the replacement is done.
fn replaced_with_spare(root: &VdevConfig, replacing: Guid) -> Option<Guid> {
    let above = replicas::parent_of(root, replacing).filter(|above| above.kind == VdevKind::Spare)?;
    match &above.children[..] {
        [first, _]
            if first.guid == replacing && first.kind == VdevKind::Replacing && first.children.len() == 2 =>
        {
            first.children.last().map(|new| new.guid)
        }
        _ => None,
    }
}

impl Vdevs {
    /// Detaches a device from a mirror, or from a replacement (`spa_vdev_detach`). Its labels are
    /// void when this returns.
    ///
    /// # Errors
    /// * [`LifeError::NotMirror`]: the device is not the child of a mirror or a replacement.
    /// * [`LifeError::NoReplicas`]: the device holds data that no other does.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`].
    pub fn detach(self: &Arc<Self>, guid: Guid) -> Result<(), LifeError> {
        let _alone = self.core.shape.lock();
        self.shape_is_free()?;
        self.part_with(guid, None)?;
        // The place no longer needs other spares.
        self.core.request_end_of_replacements();
        Ok(())
    }
}

impl Vdevs {
    /// Attaches a device to another, or replaces another with it (`spa_vdev_attach`).
    ///
    /// It is on disk when this returns; the resilver or rebuild continues. A device whose labels
    /// were overwritten may be put in its own place.
    ///
    /// # Errors
    /// See [`LifeError`], whose variants name the causes. The pool is then as it was, though the
    /// device may have lost its old label, and an overwritten one is offline.
    pub fn attach(
        self: &Arc<Self>,
        old: Guid,
        new: &NewLeaf,
        terms: &AttachTerms<'_>,
    ) -> Result<(), LifeError> {
        let _alone = self.core.shape.lock();
        self.shape_is_free()?;
        let newcomer = self.newcomer(old, new, terms)?;
        if newcomer.leaf.is_spare {
            let claimed = newcomer.claimed.values().next();
            claimed.into_iter().for_each(|device| self.keep_aside(&newcomer.leaf, device.clone()));
        }
        let _resilver = self.scans.scan.comes();
        let mut config = RootedConfig::clone(&self.core.synced.read().config);
        newcomer.join(config.root_mut());
        // A spare stays one until the txg that attaches it: labels of txg 0 belong to no pool.
        if !newcomer.labelled {
            // A replacement is as large as what it replaces, and must not be refused.
            let reserve = if terms.replace { 0 } else { LABEL_RESERVE };
            begin_labels(&config, &newcomer.claimed, self.core.txgs().open(), reserve)
                .map_err(ShapeError::from)?;
        }
        let how = Joins { replace: terms.replace, sequential: terms.sequential };
        let me = Arc::clone(self);
        self.core.decide(move |_, tx| me.take_side(tx, newcomer, how))?;
        error_limits::load(&self.core);
        if how.sequential {
            self.core.txgs().kick();
            return Ok(());
        }
        Ok(self.heal()?)
    }

    /// Checks and claims a device.
    fn newcomer(
        self: &Arc<Self>,
        old: Guid,
        new: &NewLeaf,
        terms: &AttachTerms<'_>,
    ) -> Result<Newcomer, LifeError> {
        let config = self.core.synced.read().config.clone();
        let root = config.root();
        let missing = || LifeError::Shape(vdev::VdevError::NoSuchGuid { guid: old }.into());
        let beside = root.find(old).ok_or_else(missing)?;
        if matches!(beside.kind, VdevKind::Raidz) && !terms.replace {
            return Err(ShapeError::Unsupported { what: "the expansion of a raidz vdev" }.into());
        }
        if !beside.kind.is_leaf() {
            return Err(LifeError::Target { guid: old });
        }
        let how = Joins { replace: terms.replace, sequential: terms.sequential };
        self.may_join(&self.core.mos, root, beside, how)?;
        let spare = self.spare_at(new);
        let kind = self.kind_above(root, beside, terms.replace, spare.is_some())?;
        if spare.as_ref().is_some_and(|spare| root.find(spare.guid).is_some()) {
            return Err(LifeError::InUse);
        }
        let above = Guid(self.core.world.random().max(1));
        if let Some(spare) = spare.as_ref().filter(|spare| spare.kind == VdevKind::DraidSpare) {
            let leaf = self.distributed_side(root, beside, spare)?;
            return Ok(Newcomer { old, kind, leaf, above, claimed: Claimed::new(), labelled: true });
        }
        let shared = aux_devices::lending(terms.claimer, self.core.world.layer());
        let common = Terms {
            first: 0,
            ashift: None,
            force: terms.force || spare.is_some(),
            txg: self.core.txgs().open(),
            claimer: if spare.is_some() { &shared } else { terms.claimer },
            version: config.version,
        };
        if terms.replace && !terms.unattended && self.is_overwritten(beside, new) {
            let me = Arc::clone(self);
            self.core.decide(move |_, tx| me.take_offline(tx, old, true))?;
        }
        let (device, mut leaf) =
            claim_aux(new, &common, &mut || self.core.world.random()).map_err(ShapeError::from)?;
        let labelled = is_free(&*device, &config, root, spare.as_ref(), terms.unattended)?;
        fits(&*device, root, old)?;
        leaf.ashift = None;
        leaf.create_txg = beside.create_txg;
        if let Some(spare) = spare {
            (leaf.guid, leaf.is_spare) = (spare.guid, true);
        }
        let claimed = Claimed::from([(leaf.guid, device)]);
        Ok(Newcomer { old, kind, leaf, above, claimed, labelled })
    }

    /// Whether a device is to be replaced by what is at its own path, and that no longer has its
    /// label. The pool then releases the device if it can do without it, or the claim would fail.
    fn is_overwritten(&self, beside: &VdevConfig, new: &NewLeaf) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let Some(path) = beside.path.as_deref() else { return false };
        let here = crate::discovery::location::Identity::of_path(&new.path);
        let own = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        if here.is_none() || crate::discovery::location::Identity::of_path(own) != here {
            return false;
        }
        let tree = self.core.tree();
        let device = tree.devices().find(|(guid, _)| *guid == beside.guid).map(|(_, device)| device);
        device.is_some_and(|device| Labels::read(&**device).newest().is_none())
    }

    /// The hot spare of the pool that is at this path.
    fn spare_at(&self, new: &NewLeaf) -> Option<VdevConfig> {
        use std::os::unix::ffi::OsStrExt;
        let here = crate::discovery::location::Identity::of_path(&new.path);
        let same = |config: &VdevConfig| {
            let path = config.path.as_deref().map(|p| std::path::Path::new(std::ffi::OsStr::from_bytes(p)));
            path.is_some_and(|p| {
                p == new.path || here.is_some() && crate::discovery::location::Identity::of_path(p) == here
            })
        };
        self.core.aux.read().spares.iter().find(|spare| same(&spare.config)).map(|spare| spare.config.clone())
    }

    /// A distributed spare as the replacement of a device: it can replace only devices of its own
    /// draid, over which it is spread.
    fn distributed_side(
        &self,
        root: &VdevConfig,
        beside: &VdevConfig,
        spare: &VdevConfig,
    ) -> Result<VdevConfig, LifeError> {
        let top = root.children.iter().find(|top| top.find(beside.guid).is_some());
        if top.map(|top| top.guid) != spare.draid_spare.map(|(draid, _)| draid) {
            return Err(LifeError::Target { guid: beside.guid });
        }
        Ok(VdevConfig { is_spare: true, create_txg: beside.create_txg, ashift: None, ..spare.clone() })
    }

    /// Requests a resilver of the new or returned device, once all txgs are over whose blocks may
    /// have been laid out without it. Gives up if the pool is suspended meanwhile: the clearing of
    /// the pool requests it again.
    pub(crate) fn heal(&self) -> Result<(), ShapeError> {
        let _resilver = self.scans.scan.comes();
        for _ in 1..CONCURRENT {
            if let Err(e) = self.core.txgs().wait_synced_unless_suspended(self.core.txgs().open()) {
                return if self.core.txgs().check_suspended().is_err() { Ok(()) } else { Err(e.into()) };
            }
        }
        self.scans.request_resilver();
        Ok(())
    }
}

impl Vdevs {
    fn part_with(self: &Arc<Self>, guid: Guid, from: Option<Guid>) -> Result<(), LifeError> {
        self.works.stop_works();
        let me = Arc::clone(self);
        let done = self.core.decide(move |_, tx| me.let_side_go(tx, guid, from));
        self.works.restart_works();
        let gone = done?;
        // The device may be leaving because it is not writable: that is no reason to keep it.
        let _ = gone.void_labels();
        if gone.spare {
            // Another place may need the spare.
            self.core.tree().bell().ring();
        }
        Ok(())
    }

    /// Ends the replacements whose new device lacks nothing any more: the old one is detached
    /// (`spa_vdev_resilver_done`).
    ///
    /// The device monitor does that by itself after a resilver; when this returns, it is done.
    ///
    /// # Errors
    /// * [`LifeError::NoReplicas`]: a device holds data that no other does.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`].
    ///
    /// Replacements that ended before the error stay ended.
    pub fn end_replacements(self: &Arc<Self>) -> Result<(), LifeError> {
        let _alone = self.core.shape.lock();
        loop {
            if self.shape_is_free().is_err() {
                return Ok(());
            }
            let config = self.core.synced.read().config.clone();
            let root = config.root();
            let Some((guid, from)) = done_with(&self.core.tree(), root) else { return Ok(()) };
            self.part_with(guid, Some(from))?;
        }
    }
}

/// Refuses a device that is in use. Otherwise whether its labels name it as this spare.
fn is_free(
    device: &dyn Device,
    config: &PoolConfig,
    root: &VdevConfig,
    spare: Option<&VdevConfig>,
    unattended: bool,
) -> Result<bool, LifeError> {
    let labels = Labels::read(device);
    let label = labels.newest().map(|l| (l.state, l.pool_guid, l.guid));
    // Names of devices change: the path may lead to a device with other data, of any kind.
    let known = match spare {
        Some(spare) => is_spare(device, &labels, spare.guid, config.pool_guid),
        None => is_blank(device),
    };
    if unattended && !known {
        return Err(LifeError::InUse);
    }
    if let Some((_, Some(pool), Some(guid))) = label
        && Some(pool) == config.pool_guid
        && root.find(guid).is_some()
    {
        return Err(LifeError::InUse);
    }
    // Pools that share a spare see by its label that another has taken it.
    if spare.is_some()
        && let Some((PoolState::Active | PoolState::Exported, Some(pool), _)) = label
        && Some(pool) != config.pool_guid
    {
        return Err(LifeError::InUse);
    }
    Ok(spare.is_some_and(|spare| says_spare(&labels, spare.guid)))
}

/// Refuses a device that is too small to take this place, or whose sectors are too large.
fn fits(device: &dyn Device, root: &VdevConfig, old: Guid) -> Result<(), LifeError> {
    let (size, least) = (leaf_asize(device.size()), replicas::min_asize(root, old));
    if size < least {
        return Err(LifeError::TooSmall { size, least });
    }
    let top = root.children.iter().find(|top| top.find(old).is_some());
    let vdev = top.and_then(|top| top.ashift).unwrap_or_default();
    // The pool's `ashift` property and the command's option are for new top-level vdevs; here only
    // the device's own sectors must fit.
    let new = Ashift(device.logical_sector().trailing_zeros().min(16) as u8);
    if new.0 > vdev.0 {
        return Err(LifeError::Ashift { new, vdev });
    }
    Ok(())
}
