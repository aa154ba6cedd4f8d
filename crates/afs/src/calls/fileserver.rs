//! The file server (RXAFS, service 1 on port 7000).

use crate::types::{
    CallBack, Date, FetchStatus, FetchVolumeStatus, Fid, PrincipalId, StoreStatus, StoreVolumeStatus,
    VolSync, VolumeId,
};
use crate::wire::{List, Opaque, Text, wire_struct};

/// Most files of a bulk call (`AFSCBMAX`).
pub const MAX_FIDS: usize = 50;
/// Most words of capabilities (`AFSCAPABILITIESMAX`).
pub const MAX_CAPABILITIES: usize = 196;
/// Most words of statistics (`AFS_MAX_XSTAT_LONGS`).
pub const MAX_STATISTICS: usize = 1024;
/// Most users or addresses of FlushCPS (`FLUSHMAX`).
pub const MAX_FLUSH: usize = 10;

/// Bits of the server's capabilities (`VICED_CAPABILITY_ERRORTRANS` and so on).
pub mod capability {
    /// The server sends unified errors.
    pub const ERROR_TRANSLATION: u32 = 1;
    /// Files may be larger than 4 GiB.
    pub const FILES_64: u32 = 2;
    /// A write lock needs the right to write.
    pub const WRITE_LOCK_ACL: u32 = 4;
}

/// Kinds of locks in [`Call::SetLock`].
pub mod lock {
    /// A read lock (`LockRead`).
    pub const READ: i32 = 0;
    /// A write lock (`LockWrite`).
    pub const WRITE: i32 = 1;
}

/// A name of a directory entry. A server allows 255 bytes of it.
pub type Name = Text<256>;
/// The target of a symbolic link.
pub type Path = Text<1024>;
/// The text of an access list: [`crate::acl::AclText`].
pub type AclBytes = Opaque<1024>;
/// A message of a volume.
pub type Message = Text<1024>;
/// The files of a bulk call.
pub type Fids = List<Fid, MAX_FIDS>;
/// The promises of a bulk call, one for each file.
pub type CallBacks = List<CallBack, MAX_FIDS>;
/// Words of capabilities.
pub type Capabilities = List<u32, MAX_CAPABILITIES>;

