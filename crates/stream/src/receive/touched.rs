//! The objects that the records of an increment are about.
//!
//! # Theory
//! An increment changes a clone of a snapshot. All that differs between the two is in objects that
//! a record names. So what was received can be compared with the snapshot before it is on disk,
//! when its blocks have no births yet.
//!
//! A sender sends each dnode of a block of dnodes that changed, and each gap between them. Those
//! that are as before are not noted. A dnode may change back, so it says little alone: the object
//! may have another dnode.

use ondisk::ObjNum;

/// Most ranges that are kept.
const MOST: usize = 1 << 16;

/// What a stream says of some objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The first number.
    pub first: ObjNum,
    /// The last number.
    pub last: ObjNum,
    /// Only their dnodes, which may be as before.
    pub is_dnode: bool,
}

/// The objects of a stream.
#[derive(Debug)]
pub(super) struct Touched {
    /// In the order of the records. `None`: they are not known.
    all: Option<Vec<Touch>>,
}

impl Touched {
    pub(super) fn new(is_unknown: bool) -> Self {
        Self { all: (!is_unknown).then(Vec::new) }
    }

    /// Notes that data of an object may have changed.
    pub(super) fn note(&mut self, object: u64) {
        self.note_range(object, object);
    }

    /// Notes that objects may have changed.
    pub(super) fn note_range(&mut self, first: u64, last: u64) {
        self.add(Touch { first: ObjNum(first), last: ObjNum(last), is_dnode: false });
    }

    /// Notes that an object has a dnode, which takes so many slots.
    pub(super) fn note_dnode(&mut self, object: u64, slots: u8) {
        self.add(Touch { first: ObjNum(object), last: ObjNum(object), is_dnode: true });
        if slots > 1 {
            self.note_range(object.saturating_add(1), object.saturating_add(u64::from(slots) - 1));
        }
    }

    fn add(&mut self, touch: Touch) {
        let Some(all) = &mut self.all else { return };
        match all.last() {
            Some(last) if *last == touch => {}
            _ if all.len() == MOST => self.all = None,
            _ => all.push(touch),
        }
    }

    pub(super) fn all(&self) -> Option<&[Touch]> {
        self.all.as_deref()
    }
}
