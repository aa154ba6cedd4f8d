//! How a read is made: its flags, and the request that goes to the devices.
//!
//! # Theory
//! [`ReadOptions`] travel with each read, from the handle of an object down to the leaf of a vdev.
//! There is no default: a read without options does not compile. A thread that reads for another
//! one gets its options.
//!
//! Two flags decide which reads wait for a suspended pool:
//!
//! | flags | devices are missing | the block is damaged |
//! |---|---|---|
//! | neither | fails | fails |
//! | [`IoFlags::MUST_SUCCEED`] and [`IoFlags::CAN_FAIL`] | waits | fails |
//! | [`IoFlags::MUST_SUCCEED`] | waits | waits |
//!
//! # See
//! OpenZFS `zio_flag_t`, `zio_priority_t`.

use vdev::{Priority, Request};

/// What a reader knows about a block, and whether it can do without (`zio_flag_t`).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct IoFlags(u8);

impl IoFlags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// No caller needs the block yet. If it can't be read, that is no damage: its place may hold
    /// another block by now (`ZIO_FLAG_SPECULATIVE`).
    pub const SPECULATIVE: Self = Self(1);
    /// The pointer may be out of date. If the block can't be read, that is no damage yet: the
    /// reader tries again with a newer pointer, and without this flag. Wrong copies of a readable
    /// block are recorded as usual.
    pub const MAY_BE_STALE: Self = Self(2);
    /// The reader calls [`Zio::look`](crate::Zio::look) on the block next. Checksum errors are
    /// counted and repaired then, and not now.
    pub const SCRUBBED_NEXT: Self = Self(4);
    /// The reader is a sync, which can't be repeated: it waits for a suspended pool
    /// (`ZIO_FLAG_MUSTSUCCEED`).
    pub const MUST_SUCCEED: Self = Self(8);
    /// With [`IoFlags::MUST_SUCCEED`]: the reader can do without a damaged block, and waits only
    /// for missing devices. No effect alone (`ZIO_FLAG_CANFAIL`).
    pub const CAN_FAIL: Self = Self(16);
    /// The block may have been freed, and its places may hold other blocks, each copy another one.
    /// So wrong bytes are neither damage nor an error of a device, even if some copy is right. The
    /// read repairs nothing; if some copy is right, the block is recorded for a repair, which looks
    /// it up first. Blocks without a checksum are refused. Read errors that a device reports count
    /// for it as usual.
    pub const MAY_BE_FREED: Self = Self(32);

    /// Whether all of `flags` are set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

impl std::fmt::Debug for IoFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Self::SPECULATIVE, "speculative"),
            (Self::MAY_BE_STALE, "may be stale"),
            (Self::SCRUBBED_NEXT, "scrubbed next"),
            (Self::MUST_SUCCEED, "must succeed"),
            (Self::CAN_FAIL, "can fail"),
            (Self::MAY_BE_FREED, "may be freed"),
        ];
        let set = names.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| name);
        f.debug_set().entries(set).finish()
    }
}

/// How a read is made; see the module. A clone allocates nothing.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// What the reader knows about the block, and whether it can do without.
    pub flags: IoFlags,
    /// The request to the devices.
    pub request: Request,
}

impl ReadOptions {
    /// A read of the background or of another class, without flags.
    pub const fn new(request: Request) -> Self {
        Self { flags: IoFlags::NONE, request }
    }

    /// A read that a caller waits for. It fails when devices fail.
    pub const fn demand() -> Self {
        Self::new(Request::new(Priority::SyncRead))
    }

    /// A read of a block that a caller may need later.
    pub const fn prefetch() -> Self {
        Self { flags: IoFlags::SPECULATIVE, request: Request::new(Priority::Prefetch) }
    }

    /// A read by the sync of a transaction group, which waits for a suspended pool.
    pub const fn sync() -> Self {
        Self { flags: IoFlags::MUST_SUCCEED, request: Request::new(Priority::SyncRead) }
    }

    /// The same options with these flags too.
    #[must_use]
    pub fn with(&self, flags: IoFlags) -> Self {
        Self { flags: self.flags.with(flags), request: self.request.clone() }
    }

    /// The same options without these flags.
    #[must_use]
    pub fn without(&self, flags: IoFlags) -> Self {
        Self { flags: IoFlags(self.flags.0 & !flags.0), request: self.request.clone() }
    }

    /// Whether all of `flags` are set.
    pub fn has(&self, flags: IoFlags) -> bool {
        self.flags.has(flags)
    }
}
