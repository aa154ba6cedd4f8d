//! Access control lists: NFSv4 entries in two encodings (`sys/zfs_acl.h`).
//!
//! # On disk
//! The two encodings of an entry, with sizes in bytes:
//!
//! | version | entry |
//! |---|---|
//! | 0 | `who (4) mask (4) flags (2) type (2)` |
//! | 1, since FUIDs | `type (2) flags (2) mask (4)` |
//! | 1, about a user or group | the same, then `fuid (8)` |
//! | 1, an object type of CIFS | the same, then two GUIDs of 16 bytes each |
//!
//! A znode of ZPL 1 to 4 embeds up to 72 bytes of entries ([`AclPhys`]), or names an object that
//! holds them. With system attributes the entries are the attribute `ZPL_DACL_ACES`.

#[cfg(test)]
mod tests;

use crate::{ByteOrder, Corrupt, ObjNum, Result};

/// The entry is about the owner.
pub const ACE_OWNER: u16 = 0x1000;
/// The entry is about the owning group; set together with [`ACE_IDENTIFIER_GROUP`].
pub const ACE_GROUP: u16 = 0x2000;
/// The entry is about everyone.
pub const ACE_EVERYONE: u16 = 0x4000;
/// The entry names a group.
pub const ACE_IDENTIFIER_GROUP: u16 = 0x0040;
const ACE_TYPE_FLAGS: u16 = ACE_OWNER | ACE_GROUP | ACE_EVERYONE | ACE_IDENTIFIER_GROUP;
const ACE_OWNING_GROUP: u16 = ACE_GROUP | ACE_IDENTIFIER_GROUP;

/// Size of [`AclPhys`] on disk (`sizeof (zfs_acl_phys_t)`).
pub const ACL_PHYS_SIZE: usize = 88;
/// Bytes of ACEs that a znode embeds (`ZFS_ACE_SPACE`).
pub const ACE_SPACE: usize = 72;
const V0_SIZE: usize = 12;
const WHAT: &str = "ACL";

/// The subject of an entry: the users to which it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The file's owner.
    Owner,
    /// The file's group.
    OwningGroup,
    /// Everyone.
    Everyone,
    /// A user, by FUID.
    User(u64),
    /// A group, by FUID.
    Group(u64),
}

/// One entry of an ACL (`zfs_ace_t`, `zfs_object_ace_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ace {
    /// Allow, deny, audit, alarm or an object type (`z_type`; `ACE_ACCESS_ALLOWED_ACE_TYPE` is 0).
    pub kind: u16,
    /// Inheritance and the kind of `who`, raw (`z_flags`, `ACE_*`).
    pub flags: u16,
    /// The permissions that the entry is about (`z_access_mask`; `ACE_READ_DATA`, ...).
    pub mask: u32,
    /// The users to which the entry applies.
    pub who: Who,
    /// The two GUIDs of an object entry, which CIFS uses.
    pub guids: Option<[[u8; 16]; 2]>,
}

impl Ace {
    /// Appends the entry in the encoding of version 1.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.mask.to_le_bytes());
        if let Who::User(id) | Who::Group(id) = self.who {
            out.extend_from_slice(&id.to_le_bytes());
            for guid in self.guids.iter().flatten() {
                out.extend_from_slice(guid);
            }
        }
    }

    /// Appends the entry in the encoding of version 0, which has no GUIDs and no domain of an id.
    fn encode_v0(&self, out: &mut Vec<u8>) {
        let id = match self.who {
            Who::User(id) | Who::Group(id) => id as u32,
            Who::Owner | Who::OwningGroup | Who::Everyone => u32::MAX,
        };
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&self.mask.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.kind.to_le_bytes());
    }
}

/// Encoding of the entries of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclVersion {
    /// Entries of fixed size with 32-bit ids (`ZFS_ACL_VERSION_INITIAL`).
    Initial,
    /// Entries of three sizes with FUIDs (`ZFS_ACL_VERSION_FUID`).
    Fuid,
}

/// The ACL in a znode of ZPL 1 to 4, 88 bytes (`zfs_acl_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclPhys {
    /// Object that holds the entries, or 0 if they are embedded (`z_acl_extern_obj`).
    pub extern_obj: ObjNum,
    /// Bytes of entries (`z_acl_size`).
    pub size: u32,
    /// Number of entries (`z_acl_count`).
    pub count: u32,
    /// Encoding of the entries (`z_acl_version`).
    pub version: AclVersion,
    /// Embedded entries (`z_ace_data`).
    pub embedded: [u8; ACE_SPACE],
}

