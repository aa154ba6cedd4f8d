//! Faults that are asked for (`zinject`).

use serde::{Deserialize, Serialize};

/// What to do about them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectRequest {
    /// Say which there are.
    List,
    /// Take back one, or all.
    Cancel {
        /// Its number.
        id: Option<u64>,
    },
    /// Let a device fail, or be slow.
    Device {
        /// The pool.
        pool: String,
        /// Its path, its guid, or the name that it is shown with.
        device: String,
        /// The part of its labels that fails rather than its space: `pad1`, `pad2`, `nvlist`, `uber`.
        label: Option<String>,
        /// What is asked of it: `read`, `write`, `flush`, `free`, `probe`, or all but the last; of labels all is all.
        on: Option<String>,
        /// What goes wrong.
        wrong: DeviceFault,
        /// How often, of [`u32::MAX`].
        often: u32,
    },
    /// Let blocks of a file be found wrong.
    Data {
        /// The file system.
        dataset: String,
        /// The object.
        object: u64,
        /// The block that has its dnode, rather than its own.
        dnode: bool,
        /// Level of its tree.
        level: u8,
        /// First byte, and the one behind the last; all of it if absent.
        range: Option<(u64, u64)>,
        /// Copies, a bit for each; 0 is all.
        copies: u32,
        /// How they are wrong.
        how: DataFault,
        /// How often, of [`u32::MAX`].
        often: u32,
    },
    /// Let a block be found wrong.
    Block {
        /// The pool.
        pool: String,
        /// The object set.
        objset: u64,
        /// The object.
        object: u64,
        /// Level of its tree.
        level: u8,
        /// Block of that level.
        blkid: u64,
        /// How it is wrong.
        how: DataFault,
    },
    /// Let blocks of the pool's own object set be found wrong.
    Mos {
        /// The pool.
        pool: String,
        /// Those of objects of this type, by its number; 0 is all (`DMU_OT_NONE`).
        kind: u8,
        /// As of a file.
        copies: u32,
        /// As of a file.
        how: DataFault,
        /// How often, of [`u32::MAX`].
        often: u32,
    },
    /// Let three of five writes of blocks be lost, whatever device they go to, and end the daemon when the first group after that is about to be synced.
    LoseWrites {
        /// The pool.
        pool: String,
        /// How long.
        spell: Spell,
    },
    /// Have a device taken for failing, as who watches devices would: no fault that lasts.
    Verdict {
        /// The pool.
        pool: String,
        /// The device's path or guid.
        device: String,
        /// It is not used any more; otherwise it is used, and degraded.
        faulted: bool,
    },
    /// Let a pool's import or export take longer.
    Pass {
        /// The pool.
        pool: String,
        /// Its import; otherwise its export.
        import: bool,
        /// Seconds.
        seconds: u32,
    },
    /// Forget all blocks in memory that are on disk.
    Forget {
        /// The pool.
        pool: String,
        /// Write the others first.
        sync: bool,
    },
}

/// How blocks are wrong when they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataFault {
    /// They can't be read.
    Io,
    /// Their checksums do not match.
    Checksum,
    /// They can't be decrypted.
    Decrypt,
    /// They can't be decompressed.
    Decompress,
}

/// How long writes are lost, from the next group on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spell {
    /// So many seconds.
    Seconds(u32),
    /// So many groups after the first.
    Groups(u32),
}

/// What goes wrong on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceFault {
    /// An error of the operating system, by its number.
    Error(i32),
    /// Bytes that are read are changed.
    Corrupt,
    /// Nothing is done, and nobody told.
    Noop,
    /// Each operation takes so many milliseconds, and so many are under way at a time.
    Delay(u64, u32),
}

/// A fault that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its number.
    pub id: u64,
    /// The pool.
    pub pool: String,
    /// What it is.
    pub what: Ailment,
    /// How often it struck.
    pub hits: u64,
}

/// What a fault is.
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
        /// How often, of [`u32::MAX`].
        often: u32,
    },
    /// Blocks are found wrong.
    Data {
        /// The object set; 0 is the pool's own.
        objset: u64,
        /// The object; 0 for all of the pool's own object set.
        object: u64,
        /// The type of objects in the pool's own object set, 0 for any.
        kind: u8,
        /// The level.
        level: u8,
        /// Copies, a bit for each; 0 is all.
        copies: u32,
        /// First block, and the last; all if absent.
        range: Option<(u64, u64)>,
    },
    /// The pool's import or export takes longer.
    Pass {
        /// Its import; otherwise its export.
        import: bool,
        /// Seconds.
        seconds: u32,
    },
    /// Writes are lost for so long.
    LostWrites(Spell),
}
