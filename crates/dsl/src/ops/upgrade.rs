//! Changes to datasets when their pool gets a newer version (`spa_sync_upgrades`).
//!
//! # Theory
//! | version | change |
//! |---|---|
//! | 11 | every dataset is a clone of the empty snapshot; snapshots record what follows |
//! | 26 | directories record clones of their snapshots; blocks to free are on a list |
//!
//! An upgrade past one of them walks all datasets in one txg, as OpenZFS does. Deadlists stay as
//! they are. A head's plain list becomes that of its next snapshot, and the head gets one by birth.

use crate::links::SeenObjects;
use crate::sync::Syncing;
use crate::{Error, Result};
use ondisk::version::{SPA_VERSION_DIR_CLONES, SPA_VERSION_ORIGIN};
use ondisk::{Corrupt, ObjNum, Txg};

impl Syncing<'_> {
    /// Makes the changes of versions after `from` and up to `to`.
    ///
    /// The pool has the new version already.
    ///
    /// # Errors
    /// * [Writing](Error#writing): a dataset can't be read or changed. The txg must not reach the
    ///   disk.
    pub fn upgrade(&mut self, from: u64, to: u64) -> Result<()> {
        let passes = |version| from < version && version <= to;
        let root = self.dsl.root_object().0;
        if passes(SPA_VERSION_ORIGIN) {
            let heads = self.all_heads(root)?;
            let origin = self.create_origin(root)?;
            for head in heads {
                self.follow_origin(head, origin)?;
            }
        }
        if passes(SPA_VERSION_DIR_CLONES) {
            self.create_free_dir(root)?;
            for head in self.all_heads(root)? {
                let dir = self.ds(head)?.dir_obj;
                let origin = self.dir(dir)?.origin_obj;
                if origin != 0 {
                    let of = self.ds(origin)?.dir_obj;
                    self.note_clone(of, head)?;
                }
            }
        }
        Ok(())
    }

    /// The heads of all datasets except the pool's own, parents first.
    fn all_heads(&mut self, root: u64) -> Result<Vec<u64>> {
        let mut heads = Vec::new();
        let mut visited = SeenObjects::default();
        let mut left = vec![root];
        while let Some(dir) = left.pop() {
            visited.once(dir, "DSL directory")?;
            let head = self.dir(dir)?.head_dataset_obj;
            if head != 0 {
                heads.push(head);
            }
            let children = self.children(dir)?;
            left.extend(children.into_iter().filter(|(name, _)| !name.starts_with('$')).map(|(_, o)| o));
        }
        Ok(heads)
    }

    /// Makes the oldest of a head's past follow the pool's empty snapshot, if it is no clone
    /// (`upgrade_clones_cb`).
    ///
    /// What it follows records it.
    fn follow_origin(&mut self, head: u64, origin: u64) -> Result<()> {
        let mut first = head;
        let mut at = self.ds(head)?;
        let mut visited = SeenObjects::default();
        let before = loop {
            let before = at.prev_snap_obj;
            if before == 0 {
                break 0;
            }
            // Old snapshots may lack their creation txg, so time alone proves nothing.
            visited.once(before, "snapshot")?;
            let p = self.ds(before)?;
            if p.next_snap_obj != first {
                break before;
            }
            if p.creation_txg >= at.creation_txg && at.creation_txg != Txg(0) && first != head {
                let source = Corrupt::Shape { what: "snapshot", why: "the chain does not go back in time" };
                return Err(Error::Corrupt { object: ObjNum(before), source });
            }
            (first, at) = (before, p);
        };
        if before != 0 {
            return self.note_next_clone(before, first);
        }
        let creation = self.ds(origin)?.creation_txg.0;
        let p = self.ds_mut(first)?;
        p.prev_snap_obj = origin;
        p.prev_snap_txg = creation;
        self.dir_mut(at.dir_obj)?.origin_obj = origin;
        self.ds_mut(origin)?.num_children += 1;
        self.note_next_clone(origin, first)
    }
}
