//! `zdb -i`: the intent log of an object set.

use super::ctx::{Ctx, Run};
use super::text::{blkptr, lossy};
use super::view::View;
use ondisk::zil::{RecordBody, TxKind};
use ondisk::{BlkId, Blkptr, ObjNum};
use zil::{Claim, End, Log, LogRecord};

const TAB: &str = "\t\t\t";
/// Bits of a setattr record, as OpenZFS's user-space programs number them (`AT_*`).
///
/// Linux's kernel module writes other numbers, so OpenZFS's zdb names the wrong attributes. This
/// one prints the same.
const AT_MODE: u64 = 0x2;
const AT_UID: u64 = 0x4;
const AT_GID: u64 = 0x8;
const AT_SIZE: u64 = 0x80;
const AT_ATIME: u64 = 0x100;
const AT_MTIME: u64 = 0x200;

/// Shows the log (`dump_intent_log`).
pub fn show(cx: &mut Ctx<'_>, view: &mut View<'_>) -> Run {
    let verbosity = cx.opts.count('d').max(cx.opts.count('i'));
    if view.ds.is_some_and(dsl::Dataset::is_snapshot) {
        // A snapshot keeps the log header of the time before it was taken.
        return Ok(());
    }
    let ub = view.pool.spa.uberblock();
    let Some(log) = Log::open(&view.os, ub.txg.0, ub.checkpoint_txg.0)? else { return Ok(()) };
    if verbosity < 1 {
        return Ok(());
    }
    let h = log.header();
    write!(
        cx.out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {}",
        h.claim_txg, h.claim_blk_seq, h.claim_lr_seq
    );
    writeln!(cx.out, " replay_seq {}, flags {:#x}", h.replay_seq, h.flags);
    // If the pool is opened at its checkpoint, the log is newer than the pool.
    if verbosity < 2 || (ub.checkpoint_txg.0 != 0 && h.claim_txg == 0) {
        return Ok(());
    }
    cx.out.put("\n");
    let mut counts = [0u64; TxKind::ALL.len()];
    let mut blocks = log.blocks();
    for block in blocks.by_ref() {
        let block = match block {
            Ok(b) => b,
            Err(e) => {
                cx.report(&anyhow::Error::new(e));
                break;
            }
        };
        if verbosity > 3 {
            let bp = if verbosity >= 5 { format!(", {}", blkptr(&block.bp)) } else { String::new() };
            let claim = match block.claim {
                Claim::Already => "already claimed",
                Claim::Will => "will claim",
                Claim::Wont => "won't claim",
            };
            writeln!(cx.out, "\tBlock seqno {}, {claim}{bp}", block.seq);
        }
        for r in block.records.iter().flatten() {
            record(cx, view, &log, r, verbosity)?;
            counts[r.header.kind as usize] += 1;
            counts[0] += 1;
        }
    }
    if let Some(End::Unreadable(e)) = blocks.end() {
        cx.report(&anyhow::Error::new(e.clone()));
    }
    totals(cx, &counts, verbosity);
    Ok(())
}

fn totals(cx: &mut Ctx<'_>, counts: &[u64], verbosity: u32) {
    if verbosity > 3 {
        cx.out.put("\n");
    }
    if counts[0] == 0 {
        return;
    }
    let width = counts[0].to_string().len();
    for (kind, n) in TxKind::ALL.iter().zip(counts) {
        if *n > 0 || verbosity >= 3 {
            writeln!(cx.out, "\t\t{:19} {n:width$}", kind.name());
        }
    }
    cx.out.put("\n");
}

fn record(cx: &mut Ctx<'_>, view: &View<'_>, log: &Log, r: &LogRecord, verbosity: u32) -> Run {
    let h = &r.header;
    let ci = if h.ci { "CI-" } else { "" };
    let (kind, len, txg, seq) = (h.kind.name(), h.reclen, h.txg, h.seq);
    writeln!(cx.out, "\t\t{ci}{kind:19} len {len:6}, txg {txg}, seq {seq}");
    if verbosity < 3 {
        return Ok(());
    }
    match &r.body {
        Some(body) if !view.locked && !encrypted(view)? => details(cx, log, h.kind, body, verbosity),
        _ => {
            writeln!(cx.out, "{TAB}(encrypted)");
            if verbosity >= 4 {
                if let Some(bp) = &r.blkptr {
                    pointer(cx, log, bp);
                }
                clones(cx, &r.clones);
            }
            Ok(())
        }
    }
}

/// Whether the dataset is encrypted. OpenZFS never shows its records, even with the key.
fn encrypted(view: &View<'_>) -> Run<bool> {
    Ok(match view.ds {
        Some(ds) => ds.dir().crypto_object()?.is_some(),
        None => false,
    })
}

fn pointer(cx: &mut Ctx<'_>, log: &Log, bp: &Blkptr) {
    let claim = if log.is_live(bp) { "will claim" } else { "won't claim" };
    writeln!(cx.out, "{TAB}has blkptr, {claim}\n{TAB}{}", blkptr(bp));
}

fn clones(cx: &mut Ctx<'_>, blkptrs: &[Blkptr]) {
    for (i, bp) in blkptrs.iter().enumerate() {
        writeln!(cx.out, "{TAB}[{}/{}] {}", i + 1, blkptrs.len(), blkptr(bp));
    }
}

