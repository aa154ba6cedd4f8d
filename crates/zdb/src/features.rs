//! Checks the reference counts of features.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use dsl::Dataset;
use ondisk::bookmark::ZBM_FLAG_HAS_FBN;
use ondisk::dnode::DnodeFlags;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{ObjNum, mos};
use std::collections::BTreeMap;

/// The number of users of each feature, by name.
#[derive(Debug, Default)]
pub struct Users {
    counts: BTreeMap<&'static str, u64>,
    remap_deadlists: u64,
}

/// The features that datasets use, in the order of OpenZFS's numbers (`spa_feature_t`).
const COUNTED: [&str; 18] = [
    "large_blocks",
    "large_dnode",
    "sha512",
    "skein",
    "edonr",
    "userobj_accounting",
    "encryption",
    "project_quota",
    "redaction_bookmarks",
    "redacted_datasets",
    "bookmark_written",
    "livelist",
    "zstd_compress",
    "zilsaxattr",
    "blake3",
    "redaction_list_spill",
    "longname",
    "large_microzap",
];

impl Users {
    fn one(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Counts the features that a dataset uses.
    pub fn dataset(&mut self, ds: &Dataset) -> Run {
        for f in FEATURES.iter().filter(|f| f.per_dataset()) {
            if ds.field(f.guid)?.is_some() {
                self.one(f.name);
            }
        }
        self.remap_deadlists += u64::from(ds.field_u64(mos::DS_REMAP_DEADLIST)?.is_some());
        for b in ds.bookmarks()? {
            if b.phys.redaction_obj != 0 {
                self.one("redaction_bookmarks");
                let dn = ds.dsl().mos().objset().dnode(ObjNum(b.phys.redaction_obj))?;
                if dn.flags().has(DnodeFlags::SPILL) {
                    self.one("redaction_list_spill");
                }
            }
            if b.phys.flags & ZBM_FLAG_HAS_FBN != 0 {
                self.one("bookmark_written");
            }
        }
        if !ds.is_snapshot() && ds.dir().field(mos::DD_LIVELIST)?.is_some() {
            self.one("livelist");
        }
        Ok(())
    }

    /// Compares the counts with the pool's. Returns the exit code: 2 if one differs.
    pub fn verify(&self, cx: &mut Ctx<'_>, pool: &Opened) -> i32 {
        let mut code = 0;
        for f in COUNTED.iter().filter_map(|name| Feature::by_name(name)) {
            let Some(refcount) = pool.spa.features().refcount(f.guid) else { continue };
            let users = self.counts.get(f.name).copied().unwrap_or(0);
            if users == refcount {
                writeln!(cx.out, "Verified {} feature refcount of {refcount} is correct", f.name);
            } else {
                writeln!(
                    cx.out,
                    "{} feature refcount mismatch: {users} consumers != {refcount} refcount",
                    f.name
                );
                code = 2;
            }
        }
        code
    }

    /// Compares the counts for device removal (`verify_device_removal_feature_counts`).
    ///
    /// Returns the exit code: 1 if one differs.
    pub fn verify_removal(&self, cx: &mut Ctx<'_>, pool: &Opened) -> Run<i32> {
        let mos = pool.spa.mos();
        let (mut indirect, mut counts, mut precise, mut maps, mut condensing) =
            (0u64, 0u64, 0u64, 0u64, 0u64);
        if let Some(c) = mos.condensing()?.filter(|c| c.next_mapping_object != 0) {
            writeln!(
                cx.out,
                "Condensing indirect vdev {}: new mapping object {}, prev obsolete sm {}",
                c.vdev, c.next_mapping_object, c.prev_obsolete_sm_object
            );
            condensing = 2;
        }
        let config = pool.spa.config();
        let tree = config.vdev_tree.as_ref();
        for vdev in tree.map_or(&[][..], |t| &t.children) {
            if let Some(object) = vdev.indirect_object.filter(|o| o.0 != 0) {
                indirect += 1;
                counts += u64::from(mos.indirect_mapping(object)?.phys.counts_object != 0);
            }
            let Some(zap) = vdev.top_zap.filter(|z| z.0 != 0) else { continue };
            let yes = mos.u64(zap, mos::VDEV_TOP_OBSOLETE_COUNTS_ARE_PRECISE)?;
            precise += u64::from(yes.is_some_and(|v| v != 0));
            maps += u64::from(mos.u64(zap, mos::VDEV_TOP_INDIRECT_OBSOLETE_SM)?.is_some());
        }
        let bpobj = u64::from(mos.dir(mos::OBSOLETE_BPOBJ)?.is_some());
        let refcount = |guid| pool.spa.features().refcount(guid).unwrap_or(0);
        let removal = refcount("com.delphix:device_removal");
        let obsolete = refcount("com.delphix:obsolete_counts");
        let mut code = 0;
        if removal == indirect {
            writeln!(cx.out, "Verified device_removal feature refcount of {removal} is correct");
        } else {
            code = 1;
            writeln!(
                cx.out,
                "Number of indirect vdevs ({indirect}) does not match feature count ({removal})"
            );
        }
        let sum = precise + maps + counts + condensing + bpobj + self.remap_deadlists;
        if obsolete == sum {
            writeln!(cx.out, "Verified indirect_refcount feature refcount of {obsolete} is correct");
        } else {
            code = 1;
            writeln!(
                cx.out,
                "Number of obsolete counts objects ({sum}) does not match feature count ({obsolete})"
            );
            writeln!(
                cx.out,
                "pv:{precise} os:{maps} oc:{counts} sc:{condensing} ob:{bpobj} rd:{}",
                self.remap_deadlists
            );
        }
        Ok(code)
    }
}

/// Compares the count of space maps with a histogram (`verify_spacemap_refcounts`).
///
/// Returns the exit code: 2 if it differs.
pub fn verify_spacemaps(cx: &mut Ctx<'_>, pool: &Opened) -> Run<i32> {
    /// Size of a space map's header with a histogram, in bytes (`space_map_phys_t`).
    const PHYS_SIZE: usize = 320;
    let mos = pool.spa.mos();
    let expected = pool.spa.features().refcount("com.delphix:spacemap_histogram").unwrap_or(0);
    let has = |object: u64| -> Run<u64> {
        Ok(u64::from(mos.objset().dnode(ObjNum(object))?.bonus().len() == PHYS_SIZE))
    };
    let mut found = 0;
    let config = pool.spa.config();
    let tree = config.vdev_tree.as_ref();
    for leaf in tree.into_iter().flat_map(ondisk::VdevConfig::leaves) {
        if let Some(dtl) = leaf.dtl.filter(|d| d.0 != 0) {
            found += has(dtl.0)?;
        }
    }
    for top in pool.spa.top_vdevs()? {
        for object in mos.metaslab_objects(&top)?.into_iter().filter(|o| *o != 0) {
            found += has(object)?;
        }
    }
    for vdev in tree.map_or(&[][..], |t| &t.children) {
        let Some(zap) = vdev.top_zap.filter(|z| z.0 != 0) else { continue };
        if let Some(object) = mos.u64(zap, mos::VDEV_TOP_INDIRECT_OBSOLETE_SM)? {
            found += has(object)?;
        }
        found += u64::from(mos.u64(zap, mos::VDEV_TOP_POOL_CHECKPOINT_SM)?.is_some());
    }
    if let Some(c) = mos.condensing()?.filter(|c| c.prev_obsolete_sm_object != 0) {
        found += has(c.prev_obsolete_sm_object)?;
    }
    found += mos.log_spacemaps()?.len() as u64;
    if found == expected {
        return Ok(0);
    }
    writeln!(cx.out, "space map refcount mismatch: expected {expected} != actual {found}");
    Ok(2)
}
