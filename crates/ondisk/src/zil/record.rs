//! Records of the intent log (`lr_*_t`).

use crate::blkptr::BLKPTR_SIZE;
use crate::bytes::{le64, swap64};
use crate::{Blkptr, ByteOrder, Corrupt, Result};

const WHAT: &str = "intent log record";
/// Bytes of a write record without data (`sizeof (lr_write_t)`). A record of exactly this length
/// names a block.
pub const LR_WRITE_SIZE: usize = 192;
/// Bytes of a clone record before its block pointers (`sizeof (lr_clone_range_t)`).
const LR_CLONE_RANGE_SIZE: usize = 72;
/// Bit of a record's type: name look-ups ignored case (`TX_CI`).
pub(super) const TX_CI: u64 = 1 << 63;

macro_rules! kinds {
    ($($(#[$m:meta])* $name:ident = $v:literal, $text:literal;)*) => {
        /// Kind of a record; each line names OpenZFS's constant (`TX_*`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u64)]
        pub enum TxKind { $($(#[$m])* $name = $v,)* }

        impl TxKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &[TxKind] = &[$(TxKind::$name,)*];

            /// Decodes an on-disk number, without the case bit.
            ///
            /// # Errors
            /// * [`Corrupt::Range`]: no kind has this number.
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
    /// Marks a commit; has no effect on disk (`TX_COMMIT`).
    Commit = 0, "Total";
    /// Create a file (`TX_CREATE`).
    Create = 1, "TX_CREATE";
    /// Create a directory (`TX_MKDIR`).
    Mkdir = 2, "TX_MKDIR";
    /// Create a directory of extended attributes (`TX_MKXATTR`).
    Mkxattr = 3, "TX_MKXATTR";
    /// Create a symbolic link (`TX_SYMLINK`).
    Symlink = 4, "TX_SYMLINK";
    /// Remove a name (`TX_REMOVE`).
    Remove = 5, "TX_REMOVE";
    /// Remove a directory (`TX_RMDIR`).
    Rmdir = 6, "TX_RMDIR";
    /// Create a hard link (`TX_LINK`).
    Link = 7, "TX_LINK";
    /// Rename (`TX_RENAME`).
    Rename = 8, "TX_RENAME";
    /// Write (`TX_WRITE`).
    Write = 9, "TX_WRITE";
    /// Free a range (`TX_TRUNCATE`).
    Truncate = 10, "TX_TRUNCATE";
    /// Set attributes (`TX_SETATTR`).
    Setattr = 11, "TX_SETATTR";
    /// Set an ACL of version 0 (`TX_ACL_V0`).
    AclV0 = 12, "TX_ACL_V0";
    /// Set an ACL (`TX_ACL`).
    Acl = 13, "TX_ACL_ACL";
    /// Create a file with ACL (`TX_CREATE_ACL`).
    CreateAcl = 14, "TX_CREATE_ACL";
    /// Create a file with attributes (`TX_CREATE_ATTR`).
    CreateAttr = 15, "TX_CREATE_ATTR";
    /// Create a file with ACL and attributes (`TX_CREATE_ACL_ATTR`).
    CreateAclAttr = 16, "TX_CREATE_ACL_ATTR";
    /// Create a directory with ACL (`TX_MKDIR_ACL`).
    MkdirAcl = 17, "TX_MKDIR_ACL";
    /// Create a directory with attributes (`TX_MKDIR_ATTR`).
    MkdirAttr = 18, "TX_MKDIR_ATTR";
    /// Create a directory with ACL and attributes (`TX_MKDIR_ACL_ATTR`).
    MkdirAclAttr = 19, "TX_MKDIR_ACL_ATTR";
    /// A write whose data are already in the pool (`TX_WRITE2`).
    Write2 = 20, "TX_WRITE2";
    /// Set an extended attribute among the system attributes (`TX_SETSAXATTR`).
    SetSaXattr = 21, "TX_SETSAXATTR";
    /// Exchange two names (`TX_RENAME_EXCHANGE`).
    RenameExchange = 22, "TX_RENAME_EXCHANGE";
    /// Rename, and leave a whiteout (`TX_RENAME_WHITEOUT`).
    RenameWhiteout = 23, "TX_RENAME_WHITEOUT";
    /// Clone a range of blocks (`TX_CLONE_RANGE`).
    CloneRange = 24, "TX_CLONE_RANGE";
}

/// Object number, and the number of slots of its dnode (`LR_FOID_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// Number of the object (`LR_FOID_GET_OBJ`).
    pub object: u64,
    /// Number of slots, 1 or more (`LR_FOID_GET_SLOTS`).
    pub slots: u64,
}

impl FileId {
    fn from_disk(v: u64) -> Self {
        Self { object: v & ((1 << 48) - 1), slots: (v >> 56) + 1 }
    }
}

/// Optional attributes (`lr_attr_t`, `lr_attr_end_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xvattr {
    /// Bitmap of the attributes that the request set (`lr_attr_bitmap`).
    pub bitmap: Vec<u32>,
    /// Values of the attributes that are one bit (`lr_attr_attrs`, `XAT0_*`).
    pub attrs: u64,
    /// Creation time: seconds, nanoseconds (`lr_attr_crtime`).
    pub crtime: [u64; 2],
    /// Scan stamp, or the project id in its first eight bytes (`lr_attr_scanstamp`).
    pub scanstamp: [u8; 32],
}

/// An ACL with the FUIDs that it needs (`lr_acl_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclLog {
    /// Number of entries (`lr_aclcnt`).
    pub count: u64,
    /// Flags of the ACL (`lr_acl_flags`).
    pub flags: u64,
    /// The entries, as a znode stores them.
    pub aces: Vec<u8>,
    /// FUIDs, which refer to `domains`.
    pub fuids: Vec<u64>,
    /// Domains of the FUIDs.
    pub domains: Vec<Vec<u8>>,
}

/// A new object (`lr_create_t`, `lr_acl_create_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Object of the directory (`lr_doid`).
    pub doid: u64,
    /// Object that was created (`lr_foid`).
    pub foid: FileId,
    /// Mode, including the file type (`lr_mode`).
    pub mode: u64,
    /// Owner, which can be a FUID (`lr_uid`).
    pub uid: u64,
    /// Group, which can be a FUID (`lr_gid`).
    pub gid: u64,
    /// Generation: the transaction group of the creation (`lr_gen`).
    pub gen_: u64,
    /// Creation time: seconds, nanoseconds (`lr_crtime`).
    pub crtime: [u64; 2],
    /// Device number (`lr_rdev`).
    pub rdev: u64,
    /// Optional attributes, in records of such kinds.
    pub xvattr: Option<Xvattr>,
    /// ACL, in records of such kinds.
    pub acl: Option<AclLog>,
    /// Domains of owner and group, in records without ACL.
    pub domains: Vec<Vec<u8>>,
    /// Name of the object.
    pub name: Vec<u8>,
    /// Target of a symbolic link.
    pub link: Option<Vec<u8>>,
}

/// The whiteout that a rename leaves (in `lr_rename_whiteout_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whiteout {
    /// Object of the whiteout (`lr_wfoid`).
    pub foid: FileId,
    /// Mode (`lr_wmode`).
    pub mode: u64,
    /// Owner (`lr_wuid`).
    pub uid: u64,
    /// Group (`lr_wgid`).
    pub gid: u64,
    /// Generation (`lr_wgen`).
    pub gen_: u64,
    /// Creation time: seconds, nanoseconds (`lr_wcrtime`).
    pub crtime: [u64; 2],
    /// Device number, always 0 (`lr_wrdev`).
    pub rdev: u64,
}

/// A rename (`lr_rename_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Directory of the source (`lr_sdoid`).
    pub sdoid: u64,
    /// Directory of the target (`lr_tdoid`).
    pub tdoid: u64,
    /// Name of the source.
    pub source: Vec<u8>,
    /// Name of the target.
    pub target: Vec<u8>,
    /// The whiteout, in records of that kind.
    pub whiteout: Option<Whiteout>,
}