wire_struct! {
    /// The status of a file and the promise for it.
    pub struct StatusReply {
        /// The status.
        pub status: FetchStatus,
        /// The promise.
        pub callback: CallBack,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// The status of what was changed.
    pub struct ChangeReply {
        /// The status after the change.
        pub status: FetchStatus,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// An access list and the status of its directory.
    pub struct AclReply {
        /// The text of the list, with its NUL.
        pub acl: AclBytes,
        /// The status.
        pub status: FetchStatus,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// A new file or directory, or one that was looked up.
    pub struct EntryReply {
        /// Its name in the cell.
        pub fid: Fid,
        /// Its status.
        pub status: FetchStatus,
        /// The status of its directory.
        pub directory: FetchStatus,
        /// The promise for the file.
        pub callback: CallBack,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// A new symbolic link.
    pub struct SymlinkReply {
        /// Its name in the cell.
        pub fid: Fid,
        /// Its status.
        pub status: FetchStatus,
        /// The status of its directory.
        pub directory: FetchStatus,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// A new hard link.
    pub struct LinkReply {
        /// The status of the file.
        pub status: FetchStatus,
        /// The status of its directory.
        pub directory: FetchStatus,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// Both directories of a rename.
    pub struct RenameReply {
        /// The status of the directory that had the entry.
        pub old_directory: FetchStatus,
        /// The status of the directory that has it.
        pub new_directory: FetchStatus,
        /// The volume's date.
        pub sync: VolSync,
    }

    /// The status of many files, in the order of the call.
    pub struct BulkReply {
        /// A status for each file.
        pub statuses: List<FetchStatus, MAX_FIDS>,
        /// A promise for each file.
        pub callbacks: CallBacks,
        /// The date of the last volume.
        pub sync: VolSync,
    }

    /// A volume, with its names.
    pub struct VolumeStatusReply {
        /// The status.
        pub status: FetchVolumeStatus,
        /// The name of the volume.
        pub name: Name,
        /// Why it is offline.
        pub offline_message: Message,
        /// The message of the day.
        pub motd: Message,
    }

    /// The server's time.
    pub struct TimeReply {
        /// Seconds since 1970.
        pub seconds: Date,
        /// Microseconds.
        pub microseconds: u32,
    }

    /// Statistics of the server.
    pub struct StatisticsReply {
        /// The version of the layout.
        pub version: i32,
        /// The server's time.
        pub time: Date,
        /// The statistics.
        pub data: List<i32, MAX_STATISTICS>,
    }

    /// Two words without a use.
    pub struct FlushReply {
        /// The first.
        pub spare2: i32,
        /// The second.
        pub spare3: i32,
    }
}

super::calls! {
    /// Reads data. The reply follows a length of one word and the data.
    FetchData = 130 { fid: Fid, position: i32, length: i32 } -> StatusReply,
    /// Reads an access list.
    FetchAcl = 131 { fid: Fid } -> AclReply,
    /// Reads a status.
    FetchStatus = 132 { fid: Fid } -> StatusReply,
    /// Writes data, after the file was cut or extended to a length.
    StoreData = 133 with data {
        fid: Fid, status: StoreStatus, position: u32, length: u32, file_length: u32,
    } -> ChangeReply,
    /// Changes an access list, by its old number.
    OldStoreAcl = 134 { fid: Fid, acl: AclBytes } -> ChangeReply,
    /// Changes a status.
    StoreStatus = 135 { fid: Fid, status: StoreStatus } -> ChangeReply,
    /// Removes a file or symbolic link.
    RemoveFile = 136 { directory: Fid, name: Name } -> ChangeReply,
    /// Makes a file.
    CreateFile = 137 { directory: Fid, name: Name, status: StoreStatus } -> EntryReply,
    /// Moves an entry.
    Rename = 138 { old_directory: Fid, old_name: Name, new_directory: Fid, new_name: Name } -> RenameReply,
    /// Makes a symbolic link or a mount point.
    Symlink = 139 { directory: Fid, name: Name, target: Path, status: StoreStatus } -> SymlinkReply,
    /// Makes a hard link.
    Link = 140 { directory: Fid, name: Name, existing: Fid } -> LinkReply,
    /// Makes a directory.
    MakeDir = 141 { directory: Fid, name: Name, status: StoreStatus } -> EntryReply,
    /// Removes a directory.
    RemoveDir = 142 { directory: Fid, name: Name } -> ChangeReply,
    /// Ends promises. Without any file, it ends all of the client's.
    GiveUpCallBacks = 147 { fids: Fids, callbacks: CallBacks } -> (),
    /// Reads the status of a volume.
    GetVolumeStatus = 149 { volume: VolumeId } -> VolumeStatusReply,
    /// Changes the quota of a volume, and its name and offline message unless they are empty.
    SetVolumeStatus = 150 {
        volume: VolumeId, status: StoreVolumeStatus, name: Name, offline_message: Message, motd: Message,
    } -> (),
    /// Names the root volume of the cell.
    GetRootVolume = 151 {} -> Name,
    /// Reads the server's time. Old clients probe servers with it.
    GetTime = 153 {} -> TimeReply,
    /// Reads many statuses. It fails as a whole.
    BulkStatus = 155 { fids: Fids } -> BulkReply,
    /// Takes a lock.
    SetLock = 156 { fid: Fid, kind: i32 } -> VolSync,
    /// Keeps a lock for another five minutes.
    ExtendLock = 157 { fid: Fid } -> VolSync,
    /// Releases a lock.
    ReleaseLock = 158 { fid: Fid } -> VolSync,
    /// Reads the version of the statistics.
    XStatsVersion = 159 {} -> i32,
    /// Reads statistics.
    GetXStats = 160 { client_version: i32, collection: i32 } -> StatisticsReply,
    /// Looks up a name.
    Lookup = 161 { directory: Fid, name: Name } -> EntryReply,
    /// Makes the server ask for the groups of users and hosts again.
    FlushCps = 162 {
        users: List<PrincipalId, MAX_FLUSH>, addresses: List<u32, MAX_FLUSH>, spare: i32,
    } -> FlushReply,
    /// Changes an access list.
    StoreAcl = 164 { fid: Fid, acl: AclBytes } -> ChangeReply,
    /// Reads many statuses. A file that fails has its error in its place.
    InlineBulkStatus = 65_536 { fids: Fids } -> BulkReply,
    /// Reads data. The reply follows a length of two words and the data.
    FetchData64 = 65_537 { fid: Fid, position: i64, length: i64 } -> StatusReply,
    /// Writes data, after the file was cut or extended to a length.
    StoreData64 = 65_538 with data {
        fid: Fid, status: StoreStatus, position: u64, length: u64, file_length: u64,
    } -> ChangeReply,
    /// Ends all promises of the client.
    GiveUpAllCallBacks = 65_539 {} -> (),
    /// Reads what the server can do.
    GetCapabilities = 65_540 {} -> Capabilities,
}
