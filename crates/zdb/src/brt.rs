//! `zdb -T`: the block reference table.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::histogram;
use pool::brt::{saved, used};

/// Shows the table (`dump_brt`).
pub fn show(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    const FEATURE: &str = "com.fudosecurity:block_cloning";
    if !pool.spa.features().is_enabled(FEATURE) {
        cx.out.put("BRT: unsupported on this pool\n");
        return Ok(());
    }
    if !pool.spa.features().is_active(FEATURE) {
        cx.out.put("BRT: empty\n");
        return Ok(());
    }
    let mos = pool.spa.mos();
    let vdevs = pool.spa.tree().top_count();
    let tables = mos.brt(vdevs)?;
    let (all_used, all_saved) = (used(&tables), saved(&tables));
    let sum = u128::from(all_used) + u128::from(all_saved);
    let ratio = (sum * 100).checked_div(all_used.into()).unwrap_or(100);
    let n = cx.numbers;
    writeln!(
        cx.out,
        "BRT: used {}; saved {}; ratio {}.{:02}x",
        n.bytes(all_used),
        n.bytes(all_saved),
        ratio / 100,
        ratio % 100
    );
    let verbosity = cx.opts.count('T');
    if verbosity < 2 {
        return Ok(());
    }
    for vdev in 0..vdevs {
        match tables.iter().find(|t| t.vdev.0 == vdev) {
            None => writeln!(cx.out, "BRT: vdev {vdev}: empty"),
            Some(t) => {
                let p = &t.phys;
                let (count, used, saved) = (n.num(p.totalcount), n.bytes(p.usedspace), n.bytes(p.savedspace));
                writeln!(cx.out, "BRT: vdev {vdev}: refcnt {count}; used {used}; saved {saved}");
            }
        }
    }
    if verbosity < 3 {
        return Ok(());
    }
    if verbosity > 3 {
        writeln!(cx.out, "\n{:<16} {:<10}", "DVA", "REFCNT");
    }
    for t in &tables {
        let mut counts = [0u64; 65];
        for e in mos.brt_entries(t)? {
            let e = e?;
            // Bits are numbered from one; zero has none.
            counts[(u64::BITS - e.refcnt.leading_zeros()) as usize] += 1;
            if verbosity > 3 {
                writeln!(cx.out, "{:<16} {:<10}", format!("{}:{:x}", t.vdev.0, e.offset), e.refcnt);
            }
        }
        if verbosity == 3 {
            writeln!(cx.out, "\nBRT: vdev {}: DVAs with 2^n refcnts:", t.vdev.0);
            histogram(cx.out, &counts, 0);
        }
    }
    Ok(())
}
