//! Records of the intent log (`lr_*_t`).

use crate::blkptr::BLKPTR_SIZE;
use crate::bytes::{le64, swap64};
use crate::{Blkptr, ByteOrder, Corrupt, Result};

const WHAT: &str = "intent log record";
/// Bytes of a write record without data (`sizeof (lr_write_t)`); one of exactly this length names a block.
pub const LR_WRITE_SIZE: usize = 192;
/// Bytes of a clone record before its block pointers (`sizeof (lr_clone_range_t)`).
const LR_CLONE_RANGE_SIZE: usize = 72;
/// The request ignored case (`TX_CI`).
pub(super) const TX_CI: u64 = 1 << 63;

macro_rules! kinds {
    ($($(#[$m:meta])* $name:ident = $v:literal, $text:literal;)*) => {
        /// What a record does (`TX_*`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u64)]
        pub enum TxKind { $($(#[$m])* $name = $v,)* }

        impl TxKind {
            /// All kinds, in order of their numbers.
            pub const ALL: &[TxKind] = &[$(TxKind::$name,)*];

            /// The kind of an on-disk number, without the case bit.
            ///
            /// # Errors
            /// [`Corrupt::Range`].
            pub fn from_disk(v: u64) -> Result<Self> {
                match v {
                    $($v => Ok(Self::$name),)*
                    _ => Err(Corrupt::Range { what: WHAT, field: "type", value: v }),
                }
            }

            /// The name that `zdb -i` prints.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// Marks a commit; never on disk with effect.
    Commit = 0, "Total";
    /// Create a file.
    Create = 1, "TX_CREATE";
    /// Make a directory.
    Mkdir = 2, "TX_MKDIR";
    /// Make an extended attribute directory.
    Mkxattr = 3, "TX_MKXATTR";
    /// Make a symbolic link.
    Symlink = 4, "TX_SYMLINK";
    /// Remove a name.
    Remove = 5, "TX_REMOVE";
    /// Remove a directory.
    Rmdir = 6, "TX_RMDIR";
    /// Make a hard link.
    Link = 7, "TX_LINK";
    /// Rename.
    Rename = 8, "TX_RENAME";
    /// Write.
    Write = 9, "TX_WRITE";
    /// Truncate or punch.
    Truncate = 10, "TX_TRUNCATE";
    /// Set attributes.
    Setattr = 11, "TX_SETATTR";
    /// Set an old ACL.
    AclV0 = 12, "TX_ACL_V0";
    /// Set an ACL.
    Acl = 13, "TX_ACL_ACL";
    /// Create with ACL.
    CreateAcl = 14, "TX_CREATE_ACL";
    /// Create with attributes.
    CreateAttr = 15, "TX_CREATE_ATTR";
    /// Create with both.
    CreateAclAttr = 16, "TX_CREATE_ACL_ATTR";
    /// Make a directory with ACL.
    MkdirAcl = 17, "TX_MKDIR_ACL";
    /// Make a directory with attributes.
    MkdirAttr = 18, "TX_MKDIR_ATTR";
    /// Make a directory with both.
    MkdirAclAttr = 19, "TX_MKDIR_ACL_ATTR";
    /// A write that reached the pool by another way already.
    Write2 = 20, "TX_WRITE2";
    /// Set a system-attribute xattr.
    SetSaXattr = 21, "TX_SETSAXATTR";
    /// Swap two names.
    RenameExchange = 22, "TX_RENAME_EXCHANGE";
    /// Rename and leave a whiteout.
    RenameWhiteout = 23, "TX_RENAME_WHITEOUT";
    /// Clone a range of blocks.
    CloneRange = 24, "TX_CLONE_RANGE";
}

/// An object number with the slots that its dnode takes (`LR_FOID_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The object.
    pub object: u64,
    /// Slots, 1 or more.
    pub slots: u64,
}

impl FileId {
    fn from_disk(v: u64) -> Self {
        Self { object: v & ((1 << 48) - 1), slots: (v >> 56) + 1 }
    }
}

/// Optional attributes (`lr_attr_t` and its end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xvattr {
    /// Which attributes the request set.
    pub bitmap: Vec<u32>,
    /// Their values, a bit each (`XAT0_*`).
    pub attrs: u64,
    /// Creation time: seconds, nanoseconds.
    pub crtime: [u64; 2],
    /// Scan stamp, or the project id in its first eight bytes.
    pub scanstamp: [u8; 32],
}

/// An ACL with the foreign ids that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclLog {
    /// Number of entries.
    pub count: u64,
    /// ACL flags.
    pub flags: u64,
    /// The entries, as a znode stores them.
    pub aces: Vec<u8>,
    /// Ids that refer to `domains`.
    pub fuids: Vec<u64>,
    /// Domains of foreign ids.
    pub domains: Vec<Vec<u8>>,
}

/// A new object (`lr_create_t`, `lr_acl_create_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// The directory.
    pub doid: u64,
    /// The object.
    pub foid: FileId,
    /// Mode, type bits included.
    pub mode: u64,
    /// Owner, perhaps a foreign id.
    pub uid: u64,
    /// Group, perhaps a foreign id.
    pub gid: u64,
    /// Generation: txg of creation.
    pub gen_: u64,
    /// Creation time: seconds, nanoseconds.
    pub crtime: [u64; 2],
    /// Device number.
    pub rdev: u64,
    /// Optional attributes.
    pub xvattr: Option<Xvattr>,
    /// ACL.
    pub acl: Option<AclLog>,
    /// Domains of owner and group, in records without ACL.
    pub domains: Vec<Vec<u8>>,
    /// The name.
    pub name: Vec<u8>,
    /// Target of a symbolic link.
    pub link: Option<Vec<u8>>,
}

/// The whiteout that a rename leaves (part of `lr_rename_whiteout_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whiteout {
    /// The object.
    pub foid: FileId,
    /// Mode.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Generation.
    pub gen_: u64,
    /// Creation time: seconds, nanoseconds.
    pub crtime: [u64; 2],
    /// Device number, 0.
    pub rdev: u64,
}

/// A rename (`lr_rename_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Directory of the source.
    pub sdoid: u64,
    /// Directory of the target.
    pub tdoid: u64,
    /// Source name.
    pub source: Vec<u8>,
    /// Target name.
    pub target: Vec<u8>,
    /// The whiteout, in records of that kind.
    pub whiteout: Option<Whiteout>,
}

/// A write (`lr_write_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The object.
    pub foid: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u64,
    /// For indirect writes: the block with the data.
    pub blkptr: Option<Blkptr>,
    /// For the others: the data.
    pub data: Vec<u8>,
}

