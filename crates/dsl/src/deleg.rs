//! Delegated permissions: what `zfs allow` grants.
//!
//! # Theory
//! A directory may have a ZAP that says who may do what with its dataset and those below it. An entry of it is a *whom*, such as `ul$1000` for
//! the user 1000 here or `gd$100` for the group 100 below, and leads to a ZAP of words: permissions, or, where the first letter of the whom is a capital one,
//! names of permission sets. `s-$@name` says what is in a set, `c-$` what whoever makes a dataset below gets there.
//!
//! Whether somebody may is asked of the dataset and of all above it. A set that he is given anywhere on this way may be defined at the same place or
//! further up. Snapshots have nothing of their own: only what holds *below* a directory holds for its snapshots.
//!
//! # On disk
//! `dd_deleg_zapobj` → ZAP of whom → object of a ZAP of words, each with 0 (`dsl_deleg.c`).
//!
//! # Absent
//! Root, who may anything, and what each operation needs: the daemon's.

use crate::{Dataset, Dir, Error, Result};
use ondisk::{Corrupt, ObjNum};
use std::collections::{BTreeMap, BTreeSet};

/// Longest name of a permission set, its `@` and the final NUL counted (`ZFS_PERMSET_MAXLEN`).
const SET_MAX: usize = 64;

/// Words that can be granted beside names of properties (`zfs_deleg_perm_tab`).
pub const PERMISSIONS: [&str; 32] = [
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

/// Words by whom, as they are stored.
pub type Grants = BTreeMap<String, BTreeSet<String>>;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The user's groups.
    pub groups: Vec<u32>,
}

/// Whether this can be granted: a permission, a property that can be set, or a permission set (`zfs_valid_permission_name`).
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

/// Whether this is a whom as it is stored (`zfs_validate_who`).
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
    /// What is granted at this directory (`dsl_deleg_get`).
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for names that are no text.
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
    /// Whether `asker` may do what `permission` names (`dsl_deleg_access_impl`). Root and the pool's `delegation` are not looked at.
    ///
    /// # Errors
    /// As reading fails.
    pub fn is_granted(&self, permission: &str, asker: &Asker) -> Result<bool> {
        self.find_grant(if self.is_snapshot() { 'd' } else { 'l' }, false, permission, asker)
    }

    /// The same of a dataset that `asker` makes below this one.
    ///
    /// # Errors
    /// As reading fails.
    pub fn is_granted_below(&self, permission: &str, asker: &Asker) -> Result<bool> {
        self.find_grant('d', true, permission, asker)
    }

    fn find_grant(&self, reach: char, making: bool, permission: &str, asker: &Asker) -> Result<bool> {
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

/// Whether what is granted at one directory, with the sets that are given there and were given below it, suffices. Who is making a dataset has what its
/// maker gets, too.
fn grants_here(
    grants: &Grants,
    (reach, making): (char, bool),
    permission: &str,
    asker: &Asker,
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
        // Sets that somebody is given are under the same name with a capital letter.
        let (kind, rest) = whom.split_at(1);
        sets.extend(words(&format!("{}{rest}", kind.to_ascii_uppercase())).cloned());
    }
    // Sets within sets; each is looked at once.
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
