//! Bookmarks: the place of a snapshot in time, which outlives the snapshot.
//!
//! # Theory
//! With the feature `bookmark_written` a bookmark also has two figures. One is the space that its
//! snapshot referred to. The other is how much of it was freed before the next snapshot. Together
//! they tell how much was written since.
//!
//! The figures need two things:
//!
//! * A head's deadlist keeps a key at the bookmark's txg while the bookmark exists, even when the
//!   snapshot is destroyed.
//! * Every block that dies in the head is added to the bookmarks at or after its last snapshot.

use crate::account::Delta;
use crate::error::Refusal;
use crate::mos_objects::{DropEntry, upper, words};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail};
use ondisk::bookmark::{
    BOOKMARK_WORDS_V1, BOOKMARK_WORDS_V2, BookmarkPhys, ZBM_FLAG_HAS_FBN, ZBM_FLAG_SNAPSHOT_EXISTS,
};
use ondisk::{DmuType, ObjNum, mos};

/// A bookmark with its name.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) phys: BookmarkPhys,
}

impl Named {
    fn has_fbn(&self) -> bool {
        self.phys.flags & ZBM_FLAG_HAS_FBN != 0
    }
}

/// Creates bookmarks, each of a snapshot or bookmark (`dsl_bookmark_create`).
#[derive(Debug, Clone, Default)]
pub struct CreateBookmarks {
    /// Full names: `pool/fs#new`, then `pool/fs@snapshot` or `pool/fs#old`.
    pub pairs: Vec<(String, String)>,
}

impl SyncTask for CreateBookmarks {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(self.pairs.len() as u64)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for (new, source) in &self.pairs {
            if !s.feature_enabled("bookmarks")? {
                return Syncing::refuse(new, Refusal::Feature("bookmarks"));
            }
            Name::parse_new(new)?;
            let (head, name) = s.hold_bookmarked(new)?;
            if s.bookmarks(head)?.iter().any(|b| b.name == name) {
                return Syncing::refuse(new, Refusal::Exists);
            }
            let txg = match Name::parse(source)?.tail {
                Tail::Snapshot(_) => {
                    let (_, snap) = s.hold_snapshot(source)?;
                    if !s.is_before(head, snap, 0)? {
                        return Syncing::refuse(source, Refusal::NotBefore);
                    }
                    continue;
                }
                Tail::Bookmark(_) => s.hold_bookmark(source)?.1.phys.creation_txg,
                Tail::Head => return Syncing::refuse(source, Refusal::NotSnapshot),
            };
            let (source_head, _) = s.hold_bookmarked(source)?;
            if source_head != head && !s.is_before(head, source_head, txg)? {
                return Syncing::refuse(source, Refusal::NotBefore);
            }
        }
        s.check_bookmarks_room(self.pairs.iter().map(|(new, _)| new))
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for (new, source) in &self.pairs {
            let (head, name) = s.hold_bookmarked(new)?;
            let phys = if source.contains('@') {
                let (_, snap) = s.hold_snapshot(source)?;
                BookmarkPhys { redaction_obj: s.redaction_list_of(snap)?, ..s.bookmark_of(snap)? }
            } else {
                // A copy has no redaction list: the list belongs to one bookmark.
                let (from, source) = s.hold_bookmark(source)?;
                let copy = BookmarkPhys { redaction_obj: 0, ..source.phys };
                // The figures need a key in the deadlist that is the source's head's.
                if from == head { copy } else { without_figures(copy) }
            };
            if phys.flags & ZBM_FLAG_HAS_FBN != 0 {
                s.feature_count("bookmark_written", 1)?;
            }
            s.add_bookmark(head, &name, phys)?;
            let text = format!("name={name} creation_txg={}", phys.creation_txg);
            s.log("bookmark", new.split('#').next().unwrap_or(new), head, text);
        }
        Ok(())
    }
}

