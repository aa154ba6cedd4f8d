//! The differences between two states of a file system (`zfs diff`).

use serde::{Deserialize, Serialize};

use super::Error;

/// A request to compare two states of a file system (`zfs_show_diffs`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffRequest {
    /// The earlier one: a snapshot.
    pub from: String,
    /// The later one: a snapshot, or a file system as it is now.
    pub to: String,
    /// The object to continue from, as the last part said; 0 at the start.
    pub first: u64,
}

/// A part of the differences, in the order of object numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffPart {
    /// What changed.
    pub changes: Vec<FileChange>,
    /// Objects that can't be described, each with the snapshot in which that is so.
    pub failures: Vec<(u64, Error)>,
    /// The request for the next part; absent when this was the last part.
    pub next: Option<DiffRequest>,
}

/// A change of a file, directory or other named object.
///
/// Paths start at the file system's root, with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is new.
    Added(FileAt),
    /// It is gone.
    Removed(FileAt),
    /// Its contents or attributes changed.
    Modified(FileAt),
    /// It has more or fewer names.
    Linked {
        /// The file.
        file: FileAt,
        /// The difference of the numbers of names.
        by: i32,
    },
    /// It has another name.
    Renamed {
        /// Its name before.
        from: Text,
        /// The file, as it is now.
        to: FileAt,
    },
}

/// A file in one of the two states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAt {
    /// Its path.
    pub path: Text,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// The last change (`ctime`): seconds since the epoch, and nanoseconds.
    pub ctime: (i64, u32),
}

/// Bytes that are mostly text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// UTF-8.
    Text(String),
    /// Bytes that are not UTF-8.
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
