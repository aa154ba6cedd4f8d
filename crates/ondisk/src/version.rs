//! Versions of pools: which part of the format came with which version.
//!
//! After version 28 comes version 5000. From then on each addition is a feature with a name of its
//! own ([`crate::feature`]). A pool of an old version has none of the structures that came later;
//! `zpool upgrade` makes them.
//!
//! Each constant has the name that it has in OpenZFS (`SPA_VERSION_*` in `sys/fs/zfs.h`).

/// Blocks can have several copies; before, each block had one.
pub const SPA_VERSION_DITTO_BLOCKS: u64 = 2;
/// Hot spares, and raidz with double parity.
pub const SPA_VERSION_RAIDZ2: u64 = 3;
/// Lists of blocks count compressed and uncompressed bytes.
pub const SPA_VERSION_BPOBJ_ACCOUNT: u64 = 3;
/// Space is counted without the overhead of raidz parity ("deflated").
pub const SPA_VERSION_RAIDZ_DEFLATE: u64 = 3;
/// Dnodes count the bytes that they use; before, they counted sectors.
pub const SPA_VERSION_DNODE_BYTES: u64 = 3;
/// The pool has a history.
pub const SPA_VERSION_ZPOOL_HISTORY: u64 = 4;
/// `compression=gzip`.
pub const SPA_VERSION_GZIP_COMPRESSION: u64 = 5;
/// Log devices.
pub const SPA_VERSION_SLOGS: u64 = 7;
/// `zfs allow`.
pub const SPA_VERSION_DELEGATED_PERMS: u64 = 8;
/// Ids of owners and groups are FUIDs: file systems of version 3.
pub const SPA_VERSION_FUID: u64 = 9;
/// Reservations that don't count snapshots.
pub const SPA_VERSION_REFRESERVATION: u64 = 9;
/// `refquota` and `refreservation`.
pub const SPA_VERSION_REFQUOTA: u64 = 9;
/// The count of bytes that belong to one dataset alone is accurate.
pub const SPA_VERSION_UNIQUE_ACCURATE: u64 = 9;
/// Cache devices.
pub const SPA_VERSION_L2CACHE: u64 = 10;
/// Every dataset is a clone of the pool's empty snapshot, and snapshots know their clones.
pub const SPA_VERSION_ORIGIN: u64 = 11;
/// Snapshots have user properties.
pub const SPA_VERSION_SNAP_PROPS: u64 = 12;
/// The space of a directory is broken down by purpose.
pub const SPA_VERSION_USED_BREAKDOWN: u64 = 13;
/// `aclinherit=passthrough-x`.
pub const SPA_VERSION_PASSTHROUGH_X: u64 = 14;
/// Space is counted by user and group: file systems of version 4.
pub const SPA_VERSION_USERSPACE: u64 = 15;
/// Raidz with three parities.
pub const SPA_VERSION_RAIDZ3: u64 = 17;
/// Snapshots have holds.
pub const SPA_VERSION_USERREFS: u64 = 18;
/// `compression=zle`.
pub const SPA_VERSION_ZLE_COMPRESSION: u64 = 20;
/// Holes among the top-level vdevs, where log devices were removed.
pub const SPA_VERSION_HOLES: u64 = 19;
/// `dedup`.
pub const SPA_VERSION_DEDUP: u64 = 21;
/// Intent log blocks keep their header at the front, with no trailer.
pub const SPA_VERSION_SLIM_ZIL: u64 = 23;
/// System attributes: file systems of version 5.
pub const SPA_VERSION_SA: u64 = 24;
/// Deadlists are split by birth, and the pool has a list of blocks to free.
pub const SPA_VERSION_DEADLISTS: u64 = 26;
/// Directories know the clones of their snapshots.
pub const SPA_VERSION_DIR_CLONES: u64 = 26;
/// Features replace version numbers.
pub const SPA_VERSION_FEATURES: u64 = 5000;

/// The newest version of file systems that a pool of version `spa` can hold
/// (`zfs_zpl_version_map`).
pub fn newest_zpl(spa: u64) -> u64 {
    match spa {
        SPA_VERSION_SA.. => 5,
        SPA_VERSION_USERSPACE.. => 4,
        SPA_VERSION_FUID.. => 3,
        _ => 2,
    }
}
