//! `zdb -O` and `-r`: shows or copies a file by its path.
//!
//! # See
//! OpenZFS `dump_path`, `zdb_copy_object`.

use super::ctx::{Ctx, Run, Stop};
use super::object::{self, Header};
use super::opened::Opened;
use super::path::OBJ_MASK;
use super::view::{self, View};
use dmu::zap::Zap;
use dmu::{Dnode, Objset};
use dsl::Dataset;
use ondisk::sa::Attr;
use ondisk::{DmuType, ObjNum};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

/// The master node of a file system (`MASTER_NODE_OBJ`).
const MASTER_NODE_OBJ: ObjNum = ObjNum(1);
/// Number of bytes to copy at a time.
const CHUNK: u64 = 1 << 20;

/// Follows a path to its object (`dump_path_impl`).
///
/// # Errors
/// * [`Stop::Exit`]: the path can't be followed; the exit code is the error number.
/// * [`Stop::Failed`]: an object can't be read.
fn find(cx: &mut Ctx<'_>, os: &Objset, dataset: &str, path: &str) -> Run<Dnode> {
    let invalid = |cx: &mut Ctx<'_>, why: &dyn std::fmt::Display| {
        writeln!(cx.err, "{why}");
        Stop::Exit(22)
    };
    let root = Zap::open(&os.dnode(MASTER_NODE_OBJ)?).and_then(|master| master.lookup_u64(b"ROOT"));
    let mut object = match root {
        Ok(Some(root)) => ObjNum(root),
        Ok(None) => return Err(invalid(cx, &"can't lookup root znode: No such file or directory")),
        Err(e) => return Err(invalid(cx, &format!("can't lookup root znode: {e}"))),
    };
    let mut walked = format!("dataset={dataset} path=/");
    let mut parts = path.split('/').filter(|p| !p.is_empty()).peekable();
    if parts.peek().is_none() {
        return Ok(os.dnode(object)?);
    }
    while let Some(name) = parts.next() {
        walked += name;
        let found = Zap::open(&os.dnode(object)?).and_then(|dir| dir.lookup_u64(name.as_bytes()));
        object = match found {
            Ok(Some(entry)) => ObjNum(entry & OBJ_MASK),
            Ok(None) => {
                writeln!(cx.err, "failed to lookup {walked}: No such file or directory");
                return Err(Stop::Exit(2));
            }
            Err(e) => {
                writeln!(cx.err, "failed to lookup {walked}: {e}");
                return Err(Stop::Exit(5));
            }
        };
        let dn = os.dnode(object)?;
        if ![DmuType::SA, DmuType::ZNODE].contains(&dn.bonus_kind()) {
            let kind = dn.bonus_kind().to_disk();
            return Err(invalid(cx, &format!("invalid bonus type {kind} for obj {}", object.0)));
        }
        if cx.opts.verbose > 3 {
            let (kind, bonus) = (dn.kind().to_disk(), dn.bonus_kind().to_disk());
            writeln!(cx.out, "obj={} {walked} type={kind} bonustype={bonus}", object.0);
        }
        walked += "/";
        match dn.kind() {
            DmuType::DIRECTORY_CONTENTS if parts.peek().is_some() => {}
            DmuType::DIRECTORY_CONTENTS | DmuType::PLAIN_FILE_CONTENTS if parts.peek().is_none() => {
                return Ok(dn);
            }
            DmuType::PLAIN_FILE_CONTENTS => {
                writeln!(cx.err, "failed to lookup {walked}: Not a directory");
                return Err(Stop::Exit(20));
            }
            kind => {
                let kind = kind.to_disk();
                return Err(invalid(cx, &format!("object {} has non-file/directory type {kind}", object.0)));
            }
        }
    }
    Ok(os.dnode(object)?)
}

fn open<'a>(cx: &mut Ctx<'_>, pool: &'a Opened, ds: &'a Dataset) -> Run<View<'a>> {
    let Some(view) = view::open(cx, pool, ds, true)? else {
        return Err(cx.fatal(format!("can't open '{}': No such file or directory", ds.name())));
    };
    if view.locked {
        return Err(cx.fatal(format!("can't open '{}': its key is not loaded", ds.name())));
    }
    Ok(view)
}

/// Shows the object at a path (`dump_path`).
///
/// # Errors
/// * [`Stop::Exit`]: the path does not exist, or the dataset is empty or locked.
/// * [`Stop::Failed`]: an object can't be read.
pub fn show(cx: &mut Ctx<'_>, pool: &Opened, ds: &Dataset, path: &str) -> Run<i32> {
    cx.opts.set_count('d', cx.opts.verbose + 3);
    let mut view = open(cx, pool, ds)?;
    let dn = find(cx, &view.os, &ds.name(), path)?;
    object::show(cx, &mut view, &dn, &mut Header::default(), None)?;
    Ok(0)
}

/// Copies the file at a path into the file `to` (`zdb_copy_object`).
///
/// # Errors
/// * [`Stop::Exit`]: the path is no file, the dataset is empty or locked, or `to` can't be written.
/// * [`Stop::Failed`]: an object can't be read.
pub fn copy(cx: &mut Ctx<'_>, pool: &Opened, ds: &Dataset, path: &str, to: &str) -> Run<i32> {
    let view = open(cx, pool, ds)?;
    let dn = find(cx, &view.os, &ds.name(), path)?;
    let object = dn.object().0;
    if dn.kind() != DmuType::PLAIN_FILE_CONTENTS {
        return Err(cx.fatal(format!("'{path}' is no file")));
    }
    writeln!(cx.out, "Copying object {object} to file {to}");
    let size = match &view.files {
        Some(files) => files.attrs(&dn)?.u64(Attr::Size)?,
        None => None,
    };
    let Some(size) = size else {
        cx.out.put("Failed to get handle for SA znode\n");
        return Ok(1);
    };
    writeln!(cx.out, "Object {object} is {size} bytes");
    let failed = |cx: &mut Ctx<'_>, e: &std::io::Error| cx.fatal(format!("can't write '{to}': {e}"));
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(to);
    let mut file = opened.map_err(|e| failed(cx, &e))?;
    let mut buf = vec![0; size.min(CHUNK) as usize];
    let mut at = 0;
    while at < size {
        let part = &mut buf[..(size - at).min(CHUNK) as usize];
        dn.read_at(at, part)?;
        if cx.opts.verbose > 3 {
            writeln!(cx.out, "Read offset={at} size={} error=0", part.len());
        }
        file.write_all(part).map_err(|e| failed(cx, &e))?;
        at += part.len() as u64;
    }
    Ok(0)
}
