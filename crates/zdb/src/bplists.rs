//! Lists of block pointers (deadlists, livelists, bpobjs), and bookmarks.

use super::ctx::{Ctx, Run};
use super::mosrefs::MosRefs;
use super::opened::Opened;
use super::text::compact;
use dsl::Dataset;
use ondisk::bookmark::{RedactBlock, RedactionListPhys};
use ondisk::{Blkptr, DmuType, ObjNum, mos};
use pool::Mos;
use std::collections::BTreeSet;

/// Deepest nesting of sub-lists to show.
const MAX_DEPTH: usize = 64;

/// Shows the lists of a dataset, and adds its objects to `refs`.
pub fn of_dataset(cx: &mut Ctx<'_>, pool: &Opened, ds: &Dataset, mut refs: Option<&mut MosRefs>) -> Run {
    let mos = pool.spa.mos();
    let deadlist = ObjNum(ds.phys().deadlist_obj);
    if deadlist.0 != 0 {
        deadlist_of(cx, mos, deadlist, "Deadlist", refs.as_deref_mut())?;
    }
    if !ds.is_snapshot()
        && let Some(livelist) = ds.dir().field(mos::DD_LIVELIST)?
    {
        deadlist_of(cx, mos, ObjNum(livelist), "Livelist", refs.as_deref_mut())?;
    }
    if let Some(remap) = ds.field_u64(mos::DS_REMAP_DEADLIST)? {
        cx.out.put("ds_remap_deadlist:\n");
        deadlist_of(cx, mos, ObjNum(remap), "Deadlist", refs.as_deref_mut())?;
    }
    if let Some(refs) = refs {
        refs.dataset(ds)?;
    }
    Ok(())
}

/// Shows a deadlist of either format (`dump_blkptr_list`).
pub fn deadlist_of(
    cx: &mut Ctx<'_>,
    mos: &Mos,
    object: ObjNum,
    name: &str,
    refs: Option<&mut MosRefs>,
) -> Run {
    let list = mos.deadlist(object)?;
    let old = mos.objset().dnode(object)?.kind() == DmuType::BPOBJ;
    let lists = list.lists(mos)?;
    if let Some(refs) = refs {
        if old {
            refs.bpobj(mos, object)?;
        } else {
            refs.add(object.0);
            for sub in lists.values() {
                refs.bpobj(mos, *sub)?;
            }
        }
    }
    let verbosity = cx.opts.count('d');
    if verbosity < 3 {
        return Ok(());
    }
    if old {
        return bpobj(cx, mos, object, "old-format deadlist");
    }
    let [used, comp, uncomp, entries] =
        [list.total.used, list.total.comp, list.total.uncomp, lists.len() as u64].map(|n| cx.num(n));
    writeln!(cx.out, "\n    {name}: {used} ({comp}/{uncomp} comp), {entries} entries");
    if verbosity < 4 {
        return Ok(());
    }
    cx.out.put("\n");
    for (mintxg, sub) in lists {
        let name = format!("mintxg {mintxg} -> obj {}", sub.0);
        if verbosity >= 5 {
            bpobj(cx, mos, sub, &name)?;
        } else {
            writeln!(cx.out, "{name}");
        }
    }
    Ok(())
}

/// Shows a bpobj with its sub-lists (`dump_full_bpobj`).
pub fn bpobj(cx: &mut Ctx<'_>, mos: &Mos, object: ObjNum, name: &str) -> Run {
    with_sublists(cx, mos, object, (name, 0), &mut BTreeSet::new())
}

/// Shows a bpobj at a depth.
///
/// A list that was shown is skipped, so that lists which contain each other end.
fn with_sublists(
    cx: &mut Ctx<'_>,
    mos: &Mos,
    object: ObjNum,
    (name, depth): (&str, usize),
    shown: &mut BTreeSet<ObjNum>,
) -> Run {
    let verbosity = cx.opts.count('d');
    if verbosity < 3 || depth > MAX_DEPTH || !shown.insert(object) {
        return Ok(());
    }
    let phys = mos.bpobj(object)?;
    // The length of the bonus says which fields the header has.
    let size = mos.objset().dnode(object)?.bonus().len();
    let freed = if size > 48 { format!(", {} freed", phys.num_freed) } else { String::new() };
    let (width, bytes) = (depth * 8, cx.num(phys.bytes));
    if size > 32 && phys.subobjs != 0 {
        let (comp, uncomp) = (cx.num(phys.comp), cx.num(phys.uncomp));
        writeln!(
            cx.out,
            "    {name:>width$}: object {}, {} local blkptrs{freed}, {} subobjs in object {}, {bytes} ({comp}/{uncomp} comp)",
            object.0, phys.num_blkptrs, phys.num_subobjs, phys.subobjs
        );
        for sub in mos.bpobj_subobjs(object, &phys)? {
            with_sublists(cx, mos, sub, ("subobj", depth + 1), shown)?;
        }
    } else {
        writeln!(
            cx.out,
            "    {name:>width$}: object {}, {} blkptrs{freed}, {bytes}",
            object.0, phys.num_blkptrs
        );
    }
    if verbosity < 5 || depth > 0 {
        return Ok(());
    }
    let all_copies = verbosity > 5;
    mos.walk_bpobj(object, &mut |bp: &Blkptr, freed| {
        writeln!(cx.out, "\t{}", compact(bp, all_copies, freed));
        Ok(())
    })?;
    cx.out.put("\n");
    Ok(())
}

