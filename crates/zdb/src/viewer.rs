//! Shows the contents of an object by its type, and its bonus by the bonus type.

use super::ctx::{Ctx, Run};
use super::text::{self, compact};
use super::view::View;
use super::{zap, znode};
use dmu::Dnode;
use dmu::zap::Zap;
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::bpobj::{BPOBJ_ENTRY_SIZE, BpobjPhys};
use ondisk::bytes::le64;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE};
use ondisk::dsl::{DdUsed, DslDatasetPhys, DslDirPhys};
use ondisk::history::HistoryPhys;
use ondisk::kind::ByteSwap;
use ondisk::{Blkptr, DmuType, Nvlist};

/// The form in which an object or bonus is shown (`object_viewer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Viewer {
    Nothing,
    Unknown,
    Zap,
    ZapStats,
    Words,
    PackedNvlist,
    BpobjHeader,
    BpobjSubobjs,
    DslDir,
    DslDataset,
    Znode,
    Directory,
    HistoryOffsets,
    SaRegistry,
    SaLayouts,
}

fn viewer(kind: DmuType) -> Viewer {
    use Viewer::*;
    if text::is_self_describing(kind) {
        return match (kind.byteswap(), kind.is_encrypted()) {
            (ByteSwap::Zap, false) => Zap,
            (ByteSwap::Uint64, false) => Words,
            _ => Unknown,
        };
    }
    match kind.to_disk() {
        1 | 13 | 14 | 15 | 21 | 22 | 24 | 27 | 28 | 31 | 32 | 37..=41 | 43 | 45 | 48 | 50 | 52 => Zap,
        2 | 26 => Words,
        4 | 36 => PackedNvlist,
        6 => BpobjHeader,
        12 => DslDir,
        16 => DslDataset,
        17 | 44 => Znode,
        20 => Directory,
        30 => HistoryOffsets,
        42 => ZapStats,
        46 => SaRegistry,
        47 => SaLayouts,
        53 => BpobjSubobjs,
        _ => Nothing,
    }
}

/// Shows the contents of a bonus.
pub fn bonus(cx: &mut Ctx<'_>, view: &mut View<'_>, dn: &Dnode) -> Run {
    match viewer(dn.bonus_kind()) {
        Viewer::PackedNvlist => packed_nvlist(cx, dn),
        Viewer::BpobjHeader => bpobj(cx, dn),
        Viewer::DslDir => dsl_dir(cx, dn),
        Viewer::DslDataset => dsl_dataset(cx, dn),
        Viewer::Znode => znode::show(cx, view, dn),
        Viewer::HistoryOffsets => history_offsets(cx, dn),
        Viewer::Words => {
            if cx.opts.count('d') >= 6 {
                // OpenZFS shows the whole space for the bonus, not only its length.
                let (slots, pointers) = (dn.phys().num_slots(), dn.phys().blkptrs.len());
                let mut room = dn.bonus().to_vec();
                room.resize(
                    (slots * DNODE_MIN_SIZE - DNODE_CORE_SIZE - pointers * BLKPTR_SIZE).max(room.len()),
                    0,
                );
                words(cx, &room, room.len() as u64);
            }
            Ok(())
        }
        other => by_object(cx, other, dn),
    }
}

/// Shows the contents of an object's blocks.
pub fn contents(cx: &mut Ctx<'_>, _view: &mut View<'_>, dn: &Dnode) -> Run {
    match viewer(dn.kind()) {
        Viewer::Words if cx.opts.count('d') >= 6 => {
            /// Largest number of bytes that is shown.
            const MOST: u64 = 1 << 20;
            let size = dn.max_size();
            let mut buf = vec![0; size.min(MOST) as usize];
            dn.read_at(0, &mut buf)?;
            words(cx, &buf, size);
            Ok(())
        }
        other => by_object(cx, other, dn),
    }
}