/// A change of attributes (`lr_setattr_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setattr {
    /// The object.
    pub foid: u64,
    /// Which attributes (`AT_*`).
    pub mask: u64,
    /// Mode.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size.
    pub size: u64,
    /// Access time: seconds, nanoseconds.
    pub atime: [u64; 2],
    /// Modification time: seconds, nanoseconds.
    pub mtime: [u64; 2],
    /// Optional attributes.
    pub xvattr: Option<Xvattr>,
    /// Domains of owner and group.
    pub domains: Vec<Vec<u8>>,
}

/// A cloned range (`lr_clone_range_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClonedRange {
    /// The object cloned into.
    pub foid: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u64,
    /// The file's block size.
    pub blksz: u64,
    /// The blocks.
    pub blkptrs: Vec<Blkptr>,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordBody {
    /// A commit marker.
    Commit,
    /// A new object of any kind.
    Create(Create),
    /// A name to remove, of a file or a directory.
    Remove {
        /// The directory.
        doid: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// A hard link.
    Link {
        /// The directory.
        doid: u64,
        /// The object linked.
        link_obj: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// A rename of any kind.
    Rename(Rename),
    /// A write, with data or a block.
    Write(Write),
    /// A range to free.
    Truncate {
        /// The object.
        foid: u64,
        /// Where.
        offset: u64,
        /// How much; 0 means to the end.
        length: u64,
    },
    /// Attributes.
    Setattr(Setattr),
    /// An ACL, old (its entries as 12-byte ACEs) or new.
    Acl {
        /// The object.
        foid: u64,
        /// The ACL.
        acl: AclLog,
    },
    /// An extended attribute among the system attributes.
    SetSaXattr {
        /// The object.
        foid: u64,
        /// Its name.
        name: Vec<u8>,
        /// Its value; `None` removes it.
        value: Option<Vec<u8>>,
    },
    /// A clone.
    CloneRange(ClonedRange),
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Type, length, txg and number.
    pub header: RecordHeader,
    /// What it says.
    pub body: RecordBody,
}

/// The length of the record at the head of `buf`, checked.
pub(super) fn length(buf: &[u8]) -> Result<usize> {
    if buf.len() < 32 {
        return Err(Corrupt::Truncated { what: WHAT, need: 32, have: buf.len() });
    }
    let len = le64(buf, 8);
    match usize::try_from(len) {
        Ok(n) if (32..=buf.len()).contains(&n) && n.is_multiple_of(8) => Ok(n),
        _ => Err(Corrupt::Range { what: WHAT, field: "length", value: len }),
    }
}

/// The common header of a record (`lr_t`), which is in the clear even where the rest is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// What it does.
    pub kind: TxKind,
    /// The request ignored the case of names.
    pub ci: bool,
    /// The record's length in bytes.
    pub reclen: usize,
    /// The transaction group that it belonged to.
    pub txg: u64,
    /// Its sequence number.
    pub seq: u64,
}

impl RecordHeader {
    /// Decodes the header of the record at the head of `buf`.
    ///
    /// # Errors
    /// [`Corrupt`] for an unknown type or a length that leaves `buf`.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let reclen = length(buf)?;
        let kind = TxKind::from_disk(le64(buf, 0) & !TX_CI)?;
        Ok(Self { kind, ci: le64(buf, 0) & TX_CI != 0, reclen, txg: le64(buf, 16), seq: le64(buf, 24) })
    }

    /// The block that an indirect write names, from the record at the head of `buf`: never encrypted.
    ///
    /// # Errors
    /// [`Corrupt`] for a bad pointer.
    pub fn blkptr(&self, buf: &[u8]) -> Result<Option<Blkptr>> {
        if self.kind != TxKind::Write || self.reclen != LR_WRITE_SIZE {
            return Ok(None);
        }
        Blkptr::decode(&buf[64..LR_WRITE_SIZE]).map(Some)
    }

    /// The blocks that a clone names, from the record at the head of `buf`: never encrypted.
    ///
    /// # Errors
    /// [`Corrupt`] for a bad pointer, or more of them than the record holds.
    pub fn clones(&self, buf: &[u8]) -> Result<Vec<Blkptr>> {
        if self.kind != TxKind::CloneRange {
            return Ok(Vec::new());
        }
        let (head, rest) = buf[..self.reclen]
            .split_at_checked(LR_CLONE_RANGE_SIZE)
            .ok_or(Corrupt::Truncated { what: WHAT, need: LR_CLONE_RANGE_SIZE, have: self.reclen })?;
        let count = le64(head, LR_CLONE_RANGE_SIZE - 8);
        if count > (rest.len() / BLKPTR_SIZE) as u64 {
            return Err(Corrupt::Range { what: WHAT, field: "blocks", value: count });
        }
        rest.chunks_exact(BLKPTR_SIZE).take(count as usize).map(Blkptr::decode).collect()
    }
}

