//! Sizes of a file system, as a file in a project sees them (`zfs_statfs_project`).

use super::Dataset;
use crate::tree::{Node, Statfs};
use ondisk::znode::Pflags;
use rustix::io::Errno;
use zpl::{Fuid, SpaceKind};

impl Dataset {
    /// The sizes that `statfs` shows for a node, where `whole` are those of the file system.
    ///
    /// If the node's project is inherited and has a quota, the quota is the size.
    ///
    /// # Errors
    /// Those of [`crate::tree::FileTree::statfs`].
    pub(super) fn seen_from(&self, node: Node, whole: Statfs) -> Result<Statfs, Errno> {
        let file = self.node(node)?;
        let attr = file.attr();
        if attr.projid == 0 || !attr.pflags.has(Pflags::PROJINHERIT) {
            return Ok(whole);
        }
        let fs = self.here()?;
        let of = |kind| self.told(node, fs.space_of(kind, Fuid(attr.projid)));
        // `df` must not wait for a walk through all files.
        let used = |kind| if fs.is_counted() { of(kind) } else { Ok(None) };
        let mut seen = whole;
        if let Some(quota) = of(SpaceKind::ProjectQuota)? {
            // A new file is not counted yet.
            let used = used(SpaceKind::ProjectUsed)?.unwrap_or(attr.blocks.saturating_mul(512));
            let unit = u64::from(whole.unit.max(1));
            (seen.blocks, seen.free) = (quota / unit, quota.saturating_sub(used) / unit);
        }
        if let Some(quota) = of(SpaceKind::ProjectObjQuota)? {
            let used = used(SpaceKind::ProjectObjUsed)?.unwrap_or(1);
            (seen.files, seen.files_free) = (quota, quota.saturating_sub(used));
        }
        Ok(seen)
    }
}