fn by_object(cx: &mut Ctx<'_>, viewer: Viewer, dn: &Dnode) -> Run {
    let show: fn(&mut Ctx<'_>, &Zap) -> Run = match viewer {
        Viewer::Unknown => {
            cx.out.put("\tUNKNOWN OBJECT TYPE\n");
            return Ok(());
        }
        Viewer::BpobjSubobjs => return subobjs(cx, dn),
        Viewer::Zap => zap::entries,
        Viewer::ZapStats => zap::stats,
        Viewer::Directory => zap::directory,
        Viewer::SaRegistry => zap::sa_registry,
        Viewer::SaLayouts => zap::sa_layouts,
        _ => return Ok(()),
    };
    show(cx, &Zap::open(dn)?)
}

fn words(cx: &mut Ctx<'_>, buf: &[u8], size: u64) {
    if buf.len() < 8 {
        cx.out.put("\t\t[]\n");
        return;
    }
    write!(cx.out, "\t\t[{:x}", le64(buf, 0));
    for i in 1..buf.len() / 8 {
        cx.out.put(if i % 4 == 0 { ",\n\t\t" } else { ", " });
        write!(cx.out, "{:x}", le64(buf, i * 8));
    }
    cx.out.put(if size > buf.len() as u64 { ", ... ]\n" } else { "]\n" });
}

fn packed_nvlist(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let truncated =
        ondisk::Corrupt::Truncated { what: "packed nvlist size", need: 8, have: dn.bonus().len() };
    let size = dn.bonus().first_chunk::<8>().ok_or_else(|| dn.corrupt(truncated))?;
    let size = u64::from_le_bytes(*size);
    if size > dn.max_size() {
        let source = ondisk::Corrupt::Range { what: "packed nvlist", field: "size", value: size };
        return Err(dn.corrupt(source).into());
    }
    let mut buf = vec![0; size as usize];
    dn.read_at(0, &mut buf)?;
    let list = Nvlist::decode(&buf).map_err(|e| dn.corrupt(e))?;
    text::nvlist(cx.out, &list, 8);
    Ok(())
}

fn bpobj(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let phys = BpobjPhys::decode(dn.bonus()).map_err(|e| dn.corrupt(e))?;
    // An older header is shorter; its missing fields show as zero.
    writeln!(cx.out, "\t\tnum_blkptrs = {}", phys.num_blkptrs);
    writeln!(cx.out, "\t\tbytes = {}", cx.numbers.num(phys.bytes));
    writeln!(cx.out, "\t\tcomp = {}", cx.numbers.num(phys.comp));
    writeln!(cx.out, "\t\tuncomp = {}", cx.numbers.num(phys.uncomp));
    writeln!(cx.out, "\t\tsubobjs = {}", phys.subobjs);
    writeln!(cx.out, "\t\tnum_subobjs = {}", phys.num_subobjs);
    writeln!(cx.out, "\t\tnum_freed = {}", phys.num_freed);
    if cx.opts.count('d') < 5 {
        return Ok(());
    }
    let mut raw = [0; BPOBJ_ENTRY_SIZE as usize];
    for i in 0..phys.num_blkptrs.min(dn.max_size() / BPOBJ_ENTRY_SIZE) {
        dn.read_at(i * BPOBJ_ENTRY_SIZE, &mut raw)?;
        let bp = Blkptr::decode(&raw).map_err(|e| dn.corrupt(e))?;
        let freed = le64(&raw, 88) & 1 != 0;
        writeln!(cx.out, "\t{}", compact(&bp, cx.opts.count('d') > 5, freed));
    }
    Ok(())
}

fn subobjs(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let mut zeros = 0u64;
    for blkid in 0..=dn.max_blkid().0 {
        let Some(block) = dn.block(ondisk::BlkId(blkid))? else { break };
        for i in 0..block.len() / 8 {
            match le64(&block, i * 8) {
                0 => zeros += 1,
                n => {
                    // Zeros before another number are shown, zeros at the end are not.
                    (0..std::mem::take(&mut zeros)).for_each(|_| cx.out.put("\t0\n"));
                    writeln!(cx.out, "\t{n}");
                }
            }
        }
    }
    Ok(())
}

