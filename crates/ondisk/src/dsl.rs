//! DSL directories and datasets: the bonus structures of the pool's name space.
//!
//! # On disk
//! A directory ([`DslDirPhys`]) is a name in the tree. It has a quota, a reservation and the space
//! used below it. Its head dataset ([`DslDatasetPhys`]) is the live file system or volume.
//! Snapshots are datasets too, chained by `prev_snap_obj`.
//!
//! Both structures are bonuses of objects in the MOS. In pools with extensible datasets these
//! objects are ZAPs, which hold further fields (see [`crate::mos`]).

use crate::words::{put_words, words};
use crate::{Blkptr, Corrupt, Result, Txg};

/// Bytes of a directory's bonus (`sizeof (dsl_dir_phys_t)`).
pub const DSL_DIR_PHYS_SIZE: usize = 256;
/// Bytes of a dataset's bonus (`sizeof (dsl_dataset_phys_t)`).
pub const DSL_DATASET_PHYS_SIZE: usize = 320;

/// The dataset was received or destroyed only in part.
pub const DS_FLAG_INCONSISTENT: u64 = 1 << 0;
/// `zfs promote` must not make this the origin.
pub const DS_FLAG_NOPROMOTE: u64 = 1 << 1;
/// `unique_bytes` is exact.
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// The dataset is destroyed with the release of its last hold or clone.
pub const DS_FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// Name look-ups ignore case.
pub const DS_FLAG_CI_DATASET: u64 = 1 << 16;
/// `used_breakdown` is kept up to date.
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1;

/// Purpose of the space below a directory (`dd_used_t`); indexes [`DslDirPhys::used_breakdown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DdUsed {
    /// The head dataset (`DD_USED_HEAD`, `usedbydataset`).
    Head = 0,
    /// Its snapshots (`DD_USED_SNAP`, `usedbysnapshots`).
    Snap = 1,
    /// Its children (`DD_USED_CHILD`, `usedbychildren`).
    Child = 2,
    /// The part of its children's reservations that they don't use (`DD_USED_CHILD_RSRV`).
    ChildRsrv = 3,
    /// The part of its `refreservation` that it doesn't use (`DD_USED_REFRSRV`,
    /// `usedbyrefreservation`).
    Refrsrv = 4,
}

/// A DSL directory, 256 bytes. OpenZFS's fields have these names with `dd_` in front
/// (`dsl_dir_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DslDirPhys {
    /// Creation time in seconds since 1970; OpenZFS shows that of the head dataset instead.
    pub creation_time: u64,
    /// The live dataset, or 0 for a directory without one.
    pub head_dataset_obj: u64,
    /// The directory above, or 0 for the root.
    pub parent_obj: u64,
    /// The snapshot of which this directory is a clone, or 0.
    pub origin_obj: u64,
    /// ZAP of the children by name.
    pub child_dir_zapobj: u64,
    /// Bytes used by this directory and all directories below.
    pub used_bytes: u64,
    /// Compressed bytes of the same.
    pub compressed_bytes: u64,
    /// Uncompressed bytes of the same.
    pub uncompressed_bytes: u64,
    /// Quota in bytes, or 0.
    pub quota: u64,
    /// Reservation in bytes, or 0.
    pub reserved: u64,
    /// ZAP of the properties.
    pub props_zapobj: u64,
    /// ZAP of the delegated permissions, or 0.
    pub deleg_zapobj: u64,
    /// Flags, `DD_FLAG_*`.
    pub flags: u64,
    /// `used_bytes` by purpose, indexed by [`DdUsed`].
    pub used_breakdown: [u64; 5],
    /// ZAP of the directories that are clones of this directory's snapshots, or 0.
    pub clones: u64,
}

impl DslDirPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus is shorter than its 19 words.
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

    /// Encodes the bonus, little-endian.
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

/// A dataset, 320 bytes: a live file system or volume, or a snapshot.
///
/// OpenZFS's fields have these names with `ds_` in front (`dsl_dataset_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DslDatasetPhys {
    /// Directory of the dataset.
    pub dir_obj: u64,
    /// The snapshot before it, or 0.
    pub prev_snap_obj: u64,
    /// Transaction group in which that snapshot was made.
    pub prev_snap_txg: u64,
    /// The snapshot or head after it; 0 for heads.
    pub next_snap_obj: u64,
    /// ZAP of its snapshots by name; 0 for snapshots.
    pub snapnames_zapobj: u64,
    /// References to it as a previous snapshot or an origin; 0 for heads.
    pub num_children: u64,
    /// Creation time in seconds since 1970.
    pub creation_time: u64,
    /// Transaction group in which the dataset was made.
    pub creation_txg: Txg,
    /// Deadlist: the blocks that died since the previous snapshot.
    pub deadlist_obj: u64,
    /// Bytes that the dataset refers to.
    pub referenced_bytes: u64,
    /// Compressed bytes of the same.
    pub compressed_bytes: u64,
    /// Uncompressed bytes of the same.
    pub uncompressed_bytes: u64,
    /// Bytes that only this snapshot refers to.
    pub unique_bytes: u64,
    /// 56-bit id for `statfs`, which changes if it collides with another.
    pub fsid_guid: u64,
    /// Guid that never changes.
    pub guid: u64,
    /// Flags, `DS_FLAG_*`.
    pub flags: u64,
    /// Pointer to the object set.
    pub bp: Blkptr,
    /// ZAP of the clones' head datasets, or 0.
    pub next_clones_obj: u64,
    /// ZAP of a snapshot's properties, or 0.
    pub props_obj: u64,
    /// ZAP of the holds, or 0.
    pub userrefs_obj: u64,
}

impl DslDatasetPhys {
    /// An empty dataset of a directory.
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
    /// * [`Corrupt::Truncated`]: the bonus has fewer than 280 bytes.
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: the block pointer has a fault that
    ///   [`Blkptr::decode`] lists.
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

    /// Encodes the bonus, little-endian.
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

    /// True for snapshots, which have children; heads have none (`ds_is_snapshot`).
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

#[cfg(test)]
mod tests;
