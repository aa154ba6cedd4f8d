//! Redaction lists: the blocks that a redacted stream leaves out.
//!
//! # Theory
//! `zfs redact` compares some snapshots with an earlier one, from which they descend. The blocks
//! that all of them have changed come on a list, which a bookmark of the earlier snapshot owns.
//! `zfs send --redact` leaves these blocks out. A later stream from the bookmark has them.
//!
//! # On disk
//! The list is an object of the MOS ([`ondisk::bookmark`]). Its entries are in the order of objects
//! and blocks. A list that is not complete says where it goes on.
//!
//! # See
//! OpenZFS `dsl_bookmark.c`: `dsl_redaction_list_hold_obj`, `dsl_redaction_list_traverse`.

use crate::{Dataset, Dsl, Error, Result};
use dmu::Dnode;
use observe::{Tunable, Unit};
use ondisk::bookmark::{RedactBlock, RedactionListPhys};
use ondisk::{Corrupt, ObjNum, mos};

/// Entries that are read at a time.
const AT_ONCE: u64 = 4096;

/// Lets redacted datasets be mounted (`zfs_allow_redacted_dataset_mount`).
pub static ALLOW_REDACTED_MOUNT: Tunable = Tunable::new(
    "zfs_allow_redacted_dataset_mount",
    0,
    0..=1,
    Unit::Flag,
    "let redacted datasets be mounted, which lack some of their data",
);

/// The list of one redaction bookmark.
#[derive(Debug, Clone)]
pub struct RedactionList {
    dnode: Dnode,
    phys: RedactionListPhys,
}

impl Dsl {
    /// The redaction list in an object of the MOS (`dsl_redaction_list_hold_obj`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the object can't be read.
    /// * [`Error::Corrupt`]: its header is malformed.
    pub fn redaction_list(&self, object: ObjNum) -> Result<RedactionList> {
        let dnode = self.mos().objset().dnode(object)?;
        let spill = dnode.spill()?;
        let phys = RedactionListPhys::decode(dnode.bonus(), spill.as_deref());
        Ok(RedactionList { phys: phys.map_err(Error::corrupt(object))?, dnode })
    }
}

impl RedactionList {
    /// The guids of the snapshots for which the list was made.
    pub fn snaps(&self) -> &[u64] {
        &self.phys.snaps
    }

    /// Whether all blocks are on it.
    pub fn is_complete(&self) -> bool {
        self.phys.is_complete()
    }

    /// Where a list that is not complete goes on: an object and a block of it.
    pub fn reached(&self) -> (u64, u64) {
        (self.phys.last_object, self.phys.last_blkid)
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.phys.num_entries.min(self.dnode.max_size() / RedactBlock::SIZE as u64)
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some entries from number `first` on; none after the last.
    ///
    /// # Errors
    /// * [`dmu::Error`]: they can't be read, are malformed, or are not in order.
    pub fn entries(&self, first: u64) -> dmu::Result<Vec<RedactBlock>> {
        let count = self.len().saturating_sub(first).min(AT_ONCE);
        let mut raw = vec![0; count as usize * RedactBlock::SIZE];
        self.dnode.read_at(first.saturating_mul(RedactBlock::SIZE as u64), &mut raw)?;
        let mut out: Vec<RedactBlock> = Vec::with_capacity(count as usize);
        for raw in raw.chunks_exact(RedactBlock::SIZE) {
            let entry = RedactBlock::decode(raw).map_err(|e| self.dnode.corrupt(e))?;
            let last = out.last().map(|last| (last.object, last.blkid + last.count));
            let ends = entry.blkid.checked_add(entry.count).is_some();
            if !ends || entry.block_size == 0 || last.is_some_and(|last| last > (entry.object, entry.blkid)) {
                return Err(self.malformed());
            }
            out.push(entry);
        }
        Ok(out)
    }

    /// The number of the first entry that does not end before a block of an object.
    ///
    /// # Errors
    /// Those of [`RedactionList::entries`].
    pub fn find(&self, object: u64, blkid: u64) -> dmu::Result<u64> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let mut raw = [0; RedactBlock::SIZE];
            self.dnode.read_at(middle * RedactBlock::SIZE as u64, &mut raw)?;
            let entry = RedactBlock::decode(&raw).map_err(|e| self.dnode.corrupt(e))?;
            let behind = (entry.object, entry.blkid.saturating_add(entry.count));
            if behind <= (object, blkid) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The error of a list whose entries make no sense.
    pub fn malformed(&self) -> dmu::Error {
        self.dnode.corrupt(Corrupt::Shape { what: "redaction list", why: "its entries are not in order" })
    }
}

impl Dataset {
    /// The guids of the snapshots for which a dataset was received redacted; `None` if it was not
    /// (`dsl_dataset_get_uint64_array_feature`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the dataset's ZAP can't be read.
    pub fn redacted_for(&self) -> Result<Option<Vec<u64>>> {
        Ok(self.field(mos::DS_REDACTED_SNAPS)?.map(|guids| guids.iter().collect()))
    }
}