fn dsl_dir(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let d = DslDirPhys::decode(dn.bonus()).map_err(|e| dn.corrupt(e))?;
    let n = cx.numbers;
    let created = cx.clock.ctime(d.creation_time);
    writeln!(cx.out, "\t\tcreation_time = {created}");
    writeln!(cx.out, "\t\thead_dataset_obj = {}", d.head_dataset_obj);
    writeln!(cx.out, "\t\tparent_dir_obj = {}", d.parent_obj);
    writeln!(cx.out, "\t\torigin_obj = {}", d.origin_obj);
    writeln!(cx.out, "\t\tchild_dir_zapobj = {}", d.child_dir_zapobj);
    writeln!(cx.out, "\t\tused_bytes = {}", n.num(d.used_bytes));
    writeln!(cx.out, "\t\tcompressed_bytes = {}", n.num(d.compressed_bytes));
    writeln!(cx.out, "\t\tuncompressed_bytes = {}", n.num(d.uncompressed_bytes));
    writeln!(cx.out, "\t\tquota = {}", n.num(d.quota));
    writeln!(cx.out, "\t\treserved = {}", n.num(d.reserved));
    writeln!(cx.out, "\t\tprops_zapobj = {}", d.props_zapobj);
    writeln!(cx.out, "\t\tdeleg_zapobj = {}", d.deleg_zapobj);
    writeln!(cx.out, "\t\tflags = {:x}", d.flags);
    for (name, which) in [
        ("HEAD", DdUsed::Head),
        ("SNAP", DdUsed::Snap),
        ("CHILD", DdUsed::Child),
        ("CHILD_RSRV", DdUsed::ChildRsrv),
        ("REFRSRV", DdUsed::Refrsrv),
    ] {
        writeln!(cx.out, "\t\tused_breakdown[{name}] = {}", n.num(d.used_by(which)));
    }
    writeln!(cx.out, "\t\tclones = {}", d.clones);
    Ok(())
}

fn dsl_dataset(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let d = DslDatasetPhys::decode(dn.bonus()).map_err(|e| dn.corrupt(e))?;
    let n = cx.numbers;
    let created = cx.clock.ctime(d.creation_time);
    writeln!(cx.out, "\t\tdir_obj = {}", d.dir_obj);
    writeln!(cx.out, "\t\tprev_snap_obj = {}", d.prev_snap_obj);
    writeln!(cx.out, "\t\tprev_snap_txg = {}", d.prev_snap_txg);
    writeln!(cx.out, "\t\tnext_snap_obj = {}", d.next_snap_obj);
    writeln!(cx.out, "\t\tsnapnames_zapobj = {}", d.snapnames_zapobj);
    writeln!(cx.out, "\t\tnum_children = {}", d.num_children);
    writeln!(cx.out, "\t\tuserrefs_obj = {}", d.userrefs_obj);
    writeln!(cx.out, "\t\tcreation_time = {created}");
    writeln!(cx.out, "\t\tcreation_txg = {}", d.creation_txg.0);
    writeln!(cx.out, "\t\tdeadlist_obj = {}", d.deadlist_obj);
    writeln!(cx.out, "\t\tused_bytes = {}", n.num(d.referenced_bytes));
    writeln!(cx.out, "\t\tcompressed_bytes = {}", n.num(d.compressed_bytes));
    writeln!(cx.out, "\t\tuncompressed_bytes = {}", n.num(d.uncompressed_bytes));
    writeln!(cx.out, "\t\tunique = {}", n.num(d.unique_bytes));
    writeln!(cx.out, "\t\tfsid_guid = {}", d.fsid_guid);
    writeln!(cx.out, "\t\tguid = {}", d.guid);
    writeln!(cx.out, "\t\tflags = {:x}", d.flags);
    writeln!(cx.out, "\t\tnext_clones_obj = {}", d.next_clones_obj);
    writeln!(cx.out, "\t\tprops_obj = {}", d.props_obj);
    writeln!(cx.out, "\t\tbp = {}", text::blkptr(&d.bp));
    Ok(())
}

fn history_offsets(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let h = HistoryPhys::decode(dn.bonus()).map_err(|e| dn.corrupt(e))?;
    writeln!(cx.out, "\t\tpool_create_len = {}", h.pool_create_len);
    writeln!(cx.out, "\t\tphys_max_off = {}", h.phys_max_off);
    writeln!(cx.out, "\t\tbof = {}", h.bof);
    writeln!(cx.out, "\t\teof = {}", h.eof);
    writeln!(cx.out, "\t\trecords_lost = {}", h.records_lost);
    Ok(())
}