/// The tail of a record after its fixed words, in the byte order it was written in.
struct Tail {
    bytes: Vec<u8>,
    at: usize,
    order: ByteOrder,
}

impl Tail {
    fn take(&mut self, n: usize) -> Result<&[u8]> {
        let end = self.at.saturating_add(n);
        let have = self.bytes.len();
        let got = self.bytes.get(self.at..end).ok_or(Corrupt::Truncated { what: WHAT, need: end, have })?;
        self.at = end;
        Ok(got)
    }

    fn u32(&mut self) -> Result<u32> {
        let order = self.order;
        order.u32(WHAT, self.take(4)?, 0)
    }

    fn u64(&mut self) -> Result<u64> {
        let order = self.order;
        order.u64(WHAT, self.take(8)?, 0)
    }

    /// A string that ends with a zero byte.
    fn string(&mut self) -> Result<Vec<u8>> {
        let rest = &self.bytes[self.at..];
        let n = rest
            .iter()
            .position(|&b| b == 0)
            .ok_or(Corrupt::Shape { what: WHAT, why: "a name without end" })?;
        let s = rest[..n].to_vec();
        self.at += n + 1;
        Ok(s)
    }

    fn strings(&mut self, n: u64) -> Result<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        for _ in 0..n {
            out.push(self.string()?);
        }
        Ok(out)
    }

    fn xvattr(&mut self) -> Result<Xvattr> {
        let n = self.u32()?;
        let room = (self.bytes.len() - self.at) / 4;
        if n == 0 || n as usize > room {
            return Err(Corrupt::Range { what: WHAT, field: "attribute mask size", value: n.into() });
        }
        let bitmap = (0..n).map(|_| self.u32()).collect::<Result<_>>()?;
        let attrs = self.u64()?;
        let crtime = [self.u64()?, self.u64()?];
        let mut scanstamp = [0; 32];
        scanstamp.copy_from_slice(self.take(32)?);
        Ok(Xvattr { bitmap, attrs, crtime, scanstamp })
    }

    /// The domains of owner and group: one for each that has a domain index, once if they share it.
    fn owner_domains(&mut self, uid: u64, gid: u64) -> Result<Vec<Vec<u8>>> {
        let (u, g) = (uid >> 32, gid >> 32);
        let n = u64::from(u != 0) + u64::from(g != 0 && g != u);
        self.strings(n)
    }

    fn acl(&mut self, h: [u64; 5]) -> Result<AclLog> {
        let [count, domcnt, fuidcnt, bytes, flags] = h;
        let range = |field, value| Corrupt::Range { what: WHAT, field, value };
        let n = usize::try_from(bytes).map_err(|_| range("ACL length", bytes))?;
        let aces = self.take(n)?.to_vec();
        self.take(n.next_multiple_of(8) - n)?;
        if fuidcnt > (self.bytes.len() - self.at) as u64 / 8 {
            return Err(range("foreign ids", fuidcnt));
        }
        let fuids = (0..fuidcnt).map(|_| self.u64()).collect::<Result<_>>()?;
        Ok(AclLog { count, flags, aces, fuids, domains: self.strings(domcnt)? })
    }
}

