//! The names of volumes.
//!
//! # See
//! OpenAFS: `src/vlserver/vlprocs.c` (`InvalidVolname`), `src/volser/vos.c` (`VolNameOK`).

use std::fmt;

use crate::types::{NAME_SIZE, VolumeType};

/// Longest name of a volume in bytes (`VNAMESIZE` without its NUL).
pub const MAX_NAME: usize = NAME_SIZE - 1;
/// Longest name of a read-write volume in bytes: the others have a suffix.
pub const MAX_BASE_NAME: usize = MAX_NAME - READ_ONLY.len();

const READ_ONLY: &str = ".readonly";
const BACKUP: &str = ".backup";

/// The name of a volume: 1 to 31 letters, digits, dots, hyphens and underscores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

impl VolumeName {
    /// The name of these bytes, if they are one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
        let name = std::str::from_utf8(bytes).ok()?;
        let is_whole = (1..=MAX_NAME).contains(&bytes.len()) && bytes.iter().all(is_allowed);
        is_whole.then(|| Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without the suffix of a read-only or backup volume, and the type that the suffix
    /// means.
    pub fn split(&self) -> (&str, VolumeType) {
        if let Some(base) = self.0.strip_suffix(READ_ONLY) {
            (base, VolumeType::ReadOnly)
        } else if let Some(base) = self.0.strip_suffix(BACKUP) {
            (base, VolumeType::Backup)
        } else {
            (&self.0, VolumeType::ReadWrite)
        }
    }

    /// Whether `vos create` takes the name: 22 bytes at most, no suffix, and not a number.
    pub fn is_base_name(&self) -> bool {
        self.0.len() <= MAX_BASE_NAME
            && self.split().1 == VolumeType::ReadWrite
            && !self.0.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// The name of the volume of this type in the same group, if it is short enough.
    pub fn with_type(&self, kind: VolumeType) -> Option<Self> {
        let suffix = match kind {
            VolumeType::ReadWrite => "",
            VolumeType::ReadOnly => READ_ONLY,
            VolumeType::Backup => BACKUP,
        };
        Self::new([self.split().0, suffix].concat().as_bytes())
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