impl AclPhys {
    /// Decodes the ACL in the first 88 bytes of `buf`.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` has fewer than 88 bytes.
    /// * [`Corrupt::Range`]: one of these values is impossible:
    ///   * the version, which is neither 0 nor 1
    ///   * the number of version 0 entries, which would take 4 GiB or more
    ///   * the size of embedded entries, above [`ACE_SPACE`]
    pub fn parse(order: ByteOrder, buf: &[u8]) -> Result<Self> {
        let extern_obj = ObjNum(order.u64(WHAT, buf, 0)?);
        let (size, version, count) =
            (order.u32(WHAT, buf, 8)?, order.u16(WHAT, buf, 12)?, order.u16(WHAT, buf, 14)?);
        let mut embedded = [0; ACE_SPACE];
        let room = buf.get(16..ACL_PHYS_SIZE).ok_or(Corrupt::Truncated {
            what: WHAT,
            need: ACL_PHYS_SIZE,
            have: buf.len(),
        })?;
        embedded.copy_from_slice(room);
        // Version 0 has a 32-bit count where version 1 has the size.
        let acl = match version {
            0 => {
                let bytes = u64::from(size) * V0_SIZE as u64;
                let bytes = u32::try_from(bytes).ok().ok_or(Corrupt::Range {
                    what: WHAT,
                    field: "entries",
                    value: size.into(),
                })?;
                if order == ByteOrder::Big {
                    swap_v0(&mut embedded);
                }
                Self { extern_obj, size: bytes, count: size, version: AclVersion::Initial, embedded }
            }
            1 => {
                if order == ByteOrder::Big {
                    swap_v1(&mut embedded);
                }
                Self { extern_obj, size, count: count.into(), version: AclVersion::Fuid, embedded }
            }
            v => return Err(Corrupt::Range { what: WHAT, field: "version", value: v.into() }),
        };
        if acl.extern_obj.0 == 0 && acl.size as usize > ACE_SPACE {
            return Err(Corrupt::Range { what: WHAT, field: "embedded size", value: acl.size.into() });
        }
        Ok(acl)
    }

    /// Makes an ACL of `entries`: its header, and the bytes of its object if it needs one.
    ///
    /// Entries of more than [`ACE_SPACE`] bytes need an object. The caller then enters the object's
    /// number as [`AclPhys::extern_obj`].
    ///
    /// # Panics
    /// If the entries take 4 GiB or more.
    pub fn of(entries: &[Ace], version: AclVersion) -> (Self, Option<Vec<u8>>) {
        let mut raw = Vec::with_capacity(ACE_SPACE);
        for ace in entries {
            match version {
                AclVersion::Initial => ace.encode_v0(&mut raw),
                AclVersion::Fuid => ace.encode(&mut raw),
            }
        }
        let (size, count) = (u32::try_from(raw.len()), u32::try_from(entries.len()));
        let (size, count) = (size.expect("an ACL is small"), count.expect("an ACL is small"));
        let mut phys = Self { extern_obj: ObjNum(0), size, count, version, embedded: [0; ACE_SPACE] };
        match phys.embedded.get_mut(..raw.len()) {
            Some(room) => {
                room.copy_from_slice(&raw);
                (phys, None)
            }
            None => (phys, Some(raw)),
        }
    }

    /// Encodes the ACL, little-endian. Version 0 stores size and count in each other's fields.
    pub fn encode(&self) -> [u8; ACL_PHYS_SIZE] {
        let (size, version, count) = match self.version {
            AclVersion::Initial => (self.count, 0u16, self.size as u16),
            AclVersion::Fuid => (self.size, 1u16, self.count as u16),
        };
        let mut raw = [0; ACL_PHYS_SIZE];
        raw[..8].copy_from_slice(&self.extern_obj.0.to_le_bytes());
        raw[8..12].copy_from_slice(&size.to_le_bytes());
        raw[12..14].copy_from_slice(&version.to_le_bytes());
        raw[14..16].copy_from_slice(&count.to_le_bytes());
        raw[16..].copy_from_slice(&self.embedded);
        raw
    }

    /// Decodes the embedded entries; `None` if they are in [`AclPhys::extern_obj`].
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the embedded bytes end before [`AclPhys::count`] entries do.
    pub fn aces(&self) -> Result<Option<Vec<Ace>>> {
        if self.extern_obj.0 != 0 {
            return Ok(None);
        }
        aces(self.version, self.count, &self.embedded[..self.size as usize]).map(Some)
    }
}

