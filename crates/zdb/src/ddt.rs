//! `zdb -D`: dedup tables.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::{blkptr, fill};
use ondisk::ObjNum;
use ondisk::ddt::{
    DDL_FLAG_CHECKPOINT, DDL_FLAG_FLUSHING, DDT_FLAG_FLAT, DDT_FLAG_LOG, DdtKey, DdtLogHeader, DdtPhys,
};
use pool::ddt::{Ddt, DdtClass, DdtHistogram, DdtLog, DdtStat};
use std::collections::BTreeMap;

/// Shows all tables (`dump_all_ddts`).
pub fn show(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let tables = pool.spa.ddts(&pool.spa.top_vdevs()?)?;
    let mut all = DdtHistogram::default();
    for ddt in &tables {
        table(cx, pool, ddt)?;
        all.add(&ddt.histogram());
    }
    let total = all.total();
    if total.blocks == 0 {
        cx.out.put("All DDTs are empty\n");
        return Ok(());
    }
    cx.out.put("\n");
    if cx.opts.count('D') > 1 {
        cx.out.put("DDT histogram (aggregated over all DDTs):\n");
        histogram(cx, &all, Some(&total));
    }
    ratio(cx, &total);
    Ok(())
}

/// The names of the set flags in brackets, after a space. Bits without a name become `UNKNOWN`.
fn flag_names(flags: u64, names: &[(u64, &str)]) -> String {
    if flags == 0 {
        return String::new();
    }
    let mut out: String =
        names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, n)| format!(" {n}")).collect();
    if flags & !names.iter().fold(0, |all, (bit, _)| all | bit) != 0 {
        out += " UNKNOWN";
    }
    format!(" [{}]", out.trim_start())
}

fn table(cx: &mut Ctx<'_>, pool: &Opened, ddt: &Ddt) -> Run {
    let version = match ddt.version {
        0 => "LEGACY",
        1 => "FDT",
        _ => "UNKNOWN",
    };
    let names = flag_names(ddt.flags, &[(DDT_FLAG_FLAT, "FLAT"), (DDT_FLAG_LOG, "LOG")]);
    writeln!(
        cx.out,
        "DDT-{}: version={} [{version}]; flags=0x{:02x}{names}; rootobj={}",
        ddt.checksum.name(),
        ddt.version,
        ddt.flags,
        ddt.dir.0
    );
    for class in &ddt.classes {
        zap(cx, pool, ddt, class)?;
    }
    if ddt.version == 0 || ddt.flags & DDT_FLAG_LOG == 0 {
        return Ok(());
    }
    for number in 0..2 {
        match ddt.logs.iter().find(|log| log.number == number) {
            Some(log) => log_of(cx, ddt, log)?,
            None => log_of(cx, ddt, &unwritten(ddt, number))?,
        }
    }
    Ok(())
}

fn zap(cx: &mut Ctx<'_>, pool: &Opened, ddt: &Ddt, class: &DdtClass) -> Run {
    if class.entries == 0 {
        return Ok(());
    }
    let verbosity = cx.opts.count('D');
    let name = ddt.class_name(class.class);
    let dn = pool.spa.mos().objset().dnode(class.object)?;
    let filled: u64 = dn.phys().blkptrs.iter().fold(0, |n, bp| n.wrapping_add(fill(bp)));
    let dspace = (class.dspace.saturating_add(256) >> 9) << 9;
    let mspace = filled.wrapping_mul(dn.block_size());
    writeln!(cx.out, "{name}: dspace={dspace}; mspace={mspace}; entries={}", class.entries);
    if verbosity < 3 {
        return Ok(());
    }
    writeln!(cx.out, "{name}: object={}", class.object.0);
    histogram(cx, &class.histogram, None);
    // Entries with one reference are many and of little interest.
    const UNIQUE: usize = 2;
    if verbosity < 4 || (verbosity < 5 && class.class == UNIQUE) {
        return Ok(());
    }
    writeln!(cx.out, "{name} contents:\n");
    for (i, e) in pool.spa.mos().ddt_entries(ddt, class)?.enumerate() {
        let e = e?;
        entry(cx, ddt, &e.key, &e.phys, i as u64)?;
    }
    cx.out.put("\n");
    Ok(())
}

