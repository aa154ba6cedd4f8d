//! The contents of a new file system.
//!
//! # On disk
//! Object 1 is the master node, a ZAP. It holds the settings that never change. It also holds the
//! numbers of the root directory, of the list of unlinked files, and of the registry of system
//! attributes.

use dmu::sa::{SA_OBJECTS, Sa};
use dmu::zap::{Normalization, Value, Zap};
use dmu::{DnodesShape, NewObject, Objset, Tx};
use ondisk::sa::Attr;
use ondisk::zap::ZapFlags;
use ondisk::znode::{Pflags, ZNODE_SIZE};
use ondisk::{DmuType, ObjNum};

use crate::fs::{TOUPPER, ZPL_VERSION, ZPL_VERSION_SA};
use crate::write::znode;
use crate::{AfsRoot, CaseSensitivity};
use std::sync::Arc;

/// Object of the master node (`MASTER_NODE_OBJ`).
const MASTER_NODE_OBJ: ObjNum = ObjNum(1);
/// The objects of an AFS volume that each opening reads. They are in the block of dnodes of the
/// master node, as in file systems of the first releases of ZFS.
const VOLUME_SA: ObjNum = ObjNum(2);
const VOLUME_UNLINKED: ObjNum = ObjNum(VOLUME_SA.0 + SA_OBJECTS);
const VOLUME_HEADER: ObjNum = ObjNum(VOLUME_UNLINKED.0 + 1);
/// The dnodes of an AFS volume. There are no more than numbers of vnodes, so the tree needs fewer
/// levels than that of another file system: no first use reads the others, and no sync writes them.
pub const AFS_DNODES: DnodesShape = DnodesShape { indirect_shift: 16, objects: 1 << 32 };
/// `S_IFDIR | 0755`.
const MODE: u64 = 0o040_755;
/// More flags of the root: ACLs are inherited automatically (`ZFS_ACL_AUTO_INHERIT`), everyone may
/// execute (`ZFS_NO_EXECS_DENIED`), and attributes were changed (`ZFS_AV_MODIFIED`).
const MORE_FLAGS: u64 = 0x40 | 0x100 | 1 << 42;

/// The ACL equivalent to mode 0755: type, flags and mask of the entries for owner, group and
/// everyone (`zfs_acl_ids_create`).
const ACL_0755: [(u16, u16, u32); 3] =
    [(0, 0x1000, 0x1e_01ff), (0, 0x2040, 0x12_00a9), (0, 0x4000, 0x12_00a9)];

/// A new file system with an empty root directory (`zfs_create_fs`).
#[derive(Debug, Clone)]
pub struct NewFileSystem {
    /// Owner of the root directory.
    pub uid: u64,
    /// Group of the root directory.
    pub gid: u64,
    /// Creation time: seconds since 1970, and nanoseconds.
    pub now: (u64, u64),
    /// How the case of names is treated (`casesensitivity`).
    pub case: CaseSensitivity,
    /// How names are normalized, as the number of the property's value (`normalization`).
    pub normalization: u64,
    /// Names must be UTF-8 (`utf8only`); normalization implies it.
    pub utf8only: bool,
    /// The version of the file system, 1 to 5 (`version`).
    pub version: u64,
    /// Slots of the root directory's dnode (`dnodesize`). More than one needs the feature
    /// `large_dnode`.
    pub slots: u8,
    /// The root of an AFS volume, if it is one. A volume has the newest version.
    pub afs: Option<AfsRoot>,
}

impl NewFileSystem {
    /// A file system with all defaults, owned by root.
    pub fn new(now: (u64, u64)) -> Self {
        NewFileSystem {
            uid: 0,
            gid: 0,
            now,
            case: CaseSensitivity::Sensitive,
            normalization: 0,
            utf8only: false,
            version: ZPL_VERSION,
            slots: 1,
            afs: None,
        }
    }

