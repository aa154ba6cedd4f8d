//! Records of NFSv4 ACLs.
//!
//! # On disk
//! A record has the entries of the request: `who (4) mask (4) flags (2) type (2)`, and two GUIDs
//! after an object entry of CIFS. A file stores them in another form ([`ondisk::acl`]). Ids of
//! domains are taken for plain ones, as in OpenZFS on Linux.

use super::{WHAT, bad};
use crate::write::Writer;
use crate::write::update::NO_EXECS_DENIED;
use crate::{Error, FileSystem, Node, Result};
use dsl::Need;
use ondisk::acl::{ACE_EVERYONE, ACE_GROUP, ACE_IDENTIFIER_GROUP, ACE_OWNER};
use ondisk::sa::Attr as Sa;
use ondisk::zil::AclLog;
use ondisk::znode::Pflags;
use ondisk::{ByteOrder, Corrupt};

/// Bytes of an entry, and of an entry with GUIDs.
const ACE: usize = 12;
const OBJECT_ACE: usize = 44;
/// Most entries of an ACL (`MAX_ACL_ENTRIES`).
const ENTRIES_MAX: u64 = 1024;
/// The inheritance flags that a user may set: automatic, protected, defaulted
/// (`V4_ACL_WIDE_FLAGS`).
const WIDE: u64 = 0x20 | 0x40 | 0x10;
/// The flags that follow from the entries: inheritable entries, GUIDs.
const HOLDS: u64 = 0x2 | 0x8;
/// Entries that files or directories inherit. With `INHERIT_ONLY` they apply to new files alone.
const INHERIT: u16 = 0x1 | 0x2;
const INHERIT_ONLY: u16 = 0x8;
const ALLOW: u16 = 0;
const DENY: u16 = 1;
/// The permissions of a mask that a mode has: reading, writing, executing.
const TOLD: [(u32, u32); 3] = [(0x1, 4), (0x2, 2), (0x20, 1)];

/// An entry of a record.
struct Entry<'a> {
    who: u32,
    mask: u32,
    flags: u16,
    kind: u16,
    guids: &'a [u8],
}

fn entries(count: u64, mut raw: &[u8]) -> ondisk::Result<Vec<Entry<'_>>> {
    let le = ByteOrder::Little;
    let mut out = Vec::new();
    for _ in 0..count {
        let (who, mask) = (le.u32(WHAT, raw, 0)?, le.u32(WHAT, raw, 4)?);
        let (flags, kind) = (le.u16(WHAT, raw, 8)?, le.u16(WHAT, raw, 10)?);
        let size = if (5..=8).contains(&kind) { OBJECT_ACE } else { ACE };
        let (this, rest) = raw.split_at_checked(size).ok_or(Corrupt::Truncated {
            what: WHAT,
            need: size,
            have: raw.len(),
        })?;
        out.push(Entry { who, mask, flags, kind, guids: &this[ACE..] });
        raw = rest;
    }
    Ok(out)
}

impl Entry<'_> {
    /// The class that the entry is for; `None` if it names a user or group.
    fn special(&self) -> Option<u16> {
        let who = self.flags & (ACE_OWNER | ACE_GROUP | ACE_EVERYONE | ACE_IDENTIFIER_GROUP);
        [ACE_OWNER, ACE_GROUP | ACE_IDENTIFIER_GROUP, ACE_EVERYONE].into_iter().find(|w| *w == who)
    }

    fn store(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.mask.to_le_bytes());
        if self.special().is_none() {
            out.extend(u64::from(self.who).to_le_bytes());
            out.extend(self.guids);
        }
    }
}

/// The nine permission bits of an ACL for a file of this owner, and whether it denies anyone to
/// execute. For each permission of a class the first matching entry decides (`zfs_mode_compute`).
fn mode(all: &[Entry<'_>], owner: u64) -> (u32, bool) {
    let (mut mode, mut seen, mut denied) = (0, 0, false);
    for e in all.iter().filter(|e| e.flags & INHERIT_ONLY == 0 && matches!(e.kind, ALLOW | DENY)) {
        let classes: &[u32] = match e.special() {
            Some(ACE_OWNER) => &[6],
            Some(ACE_EVERYONE) => &[6, 3, 0],
            Some(_) => &[3],
            None if e.flags & ACE_IDENTIFIER_GROUP == 0 && u64::from(e.who) == owner => &[6],
            None => {
                denied |= e.kind == DENY && e.mask & 0x20 != 0;
                continue;
            }
        };
        for (_, bit) in TOLD.iter().filter(|(mask, _)| e.mask & mask != 0) {
            for shift in classes {
                let bit = bit << shift;
                if seen & bit == 0 && e.kind == ALLOW {
                    mode |= bit;
                }
                seen |= bit;
            }
        }
    }
    (mode, denied || mode & 0o111 != 0o111)
}

impl FileSystem {
    /// Sets an ACL, and the mode that follows from it (`zfs_setsecattr`).
    pub(super) fn replay_acl(&self, w: &Writer, node: &Node, acl: &AclLog) -> Result<()> {
        let object = node.object();
        if acl.count > ENTRIES_MAX {
            return Err(bad(object.0, "ACL entries", acl.count));
        }
        let all = entries(acl.count, &acl.aces).map_err(|source| Error::Corrupt { object, source })?;
        let mut stored = Vec::with_capacity(all.len() * 16);
        all.iter().for_each(|e| e.store(&mut stored));
        let (permissions, denied) = mode(&all, node.attr().uid.0);
        let inherited = all.iter().any(|e| e.flags & INHERIT != 0);
        let guids = all.iter().any(|e| !e.guids.is_empty());
        let tx = w.tx(Need::growing(0))?;
        let now = w.now();
        self.update(w, object, &tx, |node, c| {
            let a = node.attr();
            let mut flags = a.pflags.0 & !(WIDE | HOLDS | Pflags::ACL_TRIVIAL | NO_EXECS_DENIED);
            flags |= acl.flags & WIDE | Pflags::ARCHIVE;
            flags |= if inherited { 0x2 } else { 0 } | if guids { 0x8 } else { 0 };
            flags |= if denied { 0 } else { NO_EXECS_DENIED };
            c.word(Sa::Mode, u64::from(a.mode & !0o777 | permissions));
            c.word(Sa::Flags, flags);
            c.word(Sa::DaclCount, acl.count);
            c.bytes(Sa::DaclAces, stored.clone());
            c.time(Sa::Ctime, now);
            Ok(())
        })
    }
}
