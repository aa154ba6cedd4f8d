//! What an AFS volume keeps with each file and directory beside the attributes of the ZPL.
//!
//! # Theory
//! A volume of an AFS cell is a file system whose master node has the entry [`MARK`]. Clients of a
//! cell keep what they have read until the server reports a change, and compare versions of
//! data. So each change of a node must change its version in the same transaction, whichever front
//! end made it. That is why the ZPL does it (`write::update`), and not the file server.
//!
//! The version counts changes of a file's contents, and of a directory's entries. An operation
//! counts once for each file and directory, a replay once for each record of the log. Changes of
//! attributes leave it alone, and planted files have the version that they are given.
//!
//! # On disk
//! The system attribute `POOLHOUSE_AFS`, little-endian. OpenZFS keeps attributes that it doesn't
//! know, and doesn't use them.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | layout: 1 |
//! | 4 | 4 | author: the user who changed the contents last |
//! | 8 | 8 | version of the data |
//! | 16 | 8 | time of the last change by the server, in seconds since 1970 |
//! | 24 | | directories: the access list, in the file server's form |
//!
//! The header of the volume is in the bonus of an object of its own, whose number is the entry
//! `POOLHOUSE_AFS_HEADER_OBJECT` of the master node. Two bytes with its length come first, and
//! zeros follow it up to 320 bytes. So the dnodes that each opening reads bring it.
//!
//! A longer header is the entry `POOLHOUSE_AFS_HEADER` of the master node, which is a fat ZAP then.
//! That entry counts if it is there. Volumes of former releases have no such object.
//!
//! # Absent
//! * Access lists, callbacks and the numbers of vnodes are the file server's.
//! * The intent log has no authors. A file that a replay makes has its directory's author.
//! * A volume of another layout is a file system without status.

use crate::{FileSystem, Node, Result, Time};
use dmu::zap::{Value, Zap};
use dmu::{Dnode, NewObject, Objset, Tx};
use ondisk::sa::Attr as Sa;
use ondisk::{Corrupt, DmuType, ObjNum};

/// The entry of the master node that marks a volume. Its value is [`LAYOUT`].
pub(crate) const MARK: &str = "POOLHOUSE_AFS";
/// The entry of the master node with the header of a volume that has no place in a bonus.
pub(crate) const HEADER: &str = "POOLHOUSE_AFS_HEADER";
/// The entry of the master node with the number of the object in whose bonus the header is.
const HEADER_OBJECT: &str = "POOLHOUSE_AFS_HEADER_OBJECT";
/// Bytes of that bonus: all that one slot has.
const HEADER_BONUS: usize = 320;
/// The layout that this release writes and reads.
pub(crate) const LAYOUT: u32 = 1;
/// Bytes before the access list.
const HEAD: usize = 24;
/// Longest access list in bytes.
const ACCESS_LIST_MAX: usize = 512;
const WHAT: &str = "AFS status";

/// The number of a user or group in a cell's protection database.
pub type AfsUser = i32;

/// For whom a handle of a file system changes a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AfsCaller {
    /// The author of the changes.
    user: AfsUser,
    /// Changes of contents count in the version.
    counts: bool,
}

/// The status of a vnode beside that of its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AfsStatus {
    /// The user who changed the contents last.
    pub author: AfsUser,
    /// The version of the contents (`dataVersion`).
    pub data_version: u64,
    /// When the server last changed the vnode, in seconds since 1970 (`serverModifyTime`).
    pub server_mtime: u64,
    /// The access list of a directory, in the file server's form; empty for other files.
    pub access_list: Vec<u8>,
}

/// The root directory of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AfsRoot {
    /// Its object.
    pub object: ObjNum,
    /// Its generation: the uniquifier of the vnode.
    pub generation: u64,
    /// Its status.
    pub status: AfsStatus,
    /// The header of the volume ([`FileSystem::afs_header`]). Empty: it gets one later.
    pub header: Vec<u8>,
}

/// The bonus with this header; `None` if it is too long. No bytes mean that there is no header.
pub(crate) fn header_bonus(header: &[u8]) -> Option<Vec<u8>> {
    let mut bonus = Vec::with_capacity(HEADER_BONUS);
    bonus.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bonus.extend_from_slice(header);
    (bonus.len() <= HEADER_BONUS).then(|| {
        bonus.resize(HEADER_BONUS, 0);
        bonus
    })
}

fn word(head: &[u8; HEAD], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| head[at + i]))
}

fn half(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| head[at + i]))
}

impl AfsStatus {
    /// Parses the attribute.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: it is too short.
    /// * [`Corrupt::Range`]: the layout is unknown, or the access list is too long.
    pub fn decode(raw: &[u8]) -> std::result::Result<Self, Corrupt> {
        let (head, access_list) = Self::split(raw)?;
        Ok(Self {
            author: half(head, 4).cast_signed(),
            data_version: word(head, 8),
            server_mtime: word(head, 16),
            access_list: access_list.to_vec(),
        })
    }

    /// [`AfsStatus::server_mtime`] alone, without a copy of the access list.
    ///
    /// # Errors
    /// Those of [`AfsStatus::decode`].
    pub(crate) fn server_mtime_of(raw: &[u8]) -> std::result::Result<u64, Corrupt> {
        Ok(word(Self::split(raw)?.0, 16))
    }

    /// The fixed part of the attribute, and the access list.
    fn split(raw: &[u8]) -> std::result::Result<(&[u8; HEAD], &[u8]), Corrupt> {
        let (Some(head), Some(access_list)) = (raw.first_chunk::<HEAD>(), raw.get(HEAD..)) else {
            return Err(Corrupt::Truncated { what: WHAT, need: HEAD, have: raw.len() });
        };
        let range = |field, value| Corrupt::Range { what: WHAT, field, value };
        if half(head, 0) != LAYOUT {
            return Err(range("layout", half(head, 0).into()));
        }
        if access_list.len() > ACCESS_LIST_MAX {
            return Err(range("access list", access_list.len() as u64));
        }
        Ok((head, access_list))
    }

