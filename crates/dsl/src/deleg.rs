//! Delegated permissions: what `zfs allow` grants.
//!
//! # Theory
//! A directory may have a ZAP of grants for its dataset and those below it. Each entry has a
//! *grantee* as its key, and leads to a ZAP of words. The words are permissions; if the grantee's
//! first letter is a capital, they are names of permission sets.
//!
//! | grantee | meaning |
//! |---|---|
//! | `ul$1000` | user 1000, on this dataset |
//! | `gd$100` | group 100, on the datasets below |
//! | `el$`, `ed$` | everyone |
//! | `s-$@name` | the contents of a set |
//! | `c-$` | granted to the creator of a dataset below, on that dataset |
//!
//! A check looks at the dataset and at all datasets above it. A set that is granted anywhere on
//! this path may be defined at the same place or further up. Snapshots have no grants of their own:
//! only a grant for the datasets *below* holds for snapshots.
//!
//! # On disk
//! `dd_deleg_zapobj` → ZAP of grantees → object of a ZAP of words, each with 0 (`dsl_deleg.c`).
//!
//! # Absent
//! The permissions of root, which may do anything, and the permission that an operation needs: the
//! daemon knows them.

use crate::{Dataset, Dir, Error, Result};
use ondisk::{Corrupt, ObjNum};
use std::collections::{BTreeMap, BTreeSet};

/// Longest name of a permission set, with its `@` and its NUL (`ZFS_PERMSET_MAXLEN`).
const SET_MAX: usize = 64;

/// Permissions that are not names of properties (`zfs_deleg_perm_tab`).
pub const PERMISSIONS: [&str; 33] = [
    "allow",
    "bookmark",
    "clone",
    "create",
    "destroy",
    "diff",
    "mount",
    "promote",
    "receive",
    "receive:append",
    "rename",
    "rollback",
    "snapshot",
    "share",
    "send",
    "send:raw",
    "userprop",
    "userquota",
    "groupquota",
    "userused",
    "groupused",
    "userobjquota",
    "groupobjquota",
    "userobjused",
    "groupobjused",
    "hold",
    "release",
    "load-key",
    "change-key",
    "projectused",
    "projectquota",
    "projectobjused",
    "projectobjquota",
];

/// Words by grantee, in their stored form.
pub type Grants = BTreeMap<String, BTreeSet<String>>;

/// The user whose permissions are checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The user's groups.
    pub groups: Vec<u32>,
}

/// Whether this can be granted (`zfs_valid_permission_name`).
///
/// That is a permission, a property that can be set, or a permission set.
pub fn is_permission(word: &str) -> bool {
    let property =
        || crate::Prop::by_name(word).is_some_and(|p| !p.desc().is_readonly() && p.name() != "mlslabel");
    PERMISSIONS.contains(&word) || is_set(word) || property()
}

/// Whether this is the name of a permission set (`permset_namecheck`).
pub fn is_set(word: &str) -> bool {
    let valid = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b':' | b' ');
    word.len() < SET_MAX
        && word.strip_prefix('@').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(valid))
}

/// Whether this is a grantee in its stored form (`zfs_validate_who`).
pub fn is_whom(whom: &str) -> bool {
    let bytes = whom.as_bytes();
    let (Some(kind), Some(reach), Some(b'$')) = (bytes.first(), bytes.get(1), bytes.get(2)) else {
        return false;
    };
    let Some(rest) = whom.get(3..) else { return false };
    let here_or_below = matches!(reach, b'l' | b'd');
    match kind {
        b'u' | b'U' | b'g' | b'G' => {
            here_or_below && rest.parse::<u32>().is_ok_and(|id| id.to_string() == rest)
        }
        b'e' | b'E' => here_or_below && rest.is_empty(),
        b'c' | b'C' => *reach == b'-' && rest.is_empty(),
        b's' | b'S' => *reach == b'-' && is_set(rest),
        _ => false,
    }
}

impl Dir {
    /// The grants of this directory (`dsl_deleg_get`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): a ZAP of the grants can't be read.
    /// * [`Error::Corrupt`]: a name is not text.
    pub fn grants(&self) -> Result<Grants> {
        let object = self.phys().deleg_zapobj;
        let mut grants = Grants::new();
        if object == 0 {
            return Ok(grants);
        }
        let mos = self.dsl().mos();
        let text = |object: ObjNum, name: Vec<u8>| {
            let shape = Corrupt::Shape { what: "delegated permissions", why: "a name is not text" };
            String::from_utf8(name).map_err(|_| Error::Corrupt { object, source: shape })
        };
        for entry in mos.entries(ObjNum(object))? {
            let entry = entry?;
            let words = ObjNum(entry.value.first().unwrap_or(0));
            let mut granted = BTreeSet::new();
            for word in mos.entries(words)? {
                granted.insert(text(words, word?.name)?);
            }
            grants.insert(text(ObjNum(object), entry.name)?, granted);
        }
        Ok(grants)
    }
}

impl Dataset {
    /// Whether `asker` has a permission on this dataset (`dsl_deleg_access_impl`).
    ///
    /// This ignores the privileges of root and the pool property `delegation`.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the grants can't be read.
    /// * [`Error::Corrupt`]: a name in the grants is not text.
    pub fn is_granted(&self, permission: &str, asker: &Credentials) -> Result<bool> {
        self.find_grant(if self.is_snapshot() { 'd' } else { 'l' }, false, permission, asker)
    }

    /// Whether `asker` will have a permission on a dataset that it creates below this one.
    ///
    /// # Errors
    /// Those of [`Dataset::is_granted`].
    pub fn is_granted_below(&self, permission: &str, asker: &Credentials) -> Result<bool> {
        self.find_grant('d', true, permission, asker)
    }

    fn find_grant(&self, reach: char, making: bool, permission: &str, asker: &Credentials) -> Result<bool> {
        let mut reach = reach;
        let mut sets = BTreeSet::new();
        for dir in self.dir().chain() {
            let grants = dir.grants()?;
            if grants_here(&grants, (reach, making), permission, asker, &mut sets) {
                return Ok(true);
            }
            reach = 'd';
        }
        Ok(false)
    }
}

/// Whether the grants of one directory suffice.
///
/// `sets` are the sets granted here and further down. A creator also has the grants for creators.
fn grants_here(
    grants: &Grants,
    (reach, making): (char, bool),
    permission: &str,
    asker: &Credentials,
    sets: &mut BTreeSet<String>,
) -> bool {
    let mut whoms = vec![format!("u{reach}${}", asker.uid), format!("e{reach}$")];
    whoms.extend(asker.groups.iter().map(|group| format!("g{reach}${group}")));
    if making {
        whoms.push("c-$".to_owned());
    }
    let words = |whom: &str| grants.get(whom).into_iter().flatten();
    if whoms.iter().any(|whom| words(whom).any(|word| word == permission)) {
        return true;
    }
    for whom in &whoms {
        // Grants of sets have the same key with a capital letter.
        let (kind, rest) = whom.split_at(1);
        sets.extend(words(&format!("{}{rest}", kind.to_ascii_uppercase())).cloned());
    }
    // Sets contain sets; each is visited once.
    let mut todo: Vec<String> = sets.iter().cloned().collect();
    while let Some(set) = todo.pop() {
        if words(&format!("s-${set}")).any(|word| word == permission) {
            return true;
        }
        for inner in words(&format!("S-${set}")) {
            if sets.insert(inner.clone()) {
                todo.push(inner.clone());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests;
