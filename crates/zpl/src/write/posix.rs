//! POSIX ACLs, as Linux passes them in extended attributes: how ACLs and modes change each other.
//!
//! # On disk
//! A version (2) in four bytes, then entries of eight: tag (2), permissions (2), id (4),
//! little-endian.

/// The attribute of the ACL that controls access.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the ACL that new files of a directory inherit.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The part of an ACL that a mode can express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AclMode {
    /// The nine permission bits, and the mode's bits above them.
    pub(super) permissions: u32,
    /// True if the mode expresses all of the ACL.
    pub(super) says_all: bool,
}

fn tag_of(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

fn perm_of(entry: &[u8]) -> u32 {
    u32::from(u16::from_le_bytes([entry[2], entry[3]])) & 7
}

fn set_perm(entry: &mut [u8], perm: u32) {
    entry[2..4].copy_from_slice(&(perm as u16 & 7).to_le_bytes());
}

/// The entries of a well-formed ACL.
fn entries(acl: &[u8]) -> Option<std::slice::ChunksExact<'_, u8>> {
    let head = acl.first_chunk::<HEAD>()?;
    let rest = &acl[HEAD..];
    let known = |e: &[u8]| matches!(tag_of(e), USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER);
    let chunks = rest.chunks_exact(ENTRY);
    let whole = u32::from_le_bytes(*head) == VERSION && chunks.remainder().is_empty();
    let once = |tag| chunks.clone().filter(|e| tag_of(e) == tag).count() == 1;
    (whole && chunks.clone().all(known) && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(once))
        .then_some(chunks)
}

/// The shift of the mode's class for an entry. A mask stands for the group, if there is one.
fn shift(tag: u16, masked: bool) -> Option<u32> {
    match tag {
        USER_OBJ => Some(6),
        GROUP_OBJ if !masked => Some(3),
        MASK => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

/// The permissions of an ACL; `None` if it is malformed (`posix_acl_equiv_mode`).
pub(super) fn mode_of(acl: &[u8]) -> Option<AclMode> {
    let entries = entries(acl)?;
    let says_all = entries.len() == 3;
    let masked = entries.clone().any(|e| tag_of(e) == MASK);
    let permissions =
        entries.filter_map(|e| Some(perm_of(e) << shift(tag_of(e), masked)?)).fold(0, |all, p| all | p);
    Some(AclMode { permissions, says_all })
}

/// Changes an ACL to mean these permissions; false if it is malformed (`posix_acl_chmod`).
pub(super) fn chmod(acl: &mut [u8], permissions: u32) -> bool {
    let Some(found) = entries(acl) else { return false };
    let masked = found.into_iter().any(|e| tag_of(e) == MASK);
    for e in acl[HEAD..].chunks_exact_mut(ENTRY) {
        if let Some(shift) = shift(tag_of(e), masked) {
            set_perm(e, permissions >> shift);
        }
    }
    true
}

/// Turns a default ACL into the ACL of a new file with these permissions: each limits the other.
/// `None` if it is malformed (`posix_acl_create_masq`).
pub(super) fn create(acl: &mut [u8], permissions: u32) -> Option<AclMode> {
    let found = entries(acl)?;
    let says_all = found.len() == 3;
    let masked = found.into_iter().any(|e| tag_of(e) == MASK);
    let mut mode = permissions;
    for e in acl[HEAD..].chunks_exact_mut(ENTRY) {
        if let Some(shift) = shift(tag_of(e), masked) {
            let both = perm_of(e) & (mode >> shift);
            set_perm(e, both);
            mode = mode & !(7 << shift) | both << shift;
        }
    }
    Some(AclMode { permissions: mode, says_all })
}

#[cfg(test)]
mod tests;