    /// Writes the file system into a new object set.
    ///
    /// # Errors
    /// * [`crate::Error::Dmu`]: the object set is not open for changes, or is not empty.
    /// * [`crate::Error::Corrupt`]: the number of the normalization is unknown.
    pub fn fill(&self, os: &Objset, tx: &Tx) -> crate::Result<()> {
        let word = |n: u64| Value::integers(8, &[n]);
        if self.afs.is_some() {
            os.shape_dnodes(tx, AFS_DNODES)?;
        }
        let spec = NewObject::new(DmuType::MASTER_NODE);
        let plain = ZapFlags::default();
        let master = Zap::create_claim(os, tx, MASTER_NODE_OBJ, &spec, Normalization::NONE, plain)?;
        let case = match self.case {
            CaseSensitivity::Sensitive => 0,
            CaseSensitivity::Insensitive => 1,
            CaseSensitivity::Mixed => 2,
        };
        for (name, n) in [
            ("normalization", self.normalization),
            ("utf8only", u64::from(self.utf8only || self.normalization != 0)),
            ("casesensitivity", case),
            ("VERSION", self.version),
        ] {
            master.update(tx, name.as_bytes(), &word(n))?;
        }
        let sa = if self.version >= ZPL_VERSION_SA {
            let (sa, attrs) = Sa::create(os, tx, self.afs.as_ref().map(|_| VOLUME_SA))?;
            master.add(tx, b"SA_ATTRS", &word(attrs.0))?;
            Some(sa)
        } else {
            None
        };
        let unlinked = NewObject::new(DmuType::UNLINKED_SET);
        let unlinked = match &self.afs {
            Some(_) => Zap::create_claim(os, tx, VOLUME_UNLINKED, &unlinked, Normalization::NONE, plain)?,
            None => Zap::create(os, tx, &unlinked, Normalization::NONE, plain)?,
        };
        master.add(tx, b"DELETE_QUEUE", &word(unlinked.dnode().object().0))?;
        let root = self.root(os, tx, sa.as_ref())?;
        master.add(tx, b"ROOT", &word(root.0))?;
        if let Some(afs) = &self.afs {
            crate::FileSystem::mark_afs(os, &master, tx, (VOLUME_HEADER, &afs.header))?;
        }
        Ok(())
    }

    /// Creates the root directory, which is its own parent.
    fn root(&self, os: &Objset, tx: &Tx, sa: Option<&Sa>) -> crate::Result<ObjNum> {
        let fold = if self.case == CaseSensitivity::Sensitive { 0 } else { TOUPPER };
        let norm = Normalization::from_disk(self.normalization | fold)
            .map_err(|source| crate::Error::Corrupt { object: MASTER_NODE_OBJ, source })?;
        let (slots, bonus) = match sa {
            Some(_) => (self.slots, (DmuType::SA, Vec::new())),
            None => (1, (DmuType::ZNODE, vec![0; ZNODE_SIZE])),
        };
        let spec = NewObject { slots, ..NewObject::new(DmuType::DIRECTORY_CONTENTS) };
        let spec = spec.with_bonus(bonus.0, bonus.1);
        let zap = match &self.afs {
            Some(afs) => Zap::create_claim(os, tx, afs.object, &spec, norm, ZapFlags::default())?,
            None => Zap::create(os, tx, &spec, norm, ZapFlags::default())?,
        };
        let object = zap.dnode().object();
        let word = |n: u64| n.to_le_bytes();
        let (sec, nsec) = self.now;
        let now: Vec<u8> = [sec, nsec].iter().flat_map(|n| n.to_le_bytes()).collect();
        let aces: Vec<u8> = ACL_0755
            .iter()
            .flat_map(|(kind, flags, mask)| {
                let mut ace = [0; 8];
                ace[..2].copy_from_slice(&kind.to_le_bytes());
                ace[2..4].copy_from_slice(&flags.to_le_bytes());
                ace[4..].copy_from_slice(&mask.to_le_bytes());
                ace
            })
            .collect();
        let generation = self.afs.as_ref().map_or(tx.txg().0, |afs| afs.generation);
        let status = self.afs.as_ref().map(|afs| afs.status.encode());
        let attrs: [(Attr, &[u8]); 14] = [
            (Attr::Mode, &word(MODE)),
            (Attr::Size, &word(2)),
            (Attr::Gen, &word(generation)),
            (Attr::Uid, &word(self.uid)),
            (Attr::Gid, &word(self.gid)),
            (Attr::Parent, &word(object.0)),
            (Attr::Flags, &word(Pflags::ACL_TRIVIAL | Pflags::ARCHIVE | MORE_FLAGS)),
            (Attr::Atime, &now),
            (Attr::Mtime, &now),
            (Attr::Ctime, &now),
            (Attr::Crtime, &now),
            (Attr::Links, &word(2)),
            (Attr::DaclCount, &word(ACL_0755.len() as u64)),
            (Attr::DaclAces, &aces),
        ];
        let attrs: Vec<(Attr, &[u8])> =
            attrs.into_iter().chain(status.as_ref().map(|status| (Attr::Afs, &status[..]))).collect();
        let dn = os.dnode(object)?;
        match sa {
            Some(sa) => sa.replace(&dn, tx, &attrs)?,
            None => {
                let corrupt = |source| crate::Error::Corrupt { object, source };
                let (raw, _) = znode(&attrs, self.version).map_err(corrupt)?;
                dn.set_bonus(tx, DmuType::ZNODE, &raw)?;
            }
        }
        Ok(object)
    }
}

impl dsl::Contents for NewFileSystem {
    fn kind(&self) -> dsl::Kind {
        dsl::Kind::Filesystem
    }

    fn fill(&self, os: &Objset, tx: &Tx) -> Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        NewFileSystem::fill(self, os, tx).map_err(|e| Arc::new(e) as _)
    }
}