/// Shows the bookmarks of a dataset (`dump_bookmarks`).
pub fn bookmarks(cx: &mut Ctx<'_>, ds: &Dataset) -> Run {
    let verbosity = cx.opts.count('d');
    for b in ds.bookmarks()? {
        bookmark(cx, ds, &b, verbosity >= 5, verbosity >= 6)?;
    }
    Ok(())
}

/// Shows a bookmark, if wanted with its redaction snapshots and redaction list (`dump_bookmark`).
pub fn bookmark(cx: &mut Ctx<'_>, ds: &Dataset, b: &dsl::Bookmark, redacted: bool, list: bool) -> Run {
    let p = &b.phys;
    writeln!(
        cx.out,
        "\t#{}: {{guid: {:x} creation_txg: {} creation_time: {} redaction_obj: {}}}",
        b.name, p.guid, p.creation_txg, p.creation_time, p.redaction_obj
    );
    if redacted && p.redaction_obj != 0 {
        redaction(cx, ds, ObjNum(p.redaction_obj), list)?;
    }
    Ok(())
}

fn redaction(cx: &mut Ctx<'_>, ds: &Dataset, object: ObjNum, list: bool) -> Run {
    let dn = ds.dsl().mos().objset().dnode(object)?;
    let spill = dn.spill()?;
    let phys = RedactionListPhys::decode(dn.bonus(), spill.as_deref()).map_err(|e| dn.corrupt(e))?;
    cx.out.put("\tRedacted:\n\t\tProgress: ");
    if phys.last_object != u64::MAX || phys.last_blkid != u64::MAX {
        writeln!(cx.out, "{} {} (incomplete)", phys.last_object, phys.last_blkid);
    } else {
        cx.out.put("complete\n");
    }
    let snaps: Vec<String> = phys.snaps.iter().map(u64::to_string).collect();
    writeln!(cx.out, "\t\tSnapshots: [{}]\n\t\tLength: {}", snaps.join(", "), phys.num_entries);
    if !list {
        return Ok(());
    }
    cx.out.put("\t\tRedaction List: [");
    let mut raw = [0; RedactBlock::SIZE];
    for i in 0..phys.num_entries.min(dn.max_size() / RedactBlock::SIZE as u64) {
        dn.read_at(i * RedactBlock::SIZE as u64, &mut raw)?;
        let b = RedactBlock::decode(&raw).map_err(|e| dn.corrupt(e))?;
        let before = if i == 0 { "" } else { ",\n\t\t" };
        write!(
            cx.out,
            "{before}{{object: {:x}, offset: {:x}, blksz: {:x}, count: {:x}}}",
            b.object, b.blkid, b.block_size, b.count
        );
    }
    cx.out.put("]\n\n");
    Ok(())
}

/// Shows how many destroyed datasets wait to be freed, and their bytes (`dump_bptree`).
pub fn bptree(cx: &mut Ctx<'_>, mos: &Mos, object: ObjNum, name: &str) -> Run {
    let bytes = cx.num(bptree_word(mos, object, 2)?);
    writeln!(cx.out, "\n    {name}: {} datasets, {bytes}", bptree_len(mos, object)?);
    Ok(())
}

/// The number of destroyed datasets that wait to be freed.
pub fn bptree_len(mos: &Mos, object: ObjNum) -> Run<u64> {
    Ok(bptree_word(mos, object, 1)?.wrapping_sub(bptree_word(mos, object, 0)?))
}

/// A word of the header of the tree of destroyed datasets: begin, end, bytes (`bptree_phys_t`).
fn bptree_word(mos: &Mos, object: ObjNum, i: usize) -> Run<u64> {
    let dn = mos.objset().dnode(object)?;
    let have = dn.bonus().len();
    let word = dn.bonus().get(i * 8..i * 8 + 8).map(|b| ondisk::bytes::le64(b, 0));
    let short = ondisk::Corrupt::Truncated { what: "bptree", need: 40, have };
    word.ok_or_else(|| dn.corrupt(short).into())
}
