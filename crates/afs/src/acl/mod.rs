//! Access lists: who may do what in a directory.
//!
//! # Theory
//! Only directories have an access list. It governs them and their files. A positive entry gives
//! rights to a user or group, and a negative entry takes rights away again.
//!
//! A list has three forms:
//!
//! | form | where | size in bytes |
//! | --- | --- | --- |
//! | raw | in dumps ([`Acl::from_raw`]) | 192 |
//! | compact | in a volume's table of lists ([`Acl::from_compact`]) | 2, and 8 for each entry |
//! | text | in FetchACL and StoreACL ([`AclText`]) | 1,024 at most, with a NUL |
//!
//! The text has names. The protection server translates between them and numbers, so decoding has
//! two steps: [`AclText::parse`] finds the names, the caller looks them up, and
//! [`AclText::resolve`] makes the list.
//!
//! # See
//! OpenAFS: `src/libacl`, `src/viced/afsfileprocs.c` (`GetRights`, `RXStore_AccessList`).

mod raw;
#[cfg(test)]
mod tests;
mod text;

pub use text::AclText;

use std::fmt;

use crate::types::PrincipalId;

/// Most entries of a list (`ACL_MAXENTRIES`).
pub const MAX_ENTRIES: usize = 20;
/// Size of the raw form in bytes (`VAclDiskSize`).
pub const RAW_SIZE: usize = 192;
/// Longest text in bytes, with its NUL (`AFSOPAQUEMAX`).
pub const MAX_TEXT: usize = 1024;
/// Longest name of a user or group in bytes (`PR_MAXNAMELEN` without its NUL).
pub const MAX_PRINCIPAL_NAME: usize = 63;

/// A set of rights (`PRSFS_READ` and so on). Bits without a meaning are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rights(pub u32);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Read files (`r`).
    pub const READ: Self = Self(1);
    /// Write files (`w`).
    pub const WRITE: Self = Self(2);
    /// Add entries (`i`).
    pub const INSERT: Self = Self(4);
    /// List the directory and read its access list (`l`).
    pub const LOOKUP: Self = Self(8);
    /// Remove entries (`d`).
    pub const DELETE: Self = Self(16);
    /// Lock files (`k`).
    pub const LOCK: Self = Self(32);
    /// Change the access list (`a`).
    pub const ADMINISTER: Self = Self(64);
    /// All seven rights.
    pub const ALL: Self = Self(127);
    /// The eight rights that only programs of users know (`A` to `H`).
    pub const USER: Self = Self(0xff00_0000);

    /// Whether all of `rights` are here.
    pub fn has(self, rights: Self) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// Whether one of `rights` is here.
    pub fn has_any(self, rights: Self) -> bool {
        self.0 & rights.0 != 0
    }

    /// These rights and the others.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These rights without the others.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl fmt::Display for Rights {
    /// The letters of the rights in the order of `fs listacl`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [(char, Rights); 7] = [
            ('r', Rights::READ),
            ('l', Rights::LOOKUP),
            ('i', Rights::INSERT),
            ('d', Rights::DELETE),
            ('w', Rights::WRITE),
            ('k', Rights::LOCK),
            ('a', Rights::ADMINISTER),
        ];
        let user = ('A'..='H').zip(24..).map(|(letter, bit)| (letter, Self(1 << bit)));
        for (letter, right) in LETTERS.into_iter().chain(user) {
            if self.has(right) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({:#x} {self})", self.0)
    }
}

/// An entry of an access list (`acl_accessEntry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclEntry {
    /// The user or group.
    pub who: PrincipalId,
    /// The rights that the entry gives or takes.
    pub rights: Rights,
}

/// An access list (`acl_accessList`) of [`MAX_ENTRIES`] entries at most.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acl {
    positive: Vec<AclEntry>,
    negative: Vec<AclEntry>,
}

impl Acl {
    /// A list of these entries, in the order of OpenAFS: ascending by number. `None`: there are too
    /// many.
    pub fn new(mut positive: Vec<AclEntry>, mut negative: Vec<AclEntry>) -> Option<Self> {
        positive.sort_by_key(|entry| entry.who);
        negative.sort_by_key(|entry| entry.who);
        (positive.len() + negative.len() <= MAX_ENTRIES).then_some(Self { positive, negative })
    }

    /// The list of a new volume's root directory: all rights for administrators alone.
    pub fn of_new_volume() -> Self {
        let entry = AclEntry { who: PrincipalId::ADMINISTRATORS, rights: Rights::ALL };
        Self { positive: vec![entry], negative: Vec::new() }
    }

    /// The entries that give rights.
    pub fn positive(&self) -> &[AclEntry] {
        &self.positive
    }

    /// The entries that take rights away.
    pub fn negative(&self) -> &[AclEntry] {
        &self.negative
    }

    /// The numbers of all entries, first the positive ones.
    ///
    /// [`Self::text`] takes their names in this order.
    pub fn principals(&self) -> Vec<PrincipalId> {
        self.positive.iter().chain(&self.negative).map(|entry| entry.who).collect()
    }

    /// The rights of someone who is all of these principals (`acl_CheckRights`).
    ///
    /// `cps` is the user with all groups, as the protection server lists them. Its order does not
    /// matter.
    pub fn rights(&self, cps: &[PrincipalId]) -> Rights {
        let sum = |entries: &[AclEntry]| {
            let mine = entries.iter().filter(|entry| cps.contains(&entry.who));
            mine.fold(Rights::NONE, |sum, entry| sum.with(entry.rights))
        };
        sum(&self.positive).without(sum(&self.negative))
    }

    /// The rights of a user on a host (`GetRights`).
    ///
    /// The groups of the host add rights of their own: negative entries of the user don't take them
    /// away.
    pub fn rights_on_host(&self, user: &[PrincipalId], host: &[PrincipalId]) -> Rights {
        self.rights(user).with(self.rights(host))
    }
}
