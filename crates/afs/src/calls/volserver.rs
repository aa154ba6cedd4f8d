//! The volume server (AFSVol, service 4 on port 7005).

use crate::types::{
    Date, Destination, Partition, Partition64, Replica, RestoreCookie, TransactionStatus, VolumeId,
    VolumeInfo, VolumeStatus, XVolumeInfo,
};
use crate::wire::{List, Text, wire_struct};

/// Most servers of ForwardMultiple (`NMAXNSERVERS`).
pub const MAX_DESTINATIONS: usize = 13;
/// Most volumes of a partition in a list. OpenAFS has no limit.
pub const MAX_VOLUMES: usize = 1 << 22;
/// Most transactions in a list. OpenAFS has no limit.
pub const MAX_TRANSACTIONS: usize = 1 << 16;
/// Most partitions of a server.
pub const MAX_PARTITIONS: usize = crate::partition::MAX_PARTITIONS;

/// How a transaction attaches its volume (`ITOffline` and so on).
pub mod attach {
    /// Clients get VOFFLINE.
    pub const OFFLINE: i32 = 1;
    /// Clients that write get VBUSY.
    pub const BUSY: i32 = 2;
    /// The transaction only reads.
    pub const READ_ONLY: i32 = 8;
    /// The volume is being made.
    pub const CREATE: i32 = 0x10;
}

/// Flags of a volume in SetFlags (`VTDeleteOnSalvage` and so on).
pub mod volume_flag {
    /// The next salvage deletes the volume.
    pub const DELETE_ON_SALVAGE: i32 = 1;
    /// The volume stays offline.
    pub const OUT_OF_SERVICE: i32 = 2;
    /// The volume is deleted.
    pub const DELETED: i32 = 4;
}

/// DumpV2 leaves out directories that did not change (`VOLDUMPV2_OMITDIRS`).
pub const OMIT_DIRECTORIES: i32 = 1;

/// The version of [`Call::OfferBlocks`] and [`Call::RestoreBlocks`] that this release knows.
pub const BLOCKS_VERSION: u32 = 1;
/// A volume can take all blocks anew ([`BlocksReply::flags`]).
pub const BLOCKS_WHOLE: u32 = 1;
/// The files of a volume are those of the snapshot that it has ([`BlocksReply::flags`]):
/// [`Call::RestoreBlocks`] with the guid of that in the place of a stream gives it a header.
pub const BLOCKS_SAME: u32 = 2;

/// The name of a volume: up to 31 bytes.
pub type Name = Text<32>;

wire_struct! {
    /// A new volume.
    pub struct CreateReply {
        /// The volume.
        pub volume: VolumeId,
        /// The transaction that makes it.
        pub transaction: i32,
    }

    /// What a volume can take as blocks.
    pub struct BlocksReply {
        /// The version of what follows ([`BLOCKS_VERSION`]).
        pub version: u32,
        /// [`BLOCKS_WHOLE`] and [`BLOCKS_SAME`].
        pub flags: u32,
        /// The guid of the snapshot that it has, on which a stream may build; 0: it has none.
        pub base: u64,
    }

    /// A volume by its place in a list.
    pub struct NthReply {
        /// The volume.
        pub volume: VolumeId,
        /// Its partition.
        pub partition: i32,
    }
}