fn without_figures(phys: BookmarkPhys) -> BookmarkPhys {
    BookmarkPhys {
        guid: phys.guid,
        creation_txg: phys.creation_txg,
        creation_time: phys.creation_time,
        ivset_guid: phys.ivset_guid,
        words: phys.words,
        ..BookmarkPhys::default()
    }
}

/// Destroys bookmarks together, and ignores absent ones (`dsl_bookmark_destroy`).
#[derive(Debug, Clone, Default)]
pub struct DestroyBookmarks {
    /// The full names.
    pub names: Vec<String>,
}

impl SyncTask for DestroyBookmarks {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(self.names.len() as u64)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for name in &self.names {
            match s.hold_bookmarked(name) {
                Ok(_) | Err(Error::NoSuchDataset { .. }) => {}
                Err(e) => return Err(e),
            }
            if let Ok((_, b)) = s.hold_bookmark(name)
                && b.phys.redaction_obj != 0
                && s.dsl.heads().is_busy(b.phys.redaction_obj)
            {
                return Syncing::refuse(name, Refusal::Busy);
            }
        }
        Ok(())
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for full in &self.names {
            let Ok((head, b)) = s.hold_bookmark(full) else { continue };
            s.remove_bookmark(head, &b)?;
            let text = format!("name={}", b.name);
            s.log("remove bookmark", full.split('#').next().unwrap_or(full), head, text);
        }
        Ok(())
    }
}

