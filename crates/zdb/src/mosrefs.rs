//! Finds leaked objects of the MOS: those that nothing refers to.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::type_name;
use dsl::{Dataset, Dir};
use ondisk::mos::{self, DIRECTORY_OBJECT};
use ondisk::{ObjNum, VdevConfig};
use pool::Mos;
use std::collections::BTreeSet;

/// The referenced objects of the MOS (`mos_refd_objs`).
#[derive(Debug, Default)]
pub struct MosRefs(BTreeSet<u64>);

impl MosRefs {
    /// Adds a reference; 0 is none (`mos_obj_refd`).
    pub fn add(&mut self, object: u64) {
        if object != 0 {
            self.0.insert(object);
        }
    }

    /// Adds a bpobj with its sub-lists. Many datasets may share the empty one.
    pub fn bpobj(&mut self, mos: &Mos, object: ObjNum) -> Run {
        let mut queue = vec![object];
        while let Some(object) = queue.pop() {
            if object.0 == 0 || !self.0.insert(object.0) {
                continue;
            }
            let phys = mos.bpobj(object)?;
            self.add(phys.subobjs);
            queue.extend(mos.bpobj_subobjs(object, &phys)?);
        }
        Ok(())
    }

    /// Adds a deadlist with its sub-lists.
    fn deadlist(&mut self, mos: &Mos, object: u64) -> Run {
        if object == 0 {
            return Ok(());
        }
        let list = mos.deadlist(ObjNum(object))?;
        let lists = list.lists(mos)?;
        if lists.is_empty() && mos.objset().dnode(ObjNum(object))?.kind() == ondisk::DmuType::BPOBJ {
            return self.bpobj(mos, ObjNum(object));
        }
        self.add(object);
        lists.values().try_for_each(|l| self.bpobj(mos, *l))
    }

    /// Adds the references of a dataset, without its deadlists (`count_ds_mos_objects`).
    pub fn dataset(&mut self, ds: &Dataset) -> Run {
        let p = ds.phys();
        for object in [ds.object().0, p.next_clones_obj, p.props_obj, p.userrefs_obj, p.snapnames_zapobj] {
            self.add(object);
        }
        self.add(ds.field_u64(mos::DS_BOOKMARK_NAMES)?.unwrap_or(0));
        for b in ds.bookmarks()? {
            self.add(b.phys.redaction_obj);
        }
        if ds.is_snapshot() { Ok(()) } else { self.dir(ds.dir()) }
    }

    fn dir(&mut self, dir: &Dir) -> Run {
        let p = dir.phys();
        for object in [dir.object().0, p.child_dir_zapobj, p.deleg_zapobj, p.props_zapobj, p.clones] {
            self.add(object);
        }
        self.add(dir.crypto_object()?.map_or(0, |o| o.0));
        Ok(())
    }

    fn vdev(&mut self, mos: &Mos, vdev: &VdevConfig) -> Run {
        let objects = [
            vdev.dtl,
            vdev.metaslab_array,
            vdev.indirect_births,
            vdev.indirect_object,
            vdev.leaf_zap,
            vdev.top_zap,
            vdev.root_zap,
        ];
        objects.into_iter().flatten().for_each(|o| self.add(o.0));
        if let Some(mapping) = vdev.indirect_object.filter(|o| o.0 != 0) {
            self.add(mos.indirect_mapping(mapping)?.phys.counts_object);
        }
        if let Some(zap) = vdev.top_zap.filter(|o| o.0 != 0) {
            for name in [
                mos::VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS,
                mos::VDEV_TOP_POOL_CHECKPOINT_SM,
                mos::VDEV_TOP_INDIRECT_OBSOLETE_SM,
            ] {
                self.add(mos.u64(zap, name)?.unwrap_or(0));
            }
        }
        vdev.children.iter().try_for_each(|c| self.vdev(mos, c))
    }

