//! Identifiers, and the numbers that travel in several formats.

mod ids;

pub use ids::{DataVersion, Date, Fid, PrincipalId, Unique, Vnode, VnodeType, VolumeId, VolumeType};