fn details(cx: &mut Ctx<'_>, log: &Log, kind: TxKind, body: &RecordBody, verbosity: u32) -> Run {
    match body {
        RecordBody::Commit => {}
        RecordBody::Create(c) => {
            let name = lossy(&c.name);
            match &c.link {
                Some(link) => writeln!(cx.out, "{TAB}{name} -> {}", lossy(link)),
                None if kind != TxKind::Mkxattr => writeln!(cx.out, "{TAB}{name}"),
                None => {}
            }
            let time = cx.clock.ctime(c.crtime[0]);
            writeln!(cx.out, "{TAB}{time}");
            let (foid, slots) = (c.foid.object, c.foid.slots);
            writeln!(cx.out, "{TAB}doid {}, foid {foid}, slots {slots}, mode {:o}", c.doid, c.mode);
            writeln!(cx.out, "{TAB}uid {}, gid {}, gen {}, rdev {:#x}", c.uid, c.gid, c.gen_, c.rdev);
        }
        RecordBody::Remove { doid, name } => writeln!(cx.out, "{TAB}doid {doid}, name {}", lossy(name)),
        RecordBody::Link { doid, link_obj, name } => {
            writeln!(cx.out, "{TAB}doid {doid}, link_obj {link_obj}, name {}", lossy(name));
        }
        RecordBody::Rename(r) => {
            writeln!(cx.out, "{TAB}sdoid {}, tdoid {}", r.sdoid, r.tdoid);
            writeln!(cx.out, "{TAB}src {} tgt {}", lossy(&r.source), lossy(&r.target));
            match kind {
                TxKind::RenameExchange => writeln!(cx.out, "{TAB}flags RENAME_EXCHANGE"),
                TxKind::RenameWhiteout => writeln!(cx.out, "{TAB}flags RENAME_WHITEOUT"),
                _ => {}
            }
        }
        RecordBody::Write(w) => write_record(cx, log, kind, w, verbosity),
        RecordBody::Truncate { foid, offset, length } => {
            writeln!(cx.out, "{TAB}foid {foid}, offset {offset:#x}, length {length:#x}");
        }
        RecordBody::Setattr(s) => setattr(cx, s),
        RecordBody::Acl { foid, acl } => writeln!(cx.out, "{TAB}foid {foid}, aclcnt {}", acl.count),
        RecordBody::SetSaXattr { foid, name, value } => {
            writeln!(cx.out, "{TAB}foid {foid}\n{TAB}XAT_NAME  {}", lossy(name));
            match value {
                None => writeln!(cx.out, "{TAB}XAT_VALUE  NULL"),
                // OpenZFS does not end this line either.
                Some(v) => {
                    write!(cx.out, "{TAB}XAT_VALUE  ");
                    cx.out.put_bytes(v);
                }
            }
        }
        RecordBody::CloneRange(c) => {
            let (foid, offset, length, blksz) = (c.foid, c.offset, c.length, c.blksz);
            writeln!(cx.out, "{TAB}foid {foid}, offset {offset:x}, length {length:x}, blksize {blksz:x}");
            if verbosity >= 4 {
                clones(cx, &c.blkptrs);
            }
        }
    }
    Ok(())
}

fn write_record(cx: &mut Ctx<'_>, log: &Log, kind: TxKind, w: &ondisk::zil::Write, verbosity: u32) {
    writeln!(cx.out, "{TAB}foid {}, offset {:x}, length {:x}", w.foid, w.offset, w.length);
    if kind == TxKind::Write2 || verbosity < 4 {
        return;
    }
    let most = w.length.min(if verbosity < 6 { 20 } else { 1 << 24 }) as usize;
    match &w.blkptr {
        Some(bp) => {
            pointer(cx, log, bp);
            if verbosity < 5 {
                return;
            }
            if bp.is_hole() {
                writeln!(cx.out, "{TAB}LSIZE {:#x}\n{TAB}<hole>", bp.lsize.0);
            } else if bp.birth.0 < log.header().claim_txg {
                writeln!(cx.out, "{TAB}<block already committed>");
            } else {
                let blkid = BlkId(w.offset / bp.lsize.0.max(1));
                // A block that was never fully written is no error here.
                if let Ok(data) = log.read_block(bp, ObjNum(w.foid), blkid) {
                    bytes(cx, &data[..most.min(data.len())]);
                }
            }
        }
        None if verbosity >= 5 => bytes(cx, &w.data[..most.min(w.data.len())]),
        None => {}
    }
}

fn bytes(cx: &mut Ctx<'_>, data: &[u8]) {
    cx.out.put(TAB);
    for b in data {
        if b.is_ascii_graphic() || *b == b' ' {
            write!(cx.out, "{} ", char::from(*b));
        } else {
            // C prints the byte as a signed number.
            write!(cx.out, "{:2X}", i32::from(*b as i8));
        }
    }
    cx.out.put("\n");
}

fn setattr(cx: &mut Ctx<'_>, s: &ondisk::zil::Setattr) {
    writeln!(cx.out, "{TAB}foid {}, mask {:#x}", s.foid, s.mask);
    if s.mask & AT_MODE != 0 {
        writeln!(cx.out, "{TAB}AT_MODE  {:o}", s.mode);
    }
    for (bit, name, value) in [(AT_UID, "UID  ", s.uid), (AT_GID, "GID  ", s.gid), (AT_SIZE, "SIZE ", s.size)]
    {
        if s.mask & bit != 0 {
            writeln!(cx.out, "{TAB}AT_{name} {value}");
        }
    }
    for (bit, name, [secs, nanos]) in [(AT_ATIME, "ATIME", s.atime), (AT_MTIME, "MTIME", s.mtime)] {
        if s.mask & bit != 0 {
            let text = cx.clock.ctime(secs);
            writeln!(cx.out, "{TAB}AT_{name} {secs}.{nanos:09} {text}");
        }
    }
}
