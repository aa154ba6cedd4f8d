//! Sizes as they are seen from a file (`zfs_statfs_project`).

use super::Dataset;
use crate::tree::{Node, Statfs};
use ondisk::znode::Pflags;
use rustix::io::Errno;
use zpl::{Fuid, SpaceKind};

impl Dataset {
    /// Where a project gives itself on, its quota is what there is: `whole`, as who is in it sees it.
    pub(super) fn seen_from(&self, node: Node, whole: Statfs) -> Result<Statfs, Errno> {
        let file = self.node(node)?;
        let attr = file.attr();
        if attr.projid == 0 || !attr.pflags.has(Pflags::PROJINHERIT) {
            return Ok(whole);
        }
        let fs = self.here()?;
        let of = |kind| self.told(node, fs.space_of(kind, Fuid(attr.projid)));
        let mut seen = whole;
        if let Some(quota) = of(SpaceKind::ProjectQuota)? {
            // What was only just made is not counted yet.
            let used = of(SpaceKind::ProjectUsed)?.unwrap_or(attr.blocks.saturating_mul(512));
            let unit = u64::from(whole.unit.max(1));
            (seen.blocks, seen.free) = (quota / unit, quota.saturating_sub(used) / unit);
        }
        if let Some(quota) = of(SpaceKind::ProjectObjQuota)? {
            let used = of(SpaceKind::ProjectObjUsed)?.unwrap_or(1);
            (seen.files, seen.files_free) = (quota, quota.saturating_sub(used));
        }
        Ok(seen)
    }
}