    /// The attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(HEAD + self.access_list.len());
        raw.extend_from_slice(&LAYOUT.to_le_bytes());
        raw.extend_from_slice(&self.author.to_le_bytes());
        raw.extend_from_slice(&self.data_version.to_le_bytes());
        raw.extend_from_slice(&self.server_mtime.to_le_bytes());
        raw.extend_from_slice(&self.access_list);
        raw
    }

    /// That of a new file. A new directory gets a copy of its parent's access list.
    pub(crate) fn of_new(parent: &Node, directory: bool, author: Option<AfsUser>, now: Time) -> Result<Self> {
        let above = parent.afs_status_to_change()?.unwrap_or_default();
        Ok(Self {
            author: author.unwrap_or(above.author),
            data_version: 0,
            server_mtime: now.secs.try_into().unwrap_or(0),
            access_list: if directory { above.access_list } else { Vec::new() },
        })
    }

    /// After a change; `contents` tells whether the contents changed.
    pub(crate) fn changed(mut self, contents: bool, author: Option<AfsUser>, now: Time) -> Self {
        if contents {
            self.data_version = self.data_version.wrapping_add(1);
            self.author = author.unwrap_or(self.author);
        }
        self.server_mtime = now.secs.try_into().unwrap_or(0);
        self
    }
}

impl FileSystem {
    /// True if the file system is a volume of an AFS cell.
    pub fn is_afs(&self) -> bool {
        self.0.afs
    }

    /// The same file system for changes by a user of the cell, who becomes the author of what is
    /// changed through it.
    pub fn by_afs_user(&self, user: AfsUser) -> FileSystem {
        FileSystem(self.0.clone(), Some(AfsCaller { user, counts: true }))
    }

    /// The same file system for the further steps of an operation whose first step has raised the
    /// version of the file.
    ///
    /// A client's store may be larger than a transaction, and raises the version by one. So this is
    /// for the file server alone.
    pub fn by_afs_user_again(&self, user: AfsUser) -> FileSystem {
        FileSystem(self.0.clone(), Some(AfsCaller { user, counts: false }))
    }

    /// The header of the volume, in the file server's form; `None` if it has none yet.
    ///
    /// # Errors
    /// * [`crate::Error::Dmu`]: the master node can't be read.
    pub fn afs_header(&self) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.master().lookup(HEADER.as_bytes())? {
            return Ok(Some(value.iter().map(|byte| byte as u8).collect()));
        }
        let Some(object) = self.header_object()? else { return Ok(None) };
        let dn = object.reload()?;
        let Some((len, header)) = dn.bonus().split_first_chunk() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*len));
        let corrupt = || dn.corrupt(Corrupt::Range { what: WHAT, field: "header", value: len as u64 });
        let header = header.get(..len).ok_or_else(corrupt)?;
        Ok((len > 0).then(|| header.to_vec()))
    }

    /// The object in whose bonus the header is.
    pub(crate) fn header_object(&self) -> Result<Option<Dnode>> {
        match self.master().lookup_u64(HEADER_OBJECT.as_bytes())? {
            Some(object) => Ok(Some(self.objset().dnode(ObjNum(object))?)),
            None => Ok(None),
        }
    }

    pub(crate) fn afs_author(&self) -> Option<AfsUser> {
        self.1.map(|caller| caller.user)
    }

    /// Whether a change of contents raises the version.
    pub(crate) fn counts_versions(&self) -> bool {
        self.1.is_none_or(|caller| caller.counts)
    }

    /// Makes an empty file system a volume, in the transaction that creates it. `object` is for its
    /// header.
    pub(crate) fn mark_afs(
        os: &Objset,
        master: &Zap,
        tx: &Tx,
        (object, header): (ObjNum, &[u8]),
    ) -> Result<()> {
        let (kind, bonus) = (DmuType::UINT8_METADATA, header_bonus(header));
        if bonus.is_none() {
            master.add(tx, HEADER.as_bytes(), &Value::bytes(header))?;
        }
        let bonus = bonus.unwrap_or_else(|| vec![0; HEADER_BONUS]);
        os.claim_object(tx, object, &NewObject::new(kind).with_bonus(kind, bonus))?;
        master.add(tx, HEADER_OBJECT.as_bytes(), &Value::from(object.0))?;
        Ok(master.add(tx, MARK.as_bytes(), &Value::from(u64::from(LAYOUT)))?)
    }
}

impl Node {
    /// The status, if a change is to change it. A malformed one stays as it is: it must not keep a
    /// user from changing or removing the file.
    pub(crate) fn afs_status_to_change(&self) -> Result<Option<AfsStatus>> {
        match self.afs_status() {
            Err(crate::Error::Corrupt { .. }) => Ok(None),
            status => status,
        }
    }

    /// What an AFS volume keeps with this file; `None` outside of volumes.
    ///
    /// # Errors
    /// * [`crate::Error::Corrupt`]: the attribute is malformed.
    /// * [`crate::Error::Dmu`]: its spill block can't be read.
    pub fn afs_status(&self) -> Result<Option<AfsStatus>> {
        let crate::node::Store::Sa(sa) = &self.store else { return Ok(None) };
        let Some(raw) = sa.get(Sa::Afs)? else { return Ok(None) };
        let corrupt = |source| crate::Error::Corrupt { object: self.object(), source };
        AfsStatus::decode(&raw).map(Some).map_err(corrupt)
    }
}