/// A write (`lr_write_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Object that was written (`lr_foid`).
    pub foid: u64,
    /// Start of the range in bytes (`lr_offset`).
    pub offset: u64,
    /// Bytes in the range (`lr_length`).
    pub length: u64,
    /// Block with the data, in records of indirect writes (`lr_blkptr`).
    pub blkptr: Option<Blkptr>,
    /// The data, in the other records.
    pub data: Vec<u8>,
}

/// A change of attributes (`lr_setattr_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setattr {
    /// Object whose attributes change (`lr_foid`).
    pub foid: u64,
    /// The attributes that change, `AT_*` (`lr_mask`).
    pub mask: u64,
    /// Mode (`lr_mode`).
    pub mode: u64,
    /// Owner (`lr_uid`).
    pub uid: u64,
    /// Group (`lr_gid`).
    pub gid: u64,
    /// Size (`lr_size`).
    pub size: u64,
    /// Access time: seconds, nanoseconds (`lr_atime`).
    pub atime: [u64; 2],
    /// Modification time: seconds, nanoseconds (`lr_mtime`).
    pub mtime: [u64; 2],
    /// Optional attributes, if the mask has them.
    pub xvattr: Option<Xvattr>,
    /// Domains of owner and group.
    pub domains: Vec<Vec<u8>>,
}

