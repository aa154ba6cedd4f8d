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
        /// What is asked of it: `read`, `write`, `flush`, `free`, `probe`, or all but the last.
        on: Option<String>,
        /// What goes wrong.
        wrong: DeviceFault,
        /// How often, in a hundred thousand.
        often: u32,
    },
    /// Let blocks of a file be found wrong.
    Data {
        /// The file system.
        dataset: String,
        /// The object.
        object: u64,
        /// Level of its tree.
        level: u8,
        /// First byte, and the one behind the last; all of it if absent.
        range: Option<(u64, u64)>,
        /// Copies, a bit for each; 0 is all.
        copies: u32,
        /// Their checksum does not match; otherwise they can't be read.
        checksum: bool,
        /// How often, in a hundred thousand.
        often: u32,
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
    /// Forget all blocks in memory.
    Forget {
        /// The pool.
        pool: String,
    },
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Injected {
    /// Its number.
    pub id: u64,
    /// The pool.
    pub pool: String,
    /// What it befalls, and how.
    pub what: String,
    /// How often it struck.
    pub hits: u64,
}
