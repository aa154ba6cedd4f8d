//! Injected faults (`zinject`).

use serde::{Deserialize, Serialize};

/// A request about injected faults (`zinject_record_t`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectRequest {
    /// List them.
    List,
    /// Remove one, or all.
    Cancel {
        /// Its number.
        id: Option<u64>,
    },
    /// Make a device fail or slow down.
    Device {
        /// The pool.
        pool: String,
        /// Its path, its guid, or its displayed name.
        device: String,
        /// The part of its labels that fails, rather than its space: `pad1`, `pad2`, `nvlist`,
        /// `uber`.
        label: Option<String>,
        /// The operations: `read`, `write`, `flush`, `free`, `probe`, or all but the last. Of
        /// labels, all of them.
        on: Option<String>,
        /// What goes wrong.
        wrong: DeviceFault,
        /// The probability, as a fraction of [`u32::MAX`].
        often: u32,
    },
    /// Make reads of a file's blocks fail.
    Data {
        /// The file system.
        dataset: String,
        /// The object.
        object: u64,
        /// Whether the block that holds its dnode fails, rather than its own blocks.
        dnode: bool,
        /// The level of the blocks.
        level: u8,
        /// The first byte, and the one behind the last; the whole file if absent.
        range: Option<(u64, u64)>,
        /// The copies, a bit for each; 0 for all.
        copies: u32,
        /// How they fail.
        how: DataFault,
        /// The probability, as a fraction of [`u32::MAX`].
        often: u32,
    },
    /// Make reads of one block fail.
    Block {
        /// The pool.
        pool: String,
        /// The object set.
        objset: u64,
        /// The object.
        object: u64,
        /// The level of the block.
        level: u8,
        /// The number of the block at that level.
        blkid: u64,
        /// How it fails.
        how: DataFault,
    },
    /// Make reads of blocks of the pool's meta object set fail.
    Mos {
        /// The pool.
        pool: String,
        /// The number of the object type; 0 for all (`DMU_OT_NONE`).
        kind: u8,
        /// The copies, a bit for each; 0 for all.
        copies: u32,
        /// How they fail.
        how: DataFault,
        /// The probability, as a fraction of [`u32::MAX`].
        often: u32,
    },
    /// Drop three of five block writes on all devices. The daemon ends before the sync of the first
    /// transaction group after that.
    LoseWrites {
        /// The pool.
        pool: String,
        /// For how long.
        spell: Spell,
    },
    /// Mark a device as failed, as the monitoring of devices does. This is a single action, not a
    /// lasting fault.
    Verdict {
        /// The pool.
        pool: String,
        /// The device's path or guid.
        device: String,
        /// Mark it faulted, so that it is no longer used; otherwise degraded.
        faulted: bool,
    },
    /// Delay a pool's import or export.
    Pass {
        /// The pool.
        pool: String,
        /// Delay its import; otherwise its export.
        import: bool,
        /// The delay in seconds.
        seconds: u32,
    },
    /// Drop cached blocks that are on disk.
    Forget {
        /// The pool.
        pool: String,
        /// Write dirty blocks first.
        sync: bool,
    },
}

/// How reads of blocks fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataFault {
    /// They can't be read.
    Io,
    /// Their checksums don't match.
    Checksum,
    /// They can't be decrypted.
    Decrypt,
    /// They can't be decompressed.
    Decompress,
}

/// For how long writes are lost, starting with the next transaction group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spell {
    /// For this many seconds.
    Seconds(u32),
    /// For this many groups after the first.
    Groups(u32),
}

/// How a device fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceFault {
    /// An error of the operating system, by its number.
    Error(i32),
    /// The bytes that are read are altered.
    Corrupt,
    /// Nothing is done, and success is reported.
    Noop,
    /// Each operation takes this many milliseconds, and at most so many run at a time
    /// (`ZINJECT_DELAY_IO`).
    Delay(u64, u32),
}

/// A fault that is injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its number.
    pub id: u64,
    /// The pool.
    pub pool: String,
    /// What it is.
    pub what: Ailment,
    /// How often it has struck.
    pub hits: u64,
}

/// The kind of an injected fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ailment {
    /// A device fails, or a part of its labels.
    Device {
        /// Its guid.
        guid: u64,
        /// As [`InjectRequest::Device`].
        label: Option<String>,
        /// As [`InjectRequest::Device`]; `all` for all.
        on: String,
        /// What goes wrong.
        wrong: DeviceFault,
        /// The probability, as a fraction of [`u32::MAX`].
        often: u32,
    },
    /// Reads of blocks fail.
    Data {
        /// The object set; 0 is the pool's meta object set.
        objset: u64,
        /// The object; 0 for all of the meta object set.
        object: u64,
        /// The type of objects in the meta object set; 0 for any.
        kind: u8,
        /// The level.
        level: u8,
        /// The copies, a bit for each; 0 for all.
        copies: u32,
        /// The first and the last block; all if absent.
        range: Option<(u64, u64)>,
    },
    /// The pool's import or export is delayed.
    Pass {
        /// Its import; otherwise its export.
        import: bool,
        /// Seconds.
        seconds: u32,
    },
    /// Writes are lost.
    LostWrites(Spell),
}