    fn whole_pool(&mut self, pool: &Opened) -> Run {
        let mos = pool.spa.mos();
        self.add(DIRECTORY_OBJECT);
        for name in [
            mos::PROPS,
            mos::CONFIG,
            mos::DDT_STATS,
            mos::FEATURE_DESCRIPTIONS,
            mos::FEATURE_ENABLED_TXG,
            mos::FEATURES_FOR_READ,
            mos::FEATURES_FOR_WRITE,
            mos::HISTORY,
            mos::ERRLOG_LAST,
            mos::ERRLOG_SCRUB,
            mos::VDEV_ZAP_MAP,
            mos::BPTREE_OBJ,
            mos::TMP_USERREFS,
            mos::EMPTY_BPOBJ,
            mos::L2CACHE,
            mos::SPARES,
            mos::LOG_SPACEMAP_ZAP,
            mos::DELETED_CLONES,
        ] {
            self.add(mos.dir(name)?.map_or(0, |o| o.0));
        }
        if pool.spa.features().is_enabled("com.delphix:head_errlog") {
            for log in [mos::ERRLOG_LAST, mos::ERRLOG_SCRUB] {
                let Some(object) = mos.dir(log)? else { continue };
                for e in mos.entries(object)? {
                    self.add(e?.value.first().unwrap_or(0));
                }
            }
        }
        for name in [mos::SYNC_BPOBJ, mos::FREE_BPOBJ, mos::OBSOLETE_BPOBJ] {
            if let Some(object) = mos.dir(name)? {
                self.bpobj(mos, object)?;
            }
        }
        self.add(mos.scan()?.map_or(0, |s| s.queue_obj));
        mos.log_spacemaps()?.values().for_each(|o| self.add(o.0));
        if let Some(c) = mos.condensing()? {
            self.add(c.next_mapping_object);
            self.add(c.prev_obsolete_sm_object);
            if c.next_mapping_object != 0 {
                self.add(mos.indirect_mapping(ObjNum(c.next_mapping_object))?.phys.counts_object);
            }
        }
        if let Some(zap) = mos.dir(mos::DELETED_CLONES)? {
            for e in mos.entries(zap)? {
                self.deadlist(mos, e?.value.first().unwrap_or(0))?;
            }
        }
        self.hidden(pool)?;
        if let Some(tree) = &pool.spa.config().vdev_tree {
            self.vdev(mos, tree)?;
            for top in &tree.children {
                self.metaslabs(pool, top)?;
            }
        }
        self.tables(pool)
    }

    /// Adds the hidden datasets: `$MOS`, `$FREE`, `$LEAK` and `$ORIGIN`.
    fn hidden(&mut self, pool: &Opened) -> Run {
        let mos = pool.spa.mos();
        let root = pool.dsl.root()?;
        for name in ["$MOS", "$FREE", "$LEAK", "$ORIGIN"] {
            let Some(dir) = root.child(name)? else { continue };
            self.dir(&dir)?;
            let Some(head) = dir.head()? else { continue };
            self.dataset(&head)?;
            self.deadlist(mos, head.phys().deadlist_obj)?;
            for snap in head.snapshots()? {
                self.dataset(&snap)?;
                self.deadlist(mos, snap.phys().deadlist_obj)?;
            }
        }
        Ok(())
    }

    fn metaslabs(&mut self, pool: &Opened, top: &VdevConfig) -> Run {
        let tops = pool.spa.top_vdevs()?;
        if let Some(vd) = tops.iter().find(|t| u64::from(t.id.0) == top.id) {
            pool.spa.mos().metaslab_objects(vd)?.into_iter().for_each(|o| self.add(o));
        }
        Ok(())
    }

    /// Adds the dedup tables and the block reference tables.
    fn tables(&mut self, pool: &Opened) -> Run {
        let mos = pool.spa.mos();
        for ddt in pool.spa.ddts(&pool.spa.top_vdevs()?)? {
            ddt.classes.iter().for_each(|c| self.add(c.object.0));
            ddt.logs.iter().for_each(|l| self.add(l.object.0));
            if ddt.version != 0 {
                self.add(ddt.dir.0);
            }
        }
        for b in mos.brt(pool.spa.tree().top_count())? {
            self.add(b.object.0);
            self.add(b.phys.mos_entries);
        }
        Ok(())
    }
}

/// Compares the references with the allocated objects (`dump_mos_leaks`).
///
/// Returns the exit code: 2 if they differ.
pub fn check(cx: &mut Ctx<'_>, pool: &Opened, mut refs: MosRefs) -> Run<i32> {
    refs.whole_pool(pool)?;
    let (mut code, mut whole) = (0, true);
    for dn in pool.spa.mos().objset().objects(ObjNum(1)) {
        let dn = match dn {
            Ok(dn) => dn,
            Err(e) => {
                cx.report(&anyhow::Error::new(e));
                whole = false;
                continue;
            }
        };
        if !refs.0.remove(&dn.object().0) {
            writeln!(cx.out, "MOS object {} ({}) leaked", dn.object().0, type_name(dn.kind()));
            code = 2;
        }
    }
    // If some dnodes can't be read, an object that was not found may exist.
    for object in refs.0.into_iter().filter(|_| whole) {
        writeln!(cx.out, "MOS object {object} referenced but not allocated");
        code = 2;
    }
    Ok(code)
}