/// A cloned range (`lr_clone_range_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClonedRange {
    /// Object to which the range was cloned (`lr_foid`).
    pub foid: u64,
    /// Start of the range in bytes (`lr_offset`).
    pub offset: u64,
    /// Bytes in the range (`lr_length`).
    pub length: u64,
    /// Block size of the file (`lr_blksz`).
    pub blksz: u64,
    /// The cloned blocks (`lr_bps`).
    pub blkptrs: Vec<Blkptr>,
}

/// Content of a record after its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordBody {
    /// A commit marker.
    Commit,
    /// A new object of any kind.
    Create(Create),
    /// The removal of a name, of a file or a directory (`lr_remove_t`).
    Remove {
        /// Object of the directory.
        doid: u64,
        /// Name of the entry.
        name: Vec<u8>,
    },
    /// A hard link (`lr_link_t`).
    Link {
        /// Object of the directory.
        doid: u64,
        /// Object of the file.
        link_obj: u64,
        /// Name of the entry.
        name: Vec<u8>,
    },
    /// A rename of any kind.
    Rename(Rename),
    /// A write, with its data or a block.
    Write(Write),
    /// A freed range (`lr_truncate_t`).
    Truncate {
        /// Object of the file.
        foid: u64,
        /// Start of the range in bytes.
        offset: u64,
        /// Bytes in the range; 0 means to the end of the file.
        length: u64,
    },
    /// A change of attributes.
    Setattr(Setattr),
    /// A change of an ACL (`lr_acl_v0_t`, `lr_acl_t`). The entries of version 0 are ACEs of 12
    /// bytes.
    Acl {
        /// Object of the file.
        foid: u64,
        /// The new ACL.
        acl: AclLog,
    },
    /// A change of an extended attribute among the system attributes (`lr_setsaxattr_t`).
    SetSaXattr {
        /// Object of the file.
        foid: u64,
        /// Name of the extended attribute.
        name: Vec<u8>,
        /// Value of the extended attribute; `None` removes it.
        value: Option<Vec<u8>>,
    },
    /// A clone of a range.
    CloneRange(ClonedRange),
}

/// A record of the log (`lr_t` and what follows it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Header of the record.
    pub header: RecordHeader,
    /// Content of the record.
    pub body: RecordBody,
}

/// Reads and checks the length of the record at the start of `buf`.
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

/// Header of a record, which is never encrypted (`lr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind of the record (`lrc_txtype`).
    pub kind: TxKind,
    /// True if name look-ups ignored case (`TX_CI`).
    pub ci: bool,
    /// Length of the record in bytes (`lrc_reclen`).
    pub reclen: usize,
    /// Transaction group of the record (`lrc_txg`).
    pub txg: u64,
    /// Sequence number of the record (`lrc_seq`).
    pub seq: u64,
}

