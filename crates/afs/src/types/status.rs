//! The status of files, and what it promises to clients.

use rx::xdr::{Reader, Writer};

use super::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType};
use crate::acl::Rights;
use crate::wire::{Wire, wire_struct};

/// The status of a file, directory or symbolic link (`AFSFetchStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FetchStatus {
    /// What the vnode is. `None` is in answers for a vnode that has an error.
    pub kind: Option<VnodeType>,
    /// The number of directory entries that name the vnode, or 2 and the subdirectories.
    pub link_count: u32,
    /// The length in bytes; of a directory, that of its pages.
    pub length: u64,
    /// The count of changes.
    pub data_version: DataVersion,
    /// The user who stored the data last.
    pub author: PrincipalId,
    /// The owner.
    pub owner: PrincipalId,
    /// The rights of the caller.
    pub caller_access: Rights,
    /// The rights of a caller without a ticket.
    pub anonymous_access: Rights,
    /// The Unix mode bits.
    pub mode: u32,
    /// The directory that has a file; of a directory, itself.
    pub parent: Vnode,
    /// The use of the parent's number.
    pub parent_unique: Unique,
    /// The modification time that users see (`ClientModTime`).
    pub modify_time: Date,
    /// When the server last changed the vnode (`ServerModTime`).
    pub server_modify_time: Date,
    /// The Unix group.
    pub group: i32,
    /// -1: a write lock; else the number of read locks.
    pub lock_count: i32,
    /// Why the other fields are empty, in answers for many vnodes. 0: there is no error.
    pub error: i32,
}

/// The version of the status, and the mask of residencies: both are always 1.
const ONE: u32 = 1;

impl FetchStatus {
    /// The answer for a vnode that has an error.
    pub fn of_error(error: i32) -> Self {
        Self { error, ..Self::default() }
    }
}

impl Wire for FetchStatus {
    const SIZE: usize = 84;

    fn encode(&self, to: &mut Writer) {
        to.words([
            ONE,
            self.kind.map_or(0, |kind| kind as u32),
            self.link_count,
            self.length as u32,
            self.data_version.0,
            self.author.0.cast_unsigned(),
            self.owner.0.cast_unsigned(),
            self.caller_access.0,
            self.anonymous_access.0,
            self.mode,
            self.parent.0,
            self.parent_unique.0,
            ONE,
            self.modify_time.0,
            self.server_modify_time.0,
            self.group.cast_unsigned(),
            // Two words without a use: a counter, and the upper half of the data version.
            0,
            0,
            self.lock_count.cast_unsigned(),
            (self.length >> 32) as u32,
            self.error.cast_unsigned(),
        ]);
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        from.u32()?;
        let kind = VnodeType::from_number(from.u32()?);
        let link_count = from.u32()?;
        let low = from.u32()?;
        let data_version = Wire::decode(from)?;
        let (author, owner) = (Wire::decode(from)?, Wire::decode(from)?);
        let (caller_access, anonymous_access) = (Rights(from.u32()?), Rights(from.u32()?));
        let mode = from.u32()?;
        let (parent, parent_unique) = (Wire::decode(from)?, Wire::decode(from)?);
        from.u32()?;
        let (modify_time, server_modify_time) = (Wire::decode(from)?, Wire::decode(from)?);
        let group = from.i32()?;
        from.u64()?;
        let lock_count = from.i32()?;
        let length = u64::from(from.u32()?) << 32 | u64::from(low);
        let error = from.i32()?;
        Ok(Self {
            kind,
            link_count,
            length,
            data_version,
            author,
            owner,
            caller_access,
            anonymous_access,
            mode,
            parent,
            parent_unique,
            modify_time,
            server_modify_time,
            group,
            lock_count,
            error,
        })
    }
}

/// What a client changes of a status (`AFSStoreStatus`). `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStatus {
    /// The modification time (`AFS_SETMODTIME`).
    pub modify_time: Option<Date>,
    /// The owner (`AFS_SETOWNER`).
    pub owner: Option<PrincipalId>,
    /// The Unix group (`AFS_SETGROUP`).
    pub group: Option<i32>,
    /// The Unix mode bits (`AFS_SETMODE`).
    pub mode: Option<u32>,
    /// The size of segments, which has no effect (`AFS_SETSEGSIZE`).
    pub segment_size: Option<u32>,
    /// Whether the change must be durable before the reply (`AFS_FSYNC`).
    pub is_durable: bool,
}

/// The bits of the mask, in the order of the fields.
const MODIFY_TIME: u32 = 1;
const OWNER: u32 = 2;
const GROUP: u32 = 4;
const MODE: u32 = 8;
const SEGMENT_SIZE: u32 = 16;
const FSYNC: u32 = 1024;

impl Wire for StoreStatus {
    const SIZE: usize = 24;

    fn encode(&self, to: &mut Writer) {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let mask = bit(self.modify_time.is_some(), MODIFY_TIME)
            | bit(self.owner.is_some(), OWNER)
            | bit(self.group.is_some(), GROUP)
            | bit(self.mode.is_some(), MODE)
            | bit(self.segment_size.is_some(), SEGMENT_SIZE)
            | bit(self.is_durable, FSYNC);
        to.u32(mask).u32(self.modify_time.unwrap_or_default().0);
        to.i32(self.owner.unwrap_or_default().0).i32(self.group.unwrap_or_default());
        to.u32(self.mode.unwrap_or_default()).u32(self.segment_size.unwrap_or_default());
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        let mask = from.u32()?;
        let has = |bit| mask & bit != 0;
        Ok(Self {
            modify_time: Some(Wire::decode(from)?).filter(|_| has(MODIFY_TIME)),
            owner: Some(Wire::decode(from)?).filter(|_| has(OWNER)),
            group: Some(from.i32()?).filter(|_| has(GROUP)),
            mode: Some(from.u32()?).filter(|_| has(MODE)),
            segment_size: Some(from.u32()?).filter(|_| has(SEGMENT_SIZE)),
            is_durable: has(FSYNC),
        })
    }
}

wire_struct! {
    /// A promise to call the client before a file changes, or the end of one (`AFSCallBack`).
    pub struct CallBack {
        /// The version of promises, 1 (`CALLBACK_VERSION`).
        pub version: u32,
        /// Seconds from now for which the promise holds.
        pub expires: u32,
        /// [`CallBack::EXCLUSIVE`], [`CallBack::SHARED`] or [`CallBack::DROPPED`].
        pub kind: u32,
    }
}

impl CallBack {
    /// The promise is to one client (`CB_EXCLUSIVE`).
    pub const EXCLUSIVE: u32 = 1;
    /// The promise may be to several clients (`CB_SHARED`).
    pub const SHARED: u32 = 2;
    /// There is no promise any more (`CB_DROPPED`).
    pub const DROPPED: u32 = 3;

    /// A promise for so many seconds.
    pub fn shared(expires: u32) -> Self {
        Self { version: 1, expires, kind: Self::SHARED }
    }

    /// The end of a promise.
    pub fn dropped() -> Self {
        Self { version: 1, expires: 0, kind: Self::DROPPED }
    }
}

/// What tells a client that a volume was released or replaced (`AFSVolSync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolSync {
    /// When the volume was made; of a clone, when it was cloned.
    pub creation_date: Date,
}

impl Wire for VolSync {
    const SIZE: usize = 24;

    fn encode(&self, to: &mut Writer) {
        to.u32(self.creation_date.0).fixed(&[0; 20]);
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        let creation_date = Wire::decode(from)?;
        from.fixed(20)?;
        Ok(Self { creation_date })
    }
}