impl Syncing<'_> {
    /// The head of a bookmark's full name, and the bookmark's own name.
    pub(crate) fn hold_bookmarked(&mut self, full: &str) -> Result<(u64, String)> {
        let parsed = Name::parse(full)?;
        let Tail::Bookmark(name) = parsed.tail else { return Self::refuse(full, Refusal::NotSnapshot) };
        Ok((self.hold_head(parsed.path)?, name.to_owned()))
    }

    /// A bookmark and its head.
    fn hold_bookmark(&mut self, full: &str) -> Result<(u64, Named)> {
        let (head, name) = self.hold_bookmarked(full)?;
        let found = self.bookmarks(head)?.into_iter().find(|b| b.name == name);
        Ok((head, found.ok_or_else(|| Error::NoSuchDataset { name: full.to_owned() })?))
    }

    /// The ZAP of a head's bookmarks.
    pub(crate) fn bookmarks_zap(&self, head: u64) -> Result<Option<u64>> {
        self.field_u64(head, mos::DS_BOOKMARK_NAMES)
    }

    /// The bookmarks of a head, oldest first.
    pub(crate) fn bookmarks(&self, head: u64) -> Result<Vec<Named>> {
        let Some(map) = self.bookmarks_zap(head)? else { return Ok(Vec::new()) };
        let object = ObjNum(map);
        let mut out = Vec::new();
        for e in self.mos().entries(object)? {
            let e = e?;
            let words: Vec<u64> = e.value.iter().collect();
            let phys = BookmarkPhys::decode(&words).map_err(Error::corrupt(object))?;
            out.push(Named { name: e.name_lossy(), phys });
        }
        out.sort_by_key(|b| b.phys.creation_txg);
        Ok(out)
    }

    /// Keys that a head's deadlist needs for the bookmarks after its last snapshot.
    ///
    /// They are needed from the next snapshot on.
    pub(crate) fn bookmark_keys(&mut self, head: u64) -> Result<Vec<u64>> {
        let prev = self.ds(head)?.prev_snap_txg;
        let mut keys: Vec<u64> = self
            .bookmarks(head)?
            .iter()
            .filter(|b| b.has_fbn() && b.phys.creation_txg > prev)
            .map(|b| b.phys.creation_txg)
            .collect();
        keys.dedup();
        Ok(keys)
    }

    /// Bookmarks at or after a head's last snapshot; they count dead blocks.
    pub(crate) fn counting_bookmarks(&mut self, head: u64) -> Result<Vec<Named>> {
        let prev = self.ds(head)?.prev_snap_txg;
        let mut all = self.bookmarks(head)?;
        all.retain(|b| b.has_fbn() && b.phys.creation_txg >= prev);
        Ok(all)
    }

    /// Adds dead blocks to the figures of a bookmark.
    pub(crate) fn bookmark_freed(&mut self, head: u64, b: &Named, d: Delta) -> Result<()> {
        let Some(map) = self.bookmarks_zap(head)? else { return Ok(()) };
        let mut p = b.phys;
        let n = &mut p.referenced_freed_before_next_snap;
        *n = n.wrapping_add_signed(d.used);
        let n = &mut p.compressed_freed_before_next_snap;
        *n = n.wrapping_add_signed(d.comp);
        let n = &mut p.uncompressed_freed_before_next_snap;
        *n = n.wrapping_add_signed(d.uncomp);
        self.put_bookmark(map, &b.name, &p)
    }

    fn put_bookmark(&mut self, map: u64, name: &str, p: &BookmarkPhys) -> Result<()> {
        self.zap(map)?.update(self.tx, name.as_bytes(), &words(&p.encode()))?;
        Ok(())
    }

    /// The bookmark of a snapshot (`dsl_bookmark_set_phys`).
    pub(crate) fn bookmark_of(&mut self, snap: u64) -> Result<BookmarkPhys> {
        let p = self.ds(snap)?;
        let mut out = BookmarkPhys {
            guid: p.guid,
            creation_txg: p.creation_txg.0,
            creation_time: p.creation_time,
            words: BOOKMARK_WORDS_V1,
            ..BookmarkPhys::default()
        };
        let encrypted = self.field_u64(p.dir_obj, ondisk::crypto_key::FIELD)?.is_some_and(|o| o != 0);
        if encrypted && self.feature_enabled("bookmark_v2")? {
            out.ivset_guid = self.field_u64(snap, mos::DS_IVSET_GUID)?.unwrap_or(0);
        }
        if self.feature_enabled("bookmark_written")? {
            let next = self.ds(p.next_snap_obj)?.deadlist_obj;
            let dead = self.mos().deadlist(ObjNum(next))?.total;
            out.flags = ZBM_FLAG_SNAPSHOT_EXISTS | ZBM_FLAG_HAS_FBN;
            out.referenced_bytes = p.referenced_bytes;
            out.compressed_bytes = p.compressed_bytes;
            out.uncompressed_bytes = p.uncompressed_bytes;
            out.referenced_freed_before_next_snap = dead.used;
            out.compressed_freed_before_next_snap = dead.comp;
            out.uncompressed_freed_before_next_snap = dead.uncomp;
        }
        Ok(out)
    }

    /// Enters a new bookmark (`dsl_bookmark_node_add`).
    pub(crate) fn add_bookmark(&mut self, head: u64, name: &str, mut p: BookmarkPhys) -> Result<()> {
        let map = match self.bookmarks_zap(head)? {
            Some(map) => map,
            None => {
                let map = self.zap_create_norm(DmuType::ZAP_METADATA, upper())?;
                self.feature_count("bookmarks", 1)?;
                self.zapify(head, DmuType::DSL_DATASET)?;
                let value = words(&[map]);
                self.zap(head)?.add(self.tx, mos::DS_BOOKMARK_NAMES.as_bytes(), &value)?;
                map
            }
        };
        let long = p.ivset_guid != 0 || p.flags & ZBM_FLAG_HAS_FBN != 0 || p.redaction_obj != 0;
        p.words = BOOKMARK_WORDS_V1;
        if long && self.feature_enabled("bookmark_v2")? {
            p.words = BOOKMARK_WORDS_V2;
            self.feature_count("bookmark_v2", 1)?;
        }
        self.put_bookmark(map, name, &p)
    }

    /// Removes the bookmarks of a head whose snapshots are not in the past of a clone that is to
    /// take its place. If the head has not changed since the clone's origin, its past is the
    /// clone's.
    ///
    /// OpenZFS keeps them. But an increment from one has only the blocks that were born later, and
    /// so lacks older ones that the new contents have in the place of lost ones.
    pub(super) fn drop_bookmarks_after(&mut self, clone: u64, head: u64, name: &str) -> Result<()> {
        let origin = self.ds(clone)?.prev_snap_obj;
        let is_whole = origin == 0 || Some(origin) == self.dsl.origin_snapshot()?;
        let last = match is_whole {
            true => 0,
            // What the clone has got since it was made was born before later bookmarks.
            false if !self.is_modified_since(head, origin)? => self.ds(clone)?.creation_txg.0,
            false => self.ds(origin)?.creation_txg.0,
        };
        for b in self.bookmarks(head)? {
            // One that is being sent from was checked when that began.
            let redaction = b.phys.redaction_obj;
            if b.phys.creation_txg > last && (redaction == 0 || !self.dsl.heads().is_busy(redaction)) {
                self.remove_bookmark(head, &b)?;
                self.log("remove bookmark", name, head, format!("name={}", b.name));
            }
        }
        Ok(())
    }

    /// Removes a bookmark (`dsl_bookmark_destroy_sync_impl`).
    fn remove_bookmark(&mut self, head: u64, b: &Named) -> Result<()> {
        let Some(map) = self.bookmarks_zap(head)? else { return Ok(()) };
        self.forget_bookmark(b)?;
        let txg = b.phys.creation_txg;
        if b.has_fbn() && b.phys.flags & ZBM_FLAG_SNAPSHOT_EXISTS == 0 {
            let ds = self.ds(head)?;
            let others = self.bookmarks(head)?;
            let needed = others.iter().any(|o| o.name != b.name && o.has_fbn() && o.phys.creation_txg == txg);
            if !needed && txg < ds.prev_snap_txg {
                self.remove_clones_key(ds.dir_obj, txg)?;
                self.deadlist_remove_key(ds.deadlist_obj, txg)?;
            }
        }
        self.zap(map)?.drop_entry(self.tx, b.name.as_bytes())?;
        if self.zap(map)?.count()? == 0 {
            self.drop_bookmarks_zap(head, map)?;
        }
        Ok(())
    }

    /// Moves a bookmark to another head, with its redaction list.
    pub(crate) fn move_bookmark(&mut self, b: &Named, from: u64, to: u64) -> Result<()> {
        let Some(map) = self.bookmarks_zap(from)? else { return Ok(()) };
        self.zap(map)?.drop_entry(self.tx, b.name.as_bytes())?;
        // Adding it counts it again.
        if b.phys.words > BOOKMARK_WORDS_V1 {
            self.feature_count("bookmark_v2", -1)?;
        }
        self.add_bookmark(to, &b.name, b.phys)
    }

    fn drop_bookmarks_zap(&mut self, head: u64, map: u64) -> Result<()> {
        self.mos().objset().free_object(self.tx, ObjNum(map))?;
        self.zap(head)?.drop_entry(self.tx, mos::DS_BOOKMARK_NAMES.as_bytes())?;
        self.feature_count("bookmarks", -1)
    }

    /// Removes the uses of features and the redaction list of a bookmark.
    fn forget_bookmark(&mut self, b: &Named) -> Result<()> {
        if b.phys.words > BOOKMARK_WORDS_V1 {
            self.feature_count("bookmark_v2", -1)?;
        }
        if b.has_fbn() {
            self.feature_count("bookmark_written", -1)?;
        }
        if b.phys.redaction_obj != 0 {
            let object = ObjNum(b.phys.redaction_obj);
            if self.mos().objset().dnode(object)?.spill()?.is_some() {
                self.feature_count("redaction_list_spill", -1)?;
            }
            self.mos().objset().free_object(self.tx, object)?;
            self.feature_count("redaction_bookmarks", -1)?;
        }
        Ok(())
    }

    /// Removes all bookmarks of a head that is being destroyed.
    pub(crate) fn drop_bookmarks(&mut self, head: u64) -> Result<()> {
        let Some(map) = self.bookmarks_zap(head)? else { return Ok(()) };
        for b in self.bookmarks(head)? {
            self.forget_bookmark(&b)?;
        }
        self.drop_bookmarks_zap(head, map)
    }

    /// Updates the bookmarks when a snapshot is destroyed (`dsl_bookmark_ds_destroyed`).
    ///
    /// Bookmarks before it get another next snapshot. Bookmarks of it note that it is gone. True if
    /// one of those needs the deadlist key at its txg.
    pub(crate) fn bookmarks_snapshot_destroyed(&mut self, snap: u64) -> Result<bool> {
        let p = self.ds(snap)?;
        let head = self.dir(p.dir_obj)?.head_dataset_obj;
        let Some(map) = self.bookmarks_zap(head)? else { return Ok(false) };
        let next = self.ds(p.next_snap_obj)?.deadlist_obj;
        let mut keeps = false;
        for b in self.bookmarks(head)?.into_iter().filter(Named::has_fbn) {
            let txg = b.phys.creation_txg;
            if txg >= p.prev_snap_txg && txg < p.creation_txg.0 {
                let dead = self.mos().deadlist(ObjNum(next))?.space_range(self.mos(), 0, txg)?;
                self.bookmark_freed(head, &b, Delta::of_list(dead))?;
            } else if txg == p.creation_txg.0 {
                let mut gone = b.phys;
                gone.flags &= !ZBM_FLAG_SNAPSHOT_EXISTS;
                self.put_bookmark(map, &b.name, &gone)?;
                keeps = true;
            }
        }
        Ok(keeps)
    }

    /// Updates the bookmarks of an origin whose next snapshot changed
    /// (`dsl_bookmark_next_changed`).
    ///
    /// A promotion or a swap causes this.
    pub(crate) fn bookmarks_next_changed(&mut self, head: u64, origin: u64) -> Result<()> {
        let Some(map) = self.bookmarks_zap(head)? else { return Ok(()) };
        let txg = self.ds(origin)?.creation_txg.0;
        for b in self.bookmarks(head)? {
            if b.has_fbn() && b.phys.creation_txg == txg {
                let now = self.bookmark_of(origin)?;
                let p = BookmarkPhys { redaction_obj: b.phys.redaction_obj, words: b.phys.words, ..now };
                self.put_bookmark(map, &b.name, &p)?;
            }
        }
        Ok(())
    }

    /// Whether `earlier` is in the past of a dataset (`dsl_dataset_is_before`).
    ///
    /// With a `txg` that is not 0, `earlier` stands for its bookmark at that txg.
    pub(crate) fn is_before(&mut self, later: u64, earlier: u64, txg: u64) -> Result<bool> {
        let e = self.ds(earlier)?;
        let txg = if txg == 0 { e.creation_txg.0 } else { txg };
        let mut l = self.ds(later)?;
        loop {
            if l.is_snapshot() && txg >= l.creation_txg.0 {
                return Ok(false);
            }
            if l.dir_obj == e.dir_obj {
                return Ok(true);
            }
            let origin = self.dir(l.dir_obj)?.origin_obj;
            if origin == 0 {
                return Ok(false);
            }
            let o = self.ds(origin)?;
            if o.creation_txg.0 == txg && o.dir_obj == e.dir_obj {
                return Ok(true);
            }
            // Origins go back in time, so this ends. A chain that does not is damage, and in no
            // past.
            if l.is_snapshot() && o.creation_txg >= l.creation_txg {
                return Ok(false);
            }
            l = o;
        }
    }
}
