//! Numbers that must not be confused with one another.

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
    /// A transaction group's number.
    Txg(u64)
);
newtype!(
    /// Index of a top-level vdev in the root (`vdev_id`).
    VdevId(u32)
);
newtype!(
    /// Byte offset within a top-level vdev's allocatable space (after the front labels and boot block).
    Offset(u64)
);
newtype!(
    /// Bytes as allocated on a vdev, parity and padding included (`asize`).
    Asize(u64)
);
newtype!(
    /// Bytes as stored, compressed (`psize`).
    Psize(u64)
);
newtype!(
    /// Bytes as the object sees them (`lsize`).
    Lsize(u64)
);
newtype!(
    /// Number of an object in its object set.
    ObjNum(u64)
);
newtype!(
    /// Number of a block at its level.
    BlkId(u64)
);
newtype!(
    /// Level in an object's block tree: 0 is data.
    Level(u8)
);
newtype!(
    /// Guid of a pool, vdev or dataset.
    Guid(u64)
);
newtype!(
    /// log2 of a device's sector size.
    Ashift(u8)
);
