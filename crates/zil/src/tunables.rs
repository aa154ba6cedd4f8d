//! Numbers that can be set while logs are written, by OpenZFS's names. The next commit goes by what
//! was set.

use observe::{Tunable, Unit};

/// Held by tests that set one, or that go by what it is by default.
#[cfg(test)]
pub(crate) static STEERING: observe::lock::Mutex<()> = observe::lock::Mutex::new(());

/// What of the time that a write takes at its best the next one waits for others to join it, in
/// percent (`zfs_commit_timeout_pct`).
pub static COMMIT_TIMEOUT_PCT: Tunable = Tunable::new(
    "zfs_commit_timeout_pct",
    10,
    0..=10_000,
    Unit::Percent,
    "share of a log write's time that the next log block waits for more records",
);
/// Least data whose blocks go to their places at once, and are named in the log, where it has no
/// devices of its own (`zfs_immediate_write_sz`).
pub static IMMEDIATE_WRITE_SZ: Tunable = Tunable::new(
    "zfs_immediate_write_sz",
    32768,
    0..=u64::MAX,
    Unit::Bytes,
    "smallest synchronous write that is not copied into the log, without a log device",
);
/// Largest log block, but for a record that is larger and can't be split; at most 128 KiB
/// (`zil_maxblocksize`).
pub static MAXBLOCKSIZE: Tunable =
    Tunable::new("zil_maxblocksize", 128 << 10, 4096..=128 << 10, Unit::Bytes, "largest log block");
/// Most bytes of a write that are copied into its record at once when it is about to be committed
/// (`zil_maxcopied`).
pub static MAXCOPIED: Tunable = Tunable::new(
    "zil_maxcopied",
    7680,
    0..=64 << 10,
    Unit::Bytes,
    "largest synchronous write that is copied into its log record at once",
);

/// All tunables of this crate.
pub static ALL: &[&Tunable] = &[&COMMIT_TIMEOUT_PCT, &IMMEDIATE_WRITE_SZ, &MAXBLOCKSIZE, &MAXCOPIED];
