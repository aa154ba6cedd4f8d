//! Why bytes can't be decoded or encoded.

use std::fmt;

use crate::types::Vnode;

/// A part of the input that errors name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The first section of a dump.
    DumpHeader,
    /// The section of a dump that describes the volume.
    VolumeHeader,
    /// The section of a dump that describes one vnode.
    Vnode(Vnode),
    /// An access list.
    Acl,
    /// The text of an access list.
    AclText,
    /// A directory, alone.
    Directory,
    /// A line of a configuration file; the first one is 1.
    Line(usize),
    /// The last section of a dump.
    DumpEnd,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DumpHeader => f.write_str("the dump header"),
            Self::VolumeHeader => f.write_str("the volume header"),
            Self::Vnode(number) => write!(f, "vnode {}", number.0),
            Self::Acl => f.write_str("the access list"),
            Self::AclText => f.write_str("the text of the access list"),
            Self::Directory => f.write_str("the directory"),
            Self::Line(number) => write!(f, "line {number}"),
            Self::DumpEnd => f.write_str("the end of the dump"),
        }
    }
}

/// Where in the input an error is: the record, and the byte counted from the input's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The record.
    pub record: Record,
    /// The offset in bytes.
    pub at: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.record, self.at)
    }
}

/// Why bytes can't be decoded, or values can't be encoded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system of a volume can't be read or changed.
    #[error("the file system of the volume")]
    FileSystem {
        /// The cause.
        source: Box<zpl::Error>,
    },
    /// The input can't be read.
    #[error("{place}: the input can't be read")]
    Read {
        /// Where the reader is.
        place: Place,
        /// The system's error.
        source: std::io::Error,
    },
    /// The output can't be written.
    #[error("{place}: the output can't be written")]
    Write {
        /// Where the writer is.
        place: Place,
        /// The system's error.
        source: std::io::Error,
    },
    /// The input ends inside a field.
    #[error("{place}: the input ends inside {field}")]
    Truncated {
        /// Where the input ends.
        place: Place,
        /// The field.
        field: &'static str,
    },
    /// A magic number is another one than the format has.
    #[error("{place}: {found:#x} is not the magic number")]
    Magic {
        /// Where the number is.
        place: Place,
        /// The number found.
        found: u64,
    },
    /// A field has a value that the format does not allow.
    #[error("{place}: {field} is {value}, which is out of range")]
    Range {
        /// Where the field is.
        place: Place,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A string or list is longer than the format allows.
    #[error("{place}: {field} is longer than {max}")]
    TooLong {
        /// Where the field is.
        place: Place,
        /// The field.
        field: &'static str,
        /// The largest length.
        max: usize,
    },
    /// A dump has a tag that can't be skipped.
    #[error("{place}: unknown tag {tag:#04x} can't be skipped")]
    Tag {
        /// Where the tag is.
        place: Place,
        /// The tag.
        tag: u8,
    },
    /// The parts contradict each other.
    #[error("{place}: {why}")]
    Shape {
        /// Where the contradiction is.
        place: Place,
        /// The contradiction.
        why: &'static str,
    },
    /// A service has no call with this number.
    #[error("the service has no call {opcode}")]
    Opcode {
        /// The number.
        opcode: u32,
    },
    /// The arguments or the reply of a call can't be decoded.
    #[error("call {opcode} is damaged")]
    Arguments {
        /// The number of the call.
        opcode: u32,
        /// What is wrong.
        source: rx::Error,
    },
}

impl Error {
    /// The same error in a part that begins at `outer`.
    pub(crate) fn inside(mut self, outer: Place) -> Self {
        match &mut self {
            Self::Read { place, .. }
            | Self::Write { place, .. }
            | Self::Truncated { place, .. }
            | Self::Magic { place, .. }
            | Self::Range { place, .. }
            | Self::TooLong { place, .. }
            | Self::Tag { place, .. }
            | Self::Shape { place, .. } => {
                *place = Place { record: outer.record, at: outer.at.saturating_add(place.at) };
            }
            Self::FileSystem { .. } | Self::Opcode { .. } | Self::Arguments { .. } => {}
        }
        self
    }
}
