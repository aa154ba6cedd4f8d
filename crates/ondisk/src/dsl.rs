//! DSL directories and datasets: the bonus structures that hold the pool's name space together.
//!
//! # On disk
//! A directory ([`DslDirPhys`]) is a name in the tree, with quota, reservation and the space used below; its head dataset
//! ([`DslDatasetPhys`]) is the live file system or volume. Snapshots are datasets too, chained by
//! `prev_snap_obj`. Both are bonuses of objects in the MOS; pools with extensible datasets make those
//! objects ZAPs that hold further fields (see [`crate::mos`]).

use crate::words::{put_words, words};
use crate::{Blkptr, Corrupt, Result, Txg};

/// Bytes of a directory's bonus (`sizeof (dsl_dir_phys_t)`).
pub const DSL_DIR_PHYS_SIZE: usize = 256;
/// Bytes of a dataset's bonus (`sizeof (dsl_dataset_phys_t)`).
pub const DSL_DATASET_PHYS_SIZE: usize = 320;

/// The dataset was only partly received or destroyed (`DS_FLAG_INCONSISTENT`).
pub const DS_FLAG_INCONSISTENT: u64 = 1 << 0;
/// A promote must not make this the origin (`DS_FLAG_NOPROMOTE`).
pub const DS_FLAG_NOPROMOTE: u64 = 1 << 1;
/// `unique_bytes` is exact (`DS_FLAG_UNIQUE_ACCURATE`).
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// To be destroyed when its last hold or clone goes (`DS_FLAG_DEFER_DESTROY`).
pub const DS_FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// Names are looked up without case (`DS_FLAG_CI_DATASET`).
pub const DS_FLAG_CI_DATASET: u64 = 1 << 16;
/// `used_breakdown` is kept (`DD_FLAG_USED_BREAKDOWN`).
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1;

/// What the space below a directory is used for (`dd_used_t`); indexes [`DslDirPhys::used_breakdown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DdUsed {
    /// By the head dataset (`usedbydataset`).
    Head = 0,
    /// By its snapshots.
    Snap = 1,
    /// By its children.
    Child = 2,
    /// By its children's reservations beyond what they use.
    ChildRsrv = 3,
    /// By its `refreservation` beyond what it uses.
    Refrsrv = 4,
}

/// A DSL directory (`dsl_dir_phys_t`, 256 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DslDirPhys {
    /// Seconds since 1970; OpenZFS shows the head dataset's instead.
    pub creation_time: u64,
    /// The live dataset, or 0 for a directory without one.
    pub head_dataset_obj: u64,
    /// The directory above, or 0 for the root.
    pub parent_obj: u64,
    /// The snapshot that this is a clone of, or 0.
    pub origin_obj: u64,
    /// ZAP of the children by name.
    pub child_dir_zapobj: u64,
    /// Bytes used by this directory and everything below.
    pub used_bytes: u64,
    /// The same, compressed.
    pub compressed_bytes: u64,
    /// The same, uncompressed.
    pub uncompressed_bytes: u64,
    /// Quota in bytes, or 0.
    pub quota: u64,
    /// Reservation in bytes, or 0.
    pub reserved: u64,
    /// ZAP of the properties.
    pub props_zapobj: u64,
    /// ZAP of the delegated permissions, or 0.
    pub deleg_zapobj: u64,
    /// `DD_FLAG_*`.
    pub flags: u64,
    /// `used_bytes` by purpose, as [`DdUsed`].
    pub used_breakdown: [u64; 5],
    /// ZAP of the directories cloned from snapshots of this one, or 0.
    pub clones: u64,
}

impl DslDirPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 19] = words("DSL directory", bonus)?;
        Ok(Self {
            creation_time: w[0],
            head_dataset_obj: w[1],
            parent_obj: w[2],
            origin_obj: w[3],
            child_dir_zapobj: w[4],
            used_bytes: w[5],
            compressed_bytes: w[6],
            uncompressed_bytes: w[7],
            quota: w[8],
            reserved: w[9],
            props_zapobj: w[10],
            deleg_zapobj: w[11],
            flags: w[12],
            used_breakdown: [w[13], w[14], w[15], w[16], w[17]],
            clones: w[18],
        })
    }

    /// The bonus, little-endian.
    pub fn encode(&self) -> [u8; DSL_DIR_PHYS_SIZE] {
        let u = &self.used_breakdown;
        let words = [
            self.creation_time,
            self.head_dataset_obj,
            self.parent_obj,
            self.origin_obj,
            self.child_dir_zapobj,
            self.used_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.quota,
            self.reserved,
            self.props_zapobj,
            self.deleg_zapobj,
            self.flags,
            u[0],
            u[1],
            u[2],
            u[3],
            u[4],
            self.clones,
        ];
        let mut out = [0; DSL_DIR_PHYS_SIZE];
        put_words(&mut out, 0, &words);
        out
    }

    /// Bytes used for one purpose.
    pub fn used_by(&self, what: DdUsed) -> u64 {
        self.used_breakdown[what as usize]
    }
}