impl Record {
    /// Decodes one record, whose length [`super::Records`] has checked. `foreign` as there.
    ///
    /// # Errors
    /// [`Corrupt`] for an unknown type or parts that leave the record.
    pub fn decode(raw: &[u8], foreign: bool) -> Result<Self> {
        let header = RecordHeader::decode(raw)?;
        let body = Self::body(header.kind, &raw[..header.reclen], foreign)?;
        Ok(Self { header, body })
    }

    fn body(kind: TxKind, raw: &[u8], foreign: bool) -> Result<RecordBody> {
        use TxKind as T;
        // Fixed words after the common header, then the tail.
        let fixed = |n: usize| -> Result<(Vec<u64>, Tail)> {
            let need = 32 + n * 8;
            if raw.len() < need {
                return Err(Corrupt::Truncated { what: WHAT, need, have: raw.len() });
            }
            let w = (0..n).map(|i| le64(raw, 32 + i * 8)).collect();
            let mut bytes = raw[need..].to_vec();
            let order = if foreign { ByteOrder::Big } else { ByteOrder::Little };
            if foreign {
                swap64(&mut bytes);
            }
            Ok((w, Tail { bytes, at: 0, order }))
        };
        Ok(match kind {
            T::Commit => RecordBody::Commit,
            T::Create | T::Mkdir | T::Mkxattr | T::Symlink | T::CreateAttr | T::MkdirAttr => {
                let (w, t) = fixed(9)?;
                RecordBody::Create(create(kind, &w, t)?)
            }
            T::CreateAcl | T::CreateAclAttr | T::MkdirAcl | T::MkdirAclAttr => {
                let (w, t) = fixed(14)?;
                RecordBody::Create(create(kind, &w, t)?)
            }
            T::Remove | T::Rmdir => {
                let (w, mut t) = fixed(1)?;
                RecordBody::Remove { doid: w[0], name: t.string()? }
            }
            T::Link => {
                let (w, mut t) = fixed(2)?;
                RecordBody::Link { doid: w[0], link_obj: w[1], name: t.string()? }
            }
            T::Rename | T::RenameExchange => {
                let (w, t) = fixed(2)?;
                RecordBody::Rename(rename(&w, t)?)
            }
            T::RenameWhiteout => {
                let (w, t) = fixed(10)?;
                RecordBody::Rename(rename(&w, t)?)
            }
            T::Write | T::Write2 => RecordBody::Write(write(kind, raw, fixed(20)?)?),
            T::Truncate => {
                let (w, _) = fixed(3)?;
                RecordBody::Truncate { foid: w[0], offset: w[1], length: w[2] }
            }
            T::Setattr => {
                let (w, t) = fixed(10)?;
                RecordBody::Setattr(setattr(&w, t)?)
            }
            T::AclV0 => {
                let (w, mut t) = fixed(2)?;
                // Old entries are 12 bytes each; the record is padded to whole words.
                let bytes = w[1].checked_mul(12).ok_or(Corrupt::Range {
                    what: WHAT,
                    field: "ACL entries",
                    value: w[1],
                })?;
                let n = usize::try_from(bytes).unwrap_or(usize::MAX);
                let aces = t.take(n)?.to_vec();
                let acl = AclLog { count: w[1], flags: 0, aces, fuids: Vec::new(), domains: Vec::new() };
                RecordBody::Acl { foid: w[0], acl }
            }
            T::Acl => {
                let (w, mut t) = fixed(6)?;
                RecordBody::Acl { foid: w[0], acl: t.acl([w[1], w[2], w[3], w[4], w[5]])? }
            }
            T::SetSaXattr => {
                let (w, mut t) = fixed(2)?;
                let name = t.string()?;
                let n = usize::try_from(w[1]).unwrap_or(usize::MAX);
                let value = if n == 0 { None } else { Some(t.take(n)?.to_vec()) };
                RecordBody::SetSaXattr { foid: w[0], name, value }
            }
            T::CloneRange => {
                let (w, _) = fixed(5)?;
                let room = (raw.len() - 72) / 128;
                if w[4] > room as u64 {
                    return Err(Corrupt::Range { what: WHAT, field: "block pointers", value: w[4] });
                }
                let blkptrs = raw[72..]
                    .chunks_exact(128)
                    .take(w[4] as usize)
                    .map(Blkptr::decode)
                    .collect::<Result<_>>()?;
                RecordBody::CloneRange(ClonedRange {
                    foid: w[0],
                    offset: w[1],
                    length: w[2],
                    blksz: w[3],
                    blkptrs,
                })
            }
        })
    }
}

