//! `zdb -d`: shows an object set, its row, and its objects.

use super::ctx::{Ctx, Run};
use super::mosrefs::MosRefs;
use super::object::{self, Header};
use super::opened::Opened;
use super::ranges::Range;
use super::text::fill;
use super::view::{self, View};
use super::{bplists, intent_log, text};
use dmu::{DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, Dnode};
use dsl::Dataset;
use ondisk::ObjNum;
use ondisk::objset::ObjsetKind;

/// The creation txg that the MOS shows (`TXG_INITIAL`).
const TXG_INITIAL: u64 = 4;

/// Shows the MOS (`dump_objset`).
pub fn mos(cx: &mut Ctx<'_>, pool: &Opened, objects: &[Range], refs: Option<&mut MosRefs>) -> Run {
    let os = pool.spa.mos().objset().clone();
    let used = match pool.dsl.root()?.child("$MOS")? {
        Some(dir) => dir.phys().used_bytes,
        None => 0,
    };
    let compression = "on".to_owned();
    let mut view = View { pool, os, ds: None, locked: false, compression, files: None, leaked: 0 };
    line(cx, "mos", "META", &view, TXG_INITIAL, used);
    body(cx, &mut view, objects, refs)
}

/// Shows a dataset (`dump_objset`).
pub fn dataset(
    cx: &mut Ctx<'_>,
    pool: &Opened,
    ds: &Dataset,
    objects: &[Range],
    refs: Option<&mut MosRefs>,
) -> Run {
    let files = cx.opts.count('d') >= 4;
    let Some(mut view) = view::open(cx, pool, ds, files)? else {
        // The dataset was never written: it has a name, and lists of blocks.
        let used = cx.num(ds.phys().referenced_bytes);
        let (name, id, txg) = (ds.name(), ds.object().0, ds.phys().creation_txg.0);
        writeln!(cx.out, "Dataset {name} [NONE], ID {id}, cr_txg {txg}, {used}, 0 objects");
        if objects.is_empty() {
            bplists::of_dataset(cx, pool, ds, refs)?;
        }
        return Ok(());
    };
    let kind = match view.os.kind() {
        ObjsetKind::None => "NONE",
        ObjsetKind::Meta => "META",
        ObjsetKind::Zfs => "ZPL",
        ObjsetKind::Zvol => "ZVOL",
        ObjsetKind::Other => "OTHER",
    };
    let phys = ds.phys();
    line(cx, &ds.name(), kind, &view, phys.creation_txg.0, phys.referenced_bytes);
    body(cx, &mut view, objects, refs)
}

fn line(cx: &mut Ctx<'_>, name: &str, kind: &str, view: &View<'_>, txg: u64, used: u64) {
    let root = view.os.root_bp();
    let bp =
        if cx.opts.count('d') >= 4 { format!(", rootbp {}", text::blkptr(&root)) } else { String::new() };
    let inconsistent = if view.ds.is_some_and(Dataset::is_inconsistent) { " (inconsistent)" } else { "" };
    let (id, used, objects) = (view.os.id(), cx.num(used), fill(&root));
    writeln!(
        cx.out,
        "Dataset {name} [{kind}], ID {id}, cr_txg {txg}, {used}, {objects} objects{bp}{inconsistent}"
    );
}

fn body(cx: &mut Ctx<'_>, view: &mut View<'_>, objects: &[Range], refs: Option<&mut MosRefs>) -> Run {
    let mut header = Header::default();
    if !objects.is_empty() {
        for range in objects {
            chosen(cx, view, range, &mut header)?;
        }
        cx.out.put("\n");
        return Ok(());
    }
    let verbosity = cx.opts.count('d');
    if cx.opts.has('i') || verbosity >= 2 {
        cx.part(|cx| intent_log::show(cx, view))?;
    }
    if let Some(ds) = view.ds {
        cx.part(|cx| bplists::of_dataset(cx, view.pool, ds, refs))?;
        if verbosity >= 4 {
            cx.part(|cx| bplists::bookmarks(cx, ds))?;
        }
    }
    if verbosity < 2 || view.os.root_bp().is_hole() {
        return Ok(());
    }
    all(cx, view, &mut header)
}

/// Shows the objects of a range.
fn chosen(cx: &mut Ctx<'_>, view: &mut View<'_>, range: &Range, header: &mut Header) -> Run {
    if range.is_single() {
        let dn = match hold(view, range.start) {
            Ok(dn) => dn,
            Err(e) => {
                header.show(cx);
                let errno = errno(view, range.start, &e);
                if !matches!(e, dmu::Error::NoSuchObject { .. }) {
                    cx.report(&anyhow::Error::new(e));
                }
                return Err(cx.fatal(format!("dmu_object_info() failed, errno {errno}")));
            }
        };
        return object::show(cx, view, &dn, header, Some(range));
    }
    if range.start.0 == 0 {
        let meta = view.os.meta_dnode();
        object::show(cx, view, &meta, header, Some(range))?;
    }
    let objects = view.os.objects_undecrypted(range.start);
    for dn in objects.take_while(|d| d.as_ref().map_or(true, |d| d.object() <= range.end)) {
        cx.part(|cx| object::show(cx, view, &dn?, header, Some(range)))?;
    }
    Ok(())
}

fn hold(view: &View<'_>, object: ObjNum) -> dmu::Result<Dnode> {
    if object.0 == 0 { Ok(view.os.meta_dnode()) } else { view.os.dnode_undecrypted(object) }
}

/// The error number that OpenZFS has here.
///
/// It is `EEXIST` inside a larger dnode, `ENOENT` without an object, else `EIO`.
fn errno(view: &View<'_>, object: ObjNum, e: &dmu::Error) -> u32 {
    if !matches!(e, dmu::Error::NoSuchObject { .. }) {
        return 5;
    }
    let earliest = ObjNum(object.0.saturating_sub(31).max(1));
    let inside =
        view.os.objects_undecrypted(earliest).flatten().take_while(|d| d.object() < object).any(|d| {
            let slots = d.phys().num_slots() as u64;
            d.object().0 + slots > object.0
        });
    if inside { 17 } else { 2 }
}

/// Shows every object, and statistics of the dnode slots.
fn all(cx: &mut Ctx<'_>, view: &mut View<'_>, header: &mut Header) -> Run {
    let meta = view.os.meta_dnode();
    cx.part(|cx| object::show(cx, view, &meta, header, None))?;
    for object in [DMU_USERUSED_OBJECT, DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT] {
        if let Ok(dn) = view.os.dnode(object) {
            cx.part(|cx| object::show(cx, view, &dn, header, None))?;
        }
    }
    let (mut used, mut last) = (0u64, 0u64);
    for dn in view.os.objects_undecrypted(ObjNum(1)) {
        cx.part(|cx| {
            let dn = dn?;
            let slots = dn.phys().num_slots() as u64;
            used += slots;
            last = dn.object().0 + slots - 1;
            object::show(cx, view, &dn, header, None)
        })?;
    }
    let empty = (last.saturating_sub(used)) as f64 * 100.0 / last as f64;
    cx.out.put("\n    Dnode slots:\n");
    writeln!(cx.out, "\tTotal used:    {used:10}");
    writeln!(cx.out, "\tMax used:      {last:10}");
    writeln!(cx.out, "\tPercent empty: {empty:10.6}\n");
    if view.leaked > 0 {
        writeln!(cx.out, "{} potentially leaked objects detected", view.leaked);
    }
    Ok(())
}