/// A dataset: a live file system or volume, or a snapshot (`dsl_dataset_phys_t`, 320 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DslDatasetPhys {
    /// Its directory.
    pub dir_obj: u64,
    /// The snapshot before it, or 0.
    pub prev_snap_obj: u64,
    /// That snapshot's creation txg.
    pub prev_snap_txg: u64,
    /// The snapshot (or head) after it; 0 for heads.
    pub next_snap_obj: u64,
    /// ZAP of its snapshots by name; 0 for snapshots.
    pub snapnames_zapobj: u64,
    /// References to it as a previous snapshot or an origin; 0 for heads.
    pub num_children: u64,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Creation txg.
    pub creation_txg: Txg,
    /// Blocks that died since the previous snapshot.
    pub deadlist_obj: u64,
    /// Bytes it refers to.
    pub referenced_bytes: u64,
    /// The same, compressed.
    pub compressed_bytes: u64,
    /// The same, uncompressed.
    pub uncompressed_bytes: u64,
    /// Bytes that only this snapshot refers to.
    pub unique_bytes: u64,
    /// 56-bit id for `statfs`.
    pub fsid_guid: u64,
    /// Guid for ever.
    pub guid: u64,
    /// `DS_FLAG_*`.
    pub flags: u64,
    /// The object set.
    pub bp: Blkptr,
    /// ZAP of the clones' head datasets, or 0.
    pub next_clones_obj: u64,
    /// ZAP of a snapshot's properties, or 0.
    pub props_obj: u64,
    /// ZAP of the holds, or 0.
    pub userrefs_obj: u64,
}

impl DslDatasetPhys {
    /// A dataset of a directory with nothing in it.
    pub fn new(dir_obj: u64) -> Self {
        Self {
            dir_obj,
            prev_snap_obj: 0,
            prev_snap_txg: 0,
            next_snap_obj: 0,
            snapnames_zapobj: 0,
            num_children: 0,
            creation_time: 0,
            creation_txg: Txg(0),
            deadlist_obj: 0,
            referenced_bytes: 0,
            compressed_bytes: 0,
            uncompressed_bytes: 0,
            unique_bytes: 0,
            fsid_guid: 0,
            guid: 0,
            flags: 0,
            bp: Blkptr::HOLE,
            next_clones_obj: 0,
            props_obj: 0,
            userrefs_obj: 0,
        }
    }

    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt`] when it is too short or its block pointer is bad.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        const WHAT: &str = "DSL dataset";
        if bonus.len() < 280 {
            return Err(Corrupt::Truncated { what: WHAT, need: 280, have: bonus.len() });
        }
        let w: [u64; 35] = words(WHAT, bonus)?;
        Ok(Self {
            dir_obj: w[0],
            prev_snap_obj: w[1],
            prev_snap_txg: w[2],
            next_snap_obj: w[3],
            snapnames_zapobj: w[4],
            num_children: w[5],
            creation_time: w[6],
            creation_txg: Txg(w[7]),
            deadlist_obj: w[8],
            referenced_bytes: w[9],
            compressed_bytes: w[10],
            uncompressed_bytes: w[11],
            unique_bytes: w[12],
            fsid_guid: w[13],
            guid: w[14],
            flags: w[15],
            bp: Blkptr::decode(&bonus[128..256])?,
            next_clones_obj: w[32],
            props_obj: w[33],
            userrefs_obj: w[34],
        })
    }

    /// The bonus, little-endian.
    pub fn encode(&self) -> [u8; DSL_DATASET_PHYS_SIZE] {
        let words = [
            self.dir_obj,
            self.prev_snap_obj,
            self.prev_snap_txg,
            self.next_snap_obj,
            self.snapnames_zapobj,
            self.num_children,
            self.creation_time,
            self.creation_txg.0,
            self.deadlist_obj,
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.unique_bytes,
            self.fsid_guid,
            self.guid,
            self.flags,
        ];
        let mut out = [0; DSL_DATASET_PHYS_SIZE];
        put_words(&mut out, 0, &words);
        out[128..256].copy_from_slice(&self.bp.encode());
        put_words(&mut out, 32, &[self.next_clones_obj, self.props_obj, self.userrefs_obj]);
        out
    }

    /// True for snapshots (`ds->ds_is_snapshot`: they have children, heads have none).
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

#[cfg(test)]
mod tests;
