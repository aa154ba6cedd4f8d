//! The files of an object set: their attributes, stored as system attributes or in the old format.

use super::ctx::Run;
use super::text::lossy;
use dmu::sa::{Attrs, Sa};
use dmu::zap::Zap;
use dmu::{Dnode, Objset};
use ondisk::sa::Attr;
use ondisk::znode::Znode;
use ondisk::{DmuType, Nvlist, ObjNum};
use std::collections::BTreeMap;

/// The master node of a file system (`MASTER_NODE_OBJ`).
const MASTER_NODE_OBJ: ObjNum = ObjNum(1);

/// The facts about an object set that its files need.
#[derive(Debug)]
pub struct Files {
    sa: Sa,
    /// The ZAP of files that are unlinked and wait to be removed (`ZFS_UNLINKED_SET`).
    pub unlinked: Option<ObjNum>,
    pub(super) domains: BTreeMap<u32, String>,
}

impl Files {
    /// Reads the master node and the objects that it names.
    pub fn load(os: &Objset) -> Run<Self> {
        let master = Zap::open(&os.dnode(MASTER_NODE_OBJ)?)?;
        let sa = Sa::load(os, master.lookup_u64(b"SA_ATTRS")?.map(ObjNum));
        // The registry of a locked file system is encrypted too, and none of its files will be
        // shown.
        let sa = match sa {
            Err(dmu::Error::Read(zio::Error::Key { .. })) => Sa::load(os, None)?,
            r => r?,
        };
        let unlinked = master.lookup_u64(b"DELETE_QUEUE")?.map(ObjNum);
        let domains = match master.lookup_u64(b"FUID")? {
            Some(object) => domains(os, ObjNum(object)).unwrap_or_default(),
            None => BTreeMap::new(),
        };
        Ok(Files { sa, unlinked, domains })
    }

    /// Reads the attributes of a file.
    pub fn attrs(&self, dn: &Dnode) -> Run<File> {
        if dn.bonus_kind() == DmuType::ZNODE {
            let z = Znode::parse(dn.bonus()).map_err(|e| dn.corrupt(e))?;
            return Ok(File::Old(Box::new(z)));
        }
        Ok(File::Sa(Box::new(self.sa.attrs(dn)?)))
    }
}

/// The domains of foreign user ids, by index (`zfs_fuid_table_load`).
fn domains(os: &Objset, object: ObjNum) -> Run<BTreeMap<u32, String>> {
    let dn = os.dnode(object)?;
    let mut buf = vec![0; dn.max_size().min(1 << 24) as usize];
    dn.read_at(0, &mut buf)?;
    let list = Nvlist::decode(&buf).map_err(|e| dn.corrupt(e))?;
    let all = list.lists("fuid_nvlist").unwrap_or(&[]);
    let one = |l: &Nvlist| Some((l.u64("fuid_idx")? as u32, lossy(l.string("fuid_domain")?).into_owned()));
    Ok(all.iter().filter_map(one).collect())
}

/// The attributes of a file, in the format in which they are stored.
pub enum File {
    /// `znode_phys_t`.
    Old(Box<Znode>),
    /// System attributes.
    Sa(Box<Attrs>),
}

impl File {
    /// An attribute of one word; `None` if the file lacks it.
    pub fn u64(&self, attr: Attr) -> Run<Option<u64>> {
        let z = match self {
            File::Sa(a) => return Ok(a.u64(attr)?),
            File::Old(z) => z,
        };
        Ok(Some(match attr {
            Attr::Gen => z.generation,
            Attr::Mode => z.mode,
            Attr::Size => z.size,
            Attr::Parent => z.parent.0,
            Attr::Links => z.links,
            Attr::Xattr => z.xattr.0,
            Attr::Rdev => z.rdev,
            Attr::Flags => z.flags.0,
            Attr::Uid => z.uid,
            Attr::Gid => z.gid,
            _ => return Ok(None),
        }))
    }

    pub(super) fn time(&self, attr: Attr) -> Run<Option<[u64; 2]>> {
        let z = match self {
            File::Sa(a) => return Ok(a.pair(attr)?),
            File::Old(z) => z,
        };
        Ok(Some(match attr {
            Attr::Atime => z.atime,
            Attr::Mtime => z.mtime,
            Attr::Ctime => z.ctime,
            Attr::Crtime => z.crtime,
            _ => return Ok(None),
        }))
    }

    pub(super) fn bytes(&self, attr: Attr) -> Run<Option<Vec<u8>>> {
        match self {
            File::Sa(a) => Ok(a.get(attr)?.map(|v| v.into_owned()).filter(|v| !v.is_empty())),
            File::Old(_) => Ok(None),
        }
    }
}