fn create(kind: TxKind, w: &[u64], mut t: Tail) -> Result<Create> {
    use TxKind as T;
    let has_attr = matches!(kind, T::CreateAttr | T::MkdirAttr | T::CreateAclAttr | T::MkdirAclAttr);
    let xvattr = if has_attr { Some(t.xvattr()?) } else { None };
    let (uid, gid) = (w[3], w[4]);
    let (acl, domains) = if let Some(h) = w.get(9..14) {
        (Some(t.acl([h[0], h[1], h[2], h[3], h[4]])?), Vec::new())
    } else if matches!(kind, T::Symlink | T::Mkxattr) {
        (None, Vec::new())
    } else {
        (None, t.owner_domains(uid, gid)?)
    };
    let name = if kind == T::Mkxattr && t.at == t.bytes.len() { Vec::new() } else { t.string()? };
    let link = if kind == T::Symlink { Some(t.string()?) } else { None };
    Ok(Create {
        doid: w[0],
        foid: FileId::from_disk(w[1]),
        mode: w[2],
        uid,
        gid,
        gen_: w[5],
        crtime: [w[6], w[7]],
        rdev: w[8],
        xvattr,
        acl,
        domains,
        name,
        link,
    })
}

fn rename(w: &[u64], mut t: Tail) -> Result<Rename> {
    let whiteout = w.get(2..10).map(|w| Whiteout {
        foid: FileId::from_disk(w[0]),
        mode: w[1],
        uid: w[2],
        gid: w[3],
        gen_: w[4],
        crtime: [w[5], w[6]],
        rdev: w[7],
    });
    Ok(Rename { sdoid: w[0], tdoid: w[1], source: t.string()?, target: t.string()?, whiteout })
}

fn write(kind: TxKind, raw: &[u8], (w, mut t): (Vec<u64>, Tail)) -> Result<Write> {
    let (blkptr, data) = if kind == TxKind::Write2 {
        (None, Vec::new())
    } else if raw.len() == LR_WRITE_SIZE {
        (Some(Blkptr::decode(&raw[64..192])?), Vec::new())
    } else {
        let n = usize::try_from(w[2]).unwrap_or(usize::MAX);
        (None, t.take(n)?.to_vec())
    };
    Ok(Write { foid: w[0], offset: w[1], length: w[2], blkptr, data })
}

fn setattr(w: &[u64], mut t: Tail) -> Result<Setattr> {
    // As Linux numbers them (`ATTR_*`).
    const AT_UID: u64 = 2;
    const AT_GID: u64 = 4;
    const AT_XVATTR: u64 = 1 << 31;
    let xvattr = if w[1] & AT_XVATTR != 0 { Some(t.xvattr()?) } else { None };
    let uid = if w[1] & AT_UID != 0 { w[3] } else { 0 };
    let gid = if w[1] & AT_GID != 0 { w[4] } else { 0 };
    Ok(Setattr {
        foid: w[0],
        mask: w[1],
        mode: w[2],
        uid: w[3],
        gid: w[4],
        size: w[5],
        atime: [w[6], w[7]],
        mtime: [w[8], w[9]],
        xvattr,
        domains: t.owner_domains(uid, gid)?,
    })
}
