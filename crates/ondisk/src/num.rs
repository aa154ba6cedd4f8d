//! Number types of the format, one for each quantity that must not be mixed up with another.

macro_rules! newtype {
    ($(#[$m:meta])* $name:ident($ty:ty)) => {
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $ty);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$ty> for $name {
            fn from(v: $ty) -> Self {
                Self(v)
            }
        }
    };
}

newtype!(
    /// Number of a transaction group (`txg`).
    Txg(u64)
);
newtype!(
    /// Index of a top-level vdev in the root vdev (`vdev_id`).
    VdevId(u32)
);
newtype!(
    /// Byte offset within a top-level vdev's allocatable space, which begins after the front labels
    /// and the boot block.
    Offset(u64)
);
newtype!(
    /// Bytes that a block takes on a vdev, parity and padding included (`asize`).
    Asize(u64)
);
newtype!(
    /// Bytes of a block as stored, after compression (`psize`).
    Psize(u64)
);
newtype!(
    /// Bytes of a block as its object sees them, before compression (`lsize`).
    Lsize(u64)
);
newtype!(
    /// Number of an object in its object set (`dn_object`).
    ObjNum(u64)
);
newtype!(
    /// Number of a block at its level (`blkid`).
    BlkId(u64)
);
newtype!(
    /// Level in an object's block tree: 0 is data (`BP_GET_LEVEL`).
    Level(u8)
);
newtype!(
    /// Guid of a pool, vdev or dataset (`guid`).
    Guid(u64)
);
newtype!(
    /// log2 of a device's sector size (`ashift`).
    Ashift(u8)
);
