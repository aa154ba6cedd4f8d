//! What changed between two states of a file system.

use serde::{Deserialize, Serialize};

use super::Error;

/// Two states of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffRequest {
    /// The earlier one: a snapshot.
    pub from: String,
    /// The later one: a snapshot, or a file system as it is now.
    pub to: String,
    /// The object from which to go on, as the last part said; 0 at the begin.
    pub first: u64,
}

/// A part of what changed, in the order of object numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffPart {
    /// What changed.
    pub changes: Vec<FileChange>,
    /// Objects that can't be described, each with the snapshot in which that is so.
    pub failures: Vec<(u64, Error)>,
    /// Where to go on; absent when this was the last part.
    pub next: Option<DiffRequest>,
}

/// A change of a file, directory or whatever has a name. Paths are from the file system's root, with a slash at their begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is new.
    Added(FileAt),
    /// It is gone.
    Removed(FileAt),
    /// It is another than it was.
    Modified(FileAt),
    /// It has more or fewer names.
    Linked {
        /// It.
        file: FileAt,
        /// By how many.
        by: i32,
    },
    /// It has another name.
    Renamed {
        /// Its name before.
        from: Text,
        /// It, as it is now.
        to: FileAt,
    },
}

/// A file in one of two states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAt {
    /// Its path.
    pub path: Text,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// When it was changed last: seconds since the epoch, and nanoseconds.
    pub ctime: (i64, u32),
}

/// Bytes that are mostly text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// UTF-8.
    Text(String),
    /// Something else.
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|e| Self::Bytes(e.into_bytes()), Self::Text)
    }
}

impl Text {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}