impl RecordHeader {
    /// Decodes the header of the record at the start of `buf`.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` has fewer than 32 bytes.
    /// * [`Corrupt::Range`]: the type is unknown, or the length is not a multiple of 8 from 32 to
    ///   the length of `buf`.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let reclen = length(buf)?;
        let kind = TxKind::from_disk(le64(buf, 0) & !TX_CI)?;
        Ok(Self { kind, ci: le64(buf, 0) & TX_CI != 0, reclen, txg: le64(buf, 16), seq: le64(buf, 24) })
    }

    /// The block of an indirect write, which is never encrypted; `None` for other records.
    ///
    /// `buf` starts with the record of this header.
    ///
    /// # Errors
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: the block pointer has a fault that
    ///   [`Blkptr::decode`] lists.
    ///
    /// # Panics
    /// If `buf` is shorter than the record.
    pub fn blkptr(&self, buf: &[u8]) -> Result<Option<Blkptr>> {
        if self.kind != TxKind::Write || self.reclen != LR_WRITE_SIZE {
            return Ok(None);
        }
        Blkptr::decode(&buf[64..LR_WRITE_SIZE]).map(Some)
    }

    /// The blocks of a clone, which are never encrypted; empty for other records.
    ///
    /// `buf` starts with the record of this header.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the record is shorter than its fixed part.
    /// * [`Corrupt::Range`]: the record counts more blocks than it has space for.
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: a block pointer has a fault that
    ///   [`Blkptr::decode`] lists.
    ///
    /// # Panics
    /// If `buf` is shorter than the record.
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

/// The part of a record after its fixed words, in the byte order of its writer.
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

    /// Takes a string that ends with a NUL.
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

    /// Takes the domains of owner and group: one for each that has a domain index, one in all if
    /// they share it.
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
    /// Decodes the record at the start of `raw`. [`Records::new`](super::Records::new) explains
    /// `foreign`.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than 32 bytes, or a part of the record passes its
    ///   end.
    /// * [`Corrupt::Range`]: the type is unknown, or the length or one of the counts is impossible.
    /// * [`Corrupt::Shape`]: a name has no NUL.
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: a block pointer has a fault that
    ///   [`Blkptr::decode`] lists.
    pub fn decode(raw: &[u8], foreign: bool) -> Result<Self> {
        let header = RecordHeader::decode(raw)?;
        let body = Self::body(header.kind, &raw[..header.reclen], foreign)?;
        Ok(Self { header, body })
    }

    fn body(kind: TxKind, raw: &[u8], foreign: bool) -> Result<RecordBody> {
        use TxKind as T;
        let fixed = |n: usize| split_fixed(raw, n, foreign);
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
                let (w, t) = fixed(2)?;
                RecordBody::Acl { foid: w[0], acl: acl_v0(w[1], t)? }
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
                RecordBody::CloneRange(cloned_range(&w, &raw[72..])?)
            }
        })
    }
}

/// Splits a record after its header: the first `n` words, and the rest in its writer's byte order.
fn split_fixed(raw: &[u8], n: usize, foreign: bool) -> Result<(Vec<u64>, Tail)> {
    let need = 32 + n * 8;
    if raw.len() < need {
        return Err(Corrupt::Truncated { what: WHAT, need, have: raw.len() });
    }
    let words = (0..n).map(|i| le64(raw, 32 + i * 8)).collect();
    let mut bytes = raw[need..].to_vec();
    let order = if foreign { ByteOrder::Big } else { ByteOrder::Little };
    if foreign {
        swap64(&mut bytes);
    }
    Ok((words, Tail { bytes, at: 0, order }))
}

/// An ACL of version 0: entries of 12 bytes each. The record is padded to whole words.
fn acl_v0(count: u64, mut tail: Tail) -> Result<AclLog> {
    let range = Corrupt::Range { what: WHAT, field: "ACL entries", value: count };
    let bytes = count.checked_mul(12).ok_or(range)?;
    let aces = tail.take(usize::try_from(bytes).unwrap_or(usize::MAX))?.to_vec();
    Ok(AclLog { count, flags: 0, aces, fuids: Vec::new(), domains: Vec::new() })
}

/// The words of a `TX_CLONE_RANGE` record, and the block pointers that follow them.
fn cloned_range(w: &[u64], rest: &[u8]) -> Result<ClonedRange> {
    if w[4] > (rest.len() / BLKPTR_SIZE) as u64 {
        return Err(Corrupt::Range { what: WHAT, field: "block pointers", value: w[4] });
    }
    let blkptrs =
        rest.chunks_exact(BLKPTR_SIZE).take(w[4] as usize).map(Blkptr::decode).collect::<Result<_>>()?;
    Ok(ClonedRange { foid: w[0], offset: w[1], length: w[2], blksz: w[3], blkptrs })
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
    // Numbers of Linux (`ATTR_*`).
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
