//! What a stream leaves out because it can't be read.

use ondisk::{Level, ObjNum};

use super::walk::Change;

/// A part of a snapshot that can't be read, and why.
#[derive(Debug, Clone)]
pub struct Lost {
    /// The part.
    pub part: LostPart,
    /// Why it can't be read.
    pub why: dmu::Error,
}

/// A part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostPart {
    /// The objects of these numbers, as far as they exist.
    Objects {
        /// The first number.
        first: u64,
        /// How many numbers.
        count: u64,
    },
    /// A part of an object that is of no use without it, such as a directory.
    Object {
        /// The object.
        object: ObjNum,
    },
    /// Bytes of an object.
    Bytes {
        /// The object.
        object: ObjNum,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// All of them have changed since the origin.
        changed: bool,
    },
    /// The spill block of an object: extended attributes, an ACL or the target of a link.
    Spill {
        /// The object.
        object: ObjNum,
    },
}

impl Lost {
    /// The loss of a change whose block can't be read.
    pub(super) fn block_of(change: &Change, source: zio::Error) -> Self {
        let part = match change {
            Change::Data { object, kind, .. } if kind.is_metadata() => LostPart::Object { object: *object },
            Change::Data { object, blkid, size, .. } => {
                let (object, length) = (*object, u64::from(*size));
                LostPart::Bytes { object, offset: blkid.0.saturating_mul(length), length, changed: true }
            }
            Change::Spill { object, .. } => LostPart::Spill { object: *object },
            _ => unreachable!("only these have blocks"),
        };
        Self { part, why: source.into() }
    }

    /// What the stream has instead. Lost bytes are a hole, and an object that is of no use does not
    /// exist. All else is absent, and in an increment stays as it is at the receiver.
    ///
    /// Names of objects that do not exist stay in their directories. A receiver may give the number
    /// of such an object to a new file. So what was received should stay read-only.
    pub(super) fn instead(&self, increment: bool) -> Option<Change> {
        match self.part {
            LostPart::Bytes { object, offset, length, changed } => {
                let is_known = changed || !increment;
                (is_known && length > 0).then_some(Change::Hole { object, offset, length })
            }
            LostPart::Object { object } => Some(Change::NoObjects { first: object.0, count: 1 }),
            LostPart::Objects { .. } | LostPart::Spill { .. } => None,
        }
    }
}

/// How much of an object is below a pointer of a level, in bytes, up to the object's end.
pub(super) fn bytes_below(dnode: &ondisk::dnode::DnodePhys, level: Level, blkid: u64) -> (u64, u64) {
    let size = u64::from(dnode.datablksz);
    let span = super::walk::span(dnode, level).saturating_mul(size);
    let end = dnode.maxblkid.0.saturating_add(1).saturating_mul(size);
    let offset = blkid.saturating_mul(span).min(end);
    (offset, span.min(end - offset))
}
