//! Shows a file: its path and its attributes.

use super::ctx::{Ctx, Run};
use super::files::{File, Files};
use super::path;
use super::view::View;
use dmu::Dnode;
use ondisk::Nvlist;
use ondisk::fuid::Fuid;
use ondisk::sa::Attr;
use ondisk::znode::Pflags;

/// Longest symbolic link to show (`MAXPATHLEN`).
const MAXPATHLEN: usize = 4096;
const S_IFMT: u64 = 0o170_000;
const S_IFLNK: u64 = 0o120_000;

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
