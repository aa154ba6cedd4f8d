//! Redaction bookmarks: bookmarks that own a list of blocks.
//!
//! # Life
//! The bookmark is made first, with an empty list ([`CreateRedacted`]). [`AppendRedactions`] adds
//! blocks, and says how far the list has come. A list that a crash has cut short can go on.
//!
//! # See
//! OpenZFS `dsl_bookmark_create_redacted`, `redaction_list_update_sync`.

use crate::error::Refusal;
use crate::heads::LongHold;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail};
use observe::lock::Mutex;
use ondisk::bookmark::{BookmarkPhys, RedactBlock, RedactionListPhys, ZBM_FLAG_HAS_FBN};
use ondisk::{DmuType, ObjNum, SPA_MAXBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE, mos};
use std::sync::Arc;

/// Most bytes of a bonus in a dnode of one slot (`dmu_bonus_max`).
const BONUS_MAX: usize = 320;
/// A bonus beside which a dnode has two block pointers, and not three. The third would be where
/// the pointer to a spill block is.
const TWO_POINTERS: usize = 72;

/// Where [`CreateRedacted`] leaves the list's object, which is held.
pub type ListSlot = Arc<Mutex<Option<(ObjNum, LongHold)>>>;

/// Creates a bookmark with an empty redaction list (`dsl_bookmark_create_redacted`).
#[derive(Debug, Clone)]
pub struct CreateRedacted {
    /// The full name of the bookmark.
    pub bookmark: String,
    /// The full name of its snapshot.
    pub snapshot: String,
    /// The guids of the snapshots for which blocks are redacted.
    pub snaps: Vec<u64>,
    /// The new list.
    pub made: ListSlot,
}

impl SyncTask for CreateRedacted {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(5)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let name = &self.bookmark;
        if !s.feature_enabled("redaction_bookmarks")? {
            return Syncing::refuse(name, Refusal::Feature("redaction_bookmarks"));
        }
        let most = match (s.feature_enabled("redaction_list_spill")?, s.feature_enabled("large_blocks")?) {
            (false, _) => BONUS_MAX,
            (true, false) => SPA_OLD_MAXBLOCKSIZE as usize,
            (true, true) => SPA_MAXBLOCKSIZE as usize,
        };
        if RedactionListPhys::size(self.snaps.len()) > most {
            return Syncing::refuse(name, Refusal::TooManySnapshots);
        }
        if !matches!(Name::parse(name)?.tail, Tail::Bookmark(_)) {
            return Syncing::refuse(name, Refusal::NotSnapshot);
        }
        if !s.feature_enabled("bookmarks")? {
            return Syncing::refuse(name, Refusal::Feature("bookmarks"));
        }
        let (head, short) = s.hold_bookmarked(name)?;
        if s.bookmarks(head)?.iter().any(|b| b.name == short) {
            return Syncing::refuse(name, Refusal::Exists);
        }
        let (_, snap) = s.hold_snapshot(&self.snapshot)?;
        if !s.is_before(head, snap, 0)? {
            return Syncing::refuse(&self.snapshot, Refusal::NotBefore);
        }
        s.check_head_bookmarks(name, head, vec![short])
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (head, name) = s.hold_bookmarked(&self.bookmark)?;
        let (_, snap) = s.hold_snapshot(&self.snapshot)?;
        let list = s.create_redaction_list(&RedactionListPhys {
            snaps: self.snaps.clone(),
            ..RedactionListPhys::default()
        })?;
        let phys = BookmarkPhys { redaction_obj: list, ..s.bookmark_of(snap)? };
        if phys.flags & ZBM_FLAG_HAS_FBN != 0 {
            s.feature_count("bookmark_written", 1)?;
        }
        s.add_bookmark(head, &name, phys)?;
        let txg = phys.creation_txg;
        let text = format!("name={name} creation_txg={txg} target_snap={snap} redact_obj={list}");
        s.log("bookmark", self.bookmark.split('#').next().unwrap_or(&self.bookmark), head, text);
        *self.made.lock() = Some((ObjNum(list), s.dsl.heads().long_hold(list)));
        Ok(())
    }
}