super::calls! {
    /// Makes a volume, out of service.
    CreateVolume = 100 { partition: i32, name: Name, kind: i32, parent: VolumeId, volume: VolumeId } -> CreateReply,
    /// Deletes the volume of a transaction.
    DeleteVolume = 101 { transaction: i32 } -> (),
    /// Replaces the content of a volume by the dump that follows.
    Restore = 102 with data { transaction: i32, flags: i32, cookie: RestoreCookie } -> (),
    /// Dumps a volume to another server.
    Forward = 103 {
        transaction: i32, since: Date, to: Destination, to_transaction: i32, cookie: RestoreCookie,
    } -> (),
    /// Ends a transaction.
    EndTrans = 104 { transaction: i32 } -> i32,
    /// Clones a volume.
    Clone = 105 { transaction: i32, purge: VolumeId, kind: i32, name: Name, volume: VolumeId } -> VolumeId,
    /// Sets the flags of a volume.
    SetFlags = 106 { transaction: i32, flags: i32 } -> (),
    /// Reads the flags of a volume.
    GetFlags = 107 { transaction: i32 } -> i32,
    /// Begins a transaction.
    TransCreate = 108 { volume: VolumeId, partition: i32, flags: i32 } -> i32,
    /// Dumps a volume. The dump is the answer.
    Dump = 109 { transaction: i32, since: Date } -> (),
    /// Reads a place of the list of volumes.
    GetNthVolume = 110 { index: i32 } -> NthReply,
    /// Tells clients that the volume has moved; without effect today.
    SetForwarding = 111 { transaction: i32, new_site: i32 } -> (),
    /// Reads the name of a volume.
    GetName = 112 { transaction: i32 } -> Text<256>,
    /// Reads the header of a volume.
    GetStatus = 113 { transaction: i32 } -> VolumeStatus,
    /// Announces a restore.
    SignalRestore = 114 { name: Name, kind: i32, parent: VolumeId, clone: VolumeId } -> (),
    /// Lists the first 26 partitions; -1 for none.
    ListPartitions = 115 {} -> [i32; 26],
    /// Lists the volumes of a partition. Flags 0: only their ids.
    ListVolumes = 116 { partition: i32, flags: i32 } -> List<VolumeInfo, MAX_VOLUMES>,
    /// Sets what belongs to the group of a volume.
    SetIdsTypes = 117 {
        transaction: i32, name: Name, kind: i32, parent: VolumeId, clone: VolumeId, backup: VolumeId,
    } -> (),
    /// Lists the transactions.
    Monitor = 118 {} -> List<TransactionStatus, MAX_TRANSACTIONS>,
    /// Reads the space of a partition.
    PartitionInfo = 119 { name: Text<4096> } -> Partition,
    /// Replaces a clone by a new one.
    ReClone = 120 { transaction: i32, clone: VolumeId } -> (),
    /// Lists one volume.
    ListOneVolume = 121 { partition: i32, volume: VolumeId } -> List<VolumeInfo, MAX_VOLUMES>,
    /// Deletes a volume that can't be attached.
    NukeVolume = 122 { partition: i32, volume: VolumeId } -> (),
    /// Sets the creation date.
    SetDate = 123 { transaction: i32, date: Date } -> (),
    /// Lists the volumes of a partition with statistics.
    XListVolumes = 124 { partition: i32, flags: i32 } -> List<XVolumeInfo, MAX_VOLUMES>,
    /// Lists one volume with statistics.
    XListOneVolume = 125 { partition: i32, volume: VolumeId } -> List<XVolumeInfo, MAX_VOLUMES>,
    /// Sets the quota, dates and uses of a volume; -1 leaves them.
    SetInfo = 126 { transaction: i32, info: VolumeInfo } -> (),
    /// Lists the partitions.
    XListPartitions = 127 {} -> List<i32, MAX_PARTITIONS>,
    /// Dumps a volume to several servers at once.
    ForwardMultiple = 128 {
        transaction: i32, since: Date, to: List<Replica, MAX_DESTINATIONS>, spare: i32, cookie: RestoreCookie,
    } -> List<i32, MAX_DESTINATIONS>,
    /// Makes a read-write volume of a read-only one.
    ConvertRoToRw = 65_536 { partition: i32, volume: VolumeId } -> (),
    /// Reads the size of a dump in bytes.
    GetSize = 65_537 { transaction: i32, since: Date } -> u64,
    /// Dumps a volume. The dump is the answer.
    DumpV2 = 65_538 { transaction: i32, since: Date, flags: i32 } -> (),
    /// Reads the space of a partition of any size.
    PartitionInfo64 = 65_539 { name: Text<4096> } -> Partition64,
    /// Moves a directory into a volume of its own. Text about it is the answer.
    SplitVolume = 65_547 { volume: VolumeId, new: VolumeId, directory: u32, verbose: i32 } -> (),
    /// Asks what the volume of a transaction can take as blocks. No call of OpenAFS.
    OfferBlocks = 1_349_480_449 { transaction: i32, version: u32 } -> BlocksReply,
    /// Replaces the content of a volume by the blocks that follow. No call of OpenAFS.
    RestoreBlocks = 1_349_480_450 with data {
        transaction: i32, version: u32, cookie: RestoreCookie, base: u64, header: u32,
    } -> (),
}
