//! Identifiers and structures of several formats and calls.

mod ids;
mod status;
#[cfg(test)]
mod tests;
mod volume;

pub use ids::{DataVersion, Date, Fid, PrincipalId, Unique, Vnode, VnodeType, VolumeId, VolumeType};
pub use status::{CallBack, FetchStatus, StoreStatus, VolSync};
pub use volume::{
    Destination, FetchVolumeStatus, NAME_SIZE, Partition, Partition64, Replica, RestoreCookie,
    StoreVolumeStatus, TransactionStatus, VOK, VolumeInfo, VolumeStatus, XVolumeInfo,
};