/// Decodes the `count` entries in `buf`, little-endian.
///
/// # Errors
/// * [`Corrupt::Truncated`]: `buf` ends inside an entry, or before `count` entries.
pub fn aces(version: AclVersion, count: u32, buf: &[u8]) -> Result<Vec<Ace>> {
    let mut at = 0;
    let mut out = Vec::new();
    for _ in 0..count {
        let rest = buf.get(at..).unwrap_or_default();
        let (ace, size) = match version {
            AclVersion::Initial => ace_v0(rest)?,
            AclVersion::Fuid => ace_v1(rest)?,
        };
        out.push(ace);
        at += size;
    }
    Ok(out)
}

fn who(flags: u16, id: impl FnOnce() -> Result<u64>) -> Result<Who> {
    Ok(match flags & ACE_TYPE_FLAGS {
        ACE_OWNER => Who::Owner,
        ACE_OWNING_GROUP => Who::OwningGroup,
        ACE_EVERYONE => Who::Everyone,
        ACE_IDENTIFIER_GROUP => Who::Group(id()?),
        _ => Who::User(id()?),
    })
}

fn ace_v0(buf: &[u8]) -> Result<(Ace, usize)> {
    let b = buf.first_chunk::<V0_SIZE>().ok_or(Corrupt::Truncated {
        what: WHAT,
        need: V0_SIZE,
        have: buf.len(),
    })?;
    let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
    let flags = u16::from_le_bytes([b[8], b[9]]);
    let who = who(flags, || Ok(word(0).into()))?;
    Ok((Ace { kind: u16::from_le_bytes([b[10], b[11]]), flags, mask: word(4), who, guids: None }, V0_SIZE))
}

/// True for the types that carry GUIDs: `ACE_ACCESS_ALLOWED_OBJECT_ACE_TYPE` (5) to
/// `ACE_SYSTEM_ALARM_OBJECT_ACE_TYPE` (8).
fn has_guids(kind: u16) -> bool {
    (5..=8).contains(&kind)
}

fn ace_v1(buf: &[u8]) -> Result<(Ace, usize)> {
    let le = ByteOrder::Little;
    let (kind, flags, mask) = (le.u16(WHAT, buf, 0)?, le.u16(WHAT, buf, 2)?, le.u32(WHAT, buf, 4)?);
    let who = who(flags, || le.u64(WHAT, buf, 8))?;
    if !matches!(who, Who::User(_) | Who::Group(_)) {
        return Ok((Ace { kind, flags, mask, who, guids: None }, 8));
    }
    if !has_guids(kind) {
        return Ok((Ace { kind, flags, mask, who, guids: None }, 16));
    }
    let tail = buf.get(16..48).ok_or(Corrupt::Truncated { what: WHAT, need: 48, have: buf.len() })?;
    let mut guids = [[0; 16]; 2];
    guids[0].copy_from_slice(&tail[..16]);
    guids[1].copy_from_slice(&tail[16..]);
    Ok((Ace { kind, flags, mask, who, guids: Some(guids) }, 48))
}

/// Swaps an array of version 0 entries in place (`zfs_oldace_byteswap`).
pub fn swap_v0(buf: &mut [u8]) {
    for e in buf.as_chunks_mut::<V0_SIZE>().0 {
        e[..4].reverse();
        e[4..8].reverse();
        e[8..10].reverse();
        e[10..].reverse();
    }
}

/// Swaps version 1 entries from the other byte order, up to the end of `buf` (`zfs_ace_byteswap`).
///
/// The number of entries is not known here, but zeros follow the last entry.
pub fn swap_v1(buf: &mut [u8]) {
    let mut at = 0;
    while let Some(e) = buf.get_mut(at..).filter(|e| e.len() >= 8) {
        e[..2].reverse();
        e[2..4].reverse();
        e[4..8].reverse();
        let (kind, flags) = (u16::from_le_bytes([e[0], e[1]]), u16::from_le_bytes([e[2], e[3]]));
        at += match flags & ACE_TYPE_FLAGS {
            ACE_OWNER | ACE_EVERYONE | ACE_OWNING_GROUP => 8,
            _ => {
                if let Some(id) = e.get_mut(8..16) {
                    id.reverse();
                }
                if has_guids(kind) { 48 } else { 16 }
            }
        };
    }
}