/// Adds blocks to a redaction list (`redaction_list_update_sync`).
#[derive(Debug, Clone)]
pub struct AppendRedactions {
    /// The list's object. The caller holds it.
    pub object: ObjNum,
    /// The blocks, which come after all that are on the list.
    pub blocks: Vec<RedactBlock>,
    /// The object and the block with which the list goes on. `u64::MAX` for both: it is complete.
    pub reached: (u64, u64),
}

impl SyncTask for AppendRedactions {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(3 + (self.blocks.len() * RedactBlock::SIZE) as u64 / SPA_OLD_MAXBLOCKSIZE)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        s.dsl.redaction_list(self.object).map(drop)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let dnode = s.mos().objset().dnode(self.object)?;
        let spill = dnode.spill()?;
        let phys = RedactionListPhys::decode(dnode.bonus(), spill.as_deref());
        let mut phys = phys.map_err(Error::corrupt(self.object))?;
        let bytes: Vec<u8> = self.blocks.iter().flat_map(RedactBlock::encode).collect();
        if !bytes.is_empty() {
            dnode.write_at(s.tx, phys.num_entries.saturating_mul(RedactBlock::SIZE as u64), &bytes)?;
        }
        phys.num_entries = phys.num_entries.saturating_add(self.blocks.len() as u64);
        (phys.last_object, phys.last_blkid) = self.reached;
        let mut header = phys.encode();
        match spill {
            None => dnode.set_bonus(s.tx, DmuType::UINT64_METADATA, &header)?,
            Some(spill) => {
                header.resize(spill.len(), 0);
                dnode.set_spill(s.tx, Some(&header))?;
            }
        }
        Ok(())
    }
}

impl Syncing<'_> {
    /// Makes the object of a redaction list.
    fn create_redaction_list(&mut self, phys: &RedactionListPhys) -> Result<u64> {
        let mut header = phys.encode();
        let spills = header.len() > BONUS_MAX;
        let bonus = if spills { vec![0; TWO_POINTERS] } else { header.clone() };
        let spec = dmu::NewObject {
            block_size: SPA_OLD_MAXBLOCKSIZE as u32,
            ..dmu::NewObject::new(DmuType::UINT64_METADATA)
        };
        let spec = spec.with_bonus(DmuType::UINT64_METADATA, bonus);
        let dnode = self.mos().objset().create_object(self.tx, &spec)?;
        self.feature_count("redaction_bookmarks", 1)?;
        if spills {
            header.resize(header.len().next_multiple_of(512), 0);
            dnode.set_bonus(self.tx, DmuType::UINT64_METADATA, &[])?;
            dnode.set_spill(self.tx, Some(&header))?;
            self.feature_count("redaction_list_spill", 1)?;
        }
        Ok(dnode.object().0)
    }

    /// The list of a new bookmark of a snapshot: 0, or for a redacted snapshot an empty list that
    /// names the snapshots for which it is redacted.
    pub(crate) fn redaction_list_of(&mut self, snap: u64) -> Result<u64> {
        let Some(snaps) = self.field(snap, mos::DS_REDACTED_SNAPS)? else { return Ok(0) };
        if !self.feature_enabled("redaction_bookmarks")? {
            return Ok(0);
        }
        let (last_object, last_blkid) = (u64::MAX, u64::MAX);
        let snaps: Vec<u64> = snaps.iter().collect();
        let long = RedactionListPhys::size(snaps.len()) > BONUS_MAX;
        if long && !self.feature_enabled("redaction_list_spill")? {
            return Ok(0);
        }
        self.create_redaction_list(&RedactionListPhys { last_object, last_blkid, num_entries: 0, snaps })
    }
}
