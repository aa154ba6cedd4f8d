//! Files: the attributes of a znode, stored as system attributes or in the old format.

use super::objset::View;
use super::text::lossy;
use super::{Ctx, Run, path};
use dmu::sa::{Attrs, Sa};
use dmu::zap::Zap;
use dmu::{Dnode, Objset};
use ondisk::fuid::Fuid;
use ondisk::sa::Attr;
use ondisk::znode::{Pflags, Znode};
use ondisk::{DmuType, Nvlist, ObjNum};
use std::collections::BTreeMap;

/// The master node of a file system (`MASTER_NODE_OBJ`).
const MASTER_NODE_OBJ: ObjNum = ObjNum(1);
/// Longest symbolic link to show (`MAXPATHLEN`).
const MAXPATHLEN: usize = 4096;
const S_IFMT: u64 = 0o170_000;
const S_IFLNK: u64 = 0o120_000;

/// The facts about an object set that its files need.
#[derive(Debug)]
pub struct Files {
    sa: Sa,
    /// The ZAP of files that are unlinked and wait to be removed (`ZFS_UNLINKED_SET`).
    pub unlinked: Option<ObjNum>,
    domains: BTreeMap<u32, String>,
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

    fn time(&self, attr: Attr) -> Run<Option<[u64; 2]>> {
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

    fn bytes(&self, attr: Attr) -> Run<Option<Vec<u8>>> {
        match self {
            File::Sa(a) => Ok(a.get(attr)?.map(|v| v.into_owned()).filter(|v| !v.is_empty())),
            File::Old(_) => Ok(None),
        }
    }
}

/// Shows the attributes of a file (`dump_znode`).
pub fn show(cx: &mut Ctx<'_>, view: &mut View<'_>, dn: &Dnode) -> Run {
    let Some(files) = &view.files else {
        cx.out.put("Failed to get handle for SA znode\n");
        return Ok(());
    };
    let file = files.attrs(dn)?;
    let mut words = [0; 8];
    let wanted =
        [Attr::Uid, Attr::Gid, Attr::Links, Attr::Gen, Attr::Mode, Attr::Parent, Attr::Size, Attr::Flags];
    for (slot, attr) in words.iter_mut().zip(wanted) {
        // An object that lacks one of these is no file.
        let Some(v) = file.u64(attr)? else { return Ok(()) };
        *slot = v;
    }
    let [uid, gid, links, generation, mode, parent, size, pflags] = words;
    let mut times = Vec::new();
    for (name, attr) in
        [("atime", Attr::Atime), ("mtime", Attr::Mtime), ("ctime", Attr::Ctime), ("crtime", Attr::Crtime)]
    {
        let Some(t) = file.time(attr)? else { return Ok(()) };
        times.push((name, t[0]));
    }
    if cx.opts.count('d') > 4 {
        let found = path::of(&view.os, files, dn.object());
        cx.out.put("\tpath	");
        match found {
            path::Found::Path(p) => cx.out.put_bytes(&p),
            path::Found::Unlinked => cx.out.put("on delete queue"),
            path::Found::Lost => {
                view.leaked += 1;
                cx.out.put("path not found, possibly leaked");
            }
        }
        cx.out.put("\n");
    }
    if mode & S_IFMT == S_IFLNK {
        symlink(cx, &file)?;
    }
    let files = view.files.as_ref().expect("it was there above");
    id(cx, files, "uid", uid);
    id(cx, files, "gid", gid);
    for (name, t) in times {
        let text = cx.clock.ctime(t);
        writeln!(cx.out, "\t{name}\t{text}");
    }
    writeln!(cx.out, "\tgen\t{generation}");
    writeln!(cx.out, "\tmode\t{mode:o}");
    writeln!(cx.out, "\tsize\t{size}");
    writeln!(cx.out, "\tparent\t{parent}");
    writeln!(cx.out, "\tlinks\t{links}");
    writeln!(cx.out, "\tpflags\t{pflags:x}");
    let accounted = view.os.phys().projectused.is_some();
    if let Some(p) = file.u64(Attr::Projid)?.filter(|_| accounted && Pflags(pflags).has(Pflags::PROJID)) {
        writeln!(cx.out, "\tprojid\t{p}");
    }
    if let Some(x) = file.u64(Attr::Xattr)? {
        writeln!(cx.out, "\txattr\t{x}");
    }
    if let Some(r) = file.u64(Attr::Rdev)? {
        writeln!(cx.out, "\trdev\t{r:#018x}");
    }
    xattrs(cx, &file)
}

fn id(cx: &mut Ctx<'_>, files: &Files, name: &str, id: u64) {
    let fuid = Fuid(id);
    match fuid.domain() {
        0 => writeln!(cx.out, "\t{name}     {id}"),
        domain => {
            let domain = files.domains.get(&domain).map_or("", String::as_str);
            writeln!(cx.out, "\t{name}     {id:x} [{domain}-{}]", fuid.rid() as i32);
        }
    }
}

fn symlink(cx: &mut Ctx<'_>, file: &File) -> Run {
    let Some(target) = file.bytes(Attr::Symlink)? else { return Ok(()) };
    if target.len() >= MAXPATHLEN {
        writeln!(cx.out, "symlink size {} is too large", target.len());
        return Ok(());
    }
    let end = target.iter().position(|b| *b == 0).unwrap_or(target.len());
    cx.out.put("\ttarget	");
    cx.out.put_bytes(&target[..end]);
    cx.out.put("\n");
    Ok(())
}

fn xattrs(cx: &mut Ctx<'_>, file: &File) -> Run {
    let Some(packed) = file.bytes(Attr::Dxattr)? else { return Ok(()) };
    let Ok(list) = Nvlist::decode(&packed) else { return Ok(()) };
    writeln!(cx.out, "\tSA xattrs: {} bytes, {} entries\n", packed.len(), list.len());
    for (name, value) in list.iter() {
        let value: &[u8] = match value {
            ondisk::Value::ByteArray(v) => v,
            _ => &[],
        };
        cx.out.put("\t\t");
        cx.out.put_bytes(name);
        cx.out.put(" = ");
        let printable = !cx.numbers.exact && value.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
        if printable {
            cx.out.put_bytes(value);
        } else {
            value.iter().for_each(|b| write!(cx.out, "\\{b:03o}"));
        }
        cx.out.put("\n");
    }
    Ok(())
}
