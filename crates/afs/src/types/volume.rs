//! What servers say about volumes, partitions and transactions.

use super::{Date, PrincipalId, VolumeId};
use crate::wire::{Chars, Flag, Short, wire_struct};

/// Size of a volume's name with its NUL (`VNAMESIZE`).
pub const NAME_SIZE: usize = 32;

/// What a volume's status is in lists: in order (`VOK`).
pub const VOK: i32 = 2;

wire_struct! {
    /// What clients see of a volume (`AFSFetchVolumeStatus`). `df` and `fs listquota` show it.
    pub struct FetchVolumeStatus {
        /// The volume.
        pub id: VolumeId,
        /// The read-write volume of the group.
        pub parent: VolumeId,
        /// Whether it is online.
        pub online: Flag,
        /// Whether it may be attached.
        pub in_service: Flag,
        /// Whether clients may use it.
        pub blessed: Flag,
        /// Whether it must be salvaged first.
        pub needs_salvage: Flag,
        /// 0: read-only, 1: read-write.
        pub kind: i32,
        /// Space in KiB that is reserved.
        pub min_quota: i32,
        /// The quota in KiB, 0 for none.
        pub quota: i32,
        /// Space in use, in KiB.
        pub used: i32,
        /// Free space of the partition, in KiB.
        pub partition_free: i32,
        /// Space of the partition, in KiB.
        pub partition_size: i32,
    }

    /// What a client changes of a volume (`AFSStoreVolumeStatus`).
    pub struct StoreVolumeStatus {
        /// [`StoreVolumeStatus::MIN_QUOTA`] and [`StoreVolumeStatus::QUOTA`].
        pub mask: i32,
        /// Space in KiB that is reserved.
        pub min_quota: i32,
        /// The quota in KiB.
        pub quota: i32,
    }

    /// A volume in the lists of a volume server (`volintInfo`).
    ///
    /// In SetInfo, -1 leaves a number as it is.
    pub struct VolumeInfo {
        /// The name.
        pub name: Chars<NAME_SIZE>,
        /// The volume.
        pub id: VolumeId,
        /// Its type: the numbers of [`super::VolumeType`].
        pub kind: i32,
        /// The backup volume of the group.
        pub backup: VolumeId,
        /// The read-write volume of the group.
        pub parent: VolumeId,
        /// The read-only volume that was cloned last.
        pub clone: VolumeId,
        /// [`VOK`], or an error of volumes.
        pub status: i32,
        /// When this copy was made.
        pub copy_date: Date,
        /// Whether it is attached.
        pub in_use: Flag,
        /// Whether it must be salvaged first.
        pub needs_salvaged: Flag,
        /// Whether a salvage deletes it. OpenAFS has 0xD3 for yes.
        pub destroy_me: Flag,
        /// When the volume was made; of a clone, when it was cloned.
        pub creation_date: Date,
        /// When it was last used.
        pub access_date: Date,
        /// When it last changed.
        pub update_date: Date,
        /// When the backup volume was last cloned.
        pub backup_date: Date,
        /// Uses today.
        pub day_use: i32,
        /// The number of vnodes.
        pub file_count: i32,
        /// The quota in KiB, 0 for none.
        pub quota: i32,
        /// Space in use, in KiB.
        pub size: i32,
        /// Flags of the backup system.
        pub flags: i32,
        /// Space in KiB that is reserved (`spare0`).
        pub min_quota: i32,
        /// Uses in a week (`spare1`).
        pub week_use: i32,
        /// The counter of changes (`spare2`).
        pub update_counter: i32,
        /// A word without a use (`spare3`).
        pub spare: i32,
    }

    /// A volume in the long lists of a volume server (`volintXInfo`).
    pub struct XVolumeInfo {
        /// The name.
        pub name: Chars<NAME_SIZE>,
        /// The volume.
        pub id: VolumeId,
        /// Its type: the numbers of [`super::VolumeType`].
        pub kind: i32,
        /// The backup volume of the group.
        pub backup: VolumeId,
        /// The read-write volume of the group.
        pub parent: VolumeId,
        /// The read-only volume that was cloned last.
        pub clone: VolumeId,
        /// [`VOK`], or an error of volumes.
        pub status: i32,
        /// When this copy was made.
        pub copy_date: Date,
        /// Whether it is attached.
        pub in_use: Flag,
        /// When the volume was made; of a clone, when it was cloned.
        pub creation_date: Date,
        /// When it was last used.
        pub access_date: Date,
        /// When it last changed.
        pub update_date: Date,
        /// When the backup volume was last cloned.
        pub backup_date: Date,
        /// Uses today.
        pub day_use: i32,
        /// The number of vnodes.
        pub file_count: i32,
        /// The quota in KiB, 0 for none.
        pub quota: i32,
        /// Space in use, in KiB.
        pub size: i32,
        /// Reads: from the same network in all and with a ticket, then from others.
        pub reads: [i32; 4],
        /// Writes, in the same order.
        pub writes: [i32; 4],
        /// Changes of files by their author, by the age of the file.
        pub file_same_author: [i32; 6],
        /// Changes of files by others.
        pub file_other_author: [i32; 6],
        /// Changes of directories by their author.
        pub directory_same_author: [i32; 6],
        /// Changes of directories by others.
        pub directory_other_author: [i32; 6],
    }

    /// The header of a volume in a transaction (`volser_status`).
    pub struct VolumeStatus {
        /// The volume.
        pub id: VolumeId,
        /// The unique of the next new vnode.
        pub next_unique: i32,
        /// Its type: the numbers of [`super::VolumeType`].
        pub kind: i32,
        /// The read-write volume of the group.
        pub parent: VolumeId,
        /// The read-only volume that was cloned last.
        pub clone: VolumeId,
        /// The backup volume of the group.
        pub backup: VolumeId,
        /// The volume in the dump from which this one was restored.
        pub restored_from: VolumeId,
        /// The quota in KiB, 0 for none.
        pub quota: i32,
        /// Space in KiB that is reserved.
        pub min_quota: i32,
        /// The owner.
        pub owner: PrincipalId,
        /// When the volume was made; of a clone, when it was cloned.
        pub creation_date: Date,
        /// When it was last used.
        pub access_date: Date,
        /// When it last changed.
        pub update_date: Date,
        /// When it expires; 0 for never.
        pub expiration_date: Date,
        /// When the backup volume was last cloned.
        pub backup_date: Date,
        /// When this copy was made.
        pub copy_date: Date,
    }

    /// A partition (`diskPartition`). Its numbers end at 2 TiB.
    pub struct Partition {
        /// The name, "/vicepa".
        pub name: Chars<32>,
        /// The device.
        pub device: Chars<32>,
        /// A file descriptor of the server.
        pub lock: i32,
        /// Usable space in KiB.
        pub total: i32,
        /// Free space in KiB.
        pub free: i32,
        /// Free space in KiB that is kept.
        pub min_free: i32,
    }

    /// A partition of any size (`diskPartition64`).
    pub struct Partition64 {
        /// The name, "/vicepa".
        pub name: Chars<256>,
        /// The device.
        pub device: Chars<256>,
        /// A file descriptor of the server.
        pub lock: i32,
        /// Usable space in KiB.
        pub total: i64,
        /// Free space in KiB.
        pub free: i64,
        /// Free space in KiB that is kept.
        pub min_free: i64,
    }

    /// A transaction of a volume server (`transDebugInfo`). `vos status` shows it.
    pub struct TransactionStatus {
        /// The transaction.
        pub id: i32,
        /// When it was last used.
        pub time: Date,
        /// When it began.
        pub creation_time: Date,
        /// Its error.
        pub code: i32,
        /// Its volume.
        pub volume: VolumeId,
        /// The partition of the volume.
        pub partition: i32,
        /// How the volume is attached (`ITOffline` and so on).
        pub attach_flags: Short,
        /// Flags of the volume (`VTOutOfService` and so on).
        pub volume_flags: Flag,
        /// Flags of the transaction (`TTDeleted`).
        pub flags: Flag,
        /// The last call in it.
        pub last_call: Chars<30>,
        /// Whether a call runs in it, so that the other fields have a meaning.
        pub has_call: i32,
        /// The number of the next packet to be received.
        pub read_next: i32,
        /// The number of the next packet to be sent.
        pub send_next: i32,
        /// When a packet was last sent.
        pub last_send: Date,
        /// When a packet was last received.
        pub last_receive: Date,
    }

    /// What a restored volume gets whatever its dump says (`restoreCookie`).
    pub struct RestoreCookie {
        /// The name.
        pub name: Chars<NAME_SIZE>,
        /// The type: the numbers of [`super::VolumeType`].
        pub kind: i32,
        /// The read-only volume that was cloned last.
        pub clone: VolumeId,
        /// The read-write volume of the group.
        pub parent: VolumeId,
    }

    /// Another volume server (`destServer`).
    pub struct Destination {
        /// The IPv4 address.
        pub host: u32,
        /// The port.
        pub port: i32,
        /// The security index.
        pub security: i32,
    }

    /// A transaction of another volume server (`replica`).
    pub struct Replica {
        /// The transaction.
        pub transaction: i32,
        /// The server.
        pub server: Destination,
    }
}

impl StoreVolumeStatus {
    /// The bit of the mask for the reserved space (`AFS_SETMINQUOTA`).
    pub const MIN_QUOTA: i32 = 1;
    /// The bit of the mask for the quota (`AFS_SETMAXQUOTA`).
    pub const QUOTA: i32 = 2;
}
