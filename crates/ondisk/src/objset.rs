//! Object sets: the root block of a dataset or of the MOS (`objset_phys_t`).

use crate::dnode::DnodePhys;
use crate::{ByteOrder, Corrupt, Result};

/// Bytes of an object set before user accounting (`OBJSET_PHYS_SIZE_V1`).
pub const OBJSET_PHYS_SIZE_V1: usize = 1024;
/// Bytes of an object set with user and group accounting (`OBJSET_PHYS_SIZE_V2`).
pub const OBJSET_PHYS_SIZE_V2: usize = 2048;
/// Bytes of an object set with project accounting (`OBJSET_PHYS_SIZE_V3`).
pub const OBJSET_PHYS_SIZE_V3: usize = 4096;
/// Offset and length of the intent log header in the object set (`os_zil_header`).
pub const ZIL_HEADER: std::ops::Range<usize> = 512..704;
/// Offset and length of the portable MAC (`os_portable_mac`).
pub const PORTABLE_MAC: std::ops::Range<usize> = 720..752;
/// Offset and length of the local MAC (`os_local_mac`).
pub const LOCAL_MAC: std::ops::Range<usize> = 752..784;

const WHAT: &str = "object set";

/// Content of an object set (`dmu_objset_type_t`, `DMU_OST_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjsetKind {
    /// Nothing yet (`DMU_OST_NONE`).
    None,
    /// The pool's own objects: the MOS (`DMU_OST_META`).
    Meta,
    /// A POSIX file system (`DMU_OST_ZFS`).
    Zfs,
    /// A block volume (`DMU_OST_ZVOL`).
    Zvol,
    /// Objects of OpenZFS's own tests (`DMU_OST_OTHER`, `ztest`).
    Other,
}

/// Flags of an object set (`os_flags`, `OBJSET_FLAG_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ObjsetFlags(pub u64);

impl ObjsetFlags {
    /// User and group accounting of space is complete.
    pub const USERACCOUNTING_COMPLETE: u64 = 1;
    /// User and group accounting of objects is complete.
    pub const USEROBJACCOUNTING_COMPLETE: u64 = 2;
    /// Accounting by project is complete.
    pub const PROJECTQUOTA_COMPLETE: u64 = 4;
}

/// What a file system counts besides space by user and group, and the features for it.
pub const ACCOUNTING_FEATURES: [(u64, &str); 2] = [
    (ObjsetFlags::USEROBJACCOUNTING_COMPLETE, "userobj_accounting"),
    (ObjsetFlags::PROJECTQUOTA_COMPLETE, "project_quota"),
];

/// A checked object set (`objset_phys_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjsetPhys {
    /// The dnode whose data are the object set's dnodes (`os_meta_dnode`).
    pub meta_dnode: DnodePhys,
    /// The intent log header as stored, which [`crate::zil`] decodes (`os_zil_header`).
    pub zil_header: [u8; 192],
    /// Content of the object set (`os_type`).
    pub kind: ObjsetKind,
    /// Flags of the object set (`os_flags`).
    pub flags: ObjsetFlags,
    /// MAC over the parts that a raw send stream carries (`os_portable_mac`).
    pub portable_mac: [u8; 32],
    /// MAC over the accounting dnodes (`os_local_mac`).
    pub local_mac: [u8; 32],
    /// Space by user, if the object set has the accounting (`os_userused_dnode`).
    pub userused: Option<DnodePhys>,
    /// Space by group, if the object set has the accounting (`os_groupused_dnode`).
    pub groupused: Option<DnodePhys>,
    /// Space by project, if the object set has the accounting (`os_projectused_dnode`).
    pub projectused: Option<DnodePhys>,
}

impl ObjsetPhys {
    /// Decodes a little-endian object set of any of its three sizes.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than [`OBJSET_PHYS_SIZE_V1`] bytes.
    /// * [`Corrupt::Range`]: the type is unknown.
    /// * [`Corrupt::Shape`]: the meta-dnode is a free slot.
    /// * [`Corrupt::Truncated`], [`Corrupt::Range`] and [`Corrupt::Shape`]: a dnode has a fault
    ///   that [`DnodePhys::decode`] lists.
    pub fn decode(raw: &[u8]) -> Result<ObjsetPhys> {
        if raw.len() < OBJSET_PHYS_SIZE_V1 {
            return Err(Corrupt::Truncated { what: WHAT, need: OBJSET_PHYS_SIZE_V1, have: raw.len() });
        }
        let le = ByteOrder::Little;
        let kind = match le.u64(WHAT, raw, 704)? {
            0 => ObjsetKind::None,
            1 => ObjsetKind::Meta,
            2 => ObjsetKind::Zfs,
            3 => ObjsetKind::Zvol,
            4 => ObjsetKind::Other,
            value => return Err(Corrupt::Range { what: WHAT, field: "os_type", value }),
        };
        let dnode_at = |at: usize| match raw.get(at..at + 512) {
            Some(d) => DnodePhys::decode(d),
            None => Ok(None),
        };
        let bytes = |r: std::ops::Range<usize>| {
            let mut b = [0; 32];
            b.copy_from_slice(&raw[r]);
            b
        };
        let mut zil_header = [0; 192];
        zil_header.copy_from_slice(&raw[ZIL_HEADER]);
        Ok(ObjsetPhys {
            meta_dnode: dnode_at(0)?.ok_or(Corrupt::Shape { what: WHAT, why: "no meta dnode" })?,
            zil_header,
            kind,
            flags: ObjsetFlags(le.u64(WHAT, raw, 712)?),
            portable_mac: bytes(PORTABLE_MAC),
            local_mac: bytes(LOCAL_MAC),
            userused: dnode_at(1024)?,
            groupused: dnode_at(1536)?,
            projectused: dnode_at(2048)?,
        })
    }

    /// Encodes the object set for pools before version 15, without accounting.
    ///
    /// With `sectors`, for pools before version 3, the space of the meta-dnode is counted in
    /// sectors.
    ///
    /// # Panics
    /// In the cases that [`ObjsetPhys::encode`] lists.
    pub fn encode_old(&self, sectors: bool) -> Vec<u8> {
        let mut raw = self.encode();
        raw.truncate(OBJSET_PHYS_SIZE_V1);
        if sectors {
            raw[..512].copy_from_slice(&self.meta_dnode.encode_sectors());
        }
        raw
    }

    /// Encodes the object set, little-endian, with space for project accounting.
    ///
    /// # Panics
    /// If a dnode has more than one slot, or in a case that [`DnodePhys::encode`] lists.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = vec![0; OBJSET_PHYS_SIZE_V3];
        let dnodes = [
            (0, Some(&self.meta_dnode)),
            (1024, self.userused.as_ref()),
            (1536, self.groupused.as_ref()),
            (2048, self.projectused.as_ref()),
        ];
        for (at, dnode) in dnodes {
            if let Some(d) = dnode {
                raw[at..at + 512].copy_from_slice(&d.encode());
            }
        }
        raw[ZIL_HEADER].copy_from_slice(&self.zil_header);
        let kind: u64 = match self.kind {
            ObjsetKind::None => 0,
            ObjsetKind::Meta => 1,
            ObjsetKind::Zfs => 2,
            ObjsetKind::Zvol => 3,
            ObjsetKind::Other => 4,
        };
        raw[704..712].copy_from_slice(&kind.to_le_bytes());
        raw[712..720].copy_from_slice(&self.flags.0.to_le_bytes());
        raw[PORTABLE_MAC].copy_from_slice(&self.portable_mac);
        raw[LOCAL_MAC].copy_from_slice(&self.local_mac);
        raw
    }
}
