//! Valid names of pools and datasets (`zfs_namecheck.c`).

/// Bytes of the longest name of a dataset, with a zero (`ZFS_MAX_DATASET_NAME_LEN`).
pub const MAX_DATASET_NAME: usize = 256;

/// What is wrong with a pool's name, if anything (`zpool_name_valid`).
///
/// With `making`, more reserved words are refused, as for a pool that is created or renamed.
pub fn pool_name_fault(name: &str, making: bool) -> Option<String> {
    if name.len() >= MAX_DATASET_NAME - 2 - 2 * "$ORIGIN".len() {
        return Some("name is too long".into());
    }
    if let Some(c) = name.chars().find(|&c| !valid(c)) {
        return Some(format!("invalid character '{c}' in pool name"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("name must begin with a letter".into());
    }
    let reserved = matches!(name, "mirror" | "raidz" | "draid");
    let kin = name == "log" || ["mirror", "raidz", "draid", "spare"].iter().any(|p| name.starts_with(p));
    (reserved || (making && kin)).then(|| "name is reserved".into())
}

/// What is wrong with a dataset's name, if anything (`zfs_validate_name`).
///
/// `snapshots` and `bookmarks` say whether these may be named.
pub fn dataset_name_fault(name: &str, snapshots: bool, bookmarks: bool) -> Option<String> {
    if !snapshots && name.contains('@') {
        return Some("snapshot delimiter '@' is not expected here".into());
    }
    if !bookmarks && name.contains('#') {
        return Some("bookmark delimiter '#' is not expected here".into());
    }
    entity_fault(name)
}

/// What is wrong with the name of a dataset that is to be created, if anything.
///
/// `%` is reserved for names that the engine assigns itself.
pub fn new_name_fault(name: &str, snapshots: bool) -> Option<String> {
    dataset_name_fault(name, snapshots, false)
        .or_else(|| name.contains('%').then(|| "invalid character % in name".to_owned()))
}

fn entity_fault(name: &str) -> Option<String> {
    if name.len() >= MAX_DATASET_NAME {
        return Some("name is too long".into());
    }
    if name.starts_with('/') {
        return Some("leading slash in name".into());
    }
    let empty = || Some("empty component or misplaced '@' or '#' delimiter in name".to_owned());
    if name.is_empty() {
        return empty();
    }
    let (mut rest, mut delimited) = (name, false);
    loop {
        let end = rest.find(['/', '@', '#']).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        if tail.is_empty() && part.is_empty() && name.ends_with('/') {
            return Some("trailing slash in name".into());
        }
        if let Some(c) = part.chars().find(|&c| !valid(c) && c != '%') {
            return Some(format!("invalid character '{c}' in name"));
        }
        if tail.is_empty() || tail.starts_with('/') {
            match part {
                "." => return Some("self reference, '.' is found in name".into()),
                ".." => return Some("parent reference, '..' is found in name".into()),
                _ => {}
            }
        }
        if tail.starts_with(['@', '#']) {
            if delimited {
                return Some("multiple '@' and/or '#' delimiters in name".into());
            }
            delimited = true;
        }
        if part.is_empty() {
            return empty();
        }
        if tail.is_empty() {
            return None;
        }
        if tail.starts_with('/') && delimited {
            return Some("trailing slash in name".into());
        }
        rest = &tail[1..];
    }
}

fn valid(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ')
}

#[cfg(test)]
mod tests {
    //! Names that OpenZFS accepts and refuses.

    use super::*;

    /// Goal: each fault is found, and named as OpenZFS names it.
    #[test]
    fn faults() {
        assert_eq!(pool_name_fault("tank", true), None);
        assert_eq!(pool_name_fault("a/b", false).unwrap(), "invalid character '/' in pool name");
        assert_eq!(pool_name_fault("1a", false).unwrap(), "name must begin with a letter");
        assert_eq!(pool_name_fault("mirror2", false), None);
        assert_eq!(pool_name_fault("mirror2", true).unwrap(), "name is reserved");
        assert_eq!(dataset_name_fault("a/b@c", true, false), None);
        assert!(dataset_name_fault("a/b@c", false, false).is_some());
        assert_eq!(dataset_name_fault("a/", false, false).unwrap(), "trailing slash in name");
        assert_eq!(
            dataset_name_fault("a//b", false, false).unwrap(),
            "empty component or misplaced '@' or '#' delimiter in name"
        );
        assert_eq!(
            dataset_name_fault("a@b@c", true, false).unwrap(),
            "multiple '@' and/or '#' delimiters in name"
        );
        assert_eq!(
            dataset_name_fault("a/../b", true, false).unwrap(),
            "parent reference, '..' is found in name"
        );
    }
}