fn entry(cx: &mut Ctx<'_>, ddt: &Ddt, key: &DdtKey, phys: &DdtPhys, index: u64) -> Run {
    for (p, slot) in phys.slots().iter().enumerate() {
        if slot.phys_birth.0 == 0 {
            continue;
        }
        let bp = slot.blkptr(ddt.checksum, key)?;
        writeln!(cx.out, "index {index:x} refcnt {} phys {p} {}", slot.refcnt, blkptr(&bp));
    }
    Ok(())
}

/// A log that was never written, with the flags that OpenZFS has in memory.
///
/// Of the two logs, the inactive one is being flushed.
fn unwritten(ddt: &Ddt, number: u32) -> DdtLog {
    let flushing = ddt.logs.first().map_or(number == 1, |other| !other.is_flushing());
    let flags = if flushing { DDL_FLAG_FLUSHING } else { 0 };
    let header = DdtLogHeader { flags, length: 0, first_txg: 0, checkpoint: None };
    DdtLog { number, object: ObjNum(0), header, entries: BTreeMap::new() }
}

fn log_of(cx: &mut Ctx<'_>, ddt: &Ddt, log: &DdtLog) -> Run {
    let h = &log.header;
    let flags = u64::from(h.flags);
    let names = flag_names(
        flags,
        &[(DDL_FLAG_FLUSHING.into(), "FLUSHING"), (DDL_FLAG_CHECKPOINT.into(), "CHECKPOINT")],
    );
    writeln!(
        cx.out,
        "DDT-log-{}-{}: flags=0x{flags:02x}{names}; obj={}; len={}; txg={}; entries={}",
        ddt.checksum.name(),
        log.number,
        log.object.0,
        h.length,
        h.first_txg,
        log.entries.len()
    );
    if let Some(key) = &h.checkpoint {
        let words: Vec<String> = key.to_words().iter().map(|w| format!("{w:016x}")).collect();
        writeln!(cx.out, "    checkpoint: {}", words.join(":"));
    }
    if cx.opts.count('D') >= 4 {
        for (i, (key, (_, phys))) in log.entries.iter().enumerate() {
            entry(cx, ddt, key, phys, i as u64)?;
        }
    }
    Ok(())
}

/// Shows a histogram in the form of `zpool status -D` (`zpool_dump_ddt`).
fn histogram(cx: &mut Ctx<'_>, histogram: &DdtHistogram, total: Option<&DdtStat>) {
    cx.out.put("\nbucket              allocated                       referenced          \n");
    let (line, dashes) = ("_".repeat(30), "------   -----   -----   -----");
    writeln!(cx.out, "______   {line}   {line}");
    let columns = "blocks   LSIZE   PSIZE   DSIZE";
    writeln!(cx.out, "refcnt   {columns}   {columns}\n------   {dashes}   {dashes}");
    for (i, stat) in histogram.0.iter().enumerate() {
        let refcnt = console::numbers::num(1u64 << i);
        row(cx, stat, &refcnt);
    }
    if let Some(total) = total {
        row(cx, total, "Total");
    }
    cx.out.put("\n");
}

fn row(cx: &mut Ctx<'_>, s: &DdtStat, name: &str) {
    if s.blocks == 0 {
        return;
    }
    let (num, bytes) = (console::numbers::num, console::numbers::bytes);
    writeln!(
        cx.out,
        "{name:>6}   {:>6}   {:>5}   {:>5}   {:>5}   {:>6}   {:>5}   {:>5}   {:>5}",
        num(s.blocks),
        bytes(s.lsize),
        bytes(s.psize),
        bytes(s.dsize),
        num(s.ref_blocks),
        bytes(s.ref_lsize),
        bytes(s.ref_psize),
        bytes(s.ref_dsize)
    );
}

fn ratio(cx: &mut Ctx<'_>, s: &DdtStat) {
    let (logical, stored, deflated) = (s.ref_lsize as f64, s.ref_psize as f64, s.ref_dsize as f64);
    let dedup = deflated / s.dsize as f64;
    let (compress, copies) = (logical / stored, deflated / stored);
    writeln!(
        cx.out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = {:.2}\n",
        dedup * compress / copies
    );
}
